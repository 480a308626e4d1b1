"""Network devices: 100 is one, unless the hint says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from webhook.dialects.demand import Demand, Keyed, Left, Note, Refusal
from webhook.dialects.systems.koordinator.draft import several
from webhook.dialects.systems.koordinator.pod_words import RDMA
from webhook.dialects.table import Action, Role

if TYPE_CHECKING:
    from webhook.dialects.systems.koordinator.draft import Draft, Stop
    from webhook.dialects.systems.koordinator.pod_words import PodWords

_SELECTED = "label selectors on network devices have no counterpart: slices have attributes, and no labels"


def ask(draft: Draft) -> Draft | Stop:
    """Ask for the pod's network devices."""
    words = draft.words
    if RDMA not in words.sums:
        return draft
    hint = words.hint("rdma")
    if hint.selector or hint.vf_selector:
        return Left(words.names[Role.HINT], _SELECTED)
    found = _read(words)
    if isinstance(found, Refusal):
        return found
    demand, note = found
    asked = Keyed(words.key(RDMA), demand)
    return replace(draft, networks=demand, asked=(*draft.asked, asked), notes=(*draft.notes, note))


def _read(words: PodWords) -> tuple[Demand, Note] | Refusal:
    """Read the sum: whole devices first, then what a strategy makes of it, then a share of one."""
    value, key, hint = words.sums[RDMA], words.key(RDMA), words.hint("rdma")
    strategy = hint.allocate_strategy
    virtual = hint.vf_selector is not None
    one = Demand(target="nic", virtual_function=virtual, rdma=True)
    whole, rest = divmod(value, 100)
    if not rest and (whole > 1 or not strategy):
        return one.times(whole), Note(key, Action.TRANSLATED, f"{several(whole, 'network device')}, whole")
    if strategy == "ApplyForAll":
        text = "all matching devices of the node, whole: fails if one of them is taken"
        return replace(one, everything=True), Note(words.names[Role.HINT], Action.APPROXIMATED, text)
    if strategy == "RequestsAsCount":
        exact = hint.exclusive_policy == "DeviceLevel"
        action = Action.TRANSLATED if exact else Action.APPROXIMATED
        return one.times(value), Note(key, action, f"{several(value, 'network device')}, whole")
    if value > 100:
        return Refusal(key, f"{value} is above 100 and not a multiple of it", "ask for whole devices")
    of_one = f"{value} % of a network device"
    if virtual:
        text = f"{of_one} becomes one virtual function, with as much of it as the driver gives one"
        return one, Note(key, Action.APPROXIMATED, text)
    if words.options.whole_nic_for_share:
        return one, Note(key, Action.APPROXIMATED, f"{of_one} becomes a whole one")
    return replace(one, bandwidth_percent=value), Note(key, Action.TRANSLATED, f"{of_one}, of its bandwidth")
