import msgspec
import pytest

from tests.loops import every
from webhook.names import MODE_LABEL as LABEL
from webhook.state.canary import PodOwner
from webhook.state.configuration import DEFAULT, Configuration
from webhook.state.mode import Mode, mode_of, why_rules_unknown
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
