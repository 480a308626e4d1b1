"""Webhook, bridge and our own driver on one node: unmodified pods get a GPU and a virtual function of one PCIe root, and see nothing else.

The driver has the names that the webhook's words ask for, one process for each; the machine it describes has its only network card
beside the second GPU, so the first GPU that would do is the wrong one.
"""

import contextlib
import json

import pytest

from e2e.actors import fleet
from e2e.actors.workloads import claim, container, limits, pod, request, using
from e2e.driver.installed import freed, installed

pytestmark = [pytest.mark.real, pytest.mark.node]

SHARED = "dra.net"
CPUS = "e2e-joint-cpus"
HUGEPAGES = "e2e-joint-hugepages"
SCHEDULER = "drawbridge"
KOORDINATOR = "scheduling.koordinator.sh"
SAME = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
NEAR = {"deviceTypes": ["gpu", "rdma"]}
FUNCTIONS_ONLY = {"rdma": {"vfSelector": {}}}
CONFIGURATION = f"""\
apiVersion: drawbridge.dev/v1alpha1
kind: DrawbridgeConfiguration
mode: enforce
bridge:
  schedulerName: {SCHEDULER}
  drivers: [{fleet.NVIDIA}, {fleet.HAMI}, {fleet.SRIOV}, {SHARED}]
koordinator:
  hostResources: {{cpu: cpus, hugepages-2Mi: pages}}
targets:
- {{name: cpus, driver: {fleet.NVIDIA}, request: cpus, cores: cpus}}
- {{name: pages, driver: {fleet.NVIDIA}, request: pages, memory: size, profile: pageSize}}
classes: {{cpus: {CPUS}, pages: {HUGEPAGES}}}
"""


def place(root, numa, *files):
    return {"place": {"pcieRoot": f"pci0000:{root}", "numaNode": numa, "deviceNodes": list(files)}}


GPU = {"memory": "40Gi", "product": fleet.A100}
PART = {"profile": "1g.20gb", "memory": "20Gi", "slices": 1, "compute": 1, "at": [0, 1]}
MACHINES = {
    fleet.NVIDIA: {
        "visibleDevices": "NVIDIA_VISIBLE_DEVICES",
        "layouts": [{"name": "halves", "slices": 2, "compute": 2, "partitions": [PART]}],
        "gpus": [
            GPU | {"name": "gpu-0", "uuid": "GPU-0"} | place("10", 0, "/dev/zero:/dev/gpu0"),
            GPU | {"name": "gpu-1", "uuid": "GPU-1"} | place("20", 1, "/dev/full:/dev/gpu1"),
            GPU
            | {"name": "gpu-2", "uuid": "GPU-2", "whole": False, "layout": "halves"}
            | place("30", 0, "/dev/null:/dev/gpu2"),
        ],
        "numaNodes": [
            {"number": 0, "cpus": "0-3", "hugepages": {"2Mi": 64}},
            {"number": 1, "cpus": "4-7", "hugepages": {"2Mi": 64}},
        ],
    },
    fleet.HAMI: {
        "gpus": [
            GPU
            | {
                "name": "card-3",
                "uuid": "GPU-3",
                "whole": False,
                "sharing": {"memory": {"minimum": "1Mi", "step": "1Mi"}, "cores": {"minimum": "0", "step": "1"}},
            }
            | place("10", 0, "/dev/zero:/dev/gpu3")
        ]
    },
    fleet.SRIOV: {
        "nics": [
            {
                "name": "nic-0",
                "interface": "ens0",
                "rdmaDevice": "mlx5_0",
                "virtualFunctions": [
                    {"name": f"nic-0-vf-{number}", "interface": f"ens0v{number}", "rdmaDevice": f"mlx5_{number + 1}"}
                    | place("20", 1, f"{file}:/dev/infiniband/uverbs{number}")
                    for number, file in enumerate(("/dev/random", "/dev/urandom"))
                ],
            }
            | place("20", 1, "/dev/tty:/dev/infiniband/uverbs9")
        ]
    },
}  # fmt: skip
WIRE = {
    "nics": [
        {
            "name": "wire",
            "interface": "ens9",
            "rdmaDevice": "mlx5_9",
            "bandwidth": "100G",
            "sharing": {"minimum": "1G", "step": "1G"},
        }
        | place("20", 1, "/dev/random:/dev/infiniband/uverbs8")
    ]
}
ONE_NODE = {"numaTopologyPolicy": "SingleNUMANode"}
FIRST = {"DRAWBRIDGE_DEVICE_GPU_0": "GPU-0", "NVIDIA_VISIBLE_DEVICES": "GPU-0", "/dev/gpu0": "file"}
NEXT = {"DRAWBRIDGE_DEVICE_GPU_1": "GPU-1", "NVIDIA_VISIBLE_DEVICES": "GPU-1", "/dev/gpu1": "file"}
SPEAK = """env; ls -d /dev/gpu* /dev/infiniband/* 2>/dev/null | sed "s/$/=file/"
for told in $(find /var/run/kubernetes.io -type f); do echo "$told=$(head -n 1 $told)"; done; echo spoken=yes; sleep 600"""
TOLD = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates"


def function(number):
    """What a container sees of a virtual function."""
    return {f"DRAWBRIDGE_DEVICE_NIC_0_VF_{number}": f"ens0v{number}", f"/dev/infiniband/uverbs{number}": "file"}


def of_type(driver, kind):
    return f"device.driver == '{driver}' && device.attributes['{driver}'].type == '{kind}'"


@pytest.fixture(scope="module")
def joint(control_plane, node_cluster, webhook, bridge):
    """The drivers by name, when the webhook and the allocator know their devices."""
    before = webhook.config.read_text()
    classes = [
        fleet.device_class(fleet.NVIDIA, of_type(fleet.NVIDIA, "gpu")),
        fleet.device_class("mig.nvidia.com", of_type(fleet.NVIDIA, "mig")),
        fleet.device_class(fleet.HAMI, of_type(fleet.HAMI, "shared")),
        fleet.device_class(fleet.SRIOV, of_type(fleet.SRIOV, "vf")),
        fleet.device_class(CPUS, of_type(fleet.NVIDIA, "cpus")),
        fleet.device_class(HUGEPAGES, of_type(fleet.NVIDIA, "hugepages")),
    ]
    try:
        webhook.configure(CONFIGURATION)
        control_plane.create(*classes)
        with contextlib.ExitStack() as stack:
            drivers = {name: stack.enter_context(installed(node_cluster, name, machine)) for name, machine in MACHINES.items()}  # fmt: skip
            control_plane.until("the allocator knows the devices", lambda: known(bridge) >= set(MACHINES), 30)
            yield drivers
    finally:
        webhook.configure(before)
        control_plane.remove(*classes)


@pytest.fixture(autouse=True)
def all_free(control_plane, bridge, joint):
    """The next test finds first what comes first: the node gives back what a pod had, and the allocator learns of its claim, each when it is told."""
    yield
    control_plane.until(
        "the allocator knows that all is free", lambda: not any(pool["held"] for pool in pools(bridge)), 60
    )


def known(bridge):
    return {pool["driver"] for pool in pools(bridge)}


def pools(bridge):
    """The pools of our drivers, as the allocator knows them."""
    return [one for one in bridge.ask("/api/v1/fleet")[1]["pools"] if one["driver"] in (*MACHINES, SHARED)]


def asking(drivers, name, namespace, amounts, scheduler, **annotations):
    """Create a pod in legacy words, once the webhook would hand it to the bridge."""
    node = drivers[fleet.NVIDIA].node
    control_plane = node.cluster
    item = pod(name, namespace, container(command=SPEAK, **limits(**amounts)), node=node.name, schedulerName=scheduler)
    item["metadata"]["annotations"] = {f"{KOORDINATOR}/{key}": json.dumps(value) for key, value in annotations.items()}

    def handed():
        return control_plane.create(item, dryRun="All")[0]["spec"]["schedulerName"] == SCHEDULER

    control_plane.until("the webhook hands the pod to the bridge", handed, 60)
    return control_plane.create(item)[0]


def joint_pod(drivers, name, namespace, joint):
    amounts = {"koordinator.sh/gpu": 100, "koordinator.sh/rdma": 100}
    hints = {"device-joint-allocate": joint, "device-allocate-hint": FUNCTIONS_ONLY}
    return asking(drivers, name, namespace, amounts, "koord-scheduler", **hints)


def seen(drivers, namespace, name):
    """Everything of any device that a container sees, once it has said all it had to say: variables and files."""
    said = drivers[fleet.NVIDIA].node.environment(namespace, name)
    return {key: value for key, value in said.items() if key.startswith(("DRAWBRIDGE_", "NVIDIA_", "/dev/"))}


def told_inside(drivers, namespace, name):
    """What the container can read of its devices: by file below the folder of the pod's claims, their names and PCIe roots."""
    said = drivers[fleet.NVIDIA].node.environment(namespace, name)
    found = {}
    for path, text in said.items():
        if path.startswith(TOLD):
            devices = [one for asked in json.loads(text)["requests"] for one in asked["devices"]]
            found[path.removeprefix(TOLD)] = [
                (device["name"], device["attributes"]["resource.kubernetes.io/pcieRoot"]["string"])
                for device in devices
            ]
    return found


def end(control_plane, drivers, namespace, *names):
    for name in names:
        control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)
    for driver in drivers.values():
        freed(driver, set())


def told(control_plane, namespace, name, words):
    """Whether a pod's own condition says why it waits."""
    found = control_plane.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"].get("conditions", ())
    return any(words in one.get("message", "") for one in found if one["type"] == "PodScheduled")


def test_a_gpu_and_a_virtual_function_of_one_root_are_seen_and_a_split_root_is_told(control_plane, joint, gated):
    """The second pod finds a GPU under one root and a virtual function under another, and has both when the first one has gone."""
    joint_pod(joint, "first", gated, SAME)
    assert seen(joint, gated, "first") == NEXT | function(0)
    assert told_inside(joint, gated, "first") == {
        f"/drawbridge-pod-gpu-nic/gpu-0/{fleet.NVIDIA}-metadata.json": [("gpu-1", "pci0000:20")],
        f"/drawbridge-pod-gpu-nic/nic-0/{fleet.SRIOV}-metadata.json": [("nic-0-vf-0", "pci0000:20")],
    }
    joint_pod(joint, "second", gated, SAME)
    control_plane.until("the pod is told", lambda: told(control_plane, gated, "second", "pcieRoot"), 60)
    # In order: a pod that is deleted by force has its devices until its kubelet looks again, and the next one waits for them.
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/first")
    assert seen(joint, gated, "second") == NEXT | function(0)
    end(control_plane, joint, gated, "second")


def test_a_preference_for_nearby_devices_does_not_keep_a_pod_pending(control_plane, joint, gated):
    """The first pod passes by the GPU that first-fit would take; the second takes what is left."""
    joint_pod(joint, "first", gated, NEAR)
    assert seen(joint, gated, "first") == NEXT | function(0)
    joint_pod(joint, "second", gated, NEAR)
    assert seen(joint, gated, "second") == FIRST | function(1)
    end(control_plane, joint, gated, "first", "second")


def test_a_share_and_a_partition_are_seen_as_such(control_plane, joint, gated):
    share = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    asking(joint, "share", gated, share, "hami-scheduler")
    asking(joint, "part", gated, {"nvidia.com/mig-1g.20gb": 1}, "default-scheduler")
    assert seen(joint, gated, "share") == {
        "DRAWBRIDGE_DEVICE_CARD_3_SHARED": "GPU-3",
        "DRAWBRIDGE_DEVICE_CARD_3_SHARED_MEMORY": str(3000 << 20),
        "DRAWBRIDGE_DEVICE_CARD_3_SHARED_CORES": "30",
        "/dev/gpu3": "file",
    }
    part = "GPU-2/1g.20gb/0"
    assert seen(joint, gated, "part") == {
        "DRAWBRIDGE_DEVICE_GPU_2_1G_20GB_0": part,
        "NVIDIA_VISIBLE_DEVICES": part,
        "/dev/gpu2": "file",
    }
    end(control_plane, joint, gated, "share", "part")


def test_gpu_nic_cpus_and_huge_pages_of_one_numa_node(control_plane, joint, gated, created):
    """A claim by hand; the only network card is on the second node, so all the rest has to be."""
    asked = claim(
        "node",
        gated,
        request("gpu", fleet.NVIDIA),
        request("nic", fleet.SRIOV),
        request("cpus", CPUS, capacity={"requests": {"cpus": "2"}}),
        request("pages", HUGEPAGES, capacity={"requests": {"size": "64Mi"}}),
        constraints=[{"matchAttribute": "resource.kubernetes.io/numaNode"}],
    )
    one = container(command=SPEAK, resources={"claims": [{"name": "node"}]})
    node = joint[fleet.NVIDIA].node.name
    created(asked, pod("p", gated, one, node=node, schedulerName=SCHEDULER, resourceClaims=[using("node")]))
    assert seen(joint, gated, "p") == NEXT | function(0) | {
        "DRAWBRIDGE_DEVICE_CPUS_NUMA_1": "4-5",
        "DRAWBRIDGE_DEVICE_CPUS_NUMA_1_CPUS": "2",
        "DRAWBRIDGE_DEVICE_HUGEPAGES_2MI_NUMA_1": "2Mi",
        "DRAWBRIDGE_DEVICE_HUGEPAGES_2MI_NUMA_1_SIZE": str(64 << 20),
    }
    end(control_plane, joint, gated, "p")


def test_a_pod_that_asks_for_one_numa_node_gets_its_cpus_and_huge_pages_with_its_devices(control_plane, joint, gated):
    """The same without a claim by hand: the only network card is on the second node. The pod's own request stays."""
    amounts = {"koordinator.sh/gpu": 100, "koordinator.sh/rdma": 100, "cpu": "1"}
    hints = {"numa-topology-spec": ONE_NODE, "device-allocate-hint": FUNCTIONS_ONLY}
    made = asking(joint, "aligned", gated, amounts, "koord-scheduler", **hints)
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert seen(joint, gated, "aligned") == NEXT | function(0) | {
        "DRAWBRIDGE_DEVICE_CPUS_NUMA_1": "4",
        "DRAWBRIDGE_DEVICE_CPUS_NUMA_1_CPUS": "1",
    }
    end(control_plane, joint, gated, "aligned")


def test_a_share_of_a_network_device_is_seen_as_such_and_two_shares_are_of_one_card(
    control_plane, joint, gated, created
):
    """A driver that shares its card; the third pod asks for more than is left, is told, and has it when one of the others goes."""
    node = joint[fleet.NVIDIA].node
    created(fleet.device_class("dranet", f"device.driver == '{SHARED}'"))
    with installed(node, SHARED, WIRE) as driver:
        for name, share in (("third", 30), ("half", 50)):
            asking(joint, name, gated, {"koordinator.sh/rdma": share}, "koord-scheduler")
            assert seen(joint, gated, name) == {
                "DRAWBRIDGE_DEVICE_WIRE": "ens9",
                "DRAWBRIDGE_DEVICE_WIRE_BANDWIDTH": str(share * 10**9),
                "/dev/infiniband/uverbs8": "file",
            }
        asking(joint, "more", gated, {"koordinator.sh/rdma": 40}, "koord-scheduler")
        control_plane.until("the pod is told", lambda: told(control_plane, gated, "more", "bandwidth"), 60)
        control_plane.delete(f"/api/v1/namespaces/{gated}/pods/half")
        assert seen(joint, gated, "more")["DRAWBRIDGE_DEVICE_WIRE_BANDWIDTH"] == str(40 * 10**9)
        end(control_plane, joint, gated, "third", "more")
        freed(driver, set())
