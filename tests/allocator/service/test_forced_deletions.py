"""A claim with a name of its own goes to a node again only once the kubelet there has let go of it.

The kubelet prepares a claim once for each uid, and keeps the result until the last pod with the claim has ended on the node. A pod that is
deleted by force is gone from the API server before.
"""

import pytest

from allocator.service import prepared_claims
from allocator.service.settings import LEASE
from cluster import resources
from cluster.patch import Merge
from tests.allocator.service.preemptors import start_pod
from tests.allocator.service.sidecar import claim, fleet, loaded, pod, running, until


def fleet_and_pods(nodes=2, **spec):
    return [*fleet(nodes, 2), claim("named"), *(pod(name, "named", **spec) for name in ("first", "second"))]


async def end_first_pod(sidecar, phase="Running"):
    """Start the pod on n0, set its phase, delete the pod, and deallocate the claim."""
    await start_pod(sidecar, "first", "n0")
    await sidecar.cluster.patch(
        resources.PODS, "first", Merge({"status": {"phase": phase}}), "default", subresource="status"
    )
    await sidecar.cluster.delete(resources.PODS, "first", "default")
    await until(lambda: sidecar.service.pods.find("pod-first") is None)
    await sidecar.free_claim("named")


async def offered_nodes(sidecar, name="second"):
    return sorted(node["name"] for node in (await sidecar.prefilter(name))["nodes"])


async def test_a_claim_of_a_pod_deleted_by_force_does_not_return_to_the_node():
    async with running(loaded(*fleet_and_pods())) as sidecar:
        before = (await sidecar.prefilter("second"))["token"]
        await end_first_pod(sidecar)
        assert await offered_nodes(sidecar) == ["n1"]
        status, answer = await sidecar.plugin("reserve", {"token": before, "node": "n0"})
        assert (status, answer["error"]) == (
            409,
            "node(s) may still have claim default/named prepared for pod default/first, which was deleted before it ended",
        )
        assert (await sidecar.place("second", "n1"))[0] == 200


@pytest.mark.parametrize("nodes", [1, 2])
async def test_a_pod_is_requeued_once_the_kubelet_has_let_go(nodes):
    """The grace period is over as soon as the test says so. A second node has devices, but other plugins may refuse it."""
    async with running(loaded(*fleet_and_pods(nodes=nodes))) as sidecar:
        await end_first_pod(sidecar)
        assert await offered_nodes(sidecar) == ["n1"][: nodes - 1]
        seq = sidecar.service.requeue_events.seq
        prepared = sidecar.service.prepared
        prepared.let_go(prepared.entries["claim-named", "n0"])
        await until(lambda: "default/second" in sidecar.service.requeue_events.since(seq).pods)
        assert "n0" in await offered_nodes(sidecar)


async def test_the_kubelet_has_let_go_after_the_grace_period(monkeypatch):
    monkeypatch.setattr(prepared_claims, "UNPREPARE_SECONDS", 0)
    async with running(loaded(*fleet_and_pods(terminationGracePeriodSeconds=0))) as sidecar:
        await end_first_pod(sidecar)
        await until(lambda: not sidecar.service.prepared.entries)
        assert await offered_nodes(sidecar) == ["n0", "n1"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_the_claim_of_a_pod_that_ended_returns_to_the_node(phase):
    async with running(loaded(*fleet_and_pods())) as sidecar:
        await end_first_pod(sidecar, phase)
        assert await offered_nodes(sidecar) == ["n0", "n1"]


async def test_a_new_claim_of_the_same_name_goes_to_the_node():
    """The kubelet prepares it, because it has another uid."""
    async with running(loaded(*fleet_and_pods())) as sidecar:
        await end_first_pod(sidecar)
        await sidecar.cluster.patch(
            resources.RESOURCE_CLAIMS, "named", Merge({"metadata": {"finalizers": None}}), "default"
        )
        await sidecar.cluster.delete(resources.RESOURCE_CLAIMS, "named", "default")
        await sidecar.cluster.create(resources.RESOURCE_CLAIMS.raw, claim("named"), "default")
        await until(lambda: sidecar.service.knowledge.stock.claims["default/named"].metadata.uid != "claim-named")
        assert await offered_nodes(sidecar) == ["n0", "n1"]


async def is_recorded(sidecar, expected=True):
    lease = await sidecar.cluster.get(resources.LEASES, LEASE, "default")
    return ("claim-named" in lease.metadata.annotations.get(prepared_claims.RECORD, "")) == expected


async def test_a_restarted_allocator_knows_the_deletion():
    cluster = loaded(*fleet_and_pods())
    async with running(cluster) as sidecar:
        await end_first_pod(sidecar)
        await until(lambda: is_recorded(sidecar))
    async with running(cluster, identity="two") as sidecar:
        assert await offered_nodes(sidecar) == ["n1"]
        for entry in tuple(sidecar.service.prepared.entries.values()):
            sidecar.service.prepared.let_go(entry)
        assert await offered_nodes(sidecar) == ["n0", "n1"]
        await until(lambda: is_recorded(sidecar, False))


async def test_the_kubelet_has_not_let_go_while_the_agent_reports_the_claim(monkeypatch):
    monkeypatch.setattr(prepared_claims, "UNPREPARE_SECONDS", 0)
    async with running(loaded(*fleet_and_pods(terminationGracePeriodSeconds=0))) as sidecar:
        prepared = sidecar.service.prepared
        await end_first_pod(sidecar)
        await until(lambda: not prepared.entries)
        prepared.see_report("n0", ["claim-named", "claim-unknown"])
        assert await offered_nodes(sidecar) == ["n1"]
        prepared.see_report("n1", [])
        assert await offered_nodes(sidecar) == ["n1"], "another node's report has freed the claim"
        prepared.see_report("n0", [])
        assert await offered_nodes(sidecar) == ["n0", "n1"]
