"""GPUs and network devices under one PCIe switch, where the pod asks for both together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from webhook.dialects.demand import AUTO, Demand, Keyed, Left, Note, Pairs
from webhook.dialects.table import Action, Role

if TYPE_CHECKING:
    from webhook.dialects.systems.koordinator.draft import Draft, Stop


def tie(draft: Draft) -> Draft | Stop:
    """Put GPUs and network devices together where the pod asks for it."""
    joint = draft.words.joint
    if joint is None:
        return draft
    key = draft.words.names[Role.JOINT]
    gpus, networks = draft.gpus, draft.networks
    both = {"gpu", "rdma"}.issubset(joint.device_types)
    if gpus is None or networks is None or not both:
        return draft.and_(Note(key, Action.IGNORED, "without effect: it takes requests of both types"))
    if networks.everything:
        if joint.required_scope:
            return Left(key, "ApplyForAll and a required scope can't both be held")
        return draft.and_(Note(key, Action.IGNORED, "ApplyForAll takes the network devices out of it"))
    if joint.required_scope != "SamePCIe":
        text = "no scope is required: placing them near each other is lost"
        return draft.and_(Note(key, Action.APPROXIMATED, text, about=Role.JOINT))
    if gpus.same:
        return Left(key, f"can't be held together with a tie on {gpus.same}")
    found = _pair(gpus, networks, key)
    if isinstance(found, Left):
        return found
    pairs, text = found
    primary, secondary = draft.asked
    asked = Keyed(primary.key, pairs, (secondary.key,))
    return replace(draft, asked=(asked,)).and_(Note(key, Action.APPROXIMATED, text))


def _pair(gpus: Demand, networks: Demand, key: str) -> tuple[Pairs, str] | Left:
    """Each GPU with its share of the network devices under one switch, or everything under the same one."""
    if gpus.count in (1, networks.count):
        each = networks.count // gpus.count
        text = f"{gpus.count} x (1 GPU + {each} network) under one switch each, stricter than comparing sets"
        shared = Pairs(primary=gpus, secondary=networks.times(each), attribute=AUTO, each=each)
        return shared, text
    if networks.count == 1:
        text = f"{gpus.count} GPUs and the network device under one switch"
        together = Pairs(primary=gpus, secondary=networks, attribute=AUTO, each=0)
        return together, text
    reason = f"{gpus.count} GPUs and {networks.count} network devices can't be held to equal sets of PCIe roots"
    return Left(key, f"{reason}: ask for as many of one as of the other")
