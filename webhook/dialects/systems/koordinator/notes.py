"""What becomes of the words that ask for no device: of a partition, of each word of the hints, and of numbers that were added to others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from webhook.dialects.demand import Note
from webhook.dialects.systems.koordinator.gpus import ANYWHERE
from webhook.dialects.systems.koordinator.pod_words import RDMA, show
from webhook.dialects.table import Action, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.dialects.demand import Demand
    from webhook.dialects.systems.koordinator.draft import Draft
    from webhook.dialects.systems.koordinator.pod_words import DeviceHint

BEST_SCORE = "Restricted"  # of partitions; any other policy prefers better ones
_NAMED = 4  # types of hints without a request


class _Word(NamedTuple):
    """What becomes of a word of a hint."""

    text: str
    lost: bool = False


def on_partition(draft: Draft) -> Draft:
    """Say what becomes of a wish for a partition."""
    partition = draft.words.partition
    if partition is None:
        return draft
    key = draft.words.names[Role.PARTITION]
    if draft.gpus is None or draft.gpus.partial:
        return draft.and_(Note(key, Action.IGNORED, "it concerns whole GPUs only"))
    text = "the GPUs are one partition as the driver publishes it, of any score"
    if partition.allocate_policy == BEST_SCORE:
        text = f"{text}: {BEST_SCORE}, which takes the best alone, is lost"
    return draft.and_(Note(key, Action.APPROXIMATED, text))


def on_hints(draft: Draft) -> Draft:
    """Say what becomes of each word of the hints, so that none is lost without being named."""
    lost: list[str] = []
    kept: list[str] = []
    for word in _words(draft):
        side = lost if word.lost else kept
        side.append(word.text)
    if not lost and not kept:
        return draft
    key = draft.words.names[Role.HINT]
    action = Action.APPROXIMATED if lost else Action.TRANSLATED
    text = "; ".join((*lost, *kept))
    return draft.and_(Note(key, action, text))


def on_amounts(draft: Draft) -> Draft:
    """Say of each number that nothing was said of yet what it was added to."""
    sums = draft.words.sums
    told = {note.key for note in draft.notes}
    notes: list[Note] = []
    for one in draft.words.said:
        for amount in one.amounts:
            if amount.key in told:
                continue
            told.add(amount.key)
            part = amount.row.role
            text = f"{sums[part]} in the whole pod" if part in sums else "part of the pod's sum"
            notes.append(Note(amount.key, Action.TRANSLATED, text))
    return draft.and_(*notes)


def _words(draft: Draft) -> Iterator[_Word]:
    others: list[str] = []
    for name, hint in draft.words.hints.items():
        if name == "gpu" and draft.gpus is not None:
            tied = bool(draft.gpus.same) and draft.words.partition is None
            yield from _of_gpus(hint, draft.gpus, tied=tied)
        elif name == "rdma" and draft.networks is not None:
            yield from _of_networks(hint, draft.words.sums[RDMA])
        else:
            others.append(show(name))
    if others:
        yield _Word(f"nothing is asked for of type {', '.join(others[:_NAMED])}")


def _of_gpus(hint: DeviceHint, gpus: Demand, *, tied: bool) -> Iterator[_Word]:
    scope = hint.required_topology_scope
    if scope:
        holds = tied or gpus.count == 1 or scope in ANYWHERE
        what = f"gpu.requiredTopologyScope {show(scope)}"
        yield _Word(f"{what} holds") if holds else _Word(f"{what} is lost", lost=True)
    if gpus.partial and hint.exclusive_policy == "DeviceLevel":
        yield _Word("gpu.exclusivePolicy is lost: others may share the GPU", lost=True)
    else:
        yield from _of_whole("gpu", hint)
    if hint.allocate_strategy:
        yield _Word("gpu.allocateStrategy has no effect, as in Koordinator")


def _of_networks(hint: DeviceHint, value: int) -> Iterator[_Word]:
    if hint.vf_selector is not None:
        yield _Word("rdma.vfSelector: virtual functions only")
    yield from _of_whole("rdma", hint)
    if hint.allocate_strategy and value > 100 and value % 100 == 0:
        yield _Word("rdma.allocateStrategy has no effect on whole devices, as in Koordinator")
    if hint.required_topology_scope:
        yield _Word("rdma.requiredTopologyScope has no effect, as in Koordinator")


def _of_whole(kind: str, hint: DeviceHint) -> Iterator[_Word]:
    """Say what an exclusive policy comes to for devices that nobody shares."""
    policy = hint.exclusive_policy
    if policy == "DeviceLevel":
        yield _Word(f"{kind}.exclusivePolicy holds: the devices are whole")
    elif policy:
        yield _Word(f"{kind}.exclusivePolicy {show(policy)} has no effect, as in Koordinator")
