"""Version and feature gates of a server, from its metrics and from dry runs."""

import msgspec
import pytest

from cluster.errors import Forbidden, Unavailable
from cluster.kubernetes import client
from cluster.kubernetes.client import Kubernetes
from cluster.resources import RESOURCE_CLAIMS
from cluster.server import PROBES
from tests.cluster.kubernetes.server import connected, failure
from tests.cluster.peer import kubeconfig

GATE = 'kubernetes_feature_enabled{name="%s",stage="BETA"} %s\n'
METRICS = (
    "# TYPE kubernetes_feature_enabled gauge\n"
    + GATE % ("DRAConsumableCapacity", 1)
    + GATE % ("DRADeviceTaints", 0)
    + GATE % ("SidecarContainers", 1)
    + 'kubernetes_feature_enabled{name="DRADeviceTaints",stage="",more="1"} 1\n'
    + 'x{name="kubernetes_feature_enabled"} 1\n'
    + "process_start_time_seconds 1\n"
).encode()
VERSION = {"gitVersion": "v1.37.1", "minor": "37+", "emulationMinor": "36"}


def telling(metrics):
    """Return a server of 1.37 that emulates 1.36, refuses to create anything, and answers with these metrics."""

    async def answer(exchange):
        _, path, _ = exchange.request.split()
        if path == "/version":
            await exchange.reply(body=msgspec.json.encode(VERSION))
        elif path == "/apis":
            served = {"groups": [{"versions": [{"groupVersion": "resource.k8s.io/v1"}]}]}
            await exchange.reply(body=msgspec.json.encode(served))
        elif path == "/metrics":
            await metrics(exchange)
        else:
            await exchange.reply("403 Forbidden", failure(403, "Forbidden"))

    return answer


async def test_feature_gates_are_read_from_metrics_in_any_chunks(tmp_path):
    async def metrics(exchange):
        await exchange.begin()
        for start in range(0, len(METRICS), 11):
            await exchange.chunk(METRICS[start : start + 11])
        await exchange.end()

    async with connected(telling(metrics), tmp_path) as (reached, made):
        server = await reached.server()
        assert server.gates == {"DRAConsumableCapacity": True, "DRADeviceTaints": False}
        assert server.minor == 36  # the emulated version
        assert [exchange for exchange in made.exchanges if exchange.request.startswith("POST")] == []
        assert (await reached.server(probe=False)).gates == {}


NO_SERVER = [b'{"gitVersion": "v1.3', b"", b"<html>log in</html>", b"[1]", b"{}", b'{"gitVersion": 7, "groups": 7}', b'{"a":"\xff"}']  # fmt: skip


@pytest.mark.parametrize("invalid", ["/version", "/apis"])
@pytest.mark.parametrize("body", NO_SERVER)
async def test_an_invalid_answer_about_the_server_is_unavailable(tmp_path, invalid, body):
    async def answer(exchange):
        _, path, _ = exchange.request.split()
        await exchange.reply(body=body if path == invalid else msgspec.json.encode(VERSION | {"groups": []}))

    async with connected(answer, tmp_path) as (reached, _):
        with pytest.raises(Unavailable, match=f"the answer to {invalid} is not of an API server"):
            await reached.server()


async def test_a_client_without_metrics_probes_with_dry_runs(tmp_path):
    async def metrics(exchange):
        await exchange.reply("403 Forbidden", failure(403, "Forbidden"))

    async with connected(telling(metrics), tmp_path) as (reached, made):
        server = await reached.server()
    assert server.gates == {}
    tried = [exchange for exchange in made.exchanges if exchange.request.startswith("POST")]
    assert len(tried) == len(PROBES)
    assert all("dryRun=All" in exchange.request for exchange in tried)


@pytest.mark.parametrize("line", [b"x 1\n" * 4, b"x" * 16])
async def test_metrics_without_end_are_not_read_to_their_end(tmp_path, monkeypatch, line):
    monkeypatch.setattr(client, "LARGEST_METRICS", 1 << 16)

    async def metrics(exchange):
        await exchange.begin()
        await exchange.chunk(METRICS)
        while not exchange.writer.transport.is_closing():
            await exchange.chunk(line * 64)

    async with connected(telling(metrics), tmp_path) as (reached, _):
        assert (await reached.server()).gates == {"DRAConsumableCapacity": True, "DRADeviceTaints": False}


@pytest.mark.real
async def test_gates_are_unknown_without_the_right_to_create(control_plane, tmp_path):
    path = tmp_path / "kubeconfig"
    text = kubeconfig(control_plane.url, token=control_plane.token, **{"as": "no-rights"})
    path.write_text(text.replace("server:", f"certificate-authority: {control_plane.ca}\n    server:"))
    way = Kubernetes.connect(kubeconfig=str(path))
    server = await way.server()
    with pytest.raises(Forbidden, match='"no-rights"'):
        await way.list(RESOURCE_CLAIMS)
    await way.close()
    assert server.serves("resource.k8s.io/v1")
    assert server.gates == {}
