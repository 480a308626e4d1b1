"""What a dialect is: a table of keys, each with its unit, its meaning and what becomes of it.

The tables are data. The ones in this package are written as Python values so that types and readers see them; an
administrator's own table is the same structure as YAML in `DrawbridgeConfiguration` (`dialects:`), and `drawbridge
dialects` prints both. A dialect that is only a table is read by `webhook.dialects.plain`; where numbers mean more
than they say, the vocabulary (`webhook.dialects.vocabulary`) brings its own reader beside the table.

Not here: what a target driver publishes (`webhook.state.inventory`) and how a claim looks (`webhook.claims.spec`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_DROPPED = "dropped: "


class Outcome(StrEnum):
    """What becomes of a key, a pod or a workload. The order is the order of how much a reader has to care."""

    TRANSLATED = "translated"
    APPROXIMATED = "approximated"
    SERVED = "served"  # by Kubernetes, with devices of a DeviceClass
    PARTLY = "partly"  # of a pod or a workload whose keys differ
    LEFT = "left"
    UNKNOWN = "unknown"  # no table has the key
    REFUSED = "refused"


REPLACED = (Outcome.TRANSLATED, Outcome.APPROXIMATED)  # what becomes of keys that the translation takes off the pod


class Position(StrEnum):
    """Where on a pod a key stands."""

    RESOURCE = "resource"  # limits and requests of a container
    ANNOTATION = "annotation"
    LABEL = "label"
    ENV = "env"
    NODE_SELECTOR = "nodeSelector"


class Unit(StrEnum):
    """What one of the number is, or how the text is read."""

    COUNT = "count"
    PERCENT = "percent"
    BYTES = "bytes"
    MIB = "MiB"
    GIB = "GiB"
    TEXT = "text"
    LIST = "list"  # separated by commas
    BOOL = "bool"
    JSON = "json"

    @property
    def size(self) -> int:
        """The bytes of one; 1 where it counts no bytes."""
        return {Unit.MIB: 1 << 20, Unit.GIB: 1 << 30}.get(self, 1)


class Role(StrEnum):
    """Which part of a demand a key feeds (`webhook.dialects.vocabulary`). Keys without a role are known, but say nothing to us."""

    NONE = ""
    COUNT = "count"
    MEMORY = "memory"
    MEMORY_PERCENT = "memoryPercent"
    CORES = "cores"
    SHARES = "shares"
    PROFILE = "profile"
    COMBINED = "combined"  # Koordinator: compute and memory percentage in one number
    NIC = "nic"
    RDMA = "rdma"  # network devices that must be able to do RDMA
    PRIORITY = "priority"
    MODELS = "models"
    NOT_MODELS = "notModels"
    UUIDS = "uuids"
    NOT_UUIDS = "notUuids"
    NUMA_BIND = "numaBind"
    CPUS = "cpus"  # how the CPUs of the pod are to be bound
    MODE = "mode"
    POLICY = "policy"
    JOINT = "joint"
    HINT = "hint"
    PARTITION = "partition"
    OPT_OUT = "optOut"
    CLAIMED = "claimed"  # written by another translator: claims exist already
    ASKS = "asks"  # asks for devices by itself, beside no key on a container
    SCHEDULED = "scheduled"  # only the pod's own scheduler keeps what it says: a group, a queue, a quota
    PLACED = "placed"  # written by the legacy scheduler: its presence means the pod has been placed already


class Scope(StrEnum):
    """What the numbers of a dialect speak about."""

    CONTAINER = "container"  # each container on its own
    POD = "pod"  # all containers together


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """One key. `<…>` in a name stands for a part that varies and is handed to the rule."""

    # As pods have it. Of resources one part may vary: `example.com/gpu-<model>`.
    name: str
    # What it says, in a few words.
    meaning: str
    # What one of its number is, or how its text is read; `text` and `list` (at commas) are for names.
    unit: Unit = Unit.COUNT
    # Where on a pod it stands; `nodeSelector` includes required node affinity.
    place: Position = Position.RESOURCE
    # Which part of a request it is; without one it is known, and asks for nothing.
    role: Role = Role.NONE
    # What becomes of it. Where it is left, the container stays as it is.
    outcome: Outcome = Outcome.TRANSLATED
    # What an approximation loses, or why a key is left or refused.
    because: str = ""
    # Other systems use the name too, so the key alone does not prove that the pod speaks this dialect; other words of the pod or
    # `meanings` decide.
    common: bool = False
    # Whole numbers only, within these; a number outside is refused unless the rule says otherwise.
    least: int = 0
    # The largest number that is taken.
    most: int | None = None
    # What the key asks for, where it is not the table's target (`webhook.dialects.plain`).
    target: str = ""
    # It counts only with this value, such as that of a `placed` or `optOut` key; with any other one the key says nothing.
    when: str = ""
    # How the value is read, in CEL over the text `value` (`webhook.dialects.plain`).
    expression: str = ""

    @property
    def is_dropped(self) -> bool:
        """Return whether the translation drops the key, with a loss: no part of a demand comes from it."""
        return self.outcome is Outcome.APPROXIMATED and self.role is Role.NONE

    @property
    def bounds(self) -> str:
        return f"from {self.least} up" if self.most is None else f"{self.least} to {self.most}"

    def takes(self, number: int) -> bool:
        return self.least <= number and (self.most is None or number <= self.most)


# What a key of the role is counted in, or read as, almost everywhere.
_UNITS = {
    **dict.fromkeys((Role.CORES, Role.MEMORY_PERCENT, Role.COMBINED), Unit.PERCENT),
    **dict.fromkeys((Role.MODELS, Role.NOT_MODELS, Role.UUIDS, Role.NOT_UUIDS), Unit.LIST),
    **dict.fromkeys((Role.JOINT, Role.HINT, Role.PARTITION, Role.CPUS), Unit.JSON),
}


def row(name: str, meaning: str, role: Role = Role.NONE, place: Position = Position.RESOURCE, **more: Any) -> Row:
    """Make the row of a key in its role's unit: else a number on a container, and a text elsewhere, as a node's label always."""
    unit = Unit.COUNT if place is Position.RESOURCE else Unit.TEXT
    if place is not Position.NODE_SELECTOR:
        unit = _UNITS.get(role, unit)
    return Row(**{"name": name, "meaning": meaning, "role": role, "place": place, "unit": unit} | more)


def left(name: str, meaning: str, because: str, place: Position = Position.RESOURCE, **more: Any) -> Row:
    """Make the row of a key that stays where it is, and why."""
    return row(name, meaning, more.pop("role", Role.NONE), place, because=because, outcome=Outcome.LEFT, **more)


def placed(name: str, writer: str, place: Position = Position.ANNOTATION) -> Row:
    """Make the row of an output: as an annotation it shows that the pod has been placed already."""
    because = f"written by {writer}: the pod has been placed already and stays as it is"
    return left(name, "an output", because, place, role=Role.PLACED if place is Position.ANNOTATION else Role.NONE)


def dropped(name: str, meaning: str, because: str, **more: Any) -> Row:
    """Make the row of an annotation that has no counterpart in a claim, and what is lost with it."""
    place = Position.ANNOTATION
    return row(name, meaning, place=place, because=say_dropped(because), outcome=Outcome.APPROXIMATED, **more)


def say_dropped(because: str) -> str:
    """Begin the detail of a decision about a key that is dropped."""
    return because if because.startswith(_DROPPED) else f"{_DROPPED}{because}"


def node_label(name: str, meaning: str, role: Role = Role.NONE) -> Row:
    """Make the row of a label that a pod may demand of its node, and that keeps its meaning beside claims."""
    because = "stays where it is: node selectors work with claims, too"
    return left(name, meaning, because, Position.NODE_SELECTOR, role=role)


class Need(msgspec.Struct, frozen=True, gc=False):
    """Something a claim relies on: the gate that brings it, and what it is called in a message."""

    gate: str
    title: str


CLAIMS = Need("DynamicResourceAllocation", "resource claims")
ALTERNATIVES = Need("DRAPrioritizedList", "firstAvailable")
SHARES = Need("DRAConsumableCapacity", "shares of devices (capacity requests, distinctAttribute)")


class Scheduler(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a scheduler makes of claims."""

    # It is built from the cluster's own kube-scheduler.
    like_cluster: bool = False
    # It allocates claims.
    claims: bool = False
    # It tries the alternatives of a request (`firstAvailable`).
    prioritized_list: bool = False
    # It gives out shares of devices.
    shares: bool = False

    def serves(self, need: Need) -> bool:
        if self.like_cluster:
            return True
        own = {CLAIMS: self.claims, ALTERNATIVES: self.prioritized_list, SHARES: self.shares}
        return own[need]


class Dialect(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A vocabulary: whose it is, how far its numbers reach, and its keys."""

    # In lower case, for commands and other parts of the file.
    name: str
    # For people.
    title: str
    # Its keys, each of which belongs to no other table.
    keys: tuple[Row, ...]
    # Whether its numbers are those of a container, or of the whole pod.
    scope: Scope = Scope.CONTAINER
    # For pod scope: every container sees the devices, not only those that ask.
    seen_by_all: bool = False
    # What the keys ask for, unless a row or the rule says otherwise (`webhook.dialects.targets`).
    target: str = "gpu"
    # It comes with its own scheduler that accounts for every device of a pod: two such in one pod contradict.
    system: bool = False
    # Schedulers of its own: a fully translated pod that names one is handed to `targetScheduler`.
    schedulers: tuple[str, ...] = ()
    # Naming one of its schedulers is evidence enough to read common keys in this dialect.
    scheduler_is_evidence: bool = False
    # Devices of its own, given out one by one: where its keys stay, others on the container still move, and the other way round.
    independent: bool = msgspec.field(name="apart", default=False)
    # The legacy system admits no pod of its own with a privileged container in it.
    refuses_privileged: bool = False


class KnownRow(msgspec.Struct, frozen=True, gc=False):
    """A row of a dialect that a key on a pod fits, and what stood for its `<…>`."""

    dialect: Dialect
    row: Row
    part: str = ""


@lru_cache(maxsize=256)
def pattern(name: str) -> Callable[[str], re.Match[str] | None]:
    """Compile a name with `<…>` parts; each part matches what may stand in a resource name."""
    return re.compile(_expression(name)).fullmatch


def pattern_of_any(names: Iterable[str]) -> Callable[[str], re.Match[str] | None]:
    """Compile several such names into one pattern, for texts of which there may be very many."""
    unnamed = (re.sub(r"\(\?P<\w+>", "(?:", _expression(name)) for name in sorted(set(names)))
    return re.compile("|".join(unnamed) or "(?!)").fullmatch


def _expression(name: str) -> str:
    parts = re.split(r"<([A-Za-z]+)>", name)
    return "".join(f"(?P<{part}>[A-Za-z0-9_.+-]+)" if i % 2 else re.escape(part) for i, part in enumerate(parts))
