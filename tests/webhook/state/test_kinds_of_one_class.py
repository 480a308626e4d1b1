"""One class with devices of several kinds: a node speaks only for the kind that it publishes."""

import pytest

from dra import wire
from dra.objects.deviceclass import DeviceClass
from dra.objects.resourceslice import ResourceSlice
from tests.webhook.pods import actions, became, pod, untouched
from webhook.state.inventory import Inventory

AMD, INTEL = "gpu.amd.com", "gpu.intel.com"
WHOLE = (AMD, {"type": "amdgpu", "partitionProfile": "spx_nps1"})
PART = (AMD, {"type": "amdgpu-partition", "partitionProfile": "cpx_nps4"})
I915 = (INTEL, {"type": "gpu", "driver": "i915"})
XE = (INTEL, {"type": "gpu", "driver": "xe"})
VF = (INTEL, {"type": "vf", "driver": "xe"})


def fleet(*nodes: tuple) -> Inventory:
    """One node for each kind of device, with one of it."""
    classes, slices = [], []
    for driver in {driver for driver, _ in nodes}:
        selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
        value = {"metadata": {"name": driver}, "spec": {"selectors": [selector]}}
        classes.append(wire.convert(value, DeviceClass))
    for number, (driver, texts) in enumerate(nodes):
        attributes = {name: {"string": text} for name, text in texts.items()}
        spec = {
            "driver": driver,
            "nodeName": f"n{number}",
            "pool": {"name": f"n{number}", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d", "attributes": attributes}],
        }
        slices.append(wire.convert({"metadata": {"name": f"s{number}"}, "spec": spec}, ResourceSlice))
    return Inventory.of(classes, slices, ())


@pytest.mark.parametrize(
    ("key", "nodes", "basis"),
    [
        ("gpu.intel.com/xe", (XE, I915, I915), "1 of 1 nodes publish it as a GPU on xe (class gpu.intel.com)"),
        ("gpu.intel.com/i915", (XE, I915, I915), "2 of 2 nodes publish it as a GPU on i915 (class gpu.intel.com)"),
        ("amd.com/gpu", (WHOLE, WHOLE, PART), "2 of 3 nodes publish it as a whole AMD GPU (class gpu.amd.com)"),
    ],
)
def test_a_node_speaks_for_the_kind_that_it_publishes(key, nodes, basis):
    done = became(pod({key: 1}), fleet=fleet(*nodes))
    assert actions(done) == {key: "translated"}
    assert done.decisions[0].basis == basis


@pytest.mark.parametrize(
    ("key", "nodes", "reason"),
    [
        ("gpu.intel.com/xe", (I915, I915), "no node publishes a GPU on xe"),
        ("gpu.intel.com/xe", (VF,), "no node publishes a GPU on xe"),
        ("amd.com/gpu", (PART,), "node n0 publishes parts of devices alone, as do 1 of the 1 nodes"),
        ("amd.com/gpu", (WHOLE, PART), "node n1 publishes parts of devices alone, as do 1 of the 2 nodes"),
    ],
)
def test_a_kind_that_nobody_publishes_is_not_asked_for(key, nodes, reason):
    done = became(pod({key: 1}), fleet=fleet(*nodes))
    assert untouched(done)
    assert reason in done.warnings[0]
