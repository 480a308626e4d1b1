"""The guard: a claim and what is prepared become a record of what the claim is given, or a refusal.

The kubelet checks that a claim is allocated and reserved for the pod, and nothing about the devices (pkg/kubelet/cm/dra). A writer of
claims may have been wrong, or two allocators may have been right about different pasts. So a claim that would share an exclusive device,
exceed a capacity, or put devices side by side that exclude each other is refused here, with the names of the claims between which that is.
The allocation is judged against what is prepared on this node, which is what containers have, and not against other claims' statuses.

A claim that is prepared is answered as before, whatever became of the rules: its container runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from dra.errors import CapacityError
from dra.objects import ObjectMeta, ResourceSlice
from dra.policy import Rules, admits, group_states, in_the_way, own_state
from dra.quantity import Quantity
from dra.stock import Pool, PoolUse, Stock, available, charges
from node.checkpoint import HeldDevice, Prepared
from node.inventory import listed, numbers_of
from node.slices import pages_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.objects import Device, DeviceRequestAllocationResult, ResourceClaim
    from node.inventory import Machine
    from node.messages import ClaimReference

# A uid becomes part of a file's name.
_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,62}").fullmatch
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?").fullmatch
ENTRY = "resource.kubernetes.io/pod-claim-name"
Results: TypeAlias = "tuple[DeviceRequestAllocationResult, ...]"


class GuardRefusal(msgspec.Struct, frozen=True):
    """Why a claim is not prepared. `reason` is one of a few words, for metrics."""

    reason: str
    message: str


class _No(Exception):  # noqa: N818  the word for it
    """Inside this module: a refusal on its way out."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.refusal = GuardRefusal(reason, message)


class Guard:
    def __init__(self, machine: Machine, node: str, rules: Rules | None = None) -> None:
        self._machine = machine
        self._node = node
        self._devices = machine.by_name
        slices = [
            ResourceSlice(metadata=ObjectMeta(name=str(number)), spec=spec)
            for number, spec in enumerate(pages_of(machine, node))
        ]
        id_ = machine.driver, node
        counters = {
            one.name: {name: counter.value.nano for name, counter in one.counters.items()}
            for one in machine.counter_sets
        }
        self._pool = Pool(id_, here=Stock.of(slices=slices).pages_of[id_], counters=counters)
        self.follow(rules or Rules())

    def follow(self, rules: Rules) -> None:
        self._rules = rules
        self._conflicts = rules.conflicts(self._pool)

    def judge(
        self, claim: ResourceClaim, reference: ClaimReference, claims: Mapping[str, Prepared]
    ) -> Prepared | GuardRefusal:
        """Say what a claim is given, or why nothing. `claims` are those that are prepared."""
        held: list[HeldDevice] = []
        try:
            results = self._results(claim, reference)
            before = claims.get(reference.uid)
            if before is None:
                # Devices are taken one by one, each beside all that are taken before it.
                for result in results:
                    mine = Prepared(uid="", namespace="", name="this claim", pool="", devices=tuple(held))
                    held.append(self._give(result, [*claims.values(), mine]))
        except _No as no:
            return no.refusal
        if before is not None:
            now, then = _ids(results), _ids(before.devices)
            if now == then:
                return before
            had = ", ".join(device for device, *_ in then)
            gets = ", ".join(device for device, *_ in now)
            message = f"the claim is prepared with {had}, and its status now says {gets}: unprepare it first"
            return GuardRefusal("Changed", message)
        # The pod's own name for a claim becomes a part of a path, and any writer of claims may annotate: only a label is a name.
        metadata = claim.metadata
        entry = metadata.annotations.get(ENTRY, "")
        return Prepared(
            uid=metadata.uid,
            namespace=metadata.namespace,
            name=metadata.name,
            entry=entry if _LABEL(entry) else "",
            pool=self._node,
            devices=tuple(held),
        )

    def _results(self, claim: ResourceClaim, reference: ClaimReference) -> Results:
        """Read what the claim's status gives it of this node's devices, if the status can be believed."""
        uid = claim.metadata.uid
        if uid != reference.uid or not _UID(uid):
            raise _No("AnotherClaim", f"the claim of this name has the uid {uid}: claim UID mismatch: it was recreated")
        allocation = claim.status.allocation
        if allocation is None:
            raise _No("NotAllocated", "the claim is not allocated")
        if not claim.status.reserved_for:
            raise _No("NotReserved", "the claim has no reservation, so its devices may be given away at any time")
        ours = tuple(one for one in allocation.devices.results if one.driver == self._machine.driver)
        if not ours:
            raise _No("NotOurs", f"nothing of the claim is of {self._machine.driver}")
        requests = {request.name for request in claim.spec.devices.requests}
        for result in ours:
            if base(result.request) not in requests:
                raise _No("UnknownRequest", f"the status names the request {result.request}, which the claim has not")
            if result.pool != self._node:
                raise _No(
                    "AnotherNode", f"{result.device} is of the pool {result.pool}, and this node's is {self._node}"
                )
        return ours

    def _give(self, result: DeviceRequestAllocationResult, holders: list[Prepared]) -> HeldDevice:
        """Give one device, if it is free; and of its CPUs the first that no other claim holds."""
        device = self._devices.get(result.device)
        if device is None:
            raise _No("UnknownDevice", f"this node has no device {result.device}")
        offered = self._machine.offers[result.device].cpus
        amount = result.consumed_capacity.get("cpus")
        cpus = ""
        if result.admin_access:  # admins may look at devices that other claims hold
            cpus = listed(offered)
        else:
            self._free(device, result, holders)
            if offered and amount is not None:
                held = [one for record in holders for one in record.devices if not one.admin]
                busy = {cpu for one in held if one.device == result.device for cpu in numbers_of(one.cpus)}
                cpus = listed([cpu for cpu in offered if cpu not in busy][: amount.value()])
        return HeldDevice(
            request=result.request,
            device=result.device,
            share_id=result.share_id,
            admin=bool(result.admin_access),
            consumed=result.consumed_capacity,
            cpus=cpus,
        )

    def _free(self, device: Device, result: DeviceRequestAllocationResult, holders: list[Prepared]) -> None:
        dedicated: set[str] = set()
        shared: set[str] = set()
        used: dict[str, dict[str, int]] = {}
        for one in (one for holder in holders for one in holder.devices if not one.admin):
            if one.share_id is None:
                dedicated.add(one.device)
                continue
            shared.add(one.device)
            amounts = used.setdefault(one.device, {})
            for capacity, amount in one.consumed.items():
                amounts[capacity] = amounts.get(capacity, 0) + amount.nano
        use = PoolUse(frozenset(dedicated), frozenset(shared), used)
        name = device.name
        if not device.allow_multiple_allocations:
            if result.share_id is not None:
                raise _No("NotShared", f"{name} cannot be shared, and the status gives a share of it")
            if use.holds(name):
                raise _No("Taken", f"{name} is prepared for {_who(name, holders)}")
        else:
            _share(device, result, use, holders)
        if use.holds(name):
            return  # what it takes besides, it has taken with its first share
        for other in in_the_way(name, self._conflicts, use):
            raise _No("Incompatible", f"{name} must not be in use beside {other}, which {_who(other, holders)} has")
        # Compatibility groups and counters, for devices that are made of the same hardware.
        states = group_states(self._pool, use, self._rules)
        wild = self._rules.wild(self._machine.driver, device)
        for consumption in device.consumes_counters:
            own = own_state(consumption.compatibility_groups, wild=wild)
            if not admits(states.get(consumption.counter_set), own):
                groups = ", ".join(consumption.compatibility_groups) or "none"
                raise _No(
                    "Incompatible",
                    f"{name} has the compatibility groups {groups}, and what is in use of {consumption.counter_set} has none of them",
                )
        left = available(self._pool, use)
        for consumption in device.consumes_counters:
            for counter_name, counter in consumption.counters.items():
                if counter.value.nano > left[consumption.counter_set].get(counter_name, 0):
                    raise _No(
                        "Overlap",
                        f"{name} is of the hardware {consumption.counter_set}, of which too little is left: {counter_name}",
                    )


def base(request: str) -> str:
    """Name a request without the alternative that was chosen."""
    return request.partition("/")[0]


def _ids(devices: Iterable[HeldDevice | DeviceRequestAllocationResult]) -> list[tuple[str, str, str]]:
    return sorted((one.device, one.request, one.share_id or "") for one in devices)


def _share(device: Device, result: DeviceRequestAllocationResult, use: PoolUse, holders: Iterable[Prepared]) -> None:
    """Refuse a share that is not one of the device's, or more than is left."""
    name = device.name
    if result.share_id is None:
        raise _No("NotShared", f"{name} is given out in shares, and the status gives all of it")
    if name in use.dedicated:
        raise _No("Taken", f"{name} is prepared as a whole for {_who(name, holders)}")
    if not result.consumed_capacity.keys() >= device.capacity.keys():
        raise _No("NotAShare", f"the status does not say how much of {name} the claim consumes")
    consumed = result.consumed_capacity
    try:
        rounded = charges(consumed, device.capacity)
    except CapacityError as error:
        raise _No("NotAShare", f"{name}: {error}") from None
    for capacity, amount in consumed.items():
        if rounded is None or rounded[capacity] != amount:
            raise _No("NotAShare", f"{amount} is not a share of {name}'s {capacity} that is on offer")
        used = use.used.get(name, {}).get(capacity, 0)
        value = device.capacity[capacity].value
        if used + amount.nano > value.nano:
            left = Quantity.from_nano(max(0, value.nano - used), value.format)
            who = _who(name, holders)
            raise _No(
                "Exceeded",
                f"the claim consumes {amount} of {name}'s {capacity}, of which {left} of {value} are left beside {who}",
            )


def _who(device: str, holders: Iterable[Prepared]) -> str:
    """Name the claims that hold a device; a few of them, and how many more."""
    having = [one for one in holders if any(two.device == device for two in one.devices)]
    names = sorted({f"{one.namespace}/{one.name}" if one.namespace else one.name for one in having})
    told = ", ".join(names[:3])
    return told if len(names) <= 3 else f"{told} and {len(names) - 3} more"
