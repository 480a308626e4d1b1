"""Finds contradictions between the sources of a node: the kubelet, files of drivers, the API server and an allocator.

A source that could not be read proves nothing: a device that only this source could have named is not reported as missing. Temporary
states, such as a claim that the kubelet has not unprepared yet, are findings as well; `FindingAges` holds back each finding until it has
lasted for some time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec
from msgspec.structs import asdict, replace

from dra.finding import Finding, make_finding
from dra.objects import claim_name, results_of
from node.audit.snapshot import device_id_of, plain
from node.hardware import DeviceId, is_same

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from dra.objects import Device
    from node.audit.snapshot import ClaimName, NodeReservation, NodeReservedDevice, NodeSnapshot, PreparedDeviceRecord
    from node.hardware import Hardware

COMPONENT = "drawbridge-node-agent"  # the source of the events
FINDING_ENDED = "it is over"  # the message of the last event about a finding
MAX_FINDINGS = 50  # findings of each kind in one round, so that many findings of one kind do not hide other kinds
_SENTENCE = 900
_NAMED = 4  # devices of a reservation that a message names
_UID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f-])")
_CDI_ENDINGS = (".json", ".yaml")
_UNPREPARED = ("All", "NodePrepareResources")


SOON, LATE = 30.0, 300.0


class FindingKind(StrEnum):
    """The kinds of contradictions: a text for people, the code, and the seconds that a finding must last before it is reported."""

    GIVEN_TWICE = "given twice", "O221", 0.0
    NOT_ALLOCATED = "prepared, not allocated", "O222", SOON
    NOT_PREPARED = "allocated, not prepared", "O223", SOON
    SUMS = "shares do not add up", "O224", 0.0
    LEFT = "left on the node", "O225", LATE
    UNMARKED = "not marked", "O226", 0.0
    RESERVED_ELSEWHERE = "reserved elsewhere", "O227", 0.0
    IN_DOUBT = "reserved, in doubt", "O228", 0.0
    MOVED = "offered otherwise", "O229", SOON

    code: str
    seconds: float

    def __new__(cls, text: str, code: str, seconds: float) -> Self:
        kind = str.__new__(cls, text)
        kind._value_, kind.code, kind.seconds = text, code, seconds
        return kind

    @property
    def reason(self) -> str:
        """The reason of the event."""
        return "Device" + self.name.title().replace("_", "")


_KINDS = {kind.code: kind for kind in FindingKind}


class NodeFinding(Finding, frozen=True, kw_only=True):
    """A contradiction on a node. Affected pods (`users`) get an event with the text `pod_message`, which names nothing of another namespace."""

    users: tuple[tuple[str, str], ...] = ()
    pod_message: str = ""

    @property
    def kind(self) -> FindingKind:
        return _KINDS[self.code]


def contradiction(
    kind: FindingKind,
    about: str,
    message: str,
    remedy: str,
    *,
    users: tuple[tuple[str, str], ...] = (),
    pod_message: str = "",
) -> NodeFinding:
    finding = make_finding(kind.code, about, message, remedy)
    return NodeFinding(**asdict(finding), users=users, pod_message=pod_message)


class _User(NamedTuple):
    """A claim that holds a device, and the pods of this node that use the claim."""

    claim: ClaimName
    pods: tuple[tuple[str, str], ...]


Users = dict[DeviceId, set[_User]]


class FindingAges(msgspec.Struct, frozen=True):
    """Since when each finding has been seen without interruption."""

    since: dict[tuple[str, str], float] = {}

    def after(self, findings: Iterable[NodeFinding], now: float) -> FindingAges:
        keys = [(finding.code, finding.object) for finding in findings]
        return FindingAges({key: self.since.get(key, now) for key in keys})

    def is_old(self, finding: NodeFinding, now: float) -> bool:
        """Report whether a finding has lasted long enough to be reported."""
        since = self.since.get((finding.code, finding.object), now)
        return now - since >= finding.kind.seconds


def examine(snapshot: NodeSnapshot, hardware: Hardware) -> tuple[NodeFinding, ...]:
    """Return the contradictions of a node, the most important kinds first."""
    users = _users(snapshot)
    findings_by_kind = (
        _given_twice(snapshot, hardware, users),
        _prepared_twice(hardware, users),
        _reserved_elsewhere(snapshot, hardware),
        _exceeded_shares(snapshot, hardware.devices),
        _not_allocated(snapshot),
        _not_prepared(snapshot),
        _leftovers(snapshot),
        _in_doubt(snapshot),
        _moved(snapshot, hardware.devices),
    )
    return tuple(
        # Names from drivers' files are untrusted text.
        replace(
            finding,
            object=plain(finding.object),
            message=plain(finding.message, _SENTENCE),
            pod_message=plain(finding.pod_message, _SENTENCE),
        )
        for findings in findings_by_kind
        for finding in islice(findings, MAX_FINDINGS)
    )


def _given_twice(snapshot: NodeSnapshot, hardware: Hardware, users_by_device: Users) -> Iterator[NodeFinding]:
    """Find devices that a container has from a device plugin although a claim holds them, too."""
    for plugin_device in snapshot.allocated_to_pods:
        excluded = hardware.excluded_by_plugin(plugin_device.resource, plugin_device.id)
        for device_id in sorted(excluded & users_by_device.keys()):
            for user in sorted(users_by_device[device_id]):
                yield contradiction(
                    FindingKind.GIVEN_TWICE,
                    f"Device/{device_id}",
                    f"pod {plugin_device.namespace}/{plugin_device.pod} has it as {plugin_device} of a device plugin, and ResourceClaim {_claim_text(user.claim)} has it, too",
                    "delete that pod, or the pods of the claim; the agent's mark keeps new claims off the device while the plugin's pod has it",
                    users=((plugin_device.namespace, plugin_device.pod), *user.pods),
                    pod_message=f"a device is in use twice: as {plugin_device} of a device plugin, and as {device_id} of a ResourceClaim",
                )


def _users(snapshot: NodeSnapshot) -> Users:
    """Map each device to the claims that hold it, by the claims' status and the kubelet's answer. Admin access does not hold a device."""
    users: defaultdict[DeviceId, set[_User]] = defaultdict(set)
    pods_of = snapshot.pods_by_claim
    with_access: set[tuple[ClaimName, DeviceId]] = set()
    device_uses: list[tuple[ClaimName, DeviceId]] = []
    for name in pods_of:
        for result in results_of(snapshot.claims.get(name)):
            if result.admin_access:
                with_access.add((name, device_id_of(result)))
            else:
                device_uses.append((name, device_id_of(result)))
    by_kubelet = (((use.namespace, use.claim), use.device_id) for use in snapshot.prepared_by_kubelet)
    device_uses += (use for use in by_kubelet if use not in with_access)
    for name, device_id in device_uses:
        users[device_id].add(_User(name, tuple(sorted(pods_of[name]))))
    return users


def _prepared_twice(hardware: Hardware, users: Users) -> Iterator[NodeFinding]:
    """Find hardware that two drivers publish, and that claims have from both drivers."""
    for device_id in sorted(users):
        for other in sorted(hardware.same_hardware(device_id) & users.keys()):
            if other < device_id:
                continue
            names = {use.claim for use in (*users[device_id], *users[other])}
            pods = {pod for use in (*users[device_id], *users[other]) for pod in use.pods}
            yield contradiction(
                FindingKind.GIVEN_TWICE,
                f"Device/{device_id}",
                f"{other} is the same hardware, and claims have both devices: {', '.join(_claim_text(name) for name in sorted(names))}",
                "let only one driver publish this hardware, and delete the pods of the other driver's claim",
                users=tuple(sorted(pods)),
                pod_message=f"a device is in use twice: as {device_id} and as {other}",
            )


def _reserved_elsewhere(snapshot: NodeSnapshot, hardware: Hardware) -> Iterator[NodeFinding]:
    """Find devices that an allocator has reserved although another holder has them: they are in use twice once the claim's status is written."""
    if not snapshot.reservations:
        return
    rivals = _rivals(snapshot, hardware)
    for reservation in snapshot.reservations:
        for device in reservation.devices:
            for rival in rivals[device.device_id]:
                if rival.hinders(reservation, device):
                    yield contradiction(
                        FindingKind.RESERVED_ELSEWHERE,
                        f"Device/{device.device_id}",
                        f"an allocator has reserved it for ResourceClaim {reservation.namespace}/{reservation.claim}, and {rival.has}",
                        "delete the pod that has the device, or the pod of the ResourceClaim, so that one of them gets another device",
                        users=rival.users,
                        pod_message=f"this pod has {device.device_id} or a part of it, and an allocator has reserved it for a claim of another pod",
                    )


class _Rival(NamedTuple):
    """A holder whose device must not be allocated together with a reserved device. `has` says what it holds."""

    has: str
    users: tuple[tuple[str, str], ...]
    holding: PreparedDeviceRecord | None = None  # None for a device of a device plugin

    def hinders(self, reservation: NodeReservation, device: NodeReservedDevice) -> bool:
        """Report whether a reservation conflicts with this holder: not if both are of the same claim, or are shares of one device."""
        holding = self.holding
        if holding is None:
            return True
        if holding.uid and reservation.uid:
            same_claim = holding.uid == reservation.uid
        else:
            same_claim = (holding.namespace, holding.claim) == (reservation.namespace, reservation.claim)
        share_device = holding.device_id == device.device_id and bool(holding.share and device.share_id)
        return not (same_claim or share_device)


def _rivals(snapshot: NodeSnapshot, hardware: Hardware) -> Mapping[DeviceId, list[_Rival]]:
    """Map each reserved device to the holders whose devices must not be allocated together with it."""
    excluded_devices = {
        device.device_id: hardware.excluded_by_device(device.device_id)
        for reservation in snapshot.reservations
        for device in reservation.devices
    }
    rivals: defaultdict[DeviceId, list[_Rival]] = defaultdict(list)
    for plugin_device in snapshot.allocated_to_pods:
        rival = _Rival(
            f"pod {plugin_device.namespace}/{plugin_device.pod} has it as {plugin_device} of a device plugin",
            ((plugin_device.namespace, plugin_device.pod),),
        )
        for device_id in (
            hardware.excluded_by_plugin(plugin_device.resource, plugin_device.id) & excluded_devices.keys()
        ):
            rivals[device_id].append(rival)
    all_excluded = frozenset().union(*excluded_devices.values())
    # Sources that know the claim's UID take precedence.
    records = sorted(
        (record for record in snapshot.all_prepared if record.device_id in all_excluded),
        key=lambda record: not record.uid,
    )
    pods_of = snapshot.pods_by_claim
    rivals_by_held_device: defaultdict[DeviceId, list[_Rival]] = defaultdict(list)
    for record in _without_duplicates(records):
        name = record.namespace, record.claim
        results = results_of(snapshot.claims.get(name))
        if record.admin or any(device_id_of(result) == record.device_id for result in results if result.admin_access):
            continue
        claim_text = _claim_text(name) if record.claim else f"with uid {record.uid}"
        has_text = f"{record.by} has {record.device_id} prepared for ResourceClaim {claim_text}"
        rivals_by_held_device[record.device_id].append(_Rival(has_text, tuple(sorted(pods_of.get(name, ()))), record))
    for device_id, others in excluded_devices.items():
        for other in others & rivals_by_held_device.keys():
            rivals[device_id] += rivals_by_held_device[other]
    return rivals


def _in_doubt(snapshot: NodeSnapshot) -> Iterator[NodeFinding]:
    """Find allocations whose write got no answer."""
    for reservation in snapshot.reservations:
        if reservation.in_doubt:
            devices = ", ".join(str(device.device_id) for device in reservation.devices[:_NAMED])
            yield contradiction(
                FindingKind.IN_DOUBT,
                f"ResourceClaim/{reservation.namespace}/{reservation.claim}",
                f"an allocator has reserved {devices} for this claim, but the write of the claim's status got no answer, so the claim may or may not have them",
                "check that the allocator reaches the API server; the allocator keeps the devices reserved until it can read the claim",
            )


def _not_allocated(snapshot: NodeSnapshot) -> Iterator[NodeFinding]:
    """Find prepared devices that the claim's status does not allocate."""
    pods_of = snapshot.pods_by_claim
    for record in _without_duplicates(snapshot.all_prepared):
        claim = snapshot.claims.get((record.namespace, record.claim))
        if claim is None or (record.uid and claim.metadata.uid != record.uid):
            continue  # `_leftovers` reports deleted claims; a claim that could not be read proves nothing
        allocated = sorted({device_id_of(result) for result in results_of(claim)})
        if not record.device_id.device or record.device_id in allocated:
            continue
        devices = ", ".join(map(str, allocated[:_NAMED])) or "nothing"
        yield contradiction(
            FindingKind.NOT_ALLOCATED,
            f"ResourceClaim/{record.namespace}/{record.claim}",
            f"{record.by} has {record.device_id} prepared for this claim, but the claim's status allocates {devices}",
            "delete the pods that use the claim on this node, so that the kubelet unprepares the claim",
            users=tuple(sorted(pods_of.get((record.namespace, record.claim), ()))),
            pod_message=f"{record.device_id} is prepared for the ResourceClaim {record.claim}, whose status allocates {devices}",
        )


def _moved(snapshot: NodeSnapshot, devices: Mapping[DeviceId, Device]) -> Iterator[NodeFinding]:
    """Find prepared devices whose hardware their driver offers no longer under this name. A driver without slices proves nothing."""
    publishers = {(slice_.spec.driver, slice_.spec.pool.name) for slice_ in snapshot.slices}
    pods_of = snapshot.pods_by_claim
    for record in snapshot.prepared:
        given, device = record.given, devices.get(record.device_id)
        if given is None or record.device_id[:2] not in publishers:
            continue
        if device is not None and is_same(device, given) is not False:
            continue
        now = "offers other hardware under this name" if device is not None else "does not offer this device any longer"
        yield contradiction(
            FindingKind.MOVED,
            f"ResourceClaim/{record.namespace}/{record.claim}",
            f"{record.by} has {record.device_id} prepared for this claim, but {now}",
            "restore the device in the driver's inventory, or delete the pods that use the claim; until then the driver gives the hardware to no other claim",
            users=tuple(sorted(pods_of.get((record.namespace, record.claim), ()))),
            pod_message=f"the driver of {record.device_id} {now}; the containers of this pod keep the hardware that they have",
        )


def _not_prepared(snapshot: NodeSnapshot) -> Iterator[NodeFinding]:
    """Find claims of running containers with a device that neither the kubelet nor a driver has prepared."""
    if snapshot.kubelet is None:
        return
    prepared_devices = {(record.namespace, record.claim, record.device_id) for record in snapshot.all_prepared}
    for pod in snapshot.pods or ():
        if pod.status.phase != "Running" or pod.metadata.deletion_timestamp:
            continue
        namespace = pod.metadata.namespace
        # The kubelet does not report claims that no container names.
        entries = {claim.name for container in pod.spec.containers for claim in container.resources.claims}
        names = (claim_name(pod, entry) for entry in pod.spec.resource_claims if entry.name in entries)
        for name in filter(None, names):
            results = results_of(snapshot.claims.get((namespace, name)))
            devices_to_prepare = [
                device_id_of(result) for result in results if not set(_UNPREPARED) & set(result.skip_node_operations)
            ]
            unprepared = [
                device_id for device_id in devices_to_prepare if (namespace, name, device_id) not in prepared_devices
            ]
            if unprepared:
                yield contradiction(
                    FindingKind.NOT_PREPARED,
                    f"ResourceClaim/{namespace}/{name}",
                    f"pod {pod.metadata.name} runs with this claim, but no driver of this node has {unprepared[0]} prepared for the claim",
                    "delete the pod, so that a new pod starts with the devices; if this happens again, see the driver's log",
                    users=((namespace, pod.metadata.name),),
                    pod_message=f"{unprepared[0]} of the ResourceClaim {name} is not prepared on the node",
                )


def _exceeded_shares(snapshot: NodeSnapshot, devices: Mapping[DeviceId, Device]) -> Iterator[NodeFinding]:
    """Find prepared shares that exceed the device, or that differ from the claim's status."""
    sums: defaultdict[tuple[DeviceId, str], int] = defaultdict(int)
    for record in snapshot.prepared:
        if record.admin or not record.consumed:
            continue
        for name, amount in record.consumed.items():
            sums[record.device_id, name] += amount.nano
        claim = snapshot.claims.get((record.namespace, record.claim))
        for result in results_of(claim):
            if (
                device_id_of(result) == record.device_id
                and result.share_id == record.share
                and result.consumed_capacity != record.consumed
            ):
                yield contradiction(
                    FindingKind.SUMS,
                    f"ResourceClaim/{record.namespace}/{record.claim}",
                    f"{record.by} has prepared {_amounts(record.consumed)} of {record.device_id}, but the claim's status has {_amounts(result.consumed_capacity)}",
                    "delete the pods that use the claim, so that the claim is prepared again",
                )
    for (device_id, name), nano in sums.items():
        capacity = devices[device_id].capacity.get(name) if device_id in devices else None
        if capacity is not None and nano > capacity.value.nano:
            yield contradiction(
                FindingKind.SUMS,
                f"Device/{device_id}",
                f"the prepared shares of its {name} add up to {nano / 10**9:g}, but the device has only {capacity.value}",
                "delete pods that have shares of the device until the remaining shares fit",
            )


def _leftovers(snapshot: NodeSnapshot) -> Iterator[NodeFinding]:
    """Find devices prepared for deleted claims, and CDI files without a claim."""
    for record in _without_duplicates(snapshot.all_prepared):
        name = record.namespace, record.claim
        claim = snapshot.claims.get(name)
        if name in snapshot.claims and (claim is None or (record.uid and claim.metadata.uid != record.uid)):
            yield contradiction(
                FindingKind.LEFT,
                f"ResourceClaim/{record.namespace}/{record.claim}",
                f"the claim is deleted, but {record.by} still has {record.device_id if record.device_id.device else 'it'} prepared",
                "check that the driver runs: drawbridge's drivers unprepare a deleted claim after its pods have ended; restart any other driver",
            )
    claim_names = snapshot.claim_names | snapshot.pods_by_claim.keys()
    if snapshot.pods is None or claim_names - snapshot.claims.keys():
        return  # an unknown UID may be that of a claim that could not be read
    for uid, source in sorted({(record.uid, record.by) for record in snapshot.prepared if not record.claim}):
        yield contradiction(
            FindingKind.LEFT,
            f"claim with the uid {uid}",
            f"{source} has this claim prepared, but no claim of a pod of this node has that uid",
            "check that the driver runs, and restart the driver, so that it unprepares deleted claims",
        )
    known_uids = {record.uid for record in snapshot.all_prepared}
    known_uids.update(claim.metadata.uid for claim in snapshot.claims.values() if claim is not None)
    drivers = {slice_.spec.driver for slice_ in snapshot.slices} | {
        record.device_id.driver for record in snapshot.all_prepared
    }
    for file in snapshot.files:
        uid = claim_uid(file, drivers)
        if uid and uid not in known_uids:
            yield contradiction(
                FindingKind.LEFT,
                f"CDI file {file}",
                "no claim of a pod on this node has the uid in the file's name, and no driver has such a claim prepared",
                "delete the file if its driver does not delete it at the next start: a container that names the file's CDI devices would get them",
            )


def claim_uid(name: str, drivers: Collection[str]) -> str:
    """Return the UID of the claim for which a driver wrote a file; "" for other files.

    The name must contain a driver's name, because a UUID alone may be that of a GPU.
    """
    uids: list[str] = _UID.findall(name)
    if not name.endswith(_CDI_ENDINGS) or len(uids) != 1 or not any(driver in name for driver in drivers):
        return ""
    return uids[0]


def _without_duplicates(records: Iterable[PreparedDeviceRecord]) -> list[PreparedDeviceRecord]:
    """Keep only the first record for each claim and device, because several sources may have a record of them."""
    first_records: dict[tuple[str, str, DeviceId], PreparedDeviceRecord] = {}
    for record in records:
        first_records.setdefault((record.namespace, record.claim or record.uid, record.device_id), record)
    return list(first_records.values())


def _claim_text(name: ClaimName) -> str:
    return "/".join(name)


def _amounts(consumed: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted(consumed.items())) or "nothing"
