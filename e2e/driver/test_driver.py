"""Our driver on a real node: from a pod to its container's view, and through restarts and crashes."""

import sys
import time
from pathlib import Path

import pytest

from cluster.manifests import read
from e2e.actors import fleet
from e2e.actors.webhook import known
from e2e.actors.workloads import claim, container, limits, pod, request, template, using, using_template
from e2e.driver.installed import (
    GPU,
    HASTY,
    PRINT_DEVICES,
    claiming_pod,
    device_variables,
    installed_driver,
    until_freed,
)
from e2e.ground.node import KUBELET

pytestmark = [pytest.mark.real, pytest.mark.node]

DRIVER = "devices.example.com"
ROOT = Path(__file__).parents[2]
LAYOUT = {
    "name": "small",
    "slices": 2,
    "compute": 2,
    "partitions": [{"profile": "1g.20gb", "memory": "20Gi", "slices": 1, "compute": 1, "at": [0, 1]}],
}
SHARING = {"memory": {"minimum": "1Gi", "step": "1Gi"}, "cores": {"minimum": "1", "step": "1"}}
PARTS = {
    "layouts": [LAYOUT],
    "gpus": [
        GPU | {"name": "gpu-0", "uuid": "GPU-0"},
        GPU | {"name": "gpu-1", "uuid": "GPU-1"},
        GPU | {"name": "gpu-2", "uuid": "GPU-2", "whole": False, "sharing": SHARING},
        GPU | {"name": "gpu-3", "uuid": "GPU-3", "layout": "small"},
    ],
}


@pytest.fixture(scope="module")
def driver(control_plane, node_cluster):
    classes = [
        fleet.device_class(
            "e2e-own-gpu", f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
        ),
        fleet.device_class(
            "e2e-own-mig", f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'mig'"
        ),
        fleet.device_class(
            "e2e-own-shared", f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'shared'"
        ),
    ]
    control_plane.create(*classes)
    with installed_driver(node_cluster, DRIVER, PARTS) as driver_:
        yield driver_
    control_plane.remove(*classes)


def test_a_container_sees_only_its_device_and_then_frees_it(control_plane, driver, namespace, created):
    before = driver.prepared()
    share = request("r", "e2e-own-shared", capacity={"requests": {"memory": "10Gi", "cores": "30"}})
    created(
        template("whole", namespace, request("r", "e2e-own-gpu")),
        template("part", namespace, request("r", "e2e-own-mig")),
        # The API server would take the original whitespace in the parameters for a change of the allocation.
        template(
            "share", namespace, share, config=[{"opaque": {"driver": "other.example.com", "parameters": {"a": 1}}}]
        ),
        claiming_pod(namespace, "whole", driver.node.name, [using_template("whole")]),
        claiming_pod(namespace, "part", driver.node.name, [using_template("part")]),
        claiming_pod(namespace, "share", driver.node.name, [using_template("share")]),
        pod("plain", namespace, container(command=PRINT_DEVICES), node=driver.node.name),
    )
    whole = device_variables(driver, namespace, "whole")
    assert whole in (
        {"DRAWBRIDGE_DEVICE_GPU_0": "GPU-0", "card": "yes"},
        {"DRAWBRIDGE_DEVICE_GPU_1": "GPU-1", "card": "yes"},
    )
    assert device_variables(driver, namespace, "part") == {
        "DRAWBRIDGE_DEVICE_GPU_3_1G_20GB_0": "GPU-3/1g.20gb/0",
        "card": "yes",
    }
    assert device_variables(driver, namespace, "share") == {
        "DRAWBRIDGE_DEVICE_GPU_2_SHARED": "GPU-2",
        "DRAWBRIDGE_DEVICE_GPU_2_SHARED_MEMORY": str(10 << 30),
        "DRAWBRIDGE_DEVICE_GPU_2_SHARED_CORES": "30",
        "card": "yes",
    }
    assert device_variables(driver, namespace, "plain") == {}
    assert len(driver.prepared()) == len(before) + 3
    [status] = control_plane.get(f"/api/v1/namespaces/{namespace}/pods/share")["status"]["resourceClaimStatuses"]
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{status['resourceClaimName']}"

    def status_is_ready():
        claim_status = control_plane.get(path)["status"]
        [result] = claim_status["allocation"]["devices"]["results"]
        return [(device["shareID"], device["conditions"][0]["type"]) for device in claim_status.get("devices", ())] == [
            (result["shareID"], "Ready")
        ]

    control_plane.until("the claim's status shows the device as ready", status_is_ready, 30)
    for name in ("whole", "part", "share", "plain"):
        control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)
    until_freed(driver, before)


def test_a_restarted_driver_frees_what_its_killed_predecessor_prepared(control_plane, driver, namespace, created):
    """The driver is killed while a container runs: the container and its device are kept, and the device is freed when the pod ends."""
    before = driver.prepared()
    created(
        template(
            "share", namespace, request("r", "e2e-own-shared", capacity={"requests": {"memory": "30Gi", "cores": "60"}})
        ),
        claiming_pod(namespace, "p", driver.node.name, [using_template("share")]),
    )
    assert device_variables(driver, namespace, "p")["DRAWBRIDGE_DEVICE_GPU_2_SHARED_CORES"] == "60"
    running = control_plane.wait_phase(namespace, "p", "Running")["status"]["containerStatuses"][0]
    driver.running.stop(hard=True)
    driver.start()
    assert len(driver.prepared()) == len(before) + 1
    sockets = driver.node.outside(f"{KUBELET}/plugins_registry").glob(f"{DRIVER}-*.sock")
    assert len(list(sockets)) == 1  # the file of the killed driver is deleted
    after = control_plane.wait_phase(namespace, "p", "Running")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (running["containerID"], 0)
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/p", gracePeriodSeconds=0)
    until_freed(driver, before)


def test_a_pod_deleted_without_a_driver_is_freed_later(control_plane, driver, namespace, created):
    before = driver.prepared()
    created(
        template("part", namespace, request("r", "e2e-own-mig")),
        claiming_pod(namespace, "p", driver.node.name, [using_template("part")]),
    )
    device_variables(driver, namespace, "p")
    driver.running.stop(hard=True)
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/p", gracePeriodSeconds=0)
    driver.start()
    until_freed(driver, before)


def test_a_claim_deleted_while_its_pod_runs_stays_prepared(control_plane, node_cluster, namespace, created):
    """The driver forgets deleted claims after 5 s here. Everybody who may edit a claim can remove its finalizer."""
    name = "hasty.example.com"
    class_ = fleet.device_class("e2e-hasty", f"device.driver == '{name}'")
    control_plane.create(class_)
    with installed_driver(node_cluster, name, {"gpus": PARTS["gpus"][:1]}, sys.executable, "-c", HASTY) as driver:
        created(
            claim("c", namespace, request("r", "e2e-hasty")),
            claiming_pod(namespace, "p", driver.node.name, [using("c")]),
        )
        device_variables(driver, namespace, "p")
        prepared = driver.prepared()
        path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/c"
        control_plane.delete(path)
        control_plane.patch(path, {"metadata": {"finalizers": None}})
        time.sleep(20)
        assert driver.prepared() == prepared
        control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/p", gracePeriodSeconds=0)
        until_freed(driver, set())
    control_plane.remove(class_)


def test_a_pod_deleted_by_force_ends_with_its_device(control_plane, driver, namespace, created):
    """The container ignores SIGTERM and has 300 s to end, but the kubelet stops the containers of a removed pod at once.

    Once a minute, the kubelet releases the claims of removed pods, which may be up to two seconds before their containers end.
    """
    before = driver.prepared()
    stubborn = claiming_pod(namespace, "p", driver.node.name, [using_template("whole")])
    stubborn["spec"]["terminationGracePeriodSeconds"] = 300
    stubborn["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", PRINT_DEVICES.replace("600", "604")]
    created(template("whole", namespace, request("r", "e2e-own-gpu")), stubborn)
    device_variables(driver, namespace, "p")
    assert "sleep 604" in driver.node.box.run("ps", "-eo", "args")
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/p", gracePeriodSeconds=0)
    until_freed(driver, before)
    control_plane.until(
        "the container has ended", lambda: "sleep 604" not in driver.node.box.run("ps", "-eo", "args"), 10
    )


def test_a_restarted_kubelet_finds_driver_slices_and_prepared_claims(control_plane, driver, namespace, created):
    before = driver.prepared()
    created(
        template("part", namespace, request("r", "e2e-own-mig")),
        claiming_pod(namespace, "p", driver.node.name, [using_template("part")]),
    )
    device_variables(driver, namespace, "p")
    running = control_plane.wait_phase(namespace, "p", "Running")["status"]["containerStatuses"][0]
    driver.node.restart_kubelet()
    control_plane.until("the slices are there again", driver.slices, 60)
    created(
        template("whole", namespace, request("r", "e2e-own-gpu")),
        claiming_pod(namespace, "q", driver.node.name, [using_template("whole")]),
    )
    # Until the kubelet reports, the API server shows the old status. When another pod runs, the kubelet has reported.
    assert "card" in device_variables(driver, namespace, "q")
    control_plane.wait_phase(namespace, "q", "Running")
    after = control_plane.wait_phase(namespace, "p", "Running")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (running["containerID"], 0)
    for name in ("p", "q"):
        control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)
    until_freed(driver, before)


def test_in_a_rolling_update_the_new_driver_takes_over_first(control_plane, driver, namespace, created):
    before = driver.prepared()
    created(
        template("whole", namespace, request("r", "e2e-own-gpu")),
        claiming_pod(namespace, "p", driver.node.name, [using_template("whole")]),
    )
    device_variables(driver, namespace, "p")
    old = driver.running
    driver.start()
    old.stop()
    created(claiming_pod(namespace, "q", driver.node.name, [using_template("whole")]))
    first, second = device_variables(driver, namespace, "p"), device_variables(driver, namespace, "q")
    assert first.keys() ^ second.keys() == {"DRAWBRIDGE_DEVICE_GPU_0", "DRAWBRIDGE_DEVICE_GPU_1"}
    for name in ("p", "q"):
        control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)
    until_freed(driver, before)
    assert driver.slices()


def test_a_device_allocated_twice_is_prepared_for_one_container_only(control_plane, driver, namespace, created):
    """The API server accepts both claims, and the kubelet requests both. The driver names the holder in the second pod's events."""
    before = driver.prepared()
    created(
        claim("first", namespace, request("r", "e2e-own-gpu")),
        claiming_pod(namespace, "p", driver.node.name, [using("first")]),
        claim("second", namespace, request("r", "e2e-own-gpu")),
    )
    device_variables(driver, namespace, "p")
    claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    allocation = control_plane.get(f"{claims}/first")["status"]["allocation"]
    control_plane.patch(f"{claims}/second/status", {"status": {"allocation": allocation}})
    item = claiming_pod(namespace, "q", "", [using("second")])
    item["spec"]["nodeName"] = driver.node.name
    created(item)

    def holder_is_named():
        events = control_plane.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector="involvedObject.name=q")[
            "items"
        ]
        return any(f"is prepared for {namespace}/first" in event["message"] for event in events)

    control_plane.until("an event of the second pod names the claim that has the device", holder_is_named, 60)
    assert len(driver.prepared()) == len(before) + 1
    assert not driver.node.logs(namespace, "q", "main")
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/p", gracePeriodSeconds=0)
    assert "card" in device_variables(driver, namespace, "q")
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/q", gracePeriodSeconds=0)
    until_freed(driver, before)


def test_an_unmodified_pod_gets_its_gpu_from_our_driver(control_plane, node_cluster, gated, webhook):
    """The pod requests `nvidia.com/gpu: 1` only; the driver has the name that the webhook translates to."""
    classes = fleet.classes(extended=False)
    gpu = GPU | {"name": "gpu-0", "uuid": "GPU-7"}
    with installed_driver(
        node_cluster, fleet.NVIDIA, {"visibleDevices": "NVIDIA_VISIBLE_DEVICES", "gpus": [gpu]}
    ) as driver_:
        control_plane.create(*classes)
        try:
            item = pod(
                "p", gated, container(command=PRINT_DEVICES, **limits(**{"nvidia.com/gpu": 1})), node=node_cluster.name
            )
            control_plane.create(known(control_plane, item))
            assert device_variables(driver_, gated, "p") == {"DRAWBRIDGE_DEVICE_GPU_0": "GPU-7", "card": "yes"}
            assert node_cluster.environment(gated, "p")["NVIDIA_VISIBLE_DEVICES"] == "GPU-7"
            control_plane.delete(f"/api/v1/namespaces/{gated}/pods/p", gracePeriodSeconds=0)
            until_freed(driver_, set())
        finally:
            control_plane.remove(*classes)


def test_an_api_server_accepts_the_installation(control_plane):
    """The API server compiles the expressions of the policies."""
    folder = ROOT / "manifests" / "driver"
    files = [path for path in sorted(folder.glob("*.yaml")) if path.name != "kustomization.yaml"]
    for document in read(files):
        item = document.object
        if item["metadata"].get("namespace"):
            item["metadata"]["namespace"] = "default"  # its own namespace exists only if the driver is installed
        control_plane.create(item, dryRun="All")
