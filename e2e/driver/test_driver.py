"""Our own driver on a real node: from a pod to what its container sees, and through a node's bad days."""

import contextlib
import json
import sys
from pathlib import Path

import pytest

from cluster.manifests import dump
from e2e.actors import fleet
from e2e.actors.workloads import container, pod, request, template, using_template
from e2e.ground.node import KUBELET

pytestmark = [pytest.mark.real, pytest.mark.node]

DRIVER = "devices.example.com"
PROGRAM = Path(sys.executable).with_name("drawbridge")
GPU = {"memory": "40Gi", "product": fleet.A100, "place": {"deviceNodes": ["/dev/zero:/dev/card"]}}
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


class Installed:
    """Our driver on a node, which may be killed and started again."""

    def __init__(self, node, driver, parts):
        self.node, self.driver = node, driver
        self.cluster = node.cluster
        head = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceInventory", "driver": driver}
        self.file = node.root / f"{driver}.yaml"
        self.file.write_text(dump([head | parts]))
        self.running = None
        self.started = 0

    def start(self):
        """Start one more, and wait until the kubelet and the API server know it."""
        self.started += 1
        started = self.node.spawn(
            f"drawbridge-{self.driver}-{self.started}",
            [
                PROGRAM, "driver", "--inventory", self.file, "--node-name", self.node.name,
                "--kubelet-dir", KUBELET, "--cdi-dir", "/run/cdi", "--kubeconfig", self.cluster.kubeconfig,
            ],
        )  # fmt: skip
        self.running = started

        def registered():
            started.check()
            return "the kubelet has registered us" in started.log.read_text() and self.slices()

        self.cluster.until(f"{self.driver} is registered", registered, 60)
        return started

    def slices(self):
        fields = f"spec.driver={self.driver},spec.nodeName={self.node.name}"
        return self.cluster.get("/apis/resource.k8s.io/v1/resourceslices", fieldSelector=fields)["items"]

    def files(self):
        return list(self.node.outside("/run/cdi").glob(f"drawbridge_{self.driver}_*"))

    def prepared(self):
        """The uids in the checkpoint."""
        file = self.node.outside(f"{KUBELET}/plugins/{self.driver}/checkpoint")
        return set(json.loads(file.read_text().partition("\n")[2])["claims"]) if file.exists() else set()


@contextlib.contextmanager
def installed(node, driver, parts):
    one = Installed(node, driver, parts)
    try:
        one.start()
        yield one
    finally:
        if one.running is not None:
            one.running.stop()
        for item in one.slices():
            node.cluster.delete(f"/apis/resource.k8s.io/v1/resourceslices/{item['metadata']['name']}")


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
    with installed(node_cluster, DRIVER, PARTS) as one:
        yield one
    control_plane.remove(*classes)


def seen(driver, namespace, name):
    """The variables of ours in a container that has said all it had to say."""
    node = driver.node
    node.cluster.until("the container has spoken", lambda: "spoken" in node.environment(namespace, name, "main"), 60)
    environment = node.environment(namespace, name, "main")
    return {key: value for key, value in environment.items() if key.startswith("DRAWBRIDGE_") or key == "card"}


SPEAK = "env; ls /dev/card >/dev/null 2>&1 && echo card=yes; echo spoken=yes; sleep 600"


def user(namespace, name, node, claims):
    """A pod that uses claims by template and says what it sees."""
    return pod(
        name,
        namespace,
        container(command=SPEAK, resources={"claims": [{"name": one["name"]} for one in claims]}),
        node=node,
        resourceClaims=claims,
    )


def freed(driver, before):
    driver.cluster.until("what was prepared is freed", lambda: driver.prepared() == before, 90)
    driver.cluster.until("the files are gone", lambda: len(driver.files()) == len(before), 20)


def test_a_container_sees_its_device_and_nothing_else_and_gives_it_back(control_plane, driver, namespace, created):
    before = driver.prepared()
    share = request("r", "e2e-own-shared", capacity={"requests": {"memory": "10Gi", "cores": "30"}})
    created(
        template("whole", namespace, request("r", "e2e-own-gpu")),
        template("part", namespace, request("r", "e2e-own-mig")),
        template("share", namespace, share),
        user(namespace, "whole", driver.node.name, [using_template("whole")]),
        user(namespace, "part", driver.node.name, [using_template("part")]),
        user(namespace, "share", driver.node.name, [using_template("share")]),
        pod("plain", namespace, container(command=SPEAK), node=driver.node.name),
    )
    whole = seen(driver, namespace, "whole")
    assert whole in (
        {"DRAWBRIDGE_DEVICE_GPU_0": "GPU-0", "card": "yes"},
        {"DRAWBRIDGE_DEVICE_GPU_1": "GPU-1", "card": "yes"},
    )
    assert seen(driver, namespace, "part") == {"DRAWBRIDGE_DEVICE_GPU_3_1G_20GB_0": "GPU-3/1g.20gb/0", "card": "yes"}
    assert seen(driver, namespace, "share") == {
        "DRAWBRIDGE_DEVICE_GPU_2_SHARED": "GPU-2",
        "DRAWBRIDGE_DEVICE_GPU_2_SHARED_MEMORY": str(10 << 30),
        "DRAWBRIDGE_DEVICE_GPU_2_SHARED_CORES": "30",
        "card": "yes",
    }
    assert seen(driver, namespace, "plain") == {}
    assert len(driver.prepared()) == len(before) + 3
    [status] = control_plane.get(f"/api/v1/namespaces/{namespace}/pods/share")["status"]["resourceClaimStatuses"]
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{status['resourceClaimName']}"

    def told():
        held = control_plane.get(path)["status"]
        [result] = held["allocation"]["devices"]["results"]
        return [(one["shareID"], one["conditions"][0]["type"]) for one in held.get("devices", ())] == [
            (result["shareID"], "Ready")
        ]

    control_plane.until("the claim's status tells", told, 30)
    for name in ("whole", "part", "share", "plain"):
        control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)
    freed(driver, before)
