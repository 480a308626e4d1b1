"""An installation on a real node: the shipped manifests are applied unchanged and run as pods.

Nothing runs beside the cluster: pods reach the API server and Services by address and name, and the API server reaches the webhook.
"""

import os
import sys
from pathlib import Path

from cluster.manifests import dump, parse
from e2e.actors import fleet
from e2e.actors.webhook import SYSTEM, known
from e2e.actors.workloads import container, limits, pod
from e2e.build import program
from e2e.ground import product

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("drawbridge")
NODE_NAMESPACES = ("drawbridge-driver", "drawbridge-adapter", f"{SYSTEM}-nodes")
WORKLOADS = ("Deployment", "DaemonSet")
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/drawbridge-allocator"
PRINT_DEVICES = "env; ls /dev/card >/dev/null && echo card=yes; echo spoken=yes; sleep 600"
IMAGES = {
    "drawbridge.invalid/name-an-image": product.NAME,
    "drawbridge-scheduler.invalid/name-an-image": product.SCHEDULER,
}


def objects(text):
    return [document.object for document in parse(text)]


def printed_manifests(cluster, configuration, **values):
    """Return what `drawbridge manifests` prints for a configuration and values."""
    config = cluster.write_json("configuration.json", configuration)
    file = cluster.write_json("values.json", {"image": product.NAME, "webhooks": {"optIn": True}, **values})
    return objects(product.run([PROGRAM, "manifests", "--config", str(config), "--values", str(file)]))


def kustomized(cluster, **fields):
    """Return what kustomize builds of folders of `manifests`."""
    folder = cluster.run.data / f"kustomize-{len(list(cluster.run.data.glob('kustomize-*')))}"
    folder.mkdir()
    images = []
    for name, image in IMAGES.items():
        repository, _, tag = image.rpartition(":")
        images.append({"name": name, "newName": repository, "newTag": tag})
    for key, folders in fields.items():
        fields[key] = [os.path.relpath(ROOT / "manifests" / name, folder) for name in folders]
    (folder / "kustomization.yaml").write_text(dump([fields | {"images": images}]))
    return objects(cluster.kubectl("kustomize", str(folder)).stdout)


class Installation:
    """All objects that were applied to a cluster of one real node."""

    def __init__(self, node):
        self.node = node
        self.cluster = node.cluster

    def apply(self, items):
        """Apply objects twice: objects of our kinds are accepted once the CRDs exist. Changes of earlier tests are reverted."""
        for _ in range(2):
            self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=dump(items))

    def wait(self, items):
        """Wait until all workloads among these objects are available and no old pod of theirs is left."""
        for item in items:
            if item["kind"] in WORKLOADS:
                name = item["metadata"]["name"]
                self.cluster.until(
                    f"{name} is available", lambda item=item: self.is_available(item), 120, self.containers
                )

    def is_available(self, item):
        deployment = self.cluster.read(item)
        status = deployment["status"]
        if status.get("observedGeneration") != deployment["metadata"]["generation"]:
            return False
        if item["kind"] == "DaemonSet":
            return status.get("numberReady", 0) == status.get("updatedNumberScheduled", 0) == 1
        counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")]
        return counts == [item["spec"]["replicas"]] * 3 and not status.get("terminatingReplicas")

    def pods(self, namespace=SYSTEM, component=""):
        """The pods of the installation, or of one component."""
        query = {"labelSelector": f"app.kubernetes.io/component={component}"} if component else {}
        return self.cluster.get(f"/api/v1/namespaces/{namespace}/pods", **query)["items"]

    def addresses(self, service):
        """The addresses of the ready pods behind a Service of ours."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{SYSTEM}/endpointslices"
        slices = self.cluster.get(path, labelSelector=f"kubernetes.io/service-name={service}")["items"]
        endpoints = [endpoint for slice_ in slices for endpoint in slice_["endpoints"] or ()]
        return [endpoint["addresses"][0] for endpoint in endpoints if endpoint["conditions"]["ready"]]

    def containers(self):
        """Return which containers run in the pods of the installation, and how often each was started."""
        return {
            f"{pod['metadata']['name']}/{status['name']}": (status["ready"], status["restartCount"])
            for name in (SYSTEM, *NODE_NAMESPACES)
            for pod in self.pods(name)
            for status in pod["status"].get("containerStatuses", ())
        }

    def restarts(self, *components):
        """Return how often the containers of some components were restarted, by name."""
        pods = [pod for component in components for pod in self.pods(component=component)]
        return {status["name"]: status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]}

    def leader(self):
        """Return the pod that holds the allocator's lease; "" if none does."""
        return self.cluster.get(LEASE)["spec"].get("holderIdentity", "")

    def wait_for_leader(self):
        """Wait until a pod holds the lease, and return it."""
        return self.cluster.until("a pod leads", self.leader, 60)

    def kill(self, name, container):
        """Kill a container with SIGKILL; the kubelet starts it again."""
        [status] = [
            status
            for item in self.pods()
            if item["metadata"]["name"] == name
            for status in item["status"]["containerStatuses"]
            if status["name"] == container
        ]
        identity = status["containerID"].removeprefix("containerd://")
        self.node.box.run(program("ctr"), "--namespace=k8s.io", "tasks", "kill", "-s", "SIGKILL", identity)

    def run_gpu_pod(self, tenants, name, **spec):
        """Create an unmodified pod with a GPU, check which device its container got, and delete it. Return the pod as it ran."""
        cluster = self.cluster
        container_ = container(command=PRINT_DEVICES, **limits(**{"nvidia.com/gpu": 1}))
        cluster.create(pod(name, tenants, container_, **spec))
        path = f"/api/v1/namespaces/{tenants}/pods/{name}"
        environment = self.node.environment(tenants, name)
        assert environment["NVIDIA_VISIBLE_DEVICES"] in ("GPU-0", "GPU-1")
        assert environment["card"] == "yes"
        pod_ = cluster.get(path)
        cluster.until(
            "an event of the pod's scheduler says that the pod is scheduled",
            lambda: self.schedulers_of(tenants, name) == {pod_["spec"]["schedulerName"]},
            30,
        )
        claims = f"/apis/resource.k8s.io/v1/namespaces/{tenants}/resourceclaims"
        cluster.until(
            "the driver reports each device of the claim as ready",
            lambda: all(map(is_prepared, cluster.get(claims)["items"])),
            30,
        )
        cluster.delete(path)
        cluster.until("the pod's claim is deleted", lambda: not cluster.get(claims)["items"], 60)
        return pod_

    def schedulers_of(self, namespace, name):
        """The scheduler whose event says that a pod was scheduled."""
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        events = [event for event in self.cluster.get(path)["items"] if event["regarding"].get("name") == name]
        return {event["reportingController"] for event in events if event["reason"] == "Scheduled"}


def is_prepared(claim):
    """Return whether the driver has reported every device of a claim as ready."""
    status = claim["status"]
    types = [condition["type"] for device in status.get("devices", ()) for condition in device.get("conditions", ())]
    return types == ["Ready"] * len(status["allocation"]["devices"]["results"])


def until_pods_are_translated(cluster, tenants, **spec):
    """Wait until the webhook translates pods of a namespace."""
    item = pod("dry", tenants, container(**limits(**{"nvidia.com/gpu": 1})), **spec)
    known(cluster, item)


INVENTORY = {
    "apiVersion": "drawbridge.dev/v1alpha1",
    "kind": "DeviceInventory",
    "driver": fleet.NVIDIA,
    "visibleDevices": "NVIDIA_VISIBLE_DEVICES",
    "gpus": [
        {
            "name": f"gpu-{number}",
            "uuid": f"GPU-{number}",
            "memory": "40Gi",
            "product": fleet.A100,
            "place": {"deviceNodes": ["/dev/zero:/dev/card"]},
        }
        for number in range(2)
    ],
}
