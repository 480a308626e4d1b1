"""GPUs: which combinations of numbers are taken, how many GPUs they are spread over, and what each has of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from webhook.dialects.demand import MIB, Demand, Keyed, Left, Note, Refusal
from webhook.dialects.systems.koordinator.draft import several
from webhook.dialects.systems.koordinator.pod_words import CORE, COUNT, GPU, MEMORY, RATIO, RDMA, SHARED, show
from webhook.dialects.table import Action, Role
from webhook.dialects.targets import NUMA_NODE, PCIE_ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.dialects.systems.koordinator.draft import Draft, Stop
    from webhook.dialects.systems.koordinator.pod_words import PodWords

# What the scheduler accepts, zeros dropped; anything else is unschedulable for good.
ACCEPTED: Final = frozenset(
    frozenset(parts)
    for parts in (
        (COUNT,),
        (GPU,),
        (MEMORY,),
        (RATIO,),
        (CORE, MEMORY),
        (CORE, RATIO),
        (SHARED, MEMORY),
        (SHARED, RATIO),
        (SHARED, CORE, MEMORY),
        (SHARED, CORE, RATIO),
    )
)
# What GPUs share that are held to a scope, and how large the partitions are that drivers publish.
SCOPES: Final = {"NUMANode": NUMA_NODE, "PCIe": PCIE_ROOT}
ANYWHERE: Final = ("", "Node")
PARTITIONS: Final = (1, 2, 4, 8)

_SELECTED = "label selectors on GPUs have no counterpart: slices have attributes, and no labels"


class _Each(NamedTuple):
    """How many GPUs, and what each of them has: percent of compute and of memory, bytes of memory."""

    number: int
    core: int
    ratio: int
    memory: int


def ask(draft: Draft) -> Draft | Stop:
    """Ask for the pod's GPUs."""
    words = draft.words
    sums = {part: amount for part, amount in words.sums.items() if part is not RDMA}
    if not sums:
        return draft
    key = words.key(GPU, COUNT, RATIO, MEMORY, CORE, SHARED)
    if words.hint("gpu").selector:
        return Left(words.names[Role.HINT], _SELECTED)
    if frozenset(sums) not in ACCEPTED:
        return _refuse_combination(words, sums, key)
    each = _spread(sums, key)
    if isinstance(each, Refusal):
        return each
    key = words.key(COUNT) if COUNT in sums else key
    demand, notes = _whole(each, key) if each.ratio == 100 else _shares(each, key)
    tied = _tie(words, demand)
    if not isinstance(tied, Demand):
        return tied
    shown = words.key(RATIO, GPU, COUNT, MEMORY, CORE, SHARED)
    asked = Keyed(shown, tied)
    return replace(draft, gpus=tied, asked=(asked,), notes=notes)


def _refuse_combination(words: PodWords, sums: Mapping[Role, int], key: str) -> Refusal:
    have = sorted(words.keys[part] for part in sums if part in words.keys)
    listed = ", ".join(have) or key
    missing = "; gpu-core needs gpu-memory or gpu-memory-ratio" if sums.keys() <= {CORE, SHARED} else ""
    return Refusal(key, f"Koordinator does not accept this combination in one pod: {listed}{missing}")


def _spread(sums: Mapping[Role, int], key: str) -> _Each | Refusal:
    """Divide the sums by the number of GPUs that they are spread over."""
    if COUNT in sums:
        return _Each(sums[COUNT], core=100, ratio=100, memory=0)
    both = sums.get(GPU, 0)  # not rewritten: init containers, or the webhook is off
    core, ratio = sums.get(CORE, both), sums.get(RATIO, both)
    count = sums.get(SHARED, 0)
    if not count:
        for percent in (core, ratio):
            if percent > 100 and percent % 100:
                return Refusal(key, f"{percent} is above 100 and not a multiple of it", "ask for whole GPUs")
        count = max(1, ratio // 100)
    for percent in (core, ratio):
        each, rest = divmod(percent, count)
        if rest:
            problem = f"{percent} % in the whole pod can't be divided by {count} GPUs"
            return Refusal(key, problem, "make the sum divisible")
        if each > 100:
            return Refusal(key, f"{each} % of one GPU is more than there is", "write multiples of 100")
    return _Each(count, core // count, ratio // count, sums.get(MEMORY, 0) // count)


def _whole(each: _Each, key: str) -> tuple[Demand, tuple[Note, ...]]:
    text = f"{several(each.number, 'whole GPU')} that all containers see"
    return Demand(target="gpu", count=each.number), (Note(key, Action.TRANSLATED, text),)


def _shares(each: _Each, key: str) -> tuple[Demand, tuple[Note, ...]]:
    demand = Demand(
        target="vgpu",
        count=each.number,
        memory=each.memory or None,
        memory_percent=each.ratio or None,
        cores=each.core,
    )
    memory = _note_memory(each, key)
    if each.core:
        return demand, (memory,)
    return demand, (Note(key, Action.APPROXIMATED, "no compute share is asked for: cores 0, unreserved"), memory)


def _note_memory(each: _Each, key: str) -> Note:
    """Say how much of each GPU's memory is asked for, and what is lost."""
    if each.ratio:
        text = f"{each.number} x {each.ratio} % of a GPU's memory, by the sizes in the fleet"
        return Note(key, Action.APPROXIMATED, text)
    whole, rest = divmod(each.memory, MIB)
    if rest:
        text = f"{each.number} x {each.memory} bytes, which the driver rounds up to MiB"
        return Note(key, Action.APPROXIMATED, text)
    return Note(key, Action.TRANSLATED, f"{each.number} x {whole} MiB of a GPU's memory")


def _tie(words: PodWords, gpus: Demand) -> Demand | Stop:
    """Add what must hold between the GPUs themselves: a partition, or a topology scope."""
    scope = words.hint("gpu").required_topology_scope
    if gpus.partial:
        if scope in ANYWHERE or gpus.count == 1:
            return gpus
        return Refusal(words.names[Role.HINT], f"several shared GPUs can't be held to scope {show(scope)}")
    if words.partition is None:
        tie = SCOPES.get(scope, "") if gpus.count > 1 else ""
        return replace(gpus, same=tie)
    key = words.names[Role.PARTITION]
    if words.partition.ring_bus_bandwidth is not None:
        return Left(key, "ringBusBandwidth is a hard filter that no driver publishes")
    if gpus.count not in PARTITIONS:
        return Left(key, f"no driver publishes partitions of {gpus.count} GPUs: ask for 1, 2, 4 or 8")
    return replace(gpus, same=f"gpu.nvidia.com/partition{gpus.count}")
