"""CDI files: the edits of a container for each device, and names that the runtime accepts."""

import json
import re

from node.cdi import answer_of, file_name, is_ours, spec_of, uid_of
from node.guard import Guard
from tests.node.machines import DRIVER, NODE, claim, gpu, machine, reference, result, shared_gpu

DEVICE_FILES = {"deviceNodes": ["/dev/nvidia0", "/dev/zero:/dev/card0"]}
MACHINE = machine(
    visibleDevices="VISIBLE",
    gpus=[gpu(0, place=DEVICE_FILES), gpu(1), shared_gpu(2, whole=False)],
    nics=[{"name": "nic", "interface": "eth1", "rdmaDevice": "mlx5_0"}],
    numaNodes=[{"number": 0, "cpus": "0-7"}],
)


def prepared_claim(*results):
    return Guard(MACHINE, NODE).check_claim(claim("c", *results), reference("c"), {})


def requests_and_edits(*results):
    """Return the requests of each prepared device and its edits of the container."""
    record = prepared_claim(*results)
    spec = json.loads(spec_of(record, DRIVER, "/metadata"))
    for device in spec["devices"]:
        device["containerEdits"].pop("mounts", None)  # tested in test_metadata.py
    by_name = {f"{spec['kind']}={device['name']}": device["containerEdits"] for device in spec["devices"]}
    answer = answer_of(record, DRIVER)
    assert len(answer.devices) == len(results)
    return [(device.requests, [by_name[name] for name in device.cdi]) for device in answer.devices]


def test_a_whole_device_has_variables_and_device_nodes():
    [(requests, [edit])] = requests_and_edits(result("gpu-0", "main/alternative"))
    assert requests == ("main",)
    assert edit == {
        "env": ["DRAWBRIDGE_DEVICE_GPU_0=GPU-0", "VISIBLE=GPU-0"],
        "deviceNodes": [
            {"path": "/dev/nvidia0", "hostPath": "/dev/nvidia0", "permissions": "rw"},
            {"path": "/dev/card0", "hostPath": "/dev/zero", "permissions": "rw"},
        ],
    }


def test_a_share_has_its_amounts_in_variables():
    [(_, [edit])] = requests_and_edits(result("gpu-2-shared", share="s", memory="10Gi", cores="30"))
    assert edit["env"] == [
        "DRAWBRIDGE_DEVICE_GPU_2_SHARED=GPU-2",
        "DRAWBRIDGE_DEVICE_GPU_2_SHARED_CORES=30",
        f"DRAWBRIDGE_DEVICE_GPU_2_SHARED_MEMORY={10 << 30}",
        "VISIBLE=GPU-2",
    ]


def test_the_memory_of_two_shares_in_one_request_is_added():
    shares = [result("gpu-2-shared", share=name, memory="10Gi", cores="30") for name in ("s", "t")]
    (_, [first]), (_, [second]) = requests_and_edits(*shares)
    assert first == second
    assert f"DRAWBRIDGE_DEVICE_GPU_2_SHARED_MEMORY={20 << 30}" in first["env"]


def test_the_visible_devices_are_those_of_the_request():
    (_, [first]), (_, [second]), (_, [third]) = requests_and_edits(
        result("gpu-0"), result("gpu-1"), result("nic", "net")
    )
    assert "VISIBLE=GPU-0,GPU-1" in first["env"]
    assert "VISIBLE=GPU-0,GPU-1" in second["env"]
    assert third == {"env": ["DRAWBRIDGE_DEVICE_NIC=eth1"]}


def test_the_variable_of_cpus_has_the_chosen_cpus():
    [(_, [edit])] = requests_and_edits(result("cpus-numa-0", share="s", cpus="2"))
    assert edit["env"] == ["DRAWBRIDGE_DEVICE_CPUS_NUMA_0=0-1", "DRAWBRIDGE_DEVICE_CPUS_NUMA_0_CPUS=2"]


def test_kind_and_device_names_are_valid_for_cdi():
    spec = json.loads(spec_of(prepared_claim(result("gpu-0"), result("nic", "net")), DRIVER, "/metadata"))
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_-]*", spec["kind"])
    names = [device["name"] for device in spec["devices"]]
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]*[A-Za-z0-9]", name) for name in names)


def test_file_names_contain_driver_and_uid():
    name = file_name(DRIVER, "uid-c")
    assert (is_ours(DRIVER, name), uid_of(DRIVER, name)) == (True, "uid-c")
    assert (is_ours(DRIVER, name + ".new"), uid_of(DRIVER, name + ".new")) == (True, "")
    assert not is_ours("devices.example", name)
    assert not is_ours(DRIVER, "nvidia.json")
