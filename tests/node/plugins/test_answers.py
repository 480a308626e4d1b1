"""Answers of a plugin become a CDI file, which a container runtime applies as root."""

import json

import pytest

from node.checkpoint import HeldDevice, Prepared
from node.messages import AllocateResponse, CdiName, Edits, PluginMount, PluginNode
from node.plugins import PluginFault, answer_from_spec, read_answer, spec_of_answers

DRIVER = "plugins.drawbridge.dev"


def answer_with(*edits):
    return AllocateResponse(containers=edits)


def test_a_cdi_file_has_a_device_for_each_request():
    first = Edits(
        variables={"NVIDIA_VISIBLE_DEVICES": "GPU-1", "A": "b"},
        mounts=(PluginMount(container_path="/in", host_path="/out", read_only=True),),
        nodes=(PluginNode(container_path="/dev/x0", host_path="/dev/y0", permissions="rw"),),
        annotations={"vendor.com/devices": "1"},
    )
    edits = read_answer(answer_with(first, Edits()), ["a", "b"])
    held_devices = (HeldDevice(request="a", device="x"), HeldDevice(request="b", device="y"))
    record = Prepared(uid="u-1", namespace="n", name="c", pool="node", devices=held_devices)
    spec = json.loads(spec_of_answers(DRIVER, record, edits))
    assert (spec["cdiVersion"], spec["kind"]) == ("0.6.0", f"{DRIVER}/claim")
    device, second = spec["devices"]
    assert (device["name"], second["name"]) == ("u-1-0", "u-1-1")
    assert device["containerEdits"] == {
        "env": ["A=b", "NVIDIA_VISIBLE_DEVICES=GPU-1"],
        "deviceNodes": [{"path": "/dev/x0", "hostPath": "/dev/y0", "permissions": "rw"}],
        "mounts": [{"hostPath": "/out", "containerPath": "/in", "options": ["rbind", "ro"]}],
    }
    assert second["containerEdits"] == {"env": []}
    assert "vendor.com" not in json.dumps(spec), "the file has annotations, which CDI cannot add"


def test_the_answer_to_the_kubelet_names_the_files_devices():
    edits = Edits(cdi=(CdiName(name="vendor.com/gpu=0"), CdiName(name="vendor.com/gpu=1")))
    held_devices = tuple(
        HeldDevice(request=request, device=name) for request, name in (("a/x", "d1"), ("a/x", "d2"), ("b", "d3"))
    )
    record = Prepared(uid="u", namespace="n", name="c", pool="node", devices=held_devices)
    spec = spec_of_answers(DRIVER, record, {"a": edits, "b": Edits()})
    named_devices = [
        (device.requests, device.device, device.cdi) for device in answer_from_spec(DRIVER, record, spec).devices
    ]
    own_device = f"{DRIVER}/claim=u"
    assert named_devices == [
        (("a",), "d1", (f"{own_device}-0", "vendor.com/gpu=0", "vendor.com/gpu=1")),
        (("a",), "d2", ()),
        (("b",), "d3", (f"{own_device}-1",)),
    ]


@pytest.mark.parametrize("spec", [b"", b"{}", b"[]", b'{"devices":[{"name":"x"}]}', b'{"devices":1}'])
def test_a_corrupted_cdi_file_is_rejected(spec):
    record = Prepared(uid="u", namespace="n", name="c", pool="node", devices=(HeldDevice(request="a", device="d"),))
    with pytest.raises(PluginFault):
        answer_from_spec(DRIVER, record, spec)


INVALID_ANSWERS = {
    "a relative path": Edits(mounts=(PluginMount(container_path="in", host_path="/out"),)),
    "a path that leads elsewhere": Edits(mounts=(PluginMount(container_path="/in", host_path="/dev/../etc"),)),
    "a line break in a path": Edits(nodes=(PluginNode(container_path="/dev/a\n", host_path="/dev/a"),)),
    "a path that is too long": Edits(nodes=(PluginNode(container_path="/" + "a" * 5000, host_path="/dev/a"),)),
    "a device node without a host path": Edits(nodes=(PluginNode(container_path="/dev/a"),)),
    "unknown permissions": Edits(nodes=(PluginNode(container_path="/a", host_path="/a", permissions="rwx"),)),
    "a variable with = in its name": Edits(variables={"A=B": "c"}),
    "a variable with a zero byte": Edits(variables={"A": "b\0c"}),
    "a variable that is too long": Edits(variables={"A": "b" * 40_000}),
    "too many variables": Edits(variables={f"A{number}": "" for number in range(300)}),
    "an invalid name of a CDI device": Edits(cdi=(CdiName(name="gpu0"),)),
}


@pytest.mark.parametrize("name", INVALID_ANSWERS)
def test_an_invalid_answer_of_a_plugin_is_refused(name):
    with pytest.raises(PluginFault):
        read_answer(answer_with(INVALID_ANSWERS[name]), ["a"])


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_for_another_number_of_requests_is_refused(count):
    with pytest.raises(PluginFault, match=f"answered {count} requests instead of 1"):
        read_answer(answer_with(*[Edits()] * count), ["a"])
