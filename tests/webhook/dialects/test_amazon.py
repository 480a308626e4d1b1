"""Amazon's Neuron: claims request whole devices. Cores become devices if the configuration declares the cores of a device."""

import pytest

from tests.webhook.dialects.rows import Row
from tests.webhook.pods import devices, exactly, outcomes, pod, untouched, verdict_of

NEURON, CORES = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"
ONE_DEVICE = [{"class": "neuron.aws.com", "count": 1, "cel": ['device.attributes["neuron.aws.com"].?resourceType.orValue("") == "neuron_device"']}]  # fmt: skip
ROWS = {CORES: Row(pod({CORES: 2}), "approximated", {"amazon": {"coresPerDevice": 2}})}


def test_a_single_device_is_requested():
    assert exactly(verdict_of(pod({NEURON: 1}))) == ONE_DEVICE


def test_several_devices_without_groups_are_approximated():
    verdict = verdict_of(pod({NEURON: 16}))
    assert outcomes(verdict) == {NEURON: "approximated"}
    assert "constraints" not in devices(verdict)


def test_connected_devices_are_requested_where_groups_are_published():
    verdict = verdict_of(pod({NEURON: 16}), amazon={"deviceGroups": True})
    assert devices(verdict)["constraints"] == [{"matchAttribute": "resource.aws.com/devicegroup16_id", "requests": ["neuron"]}]  # fmt: skip
    # The driver publishes groups of 4, 8 and 16 devices, and none of 3.
    assert "constraints" not in devices(verdict_of(pod({NEURON: 3}), amazon={"deviceGroups": True}))


@pytest.mark.parametrize(("cores", "count"), [(1, 1), (2, 1), (3, 2), (16, 8)])
def test_cores_are_rounded_up_to_devices(cores, count):
    verdict = verdict_of(pod({CORES: cores}), amazon={"coresPerDevice": 2})
    assert [request["count"] for request in exactly(verdict)] == [count]


def test_cores_of_an_unknown_device_are_left_unchanged():
    assert untouched(verdict_of(pod({CORES: 2})))


def test_old_plugin_slots_become_shares_of_the_declared_size():
    """The amazon dialect leaves slots on the pod. `keys` disables its row, so that an administrator's dialect can translate the key."""
    slots = {"name": "k8s.amazonaws.com/vgpu", "meaning": "slots", "role": "cores", "unit": "percent", "expression": "int(value) * 10"}  # fmt: skip
    slot_dialect = {"name": "slots", "title": "Slots as shares", "target": "vgpu", "keys": [slots]}
    manifest = pod({slots["name"]: 3})
    verdict = verdict_of(manifest, dialects=[slot_dialect], keys={"amazon": {slots["name"]: ""}})
    [request] = devices(verdict)["requests"]
    assert request["exactly"]["capacity"]["requests"] == {"cores": "30"}
    assert [decision.detail for decision in verdict.decisions] == ["(class hami-core-gpu.project-hami.io)"]
    assert untouched(verdict_of(manifest))
