"""Computes on which nodes pods would run, for `simulate`, `explain`, `resize` and the dashboard with its what-if page.

Claims, device plugins and extended resources are judged together, by the engine of `drawbridge simulate` (`allocator.simulation`).
`analysis.prospects` has the details for the claims of one pod.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from allocator.decisions import Decider
from allocator.one_node import SearchOptions, options_within
from allocator.pods import HAMI_GPU, hami_gpus, pending, plugin_offers, requests
from allocator.simulation import PodOutcome, Snapshot, SnapshotRun, by_gang, simulate
from allocator.strategies import DEFAULT, read_placement
from analysis.arrivals import Arrivals, arrivals
from analysis.prospects import volume_faults
from dra import step_limits
from dra.budget import UNBOUNDED, Budget
from dra.objects import Pod, PodDisruptionBudget
from dra.reason import Reason
from dra.texts import count_of
from webhook.state import prospects, shared_by_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from allocator.simulation import Simulation
    from analysis.loading import Reading
    from dra.objects import Node, ResourceClaim, ResourceClaimTemplate
    from webhook.state import State

# This many waiting pods are placed one after the other, and each takes its devices from the following pods. Every later pod is placed as if
# it came directly after them.
MAX_PLACED = 1_000


def arriving(reading: Reading, state: State) -> Arrivals:
    """Return the read pods, and the pods that controllers would create from the read objects.

    The webhook first decides about each pod that no API server has stored.
    """
    is_new = [raw for key, raw in reading.raw.items() if key not in reading.pods or not reading.pods[key].metadata.uid]
    arrived = arrivals([*reading.non_pods, *is_new], state)
    stored = {key: pod for key, pod in reading.pods.items() if pod.metadata.uid or key not in reading.raw}
    # kube-scheduler refuses these for their volumes, whatever devices are free.
    refused = {pod.metadata.key: reason for pod in pending(stored.values()) for reason in volume_faults(pod, reading)}
    pods = {key: pod for key, pod in stored.items() if key not in refused}
    return arrived._replace(pods=pods | arrived.pods, refused=arrived.refused | refused)


def beside(
    reading: Reading,
    arrived: Arrivals,
    *,
    claims: Sequence[ResourceClaim] = (),
    templates: Sequence[ResourceClaimTemplate] = (),
) -> Snapshot:
    """Return a snapshot of the running pods and the arriving ones; `claims` and `templates` arrive with them."""
    running = [pod for pod in reading.running if pod.metadata.key not in arrived.pods]
    return Snapshot(
        reading.stock.with_all([claim for claim in claims if claim.metadata.key not in reading.stock.claims]),
        (*running, *arrived.pods.values()),
        (*reading.templates.values(), *arrived.templates, *templates),
        tuple(reading.typed.of_type(PodDisruptionBudget)),
        tuple(reading.quotas),
        reading.groups,
    )


def place(
    snapshot: Snapshot,
    state: State,
    refused: dict[str, Reason],
    *,
    ahead: Iterable[Pod] = (),
    strategy: str = DEFAULT,
    budget_ms: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    check_time: Callable[[], None] = lambda: None,
) -> Simulation:
    """Schedule the pods of a snapshot that have no node; return their nodes, or why there is none.

    `refused` has the pods that the webhook refuses, with the reasons; they are listed last. `ahead` are other waiting pods, whose outcomes
    are not returned: the first MAX_PLACED of them take devices from pods that come later in the queue. `check_time` is called during each
    search, and may raise.
    """
    waiting = pending(ahead)[:MAX_PLACED]
    snapshot = replace(snapshot, pods=(*snapshot.pods, *waiting))

    def is_out_of_time() -> bool:
        check_time()
        return False

    options = replace(options_within(budget_ms), budget=Budget(UNBOUNDED, is_out_of_time))
    unreported = frozenset([pod.metadata.key for pod in waiting])
    simulation = simulate(
        snapshot, Decider(options), read_placement(strategy), progress=progress, unreported=unreported
    )
    pods = {pod.metadata.key: pod for pod in snapshot.pods}
    notes = _Notes(snapshot, state, options)
    outcomes = [notes.add(outcome, pods[outcome.pod]) for outcome in simulation.pods]
    outcomes += [PodOutcome(pod=pod, node=None, reason=reason) for pod, reason in refused.items()]
    totals = simulation.totals
    unschedulable = totals.unschedulable + len(refused)
    return replace(
        simulation, pods=tuple(outcomes), totals=replace(totals, pods=len(outcomes), unschedulable=unschedulable)
    )


class _Notes:
    """Adds to the outcome of a pod what the simulation does not know: device plugins that share devices, and nodes of an autoscaler."""

    def __init__(self, snapshot: Snapshot, state: State, options: SearchOptions) -> None:
        self._nodes = snapshot.stock.nodes
        self._installed = state.fleet.installed
        self._decider = Decider(options)
        templates = state.configuration.file.node_templates
        prospective_stock = prospects(templates, snapshot.stock) if templates else None
        # The snapshot with the nodes that an autoscaler can create, instead of the existing nodes.
        self._coming: Snapshot | None = None
        if prospective_stock is not None:
            self._coming = replace(snapshot, stock=prospective_stock.with_all(snapshot.stock.claims.values()))

    def add(self, outcome: PodOutcome, pod: Pod) -> PodOutcome:
        """Add the note for this pod, if there is one."""
        if outcome.node is not None:
            return replace(outcome, note=self._shared_devices(pod, self._nodes[outcome.node]))
        if self._coming is None or outcome.exceeded_quota:
            return outcome
        [new] = SnapshotRun(replace(self._coming, pods=(pod,), groups={}), self._decider).place([pod])
        if new.node is None:
            return outcome
        text = f"{outcome.reason.text}; a node of template {new.node} could serve it (`nodeTemplates`)"
        return replace(outcome, reason=replace(outcome.reason, text=text))

    def _shared_devices(self, pod: Pod, node: Node) -> str:
        """Name the configurations or labels by which device plugins of the node give the pod replicas of shared devices."""
        requested = requests(pod)
        shared = {**shared_by_labels(node.metadata.labels), **self._installed.shared_on(node.metadata.labels)}
        texts = {key: str(replicas) for key, replicas in shared.items()}
        if gpus := hami_gpus(node):
            texts[HAMI_GPU] = f"HAMi announces several units for each of {count_of(gpus, 'GPU')}"
        return "; ".join(
            f"{key}: {text}" for key, text in texts.items() if requested.get(key) and plugin_offers(node, key)
        )


class Queue:
    """The waiting pods of a reading, and the node of each. A waiting pod was read, or a controller would create it from a read object."""

    def __init__(self, reading: Reading) -> None:
        state = reading.state
        arrived = arriving(reading, state)
        snapshot = beside(reading, arrived)
        self._waiting = {pod.metadata.key: pod for pod in pending(arrived.pods.values())}
        self._outcomes = {key: PodOutcome(pod=key, node=None, reason=reason) for key, reason in arrived.refused.items()}
        first = tuple(islice(self._waiting, MAX_PLACED))
        self._first = frozenset(first)
        self._ahead = iter(first)
        self._work = Budget()  # counts the steps, without a limit
        self._steps: int = step_limits.OUTLOOK
        self._steps_of: dict[str, int] = {}
        options = SearchOptions(budget=self._work)
        self._notes = _Notes(snapshot, state, options)
        gangs = by_gang(self._waiting.values(), reading.groups)
        self._gangs = {pod.metadata.key: pods for pods in gangs for pod in pods}
        self._run = SnapshotRun(snapshot, Decider(options), names_victims=False)

    def place(self, key: str) -> PodOutcome:
        """Return the node of a pod, after the pods before it in the queue are placed."""
        if key not in self._waiting and key not in self._outcomes:
            return PodOutcome(pod=key, node=None, reason=Reason(text="scheduling gates hold it"))
        while key not in self._outcomes:
            first = next(self._ahead, None) if self._steps > 0 else None
            begun = self._work.spent
            if (first or key) not in self._outcomes:  # the pods of a gang are placed together
                self._place(self._gangs[first or key], hold=first is not None)
            self._steps_of[first or key] = self._work.spent - begun
            self._steps -= self._work.spent - begun if first else 0
        return self._outcomes[key]

    def explain(self, key: str) -> PodOutcome:
        """Return `place` with the pods that would have to be evicted, which take long to find."""
        outcome = self._run.with_victims(self.place(key))
        self._outcomes[key] = outcome
        return outcome

    def scheduler_of(self, pod: Pod) -> str:
        """Return the scheduler of a pod that waits, which the webhook may change before the pod is created; "" is the cluster's own."""
        return self._waiting.get(pod.metadata.key, pod).spec.scheduler_name

    def outcome_of_first(self, key: str) -> tuple[PodOutcome | None, int]:
        """Return the node of one of the first MAX_PLACED pods, None for later pods; and the steps for finding it."""
        return (self.place(key), self._steps_of.get(key, 0)) if key in self._first else (None, 0)

    def _place(self, pods: Sequence[Pod], *, hold: bool) -> None:
        for outcome, pod in zip(self._run.place(pods, hold=hold), pods, strict=True):
            self._outcomes[outcome.pod] = self._notes.add(outcome, pod)


def queue_of(reading: Reading) -> Queue:
    """Return the queue of waiting pods; the reading caches it."""
    queue: Queue = reading.derived.get(Queue) or Queue(reading)
    reading.derived[Queue] = queue
    return queue
