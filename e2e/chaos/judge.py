"""The judge finds invalid states in a record of slices, claims and pods.

The judge shares no code with drawbridge except the parser of quantities. It does not judge rules about incompatible devices, because
tests/allocator/reservations/test_model.py searches the model of the ledger for violations of these rules.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dra.quantity import Quantity
from e2e.chaos.record import Change

Object = dict[str, Any]
Device = tuple[str, str, str]  # driver, pool, name
FICKLE = "chaos.drawbridge.dev/fickle"  # label of pods that may be deleted before they are bound
BROKEN = "chaos.drawbridge.dev/broken"  # label of the members of a gang that were left long after one was evicted
FINAL = ("Succeeded", "Failed")

TWICE = "held twice"
STARTED_TWICE = "held twice by pods that are bound"
EXCEEDED = "capacity exceeded"
COUNTERS_EXCEEDED = "counters of a set exceeded"
INCOMPATIBLE = "in use without a common compatibility group"
WITHOUT_DEVICES = "bound without its devices"
ON_ANOTHER_NODE = "bound to a node without its devices"
TAKEN = "devices taken from a bound pod"
OVER_QUOTA = "quota exceeded"
DISMEMBERED = "only some members of a gang evicted"
LEAK = "left behind"
STUCK = "never bound"


class Fault(NamedTuple):
    """A fault and the revision at which it begins; 0 if it is about the end of the record."""

    revision: int
    kind: str
    details: str


class Verdict(NamedTuple):
    """The faults of a record, and counts of the events in it."""

    faults: tuple[Fault, ...]
    counts: Counter[str]

    def of(self, *kinds: str) -> list[Fault]:
        return [fault for fault in self.faults if fault.kind in kinds]


class Pod(NamedTuple):
    """The fields of a pod that the judge needs."""

    key: str
    uid: str
    node: str
    is_final: bool
    fickle: bool
    claims: tuple[str, ...]  # keys; "" for a claim that does not exist yet
    gang: str
    evicted: bool
    broken: bool

    @property
    def runs(self) -> bool:
        return bool(self.node) and not self.is_final


class Draw(NamedTuple):
    """The amounts that a device takes from one counter set while it is in use."""

    counters: dict[str, int]
    groups: frozenset[str]


class Claim(NamedTuple):
    """The fields of a claim that the judge needs."""

    key: str
    results: dict[Device, Object]
    pods: frozenset[str]  # uids


FREE = Claim("", {}, frozenset())


def judge(record: Iterable[Change], quota: Mapping[str, int] = MappingProxyType({})) -> Verdict:
    """Return the faults of a record, at whose end all pods must be deleted. `quota` has the most devices of a driver that claims may hold."""
    state = State(quota)
    for change in record:
        state.apply(change)
    state.close()
    return Verdict(tuple(state.faults), state.counts)


class State:
    """The state at one revision, and the faults so far."""

    def __init__(self, quota: Mapping[str, int]) -> None:
        self.quota = quota
        self.revision = 0
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.nodes: dict[tuple[str, str], str] = {}  # the node of a pool, if it has one
        self.capacity: dict[Device, dict[str, int]] = {}
        self.counters: dict[tuple[str, str, str], dict[str, int]] = {}  # driver, pool, counter set
        self.draws: dict[Device, dict[str, Draw]] = {}  # by counter set
        self.slices: dict[str, list[Device]] = {}  # by key
        self.claims: dict[str, Claim] = {}
        self.generated: set[tuple[str, str]] = set()  # uid of a pod, and its entry for which a claim was generated
        self.holders: defaultdict[Device, set[str]] = defaultdict(set)  # keys of claims
        self.pods: dict[str, Pod] = {}  # by key
        self.by_uid: dict[str, Pod] = {}
        self.evicted: set[str] = set()  # gangs with an evicted member

    def apply(self, change: Change) -> None:
        self.revision = change.revision
        match change.kind:
            case "ResourceSlice":
                self.publish(change.key, change.object)
            case "ResourceClaim":
                self.allocate(change.key, change.object)
            case "Pod":
                self.apply_pod(change.key, change.object)

    def add_fault(self, kind: str, details: str) -> None:
        self.faults.append(Fault(self.revision, kind, details))

    # Slices

    def publish(self, key: str, slice_: Object | None) -> None:
        """Record a slice. Claims keep devices that it no longer has, but these consume no counters, as in Kubernetes."""
        for device in self.slices.pop(key, ()):
            self.draws.pop(device, None)  # another slice may have had it too, while a pool was renewed
        if slice_ is None:
            return
        spec = slice_["spec"]
        pool = (spec["driver"], spec["pool"]["name"])
        self.slices[key] = [(*pool, device["name"]) for device in spec.get("devices", ())]
        self.nodes[pool] = spec.get("nodeName", "")
        for shared in spec.get("sharedCounters", ()):
            self.counters[*pool, shared["name"]] = amounts(shared["counters"])
        for device in spec.get("devices", ()):
            self.capacity[*pool, device["name"]] = amounts(device.get("capacity", {}))
            self.draws[*pool, device["name"]] = {
                consumption["counterSet"]: Draw(
                    amounts(consumption["counters"]), frozenset(consumption.get("compatibilityGroups", ()))
                )
                for consumption in device.get("consumesCounters", ())
            }

    # Claims

    def allocate(self, key: str, claim: Object | None) -> None:
        old = self.claims.get(key, FREE)
        new = claim_of(key, claim) if claim is not None else FREE
        self.count(old, new, claim)
        for device in old.results.keys() - new.results.keys():
            self.holders[device].discard(key)
        self.claims[key] = new
        if claim is None:
            del self.claims[key]
        for device in new.results.keys() - old.results.keys():
            self.holders[device].add(key)
            self.check_device(device)
            for name in self.draws.get(device, ()):
                self.check_counters(device[:2], name)
        self.check_quota(new)
        self.check_bound_users(old, new)

    def count(self, old: Claim, new: Claim, claim: Object | None) -> None:
        self.counts["claims"] += old is FREE and claim is not None
        entry = generated_for(claim) if old is FREE and claim is not None else None
        if entry is not None:
            if entry in self.generated:
                self.counts["second claims of an entry"] += 1
            self.generated.add(entry)
        self.counts["allocations"] += bool(new.results) and not old.results
        if not old.results or new.results:
            return
        waiting = [pod for uid in old.pods if (pod := self.by_uid.get(uid)) is not None and not pod.node]
        self.counts["allocations taken back"] += bool(waiting)

    def check_device(self, device: Device) -> None:
        """Check whether the holders of a device may share it."""
        holders = sorted(self.holders[device])
        if len(holders) < 2:
            return
        shares = [self.claims[key].results[device] for key in holders]
        details = f"{'/'.join(device)} by claims {', '.join(holders)}"
        if not all(share.get("shareID") for share in shares):
            self.add_fault(TWICE, details)
            self.check_bound_holders(device, details)
            return
        for capacity, available in self.capacity.get(device, {}).items():
            taken = sum(amounts(share.get("consumedCapacity", {})).get(capacity, 0) for share in shares)
            if taken > available:
                self.add_fault(EXCEEDED, f"{capacity} of {details}")

    def check_counters(self, pool: tuple[str, str], name: str) -> None:
        """Check whether the devices in use fit a counter set. A device counts once, however many claims share it."""
        draws_of_set = {
            device: draws[name] for device, draws in self.draws.items() if device[:2] == pool and name in draws
        }
        in_use = {device: draw for device, draw in draws_of_set.items() if self.holders[device]}
        claims = sorted({key for device in in_use for key in self.holders[device]})
        details = f"{'/'.join(pool)} {name} by claims {', '.join(claims)}"
        for counter, available in self.counters.get((*pool, name), {}).items():
            if sum(draw.counters.get(counter, 0) for draw in in_use.values()) > available:
                self.add_fault(COUNTERS_EXCEEDED, f"{counter} of {details}")
        groups = [draw.groups for draw in in_use.values()]
        if any(groups) and not frozenset.intersection(*groups):
            self.add_fault(INCOMPATIBLE, details)

    def check_quota(self, claim: Claim) -> None:
        for driver in {driver for driver, _, _ in claim.results} & self.quota.keys():
            held = sum(driver == device[0] for claim in self.claims.values() for device in claim.results)
            if held > self.quota[driver]:
                self.add_fault(
                    OVER_QUOTA, f"{held} of {self.quota[driver]} devices of {driver}, with claim {claim.key}"
                )

    def check_bound_holders(self, device: Device, details: str) -> None:
        started = [key for key in self.holders[device] if any(pod.runs for pod in self.users(self.claims[key]))]
        if len(started) > 1:
            self.add_fault(STARTED_TWICE, details)

    def check_bound_users(self, old: Claim, new: Claim) -> None:
        """Check whether a bound pod has lost its devices."""
        moved = bool(old.results) and old.results.keys() != new.results.keys()
        for pod in self.users(old):
            if pod.runs and (moved or pod.uid not in new.pods):
                self.add_fault(TAKEN, f"claim {old.key} of pod {pod.key} on {pod.node}")

    def users(self, claim: Claim) -> Iterator[Pod]:
        return (pod for uid in claim.pods if (pod := self.by_uid.get(uid)) is not None)

    # Pods

    def apply_pod(self, key: str, pod: Object | None) -> None:
        old = self.pods.pop(key, None)
        new = pod_of(key, pod) if pod is not None else None
        if old is not None and (new is None or new.uid != old.uid):
            self.remove(old)
            old = None
        if new is None:
            return
        self.counts["pods"] += old is None
        self.pods[key] = self.by_uid[new.uid] = new
        if old is not None and old.runs and old.claims != new.claims:
            self.counts["claims changed after the binding"] += 1
        if new.node and (old is None or not old.node):
            self.bind(new)
        if new.evicted and not (old is not None and old.evicted):
            self.counts["evicted"] += 1
            self.evicted.add(new.gang)
        if new.broken and not (old is not None and old.broken) and new.gang in self.evicted:
            self.add_fault(DISMEMBERED, f"pod {new.key} on {new.node} of gang {new.gang} was left")

    def remove(self, pod: Pod) -> None:
        del self.by_uid[pod.uid]
        if not pod.node and not pod.fickle:
            self.add_fault(STUCK, f"pod {pod.key}, which was deleted")

    def bind(self, pod: Pod) -> None:
        self.counts["bound"] += 1
        for key in pod.claims:
            claim = self.claims.get(key, FREE)
            if not claim.results or pod.uid not in claim.pods:
                self.add_fault(
                    WITHOUT_DEVICES, f"pod {pod.key} on {pod.node}: claim {key or 'that was not created yet'}"
                )
            for device in claim.results:
                if self.nodes.get(device[:2], pod.node) not in ("", pod.node):
                    self.add_fault(ON_ANOTHER_NODE, f"pod {pod.key} on {pod.node}: {'/'.join(device)}")
                if len(self.holders[device]) > 1:
                    self.check_device(device)

    # The end

    def close(self) -> None:
        self.revision = 0
        for pod in self.pods.values():
            if not pod.node:
                self.add_fault(STUCK, f"pod {pod.key}, which exists at the end")
            self.add_fault(LEAK, f"pod {pod.key}")
        for claim in self.claims.values():
            if claim.results or claim.pods:
                self.add_fault(LEAK, f"claim {claim.key}: {', '.join(map('/'.join, claim.results))}")


def claim_of(key: str, claim: Object) -> Claim:
    status = claim.get("status", {})
    results = status.get("allocation", {}).get("devices", {}).get("results", ())
    by_device = {
        (result["driver"], result["pool"], result["device"]): result
        for result in results
        if not result.get("adminAccess")
    }
    return Claim(key, by_device, frozenset(consumer["uid"] for consumer in status.get("reservedFor", ())))


def generated_for(claim: Object) -> tuple[str, str] | None:
    """Return the uid of the pod, and the entry of the pod, for which a claim was generated."""
    meta = claim["metadata"]
    entry = meta.get("annotations", {}).get("resource.kubernetes.io/pod-claim-name")
    owners = [owner["uid"] for owner in meta.get("ownerReferences", ())]
    return (owners[0], entry) if entry and owners else None


def pod_of(key: str, pod: Object) -> Pod:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    generated = {status["name"]: status.get("resourceClaimName") for status in status.get("resourceClaimStatuses", ())}
    names = [entry.get("resourceClaimName") or generated.get(entry["name"]) for entry in spec.get("resourceClaims", ())]
    limits = [name for container in spec["containers"] for name in container.get("resources", {}).get("limits", ())]
    if any("/" in name for name in limits):  # a device by name; no device plugin serves these pods
        names.append(status.get("extendedResourceClaimStatus", {}).get("resourceClaimName"))
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    return Pod(
        key,
        meta["uid"],
        spec.get("nodeName", ""),
        status.get("phase") in FINAL,
        FICKLE in meta.get("labels", {}),
        tuple(f"{meta['namespace']}/{name}" if name else "" for name in names),
        gang_of(pod),
        conditions.get("DisruptionTarget") == "True",
        BROKEN in meta.get("labels", {}),
    )


def gang_of(pod: Object) -> str:
    """Return the name of a pod's PodGroup; "" if it has none."""
    return str(pod["spec"].get("schedulingGroup", {}).get("podGroupName", ""))


def amounts(values: Object) -> dict[str, int]:
    """Read capacities: `{"memory": "40Gi"}`, or `{"memory": {"value": "40Gi"}}`."""
    return {
        name: Quantity.parse(amount["value"] if isinstance(amount, dict) else amount).nano
        for name, amount in values.items()
    }
