"""Where pods would go now: the one answer of `explain`, `resize`, the dashboard and what-if. Pure.

`drawbridge simulate` schedules its snapshot with the same engine (`allocator.simulation`): claims, device plugins and extended
resources are judged together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.one_node import Options, explain, steps_in
from allocator.simulation import PodOutcome, Snapshot, simulate
from allocator.strategies import DEFAULT, StrategyCache, choose_devices
from analysis.arrivals import Arrivals, arrivals
from dra.errors import NodeSelectorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.answer import Answer
    from allocator.simulation import Ask, Simulation
    from allocator.strategies import Chosen
    from analysis.loading import Scene
    from dra.objects import ResourceClaim, ResourceClaimTemplate
    from dra.stock import Stock
    from webhook.state import Configuration


def claim_allocator(strategy: str, budget_ms: int | None) -> Ask:
    """Make a function that allocates claims on a node by a strategy, with a budget for each node."""
    options = Options(steps=steps_in(budget_ms)) if budget_ms else Options()
    cache = StrategyCache()

    def ask(now: Stock, node: str, claims: Sequence[ResourceClaim]) -> Chosen:
        return choose_devices(now, node, claims, strategy=strategy, options=options, cache=cache)

    return ask


def with_reasons(now: Stock, node: str, claims: Sequence[ResourceClaim], refused: Answer) -> Answer:
    """Add the reasons to an infeasible answer."""
    return explain(refused, now, node, claims, Options()) if refused.verdict == "infeasible" else refused


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
        quotas=scene.quotas,
    )


def outlook(snapshot: Snapshot) -> Simulation:
    """Schedule the pods of a snapshot that have no node, with the reasons for those that find none."""
    return simulate(snapshot, ask=claim_allocator(DEFAULT, None), why=with_reasons)


def place_now(key: str, scene: Scene, configuration: Configuration) -> PodOutcome:
    """Find the node that has room for a waiting pod now, or say why none has; a new pod passes the webhook first."""
    pod, raw = scene.pods[key], scene.raw.get(key)
    arrived = Arrivals({key: pod}, [], {})
    if raw is not None and not pod.metadata.uid:
        arrived = arrivals([raw], scene.state(configuration))
        if reason := arrived.refused.get(key):
            return PodOutcome(pod=key, node=None, summary=reason)
    try:
        outcomes = outlook(beside(scene, arrived)).pods
    except NodeSelectorError as error:  # no node can be told apart by this slice
        return PodOutcome(pod=key, node=None, summary=f"it is not known: {error}")
    for outcome in outcomes:
        if outcome.pod == key:
            return outcome
    return PodOutcome(pod=key, node=None, summary="scheduling gates hold it")
