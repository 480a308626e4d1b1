"""Pods on given nodes: a pod is placed if some choice of devices serves it and the pods before it."""

import random

from allocator.decisions import Placed, place
from dra.objects import results_of
from dra.stock import Stock
from tests.allocator.decisions.test_decider import typed_pod
from tests.allocator.service.test_groups import gpu_claim, whole_and_halves
from tests.limits import draws
from tests.objects import typed

WHOLE, HALF, EITHER = (2,), (1,), (2, 1)


def stock_and_pods(gpus_by_node, sizes_by_pod):
    stock = Stock.of()
    for obj in (
        *whole_and_halves(*gpus_by_node),
        *(gpu_claim(f"c{i}", *sizes) for i, sizes in enumerate(sizes_by_pod)),
    ):
        stock = stock.with_object(typed(obj))
    return stock, [typed_pod(f"p{i}", f"c{i}") for i in range(len(sizes_by_pod))]


def fits(gpu_count, sizes_by_pod):
    """Return whether pods fit on one node: a pod that accepts half of a GPU gets half."""
    whole_gpus = sum(sizes == WHOLE for sizes in sizes_by_pod)
    return whole_gpus + (len(sizes_by_pod) - whole_gpus + 1) // 2 <= gpu_count


def halves_in_use(stock):
    """Return the halves that claims hold, by node and GPU."""
    in_use = {}
    for claim in stock.claims.values():
        for result in results_of(claim):
            gpu, _, device = result.device.partition("-")
            in_use[result.pool, gpu] = in_use.get((result.pool, gpu), 0) + (2 if device == "whole" else 1)
    return in_use


def test_a_pod_is_placed_if_it_fits_beside_the_pods_before_it():
    rng = random.Random(7)
    in_halves = 0
    for _ in range(draws(200)):
        gpus_by_node = [rng.randint(1, 3) for _ in range(2)]
        sizes_by_pod = [rng.choice((WHOLE, HALF, EITHER, EITHER)) for _ in range(rng.randint(1, 8))]
        stock, pods = stock_and_pods(gpus_by_node, sizes_by_pod)
        nodes = [rng.randrange(2) for _ in pods]
        expected, placed_sizes = [], ([], [])
        for node, sizes in zip(nodes, sizes_by_pod, strict=True):
            expected.append(fits(gpus_by_node[node], [*placed_sizes[node], sizes]))
            placed_sizes[node].extend([sizes] * expected[-1])
        placed = place([[(pod, f"n{node}")] for pod, node in zip(pods, nodes, strict=True)], Placed(stock))
        assert [not problem for problem in placed.problems] == expected, (gpus_by_node, sizes_by_pod, nodes)
        assert all(halves <= 2 for halves in halves_in_use(placed.stock).values())
        assert [bool(placed.granted(pod)) for pod in pods] == expected
        in_halves += sum(
            sizes == EITHER and "half" in results_of(granted)[0].device
            for pod, sizes in zip(pods, sizes_by_pod, strict=True)
            for granted in placed.granted(pod)
        )
    assert in_halves > draws(200) // 2


def test_a_group_is_placed_whole_or_not_at_all():
    stock, pods = stock_and_pods([1, 1], [EITHER, EITHER, WHOLE, WHOLE])
    first, second, third, fourth = pods
    queue = [[(first, "n0"), (second, "n0")], [(third, "n1"), (fourth, "n0")], [(third, "n1")]]
    placed = place(queue, Placed(stock))
    assert [bool(problem) for problem in placed.problems] == [False, True, False]
    assert halves_in_use(placed.stock) == {("n0", "0"): 2, ("n1", "0"): 2}
    assert placed.granted(fourth) == ()
