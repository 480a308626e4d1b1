"""A case: the keys of one dialect on one container, or on the whole pod, and their outcome.

`make_cases` calls the dialect's reader, which turns the keys into demands; `webhook.translate.checks` finds the claims that serve the
demands. At each step a case may be refused, or left untranslated. Cases are not used outside of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from dra.raw import items, mapping, members
from dra.reason import Reason
from webhook.claims import ServedDemand
from webhook.dialects import (
    REPLACED,
    UNREADABLE,
    WHOLE,
    Amount,
    AnnotatedPod,
    ContainerAmounts,
    Demand,
    Dialect,
    DialectAnswer,
    DialectRequest,
    Hint,
    KeyedDemand,
    KnownRow,
    Meaning,
    Note,
    Outcome,
    Position,
    Role,
    Row,
    Scope,
    leave,
    pattern,
    refuse,
)
from webhook.refusals import INVALID, Code
from webhook.translate.cpus import CPU, CPU_DIALECT, TARGET, claim_for_cpus
from webhook.translate.limits import BYTES
from webhook.translate.owner import shared_by_plugin, text_of, unit_meaning
from webhook.translate.pod_view import LegacyKey, Slot, number, requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dra.wire import Json
    from webhook.state import Configuration, Inventory, State
    from webhook.translate.owner import Owners
    from webhook.translate.pod_view import PodView
    from webhook.translate.record import WrittenRecord

_SlotKeys = tuple[Slot, tuple[LegacyKey, ...]]  # the keys of one container


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One dialect's keys on some containers, and their outcome."""

    dialect: Dialect
    # In a case, each key has exactly one known row.
    slot_keys: tuple[_SlotKeys, ...]
    container: str = ""  # "" if the case is about the pod
    keys: tuple[str, ...] = ()
    demands: tuple[KeyedDemand, ...] = ()
    # The claims for each demand, in the same order; empty until `make_claims`.
    made: tuple[ServedDemand, ...] = ()
    notes: tuple[Note, ...] = ()
    refusals: tuple[Reason, ...] = ()
    left: Reason | None = None
    # Whether to give no warning if the keys stay, for example because Kubernetes serves them.
    quiet: bool = False
    # Whether Kubernetes serves the key that is the cause through a DeviceClass.
    served: bool = False
    # Whether the keys are still to be translated. A case without demands is open if another case has its demands (`joint`).
    open: bool = False
    # Whether a demand is a pair with a demand of another case (`joint`): both cases are translated, or neither.
    joined: bool = False
    # Whether the keys stay on the containers in addition to the claims.
    keeps: bool = False
    # A key that several systems use, and the meaning of one unit of it.
    bare: str = ""
    unit: Meaning = WHOLE

    @property
    def independent(self) -> bool:
        return self.dialect.independent and not self.joined

    def row(self, key: str) -> Row | None:
        rows = [entry.known[0].row for _, entries in self.slot_keys for entry in entries if entry.key == key]
        return rows[0] if rows else None

    def role(self, key: str) -> Role:
        row = self.row(key)
        return row.role if row else Role.NONE

    def why_left(self, key: str) -> str:
        """Return why a key stays if the case is left because of another key."""
        assert self.left
        row = self.row(key)
        if row and row.outcome is Outcome.LEFT and row.because != self.left.text:
            return row.because
        return f"same reason as {self.left.causes[0]}"

    def asking_keys(self) -> list[str]:
        """List the keys that request something; a count of 0 does not."""
        asking: dict[str, None] = {}
        for _, entries in self.slot_keys:
            for entry in entries:
                is_count = entry.known[0].row.role is Role.COUNT
                if not is_count or number(entry) != 0:
                    asking[entry.key] = None
        return list(asking)

    def leave(self, key: str, reason: str, *, quiet: bool = False, code: str = "", served: bool = False) -> Case:
        return replace(self, left=leave(key, reason, code), quiet=quiet, served=served, open=False)

    def refuse(self, key: str, reason: str, remedy: str = "", code: Code = Code.RULE) -> Case:
        return replace(self, refusals=(*self.refusals, refuse(key, reason, remedy, code)), open=False)

    def note(self, *notes: Note) -> Case:
        return replace(self, notes=(*self.notes, *notes))


def make_cases(
    new_keys: Mapping[int, _SlotKeys],
    owners: Owners,
    configuration: Configuration,
    fleet: Inventory,
) -> list[Case]:
    """Return a case for each dialect and container: group the keys, and call each dialect's reader."""
    grouped: dict[tuple[str, int], tuple[Dialect, list[_SlotKeys]]] = {}
    for order, (slot, legacy_keys) in new_keys.items():
        by_dialect: dict[str, tuple[Dialect, list[LegacyKey]]] = {}
        for legacy_key in legacy_keys:
            known = owners.row_for(legacy_key, slot, configuration)
            narrowed = legacy_key if len(legacy_key.known) == 1 else replace(legacy_key, known=(known,))
            name = known.dialect.name
            if name in by_dialect:
                by_dialect[name][1].append(narrowed)
            else:
                by_dialect[name] = known.dialect, [narrowed]
        for name, (dialect, own_keys) in by_dialect.items():
            group = name, order if dialect.scope is Scope.CONTAINER else 0
            _, of_slots = grouped.setdefault(group, (dialect, []))
            of_slots.append((slot, tuple(own_keys)))
    cases: list[Case] = []
    for dialect, of_slots in grouped.values():
        cases.append(_answer(dialect, tuple(of_slots), owners, configuration, fleet))
    for dialect, hint in owners.placing_systems:
        cases.append(_read_pod(dialect, hint, owners, configuration))
    return cases


def make_cpu_cases(
    pod: PodView,
    state: State,
    others: Sequence[Case],
    *,
    namespace: str,
    written: WrittenRecord,
) -> list[Case]:
    """Make a case for each container with exclusive CPUs, unless an earlier round made a claim for them. `others` are the pod's other cases."""
    served = {
        name
        for name, devices in written.devices.items()
        for member in members(devices)
        if mapping(member).get("key") == CPU
    }
    slots = [slot for slot in pod.slots if slot.order in pod.cpus and not slot.init and slot.name not in served]
    if not slots:
        return []
    obstacle = claim_for_cpus(pod, state, namespace, written)
    for case in others:
        for requested in case.demands:
            if CPU in (requested.key, *requested.other_keys):
                obstacle = f"{case.dialect.title} requests the pod's CPUs through a claim"
    if mapping(pod.spec.get("os")).get("name") == "windows":
        obstacle = "the driver gives CPUs to containers of Linux only"
    init_notes: list[Note] = []
    init_names = [slot.name for slot in pod.slots if slot.order in pod.cpus and slot.init]
    if init_names:
        text = f"init container {init_names[0]} gets no exclusive CPUs: a claim serves one container, for as long as the pod lives"
        init_notes.append(Note(CPU, Outcome.APPROXIMATED, text))
    cases: list[Case] = []
    for slot in slots:
        case = Case(dialect=CPU_DIALECT, slot_keys=((slot, ()),), container=slot.name, keys=(CPU,), keeps=True)
        if obstacle:
            cases.append(case.leave(CPU, obstacle))
            continue
        number = pod.cpus[slot.order]
        text = f"{number} CPU{'s' if number > 1 else ''} for this container alone; its request stays"
        demand = KeyedDemand(CPU, Demand(target=TARGET, cpus=number))
        notes = (Note(CPU, Outcome.TRANSLATED, text), *init_notes)
        cases.append(replace(case, demands=(demand,), notes=notes, open=True))
    return cases


def _read_pod(dialect: Dialect, hint: Hint, owners: Owners, configuration: Configuration) -> Case:
    """Return the case of annotations or labels that request devices. The keys stay if the dialect's own system serves the pod."""
    case = Case(dialect=dialect, slot_keys=(), keys=(hint.key,))
    read, pod = configuration.vocabularies[dialect.name].read_pod, owners.pod
    if hint.row.outcome is Outcome.LEFT or read is None or pod is None:
        return case.leave(hint.key, hint.row.because)
    rows = {(row.place, row.name): row for row in dialect.keys}
    original_names = {now: name for name, now in configuration.file.keys.get(dialect.name, {}).items()}
    variables: dict[str, Json] = {}
    for slot in pod.slots:
        for variable in items(slot.raw, "env"):
            variables[str(variable.get("name"))] = variable.get("value", "")
    places = {Position.ANNOTATION: pod.annotations, Position.LABEL: pod.labels, Position.ENV: variables}
    texts: dict[str, Hint] = {}
    for (position, name), row in rows.items():
        value = places.get(position, {}).get(name)
        if value is not None and row.when in ("", value):
            texts[original_names.get(name, name)] = Hint.from_row(name, row, text_of(value))
    for row in [row for row in dialect.keys if "<" in row.name]:
        for name, value in places.get(row.place, {}).items():
            if pattern(row.name)(name):
                texts[name] = Hint.from_row(name, row, text_of(value))
    container_keys = [
        entry.key
        for slot in pod.slots
        for entry in slot.legacy_keys
        if not all(known_row.dialect.independent for known_row in entry.known)
    ]
    answer = read(
        AnnotatedPod(
            texts=texts,
            options=configuration.options[dialect.name],
            containers=tuple([slot.name for slot in pod.slots if slot.list == "containers"]),
            init_containers=tuple([slot.name for slot in pod.slots if slot.list == "initContainers"]),
            container_keys=tuple(container_keys),
        )
    )
    if not isinstance(answer, DialectAnswer):
        return _stop(case, answer)
    # Annotations that a claim replaces are removed, so that their system does not serve them as well.
    rows_by_key = {hint.key: hint.row for hint in texts.values() if hint.row.place is Position.ANNOTATION}
    # A dropped annotation has no counterpart, and stays on the pod.
    replaced_names = {note.key for note in answer.notes if note.outcome in REPLACED and not note.is_dropped}
    replaced_keys = [
        LegacyKey(key, (KnownRow(dialect, row),), raw=pod.annotations[key])
        for key, row in rows_by_key.items()
        if key in replaced_names
    ]
    slots = [slot for slot in pod.slots if slot.name in answer.containers]
    return replace(
        case,
        slot_keys=tuple([(slot, tuple(replaced_keys)) for slot in slots]),
        container=slots[0].name if slots and dialect.scope is Scope.CONTAINER else "",
        keys=tuple([entry.key for entry in replaced_keys]) or case.keys,
        demands=answer.demands,
        notes=answer.notes,
        open=bool(answer.demands and slots),
    )


def _answer(
    dialect: Dialect, slot_keys: tuple[_SlotKeys, ...], owners: Owners, configuration: Configuration, fleet: Inventory
) -> Case:
    """Return the case of keys on containers: the answer of the dialect, unless another system serves the keys or an amount is invalid."""
    first = slot_keys[0][0]
    keys = tuple(dict.fromkeys([legacy_key.key for _, legacy_keys in slot_keys for legacy_key in legacy_keys]))
    container = first.name if dialect.scope is Scope.CONTAINER else ""
    case = Case(dialect=dialect, slot_keys=slot_keys, container=container, keys=keys)
    obstacle = _find_obstacle(keys[0], dialect, owners)
    if obstacle is not None:
        return _stop(case, obstacle)
    containers, refusals, bare = _read_amounts(slot_keys, configuration)
    if bare:
        unit = unit_meaning(bare, dialect, configuration, fleet, owners)
        case = replace(case, bare=bare, unit=unit)
        # An invalid amount is refused whatever a unit means, as the API server does.
        if unit.left and INVALID.isdisjoint([refusal.code for refusal in refusals]):
            return replace(case, left=unit.left, quiet=configuration.file.meanings.get(bare) == "leave")
    if fleet.installed.plugins and (replicas := _find_replicas(slot_keys[0][1], fleet, owners)):
        return replace(case, left=replicas)
    if refusals:
        return replace(case, refusals=tuple(refusals))
    if not [
        amount
        for container in containers
        for amount in container.amounts
        if amount.value or amount.row.role is not Role.COUNT
    ]:
        return replace(case, keys=())  # amounts of 0 stay, and are not reported
    request = _make_request(case, containers, owners, configuration, fleet)
    answer = configuration.vocabularies[dialect.name].read(request)
    if not isinstance(answer, DialectAnswer):
        return _stop(case, answer)
    if not answer.demands:
        return replace(case, keys=())
    return replace(case, demands=answer.demands, notes=answer.notes, open=True)


def _read_amounts(
    slot_keys: Iterable[_SlotKeys], configuration: Configuration
) -> tuple[list[ContainerAmounts], list[Reason], str]:
    """Return each container's valid amounts, a refusal for each invalid amount, and the first common key whose amount is not 0."""
    containers: list[ContainerAmounts] = []
    refusals: list[Reason] = []
    bare = ""
    for slot, legacy_keys in slot_keys:
        amounts: list[Amount] = []
        for legacy_key in legacy_keys:
            row = legacy_key.known[0].row
            value = number(legacy_key, configuration)
            if value and row.common and not bare:
                bare = legacy_key.key
            if isinstance(value, Reason):
                refusals.append(value)
            elif row.least <= value and (row.most is None or value <= row.most):
                amounts.append(Amount(legacy_key.key, row, value, legacy_key.known[0].part))
            else:
                refusals.append(_out_of_range(legacy_key, row, value))
        containers.append(ContainerAmounts(slot.name, tuple(amounts), slot.init, slot.list == "initContainers"))
    return containers, refusals, bare


def _find_replicas(legacy_keys: Iterable[LegacyKey], fleet: Inventory, owners: Owners) -> Reason | None:
    for legacy_key in legacy_keys:
        is_profile = legacy_key.known[0].row.role is Role.PROFILE and number(legacy_key) != 0
        shared = shared_by_plugin(legacy_key.key, fleet, owners) if is_profile else None
        if shared:
            reason = (
                f"{shared}: replicas of MIG devices have no counterpart; translate the key once sharing is switched off"
            )
            return leave(legacy_key.key, reason)
    return None


def _make_request(
    case: Case, containers: Iterable[ContainerAmounts], owners: Owners, configuration: Configuration, fleet: Inventory
) -> DialectRequest[Any]:
    name = case.dialect.name
    hints = owners.hints.get(name, {})
    rows = configuration.variables.get(name)
    if rows:
        hints = {**hints, **_variables(case.slot_keys[0][0], rows)}
    options = configuration.options[name]
    host_targets = options.host_targets()
    host = requests(owners.pod, host_targets) if host_targets and owners.pod else {}
    network_pools = fleet.installed.network.pools
    pools = {key: str(network_pools[key]) for key in case.keys if key in network_pools} if network_pools else {}
    return DialectRequest(
        table=case.dialect,
        containers=tuple(containers),
        options=options,
        hints=hints,
        unit=case.unit,
        pools=pools,
        host=host,
    )


def _stop(case: Case, why: Reason) -> Case:
    return replace(case, refusals=(why,)) if why.never else replace(case, left=why)


def _find_obstacle(key: str, dialect: Dialect, owners: Owners) -> Reason | None:
    """Return why the keys stay or are refused, whatever their amounts: because a system places the pod, or because of a hint. None otherwise."""
    hints = owners.hints.get(dialect.name, {})
    for system, hint in owners.placing_systems:
        if not dialect.independent:
            return leave(key, f"{system.title} places the pod, by {hint.key}")
    for role in (Role.PLACED, Role.OPT_OUT):
        if role in hints:
            return leave(hints[role].key, hints[role].row.because)
    if shared := owners.shared_sizes.get(dialect.name):
        return shared
    if claimed := hints.get(Role.CLAIMED):
        return leave(key, f"it is requested together with label {claimed.key}: {claimed.row.because}")
    if dialect.refuses_privileged and owners.privileged:
        reason = f"{dialect.title} takes no pod with a privileged container ({owners.privileged})"
        return refuse(key, reason, "make it unprivileged: shares are not enforced on a privileged container", Code.RULE)
    return None


def _variables(slot: Slot, rows: Mapping[str, Row]) -> dict[Role, Hint]:
    """Read a container's environment variables as hints. If two variables have the same name, the last one counts, as for the kubelet."""
    hints: dict[Role, Hint] = {}
    for variable in items(slot.raw, "env"):
        name = str(variable.get("name"))
        row = rows.get(name)
        if row is None:
            continue
        # A value from elsewhere (`valueFrom`, `$(NAME)`) is unknown here. A value of more than BYTES is not read.
        value = variable.get("value", "")
        text = UNREADABLE
        if isinstance(value, str) and len(value) <= BYTES and "$(" not in value and not variable.get("valueFrom"):
            text = text_of(value)
        hints.pop(row.role, None)
        if row.when in ("", text):
            hints[row.role] = Hint.from_row(name, row, text)
    return hints


def _out_of_range(legacy_key: LegacyKey, row: Row, value: int) -> Reason:
    """Refuse a number outside of the bounds of its row: the legacy system refuses it, too."""
    remedy = f"write a whole number of {row.unit}, {row.bounds}"
    converted = value // row.unit.size
    if converted != value and row.takes(converted):
        remedy = f"the number counts {row.unit}: write {converted}"
    return refuse(legacy_key.key, f"{legacy_key.raw} is out of range", remedy, Code.RANGE)
