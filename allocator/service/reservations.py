"""Reservations of schedulers: devices are held for a pod on a node, and committed, which writes its claims."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from math import inf
from time import time
from typing import TYPE_CHECKING

import msgspec

from allocator.decisions import devices_ready, find_claims, latest_binding, unusable
from allocator.reservations import ReservationState, effects, events, overlaps, pools_of
from allocator.service.app import HttpError
from allocator.service.live_ledger import PAUSE
from allocator.service.preemption.nominations import OUTBID

if TYPE_CHECKING:
    from allocator.reservations import Reservation
    from allocator.service.bridge import Bridge
    from allocator.service.settings import Settings
    from dra.objects import Pod
    from dra.stock import PoolId


class Progress(msgspec.Struct, frozen=True):
    """How far a commit is: done, or what it waits for."""

    committed: bool
    message: str = ""


class Reservations:
    """Reserves, commits and lets go."""

    def __init__(self, bridge: Bridge, settings: Settings) -> None:
        self._bridge = bridge
        self._clock = asyncio.get_running_loop().time
        self.binding_seconds = settings.binding  # after its allocation, for a device to be ready to be bound to

    async def reserve(self, token: str, node: str) -> None:
        """Hold a pod's devices on a node. The token stands for what is held from then on."""
        namespace = self._bridge.questions.pod_of(token).metadata.namespace
        await self._bridge.decider.answer(namespace, partial(self._reserve, token, node))

    def _reserve(self, token: str, node: str) -> None:
        bridge = self._bridge
        bridge.lead.demand_ready()
        pod = bridge.questions.pod_of(token)
        state = bridge.ledger.state
        existing = state.reservations.get(state.tokens.get(token, ""))
        if existing is not None and existing.node == node and existing.state is not ReservationState.RELEASED:
            return
        basis = state.generation
        placement, unknown = bridge.pods.placement_of(pod)
        problem = (
            unknown
            or bridge.quotas.unknown(pod.metadata.namespace)
            or bridge.ledger.full_nodes(pod).get(node)
            or next(iter(bridge.pods.unusable_claims(pod).values()), "")
        )
        if problem:
            raise self._again(pod, problem)
        stock = bridge.questions.stock_with_nominated(pod)
        serving = bridge.decider.serve(pod, node, stock, placement)
        if isinstance(serving, str):
            raise self._again(pod, serving)
        if not serving.claims:
            return  # there is nothing to hold
        if not all(claim.metadata.uid for claim in serving.claims):
            raise self._again(pod, f"waiting for claim {serving.claims[-1].metadata.name} to be created")
        given = serving.allocated_claims()
        if bridge.questions.outbid(pod, node, given, stock):
            raise self._again(pod, OUTBID)
        allocations = {claim.metadata.uid: claim.status.allocation for claim in given}
        parts = tuple(events.ClaimPart(claim, allocations.get(claim.metadata.uid)) for claim in serving.claims)
        lines = bridge.quotas.lines(pod, given, bridge.knowledge.stock)
        for effect in bridge.ledger.apply(events.Assume(token, pod, node, parts, basis, lines)):
            if isinstance(effect, effects.Declined):
                raise self._again(pod, effect.sentence)
            if isinstance(effect, effects.Exceeded):
                bridge.pods.refuse(pod)
                remedy = "ask for less, or wait until something in the namespace ends"
                raise HttpError(HTTPStatus.CONFLICT, str(effect.line), remedy, {"exceeded": effect.line.facts()})
        bridge.pods.waiting.pop(pod.metadata.uid)

    def unreserve(self, token: str) -> None:
        """Let go of a reservation; an unknown one is not an error."""
        self._bridge.ledger.apply(events.Unreserve(token))

    async def commit(self, token: str, seconds: float) -> Progress:
        """Write what is reserved. Answers when it is written and the devices are ready, or in `seconds` with what it waits for."""
        bridge = self._bridge
        bridge.lead.demand_ready()
        known_pod = bridge.questions.pods_by_token.get(token)
        if known_pod is not None and token not in bridge.ledger.state.tokens:
            pod_claims = find_claims(bridge.pods.newest(known_pod), bridge.knowledge.stock)
            if not pod_claims.without_unmade().claims and not pod_claims.waits_for:
                return Progress(committed=True)  # a pod without claims may be bound as it is
        until = self._clock() + seconds
        answers = bridge.ledger.answers
        waiting = answers.get(token)
        if waiting is None:
            waiting = answers[token] = asyncio.get_running_loop().create_future()
            bridge.ledger.apply(events.Commit(token))
        try:
            async with asyncio.timeout_at(until):
                problem = await asyncio.shield(waiting)
        except TimeoutError:
            return Progress(False, "waits for the API server to accept the allocation")
        if problem:
            raise self._again(bridge.questions.pods_by_token.get(token), problem)
        if not await self._wait_for_others(token, until):
            return Progress(False, "waits to see its allocation in the watch")
        return await self._wait_for_devices(token, until)

    async def _wait_for_others(self, token: str, until: float) -> bool:
        """Let go of what another writer allocated before us; say whether that could be seen in time.

        Informers tell of claims in the order of their writes: once our own write is seen, every write before it is seen, too.
        """
        bridge = self._bridge
        while True:
            changed = bridge.ledger.claims_changed
            reservation = self._reservation_of(token)
            if not any(uid in bridge.ledger.state.ahead for uid in reservation.claims):
                break
            if not await _set(changed, until):
                return False
        pools: set[PoolId] = set()
        for uid in reservation.claims:
            hold = bridge.ledger.state.holds.get(uid)
            if hold is not None:
                pools |= pools_of(hold.claim.status.allocation)
        for overlap in overlaps(bridge.knowledge.stock, pools):
            bridge.ledger.apply(overlap)
        if self._reservation_of(token).due:
            raise HttpError(
                HTTPStatus.CONFLICT, "the same devices were just allocated to another claim", "decide again"
            )
        return True

    async def _wait_for_devices(self, token: str, until: float) -> Progress:
        """Wait until the devices are ready to be bound to (KEP-5007); those that fail, or are late, are taken back."""
        bridge = self._bridge
        while True:
            changed = bridge.ledger.claims_changed
            reservation = self._reservation_of(token)
            holds = [bridge.ledger.state.holds.get(uid) for uid in reservation.claims]
            claims = [hold.claim for hold in holds if hold is not None]
            now = time()
            for claim in claims:
                if why := unusable(claim, now, self.binding_seconds):
                    bridge.ledger.apply(events.TakeBack(reservation.pod, (claim.metadata.uid,), why))
                    raise self._again(bridge.questions.pods_by_token.get(token), why)
            waits_for = devices_ready(claims).waits_for
            if not waits_for:
                bridge.ledger.apply(events.BindingReported(token))
                return Progress(True)
            late = min((latest_binding(claim, self.binding_seconds) for claim in claims), default=inf)
            time_left = max(late - now, 0) + PAUSE
            if not await _set(changed, min(until, self._clock() + time_left)) and self._clock() >= until:
                return Progress(False, waits_for)

    def _reservation_of(self, token: str) -> Reservation:
        state = self._bridge.ledger.state
        reservation = state.reservations.get(state.tokens.get(token, ""))
        if reservation is None:
            raise HttpError(HTTPStatus.CONFLICT, "the reservation has ended", "decide again")
        if reservation.state is ReservationState.RELEASED:
            raise self._again(self._bridge.questions.pods_by_token.get(token), reservation.sentence)
        return reservation

    def _again(self, pod: Pod | None, problem: str) -> HttpError:
        """Refuse, so that the scheduler decides on the pod again."""
        redacted = self._bridge.pods.redact(pod, problem) if pod is not None else problem
        return HttpError(HTTPStatus.CONFLICT, redacted, "decide again")


async def _set(event: asyncio.Event, until: float) -> bool:
    """Wait for an event; say whether it came in time."""
    try:
        async with asyncio.timeout_at(until):
            return await event.wait()
    except TimeoutError:
        return False
