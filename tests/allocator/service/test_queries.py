"""Questions of people to a service that runs: nodes, allocations, and claims that would have other amounts."""

import pytest

from tests.allocator.service.sidecar import claim, fleet, loaded, node, pod, running


async def test_nodes_are_told_in_total_and_one_of_them_device_by_device():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as one:
        await one.place("p", "n0")
        _, said = await one.ask("/api/v1/nodes")
        assert [(row["node"], row["free"], row["held"], row["idle"]) for row in said["nodes"]] == [("n0", 1, 1, False), ("n1", 2, 0, True)]  # fmt: skip
        assert said["after"] is None
        _, said = await one.ask("/api/v1/nodes", node="n0")
        assert sorted(device["state"] for device in said["devices"]) == ["free", "held"]


async def test_nodes_come_in_pages(monkeypatch):
    monkeypatch.setattr("allocator.service.queries.NODES_A_PAGE", 2)
    async with running(loaded(*fleet(3, 1))) as one:
        _, first = await one.ask("/api/v1/nodes")
        _, rest = await one.ask("/api/v1/nodes", after=first["after"])
        assert [[row["node"] for row in page["nodes"]] for page in (first, rest)] == [["n0", "n1"], ["n2"]]
        assert rest["after"] is None


async def test_the_pods_of_a_node_are_told_with_it():
    bound = pod("p", "a", nodeName="n0")
    async with running(loaded(*fleet(), claim("a"), bound)) as one:
        _, said = await one.ask("/api/v1/nodes", node="n0")
        assert said["pods"] == ["default/p"]


async def test_allocations_are_told_by_pod_and_by_node():
    cluster = loaded(*fleet(), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as one:
        await one.place("p", "n0")
        await one.place("q", "n1")
        _, said = await one.ask("/api/v1/allocations", pod="default/p")
        assert [(row["claim"], row["pool"]) for row in said["allocations"]] == [("a", "n0")]
        assert (await one.ask("/api/v1/allocations", pod="default/no-such-pod"))[1] == {"allocations": []}
        assert (await one.ask("/api/v1/allocations"))[0] == 400


async def test_a_resize_is_answered_and_changes_nothing():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as one:
        await one.place("p", "n0")
        before = await one.held("a")
        asked = {"claim": "default/a", "request": "r", "capacity": {"memory": "1Gi"}}
        status, said = await one.ask("/api/v1/resize", asked)
        assert (status, said["fits"], said["steps"]) == (200, False, []), "these devices have no memory to give"
        assert await one.held("a") == before
        assert len(one.bridge.ledger.state.reservations) == 1


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"claim": "default/none", "request": "r", "capacity": {"memory": "1Gi"}}, 409, "does not exist"),
        ({"claim": "default/a", "request": "r", "capacity": {"memory": "much"}}, 400, "much"),
        ({"claim": "default/a", "request": "r", "capacity": {}}, 400, "amounts"),
        ({"claim": 7}, 400, "claim"),
    ],
)
async def test_a_query_that_cannot_be_planned_gets_an_error_and_a_remedy(body, status, words):
    async with running(loaded(*fleet(), claim("a"), node("n9"))) as one:
        got, said = await one.ask("/api/v1/resize", body)
        assert (got, bool(said["remedy"])) == (status, True)
        assert words in said["error"]
        got, said = await one.ask("/api/v1/nodes", node="nowhere")
        assert (got, "nowhere" in said["error"]) == (404, True)
