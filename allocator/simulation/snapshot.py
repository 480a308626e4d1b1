"""Schedules the pending pods of a snapshot without a cluster: the node of each pod, or why no node fits.

Pods are placed one after another by priority, creation time and name. The devices of a pod are in use for the pods after it. The claims of
a pod are the claims that it names, the claims that are or will be generated from its templates, and one claim for the extended resources
that a DeviceClass serves and no device plugin of the node offers. No pod is evicted, but the outcome of a refused pod names victims. The
score of a node depends only on devices and not on kube-scheduler's other scores. The pods of a gang are placed one after another; if fewer
than its `minCount` get a node, none of them is placed. That no placement was found does not mean that there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, takewhile
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from allocator import allocate
from allocator import pods as podfit
from allocator.answer import NodeAnswer, SearchVerdict, as_granted
from allocator.decisions import BY_DEFAULT
from allocator.pods import future_claims, missing_classes
from allocator.preemption import holders_below, make_room, may_preempt, without_pods
from allocator.reasons import by_text, cannot_serve, summary
from allocator.strategies import Placement, fragmentation, rooms_of, utilisation
from dra.objects import (
    DeviceQuota,
    Node,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    ResourceClaim,
    ResourceClaimTemplate,
    extended_claim,
    pod_group_key,
    served_resources,
)
from dra.policy import lines_of_claims
from dra.reason import Reason
from dra.stock import Stock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from allocator import FleetAnswer
    from allocator.decisions import Decider
    from allocator.preemption import Victims
    from dra.policy import QuotaLine


MAX_TRIALS = 20_000  # sets of victims that are tried in a simulation; after that no victims are named
EXPLAINED = 24  # refusing nodes that are explained for a pod; other refusing nodes are only counted


class PodOutcome(msgspec.Struct, frozen=True, rename="camel"):
    pod: str
    node: str | None
    devices: tuple[str, ...] = ()
    # Why no node serves the pod.
    reason: Reason = Reason(text="")
    victims: tuple[str, ...] = ()
    # How device plugins of the node share the devices that the pod gets.
    note: str = ""
    exceeded_quota: dict[str, str] = {}  # the exceeded quota line, if devices are free for the pod


class Totals(msgspec.Struct, frozen=True):
    """The number of placed pods, and the use of the fleet after the last placement."""

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
    """The input of a simulation."""

    stock: Stock
    pods: tuple[Pod, ...]
    templates: tuple[ResourceClaimTemplate, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    quotas: tuple[DeviceQuota, ...] = ()
    groups: Mapping[str, PodGroup] = {}  # by namespace/name


def simulate(
    snapshot: Snapshot,
    decider: Decider,
    placement: Placement = BY_DEFAULT,
    *,
    progress: Callable[[int, int], None] | None = None,
    unreported: frozenset[str] = frozenset(),
) -> Simulation:
    """Schedule the pending pods of a snapshot.

    Pods in `unreported` get devices, which later pods cannot use, but are left out of the answer.
    """
    run = SnapshotRun(snapshot, decider, placement)
    waiting = podfit.pending(snapshot.pods)
    outcomes: list[PodOutcome] = []
    done = 0
    for pods in by_gang(waiting, snapshot.groups):
        outcomes += [outcome for outcome in run.place(pods) if outcome.pod not in unreported]
        done += len(pods)
        if progress:
            progress(done, len(waiting))
    rooms = rooms_of(run.stock)
    placed = sum(outcome.node is not None for outcome in outcomes)
    undecided = len(run.undecided - unreported)
    return Simulation(
        tuple(outcomes),
        Totals(
            len(outcomes),
            placed,
            len(outcomes) - placed - undecided,
            undecided,
            sum(len(outcome.devices) for outcome in outcomes),
            round(utilisation(rooms), 4),
            round(fragmentation(rooms), 4),
        ),
    )


def gang_of(pod: Pod, groups: Mapping[str, PodGroup]) -> str:
    """Return the gang of a pod, by namespace/name of its PodGroup; "" if it has none."""
    name = pod_group_key(pod)
    return name if name in groups and groups[name].min_count else ""


def by_gang(pods: Iterable[Pod], groups: Mapping[str, PodGroup]) -> list[list[Pod]]:
    """Return the pods that are placed together: those of a gang, or one pod alone."""
    together: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        gang = gang_of(pod, groups)
        together.setdefault((gang, "" if gang else pod.metadata.key), []).append(pod)
    return list(together.values())


class _Wanted(NamedTuple):
    """The claims of a pod, and the filters that its nodes must pass."""

    pod: Pod
    claims: Sequence[ResourceClaim]
    serving: Mapping[str, str]  # the DeviceClasses of extended resources for which the pod has no claim
    barriers_on: podfit.Barriers

    def obstacle(self, node: Node, used: Mapping[str, int]) -> str:
        """Return why the pod cannot use a node, whatever devices are free there; "" if it can."""
        return " and ".join(map(str, self.barriers_on(node, used))) or podfit.claim_obstacle(self.claims, node)

    def open_on(self, node: Node) -> Sequence[ResourceClaim]:
        """Return the open claims, with one for those extended resources for which the node has no device plugin."""
        new_claim = extended_claim(self.pod, self.serving, node.status.allocatable)
        open_claims = [claim for claim in self.claims if claim.status.allocation is None]
        return open_claims if new_claim is None else [*open_claims, new_claim.claim]


class SnapshotRun:
    """Places pods of a snapshot one after another. The devices of a pod are in use for the pods after it."""

    def __init__(
        self, snapshot: Snapshot, decider: Decider, placement: Placement = BY_DEFAULT, *, names_victims: bool = True
    ) -> None:
        self.snapshot = snapshot
        self.names_victims = names_victims
        self._granted: list[
            tuple[Pod, Sequence[ResourceClaim]]
        ] = []  # the placed pods on their nodes, and their claims
        self._refused: dict[str, tuple[_Wanted, int]] = {}  # without victims, and how many pods were placed before
        self.stock = snapshot.stock
        self.decider = decider
        self.placement = placement
        self.templates = {template.metadata.key: template for template in snapshot.templates}
        self.by_key = {pod.metadata.key: pod for pod in snapshot.pods}
        self.used = podfit.total(snapshot.pods)
        self.trials_left = MAX_TRIALS
        self.serving = snapshot.stock.serving()
        self.undecided: set[str] = set()  # pods by namespace/name

    def place(self, pods: Sequence[Pod], *, hold: bool = True) -> list[PodOutcome]:
        """Place a pod, or the waiting pods of a gang: none of them if with the running ones they are fewer than its minimum.

        The pods of a gang are placed one by one. So if they do not fit, another placement may exist, unless too many pods fit no node at all.
        With `hold=False`, the devices of a pod without a gang stay free for later pods.
        """
        groups = self.snapshot.groups
        name = gang_of(pods[0], groups)
        before = self.stock, self.used, len(self._granted)
        undecided = set(self.undecided)
        outcomes = [self._place(pod, hold=hold or bool(name)) for pod in pods]
        if self.names_victims or name:
            outcomes = [self.with_victims(outcome) for outcome in outcomes]
        if not name:
            return outcomes
        fitting = sum(outcome.node is not None for outcome in outcomes)
        running = sum(bool(pod.spec.node_name) and gang_of(pod, groups) == name for pod in self.snapshot.pods)
        least = groups[name].min_count
        if fitting + running >= least:
            return outcomes
        self.stock, self.used, placed = before
        del self._granted[placed:]
        # No pod of the gang was placed before these pods, so they fit no node.
        alone = list(takewhile(lambda outcome: outcome.node is None, outcomes))
        possible = len(outcomes) - len(alone) + running
        if possible < least:
            text = f"PodGroup {name} places {least} of its pods together, and at most {possible} fit"
        else:
            most = fitting + running
            text = f"no placement found for {least} pods of PodGroup {name} together: placed one by one, {most} {'gets' if most == 1 else 'get'} a node"
            self.undecided = undecided.union(outcome.pod for outcome in outcomes[len(alone) :])
        reason = Reason(text=text, causes=(f"PodGroup/{name}",))
        not_placed = [
            PodOutcome(
                outcome.pod,
                None,
                reason=reason if outcome.node else replace(reason, text=f"{text}; {outcome.reason.text}"),
            )
            for outcome in outcomes[len(alone) :]
        ]
        return [*alone, *not_placed]

    def _place(self, pod: Pod, *, hold: bool) -> PodOutcome:
        pod_name = pod.metadata.key
        stock = self.stock
        wanted = self._wanted(pod)
        if isinstance(wanted, Reason):
            return PodOutcome(pod_name, None, reason=wanted)
        resources = served_resources(pod, wanted.serving)
        excluded: dict[str, str] = {}
        nodes_by_lacking: dict[tuple[str, ...], list[str]] = {}
        for name, node in stock.nodes.items():
            if why := wanted.obstacle(node, self.used.get(name, {})):
                excluded[name] = why
            else:
                lacking = tuple([resource for resource in resources if not node.status.allocatable.get(resource)])
                nodes_by_lacking.setdefault(lacking, []).append(name)
        searched: list[FleetAnswer] = []
        scores: dict[str, float] = {}
        for nodes in nodes_by_lacking.values():
            claims = wanted.open_on(stock.nodes[nodes[0]])
            answers = self.decider.search_fleet(stock, claims, within=frozenset(nodes))
            scores |= self.decider.scores(answers, stock, claims, self.placement)
            searched.append(answers)
        self._refused[pod_name] = wanted, len(self._granted)
        if not scores:
            return self._refuse(pod_name, excluded, searched)
        chosen = max(scores, key=scores.__getitem__)
        claims = wanted.open_on(stock.nodes[chosen])
        answer = self.decider.choose_on(chosen, stock, claims, self.placement).answer
        granted = as_granted(claims, answer)
        exceeded_line = self._exceeded_line(pod, granted, stock)
        if exceeded_line is not None:
            reason = Reason(text=str(exceeded_line), code="D216")
            return PodOutcome(pod_name, None, reason=reason, exceeded_quota=exceeded_line.facts())
        if hold:
            self._granted.append((replace(pod, spec=replace(pod.spec, node_name=chosen)), granted))
            self.stock = stock.with_all(granted)
            self.used = {**self.used, chosen: podfit.plus(self.used.get(chosen, {}), pod)}
        devices = [f"{result.driver}/{result.pool}/{result.device}" for result in answer.results]
        return PodOutcome(pod_name, chosen, tuple(devices))

    def _wanted(self, pod: Pod) -> _Wanted | Reason:
        """Return the claims of a pod, or the first missing object."""
        claims = self.stock.claims
        future = future_claims(pod, self.templates, claims)
        missing = chain(future.missing, *[missing_classes(claim, self.stock) for claim in future.claims])
        if reason := next(missing, None):
            return reason
        status = pod.status.extended_resource_claim_status
        name = status.resource_claim_name if status is not None else ""
        existing_claim = claims.get(f"{pod.metadata.namespace or 'default'}/{name}")
        wanted = future.claims if existing_claim is None else (*future.claims, existing_claim)
        return _Wanted(
            pod,
            wanted,
            self.serving if existing_claim is None else {},
            podfit.barriers_by_name(pod, served_resources(pod, self.serving)),
        )

    def with_victims(self, refused: PodOutcome) -> PodOutcome:
        """Add to a refusal the pods that would have had to be evicted so that the pod fits, if there are such pods."""
        wanted, placed = self._refused.pop(refused.pod, (None, 0))
        if refused.node is not None or wanted is None or not may_preempt(wanted.pod):
            return refused
        pod, snapshot, stock, used_by_all = wanted.pod, self.snapshot, self.stock, self.used
        if placed < len(self._granted):  # the pods after it have been placed, too
            before = self._granted[:placed]
            stock = snapshot.stock.with_all(chain.from_iterable([claims for _, claims in before]))
            used_by_all = podfit.total([*snapshot.pods, *[earlier for earlier, _ in before]])
        holders = holders_below(pod, snapshot.pods, stock, snapshot.budgets, snapshot.groups)
        if not holders.by_node:  # no pod has a lower priority
            return refused

        def suffices(victims: Victims) -> bool:
            self.trials_left -= 1
            if self.trials_left < 0:
                return False
            after = without_pods(stock, victims.pods)
            node = after.nodes[victims.node]
            used = used_by_all.get(victims.node, {})
            for victim in victims.pods:
                if victim.spec.node_name == victims.node:
                    used = podfit.plus(used, victim, -1)
            if wanted.obstacle(node, used):
                return False
            claims = wanted.open_on(node)
            answer = allocate(after, victims.node, claims, options=self.decider.options())
            return answer.feasible and self._exceeded_line(pod, as_granted(claims, answer), after) is None

        reachable = [node for node in stock.nodes if holders.potential_victims((node,), stock).has_pods]
        chosen = make_room(reachable, holders, stock, suffices)
        if chosen is None:
            return refused
        victims = tuple(victim.metadata.key for victim in chosen.pods)
        condition = (
            f"if lower-priority {', '.join(victims)} were evicted"
            if victims
            else "once the pods that are being deleted are gone"
        )
        reason = replace(refused.reason, text=f"{refused.reason.text}; would fit on {chosen.node} {condition}")
        return replace(refused, victims=victims, reason=reason)

    def _exceeded_line(self, pod: Pod, granted: Sequence[ResourceClaim], stock: Stock) -> QuotaLine | None:
        """Return the limit of a quota that these allocations would exceed; None if there is none."""
        find_pod = self.by_key.get
        lines = lines_of_claims(
            self.snapshot.quotas, pod, granted, stock, lambda namespace, name: find_pod(f"{namespace}/{name}")
        )
        return next((line for line in lines if line.exceeded), None)

    def _refuse(self, name: str, unfit: Mapping[str, str], searched: Sequence[FleetAnswer]) -> PodOutcome:
        refusals: dict[str, str] = {}
        for answers in searched:
            for node in answers:
                verdict = answers.verdict(node)
                if verdict is SearchVerdict.UNDECIDED:
                    self.undecided.add(name)
                is_explained = len(refusals) < EXPLAINED or verdict is SearchVerdict.ERROR
                refusals[node] = answers.refusal(node) if is_explained else cannot_serve(NodeAnswer(verdict))
        node_count = len(unfit) + len(refusals)
        reason = summary((*by_text(refusals), *by_text(unfit)), node_count, "the pod")
        return PodOutcome(name, None, reason=reason if node_count else Reason(text="unknown: the input has no Nodes"))
