"""Where pods would go: the one answer of `simulate`, `explain`, `resize`, the dashboard and what-if. Pure.

Claims, device plugins and extended resources are judged together, by the engine of `drawbridge simulate` (`allocator.simulation`).
`analysis.prospects` has the details for the claims of one pod.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator.one_node import Options, explain, steps_in
from allocator.pods import pending
from allocator.simulation import PodOutcome, Snapshot, SnapshotRun, simulate
from allocator.strategies import DEFAULT, StrategyCache, choose_devices
from analysis.arrivals import Arrivals, arrivals
from dra.errors import NodeSelectorError
from dra.objects import DeviceQuota, Pod, PodDisruptionBudget, ResourceClaim, ResourceClaimTemplate
from webhook.state import prospects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from allocator.answer import Answer
    from allocator.simulation import Ask, Simulation
    from allocator.strategies import Chosen
    from analysis.loading import Scene, TypedObjects
    from dra.server import Server
    from dra.stock import Stock
    from webhook.state import Configuration

MOST_PLACED = 1_000  # waiting pods that hold their devices; each of the others is placed after these alone


def claim_allocator(strategy: str, budget_ms: int | None = None) -> Ask:
    """Make a function that allocates claims on a node by a strategy, with a budget for each node."""
    options = Options(steps=steps_in(budget_ms)) if budget_ms else Options()
    cache = StrategyCache()

    def ask(now: Stock, node: str, claims: Sequence[ResourceClaim]) -> Chosen:
        return choose_devices(now, node, claims, strategy=strategy, options=options, cache=cache)

    return ask


def snapshot_of(given: TypedObjects, arrived: Arrivals, server: Server) -> Snapshot:
    """Put arriving pods beside what was read of files."""
    return Snapshot(
        given.stock(server),
        (*given.of(Pod), *arrived.pods.values()),
        tuple(given.of(ResourceClaim)),
        (*given.of(ResourceClaimTemplate), *arrived.templates),
        tuple(given.of(PodDisruptionBudget)),
        tuple(given.of(DeviceQuota)),
    )


def beside(
    scene: Scene,
    arrived: Arrivals,
    *,
    claims: Sequence[ResourceClaim] = (),
    templates: Sequence[ResourceClaimTemplate] = (),
) -> Snapshot:
    """Put arriving pods beside those that have a node; `claims` and `templates` arrive with them."""
    return Snapshot(
        scene.stock,
        (*(pod for pod in scene.running if pod.metadata.key not in arrived.pods), *arrived.pods.values()),
        (*scene.stock.claims.values(), *claims),
        (*scene.templates.values(), *arrived.templates, *templates),
        tuple(scene.every.of(PodDisruptionBudget)),
        scene.quotas,
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
    allocate = claim_allocator(strategy, budget_ms)

    def ask(now: Stock, node: str, claims: Sequence[ResourceClaim]) -> Chosen:
        check_time()
        return allocate(now, node, claims)

    def why(now: Stock, node: str, claims: Sequence[ResourceClaim], refused: Answer) -> Answer:
        check_time()
        return with_reasons(now, node, claims, refused)

    found = simulate(snapshot, ask=ask, why=why, progress=progress)
    pods = {pod.metadata.key: pod for pod in snapshot.pods}
    outcomes = [_name_new_node(one, pods[one.pod], snapshot, configuration, ask) for one in found.pods]
    outcomes += [PodOutcome(pod=pod, node=None, summary=reason) for pod, reason in refused.items()]
    totals = found.totals
    unschedulable = totals.unschedulable + len(refused)
    return replace(found, pods=tuple(outcomes), totals=replace(totals, pods=len(outcomes), unschedulable=unschedulable))


def with_reasons(now: Stock, node: str, claims: Sequence[ResourceClaim], refused: Answer) -> Answer:
    """Add the reasons to an infeasible answer."""
    return explain(refused, now, node, claims, Options()) if refused.verdict == "infeasible" else refused


def _name_new_node(
    outcome: PodOutcome, pod: Pod, snapshot: Snapshot, configuration: Configuration, ask: Ask
) -> PodOutcome:
    """Name the node template whose node could serve a pod that no node has room for."""
    templates = configuration.file.node_templates
    if not templates or outcome.node is not None or outcome.exceeded:
        return outcome
    coming = prospects(templates, snapshot.stock)
    new = (
        SnapshotRun(replace(snapshot, stock=coming, pods=(pod,)), ask).schedule(pod) if coming is not None else outcome
    )
    if new.node is None:
        return outcome
    return replace(
        outcome, summary=f"{outcome.summary}; a node of template {new.node} could serve it (`nodeTemplates`)"
    )


class Queue(NamedTuple):
    """The waiting pods in the order of the queue, and the outcomes of those that are placed already."""

    waiting: dict[str, Pod]
    first: frozenset[str]  # those that take what they are given
    ahead: Iterator[str]  # of these, the ones that are not placed yet
    outcomes: dict[str, PodOutcome]
    place: Callable[[Pod, bool], PodOutcome]  # the pod takes what it is given, or does not


def placed(key: str, scene: Scene, configuration: Configuration) -> PodOutcome:
    """Return where a waiting pod goes once the pods before it in the queue have their place; a new pod passes the webhook first."""
    queue = _queue_of(scene, configuration)
    waiting, outcomes = queue.waiting, queue.outcomes
    if key not in waiting and key not in outcomes:
        return PodOutcome(pod=key, node=None, summary="scheduling gates hold it")
    while key not in outcomes:
        first = next(queue.ahead, None)
        outcomes[first or key] = queue.place(waiting[first or key], first is not None)
    return outcomes[key]


def placed_in_turn(key: str, scene: Scene, configuration: Configuration) -> PodOutcome | None:
    """Return where one of the first pods of the queue goes; None for the others, of which equal ones are placed alike."""
    return placed(key, scene, configuration) if key in _queue_of(scene, configuration).first else None


def _queue_of(scene: Scene, configuration: Configuration) -> Queue:
    """Gather the pods that were read, and those that the read objects would create; the scene keeps the queue."""
    for of, queue in scene.queues:
        if of is configuration:
            return queue
    is_new = [raw for key, raw in scene.raw.items() if key not in scene.pods or not scene.pods[key].metadata.uid]
    arrived = arrivals([*scene.gathered.objects, *is_new], scene.state(configuration))
    stored = {key: pod for key, pod in scene.pods.items() if pod.metadata.uid or key not in scene.raw}
    waiting = {pod.metadata.key: pod for pod in pending((stored | arrived.pods).values())}
    ask = claim_allocator(DEFAULT)
    snapshot = beside(scene, arrived._replace(pods=stored | arrived.pods))
    problem = ""
    run: SnapshotRun | None = None
    try:
        run = SnapshotRun(snapshot, ask, with_reasons)
    except NodeSelectorError as error:  # it is unknown which nodes reach a slice
        problem = f"it is not known: {error}"

    def place_one(pod: Pod, hold: bool) -> PodOutcome:
        if run is None:
            return PodOutcome(pod=pod.metadata.key, node=None, summary=problem)
        return _name_new_node(run.schedule(pod, hold=hold), pod, snapshot, configuration, ask)

    refused = {key: PodOutcome(pod=key, node=None, summary=reason) for key, reason in arrived.refused.items()}
    first = tuple(islice(waiting, MOST_PLACED))
    scene.queues.append((configuration, Queue(waiting, frozenset(first), iter(first), refused, place_one)))
    return scene.queues[-1][1]
