"""Decisions of the in-tree scheduler on a real control plane with fake nodes."""

import pytest

from e2e.actors import fleet
from e2e.actors.workloads import claim, container, pod, request, using

pytestmark = pytest.mark.real
DRIVER = "modes.example.com"
SET = "gpu-0-counters"
FINALIZER = "resource.kubernetes.io/delete-protection"


@pytest.fixture
def node(control_plane):
    [name] = control_plane.add_fake_nodes(1, prefix="modes-")
    yield name
    control_plane.delete(f"/api/v1/nodes/{name}")


def modes(node):
    """The slices of one GPU with three devices: two software modes with a common compatibility group, and a hardware partition."""

    def mode(name, amount, groups):
        return fleet.device(
            name, {"mode": name}, consumesCounters=[fleet.consumes(SET, groups, multiprocessors=amount)]
        )

    devices = [
        mode("fraction", 38, ["software"]),
        mode("server", 38, ["software", "served"]),
        mode("partition", 38, ["hardware"]),
    ]
    return fleet.counted_slices(DRIVER, node, {SET: {"multiprocessors": 152}}, devices)


def wanting(mode, namespace, node):
    chosen = [{"cel": {"expression": f"device.attributes['{DRIVER}'].mode == '{mode}'"}}]
    return (
        claim(mode, namespace, request("device", "e2e-modes", selectors=chosen)),
        pod(
            mode,
            namespace,
            container(resources={"claims": [{"name": mode}]}),
            node=node,
            resourceClaims=[using(mode)],
        ),
    )


def test_devices_that_share_a_group_share_the_counter_set(control_plane, namespace, created, node):
    """The groups {software} and {software, served} have `software` in common."""
    created(*modes(node), fleet.device_class("e2e-modes", f"device.driver == '{DRIVER}'"))
    for mode in ("fraction", "server"):
        created(*wanting(mode, namespace, node))
        control_plane.wait_scheduled(namespace, mode)


def test_a_device_of_another_group_is_refused_despite_free_counters(control_plane, namespace, created, node):
    """There are enough counters for the device of group {hardware}. It is allocated once the device of group {software} is freed."""
    created(*modes(node), fleet.device_class("e2e-modes", f"device.driver == '{DRIVER}'"))
    first = wanting("fraction", namespace, node)
    created(*first)
    control_plane.wait_scheduled(namespace, "fraction")
    created(*wanting("partition", namespace, node))
    assert "cannot allocate all claims" in control_plane.wait_unschedulable(namespace, "partition")["message"]
    control_plane.remove(*reversed(first))
    control_plane.wait_scheduled(namespace, "partition")


def test_two_claims_share_a_gpu_until_its_memory_is_used(control_plane, namespace, created, node):
    """As with HAMi, two claims of 16Gi fit on a device of 40Gi, and the third does not."""
    created(*fleet.slices(fleet.HAMI, node, fleet.hami_gpus(1)), fleet.device_class("e2e-hami", "true"))
    for index in range(3):
        name = f"share-{index}"
        wants = {"requests": {"memory": "16Gi", "cores": "30"}}
        created(
            claim(name, namespace, request("gpu", "e2e-hami", capacity=wants)),
            pod(name, namespace, node=node, resourceClaims=[using(name)]),
        )
        if index < 2:
            control_plane.wait_scheduled(namespace, name)
    control_plane.wait_unschedulable(namespace, "share-2")


def test_a_gpu_and_a_nic_are_allocated_under_one_root(control_plane, namespace, created, node):
    """The attributes are those that the real drivers publish."""
    created(
        *fleet.slices(fleet.NVIDIA, node, fleet.whole_gpus(4)),
        *fleet.slices(fleet.DRANET, node, fleet.dranet_nics(2, roots=4)[1:], pool=f"{node}-nics"),
        fleet.device_class("e2e-gpu", f"device.driver == '{fleet.NVIDIA}'"),
        fleet.device_class("e2e-nic", f"device.driver == '{fleet.DRANET}'"),
        claim(
            "joint",
            namespace,
            request("gpu", "e2e-gpu"),
            request("nic", "e2e-nic"),
            constraints=[{"matchAttribute": "resource.kubernetes.io/pcieRoot"}],
        ),
        pod("p", namespace, node=node, resourceClaims=[using("joint")]),
    )
    control_plane.wait_scheduled(namespace, "p")
    held = control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/joint")
    assert [r["device"] for r in held["status"]["allocation"]["devices"]["results"]] == ["gpu-2", "net1"]


def test_finalizer_and_allocation_of_a_claim_need_two_writes(control_plane, namespace):
    [made] = control_plane.create(claim("both", namespace, request("device", "none")))
    path = control_plane.path_of(made)
    result = {"request": "device", "driver": DRIVER, "pool": "p", "device": "d"}
    status = {"allocation": {"devices": {"results": [result]}}}
    both = {"metadata": {"finalizers": [FINALIZER]}, "status": status}
    as_status = control_plane.patch(f"{path}/status", both)
    assert as_status["status"]["allocation"]["devices"]["results"] == [result]
    assert "finalizers" not in as_status["metadata"]
    control_plane.patch(f"{path}/status", {"status": {"allocation": None}})
    as_claim = control_plane.patch(path, both)
    assert as_claim["metadata"]["finalizers"] == [FINALIZER]
    assert "allocation" not in as_claim.get("status", {})
    control_plane.patch(path, {"metadata": {"finalizers": None}})
