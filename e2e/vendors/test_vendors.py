"""Vendors' own drivers on a real node: unmodified pods get their devices by claims of ours, and see what the driver gives.

Programs are taken from the directory DRAWBRIDGE_DRIVERS; without it these tests are not collected (conftest.py).
"""

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.actors import fleet
from e2e.actors.webhook import claims_of, results_of
from e2e.actors.workloads import container, limits, pod
from e2e.driver.test_adapter import PROGRAM, Adapted
from e2e.ground.controlplane import free_port
from e2e.ground.node import KUBELET
from tests.webhook.dialects.test_published import published

pytestmark = [pytest.mark.real, pytest.mark.node]

PROGRAMS = Path(os.environ.get("DRAWBRIDGE_DRIVERS", "/nonexistent"))
GPU = "gpu.example.com"
CPU = "dra.cpu"
NET = "dra.net"
CONFIGURATION = f"""\
apiVersion: drawbridge.dev/v1alpha1
kind: DrawbridgeConfiguration
mode: enforce
targets:
- {{name: example, driver: {GPU}, unique: {GPU}/uuid, product: {GPU}/model, request: gpu}}
- {{name: interface, driver: {NET}, request: nic, moved: true}}
- {{name: cpus, driver: {CPU}, request: cpus, cores: cpu}}
classes: {{example: {GPU}, interface: {NET}, cpus: {CPU}}}
koordinator:
  hostResources: {{cpu: cpus}}
dialects:
- name: old
  title: Old plugins
  target: example
  keys:
  - {{name: old.example.com/gpu, meaning: whole GPUs, role: count}}
- name: interfaces
  title: Old plugin of interfaces
  target: interface
  keys:
  - {{name: old.example.com/nic, meaning: network interfaces, role: count}}
"""
SAY = "env; ip -o link; grep Cpus_allowed_list /proc/self/status; echo spoken=yes; sleep 600"


@pytest.fixture(scope="module")
def translated(webhook):
    webhook.follow(CONFIGURATION)
    options = ("--opt-in", "--failure-policy=Fail")
    webhook.register(*options, f"--config={webhook.config}")
    webhook.cluster.until("every webhook is called", webhook.is_called, 30)
    yield webhook
    webhook.register(*options)
    webhook.follow("apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: enforce\n")


@contextlib.contextmanager
def running(node, driver, program, class_, *options):
    """Run a driver with its class until the end, published and registered."""
    (node.outside(f"{KUBELET}/plugins") / driver).mkdir(parents=True, exist_ok=True)
    cluster = node.cluster
    cluster.create(class_)
    process = node.spawn(program, [PROGRAMS / program, f"--kubeconfig={cluster.kubeconfig}", *options])
    path = "/apis/resource.k8s.io/v1/resourceslices"

    def slices():
        process.check()
        return cluster.get(path, fieldSelector=f"spec.driver={driver}")["items"]

    try:
        cluster.until(f"{driver} has published", slices, 60)
        yield slices
    finally:
        process.stop()
        for item in cluster.get(path, fieldSelector=f"spec.driver={driver}")["items"]:
            cluster.delete(f"{path}/{item['metadata']['name']}")
        cluster.remove(class_)


def runs(node, namespace, item):
    """Create a pod, wait until its container has spoken, and return what it said."""
    node.cluster.create(item)
    name = item["metadata"]["name"]
    node.cluster.wait_phase(namespace, name, "Running", seconds=90)
    node.cluster.until("the container has spoken", lambda: "spoken=yes" in node.logs(namespace, name, "main"), 60)
    return node.logs(namespace, name, "main")


def known(cluster, item):
    """Wait until the webhook translates a pod."""

    def translated():
        answer = cluster.create(item, dryRun="All")[0]
        return "drawbridge.dev/original" in answer["metadata"].get("annotations", {})

    cluster.until("the webhook knows the class", translated, 20)
    return item


def test_the_example_driver_gives_a_gpu_to_a_pod_of_an_old_name(node_cluster, translated, gated):
    class_ = fleet.device_class(GPU, f"device.driver == '{GPU}'")
    options = (f"--node-name={node_cluster.name}", "--cdi-root=/run/cdi", "--num-devices=2")
    with running(node_cluster, GPU, "dra-example-kubeletplugin", class_, *options):
        asked = pod("p", gated, container(command=SAY, **limits(**{"old.example.com/gpu": 2})), node=node_cluster.name)
        said = runs(node_cluster, gated, known(node_cluster.cluster, asked))
        (claim,) = claims_of(node_cluster.cluster, gated, "p").values()
        assert {one["device"] for one in results_of(claim)} == {"gpu-0", "gpu-1"}
        assert {"GPU_DEVICE_0", "GPU_DEVICE_1"} <= {line.partition("=")[0] for line in said.splitlines()}
        node_cluster.cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
        gone(node_cluster.cluster, gated)


def test_the_cpu_driver_binds_a_container_to_the_cpus_of_its_claim(node_cluster, translated, gated):
    """CPUs come beside a device, which the example driver has here by NVIDIA's name."""
    classes = {name: fleet.device_class(name, f"device.driver == '{name}'") for name in (fleet.NVIDIA, CPU)}
    fake = (f"--node-name={node_cluster.name}", "--cdi-root=/run/cdi", f"--driver-name={fleet.NVIDIA}")
    options = (f"--bind-address=127.0.0.1:{free_port()}", f"--hostname-override={node_cluster.name}")
    with (
        running(node_cluster, fleet.NVIDIA, "dra-example-kubeletplugin", classes[fleet.NVIDIA], *fake),
        running(node_cluster, CPU, "dracpu", classes[CPU], *options) as slices,
    ):
        offered = published([{"kind": "ResourceSlice"} | one for one in slices()])
        assert offered == []
        amounts = limits(**{"cpu": 1, "memory": "64Mi", "koordinator.sh/gpu": 100})
        item = pod("p", gated, container(command=SAY, **amounts), node=node_cluster.name)
        policy = {"scheduling.koordinator.sh/resource-spec": '{"requiredCPUBindPolicy": "FullPCPUs"}'}
        item["metadata"]["annotations"] = policy
        said = runs(node_cluster, gated, known(node_cluster.cluster, item))
        claims = claims_of(node_cluster.cluster, gated, "p")
        (result,) = results_of(claims["drawbridge-pod-cpus"])
        assert (result["driver"], result["consumedCapacity"]) == (CPU, {"dra.cpu/cpu": "1"})
        (allowed,) = [line.split()[-1] for line in said.splitlines() if line.startswith("Cpus_allowed_list")]
        assert allowed.isdigit(), said
        node_cluster.cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
        gone(node_cluster.cluster, gated)


def test_dranet_moves_an_interface_into_the_pod(node_cluster, translated, gated):
    name = f"db{os.getpid() % 100000}"
    subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"], check=True, timeout=20)
    try:
        options = (
            f"--bind-address=127.0.0.1:{free_port()}",
            f"--hostname-override={node_cluster.name}",
            f"--db-path={node_cluster.root}/dranet.db",
            "--cloud-provider-hint=NONE",
            "--profile-provider=none",
            f'--filter=attributes["{NET}/ifName"].StringValue == "{name}"',
        )
        class_ = fleet.device_class(NET, f"device.driver == '{NET}'")
        with running(node_cluster, NET, "dranet", class_, *options) as slices:
            assert published([{"kind": "ResourceSlice"} | one for one in slices()]) == []
            asked = pod(
                "p", gated, container(command=SAY, **limits(**{"old.example.com/nic": 1})), node=node_cluster.name
            )
            said = runs(node_cluster, gated, known(node_cluster.cluster, asked))
            assert f" {name}@" in said
            node_cluster.cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
            gone(node_cluster.cluster, gated)
    finally:
        subprocess.run(["ip", "link", "delete", name], check=False, timeout=20)


def test_the_generic_device_plugin_gives_its_devices_behind_our_adapter(node_cluster, gated):
    resource = "squat.ai/zero"
    adapted = Adapted(node_cluster)
    command = [PROGRAM, "driver", "--classes", resource]
    class_ = yaml.safe_load(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    node_cluster.cluster.create(class_)
    adapted.start()
    spec = {"name": "zero", "groups": [{"count": 2, "paths": [{"path": "/dev/zero", "mountPath": "/dev/given"}]}]}
    arguments = [
        PROGRAMS / "generic-device-plugin",
        f"--device={json.dumps(spec)}",
        f"--listen=127.0.0.1:{free_port()}",
    ]
    plugin = adapted.plug(*arguments)
    try:
        node_cluster.cluster.until("the plugin's devices are published", lambda: len(adapted.healthy()) == 2, 60)
        see = "ls -l /dev/given; echo spoken=yes; sleep 600"
        asked = pod("p", gated, container(command=see, **limits(**{resource: 1})), node=node_cluster.name)
        assert "/dev/given" in runs(node_cluster, gated, asked)
        node_cluster.cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
        gone(node_cluster.cluster, gated)
    finally:
        plugin.stop()
        adapted.take_away()
        node_cluster.cluster.remove(class_)


def gone(cluster, namespace):
    cluster.until("pods and claims are gone", lambda: not any(
        cluster.get(f"{base}/namespaces/{namespace}/{kind}")["items"]
        for base, kind in (("/api/v1", "pods"), ("/apis/resource.k8s.io/v1", "resourceclaims"))
    ), 60)  # fmt: skip
