"""Failures around our driver on a real node, with the real kubelet: each pod gets its device in the end, and nothing is held forever."""

import contextlib
import subprocess
import sys

import pytest

from e2e.actors import fleet
from e2e.actors.proxy import Proxy
from e2e.actors.taints import NO_DEVICE
from e2e.actors.workloads import claim, request, template, using, using_template
from e2e.driver.installed import GPU, PRINT_DEVICES, ROOT, claiming_pod, device_variables, installed_driver, until_freed
from e2e.driver.mortal import DEATHS, DIES_BEFORE
from e2e.ground.node import KUBELET

pytestmark = [pytest.mark.real, pytest.mark.node]

DRIVER = "bad.example.com"
CLASS = "e2e-bad-day"
CDI = "/run/cdi"


def gpus(*numbers):
    return {"gpus": [GPU | {"name": f"gpu-{number}", "uuid": f"GPU-{number}"} for number in numbers]}


@pytest.fixture(autouse=True)
def devices(control_plane):
    class_ = fleet.device_class(CLASS, f"device.driver == '{DRIVER}'")
    control_plane.create(class_)
    yield
    control_plane.remove(class_)


def pods_with_devices(namespace, names, node):
    """A template, and pods that have a device each."""
    pods = [claiming_pod(namespace, name, node.name, [using_template("one")]) for name in names]
    return [template("one", namespace, request("r", CLASS)), *pods]


def delete_pods(control_plane, namespace, *names):
    for name in names:
        control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)


def printed_devices(driver, namespace, names):
    """The devices that pods print."""
    return sorted(
        value for name in names for key, value in device_variables(driver, namespace, name).items() if key != "card"
    )


def deaths(driver):
    lines = driver.running.log.read_text().splitlines()
    return [line.removeprefix(DIES_BEFORE) for line in lines if line.startswith(DIES_BEFORE)]


def wait_for_event(control_plane, namespace, name, words):
    """Wait until an event of a pod has these words."""

    def has_event():
        events = control_plane.get(
            f"/api/v1/namespaces/{namespace}/events", fieldSelector=f"involvedObject.name={name}"
        )
        return any(words in event["message"] for event in events["items"])

    control_plane.until(f"an event of {name} says: {words}", has_event, 90)


@pytest.mark.timeout(600)
def test_a_driver_killed_before_every_step_loses_no_device(control_plane, node_cluster, namespace, created):
    names = [f"p{number}" for number in range(6)]
    mortal = sys.executable, "-m", "e2e.driver.mortal"
    with installed_driver(node_cluster, DRIVER, gpus(*range(6)), *mortal) as driver:
        created(*pods_with_devices(namespace, names, node_cluster))
        for name in names:
            control_plane.wait_phase(namespace, name, "Running", seconds=120)
        assert printed_devices(driver, namespace, names) == [f"GPU-{number}" for number in range(6)]
        before_the_end = DEATHS[: DEATHS.index("forget Remove cdi")]
        assert deaths(driver) == before_the_end
        assert len(driver.prepared()) == len(driver.files()) == 6
        delete_pods(control_plane, namespace, *names)
        until_freed(driver, set())
        assert deaths(driver) == DEATHS
        created(claiming_pod(namespace, "next", node_cluster.name, [using_template("one")]))
        assert len(printed_devices(driver, namespace, ["next"])) == 1
        delete_pods(control_plane, namespace, "next")
        until_freed(driver, set())


def test_a_full_checkpoint_disk_is_reported_until_there_is_room(control_plane, node_cluster, namespace, created):
    """This is the disk of the checkpoint; the next test fills the disk of the CDI files."""
    folder = f"{KUBELET}/plugins/{DRIVER}"
    box = node_cluster.box
    box.run("mkdir", "-p", folder)
    box.run("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder)
    try:
        with installed_driver(node_cluster, DRIVER, gpus(0, 1)) as driver:
            created(*pods_with_devices(namespace, ["first"], node_cluster))
            first = printed_devices(driver, namespace, ["first"])
            box.run("sh", "-c", f"dd if=/dev/zero of={folder}/filler bs=4k 2>/dev/null; test -s {folder}/filler")
            created(claiming_pod(namespace, "second", node_cluster.name, [using_template("one")]))
            wait_for_event(control_plane, namespace, "second", "No space left on device")
            # The kubelet retries, and each time an incomplete file exists for a moment.
            control_plane.until("no incomplete file is left", lambda: ".new" not in box.run("ls", folder))
            # A driver that starts on a full disk knows its prepared claims.
            driver.running.stop(hard=True)
            driver.start()
            box.run("rm", f"{folder}/filler")
            assert sorted(first + printed_devices(driver, namespace, ["second"])) == ["GPU-0", "GPU-1"]
            assert restarts(control_plane, namespace, "first") == 0
            delete_pods(control_plane, namespace, "first", "second")
            control_plane.until("all files of claims are gone", lambda: not driver.files(), 90)
    finally:
        box.run("umount", "--lazy", folder)


def test_a_full_cdi_disk_is_reported_until_there_is_room(control_plane, node_cluster, namespace, created, small_cdi):
    box = node_cluster.box

    def cdi_files():
        return [name for name in box.run("ls", CDI).split() if DRIVER in name]

    with installed_driver(node_cluster, DRIVER, gpus(0, 1)) as driver:
        created(*pods_with_devices(namespace, ["first"], node_cluster))
        first = printed_devices(driver, namespace, ["first"])
        [file] = cdi_files()
        box.run("sh", "-c", f"dd if=/dev/zero of={CDI}/filler bs=4k 2>/dev/null; test -s {CDI}/filler")
        created(claiming_pod(namespace, "second", node_cluster.name, [using_template("one")]))
        wait_for_event(control_plane, namespace, "second", "No space left on device")
        # The kubelet retries, and each time an incomplete file exists for a moment.
        control_plane.until("no incomplete file is left", lambda: cdi_files() == [file])
        # Claims can be deleted while the disk is full. The deleted claim leaves no file.
        delete_pods(control_plane, namespace, "first")
        control_plane.until("the CDI file of the first pod's claim is deleted", lambda: file not in cdi_files(), 90)
        box.run("rm", f"{CDI}/filler")
        created(claiming_pod(namespace, "third", node_cluster.name, [using_template("one")]))
        assert printed_devices(driver, namespace, ["second", "third"]) == ["GPU-0", "GPU-1"]
        assert first[0] in ("GPU-0", "GPU-1")
        assert len(cdi_files()) == 2
        delete_pods(control_plane, namespace, "second", "third")
        control_plane.until(
            "all files are gone, and nothing is prepared", lambda: not cdi_files() and not driver.prepared(), 90
        )


@pytest.fixture
def small_cdi(node_cluster):
    """A small disk for CDI files. containerd does not notice a new mount, so it is restarted."""
    node_cluster.box.run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", CDI)
    node_cluster.restart_containerd()
    yield
    node_cluster.box.run("umount", "--lazy", CDI)
    node_cluster.restart_containerd()


def test_a_disk_that_is_full_of_temporary_files_loses_nothing(tmp_path):
    command = ["unshare", "--mount", "--propagation=private", sys.executable, "-m", "e2e.driver.full_disk", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert (done.returncode, "nothing was lost" in done.stdout) == (0, True), done.stderr


def restarts(control_plane, namespace, name):
    [status] = control_plane.wait_phase(namespace, name, "Running")["status"]["containerStatuses"]
    return status["restartCount"]


def test_two_versions_with_different_inventories_do_not_undo_each_other(
    control_plane, node_cluster, namespace, created
):
    def device_names():
        return sorted(device["name"] for item in driver.slices() for device in item["spec"].get("devices", ()))

    with installed_driver(node_cluster, DRIVER, gpus(0)) as driver:
        old = driver.running
        driver.offer(gpus(0, 1))
        driver.start()
        control_plane.until("the later driver publishes its devices", lambda: device_names() == ["gpu-0", "gpu-1"])
        versions = {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in driver.slices()}
        created(*pods_with_devices(namespace, ["a", "b"], node_cluster))
        assert printed_devices(driver, namespace, ["a", "b"]) == ["GPU-0", "GPU-1"]
        old.stop()
        assert {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in driver.slices()} == versions
        delete_pods(control_plane, namespace, "a", "b")
        until_freed(driver, set())


LAYOUT = {
    "name": "small",
    "slices": 2,
    "compute": 2,
    "partitions": [{"profile": "1g.20gb", "memory": "20Gi", "slices": 1, "compute": 1, "at": [0, 1]}],
}


def cards(*names, **parts):
    """An inventory with these cards by UUID, which containers see in a variable, too."""
    described = [GPU | {"name": name, "uuid": uuid} | parts for name, uuid in names]
    return {"layouts": [LAYOUT], "visibleDevices": "E2E_VISIBLE", "gpus": described}


def test_a_pod_keeps_its_hardware_when_the_inventory_changes(control_plane, node_cluster, namespace, created):
    """The driver starts with another inventory, and the container restarts. No second pod gets the hardware before the first pod ends."""
    ours, others = ("gpu-0", "GPU-0"), ("gpu-1", "GPU-1")
    inventories = {
        "without the device": cards(others),
        "other UUIDs": cards(("gpu-0", "GPU-1"), ("gpu-1", "GPU-0")),
        "partitions": cards(ours, others, whole=False, layout="small"),
        "other names": cards(("x", "GPU-0"), ("y", "GPU-1")),
    }

    def published():
        return {
            device["attributes"].get("parentUUID", device["attributes"]["uuid"])["string"]
            for item in driver.slices()
            for device in item["spec"].get("devices", ())
        }

    def environment(restart):
        """The variables of our driver in the container after so many restarts."""

        def text():
            files = list(node_cluster.pod_logs.glob(f"{namespace}_p_*/main/{restart}.log"))
            content = files[0].read_text() if files else ""
            return content if "spoken=yes" in content else ""

        lines = control_plane.until(f"the container has started {restart + 1} times", text, 120).splitlines()
        variables = (line.split(" ", 3)[3].partition("=") for line in lines)
        return {name: value for name, _, value in variables if name.startswith(("DRAWBRIDGE_", "E2E_", "card"))}

    with installed_driver(node_cluster, DRIVER, cards(ours)) as driver:
        template_, item = pods_with_devices(namespace, ["p"], node_cluster)
        item["spec"]["restartPolicy"] = "Always"
        item["spec"]["containers"][0]["command"][-1] = PRINT_DEVICES.replace("600", "613")
        created(template_, item)
        given = {"DRAWBRIDGE_DEVICE_GPU_0": "GPU-0", "E2E_VISIBLE": "GPU-0", "card": "yes"}
        assert environment(0) == given
        prepared = driver.prepared()
        for restart, (change, inventory) in enumerate(inventories.items(), 1):
            driver.running.stop()
            driver.offer(inventory)
            driver.start()
            control_plane.until(f"the other card is published: {change}", lambda: published() == {"GPU-1"}, 30)
            processes = node_cluster.box.run("ps", "-eo", "pid,args").splitlines()
            [process] = [line.split()[0] for line in processes if line.split()[1:] == ["sleep", "613"]]
            node_cluster.box.run("kill", "-9", process)  # the first process of a container ignores SIGTERM
            assert environment(restart) == given, change
            assert driver.prepared() == prepared, change
        created(*(claiming_pod(namespace, name, node_cluster.name, [using_template("one")]) for name in ("q", "r")))

        def placed():
            pods = (control_plane.get(f"/api/v1/namespaces/{namespace}/pods/{name}") for name in ("q", "r"))
            return [found["metadata"]["name"] for found in pods if found["spec"].get("nodeName")]

        [second] = control_plane.until("one of two more pods is placed", placed, 60)
        [third] = {"q", "r"} - {second}
        assert NO_DEVICE in control_plane.wait_unschedulable(namespace, third)["message"]
        assert printed_devices(driver, namespace, [second]) == ["GPU-1"]
        delete_pods(control_plane, namespace, "p")
        assert printed_devices(driver, namespace, [third]) == ["GPU-0"]
        delete_pods(control_plane, namespace, "q", "r")
        until_freed(driver, set())


def test_preparation_waits_while_the_api_server_is_down(control_plane, node_cluster, namespace, created):
    proxy = Proxy(control_plane.url, control_plane.ca, control_plane.token)
    cluster_entry = {"name": "p", "cluster": {"server": f"http://127.0.0.1:{proxy.port}"}}
    context = {"name": "p", "context": {"cluster": "p", "user": "p"}}
    kubeconfig = control_plane.write_json(
        "driver-by-proxy.json",
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster_entry],
            "users": [{"name": "p", "user": {}}],
            "contexts": [context],
            "current-context": "p",
        },
    )
    with contextlib.closing(proxy), installed_driver(node_cluster, DRIVER, gpus(0), kubeconfig=kubeconfig) as driver:
        proxy.broken.set()
        created(*pods_with_devices(namespace, ["p"], node_cluster))
        wait_for_event(control_plane, namespace, "p", "the claim cannot be read from the API server")
        assert driver.prepared() == set()
        proxy.restore()
        assert printed_devices(driver, namespace, ["p"]) == ["GPU-0"]
        delete_pods(control_plane, namespace, "p")
        until_freed(driver, set())


def test_a_claim_deleted_during_preparation_leaves_nothing(control_plane, node_cluster, namespace, created):
    with installed_driver(node_cluster, DRIVER, gpus(0)) as driver:
        claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
        with driver.running.frozen():
            created(claim("held", namespace, request("r", CLASS)))
            created(claiming_pod(namespace, "p", node_cluster.name, [using("held")]))
            control_plane.until(
                "the pod has a node, and its claim the device",
                lambda: control_plane.get(f"/api/v1/namespaces/{namespace}/pods/p")["spec"].get("nodeName"),
            )
            delete_pods(control_plane, namespace, "p")
            control_plane.patch(f"{claims}/held", {"metadata": {"finalizers": None}})
            control_plane.delete(f"{claims}/held")
        created(*pods_with_devices(namespace, ["next"], node_cluster))
        assert printed_devices(driver, namespace, ["next"]) == ["GPU-0"]
        assert len(driver.prepared()) == 1
        delete_pods(control_plane, namespace, "next")
        until_freed(driver, set())


def test_after_a_reboot_pods_get_their_devices_again(control_plane, node_cluster, namespace, created):
    """The driver's state is on a disk. Containers, sandboxes, mounts, containerd's metadata and /run/cdi are lost."""
    with installed_driver(node_cluster, DRIVER, gpus(0, 1)) as driver:
        template_, item = pods_with_devices(namespace, ["p"], node_cluster)
        item["spec"]["restartPolicy"] = "Always"
        created(template_, item)
        before = printed_devices(driver, namespace, ["p"])
        driver.running.stop(hard=True)
        running = control_plane.get(f"/api/v1/namespaces/{namespace}/pods/p")["status"]["containerStatuses"][0]
        node_cluster.reboot()
        assert driver.files() == []
        driver.start()

        def runs_again():
            [status] = control_plane.get(f"/api/v1/namespaces/{namespace}/pods/p")["status"].get(
                "containerStatuses"
            ) or [{}]
            return status.get("restartCount", 0) > running["restartCount"] and "running" in status["state"]

        control_plane.until("the container runs again", runs_again, 120)
        assert printed_devices(driver, namespace, ["p"]) == before
        assert len(driver.files()) == 1
        delete_pods(control_plane, namespace, "p")
        until_freed(driver, set())


def test_deleted_cdi_files_are_written_before_the_next_container_starts(
    control_plane, node_cluster, namespace, created
):
    with installed_driver(node_cluster, DRIVER, gpus(0)) as driver:
        template_, item = pods_with_devices(namespace, ["p"], node_cluster)
        item["spec"]["restartPolicy"] = "Always"
        item["spec"]["containers"][0]["command"][-1] = "env; echo spoken=yes; sleep 5"
        created(template_, item)
        assert printed_devices(driver, namespace, ["p"]) == ["GPU-0"]
        [file] = driver.files()
        content = file.read_bytes()
        node_cluster.box.run("rm", f"{CDI}/{file.name}")
        control_plane.until("the file is there again", lambda: file.exists() and file.read_bytes() == content, 30)
        before = restarts(control_plane, namespace, "p")
        control_plane.until("the container starts again", lambda: restarts(control_plane, namespace, "p") > before, 90)
        delete_pods(control_plane, namespace, "p")
        until_freed(driver, set())


def test_a_failed_device_keeps_its_pod_and_gets_no_other(control_plane, node_cluster, namespace, created):
    """The device file is deleted and created again. The default scheduler respects the taint, and a restarted driver keeps it."""
    box = node_cluster.box
    file = f"{KUBELET}/e2e-card"  # device files in /dev belong to the machine

    def devices():
        return [device for item in driver.slices() for device in item["spec"].get("devices", ())]

    def taints():
        return [(taint["key"], taint["effect"]) for device in devices() for taint in device.get("taints", ())]

    def versions():
        return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in driver.slices()}

    box.run("mknod", file, "c", "1", "5")
    card = GPU | {"name": "gpu-0", "uuid": "GPU-0", "place": {"deviceNodes": [f"{file}:/dev/card"]}}
    try:
        with installed_driver(node_cluster, DRIVER, {"gpus": [card]}) as driver:
            created(*pods_with_devices(namespace, ["first"], node_cluster))
            assert printed_devices(driver, namespace, ["first"]) == ["GPU-0"]
            [before] = driver.slices()
            assert taints() == []
            box.run("rm", file)
            control_plane.until(
                "the device is tainted", lambda: taints() == [(f"{DRIVER}/unhealthy", "NoSchedule")], 30
            )
            versions_before = versions()
            assert len(driver.prepared()) == 1
            assert restarts(control_plane, namespace, "first") == 0
            driver.running.stop(hard=True)
            driver.start()
            delete_pods(control_plane, namespace, "first")
            until_freed(driver, set())
            created(claiming_pod(namespace, "second", node_cluster.name, [using_template("one")]))
            assert NO_DEVICE in control_plane.wait_unschedulable(namespace, "second")["message"]
            assert versions() == versions_before
            box.run("mknod", file, "c", "1", "5")
            control_plane.until("the device has no taint", lambda: taints() == [], 30)
            assert printed_devices(driver, namespace, ["second"]) == ["GPU-0"]
            [after] = driver.slices()
            assert after["spec"] == before["spec"]
            delete_pods(control_plane, namespace, "second")
            until_freed(driver, set())
    finally:
        box.run("rm", "-f", file)


def test_a_drained_device_gets_no_pod_until_untainted(control_plane, node_cluster, namespace, created):
    """The taint is a DeviceTaintRule with the effect NoExecute.

    kube-controller-manager evicts the pod, and the kubelet unprepares its claim.
    """
    spec = {
        "deviceSelector": {"driver": DRIVER, "pool": node_cluster.name, "device": "gpu-0"},
        "taint": {"key": "example.com/repair", "effect": "NoExecute"},
    }
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "e2e-drain"},
        "spec": spec,
    }
    with installed_driver(node_cluster, DRIVER, gpus(0, 1)) as driver:
        created(*pods_with_devices(namespace, ["first", "second"], node_cluster))
        devices_by_pod = {name: printed_devices(driver, namespace, [name]) for name in ("first", "second")}
        [drained] = [name for name, devices in devices_by_pod.items() if devices == ["GPU-0"]]
        [other] = devices_by_pod.keys() - {drained}
        control_plane.create(rule)
        try:
            pods = f"/api/v1/namespaces/{namespace}/pods"
            remaining = [other]
            control_plane.until(
                "the pod of the drained device is gone",
                lambda: [pod["metadata"]["name"] for pod in control_plane.get(pods)["items"]] == remaining,
                90,
            )
            control_plane.until("its claim is freed", lambda: len(driver.prepared()) == 1, 90)
            assert restarts(control_plane, namespace, other) == 0
            created(claiming_pod(namespace, "third", node_cluster.name, [using_template("one")]))
            assert NO_DEVICE in control_plane.wait_unschedulable(namespace, "third")["message"]
        finally:
            control_plane.remove(rule)
        assert printed_devices(driver, namespace, ["third"]) == ["GPU-0"]
        delete_pods(control_plane, namespace, other, "third")
        until_freed(driver, set())
