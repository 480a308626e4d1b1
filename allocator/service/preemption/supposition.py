"""Where the members of a group would be placed if all less important pods were gone. Nothing is held, and no pod is evicted.

A scheduler that cannot place a group places it once more in thought, with all its other plugins: who has to go is then a question about
one node for each member. It places one group at a time, so the last supposition is the only one.
"""

from __future__ import annotations

import secrets
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from allocator.decisions import Outlooks, Unserved, with_pods
from allocator.one_node import Options
from allocator.preemption import without_pods
from allocator.service.questions import ALONE
from allocator.service.replies import Refusal
from dra.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allocator.decisions import Serving
    from allocator.service.bridge import Bridge
    from allocator.service.preemption.evictions import Evictions
    from dra.objects import Pod
    from dra.stock import Stock

SUPPOSED = "supposed-"


class Supposition:
    """The stock without less important pods, and the members that were placed in it."""

    def __init__(self, bridge: Bridge, evictions: Evictions) -> None:
        self._bridge = bridge
        self._evictions = evictions
        self._name = ""
        self._empty = bridge.knowledge.stock
        self._stock = self._empty  # with those that are placed
        self._gone: tuple[Pod, ...] = ()
        self._asked: tuple[str, Pod] | None = None  # the last question, by its token
        self._placed: dict[str, tuple[Pod, str]] = {}

    def outlook(self, pod: Pod, name: str) -> tuple[str, Outlooks]:
        """Say which nodes could serve the next member of a supposition, and under which token it is placed."""
        bridge = self._bridge
        bridge.lead.demand_ready()
        pod = bridge.pods.newest(pod)
        if name != self._name:
            self._begin(pod, name)
        full = bridge.ledger.full_nodes(pod, self._gone)
        found = bridge.decider.outlook(pod, self._stock, bridge.pods.placement_of(pod), full)
        self._asked = SUPPOSED + secrets.token_hex(12), pod
        return self._asked[0] if found.nodes else "", found.tell(partial(bridge.pods.redact, pod))

    def _begin(self, pod: Pod, name: str) -> None:
        stock, self._gone = self._evictions.without_lesser(pod)
        for node, others in self._bridge.questions.nominated_in_shared_pools(pod).items():
            stock = with_pods(stock, node, others)
        self._name = name
        self._empty = self._stock = stock
        self._placed = {}

    def fits(self, token: str, node: str, add: Iterable[Pod], remove: Iterable[Pod]) -> str:
        """Say what keeps a member from a node beside some pods and without others; "" if nothing does."""
        coming = [self._bridge.pods.newest(one) for one in add]
        stock = with_pods(without_pods(self._stock, remove), node, coming)
        serving = self._serve(token, node, stock)
        return self._bridge.pods.redact(self._pod_of(token), serving.message) if isinstance(serving, Unserved) else ""

    def place(self, token: str, node: str) -> None:
        """Have a member hold its devices in thought."""
        serving = self._serve(token, node, self._stock)
        if isinstance(serving, Unserved):
            raise Refusal(HTTPStatus.CONFLICT, serving.message, "decide again")
        self._stock = self._stock.with_all(serving.allocated_claims())
        self._placed[token] = self._pod_of(token), node

    def take_back(self, token: str) -> None:
        """Have a member hold nothing any more."""
        if self._placed.pop(token, None) is None:
            return
        self._stock = self._empty
        for pod, node in self._placed.values():
            self._stock = with_pods(self._stock, node, (pod,))

    def _serve(self, token: str, node: str, stock: Stock) -> Serving | Unserved:
        pod = self._pod_of(token)
        return self._bridge.decider.serve(
            pod, node, stock, self._bridge.pods.placement_of(pod), alone=Options(budget=Budget(ALONE, longest=ALONE))
        )

    def _pod_of(self, token: str) -> Pod:
        if self._asked is None or self._asked[0] != token:
            raise Refusal(HTTPStatus.GONE, "the token is not known any more", "decide again")
        return self._asked[1]
