"""The node condition of the audit agent."""

import asyncio

import pytest

from cluster import Merge
from cluster.errors import Forbidden
from cluster.resources import NODES, RESOURCE_CLAIMS
from node.audit import CONDITION, FindingKind, condition_of
from node.service import Agent, AgentSettings
from tests.limits import PATIENCE
from tests.node.audit.snapshots import allocated_claim, claim_holding, plugin_holding
from tests.node.machines import NODE
from tests.node.service.auditing.agents import allocation_of, tainted_devices, watching_agent
from tests.waiting import until


async def conditions(cluster):
    node = await cluster.get(NODES.raw, NODE)
    return {condition["type"]: condition for condition in node.get("status", {}).get("conditions", ())}


KUBELET_CONDITION = {"type": "Ready", "status": "True"}


async def overwrite_conditions(cluster):
    """Overwrite all conditions, as a writer of the whole list does."""
    await cluster.patch(NODES, NODE, Merge({"status": {"conditions": [KUBELET_CONDITION]}}), subresource="status")


async def test_the_node_condition_is_kept_beside_the_kubelets_conditions(cluster, kubelet, paths):
    await overwrite_conditions(cluster)
    async with watching_agent(cluster, paths, condition=True) as agent:
        await agent.round()
        there = await conditions(cluster)
        assert (there[CONDITION]["status"], there["Ready"]) == ("True", KUBELET_CONDITION)
        version = (await cluster.get(NODES, NODE)).metadata.resource_version
        await agent.round()
        assert (await cluster.get(NODES, NODE)).metadata.resource_version == version, "no write without a change"
        await overwrite_conditions(cluster)
        await agent.round()
        assert (await conditions(cluster))[CONDITION]["status"] == "True", "a lost condition is written again"
        await kubelet.stop()
        await agent.round()
        assert (await conditions(cluster))[CONDITION]["status"] == "Unknown"
        await agent._condition.remove()
        assert await conditions(cluster) == {"Ready": KUBELET_CONDITION}


async def test_a_finding_makes_the_condition_false_without_naming_the_pods(cluster, kubelet, paths):
    await cluster.create(RESOURCE_CLAIMS, allocated_claim("c", "gpu-0"))
    await cluster.patch(RESOURCE_CLAIMS, "c", allocation_of("gpu-0"), "ns", subresource="status")
    kubelet.set_pods(plugin_holding("old", "GPU-0"), claim_holding("new", "c", "gpu-0"))
    async with watching_agent(cluster, paths, condition=True) as agent:
        await agent.round()
        condition = (await conditions(cluster))[CONDITION]
        assert (condition["status"], condition["reason"]) == ("False", FindingKind.GIVEN_TWICE.reason)
        assert (
            condition["message"]
            == "1 finding O221 (hardware that is allocated twice: to a device plugin and a claim, or as two published devices): see the events of the node"
        )


async def test_the_node_condition_is_removed_with_the_agent(cluster, kubelet, paths):
    agent = Agent(cluster, AgentSettings(metrics=None, paths=paths, condition=True))
    stop = asyncio.Event()
    running = asyncio.create_task(agent.run(stop))

    async def has_condition():
        return CONDITION in await conditions(cluster)

    await until(has_condition)
    stop.set()
    await asyncio.wait_for(running, PATIENCE)
    assert await conditions(cluster) == {}


async def test_the_node_condition_requires_the_option_and_the_permission(cluster, kubelet, paths, monkeypatch):
    """Without the permission the agent does everything else."""
    async with watching_agent(cluster, paths) as agent:
        await agent.round()
        await agent._condition.remove()
        assert await conditions(cluster) == {}
    real = cluster.patch

    async def refuse(resource, *rest, **options):
        if resource.id == NODES.id:
            raise Forbidden("nodes/status is forbidden")
        return await real(resource, *rest, **options)

    monkeypatch.setattr(cluster, "patch", refuse)
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    async with watching_agent(cluster, paths, condition=True) as agent:
        await agent.round()
        await agent._condition.remove()
        assert await tainted_devices(cluster) == ["gpu-0"]
        problems, notes = agent.metrics.readiness()
        assert not any(problems.values())
        assert "forbidden" in notes["condition"]


NOW = "2026-01-01T00:10:00Z"


@pytest.mark.parametrize(("before", "is_kept"), [(None, False), ("True", True), ("False", False)])
def test_an_unchanged_condition_keeps_its_transition_time(before, is_kept):
    old = {"status": before, "lastTransitionTime": "then"} if before else None
    condition = condition_of((), "", old, NOW)
    assert (condition["status"], condition["lastTransitionTime"]) == ("True", "then" if is_kept else NOW)


@pytest.mark.parametrize(
    ("heartbeat", "is_kept"),
    [
        ("2026-01-01T00:00:01Z", True),
        ("2026-01-01T00:00:00Z", False),
        ("2026-01-01T00:10:01Z", False),
        ("2026-01-01T00:05:00", False),
        ("soon", False),
        (7, False),
        (None, False),
    ],
    ids=["young", "old", "of the future", "no time zone", "not a time", "a number", "missing"],
)
def test_an_agent_renews_its_condition_every_ten_minutes(heartbeat, is_kept):
    condition = condition_of((), "", {"status": "True", "lastHeartbeatTime": heartbeat}, NOW)
    assert condition["lastHeartbeatTime"] == (heartbeat if is_kept else NOW)
