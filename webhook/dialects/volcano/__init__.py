"""Volcano's vGPU: a number of distinct GPUs for a container, with amounts of memory and compute of each.

It comes from HAMi and differs in three points. The percentage takes precedence over the amount. Without a compute key the compute is 0, and
never the whole card. GPUs of init containers are not counted. Rows and arithmetic follow volcano-sh/volcano:
pkg/scheduler/api/devices/nvidia/vgpu, and Project-HAMi/volcano-vgpu-device-plugin: doc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.reason import Reason
from webhook.dialects.table import Dialect, Outcome, Position, Role, Unit, dropped, placed, row, untranslated
from webhook.dialects.vocabulary import (
    MAX_MIB,
    MIB,
    Demand,
    DialectAnswer,
    FactorOptions,
    KeyedDemand,
    Note,
    Vocabulary,
    count_of,
    leave,
    refuse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.dialects.vocabulary import DialectRequest, Hint


_GANG = "the pod belongs to a group or queue of Volcano, which other schedulers ignore: it keeps its scheduler"

DIALECT = Dialect(
    name="volcano",
    title="Volcano vGPU",
    target="vgpu",
    system=True,
    schedulers=("volcano",),
    keys=(
        row(
            "volcano.sh/vgpu-number",
            "distinct physical GPUs for this container; 1 if the container has only a memory key",
            Role.COUNT,
        ),
        row(
            "volcano.sh/vgpu-memory",
            "memory of each GPU, in MiB times memoryFactor; 0 is the whole memory",
            Role.MEMORY,
            unit=Unit.MIB,
            most=MAX_MIB - 1,
        ),
        row(
            "volcano.sh/vgpu-memory-percentage",
            "memory of each GPU in percent; takes precedence over vgpu-memory",
            Role.MEMORY_PERCENT,
            most=100,
            because="computed from the sizes of the GPUs in the fleet, or from the declared `models`; 0 is refused, because it reserves nothing",
        ),
        row(
            "volcano.sh/vgpu-cores",
            "compute of each GPU in percent; without the key, no compute is reserved",
            Role.CORES,
            most=100,
        ),
        row(
            "volcano.sh/vgpu-mode",
            "how the GPU is divided: hami-core or mig",
            Role.MODE,
            Position.ANNOTATION,
            because="the driver divides GPUs as hami-core does; with mig, the container stays as it is",
        ),
        row("volcano.sh/vgpu-use-gpuuuid", "only these GPUs", Role.UUIDS, Position.ANNOTATION),
        row("volcano.sh/vgpu-nouse-gpuuuid", "none of these GPUs", Role.NOT_UUIDS, Position.ANNOTATION),
        row(
            "nvidia.com/use-gputype",
            "the product name contains one of these (spaces count); with this key, nouse-gputype has no effect",
            Role.MODELS,
            Position.ANNOTATION,
            common=True,
        ),
        row(
            "nvidia.com/nouse-gputype",
            "the product name contains none of these",
            Role.NOT_MODELS,
            Position.ANNOTATION,
            common=True,
        ),
        dropped(
            "volcano.sh/vgpu-podgroup-policy",
            "spread the members of a group over GPUs",
            "a claim cannot express it; if the bridge places the pod, its strategy LowLoadFirst spreads all pods",
        ),
        *(
            untranslated(name, "membership of a group or a queue", _GANG, place, role=Role.SCHEDULED)
            for name, place in (
                ("scheduling.k8s.io/group-name", Position.ANNOTATION),
                ("scheduling.volcano.sh/queue-name", Position.ANNOTATION),
                ("volcano.sh/queue-name", Position.LABEL),
            )
        ),
        *(
            placed(f"volcano.sh/{name}", "Volcano's scheduler")
            for name in (
                "vgpu-ids-new",
                "devices-to-allocate",
                "vgpu-node",
                "vgpu-time",
                "bind-time",
                "bind-phase",
                "predicate-time",
            )
        ),
    ),
)


class VolcanoOptions(FactorOptions, frozen=True, kw_only=True):
    """How Volcano's vGPU is set up."""

    # Whether the plugin's ConfigMap names the percentage key; if not, Volcano does not read the key.
    percentage: bool = True


def read(request: DialectRequest[VolcanoOptions]) -> DialectAnswer | Reason:
    container, options = request.containers[0], request.options
    first = container.amounts[0]
    if container.init or container.ordinary_init:
        return leave(first.key, "Volcano counts no GPUs of init containers")
    count_amount, memory, percent = (
        container.amount_of(Role.COUNT),
        container.amount_of(Role.MEMORY),
        container.amount_of(Role.MEMORY_PERCENT),
    )
    if not (count_amount.value if count_amount else container.number(Role.MEMORY)):
        return leave(first.key, "requests no GPU without vgpu-number or vgpu-memory")
    mode = request.hints.get(Role.MODE)
    if mode and mode.text not in ("", "hami-core"):
        return leave(mode.key, f"mode {mode.text[:40]!r} has no counterpart")
    key = count_amount.key if count_amount else first.key
    # The demand always has cores, because the driver's default is all of them.
    count, cores = container.number(Role.COUNT, 1), container.number(Role.CORES)
    demand = Demand(target="vgpu", count=count, cores=cores)
    compute = (
        f"{cores} % of compute"
        if cores
        else "no compute is requested: cores are 0, and compute is neither reserved nor limited"
    )
    if cores == 100:
        compute = "all compute, but a later share of 0 cores still fits on the card"
    notes = [Note(key, Outcome.APPROXIMATED, f"{count_of(count, 'distinct GPU')}; {compute}")]
    if percent and options.percentage:
        notes.append(Note(percent.key, Outcome.TRANSLATED, f"{percent.value} % of each GPU's memory"))
        if memory:
            notes.append(Note(memory.key, Outcome.TRANSLATED, f"{percent.key} determines the amount"))
        if not percent.value:
            return refuse(percent.key, "0 % reserves no memory at all", "ask for 1 or more")
        relative = percent.value if percent.value < 100 else None
        demand = msgspec.structs.replace(demand, memory_percent=relative)
    elif memory:
        amount = memory.value * options.memory_factor
        if amount >= MAX_MIB:
            reason = f"{memory.value} MiB x {options.memory_factor} is beyond Volcano's range"
            return refuse(memory.key, reason, "ask for less")
        notes.append(
            Note(memory.key, Outcome.TRANSLATED, f"{amount} MiB of each GPU" if amount else "0 is the whole memory")
        )
        demand = msgspec.structs.replace(demand, memory=amount * MIB or None)
    narrowed = _narrow(demand, request.hints, notes)
    if isinstance(narrowed, Reason):
        return narrowed
    return DialectAnswer(demands=(KeyedDemand(key, narrowed),), notes=tuple(notes))


def _narrow(demand: Demand, hints: Mapping[Role, Hint], notes: list[Note]) -> Demand | Reason:
    """Add the filters of annotations. As in Volcano, entries of models are not trimmed, and an empty entry matches every model."""
    filters: dict[str, tuple[str, ...]] = {}
    for role, field in ((Role.UUIDS, "uuids"), (Role.NOT_UUIDS, "not_uuids")):
        hint = hints.get(role)
        if hint and hint.entries:
            filters[field] = hint.entries
            notes.append(Note(hint.key, Outcome.TRANSLATED, f"{len(hint.entries)} of the GPUs"))
    models_hint = hints.get(Role.MODELS)
    not_models_hint = hints.get(Role.NOT_MODELS)
    if models_hint:
        models = tuple(models_hint.text.split(","))
        filters["models"] = () if "" in models else models
        notes.append(Note(models_hint.key, Outcome.TRANSLATED, "the product name contains one of them"))
    if models_hint and not_models_hint:
        notes.append(
            Note(
                not_models_hint.key, Outcome.TRANSLATED, f"has no effect together with {models_hint.key}, as in Volcano"
            )
        )
    elif not_models_hint:
        models = tuple(not_models_hint.text.split(","))
        if "" in models:
            return refuse(not_models_hint.key, "an empty entry excludes every GPU", "remove the empty entry")
        filters["not_models"] = models
        notes.append(Note(not_models_hint.key, Outcome.TRANSLATED, "the product name contains none of them"))
    return msgspec.structs.replace(demand, **filters)


VOCABULARY = Vocabulary(table=DIALECT, read=read, options=VolcanoOptions)
