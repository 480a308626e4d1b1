"""Compares our allocator with the in-tree allocator on the same objects in one run: hard questions and whole fleets.

A question is whether, and how, claims can be allocated on a node or on all nodes. The time of our allocator is that from a stock (a snapshot
of the cluster) and claims to the answer; it includes the compilation of selectors. The time of the in-tree allocator is that from its slices
to the answer. An earlier question may have compiled its selectors. On hard questions, the in-tree allocator is stopped after
`DEADLINE_MS`; then the ratio is a lower bound. `python -m bench.allocator.allocation` draws the growth curves in docs/plots.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator import FleetMemo, SearchOptions, allocate, fleet
from bench import chart
from bench.row import Row, median_seconds
from dra.objects.claim import DeviceClass, ResourceClaim
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from dra.server import RELEASE
from dra.stock.stock import Stock
from dra.wire import convert
from tests.allocator import hard
from tests.allocator.differ import stock_of
from tests.allocator.hard import HARD
from tests.oracles import Oracle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE_MS = 2000
NODES, DEVICES = 5_000, 8
PLOTS = Path(__file__).parents[2] / "docs" / "plots"
IN_TREE = f"in-tree {RELEASE}"
SELECT = 'device.attributes["g"].model == "H100" && device.capacity["g"].memory.compareTo(quantity("80Gi")) >= 0'


def rows() -> Iterator[Row]:
    """Measure everything once."""
    with in_tree_allocator() as oracle:
        for name, (make_case, fits) in HARD.items():
            yield question_row(oracle, name, make_case(), fits=fits)
        yield from whole_fleet(oracle)


@contextmanager
def in_tree_allocator() -> Iterator[Oracle]:
    """Run the in-tree allocator."""
    oracle = Oracle("allocate")
    try:
        yield oracle
    finally:
        oracle.close()


# ---- one node


def question_row(oracle: Oracle, name: str, case: dict[str, Any], *, fits: bool) -> Row:
    ours = median_seconds(answer_function(case), runs=5) * 1e3
    theirs, timeout = time_in_tree(oracle, case)
    target = "< 50 ms" if fits else "< 1 ms" if name.startswith("32 of 31") else "< 3 ms of search"
    return Row(
        what=name,
        unit="ms",
        ours=ours,
        peer=IN_TREE,
        theirs=theirs,
        target=target,
        note=f"stopped at {DEADLINE_MS / 1000:g} s" if timeout else "",
    )


def answer_function(case: dict[str, Any]) -> Callable[[], object]:
    """Return a function that answers a question; only its call is timed, not the preparation."""
    stock, claims = stock_of(case), [convert(claim, ResourceClaim) for claim in case["claims"]]
    return lambda: allocate(stock, "n0", claims, options=SearchOptions())


def time_in_tree(oracle: Oracle, case: dict[str, Any]) -> tuple[float, bool]:
    """Return the milliseconds of the in-tree allocator, and whether it was stopped."""
    answer = oracle.ask(**case, deadlineMs=DEADLINE_MS)
    if answer["verdict"] == "timeout":
        return DEADLINE_MS, True
    return min(answer["allocatorMs"], oracle.ask(**case, deadlineMs=DEADLINE_MS)["allocatorMs"]), False


# ---- all nodes


def fleet_of(nodes: int) -> dict[str, Any]:
    """Describe a fleet in which one node fits."""
    slices = [
        hard.slice_(
            "g",
            [gpu(node, at, last=node == nodes - 1) for at in range(DEVICES)],
            node_name(node),
            node=node_name(node),
            pool=node_name(node),
        )
        for node in range(nodes)
    ]
    case = hard.case(slices, [hard.claim("c", [hard.request("r", "gpu", 4, SELECT)])])
    return {**case, "nodes": [{"metadata": {"name": node_name(node)}} for node in range(nodes)]}


def node_name(node: int) -> str:
    return f"n{node:05}"


def gpu(node: int, at: int, *, last: bool) -> dict[str, Any]:
    """Describe a GPU whose serial number no selector reads."""
    attributes = {
        "model": {"string": "H100" if last else "A100"},
        hard.ROOT: {"string": f"r{at // 2}"},
        "uuid": {"string": f"{node}-{at}"},
    }
    return hard.device(f"gpu-{at}", attributes, capacity={"memory": {"value": "80Gi"}})


def objects_of(case: dict[str, Any]) -> tuple[dict[str, Any], list[ResourceClaim]]:
    """Turn a fleet's JSON into objects. The caller builds the stock from them, because it times this."""
    objects = {
        "slices": [convert(slice_, ResourceSlice) for slice_ in case["slices"]],
        "classes": [convert(class_, DeviceClass) for class_ in case["classes"]],
        "nodes": [convert(node, Node) for node in case["nodes"]],
    }
    return objects, [convert(claim, ResourceClaim) for claim in case["claims"]]


def whole_fleet(oracle: Oracle) -> Iterator[Row]:
    """Measure a question about all nodes of a large fleet: the first time, and after a change."""
    case = fleet_of(NODES)
    theirs = oracle.ask(**case, deadlineMs=20_000)["allocatorMs"]
    objects, claims = objects_of(case)
    size = f"{NODES:,} nodes x {DEVICES} devices"
    first, after_change = time_searches(objects, claims)
    yield Row(what=f"{size}: first search", unit="ms", ours=first, peer=IN_TREE, theirs=theirs, target="< 60 ms")
    yield Row(
        what=f"{size}: after a claim was allocated",
        unit="ms",
        ours=after_change,
        peer=IN_TREE,
        theirs=theirs,
        target="< 1 ms",
    )


def time_searches(objects: dict[str, Any], claims: list[ResourceClaim]) -> tuple[float, float]:
    """Time the first search on a fleet, and searches after changes, in ms."""
    stocks = [Stock.of(**objects) for _ in range(4)]
    unused_stocks = iter(stocks)
    first = median_seconds(lambda: fleet(next(unused_stocks), claims), runs=3) * 1e3
    stock, memo = stocks[0], FleetMemo()
    fleet(stock, claims, memo=memo)
    changes = iter([held_claim_on(node) for node in range(8)])

    def after_a_change() -> object:
        nonlocal stock
        stock = stock.with_object(next(changes))
        return fleet(stock, claims, memo=memo)

    return first, median_seconds(after_a_change, runs=7) * 1e3


def held_claim_on(node: int) -> ResourceClaim:
    """Make a claim that holds devices of a node."""
    results = [
        {"request": "r", "driver": "g", "pool": node_name(node), "device": f"gpu-{at}"} for at in range(node % 3 + 1)
    ]
    status = {"allocation": {"devices": {"results": results}}}
    return convert(
        {"metadata": {"name": f"h{node}", "namespace": "d", "uid": f"h{node}"}, "status": status}, ResourceClaim
    )


# ---- growth


CURVES: dict[str, tuple[str, str, tuple[int, ...], Callable[[int], dict[str, Any]]]] = {
    "devices": ("One device short", "devices", (1, 2, 4, 8, 12, 16, 20, 24, 31), lambda n: hard.identical(n, [n + 1])),
    "requests": (
        "Single requests, one device short",
        "requests",
        (1, 2, 4, 8, 12, 16, 24, 32),
        lambda n: hard.identical(n, [n, 1], single=True),
    ),
    "mig": (
        "Two halves of every GPU, and a slice too many",
        "GPUs",
        (1, 2, 3, 4, 6, 8, 12, 15),
        lambda n: hard.mig(n, [("1g", 1), ("3g", 2 * n)]),
    ),
    "pairs": (
        "GPU and NIC under one root, one NIC short",
        "pairs",
        (1, 2, 3, 4, 6, 8, 12, 16),
        lambda n: hard.pairs(n, 2, 1, n, without_nic=1),
    ),
    "shares": (
        "Shares of 9Gi in devices of 24Gi, one too many",
        "devices",
        (1, 2, 3, 4, 6, 8, 12, 15),
        lambda n: hard.shares(n, 24, [9] * (2 * n + 1)),
    ),
}


def growth(oracle: Oracle) -> Iterator[tuple[str, str]]:
    """Measure the curves; yield file names and SVGs."""
    for key, (title, x, sizes, make_case) in CURVES.items():
        ours: list[tuple[float, float]] = []
        theirs: list[tuple[float, float]] = []
        stopped = False
        for size in sizes:
            case = make_case(size)
            ours.append((size, median_seconds(answer_function(case), runs=3) * 1e3))
            if not stopped:
                millis, stopped = time_in_tree(oracle, case)
                theirs.append((size, millis))
        yield f"allocator-{key}.svg", chart.lines(title, chart_lines(ours, theirs), x=x, y="ms", log=True)
    yield "allocator-nodes.svg", nodes_chart(oracle)


def nodes_chart(oracle: Oracle) -> str:
    """Measure the first search on fleets of growing size, and a search after one change."""
    first: list[tuple[float, float]] = []
    after_change: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    for size in (10, 100, 1000, 5000, 10_000, 20_000):
        case = fleet_of(size)
        if size <= 10_000:
            theirs.append((size, oracle.ask(**case, deadlineMs=60_000)["allocatorMs"]))
        objects, claims = objects_of(case)
        first_millis, change_millis = time_searches(objects, claims)
        first.append((size, first_millis))
        after_change.append((size, change_millis))
    lines = [
        chart.ChartLine("drawbridge, first look", tuple(first)),
        chart.ChartLine("drawbridge, after a change", tuple(after_change)),
        chart.ChartLine(IN_TREE, tuple(theirs)),
    ]
    return chart.lines(f"All nodes with {DEVICES} devices each, one fits", lines, x="nodes", y="ms", log=True)


def chart_lines(ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> list[chart.ChartLine]:
    """Return the two lines with their names."""
    return [
        chart.ChartLine("drawbridge", tuple(ours)),
        chart.ChartLine(f"{IN_TREE} (stopped at {DEADLINE_MS / 1000:g} s)", tuple(theirs)),
    ]


def main() -> None:
    PLOTS.mkdir(parents=True, exist_ok=True)
    with in_tree_allocator() as oracle:
        for file, svg in growth(oracle):
            (PLOTS / file).write_text(svg, encoding="utf-8")
            print(f"wrote {PLOTS / file}")


if __name__ == "__main__":
    main()
