"""The API for users: claims and their pods, and where the pods of a manifest would be placed."""

from functools import partial

from allocator.service import queries
from cli.commands.allocator import simulate as simulate_pods
from dra.server import DeclaredServer
from tests.allocator.service.sidecar import RULES, claim, fleet, loaded, pod, pods_with_claims, running
from tests.cli.running import manifest, run_json
from tests.limits import PATIENCE
from tests.objects import container
from tests.objects import pod as untranslated_pod
from webhook.state import Configuration


async def test_the_api_lists_claims_with_their_pods():
    async with running(loaded(*fleet(), *pods_with_claims("p"))) as sidecar:
        await sidecar.place("p", "n0")
        [row] = (await sidecar.ask("/api/v1/claims"))[1]["claims"]
        assert (row["claim"], row["pods"]) == ("default/p", ["p"])


async def test_a_posted_manifest_is_placed_beside_reservations_that_are_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(queries, "SIMULATION_SECONDS", PATIENCE)
    refused = untranslated_pod("refused", containers=[container(limits={"nvidia.com/gpu": "1500m"})])
    posted = [claim("b", 2), untranslated_pod("q", "b"), refused]
    existing = [*fleet(nodes=1), claim("a"), pod("p", "a", schedulingGates=[{"name": "later"}])]
    body = {"apiVersion": "v1", "kind": "List", "items": posted}
    files = manifest(tmp_path / "fleet.yaml", *existing), manifest(tmp_path / "posted.yaml", *posted)
    _, simulated = run_json("simulate", "-f", files[0], "-f", files[1])
    assert [outcome["node"] for outcome in simulated["pods"]] == ["n0", None]
    async with running(loaded(*existing)) as sidecar:
        assert (await sidecar.ask("/api/v1/simulate", body))[0] == 503
        sidecar.service.configure(RULES, DeclaredServer(), partial(simulate_pods, Configuration()))
        status, answer = await sidecar.ask("/api/v1/simulate", body)
        assert (status, answer["pods"]) == (200, simulated["pods"])
        possible = await sidecar.prefilter("p")
        assert (await sidecar.plugin("reserve", {"token": possible["token"], "node": "n0"}))[0] == 200
        assert not await sidecar.allocated_devices("a")
        _, answer = await sidecar.ask("/api/v1/simulate", body)
        assert [outcome["node"] for outcome in answer["pods"]] == [None, None]
        assert "in use" in answer["pods"][0]["reason"]["text"]
        assert answer["pods"][1]["reason"]["code"] == "R001"
        assert (await sidecar.ask("/api/v1/simulate", {"kind": "ConfigMap"}))[0] == 400
