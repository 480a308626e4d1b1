"""Taint rules of the audit agent: created, updated and deleted with the devices that plugins allocate."""

import pytest
from msgspec.structs import replace

from cluster.errors import NotFound, Unavailable
from cluster.resources import DEVICE_TAINT_RULES, RESOURCE_SLICES
from dra.objects import ObjectMeta
from node.audit import FindingKind
from node.audit import marks as audit_marks
from node.messages import PluginHolding, PluginsOffer
from tests.limits import PATIENCE
from tests.node.audit.snapshots import RESOURCE, plugin_holding, slices
from tests.node.service.auditing.agents import event_messages, running_agent, tainted_devices, watching_agent
from tests.waiting import until


async def test_devices_of_a_plugin_are_tainted_while_containers_use_them(cluster, kubelet, agent):
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    await agent.round()
    assert await tainted_devices(cluster) == ["gpu-0"]
    kubelet.set_pods(plugin_holding("old", "GPU-0", "GPU-2"))
    await agent.round()
    assert await tainted_devices(cluster) == ["gpu-0", "gpu-2", "gpu-2-shared"]
    kubelet.set_pods(plugin_holding("other", "GPU-2"))
    await agent.round()
    assert await tainted_devices(cluster) == ["gpu-2", "gpu-2-shared"]
    kubelet.set_pods()
    await agent.round()
    assert await tainted_devices(cluster) == []


async def test_taint_rules_stay_while_the_kubelet_is_unreachable(cluster, kubelet, agent):
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    await agent.round()
    await kubelet.stop()
    await agent.round()
    assert await tainted_devices(cluster) == ["gpu-0"]
    assert "kubelet" in agent.metrics.readiness()[0]
    assert agent.metrics.readiness()[0]["kubelet"]
    await kubelet.start()
    kubelet.set_pods()
    await agent.round()
    assert await tainted_devices(cluster) == []
    assert not agent.metrics.readiness()[0]["kubelet"]


async def test_a_new_agent_takes_over_existing_taint_rules(cluster, kubelet, paths, agent):
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    await agent.round()
    [before] = (await cluster.list(DEVICE_TAINT_RULES)).items
    async with watching_agent(cluster, paths) as second:
        await second.round()
        [after] = (await cluster.list(DEVICE_TAINT_RULES)).items
        assert after == before
        kubelet.set_pods()
        await second.round()
    assert await tainted_devices(cluster) == []


async def test_without_a_change_the_agent_sends_no_request(cluster, kubelet, paths, monkeypatch):
    async with watching_agent(cluster, paths) as agent:
        kubelet.set_pods(plugin_holding("old", "GPU-0"))
        snapshot = await agent.watcher.read_kubelet()
        # Without `again`, the marker reads taint rules only if devices have changed.
        await agent.marker.keep(snapshot, agent.watcher.hardware, again=False)

        async def fail(*_, **__):
            raise AssertionError("the agent lists taint rules although nothing has changed")

        monkeypatch.setattr(cluster, "list", fail)
        snapshot = await agent.watcher.read_kubelet()
        await agent.marker.keep(snapshot, agent.watcher.hardware, again=False)
        kubelet.set_pods()
        snapshot = await agent.watcher.read_kubelet()
        with pytest.raises(AssertionError):
            await agent.marker.keep(snapshot, agent.watcher.hardware, again=False)


async def test_a_modified_taint_rule_is_recreated_in_the_next_round(cluster, kubelet, paths):
    async with watching_agent(cluster, paths) as agent:
        kubelet.set_pods(plugin_holding("old", "GPU-0"))
        snapshot = await agent.watcher.read_kubelet()
        await agent.marker.keep(snapshot, agent.watcher.hardware, again=True)
        [rule] = (await cluster.list(DEVICE_TAINT_RULES)).items
        await cluster.delete(DEVICE_TAINT_RULES, rule.metadata.name)
        modified = replace(rule, spec=replace(rule.spec, taint=replace(rule.spec.taint, key="example.com/else")))
        await cluster.create(
            DEVICE_TAINT_RULES,
            replace(modified, metadata=ObjectMeta(name=rule.metadata.name, labels=rule.metadata.labels)),
        )
        for again, tainted in ((True, []), (False, ["gpu-0"])):
            await agent.marker.keep(snapshot, agent.watcher.hardware, again=again)
            assert await tainted_devices(cluster) == tainted


async def test_a_taint_rule_deleted_during_its_update_is_recreated(cluster, kubelet, paths, monkeypatch):
    patch = cluster.patch

    async def delete_and_patch(resource, name, *arguments, **options):
        if resource.id == DEVICE_TAINT_RULES.id:
            await cluster.delete(resource, name)
        return await patch(resource, name, *arguments, **options)

    monkeypatch.setattr(cluster, "patch", delete_and_patch)
    async with watching_agent(cluster, paths) as agent:
        for plugin_ids, tainted in (
            (["GPU-0"], ["gpu-0"]),
            (["GPU-0", "GPU-0::1"], []),
            (["GPU-0", "GPU-0::1"], ["gpu-0"]),
        ):
            kubelet.set_pods(*(plugin_holding("old", id_) for id_ in plugin_ids))
            snapshot = await agent.watcher.read_kubelet()
            await agent.marker.keep(snapshot, agent.watcher.hardware, again=False)
            assert await tainted_devices(cluster) == tainted


async def test_the_marking_offered_taints_unused_plugin_devices_too(cluster, kubelet, paths):
    kubelet.offer = PluginsOffer(devices=(PluginHolding(resource=RESOURCE, ids=("GPU-0", "GPU-2")),))
    async with watching_agent(cluster, paths, marking="offered") as agent:
        await agent.round()
        assert await tainted_devices(cluster) == ["gpu-0", "gpu-2", "gpu-2-shared"]
    async with watching_agent(cluster, paths, marking="held") as agent:
        await agent.round()
        assert await tainted_devices(cluster) == []


async def test_devices_beyond_the_maximum_of_taint_rules_are_reported(cluster, kubelet, agent, monkeypatch):
    monkeypatch.setattr(audit_marks, "MAX_MARKS", 1)
    kubelet.set_pods(plugin_holding("old", "GPU-0", "GPU-2"))
    await agent.round()
    assert await tainted_devices(cluster) == ["gpu-0"]
    assert {finding.kind for finding in agent.findings} == {FindingKind.UNMARKED}
    assert (
        "1 other devices of the node are marked already" in (await event_messages(cluster))[FindingKind.UNMARKED.reason]
    )


async def test_an_agent_with_marking_none_deletes_its_taint_rules(cluster, kubelet, paths, agent):
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    await agent.round()
    async with watching_agent(cluster, paths, marking="none") as second:
        await second.round()
    assert await tainted_devices(cluster) == []


async def test_an_api_server_without_taint_rules_is_reported(cluster, kubelet, agent, monkeypatch):
    list_objects = cluster.list

    async def list_without_rules(resource, *arguments, **options):
        if resource.id == DEVICE_TAINT_RULES.id:
            raise NotFound("the server could not find the requested resource")
        return await list_objects(resource, *arguments, **options)

    monkeypatch.setattr(cluster, "list", list_without_rules)
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    await agent.round()
    assert [finding.kind for finding in agent.findings] == [FindingKind.UNMARKED]
    assert "no DeviceTaintRules" in (await event_messages(cluster))[FindingKind.UNMARKED.reason]


async def test_a_stopped_agent_leaves_its_taint_rules(cluster, kubelet, paths):
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    async with running_agent(cluster, paths):
        await until(lambda: tainted_devices(cluster))
    assert await tainted_devices(cluster) == ["gpu-0"]


async def test_new_slices_are_tainted_at_once(cluster, kubelet, paths):
    """The agent does not wait for its next round, because an allocator sees new slices at the same time."""
    for item in (await cluster.list(RESOURCE_SLICES)).items:
        await cluster.delete(RESOURCE_SLICES, item.metadata.name)
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    async with running_agent(cluster, paths, kubelet_interval=10 * PATIENCE):
        await until(lambda: kubelet.list_calls)
        for slice_ in slices():
            await cluster.create(RESOURCE_SLICES, slice_)
        await until(lambda: tainted_devices(cluster))


async def test_a_refused_taint_rule_does_not_block_other_rules(cluster, kubelet, agent, monkeypatch):
    create = cluster.create

    async def refuse(resource, body, *arguments, **options):
        if resource.id == DEVICE_TAINT_RULES.id and body["spec"]["deviceSelector"]["device"] == "gpu-0":
            raise Unavailable("not this one")
        return await create(resource, body, *arguments, **options)

    monkeypatch.setattr(cluster, "create", refuse)
    kubelet.set_pods(plugin_holding("old", "GPU-0", "GPU-2"))
    await agent.round()
    assert await tainted_devices(cluster) == ["gpu-2", "gpu-2-shared"]
    assert "not this one" in agent.metrics.readiness()[0]["cluster"]
    monkeypatch.setattr(cluster, "create", create)
    agent._retry_at = 0.0
    await agent.round()
    assert await tainted_devices(cluster) == ["gpu-0", "gpu-2", "gpu-2-shared"]
    assert agent.marker.count == 3
