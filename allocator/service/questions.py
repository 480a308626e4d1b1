"""What schedulers ask: which nodes can serve a pod. An answer has a token, by which one of the nodes can be reserved."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import OrderedDict
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator.decisions import (
    Hindrance,
    Outlook,
    Outlooks,
    find_claims,
    reaches_shared_pool,
    with_pods,
)
from allocator.one_node import Options
from allocator.pods import claim_obstacle, reaches
from allocator.preemption import claims_in_reach, run_to_end, without_pods, without_unused_claims
from allocator.reservations import ReservationState, events
from allocator.service.app import HttpError
from allocator.service.preemption.nominations import OUTBID
from allocator.service.waiting_pods import WaitReason
from dra.budget import Budget
from dra.footprint import footprint
from dra.objects import asks_for_devices, claim_names
from runtime.informers import Allotment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from allocator.service.bridge import Bridge
    from allocator.service.preemption.nominations import KeptNode
    from allocator.strategies import Placement
    from dra.objects import Pod, ResourceClaim
    from dra.stock import Stock

SOON = 20_000  # steps, of about a microsecond each
ALONE = 60_000  # for a question to one node about a stock that is supposed
MANY = 1000
TOKENS = 16384  # questions that may still be followed by a reservation
ASKED_BYTES = 64 << 20  # memory that their pods may take
_HELD = re.compile(r"held by ([-a-z0-9.]+/[-a-z0-9.]*[a-z0-9])")


class Basis(NamedTuple):
    """What an answer rests on, also if it takes several turns of the loop."""

    known: Stock  # as it is known
    stock: Stock  # the same with nominated pods
    placement: Placement
    full: dict[str, str]  # nodes that have the most pods they may have, and the sentence that says so
    problem: str  # in how the pod is to be placed


class Questions:
    """Answers schedulers, and remembers the pod of each token."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._clock = asyncio.get_running_loop().time
        self.pods_by_token: OrderedDict[str, Pod] = OrderedDict()  # by token
        self._memory = Allotment(ASKED_BYTES)

    def outlook(self, pod: Pod, token: str = "") -> tuple[str, Outlooks]:
        """Say which nodes can serve a pod, and under which token one of them may be reserved."""
        bridge = self._bridge
        bridge.lead.demand_ready()
        pod = bridge.pods.newest(pod)
        bridge.pods.waiting.confirm(pod.metadata.uid)
        if waits := bridge.pods.turns.wait(pod.metadata.namespace):
            bridge.pods.waiting.put(pod, WaitReason.TURN)
            return "", Outlooks(Outlook.WAITING, message=waits)
        begun = self._clock()
        namespace, group = pod.metadata.namespace, pod.spec.scheduling_group
        # The pods of its group, by claim, for which devices are kept while the scheduler places the group, and not longer.
        siblings: dict[str, str] = {}
        for one in bridge.ledger.state.reservations.values() if group is not None else ():
            sibling = bridge.pods.find(one.pod)
            if sibling is None or one.state is not ReservationState.ASSUMED or sibling.spec.scheduling_group != group:
                continue
            if sibling.metadata.namespace == namespace:
                siblings |= {f"{namespace}/{name}": one.name for name in claim_names(sibling)}
        with bridge.pods.turns.taken(namespace):
            basis = bridge.decider.once(self._basis, pod)
            found = self._judge(pod, basis).with_messages(partial(self._redact, pod, siblings))
        bridge.metrics.outlooks.labels(str(found.outlook)).inc()
        bridge.metrics.outlook_seconds.observe(bridge.decider.spent + self._clock() - begun)
        bridge.pods.note(pod, found.outlook, is_current=basis.known is bridge.knowledge.stock)
        if found.outlook is Outlook.FULL:
            claims = find_claims(pod, bridge.knowledge.stock).open
            requests = [one.exactly for claim in claims for one in claim.spec.devices.requests]
            devices = sum((one.count or MANY) if one else 1 for one in requests)  # all there are count as many
            bridge.pods.nominations.found_no_room(pod, devices)
        if not found.nodes and found.outlook is not Outlook.FULL:
            return "", found
        token = token or secrets.token_hex(12)
        self._remember(token, pod)
        return token, found

    def _redact(self, pod: Pod, siblings: Mapping[str, str], sentence: str) -> str:
        """Say to readers of a pod's events what they may read; a pod that is placed with it holds nothing yet."""
        redacted = self._bridge.pods.redact(pod, sentence)
        if not siblings:
            return redacted
        return _HELD.sub(
            lambda match: f"meant for pod {siblings[match[1]]} of the same group" if match[1] in siblings else match[0],
            redacted,
        )

    def _basis(self, pod: Pod) -> Basis:
        bridge = self._bridge
        placement, problem = bridge.pods.placement_of(pod)
        return Basis(
            bridge.knowledge.stock, self.stock_with_nominated(pod), placement, bridge.ledger.full_nodes(pod), problem
        )

    def _judge(self, pod: Pod, basis: Basis) -> Outlooks:
        bridge = self._bridge
        if basis.problem and asks_for_devices(pod):
            return Outlooks(Outlook.WAITING, message=basis.problem)
        if unusable := bridge.pods.unusable_claims(pod):
            return Outlooks(Outlook.WAITING, message=self._take_back(pod, unusable))
        unmade = find_claims(pod, basis.known).unmade
        if unmade is not None:
            if by_plugins := self._by_plugins(pod, basis):
                return by_plugins
            bridge.extended.make(pod)
            return Outlooks(Outlook.WAITING, message=f"waiting for claim {unmade.claim.metadata.name} to be created")
        found = bridge.decider.outlook(pod, basis.stock, basis.placement, basis.full)
        if found.nodes:
            return self._without_kept_nodes(pod, found, basis.stock, basis.placement)
        if basis.stock is basis.known:
            return found
        # Without the nominated pods this pod might fit: the answer says so then, and the pod is requeued when a nomination ends.
        hindrances: list[Hindrance] = []
        for one in found.hindrances:
            free = not self._unserved(pod, one.nodes[0], basis.known)
            hindrances.append(replace(one, message=OUTBID) if free else one)
            if free:
                bridge.pods.nominations.give_way(pod)
        return replace(found, hindrances=tuple(hindrances))

    def _by_plugins(self, pod: Pod, basis: Basis) -> Outlooks | None:
        """Answer with the nodes whose device plugins may serve a pod by name, while no devices are free for it; None if devices are to serve it.

        A claim, once it is made, keeps the pod from these nodes. Whether the plugins have any left is for the scheduler to say.
        """
        bridge, (_, stock, placement, full, _) = self._bridge, basis
        plugins = bridge.decider.by_plugin(pod, stock, placement, full)
        if not plugins.nodes:
            return None
        devices = bridge.decider.outlook(pod, stock, placement, full)
        may_go = reaches(pod)
        if any(may_go(stock.nodes[name]) for name in devices.nodes):
            return None
        bridge.pods.refuse(pod)  # it is tried again when devices come free
        return replace(plugins, hindrances=devices.hindrances)

    def _without_kept_nodes(self, pod: Pod, found: Outlooks, stock: Stock, placement: Placement) -> Outlooks:
        """Leave out the nodes that are kept for others, where this pod would take what these need."""
        bridge = self._bridge
        others = bridge.pods.nominations.kept_for_others(pod, bridge.ledger.state)
        nodes = {kept_node.node for _, kept_node in others} & found.nodes.keys()
        taken: list[str] = []
        options = for_supposed_stock()
        for node in sorted(nodes):
            serving = bridge.decider.serve(pod, node, stock, placement, uncached=options)
            if not isinstance(serving, str) and self.outbid(pod, node, serving.allocated_claims(), stock):
                taken.append(node)
        if not taken:
            return found
        left = {name: score for name, score in found.nodes.items() if name not in taken}
        hindrances = (*found.hindrances, Hindrance(OUTBID, tuple(taken)))
        if left:
            return replace(found, nodes=left, hindrances=hindrances)
        return Outlooks(Outlook.FULL, {}, OUTBID, hindrances)

    def outbid(self, pod: Pod, node: str, given: Sequence[ResourceClaim], stock: Stock) -> bool:
        """Say whether what a pod is given on a node is what another, at least as important, will need once those it waits for are gone."""
        for other, kept_node in self._bridge.pods.nominations.kept_for_others(pod, self._bridge.ledger.state):
            if node != kept_node.node and not reaches_shared_pool(stock, kept_node.node):
                continue
            later = self._stock_once_ended(kept_node, stock)
            if self._would_fit(other, kept_node.node, later) and not self._would_fit(
                other, kept_node.node, later.with_all(given)
            ):
                self._bridge.pods.nominations.give_way(pod)
                return True
        return False

    def _stock_once_ended(self, kept_node: KeptNode, stock: Stock) -> Stock:
        """Answer with the stock after the pods are gone that a kept node waits for, and the claims are free of those that are gone."""
        later = without_pods(stock, kept_node.awaited)
        return run_to_end(
            without_unused_claims(later, tuple(claims_in_reach(kept_node.node, later)), self._bridge.knowledge.pod)
        )

    def is_node_useful(self, pod: Pod, kept_node: KeptNode) -> bool:
        """Say whether a pod would fit on the node that is kept for it once those it waits for are gone."""
        return self._would_fit(pod, kept_node.node, self._stock_once_ended(kept_node, self._bridge.knowledge.stock))

    def _would_fit(self, pod: Pod, node: str, stock: Stock) -> bool:
        """Say whether a pod is soon found to fit: one that takes long to decide on has no node kept at the cost of others' questions."""
        options = Options(steps=SOON, budget=Budget(SOON))
        return not isinstance(self._bridge.decider.serve(pod, node, stock, uncached=options), str)

    def nominated_in_shared_pools(self, pod: Pod, group: Collection[str] = ()) -> dict[str, list[Pod]]:
        """List by node the nominated pods, at least as important as this one, whose node reaches pools of several nodes."""
        stock = self._bridge.knowledge.stock
        nominated = self._bridge.pods.nominations.rivals(pod, self._bridge.ledger.state, group)
        return {node: others for node, others in nominated.items() if reaches_shared_pool(stock, node)}

    def stock_with_nominated(self, pod: Pod) -> Stock:
        """Answer with the stock in which those pods have their devices already.

        Pools of a single node are looked at with the node's nominated pods: by the plugin in its filter, and by the extender in its own.
        """
        stock = self._bridge.knowledge.stock
        for node, others in self.nominated_in_shared_pools(pod).items():
            stock = with_pods(stock, node, others)
        return stock

    def fits(self, token: str, node: str, add: Iterable[Pod], remove: Iterable[Pod]) -> str:
        """Say what keeps a pod from a node if some pods come first and others go; "" if nothing does."""
        self._bridge.lead.demand_ready()
        pod = self.pod_of(token)
        leaving = tuple(remove)
        if why := self._bridge.ledger.full_nodes(pod, leaving).get(node):
            return why
        coming = [self._bridge.pods.newest(one) for one in add]
        with self._bridge.pods.turns.taken(pod.metadata.namespace):
            stock = without_pods(self._bridge.knowledge.stock, leaving)
            stock = with_pods(stock, node, coming)
            problem = self._unserved(pod, node, stock)
        if problem and coming:
            self._bridge.pods.nominations.give_way(pod)
        return problem

    def _unserved(self, pod: Pod, node: str, stock: Stock) -> str:
        serving = self._bridge.decider.serve(pod, node, stock, uncached=for_supposed_stock())
        message = serving if isinstance(serving, str) else ""
        return self._bridge.pods.redact(pod, message)

    def take_back_elsewhere(self, pod: Pod, nodes: Iterable[str]) -> str:
        """Take back claims that are allocated to this pod alone and keep it from one of these nodes; say so, "" if there are none.

        The scheduler asks this of a pod that fits no node now, about the nodes that everything but devices accepts.
        """
        self._bridge.lead.demand_ready()
        pod = self._bridge.pods.newest(pod)
        known = self._bridge.knowledge.stock.nodes
        candidates = [known[name] for name in nodes if name in known]
        found: dict[str, str] = {}
        for claim in self._bridge.pods.allocated_claims(pod):
            is_exclusive = all(consumer.uid == pod.metadata.uid for consumer in claim.status.reserved_for)
            if is_exclusive and any(claim_obstacle([claim], node) for node in candidates):
                found[claim.metadata.uid] = f"claim {claim.metadata.key} is allocated where the pod cannot go"
        return self._take_back(pod, found) if found else ""

    def _take_back(self, pod: Pod, why: Mapping[str, str]) -> str:
        """Take back claims by uid, each for a reason; answer with the first reason."""
        sentence = next(iter(why.values()))
        if pod.metadata.uid not in self._bridge.ledger.state.pods:
            self._bridge.ledger.apply(events.PodSeen(pod))
        self._bridge.ledger.apply(events.TakeBack(pod.metadata.uid, tuple(why), sentence))
        return sentence

    def adopt(self, token: str, pod: Pod) -> bool:
        """Have a token stand for a pod; False if the pod needs no device of ours."""
        self._bridge.lead.demand_ready()
        pod = self._bridge.pods.newest(pod)
        if not find_claims(pod, self._bridge.knowledge.stock).want_devices:
            return False
        self._remember(token, pod)
        return True

    def pod_of(self, token: str) -> Pod:
        """Find the pod of a token."""
        pod = self.pods_by_token.get(token)
        if pod is None:
            raise HttpError(HTTPStatus.GONE, "the token is no longer known", "decide again")
        return self._bridge.pods.newest(pod)

    def _remember(self, token: str, pod: Pod) -> None:
        namespace = pod.metadata.namespace
        size = footprint(pod)
        self._forget(token)
        while len(self.pods_by_token) >= TOKENS:
            self._forget(next(iter(self.pods_by_token)))
        # Where a namespace asks with large pods, its own earlier questions are forgotten, and those of no other namespace.
        while not self._memory.take((namespace, token), namespace, size):
            earlier = (one for one, other in self.pods_by_token.items() if other.metadata.namespace == namespace)
            oldest = next(earlier, None)
            if oldest is None:
                return
            self._forget(oldest)
        self.pods_by_token[token] = pod

    def _forget(self, token: str) -> None:
        pod = self.pods_by_token.pop(token, None)
        if pod is not None:
            self._memory.leave((pod.metadata.namespace, token))


def for_supposed_stock() -> Options:
    """Bound a question to one node about a stock that is supposed: other calls have no turn meanwhile."""
    return Options(budget=Budget(ALONE, longest=ALONE))
