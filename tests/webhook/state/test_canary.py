import itertools

import pytest

from webhook.state.canary import PodOwner, workload


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
