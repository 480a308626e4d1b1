"""The API for people: nodes, allocations, simulations, and claims with other amounts."""

from tests.allocator.service.sidecar import claim, fleet, gpus, loaded, pod, running


async def test_the_api_lists_claims_and_idle_nodes():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as sidecar:
        await sidecar.place("p", "n0")
        [row] = (await sidecar.ask("/api/v1/claims"))[1]["claims"]
        assert (row["claim"], row["pods"]) == ("default/a", ["p"])
        fleet_now = (await sidecar.ask("/api/v1/fleet"))[1]
        assert fleet_now["nodesWithoutHolders"] == ["n1"]


async def test_the_api_counts_no_device_of_a_superseded_slice():
    [*others, new] = fleet(1, 2)
    old = gpus("n0", 5)
    old["metadata"]["name"] = "old"
    new["spec"]["pool"]["generation"] = 2
    async with running(loaded(*others, new, old)) as sidecar:
        [row] = (await sidecar.ask("/api/v1/fleet"))[1]["pools"]
        assert row["devices"] == 2
