"""A vocabulary describes one dialect completely. This module also has the arguments and the results of a dialect's reader.

A dialect is one folder with a `VOCABULARY` in its `__init__.py`. No other module names the dialect: the vocabulary defines its targets, its options in
the configuration file, its schedulers, its keys for the webhook configurations, and the meaning of its vendor's node labels. CONTRIBUTING.md describes
how to add one.

A reader is a pure function of a `DialectRequest`. It does not see the pod, the fleet or other dialects, so its tests are tables of cases.
`webhook.translate.translate` finds the keys, removes them and makes the claims. A reader returns demands, and claims depend on nothing else:
equal demands give equal claims, whatever keys they come from. The numbers of a demand are exact and for one device; notes describe what a
translation loses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Annotated, Generic, NamedTuple, TypeVar

import msgspec

from dra.finding import Finding, finding_at
from dra.reason import Reason
from webhook.dialects.table import Dialect, Outcome, Role, Row, SchedulerSupport, Unit, dropped_detail
from webhook.dialects.targets import Target
from webhook.refusals import Code

MIB = 1 << 20
MAX_MIB = 2**31  # HAMi and Volcano store MiB in an int32
POD_LIMIT = 128  # devices of one pod
_NO_AMOUNTS = (None,) * 6
AUTO = "auto"  # for Pairs: the PCIe root, or else the NUMA node, if both kinds of device publish it


class Demand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request for `count` distinct devices of `target`; if amounts are set, for that part of each device."""

    target: str
    count: int = 1
    memory: int | None = None  # bytes of each device
    # Percent of each device's memory; the sizes that the fleet publishes give the bytes.
    memory_percent: int | Fraction | None = None
    # Percent of each device's compute; if the target is CPUs (`host_targets`), the number of CPUs. None is the driver's default.
    cores: int | None = None
    shares: int | None = None
    cpus: int | None = None  # exclusive CPUs of one container; more than one device may provide them
    bandwidth_percent: int | None = None  # percent of each device's bandwidth, which the fleet publishes
    profile: str = ""  # MIG profile, including a "+me" at its end
    profile_memory: int | None = None  # bytes: the smallest MIG profile with at least this memory is requested
    resource: str = ""  # the pool name that a network device publishes (k8s.cni.cncf.io/resourceName)
    models: tuple[str, ...] = ()  # the product name contains one of these, ignoring case
    not_models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()
    attributes: tuple[NodeRequirement, ...] = ()  # requirements on attributes, by full name
    same_attribute: str = ""  # attribute with the same value on all the devices
    virtual_function: bool = False
    rdma: bool = False
    everything: bool = False  # all matching devices of the node (allocationMode All)
    # For devices that a device plugin gives to many pods: all matching devices of the node if most nodes publish them as shareable, else
    # one whole device.
    shared_access: bool = False

    @property
    def partial(self) -> bool:
        """Return whether the demand is for parts of devices, so that the scheduler must support shares."""
        amounts = (self.memory, self.memory_percent, self.cores, self.shares, self.cpus, self.bandwidth_percent)
        return amounts != _NO_AMOUNTS

    def times(self, count: int) -> Demand:
        return msgspec.structs.replace(self, count=count)


class Pairs(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Devices of two kinds in groups of one primary and `each` secondaries; the devices of a group share the value of an attribute.

    There are `primary.count` groups. If `each` is 0, all devices of both kinds form one group.
    """

    primary: Demand
    secondary: Demand
    attribute: str
    each: int = 1


class TiedDemands(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Demands for one claim, whose devices all share the value of an attribute.

    If `required` is false, they share it only where nodes publish it.
    """

    members: tuple[Demand | Pairs, ...]
    attribute: str
    required: bool = True


AnyDemand = Demand | Pairs | TiedDemands


def kinds(demand: AnyDemand) -> tuple[Demand, ...]:
    """Return the demands by kind of device, each with the count of all devices of that kind."""
    match demand:
        case Demand():
            return (demand,)
        case Pairs(primary=primary, secondary=secondary, each=each):
            return primary, secondary.times(each * primary.count) if each else secondary
        case TiedDemands(members=members):
            return tuple([kind for member in members for kind in kinds(member)])


class KeyedDemand(NamedTuple):
    """A demand, the key by which reports name the demand, and the keys of its other kinds of device."""

    key: str
    demand: AnyDemand
    other_keys: tuple[str, ...] = ()


class Note(msgspec.Struct, frozen=True, gc=False):
    """What becomes of one key, if that differs from the key's row or needs more detail."""

    key: str
    outcome: Outcome
    detail: str = ""
    # The part of the demand that the note is about. Only set if the reader later removes the notes about that part.
    about: Role = Role.NONE
    code: str = ""  # the code of a finding, which is a warning whatever `approximations` says
    is_dropped: bool = False  # no claim expresses the key, and the container's other keys become claims nevertheless

    @classmethod
    def of_dropped(cls, key: str, because: str) -> Note:
        """Return the note of a key that no claim expresses. `because` says what is lost."""
        return cls(key, Outcome.APPROXIMATED, dropped_detail(because), is_dropped=True)

    @classmethod
    def of_clamped(cls, cores: Amount) -> Note:
        """Return the note of more than 100 % of a device's compute, which HAMi takes for 100 %."""
        return cls(cores.key, Outcome.TRANSLATED, f"{cores.value} counts as 100, as for HAMi", code="D224")


class DialectAnswer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The demands of a container (for dialects of pod scope, of the pod), and what becomes of its keys."""

    demands: tuple[KeyedDemand, ...] = ()
    notes: tuple[Note, ...] = ()
    # The containers that get the devices, if the keys are not on containers.
    containers: tuple[str, ...] = ()


def leave(key: str, text: str, code: str = "") -> Reason:
    """Return why a container, or the whole pod, stays as it is because of one of its keys.

    `code` is that of a finding about the key. If the dialect does not have the key, the report then gives it the outcome `unknown`.
    """
    return Reason(causes=(key,), text=text, code=code)


def refuse(key: str, text: str, remedy: str = "", code: str = Code.RULE) -> Reason:
    """Return why the webhook refuses a pod because of one of its keys; `translate` turns the reason into a Finding."""
    return Reason(causes=(key,), text=text, code=code, never=True, remedies=(remedy,) if remedy else ())


def count_of(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


# The arguments of a reader


def mistake(path: str, message: str, remedy: str) -> Finding:
    return finding_at("C001", path, message, remedy)


class DialectOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The administrator's settings of a dialect, where they differ from the defaults: a field of the configuration file, with the dialect's name."""

    def mistakes(self) -> Iterable[Finding]:
        """Yield findings about invalid values of the right type, with pointers below the dialect's name."""
        return ()

    def table(self, table: Dialect) -> Dialect:
        """Return the dialect's table under these options."""
        return table

    def host_targets(self) -> Mapping[str, str]:
        """Return the native resources (cpu, hugepages) for which claims also request devices, each with the target of these devices."""
        return {}

    def named_targets(self) -> Mapping[str, str]:
        """Return the targets that the options name, by pointers below the dialect's name."""
        return {}


class FactorOptions(DialectOptions, frozen=True, kw_only=True):
    """Options of a system whose unit of memory is several MiB."""

    # MiB of one unit of memory: the plugin's `gpuMemoryFactor`, or `gpu-memory-factor`.
    memory_factor: Annotated[int, msgspec.Meta(ge=1, le=MAX_MIB - 1)] = 1


# The text of a hint whose value is unknown before the container starts.
UNREADABLE = "\0"
O = TypeVar("O", bound=DialectOptions)  # noqa: E741  as short as T, and it stands for Options


class Amount(msgspec.Struct, frozen=True, gc=False):
    """A resource key on a container, with a whole number that the API server accepts."""

    key: str
    row: Row
    value: int
    part: str = ""  # the part that stands for `<…>` of the row's name


class Hint(msgspec.Struct, frozen=True, gc=False):
    """An annotation, label, variable or node selector that a dialect knows."""

    key: str
    row: Row
    text: str
    # The entries of a list, trimmed and without empty ones. They are split once, because every container needs them.
    entries: tuple[str, ...] = ()

    @classmethod
    def from_row(cls, key: str, row: Row, text: str) -> Hint:
        if row.unit is not Unit.LIST:
            return cls(key, row, text)
        parts = [part.strip() for part in text.split(",")]
        entries = tuple(part for part in parts if part)
        return cls(key, row, text, entries)


class NodeRequirement(NamedTuple):
    """A requirement on a node label or on a device attribute, in the form of a required node affinity."""

    key: str
    operator: str
    values: tuple[str, ...]


class Selected(NamedTuple):
    """A pod's requirements on node labels: a node must meet all requirements of `always`, and all of at least one of the `terms`."""

    always: tuple[NodeRequirement, ...] = ()
    terms: tuple[tuple[NodeRequirement, ...], ...] = ()


class ContainerAmounts(msgspec.Struct, frozen=True, gc=False):
    """The amounts of one container in a dialect.

    `init` is true for sidecars too; an `ordinary_init` container ends before the next container starts.
    """

    name: str
    amounts: tuple[Amount, ...]
    ordinary_init: bool = False
    init: bool = False

    def amount_of(self, role: Role) -> Amount | None:
        for amount in self.amounts:
            if amount.row.role is role:
                return amount
        return None

    def number(self, role: Role, default: int = 0) -> int:
        amount = self.amount_of(role)
        return default if amount is None else amount.value


class Meaning(msgspec.Struct, frozen=True, gc=False):
    """The meaning of one unit of a key that several systems use: a whole device, a MIG device of a profile, or a replica.

    If the meaning is unclear, or if no claim can express it, `left` says why the key stays.
    """

    profile: str = ""
    replica: bool = False
    left: Reason | None = None
    basis: str = ""  # what shows this meaning, as text for a message
    assumed: bool = False  # nothing shows this meaning; it is the usual one
    # Whether the key stays only because the meaning is uncertain; the administrator can declare the meaning (`meanings`).
    doubt: bool = False


WHOLE = Meaning()


class DialectRequest(msgspec.Struct, Generic[O], frozen=True, kw_only=True, gc=False):
    """The argument of a reader: the amounts of one container, or in pod scope those of every container that has any."""

    table: Dialect
    containers: tuple[ContainerAmounts, ...]
    options: O
    hints: Mapping[Role, Hint] = {}
    unit: Meaning = WHOLE  # the meaning of one unit of a bare count
    pools: Mapping[str, str] = {}  # resource name → the devices that the device plugin's configuration selects for it
    # The whole pod's requests of the resources of `host_targets`, in billionths.
    host: Mapping[str, int] = {}


KeyAnswer = tuple[Demand, Outcome, str]  # the demand of one key, the outcome of the key, and the detail of its note


def read_each(
    request: DialectRequest[O], read_key: Callable[[Amount, DialectRequest[O]], KeyAnswer | Reason]
) -> DialectAnswer | Reason:
    """Read one container whose keys are independent of each other: `read_key` returns the demand of each key with an amount above 0.

    If one of these keys stays on the container, all of them stay.
    """
    demands: list[KeyedDemand] = []
    notes: list[Note] = []
    for amount in request.containers[0].amounts:
        if not amount.value:
            continue
        if amount.row.outcome is Outcome.LEFT:
            return leave(amount.key, amount.row.because)
        answer = read_key(amount, request)
        if isinstance(answer, Reason):
            return answer
        demand, outcome, text = answer
        demands.append(KeyedDemand(amount.key, demand))
        notes.append(Note(amount.key, outcome, text))
    return DialectAnswer(demands=tuple(demands), notes=tuple(notes))


class AnnotatedPod(msgspec.Struct, Generic[O], frozen=True, kw_only=True, gc=False):
    """The argument of a reader for pods that request devices by annotation or label."""

    # Annotations, labels and variables of the dialect, by their names in its own table.
    texts: Mapping[str, Hint]
    options: O
    containers: tuple[str, ...]
    init_containers: tuple[str, ...] = ()
    # Resource keys on containers that request such devices too.
    container_keys: tuple[str, ...] = ()


# A whole dialect


class BareKey(msgspec.Struct, frozen=True, gc=False):
    """How to find the meaning of one unit of a common key (`Row.common`) if nothing shows which system the pod uses."""

    # The texts that an administrator may declare under `meanings`, for a message.
    choices: str
    # Returns the meaning of such a text other than `whole`; None if it is not one of the choices.
    declared_part: Callable[[str], Meaning | None] = lambda _: None
    # Returns the meaning that the pod's requirements on node labels show; None if they show none.
    selected_meaning: Callable[[Selected], Meaning | None] = lambda _: None
    # Returns the label by which a node shows that its units are not whole devices; "" if none does.
    sharing_label: Callable[[Mapping[str, str]], str] = lambda _: ""
    # Whether a node that publishes devices of the class, but none of the target, is evidence that a unit is a part of a device.
    parts: bool = False

    def declared(self, text: str) -> Meaning | None:
        """Return the meaning that a text under `meanings` declares; None if it is not one of the choices."""
        return WHOLE if text == "whole" else self.declared_part(text)


class Vocabulary(msgspec.Struct, Generic[O], frozen=True, kw_only=True):
    """A dialect with its targets, reader, options and schedulers."""

    table: Dialect
    # The kinds of device that its keys may request, unless another dialect describes them.
    targets: tuple[Target, ...] = ()
    # Reads the keys of one container, or of all containers in pod scope.
    read: Callable[[DialectRequest[O]], DialectAnswer | Reason]
    # The type of its options in the configuration file.
    options: type[O]
    # The features of claims that its own schedulers support, by scheduler name.
    schedulers: Mapping[str, SchedulerSupport] = {}
    # Set if this dialect reads a common key when nothing shows which system the pod uses.
    bare: BareKey | None = None
    # Reads a pod that requests devices by annotation or label, if the options let it be translated.
    read_pod: Callable[[AnnotatedPod[O]], DialectAnswer | Reason] | None = None
