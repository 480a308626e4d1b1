"""If a class has devices of several kinds, a node is evidence only for the kind that it publishes."""

import pytest

from dra.objects.device import ResourceSlice
from tests.objects import device_class, resource_slice, typed
from tests.webhook.pods import exactly, outcomes, pod, untouched, verdict_of
from webhook.state.inventory import Inventory

AMD, INTEL = "gpu.amd.com", "gpu.intel.com"
WHOLE_GPU = (AMD, {"type": "amdgpu", "partitionProfile": "spx_nps1"})
GPU_PARTITION = (AMD, {"type": "amdgpu-partition", "partitionProfile": "cpx_nps4"})
I915 = (INTEL, {"type": "gpu", "driver": "i915"})
XE = (INTEL, {"type": "gpu", "driver": "xe"})
VF = (INTEL, {"type": "vf", "driver": "xe"})


def fleet_with(*devices: tuple) -> Inventory:
    """Return a fleet with one node for each device. A device is a driver's name and attributes."""
    drivers = {driver for driver, _ in devices}
    classes = [typed(device_class(driver, f"device.driver == '{driver}'")) for driver in drivers]
    slices = []
    for number, (driver, texts) in enumerate(devices):
        attributes = {name: {"string": text} for name, text in texts.items()}
        slices.append(slice_of_node(number, {"name": "d", "attributes": attributes}, driver))
    return Inventory.gather(classes, slices, ())


def slice_of_node(number: int, device: dict, driver: str) -> ResourceSlice:
    """Return the slice with which a node publishes its only device."""
    node = f"n{number}"
    return typed(resource_slice(f"s{number}", device, driver=driver, pool=node, nodeName=node))


@pytest.mark.parametrize(
    ("key", "nodes", "basis"),
    [
        ("gpu.intel.com/xe", (XE, I915, I915), "1 of 1 nodes publish it as a GPU on xe (class gpu.intel.com)"),
        ("gpu.intel.com/i915", (XE, I915, I915), "2 of 2 nodes publish it as a GPU on i915 (class gpu.intel.com)"),
        ("amd.com/gpu", (WHOLE_GPU, WHOLE_GPU, GPU_PARTITION), "2 of 3 nodes publish it as a whole AMD GPU (class gpu.amd.com)"),
    ],
)  # fmt: skip
def test_a_node_is_evidence_only_for_its_own_kind(key, nodes, basis):
    verdict = verdict_of(pod({key: 1}), fleet=fleet_with(*nodes))
    assert outcomes(verdict) == {key: "translated"}
    assert verdict.decisions[0].basis == basis


@pytest.mark.parametrize(
    ("key", "nodes", "reason"),
    [
        ("gpu.intel.com/xe", (I915, I915), "no node publishes a GPU on xe"),
        ("gpu.intel.com/xe", (VF,), "no node publishes a GPU on xe"),
        ("amd.com/gpu", (GPU_PARTITION,), "1 of 1 nodes show no whole AMD GPU, such as n0, which"),
        ("amd.com/gpu", (WHOLE_GPU, GPU_PARTITION), "1 of 2 nodes show no whole AMD GPU, such as n1, which"),
    ],
)
def test_a_key_of_an_unpublished_device_kind_is_left_unchanged(key, nodes, reason):
    verdict = verdict_of(pod({key: 1}), fleet=fleet_with(*nodes))
    assert untouched(verdict)
    assert reason in verdict.warnings[0]


def gpu_fleet(*policies: dict | None) -> Inventory:
    """Return a fleet of nodes with one GPU of four shares each; with NO_SHARES, the GPU is not divided.

    A policy has the number of shares that a claim gets if it requests no number.
    """
    slices = []
    for number, policy in enumerate(policies):
        capacity = {
            "shares": {"value": "4", "requestPolicy": policy},
            "memory": {"value": "24Gi", "requestPolicy": {"default": "0"}},
        }
        if policy == NO_SHARES:
            capacity = {"memory": {"value": "24Gi"}}
        device = {
            "name": "d",
            "attributes": {"type": {"string": "gpu"}},
            "allowMultipleAllocations": policy != NO_SHARES,
            "capacity": capacity,
        }
        slices.append(slice_of_node(number, device, "gpu.nvidia.com"))
    return Inventory.gather([typed(device_class("gpu.nvidia.com", "true"))], slices, ())


ONE_SHARE, ALL_SHARES, NO_SHARES = {"default": "1"}, {"default": "4"}, {}


def test_a_gpu_divided_into_shares_is_not_a_whole_gpu():
    verdict = verdict_of(pod({"nvidia.com/gpu": 1}), fleet=gpu_fleet(ONE_SHARE))
    assert untouched(verdict)
    assert "n0, which publishes only parts of devices" in verdict.warnings[0]


@pytest.mark.parametrize("policy", [ALL_SHARES, None])
def test_a_gpu_claimed_with_all_shares_is_a_whole_gpu(policy):
    verdict = verdict_of(pod({"nvidia.com/gpu": 1}), fleet=gpu_fleet(policy))
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1}]


def test_a_request_for_a_whole_gpu_excludes_divided_gpus():
    verdict = verdict_of(pod({"nvidia.com/gpu": 1}), fleet=gpu_fleet(ONE_SHARE, NO_SHARES, NO_SHARES))
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1, "cel": ["!device.allowMultipleAllocations"]}]


def test_gpus_claimed_with_all_shares_are_not_excluded():
    verdict = verdict_of(pod({"nvidia.com/gpu": 1}), fleet=gpu_fleet(ONE_SHARE, ALL_SHARES, NO_SHARES))
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1}]


def test_a_share_is_requested_from_divided_gpus():
    verdict = verdict_of(
        pod({"nvidia.com/gpu.shared": 1}), fleet=gpu_fleet(ONE_SHARE), nvidia={"consumableShares": True}
    )
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1, "capacity": {"shares": "1"}}]
