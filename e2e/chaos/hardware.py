"""The real node of a run: our driver with an inventory that changes, and what the containers have printed about their hardware."""

import sys
import threading
from contextlib import suppress
from typing import Any

from e2e.actors import fleet
from e2e.actors.client import Object
from e2e.actors.workloads import container
from e2e.chaos.containers import SHOW, SPOKEN, VISIBLE, Sight, read_sight
from e2e.driver.installed import HASTY, Driver
from e2e.ground.controlplane import ControlPlane
from e2e.ground.node import Node

DRIVER = "chaos.example.com"
SHARE = {"requests": {"memory": "16Gi", "cores": "30"}}  # two of them fit on a device
# The ways in which the driver offers a GPU, each with a class; and a request for one of them.
WAYS = ("gpu", "shared", "mig")
ANY = {
    "name": "gpu",
    "firstAvailable": [
        {"name": way, "deviceClassName": f"chaos-own-{way}", **({"capacity": SHARE} if way == "shared" else {})}
        for way in WAYS
    ],
}
MOVING, OTHER_NODE = "chaos-moving", "fake-0"  # the class of whole GPUs, here and on a fake node
MEMORY = 40 << 30
# The GPUs: device files that every container may have, and their numbers.
FILES = {"GPU-a": ("/dev/zero", "1:5"), "GPU-b": ("/dev/full", "1:7"), "GPU-c": ("/dev/random", "1:8"), "GPU-d": ("/dev/urandom", "1:9")}  # fmt: skip
LAYOUT = {
    "name": "halves",
    "slices": 2,
    "compute": 2,
    "partitions": [{"profile": "half", "memory": "20Gi", "slices": 1, "compute": 1, "at": [0, 1]}],
}
STEPS = {"memory": {"minimum": "1Gi", "step": "1Gi"}, "cores": {"minimum": "1", "step": "1"}}
LOOK_SECONDS = 0.2


def gpus(*uuids: str, name: str = "gpu", **ways: Any) -> Object:
    """Make the part of an inventory that lists GPUs: `whole` unless it is false, in partitions and in shares where it is given."""
    return {
        "visibleDevices": VISIBLE,
        "layouts": [LAYOUT],
        "gpus": [
            {"name": f"{name}-{index}", "uuid": uuid, "memory": "40Gi", "place": {"deviceNodes": [f"{FILES[uuid][0]}:/dev/card-{uuid.lower()}"]}, **ways}
            for index, uuid in enumerate(uuids)
        ],
    }  # fmt: skip


ALL_WAYS = {"layout": "halves", "sharing": STEPS}
INSTALLED = "as installed"
INVENTORIES = {
    INSTALLED: gpus(*FILES, **ALL_WAYS),
    "renamed": gpus(*FILES, name="card", **ALL_WAYS),
    "swapped": gpus(*reversed(FILES), **ALL_WAYS),
    "partitioned": gpus(*FILES, whole=False, layout="halves"),
    "shared": gpus(*FILES, whole=False, sharing=STEPS),
    "halved": gpus(*list(FILES)[:2], **ALL_WAYS),
    "empty": gpus(),
}


def node_pod(entry: Object) -> Object:
    """Return the spec of a pod whose container prints its hardware, and is started again when it ends."""
    fields = {"resources": {"claims": [{"name": entry["name"]}]}, "env": [{"name": VISIBLE, "value": "all"}]}
    return {"containers": [container(command=SHOW, **fields)], "resourceClaims": [entry], "restartPolicy": "Always"}


class Hardware:
    """A node with the driver; `seen` has what its containers have printed."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.node = Node(cluster).start()
        self.driver = Driver(self.node, DRIVER, INVENTORIES[INSTALLED])
        self.seen: dict[tuple[str, int], Sight] = {}
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        types = {f"chaos-own-{way}": f"== '{way}'" for way in WAYS} | {MOVING: "in ['gpu', 'away']"}
        for name, words in types.items():
            expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type {words}"
            cluster.create(fleet.device_class(name, expression))
        away = [fleet.device("away", {"type": "away", "uuid": "GPU-away"})]
        cluster.create(*fleet.slices(DRIVER, OTHER_NODE, away, by_name=True))
        self.offer(INSTALLED)
        self.thread.start()

    def offer(self, inventory: str, *, hard: bool = False) -> None:
        """Replace the driver's inventory, and start the driver again."""
        if self.driver.running is not None:
            self.driver.running.stop(hard=hard)
        self.driver.offer(INVENTORIES[inventory])
        self.driver.start(sys.executable, "-c", HASTY)

    def watch(self) -> None:
        """Read the logs of all containers: the kubelet deletes them with the pod."""
        while not self.stopped.wait(LOOK_SECONDS):
            for log in self.node.pod_logs.glob("*/main/*.log"):
                with suppress(OSError):  # it is deleted
                    text = "\n".join(line.split(" ", 3)[-1] for line in log.read_text().splitlines())
                    if text.endswith(SPOKEN):
                        self.seen[log.parts[-3].rpartition("_")[2], int(log.stem)] = read_sight(text)

    def close(self) -> None:
        self.stopped.set()
        self.thread.join()
