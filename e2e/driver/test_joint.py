"""Webhook, bridge and our driver on one node: unmodified pods get a GPU and a virtual function of one PCIe root, and see nothing else.

One driver process runs for each name that the webhook translates to. The node's only network card is beside the second GPU,
so that the first free GPU is the wrong one.
"""

import contextlib
import json

import pytest

from e2e.actors import fleet
from e2e.actors.workloads import claim, container, limits, pod, request, using
from e2e.driver.installed import installed_driver, until_freed

pytestmark = [pytest.mark.real, pytest.mark.node]

SHARED = "dra.net"
CPUS = "e2e-joint-cpus"
HUGEPAGES = "e2e-joint-hugepages"
SCHEDULER = "drawbridge"
KOORDINATOR = "scheduling.koordinator.sh"
SAME_ROOT = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
PREFER_NEAR = {"deviceTypes": ["gpu", "rdma"]}
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


def location(root, numa, *files):
    return {"place": {"pcieRoot": f"pci0000:{root}", "numaNode": numa, "deviceNodes": list(files)}}


GPU = {"memory": "40Gi", "product": fleet.A100}
PART = {"profile": "1g.20gb", "memory": "20Gi", "slices": 1, "compute": 1, "at": [0, 1]}
MACHINES = {
    fleet.NVIDIA: {
        "visibleDevices": "NVIDIA_VISIBLE_DEVICES",
        "layouts": [{"name": "halves", "slices": 2, "compute": 2, "partitions": [PART]}],
        "gpus": [
            GPU | {"name": "gpu-0", "uuid": "GPU-0"} | location("10", 0, "/dev/zero:/dev/gpu0"),
            GPU | {"name": "gpu-1", "uuid": "GPU-1"} | location("20", 1, "/dev/full:/dev/gpu1"),
            GPU
            | {"name": "gpu-2", "uuid": "GPU-2", "whole": False, "layout": "halves"}
            | location("30", 0, "/dev/null:/dev/gpu2"),
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
            | location("10", 0, "/dev/zero:/dev/gpu3")
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
                    | location("20", 1, f"{file}:/dev/infiniband/uverbs{number}")
                    for number, file in enumerate(("/dev/random", "/dev/urandom"))
                ],
            }
            | location("20", 1, "/dev/tty:/dev/infiniband/uverbs9")
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
        | location("20", 1, "/dev/random:/dev/infiniband/uverbs8")
    ]
}
ONE_NODE = {"numaTopologyPolicy": "SingleNUMANode"}
SEES_GPU_0 = {"DRAWBRIDGE_DEVICE_GPU_0": "GPU-0", "NVIDIA_VISIBLE_DEVICES": "GPU-0", "/dev/gpu0": "file"}
SEES_GPU_1 = {"DRAWBRIDGE_DEVICE_GPU_1": "GPU-1", "NVIDIA_VISIBLE_DEVICES": "GPU-1", "/dev/gpu1": "file"}
PRINT_DEVICES = """env; ls -d /dev/gpu* /dev/infiniband/* 2>/dev/null | sed "s/$/=file/"
for told in $(find /var/run/kubernetes.io -type f); do echo "$told=$(head -n 1 $told)"; done; echo spoken=yes; sleep 600"""
METADATA_FOLDER = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates"


def function_view(number):
    """What a container sees of a virtual function."""
    return {f"DRAWBRIDGE_DEVICE_NIC_0_VF_{number}": f"ens0v{number}", f"/dev/infiniband/uverbs{number}": "file"}


def type_expression(driver, kind):
    return f"device.driver == '{driver}' && device.attributes['{driver}'].type == '{kind}'"


@pytest.fixture(scope="module")
def joint_drivers(control_plane, node_cluster, webhook, bridge):
    """The drivers by name."""
    before = webhook.config.read_text()
    classes = [
        fleet.device_class(fleet.NVIDIA, type_expression(fleet.NVIDIA, "gpu")),
        fleet.device_class("mig.nvidia.com", type_expression(fleet.NVIDIA, "mig")),
        fleet.device_class(fleet.HAMI, type_expression(fleet.HAMI, "shared")),
        fleet.device_class(fleet.SRIOV, type_expression(fleet.SRIOV, "vf")),
        fleet.device_class(CPUS, type_expression(fleet.NVIDIA, "cpus")),
        fleet.device_class(HUGEPAGES, type_expression(fleet.NVIDIA, "hugepages")),
    ]
    try:
        webhook.configure(CONFIGURATION)
        control_plane.create(*classes)
        with contextlib.ExitStack() as stack:
            drivers = {name: stack.enter_context(installed_driver(node_cluster, name, machine)) for name, machine in MACHINES.items()}  # fmt: skip
            yield drivers
    finally:
        webhook.configure(before)
        control_plane.remove(*classes)


@pytest.fixture(autouse=True)
def await_free_devices(control_plane, bridge, joint_drivers):
    """Wait until all devices are free, so that the next test finds them in order."""
    yield
    control_plane.until("the allocator reports no held device", lambda: held_device_count(bridge) == 0, 60)


def held_device_count(bridge):
    """Return how many devices of our drivers claims hold according to the allocator; None while it does not know."""
    devices = bridge.held_devices()
    return None if devices is None else sum(device["driver"] in (*MACHINES, SHARED) for device in devices)


def create_legacy_pod(drivers, name, namespace, amounts, scheduler, **annotations):
    """Create a pod with legacy keys, once the webhook would hand it to the bridge."""
    node = drivers[fleet.NVIDIA].node
    control_plane = node.cluster
    item = pod(
        name, namespace, container(command=PRINT_DEVICES, **limits(**amounts)), node=node.name, schedulerName=scheduler
    )
    item["metadata"]["annotations"] = {f"{KOORDINATOR}/{key}": json.dumps(value) for key, value in annotations.items()}

    def is_handed_over():
        return control_plane.create(item, dryRun="All")[0]["spec"]["schedulerName"] == SCHEDULER

    control_plane.until("the webhook hands the pod to the bridge", is_handed_over, 60)
    return control_plane.create(item)[0]


def joint_pod(drivers, name, namespace, hint):
    amounts = {"koordinator.sh/gpu": 100, "koordinator.sh/rdma": 100}
    hints = {"device-joint-allocate": hint, "device-allocate-hint": FUNCTIONS_ONLY}
    return create_legacy_pod(drivers, name, namespace, amounts, "koord-scheduler", **hints)


def device_view(drivers, namespace, name):
    """Return all variables and files of devices in a container that has finished printing."""
    variables = drivers[fleet.NVIDIA].node.environment(namespace, name)
    return {key: value for key, value in variables.items() if key.startswith(("DRAWBRIDGE_", "NVIDIA_", "/dev/"))}


def metadata_in_container(drivers, namespace, name):
    """Return what the container can read of its devices: names and PCIe roots, by file below the folder of the pod's claims."""
    variables = drivers[fleet.NVIDIA].node.environment(namespace, name)
    metadata = {}
    for path, text in variables.items():
        if path.startswith(METADATA_FOLDER):
            devices = [device for request in json.loads(text)["requests"] for device in request["devices"]]
            metadata[path.removeprefix(METADATA_FOLDER)] = [
                (device["name"], device["attributes"]["resource.kubernetes.io/pcieRoot"]["string"])
                for device in devices
            ]
    return metadata


def delete_pods(control_plane, drivers, namespace, *names):
    for name in names:
        control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)
    for driver in drivers.values():
        until_freed(driver, set())


def has_reason(control_plane, namespace, name, words):
    """Return whether the PodScheduled condition has these words."""
    conditions = control_plane.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"].get("conditions", ())
    return any(words in condition.get("message", "") for condition in conditions if condition["type"] == "PodScheduled")


def test_gpu_and_virtual_function_share_a_pcie_root(control_plane, joint_drivers, gated):
    """For the second pod only a GPU and a virtual function of different roots are free. It waits until the first pod ends."""
    joint_pod(joint_drivers, "first", gated, SAME_ROOT)
    assert device_view(joint_drivers, gated, "first") == SEES_GPU_1 | function_view(0)
    assert metadata_in_container(joint_drivers, gated, "first") == {
        f"/drawbridge-pod-gpu-nic/gpu-0/{fleet.NVIDIA}-metadata.json": [("gpu-1", "pci0000:20")],
        f"/drawbridge-pod-gpu-nic/nic-0/{fleet.SRIOV}-metadata.json": [("nic-0-vf-0", "pci0000:20")],
    }
    joint_pod(joint_drivers, "second", gated, SAME_ROOT)
    control_plane.until(
        "the second pod's condition names pcieRoot", lambda: has_reason(control_plane, gated, "second", "pcieRoot"), 60
    )
    # Deleted in order: a force-deleted pod keeps its devices until the kubelet's next sync, and the next pod waits for them.
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/first")
    assert device_view(joint_drivers, gated, "second") == SEES_GPU_1 | function_view(0)
    delete_pods(control_plane, joint_drivers, gated, "second")


def test_a_pod_that_only_prefers_nearby_devices_does_not_wait(control_plane, joint_drivers, gated):
    """The first pod gets another GPU than first-fit would select; the second pod gets the remaining one."""
    joint_pod(joint_drivers, "first", gated, PREFER_NEAR)
    assert device_view(joint_drivers, gated, "first") == SEES_GPU_1 | function_view(0)
    joint_pod(joint_drivers, "second", gated, PREFER_NEAR)
    assert device_view(joint_drivers, gated, "second") == SEES_GPU_0 | function_view(1)
    delete_pods(control_plane, joint_drivers, gated, "first", "second")


def test_containers_see_their_share_and_their_partition(control_plane, joint_drivers, gated):
    share = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    create_legacy_pod(joint_drivers, "share", gated, share, "hami-scheduler")
    create_legacy_pod(joint_drivers, "part", gated, {"nvidia.com/mig-1g.20gb": 1}, "default-scheduler")
    assert device_view(joint_drivers, gated, "share") == {
        "DRAWBRIDGE_DEVICE_CARD_3_SHARED": "GPU-3",
        "DRAWBRIDGE_DEVICE_CARD_3_SHARED_MEMORY": str(3000 << 20),
        "DRAWBRIDGE_DEVICE_CARD_3_SHARED_CORES": "30",
        "/dev/gpu3": "file",
    }
    part = "GPU-2/1g.20gb/0"
    assert device_view(joint_drivers, gated, "part") == {
        "DRAWBRIDGE_DEVICE_GPU_2_1G_20GB_0": part,
        "NVIDIA_VISIBLE_DEVICES": part,
        "/dev/gpu2": "file",
    }
    delete_pods(control_plane, joint_drivers, gated, "share", "part")


def test_gpu_nic_cpus_and_huge_pages_share_one_numa_node(control_plane, joint_drivers, gated, created):
    """The claim is written by hand. The only network card is on the second NUMA node, so all other devices have to be."""
    claim_ = claim(
        "node",
        gated,
        request("gpu", fleet.NVIDIA),
        request("nic", fleet.SRIOV),
        request("cpus", CPUS, capacity={"requests": {"cpus": "2"}}),
        request("pages", HUGEPAGES, capacity={"requests": {"size": "64Mi"}}),
        constraints=[{"matchAttribute": "resource.kubernetes.io/numaNode"}],
    )
    container_ = container(command=PRINT_DEVICES, resources={"claims": [{"name": "node"}]})
    node = joint_drivers[fleet.NVIDIA].node.name
    created(claim_, pod("p", gated, container_, node=node, schedulerName=SCHEDULER, resourceClaims=[using("node")]))
    assert device_view(joint_drivers, gated, "p") == SEES_GPU_1 | function_view(0) | {
        "DRAWBRIDGE_DEVICE_CPUS_NUMA_1": "4-5",
        "DRAWBRIDGE_DEVICE_CPUS_NUMA_1_CPUS": "2",
        "DRAWBRIDGE_DEVICE_HUGEPAGES_2MI_NUMA_1": "2Mi",
        "DRAWBRIDGE_DEVICE_HUGEPAGES_2MI_NUMA_1_SIZE": str(64 << 20),
    }
    delete_pods(control_plane, joint_drivers, gated, "p")


def test_a_numa_request_aligns_cpus_and_huge_pages_with_devices(control_plane, joint_drivers, gated):
    """The webhook writes the claim. The only network card is on the second NUMA node. The pod's own request is unchanged."""
    amounts = {"koordinator.sh/gpu": 100, "koordinator.sh/rdma": 100, "cpu": "1"}
    hints = {"numa-topology-spec": ONE_NODE, "device-allocate-hint": FUNCTIONS_ONLY}
    created_pod = create_legacy_pod(joint_drivers, "aligned", gated, amounts, "koord-scheduler", **hints)
    assert created_pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert device_view(joint_drivers, gated, "aligned") == SEES_GPU_1 | function_view(0) | {
        "DRAWBRIDGE_DEVICE_CPUS_NUMA_1": "4",
        "DRAWBRIDGE_DEVICE_CPUS_NUMA_1_CPUS": "1",
    }
    delete_pods(control_plane, joint_drivers, gated, "aligned")


def test_shares_of_a_network_device_are_limited_by_its_card(control_plane, joint_drivers, gated, created):
    """The third pod requests more than is left. Its event says so, and it starts when another pod ends."""
    node = joint_drivers[fleet.NVIDIA].node
    created(fleet.device_class("dranet", f"device.driver == '{SHARED}'"))
    with installed_driver(node, SHARED, WIRE) as driver:
        for name, share in (("third", 30), ("half", 50)):
            create_legacy_pod(joint_drivers, name, gated, {"koordinator.sh/rdma": share}, "koord-scheduler")
            assert device_view(joint_drivers, gated, name) == {
                "DRAWBRIDGE_DEVICE_WIRE": "ens9",
                "DRAWBRIDGE_DEVICE_WIRE_BANDWIDTH": str(share * 10**9),
                "/dev/infiniband/uverbs8": "file",
            }
        create_legacy_pod(joint_drivers, "more", gated, {"koordinator.sh/rdma": 40}, "koord-scheduler")
        control_plane.until(
            "the third pod's condition names bandwidth",
            lambda: has_reason(control_plane, gated, "more", "bandwidth"),
            60,
        )
        control_plane.delete(f"/api/v1/namespaces/{gated}/pods/half")
        assert device_view(joint_drivers, gated, "more")["DRAWBRIDGE_DEVICE_WIRE_BANDWIDTH"] == str(40 * 10**9)
        delete_pods(control_plane, joint_drivers, gated, "third", "more")
        until_freed(driver, set())
