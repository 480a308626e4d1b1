"""Where the members of a group would be placed if all less important pods were gone. Nothing is held, and no pod is evicted.

A scheduler that cannot place a group simulates placing it once more, with all its other plugins: which pods have to go is then a question about
one node for each member. It places one group at a time, so the last supposition is the only one.
"""

from __future__ import annotations

import secrets
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from msgspec.structs import replace

from allocator.decisions import Outlooks, with_pods
from allocator.preemption import Holders, priority, without_pods
from allocator.service.app import HttpError
from allocator.service.questions import for_supposed_stock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allocator.decisions import Serving
    from allocator.service.bridge import Bridge
    from allocator.service.preemption.evictions import Evictions
    from dra.objects import Pod
    from dra.stock import Stock

SUPPOSED = "supposed-"
MOST = 100  # as scores go


class Supposition:
    """The stock without less important pods, and the members that were placed in it."""

    def __init__(self, bridge: Bridge, evictions: Evictions) -> None:
        self._bridge = bridge
        self._evictions = evictions
        self._name = ""
        self._stock = self._now = bridge.knowledge.stock  # without all of them; without those that have to go so far
        self._holders = Holders({}, {}, {})
        self._removed: tuple[Pod, ...] = ()
        self._asked: tuple[str, Pod] | None = None  # the last question, by its token
        self._before: dict[str, tuple[Stock, Stock]] = {}  # by the token of a member that was placed

    def outlook(self, pod: Pod, name: str, below: int) -> tuple[str, Outlooks]:
        """Say which nodes could serve the next member of a supposition, best without a further victim, and under which token it is placed."""
        bridge = self._bridge
        bridge.lead.demand_ready()
        pod = bridge.pods.newest(pod)
        if name != self._name:
            self._now, self._holders = self._evictions.stock_and_preemptable(pod)
            for node, others in bridge.questions.nominated_in_shared_pools(pod).items():
                self._now = with_pods(self._now, node, others)
            self._removed = tuple(one for one in self._holders.pods() if priority(one) < below)
            self._stock = without_pods(self._now, self._removed)
            self._name, self._before = name, {}
        full = bridge.decider.once(bridge.ledger.full_nodes, pod, self._removed)
        placement, _ = bridge.pods.placement_of(pod)
        found = bridge.decider.outlook(pod, self._stock, placement, full)
        now = bridge.decider.outlook(pod, self._now, placement, full)
        scores = {node: MOST if node in now.nodes else 0 for node in found.nodes}
        token = SUPPOSED + secrets.token_hex(12)
        self._asked = token, pod
        outlooks = replace(found, nodes=scores).with_messages(partial(bridge.pods.redact, pod))
        return token if scores else "", outlooks

    def fits(self, token: str, node: str, add: Iterable[Pod], remove: Iterable[Pod]) -> str:
        """Say what keeps a member from a node beside some pods and without others; "" if nothing does."""
        coming = [self._bridge.pods.newest(one) for one in add]
        stock = with_pods(without_pods(self._stock, remove), node, coming)
        serving = self._serve(token, node, stock)
        return self._bridge.pods.redact(self._pod_of(token), serving) if isinstance(serving, str) else ""

    def place(self, token: str, node: str) -> None:
        """Suppose that a member holds its devices, and that the victims of that are gone."""
        pod = self._pod_of(token)
        now = self._now
        serving = self._serve(token, node, now)
        if isinstance(serving, str):
            now = self._evictions.stock_with_room(pod, node, now, self._holders)
            serving = self._serve(token, node, now)
        if isinstance(serving, str):
            raise HttpError(HTTPStatus.CONFLICT, serving, "decide again")
        self._before[token] = self._stock, self._now
        self._stock, self._now = (stock.with_all(serving.allocated_claims()) for stock in (self._stock, now))

    def take_back(self, token: str) -> None:
        """Have a member hold nothing any more: the last first, as a scheduler does; those that came after it hold nothing either."""
        if (before := self._before.pop(token, None)) is not None:
            self._stock, self._now = before

    def _serve(self, token: str, node: str, stock: Stock) -> Serving | str:
        pod = self._pod_of(token)
        placement, _ = self._bridge.pods.placement_of(pod)
        return self._bridge.decider.serve(pod, node, stock, placement, uncached=for_supposed_stock())

    def _pod_of(self, token: str) -> Pod:
        if self._asked is None or self._asked[0] != token:
            raise HttpError(HTTPStatus.GONE, "the token is no longer known", "decide again")
        return self._asked[1]
