"""The guard: checks a claim's allocation against the claims prepared on this node, and returns the devices to prepare, or a refusal.

The kubelet checks that a claim is allocated and reserved for the pod, but nothing about the claim's devices (pkg/kubelet/cm/dra). The
status can be wrong, for example if two allocators worked from different states. So the guard refuses a claim that would share an exclusive
device, exceed a capacity, or use devices that exclude each other, and names the claims in conflict. It compares with prepared claims, not
with the status of other claims, because only a prepared claim's devices are in a container.

A prepared claim gets the same answer again while its status names the same devices, even if the rules about devices have changed since: its
container may be running.

A prepared device holds its hardware, whatever the inventory calls it later. The device counts under its name while the machine offers the
name with the same hardware. Otherwise the guard withholds all devices on its hardware until the claim is unprepared.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from dra.errors import CapacityError
from dra.objects import POD_CLAIM_NAME, ObjectMeta, ResourceSlice
from dra.policy import Rules, admits, conflicting, group_states, own_state
from dra.quantity import Quantity
from dra.stock import Pool, PoolUse, Stock, available, charges
from dra.texts import list_first
from node.checkpoint import Given, HeldDevice, Prepared
from node.hardware import DeviceId, Hardware, covers, identities_of, is_same
from node.inventory import numbers_of, ranges_of
from node.slices import pages_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.objects import Device, DeviceRequestAllocationResult, ResourceClaim
    from node.inventory import Machine
    from node.messages import ClaimReference

# A UID becomes part of a file name.
_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,62}").fullmatch
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?").fullmatch
Results: TypeAlias = "tuple[DeviceRequestAllocationResult, ...]"


class GuardRefusal(msgspec.Struct, frozen=True):
    """Why a claim is not prepared. `reason` is one of a few words, such as Taken."""

    reason: str
    message: str


class _GuardRefused(Exception):  # noqa: N818  not an error: `check_claim` turns it into its return value
    """Carries a refusal up to `check_claim`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.refusal = GuardRefusal(reason, message)


class Guard:
    def __init__(self, machine: Machine, node: str, rules: Rules | None = None) -> None:
        self.machine = machine
        self._node = node
        self._devices = {device.name: device for device in machine.devices}
        slices = [
            ResourceSlice(metadata=ObjectMeta(name=str(number)), spec=spec)
            for number, spec in enumerate(pages_of(machine, node))
        ]
        hardware = Hardware(slices, max_beside=len(self._devices))
        # By device: the device's identities, and those of the device and all devices that exclude it.
        self._identities = {
            name: (frozenset(identities_of(device)), hardware.identities_around(DeviceId(machine.driver, node, name)))
            for name, device in self._devices.items()
        }
        id_ = machine.driver, node
        counters = {
            counter_set.name: {name: counter.value.nano for name, counter in counter_set.counters.items()}
            for counter_set in machine.counter_sets
        }
        self._pool = Pool(id_, accessible=Stock.of(slices=slices).pages_of[id_], counters=counters)
        self.use_rules(rules or Rules())

    def use_rules(self, rules: Rules) -> None:
        self._rules = rules
        self._conflicts = rules.conflicts(self._pool)

    def check_claim(
        self, claim: ResourceClaim, reference: ClaimReference, claims: Mapping[str, Prepared]
    ) -> Prepared | GuardRefusal:
        """Return the record of the devices to prepare, or a refusal. `claims` are the prepared claims by UID."""
        devices: list[HeldDevice] = []
        try:
            results = self._results(claim, reference)
            prepared_record = claims.get(reference.uid)
            if prepared_record is None:
                # Each device is checked beside the prepared claims and this claim's earlier devices.
                for result in results:
                    this_claim = Prepared(uid="", namespace="", name="this claim", pool="", devices=tuple(devices))
                    devices.append(self._held_device(result, [*claims.values(), this_claim]))
        except _GuardRefused as refused:
            return refused.refusal
        if prepared_record is not None:
            allocated, prepared = _ids(results), _ids(prepared_record.devices)
            if allocated == prepared:
                return prepared_record
            prepared_names = ", ".join(device for device, *_ in prepared)
            allocated_names = ", ".join(device for device, *_ in allocated)
            message = f"the claim is prepared with {prepared_names}, but its status now has {allocated_names}: delete the pods that use the claim on this node, so that the kubelet unprepares it"
            return GuardRefusal("Changed", message)
        # Only a DNS label is accepted, because the annotation becomes part of a path, and every account that may write claims can set it.
        metadata = claim.metadata
        entry = metadata.annotations.get(POD_CLAIM_NAME, "")
        return Prepared(
            uid=metadata.uid,
            namespace=metadata.namespace,
            name=metadata.name,
            entry=entry if _LABEL(entry) else "",
            pool=self._node,
            devices=tuple(devices),
            pods=tuple(consumer.uid for consumer in claim.status.reserved_for),
        )

    def withheld(self, records: Iterable[Prepared]) -> dict[str, str]:
        """Return the devices whose hardware claims hold otherwise than the machine offers it now, each with the reason."""
        reasons: dict[str, str] = {}
        for record in records:
            for held in record.devices:
                given = held.given
                if held.admin or (given is not None and self._is_offered(held.device, given)):
                    continue
                reason = f"{'may have' if given is None else 'has'} hardware that is prepared for {record.namespace}/{record.name} as {held.device}: delete the claim's pods, or restore the inventory"
                for name in self._devices if given is None else self._users(given):
                    reasons.setdefault(name, f"{name} {reason}")
        return reasons

    def renewed(self, record: Prepared) -> Prepared:
        """Return a record with the files and names by which containers reach its hardware now. The hardware itself stays."""
        devices: list[HeldDevice] = []
        for held in record.devices:
            device = self._counterpart(held)
            now = self._given(device) if device is not None else held.given
            if now is not None and held.given is not None:
                now = replace(held.given, access=now.access)
            devices.append(replace(held, given=now))
        return replace(record, devices=tuple(devices))

    def missing(self, record: Prepared) -> str:
        """Return a device of a record whose hardware the machine does not offer now; "" if it offers all."""
        return next((held.device for held in record.devices if self._counterpart(held) is None), "")

    def _given(self, device: Device) -> Given:
        access = replace(self.machine.offers[device.name], cpus=())
        return Given(
            device=replace(device, taints=()),
            access=access,
            visible=self.machine.visible_devices if access.is_visible else "",
            hardware=tuple(sorted(self._identities[device.name][1])),
        )

    def _is_offered(self, name: str, given: Given) -> bool:
        """Report whether the machine offers a device under its name, so that its name and counters are enough to hold it."""
        device = self._devices.get(name)
        return device is not None and is_same(device, given.device) is not False and covers(device, given.device)

    def _counterpart(self, held: HeldDevice) -> Device | None:
        """Return the device that the machine offers for the hardware now, if containers can reach it in the same way."""
        named, given = self._devices.get(held.device), held.given
        if given is None:
            return named
        first = () if named is None or is_same(named, given.device) is False else (named,)
        others = (device for device in self._devices.values() if is_same(device, given.device))
        # A card without its files has no kernel module yet.
        offers = self.machine.offers
        usable = (device for device in chain(first, others) if offers[device.name].files or not given.access.files)
        return next(usable, None)

    def _users(self, given: Given) -> list[str]:
        """Return the devices that share hardware with what a claim was given. Replicas of one card share it by the plugin's choice."""
        own, hardware = frozenset(identities_of(given.device)), frozenset(given.hardware)
        card = given.device.attributes.get("card")
        return [
            name
            for name, (its_own, around) in self._identities.items()
            if not (hardware.isdisjoint(its_own) and own.isdisjoint(around))
            and (card is None or card != self._devices[name].attributes.get("card"))
        ]

    def _results(self, claim: ResourceClaim, reference: ClaimReference) -> Results:
        """Return the allocation results for this driver and node, after checking them against the claim."""
        uid = claim.metadata.uid
        if uid != reference.uid or not _UID(uid):
            raise _GuardRefused(
                "AnotherClaim", f"claim UID mismatch: the claim was recreated, and has the uid {uid} now"
            )
        allocation = claim.status.allocation
        if allocation is None:
            raise _GuardRefused("NotAllocated", "the claim is not allocated")
        if not claim.status.reserved_for:
            raise _GuardRefused(
                "NotReserved", "the claim is reserved for no pod, so its devices can be deallocated at any time"
            )
        results = tuple(result for result in allocation.devices.results if result.driver == self.machine.driver)
        if not results:
            raise _GuardRefused("NotOurs", f"the claim has no device of {self.machine.driver}")
        requests = {request.name: request.exactly for request in claim.spec.devices.requests}
        for result in results:
            name = result.request.partition("/")[0]  # without its chosen alternative
            if name not in requests:
                raise _GuardRefused(
                    "UnknownRequest", f"the status names the request {result.request}, which is not in the spec"
                )
            exactly = requests[name]  # only a request of the form `exactly` can have adminAccess
            if result.admin_access and not (exactly is not None and exactly.admin_access):
                raise _GuardRefused(
                    "NotRequested",
                    f"the status has adminAccess for the request {result.request}, which does not request it",
                )
            if result.pool != self._node:
                raise _GuardRefused(
                    "AnotherNode", f"{result.device} is in pool {result.pool}, but this node's pool is {self._node}"
                )
        return results

    def _held_device(self, result: DeviceRequestAllocationResult, holders: list[Prepared]) -> HeldDevice:
        """Return a result's device as the claim will hold it; refuse a device that is in use. CPUs are the first that no other claim holds."""
        device = self._devices.get(result.device)
        if device is None:
            raise _GuardRefused("UnknownDevice", f"this node has no device {result.device}")
        offered = self.machine.offers[result.device].cpus
        amount = result.consumed_capacity.get("cpus")
        cpus = ""
        if result.admin_access:  # may use devices that other claims hold
            cpus = ranges_of(offered)
        else:
            self._check_free(device, result, holders)
            if offered and amount is not None:
                in_use = [device for record in holders for device in record.devices if not device.admin]
                busy = {cpu for held in in_use for cpu in numbers_of(held.cpus)}
                free = [cpu for cpu in offered if cpu not in busy]
                if len(free) < amount.value():
                    raise _GuardRefused(
                        "Exceeded",
                        f"the claim consumes {amount} CPUs of {result.device}, but only {len(free)} of them are free",
                    )
                cpus = ranges_of(free[: amount.value()])
        return HeldDevice(
            request=result.request,
            device=result.device,
            share_id=result.share_id,
            admin=bool(result.admin_access),
            consumed=result.consumed_capacity,
            cpus=cpus,
            given=self._given(device),
        )

    def _check_free(self, device: Device, result: DeviceRequestAllocationResult, holders: list[Prepared]) -> None:
        dedicated: set[str] = set()
        shared: set[str] = set()
        used: dict[str, dict[str, int]] = {}
        for held in (device for holder in holders for device in holder.devices if not device.admin):
            if held.share_id is None:
                dedicated.add(held.device)
                continue
            shared.add(held.device)
            amounts = used.setdefault(held.device, {})
            for capacity, amount in held.consumed.items():
                amounts[capacity] = amounts.get(capacity, 0) + amount.nano
        use = PoolUse(frozenset(dedicated), frozenset(shared), used)
        name = device.name
        withheld = self.withheld(holders).get(name)
        if withheld is not None:
            raise _GuardRefused("Taken", withheld)
        if not device.allow_multiple_allocations:
            if result.share_id is not None:
                raise _GuardRefused("NotShared", f"{name} cannot be shared, but the status allocates a share of it")
            if use.holds(name):
                raise _GuardRefused("Taken", f"{name} is prepared for {_holder_names(name, holders)}")
        else:
            _check_share(device, result, use, holders)
        if use.holds(name):
            return  # another share of the device already consumes the device's counters
        for other in conflicting(name, self._conflicts, use):
            raise _GuardRefused(
                "Incompatible",
                f"{name} must not be used together with {other}, which {_holder_names(other, holders)} has",
            )
        # Compatibility groups and counters of devices on the same hardware.
        states = group_states(self._pool, use, self._rules)
        wild = self._rules.wild(self.machine.driver, device)
        for consumption in device.consumes_counters:
            own_groups = own_state(consumption.compatibility_groups, wild=wild)
            if not admits(states.get(consumption.counter_set), own_groups):
                groups = ", ".join(consumption.compatibility_groups) or "none"
                raise _GuardRefused(
                    "Incompatible",
                    f"{name} has the compatibility groups {groups}, and the devices of {consumption.counter_set} in use have none of these groups",
                )
        remaining = available(self._pool, use)
        for consumption in device.consumes_counters:
            for counter_name, counter in consumption.counters.items():
                if counter.value.nano > remaining[consumption.counter_set].get(counter_name, 0):
                    raise _GuardRefused(
                        "Overlap",
                        f"{name} needs more {counter_name} than is left of {consumption.counter_set}",
                    )


def _ids(devices: Iterable[HeldDevice | DeviceRequestAllocationResult]) -> list[tuple[str, str, str]]:
    return sorted((device.device, device.request, device.share_id or "") for device in devices)


def _check_share(
    device: Device, result: DeviceRequestAllocationResult, use: PoolUse, holders: Iterable[Prepared]
) -> None:
    """Refuse a share that the device does not offer, or that exceeds what is left."""
    name = device.name
    if result.share_id is None:
        raise _GuardRefused("NotShared", f"{name} is offered in shares, but the status allocates the whole device")
    if name in use.dedicated:
        raise _GuardRefused("Taken", f"{name} is prepared as a whole for {_holder_names(name, holders)}")
    if not result.consumed_capacity.keys() >= device.capacity.keys():
        raise _GuardRefused(
            "NotAShare", f"the status does not say how much of each capacity of {name} the claim consumes"
        )
    consumed = result.consumed_capacity
    try:
        rounded = charges(consumed, device.capacity)
    except CapacityError as error:
        raise _GuardRefused("NotAShare", f"{name}: {error}") from None
    for capacity, amount in consumed.items():
        if rounded is None or rounded[capacity] != amount:
            raise _GuardRefused("NotAShare", f"{name} offers no share of {amount} of its {capacity}")
        used = use.used.get(name, {}).get(capacity, 0)
        value = device.capacity[capacity].value
        if used + amount.nano > value.nano:
            remaining = Quantity.from_nano(max(0, value.nano - used), value.format)
            holder_names = _holder_names(name, holders)
            raise _GuardRefused(
                "Exceeded",
                f"the claim consumes {amount} of {name}'s {capacity}, but beside {holder_names} only {remaining} of {value} are left",
            )


def _holder_names(device: str, holders: Iterable[Prepared]) -> str:
    """Name up to three claims that hold a device, and the number of further claims."""
    claims: set[str] = set()
    for holder in holders:
        if any(holder_device.device == device for holder_device in holder.devices):
            claims.add(f"{holder.namespace}/{holder.name}" if holder.namespace else holder.name)
    return list_first(sorted(claims), 3)
