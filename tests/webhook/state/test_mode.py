import msgspec
import pytest

from webhook.names import MODE_LABEL as LABEL
from webhook.state.canary import PodOwner
from webhook.state.configuration import DEFAULT, Configuration
from webhook.state.mode import Mode, mode_of, why_rules_unknown
from webhook.state.state import State

TRAIN = PodOwner("ns", "Job", "train")


def configuration(**changes):
    return Configuration(msgspec.structs.replace(DEFAULT, **changes))


def seen(configured, labels, **more):
    return State(configuration=configured, namespaces={"ns": labels}, **more)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_namespace_label_overrides_the_configuration(mode):
    assert mode_of(seen(configuration(mode="observe"), {LABEL: mode.value}), TRAIN) is mode


@pytest.mark.parametrize("labels", [{}, {LABEL: ""}])
def test_an_empty_label_leaves_the_mode_to_the_configuration(labels):
    assert mode_of(seen(configuration(mode="warn"), labels), TRAIN) is Mode.WARN


@pytest.mark.parametrize("word", ["ENFORCE", "Off", "on", "enforce ", "false"])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_misspelt_mode_warns_at_most_and_is_reported(word, mode):
    state = seen(configuration(mode=mode.value), {LABEL: word})
    assert mode_of(state, TRAIN) is (Mode.WARN if mode is Mode.ENFORCE else mode)
    (why,) = why_rules_unknown(state, "ns")
    assert why == f"its label drawbridge.dev/mode={word!r} is not a valid mode (expected off, observe, warn, enforce)"
    assert why_rules_unknown(state, "other") == ()


def test_outside_the_canary_enforcing_namespaces_only_warn():
    assert mode_of(seen(configuration(canary=0), {}), TRAIN) is Mode.WARN
    assert mode_of(seen(configuration(canary=0), {LABEL: "enforce"}), TRAIN) is Mode.WARN
    assert mode_of(seen(configuration(canary=100), {}), TRAIN) is Mode.ENFORCE


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE, Mode.WARN])
def test_the_canary_never_raises_a_mode(mode):
    assert mode_of(seen(configuration(canary=0), {LABEL: mode.value}), TRAIN) is mode


@pytest.mark.parametrize("mode", list(Mode))
def test_a_namespace_with_unread_objects_warns_at_most(mode):
    unsure = {"ns": ("Namespace",)}
    effective = mode_of(seen(configuration(), {LABEL: mode.value}, unsure=unsure), TRAIN)
    assert effective is (Mode.WARN if mode is Mode.ENFORCE else mode)
