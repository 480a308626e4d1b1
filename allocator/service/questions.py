"""The questions of schedulers, as functions of a `Decider` and immutable values. The `QuestionRunner` calls them.

They change nothing: `Allocator.outlook` acts on the `PrefilterAnswer` that `find_serving_nodes` returns. A `Basis` has every value that an answer depends on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator.decisions import FleetOutlook, Outlook, Placed, find_claims, place
from allocator.one_node import SearchOptions
from allocator.pods import reaches
from allocator.preemption import claims_in_reach, without_pods, without_unused_claims
from allocator.reasons import summary
from allocator.service.preemption.nominations import OUTBID
from dra import step_limits
from dra.budget import Budget
from dra.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from allocator.decisions import Decider, Serving
    from allocator.service.preemption.nominations import KeptNode
    from allocator.strategies import Placement
    from dra.objects import Pod, ResourceClaim
    from dra.stock import Stock


class Basis(NamedTuple):
    """The values that a decision about a pod depends on; `Allocator.basis` gathers them."""

    stock: Stock
    placement: Placement
    full: Mapping[str, str]  # a message for each node that has reached the limit of pods
    rivals: Mapping[str, Sequence[Pod]]  # nominated pods of the same or a higher priority, by nominated node
    kept_nodes: Sequence[tuple[Pod, KeptNode]]  # nodes kept for pods of the same or a higher priority
    pods: Mapping[tuple[str, str], Pod]  # by namespace and name: pods that hold devices which the kept nodes can use

    def is_valid_on(self, node: str, later: Basis) -> bool:
        """Return whether a decision about a node is still valid with the basis `later`. Claims are not compared: the ledger does that."""
        is_same = self.stock is later.stock or _seen_from(node, self.stock) == _seen_from(node, later.stock)
        return is_same and (
            (self.placement, self.full.get(node), self.rivals, self.kept_nodes)
            == (later.placement, later.full.get(node), later.rivals, later.kept_nodes)
        )


class PrefilterAnswer(NamedTuple):
    """The answer to a scheduler, and what `Allocator.outlook` must do besides."""

    fleet_outlook: FleetOutlook
    lacks_claim: bool = False  # the claim for the pod's extended resources has to be created
    # Some node is refused in favour of another pod, which is nominated there or for which the node is kept.
    gives_way: bool = False
    # The answer has nodes with device plugins, because no DRA devices are free; the plugins may be full.
    may_be_refused: bool = False


def find_serving_nodes(pod: Pod, basis: Basis, decider: Decider) -> PrefilterAnswer:
    """Return which nodes can serve a pod."""
    current_stock = basis.stock
    stock = _with_nominated(basis, decider)
    uncreated = find_claims(pod, current_stock).uncreated
    if uncreated is not None:
        if by_plugins := _by_plugins(pod, basis, stock, decider):
            return PrefilterAnswer(by_plugins, may_be_refused=True)
        waits_for = Reason(text=f"waiting for claim {uncreated.claim.metadata.name} to be created")
        return PrefilterAnswer(FleetOutlook(Outlook.WAITING, reason=waits_for), lacks_claim=True)
    fleet_outlook = decider.outlook(pod, stock, basis.placement, basis.full)
    if fleet_outlook.nodes:
        return _without_outbid_nodes(pod, fleet_outlook, basis, stock, decider)
    if stock is current_stock:
        return PrefilterAnswer(fleet_outlook)
    # With the devices of the nominated pods in use, the pod fits nowhere. For nodes where the pod would fit without the nominated pods, the
    # text is `OUTBID`, and the pod is requeued when a nomination ends.
    reaches_node = reaches(pod)
    reasons: list[Reason] = []
    for reason in fleet_outlook.reasons:
        node = reason.nodes[0]
        may_run = reaches_node(current_stock.nodes[node]) and node not in basis.full
        is_free = may_run and not why_not_fits(pod, node, Placed(current_stock), (), decider)
        reasons.append(replace(reason, text=OUTBID) if is_free else reason)
    gives_way = any(reason.text == OUTBID for reason in reasons)
    reason = summary(reasons, len(current_stock.nodes)) if gives_way else fleet_outlook.reason
    fleet_outlook = replace(fleet_outlook, reason=reason, reasons=tuple(reasons))
    return PrefilterAnswer(fleet_outlook, gives_way=gives_way)


def serve(pod: Pod, node: str, basis: Basis, decider: Decider) -> Serving | str:
    """Return the allocations that a pod gets on a node, or why it gets none."""
    stock = _with_nominated(basis, decider)
    serving = decider.serve(pod, node, stock, basis.placement)
    rivals = each_on({node: basis.rivals.get(node, ())})
    if rivals and not isinstance(serving, str):
        # Other devices may leave enough for the pods that are nominated to this node.
        nominated = place(rivals, Placed(stock), decider.options())
        beside = place(rivals, Placed(stock.with_all(serving.allocated)), decider.options())
        together = place([[(pod, node)]], nominated, decider.options())
        if beside.problems != nominated.problems and not together.problems[-1]:
            claims = together.stock.claims
            serving = replace(serving, allocated=tuple([claims[claim.metadata.key] for claim in serving.allocated]))
    if not isinstance(serving, str) and _is_outbid(node, serving.allocated, basis, stock, decider):
        return OUTBID
    return serving


def why_not_fits(pod: Pod, node: str, placed: Placed, added: Sequence[Pod], decider: Decider) -> str:
    """Return why a pod would not fit on a node beside the pods `added`; "" if it would fit."""
    return place(each_on({node: [*added, pod]}), placed, decider.options()).problems[-1]


def without(placed: Placed, pods: Iterable[Pod]) -> Placed:
    """Return the stock as if these pods were gone."""
    return replace(placed, stock=without_pods(placed.stock, pods))


def each_on(pods: Mapping[str, Sequence[Pod]]) -> list[list[tuple[Pod, str]]]:
    """Return a queue in which each of these pods, given by node, is placed if it fits."""
    return [[(pod, node)] for node, pods_there in pods.items() for pod in pods_there]


def is_node_useful(pod: Pod, kept_node: KeptNode, basis: Basis, decider: Decider) -> bool:
    """Return whether a pod would fit on the node that is kept for it, once the awaited pods are gone."""
    return _would_fit(pod, kept_node.node, _stock_once_ended(kept_node, basis, basis.stock), decider)


def nominated_in_shared_pools(rivals: Mapping[str, Sequence[Pod]], stock: Stock) -> dict[str, Sequence[Pod]]:
    """Return the nominated pods whose nominated node can use a pool of several nodes."""
    return {node: others for node, others in rivals.items() if _reaches_shared_pool(stock, node)}


def _reaches_shared_pool(stock: Stock, node: str) -> bool:
    """Return whether a node can use devices of a pool that other nodes may use as well."""
    if node not in stock.nodes or not stock.pages_on.get(""):
        return False
    pages = (page for pool in stock.pools(node) for page in stock.pages_of.get(pool.id, ()))
    return any(not page.node_name for page in pages)


def _with_nominated(basis: Basis, decider: Decider) -> Stock:
    """Return the stock as if the pods that are nominated to nodes with shared pools had their devices.

    `_without_outbid_nodes` handles the other nominated pods.
    """
    queue = each_on(nominated_in_shared_pools(basis.rivals, basis.stock))
    return place(queue, Placed(basis.stock), decider.options()).stock


def _by_plugins(pod: Pod, basis: Basis, stock: Stock, decider: Decider) -> FleetOutlook | None:
    """Return the nodes whose device plugins may serve a pod's extended resources; None if there is no such node or DRA devices are free.

    Once a claim for the resources exists, the pod cannot use these nodes. The scheduler checks how much the plugins have left.
    """
    plugins = decider.outlook(pod, stock, basis.placement, basis.full, by_plugin=True)
    if not plugins.nodes:
        return None
    devices = decider.outlook(pod, stock, basis.placement, basis.full)
    may_run = reaches(pod)
    if any(may_run(stock.nodes[name]) for name in devices.nodes):
        return None
    return replace(plugins, reasons=devices.reasons)


def _without_outbid_nodes(
    pod: Pod, fleet_outlook: FleetOutlook, basis: Basis, stock: Stock, decider: Decider
) -> PrefilterAnswer:
    """Remove the nodes where this pod would take devices that are meant for a nominated pod or for a pod with a kept node.

    Only pods of the same or a higher priority count.
    """
    handled_nodes = nominated_in_shared_pools(basis.rivals, basis.stock)
    outbid_nodes = {
        node
        for node in basis.rivals.keys() & fleet_outlook.nodes.keys() - handled_nodes.keys()
        if why_not_fits(pod, node, Placed(stock), basis.rivals[node], decider)
    }
    for node in {kept_node.node for _, kept_node in basis.kept_nodes} & fleet_outlook.nodes.keys() - outbid_nodes:
        after = place([[(pod, node)]], Placed(stock), decider.options())
        if not after.problems[-1] and _is_outbid(node, after.granted(pod), basis, stock, decider):
            outbid_nodes.add(node)
    if not outbid_nodes:
        return PrefilterAnswer(fleet_outlook)
    remaining_nodes = {name: score for name, score in fleet_outlook.nodes.items() if name not in outbid_nodes}
    outbid = Reason(text=OUTBID, nodes=tuple(sorted(outbid_nodes)))
    reasons = (*fleet_outlook.reasons, outbid)
    if remaining_nodes:
        return PrefilterAnswer(replace(fleet_outlook, nodes=remaining_nodes, reasons=reasons), gives_way=True)
    return PrefilterAnswer(FleetOutlook(Outlook.FULL, {}, outbid, reasons), gives_way=True)


def _is_outbid(node: str, given: Sequence[ResourceClaim], basis: Basis, stock: Stock, decider: Decider) -> bool:
    """Return whether the claims `given` on a node would keep a pod from fitting on its kept node, once the pods that it awaits are gone."""
    for other_pod, kept_node in basis.kept_nodes:
        if node != kept_node.node and not _reaches_shared_pool(stock, kept_node.node):
            continue
        later = _stock_once_ended(kept_node, basis, stock)
        if _would_fit(other_pod, kept_node.node, later, decider) and not _would_fit(
            other_pod, kept_node.node, later.with_all(given), decider
        ):
            return True
    return False


def _stock_once_ended(kept_node: KeptNode, basis: Basis, stock: Stock) -> Stock:
    """Return the stock without the pods that are awaited on a kept node, and without the allocations of claims whose pods have ended."""
    later = without_pods(stock, kept_node.awaited)
    return without_unused_claims(later, claims_in_reach(kept_node.node, later), basis.pods)


def _would_fit(pod: Pod, node: str, stock: Stock, decider: Decider) -> bool:
    """Return whether a pod is found to fit with a small budget, because keeping a node must not delay the questions of other pods."""
    options = SearchOptions(steps=step_limits.KEPT_NODE, budget=Budget(step_limits.KEPT_NODE, decider.is_abandoned))
    return not place([[(pod, node)]], Placed(stock), options).problems[-1]


def _seen_from(node: str, stock: Stock) -> tuple[object, ...]:
    """Return the identities of all objects, except claims, that decide which devices a node offers."""
    pages = (*stock.pages_on.get(node, ()), *stock.pages_on.get("", ()))
    pools = [stock.pages_of[page.pool] for page in pages]
    return tuple(map(id, (stock.nodes.get(node), stock.classes, stock.compatibilities, stock.reading, *pages, *pools)))
