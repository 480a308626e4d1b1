"""Facts about pods, claims, devices and workloads, for the terminal and for `-o json`."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from analysis.capacity import Holder
from analysis.configuration import ConfigurationSource
from analysis.loading import AssumedServer, Unread
from analysis.prospects import Prospect, QuotaUse
from dra.finding import Finding
from dra.reason import Reason
from webhook.translate import Decision


class Step(StrEnum):
    """The steps of a pod's life, in order. A pod without claims skips the steps about claims."""

    CREATED = "created"
    ADMITTED = "admitted"  # translated, or not refused, and without scheduling gates
    TEMPLATE = "template"
    CLAIM = "claim"
    ALLOCATED = "allocated"
    SCHEDULED = "scheduled"
    PREPARED = "prepared"
    STARTED = "started"
    RUNNING = "running"


class Trust(StrEnum):
    """The trust level of the webhook's record on a pod (its annotations)."""

    NONE = ""
    VERIFIED = "verified"
    FORGED = "does not verify"
    UNCHECKED = "cannot be verified here"


class ClaimState(StrEnum):
    """The states of a claim, in order."""

    MISSING = "missing"
    PENDING = "pending"
    ALLOCATED = "allocated"
    RESERVED = "reserved"
    PREPARED = "prepared"
    DELETING = "being deleted"


class _Camel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Keys are in camelCase, as in the Kubernetes API."""


class PodState(_Camel, frozen=True, kw_only=True):
    """The steps that a pod has done, the first that it has not (null if it runs or has ended), and the reasons."""

    done: tuple[Step, ...] = ()
    step: Step | None
    reasons: tuple[Reason, ...]


class Consumer(_Camel, frozen=True, kw_only=True):
    """A pod that a claim is reserved for. Its phase is "" if it does not exist, and unknown if not all pods were read."""

    name: str
    uid: str
    phase: str = ""
    node: str = ""


class DeviceTold(_Camel, frozen=True, kw_only=True):
    """A device of a claim. `share` is the part that is held; a device that is held whole has no shareID."""

    device: str
    request: str
    share: dict[str, str] = {}
    share_id: str = msgspec.field(name="shareID", default="")
    admin_access: bool = False
    # How the claim has the device: "exclusive", "partition" of hardware whose counters other devices use too, "share", beside
    # other claims, or "interface": the driver made it for the claim on a device that other claims use, too.
    sharing: str = "exclusive"
    published: bool = True
    taints: tuple[str, ...] = ()
    # The conditions that its driver reports in the claim's status.
    conditions: tuple[str, ...] = ()
    # The interface that its driver created in the pod: its name, addresses and hardware address.
    network: str = ""
    # The opaque data that its driver reports in the claim's status.
    data: Any = None


class ClaimStory(_Camel, frozen=True, kw_only=True):
    """A claim: its requests, its devices and the time of their allocation, and its pods."""

    name: str
    state: ClaimState
    # The claim's name in the pod.
    entry: str = ""
    # The template that the claim was created from.
    template: str = ""
    requests: tuple[str, ...] = ()
    # The allocationTimestamp.
    since: str = ""
    devices: tuple[DeviceTold, ...] = ()
    reserved_for: tuple[Consumer, ...] = ()
    remarks: tuple[str, ...] = ()


class WebhookStory(_Camel, frozen=True, kw_only=True):
    """The decisions that the webhook made or would make about a pod, and the keys that it removed, by container."""

    trust: Trust = Trust.NONE
    removed_keys: dict[str, dict[str, Any]] = {}
    scheduler_name: str = ""
    decisions: tuple[Decision, ...] = ()
    refusals: tuple[Finding, ...] = ()
    # Whether these are the decisions that the webhook would make now, because the pod has no record.
    predicted: bool = False


class PodStory(_Camel, frozen=True, kw_only=True):
    """A pod: its state, what happens next, and what was decided about its devices."""

    name: str
    state: PodState
    phase: str
    node: str
    scheduler: str
    # Its owners, the nearest first.
    owners: tuple[str, ...]
    webhook: WebhookStory
    claims: tuple[ClaimStory, ...]
    # Conditions and messages of its scheduler and its kubelet.
    conditions: tuple[str, ...]
    prospect: Prospect | None
    # The node that has room for it now; "" if no node has, or the pod does not wait for a node.
    room_on: str = ""
    quota: tuple[QuotaUse, ...]


class PodsAlike(_Camel, frozen=True, kw_only=True):
    """Pods of a workload with the same status, and the story of the first."""

    names: tuple[str, ...]
    first: PodStory


class WorkloadStory(_Camel, frozen=True, kw_only=True):
    """A workload and its pods; for a workload without pods, those that its controller would create."""

    kind: str
    name: str
    # How many pods it wants; null if that is not known.
    desired_pods: int | None
    running_pods: int
    pods: tuple[PodsAlike, ...]
    # The decisions about the object's keys; empty for an object that was not read.
    webhook: WebhookStory = WebhookStory()
    # Why its controllers create no pods.
    conditions: tuple[str, ...]


class LoneClaimStory(_Camel, frozen=True, kw_only=True):
    """A single claim, and whether it can be allocated."""

    claim: ClaimStory
    reason: Reason
    # The pods that name the claim.
    pods: tuple[str, ...]
    prospect: Prospect | None
    quota: tuple[QuotaUse, ...]


class Neighbour(_Camel, frozen=True, kw_only=True):
    """Devices of the same pool or node with the same relation to a device: whether both can be in use, why not, and how many are free now."""

    devices: tuple[str, ...]
    usable_together: bool
    stage: str = ""
    text: str = ""
    free_devices: int | None = 0  # null if not all claims were read


class TaintStory(_Camel, frozen=True, kw_only=True):
    """A taint of a device, and its source: the driver or a DeviceTaintRule."""

    taint: str
    source: str
    since: str = ""


class DeviceStory(_Camel, frozen=True, kw_only=True):
    """A device. Its state is free, shared, held or blocked; unknown if not all claims were read; gone if it is no longer published."""

    name: str
    state: str
    slice: str
    # "" if several nodes can reach it.
    node: str
    attributes: dict[str, Any]
    capacity: dict[str, str]
    available: dict[str, str]
    taints: tuple[TaintStory, ...]
    holders: tuple[Holder, ...]
    neighbours: tuple[Neighbour, ...]
    # The DeviceCompatibility objects that concern the device.
    rules: tuple[str, ...]
    remarks: tuple[str, ...]


Story = PodStory | WorkloadStory | LoneClaimStory | DeviceStory


class OfPod(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge explain pod NAME -o json`."""

    pod: PodStory
    configuration: ConfigurationSource
    server: AssumedServer
    # Kinds that could not be read, so the answer leaves them out.
    unread: list[Unread]


class OfWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge explain KIND/NAME -o json`, of a workload."""

    workload: WorkloadStory  # its pods are grouped by status
    configuration: ConfigurationSource
    server: AssumedServer
    unread: list[Unread]


class OfClaim(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge explain claim NAME -o json`."""

    claim: LoneClaimStory
    configuration: ConfigurationSource
    server: AssumedServer
    unread: list[Unread]


class OfDevice(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge explain device NAME -o json`."""

    device: DeviceStory
    configuration: ConfigurationSource
    server: AssumedServer
    unread: list[Unread]
