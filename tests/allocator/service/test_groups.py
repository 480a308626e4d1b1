"""Preemption for a group: its members are placed together, and no more pods than necessary are evicted."""

import itertools
import math
import random

import pytest

from cluster import resources
from tests.allocator.service.preemptors import pod_exists, important_pod, start_pod
from tests.allocator.service.sidecar import claim, fleet, loaded, pod, running
from tests.draws import draws


async def suppose(sidecar, name, **fields):
    return (await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name), "suppose": "attempt"} | fields))[1]


async def placed(sidecar, names, pick=min, **fields):
    """Place members in a supposition as a scheduler does, each on the fitting node with the highest score; then remove them."""
    places, tokens = [], []
    for name in names:
        answer = await suppose(sidecar, name, **fields)
        if not answer["nodes"]:
            break
        best_score = max(each["score"] for each in answer["nodes"])
        node = pick([each["name"] for each in answer["nodes"] if each["score"] == best_score])
        assert (await sidecar.plugin("reserve", {"token": answer["token"], "node": node}))[0] == 200
        tokens.append(answer["token"])
        places.append((name, node))
    for token in reversed(tokens):
        await sidecar.plugin("unreserve", {"reservation": token})
    return places


async def make_room(sidecar, places):
    group = [{"pod": await sidecar.pod(name), "node": node} for name, node in places]
    return (await sidecar.plugin("postfilter", {"group": group}))[1]


async def test_members_are_placed_together_without_reservations_or_evictions():
    pods = [pod(name, name, priority=1) for name in ("a", "b")]
    names = ("a", "b", "g0", "g1", "g2")
    cluster = loaded(*fleet(2, 1), *map(claim, names), *pods, *(important_pod(name, name) for name in names[2:]))
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "a", "n0")
        await start_pod(sidecar, "b", "n1")
        assert await placed(sidecar, names[2:]) == [("g0", "n0"), ("g1", "n1")], "there are two devices"
        assert await placed(sidecar, ["g1"]) == [("g1", "n0")], "unreserved devices are free in the same supposition"
        assert (await sidecar.plugin("prefilter", {"pod": await sidecar.pod("g0")}))[1]["verdict"] == "full"
        assert [await pod_exists(sidecar, name) for name in ("a", "b")] == [True, True]


async def test_no_pod_is_evicted_for_a_group_without_room():
    cluster = loaded(*fleet(2, 1), *map(claim, ("a", "g0", "g1")), pod("a", "a"), important_pod("g0", "g0"), important_pod("g1", "g1"))  # fmt: skip
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "a", "n0")
        answer = await make_room(sidecar, [("g0", "n0"), ("g1", "n0")])
        assert (answer["nominations"], answer["victims"], await pod_exists(sidecar, "a")) == ([], [], True)


async def test_an_earlier_token_is_not_taken_for_the_last_one():
    cluster = loaded(*fleet(1, 2), *map(claim, ("g0", "g1")), important_pod("g0", "g0"), important_pod("g1", "g1"))
    async with running(cluster) as sidecar:
        early = (await suppose(sidecar, "g0"))["token"]
        await suppose(sidecar, "g1")
        assert (await sidecar.plugin("reserve", {"token": early, "node": "n0"}))[0] == 410


async def test_a_group_keeps_its_nominations_while_its_victims_terminate():
    held = {"metadata": {"name": "a", "namespace": "default", "uid": "pod-a", "finalizers": ["example.com/slow"]}}
    cluster = loaded(*fleet(2, 1), *map(claim, ("a", "b", "g0", "g1")), pod("a", "a") | held, pod("b", "b"), important_pod("g0", "g0"), important_pod("g1", "g1"))  # fmt: skip
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "a", "n0")
        await start_pod(sidecar, "b", "n1")
        first = await make_room(sidecar, [("g0", "n0"), ("g1", "n1")])
        assert sorted(each["name"] for each in first["victims"]) == ["a", "b"]
        again = await make_room(sidecar, [("g0", "n1"), ("g1", "n0")])
        nodes = {each["name"]: each["node"] for each in again["nominations"]}
        assert (nodes, again["victims"]) == ({"g0": "n0", "g1": "n1"}, [])


@pytest.mark.parametrize("seed", range(draws(12)))
async def test_no_smaller_set_of_victims_is_enough(seed):
    """Random fleets: the members fit after the evictions, and do not fit without any of them."""
    rng = random.Random(seed)
    nodes, per_node = rng.randint(1, 3), rng.randint(1, 4)
    names = [f"low{i}" for i in range(nodes * per_node)]
    members = [f"g{i}" for i in range(rng.randint(1, nodes * per_node))]
    wants = {name: rng.randint(1, 2) for name in members}
    pods = [pod(name, name, priority=rng.randrange(3)) for name in names]
    claims = [claim(name) for name in names] + [claim(name, count) for name, count in wants.items()]
    async with running(loaded(*fleet(nodes, per_node), *claims, *pods, *(important_pod(name, name) for name in members))) as sidecar:  # fmt: skip
        used = dict.fromkeys([f"n{i}" for i in range(nodes)], 0)
        for i, name in enumerate(names):
            if rng.random() < 0.8:
                await start_pod(sidecar, name, f"n{i % nodes}")
                used[f"n{i % nodes}"] += 1
        places = await placed(sidecar, members)
        answer = await make_room(sidecar, places) if places else {"victims": []}
        need = {node: sum(wants[name] for name, chosen in places if chosen == node) for node in used}
        fewest = sum(max(0, used[node] + need[node] - per_node) for node in used)
        assert len(answer["victims"]) == fewest
        left = {item.metadata.name for item in (await sidecar.cluster.list(resources.PODS, "default")).items}
        assert len([name for name in names if name not in left]) == fewest


async def test_a_member_prefers_the_node_that_needs_no_further_victim():
    """n0 is free, n2 is half free; on n1 one pod holds both devices."""
    names = ("a", "b", "g0", "g1", "g2")
    pods = [pod(name, name, priority=1) for name in ("a", "b")]
    cluster = loaded(*fleet(3, 2), claim("a", 2), *map(claim, names[1:]), *pods, *(important_pod(name, name) for name in names[2:]))  # fmt: skip
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "a", "n1")
        await start_pod(sidecar, "b", "n2")
        assert await placed(sidecar, names[2:], max) == [("g0", "n2"), ("g1", "n0"), ("g2", "n0")]


def least_cost(evictable, per_node, kept, wants):
    """Try all placements; return the lowest possible priority of the most important victim, and the fewest victims with it.

    Return None if no placement fits. By node, `evictable` has the priorities of pods that may be evicted, and `kept` the number of
    pods that may not. Each of these pods has one device.
    """
    costs = []
    for nodes in itertools.product(evictable, repeat=len(wants)):
        gone = []
        for node, victims_here in evictable.items():
            need = sum(number for number, chosen in zip(wants, nodes, strict=True) if chosen == node)
            lacking = max(0, need + kept[node] + len(victims_here) - per_node)
            gone += sorted(victims_here)[:lacking] if lacking <= len(victims_here) else [math.inf] * lacking
        costs.append((max(gone, default=-1), len(gone)))
    best = min(costs)
    return None if best[0] == math.inf else best


async def cost_and_least_cost(rng):
    """Evict victims for a group in a random fleet, with a scheduler that chooses any node with the highest score.

    Return the cost and the least possible cost: the highest priority of the victims, and their number; None without a placement.
    """
    nodes, per_node = rng.randint(2, 4), rng.randint(1, 3)
    names = [f"low{i}" for i in range(nodes * per_node)]
    members = [f"g{i}" for i in range(rng.randint(2, 3))]
    want = rng.randint(1, per_node)
    priorities = {name: rng.choice((0, 1, 2, 2000)) for name in names}
    pods = [pod(name, name, priority=priorities[name]) for name in names]
    claims = [claim(name) for name in names] + [claim(name, want) for name in members]
    async with running(loaded(*fleet(nodes, per_node), *claims, *pods, *(important_pod(name, name) for name in members))) as sidecar:  # fmt: skip
        evictable = {f"n{i}": [] for i in range(nodes)}
        kept = dict.fromkeys(evictable, 0)
        for i, name in enumerate(names):
            node = f"n{i % nodes}"
            if rng.random() < 0.7:
                await start_pod(sidecar, name, node)
                if priorities[name] < 1000:
                    evictable[node].append(priorities[name])
                else:
                    kept[node] += 1
        for below in (1, 2, 3):  # as the plugin does: victims of the lowest priority alone, if these suffice
            places = await placed(sidecar, members, rng.choice, suppose=str(below), below=below)
            if len(places) == len(members):
                gone = [each["name"] for each in (await make_room(sidecar, places))["victims"]]
                cost = max((priorities[name] for name in gone), default=-1), len(gone)
                break
        else:
            cost = None
    return cost, least_cost(evictable, per_node, kept, [want] * len(members))


async def test_victims_of_a_group_have_the_lowest_possible_priority():
    """The number of victims exceeds the least possible by one in few draws (5 of 400)."""
    worlds = draws(80)
    costs = [await cost_and_least_cost(random.Random(seed)) for seed in range(worlds)]
    too_many = 0
    for cost, best in costs:
        if best is None or cost is None:
            assert cost == best
        else:
            assert cost[0] == best[0]
            assert 0 <= cost[1] - best[1] <= 1
            too_many += cost[1] - best[1]
    assert too_many <= worlds // 20
    assert sum(best is not None and best[1] > 0 for _, best in costs) > worlds // 3
