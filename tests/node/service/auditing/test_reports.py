"""Findings of the audit agent: events, metrics and readiness, until the finding is resolved."""

from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from cluster.errors import Unavailable
from cluster.resources import EVENTS, PODS, RESOURCE_CLAIMS
from dra.quantity import parse
from node.audit import FINDING_ENDED, ContainerDevice, FindingKind
from node.service import AllocatorAddress, metrics
from node.service.metrics import container_devices
from serving.metrics import POD_DEVICE
from tests.node.audit.snapshots import RESOURCE, allocated_claim, claim_holding, plugin_holding, pod
from tests.node.audit.test_reading import state_file
from tests.node.audit.vendor_checkpoints import completed_claim, first_format
from tests.node.machines import DRIVER, NODE
from tests.node.service.auditing.agents import (
    allocate,
    event_messages,
    metrics_of,
    tainted_devices,
    watching_agent,
)
from tests.node.service.auditing.fake_allocator import Allocator
from tests.waiting import until


def kubelet_state(root, **uids):
    """Write the kubelet's file of prepared claims: uids by name."""
    states = {DRIVER: {"Devices": [{"PoolName": NODE, "DeviceName": "gpu-0"}]}}
    claims = [
        {"ClaimUID": uid, "ClaimName": name, "Namespace": "ns", "DriverState": states} for name, uid in uids.items()
    ]
    (root / "dra_manager_state").write_bytes(state_file({"ClaimInfoStateList": claims}))


async def test_a_device_given_twice_is_reported_on_pods_and_node(cluster, kubelet, paths):
    await allocate(cluster)
    for stored in (pod("new", "c"), pod("old")):
        await cluster.create(PODS, stored)
    kubelet.set_pods(plugin_holding("old", "GPU-0"), claim_holding("new", "c", "gpu-0"))
    async with watching_agent(cluster, paths) as agent:
        await agent.round()
        assert [finding.kind for finding in agent.findings] == [FindingKind.GIVEN_TWICE]
        reason = FindingKind.GIVEN_TWICE.reason
        assert "ResourceClaim ns/c" in (await event_messages(cluster))[reason]
        events = [item for item in (await cluster.list(EVENTS, "ns")).items if item.reason == reason]
        assert sorted(event.involved_object.name for event in events) == ["new", "old"]
        assert not any("ns/" in event.message for event in events), "the event of a pod names an object of a namespace"
        metrics_text = metrics_of(agent)
        assert 'drawbridge_node_findings{what="given twice"} 1.0' in metrics_text
        kubelet.set_pods(claim_holding("new", "c", "gpu-0"))
        await agent.round()
        assert agent.findings == ()
        assert (await event_messages(cluster))[reason] == FINDING_ENDED
        assert set((await event_messages(cluster, "Pod")).values()) == {FINDING_ENDED}


def answer_that_reserves(device, claim="mine"):
    """Return the answer of an allocator that reserved a device for a claim."""
    reserved_device = {"driver": DRIVER, "pool": NODE, "device": device}
    row = {"namespace": "ns", "claim": claim, "uid": f"uid-{claim}", "inDoubt": False, "devices": [reserved_device]}
    return web.json_response({"node": NODE, "reservations": [row]})


async def test_a_reservation_of_a_used_device_is_reported_until_resolved(cluster, kubelet, paths):
    await cluster.create(PODS, pod("old"))
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    allocator = Allocator(lambda _: answer_that_reserves("gpu-0"))
    async with allocator.open() as url, watching_agent(cluster, paths, allocator=AllocatorAddress(url)) as agent:
        await agent.round()
        assert [finding.kind for finding in agent.findings] == [FindingKind.RESERVED_ELSEWHERE]
        reason = FindingKind.RESERVED_ELSEWHERE.reason
        assert "ResourceClaim ns/mine" in (await event_messages(cluster))[reason]
        assert "ns/" not in (await event_messages(cluster, "Pod"))[reason]
        metrics_text = metrics_of(agent)
        assert 'drawbridge_node_findings{what="reserved elsewhere"} 1.0' in metrics_text
        assert "drawbridge_node_reservations 1.0" in metrics_text
        allocator.handler = lambda _: answer_that_reserves("gpu-1")
        await agent.round()
        assert agent.findings == ()
        assert (await event_messages(cluster))[reason] == FINDING_ENDED


async def test_a_device_returned_before_its_reservation_causes_no_finding(cluster, kubelet, paths):
    """The kubelet reported the device before the agent queried the allocator."""
    kubelet.set_pods(plugin_holding("old", "GPU-0"))

    def return_device_and_reserve_it(_):
        kubelet.set_pods()
        return answer_that_reserves("gpu-0")

    async with (
        Allocator(return_device_and_reserve_it).open() as url,
        watching_agent(cluster, paths, allocator=AllocatorAddress(url)) as agent,
    ):
        await agent.round()
        assert agent.findings == ()


async def test_a_device_returned_and_reserved_in_one_round_is_ignored(cluster, kubelet, paths):
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    answers = [web.json_response({"node": NODE, "reservations": []}), answer_that_reserves("gpu-0")]
    allocator = Allocator(lambda _: answers.pop(0))
    async with allocator.open() as url, watching_agent(cluster, paths, allocator=AllocatorAddress(url)) as agent:
        await agent.round()
        assert (agent.findings, len(allocator.requests)) == ((), 2)


async def test_the_allocator_learns_which_unallocated_claims_the_kubelet_has(cluster, kubelet, root, paths):
    """The file names a claim without devices, a claim with devices, and a claim of the same name with another uid."""
    await allocate(cluster)
    for name in ("left", "new"):
        await cluster.create(RESOURCE_CLAIMS, allocated_claim(name))
    uids = {item.metadata.name: item.metadata.uid for item in (await cluster.list(RESOURCE_CLAIMS)).items}
    allocator = Allocator(lambda _: answer_that_reserves("gpu-1"))
    async with allocator.open() as url, watching_agent(cluster, paths, allocator=AllocatorAddress(url)) as agent:
        kubelet_state(root, left=uids["left"], c=uids["c"], new="former")
        await agent.round()
        (root / "dra_manager_state").write_text("not a state")
        await agent.audit_once()
    reports = [request.query.get("prepared") for request in allocator.requests]
    assert reports == [None, uids["left"], None, None]


async def test_an_unreachable_allocator_is_reported_and_the_agent_stays_ready(cluster, kubelet, paths):
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    async with watching_agent(cluster, paths, allocator=AllocatorAddress("http://127.0.0.1:1")) as agent:
        await agent.round()
        assert await tainted_devices(cluster) == ["gpu-0"]
        problems, notes = agent.metrics.readiness()
        assert not any(problems.values()), "the agent is not ready without the allocator"
        assert notes["sources"].startswith("allocator: Cannot connect")
        metrics_text = metrics_of(agent)
        assert "drawbridge_node_sources_unread 1.0" in metrics_text


async def test_without_an_allocator_no_source_is_reported_as_unread(cluster, kubelet, paths, agent):
    await agent.round()
    assert agent.metrics.readiness()[1]["sources"] == ""


def device_series(agent, **labels):
    """Return the scraped series of devices and their containers."""
    families = {family.name: family for family in text_string_to_metric_families(metrics_of(agent))}
    samples = families["drawbridge_node_container_device"].samples
    return [sample.labels for sample in samples if labels.items() <= sample.labels.items()]


async def test_the_metric_of_devices_is_empty_after_the_kubelet_stops(cluster, kubelet, agent):
    """The metric has all labels of the allocator's metric, and more."""
    await allocate(cluster)
    await cluster.create(PODS, pod("new", "c"))
    kubelet.set_pods(plugin_holding("old", "GPU-2"), claim_holding("new", "c", "gpu-0"))
    await agent.round()
    [claim_series] = device_series(agent, claim="c")
    assert claim_series == {
        "namespace": "ns", "pod": "new", "container": "c", "claim": "c", "driver": DRIVER, "pool": NODE, "device": "gpu-0", "share": "",
        "node": NODE, "uuid": "GPU-0", "card": "GPU-0", "pci": "0000:3b:00.0", "resource": "",
    }  # fmt: skip
    [plugin_series] = device_series(agent, resource=RESOURCE)
    assert (plugin_series["pod"], plugin_series["device"], plugin_series["uuid"], plugin_series["claim"]) == (
        "old",
        "GPU-2",
        "GPU-2",
        "",
    )
    assert claim_series.keys() > set(POD_DEVICE)
    await kubelet.stop()
    await agent.round()
    assert device_series(agent) == [], "the metric lists devices that the kubelet no longer reports"


def test_metric_series_are_bounded_and_unique(monkeypatch):
    monkeypatch.setattr(metrics, "MAX_SERIES", 3)
    monkeypatch.setattr(metrics, "LONGEST_LABEL", 4)
    names = ["a", "a", "toolong-1", "toolong-2", "b", "c", "d"]
    family, _, left_out = container_devices(
        NODE, lambda: [ContainerDevice(name, resource="r") for name in names]
    ).collect()
    assert [sample.labels["device"] for sample in family.samples] == ["a", "tool", "b"]
    assert [sample.value for sample in left_out.samples] == [2]
    amounts = {f"capacity-{number}": parse("1") for number in range(4)}
    family, capacities, left_out = container_devices(NODE, lambda: [ContainerDevice("a", amounts=amounts)]).collect()
    assert (family.samples, capacities.samples, left_out.samples[0].value) == ([], [], 1)


async def test_devices_prepared_by_another_vendors_driver_are_compared_with_claims(cluster, kubelet, root, agent):
    """The driver knows only the uid of the claim; a pod of the node names the claim."""
    await allocate(cluster)
    await cluster.create(PODS, pod("p", "c"))
    uid = (await cluster.get(RESOURCE_CLAIMS, "c", "ns")).metadata.uid
    folder = root / "plugins" / DRIVER
    folder.mkdir()
    (folder / "checkpoint.json").write_bytes(first_format({uid: completed_claim("gpu-1")}))
    kubelet.set_pods(claim_holding("p", "c", "gpu-0"))
    await until(lambda: agent.watcher.pods)
    audit = await agent.audit_once()
    assert [(finding.kind, finding.object) for finding in audit.findings] == [
        (FindingKind.NOT_ALLOCATED, "ResourceClaim/ns/c")
    ]


async def test_claims_that_cannot_be_read_cause_no_findings(cluster, kubelet, agent, monkeypatch):
    async def fail(*_, **__):
        raise Unavailable("the server is gone")

    kubelet.set_pods(claim_holding("p", "c", "gpu-0"))
    monkeypatch.setattr(cluster, "get", fail)
    await agent.round()
    audit = await agent.audit_once()
    assert audit.findings == ()
    assert "the server is gone" in audit.snapshot.unread["claims"]
