"""Chooses the nodes of a mixed fleet that serve a pod: the preferred nodes, unless only the other nodes can.

| preferred nodes | other nodes | chosen nodes |
|---|---|---|
| a node has enough free devices, or this is unknown | any | the preferred nodes |
| have suitable devices, but too few are free | a node has enough free devices | the other nodes |
| have suitable devices, but too few are free | any other case | the preferred nodes, where the pod waits |
| could not serve the pod even if idle | a node could if idle, or this is unknown | the other nodes |
| could not serve the pod even if idle | could not either | the preferred nodes |

Only nodes that the pod can run on are considered (`webhook.state.reach`), and their devices decide. A lack of CPU or memory excludes a
node only if the node has too little of it even when idle. If none of these nodes has suitable devices, cordoned and unready nodes are
considered, and then nodes that an autoscaler can create. If none of the considered nodes has a driver, device plugins serve the pod. The choice
is made once, when the pod is created. The pod template of a DaemonSet that can run on several nodes stays unchanged, because the choice is made
for each of its pods.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from allocator import SearchOptions, SearchVerdict, fleet
from dra import step_limits
from dra.errors import OutOfBudget
from webhook.state import NodeIndex, node_index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dra.budget import Budget
    from dra.objects import Node, ResourceClaim
    from dra.stock import Stock
    from webhook.placement.preference import Preference
    from webhook.state import State


class BestOffer(IntEnum):
    """The best that nodes offer a pod."""

    NEVER = 0  # no suitable devices, even if all are free
    BUSY = 1  # suitable devices, but too few are free
    UNKNOWN = 2
    FREE = 3


class ServingChoice(msgspec.Struct, frozen=True):
    """Whether claims serve a pod (on nodes with a driver) or device plugins serve it (on the other nodes), and why."""

    by_claims: bool
    why: str
    preferred: bool  # whether the policy prefers the chosen nodes


class _NodeOffer(NamedTuple):
    """The best that nodes offer a pod, and one node that offers it."""

    offer: BestOffer
    node: str = ""


class _Nodes(NamedTuple):
    """The nodes that a pod can run on: those with device plugins for its requests, and those with drivers for its claims."""

    plugin: frozenset[str]
    driver: frozenset[str]
    stock: Stock | None
    # What the pods of each node request; None if this is unknown.
    uses: Mapping[str, Mapping[str, int]] | None

    @property
    def counts(self) -> str:
        return f"{len(self.driver)} of {len(self.plugin | self.driver)} reachable nodes serve claims"


def choose(
    preference: Preference, claims: Sequence[ResourceClaim], state: State, budget: Budget
) -> ServingChoice | None:
    """Choose the nodes that serve a pod; None if no node that the pod can run on has a device plugin for it.

    `claims` are the claims that the pod gets on nodes with a driver.
    """
    by_claims, why = preference.by_claims, preference.why
    try:
        nodes = _reachable(preference, claims, state, budget)
        if nodes is None or not nodes.plugin:
            return None
        counts = nodes.counts
        if preference.on_each_node and len(nodes.plugin | nodes.driver) > 1 and nodes.driver:
            why = f"{counts}, and the webhook decides for each pod of the DaemonSet when the pod is created"
            return ServingChoice(by_claims=False, why=why, preferred=False)
        if not nodes.driver:
            why = f"{counts}, and node {min(nodes.plugin)} serves {', '.join(preference.needs)} by a device plugin"
            return ServingChoice(by_claims=False, why=why, preferred=False)
        if nodes.stock is None:
            return ServingChoice(by_claims, f"{counts}; {why}; free devices are not known", preferred=True)
        preferred_offer = _best_offer(nodes, preference, claims, state, budget, by_claims=by_claims)
        other_offer = _NodeOffer(BestOffer.UNKNOWN)
        if preferred_offer.offer in (BestOffer.BUSY, BestOffer.NEVER):
            other_offer = _best_offer(nodes, preference, claims, state, budget, by_claims=not by_claims)
    except OutOfBudget:
        return ServingChoice(by_claims, f"{why}; timed out looking for free devices", preferred=True)
    if preferred_offer.offer in (BestOffer.FREE, BestOffer.UNKNOWN):
        return ServingChoice(by_claims, f"{counts}; {why}", preferred=True)
    is_better = other_offer.offer is BestOffer.FREE
    if preferred_offer.offer is BestOffer.NEVER:
        is_better = other_offer.offer is not BestOffer.NEVER
    if not is_better:
        reason = "no reachable node has enough free devices"
        if other_offer.offer is BestOffer.UNKNOWN:
            reason = "no reachable node is known to have enough free devices"
        return ServingChoice(by_claims, f"{counts}; {why}; {reason}", preferred=True)
    preferred_source, other_source = ("a driver", "a device plugin") if by_claims else ("a device plugin", "a driver")
    node = f"node {other_offer.node}, with {other_source},"
    if preferred_offer.offer is BestOffer.BUSY:
        comparison = f"no node with {preferred_source} has enough free devices; {node} has enough"
    elif other_offer.offer is BestOffer.FREE:
        comparison = f"no node with {preferred_source} could serve this pod; {node} has enough free devices"
    else:
        could = "might" if other_offer.offer is BestOffer.UNKNOWN else "could"
        comparison = f"no node with {preferred_source} could serve this pod; {node} {could}"
    return ServingChoice(not by_claims, f"{counts}; {why}, but {comparison}", preferred=False)


def _reachable(preference: Preference, claims: Sequence[ResourceClaim], state: State, budget: Budget) -> _Nodes | None:
    """Return the nodes that the pod can run on and that have its devices.

    If there are none, nodes that are closed only by temporary taints count, and then nodes that an autoscaler can create.
    """
    inventory = state.fleet
    plugin = frozenset.intersection(*[inventory.handed_out_anywhere.get(key, frozenset()) for key in preference.needs])
    prospects = state.prospects
    if not plugin and prospects is None:
        return None
    reach = node_index(inventory).reach(preference.constraints, budget)
    stock = state.stock
    # For each request, the nodes that publish devices of its DeviceClass.
    publishing: list[frozenset[str]] = []
    for claim in claims:
        for request in claim.spec.devices.requests:
            classes = [
                inventory.classes.get(alternative.device_class_name) for alternative in request.alternatives.values()
            ]
            publishing.append(
                frozenset().union(*[device_class.nodes for device_class in classes if device_class is not None])
            )
    driver = frozenset.intersection(*publishing) if publishing else frozenset()
    if stock is not None and plugin and stock.pages_on.get(""):
        # Slices without a nodeName publish devices for all nodes that they select.
        driver |= set(
            fleet(
                stock, claims, options=SearchOptions(steps=step_limits.VERDICT, budget=budget), memo=state.memo
            ).feasible
        )
    for names in (reach.nodes, reach.closed):
        if not names.isdisjoint(plugin | driver):
            return _Nodes(plugin & names, driver & names, stock, state.uses)
    if prospects is None:
        return None
    reachable = NodeIndex(prospects.nodes).reach(preference.constraints, budget).nodes
    answers = fleet(prospects, claims, options=SearchOptions(steps=step_limits.VERDICT, budget=budget), idle=True)
    plugin = frozenset([name for name in reachable if _has(prospects.nodes[name], preference.needs)])
    return _Nodes(plugin, reachable.intersection(answers.feasible), prospects, {})


def _best_offer(
    nodes: _Nodes,
    preference: Preference,
    claims: Sequence[ResourceClaim],
    state: State,
    budget: Budget,
    *,
    by_claims: bool,
) -> _NodeOffer:
    """Find the best offer of the nodes with drivers for the claims (`by_claims`), or of the nodes with device plugins for the pod."""
    stock = nodes.stock
    assert stock is not None
    if not by_claims:
        return _best_by_plugin(nodes, stock, preference, budget)
    for idle in (False, True):
        unknown_offer = None
        answers = fleet(
            stock, claims, options=SearchOptions(steps=step_limits.VERDICT, budget=budget), idle=idle, memo=state.memo
        )
        for name in answers:
            if name not in nodes.driver:
                continue
            budget.charge()
            verdict = answers.verdict(name)
            if verdict is SearchVerdict.INFEASIBLE or not _has(stock.nodes[name], preference.other_requests):
                continue
            if verdict is SearchVerdict.FEASIBLE:
                return _NodeOffer(BestOffer.BUSY if idle else BestOffer.FREE, name)
            unknown_offer = _NodeOffer(BestOffer.UNKNOWN, name)
        if unknown_offer is not None:
            return unknown_offer
    return _NodeOffer(BestOffer.NEVER)


def _best_by_plugin(nodes: _Nodes, stock: Stock, preference: Preference, budget: Budget) -> _NodeOffer:
    """Return the best offer of device plugins on one node. Amounts that the node's pods request are not free."""
    best = _NodeOffer(BestOffer.NEVER)
    uses = nodes.uses
    highest = BestOffer.UNKNOWN if uses is None else BestOffer.FREE
    for name in sorted(nodes.plugin):
        budget.charge()
        node = stock.nodes.get(name)
        if node is None or not _has(node, preference.needs) or not _has(node, preference.other_requests):
            continue
        used = uses.get(name, {}) if uses is not None else {}
        offer = highest if _has(node, preference.needs, used) else BestOffer.BUSY
        if offer > best.offer:
            best = _NodeOffer(offer, name)
        if offer is highest:
            break
    return best


def _has(node: Node, amounts: Mapping[str, int], used: Mapping[str, int] | None = None) -> bool:
    """Return whether a node has these amounts in addition to the used ones.

    If the node does not report a native resource such as cpu, it counts as having enough.
    """
    have = node.status.allocatable
    for name, amount in amounts.items():
        if name in have:
            if amount > have[name].nano - (used or {}).get(name, 0):
                return False
        elif amount and "/" in name:
            return False
    return True
