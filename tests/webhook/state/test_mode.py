import itertools

import msgspec
import pytest

from tests.loops import every
from webhook.names import MODE_LABEL as LABEL
from webhook.state.configuration import DEFAULT, Configuration
from webhook.state.mode import Mode, PodOwner, mode_of, why_rules_unknown, workload
from webhook.state.state import State

TRAINING_JOB = PodOwner("ns", "Job", "train")


def configuration(**changes):
    return Configuration(msgspec.structs.replace(DEFAULT, **changes))


def state_of(configuration_, labels, **fields):
    return State(configuration=configuration_, namespaces={"ns": labels}, **fields)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_namespace_label_overrides_the_configuration(mode):
    assert mode_of(state_of(configuration(mode="observe"), {LABEL: mode.value}), TRAINING_JOB) is mode


@pytest.mark.parametrize("labels", [{}, {LABEL: ""}])
def test_an_empty_label_leaves_the_mode_to_the_configuration(labels):
    assert mode_of(state_of(configuration(mode="warn"), labels), TRAINING_JOB) is Mode.WARN


@every("word", ["ENFORCE", "Off", "on", "enforce ", "false"])
@every("mode", list(Mode))
def test_a_misspelt_mode_warns_at_most_and_is_reported(word, mode):
    state = state_of(configuration(mode=mode.value), {LABEL: word})
    assert mode_of(state, TRAINING_JOB) is (Mode.WARN if mode is Mode.ENFORCE else mode)
    (reason,) = why_rules_unknown(state, "ns")
    assert (
        reason == f"its label drawbridge.dev/mode={word!r} is not a valid mode (expected off, observe, warn, enforce)"
    )
    assert why_rules_unknown(state, "other") == ()


def test_outside_the_canary_enforcing_namespaces_only_warn():
    assert mode_of(state_of(configuration(canary=0), {}), TRAINING_JOB) is Mode.WARN
    assert mode_of(state_of(configuration(canary=0), {LABEL: "enforce"}), TRAINING_JOB) is Mode.WARN
    assert mode_of(state_of(configuration(canary=100), {}), TRAINING_JOB) is Mode.ENFORCE


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE, Mode.WARN])
def test_the_canary_never_makes_a_mode_stricter(mode):
    assert mode_of(state_of(configuration(canary=0), {LABEL: mode.value}), TRAINING_JOB) is mode


@pytest.mark.parametrize("mode", list(Mode))
def test_a_namespace_with_unread_objects_warns_at_most(mode):
    unsure = {"ns": ("Namespace",)}
    effective = mode_of(state_of(configuration(), {LABEL: mode.value}, unsure=unsure), TRAINING_JOB)
    assert effective is (Mode.WARN if mode is Mode.ENFORCE else mode)


# The canary


def metadata_owned_by(kind, name, labels=None):
    return {"ownerReferences": [{"kind": kind, "name": name, "controller": True}], "labels": labels or {}}


def test_all_revisions_of_a_deployment_are_one_workload():
    first_revision = workload("ns", metadata_owned_by("ReplicaSet", "web-7d4b9", {"pod-template-hash": "7d4b9"}))
    second_revision = workload("ns", metadata_owned_by("ReplicaSet", "web-5c8ff", {"pod-template-hash": "5c8ff"}))
    assert first_revision == second_revision == PodOwner("ns", "ReplicaSet", "web")


def test_only_a_controller_names_the_workload():
    metadata = {"name": "p", "ownerReferences": [{"kind": "Node", "name": "n"}]}
    assert workload("ns", metadata) == PodOwner("ns", "Pod", "p")


def test_a_bare_pod_is_its_own_workload():
    assert workload("ns", {"generateName": "p-"}).name == "p-"
    assert workload("ns", {"name": "p-x1", "generateName": "p-"}).name == "p-x1"
    assert workload("ns", {}).name == ""


def test_a_larger_percentage_only_adds_workloads():
    workloads = [PodOwner("ns", "Job", f"job-{i}") for i in range(2000)]
    workloads_by_percentage = [
        {owner for owner in workloads if owner.within(percent)} for percent in (0, 0.5, 5, 50, 99.9, 100)
    ]
    assert all(smaller <= larger for smaller, larger in itertools.pairwise(workloads_by_percentage))
    assert not workloads_by_percentage[0]
    assert len(workloads_by_percentage[-1]) == 2000
    assert 880 < len(workloads_by_percentage[3]) < 1120


def test_equal_names_in_two_namespaces_are_two_workloads():
    answers = {PodOwner(f"ns-{i}", "Job", "train").within(50) for i in range(20)}
    assert answers == {True, False}


@pytest.mark.parametrize(
    "malformed", [None, 1, "x", [1], {"a": 1}, [None, []], [{"controller": True, "name": 1, "kind": []}]]
)
def test_malformed_metadata_still_yields_a_workload_identity(malformed):
    for metadata in (
        {"ownerReferences": malformed},
        {"name": malformed},
        {"generateName": malformed},
        metadata_owned_by("Job", "j") | {"labels": malformed},
    ):
        assert all(isinstance(part, str) for part in workload("ns", metadata))
