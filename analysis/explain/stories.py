"""What is told of a pod, a claim and a device: values, the same for screens and for `-o json`. Data only."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from analysis.capacity import Holder
from analysis.configuration import ConfigurationSource
from analysis.loading import ServerMeant, Unread
from analysis.prospects import Prospect, QuotaUse
from webhook.translate import Decision


class Keeper(StrEnum):
    """Who has to act next."""

    WEBHOOK = "webhook"
    TEMPLATES = "template controller"
    CLAIMS = "claim controller"
    SCHEDULER = "scheduler"
    BRIDGE = "bridge"
    DRIVER = "driver"
    KUBELET = "kubelet"
    USER = "its author"
    NONE = ""


class Trust(StrEnum):
    """What stands behind the record on a pod."""

    NONE = ""
    VERIFIED = "verified"
    FORGED = "does not verify"
    UNCHECKED = "cannot be verified here"


class ClaimState(StrEnum):
    """How far a claim has come."""

    MISSING = "missing"
    PENDING = "pending"
    ALLOCATED = "allocated"
    RESERVED = "reserved"
    PREPARED = "prepared"
    DELETING = "being deleted"


class _Camel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Keys are in camelCase, as in the Kubernetes API."""


class NextStep(_Camel, frozen=True, kw_only=True):
    """Where it stands: who has to act next, and on what."""

    keeper: Keeper
    message: str


class Consumer(_Camel, frozen=True, kw_only=True):
    """A pod that a claim is reserved for. Its phase is "" if it does not exist, and unknown if not all pods were read."""

    name: str
    uid: str
    phase: str = ""
    node: str = ""


class DeviceTold(_Camel, frozen=True, kw_only=True):
    """A device of a claim. `share` is what of it is taken; what is held whole has no shareID."""

    device: str
    request: str
    share: dict[str, str] = {}
    share_id: str = msgspec.field(name="shareID", default="")
    admin_access: bool = False
    published: bool = True
    taints: tuple[str, ...] = ()
    # What its driver says of it in the claim's status.
    conditions: tuple[str, ...] = ()
    # The interface that its driver made of it in the pod: its name, addresses and hardware address.
    network: str = ""


class ClaimStory(_Camel, frozen=True, kw_only=True):
    """A claim: what it asks for, what it has, since when, and for which pods."""

    name: str
    state: ClaimState
    # The name of it in its pod, and the template that it is made from.
    entry: str = ""
    template: str = ""
    asks: tuple[str, ...] = ()
    # The allocationTimestamp.
    since: str = ""
    devices: tuple[DeviceTold, ...] = ()
    reserved_for: tuple[Consumer, ...] = ()
    remarks: tuple[str, ...] = ()


class WebhookStory(_Camel, frozen=True, kw_only=True):
    """What the webhook made of a pod, or would make: `removed` are the keys that it took, by container."""

    trust: Trust = Trust.NONE
    removed: dict[str, dict[str, Any]] = {}
    scheduler_name: str = ""
    decisions: tuple[Decision, ...] = ()
    refusals: tuple[str, ...] = ()
    # Whether this was found out now, because nothing is written on the pod.
    foretold: bool = False


class PodStory(_Camel, frozen=True, kw_only=True):
    """A pod."""

    name: str
    next_step: NextStep = msgspec.field(name="standing")
    phase: str
    node: str
    scheduler: str
    # Who made it, the nearest first.
    owners: tuple[str, ...]
    webhook: WebhookStory
    claims: tuple[ClaimStory, ...]
    # What its scheduler and its kubelet say.
    conditions: tuple[str, ...]
    prospect: Prospect | None
    # The node that has room for it now; "" if none has, or the pod does not wait for one.
    room_on: str = ""
    quota: tuple[QuotaUse, ...]


class PodsAlike(_Camel, frozen=True, kw_only=True):
    """Pods of a workload with the same status, and the story of the first."""

    names: tuple[str, ...]
    first: PodStory


class WorkloadStory(_Camel, frozen=True, kw_only=True):
    """A workload and its pods; of one without pods, those that its controller would make."""

    kind: str
    name: str
    # How many pods it asks for; null where that is not known.
    wanted: int | None
    running: int
    pods: tuple[PodsAlike, ...]
    # What becomes of the object's keys; of an object that was not read, nothing.
    webhook: WebhookStory = WebhookStory()
    # Why its controllers make no pods.
    conditions: tuple[str, ...]


class LoneClaimStory(_Camel, frozen=True, kw_only=True):
    """A claim by itself, and what becomes of it."""

    claim: ClaimStory
    next_step: NextStep = msgspec.field(name="standing")
    # The pods that name it.
    pods: tuple[str, ...]
    prospect: Prospect | None
    quota: tuple[QuotaUse, ...]


class Neighbour(_Camel, frozen=True, kw_only=True):
    """Devices of its pool that have the same relation to it: whether one can be in use beside it, why not, and how many are free now."""

    devices: tuple[str, ...]
    together: bool
    stage: str = ""
    text: str = ""
    free: int | None = 0  # null if not all claims were read


class TaintStory(_Camel, frozen=True, kw_only=True):
    """A taint of a device, and who says it: its driver, or a DeviceTaintRule."""

    taint: str
    source: str
    since: str = ""


class DeviceStory(_Camel, frozen=True, kw_only=True):
    """A device. Its state is free, shared, held or blocked; unknown if not all claims were read, gone if it is not published any more."""

    name: str
    state: str
    slice: str
    # "" if more than one can reach it.
    node: str
    attributes: dict[str, Any]
    capacity: dict[str, str]
    available: dict[str, str]
    taints: tuple[TaintStory, ...]
    holders: tuple[Holder, ...]
    neighbours: tuple[Neighbour, ...]
    # The DeviceCompatibility objects that speak of it.
    rules: tuple[str, ...]
    remarks: tuple[str, ...]


class OfPod(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge explain pod NAME -o json`."""

    pod: PodStory
    configuration: ConfigurationSource
    server: ServerMeant
    # Kinds that could not be read, so the answer leaves them out.
    unread: list[Unread]


class OfWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge explain KIND/NAME -o json`, of a workload."""

    workload: WorkloadStory  # its pods are groups of the same status
    configuration: ConfigurationSource
    server: ServerMeant
    unread: list[Unread]


class OfClaim(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge explain claim NAME -o json`."""

    claim: LoneClaimStory
    configuration: ConfigurationSource
    server: ServerMeant
    unread: list[Unread]


class OfDevice(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge explain device NAME -o json`."""

    device: DeviceStory
    configuration: ConfigurationSource
    server: ServerMeant
    unread: list[Unread]
