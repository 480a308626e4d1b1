"""Reads keys that put a whole pod on one card: Volcano's gpushare (`volcanoshare`), and Aliyun's (`aliyun`).

The requests of containers are summed up (`plain.total`), and one device must have room for the sum. Neither system limits what a pod uses;
the target driver does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.plain import total
from webhook.dialects.table import Outcome, Role
from webhook.dialects.vocabulary import (
    MIB,
    Demand,
    DialectAnswer,
    KeyedDemand,
    Note,
    count_of,
    leave,
    refuse,
)

if TYPE_CHECKING:
    from dra.reason import Reason
    from webhook.dialects.vocabulary import ContainerAmounts

EXTENSION = "the scheduler's extension"
ENFORCED = "the limit is enforced from now on: a process that uses more than its pod requests fails"
_SUM = "of the one GPU that the pod shares; enforced from now on, unlike before"


def read(containers: tuple[ContainerAmounts, ...], unit: int) -> DialectAnswer | Reason:
    """Return the demand of a pod whose memory is requested in units of `unit` bytes."""
    sums = total(containers)
    for amount in sums.amounts:
        if amount.row.outcome is Outcome.LEFT and amount.value:
            return leave(amount.key, amount.row.because)
    count = sums.amount_of(Role.COUNT)
    memory = sums.amount_of(Role.MEMORY)
    cores = sums.amount_of(Role.CORES)
    if count and count.value:
        key, other_amount = count.key, memory or cores
        if other_amount and other_amount.value:
            reason = f"the pod also requests {other_amount.key}, and a node serves either whole GPUs or shares"
            return refuse(key, reason, "keep one of them")
        note = Note(key, Outcome.TRANSLATED, f"{count_of(count.value, 'whole GPU')} that the requesting containers see")
        return DialectAnswer(demands=(KeyedDemand(key, Demand(target="gpu", count=count.value)),), notes=(note,))
    if memory is None or not memory.value:
        key = sums.amounts[0].key
        return leave(key, "requests no GPU without memory")
    compute = sums.number(Role.CORES)
    if cores and compute % 5:
        return refuse(cores.key, f"{compute} % is not a value that Aliyun accepts", "write a multiple of 5, up to 100")
    memory_bytes = memory.value * unit
    unreserved = "" if compute else "; no compute is reserved"
    text = f"{memory_bytes // MIB} MiB {_SUM}{unreserved}"
    notes = [Note(memory.key, Outcome.APPROXIMATED, text)]
    if cores:
        notes.append(Note(cores.key, Outcome.TRANSLATED, f"{compute} % of that GPU"))
    demand = Demand(target="vgpu", memory=memory_bytes, cores=min(compute, 100))
    keyed_demand = KeyedDemand(memory.key, demand)
    return DialectAnswer(demands=(keyed_demand,), notes=tuple(notes))
