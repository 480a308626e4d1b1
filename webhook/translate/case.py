"""One case: what one dialect says on one container, or on the whole pod, and how far it came.

A case is made from the words on the pod, answered by the dialect's rule, and then served with claims; at every step it
may be refused or left. Cases are the translator's working values: nothing of them leaves `webhook.translate.translate`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra.raw import items
from webhook.claims import Made
from webhook.dialects import (
    UNREADABLE,
    WHOLE,
    Action,
    Amount,
    Answer,
    AskingPod,
    ContainerAmounts,
    Dialect,
    DialectRequest,
    Hint,
    Keyed,
    Known,
    Left,
    Meaning,
    Note,
    Position,
    Refusal,
    Role,
    Row,
    Scope,
    Stop,
    pattern,
)
from webhook.refusals import INVALID, Code
from webhook.translate.limits import BYTES
from webhook.translate.owner import meaning, shared_by_plugin, text_of
from webhook.translate.pod_view import Slot, Word, number, requests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.wire import Json
    from webhook.state import Configuration, Inventory
    from webhook.translate.owner import Owners

_Said = tuple[Slot, tuple[Word, ...]]  # the words of one container


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One dialect's words on some containers, and the answer to them."""

    dialect: Dialect
    # Each word with the one row that it is read by.
    words: tuple[_Said, ...]
    container: str = ""  # the one it is about, "" if it is about the pod
    keys: tuple[str, ...] = ()
    demands: tuple[Keyed, ...] = ()
    # What serves the demands, one for each, once that was found.
    made: tuple[Made, ...] = ()
    notes: tuple[Note, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    left: Left | None = None
    # Whether its author should be told that it was left; core serving it is expected.
    quiet: bool = False
    # Whether it is still on its way to be translated. It may be so without demands: they can be part of another case (`joint`).
    open: bool = False
    # A demand of this case goes with another case (`joint`), so the two stay or go together.
    joined: bool = False
    # Its keys stay on the containers beside the claims.
    keeps: bool = False
    # A name that no system claims, and what a unit of it was taken for.
    bare: str = ""
    unit: Meaning = WHOLE

    @property
    def independent(self) -> bool:
        """Whether what becomes of it says nothing about other cases of its containers."""
        return self.dialect.independent and not self.joined

    def role(self, key: str) -> Role:
        """What a key says in this dialect."""
        rows = [word.known[0].row for _, words in self.words for word in words if word.key == key]
        return rows[0].role if rows else Role.NONE

    def asking(self) -> list[str]:
        """List the keys that ask for something: a count of none does not."""
        found: dict[str, None] = {}
        for _, words in self.words:
            for word in words:
                is_count = word.known[0].row.role is Role.COUNT
                if not is_count or number(word) != 0:
                    found[word.key] = None
        return list(found)

    def leave(self, key: str, reason: str, *, quiet: bool = False, code: str = "", served: bool = False) -> Case:
        """Give it up; the containers stay as they are."""
        return replace(self, left=Left(key, reason, code, served), quiet=quiet, open=False)

    def refuse(self, key: str, reason: str, remedy: str = "", code: Code = Code.RULE) -> Case:
        """Turn the pod back for it."""
        refusal = Refusal(key, reason, remedy, code)
        return replace(self, refusals=(*self.refusals, refusal), open=False)

    def note(self, *notes: Note) -> Case:
        """Add what has to be said about it."""
        return replace(self, notes=(*self.notes, *notes))


def cases(
    spoken: Mapping[int, _Said],
    whose: Owners,
    configuration: Configuration,
    fleet: Inventory,
) -> list[Case]:
    """Group the words by dialect and container, and let each dialect's rule answer."""
    grouped: dict[tuple[str, int], tuple[Dialect, list[_Said]]] = {}
    for order, (slot, words) in spoken.items():
        by_dialect: dict[str, tuple[Dialect, list[Word]]] = {}
        for word in words:
            known = whose.of(word, slot, configuration)
            one = word if len(word.known) == 1 else Word(word.key, (known,), word.limit, word.request, word.raw)
            name = known.dialect.name
            if name in by_dialect:
                by_dialect[name][1].append(one)
            else:
                by_dialect[name] = known.dialect, [one]
        for name, (dialect, said) in by_dialect.items():
            place = name, order if dialect.scope is Scope.CONTAINER else 0
            _, entries = grouped.setdefault(place, (dialect, []))
            entries.append((slot, tuple(said)))
    answered = [_answer(dialect, tuple(entries), whose, configuration, fleet) for dialect, entries in grouped.values()]
    for dialect, hint in whose.asking:
        answered.append(_read_pod(dialect, hint, whose, configuration))
    return answered


def _read_pod(dialect: Dialect, hint: Hint, whose: Owners, configuration: Configuration) -> Case:
    """Have the dialect's reader answer to what asks outside of containers; what its table leaves, its system goes on serving."""
    case = Case(dialect=dialect, words=(), keys=(hint.key,))
    read, pod = configuration.vocabularies[dialect.name].read_pod, whose.pod
    if hint.row.action is Action.LEFT or read is None or pod is None:
        return case.leave(hint.key, hint.row.because)
    rows = {(row.place, row.name): row for row in dialect.keys}
    former = {now: name for name, now in configuration.file.keys.get(dialect.name, {}).items()}
    variables: dict[str, Json] = {}
    for slot in pod.slots:
        for one in items(slot.raw, "env"):
            variables[str(one.get("name"))] = one.get("value", "")
    places = {Position.ANNOTATION: pod.annotations, Position.LABEL: pod.labels, Position.ENV: variables}
    texts: dict[str, Hint] = {}
    for (place, name), row in rows.items():
        value = places.get(place, {}).get(name)
        if value is not None and row.when in ("", value):
            texts[former.get(name, name)] = Hint.of(name, row, text_of(value))
    for row in [row for row in dialect.keys if "<" in row.name]:
        for name, value in places.get(row.place, {}).items():
            if pattern(row.name)(name):
                texts[name] = Hint.of(name, row, text_of(value))
    container_keys = [
        word.key for slot in pod.slots for word in slot.words if not all(one.dialect.independent for one in word.known)
    ]
    answer = read(
        AskingPod(
            texts=texts,
            options=configuration.options[dialect.name],
            containers=tuple([slot.name for slot in pod.slots if slot.list == "containers"]),
            init_containers=tuple([slot.name for slot in pod.slots if slot.list == "initContainers"]),
            container_keys=tuple(container_keys),
        )
    )
    if not isinstance(answer, Answer):
        return _stop(case, answer)
    # Annotations that a claim takes the place of go, so that their system cannot serve them as well.
    read_by = {hint.key: hint.row for hint in texts.values() if hint.row.place is Position.ANNOTATION}
    taken = {note.key for note in answer.notes if note.action in (Action.TRANSLATED, Action.APPROXIMATED)}
    said = [Word(key, (Known(dialect, row),), raw=pod.annotations[key]) for key, row in read_by.items() if key in taken]
    slots = [slot for slot in pod.slots if slot.name in answer.containers]
    return replace(
        case,
        words=tuple([(slot, tuple(said)) for slot in slots]),
        container=slots[0].name if slots and dialect.scope is Scope.CONTAINER else "",
        keys=tuple([word.key for word in said]) or case.keys,
        demands=answer.demands,
        notes=answer.notes,
        open=bool(answer.demands and slots),
    )


def _answer(
    dialect: Dialect, entries: tuple[_Said, ...], whose: Owners, configuration: Configuration, fleet: Inventory
) -> Case:
    """Stop where something on the pod keeps us away; else read the numbers and ask the dialect's reader."""
    first, its_words = entries[0]
    container = first.name if dialect.scope is Scope.CONTAINER else ""
    keys = tuple(dict.fromkeys([word.key for _, words in entries for word in words]))
    case = partial(Case, dialect=dialect, words=entries, container=container, keys=keys)
    away = _keep_away(keys[0], dialect, whose)
    if away is not None:
        return _stop(case(), away)
    containers: list[ContainerAmounts] = []
    refusals: list[Refusal] = []
    bare = ""  # a name that several systems use, with a number other than 0
    asked = False
    for slot, words in entries:
        amounts: list[Amount] = []
        for word in words:
            row = word.known[0].row
            value = number(word, configuration)
            if value and row.common and not bare:
                bare = word.key
            if isinstance(value, Refusal):
                refusals.append(value)
            elif row.least <= value and (row.most is None or value <= row.most):
                amounts.append(Amount(word.key, row, value, word.known[0].part))
                asked = asked or value != 0 or row.role is not Role.COUNT
            else:
                refusals.append(_out_of_range(word, row, value))
        containers.append(ContainerAmounts(slot.name, tuple(amounts), slot.init, slot.list == "initContainers"))
    unit = WHOLE
    if bare:
        unit = meaning(bare, dialect, configuration, fleet, whose)
        # A malformed number is refused whatever a unit is, as the API server would.
        if unit.left and INVALID.isdisjoint([one.code for one in refusals]):
            quiet = configuration.file.meanings.get(bare) == "leave"
            return case(left=unit.left, quiet=quiet, bare=bare, unit=unit)
    for word in its_words if fleet.installed.plugins else ():
        is_profile = word.known[0].row.role is Role.PROFILE and number(word) != 0
        parted = shared_by_plugin(word.key, fleet, whose) if is_profile else None
        if parted:
            reason = f"{parted}: replicas of MIG devices have no counterpart; translate it once that is switched off"
            return case(left=Left(word.key, reason))
    case = partial(case, bare=bare, unit=unit)
    if refusals:
        return case(refusals=tuple(refusals))
    if not asked:
        return case(notes=tuple([Note(key, Action.IGNORED, "requests nothing") for key in keys]))
    hints = whose.hints.get(dialect.name, {})
    rows = configuration.variables.get(dialect.name)
    if rows:
        hints = {**hints, **_variables(first, rows)}
    options = configuration.options[dialect.name]
    of_host = options.of_host()
    host = requests(whose.pod, of_host) if of_host and whose.pod else {}
    known = fleet.installed.network.pools
    pools = {key: str(known[key]) for key in keys if key in known} if known else {}
    request = DialectRequest(
        table=dialect, containers=tuple(containers), options=options, hints=hints, unit=unit, pools=pools, host=host
    )
    answer = configuration.vocabularies[dialect.name].read(request)
    if not isinstance(answer, Answer):
        return _stop(case(), answer)
    return case(demands=answer.demands, notes=answer.notes, open=bool(answer.demands))


def _stop(case: Case, why: Stop) -> Case:
    return replace(case, left=why) if isinstance(why, Left) else replace(case, refusals=(why,))


def _keep_away(key: str, dialect: Dialect, whose: Owners) -> Stop | None:
    """Leave or refuse what its own system has dealt with already, or would not have taken."""
    hints = whose.hints.get(dialect.name, {})
    for system, hint in whose.asking:
        if not dialect.independent:
            return Left(key, f"{system.title} places the pod, by {hint.key}")
    for role in (Role.PLACED, Role.OPT_OUT):
        if role in hints:
            return Left(hints[role].key, hints[role].row.because)
    if claimed := hints.get(Role.CLAIMED):
        return Left(key, f"it is requested together with label {claimed.key}: {claimed.row.because}")
    if dialect.refuses_privileged and whose.privileged:
        reason = f"{dialect.title} takes no pod with a privileged container ({whose.privileged})"
        return Refusal(key, reason, "shares are not enforced on it", Code.RULE)
    return None


def _variables(slot: Slot, rows: Mapping[str, Row]) -> dict[Role, Hint]:
    """Find what a container's variables say; of two with one name the last counts, as for the kubelet."""
    found: dict[Role, Hint] = {}
    for one in items(slot.raw, "env"):
        name = str(one.get("name"))
        row = rows.get(name)
        if row is None:
            continue
        # A number that is not written out, or is implausibly long, is not read.
        value = one.get("value", "")
        text = UNREADABLE
        if isinstance(value, str) and len(value) <= BYTES and "$(" not in value and not one.get("valueFrom"):
            text = text_of(value)
        found.pop(row.role, None)
        if row.when in ("", text):
            found[row.role] = Hint.of(name, row, text)
    return found


def _out_of_range(word: Word, row: Row, value: int) -> Refusal:
    """Refuse a number outside of the bounds of its row, which are the legacy system's."""
    remedy = f"write a whole number of {row.unit}, {row.bounds}"
    meant = value // row.unit.size
    if meant != value and row.takes(meant):
        remedy = f"the number counts {row.unit}: write {meant}"
    return Refusal(word.key, f"{word.raw} is out of range", remedy, Code.RANGE)
