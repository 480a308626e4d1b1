"""The reader for dialects that are only a table: every key with a target asks for its number of it.

Memory and compute keys apply to each device of the container's count key; without one, to a single device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from webhook.dialects.demand import MIB, Answer, Demand, Keyed, Left, Note
from webhook.dialects.table import Action, Dialect, Position, Role, Unit
from webhook.dialects.targets import TARGETS
from webhook.dialects.vocabulary import Vocabulary
from webhook.dialects.words import Options, Said, Words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.dialects.targets import Target
    from webhook.dialects.words import Amount

_BYTES = {Unit.BYTES: 1, Unit.MIB: MIB, Unit.GIB: MIB << 10}
_NETWORK = (Role.NIC, Role.RDMA)
_DEVICE = (Role.COUNT, Role.MEMORY, Role.MEMORY_PERCENT, Role.CORES)
# What is understood without code, by where the key stands: numbers on resources, and elsewhere what keeps us away.
ROLES: Mapping[Position, tuple[Role, ...]] = {
    Position.RESOURCE: (*_DEVICE, *_NETWORK),
    **dict.fromkeys(
        (Position.ANNOTATION, Position.LABEL, Position.NODE_SELECTOR), (Role.PLACED, Role.OPT_OUT, Role.CLAIMED)
    ),
    Position.ENV: (),
}


def vocabulary_of(table: Dialect, targets: Mapping[str, Target] = TARGETS) -> Vocabulary[Options]:
    """Make a vocabulary of a table alone, and of what is known about the devices it names."""
    return Vocabulary(table=table, read=lambda words: read(words, targets), options=Options)


def read(words: Words[Options], targets: Mapping[str, Target]) -> Answer:
    """Read one container, or for pod scope the sum of all, by the table alone."""
    said = words.said[0]
    if len(words.said) > 1:
        said = total(words.said)
    demands = _device(said, words.table)
    notes: list[Note] = []
    for amount in said.amounts:
        key = amount.key
        row = amount.row
        if row.action is Action.LEFT:
            return Answer(left=Left(key, row.because))
        note = Note(key, row.action, row.because)
        notes.append(note)
        if row.role in _NETWORK and amount.value:
            nic = _nic(amount, words.table, targets)
            demands.append(Keyed(key, nic))
    return Answer(demands=tuple(demands), notes=tuple(notes))


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


def _nic(amount: Amount, table: Dialect, targets: Mapping[str, Target]) -> Demand:
    """Ask for network devices; those published under the name of their pool are asked for by it."""
    target = targets[amount.row.target or table.target]
    pool = amount.key if target.pooled else ""
    return Demand(target=target.name, count=amount.value, resource=pool, rdma=amount.row.role is Role.RDMA)


def _device(said: Said, table: Dialect) -> list[Keyed]:
    parts = [amount for amount in said.amounts if amount.row.role in _DEVICE]
    count = said.number(Role.COUNT, 1)
    if not parts or not count:
        return []
    memory = said.of(Role.MEMORY)
    cores = said.of(Role.CORES)
    target = next((amount.row.target for amount in parts if amount.row.target), table.target)
    demand = Demand(
        target=target,
        count=count,
        memory=_bytes(memory) if memory and memory.value else None,
        memory_percent=said.number(Role.MEMORY_PERCENT) or None,
        cores=cores.value if cores else None,
    )
    return [Keyed(parts[0].key, demand)]


def _bytes(amount: Amount) -> int:
    return amount.value * _BYTES.get(amount.row.unit, 1)
