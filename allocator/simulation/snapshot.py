"""Scheduling the pending pods of a snapshot, without a cluster: which would go where, and why the others would not.

Pods are taken by priority, then creation, then name, one after another; each takes what it is given from those that follow.
A pod's claims are those it names, those that were generated for it, or, where the controller has not come to it yet, those
that its templates would become; and one for the extended resources that a DeviceClass offers and the node does not.
Nothing is preempted, and nodes are judged by devices alone, not by kube-scheduler's other scores.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from allocator import pods as podfit
from allocator.answer import Answer, Reason, Stage, Verdict, as_granted
from allocator.pods import future_claims
from allocator.preemption import holders_below, make_room, may_preempt, without_pods
from allocator.reasons import equal_answers, tally
from allocator.simulation.placement import Placements
from allocator.strategies import Chosen, best_node, fragmentation, utilisation
from dra.objects import (
    DeviceQuota,
    Node,
    Pod,
    PodDisruptionBudget,
    ResourceClaim,
    ResourceClaimTemplate,
    extended_claim,
    served_resources,
)
from dra.policy import held_of_quota, quota_lines, quota_scope
from dra.stock import Stock, amounts_of, total

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from allocator.preemption import Victims
    from allocator.simulation.placement import Ask
    from dra.policy import QuotaLine

    Why = Callable[[Stock, str, Sequence[ResourceClaim], Answer], Answer]


LOOKS = 20_000  # at a node without some pods, in a simulation; after that no victims are named
REMEMBERED = 4096  # refusals that were looked into
EXPLAINED = 24  # nodes that are looked into for a pod that fits none; the others are only counted


class PodOutcome(msgspec.Struct, frozen=True):
    """What became of one pod."""

    pod: str
    node: str | None
    devices: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    victims: tuple[str, ...] = ()
    summary: str = ""
    exceeded: dict[str, str] = {}  # the line of a quota that holds it back, where devices would do


class Totals(msgspec.Struct, frozen=True):
    """How many pods were placed, and how full the fleet is afterwards."""

    pods: int
    placed: int
    unschedulable: int
    undecided: int
    devices: int
    utilisation: float
    fragmentation: float


class Simulation(msgspec.Struct, frozen=True):
    pods: tuple[PodOutcome, ...]
    totals: Totals


class Snapshot(msgspec.Struct, frozen=True):
    """What a simulation begins with; `claims` are all there are, allocated or not."""

    stock: Stock
    pods: tuple[Pod, ...]
    claims: tuple[ResourceClaim, ...] = ()
    templates: tuple[ResourceClaimTemplate, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    quotas: tuple[DeviceQuota, ...] = ()


def simulate(
    snapshot: Snapshot, *, ask: Ask, why: Why | None = None, progress: Callable[[int, int], None] | None = None
) -> Simulation:
    """Schedule the pending pods of a snapshot; `ask` puts claims to the allocator, `why` explains what it refused."""
    run = SnapshotRun(snapshot, ask, why)
    waiting = podfit.pending(snapshot.pods)
    places: list[PodOutcome] = []
    for number, pod in enumerate(waiting):
        places.append(run.schedule(pod))
        if progress:
            progress(number + 1, len(waiting))
    rooms = list(run.fleet.rooms())
    placed = sum(place.node is not None for place in places)
    return Simulation(
        tuple(places),
        Totals(
            len(places),
            placed,
            len(places) - placed - run.undecided,
            run.undecided,
            sum(len(place.devices) for place in places),
            round(utilisation(rooms), 4),
            round(fragmentation(rooms), 4),
        ),
    )


class _KnownRefusal(msgspec.Struct, frozen=True):
    """Why a node refuses, with the names of the claims that asked first."""

    refused: Answer  # kept, so that no other one has its identity
    found: Answer
    names: list[str]


class SnapshotRun:
    """Places pods of a snapshot one after the other; the devices of each are in use for the next."""

    def __init__(self, snapshot: Snapshot, ask: Ask, why: Why | None = None) -> None:
        self.fleet = Placements(snapshot.stock, ask)
        self.why = why
        self.claims = {claim.metadata.key: claim for claim in snapshot.claims}
        self.templates = {template.metadata.key: template for template in snapshot.templates}
        self.pods = snapshot.pods
        self.by_key = {pod.metadata.key: pod for pod in snapshot.pods}
        self.budgets = snapshot.budgets
        self.quotas = snapshot.quotas
        self.used = podfit.total(snapshot.pods)
        self.looks = LOOKS
        self.explained: dict[int, _KnownRefusal] = {}  # refusals, by their identity
        self.serving = snapshot.stock.serving()
        self.undecided = 0

    def schedule(self, pod: Pod, *, hold: bool = True) -> PodOutcome:
        """Place one pod; unless `hold`, its devices stay free for the pods that follow."""
        pod_name = pod.metadata.key
        future = future_claims(pod, self.templates, self.claims)
        if future.missing:
            return PodOutcome(
                pod_name, None, summary=future.missing[0], reasons=(Reason(Stage.CLASS, text=future.missing[0]),)
            )
        made = self._made_by_name(pod)
        wanted = future.claims if made is None else (*future.claims, made)
        allocated = [claim for claim in wanted if claim.status.allocation is not None]
        free = [claim for claim in wanted if claim.status.allocation is None]
        resources = served_resources(pod, self.serving)
        find = podfit.barriers_by_name(pod, resources)
        by_lacking: dict[tuple[str, ...], Sequence[ResourceClaim]] = {}
        unfit: dict[str, str] = {}
        claims_by_node: dict[str, Sequence[ResourceClaim]] = {}
        for name, node in self.fleet.stock.nodes.items():
            allocatable = node.status.allocatable
            lacking = tuple([resource for resource in resources if not allocatable.get(resource)])
            used = self.used.get(name, {})
            why = " and ".join(map(": ".join, find(node, used))) or podfit.claim_obstacle(allocated, node)
            if why:
                unfit[name] = why
            else:
                if lacking not in by_lacking:
                    by_lacking[lacking] = self._with_extended(pod, free, node)
                claims_by_node[name] = by_lacking[lacking]
        choices: dict[str, Chosen] = {}
        different = {id(claims): claims for claims in claims_by_node.values()}
        for claims in different.values():
            nodes = [node for node, one in claims_by_node.items() if one is claims]
            choices |= self.fleet.answers(claims, nodes)
        chosen = best_node(choices)
        if chosen is None:
            refused = self._refuse(pod_name, unfit, choices, claims_by_node)
            return self._with_victims(refused, pod, allocated, free)
        answer = choices[chosen].answer
        taken = claims_by_node[chosen]
        crossed = self._crossed(pod, taken, answer, self.fleet.stock)
        if crossed is not None:
            refused = PodOutcome(pod_name, None, summary=str(crossed), exceeded=crossed.facts())
            return self._with_victims(refused, pod, allocated, free)
        if hold:
            self._hold(pod, chosen, taken, answer)
        devices = [f"{result.driver}/{result.pool}/{result.device}" for result in answer.results]
        return PodOutcome(pod_name, chosen, tuple(devices))

    def _hold(self, pod: Pod, node: str, claims: Sequence[ResourceClaim], answer: Answer) -> None:
        self.fleet.hold(claims, answer)
        stored = self.fleet.stock.claims
        for claim in claims:
            key = claim.metadata.key
            self.claims[key] = stored[key]
        used = self.used.setdefault(node, {})
        for resource, amount in podfit.requests(pod).items():
            used[resource] = used.get(resource, 0) + amount

    def _with_victims(
        self, refused: PodOutcome, pod: Pod, allocated: Sequence[ResourceClaim], free: Sequence[ResourceClaim]
    ) -> PodOutcome:
        """Add to a refusal the pods whose eviction lets the pod fit, if there are such pods."""
        if not may_preempt(pod):
            return refused
        stock = self.fleet.stock
        holders = holders_below(pod, self.pods, stock, self.budgets)
        if not holders.by_node:  # no pod has a lower priority
            return refused
        find = podfit.barriers_by_name(pod, served_resources(pod, self.serving))

        def suffices(victims: Victims) -> bool:
            self.looks -= 1
            if self.looks < 0:
                return False
            after = without_pods(stock, victims.pods)
            node = after.nodes[victims.node]
            used = dict(self.used.get(victims.node, {}))
            for victim in victims.pods:
                if victim.spec.node_name == victims.node:
                    for resource, amount in podfit.requests(victim).items():
                        used[resource] = used.get(resource, 0) - amount
            if next(find(node, used), None) or podfit.claim_obstacle(allocated, node):
                return False
            claims = self._with_extended(pod, free, node)
            answer = self.fleet.ask(after, victims.node, claims).answer
            return answer.feasible and self._crossed(pod, claims, answer, after) is None

        reachable = [node for node in stock.nodes if holders.potential_victims((node,), stock).has_pods]
        chosen = make_room(reachable, holders, stock, suffices)
        if chosen is None:
            return refused
        victims = tuple(victim.metadata.key for victim in chosen.pods)
        named = ", ".join(victims) or "no further pod"
        summary = f"{refused.summary}; would fit on {chosen.node} once these are gone: {named}"
        return msgspec.structs.replace(refused, victims=victims, summary=summary)

    def _crossed(self, pod: Pod, claims: Sequence[ResourceClaim], answer: Answer, stock: Stock) -> QuotaLine | None:
        """Return the line of a quota that this allocation would exceed."""
        given = as_granted(claims, answer)
        requested = total(amounts_of(claim, stock.pages_of) for claim in given)
        used_by_claims = partial(
            held_of_quota, stock=stock, find_pod=lambda namespace, name: self.by_key.get(f"{namespace}/{name}")
        )
        lines = quota_lines(self.quotas, quota_scope(pod), requested, used_by_claims)
        return next((line for line in lines if line.exceeded), None)

    def _refuse(
        self,
        name: str,
        unfit: Mapping[str, str],
        choices: Mapping[str, Chosen],
        claims_by_node: Mapping[str, Sequence[ResourceClaim]],
    ) -> PodOutcome:
        answers = self._with_own_errors({node: chosen.answer for node, chosen in choices.items()}, claims_by_node)
        node_count = len(unfit) + len(answers)
        if self.why:
            for node, answer in list(islice(answers.items(), EXPLAINED)):
                answers[node] = self._explain(self.why, node, claims_by_node[node], answer)
        self.undecided += any(answer.verdict is Verdict.UNDECIDED for answer in answers.values())
        reasons: list[Reason] = []
        for group in equal_answers(answers):
            text = group.answer.error or str(group.answer.verdict)
            reasons += group.answer.reasons or (Reason(Stage.SEARCH, examples=group.nodes[:3], text=text),)
        counted: dict[str, list[str]] = {}
        for node, why in unfit.items():
            counted.setdefault(why, []).append(node)
        parts = [tally(answers)] if answers else []
        for why, nodes in counted.items():
            reasons.append(Reason(Stage.NODE, lost=len(nodes), of=node_count, examples=tuple(nodes[:3]), text=why))
            parts.append(f"{why} on {len(nodes)}")
        summary = f"0/{node_count} nodes: {'; '.join(parts)}" if node_count else "no Node in what was read"
        return PodOutcome(name, None, reasons=tuple(reasons), summary=summary)

    def _with_own_errors(
        self, answers: dict[str, Answer], claims_by_node: Mapping[str, Sequence[ResourceClaim]]
    ) -> dict[str, Answer]:
        """Repeat searches that ended in an error: its text names a claim, which is another pod's in a cached answer."""
        own: dict[str, Answer] = {}
        for node, answer in answers.items():
            if answer.error and answer.error not in own:
                own[answer.error] = self.fleet.ask(self.fleet.stock, node, claims_by_node[node]).answer
        return {node: own[answer.error] if answer.error else answer for node, answer in answers.items()}

    def _explain(self, why: Why, node: str, claims: Sequence[ResourceClaim], refused: Answer) -> Answer:
        """Return a refusal with its reasons, cached by the identity of the answer, which pods with equal claims share.

        Reasons whose text names a claim are not cached, because the claims of other pods have other names.
        """
        names = [claim.metadata.key for claim in claims]
        known = self.explained.get(id(refused))
        if known is not None:
            own = dict(zip(known.names, names, strict=True))
            reasons: list[Reason] = []
            for one in known.found.reasons:
                claim_of_this = own.get(one.claim, one.claim)
                reasons.append(msgspec.structs.replace(one, claim=claim_of_this))
            return msgspec.structs.replace(known.found, reasons=tuple(reasons))
        found = why(self.fleet.stock, node, claims, refused)
        words: list[str] = []
        for reason in found.reasons:
            words += (reason.text, *reason.examples)
        text = "\n".join(words)
        names_a_claim = any(claim.metadata.name in text for claim in claims)
        if found.explained and not names_a_claim:
            if len(self.explained) >= REMEMBERED:
                self.explained.clear()
            self.explained[id(refused)] = _KnownRefusal(refused, found, names)
        return found

    # ---- whose claims

    def _made_by_name(self, pod: Pod) -> ResourceClaim | None:
        """Find the claim that stands for the extended resources of a pod, if it has been made."""
        status = pod.status.extended_resource_claim_status
        name = status.resource_claim_name if status is not None else ""
        return self.claims.get(f"{pod.metadata.namespace or 'default'}/{name}")

    def _with_extended(self, pod: Pod, claims: Sequence[ResourceClaim], node: Node) -> Sequence[ResourceClaim]:
        """Add the claim for extended resources that the node has no device plugin for."""
        made = extended_claim(pod, self.serving, node.status.allocatable) if self._made_by_name(pod) is None else None
        return claims if made is None else [*claims, made.claim]
