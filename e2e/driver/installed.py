"""Our driver on a real node, and pods that print what they see of its devices."""

import contextlib
import itertools
import json
import sys
from pathlib import Path

from cluster.manifests import dump
from e2e.actors import fleet
from e2e.actors.workloads import container, pod
from e2e.ground.node import KUBELET

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("drawbridge")
GPU = {"memory": "40Gi", "product": fleet.A100, "place": {"deviceNodes": ["/dev/zero:/dev/card"]}}
STARTS = itertools.count(1)
# A driver that soon forgets claims that were deleted, or given to another node.
HASTY = """
from cli.main import main
from node.service import driver, preparing
driver.SETTLE_INTERVAL, preparing.FORGET_AFTER = 1.0, 5.0
main()
"""


class Driver:
    """Our driver on a node, which may be killed and started again."""

    def __init__(self, node, driver, parts, kubeconfig=None):
        self.node, self.driver = node, driver
        self.cluster = node.cluster
        self.file = node.root / f"{driver}.yaml"
        self.offer(parts)
        self.kubeconfig = kubeconfig or self.cluster.kubeconfig
        self.running = None

    def offer(self, parts):
        """Change the devices that drivers offer; drivers that run already do not read the change."""
        self.is_empty = parts.get("gpus") == []
        head = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceInventory", "driver": self.driver}
        self.file.write_text(dump([head | parts]))

    def start(self, *program):
        """Start one more driver, and wait until the kubelet and the API server know it."""
        process = self.node.spawn(
            f"drawbridge-{self.driver}-{next(STARTS)}",  # each has its own log
            [
                *(program or [PROGRAM]), "driver", "--inventory", self.file, "--node-name", self.node.name,
                "--kubelet-dir", KUBELET, "--cdi-dir", "/run/cdi", "--kubeconfig", self.kubeconfig,
            ],
            {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.running = process

        def registered():
            process.check()
            return "the kubelet has registered this driver" in process.log.read_text() and (
                self.slices() or self.is_empty
            )

        self.cluster.until(f"{self.driver} is registered", registered, 60)
        return process

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
def installed_driver(node, driver, parts, *program, kubeconfig=None):
    driver_ = Driver(node, driver, parts, kubeconfig)
    try:
        driver_.start(*program)
        yield driver_
    finally:
        if driver_.running is not None:
            driver_.running.stop()
        for item in driver_.slices():
            node.cluster.delete(f"/apis/resource.k8s.io/v1/resourceslices/{item['metadata']['name']}")


def device_variables(driver, namespace, name):
    """Return the variables of our driver in a container, once it has printed them; `card` is set if it sees a device file."""
    environment = driver.node.environment(namespace, name)
    return {key: value for key, value in environment.items() if key.startswith("DRAWBRIDGE_") or key == "card"}


PRINT_DEVICES = "env; ls /dev/card >/dev/null 2>&1 && echo card=yes; echo spoken=yes; sleep 600"


def claiming_pod(namespace, name, node, claims):
    """A pod that uses claims, prints its environment and the device file, and sleeps."""
    return pod(
        name,
        namespace,
        container(command=PRINT_DEVICES, resources={"claims": [{"name": claim["name"]} for claim in claims]}),
        node=node,
        resourceClaims=claims,
    )


def until_freed(driver, before):
    driver.cluster.until("the driver has prepared only the claims from before", lambda: driver.prepared() == before, 90)
    driver.cluster.until("only the CDI files of these claims are left", lambda: len(driver.files()) == len(before), 20)
