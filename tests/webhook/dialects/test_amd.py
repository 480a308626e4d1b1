"""AMD: whole GPUs if the configuration declares that a unit is a GPU, and partitions by their profile."""

import pytest

from tests.webhook.dialects.rows import Row, rows_not_translated
from tests.webhook.pods import exactly, expression, outcomes, pod, required_affinity, selected, untouched, verdict_of
from webhook.dialects.amd import DIALECT

GPU = {"amd.com/gpu": 1}
WHOLE_AMD_GPUS = {"meanings": {"amd.com/gpu": "whole"}}
MODES = ("spx", "dpx", "tpx", "qpx", "cpx")
PARTITION = "amd.com/compute-memory-partition"
ROWS = {
    "amd.com/gpu": Row(pod(GPU), "translated", WHOLE_AMD_GPUS),
    **{
        f"amd.com/{mode}_<memory>": Row(pod({f"amd.com/{mode}_nps1": 1}), "translated", key=f"amd.com/{mode}_nps1")
        for mode in MODES
    },
    **rows_not_translated(DIALECT, GPU, WHOLE_AMD_GPUS),
    PARTITION: Row(pod(GPU, nodeSelector={PARTITION: "spx_nps1"}), "", WHOLE_AMD_GPUS),
}


def test_a_request_for_a_whole_gpu_matches_no_partition():
    verdict = verdict_of(pod(GPU), **WHOLE_AMD_GPUS)
    assert exactly(verdict)[0]["class"] == "gpu.amd.com"
    assert selected(verdict, type="amdgpu", partitionProfile="spx_nps1")
    assert not selected(verdict, type="amdgpu-partition", partitionProfile="cpx_nps4")
    assert verdict.decisions[0].detail == "1 whole GPU (class gpu.amd.com)"


def test_an_amd_gpu_without_a_declared_meaning_is_left_unchanged():
    assert untouched(verdict_of(pod(GPU)))


@pytest.mark.parametrize("profile", ["cpx_nps4", "spx_nps1"])
def test_a_partition_is_requested_by_profile_regardless_of_device_type(profile):
    verdict = verdict_of(pod({f"amd.com/{profile}": 1}))
    for device_type in ("amdgpu", "amdgpu-partition"):
        assert selected(verdict, type=device_type, partitionProfile=profile)
        assert not selected(verdict, type=device_type, partitionProfile="dpx_nps2")


def test_a_partition_selector_requests_a_partition():
    verdict = verdict_of(pod(GPU, nodeSelector={PARTITION: "cpx_nps4"}), **WHOLE_AMD_GPUS)
    assert selected(verdict, type="amdgpu-partition", partitionProfile="cpx_nps4")
    assert not selected(verdict, type="amdgpu", partitionProfile="spx_nps1")


def test_a_choice_of_two_partitions_is_left_unchanged():
    affinity = required_affinity(expression(PARTITION, "In", "cpx_nps4", "spx_nps1"))
    assert untouched(verdict_of(pod(GPU, affinity=affinity), **WHOLE_AMD_GPUS))


def test_a_declared_partition_is_requested():
    verdict = verdict_of(pod(GPU), meanings={"amd.com/gpu": "partition:cpx_nps1"})
    assert selected(verdict, partitionProfile="cpx_nps1")


def test_a_hami_share_of_an_amd_gpu_is_unchanged():
    verdict = verdict_of(pod({"amd.com/gpu": 1, "amd.com/gpumem": 1000}), **WHOLE_AMD_GPUS)
    assert untouched(verdict)
    assert set(outcomes(verdict).values()) == {"left"}


def test_zero_hami_memory_requests_a_whole_amd_gpu():
    verdict = verdict_of(pod(GPU | {"amd.com/gpumem": 0}), **WHOLE_AMD_GPUS)
    assert exactly(verdict)[0]["class"] == "gpu.amd.com"
