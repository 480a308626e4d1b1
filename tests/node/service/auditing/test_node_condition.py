"""The node condition of the audit agent."""

import pytest

from cluster import Merge
from cluster.errors import Forbidden
from cluster.resources import NODES
from node.audit import CONDITION, FindingKind, condition_of
from tests.node.audit.snapshots import claim_holding, plugin_holding
from tests.node.machines import NODE
from tests.node.service.auditing.agents import allocate, running_agent, tainted_devices, watching_agent
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
        conditions_now = await conditions(cluster)
        assert (conditions_now[CONDITION]["status"], conditions_now["Ready"]) == ("True", KUBELET_CONDITION)
        version = (await cluster.get(NODES, NODE)).metadata.resource_version
        await agent.round()
        assert (await cluster.get(NODES, NODE)).metadata.resource_version == version, (
            "the condition was written although nothing has changed"
        )
        await overwrite_conditions(cluster)
        await agent.round()
        assert (await conditions(cluster))[CONDITION]["status"] == "True", "a lost condition was not written again"
        await kubelet.stop()
        await agent.round()
        assert (await conditions(cluster))[CONDITION]["status"] == "Unknown"
        await agent._condition.remove()
        assert await conditions(cluster) == {"Ready": KUBELET_CONDITION}


async def test_a_finding_makes_the_condition_false_without_naming_the_pods(cluster, kubelet, paths):
    await allocate(cluster)
    kubelet.set_pods(plugin_holding("old", "GPU-0"), claim_holding("new", "c", "gpu-0"))
    async with watching_agent(cluster, paths, condition=True) as agent:
        await agent.round()
        condition = (await conditions(cluster))[CONDITION]
        assert (condition["status"], condition["reason"]) == ("False", FindingKind.GIVEN_TWICE.reason)
        assert condition["message"].startswith("1 finding O221 (")
        assert "ns/" not in condition["message"]


async def test_the_node_condition_is_removed_when_the_agent_stops(cluster, kubelet, paths):
    async def has_condition():
        return CONDITION in await conditions(cluster)

    async with running_agent(cluster, paths, condition=True):
        await until(has_condition)
    assert await conditions(cluster) == {}


async def test_the_node_condition_requires_the_option_and_the_permission(cluster, kubelet, paths, monkeypatch):
    """An agent without the permission does everything else."""
    async with watching_agent(cluster, paths) as agent:
        await agent.round()
        await agent._condition.remove()
        assert await conditions(cluster) == {}
    stored_patch = cluster.patch

    async def refuse(resource, *arguments, **options):
        if resource.id == NODES.id:
            raise Forbidden("nodes/status is forbidden")
        return await stored_patch(resource, *arguments, **options)

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


@pytest.mark.parametrize(("old_status", "is_kept"), [(None, False), ("True", True), ("False", False)])
def test_only_an_unchanged_status_keeps_its_transition_time(old_status, is_kept):
    old = {"status": old_status, "lastTransitionTime": "an earlier time"} if old_status else None
    condition = condition_of((), "", old, NOW)
    assert (condition["status"], condition["lastTransitionTime"]) == ("True", "an earlier time" if is_kept else NOW)


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
    ids=[
        "less than 10 minutes old",
        "10 minutes old",
        "in the future",
        "without a time zone",
        "not a time",
        "a number",
        "missing",
    ],
)
def test_only_a_valid_recent_heartbeat_is_kept(heartbeat, is_kept):
    condition = condition_of((), "", {"status": "True", "lastHeartbeatTime": heartbeat}, NOW)
    assert condition["lastHeartbeatTime"] == (heartbeat if is_kept else NOW)
