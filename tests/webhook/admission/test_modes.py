"""Modes, the canary, and what each mode changes and records."""

import msgspec
import pytest

from tests.webhook.admission.reviews import ENFORCE, answer, gpu_pod, mutated, state, untouched


@pytest.mark.parametrize("mode", ["off", "observe", "warn"])
def test_templates_are_signed_in_mode_enforce_only(mode):
    """Otherwise any client of the port could get a signature for a namespace of its choice."""
    current_state = msgspec.structs.replace(ENFORCE, namespaces={"ns": {"drawbridge.dev/mode": mode}})
    outcome = mutated(gpu_pod(), current_state)[1]
    assert "patch" not in answer(outcome)
    # Each signature starts with its version.
    assert b"v2 " not in outcome.body


# Modes


def test_mode_observe_only_records_decisions():
    for limits in ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500m"}):
        _, outcome = mutated(gpu_pod(limits=limits), state(mode="observe"))
        response = answer(outcome)
        assert response["allowed"]
        assert "patch" not in response
        assert "warnings" not in response
        assert outcome.record.outcome in ("would translate", "would refuse")
        assert outcome.record.decisions


def test_mode_warn_returns_warnings_and_no_patch():
    for limits in (
        {"nvidia.com/gpu": "1"},
        {"nvidia.com/gpu": "16"},
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500m"},
    ):
        _, outcome = mutated(gpu_pod(limits=limits), state(mode="warn"))
        response = answer(outcome)
        assert response["allowed"]
        assert "patch" not in response
        assert "would" in response["warnings"][0]


def test_mode_off_makes_no_decision():
    _, outcome = mutated(gpu_pod(), state(mode="off"))
    assert untouched(outcome)
    assert not outcome.record.decisions


def test_all_modes_make_the_same_decisions():
    decisions = [mutated(gpu_pod(), state(mode=mode))[1].record.decisions for mode in ("observe", "warn", "enforce")]
    assert decisions[0] == decisions[1] == decisions[2]
