"""A vocabulary: everything there is to know about one dialect, as one value, and what its reader is given and answers.

A dialect is one module with a `VOCABULARY`, and one line in `webhook.dialects`. Nothing else names it: its part of the
configuration file, its schedulers, its keys in the webhook configurations and what its vendor's node labels mean are all
found here. CONTRIBUTING.md says how to add one.

A reader is pure arithmetic on a `DialectRequest`. It never sees the pod, the fleet or other dialects, so what it decides can be written into a
table of cases; finding the keys, removing them and making claims is the work of `webhook.translate.translate`. It answers with
demands, the only thing claims are made of: equal demands make equal claims, whatever keys they were asked by. Numbers are
per device and exact; a loss on the way is in the notes beside a demand, never in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Generic, NamedTuple, TypeVar

import msgspec

from dra.finding import Finding, finding_at
from webhook.dialects.table import Dialect, Outcome, Role, Row, Scheduler, Unit, say_dropped
from webhook.refusals import Code

MIB = 1 << 20
MOST_MIB = 2**31  # HAMi and Volcano keep MiB in an int32
POD_LIMIT = 128  # devices of one pod
_WHOLE = (None,) * 6
AUTO = "auto"  # for Pairs: the PCIe root or a NUMA node, whichever both kinds of device have


class Demand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`count` distinct devices of `target`, each at least this much of it."""

    target: str
    count: int = 1
    memory: int | None = None  # bytes of each device
    # Of each device's memory: resolved from the sizes the fleet publishes.
    memory_percent: int | Fraction | None = None
    cores: int | None = None  # percent of each device's compute; None leaves it to the driver's default
    shares: int | None = None
    cpus: int | None = None  # CPUs for one container alone, of one device or of several
    bandwidth_percent: int | None = None  # of each device's bandwidth: resolved as memory is
    profile: str = ""  # MIG profile, with its plus sign
    profile_memory: int | None = None  # bytes that the profile must hold at least; the smallest such profile is meant
    resource: str = ""  # the name a NIC is published under (k8s.cni.cncf.io/resourceName)
    models: tuple[str, ...] = ()  # the product name contains one of these, whatever the case
    not_models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()
    attributes: tuple[Selection, ...] = ()  # what its attributes, by full name, must be
    same: str = ""  # attribute whose value all the devices share
    virtual_function: bool = False
    rdma: bool = False
    everything: bool = False  # all matching devices of the node (allocationMode All)
    shared_access: bool = (
        False  # to devices that pods share: all matching ones of the node if they can be shared, else one whole
    )

    @property
    def partial(self) -> bool:
        """Return whether it is less than whole devices, so that only a scheduler that knows shares may see it."""
        parts = (self.memory, self.memory_percent, self.cores, self.shares, self.cpus, self.bandwidth_percent)
        return parts != _WHOLE

    def times(self, count: int) -> Demand:
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


def kinds(demand: Asked) -> tuple[Demand, ...]:
    """List what is asked for by kind of device, each with the number of all its devices."""
    match demand:
        case Demand():
            return (demand,)
        case Pairs(primary=primary, secondary=secondary, each=each):
            return primary, secondary.times(each * primary.count) if each else secondary
        case Together(members=members):
            return tuple([kind for member in members for kind in kinds(member)])


class KeyedDemand(NamedTuple):
    """What is asked for, and the key that stands for it in reports; of several kinds of device, also the keys of the others."""

    key: str
    demand: Asked
    other_keys: tuple[str, ...] = ()


class Note(msgspec.Struct, frozen=True, gc=False):
    """What becomes of one key, where it differs from, or says more than, the key's row."""

    key: str
    outcome: Outcome
    detail: str = ""
    about: Role = Role.NONE  # which part of the demand it speaks of, where a reader has to tell notes apart
    code: str = ""  # of a finding: the pod is warned, whatever `approximations` says
    is_dropped: bool = False  # the key has no counterpart in a claim, but the container's request has

    @classmethod
    def of_dropped(cls, key: str, because: str) -> Note:
        """Note that a key is dropped, and what is lost with it."""
        return cls(key, Outcome.APPROXIMATED, say_dropped(because), is_dropped=True)


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why a container or pod can't be admitted as it is, and what to do: the outcome of one key, from which `translate` makes a Finding."""

    key: str
    reason: str
    remedy: str = ""
    code: str = Code.RULE


class Untranslated(msgspec.Struct, frozen=True, gc=False):
    """Why a container, or the whole pod, stays as it is. No Finding: the key is left, and nothing need be wrong."""

    key: str
    reason: str
    code: str = (
        ""  # of the finding that it is; of another key than the request's it means that this one is not understood
    )
    served: bool = False  # core serves the key by the name of a class


class DialectAnswer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a reader makes of a container (or, for dialects of pod scope, of the pod)."""

    demands: tuple[KeyedDemand, ...] = ()
    notes: tuple[Note, ...] = ()
    # The containers that get the devices, where no key on a container says so.
    containers: tuple[str, ...] = ()


Stop = Refusal | Untranslated  # a reader's whole answer where it refuses the pod, or leaves it


def several(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


# What a reader is given


def mistake(path: str, message: str, remedy: str) -> Finding:
    return finding_at("C001", path, message, remedy)


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How a system is set up where not by default; a field of the configuration file, under its dialect's name."""

    def mistakes(self) -> Iterable[Finding]:
        """List what fits the shape but makes no sense, with pointers below the dialect's name."""
        return ()

    def table(self, table: Dialect) -> Dialect:
        return table

    def of_host(self) -> Mapping[str, str]:
        """Name the resources of the pod itself that are asked for by claims, too: each with its kind of device."""
        return {}

    def named_targets(self) -> Mapping[str, str]:
        """List the targets that are named, by pointers below the dialect's name."""
        return {}


class FactorOptions(Options, frozen=True, kw_only=True):
    """How a system is set up whose numbers count several MiB each."""

    memory_factor: int = 1  # MiB that one of memory counts: the plugin's `gpuMemoryFactor`, or `gpu-memory-factor`.

    def mistakes(self) -> Iterable[Finding]:
        if not 1 <= self.memory_factor < MOST_MIB:
            yield mistake("/memoryFactor", f"{self.memory_factor} MiB is not a unit of memory", "write 1 or more")


# Stands for the text of a hint whose value is unknown before the container starts.
UNREADABLE = "\0"
O = TypeVar("O", bound=Options)  # noqa: E741  as short as T, and it stands for Options


class Amount(msgspec.Struct, frozen=True, gc=False):
    """A resource key on a container: a whole number, already checked as the API server would have."""

    key: str
    row: Row
    value: int
    part: str = ""  # what stood for the `<…>` of the row's name


class Hint(msgspec.Struct, frozen=True, gc=False):
    """An annotation, label, variable or selector of the pod that a dialect knows."""

    key: str
    row: Row
    text: str
    # Of a list, its parts, trimmed, empty ones dropped: split once, since every container asks for them.
    entries: tuple[str, ...] = ()

    @classmethod
    def from_row(cls, key: str, row: Row, text: str) -> Hint:
        if row.unit is not Unit.LIST:
            return cls(key, row, text)
        parts = [part.strip() for part in text.split(",")]
        entries = tuple(part for part in parts if part)
        return cls(key, row, text, entries)


class Selection(NamedTuple):
    """A requirement on a label of a node, or on an attribute of a device, as a required affinity writes it."""

    key: str
    operator: str
    values: tuple[str, ...]


class Selected(NamedTuple):
    """All that a pod demands of its node's labels: what holds in any case, and alternatives of which one has to hold."""

    always: tuple[Selection, ...] = ()
    terms: tuple[tuple[Selection, ...], ...] = ()


class ContainerAmounts(msgspec.Struct, frozen=True, gc=False):
    """The amounts of one container in a dialect. `ordinary_init`: it ends before the others begin."""

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
    """What a unit of a name is that several systems use: a whole device, a MIG device of a profile, a replica, or unclear."""

    profile: str = ""
    replica: bool = False
    left: Untranslated | None = None
    basis: str = ""  # what this rests on, in words for people
    assumed: bool = False  # it rests on nothing but what the key most often means
    # It is left for a doubt only, which an administrator's word settles.
    doubt: bool = False


WHOLE = Meaning()


class DialectRequest(msgspec.Struct, Generic[O], frozen=True, kw_only=True, gc=False):
    """All that a reader may know: one container's amounts, or in pod scope those of every container that has any."""

    table: Dialect
    containers: tuple[ContainerAmounts, ...]
    options: O
    hints: Mapping[Role, Hint] = {}
    unit: Meaning = WHOLE  # of a bare count, where the vocabulary says what one can be
    pools: Mapping[str, str] = {}  # what a device plugin's configuration says of the devices of a resource name
    # What the whole pod requests of resources that claims are made for (`of_host`), in billionths.
    host: Mapping[str, int] = {}


KeyAnswer = tuple[Demand, Outcome, str]  # what one key asks for, what becomes of it, and that in words


def read_each(
    request: DialectRequest[O], ask: Callable[[Amount, DialectRequest[O]], KeyAnswer | Stop]
) -> DialectAnswer | Stop:
    """Read one container whose keys each stand for themselves; one that is left leaves the container, and 0 asks for nothing."""
    demands: list[KeyedDemand] = []
    notes: list[Note] = []
    for amount in request.containers[0].amounts:
        if not amount.value:
            continue
        if amount.row.outcome is Outcome.LEFT:
            return Untranslated(amount.key, amount.row.because)
        answer = ask(amount, request)
        if isinstance(answer, Stop):
            return answer
        demand, outcome, text = answer
        demands.append(KeyedDemand(amount.key, demand))
        notes.append(Note(amount.key, outcome, text))
    return DialectAnswer(demands=tuple(demands), notes=tuple(notes))


class AskingPod(msgspec.Struct, Generic[O], frozen=True, kw_only=True, gc=False):
    """All that a reader may know of a pod that asks by annotation or label."""

    # Annotations, labels and variables of the dialect, by their names in its own table.
    texts: Mapping[str, Hint]
    options: O
    containers: tuple[str, ...]
    init_containers: tuple[str, ...] = ()
    # Keys on containers that ask for such devices as well.
    container_keys: tuple[str, ...] = ()


# The whole of a dialect


class BareKey(msgspec.Struct, frozen=True, gc=False):
    """What a unit of a key can be that no other system claims: the vendor's knowledge of what gives its meaning away."""

    # What a unit is if nothing shows otherwise (`webhook.dialects.targets`).
    target: str
    # What an administrator may declare it to be (`meanings`), in a message, and what else than `whole` is read; None for other texts.
    choices: str
    part: Callable[[str], Meaning | None] = lambda _: None
    # What the pod gives away by what it demands of its node; None if nothing.
    pod: Callable[[Selected], Meaning | None] = lambda _: None
    # Which label of a node says that its units are not whole devices; "" if none does.
    node: Callable[[Mapping[str, str]], str] = lambda _: ""
    # Key: the kind of device of a unit, where keys differ in it.
    targets: Mapping[str, str] = {}
    # Whether a node that publishes devices of the class, and none of the target, shows that a unit is a part of one.
    parts: bool = False

    def declared(self, text: str) -> Meaning | None:
        """Return what an administrator declares a unit to be; None for a text that is not one of the choices."""
        return WHOLE if text == "whole" else self.part(text)


class Vocabulary(msgspec.Struct, Generic[O], frozen=True, kw_only=True):
    """A table of keys and what goes with it."""

    table: Dialect
    # How the keys are read. In container scope it gets one container at a time.
    read: Callable[[DialectRequest[O]], DialectAnswer | Stop]
    # Its part of the configuration file.
    options: type[O]
    # What its own schedulers make of claims.
    schedulers: Mapping[str, Scheduler] = {}
    # For dialects that read a name which several systems use when no system claims it.
    bare: BareKey | None = None
    # How a pod is read that asks by annotation or label, where options have it translated.
    read_pod: Callable[[AskingPod[O]], DialectAnswer | Stop] | None = None
