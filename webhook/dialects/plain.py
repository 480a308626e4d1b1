"""The rule for dialects that are only a table: every key with a target asks for its number of it.

Memory and compute keys apply to each device of the container's count key; without one, to a single device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from webhook.dialects.demand import MIB, Demand, Left, Note
from webhook.dialects.table import Action, Role, Unit
from webhook.dialects.words import Answer, Said

if TYPE_CHECKING:
    from webhook.dialects.table import Dialect
    from webhook.dialects.words import Amount

_BYTES = {Unit.BYTES: 1, Unit.MIB: MIB, Unit.GIB: MIB << 10}


def read(every: tuple[Said, ...], dialect: Dialect) -> Answer:
    """Read one container, or for pod scope the sum of all, by the table alone."""
    said = every[0] if len(every) == 1 else _sum(every)
    for amount in said.amounts:
        if amount.row.action is Action.LEFT:
            return Answer(left=Left(amount.key, amount.row.because))
    notes = tuple(Note(a.key, a.row.action, a.row.because) for a in said.amounts)
    nics = tuple((a.key, _nic(a, dialect)) for a in said.amounts if a.row.role is Role.NIC and a.value)
    main = _device(said, dialect)
    return Answer(demands=(*main, *nics), notes=notes)


def _sum(every: tuple[Said, ...]) -> Said:
    """Add up a pod: the larger of what lasts together and what an init container takes alone."""
    lasting: dict[str, Amount] = {}
    passing: dict[str, Amount] = {}
    for one in every:
        for amount in one.amounts:
            if one.ordinary_init:
                passing[amount.key] = max(amount, passing.get(amount.key, amount), key=lambda a: a.value)
            else:
                value = amount.value + (lasting[amount.key].value if amount.key in lasting else 0)
                lasting[amount.key] = msgspec.structs.replace(amount, value=value)
    both = {
        key: max((m[key] for m in (lasting, passing) if key in m), key=lambda a: a.value)
        for key in {**lasting, **passing}
    }
    return Said("", tuple(both.values()))


def _nic(amount: Amount, dialect: Dialect) -> Demand:
    """Virtual functions are published under the name of the pool, as their device plugin called it."""
    target = amount.row.target or dialect.target
    return Demand(target=target, count=amount.value, resource=amount.key if target == "vf" else "")


def _device(said: Said, dialect: Dialect) -> tuple[tuple[str, Demand], ...]:
    parts = [a for a in said.amounts if a.row.role in (Role.COUNT, Role.MEMORY, Role.MEMORY_PERCENT, Role.CORES)]
    count = said.number(Role.COUNT, 1)
    if not parts or not count:
        return ()
    memory, cores = said.of(Role.MEMORY), said.of(Role.CORES)
    target = next((a.row.target for a in parts if a.row.target), dialect.target)
    demand = Demand(
        target=target,
        count=count,
        memory=_bytes(memory) if memory and memory.value else None,
        memory_percent=said.number(Role.MEMORY_PERCENT) or None,
        cores=cores.value if cores else None,
    )
    return ((parts[0].key, demand),)


def _bytes(amount: Amount) -> int:
    return amount.value * _BYTES.get(amount.row.unit, 1)
