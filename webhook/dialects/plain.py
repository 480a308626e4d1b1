"""The reader for dialects that are only a table: every key with a target asks for its number of it.

Memory and compute keys apply to each device of the container's count key; without one, to a single device. What stands on the
pod beside containers (annotations, labels, node selectors), and in a container's variables, says more about devices that a key on the
container asks for, and asks for none by itself. What is said nearer counts: on the container, then in its variables, then on the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from webhook.dialects.table import Action, Dialect, Position, Role, Unit
from webhook.dialects.targets import TARGETS
from webhook.dialects.values import compile_expression, convert, number_of, texts_of
from webhook.dialects.vocabulary import (
    MIB,
    Amount,
    Answer,
    Demand,
    Keyed,
    Left,
    Note,
    Options,
    Refusal,
    Said,
    Vocabulary,
    Words,
    several,
)
from webhook.refusals import Code

if TYPE_CHECKING:
    from webhook.dialects.targets import Target
    from webhook.dialects.values import Expressions
    from webhook.dialects.vocabulary import Hint

_BYTES = {Unit.BYTES: 1, Unit.MIB: MIB, Unit.GIB: MIB << 10}
_LARGEST = 2**63 - 1
_NETWORK = (Role.NIC, Role.RDMA)
_DEVICE = (Role.COUNT, Role.MEMORY, Role.MEMORY_PERCENT, Role.CORES)
_TEXTS = (Role.PROFILE, Role.MODELS, Role.NOT_MODELS, Role.UUIDS, Role.NOT_UUIDS)
# Those of which a pod says one thing at most in one place.
SHAPING = (*_DEVICE, *_TEXTS)
_AWAY = (Role.PLACED, Role.OPT_OUT, Role.CLAIMED)
# What is understood without code, by where the key stands: numbers on resources, and elsewhere what shapes a request that
# is made there, or keeps us away.
ROLES: Mapping[Position, tuple[Role, ...]] = {
    Position.RESOURCE: (*_DEVICE, *_NETWORK),
    **dict.fromkeys((Position.ANNOTATION, Position.LABEL, Position.NODE_SELECTOR), (*SHAPING, *_AWAY)),
    Position.ENV: SHAPING,
}


def expected(role: Role) -> tuple[str, ...]:
    """The types of CEL that an expression for a role may give; none where no value is read."""
    if role in _DEVICE or role in _NETWORK:
        return ("int",)
    if role is Role.PROFILE:
        return ("string",)
    return ("string", "list(string)") if role in _TEXTS else ()


def vocabulary_of(table: Dialect, targets: Mapping[str, Target] = TARGETS) -> Vocabulary[Options]:
    """Make a vocabulary of a table alone, and of what is known about the devices it names."""
    texts = {row.expression for row in table.keys if row.expression}
    expressions = {text: compile_expression(text) for text in texts}
    return Vocabulary(table=table, read=lambda words: read(words, targets, expressions), options=Options)


class _Shape(msgspec.Struct, frozen=True):
    """What is said about a container's devices beside the container."""

    amounts: tuple[Amount, ...] = ()
    texts: Mapping[Role, tuple[str, ...]] = {}
    notes: tuple[Note, ...] = ()


def read(words: Words[Options], targets: Mapping[str, Target], expressions: Expressions) -> Answer:
    """Read one container, or for pod scope the sum of all, by the table alone."""
    table = words.table
    every: list[Said] = []
    for one in words.said:
        for amount in one.amounts:
            if amount.row.action is Action.LEFT:
                return Answer(left=Left(amount.key, amount.row.because))
    for one in words.said:
        amounts: list[Amount] = []
        for amount in one.amounts:
            number = convert(amount, expressions)
            if not isinstance(number, Amount):
                return _stop(number)
            amounts.append(number)
        every.append(msgspec.structs.replace(one, amounts=tuple(amounts)))
    said = every[0] if len(every) == 1 else total(tuple(every))
    shape = _shape(said, words.hints, expressions)
    if not isinstance(shape, _Shape):
        return _stop(shape)
    asked = _device(said, shape, table)
    if not isinstance(asked, list):
        return _stop(asked)
    notes: list[Note] = []
    for amount in said.amounts:
        row = amount.row
        counted = row.role is Role.COUNT and not row.because
        notes.append(Note(amount.key, row.action, several(amount.value, "device") if counted else row.because))
        if row.role in _NETWORK and amount.value:
            # Devices that are published under the name of their pool are asked for by it.
            target = targets[row.target or table.target]
            pool = amount.key if target.pooled else ""
            rdma = row.role is Role.RDMA
            nic = Demand(target=target.name, count=amount.value, resource=pool, rdma=rdma)
            asked.append(Keyed(amount.key, nic))
    if asked:
        notes += shape.notes
    return Answer(demands=tuple(asked), notes=tuple(notes))


def _stop(why: Refusal | Left) -> Answer:
    return Answer(left=why) if isinstance(why, Left) else Answer(refusals=(why,))


def _shape(said: Said, hints: Mapping[Role, Hint], expressions: Expressions) -> _Shape | Refusal | Left:
    """Read what stands beside the container; what the container says itself counts more."""
    if not any(amount.row.role in _DEVICE for amount in said.amounts):
        return _Shape()
    amounts: list[Amount] = []
    texts: dict[Role, tuple[str, ...]] = {}
    notes: list[Note] = []
    for role, hint in hints.items():
        if role not in SHAPING:
            continue
        if hint.row.action is Action.LEFT:
            return Left(hint.key, hint.row.because)
        nearer = said.of(role)
        if nearer:
            notes.append(Note(hint.key, Action.IGNORED, f"{nearer.key} on the container says it"))
            continue
        read_ = number_of(hint, expressions) if role in _DEVICE else texts_of(hint, expressions)
        if isinstance(read_, Refusal | Left):
            return read_
        if isinstance(read_, Amount):
            amounts.append(read_)
        else:
            texts[role] = read_
        notes.append(Note(hint.key, hint.row.action, hint.row.because))
    return _Shape(tuple(amounts), texts, tuple(notes))


def total(every: tuple[Said, ...]) -> Said:
    """Add up a pod: the larger of what lasts together and what an init container takes alone."""
    lasting: dict[str, Amount] = {}
    passing: dict[str, Amount] = {}
    for one in every:
        for amount in one.amounts:
            key = amount.key
            if one.ordinary_init:
                before = passing.get(key)
                passing[key] = _larger(amount, before)
            else:
                before = lasting.get(key)
                value = amount.value + (before.value if before else 0)
                lasting[key] = msgspec.structs.replace(amount, value=value)
    sums = dict(lasting)
    for key, amount in passing.items():
        sums[key] = _larger(lasting.get(key, amount), amount)
    return Said("", tuple(sums.values()))


def _larger(one: Amount, other: Amount | None) -> Amount:
    return other if other is not None and other.value > one.value else one


def _device(said: Said, shape: _Shape, table: Dialect) -> list[Keyed] | Refusal | Left:
    """Ask for the devices that the container's keys are about; where two contradict, the container stays."""
    own = [amount for amount in said.amounts if amount.row.role in _DEVICE]
    every = (*own, *shape.amounts)
    counts = [amount for amount in every if amount.row.role is Role.COUNT]
    asking = [amount for amount in counts if amount.value]
    if not own or (counts and not asking):
        return []
    sizes: dict[Role, Amount] = {}
    for amount in every:
        if amount.row.role is not Role.COUNT and amount.value:
            other = sizes.setdefault(amount.row.role, amount)
            if other.key != amount.key:
                return Left(amount.key, f"says the {amount.row.role} of a device, and so does {other.key}")
    texts = shape.texts
    if len(asking) > 1:
        if sizes or texts:
            reason = f"asked for beside {asking[0].key}, and it is not said which of the two has the other keys' sizes"
            return Left(asking[1].key, reason)
        return [Keyed(one.key, Demand(target=one.row.target or table.target, count=one.value)) for one in asking]
    # Of two names for one number, that which says 0 says nothing: the other one asks.
    own = list(filter(_says, own)) or own
    parts = Said(said.container, tuple(filter(_says, every)))
    target = table.target
    for amount in (*own, *asking):
        target = amount.row.target or target
    memory, cores = parts.of(Role.MEMORY), parts.of(Role.CORES)
    bytes_ = memory.value * _BYTES.get(memory.row.unit, 1) if memory else 0
    if memory and bytes_ > _LARGEST:
        reason = f"{memory.value} {memory.row.unit} is more than an amount may be"
        return Refusal(memory.key, reason, "write less", Code.RANGE)
    demand = Demand(
        target=target,
        count=parts.number(Role.COUNT, 1),
        memory=bytes_ or None,
        memory_percent=parts.number(Role.MEMORY_PERCENT) or None,
        cores=cores.value if cores else None,
        profile=" ".join(texts.get(Role.PROFILE, ())),
        models=texts.get(Role.MODELS, ()),
        not_models=texts.get(Role.NOT_MODELS, ()),
        uuids=texts.get(Role.UUIDS, ()),
        not_uuids=texts.get(Role.NOT_UUIDS, ()),
    )
    return [Keyed(own[0].key, demand)]


def _says(amount: Amount) -> bool:
    """Whether an amount is more than the number 0 of devices."""
    return bool(amount.value) or amount.row.role is not Role.COUNT
