"""Scheduling the pending pods of a snapshot, without a cluster: who would go where, and why the others would not.

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
from allocator.preemption import holders_below, make_room, may_preempt, settle, without_pods
from allocator.reasons import alike, tally
from allocator.simulation.placement import Placements
from allocator.simulation.reasons_known import ReasonsKnown
from allocator.strategies import Chosen, best, fragmentation, utilisation
from dra.objects import (
    DeviceClaim,
    DeviceQuota,
    DeviceRequest,
    ExactDeviceRequest,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    claim_name,
)
from dra.policy import held_of_quota, quota_lines, whose
from dra.stock import Stock, amounts_of, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from allocator.preemption import Victims
    from allocator.simulation.placement import Ask
    from dra.policy import QuotaLine

    Why = Callable[[Stock, str, Sequence[ResourceClaim], Answer], Answer]


LOOKS = 20_000  # at a node without some pods, in a simulation; after that nobody is named who would have to go
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


class _Missing(Exception):  # noqa: N818  not an error of ours: the pod waits for something
    """A pod names a claim or template that is not there."""


def simulate(
    snapshot: Snapshot, *, ask: Ask, why: Why | None = None, progress: Callable[[int, int], None] | None = None
) -> Simulation:
    """Schedule the pending pods of a snapshot; `ask` puts claims to the allocator, `why` explains what it refused."""
    run = _Placing(snapshot, ask, why)
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


class _Placing:
    def __init__(self, snapshot: Snapshot, ask: Ask, why: Why | None) -> None:
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
        self._reasons_known = ReasonsKnown()
        self.offered = {
            resource: name
            for name, class_ in snapshot.stock.classes.items()
            for resource in (class_.spec.extended_resource_name, f"deviceclass.resource.kubernetes.io/{name}")
            if resource
        }
        self.undecided = 0

    def schedule(self, pod: Pod) -> PodOutcome:
        """Find a place for one pod, and take it."""
        name = pod.metadata.key
        try:
            wanted = list(self._claims(pod))
        except _Missing as missing:
            text = str(missing)
            reason = Reason(Stage.CLASS, text=text)
            return PodOutcome(name, None, summary=text, reasons=(reason,))
        held: list[ResourceClaim] = []
        free: list[ResourceClaim] = []
        for claim in wanted:
            allocated = claim.status.allocation is not None
            side = held if allocated else free
            side.append(claim)
        extended = self._name_extended(pod)
        unfit: dict[str, str] = {}
        asked: dict[str, Sequence[ResourceClaim]] = {}
        for here, node in self.fleet.stock.nodes.items():
            allocatable = node.status.allocatable
            lacking = [resource for resource in extended if resource not in allocatable]
            used = self.used.get(here, {})
            why = podfit.refusal(pod, node, used, lacking) or podfit.elsewhere(held, node)
            if why:
                unfit[here] = why
            elif lacking:
                asked[here] = [*free, self._extended_claim(pod, lacking)]
            else:
                asked[here] = free
        choices: dict[str, Chosen] = {}
        different = {id(claims): claims for claims in asked.values()}
        for claims in different.values():
            nodes = [node for node, one in asked.items() if one is claims]
            choices |= self.fleet.answers(claims, nodes)
        chosen = best(choices)
        if chosen is None:
            refused = self._refuse(name, unfit, choices, asked)
            return self._with_victims(refused, pod, held, free)
        answer = choices[chosen].answer
        crossed = self._crossed(pod, asked[chosen], answer, self.fleet.stock)
        if crossed is not None:
            refused = PodOutcome(name, None, summary=str(crossed), exceeded=crossed.facts())
            return self._with_victims(refused, pod, held, free)
        self._take(pod, chosen, asked[chosen], answer)
        devices: list[str] = []
        for granted in answer.allocations:
            for result in granted.allocation.devices.results:
                device = f"{result.driver}/{result.pool}/{result.device}"
                devices.append(device)
        return PodOutcome(name, chosen, tuple(devices))

    def _take(self, pod: Pod, node: str, claims: Sequence[ResourceClaim], answer: Answer) -> None:
        self.fleet.hold(claims, answer)
        stored = self.fleet.stock.claims
        for claim in claims:
            key = claim.metadata.key
            self.claims[key] = stored[key]
        here = self.used.setdefault(node, {})
        asked = podfit.requests(pod)
        for resource, amount in asked.items():
            before = here.get(resource, 0)
            here[resource] = before + amount

    def _with_victims(
        self, refused: PodOutcome, pod: Pod, held: Sequence[ResourceClaim], free: Sequence[ResourceClaim]
    ) -> PodOutcome:
        """Say who would have to go for a pod that found no place, if anybody's going would do."""
        if not may_preempt(pod):
            return refused
        stock = self.fleet.stock
        holders = settle(holders_below(pod, self.pods, stock, self.budgets))

        def does(asked: Victims) -> bool:
            self.looks -= 1
            return self.looks >= 0 and self._fits_without(pod, asked, held, free)

        crowded = [node for node in stock.nodes if holders.near(node, stock).is_anybody]
        chosen = settle(make_room(crowded, holders, stock), does)
        if chosen is None:
            return refused
        victims = tuple(victim.metadata.key for victim in chosen.pods)
        named = ", ".join(victims) or "no pod that is not leaving already"
        summary = f"{refused.summary}; would fit on {chosen.node} once these are gone: {named}"
        return msgspec.structs.replace(refused, victims=victims, summary=summary)

    def _fits_without(
        self, pod: Pod, asked: Victims, held: Sequence[ResourceClaim], free: Sequence[ResourceClaim]
    ) -> bool:
        here, gone = asked.node, asked.pods
        stock = without_pods(self.fleet.stock, gone)
        node = stock.nodes[here]
        used = self._used_without(here, gone)
        there = node.status.allocatable
        lacking = [resource for resource in self._name_extended(pod) if resource not in there]
        if podfit.refusal(pod, node, used, lacking) or podfit.elsewhere(held, node):
            return False
        claims = free
        if lacking:
            extended = self._extended_claim(pod, lacking)
            claims = [*free, extended]
        answer = self.fleet.ask(stock, here, claims).answer
        return answer.feasible and self._crossed(pod, claims, answer, stock) is None

    def _used_without(self, here: str, gone: Iterable[Pod]) -> dict[str, int]:
        used = dict(self.used.get(here, {}))
        for victim in gone:
            if victim.spec.node_name != here:
                continue
            for resource, amount in podfit.requests(victim).items():
                before = used.get(resource, 0)
                used[resource] = before - amount
        return used

    def _crossed(self, pod: Pod, claims: Sequence[ResourceClaim], answer: Answer, stock: Stock) -> QuotaLine | None:
        """Find the line of a quota that would be crossed if a pod were given this."""
        given = as_granted(claims, answer)
        asked = total(amounts_of(claim, stock.pages_of) for claim in given)
        held = partial(held_of_quota, stock=stock, find_pod=self._find_pod)
        lines = quota_lines(self.quotas, whose(pod), asked, held)
        return next((line for line in lines if line.exceeded), None)

    def _find_pod(self, namespace: str, name: str) -> Pod | None:
        return self.by_key.get(f"{namespace}/{name}")

    def _refuse(
        self,
        name: str,
        unfit: Mapping[str, str],
        choices: Mapping[str, Chosen],
        asked: Mapping[str, Sequence[ResourceClaim]],
    ) -> PodOutcome:
        answers = {node: chosen.answer for node, chosen in choices.items()}
        every = len(unfit) + len(answers)
        if self.why:
            first = list(islice(answers.items(), EXPLAINED))
            for node, answer in first:
                answers[node] = self._explain(self.why, node, asked[node], answer)
        verdicts = {answer.verdict for answer in answers.values()}
        self.undecided += Verdict.UNDECIDED in verdicts
        reasons: list[Reason] = []
        for group in alike(answers):
            answer = group.answer
            if answer.reasons:
                reasons += answer.reasons
                continue
            text = answer.error or str(answer.verdict)
            reason = Reason(Stage.SEARCH, examples=group.nodes[:3], text=text)
            reasons.append(reason)
        counted: dict[str, list[str]] = {}
        for node, why in unfit.items():
            nodes = counted.setdefault(why, [])
            nodes.append(node)
        told: list[str] = []
        if answers:
            told.append(tally(answers))
        for why, nodes in counted.items():
            lost = len(nodes)
            examples = tuple(nodes[:3])
            reason = Reason(Stage.NODE, lost=lost, of=every, examples=examples, text=why)
            reasons.append(reason)
            told.append(f"{why} on {lost}")
        summary = "no Node in what was read"
        if every:
            summary = f"0/{every} nodes: " + "; ".join(told)
        return PodOutcome(name, None, reasons=tuple(reasons), summary=summary)

    def _explain(self, why: Why, node: str, claims: Sequence[ResourceClaim], refused: Answer) -> Answer:
        """Look into a refusal, unless it was looked into for others."""
        known = self._reasons_known.find(refused, claims)
        if known is not None:
            return known
        found = why(self.fleet.stock, node, claims, refused)
        self._reasons_known.keep(refused, found, claims)
        return found

    # ---- whose claims

    def _claims(self, pod: Pod) -> Iterator[ResourceClaim]:
        namespace = pod.metadata.namespace or "default"
        for entry in pod.spec.resource_claims:
            name = claim_name(pod, entry)
            if name is None:
                continue  # the controller says that none is needed
            if name and (found := self.claims.get(f"{namespace}/{name}")) is not None:
                yield found
            elif entry.resource_claim_template_name is not None:
                yield self._generate(pod, entry.name, f"{namespace}/{entry.resource_claim_template_name}")
            else:
                named = f"{namespace}/{name}" if name else f"of entry {entry.name}"
                raise _Missing(f"ResourceClaim {named} does not exist")

    def _generate(self, pod: Pod, entry: str, template: str) -> ResourceClaim:
        found = self.templates.get(template)
        if found is None:
            raise _Missing(f"ResourceClaimTemplate {template} does not exist")
        meta = ObjectMeta(name=f"{pod.metadata.name}-{entry}", namespace=pod.metadata.namespace or "default")
        return ResourceClaim(metadata=meta, spec=found.spec.spec)

    def _name_extended(self, pod: Pod) -> list[str]:
        """Name the extended resources a pod asks for that a class offers."""
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        return sorted({name for one in containers for name in podfit.requests_of(one)} & self.offered.keys())

    def _extended_claim(self, pod: Pod, names: Sequence[str]) -> ResourceClaim:
        """Make the claim for extended resources that the node has no device plugin for."""
        requests: list[DeviceRequest] = []
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        for at, container in enumerate(containers):
            asked = sorted(podfit.requests_of(container).items())
            for number, (name, amount) in enumerate(asked):
                if name in names and amount:
                    request = f"container-{at}-request-{number}"
                    requests.append(_exactly(request, self.offered[name], amount.value()))
        meta = ObjectMeta(
            name=f"{pod.metadata.name}-extended-resources",
            namespace=pod.metadata.namespace or "default",
        )
        devices = DeviceClaim(requests=tuple(requests))
        return ResourceClaim(metadata=meta, spec=ResourceClaimSpec(devices=devices))


def _exactly(name: str, class_: str, count: int) -> DeviceRequest:
    exactly = ExactDeviceRequest(device_class_name=class_, allocation_mode="ExactCount", count=count)
    return DeviceRequest(name=name, exactly=exactly)
