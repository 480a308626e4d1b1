"""Sources of the audit agent: kubelet, files and API server; broken, hostile or slow sources do not affect the others."""

import asyncio
import os
import threading

import pytest

from cluster.resources import PODS, RESOURCE_CLAIMS
from node.audit import FindingKind
from node.checkpoint import Checkpoint, HeldDevice, Prepared, encode
from node.service import Agent, AgentSettings, NodePaths
from node.service.auditing import sources, watcher
from node.service.auditing.sources import KubeletAway, ask_kubelet, read_files
from tests.limits import PATIENCE
from tests.node.audit.snapshots import UID, allocated_claim, plugin_holding, pod
from tests.node.machines import DRIVER, NODE
from tests.node.service.auditing.agents import (
    allocate,
    record_of,
    tainted_devices,
    touch,
    watching_agent,
    write_checkpoint,
)


async def test_a_broken_source_does_not_affect_other_sources(cluster, kubelet, root, agent):
    (root / "dra_manager_state").write_text("not a state")
    broken_folder = root / "plugins" / "broken.example.com"
    broken_folder.mkdir()
    (broken_folder / "checkpoint").write_bytes(b"drawbridge-checkpoint 1 1 5 00\n")
    sound_folder = root / "plugins" / DRIVER
    sound_folder.mkdir()
    record = Prepared(
        uid=UID, namespace="ns", name="gone", pool=NODE, devices=(HeldDevice(request="r", device="gpu-1"),)
    )
    (sound_folder / "checkpoint").write_bytes(encode(Checkpoint().with_records(record)))
    kubelet.answer = None
    audit = await agent.audit_once()
    assert set(audit.snapshot.unread) == {"kubelet", str(root / "dra_manager_state"), str(broken_folder / "checkpoint")}
    assert [(finding.kind, finding.object) for finding in audit.findings] == [
        (FindingKind.LEFT, "ResourceClaim/ns/gone")
    ]


async def test_an_unknown_checkpoint_format_is_logged_once_and_ignored(root, agent, caplog):
    folder = root / "plugins" / "vendor.example.com"
    folder.mkdir()
    file = folder / "checkpoint.json"
    file.write_text('{"data": "mine"}')
    caplog.set_level("INFO", "drawbridge.agent")
    for _ in range(3):
        await agent.round()
    records_of_file = [record for record in caplog.records if getattr(record, "file", "") == str(file)]
    assert [record.levelname for record in records_of_file] == ["INFO"]
    audit = await agent.audit_once()
    assert (set(audit.snapshot.unknown), audit.snapshot.unread) == ({str(file)}, {})
    assert not agent.metrics.readiness()[1]["sources"]


async def test_pods_and_slices_not_yet_read_are_reported_as_unread(cluster, kubelet, paths):
    unstarted_watcher = Agent(cluster, AgentSettings(metrics=None, paths=paths)).watcher
    snapshot = await unstarted_watcher.read_sources(await unstarted_watcher.read_kubelet())
    assert snapshot.unread == {"pods": "not read yet", "resourceslices.resource.k8s.io": "not read yet"}
    assert snapshot.pods is None


@pytest.mark.parametrize("behaviour", ["error", "silence", "disconnection"])
async def test_a_failing_or_silent_kubelet_is_reported_in_time(kubelet, behaviour):
    async def stay_silent():
        await asyncio.Event().wait()

    async def disconnect():
        kubelet.server.close()

    kubelet.answer = {"silence": stay_silent, "disconnection": disconnect}.get(behaviour)
    with pytest.raises(KubeletAway, match=r"kubelet\.sock"):
        await ask_kubelet(str(kubelet.path), seconds=0.3)


async def test_a_kubelet_path_that_is_no_socket_is_reported(root):
    (root / "plain").write_text("")
    for name in ("none", "plain"):
        with pytest.raises(KubeletAway):
            await ask_kubelet(str(root / name))


def test_huge_files_and_cdi_files_are_not_read(root, paths):
    """The files are sparse files of a gigabyte."""
    os.truncate(touch(root / "cdi" / f"drawbridge_{DRIVER}_{UID}.json"), 1 << 30)
    (root / "plugins" / "large").mkdir()
    os.truncate(touch(root / "plugins" / "large" / "checkpoint"), 1 << 30)
    os.truncate(touch(root / "dra_manager_state"), 1 << 30)
    files = read_files(paths)
    assert files.names == (f"drawbridge_{DRIVER}_{UID}.json",)
    large = {str(root / "plugins" / "large" / "checkpoint"), str(root / "dra_manager_state")}
    assert files.unread == dict.fromkeys(large, f"it has more than {sources.MAX_BYTES} bytes")


ESCAPE_TEXT = "\x1b[2J\nall is well\u202e"


async def test_escape_sequences_in_names_are_made_printable(cluster, kubelet, root, paths):
    """The names of a folder, records, devices and a CDI file contain escape sequences. The name of another folder is not valid UTF-8."""
    await cluster.create(RESOURCE_CLAIMS, allocated_claim("c"))
    write_checkpoint(
        root,
        f"evil{ESCAPE_TEXT}",
        record_of("c", f"gpu{ESCAPE_TEXT}", uid="", pool=ESCAPE_TEXT),
        record_of(ESCAPE_TEXT, "gpu-0", namespace=ESCAPE_TEXT),
    )
    write_checkpoint(root, os.fsdecode(b"\xff\n"), is_truncated=True)
    touch(root / "cdi" / f"evil{ESCAPE_TEXT}{UID}.json")
    async with watching_agent(cluster, paths) as agent:
        audit = await agent.audit_once()
        await agent.round()
    assert {finding.kind for finding in audit.findings} >= {FindingKind.NOT_ALLOCATED, FindingKind.LEFT}
    texts = [text for finding in audit.findings for text in (finding.object, finding.message, finding.pod_message)]
    texts += [text for pair in audit.snapshot.unread.items() for text in pair]
    assert any("all is well" in text for text in texts)
    assert any("udcff" in text for text in audit.snapshot.unread)
    for text in texts:
        assert text.isprintable(), text
        assert len(text) < 5000


async def test_invented_claims_of_a_driver_do_not_displace_real_claims(cluster, kubelet, root, paths, monkeypatch):
    monkeypatch.setattr(watcher, "MAX_CLAIMS", 20)
    await allocate(cluster)
    await cluster.create(PODS, pod("new", "c"))
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    write_checkpoint(root, "evil", *(record_of(f"a{number}", "x", namespace="a") for number in range(50)))
    async with watching_agent(cluster, paths) as agent:
        audit = await agent.audit_once()
    assert FindingKind.GIVEN_TWICE in {finding.kind for finding in audit.findings}
    assert "51 claims are named on this node" in audit.snapshot.unread["claims"]


async def test_a_hanging_folder_does_not_delay_taint_rules(cluster, kubelet, paths, monkeypatch):
    """The folder hangs like a network file system whose server is gone. The agent ignores a late answer, which is outdated."""
    release, calls = threading.Event(), []

    def read_files_late(paths):
        calls.append(paths)
        return release.wait(PATIENCE) and read_files(paths)

    monkeypatch.setattr(watcher, "read_files", read_files_late)
    kubelet.set_pods(plugin_holding("old", "GPU-0"))
    async with watching_agent(cluster, paths) as agent:
        agent.watcher._patience = 0.05
        for _ in range(3):
            await agent.round()
            assert "does not answer" in agent.metrics.readiness()[1]["sources"]
        assert await tainted_devices(cluster) == ["gpu-0"]
        assert len(calls) == 1, "a later round read the hanging folder in another thread"
        late_reading = agent.watcher._reading
        release.set()
        await asyncio.wait({late_reading})
        agent.watcher._patience = PATIENCE
        await agent.round()
        assert agent.metrics.readiness()[1]["sources"] == ""
        assert len(calls) == 2


def test_a_node_without_any_source_has_no_files(root):
    files = read_files(NodePaths(NODE, str(root / "no"), str(root / "none")))
    assert files == sources.NodeFiles()


async def test_sources_are_read_again_only_after_devices_change(cluster, kubelet, paths, monkeypatch):
    async with watching_agent(cluster, paths) as agent:
        agent._settings = AgentSettings(metrics=None, paths=paths, audit_interval=10 * PATIENCE)
        readings = []
        read_sources = agent.watcher.read_sources
        monkeypatch.setattr(
            agent.watcher, "read_sources", lambda holdings: readings.append(holdings) or read_sources(holdings)
        )
        for _ in range(3):
            await agent.round()
        assert len(readings) == 1
        kubelet.set_pods(plugin_holding("old", "GPU-0"))
        await agent.round()
        await agent.round()
        assert len(readings) == 2
