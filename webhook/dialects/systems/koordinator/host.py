"""All that a pod asks for on one NUMA node, and its CPUs and huge pages with it, where claims are made for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from dra.quantity import MAX, NANO
from webhook.dialects.demand import Demand, Keyed, Left, Note, Pairs, Together, kinds
from webhook.dialects.systems.koordinator.pod_words import show
from webhook.dialects.table import Action, Role
from webhook.dialects.targets import NUMA_NODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.dialects.systems.koordinator.draft import Draft, Stop
    from webhook.dialects.systems.koordinator.pod_words import PodWords

ONE_NODE: Final = "SingleNUMANode"
FEWEST_NODES: Final = "Restricted"
REQUIRED: Final = "Required"  # beside no pod of the other kind: those on one NUMA node, and those across several
CPU: Final = "cpu"
PAGES: Final = "hugepages-"

_REMEDY = "declare `koordinator.hostResources` where a driver gives CPUs out"


def ask(draft: Draft) -> Draft | Stop:
    """Ask for the pod's own CPUs and huge pages, too, where claims are made for them and they are to be on one NUMA node, or bound."""
    words = draft.words
    if words.topology is None and words.binding is None:
        return draft
    given: list[Keyed] = []
    for resource in _wanted(words):
        found = _of_host(words, resource)
        if isinstance(found, Left):
            return found
        if found is not None:
            given.append(found)
    asked = (*draft.asked, *given)
    if asked and _on_one_node(words) and words.options.host_resources:
        tied = _tie(asked, words.names[Role.NUMA_BIND])
        if isinstance(tied, Left):
            return tied
        asked = (tied,)
    names = [one.key for one in given]
    notes = _notes(words, names, nothing=not asked)
    return replace(draft, asked=asked).and_(*notes)


def _on_one_node(words: PodWords) -> bool:
    return words.topology is not None and words.topology.policy == ONE_NODE


def _wanted(words: PodWords) -> Iterator[str]:
    """Name the resources to claim: all that are declared for one node; a required policy for CPUs is about CPUs alone."""
    everything = _on_one_node(words)
    bound = words.binding is not None and words.binding.required
    for resource in words.options.host_resources:
        if everything or (bound and resource == CPU):
            yield resource


def _of_host(words: PodWords, resource: str) -> Keyed | Left | None:
    """Ask for what the pod requests of a resource; None if it requests nothing of it."""
    requested = words.host.get(resource, 0)
    if not requested:
        return None
    amount, part = divmod(requested, NANO)
    if part or amount > MAX:
        return Left(resource, "the pod's request is not a whole number below 2^63, and claims give such")
    target = words.options.host_resources[resource]
    if resource == CPU:
        return Keyed(resource, Demand(target=target, cores=amount))
    return Keyed(resource, Demand(target=target, memory=amount, profile=resource.removeprefix(PAGES)))


def _tie(every: tuple[Keyed, ...], key: str) -> Keyed | Left:
    """Tie everything to one NUMA node; a single device is on one anyway."""
    members: list[Demand | Pairs] = []
    keys: list[str] = []
    number = 0
    for one in every:
        assert not isinstance(one.demand, Together)
        members.append(one.demand)
        keys += (one.key, *one.beside)
        for kind in kinds(one.demand):
            number += kind.count
            if kind.everything:
                return Left(key, f"ApplyForAll and {ONE_NODE} can't both be held")
    if number == 1:
        return every[0]
    tied = Together(members=tuple(members), attribute=NUMA_NODE)
    return Keyed(keys[0], tied, tuple(keys[1:]))


def _notes(words: PodWords, given: list[str], *, nothing: bool) -> Iterator[Note]:
    """Say what becomes of the words about NUMA nodes and CPUs."""
    counted = (
        f"{', '.join(given)} by claim as well; the pod's own request stays, and is what its node and its quotas count"
    )
    if words.topology is not None:
        key = words.names[Role.NUMA_BIND]
        action, text = _on_topology(words, words.topology.policy, counted if given else "", nothing=nothing)
        yield Note(key, action, text)
        if words.topology.exclusive == REQUIRED:
            yield Note(key, Action.APPROXIMATED, f"singleNUMANodeExclusive {REQUIRED} is lost")
    if words.binding is not None:
        key = words.names[Role.CPUS]
        action, text = _on_binding(words.binding.required, counted if CPU in given else "")
        yield Note(key, action, text)


def _on_topology(words: PodWords, policy: str, counted: str, *, nothing: bool) -> tuple[Action, str]:
    if policy == FEWEST_NODES:
        return Action.APPROXIMATED, f"{policy}, the fewest NUMA nodes that can do for all of it, is lost"
    if policy != ONE_NODE:
        return Action.IGNORED, f"policy {show(policy) or 'of the node'} asks for no single NUMA node"
    if not words.options.host_resources:
        return Action.APPROXIMATED, f"{policy} is lost ({_REMEDY})"
    if nothing:
        return Action.IGNORED, "nothing is asked for that it could be about"
    more = f"; {counted}" if counted else ""
    return Action.APPROXIMATED, f"all devices on one NUMA node{more}"


def _on_binding(policy: str, counted: str) -> tuple[Action, str]:
    if not policy:
        return Action.IGNORED, "it requires nothing"
    if counted:
        return Action.APPROXIMATED, f"{counted}; that it is {show(policy)} is the driver's to keep"
    return Action.APPROXIMATED, f"{show(policy)} is lost: CPUs stay the kubelet's ({_REMEDY})"
