"""`drawbridge migrate accept` on a real node: a healthy driver passes, and each usual fault is found before a workload moves."""

import contextlib
import json
import signal
import subprocess
import sys

import pytest

from e2e.actors import fleet
from e2e.driver.installed import GPU, PROGRAM, installed_driver
from e2e.driver.test_adapter import RESOURCE
from e2e.ground import node as ground
from e2e.ground.images import BUSYBOX

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(300)]

DRIVER = "accept.example.com"
LABEL = "drawbridge.dev/accept"
PARTS = {"gpus": [GPU | {"name": "gpu-0", "uuid": "GPU-0"}]}
CHECKS = ["devices", "offered once", "start", "CDI files", "isolation", "release"]


def arguments(node, *options):
    cluster = ["--kubeconfig", node.cluster.kubeconfig, "--image", BUSYBOX]
    return [PROGRAM, "migrate", "accept", node.name, *cluster, *options]


def run(node, *options):
    """Run the command; return the checks that passed, and the messages of those that failed."""
    done = subprocess.run(
        arguments(node, "-o", "json", *options), capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode in (0, 1), done.stderr
    answer = json.loads(done.stdout)
    assert answer["passed"] == (done.returncode == 0)
    passed = [check["check"] for check in answer["checks"] if check["passed"]]
    return passed, {check["check"]: check["message"] for check in answer["checks"] if not check["passed"]}


def objects_left(cluster):
    paths = ("/api/v1/namespaces", "/api/v1/pods", "/apis/resource.k8s.io/v1/resourceclaims")
    return [item["metadata"]["name"] for path in paths for item in cluster.get(path, labelSelector=LABEL)["items"]]


@contextlib.contextmanager
def device_class(cluster, **spec):
    class_ = fleet.device_class(DRIVER, f"device.driver == '{DRIVER}'")
    class_["spec"] |= spec
    cluster.create(class_)
    try:
        yield
    finally:
        cluster.remove(class_)


@pytest.fixture
def driver(node_cluster):
    """Our driver with one GPU, and its DeviceClass."""
    with device_class(node_cluster.cluster), installed_driver(node_cluster, DRIVER, PARTS) as running:
        yield running


@contextlib.contextmanager
def containerd_with(node, monkeypatch, old, new):
    """Run the node's containerd with another configuration."""
    with monkeypatch.context() as changed:
        assert old in ground.CONTAINERD_TOML
        changed.setattr(ground, "CONTAINERD_TOML", ground.CONTAINERD_TOML.replace(old, new))
        node.restart_containerd()
        try:
            yield
        finally:
            changed.undo()
            node.restart_containerd()


def test_a_healthy_node_passes_and_nothing_is_left(node_cluster, driver):
    assert run(node_cluster) == (CHECKS, {})
    node_cluster.cluster.until("the namespace is deleted", lambda: not objects_left(node_cluster.cluster), 60)


def test_a_cdi_path_that_does_not_exist_is_found(node_cluster):
    """The driver sees a device file that the host does not have, as in a container with a wrong driver root."""
    gpu = PARTS["gpus"][0] | {"place": {"deviceNodes": ["/mnt/card:/dev/card"]}}
    script = 'mount -t tmpfs card /mnt && mknod /mnt/card c 1 5 && exec "$@"'
    program = ["unshare", "--mount", "sh", "-c", script, "sh", PROGRAM]
    with (
        device_class(node_cluster.cluster),
        installed_driver(node_cluster, DRIVER, {"gpus": [gpu]}, *program),
    ):
        passed, failed = run(node_cluster)
    assert passed == ["devices", "offered once"]
    assert "/mnt/card" in failed["CDI files"]
    assert "start" in failed


def test_a_runtime_that_does_not_read_the_drivers_folder_is_found(node_cluster, driver, monkeypatch):
    with containerd_with(node_cluster, monkeypatch, "cdi_spec_dirs = ['/run/cdi']", "cdi_spec_dirs = ['/etc/cdi']"):
        passed, failed = run(node_cluster)
    assert passed == ["devices", "offered once", "CDI files"]
    assert "does not find the claim's CDI file" in failed["start"]


RUNTIME = """\
#!{python}
import json, os, sys
for word in sys.argv:
    path = f"{{word}}/config.json"
    if os.path.exists(path):
        spec = json.load(open(path))
        {changes}
        json.dump(spec, open(path, "w"))
os.execvp("runc", ["runc", *sys.argv[1:]])
"""


def runtime_with(node, *changes):
    """Write a container runtime that changes the `spec` of each container and then runs runc; return its path."""
    path = node.root / "runtime"
    path.write_text(RUNTIME.format(python=sys.executable, changes="\n        ".join(changes)))
    path.chmod(0o755)
    return path


# containerd 2.4 always applies CDI files. Without their edits, a container is like one of containerd 1.7 without `enable_cdi`.
WITHOUT_CDI = (
    'spec["linux"]["devices"] = [node for node in spec["linux"].get("devices", []) if node["path"] != "/dev/card"]',
    'spec["process"]["env"] = [pair for pair in spec["process"]["env"] if "DRAWBRIDGE" not in pair]',
    'spec["mounts"] = [mount for mount in spec["mounts"] if "dra-device-attributes" not in mount["destination"]]',
)


def test_cdi_that_is_off_is_found(node_cluster, driver, monkeypatch):
    runtime = runtime_with(node_cluster, *WITHOUT_CDI)
    options = f"SystemdCgroup = false, BinaryName = '{runtime}'"
    with containerd_with(node_cluster, monkeypatch, "SystemdCgroup = false", options):
        passed, failed = run(node_cluster)
    assert passed == [check for check in CHECKS if check != "isolation"]
    assert "CDI is off" in failed["isolation"]


# Like NVIDIA's container runtime: whoever asks for all GPUs in the environment gets the device files of all.
ALL_DEVICES = (
    'if "NVIDIA_VISIBLE_DEVICES=all" in spec["process"]["env"]:',
    '    spec["linux"].setdefault("devices", []).append({"path": "/dev/other", "type": "c", "major": 1, "minor": 5})',
)
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}


def test_devices_that_nvidias_runtime_adds_are_found(node_cluster, driver, monkeypatch):
    runtime = runtime_with(node_cluster, *ALL_DEVICES)
    runtimes = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes"
    section = (
        f"{runtimes}.nvidia]\n  runtime_type = 'io.containerd.runc.v2'\n  options = {{ BinaryName = '{runtime}' }}\n\n"
    )
    node_cluster.cluster.create(RUNTIME_CLASS)
    try:
        with containerd_with(node_cluster, monkeypatch, f"{runtimes}.runc]", f"{section}{runtimes}.runc]"):
            passed, failed = run(node_cluster)
    finally:
        node_cluster.cluster.remove(RUNTIME_CLASS)
    assert passed == ["devices", "offered once", "start", "start", "CDI files", "isolation", "release"]
    assert failed.keys() == {"isolation"}
    assert failed["isolation"].startswith("with runtimeClassName nvidia: a container without a claim sees")
    assert "/dev/other" in failed["isolation"]


def test_a_device_that_is_offered_twice_is_found(node_cluster):
    plugin = node_cluster.start_device_plugin()
    cluster = node_cluster.cluster
    try:
        with (
            device_class(cluster, extendedResourceName=RESOURCE),
            installed_driver(node_cluster, DRIVER, PARTS),
        ):
            cluster.until(
                "the plugin's devices are allocatable", lambda: node_cluster.allocatable().get(RESOURCE) == "2", 60
            )
            passed, failed = run(node_cluster)
    finally:
        plugin.stop()
    assert RESOURCE in failed.pop("offered once")
    assert failed == {}
    assert passed == [check for check in CHECKS if check != "offered once"]


def test_a_driver_that_has_lost_its_socket_is_found(node_cluster, driver):
    driver.running.stop(hard=True)
    _, failed = run(node_cluster)
    assert failed.keys() & {"start", "devices"}, failed


def test_an_interrupted_run_deletes_its_objects(node_cluster, driver):
    cluster = node_cluster.cluster
    # A shell without job control starts commands with SIGINT ignored, and they hand that on.
    process = subprocess.Popen(["env", "--default-signal=INT", *arguments(node_cluster)])
    cluster.until("the run has created a claim", lambda: len(objects_left(cluster)) > 1, 60)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    cluster.until("all objects are deleted", lambda: not objects_left(cluster), 60)


def test_a_run_deletes_what_a_killed_run_has_left(node_cluster, driver):
    cluster = node_cluster.cluster
    process = subprocess.Popen(arguments(node_cluster))
    cluster.until("the run has created a claim", lambda: len(objects_left(cluster)) > 1, 60)
    process.kill()
    process.wait(60)
    assert objects_left(cluster)
    assert run(node_cluster) == (CHECKS, {})
    cluster.until("all objects are deleted", lambda: not objects_left(cluster), 60)
