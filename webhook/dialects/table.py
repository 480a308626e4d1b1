"""A dialect is a table of the keys of one system or device plugin: the unit and the meaning of each key, and what becomes of it.

The tables of this package are Python values. An administrator writes further tables of the same form as YAML, under `dialects` in the
DrawbridgeConfiguration; `drawbridge dialects` prints both. `webhook.dialects.plain` reads dialects that consist of a table only. Other
dialects have a reader of their own (`webhook.dialects.vocabulary`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_DROPPED = "dropped: "
_Text = Annotated[str, msgspec.Meta(max_length=1_024)]


class Outcome(StrEnum):
    """What becomes of a key, a pod or a workload; the outcomes that need most attention come last."""

    TRANSLATED = "translated"
    APPROXIMATED = "approximated"
    SERVED = "served"  # by Kubernetes itself, with devices of a DeviceClass
    PARTLY = "partly"  # for a pod or a workload whose keys have different outcomes
    LEFT = "left"  # the key stays on the pod, and no claim replaces it
    UNKNOWN = "unknown"  # no table has the key
    REFUSED = "refused"


REPLACED = (Outcome.TRANSLATED, Outcome.APPROXIMATED)  # the outcomes of keys that the translation removes from the pod


class Position(StrEnum):
    """Where on a pod a key is found."""

    RESOURCE = "resource"  # limits and requests of a container
    ANNOTATION = "annotation"
    LABEL = "label"
    ENV = "env"
    NODE_SELECTOR = "nodeSelector"


class Unit(StrEnum):
    """The unit of a number, or the form of a text."""

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
        """Bytes per unit; 1 unless the unit is MiB or GiB."""
        return {Unit.MIB: 1 << 20, Unit.GIB: 1 << 30}.get(self, 1)


class Role(StrEnum):
    """The part of a demand that a key sets (`webhook.dialects.vocabulary`). Keys with no role are known but request nothing."""

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
    CPUS = "cpus"  # how the pod's CPUs are bound
    MODE = "mode"
    POLICY = "policy"
    JOINT = "joint"
    HINT = "hint"
    PARTITION = "partition"
    OPT_OUT = "optOut"
    CLAIMED = "claimed"  # written by another translator: claims exist already
    REQUESTS_DEVICES = "requestsDevices"  # requests devices by itself, without a resource key
    SCHEDULED = "scheduled"  # has an effect only in the pod's own scheduler: a group, a queue, a quota
    PLACED = "placed"  # written by the legacy scheduler, so the pod has been placed already


class Scope(StrEnum):
    """What the numbers of a dialect are for."""

    CONTAINER = "container"  # one container
    POD = "pod"  # all containers together


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """One key. `<…>` in a name is a part that varies; the dialect's reader gets its value."""

    # The name of the key on pods. One part of a resource name may vary: `example.com/gpu-<model>`.
    name: str
    # The meaning of the key in a few words.
    meaning: _Text
    # The unit of the number, or the form of the text: `text` is one name, `list` several names with commas.
    unit: Unit = Unit.COUNT
    # Where on a pod the key is; `nodeSelector` includes required node affinity.
    place: Position = Position.RESOURCE
    # The part of a request that the key sets; a key without a role is known but requests nothing.
    role: Role = Role.NONE
    # What becomes of the key. If the outcome is `left`, the container stays as it is.
    outcome: Outcome = Outcome.TRANSLATED
    # What an approximation loses, or why the key stays or is refused.
    because: _Text = ""
    # Whether other systems use the name too. Then the key alone does not show which system a pod was written for: other keys of
    # the pod or `meanings` decide.
    common: bool = False
    # The smallest valid number. An amount that is not a whole number from `least` to `most` is refused.
    least: int = 0
    # The largest valid number; no limit if not set.
    most: int | None = None
    # The target that the key requests, if it is not the target of the table.
    target: str = ""
    # The only value with which the key has an effect, such as `true` for a `placed` or `optOut` key.
    when: _Text = ""
    # A CEL expression that computes the number or the names from the text `value`.
    expression: str = ""

    @property
    def is_dropped(self) -> bool:
        """Return whether claims ignore the key: its outcome is `approximated`, and it sets no part of a demand."""
        return self.outcome is Outcome.APPROXIMATED and self.role is Role.NONE

    @property
    def bounds(self) -> str:
        return f"from {self.least} up" if self.most is None else f"{self.least} to {self.most}"

    def takes(self, number: int) -> bool:
        return self.least <= number and (self.most is None or number <= self.most)


# The usual unit of a role.
_UNITS = {
    **dict.fromkeys((Role.CORES, Role.MEMORY_PERCENT, Role.COMBINED), Unit.PERCENT),
    **dict.fromkeys((Role.MODELS, Role.NOT_MODELS, Role.UUIDS, Role.NOT_UUIDS), Unit.LIST),
    **dict.fromkeys((Role.JOINT, Role.HINT, Role.PARTITION, Role.CPUS), Unit.JSON),
}


def row(name: str, meaning: str, role: Role = Role.NONE, place: Position = Position.RESOURCE, **more: Any) -> Row:
    """Return the row of a key. Node labels are text. Other keys have their role's unit, by default count for resources and text elsewhere."""
    unit = Unit.COUNT if place is Position.RESOURCE else Unit.TEXT
    if place is not Position.NODE_SELECTOR:
        unit = _UNITS.get(role, unit)
    return Row(**{"name": name, "meaning": meaning, "role": role, "place": place, "unit": unit} | more)


def untranslated(name: str, meaning: str, because: str, place: Position = Position.RESOURCE, **more: Any) -> Row:
    """Return the row of a key that stays on the pod, with the reason."""
    return row(name, meaning, more.pop("role", Role.NONE), place, because=because, outcome=Outcome.LEFT, **more)


def placed(name: str, writer: str, place: Position = Position.ANNOTATION) -> Row:
    """Return the row of a key that a system writes. An annotation of this kind shows that the pod has been placed already."""
    because = f"written by {writer}: the pod has been placed already and stays as it is"
    return untranslated(
        name, "an output", because, place, role=Role.PLACED if place is Position.ANNOTATION else Role.NONE
    )


def dropped(name: str, meaning: str, because: str, **more: Any) -> Row:
    """Return the row of an annotation that a claim cannot express. `because` says what is lost."""
    place = Position.ANNOTATION
    return row(name, meaning, place=place, because=dropped_detail(because), outcome=Outcome.APPROXIMATED, **more)


def dropped_detail(because: str) -> str:
    """Return the detail of a decision about a key that claims ignore."""
    return because if because.startswith(_DROPPED) else f"{_DROPPED}{because}"


def node_label(name: str, meaning: str, role: Role = Role.NONE) -> Row:
    """Return the row of a node label, which selects nodes for pods with claims too."""
    because = "stays where it is: node selectors work with claims, too"
    return untranslated(name, meaning, because, Position.NODE_SELECTOR, role=role)


class Need(msgspec.Struct, frozen=True, gc=False):
    """A feature of Kubernetes that a claim needs: its feature gate, and its name in messages."""

    gate: str
    title: str


CLAIMS = Need("DynamicResourceAllocation", "resource claims")
ALTERNATIVES = Need("DRAPrioritizedList", "firstAvailable")
SHARES = Need("DRAConsumableCapacity", "shares of devices (capacity requests, distinctAttribute)")


class SchedulerSupport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A scheduler's support for claims."""

    # Whether it supports what the cluster's kube-scheduler supports.
    like_cluster: bool = False
    # Whether it allocates claims.
    claims: bool = False
    # Whether it tries the alternatives of a request (`firstAvailable`).
    prioritized_list: bool = False
    # Whether it allocates shares of devices.
    shares: bool = False

    def serves(self, need: Need) -> bool:
        if self.like_cluster:
            return True
        own = {CLAIMS: self.claims, ALTERNATIVES: self.prioritized_list, SHARES: self.shares}
        return own[need]


class Dialect(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The keys of one system or device plugin."""

    # The name in commands and in other parts of the file, in lower case.
    name: str
    # The name in messages.
    title: _Text
    # Its keys. Unless it is `common`, a key is in no other table.
    keys: tuple[Row, ...]
    # Whether its numbers are for one container or for the whole pod.
    scope: Scope = Scope.CONTAINER
    # For pod scope: whether all containers get the devices, not only those that request them.
    seen_by_all: bool = False
    # The target that its keys request, unless a row names another.
    target: str = "gpu"
    # Whether it has its own scheduler that accounts for all devices of a pod: a pod with keys of two such systems stays as it is.
    system: bool = False
    # Its own schedulers. A pod that names one of them is assigned to `targetScheduler` if all its keys are translated.
    schedulers: tuple[str, ...] = ()
    # Whether common keys are read by this dialect if the pod names one of its schedulers.
    scheduler_is_evidence: bool = False
    # Whether its keys are translated even if other keys of the container stay.
    independent: bool = msgspec.field(name="apart", default=False)
    # Whether the legacy system refuses pods with a privileged container.
    refuses_privileged: bool = False

    def target_of(self, key: str) -> str:
        """Return the target that a key requests if nothing shows another meaning of its unit."""
        return next((row.target for row in self.keys if row.name == key), "") or self.target


class KnownRow(msgspec.Struct, frozen=True, gc=False):
    """The row of a key on a pod, with its dialect and the part that matched `<…>`."""

    dialect: Dialect
    row: Row
    part: str = ""


@lru_cache(maxsize=256)
def pattern(name: str) -> Callable[[str], re.Match[str] | None]:
    """Compile a name with `<…>` parts; a part matches the characters of resource names."""
    return re.compile(_expression(name)).fullmatch


def pattern_of_any(names: Iterable[str]) -> Callable[[str], re.Match[str] | None]:
    """Compile several names with `<…>` parts into one pattern, which is faster on many texts."""
    unnamed = (re.sub(r"\(\?P<\w+>", "(?:", _expression(name)) for name in sorted(set(names)))
    return re.compile("|".join(unnamed) or "(?!)").fullmatch


def _expression(name: str) -> str:
    parts = re.split(r"<([A-Za-z]+)>", name)
    return "".join(f"(?P<{part}>[A-Za-z0-9_.+-]+)" if i % 2 else re.escape(part) for i, part in enumerate(parts))
