"""Compares how well strategies pack pods: how much hardware is in use, and how many whole devices stay free for large pods.

The pods of generated workloads (bench/allocator/generate.py) arrive at a fleet of 16 GPUs, in the same order for every strategy:
  calm     The pods request 60% of the fleet. Nearly every pod is served, so all fleets run the same pods. Strategies differ in the
           mean number of wholly idle GPUs, which is the number of further pods of the largest size that would fit.
  crowded  The pods request 130% of the fleet. A pod that does not fit is dropped. Strategies differ in how much hardware is in use.
There are two baselines. `first-fit` takes nodes in order, which packs to some degree. `in-tree` takes the devices of first-fit on a random
node, because kube-scheduler does not compare devices when it chooses among nodes.
`python -m bench.allocator.fragmentation` draws docs/plots/fragmentation.svg and prints the table (some minutes).
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from allocator.strategies.choose import choose_devices
from allocator.strategies.node_view import LooksAt
from allocator.strategies.strategy import STRATEGIES, Strategy
from bench import chart
from bench.allocator.generate import GPU, KINDS, request
from bench.allocator.replay import replay
from bench.chart import Bars, stack
from dra.objects.claim import ResourceClaim
from dra.wire import convert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.strategies.node_view import NodeView
    from allocator.strategies.strategy import DevicePlan
    from bench.allocator.generate import Workload
    from bench.allocator.replay import Replay

NODES, PODS, SEEDS, CALM, CROWDED = 4, 240, 4, 0.6, 1.3
DEVICES = 16
PARTLY_USED_KINDS = (
    "mig",
    "shares",
)  # workloads whose devices can be partly in use; with `pairs`, strategies differ only when crowded
BASELINE = "in-tree"
PLOT = Path(__file__).parents[2] / "docs" / "plots" / "fragmentation.svg"


@dataclass(frozen=True)
class Figures:
    """Means over all seeds: the idle GPUs with calm workloads; the share of hardware in use, and the pods served, with crowded ones."""

    idle: float
    in_use: float
    served: float


def figures(kind: str, strategy: str, seeds: int = SEEDS) -> Figures:
    """Replay a kind of workload under a strategy."""
    calm = [_replay(_workload(kind, seed, CALM), strategy, seed, patience=None) for seed in range(seeds)]
    crowded = [_replay(_workload(kind, seed, CROWDED), strategy, seed, patience=0.0) for seed in range(seeds)]
    return Figures(
        mean(map(_idle, calm)) * DEVICES,
        mean(replayed.utilisation for replayed in crowded),
        mean(float(replayed.placed) for replayed in crowded),
    )


def share_of_neighbours(strategy: str, trials: int = 400) -> float:
    """Return the share of claims for two GPUs that get both GPUs of one PCIe root.

    The node has four PCIe roots with two GPUs each. In each trial some GPUs are in use, but both GPUs of at least one root are free.
    """
    random_numbers = random.Random("together")
    idle = KINDS["pairs"](random_numbers.random, nodes=1, pods=0).stock
    [node] = idle.nodes
    claim = convert(
        {"metadata": {"name": "pair"}, "spec": {"devices": {"requests": [request("gpu", count=2)]}}}, ResourceClaim
    )
    trials_done = neighbours = 0
    while trials_done < trials:
        used = random_numbers.sample(range(8), random_numbers.randrange(1, 6))
        if not any({at, at + 1}.isdisjoint(used) for at in range(0, 8, 2)):
            continue
        trials_done += 1
        results = [{"request": "r", "driver": GPU, "pool": node, "device": f"gpu-{at}"} for at in used]
        status = {"allocation": {"devices": {"results": results}}}
        stock = idle.with_object(convert({"metadata": {"name": "used"}, "status": status}, ResourceClaim))
        answer = choose_devices(stock, node, [claim], strategy=strategy).answer
        neighbours += len({int(result.device.removeprefix("gpu-")) // 2 for result in answer.results}) == 1
    return neighbours / trials_done


def gain(ours: float, theirs: float) -> str:
    """Write by how many percent our figure is higher."""
    return f"{ours / theirs - 1:+.1%}" if theirs else "any"


def _workload(kind: str, seed: int, load: float) -> Workload:
    return KINDS[kind](random.Random(f"{kind}-{seed}").random, nodes=NODES, pods=PODS, load=load)


def _replay(workload: Workload, strategy: str, seed: int, *, patience: float | None) -> Replay:
    if strategy == BASELINE:
        STRATEGIES[BASELINE] = _RandomNodes(seed)
    return replay(workload.stock, workload.arrivals, strategy=strategy, patience=patience)


class _RandomNodes(Strategy):
    """Scores nodes at random, and takes the devices of first-fit."""

    name = BASELINE
    looks_at = LooksAt.FLEET  # every node is scored

    def __init__(self, seed: int) -> None:
        self._random_numbers = random.Random(seed)

    def score(self, view: NodeView, plan: DevicePlan) -> float:  # noqa: ARG002
        return self._random_numbers.uniform(0, 100)


def _idle(replayed: Replay) -> float:
    """Return the mean share of wholly idle hardware in the fleet, over the time until at most one pod runs or waits."""
    last = next(sample.at for sample in reversed(replayed.samples) if sample.running + sample.pending > 1)
    spans = [(a, b.at - a.at) for a, b in pairwise(replayed.samples) if b.at <= last]
    idle_area = sum((1 - sample.utilisation) * (1 - sample.fragmentation) * span for sample, span in spans)
    return idle_area / sum(span for _, span in spans)


def main() -> int:
    names = [BASELINE, *STRATEGIES]
    print(f"{'workload':<8} {'strategy':<22} {'idle devices':>12} {'':>7} {'in use':>7} {'':>7} {'served':>7}")
    figures_by_kind: dict[str, dict[str, Figures]] = {}
    for kind in KINDS:
        figures_by_kind[kind] = {}
        for name in names:
            own_figures = figures_by_kind[kind][name] = figures(kind, name)
            baseline = figures_by_kind[kind][BASELINE]
            idle = (
                f"{own_figures.idle:>12.2f} {gain(own_figures.idle, baseline.idle):>7}"
                if kind in PARTLY_USED_KINDS
                else f"{'-':>12} {'':>7}"
            )
            in_use = f"{own_figures.in_use:>7.1%} {gain(own_figures.in_use, baseline.in_use):>7}"
            print(f"{kind:<8} {name:<22} {idle} {in_use} {own_figures.served:>7.1f}", flush=True)
    for name in names[1:]:
        print(f"two GPUs on one PCIe root, {name}: {share_of_neighbours(name):.0%}")
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    PLOT.write_text(stack([_chart(figures_by_kind, names, *chart_arguments) for chart_arguments in _CHARTS]))
    print(f"drawn: {PLOT.name}")
    return 0


_CHARTS = (
    ("Calm: wholly idle devices, % more than in-tree", "idle", PARTLY_USED_KINDS),
    ("Crowded: hardware put to use, % more than in-tree", "in_use", tuple(KINDS)),
)


def _chart(
    figures_by_kind: dict[str, dict[str, Figures]], names: Sequence[str], title: str, field: str, kinds: Sequence[str]
) -> str:
    strategies = [name for name in names if name != BASELINE]
    groups = [
        Bars(
            kind,
            tuple(
                100 * (getattr(figures_by_strategy[name], field) / getattr(figures_by_strategy[BASELINE], field) - 1)
                for name in strategies
            ),
        )
        for kind, figures_by_strategy in figures_by_kind.items()
        if kind in kinds
    ]
    return chart.bars(title, strategies, groups, y="%")


if __name__ == "__main__":
    sys.exit(main())
