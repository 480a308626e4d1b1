"""Where pods would go: the one answer of `simulate`, `explain`, `resize`, the dashboard and what-if. Pure.

Claims, device plugins and extended resources are judged together, by the engine of `drawbridge simulate` (`allocator.simulation`).
`analysis.prospects` has the details for the claims of one pod.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from allocator.one_node import Options, explain, options_within
from allocator.pods import pending
from allocator.simulation import PodOutcome, Snapshot, SnapshotRun, simulate
from allocator.strategies import DEFAULT, StrategyCache, choose_devices
from analysis.arrivals import Arrivals, arrivals
from dra import step_limits
from dra.budget import Budget
from dra.errors import NodeSelectorError
from dra.objects import Pod, PodDisruptionBudget, ResourceClaim, ResourceClaimTemplate
from webhook.state import prospects

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allocator.answer import Answer
    from allocator.simulation import Ask, Simulation
    from allocator.strategies import Chosen
    from analysis.loading import Reading
    from dra.stock import Stock
    from webhook.state import Configuration, State

# Of the waiting pods, the first take what they are given from those that follow; each of the others is placed after these alone.
MOST_PLACED = 1_000


def claim_allocator(strategy: str, options: Options) -> Ask:
    """Make a function that allocates claims on a node by a strategy."""
    cache = StrategyCache()

    def ask(now: Stock, node: str, claims: Sequence[ResourceClaim]) -> Chosen:
        return choose_devices(now, node, claims, strategy=strategy, options=options, cache=cache)

    return ask


def arriving(reading: Reading, state: State) -> Arrivals:
    """Return all pods that were read, those that no API server has seen as the webhook admits them, and those that the objects create."""
    is_new = [raw for key, raw in reading.raw.items() if key not in reading.pods or not reading.pods[key].metadata.uid]
    arrived = arrivals([*reading.beside_pods, *is_new], state)
    stored = {key: pod for key, pod in reading.pods.items() if pod.metadata.uid or key not in reading.raw}
    return arrived._replace(pods=stored | arrived.pods)


def beside(
    reading: Reading,
    arrived: Arrivals,
    *,
    claims: Sequence[ResourceClaim] = (),
    templates: Sequence[ResourceClaimTemplate] = (),
) -> Snapshot:
    """Put arriving pods beside those that have a node; `claims` and `templates` arrive with them."""
    return Snapshot(
        reading.stock,
        (*(pod for pod in reading.running if pod.metadata.key not in arrived.pods), *arrived.pods.values()),
        (*reading.stock.claims.values(), *claims),
        (*reading.templates.values(), *arrived.templates, *templates),
        tuple(reading.typed.of_type(PodDisruptionBudget)),
        tuple(reading.quotas),
    )


def place(
    snapshot: Snapshot,
    configuration: Configuration,
    refused: dict[str, str],
    *,
    strategy: str = DEFAULT,
    budget_ms: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    check_time: Callable[[], None] = lambda: None,
) -> Simulation:
    """Schedule the pods of a snapshot that have no node, with the reasons for those that find none.

    `refused` are pods that the webhook refuses, with its reason: they are listed last. `check_time` is called before each question, and
    may raise.
    """
    allocate = claim_allocator(strategy, options_within(budget_ms))

    def ask(now: Stock, node: str, claims: Sequence[ResourceClaim]) -> Chosen:
        check_time()
        return allocate(now, node, claims)

    def why(now: Stock, node: str, claims: Sequence[ResourceClaim], refused: Answer) -> Answer:
        check_time()
        return explain(refused, now, node, claims, Options())

    simulation = simulate(snapshot, ask=ask, why=why, progress=progress)
    pods = {pod.metadata.key: pod for pod in snapshot.pods}
    coming = _new_nodes(snapshot, configuration)
    outcomes = [_name_new_node(pod, pods[pod.pod], coming, ask) for pod in simulation.pods]
    outcomes += [PodOutcome(pod=pod, node=None, summary=reason) for pod, reason in refused.items()]
    totals = simulation.totals
    unschedulable = totals.unschedulable + len(refused)
    return replace(
        simulation, pods=tuple(outcomes), totals=replace(totals, pods=len(outcomes), unschedulable=unschedulable)
    )


def _new_nodes(snapshot: Snapshot, configuration: Configuration) -> Snapshot | None:
    """Return the nodes that an autoscaler can make, in place of those that are there; None if none is declared."""
    templates = configuration.file.node_templates
    coming = prospects(templates, snapshot.stock) if templates else None
    return replace(snapshot, stock=coming) if coming is not None else None


def _name_new_node(outcome: PodOutcome, pod: Pod, coming: Snapshot | None, ask: Ask) -> PodOutcome:
    """Name the node template whose node could serve a pod that no node has room for."""
    if coming is None or outcome.node is not None or outcome.exceeded:
        return outcome
    new = SnapshotRun(replace(coming, pods=(pod,)), ask).schedule(pod)
    if new.node is None:
        return outcome
    return replace(
        outcome, summary=f"{outcome.summary}; a node of template {new.node} could serve it (`nodeTemplates`)"
    )


class Queue:
    """The waiting pods of a reading, and where they go: those that were read, and those that the read objects would create."""

    def __init__(self, reading: Reading, configuration: Configuration) -> None:
        arrived = arriving(reading, reading.state(configuration))
        snapshot = beside(reading, arrived)
        self._waiting = {pod.metadata.key: pod for pod in pending(arrived.pods.values())}
        self._outcomes = {
            key: PodOutcome(pod=key, node=None, summary=reason) for key, reason in arrived.refused.items()
        }
        first = tuple(islice(self._waiting, MOST_PLACED))
        self._first = frozenset(first)
        self._ahead = iter(first)
        self._work = Budget()  # counts the steps, and ends no search
        self._steps: int = step_limits.OUTLOOK
        self._ask = claim_allocator(DEFAULT, Options(budget=self._work))
        self._coming = _new_nodes(snapshot, configuration)
        self._problem = ""
        self._run: SnapshotRun | None = None
        try:
            self._run = SnapshotRun(snapshot, self._ask, self._explain)
        except NodeSelectorError as error:  # it is unknown which nodes reach a slice
            self._problem = f"it is not known: {error}"

    def place(self, key: str) -> PodOutcome:
        """Return where a pod goes once those before it have their place."""
        if key not in self._waiting and key not in self._outcomes:
            return PodOutcome(pod=key, node=None, summary="scheduling gates hold it")
        while key not in self._outcomes:
            first = next(self._ahead, None) if self._steps > 0 else None
            begun = self._work.spent
            self._outcomes[first or key] = self._place(self._waiting[first or key], hold=first is not None)
            self._steps -= self._work.spent - begun if first else 0
        return self._outcomes[key]

    def in_turn(self, key: str, *, search: bool) -> PodOutcome | None:
        """Return where one of the first pods goes, without `search` only if that is known; None for others, of which equal ones go alike."""
        if key not in self._first:
            return None
        return self.place(key) if search else self._outcomes.get(key)

    def _place(self, pod: Pod, *, hold: bool) -> PodOutcome:
        if self._run is None:
            return PodOutcome(pod=pod.metadata.key, node=None, summary=self._problem)
        return _name_new_node(self._run.schedule(pod, hold=hold), pod, self._coming, self._ask)

    def _explain(self, now: Stock, node: str, claims: Sequence[ResourceClaim], refused: Answer) -> Answer:
        return explain(refused, now, node, claims, Options(budget=self._work))


def queue_of(reading: Reading, configuration: Configuration) -> Queue:
    """Return the queue of waiting pods, which the reading keeps."""
    for queued_by, queue in reading.queues:
        if queued_by is configuration:
            return queue
    queue = Queue(reading, configuration)
    reading.queues.append((configuration, queue))
    return queue
