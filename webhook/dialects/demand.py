"""What a reader answers: what a pod asks for once the dialect is out of the way, and what has to be said about it.

A demand is the only thing dialects hand to `webhook.claims.spec`, and the only thing claims are made of: equal demands make
equal claims, whatever words they were asked in. Numbers are per device and exact; what was lost on the way here stands
in the notes beside it, never in the demand.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from webhook.dialects.table import Action, Role
from webhook.refusals import Code

MIB = 1 << 20
_WHOLE = (None,) * 5
AUTO = "auto"  # for Pairs: the PCIe root or a NUMA node, whichever both sides publish


class Demand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`count` distinct devices of `target`, each at least this much of it."""

    target: str
    count: int = 1
    memory: int | None = None  # bytes of each device
    memory_percent: int | None = None  # of each device's memory: resolved from the sizes the fleet publishes
    cores: int | None = None  # percent of each device's compute; None leaves it to the driver's default
    shares: int | None = None
    bandwidth_percent: int | None = None  # of each device's bandwidth: resolved as memory is
    profile: str = ""  # MIG profile, with its plus sign
    profile_memory: int | None = None  # bytes that the profile must hold at least; the smallest such profile is meant
    resource: str = ""  # the name a NIC is published under (k8s.cni.cncf.io/resourceName)
    models: tuple[str, ...] = ()  # the product name contains one of these, whatever the case
    not_models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()
    same: str = ""  # attribute whose value all the devices share
    virtual_function: bool = False
    rdma: bool = False
    everything: bool = False  # all matching devices of the node (allocationMode All)

    @property
    def partial(self) -> bool:
        """Whether it is less than whole devices, so that only a scheduler that knows shares may see it."""
        parts = (self.memory, self.memory_percent, self.cores, self.shares, self.bandwidth_percent)
        return parts != _WHOLE

    def times(self, count: int) -> Demand:
        """Ask for another number of the same devices."""
        return msgspec.structs.replace(self, count=count)


class Pairs(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Devices of two kinds with the same value of an attribute: one primary and `each` secondaries, `primary.count` times.

    With `each` 0 all of them together have one value, however many of each kind there are.
    """

    primary: Demand
    secondary: Demand
    attribute: str
    each: int = 1


class Together(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one claim asks for, all of its devices with one value of an attribute."""

    members: tuple[Demand | Pairs, ...]
    attribute: str


Asked = Demand | Pairs | Together


def kinds(asked: Asked) -> tuple[Demand, ...]:
    """List what is asked for by kind of device, each with the number of all its devices."""
    match asked:
        case Demand():
            return (asked,)
        case Pairs(primary=primary, secondary=secondary, each=each):
            return primary, secondary.times(each * primary.count) if each else secondary
        case Together(members=members):
            return tuple([kind for member in members for kind in kinds(member)])


class Keyed(NamedTuple):
    """What is asked for, and the key that stands for it in reports; of several kinds of device, also the keys of the others."""

    key: str
    demand: Asked
    beside: tuple[str, ...] = ()


class Note(msgspec.Struct, frozen=True, gc=False):
    """What becomes of one key, where it differs from, or says more than, the key's row."""

    key: str
    action: Action
    detail: str = ""
    about: Role = Role.NONE  # which part of the demand it speaks of, where a reader has to tell notes apart


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why a container or pod can't be admitted as it is, and what to do."""

    key: str
    reason: str
    remedy: str = ""
    code: Code = Code.RULE


class Left(msgspec.Struct, frozen=True, gc=False):
    """Why a container, or the whole pod, stays as it is."""

    key: str
    reason: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a reader makes of a container (or, for dialects of pod scope, of the pod)."""

    demands: tuple[Keyed, ...] = ()
    notes: tuple[Note, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    left: Left | None = None
