"""The manifests as they are, run as pods from images: gate, controller, authority, our scheduler with its allocator, the reference driver,
the adapter and the audit agent.

Nothing runs beside the cluster. What differs from an installation elsewhere is only the way to the API server, which listens on
loopback here and has no Service address: pods are told another, and the server finds the gate by its endpoints.
"""

import ipaddress
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cluster.manifests import dump, parse
from e2e.actors import fleet
from e2e.actors.gate import SYSTEM
from e2e.actors.workloads import container, limits, pod
from e2e.build import program
from e2e.driver.test_adapter import HOLD, RESOURCE
from e2e.driver.test_migrate import daemon_set
from e2e.ground import product
from e2e.ground.controlplane import ControlPlane
from e2e.ground.node import Node

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.time_limit(480, "images are made, and a dozen processes start")]  # fmt: skip

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("drawbridge")
ON_NODES = ("drawbridge-driver", "drawbridge-adapter", f"{SYSTEM}-nodes")
SWITCHES = {"drawbridge.dev/driver": "reference", "drawbridge.dev/adapter": "on", "drawbridge.dev/node-agent": "on"}
SERVER = "kubernetes.default.svc"
TWICE = ("webhook", "controller", "authority", "allocator", "scheduler")  # each has two replicas
ONCE = ("driver", "adapter", "node-agent")  # on each node
WORKLOADS = ("Deployment", "DaemonSet")
GPU = {"memory": "40Gi", "product": fleet.A100, "place": {"deviceNodes": ["/dev/zero:/dev/card"]}}
INVENTORY = {
    "apiVersion": "drawbridge.dev/v1alpha1",
    "kind": "DeviceInventory",
    "driver": fleet.NVIDIA,
    "visibleDevices": "NVIDIA_VISIBLE_DEVICES",
    "gpus": [GPU | {"name": "gpu-0", "uuid": "GPU-0"}, GPU | {"name": "gpu-1", "uuid": "GPU-1"}],
}
CONFIGURATION = {
    "apiVersion": "drawbridge.dev/v1alpha1",
    "kind": "DrawbridgeConfiguration",
    "mode": "observe",
    "bridge": {"schedulerName": "drawbridge"},
}
SPEAK = "env; ls /dev/card >/dev/null && echo card=yes; echo spoken=yes; sleep 600"


def objects(text):
    return [document.object for document in parse(text)]


def by_the_command(cluster):
    """What `drawbridge manifests` prints, with our scheduler, which the configuration names."""
    said = cluster.write_json("configuration.json", CONFIGURATION)
    options = [
        "--config",
        str(said),
        "--image",
        product.NAME,
        "--bridge",
        "--plugin",
        "--scheduler-image",
        product.SCHEDULER,
        "--opt-in",
        "--node-agent",
    ]
    return objects(product.run([PROGRAM, "manifests", *options]))


def on_nodes(cluster):
    """The components of the reference driver and of the adapter as kustomize puts them together, and the inventory that the first one reads."""
    folder = cluster.run.data / "nodes"
    folder.mkdir()
    places = [os.path.relpath(ROOT / "manifests" / name, folder) for name in ("driver", "adapter")]
    image, _, tag = product.NAME.rpartition(":")
    named = {"name": "drawbridge.invalid/name-an-image", "newName": image, "newTag": tag}
    (folder / "kustomization.yaml").write_text(dump([{"components": places, "images": [named]}]))
    inventory = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "drawbridge-inventory", "namespace": "drawbridge-driver"},
        "data": {"inventory.yaml": dump([INVENTORY])},
    }
    return [*objects(cluster.kubectl("kustomize", str(folder)).stdout), inventory]


def of_a_vendor():
    """A device plugin that nobody of us wrote, behind the adapter, and the class that stands for its resource."""
    plugin = daemon_set("kube-system", "vendor-plugin", "/var/lib/kubelet/adapted-plugins")
    return [plugin, *objects(product.run([PROGRAM, "driver", "--classes", RESOURCE]))]


def led(item, cluster, gateway):
    """A workload whose pods find the API server here."""
    port = str(urlsplit(cluster.url).port)
    if item["kind"] in WORKLOADS:
        spec = item["spec"]["template"]["spec"]
        spec["hostAliases"] = [{"ip": gateway, "hostnames": [SERVER]}]
        for one in spec["containers"]:
            where = {"KUBERNETES_SERVICE_HOST": SERVER, "KUBERNETES_SERVICE_PORT": port}
            one["env"] = [*one.get("env", ()), *({"name": key, "value": value} for key, value in where.items())]
    return item


def stands(cluster, item):
    """Whether all replicas of a workload are ready."""
    found = cluster.read(item)["status"]
    if item["kind"] == "DaemonSet":
        return found.get("numberReady", 0) == 1
    return found.get("readyReplicas", 0) == item["spec"]["replicas"]


def containers(cluster):
    """Who runs in the pods of the installation, and how often each was started."""
    pods = [one for name in (SYSTEM, *ON_NODES) for one in cluster.get(f"/api/v1/namespaces/{name}/pods")["items"]]
    return {
        f"{one['metadata']['name']}/{status['name']}": (status["ready"], status["restartCount"])
        for one in pods
        for status in one["status"].get("containerStatuses", ())
    }


@pytest.fixture(scope="module")
def node():
    with ControlPlane(name="pods", api_args=["--enable-aggregator-routing=true"]) as cluster:
        yield Node(cluster).start()


@pytest.fixture(scope="module")
def gateway(node):
    """An address of the pods' network, where they find the API server."""
    cluster = node.cluster
    address = str(next(ipaddress.ip_network(node.subnet).hosts()))
    where = urlsplit(cluster.url)
    cluster.spawn("gateway", [sys.executable, "-m", "e2e.ground.gateway", address, where.hostname, str(where.port)])
    return address


@pytest.fixture(scope="module")
def installation(node, gateway):
    cluster = node.cluster
    node.import_images(product.archive(cluster.run.data, program("drawbridge-scheduler")))
    cluster.patch(
        f"/api/v1/nodes/{node.name}",
        {"metadata": {"labels": SWITCHES}},
    )
    told = [*by_the_command(cluster), *on_nodes(cluster), *of_a_vendor(), *fleet.classes(extended=False)]
    made = [led(item, cluster, gateway) for item in told]
    for _ in range(2):  # kinds, and then what is of these kinds: as everybody does it who has no Helm
        cluster.kubectl("apply", "--server-side", "-f", "-", input=dump(made))
    for item in made:
        if item["kind"] in WORKLOADS:
            try:
                cluster.until(f"{item['metadata']['name']} stands", lambda one=item: stands(cluster, one), 120)
            except AssertionError as error:
                raise AssertionError(f"{error}: {containers(cluster)}") from None
    return made


@pytest.fixture(scope="module")
def tenants(node, installation):
    name = node.cluster.namespace("tenants")
    node.cluster.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {"drawbridge.dev/mode": "enforce"}}})
    return name


@pytest.mark.parametrize("scheduler", ["default-scheduler", "drawbridge"])
def test_an_unmodified_pod_gets_its_gpu_from_what_was_installed(node, tenants, scheduler):
    cluster = node.cluster
    item = pod(f"by-{scheduler}", tenants, container(command=SPEAK, **limits(**{"nvidia.com/gpu": 1})), schedulerName=scheduler)  # fmt: skip
    cluster.until("the gate translates", lambda: "drawbridge.dev/original" in cluster.create(item, dryRun="All")[0]["metadata"].get("annotations", {}), 60)  # fmt: skip
    cluster.create(item)
    name = item["metadata"]["name"]
    cluster.until("the container has spoken", lambda: "spoken" in node.environment(tenants, name, "main"), 60)
    environment = node.environment(tenants, name, "main")
    assert environment["NVIDIA_VISIBLE_DEVICES"] in ("GPU-0", "GPU-1")
    assert environment["card"] == "yes"
    cluster.delete(f"/api/v1/namespaces/{tenants}/pods/{name}", gracePeriodSeconds=0)
    cluster.until("its claim is gone", lambda: not cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{tenants}/resourceclaims")["items"], 60)  # fmt: skip


def test_a_device_plugin_goes_on_behind_the_adapter(node, tenants):
    """Kubernetes' sample plugin, as it is; the pod asks in the old way and nobody translates it."""
    item = pod("adapted", tenants, container(command=HOLD, **limits(**{RESOURCE: 1})))
    node.cluster.create(item)
    node.cluster.wait_phase(tenants, "adapted", "Running")
    node.cluster.delete(f"/api/v1/namespaces/{tenants}/pods/adapted", gracePeriodSeconds=0)


def test_nothing_has_had_to_be_started_twice(node, tenants):
    found = containers(node.cluster)
    assert len(found) == 2 * len(TWICE) + len(ONCE)
    assert {name: restarts for name, (_, restarts) in found.items() if restarts} == {}
