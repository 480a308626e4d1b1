"""The API for users: claims and their pods."""

from tests.allocator.service.sidecar import claim, fleet, loaded, pod, running


async def test_the_api_lists_claims_with_their_pods():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as sidecar:
        await sidecar.place("p", "n0")
        [row] = (await sidecar.ask("/api/v1/claims"))[1]["claims"]
        assert (row["claim"], row["pods"]) == ("default/a", ["p"])
