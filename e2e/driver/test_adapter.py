"""Kubernetes' unmodified sample device plugin behind our adapter on a real node: unmodified pods get its devices through claims."""

import contextlib
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from e2e.actors.workloads import container, limits, pod
from e2e.build import program
from e2e.ground.node import KUBELET
from tests.limits import PATIENCE

pytestmark = [pytest.mark.real, pytest.mark.node]

DRIVER = "plugins.drawbridge.dev"
RESOURCE = "example.com/resource"
OTHER = "example.com/other"
ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("drawbridge")
SOCKETS = f"{KUBELET}/device-plugins"
STARTS = itertools.count(1)


class Adapter:
    """The adapter on a node, and a device plugin that connects to it as to the kubelet."""

    def __init__(self, node):
        self.node = node
        self.cluster = node.cluster
        self.folder = f"{KUBELET}/adapted"  # inside the node: the paths of plugins' sockets must be short
        node.outside(self.folder).mkdir(exist_ok=True)
        self.running = None

    def start(self):
        self.running = self.node.spawn(
            f"adapter-{next(STARTS)}",  # each has its own log
            [
                PROGRAM, "driver", "--adapt", self.folder, "--node-name", self.node.name, "--kubelet-dir", KUBELET,
                "--cdi-dir", "/run/cdi", "--kubeconfig", self.cluster.kubeconfig,
            ],
        )  # fmt: skip

        def registered():
            self.running.check()
            return "the kubelet has registered this driver" in self.running.log.read_text()

        self.cluster.until("the adapter is registered", registered, 60)

    def kill(self):
        os.kill(self.running.pid, signal.SIGKILL)
        self.running.child.wait(PATIENCE)

    def stop(self):
        self.running.stop()

    def remove(self):
        """Remove the adapter with its slices and its state: for five minutes, a later adapter would publish the devices in this state."""
        self.stop()
        for item in self.slices():
            self.cluster.delete(f"/apis/resource.k8s.io/v1/resourceslices/{item['metadata']['name']}")
        shutil.rmtree(self.node.outside(f"{KUBELET}/plugins/{DRIVER}"), ignore_errors=True)

    def start_plugin(self, *command):
        """Start a plugin, by default the sample plugin, with the adapter's folder in place of the kubelet's, as in its DaemonSet."""
        plugin = shlex.join(map(str, command or [program("sample-device-plugin")]))
        script = f"mount --bind {self.folder} {SOCKETS} && exec {plugin}"
        return self.node.spawn("adapted-plugin", ["unshare", "--mount", "sh", "-c", script])

    def slices(self):
        fields = f"spec.driver={DRIVER},spec.nodeName={self.node.name}"
        return self.cluster.get("/apis/resource.k8s.io/v1/resourceslices", fieldSelector=fields)["items"]

    def devices(self):
        return [device for item in self.slices() for device in item["spec"].get("devices", ())]

    def ids(self):
        return sorted(device["attributes"]["id"]["string"] for device in self.devices())

    def healthy_ids(self):
        return sorted(device["attributes"]["id"]["string"] for device in self.devices() if not device.get("taints"))


@pytest.fixture(scope="module")
def adapted(control_plane, node_cluster):
    command = [PROGRAM, "driver", "--classes", RESOURCE]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    class_ = yaml.safe_load(printed)
    adapter = Adapter(node_cluster)
    with contextlib.ExitStack() as stack:
        control_plane.create(class_)
        stack.callback(control_plane.remove, class_)
        adapter.start()
        stack.callback(adapter.remove)
        plugin = adapter.start_plugin()
        stack.callback(plugin.stop)
        control_plane.until(
            "the plugin's devices are published", lambda: adapter.healthy_ids() == ["Dev-1", "Dev-2"], 60
        )
        yield adapter


def device_files(adapted, namespace, name):
    """The device files that a container saw."""
    adapted.cluster.wait_phase(namespace, name, "Succeeded", seconds=90)
    return adapted.node.output_of(namespace, name).split()


def held_device_file(adapted, namespace, name):
    """The device file that a container saw and holds."""
    adapted.cluster.wait_phase(namespace, name, "Running", seconds=90)
    [device] = adapted.node.output_of(namespace, name).split()
    return device


# The container ends on SIGTERM, so that its devices are freed at once.
HOLD = "ls /tmp; echo spoken=yes; trap 'exit 0' TERM; sleep 600 & wait"


def delete_and_wait(adapted, namespace, *names):
    """Delete pods in order, and wait until the adapter has removed its files for their claims; the kubelet retries late."""
    for name in names:
        adapted.cluster.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=1)
    folder = adapted.node.outside("/run/cdi")
    adapted.cluster.until("the adapter has no CDI file", lambda: not list(folder.glob(f"drawbridge_{DRIVER}_*")), 90)


def requesting_pod(namespace, name, command="ls /tmp; echo spoken=yes", resource=RESOURCE, amount=1):
    return pod(name, namespace, container(command=command, **limits(**{resource: amount})))


def test_an_unmodified_pod_gets_a_device_of_an_unmodified_plugin(control_plane, adapted, namespace, created):
    created(requesting_pod(namespace, "one"), requesting_pod(namespace, "both", amount=2))
    assert set(device_files(adapted, namespace, "both")) == {"Dev-1", "Dev-2"}
    [device] = device_files(adapted, namespace, "one")
    assert device in {"Dev-1", "Dev-2"}
    # The kubelet keeps a resource that another plugin has offered, with 0.
    assert adapted.node.allocatable().get(RESOURCE, "0") == "0", (
        "the kubelet offers the plugin's resource, although the plugin registers with the adapter"
    )
    pod_ = control_plane.get(f"/api/v1/namespaces/{namespace}/pods/one")
    assert pod_["status"]["extendedResourceClaimStatus"]["requestMappings"][0]["resourceName"] == RESOURCE
    delete_and_wait(adapted, namespace, "one", "both")


def test_a_third_pod_waits_for_one_of_two_devices(control_plane, adapted, namespace, created):
    created(requesting_pod(namespace, "a", HOLD), requesting_pod(namespace, "b", HOLD), requesting_pod(namespace, "c"))
    first, second = [held_device_file(adapted, namespace, name) for name in ("a", "b")]
    assert {first, second} == {"Dev-1", "Dev-2"}
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/a", gracePeriodSeconds=1)
    assert device_files(adapted, namespace, "c") == [first]
    delete_and_wait(adapted, namespace, "b", "c")


def test_running_pods_keep_their_devices_through_kills_and_restarts(control_plane, adapted, namespace, created):
    created(requesting_pod(namespace, "runs", HOLD))
    device = held_device_file(adapted, namespace, "runs")
    adapted.kill()
    adapted.start()
    # A kubelet deletes the slices of a driver that is away for half a minute, and the next driver publishes them again.
    control_plane.until(
        "the adapter publishes the devices that it remembers", lambda: adapted.ids() == ["Dev-1", "Dev-2"]
    )
    control_plane.until(
        "the plugin's devices are healthy again", lambda: adapted.healthy_ids() == ["Dev-1", "Dev-2"], 90
    )
    adapted.node.restart_kubelet()
    created(requesting_pod(namespace, "next"))
    [other] = device_files(adapted, namespace, "next")
    assert {device, other} == {"Dev-1", "Dev-2"}
    status = control_plane.get(f"/api/v1/namespaces/{namespace}/pods/runs")["status"]
    assert (status["phase"], status["containerStatuses"][0]["restartCount"]) == ("Running", 0)
    delete_and_wait(adapted, namespace, "runs", "next")


def test_a_kubelet_device_plugin_keeps_working_next_to_the_adapter(control_plane, adapted, namespace, created):
    command = [sys.executable, "-m", "tests.node.service.device_plugin", SOCKETS, OTHER, "x", "y"]
    plugin = adapted.node.spawn("plain-plugin", command, {"PYTHONPATH": str(ROOT)})
    try:
        control_plane.until(
            "the kubelet offers the devices of the plain plugin",
            lambda: adapted.node.allocatable().get(OTHER) == "2",
            60,
        )
        amounts = {RESOURCE: 1, OTHER: 1}
        created(
            pod("mixed", namespace, container(command="ls /tmp; echo $THINGS; echo spoken=yes", **limits(**amounts)))
        )
        device, other_device = device_files(adapted, namespace, "mixed")
        assert device in {"Dev-1", "Dev-2"}
        assert other_device in {"x", "y"}
        delete_and_wait(adapted, namespace, "mixed")
    finally:
        plugin.stop()
