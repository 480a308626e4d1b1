"""Volcano's vGPU: so many distinct GPUs for a container, so much memory and compute of each.

Like HAMi's words, from which it comes, but for the edges: the percentage wins over the amount, compute that nobody asks for is 0 and never
the whole card, and init containers do not count. Rows and arithmetic follow volcano-sh/volcano: pkg/scheduler/api/devices/nvidia/vgpu,
and Project-HAMi/volcano-vgpu-device-plugin: doc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from webhook.dialects.demand import MIB, Answer, Demand, Keyed, Left, Note, Refusal
from webhook.dialects.table import Action, Dialect, Position, Role, Row, Unit
from webhook.dialects.vocabulary import Vocabulary
from webhook.dialects.words import Mistake, Options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.dialects.words import Amount, Hint, Said, Words

_PLACED = "written by Volcano's scheduler: the pod has been placed already and stays as it is"
_GANG = (
    "the pod belongs to a group or queue of Volcano's, which another scheduler would not keep: it keeps its scheduler"
)
_RANGE = 2**31

DIALECT = Dialect(
    name="volcano",
    title="Volcano vGPU",
    target="vgpu",
    system=True,
    schedulers=("volcano",),
    keys=(
        Row(
            name="volcano.sh/vgpu-number",
            meaning="distinct physical GPUs for this container; 1 where only memory is given",
            role=Role.COUNT,
        ),
        Row(
            name="volcano.sh/vgpu-memory",
            unit=Unit.MIB,
            meaning="memory of each GPU, in MiB times memoryFactor; 0 is the whole memory",
            role=Role.MEMORY,
            most=_RANGE - 1,
        ),
        Row(
            name="volcano.sh/vgpu-memory-percentage",
            unit=Unit.PERCENT,
            meaning="memory of each GPU in percent; wins over vgpu-memory",
            role=Role.MEMORY_PERCENT,
            most=100,
            because="resolved by the sizes of the GPUs in the fleet, or by the declared `models`; 0 is refused, since it reserves nothing",
        ),
        Row(
            name="volcano.sh/vgpu-cores",
            unit=Unit.PERCENT,
            meaning="compute of each GPU in percent; absent is unreserved",
            role=Role.CORES,
            most=100,
        ),
        Row(
            name="volcano.sh/vgpu-mode",
            place=Position.ANNOTATION,
            unit=Unit.TEXT,
            meaning="hami-core or mig: how the GPU is divided",
            role=Role.MODE,
            because="hami-core is what the target does; mig is left",
        ),
        Row(
            name="volcano.sh/vgpu-use-gpuuuid",
            place=Position.ANNOTATION,
            unit=Unit.LIST,
            meaning="only these GPUs",
            role=Role.UUIDS,
        ),
        Row(
            name="volcano.sh/vgpu-nouse-gpuuuid",
            place=Position.ANNOTATION,
            unit=Unit.LIST,
            meaning="none of these GPUs",
            role=Role.NOT_UUIDS,
        ),
        Row(
            name="nvidia.com/use-gputype",
            place=Position.ANNOTATION,
            unit=Unit.LIST,
            meaning="the product name contains one of these, not trimmed; nouse-gputype then says nothing",
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
            name="volcano.sh/vgpu-podgroup-policy",
            place=Position.ANNOTATION,
            unit=Unit.TEXT,
            meaning="spread the members of a group over GPUs",
            action=Action.IGNORED,
            because="DRA has no scoring of devices; spreading is the scheduler's",
        ),
        *(
            Row(
                name=name,
                place=place,
                unit=Unit.TEXT,
                meaning="membership of a group or a queue",
                role=Role.SCHEDULED,
                action=Action.LEFT,
                because=_GANG,
            )
            for name, place in (
                ("scheduling.k8s.io/group-name", Position.ANNOTATION),
                ("scheduling.volcano.sh/queue-name", Position.ANNOTATION),
                ("volcano.sh/queue-name", Position.LABEL),
            )
        ),
        *(
            Row(
                name=f"volcano.sh/{name}",
                place=Position.ANNOTATION,
                unit=Unit.TEXT,
                meaning="an output",
                role=Role.PLACED,
                action=Action.LEFT,
                because=_PLACED,
            )
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


class VolcanoOptions(Options, frozen=True, kw_only=True):
    """How Volcano's vGPU is set up, where not by default."""

    memory_factor: int = 1  # the plugin's gpuMemoryFactor
    # The ConfigMap of the plugin names the percentage; without it the key is no word of Volcano's.
    percentage: bool = True

    def mistakes(self) -> Iterable[Mistake]:
        """A unit of memory must be something."""
        if not 1 <= self.memory_factor < _RANGE:
            yield Mistake("/memoryFactor", f"{self.memory_factor} MiB is not a unit of memory", "write 1 or more")


def read(words: Words[VolcanoOptions]) -> Answer:
    """Read one container as Volcano would."""
    said = words.said[0]
    hints = words.hints
    first = said.amounts[0]
    if said.init or said.ordinary_init:
        return Answer(left=Left(first.key, "Volcano counts no GPUs of init containers"))
    count = said.of(Role.COUNT)
    number = count.value if count else said.number(Role.MEMORY)
    if not number:
        return Answer(left=Left(first.key, "asks for no GPU without vgpu-number or vgpu-memory"))
    mode = hints.get(Role.MODE)
    if mode and mode.text not in ("", "hami-core"):
        return Answer(left=Left(mode.key, f"mode {mode.text[:40]!r} has no counterpart"))
    key = count.key if count else first.key
    demand, notes = _share(said, words.options, key)
    if isinstance(demand, Refusal):
        return Answer(refusals=(demand,))
    narrowed = _narrow(demand, hints, notes)
    if isinstance(narrowed, Refusal):
        return Answer(refusals=(narrowed,))
    asked = Keyed(key, narrowed)
    return Answer(
        demands=(asked,),
        notes=tuple(notes),
    )


def _share(said: Said, options: VolcanoOptions, key: str) -> tuple[Demand | Refusal, list[Note]]:
    """Memory and compute of each GPU; compute is always said, since the target's default is all of it."""
    count = said.number(Role.COUNT, 1)
    cores = said.number(Role.CORES)
    notes = [Note(key, Action.APPROXIMATED, _told(count, cores))]
    demand = Demand(target="vgpu", count=count, cores=cores)
    percent = said.of(Role.MEMORY_PERCENT)
    if percent and options.percentage:
        notes += _notes_of_percentage(percent, said.of(Role.MEMORY))
        if not percent.value:
            reason = "0 % reserves no memory at all"
            refusal = Refusal(percent.key, reason, "ask for 1 or more")
            return refusal, notes
        relative = percent.value if percent.value < 100 else None
        return msgspec.structs.replace(demand, memory_percent=relative), notes
    memory = said.of(Role.MEMORY)
    if memory is None:
        return demand, notes
    amount = memory.value * options.memory_factor
    if amount >= _RANGE:
        reason = f"{memory.value} MiB x {options.memory_factor} is beyond Volcano's range"
        return Refusal(memory.key, reason, "ask for less"), notes
    text = f"{amount} MiB of each GPU" if amount else "0 is the whole memory"
    notes.append(Note(memory.key, Action.TRANSLATED, text))
    return msgspec.structs.replace(demand, memory=amount * MIB or None), notes


def _told(count: int, cores: int) -> str:
    plural = "s" if count > 1 else ""
    if cores == 100:
        return f"{count} distinct GPU{plural}; all compute, but a later share of 0 cores still fits on the card"
    compute = f"{cores} % of compute" if cores else "no compute is asked for: cores 0, unreserved and unlimited"
    return f"{count} distinct GPU{plural}; {compute}"


def _notes_of_percentage(percent: Amount, memory: Amount | None) -> list[Note]:
    notes = [Note(percent.key, Action.TRANSLATED, f"{percent.value} % of each GPU's memory")]
    if memory:
        notes.append(Note(memory.key, Action.IGNORED, f"{percent.key} decides about the amount"))
    return notes


def _narrow(demand: Demand, hints: Mapping[Role, Hint], notes: list[Note]) -> Demand | Refusal:
    """Add which GPUs may serve; entries of types are not trimmed, and an empty one is in every name."""
    filters: dict[str, tuple[str, ...]] = {}
    for role, field in ((Role.UUIDS, "uuids"), (Role.NOT_UUIDS, "not_uuids")):
        hint = hints.get(role)
        if hint and hint.entries:
            filters[field] = hint.entries
            text = f"{len(hint.entries)} of the GPUs"
            notes.append(Note(hint.key, Action.TRANSLATED, text))
    wanted = hints.get(Role.MODELS)
    others = hints.get(Role.NOT_MODELS)
    if wanted:
        filters["models"] = _entries(wanted)
        text = "the product name contains one of them"
        notes.append(Note(wanted.key, Action.TRANSLATED, text))
    if wanted and others:
        text = f"says nothing beside {wanted.key}, as in Volcano"
        notes.append(Note(others.key, Action.IGNORED, text))
    elif others:
        filters["not_models"] = _entries(others)
        notes.append(Note(others.key, Action.TRANSLATED, "the product name contains none of them"))
        if not filters["not_models"]:
            return Refusal(others.key, "an empty entry shuts out every GPU", "take the empty entry away")
    return msgspec.structs.replace(demand, **filters)


def _entries(hint: Hint) -> tuple[str, ...]:
    """Split a list of types; with an empty entry, which is in every name, it says nothing."""
    words = tuple(hint.text.split(","))
    return () if "" in words else words


VOCABULARY = Vocabulary(table=DIALECT, read=read, options=VolcanoOptions)
