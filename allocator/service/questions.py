"""What schedulers ask, as functions of a decider and of values. They change nothing: what has to be done is part of an answer.

A `Basis` is all that an answer rests on. `QuestionRunner` computes these functions, on the loop or in a thread beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator.decisions import Hindrance, Outlook, Outlooks, find_claims, reaches_shared_pool, with_pods
from allocator.one_node import Options
from allocator.pods import reaches
from allocator.preemption import claims_in_reach, without_pods, without_unused_claims
from allocator.service.preemption.nominations import OUTBID
from dra import step_limits
from dra.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from allocator.decisions import Decider, Serving
    from allocator.service.preemption.nominations import KeptNode
    from allocator.strategies import Placement
    from dra.objects import Pod, ResourceClaim
    from dra.stock import Stock


class Basis(NamedTuple):
    """What an answer about a pod rests on."""

    stock: Stock
    placement: Placement
    full: Mapping[str, str]  # nodes that have the most pods they may have, and the sentence that says so
    rivals: Mapping[str, Sequence[Pod]]  # by node that is nominated for them: pods that are at least as important
    kept_nodes: Sequence[tuple[Pod, KeptNode]]  # nodes that are kept for such pods
    pods: Mapping[tuple[str, str], Pod]  # those that hold what the kept nodes could use, by namespace and name

    def holds_on(self, node: str, later: Basis) -> bool:
        """Say whether a node, and what else decides about the pod there, is the same later. What claims hold is for the ledger to compare."""
        is_same = self.stock is later.stock or _seen_from(node, self.stock) == _seen_from(node, later.stock)
        return is_same and (
            (self.placement, self.full.get(node), self.rivals, self.kept_nodes)
            == (later.placement, later.full.get(node), later.rivals, later.kept_nodes)
        )


class Others(NamedTuple):
    """Pods that take what they want on a node first, and pods that hold nothing any more."""

    coming: Sequence[Pod]
    leaving: Sequence[Pod]


class Judgement(NamedTuple):
    """The answer about a pod, and what has to be done for it."""

    outlooks: Outlooks
    lacks_claim: bool = False  # the claim that stands for resource names has to be made
    gives_way: bool = False  # it is refused for the sake of a nominated pod
    may_be_refused: bool = False  # it is offered nodes with device plugins, while no devices are free


def judge(pod: Pod, basis: Basis, decider: Decider) -> Judgement:
    """Say which nodes can serve a pod."""
    known = basis.stock
    stock = _with_nominated(basis, decider)
    unmade = find_claims(pod, known).unmade
    if unmade is not None:
        if by_plugins := _by_plugins(pod, basis, stock, decider):
            return Judgement(by_plugins, may_be_refused=True)
        waits_for = f"waiting for claim {unmade.claim.metadata.name} to be created"
        return Judgement(Outlooks(Outlook.WAITING, message=waits_for), lacks_claim=True)
    found = decider.outlook(pod, stock, basis.placement, basis.full)
    if found.nodes:
        return _without_outbid_nodes(pod, found, basis, stock, decider)
    if stock is known:
        return Judgement(found)
    # Without the nominated pods this pod might fit: the answer says so then, and the pod is requeued when a nomination ends.
    hindrances: list[Hindrance] = []
    gives_way = False
    for hindrance in found.hindrances:
        is_free = not fits(pod, hindrance.nodes[0], known, decider)
        hindrances.append(replace(hindrance, message=OUTBID) if is_free else hindrance)
        gives_way = gives_way or is_free
    return Judgement(replace(found, hindrances=tuple(hindrances)), gives_way=gives_way)


def serve(pod: Pod, node: str, basis: Basis, decider: Decider) -> Serving | str:
    """Return what a pod gets on a node, or why it gets nothing."""
    stock = _with_nominated(basis, decider)
    serving = decider.serve(pod, node, stock, basis.placement)
    if not isinstance(serving, str) and _is_outbid(node, serving.allocated_claims(), basis, stock, decider):
        return OUTBID
    return serving


def fits(pod: Pod, node: str, stock: Stock, decider: Decider) -> str:
    """Say what keeps a pod from a node of a stock that is supposed; "" if nothing does."""
    serving = decider.serve(pod, node, stock, uncached=decider.options())
    return serving if isinstance(serving, str) else ""


def fits_beside(pod: Pod, node: str, stock: Stock, others: Others, decider: Decider) -> str:
    """Say what keeps a pod from a node if some pods come first and others go; "" if nothing does."""
    stock = with_pods(without_pods(stock, others.leaving), node, others.coming, decider.options())
    return fits(pod, node, stock, decider)


def is_node_useful(pod: Pod, kept_node: KeptNode, basis: Basis, decider: Decider) -> bool:
    """Say whether a pod would fit on the node that is kept for it once those it waits for are gone."""
    return _would_fit(pod, kept_node.node, _stock_once_ended(kept_node, basis, basis.stock), decider)


def nominated_in_shared_pools(rivals: Mapping[str, Sequence[Pod]], stock: Stock) -> dict[str, Sequence[Pod]]:
    """Choose the nominated pods whose node reaches pools of several nodes."""
    return {node: others for node, others in rivals.items() if reaches_shared_pool(stock, node)}


def _with_nominated(basis: Basis, decider: Decider) -> Stock:
    """Return the stock in which pods that are nominated to nodes of shared pools have their devices already; `_without_outbid_nodes` has the others."""
    stock = basis.stock
    for node, others in nominated_in_shared_pools(basis.rivals, stock).items():
        stock = with_pods(stock, node, others, decider.options())
    return stock


def _by_plugins(pod: Pod, basis: Basis, stock: Stock, decider: Decider) -> Outlooks | None:
    """Answer with the nodes whose device plugins may serve a pod by name, while no devices are free for it; None if devices are to serve it.

    A claim, once it is made, keeps the pod from these nodes. Whether the plugins have any left is for the scheduler to say.
    """
    plugins = decider.outlook(pod, stock, basis.placement, basis.full, by_plugin=True)
    if not plugins.nodes:
        return None
    devices = decider.outlook(pod, stock, basis.placement, basis.full)
    may_go = reaches(pod)
    if any(may_go(stock.nodes[name]) for name in devices.nodes):
        return None
    return replace(plugins, hindrances=devices.hindrances)


def _without_outbid_nodes(pod: Pod, found: Outlooks, basis: Basis, stock: Stock, decider: Decider) -> Judgement:
    """Leave out the nodes where this pod would take what others, at least as important, need: nominated pods, and pods that a node is kept for."""
    in_stock = nominated_in_shared_pools(basis.rivals, basis.stock)
    taken = {
        node
        for node in basis.rivals.keys() & found.nodes.keys() - in_stock.keys()
        if fits(pod, node, with_pods(stock, node, basis.rivals[node], decider.options()), decider)
    }
    for node in {kept_node.node for _, kept_node in basis.kept_nodes} & found.nodes.keys() - taken:
        serving = decider.serve(pod, node, stock, basis.placement, uncached=decider.options())
        if not isinstance(serving, str) and _is_outbid(node, serving.allocated_claims(), basis, stock, decider):
            taken.add(node)
    if not taken:
        return Judgement(found)
    left = {name: score for name, score in found.nodes.items() if name not in taken}
    hindrances = (*found.hindrances, Hindrance(OUTBID, tuple(sorted(taken))))
    if left:
        return Judgement(replace(found, nodes=left, hindrances=hindrances), gives_way=True)
    return Judgement(Outlooks(Outlook.FULL, {}, OUTBID, hindrances), gives_way=True)


def _is_outbid(node: str, given: Sequence[ResourceClaim], basis: Basis, stock: Stock, decider: Decider) -> bool:
    """Say whether what a pod is given on a node is what another, at least as important, will need once those it waits for are gone."""
    for other, kept_node in basis.kept_nodes:
        if node != kept_node.node and not reaches_shared_pool(stock, kept_node.node):
            continue
        later = _stock_once_ended(kept_node, basis, stock)
        if _would_fit(other, kept_node.node, later, decider) and not _would_fit(
            other, kept_node.node, later.with_all(given), decider
        ):
            return True
    return False


def _stock_once_ended(kept_node: KeptNode, basis: Basis, stock: Stock) -> Stock:
    """Return the stock after the pods are gone that a kept node waits for, and the claims are free of those that are gone."""
    later = without_pods(stock, kept_node.awaited)

    def find(namespace: str, name: str) -> Pod | None:
        return basis.pods.get((namespace, name))

    return without_unused_claims(later, claims_in_reach(kept_node.node, later), find)


def _would_fit(pod: Pod, node: str, stock: Stock, decider: Decider) -> bool:
    """Say whether a pod is soon found to fit: one that takes long to decide on has no node kept at the cost of others' questions."""
    options = Options(steps=step_limits.KEPT_NODE, budget=Budget(step_limits.KEPT_NODE, decider.is_impatient))
    return not isinstance(decider.serve(pod, node, stock, uncached=options), str)


def _seen_from(node: str, stock: Stock) -> tuple[object, ...]:
    """Identify all that decides what a node can give, but for what claims hold."""
    pages = (*stock.pages_on.get(node, ()), *stock.pages_on.get("", ()))
    pools = [stock.pages_of[page.pool] for page in pages]
    return tuple(map(id, (stock.nodes.get(node), stock.classes, stock.compatibilities, stock.reading, *pages, *pools)))
