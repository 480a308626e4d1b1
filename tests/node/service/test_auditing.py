"""The audit agent over an embedded cluster and a kubelet of the tests: marks come and go, people are told, no source ends another."""

import asyncio
import os
import tempfile
import threading
from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from cluster import Merge
from cluster.embedded import Embedded
from cluster.errors import Forbidden, NotFound, Unavailable
from cluster.resources import DEVICE_TAINT_RULES, EVENTS, NAMESPACES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dra.objects import Node, ObjectMeta
from dra.quantity import parse
from node.audit import COMPONENT, CONDITION, OVER, ContainerDevice, FindingKind, condition_of, examine
from node.audit import marks as audit_marks
from node.checkpoint import Checkpoint, HeldDevice, Prepared, encode
from node.messages import PluginHolding, PluginsOffer
from node.service import Agent, AgentSettings, AllocatorAddress, NodePaths, metrics
from node.service.auditing import sources, watcher
from node.service.auditing.sources import KubeletAway, ask_kubelet, read_files
from node.service.metrics import container_devices
from runtime.http import Head
from runtime.metrics import POD_DEVICE
from tests.limits import PATIENCE
from tests.node.audit.snapshots import RESOURCE, allocated, claiming, hardware, plugged, pod, prepared, slices, snapshot
from tests.node.audit.test_other_drivers import completed, first
from tests.node.machines import DRIVER, NODE, result
from tests.node.service.fake_kubelet import PodResources
from tests.node.service.test_allocator_client import Allocator

UID = "0f0e0d0c-1111-4222-8333-444455556666"


@pytest.fixture
def root():
    """A short path, as a socket's has to be."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
async def kubelet(root):
    server = PodResources(root)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def cluster():
    made = Embedded()
    await made.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
    await made.create(NAMESPACES, {"metadata": {"name": "ns"}})
    for slice_ in slices():
        await made.create(RESOURCE_SLICES, slice_)
    yield made
    await made.close()


@pytest.fixture
def paths(root):
    (root / "cdi").mkdir()
    (root / "plugins").mkdir()
    return NodePaths(NODE, str(root), str(root / "cdi"))


@pytest.fixture
async def agent(cluster, kubelet, paths):
    async with followed(cluster, paths) as followed_agent:
        yield followed_agent


class followed:  # noqa: N801  used as a function
    """An agent that follows its node, and goes round when it is told to."""

    def __init__(self, cluster, paths, **settings):
        self.agent = Agent(cluster, AgentSettings(metrics=None, paths=paths, look=0.0, **settings))

    async def __aenter__(self):
        self.following = asyncio.create_task(self.agent.watcher.run())
        await self.agent.watcher.wait_for_sync(PATIENCE)
        return self.agent

    async def __aexit__(self, *failure):
        self.following.cancel()
        await asyncio.gather(self.following, return_exceptions=True)


async def marks(cluster):
    page = await cluster.list(DEVICE_TAINT_RULES)
    return sorted(item.spec.device_selector.device for item in page.items)


async def said(cluster, kind="Node"):
    page = await cluster.list(EVENTS)
    mine = [item for item in page.items if item.reporting_component == COMPONENT and item.involved_object.kind == kind]
    return {event.reason: event.message for event in mine}


async def test_devices_given_by_a_plugin_are_tainted_until_no_container_has_them(cluster, kubelet, agent):
    kubelet.have(plugged("old", "GPU-0"))
    await agent.round()
    assert await marks(cluster) == ["gpu-0"]
    kubelet.have(plugged("old", "GPU-0", "GPU-2"))
    await agent.round()
    assert await marks(cluster) == ["gpu-0", "gpu-2", "gpu-2-shared"]
    kubelet.have(plugged("other", "GPU-2"))
    await agent.round()
    assert await marks(cluster) == ["gpu-2", "gpu-2-shared"]
    kubelet.have()
    await agent.round()
    assert await marks(cluster) == []


async def test_a_kubelet_that_is_away_takes_no_mark_with_it(cluster, kubelet, agent):
    kubelet.have(plugged("old", "GPU-0"))
    await agent.round()
    await kubelet.stop()
    await agent.round()
    assert await marks(cluster) == ["gpu-0"]
    assert "kubelet" in agent.metrics.readiness()[0]
    assert agent.metrics.readiness()[0]["kubelet"]
    await kubelet.start()
    kubelet.have()
    await agent.round()
    assert await marks(cluster) == []
    assert not agent.metrics.readiness()[0]["kubelet"]


async def test_another_agents_mark_is_taken_over_and_one_more_round_asks_nothing(cluster, kubelet, paths, agent):
    kubelet.have(plugged("old", "GPU-0"))
    await agent.round()
    [before] = (await cluster.list(DEVICE_TAINT_RULES)).items
    async with followed(cluster, paths) as second:
        await second.round()
        [after] = (await cluster.list(DEVICE_TAINT_RULES)).items
        assert after == before
        kubelet.have()
        await second.round()
    assert await marks(cluster) == []


async def test_without_a_change_the_api_server_is_not_asked(cluster, kubelet, paths, monkeypatch):
    async with followed(cluster, paths) as agent:
        kubelet.have(plugged("old", "GPU-0"))
        snapshot = await agent.watcher.glance()
        await agent.marker.keep(snapshot, agent.watcher.hardware, again=False)

        async def unasked(*_, **__):
            raise AssertionError("asked without need")

        monkeypatch.setattr(cluster, "list", unasked)
        snapshot = await agent.watcher.glance()
        await agent.marker.keep(snapshot, agent.watcher.hardware, again=False)
        kubelet.have()
        snapshot = await agent.watcher.glance()
        with pytest.raises(AssertionError):
            await agent.marker.keep(snapshot, agent.watcher.hardware, again=False)


async def test_a_modified_taint_rule_is_recreated_in_the_next_round_without_an_event(cluster, kubelet, paths):
    async with followed(cluster, paths) as agent:
        kubelet.have(plugged("old", "GPU-0"))
        snapshot = await agent.watcher.glance()
        await agent.marker.keep(snapshot, agent.watcher.hardware, again=True)
        [mark] = (await cluster.list(DEVICE_TAINT_RULES)).items
        await cluster.delete(DEVICE_TAINT_RULES, mark.metadata.name)
        bent = replace(mark, spec=replace(mark.spec, taint=replace(mark.spec.taint, key="example.com/else")))
        await cluster.create(
            DEVICE_TAINT_RULES, replace(bent, metadata=ObjectMeta(name=mark.metadata.name, labels=mark.metadata.labels))
        )
        for again, names in ((True, []), (False, ["gpu-0"])):
            await agent.marker.keep(snapshot, agent.watcher.hardware, again=again)
            assert await marks(cluster) == names


async def test_a_mark_that_goes_while_it_is_renewed_is_made_anew_in_the_next_round(
    cluster, kubelet, paths, monkeypatch
):
    real = cluster.patch

    async def too_late(resource, name, *rest, **options):
        if resource.id == DEVICE_TAINT_RULES.id:
            await cluster.delete(resource, name)
        return await real(resource, name, *rest, **options)

    monkeypatch.setattr(cluster, "patch", too_late)
    async with followed(cluster, paths) as agent:
        for had, names in ((["GPU-0"], ["gpu-0"]), (["GPU-0", "GPU-0::1"], []), (["GPU-0", "GPU-0::1"], ["gpu-0"])):
            kubelet.have(*(plugged("old", id_) for id_ in had))
            snapshot = await agent.watcher.glance()
            await agent.marker.keep(snapshot, agent.watcher.hardware, again=False)
            assert await marks(cluster) == names


async def test_all_that_a_plugin_offers_is_marked_where_that_is_said(cluster, kubelet, paths):
    kubelet.offer = PluginsOffer(devices=(PluginHolding(resource=RESOURCE, ids=("GPU-0", "GPU-2")),))
    async with followed(cluster, paths, marking="offered") as auditor:
        await auditor.round()
        assert await marks(cluster) == ["gpu-0", "gpu-2", "gpu-2-shared"]
    async with followed(cluster, paths, marking="held") as auditor:
        await auditor.round()
        assert await marks(cluster) == []


async def test_of_very_many_the_first_are_marked_and_the_rest_is_told(cluster, kubelet, agent, monkeypatch):
    monkeypatch.setattr(audit_marks, "MOST_MARKS", 1)
    kubelet.have(plugged("old", "GPU-0", "GPU-2"))
    await agent.round()
    assert await marks(cluster) == ["gpu-0"]
    assert {finding.kind for finding in agent.findings} == {FindingKind.UNMARKED}
    assert "1 other devices of the node are marked already" in (await said(cluster))[FindingKind.UNMARKED.reason]


async def test_an_agent_with_marking_turned_off_removes_its_marks(cluster, kubelet, paths, agent):
    kubelet.have(plugged("old", "GPU-0"))
    await agent.round()
    async with followed(cluster, paths, marking="none") as auditor:
        await auditor.round()
    assert await marks(cluster) == []


async def test_an_api_server_without_taint_rules_is_said_to_be_one(cluster, kubelet, agent, monkeypatch):
    real = cluster.list

    async def without(resource, *rest, **options):
        if resource.id == DEVICE_TAINT_RULES.id:
            raise NotFound("the server could not find the requested resource")
        return await real(resource, *rest, **options)

    monkeypatch.setattr(cluster, "list", without)
    kubelet.have(plugged("old", "GPU-0"))
    await agent.round()
    assert [finding.kind for finding in agent.findings] == [FindingKind.UNMARKED]
    assert "no DeviceTaintRules" in (await said(cluster))[FindingKind.UNMARKED.reason]


async def test_a_device_that_is_given_twice_is_told_to_both_pods_and_to_the_node(cluster, kubelet, paths):
    await cluster.create(RESOURCE_CLAIMS, allocated("c", "gpu-0"))
    await cluster.patch(RESOURCE_CLAIMS, "c", status("gpu-0"), "ns", subresource="status")
    for stored in (pod("new", "c"), pod("old")):
        await cluster.create(PODS, stored)
    kubelet.have(plugged("old", "GPU-0"), claiming("new", "c", "gpu-0"))
    async with followed(cluster, paths) as agent:
        await agent.round()
        assert [finding.kind for finding in agent.findings] == [FindingKind.GIVEN_TWICE]
        reason = FindingKind.GIVEN_TWICE.reason
        assert "ResourceClaim ns/c" in (await said(cluster))[reason]
        told = [item for item in (await cluster.list(EVENTS, "ns")).items if item.reason == reason]
        assert sorted(event.involved_object.name for event in told) == ["new", "old"]
        assert not any("ns/" in event.message for event in told), "what one namespace has is not told to another"
        metrics = agent.metrics.answer(head("/metrics"), b"").body.decode()
        assert 'drawbridge_node_findings{what="given twice"} 1.0' in metrics
        kubelet.have(claiming("new", "c", "gpu-0"))
        await agent.round()
        assert agent.findings == ()
        assert (await said(cluster))[reason] == OVER
        assert set((await said(cluster, "Pod")).values()) == {OVER}


def reserving(device, claim="mine"):
    """What an allocator answers that has reserved a device to a claim."""
    reserved_device = {"driver": DRIVER, "pool": NODE, "device": device}
    row = {"namespace": "ns", "claim": claim, "uid": f"uid-{claim}", "inDoubt": False, "devices": [reserved_device]}
    return web.json_response({"node": NODE, "reservations": [row]})


async def test_a_reservation_of_a_device_in_use_is_reported_until_it_is_over(cluster, kubelet, paths):
    await cluster.create(PODS, pod("old"))
    kubelet.have(plugged("old", "GPU-0"))
    there = Allocator(lambda _: reserving("gpu-0"))
    async with there.open() as url, followed(cluster, paths, allocator=AllocatorAddress(url)) as agent:
        await agent.round()
        assert [finding.kind for finding in agent.findings] == [FindingKind.RESERVED_ELSEWHERE]
        reason = FindingKind.RESERVED_ELSEWHERE.reason
        assert "ResourceClaim ns/mine" in (await said(cluster))[reason]
        assert "ns/" not in (await said(cluster, "Pod"))[reason]
        metrics = agent.metrics.answer(head("/metrics"), b"").body.decode()
        assert 'drawbridge_node_findings{what="reserved elsewhere"} 1.0' in metrics
        assert "drawbridge_node_reservations 1.0" in metrics
        there.says = lambda _: reserving("gpu-1")
        await agent.round()
        assert agent.findings == ()
        assert (await said(cluster))[reason] == OVER


async def test_a_device_returned_before_its_reservation_causes_no_finding(cluster, kubelet, paths):
    """The kubelet reported the device before the allocator was queried."""
    kubelet.have(plugged("old", "GPU-0"))

    def reserve_what_came_back(_):
        kubelet.have()
        return reserving("gpu-0")

    async with (
        Allocator(reserve_what_came_back).open() as url,
        followed(cluster, paths, allocator=AllocatorAddress(url)) as agent,
    ):
        await agent.round()
        assert agent.findings == ()


async def test_a_device_returned_and_reserved_during_one_round_causes_no_finding(cluster, kubelet, paths):
    kubelet.have(plugged("old", "GPU-0"))
    answers = [web.json_response({"node": NODE, "reservations": []}), reserving("gpu-0")]
    there = Allocator(lambda _: answers.pop(0))
    async with there.open() as url, followed(cluster, paths, allocator=AllocatorAddress(url)) as agent:
        await agent.round()
        assert (agent.findings, len(there.asked)) == ((), 2)


async def test_an_allocator_that_is_away_is_named_and_keeps_the_agent_from_nothing(cluster, kubelet, paths):
    kubelet.have(plugged("old", "GPU-0"))
    async with followed(cluster, paths, allocator=AllocatorAddress("http://127.0.0.1:1")) as agent:
        await agent.round()
        assert await marks(cluster) == ["gpu-0"]
        problems, notes = agent.metrics.readiness()
        assert not any(problems.values()), "the agent is as ready as without"
        assert notes["sources"].startswith("allocator: Cannot connect")
        metrics = agent.metrics.answer(head("/metrics"), b"").body.decode()
        assert "drawbridge_node_sources_unread 1.0" in metrics


async def test_without_an_allocator_readiness_names_no_source(cluster, kubelet, paths, agent):
    await agent.round()
    assert agent.metrics.readiness()[1]["sources"] == ""


def head(path):
    return Head("GET", path, "", {}, 0)


def status(device):
    return Merge({"status": {"allocation": {"devices": {"results": [result(device)]}}}})


def shown(agent, **labels):
    """Return the scraped series of devices and their containers."""
    body = agent.metrics.answer(head("/metrics"), b"").body.decode()
    families = {family.name: family for family in text_string_to_metric_families(body)}
    samples = families["drawbridge_node_container_device"].samples
    return [sample.labels for sample in samples if labels.items() <= sample.labels.items()]


async def test_the_pod_device_metric_has_the_clusters_labels_and_ends_with_the_kubelet(cluster, kubelet, agent):
    await cluster.create(RESOURCE_CLAIMS, allocated("c", "gpu-0"))
    await cluster.patch(RESOURCE_CLAIMS, "c", status("gpu-0"), "ns", subresource="status")
    await cluster.create(PODS, pod("new", "c"))
    kubelet.have(plugged("old", "GPU-2"), claiming("new", "c", "gpu-0"))
    await agent.round()
    [mine] = shown(agent, claim="c")
    assert mine == {
        "namespace": "ns", "pod": "new", "container": "c", "claim": "c", "driver": DRIVER, "pool": NODE, "device": "gpu-0", "share": "",
        "node": NODE, "uuid": "GPU-0", "card": "GPU-0", "pci": "0000:3b:00.0", "resource": "",
    }  # fmt: skip
    [plugins] = shown(agent, resource=RESOURCE)
    assert (plugins["pod"], plugins["device"], plugins["uuid"], plugins["claim"]) == ("old", "GPU-2", "GPU-2", "")
    assert mine.keys() > set(POD_DEVICE)
    await kubelet.stop()
    await agent.round()
    assert shown(agent) == [], "what no report says any more is not shown"


def test_series_are_few_and_short_and_none_stands_twice(monkeypatch):
    monkeypatch.setattr(metrics, "MOST_SERIES", 3)
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


async def test_no_broken_source_ends_another(cluster, kubelet, root, agent):
    (root / "dra_manager_state").write_text("not a state")
    broken = root / "plugins" / "broken.example.com"
    broken.mkdir()
    (broken / "checkpoint").write_bytes(b"drawbridge-checkpoint 1 1 5 00\n")
    whole = root / "plugins" / DRIVER
    whole.mkdir()
    record = Prepared(
        uid=UID, namespace="ns", name="gone", pool=NODE, devices=(HeldDevice(request="r", device="gpu-1"),)
    )
    (whole / "checkpoint").write_bytes(encode(Checkpoint().with_records(record)))
    kubelet.said = None
    look = await agent.look_once()
    assert set(look.snapshot.unread) == {"kubelet", str(root / "dra_manager_state"), str(broken / "checkpoint")}
    assert [(finding.kind, finding.object) for finding in look.findings] == [
        (FindingKind.LEFT, "ResourceClaim/ns/gone")
    ]


async def test_a_checkpoint_of_an_unknown_format_is_logged_once_and_is_not_an_error(root, agent, caplog):
    folder = root / "plugins" / "vendor.example.com"
    folder.mkdir()
    file = folder / "checkpoint.json"
    file.write_text('{"data": "mine"}')
    caplog.set_level("INFO", "drawbridge.agent")
    for _ in range(3):
        await agent.round()
    named = [record for record in caplog.records if getattr(record, "file", "") == str(file)]
    assert [record.levelname for record in named] == ["INFO"]
    look = await agent.look_once()
    assert (set(look.snapshot.unknown), look.snapshot.unread) == ({str(file)}, {})
    assert not agent.metrics.readiness()[1]["sources"]


async def test_devices_prepared_by_another_vendors_driver_are_compared_with_claims(cluster, kubelet, root, agent):
    """A claim of which it knows only the uid, which a pod of the node names."""
    await cluster.create(RESOURCE_CLAIMS, allocated("c", "gpu-0"))
    await cluster.patch(RESOURCE_CLAIMS, "c", status("gpu-0"), "ns", subresource="status")
    await cluster.create(PODS, pod("p", "c"))
    uid = (await cluster.get(RESOURCE_CLAIMS, "c", "ns")).metadata.uid
    folder = root / "plugins" / DRIVER
    folder.mkdir()
    (folder / "checkpoint.json").write_bytes(first({uid: completed("gpu-1")}))
    kubelet.have(claiming("p", "c", "gpu-0"))
    async with asyncio.timeout(PATIENCE):
        while not agent.watcher.pods:  # noqa: ASYNC110  an object has no event
            await asyncio.sleep(0.01)
    look = await agent.look_once()
    assert [(finding.kind, finding.object) for finding in look.findings] == [
        (FindingKind.NOT_ALLOCATED, "ResourceClaim/ns/c")
    ]
    (folder / "checkpoint.json").write_bytes(first({uid: completed("gpu-1")}).replace(b"gpu-1", b"gpu-0"))
    assert "checksum" in (await agent.look_once()).snapshot.unread[str(folder / "checkpoint.json")]


async def test_claims_that_cannot_be_read_cause_no_findings(cluster, kubelet, agent, monkeypatch):
    async def away(*_, **__):
        raise Unavailable("the server is gone")

    kubelet.have(claiming("p", "c", "gpu-0"))
    monkeypatch.setattr(cluster, "get", away)
    await agent.round()
    look = await agent.look_once()
    assert look.findings == ()
    assert "the server is gone" in look.snapshot.unread["claims"]


async def test_pods_and_slices_that_were_not_read_yet_are_named_and_not_taken_for_none(cluster, kubelet, paths):
    watcher = Agent(cluster, AgentSettings(metrics=None, paths=paths)).watcher  # which follows nothing yet
    snapshot = await watcher.read_sources(await watcher.glance())
    assert snapshot.unread == {"pods": "not read yet", "resourceslices.resource.k8s.io": "not read yet"}
    assert snapshot.pods is None


@pytest.mark.parametrize("said", [None, "never", "cut"])
async def test_a_kubelet_that_answers_wrongly_or_not_at_all_is_named_in_time(kubelet, said):
    async def never():
        await asyncio.Event().wait()

    async def cut():
        kubelet.server.close()

    kubelet.said = {"never": never, "cut": cut}.get(said)
    with pytest.raises(KubeletAway, match=r"kubelet\.sock"):
        await ask_kubelet(str(kubelet.path), seconds=0.3)


async def test_a_file_that_is_not_a_socket(root):
    (root / "plain").write_text("")
    for name in ("none", "plain"):
        with pytest.raises(KubeletAway):
            await ask_kubelet(str(root / name))


def test_a_monstrous_file_is_not_read_and_a_cdi_file_never(root, paths, monkeypatch):
    """Sparse files of a gigabyte, a pipe without a writer, a link out of the folder, a folder where a file should be."""
    os.truncate(touched(root / "cdi" / f"drawbridge_{DRIVER}_{UID}.json"), 1 << 30)
    for name in ("large", "pipe", "link", "folder", "zeros"):
        (root / "plugins" / name).mkdir()
    os.truncate(touched(root / "plugins" / "large" / "checkpoint"), 1 << 30)
    os.mkfifo(root / "plugins" / "pipe" / "checkpoint")
    (root / "plugins" / "link" / "checkpoint").symlink_to("/etc/hostname")
    (root / "plugins" / "zeros" / "checkpoint.json").symlink_to("/dev/zero")
    (root / "plugins" / "folder" / "checkpoint").mkdir()
    (root / "elsewhere").mkdir()
    (root / "elsewhere" / "checkpoint").write_bytes(encode(Checkpoint()))
    (root / "plugins" / "away").symlink_to("../elsewhere")
    os.mkfifo(root / "cdi" / "pipe.json")
    (root / "cdi" / "link.json").symlink_to("/dev/zero")
    (root / "plugins" / "a-file").write_text("")
    os.truncate(touched(root / "dra_manager_state"), 1 << 30)
    opened = []
    real = os.open

    def noting(path, *rest, **more):
        opened.append(str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(sources.os, "open", noting)
    files = read_files(paths)
    assert files.names == (f"drawbridge_{DRIVER}_{UID}.json", "link.json", "pipe.json")
    folders = {Path(path).parent.name for path in files.unread}
    assert folders == {"large", "pipe", "link", "folder", "zeros", "away", root.name}
    assert files.unread[str(root / "plugins" / "away" / "checkpoint")] == "its folder is a link"
    assert str(1 << 30) in files.unread[str(root / "plugins" / "large" / "checkpoint")]
    assert opened
    assert not any("cdi" in path for path in opened)


def a_record(name, *names, **more):
    held = tuple(HeldDevice(request="r", device=name) for name in names)
    return Prepared(**{"uid": f"uid-{name}", "namespace": "ns", "name": name, "pool": NODE, "devices": held} | more)


def lie(root, driver, *records, broken=False):
    """A checkpoint as any program may write it into the kubelet's folder."""
    folder = root / "plugins" / driver
    folder.mkdir()
    (folder / "checkpoint").write_bytes(encode(Checkpoint().with_records(*records))[: 30 if broken else None])


ESCAPE = "\x1b[2J\nall is well\u202e"


async def test_names_that_do_things_to_a_terminal_are_written_out(cluster, kubelet, root, paths):
    """In a driver's folder, its records, its devices and its CDI files; as bytes that are no text, too."""
    await cluster.create(RESOURCE_CLAIMS, allocated("c"))
    lie(
        root,
        f"evil{ESCAPE}",
        a_record("c", f"gpu{ESCAPE}", uid="", pool=ESCAPE),
        a_record(ESCAPE, "gpu-0", namespace=ESCAPE),
    )
    lie(root, os.fsdecode(b"\xff\n"), broken=True)
    touched(root / "cdi" / f"evil{ESCAPE}{UID}.json")
    async with followed(cluster, paths) as agent:
        look = await agent.look_once()
        await agent.round()
    assert {finding.kind for finding in look.findings} >= {FindingKind.NOT_ALLOCATED, FindingKind.LEFT}
    texts = [text for finding in look.findings for text in (finding.object, finding.message, finding.pod_message)]
    texts += [text for pair in look.snapshot.unread.items() for text in pair]
    assert any("all is well" in text for text in texts)
    assert any("udcff" in text for text in look.snapshot.unread)
    for text in texts:
        assert text.isprintable(), text
        assert len(text) < 5000


async def test_a_driver_that_makes_up_claims_crowds_out_none_that_a_pod_has(cluster, kubelet, root, paths, monkeypatch):
    monkeypatch.setattr(watcher, "MOST_CLAIMS", 20)
    await cluster.create(RESOURCE_CLAIMS, allocated("c"))
    await cluster.patch(RESOURCE_CLAIMS, "c", status("gpu-0"), "ns", subresource="status")
    await cluster.create(PODS, pod("new", "c"))
    kubelet.have(plugged("old", "GPU-0"))
    lie(root, "evil", *(a_record(f"a{number}", "x", namespace="a") for number in range(50)))
    async with followed(cluster, paths) as agent:
        look = await agent.look_once()
    assert FindingKind.GIVEN_TWICE in {finding.kind for finding in look.findings}
    assert "51 are named here" in look.snapshot.unread["claims"]


def test_a_driver_that_makes_up_findings_hides_none_of_another_sort():
    lies = tuple(prepared("c", f"made-up-{number}") for number in range(5000))
    seen = snapshot(
        pods=[pod("p", "d")], claims=[allocated("c", "gpu-0"), allocated("d", "gpu-1")], gone=["e"], prepared=(*lies, prepared("e", "gpu-0"))
    )  # fmt: skip
    kinds = {finding.kind for finding in examine(seen, hardware(seen))}
    assert kinds == {FindingKind.NOT_ALLOCATED, FindingKind.NOT_PREPARED, FindingKind.LEFT}


def test_prepared_devices_in_driver_checkpoints_are_read_up_to_a_limit(root, paths, monkeypatch):
    monkeypatch.setattr(sources, "MOST_PREPARED", 10)
    lie(root, "a", a_record("few", *map(str, range(8))))
    lie(root, "b", a_record("many", *map(str, range(8))))
    files = read_files(paths)
    assert len(files.prepared) == 10
    assert "more than 10 devices" in files.unread[str(root / "plugins" / "b" / "checkpoint")]


async def test_a_folder_that_never_answers_keeps_no_mark_waiting(cluster, kubelet, paths, monkeypatch):
    """As of a file system whose server is gone. What it says in the end was asked too long ago to be held against anything."""
    answers, real, asked = threading.Event(), read_files, []

    def late_folder(paths):
        asked.append(paths)
        return answers.wait(PATIENCE) and real(paths)

    monkeypatch.setattr(watcher, "read_files", late_folder)
    kubelet.have(plugged("old", "GPU-0"))
    async with followed(cluster, paths) as agent:
        agent.watcher._patience = 0.05
        for _ in range(3):
            await agent.round()
            assert "does not answer" in agent.metrics.readiness()[1]["sources"]
        assert await marks(cluster) == ["gpu-0"]
        assert len(asked) == 1, "a plugin without an answer is not asked by one thread more in each round"
        late = agent.watcher._reading
        answers.set()
        await asyncio.wait({late})
        agent.watcher._patience = PATIENCE
        await agent.round()
        assert agent.metrics.readiness()[1]["sources"] == ""
        assert len(asked) == 2


def touched(path):
    path.touch()
    return path


def test_a_folder_of_very_many_names_is_looked_at_as_far_as_it_goes(root, paths, monkeypatch):
    monkeypatch.setattr(sources, "MOST_NAMES", 5)
    for number in range(9):
        (root / "cdi" / f"{number}.json").touch()
    files = read_files(paths)
    assert len(files.names) == 5
    assert "more than 5 entries" in files.unread[str(root / "cdi")]


def test_a_node_that_has_nothing_of_it_all(root):
    files = read_files(NodePaths(NODE, str(root / "no"), str(root / "none")))
    assert files == sources.NodeFiles()


async def test_it_serves_until_told_to_stop_and_leaves_its_marks(cluster, kubelet, paths):
    kubelet.have(plugged("old", "GPU-0"))
    agent = Agent(cluster, AgentSettings(metrics=None, paths=paths))
    stop = asyncio.Event()
    running = asyncio.create_task(agent.run(stop))
    async with asyncio.timeout(PATIENCE):
        while not await marks(cluster):  # noqa: ASYNC110  an object has no event
            await asyncio.sleep(0.01)
    stop.set()
    await asyncio.wait_for(running, PATIENCE)
    assert await marks(cluster) == ["gpu-0"]


async def test_slices_that_come_are_marked_at_once(cluster, kubelet, paths):
    """Not at the next beat: an allocator sees them as soon as we do."""
    for item in (await cluster.list(RESOURCE_SLICES)).items:
        await cluster.delete(RESOURCE_SLICES, item.metadata.name)
    kubelet.have(plugged("old", "GPU-0"))
    agent = Agent(cluster, AgentSettings(metrics=None, paths=paths, glance=10 * PATIENCE))
    stop = asyncio.Event()
    running = asyncio.create_task(agent.run(stop))
    async with asyncio.timeout(PATIENCE):
        while not kubelet.asked:  # noqa: ASYNC110  the agent has looked once
            await asyncio.sleep(0.01)
        for slice_ in slices():
            await cluster.create(RESOURCE_SLICES, slice_)
        while not await marks(cluster):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    stop.set()
    await asyncio.wait_for(running, PATIENCE)


async def test_other_devices_are_looked_at_at_once_and_the_same_not_again(cluster, kubelet, paths, monkeypatch):
    async with followed(cluster, paths) as agent:
        agent._settings = AgentSettings(metrics=None, paths=paths, look=10 * PATIENCE)
        looks = []
        real = agent.watcher.read_sources
        monkeypatch.setattr(agent.watcher, "read_sources", lambda glance: looks.append(glance) or real(glance))
        for _ in range(3):
            await agent.round()
        assert len(looks) == 1
        kubelet.have(plugged("old", "GPU-0"))
        await agent.round()
        await agent.round()
        assert len(looks) == 2


async def test_a_mark_that_is_refused_keeps_no_other_from_being_made(cluster, kubelet, agent, monkeypatch):
    real = cluster.create

    async def refuse(resource, body, *rest, **options):
        if resource.id == DEVICE_TAINT_RULES.id and body["spec"]["deviceSelector"]["device"] == "gpu-0":
            raise Unavailable("not this one")
        return await real(resource, body, *rest, **options)

    monkeypatch.setattr(cluster, "create", refuse)
    kubelet.have(plugged("old", "GPU-0", "GPU-2"))
    await agent.round()
    assert await marks(cluster) == ["gpu-2", "gpu-2-shared"]
    assert "not this one" in agent.metrics.readiness()[0]["cluster"]
    monkeypatch.setattr(cluster, "create", real)
    agent._again_at = 0.0
    await agent.round()
    assert await marks(cluster) == ["gpu-0", "gpu-2", "gpu-2-shared"]
    assert agent.marker.count == 3


async def worn(cluster):
    node = await cluster.get(NODES.raw, NODE)
    return {condition["type"]: condition for condition in node.get("status", {}).get("conditions", ())}


KUBELETS = {"type": "Ready", "status": "True"}


async def lose(cluster):
    """What another writer of the whole list leaves of it."""
    await cluster.patch(NODES, NODE, Merge({"status": {"conditions": [KUBELETS]}}), subresource="status")


async def test_a_node_wears_what_was_found_beside_what_others_say_of_it(cluster, kubelet, paths):
    await lose(cluster)
    async with followed(cluster, paths, condition=True) as agent:
        await agent.round()
        there = await worn(cluster)
        assert (there[CONDITION]["status"], there["Ready"]) == ("True", KUBELETS)
        version = (await cluster.get(NODES, NODE)).metadata.resource_version
        await agent.round()
        assert (await cluster.get(NODES, NODE)).metadata.resource_version == version, "no write without news"
        await lose(cluster)
        await agent.round()
        assert (await worn(cluster))[CONDITION]["status"] == "True", "what was lost is said again"
        await kubelet.stop()
        await agent.round()
        assert (await worn(cluster))[CONDITION]["status"] == "Unknown"
        await agent._condition.remove()
        assert await worn(cluster) == {"Ready": KUBELETS}


async def test_a_finding_makes_the_condition_false_and_names_no_pod(cluster, kubelet, paths):
    await cluster.create(RESOURCE_CLAIMS, allocated("c", "gpu-0"))
    await cluster.patch(RESOURCE_CLAIMS, "c", status("gpu-0"), "ns", subresource="status")
    kubelet.have(plugged("old", "GPU-0"), claiming("new", "c", "gpu-0"))
    async with followed(cluster, paths, condition=True) as agent:
        await agent.round()
        condition = (await worn(cluster))[CONDITION]
        assert (condition["status"], condition["reason"]) == ("False", FindingKind.GIVEN_TWICE.reason)
        assert condition["message"] == "1 given twice: see the events of the node"


async def test_it_goes_with_the_agent(cluster, kubelet, paths):
    agent = Agent(cluster, AgentSettings(metrics=None, paths=paths, condition=True))
    stop = asyncio.Event()
    running = asyncio.create_task(agent.run(stop))
    async with asyncio.timeout(PATIENCE):
        while CONDITION not in await worn(cluster):  # noqa: ASYNC110  an object has no event
            await asyncio.sleep(0.01)
    stop.set()
    await asyncio.wait_for(running, PATIENCE)
    assert await worn(cluster) == {}


async def test_without_the_option_no_node_is_written_and_without_the_right_all_else_goes_on(
    cluster, kubelet, paths, monkeypatch
):
    async with followed(cluster, paths) as agent:
        await agent.round()
        await agent._condition.remove()
        assert await worn(cluster) == {}
    real = cluster.patch

    async def refuse(resource, *rest, **options):
        if resource.id == NODES.id:
            raise Forbidden("nodes/status is forbidden")
        return await real(resource, *rest, **options)

    monkeypatch.setattr(cluster, "patch", refuse)
    kubelet.have(plugged("old", "GPU-0"))
    async with followed(cluster, paths, condition=True) as agent:
        await agent.round()
        await agent._condition.remove()
        assert await marks(cluster) == ["gpu-0"]
        problems, notes = agent.metrics.readiness()
        assert not any(problems.values())
        assert "forbidden" in notes["condition"]


NOW = "2026-01-01T00:10:00Z"


@pytest.mark.parametrize(("before", "is_kept"), [(None, False), ("True", True), ("False", False)])
def test_a_condition_keeps_its_time_for_as_long_as_it_is_the_same(before, is_kept):
    old = {"status": before, "lastTransitionTime": "then"} if before else None
    now = condition_of((), "", old, NOW)
    assert (now["status"], now["lastTransitionTime"]) == ("True", "then" if is_kept else NOW)


@pytest.mark.parametrize(
    ("stood", "is_kept"),
    [
        ("2026-01-01T00:00:01Z", True),
        ("2026-01-01T00:00:00Z", False),
        ("2026-01-01T00:10:01Z", False),
        ("2026-01-01T00:05:00", False),
        ("soon", False),
        (7, False),
        (None, False),
    ],
    ids=["young", "old", "of the future", "of nowhere", "no time", "a number", "never"],
)
def test_an_agent_stands_by_its_condition_every_ten_minutes(stood, is_kept):
    now = condition_of((), "", {"status": "True", "lastHeartbeatTime": stood}, NOW)
    assert now["lastHeartbeatTime"] == (stood if is_kept else NOW)
