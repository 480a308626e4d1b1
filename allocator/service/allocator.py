"""The allocator. A scheduler calls it for a pod: first outlook, then reserve, then commit, or release to give up.

    outlook(pod)          return the nodes that can serve the pod, and a token that identifies the pod in the later calls
    reserve(token, node)  hold the pod's devices on a node; nothing is written yet
    commit(token)         write the allocation and the reservation into the pod's claims
    release(token)        end the reservation

Decisions are pure functions of a `Basis` (`allocator.service.questions`) and may take long, so the `QuestionRunner` computes them. State
changes only on the event loop: `LiveLedger` applies an event to the ledger (the reserved devices) and carries out the resulting writes.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import OrderedDict
from functools import partial
from http import HTTPStatus
from math import inf
from time import time
from typing import TYPE_CHECKING

import msgspec

from allocator.decisions import FleetOutlook, Outlook, Placed, find_claims, latest_binding, unusable, why_unready
from allocator.pods import claim_obstacle
from allocator.preemption import claims_in_reach, without_pods
from allocator.reservations import ReservationState, effects, events, overlaps, pools_of
from allocator.service import questions
from allocator.service.app import HttpError
from allocator.service.live_ledger import PAUSE
from allocator.service.part import Part
from allocator.service.preemption.nominations import OUTBID
from allocator.service.questions import Basis
from allocator.service.waiting_pods import WaitReason
from cluster.informers import Allotment
from dra.footprint import footprint
from dra.objects import asks_for_devices, claim_keys, claim_names, mapped_resources
from dra.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from allocator.decisions import Decider, Serving
    from allocator.reservations import Reservation
    from allocator.service.live_ledger import LiveLedger
    from allocator.service.part import Shared
    from allocator.service.preemption.nominations import KeptNode
    from dra.objects import Pod
    from dra.stock import PoolId, Stock

DEVICES_OF_ALL = 1000  # a request with allocationMode All counts as this number of devices
MAX_TOKENS = 16384  # pods whose token is remembered
MAX_POD_BYTES = 64 << 20  # memory for these pods
BOUND_SECONDS = 8.0  # for the writes of a bound pod's claims
MAX_DECISIONS = 3  # decisions for one call of reserve, if its basis changes meanwhile
_HELD = re.compile(r"held by claim ([-a-z0-9.]+/[-a-z0-9.]*[a-z0-9])")


class Progress(msgspec.Struct, frozen=True):
    """Whether a commit is done; if not, `message` is what the commit waits for."""

    committed: bool
    message: str = ""
    # If the pod's status may soon name another claim: the version of the pod that names the written claims. Bind only this version.
    resource_version: str = ""
    # The pod's extended resources that the written claims request.
    resources: tuple[str, ...] = ()


class Allocator(Part):
    """Answers schedulers, reserves devices for pods, and lets the ledger write their claims."""

    def __init__(
        self, shared: Shared, ledger: LiveLedger, make_claim: Callable[[Pod], None], binding_seconds: float
    ) -> None:
        """`make_claim` starts to create the claim for a pod's extended resources.

        A device has to be ready within `binding_seconds` of its allocation.
        """
        super().__init__(shared)
        self._ledger = ledger
        self._make_claim = make_claim
        self._binding_seconds = binding_seconds
        self._clock = asyncio.get_running_loop().time
        self.pods_by_token: OrderedDict[str, Pod] = OrderedDict()
        self._memory = Allotment(MAX_POD_BYTES)

    # ---- which nodes can serve a pod

    async def outlook(
        self, pod: Pod, served: AbstractSet[str], claim_versions: Iterable[str]
    ) -> tuple[str, FleetOutlook]:
        """Return a token and the nodes that can serve a pod. The token is "" if there are no such nodes and the outlook is not FULL.

        `served` are the pod's extended resources that, as far as the scheduler knows, a DeviceClass serves, and `claim_versions` are the
        resourceVersions of its claims.
        """
        self._lead.require_ready()
        self._ledger.expect(claim_versions)
        pod = self._pods.newest(pod)
        namespace = pod.metadata.namespace
        waiting = self._pods.waiting
        waiting.note_attempt(pod.metadata.uid)
        if reason := self._pods.turns.reason_to_wait(namespace):
            waiting.put(pod, WaitReason.TURN)
            return "", FleetOutlook(Outlook.WAITING, reason=Reason(text=reason))
        begun = self._clock()
        siblings = self._siblings(pod)
        basis = self.basis(pod)
        if unseen := sorted(served - basis.stock.serving().keys()):
            # The scheduler's other plugins leave these resources to the allocator.
            waiting.put(pod, WaitReason.DEVICES)
            text = f"waiting until the allocator sees the DeviceClass that serves {', '.join(unseen)}"
            return "", FleetOutlook(Outlook.WAITING, reason=Reason(text=text))
        if missing := self._missing(pod):
            fleet_outlook = FleetOutlook(Outlook.WAITING, reason=Reason(text=missing))
        else:
            judgement = await self._runner.answer(namespace, partial(questions.find_serving_nodes, pod, basis))
            self._lead.require_ready()
            fleet_outlook = judgement.fleet_outlook
            if judgement.lacks_claim:
                self._make_claim(pod)
            if judgement.gives_way:
                self._pods.nominations.give_way(pod)
            if judgement.may_be_refused:
                self._pods.requeue_when_devices_are_free(pod)
        fleet_outlook = fleet_outlook.with_texts(partial(self._redact, pod, siblings))
        self._metrics.outlooks.labels(str(fleet_outlook.outlook)).inc()
        self._metrics.outlook_seconds.observe(self._clock() - begun)
        self._pods.note(pod, fleet_outlook.outlook, basis.stock)
        if fleet_outlook.outlook is Outlook.FULL:
            claims = find_claims(pod, self._knowledge.stock).open
            requests = [request.exactly for claim in claims for request in claim.spec.devices.requests]
            devices = sum((request.count or DEVICES_OF_ALL) if request else 1 for request in requests)
            self._pods.nominations.found_no_room(pod, devices)
        if not fleet_outlook.nodes and fleet_outlook.outlook is not Outlook.FULL:
            return "", fleet_outlook
        token = secrets.token_hex(12)
        self._remember(token, pod)
        return token, fleet_outlook

    async def why_not_fits(self, token: str, node: str, add: Iterable[Pod], remove: Iterable[Pod]) -> str:
        """Return why a pod would not fit on a node with the pods of `add` and without the pods of `remove`; "" if it would fit."""
        self._lead.require_ready()
        pod = self.pod_of(token)
        removed, added = tuple(remove), [self._pods.newest(other) for other in add]
        if why := self._ledger.excluded_nodes(pod, removed).get(node):
            return why
        placed = Placed(without_pods(self._knowledge.stock, removed))
        question = partial(questions.why_not_fits, pod, node, placed, added)
        problem = await self._runner.answer(pod.metadata.namespace, question)
        if problem and added:
            self._pods.nominations.give_way(pod)
        return self._pods.redact(pod, problem)

    def count_fitting(self, pods: Sequence[Pod]) -> int:
        """Return how many waiting pods with equal requests fit now. Return the number of all if the decision takes longer than a turn."""
        pods = [self._pods.newest(pod) for pod in pods]
        namespace = pods[0].metadata.namespace
        if self._pods.turns.seconds_until(namespace):
            return len(pods)  # `outlook` makes the pods wait for their namespace's turn
        stock, full = self._knowledge.stock, self._ledger.excluded_nodes(pods[0])

        def question(decider: Decider) -> int:
            return decider.count_fitting(pods, stock, full)

        return self._runner.answer_within_turn(namespace, question, default=len(pods))

    def requeue_fitting(self) -> None:
        """Requeue as many pods as fit, if a device became free."""
        self._ledger.run_in_background(self._pods.waiting.requeue_fitting(self.count_fitting))

    def is_node_useful(self, pod: Pod, kept_node: KeptNode) -> bool:
        """Return whether a pod would fit on the node that is kept for it once the awaited pods are gone.

        Return False if the decision takes longer than a turn.
        """
        stock = self._knowledge.stock
        basis = self.basis(pod)._replace(pods=self._holders([kept_node.node], stock))
        question = partial(questions.is_node_useful, pod, kept_node, basis)
        return self._runner.answer_within_turn(pod.metadata.namespace, question, default=False)

    def basis(self, pod: Pod) -> Basis:
        """Gather the values that a decision about a pod depends on."""
        placement, _ = self._pods.placement_of(pod)
        nominations, state = self._pods.nominations, self._ledger.state
        kept_nodes = nominations.kept_for_others(pod, state)
        stock = self._knowledge.stock
        return Basis(
            stock,
            placement,
            self._ledger.excluded_nodes(pod),
            nominations.rivals(pod, state),
            kept_nodes,
            self._holders([kept_node.node for _, kept_node in kept_nodes], stock),
        )

    def _holders(self, nodes: Iterable[str], stock: Stock) -> dict[tuple[str, str], Pod]:
        """Return the pods whose claims hold devices that these nodes can use."""
        pods = self._knowledge.pods.objects
        claims = [stock.claims[key] for node in nodes for key in claims_in_reach(node, stock) if key in stock.claims]
        keys = {(claim.metadata.namespace, consumer.name) for claim in claims for consumer in claim.status.reserved_for}
        return {key: pods[key] for key in keys if key in pods}

    def _missing(self, pod: Pod) -> str:
        """Return what a pod needs before a decision is possible; "" if it needs nothing. Also deallocate the pod's unusable claims."""
        _, unknown_strategy = self._pods.placement_of(pod)
        if unknown_strategy and asks_for_devices(pod):
            return unknown_strategy
        unusable_claims = self._pods.unusable_claims(pod)
        return self._take_back(pod, unusable_claims) if unusable_claims else ""

    def _siblings(self, pod: Pod) -> dict[str, str]:
        """Return the names of the pods of the same PodGroup that are assumed (reserved, not committed), by key of their claims."""
        namespace, group = pod.metadata.namespace, pod.spec.scheduling_group
        siblings: dict[str, str] = {}
        for reservation in self._ledger.state.reservations.values() if group is not None else ():
            sibling = self._pods.find(reservation.pod)
            is_assumed = reservation.state is ReservationState.ASSUMED
            if sibling is None or not is_assumed or sibling.spec.scheduling_group != group:
                continue
            if sibling.metadata.namespace == namespace:
                siblings |= {f"{namespace}/{name}": reservation.name for name in claim_names(sibling)}
        return siblings

    def _redact(self, pod: Pod, siblings: Mapping[str, str], sentence: str) -> str:
        """Remove what readers of the pod's events may not read. If a pod of the same group has a device, say "meant for", not "held by"."""
        redacted = self._pods.redact(pod, sentence)
        if not siblings:
            return redacted
        return _HELD.sub(
            lambda match: f"meant for pod {siblings[match[1]]} of the same group" if match[1] in siblings else match[0],
            redacted,
        )

    # ---- deallocate claims that the pod cannot use

    def take_back_elsewhere(self, pod: Pod, nodes: Iterable[str]) -> str:
        """Deallocate the claims that only this pod uses and whose allocation excludes one of these nodes.

        Return the reason, or "" if there are no such claims. The caller passes a pod that fits on no node, and the nodes that every other
        plugin accepts.
        """
        self._lead.require_ready()
        pod = self._pods.newest(pod)
        nodes_by_name = self._knowledge.stock.nodes
        candidates = [nodes_by_name[name] for name in nodes if name in nodes_by_name]
        reasons: dict[str, str] = {}
        for claim in self._pods.allocated_claims(pod):
            is_exclusive = all(consumer.uid == pod.metadata.uid for consumer in claim.status.reserved_for)
            if is_exclusive and any(claim_obstacle([claim], node) for node in candidates):
                reasons[claim.metadata.uid] = (
                    f"claim {claim.metadata.key} is allocated on a node where the pod cannot run"
                )
        return self._take_back(pod, reasons) if reasons else ""

    def _take_back(self, pod: Pod, why: Mapping[str, str]) -> str:
        """Deallocate the claims whose uids are the keys of `why`, and return the first reason."""
        sentence = next(iter(why.values()))
        if pod.metadata.uid not in self._ledger.state.pods:
            self._ledger.apply(events.PodSeen(pod))
        self._ledger.apply(events.TakeBack(pod.metadata.uid, tuple(why), sentence))
        return sentence

    # ---- reserve, commit, release

    async def serve_bound(self, pod: Pod) -> None:
        """Write the claims that the status of a bound pod names, with devices of the pod's node. Raise HttpError if this is not possible."""
        token = secrets.token_hex(12)
        self._remember(token, pod)
        await self.reserve(token, pod.spec.node_name, bound=True)
        await self.commit(token, BOUND_SECONDS)

    async def reserve(self, token: str, node: str, *, bound: bool = False) -> None:
        """Reserve a pod's devices on a node in the ledger. From then on the token identifies the reservation.

        With `bound`, the pod is on the node already.
        """
        pod = self.pod_of(token)
        for _ in range(MAX_DECISIONS):
            self._lead.require_ready()
            pod = self._pods.newest(pod)
            state = self._ledger.state
            existing = state.reservations.get(state.tokens.get(token, ""))
            if existing is not None and existing.node == node and existing.state is not ReservationState.RELEASED:
                return
            if problem := self._obstacle(pod, node):
                raise self._conflict(pod, problem)
            generation, basis = state.generation, self.basis(pod)
            namespace, question = pod.metadata.namespace, partial(questions.serve, pod, node, basis)
            serving = self._runner.answer_within_turn(namespace, question, None)
            if serving is None:
                serving = await self._runner.answer_in_thread(namespace, question)
                if not basis.is_valid_on(node, self.basis(pod)):
                    continue
            if isinstance(serving, str):
                if serving == OUTBID:
                    self._pods.nominations.give_way(pod)
                raise self._conflict(pod, serving)
            declined = self._assume(token, pod, node, serving, generation, bound=bound)
            if not declined:
                self._pods.waiting.pop(pod.metadata.uid)
                return
            if basis.stock is self._knowledge.stock:
                raise self._conflict(pod, declined)
        raise self._conflict(pod, f"node {node} changed during the decision")

    def is_unready(self, token: str) -> bool:
        """Return whether any reserved device has binding conditions that are not met yet (KEP-5007)."""
        state = self._ledger.state
        reservation = state.reservations.get(state.tokens.get(token, ""))
        holds = state.holds_of(reservation) if reservation is not None else []
        reason = why_unready(map(state.as_intended, holds))
        return reason is not None and not reason.never

    def release(self, token: str) -> None:
        """End a reservation; an unknown token is not an error."""
        self._ledger.apply(events.Unreserve(token))

    async def commit(self, token: str, seconds: float) -> Progress:
        """Write the reserved claims. Return when they are written and the devices are ready; after `seconds`, return what is missing."""
        self._lead.require_ready()
        known_pod = self.pods_by_token.get(token)
        if known_pod is not None and token not in self._ledger.state.tokens:
            pod_claims = find_claims(self._pods.newest(known_pod), self._knowledge.stock)
            if not pod_claims.without_uncreated().claims and pod_claims.waits_for is None:
                return Progress(committed=True)  # the pod has no claims to write
        until = self._clock() + seconds
        if known_pod is not None and token in self._ledger.state.tokens:
            self._require_named(token, self._pods.newest(known_pod))
        try:
            async with asyncio.timeout_at(until):
                outcome = await self._ledger.commit(token)
        except TimeoutError:
            return Progress(False, "waits for the API server to accept the allocation")
        if isinstance(outcome, effects.Dropped):
            raise self._conflict(self.pods_by_token.get(token), outcome.sentence or "the reservation has ended")
        if not await self._resolve_overlaps(token, until):
            return Progress(False, "waits until the watch shows the allocation")
        version, resources = "", frozenset[str]()
        if known_pod is not None:
            pod = self._pods.newest(known_pod)
            if self._ledger.has_unnamed_claims(pod):
                try:
                    async with asyncio.timeout_at(until):
                        pod = await self._ledger.read_pod(pod) or pod
                except TimeoutError:
                    return Progress(False, "waits for the API server to return the pod")
                version = pod.metadata.resource_version
            self._require_named(token, pod)
            resources = mapped_resources(pod)
        progress = await self._wait_for_devices(token, until)
        return msgspec.structs.replace(progress, resource_version=version, resources=tuple(sorted(resources)))

    def _require_named(self, token: str, pod: Pod) -> None:
        """End the reservation and raise an error if the pod's status does not name exactly the reserved claims.

        kube-controller-manager may have created two claims for one entry of the pod, and changed which of them the status names.
        """
        reservation = self._reservation_of(token)
        reserved = {hold.claim.metadata.key for hold in self._ledger.state.holds_of(reservation)}
        named = set(claim_keys(pod))
        if named == reserved:
            return
        why = (
            f"the pod's status names claim {', '.join(sorted(named - reserved)) or 'none'}, "
            f"and devices were reserved for claim {', '.join(sorted(reserved - named)) or 'none'}"
        )
        self._ledger.apply(events.TakeBack(reservation.pod, (), why))
        raise self._conflict(pod, why)

    def _obstacle(self, pod: Pod, node: str) -> str:
        """Return a reason, other than a lack of devices, that prevents a reservation on a node; "" if there is none."""
        _, unknown_strategy = self._pods.placement_of(pod)
        return (
            unknown_strategy
            or self._quotas.unknown(pod.metadata.namespace)
            or self._ledger.excluded_nodes(pod).get(node)
            or next(iter(self._pods.unusable_claims(pod).values()), "")
        )

    def _assume(self, token: str, pod: Pod, node: str, serving: Serving, generation: int, *, bound: bool) -> str:
        """Apply `Assume` to the ledger. Return why the ledger declines it, or "" if the ledger accepts it.

        `generation` is the ledger's generation at the time of the decision.
        """
        if not serving.claims:
            return ""  # the pod has no claims
        if not all(claim.metadata.uid for claim in serving.claims):
            raise self._conflict(pod, f"waiting for claim {serving.claims[-1].metadata.name} to be created")
        allocations = {claim.metadata.uid: claim.status.allocation for claim in serving.allocated}
        parts = tuple(events.ClaimPart(claim, allocations.get(claim.metadata.uid)) for claim in serving.claims)
        lines = self._quotas.lines(pod, serving.allocated, self._knowledge.stock)
        for effect in self._ledger.apply(events.Assume(token, pod, node, parts, generation, lines, bound)):
            if isinstance(effect, effects.Declined):
                return effect.sentence
            if isinstance(effect, effects.Exceeded):
                self._pods.requeue_when_devices_are_free(pod)
                remedy = "request less, or wait until pods of the namespace have ended"
                raise HttpError(HTTPStatus.CONFLICT, str(effect.line), remedy, {"exceeded": effect.line.facts()})
        return ""

    async def _resolve_overlaps(self, token: str, until: float) -> bool:
        """Wait until the watch shows our write, then resolve conflicts with earlier allocations by other writers.

        Return False if the watch does not show the write in time. The informer delivers claims in the order of their writes. So once it has
        shown our write, it has shown every earlier write.
        """
        state = self._ledger.state
        while True:
            changed = self._ledger.claims_changed
            reservation = self._reservation_of(token)
            if not any(uid in state.ahead for uid in reservation.claims):
                break
            if not await _wait_until_set(changed, until):
                return False
        pools: set[PoolId] = set()
        for hold in state.holds_of(reservation):
            pools |= pools_of(hold.claim.status.allocation)
        for overlap in overlaps(self._knowledge.stock, pools):
            self._ledger.apply(overlap)
        if self._reservation_of(token).planned_end:
            raise HttpError(
                HTTPStatus.CONFLICT, "the same devices were just allocated to another claim", "schedule the pod again"
            )
        return True

    async def _wait_for_devices(self, token: str, until: float) -> Progress:
        """Wait until the binding conditions of the devices are met (KEP-5007). Deallocate claims whose devices fail or are late."""
        while True:
            changed = self._ledger.claims_changed
            reservation = self._reservation_of(token)
            claims = [hold.claim for hold in self._ledger.state.holds_of(reservation)]
            now = time()
            for claim in claims:
                if why := unusable(claim, now, self._binding_seconds):
                    self._ledger.apply(events.TakeBack(reservation.pod, (claim.metadata.uid,), why))
                    raise self._conflict(self.pods_by_token.get(token), why)
            reason = why_unready(claims)
            if reason is None:
                self._ledger.apply(events.CommitConfirmed(token))
                return Progress(True)
            ready_deadline = min((latest_binding(claim, self._binding_seconds) for claim in claims), default=inf)
            time_left = max(ready_deadline - now, 0) + PAUSE
            if not await _wait_until_set(changed, min(until, self._clock() + time_left)) and self._clock() >= until:
                return Progress(False, reason.text)

    def _reservation_of(self, token: str) -> Reservation:
        state = self._ledger.state
        reservation = state.reservations.get(state.tokens.get(token, ""))
        if reservation is None:
            raise HttpError(HTTPStatus.CONFLICT, "the reservation has ended", "schedule the pod again")
        if reservation.state is ReservationState.RELEASED:
            raise self._conflict(self.pods_by_token.get(token), reservation.sentence)
        return reservation

    def _conflict(self, pod: Pod | None, problem: str) -> HttpError:
        """Return the error 409, after which the scheduler schedules the pod again."""
        redacted = self._pods.redact(pod, problem) if pod is not None else problem
        return HttpError(HTTPStatus.CONFLICT, redacted, "schedule the pod again")

    # ---- tokens

    def pod_of(self, token: str) -> Pod:
        pod = self.pods_by_token.get(token)
        if pod is None:
            raise HttpError(HTTPStatus.GONE, "the token is no longer known", "schedule the pod again")
        return self._pods.newest(pod)

    def _remember(self, token: str, pod: Pod) -> None:
        namespace = pod.metadata.namespace
        size = footprint(pod)
        self._forget(token)
        while len(self.pods_by_token) >= MAX_TOKENS:
            self._forget(next(iter(self.pods_by_token)))
        # A namespace whose pods exceed its share of the memory loses its own oldest tokens. Only if it has none, another namespace does.
        while not self._memory.take((namespace, token), namespace, size) and self.pods_by_token:
            by_age = self.pods_by_token.items()
            own = (known_token for known_token, other in by_age if other.metadata.namespace == namespace)
            self._forget(next(own, next(iter(self.pods_by_token))))
        self.pods_by_token[token] = pod

    def _forget(self, token: str) -> None:
        pod = self.pods_by_token.pop(token, None)
        if pod is not None:
            self._memory.leave((pod.metadata.namespace, token))


async def _wait_until_set(event: asyncio.Event, until: float) -> bool:
    """Wait for an event until the time `until`; return whether the event is set."""
    try:
        async with asyncio.timeout_at(until):
            return await event.wait()
    except TimeoutError:
        return False
