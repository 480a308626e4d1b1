"""Keys that put a whole pod on one card: Volcano's gpushare, and Aliyun's.

The requests of containers are summed up (`plain.total`), and one device must have room for the sum. Neither system limits what a pod uses;
the target driver does. Rows follow volcano-sh/volcano: pkg/scheduler/api/devices/nvidia/gpushare, and
AliyunContainerService/gpushare-scheduler-extender: pkg/utils.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from webhook.dialects.plain import total
from webhook.dialects.table import Dialect, Outcome, Position, Role, Scope, Unit, node_label, placed, row, untranslated
from webhook.dialects.vocabulary import (
    MIB,
    Demand,
    DialectAnswer,
    DialectOptions,
    FactorOptions,
    KeyedDemand,
    Note,
    Vocabulary,
    count_of,
    leave,
    refuse,
)

if TYPE_CHECKING:
    from dra.reason import Reason
    from webhook.dialects.vocabulary import ContainerAmounts

_EXTENSION = "the scheduler's extension"
_ENFORCED = "the limit is enforced from now on: a process that uses more than its pod requests fails"
_SUM = "of the one GPU that the pod shares; enforced from now on, unlike before"


SHARE = Dialect(
    name="volcanoshare",
    title="Volcano gpushare",
    scope=Scope.POD,
    target="vgpu",
    system=True,
    schedulers=("volcano",),
    keys=(
        row(
            "volcano.sh/gpu-memory",
            "memory, for the pod as a whole on one GPU, in MiB times memoryFactor",
            Role.MEMORY,
            unit=Unit.MIB,
            outcome=Outcome.APPROXIMATED,
            because=_ENFORCED,
        ),
        row("volcano.sh/gpu-number", "whole GPUs, for the pod as a whole", Role.COUNT),
        placed("volcano.sh/gpu-index", _EXTENSION),
    ),
)
ALIYUN = Dialect(
    name="aliyun",
    title="Aliyun gpushare and ACK",
    scope=Scope.POD,
    target="vgpu",
    system=True,
    keys=(
        row(
            "aliyun.com/gpu-mem",
            "memory, for the pod as a whole on one GPU, in GiB (`memoryUnit`)",
            Role.MEMORY,
            unit=Unit.GIB,
            outcome=Outcome.APPROXIMATED,
            because=_ENFORCED,
        ),
        row("aliyun.com/gpu-core.percentage", "compute of that GPU in percent, in steps of 5", Role.CORES, most=100),
        row("aliyun.com/gpu", "whole GPUs, near each other on topology nodes", Role.COUNT),
        untranslated(
            "aliyun.com/gpu-count",
            "a capacity of nodes; its use on pods is not documented",
            "what it requests is not documented",
            role=Role.POLICY,
        ),
        *(
            untranslated(
                f"alibabacloud.com/gpu-{part}.percentage",
                "a share of a GPU on GPU-HPN nodes (ACS)",
                "such nodes are Alibaba Cloud's own, and publish no devices",
                role=Role.POLICY,
                unit=Unit.PERCENT,
            )
            for part in ("core", "memory")
        ),
        *(
            node_label(name, "how the node allocates its GPUs")
            for name in ("ack.node.gpu.schedule", "ack.node.gpu.placement")
        ),
        placed("scheduler.framework.gpushare.allocation", _EXTENSION),
        placed("gpushare.alibabacloud.com/core-percentage", _EXTENSION, Position.LABEL),
        *(
            placed(f"ALIYUN_COM_GPU_MEM_{part}", _EXTENSION)
            for part in ("IDX", "POD", "DEV", "ASSIGNED", "ASSUME_TIME")
        ),
        *(placed(f"ALIYUN_COM_GPU_MEM_{part}", _EXTENSION, Position.ENV) for part in ("CONTAINER", "DEV", "IDX")),
    ),
)


class AliyunOptions(DialectOptions, frozen=True, kw_only=True):
    """How Aliyun's device plugin is set up."""

    memory_unit: Literal["GiB", "MiB"] = "GiB"  # The plugin's flag `memory-unit`.


def _read(containers: tuple[ContainerAmounts, ...], unit: int) -> DialectAnswer | Reason:
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


VOLCANO_SHARE = Vocabulary(
    table=SHARE,
    read=lambda request: _read(request.containers, request.options.memory_factor * MIB),
    options=FactorOptions,
)
VOCABULARY = Vocabulary(
    table=ALIYUN,
    read=lambda request: _read(request.containers, MIB << 10 if request.options.memory_unit == "GiB" else MIB),
    options=AliyunOptions,
)
