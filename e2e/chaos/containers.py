"""What containers of the real node see of their hardware, and what is wrong with it.

A container prints its variables and the numbers of its device files. etcd's history has which containers ran when, which devices their
claims named, and which hardware the driver had published under these names.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from e2e.chaos.judge import Device, Fault, Object, Pod, Verdict, pod_of
from e2e.chaos.record import Change

PREFIX = "DRAWBRIDGE_DEVICE_"
VISIBLE = "CHAOS_VISIBLE"  # the variable with the UUIDs of all devices; a pod has `all` unless its driver sets it
SPOKEN = "spoken=yes"
SHOW = f"env; stat -c file=%t:%T /dev/card-* 2>/dev/null; echo {SPOKEN}; exec sleep 600"

TWO_CONTAINERS = "hardware in two running containers"
BLIND = "running without its hardware"
OTHER_HARDWARE = "running with other hardware than its claim"


class Sight(NamedTuple):
    """The hardware that one container sees."""

    values: dict[str, str]  # UUIDs, for partitions with profile and start, by the name in the variable
    memory: dict[str, int]  # of shares, by the same name
    visible: frozenset[str]
    files: frozenset[str]  # major:minor, in hexadecimal


Seen = Mapping[tuple[str, int], Sight]  # by the pod's uid and the number of restarts


def read_sight(text: str) -> Sight:
    """Read what a container has printed."""
    pairs = [line.partition("=")[::2] for line in text.splitlines()]
    named = {key.removeprefix(PREFIX): value for key, value in pairs if key.startswith(PREFIX)}
    return Sight(
        {name: value for name, value in named.items() if not name.endswith(("_MEMORY", "_CORES"))},
        {name.removesuffix("_MEMORY"): int(value) for name, value in named.items() if name.endswith("_MEMORY")},
        frozenset(",".join(value for key, value in pairs if key == VISIBLE).split(",")),
        frozenset(value for key, value in pairs if key == "file"),
    )


def judge_containers(
    record: Iterable[Change], seen: Seen, driver: str, files: Mapping[str, str], memory: int
) -> Verdict:
    """Return the faults of the containers of a driver's devices. `files` has the number of each UUID's file, `memory` that of one GPU."""
    state = Containers(seen, driver, files, memory)
    for change in record:
        state.apply(change)
    return Verdict(tuple(state.faults), state.counts)


class Containers:
    """The running containers at one revision, and the faults so far."""

    def __init__(self, seen: Seen, driver: str, files: Mapping[str, str], memory: int) -> None:
        self.seen, self.driver, self.files, self.memory = seen, driver, files, memory
        self.revision = 0
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.published: defaultdict[Device, list[str]] = defaultdict(list)  # the UUIDs of a name, in order
        self.claims: dict[str, dict[Device, int]] = {}  # by device: from where on its UUIDs count
        self.running: dict[str, tuple[str, Sight]] = {}  # by uid: the pod's key
        self.first: dict[str, Sight] = {}  # of a pod's first container, by uid
        self.judged: set[tuple[str, int]] = set()
        self.reported: set[tuple[str, ...]] = set()

    def apply(self, change: Change) -> None:
        self.revision = change.revision
        match change.kind:
            case "ResourceSlice":
                self.publish(change.object)
            case "ResourceClaim":
                self.allocate(change.key, change.object)
            case "Pod":
                self.look(change.key, change.object)

    def publish(self, slice_: Object | None) -> None:
        spec = (slice_ or {}).get("spec", {})
        if spec.get("driver") != self.driver:
            return
        for device in spec.get("devices", ()):
            uuids = self.published[self.driver, spec["pool"]["name"], device["name"]]
            uuid = device["attributes"]["uuid"]["string"]
            if uuids[-1:] != [uuid]:
                uuids.append(uuid)

    def allocate(self, key: str, claim: Object | None) -> None:
        """Record a claim's devices. The allocator may have known only the last but one UUID of a name."""
        results = (claim or {}).get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        devices = [(result["driver"], result["pool"], result["device"]) for result in results]
        old = self.claims.get(key, {})
        if list(old) != devices:
            self.claims[key] = {device: max(0, len(self.published[device]) - 2) for device in devices}

    def look(self, key: str, item: Object | None) -> None:
        """Judge the container of a pod, if it runs and its pod is not being deleted."""
        for uid in [uid for uid, (other, _) in self.running.items() if other == key]:
            del self.running[uid]
        if item is None or "deletionTimestamp" in item["metadata"]:
            return
        pod = pod_of(key, item)
        devices = {device: at for name in pod.claims for device, at in self.claims.get(name, {}).items()}
        for status in item.get("status", {}).get("containerStatuses", ()):
            if "running" not in status["state"] or not any(device[0] == self.driver for device in devices):
                continue
            container = pod.uid, status["restartCount"]
            sight = self.seen.get(container)
            if container not in self.judged:
                self.judged.add(container)
                self.counts["containers" if sight else "containers that were not read"] += 1
                if sight:
                    self.judge_sight(pod, sight, devices)
            if sight:
                self.running[pod.uid] = key, sight
                self.judge_others(sight)

    def judge_sight(self, pod: Pod, sight: Sight, devices: Mapping[Device, int]) -> None:
        """Compare a container with its claims, and with its predecessor in the pod."""
        details = f"pod {pod.key} with {', '.join(device for _, _, device in devices)} sees {sight}"
        expected = {re.sub(r"[^A-Z0-9]+", "_", device[2].upper()): device for device in devices}
        uuids = {value.partition("/")[0] for value in sight.values.values()}
        if not sight.values or not all(sight.values.values()) or not sight.files or "all" in sight.visible:
            self.add_fault(BLIND, details)
        elif sight.values.keys() != expected.keys() or any(
            sight.values[name] not in self.published[device][devices[device] :] for name, device in expected.items()
        ):
            self.add_fault(OTHER_HARDWARE, details)
        elif sight.files != {self.files[uuid] for uuid in uuids} or sight.visible != set(sight.values.values()):
            self.add_fault(OTHER_HARDWARE, f"{details}: these are not the same device")
        elif sight.values != self.first.setdefault(pod.uid, sight).values:
            self.add_fault(OTHER_HARDWARE, f"{details}, and saw {self.first[pod.uid]} before")

    def judge_others(self, sight: Sight) -> None:
        """Find hardware of a container that other running containers have, too."""
        for name, value in sight.values.items():
            uuid, _, part = value.partition("/")
            holders = [
                (key, other_value.partition("/")[2], other.memory.get(other_name))
                for key, other in self.running.values()
                for other_name, other_value in other.values.items()
                if other_value.partition("/")[0] == uuid
            ]
            if name in sight.memory and all(memory is not None for _, _, memory in holders):
                too_much = sum(memory or 0 for _, _, memory in holders) > self.memory
            else:
                holders = [holder for holder in holders if not part or holder[1] in ("", part)]
                too_much = len(holders) > 1
            keys = tuple(sorted(key for key, _, _ in holders))
            if too_much and keys not in self.reported:
                self.reported.add(keys)
                self.add_fault(TWO_CONTAINERS, f"{value} in pods {', '.join(keys)}")

    def add_fault(self, kind: str, details: str) -> None:
        self.faults.append(Fault(self.revision, kind, details))
