"""HAMi on NVIDIA devices: a container requests a number of distinct GPUs, and memory and compute of each.

The arithmetic is that of HAMi's webhook and scheduler (Project-HAMi/HAMi: pkg/device/nvidia/device.go, pkg/scheduler/webhook.go), including
its special cases: the other keys decide whether an absent key means the whole amount. HAMi's own DRA driver serves the claims. A demand always
states cores, because the driver's default is 100; only a demand for a whole, exclusive card states neither cores nor memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from webhook.dialects.table import (
    Dialect,
    Outcome,
    Position,
    Role,
    SchedulerSupport,
    Unit,
    dropped,
    placed,
    row,
    untranslated,
)
from webhook.dialects.targets import NUMA_NODE, PCIE_ROOT, Target
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

    from dra.reason import Reason
    from webhook.dialects.vocabulary import Amount, DialectRequest, Hint

_PACKING = "a claim cannot express it; if the bridge places the pod, the bridge uses its most similar strategy"
_KINDS = ["vgpu", "amd", "cambricon-mlu", "dcu", "enflame-gcu", "xpu", "metax-gpu", "metax-sgpu", "mthreads-vgpu"]

DIALECT = Dialect(
    name="hami",
    title="HAMi (NVIDIA devices)",
    target="vgpu",
    system=True,
    schedulers=("hami-scheduler",),
    scheduler_is_evidence=True,
    refuses_privileged=True,
    keys=(
        row(
            "nvidia.com/gpu",
            "distinct physical GPUs for this container; 1 if the container has only the keys below",
            Role.COUNT,
            common=True,
        ),
        row(
            "nvidia.com/gpumem",
            "memory of each GPU, in MiB times memoryFactor; 0 means the whole memory, but not an exclusive GPU",
            Role.MEMORY,
            unit=Unit.MIB,
            most=2**31 - 1,
            because="an amount that is not a plain number of MiB, such as `3Gi`, is refused, because HAMi would silently drop the GPU",
        ),
        row(
            "nvidia.com/gpumem-percentage",
            "memory of each GPU in percent, rounded down to MiB; a gpumem above 0 takes precedence; 0 means the whole memory",
            Role.MEMORY_PERCENT,
            most=100,
            because="computed from the sizes of the GPUs in the fleet, or from the declared `models`",
        ),
        row(
            "nvidia.com/gpucores",
            "compute of each GPU in percent; 100 is exclusive; more than 100 counts as 100; without the key, no compute is reserved",
            Role.CORES,
        ),
        row(
            "nvidia.com/priority",
            "priority of the container's CUDA kernels (0 high, 1 low)",
            Role.PRIORITY,
            outcome=Outcome.APPROXIMATED,
            because="claims have no priority; set CUDA_TASK_PRIORITY on the container yourself",
        ),
        row(
            "nvidia.com/use-gputype",
            "the product name contains one of these, ignoring case",
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
        row("nvidia.com/use-gpuuuid", "only these GPUs", Role.UUIDS, Position.ANNOTATION, common=True),
        row("nvidia.com/nouse-gpuuuid", "none of these GPUs", Role.NOT_UUIDS, Position.ANNOTATION, common=True),
        row(
            "nvidia.com/numa-bind",
            "all GPUs of a container on one NUMA node",
            Role.NUMA_BIND,
            Position.ANNOTATION,
            unit=Unit.BOOL,
            outcome=Outcome.APPROXIMATED,
            because="only if the driver publishes NUMA nodes, which HAMi's does not; else the setting `numaBind` decides",
        ),
        row(
            "nvidia.com/vgpu-mode",
            "how the GPU is divided: hami-core, mig or mps",
            Role.MODE,
            Position.ANNOTATION,
            because="the driver divides GPUs as hami-core does; mig as the only mode requests the smallest published profile with enough memory; mps as the only mode is not translated",
        ),
        dropped("hami.io/node-scheduler-policy", "binpack or spread over nodes", _PACKING),
        row(
            "hami.io/gpu-scheduler-policy",
            "binpack, spread, topology-aware, numa; mutex: only GPUs that no pod uses",
            Role.POLICY,
            Position.ANNOTATION,
            unit=Unit.LIST,
            outcome=Outcome.APPROXIMATED,
            because=f"dropped: {_PACKING}; mutex requests the whole card",
        ),
        dropped(
            "hami.io/device-scoring-weights",
            "weights of the scoring",
            "a claim cannot express it, and the bridge's strategies score by other criteria",
        ),
        untranslated(
            "hami.io/webhook",
            "ignore: HAMi's webhook leaves this pod alone",
            "the pod's annotation opts out",
            Position.LABEL,
            role=Role.OPT_OUT,
            when="ignore",
        ),
        untranslated(
            "hami.io/dra",
            "an output: HAMi-DRA's webhook has made claims for this pod",
            "the pod would get devices twice: by those claims, and by ours",
            Position.LABEL,
            role=Role.CLAIMED,
            unit=Unit.BOOL,
            when="true",
        ),
        untranslated(
            "CUDA_DISABLE_CONTROL",
            "HAMi-core enforces nothing",
            "stays on the container: the target driver's HAMi-core reads it the same way",
            Position.ENV,
            unit=Unit.BOOL,
        ),
        untranslated(
            "GPU_CORE_UTILIZATION_POLICY",
            "default, force or disable: how HAMi-core limits compute",
            "stays on the container: the target driver's HAMi-core reads it the same way",
            Position.ENV,
        ),
        *(
            placed(name, "HAMi's scheduler")
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


_Number = Annotated[int, Meta(ge=0, le=MAX_MIB - 1)]


class HamiOptions(FactorOptions, frozen=True, kw_only=True):
    """The values of HAMi's device ConfigMap, if they differ from HAMi's defaults."""

    # GPUs of a container that states no number.
    default_gpu_num: _Number = msgspec.field(name="defaultGPUNum", default=1)
    default_memory: _Number = 0  # MiB for a container that states no memory; 0 is the whole memory.
    # Percent of a GPU's compute for a container that states none.
    default_cores: Annotated[int, Meta(ge=0, le=100)] = 0


def read(request: DialectRequest[HamiOptions]) -> DialectAnswer | Reason:
    """Return the demand of one container as HAMi reads it, after the changes of HAMi's webhook."""
    container, hints, options = request.containers[0], request.hints, request.options
    by_role = {amount.row.role: amount for amount in reversed(container.amounts)}
    count, memory, percent = by_role.get(Role.COUNT), by_role.get(Role.MEMORY), by_role.get(Role.MEMORY_PERCENT)
    first = count or memory or percent or container.amounts[0]
    if count is not None and not count.value:
        return leave(count.key, "a count of 0 requests no GPU, whatever the other keys say")
    if count is None and all(amount.row.role is Role.PRIORITY for amount in container.amounts):
        return leave(first.key, "a priority alone requests no GPU")
    if count is None and not options.default_gpu_num:
        return leave(first.key, "without a count it requests no GPU (`hami: {defaultGPUNum: 0}`)")
    # HAMi checks whether the text contains a device's mode, so a list permits every mode in it.
    hint = hints.get(Role.MODE)
    as_mig = False
    if hint is not None and hint.text and "hami-core" not in hint.text:
        as_mig = "mig" in hint.text
        if not as_mig:
            return leave(hint.key, f"mode {hint.text!r} has no counterpart")
    # Without gpucores, an absent gpumem and a gpumem of 0 differ: only the absent one can mean "exclusive".
    memory_bytes, relative = options.default_memory * MIB, None
    if memory and memory.value:
        factor = options.memory_factor
        if memory.value * factor >= MAX_MIB:
            reason = f"{memory.value} MiB x {factor} is beyond HAMi's range"
            return refuse(memory.key, reason, "ask for less")
        memory_bytes = memory.value * factor * MIB
    elif percent and percent.value:
        memory_bytes = 0
        relative = percent.value if percent.value < 100 else None
    if hint is not None and as_mig and not memory_bytes:
        return leave(hint.key, "without gpumem no MIG profile can be chosen")
    # Whether HAMi's webhook adds `gpucores: 100` depends on which keys are present; it checks the percentage first.
    requested_cores = by_role.get(Role.CORES)
    injected = requested_cores is None and (percent.value == 100 if percent else memory is None)
    cores = 100 if injected else options.default_cores
    if requested_cores:
        cores = min(requested_cores.value, 100)
    key, number = first.key, count.value if count else options.default_gpu_num
    share = _GpuShare(memory_bytes=memory_bytes, percent=relative, cores=cores, injected=injected)
    notes = _notes(by_role, first, share)
    if as_mig:
        # HAMi creates the smallest profile with enough memory, which also fixes the compute. The MIG devices may be on the same card.
        demand = Demand(target="mig", count=number, profile_memory=memory_bytes)
        count_note = Note(key, Outcome.TRANSLATED, count_of(number, "MIG device"))
        notes = [count_note, *(note for note in notes if note.about not in (Role.CORES, Role.COUNT))]
        if cores:
            notes.append(Note(key, Outcome.APPROXIMATED, f"{cores} % of compute: it comes with the profile"))
    elif share.exclusive:
        demand = Demand(target="vgpu", count=number)
    else:
        demand = Demand(target="vgpu", count=number, memory=memory_bytes or None, memory_percent=relative, cores=cores)
    if hints:
        demand = _narrow(demand, hints, notes)
    return DialectAnswer(demands=(KeyedDemand(key, demand),), notes=tuple(notes))


class _GpuShare(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The memory and compute that HAMi would reserve on each GPU."""

    memory_bytes: int  # 0 is the whole memory
    percent: int | None  # percent of the memory, if the key is a percentage
    cores: int
    injected: bool  # whether HAMi's webhook added the cores

    @property
    def exclusive(self) -> bool:
        """Return whether the pod has the whole card to itself."""
        return not self.memory_bytes and self.percent is None and self.cores == 100


def _notes(by_role: Mapping[Role, Amount], first: Amount, share: _GpuShare) -> list[Note]:
    """Return what becomes of each key; `by_role` has the first amount of each role."""
    count, memory, percent = by_role.get(Role.COUNT), by_role.get(Role.MEMORY), by_role.get(Role.MEMORY_PERCENT)
    cores, priority = by_role.get(Role.CORES), by_role.get(Role.PRIORITY)
    notes: list[Note] = []
    if count:
        notes.append(Note(count.key, Outcome.TRANSLATED, count_of(count.value, "distinct GPU"), Role.COUNT))
    if cores and cores.value > 100:
        notes.append(Note.of_clamped(cores))
    elif cores and not share.cores:
        text = "cores are 0: no compute is reserved, and unlike in HAMi, a card without free cores can be chosen"
        notes.append(Note(cores.key, Outcome.APPROXIMATED, text))
    elif cores:
        notes.append(Note(cores.key, Outcome.TRANSLATED, f"{share.cores} % of each GPU"))
    if priority:
        notes.append(Note(priority.key, Outcome.APPROXIMATED, priority.row.because))
    if share.exclusive:
        whole = "the whole card, exclusively"
        return notes + [Note(amount.key, Outcome.TRANSLATED, whole) for amount in (memory, percent) if amount]
    if memory:
        text = f"{share.memory_bytes // MIB} MiB of each GPU" if memory.value else "0 is the whole memory"
        notes.append(Note(memory.key, Outcome.TRANSLATED, text))
    if percent and memory and memory.value:
        notes.append(Note(percent.key, Outcome.TRANSLATED, f"{memory.key} determines the amount"))
    elif percent:
        text = f"{share.percent} % of each GPU's memory" if share.percent else "the whole memory"
        notes.append(Note(percent.key, Outcome.TRANSLATED, text))
    if cores is None and not share.injected:
        about = memory or percent or count or first
        if share.cores:
            note = Note(about.key, Outcome.TRANSLATED, f"gpucores is absent: the default is {share.cores}", Role.CORES)
        else:
            note = Note(
                about.key, Outcome.APPROXIMATED, "gpucores is absent: cores 0, unreserved and unlimited", Role.CORES
            )
        notes.append(note)
    elif share.cores == 100 and share.memory_bytes:
        about = cores or memory or first
        text = "all compute, but a later share of 0 cores still fits on the card"
        notes.append(Note(about.key, Outcome.APPROXIMATED, text))
    return notes


_FILTERS = {
    Role.MODELS: "models",
    Role.NOT_MODELS: "not_models",
    Role.UUIDS: "uuids",
    Role.NOT_UUIDS: "not_uuids",
}
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})  # Go's strconv.ParseBool


def _narrow(demand: Demand, hints: Mapping[Role, Hint], notes: list[Note]) -> Demand:
    """Add the filters of the pod's annotations to the demand."""
    filters: dict[str, tuple[str, ...]] = {}
    for role, field in _FILTERS.items():
        hint = hints.get(role)
        entries = hint.entries if hint else ()
        if hint and entries:
            filters[field] = entries
            first = ", ".join(entries[:8])
            shown = first if len(first) <= 200 else f"{first[:200]}…"
            more = "" if len(entries) <= 8 else f" and {len(entries) - 8} more"
            notes.append(Note(hint.key, Outcome.TRANSLATED, f"{shown}{more}"))
    policy = hints.get(Role.POLICY)
    exclusive = policy is not None and "mutex" in policy.entries
    if policy and exclusive and demand.partial:
        notes.append(
            Note(
                policy.key,
                Outcome.APPROXIMATED,
                "mutex: the claim reserves the whole card; HAMi only checks that the card is idle",
            )
        )
    elif policy and not exclusive:
        notes.append(Note.of_dropped(policy.key, _PACKING))
    if exclusive:
        demand = Demand(target=demand.target, count=demand.count)
    bind = hints.get(Role.NUMA_BIND)
    same_attribute = ""
    if bind and bind.text.strip() in _TRUE and demand.count > 1:
        same_attribute = NUMA_NODE
        notes.append(Note(bind.key, Outcome.APPROXIMATED, "all GPUs of the container on one NUMA node"))
    elif bind and bind.text.strip() in _TRUE:
        notes.append(Note(bind.key, Outcome.TRANSLATED, "one GPU is always on one NUMA node"))
    return msgspec.structs.replace(demand, same_attribute=same_attribute, **filters)


VOCABULARY = Vocabulary(
    table=DIALECT,
    targets=(
        Target(
            name="vgpu",
            title="share of a GPU",
            driver="hami-core-gpu.project-hami.io",
            classes=("hami-core-gpu.project-hami.io",),
            type="hami-gpu",
            unique="hami-core-gpu.project-hami.io/uuid",
            product="hami-core-gpu.project-hami.io/productName",
            separable=False,
            attributes=(PCIE_ROOT, "hami-core-gpu.project-hami.io/uuid", "hami-core-gpu.project-hami.io/productName"),
            instead="gpu",
            vendor="NVIDIA",
            one_product=True,
            prepares_once=True,
        ),
    ),
    read=read,
    options=HamiOptions,
    schedulers={"hami-scheduler": SchedulerSupport(like_cluster=True)},
)
