"""NVIDIA's time-sliced replicas: which are left unchanged, and which become shares."""

import pytest

from tests.webhook.pods import (
    exactly,
    expression,
    outcomes,
    pod,
    required_affinity,
    untouched,
    verdict_of,
)

STRATEGIES = {
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
}


@pytest.mark.parametrize(
    ("key", "count", "is_share_published"),
    [("nvidia.com/mig-1g.5gb.me.shared", 1, True), ("nvidia.com/gpu.shared", 1, False), ("nvidia.com/gpu.shared", 2, True)],
)  # fmt: skip
def test_replicas_without_a_share_are_left_unchanged(key, count, is_share_published):
    verdict = verdict_of(pod({key: count}), nvidia={"consumableShares": is_share_published})
    assert untouched(verdict)
    assert outcomes(verdict) == {key: "left"}


def test_a_replica_becomes_one_share_if_the_driver_publishes_shares():
    verdict = verdict_of(pod({"nvidia.com/gpu.shared": 1}), nvidia={"consumableShares": True})
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1, "capacity": {"shares": "1"}}]
    assert outcomes(verdict) == {"nvidia.com/gpu.shared": "approximated"}


@pytest.mark.parametrize(("label", "time_slicing"), STRATEGIES.items())
def test_a_replica_under_mps_is_left_unchanged_for_its_limits(label, time_slicing):
    """MPS limits the memory and threads of each replica. `shares` limit neither, and the driver refuses MPS beside them."""
    shares = {"nvidia": {"consumableShares": True}}
    under_mps = verdict_of(pod({"nvidia.com/gpu.shared": 1}, nodeSelector={label: "mps"}), **shares)
    assert untouched(under_mps)
    assert outcomes(under_mps)["nvidia.com/gpu.shared"] == "left"
    assert f"{label}=mps asks for MPS" in " ".join(under_mps.warnings)
    under_other = verdict_of(pod({"nvidia.com/gpu.shared": 1}, nodeSelector={label: time_slicing}), **shares)
    assert outcomes(under_other)["nvidia.com/gpu.shared"] == "approximated"


@pytest.mark.parametrize(
    ("operator", "values", "is_left"), [("In", ["mps", "time-slicing"], True), ("NotIn", ["mps"], False)]
)
def test_a_replica_possibly_under_mps_is_left_unchanged(operator, values, is_left):
    affinity = required_affinity(expression("nvidia.com/gpu.sharing-strategy", operator, *values))
    verdict = verdict_of(pod({"nvidia.com/gpu.shared": 1}, affinity=affinity), nvidia={"consumableShares": True})
    assert untouched(verdict) is is_left
