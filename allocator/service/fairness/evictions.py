"""Making room for a pod: who has to go is `allocator.preemption`'s to say; here it is asked of what is known, and they are evicted.

As kube-scheduler does it: the condition DisruptionTarget, so that Jobs know, and then the deletion, of exactly the pod that was seen. Nothing is
held for the pod: the scheduler nominates the node, and shows us nominated pods with each question about less important ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from allocator import allocate
from allocator.answer import with_allocation
from allocator.decisions import Unserved, with_pods
from allocator.preemption import (
    Victims,
    holders_below,
    least,
    make_room,
    may_preempt,
    priority,
    without_pods,
    without_the_gone,
)
from allocator.service.bridge import Refusal
from cluster.errors import ApiError, NotFound
from cluster.patch import Apply
from cluster.resources import PODS
from dra.objects import Pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from allocator.preemption import Fits, Holders
    from allocator.service.bridge import Bridge
    from cluster.protocol import Cluster
    from dra.objects import ResourceClaim
    from dra.stock import Stock

logger = logging.getLogger("drawbridge.allocator")
MANAGER = "drawbridge-allocator"
LOOK_SECONDS = 2.0  # for one pod; the scheduler waits for five
MOST_NODES = 100  # that are looked at for one pod, as kube-scheduler does at least
TARGET = "DisruptionTarget"
REASON = "PreemptionByScheduler"


Serve = Callable[[str, "Stock"], "Sequence[ResourceClaim] | None"]  # a node, of a stock: claims with what they get


class Preemption(msgspec.Struct, frozen=True):
    """Where a pod will fit once its victims are gone; no node, and why, if nobody's going would do."""

    node: str = ""
    victims: tuple[Pod, ...] = ()
    message: str = ""


class Evictions:
    """Makes room."""

    def __init__(self, cluster: Cluster, bridge: Bridge) -> None:
        self._cluster = cluster
        self._bridge = bridge

    async def make_room(self, pod: Pod, nodes: Sequence[str]) -> Preemption:
        """Choose a node and who has to go from it, and evict them."""
        bridge = self._bridge
        bridge.demand_ready()
        pod = bridge.newest(pod)
        if not may_preempt(pod):
            return Preemption(message="the pod's preemptionPolicy is Never")
        stock = without_the_gone(bridge.knowledge.stock, bridge.knowledge.pods.objects.values())
        holders = self.holders_below(pod, stock)
        nominated = pod.status.nominated_node_name
        if going := _leaving(holders, nominated, stock):
            return Preemption(nominated, (), f"waits for {_names(going)} to end")
        found = await self._look(nodes, holders, stock, self._fits(pod, stock, self._serving(pod)))
        if found is None:
            return Preemption(message="no pod of less priority could make room by going")
        for victim in found.pods:
            await self._evict(victim, pod)
        message = f"{_names(found.pods)} made to go" if found.pods else "room is being made already"
        return Preemption(found.node, found.pods, message)

    async def foresee(self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Iterable[str]) -> Victims | None:
        """Say who would have to go for a pod that may not exist yet, with claims that nobody holds. Nothing is done."""
        if not may_preempt(pod):
            return None
        stock = self._bridge.knowledge.stock

        def serve(node: str, after: Stock) -> Sequence[ResourceClaim] | None:
            answer = allocate(after, node, claims)
            given: list[ResourceClaim] = []
            pairs = zip(claims, answer.allocations, strict=False)
            for claim, granted in pairs:
                allocation = granted.allocation
                held = with_allocation(claim, allocation)
                given.append(held)
            return given if answer.feasible else None

        holders = self.holders_below(pod, stock)
        fits = self._fits(pod, stock, serve)
        return await self._look(nodes, holders, stock, fits)

    async def _look(self, nodes: Iterable[str], holders: Holders, stock: Stock, fits: Fits) -> Victims | None:
        """Find the choice that disrupts least. Between two nodes everybody else on the loop gets a turn."""
        clock = asyncio.get_running_loop().time
        until = clock() + LOOK_SECONDS
        choices: list[Victims] = []
        for node in nodes:
            choice = make_room(node, holders, stock, fits) if node in stock.nodes else None
            if choice is not None:
                choices.append(choice)
            if len(choices) >= MOST_NODES or clock() > until:
                break
            await asyncio.sleep(0)
        return least(choices, holders.budgets)

    def holders_below(self, pod: Pod, stock: Stock) -> Holders:
        """Find who could be made to go for a pod."""
        knowledge = self._bridge.knowledge
        others = [other for other in knowledge.pods.objects.values() if other.spec.resource_claims]
        return holders_below(pod, others, stock, knowledge.budgets.objects.values())

    def _serving(self, pod: Pod) -> Serve:
        bridge = self._bridge
        placement = bridge.placement_of(pod)

        def serve(node: str, after: Stock) -> Sequence[ResourceClaim] | None:
            serving = bridge.decider.serve(pod, node, after, placement, kept=False)
            return None if isinstance(serving, Unserved) else serving.allocated_claims()

        return serve

    def _fits(self, pod: Pod, stock: Stock, serve: Serve) -> Fits:
        """Say how it is found out whether a pod fits on a node once some are gone: places, devices, and quota."""
        bridge = self._bridge
        namespace = pod.metadata.namespace or "default"

        def fits(node: str, gone: tuple[Pod, ...]) -> bool:
            if node in bridge.full_nodes(pod, gone):
                return False
            after = without_pods(stock, gone)
            after = with_pods(after, node, bridge.nominated_pods(node, priority(pod), pod))
            given = serve(node, after)
            if given is None:
                return False
            lines = bridge.quotas.lines(namespace, given, after)
            return not any(line.exceeded for line in lines)

        return fits

    async def _evict(self, victim: Pod, pod: Pod) -> None:
        meta = victim.metadata
        why = f"makes room for the more important pod {_names((pod,))}"
        condition = {"type": TARGET, "status": "True", "reason": REASON, "message": why}
        said = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "status": {"conditions": [condition]},
        }
        self._bridge.demand_lead()
        try:
            patch = Apply(said, MANAGER, force=True)
            await self._cluster.patch(PODS, meta.name, patch, meta.namespace, subresource="status")
            await self._cluster.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return
        except ApiError as error:
            problem = f"pod {_names((victim,))} could not be evicted: {error.message}"
            raise Refusal(503, problem, "see the rights of the allocator, or wait") from None
        logger.info("a pod is evicted", extra={"pod": _names((victim,)), "for": _names((pod,))})
        await self._bridge.speak(victim, why)


def _leaving(holders: Holders, node: str, stock: Stock) -> list[Pod]:
    """Name those that were made to go before and are not gone yet."""
    if node not in stock.nodes:
        return []
    return [pod for pod in holders.near(node, stock) if pod.metadata.deletion_timestamp]


def _names(pods: Iterable[Pod]) -> str:
    return ", ".join(pod.metadata.key for pod in pods)
