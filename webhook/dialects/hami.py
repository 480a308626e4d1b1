"""HAMi on NVIDIA devices: so many distinct GPUs for a container, so much memory and compute of each.

The arithmetic is that of HAMi's webhook and scheduler (Project-HAMi/HAMi: pkg/device/nvidia/device.go,
pkg/scheduler/webhook.go), edges included: which absent keys mean "all of it" depends on which others are present. The
target is HAMi's own DRA driver, where `cores` is always written, because its default is 100; only the exclusive form
leaves both out and takes the whole card.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from webhook.dialects.demand import MIB, Demand, Left, Note, Refusal
from webhook.dialects.table import Action, Dialect, Position, Role, Row, Unit
from webhook.dialects.targets import NUMA_NODE
from webhook.dialects.words import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.dialects.words import Hint, Options, Said

_NO_SCORING = "DRA has no scoring of devices; packing is the scheduler's"
_WRITTEN_BY_HAMI = "written by HAMi's scheduler: the pod has been placed already and stays as it is"
_KINDS = ["vgpu", "amd", "cambricon-mlu", "dcu", "enflame-gcu", "xpu", "metax-gpu", "metax-sgpu", "mthreads-vgpu"]

DIALECT = Dialect(
    name="hami",
    title="HAMi (NVIDIA devices)",
    rule="hami",
    target="vgpu",
    system=True,
    schedulers=("hami-scheduler",),
    scheduler_is_evidence=True,
    refuses_privileged=True,
    keys=(
        Row(
            name="nvidia.com/gpu",
            meaning="distinct physical GPUs for this container; 1 where only the keys below are given",
            role=Role.COUNT,
            common=True,
        ),
        Row(
            name="nvidia.com/gpumem",
            unit=Unit.MIB,
            meaning="memory of each GPU, in MiB times memoryFactor; 0 counts as present and means the whole memory",
            role=Role.MEMORY,
            most=2**31 - 1,
            because="refused where HAMi would silently drop the GPU (`3Gi` is no plain number of MiB)",
        ),
        Row(
            name="nvidia.com/gpumem-percentage",
            unit=Unit.PERCENT,
            meaning="memory of each GPU in percent, rounded down to MiB; loses against gpumem above 0; 0 is the whole memory",
            role=Role.MEMORY_PERCENT,
            most=100,
            because="resolved by the sizes of the GPUs in the fleet, or by the declared `models`",
        ),
        Row(
            name="nvidia.com/gpucores",
            unit=Unit.PERCENT,
            meaning="compute of each GPU in percent; 100 is exclusive; above 100 is 100; absent is unreserved",
            role=Role.CORES,
        ),
        Row(
            name="nvidia.com/priority",
            meaning="priority of the container's kernels (0 high, 1 low)",
            role=Role.PRIORITY,
            action=Action.APPROXIMATED,
            because="claims have no priority; set CUDA_TASK_PRIORITY on the container yourself",
        ),
        Row(
            name="nvidia.com/use-gputype",
            place=Position.ANNOTATION,
            unit=Unit.LIST,
            meaning="the product name contains one of these, whatever the case",
            role=Role.MODELS,
            common=True,
        ),
        Row(
            name="nvidia.com/nouse-gputype",
            place=Position.ANNOTATION,
            unit=Unit.LIST,
            meaning="the product name contains none of these",
            role=Role.NOT_MODELS,
            common=True,
        ),
        Row(
            name="nvidia.com/use-gpuuuid",
            place=Position.ANNOTATION,
            unit=Unit.LIST,
            meaning="only these GPUs",
            role=Role.UUIDS,
            common=True,
        ),
        Row(
            name="nvidia.com/nouse-gpuuuid",
            place=Position.ANNOTATION,
            unit=Unit.LIST,
            meaning="none of these GPUs",
            role=Role.NOT_UUIDS,
            common=True,
        ),
        Row(
            name="nvidia.com/numa-bind",
            place=Position.ANNOTATION,
            unit=Unit.BOOL,
            meaning="all GPUs of a container on one NUMA node",
            role=Role.NUMA_BIND,
            action=Action.APPROXIMATED,
            because="only where the driver publishes the NUMA node, which HAMi's does not; else as `numaBind` says",
        ),
        Row(
            name="nvidia.com/vgpu-mode",
            place=Position.ANNOTATION,
            unit=Unit.TEXT,
            meaning="hami-core, mig or mps: how the GPU is divided",
            role=Role.MODE,
            because="hami-core is what the target does; mig alone takes the smallest published profile that holds gpumem; mps alone is left",
        ),
        Row(
            name="hami.io/node-scheduler-policy",
            place=Position.ANNOTATION,
            unit=Unit.TEXT,
            meaning="binpack or spread over nodes",
            action=Action.IGNORED,
            because=_NO_SCORING,
        ),
        Row(
            name="hami.io/gpu-scheduler-policy",
            place=Position.ANNOTATION,
            unit=Unit.LIST,
            meaning="binpack, spread, topology-aware, numa; mutex: only GPUs without users",
            role=Role.POLICY,
            action=Action.IGNORED,
            because=f"{_NO_SCORING}; mutex becomes the exclusive form",
        ),
        Row(
            name="hami.io/device-scoring-weights",
            place=Position.ANNOTATION,
            unit=Unit.TEXT,
            meaning="weights of the scoring",
            action=Action.IGNORED,
            because=_NO_SCORING,
        ),
        Row(
            name="hami.io/webhook",
            place=Position.LABEL,
            unit=Unit.TEXT,
            meaning="ignore: HAMi's webhook keeps its hands off this pod",
            role=Role.OPT_OUT,
            action=Action.LEFT,
            because="and so do we",
        ),
        Row(
            name="hami.io/dra",
            place=Position.LABEL,
            unit=Unit.BOOL,
            meaning="an output: HAMi-DRA's webhook has made claims for this pod",
            role=Role.CLAIMED,
            action=Action.REFUSED,
            because="keys beside those claims would be served twice",
        ),
        Row(
            name="CUDA_DISABLE_CONTROL",
            place=Position.ENV,
            unit=Unit.BOOL,
            meaning="HAMi-core enforces nothing",
            action=Action.LEFT,
            because="stays on the container and means the same to the target driver's HAMi-core",
        ),
        Row(
            name="GPU_CORE_UTILIZATION_POLICY",
            place=Position.ENV,
            unit=Unit.TEXT,
            meaning="default, force or disable: how HAMi-core limits compute",
            action=Action.LEFT,
            because="stays on the container and means the same to the target driver's HAMi-core",
        ),
        *(
            Row(
                name=name,
                place=Position.ANNOTATION,
                unit=Unit.TEXT,
                meaning="an output",
                role=Role.PLACED,
                action=Action.LEFT,
                because=_WRITTEN_BY_HAMI,
            )
            for name in (
                "hami.io/vgpu-node",
                "hami.io/vgpu-time",
                "hami.io/bind-time",
                "hami.io/bind-phase",
                "hami.io/vgpu-mig-allocations",
                *(f"hami.io/{kind}-devices-to-allocate" for kind in _KINDS),
                *(f"hami.io/{kind}-devices-allocated" for kind in _KINDS),
            )
        ),
    ),
)


def read(said: Said, hints: Mapping[Role, Hint], options: Options) -> Answer:
    """Read one container as HAMi would, its webhook's injections included."""
    count = said.of(Role.COUNT)
    if count is not None and not count.value:
        return Answer(left=Left(count.key, "a count of 0 asks for no GPU, whatever the other keys say"))
    if count is None and all(amount.row.role is Role.PRIORITY for amount in said.amounts):
        return Answer(left=Left(said.amounts[0].key, "a priority alone asks for no GPU"))
    mode = _mode(hints.get(Role.MODE))
    if mode not in ("hami-core", "mig"):
        return Answer(left=Left(hints[Role.MODE].key, f"mode {mode!r} has no counterpart"))
    number = count.value if count else options.hami.default_gpu_num
    demand, notes, refusal = _share(said, number, options)
    if refusal:
        return Answer(refusals=(refusal,))
    if mode == "mig":
        if demand.memory is None:
            return Answer(left=Left(hints[Role.MODE].key, "which profile holds that much is told by gpumem only"))
        demand, notes = _mig(demand, notes, (count or said.amounts[0]).key)
    demand, more = _narrow(demand, hints)
    key = (count or said.amounts[0]).key
    return Answer(demands=((key, demand),), notes=(*notes, *more))


def _share(said: Said, count: int, options: Options) -> tuple[Demand, list[Note], Refusal | None]:
    """Memory and compute of each GPU. An absent key and a 0 differ: only an absent one can mean "exclusive"."""
    memory, percent, cores = said.of(Role.MEMORY), said.of(Role.MEMORY_PERCENT), said.of(Role.CORES)
    notes = [
        Note(a.key, Action.TRANSLATED, f"{a.value} distinct GPU{'s' * (a.value > 1)}")
        for a in (said.of(Role.COUNT),)
        if a
    ]
    amount, relative, refusal = _memory(said, options)
    whole = not amount and relative is None
    # HAMi's webhook injects gpucores: 100 by presence alone, and looks at the percentage first.
    injected = cores is None and (percent.value == 100 if percent else memory is None)
    compute = min(cores.value, 100) if cores else 100 if injected else options.hami.default_cores
    if cores and cores.value > 100:
        notes.append(Note(cores.key, Action.TRANSLATED, f"{cores.value} is clamped to 100, as HAMi does"))
    elif cores and not compute:
        notes.append(
            Note(cores.key, Action.APPROXIMATED, "cores 0: unreserved, and not kept off cards that are fully reserved")
        )
    elif cores:
        notes.append(Note(cores.key, Action.TRANSLATED, f"{compute} % of each GPU"))
    if priority := said.of(Role.PRIORITY):
        notes.append(Note(priority.key, Action.APPROXIMATED, priority.row.because))
    demand = Demand(target="vgpu", count=count)
    if whole and compute == 100:
        notes += [Note(a.key, Action.TRANSLATED, "the whole card, exclusively") for a in (memory, percent) if a]
        return demand, notes, refusal
    notes += _said_of_memory(said, amount, relative)
    if cores is None and not injected:
        key = next(a.key for a in (memory, percent, said.of(Role.COUNT)) if a)
        notes.append(Note(key, Action.APPROXIMATED, f"gpucores is absent: cores {compute}, unreserved and unlimited"))
    elif compute == 100 and amount:
        key = (cores or memory or said.amounts[0]).key
        notes.append(Note(key, Action.APPROXIMATED, "all compute, but a later share of 0 cores still fits on the card"))
    share = Demand(target="vgpu", count=count, memory=amount or None, memory_percent=relative, cores=compute)
    return share, notes, refusal


def _memory(said: Said, options: Options) -> tuple[int, int | None, Refusal | None]:
    """Bytes of each GPU (0: all of it), or percent where only that is known."""
    memory, percent = said.of(Role.MEMORY), said.of(Role.MEMORY_PERCENT)
    if memory and memory.value:
        factor = options.hami.memory_factor
        if memory.value * factor >= 2**31:
            return 0, None, Refusal(memory.key, f"{memory.value} MiB x {factor} is beyond HAMi's range", "ask for less")
        return memory.value * factor * MIB, None, None
    if percent and 0 < percent.value < 100:
        return 0, percent.value, None
    if percent and percent.value == 100:
        return 0, None, None
    return options.hami.default_memory * MIB, None, None


def _said_of_memory(said: Said, amount: int, relative: int | None) -> list[Note]:
    notes = []
    memory, percent = said.of(Role.MEMORY), said.of(Role.MEMORY_PERCENT)
    if memory:
        text = f"{amount // MIB} MiB of each GPU" if memory.value else "0 is the whole memory"
        notes.append(Note(memory.key, Action.TRANSLATED, text))
    if percent and memory and memory.value:
        notes.append(Note(percent.key, Action.IGNORED, f"{memory.key} decides about the amount"))
    elif percent:
        text = f"{relative} % of each GPU's memory" if relative else "the whole memory"
        notes.append(Note(percent.key, Action.TRANSLATED, text))
    return notes


def _mode(hint: Hint | None) -> str:
    """How the GPU is to be divided. HAMi matches a device's mode as a substring, so a list permits each of its modes."""
    if hint is None or not hint.text or "hami-core" in hint.text:
        return "hami-core"
    return "mig" if "mig" in hint.text else hint.text


def _mig(demand: Demand, notes: list[Note], key: str) -> tuple[Demand, list[Note]]:
    """Where only MIG may be used, HAMi carves the smallest profile that holds the memory; compute comes with it."""
    lost = (
        [Note(key, Action.APPROXIMATED, f"{demand.cores} % of compute: it comes with the profile")]
        if demand.cores
        else []
    )
    mig = Demand(target="mig", count=demand.count, profile_memory=demand.memory or 0)
    return mig, [*(note for note in notes if "gpucores is absent" not in note.detail), *lost]


def _narrow(demand: Demand, hints: Mapping[Role, Hint]) -> tuple[Demand, list[Note]]:
    """Add what the pod's annotations say about which GPUs may serve."""
    chosen = {role: hints[role] for role in _FILTERS if role in hints and hints[role].entries}
    notes = [Note(hint.key, Action.TRANSLATED, ", ".join(hint.entries)) for hint in chosen.values()]
    words = {_FILTERS[role]: hint.entries for role, hint in chosen.items()}
    policy = hints.get(Role.POLICY)
    exclusive = policy is not None and "mutex" in policy.entries
    if policy and exclusive and demand.partial:
        notes.append(Note(policy.key, Action.APPROXIMATED, "mutex: the whole card is reserved, not just found idle"))
    elif policy and not exclusive:
        notes.append(Note(policy.key, Action.IGNORED, _NO_SCORING))
    bind = hints.get(Role.NUMA_BIND)
    same = ""
    if bind and bind.text.strip() in _TRUE:
        if demand.count > 1:
            same = NUMA_NODE
            notes.append(Note(bind.key, Action.APPROXIMATED, "all GPUs of the container on one NUMA node"))
        else:
            notes.append(Note(bind.key, Action.TRANSLATED, "one GPU is always on one NUMA node"))
    base = Demand(target=demand.target, count=demand.count) if exclusive else demand
    return msgspec.structs.replace(base, same=same, **words), notes


_FILTERS = {
    Role.MODELS: "models",
    Role.NOT_MODELS: "not_models",
    Role.UUIDS: "uuids",
    Role.NOT_UUIDS: "not_uuids",
}
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})  # Go's strconv.ParseBool
