"""Room for a group: its members are placed in thought where less important pods are, and no more of these go than have to."""

import random

import pytest

from cluster import resources
from tests.allocator.service.sidecar import claim, fleet, loaded, pod, running
from tests.allocator.service.test_evictions import important, is_there, started
from tests.draws import draws


async def suppose(one, name, of="attempt"):
    return (await one.plugin("prefilter", {"pod": await one.pod(name), "suppose": of}))[1]


async def placed(one, names, of="attempt"):
    """Place members in thought as a scheduler does, each on the first node that fits; then take all back."""
    places, tokens = [], []
    for name in names:
        found = await suppose(one, name, of)
        if not found["nodes"]:
            break
        node = min(each["name"] for each in found["nodes"])
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
        left = {one.metadata.name for one in (await one.cluster.list(resources.PODS, "default")).items}
        assert len([name for name in names if name not in left]) == fewest
