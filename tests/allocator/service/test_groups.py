"""Room for a group: its members are placed in thought where less important pods are, and no more of these go than have to."""

import itertools
import math
import random

import pytest

from cluster import resources
from tests.allocator.service.sidecar import claim, fleet, loaded, pod, running
from tests.allocator.service.test_evictions import important, is_there, started
from tests.draws import draws


async def suppose(one, name, **of):
    return (await one.plugin("prefilter", {"pod": await one.pod(name), "suppose": "attempt"} | of))[1]


async def placed(one, names, pick=min, **of):
    """Place members in thought as a scheduler does, each on a node that fits and scores most; then take all back."""
    places, tokens = [], []
    for name in names:
        found = await suppose(one, name, **of)
        if not found["nodes"]:
            break
        most = max(each["score"] for each in found["nodes"])
        node = pick([each["name"] for each in found["nodes"] if each["score"] == most])
        assert (await one.plugin("reserve", {"token": found["token"], "node": node}))[0] == 200
        tokens.append(found["token"])
        places.append((name, node))
    for token in reversed(tokens):
        await one.plugin("unreserve", {"reservation": token})
    return places


async def room_for(one, places):
    group = [{"pod": await one.pod(name), "node": node} for name, node in places]
    return (await one.plugin("postfilter", {"group": group}))[1]


async def test_members_are_placed_beside_each_other_in_thought_and_nothing_is_held_or_evicted():
    pods = [pod(name, name, priority=1) for name in ("a", "b")]
    names = ("a", "b", "g0", "g1", "g2")
    cluster = loaded(*fleet(2, 1), *map(claim, names), *pods, *(important(name, name) for name in names[2:]))
    async with running(cluster) as one:
        await started(one, "a", "n0")
        await started(one, "b", "n1")
        assert await placed(one, names[2:]) == [("g0", "n0"), ("g1", "n1")], "there are two devices"
        assert await placed(one, ["g1"]) == [("g1", "n0")], "what was taken back is free in the same supposition"
        assert (await one.plugin("prefilter", {"pod": await one.pod("g0")}))[1]["verdict"] == "full"
        assert [await is_there(one, name) for name in ("a", "b")] == [True, True]


async def test_a_group_that_would_not_fit_on_its_nodes_has_no_pod_evicted():
    cluster = loaded(*fleet(2, 1), *map(claim, ("a", "g0", "g1")), pod("a", "a"), important("g0", "g0"), important("g1", "g1"))  # fmt: skip
    async with running(cluster) as one:
        await started(one, "a", "n0")
        said = await room_for(one, [("g0", "n0"), ("g1", "n0")])
        assert (said["nominations"], said["victims"], await is_there(one, "a")) == ([], [], True)


async def test_an_earlier_token_is_not_taken_for_the_last_one():
    cluster = loaded(*fleet(1, 2), *map(claim, ("g0", "g1")), important("g0", "g0"), important("g1", "g1"))
    async with running(cluster) as one:
        early = (await suppose(one, "g0"))["token"]
        await suppose(one, "g1")
        assert (await one.plugin("reserve", {"token": early, "node": "n0"}))[0] == 410


async def test_a_group_whose_victims_are_leaving_waits_for_them_where_it_was_nominated():
    held = {"metadata": {"name": "a", "namespace": "default", "uid": "pod-a", "finalizers": ["example.com/slow"]}}
    cluster = loaded(*fleet(2, 1), *map(claim, ("a", "b", "g0", "g1")), pod("a", "a") | held, pod("b", "b"), important("g0", "g0"), important("g1", "g1"))  # fmt: skip
    async with running(cluster) as one:
        await started(one, "a", "n0")
        await started(one, "b", "n1")
        first = await room_for(one, [("g0", "n0"), ("g1", "n1")])
        assert sorted(each["name"] for each in first["victims"]) == ["a", "b"]
        again = await room_for(one, [("g0", "n1"), ("g1", "n0")])
        nodes = {each["name"]: each["node"] for each in again["nominations"]}
        assert (nodes, again["victims"]) == ({"g0": "n0", "g1": "n1"}, [])


@pytest.mark.parametrize("seed", range(draws(12)))
async def test_no_fewer_pods_would_have_done(seed):
    """Random fleets: the members fit once the victims are gone, and without any one of these they would not."""
    rng = random.Random(seed)
    nodes, each = rng.randint(1, 3), rng.randint(1, 4)
    names = [f"low{at}" for at in range(nodes * each)]
    members = [f"g{at}" for at in range(rng.randint(1, nodes * each))]
    wants = {name: rng.randint(1, 2) for name in members}
    pods = [pod(name, name, priority=rng.randrange(3)) for name in names]
    claims = [claim(name) for name in names] + [claim(name, count) for name, count in wants.items()]
    async with running(loaded(*fleet(nodes, each), *claims, *pods, *(important(name, name) for name in members))) as one:  # fmt: skip
        full = dict.fromkeys([f"n{at}" for at in range(nodes)], 0)
        for at, name in enumerate(names):
            if rng.random() < 0.8:
                await started(one, name, f"n{at % nodes}")
                full[f"n{at % nodes}"] += 1
        places = await placed(one, members)
        said = await room_for(one, places) if places else {"victims": []}
        need = {node: sum(wants[name] for name, at in places if at == node) for node in full}
        fewest = sum(max(0, full[node] + need[node] - each) for node in full)
        assert len(said["victims"]) == fewest
        left = {item.metadata.name for item in (await one.cluster.list(resources.PODS, "default")).items}
        assert len([name for name in names if name not in left]) == fewest


async def test_a_member_goes_to_the_node_where_no_further_pod_has_to_go():
    """n0 is free, n2 by half; on n1 one pod holds both."""
    names = ("a", "b", "g0", "g1", "g2")
    pods = [pod(name, name, priority=1) for name in ("a", "b")]
    cluster = loaded(*fleet(3, 2), claim("a", 2), *map(claim, names[1:]), *pods, *(important(name, name) for name in names[2:]))  # fmt: skip
    async with running(cluster) as one:
        await started(one, "a", "n1")
        await started(one, "b", "n2")
        assert await placed(one, names[2:], max) == [("g0", "n2"), ("g1", "n0"), ("g2", "n0")]


def least_cost(lesser, each, taken, wants):
    """The lowest possible priority of the most important victim, and the number of victims then; None if no placement exists."""
    found = []
    for nodes in itertools.product(lesser, repeat=len(wants)):
        gone = []
        for node, there in lesser.items():
            need = sum(want for want, at in zip(wants, nodes, strict=True) if at == node)
            lacking = max(0, need + taken[node] + len(there) - each)
            gone += sorted(there)[:lacking] if lacking <= len(there) else [math.inf] * lacking
        found.append((max(gone, default=-1), len(gone)))
    best = min(found)
    return None if best[0] == math.inf else best


async def victims_beside_the_best(rng):
    """Have room made for a gang in a random fleet, by a scheduler that uses any of the nodes that score most; name what it cost, and the least."""
    nodes, each = rng.randint(2, 4), rng.randint(1, 3)
    names = [f"low{at}" for at in range(nodes * each)]
    members = [f"g{at}" for at in range(rng.randint(2, 3))]
    want = rng.randint(1, each)
    priorities = {name: rng.choice((0, 1, 2, 2000)) for name in names}
    pods = [pod(name, name, priority=priorities[name]) for name in names]
    claims = [claim(name) for name in names] + [claim(name, want) for name in members]
    async with running(loaded(*fleet(nodes, each), *claims, *pods, *(important(name, name) for name in members))) as one:  # fmt: skip
        lesser = {f"n{at}": [] for at in range(nodes)}
        taken = dict.fromkeys(lesser, 0)
        for at, name in enumerate(names):
            node = f"n{at % nodes}"
            if rng.random() < 0.7:
                await started(one, name, node)
                if priorities[name] < 1000:
                    lesser[node].append(priorities[name])
                else:
                    taken[node] += 1
        for below in (1, 2, 3):
            places = await placed(one, members, rng.choice, suppose=str(below), below=below)
            if len(places) == len(members):
                gone = [each["name"] for each in (await room_for(one, places))["victims"]]
                cost = max((priorities[name] for name in gone), default=-1), len(gone)
                break
        else:
            cost = None
    return cost, least_cost(lesser, each, taken, [want] * len(members))


async def test_no_victim_of_a_gang_is_more_important_than_one_has_to_be_and_hardly_ever_goes_one_too_many():
    """Of 400 such draws one went too many in 5."""
    worlds = draws(80)
    costs = [await victims_beside_the_best(random.Random(seed)) for seed in range(worlds)]
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
