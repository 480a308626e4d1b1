"""Version and feature gates of a server, from its metrics."""

import msgspec
import pytest

from cluster.errors import Forbidden, Unavailable
from cluster.kubernetes import client as client_module
from cluster.kubernetes.client import Kubernetes
from cluster.resources import RESOURCE_CLAIMS
from tests.cluster.kubernetes.server import connected, encoded_failure
from tests.cluster.peer import kubeconfig

GATE_METRIC = 'kubernetes_feature_enabled{name="%s",stage="BETA"} %s\n'
METRICS = (
    "# TYPE kubernetes_feature_enabled gauge\n"
    + GATE_METRIC % ("DRAConsumableCapacity", 1)
    + GATE_METRIC % ("DRADeviceTaints", 0)
    + GATE_METRIC % ("SidecarContainers", 1)
    + 'kubernetes_feature_enabled{name="DRADeviceTaints",stage="",more="1"} 1\n'
    + 'x{name="kubernetes_feature_enabled"} 1\n'
    + "process_start_time_seconds 1\n"
).encode()
VERSION = {"gitVersion": "v1.37.2", "minor": "37+", "emulationMinor": "36"}


def server_with_metrics(send_metrics):
    """Return a function that answers as a server of version 1.37 that emulates 1.36, sends these metrics and creates no objects."""

    async def answer(exchange):
        _, path, _ = exchange.request.split()
        if path == "/version":
            await exchange.reply(body=msgspec.json.encode(VERSION))
        elif path == "/apis":
            served = {"groups": [{"versions": [{"groupVersion": "resource.k8s.io/v1"}]}]}
            await exchange.reply(body=msgspec.json.encode(served))
        elif path == "/metrics":
            await send_metrics(exchange)
        else:
            await exchange.reply("403 Forbidden", encoded_failure(403, "Forbidden"))

    return answer


async def test_feature_gates_are_read_from_metrics_in_small_chunks(tmp_path):
    async def send_metrics(exchange):
        await exchange.begin()
        for start in range(0, len(METRICS), 11):
            await exchange.chunk(METRICS[start : start + 11])
        await exchange.end()

    async with connected(server_with_metrics(send_metrics), tmp_path) as (client, _):
        server_info = await client.server()
        assert server_info.gates == {"DRAConsumableCapacity": True, "DRADeviceTaints": False}
        assert server_info.minor == 36  # the emulated version
        assert (await client.server(probe=False)).gates == {}


INVALID_ANSWERS = [b'{"gitVersion": "v1.3', b"", b"<html>log in</html>", b"[1]", b"{}", b'{"gitVersion": 7, "groups": 7}', b'{"a":"\xff"}']  # fmt: skip


@pytest.mark.parametrize("invalid_path", ["/version", "/apis"])
@pytest.mark.parametrize("body", INVALID_ANSWERS)
async def test_an_invalid_answer_about_the_server_raises_unavailable(tmp_path, invalid_path, body):
    async def answer(exchange):
        _, path, _ = exchange.request.split()
        await exchange.reply(body=body if path == invalid_path else msgspec.json.encode(VERSION | {"groups": []}))

    async with connected(answer, tmp_path) as (client, _):
        with pytest.raises(Unavailable, match=f"the answer to {invalid_path} is not of an API server"):
            await client.server()


async def test_without_access_to_metrics_no_gate_is_known(tmp_path):
    async def refuse_metrics(exchange):
        await exchange.reply("403 Forbidden", encoded_failure(403, "Forbidden"))

    async with connected(server_with_metrics(refuse_metrics), tmp_path) as (client, _):
        server_info = await client.server()
    assert server_info.gates == {}


@pytest.mark.parametrize("filler", [b"x 1\n" * 4, b"x" * 16])
async def test_reading_of_endless_metrics_stops_at_a_limit(tmp_path, monkeypatch, filler):
    monkeypatch.setattr(client_module, "LARGEST_METRICS", 1 << 16)

    async def send_endless_metrics(exchange):
        await exchange.begin()
        await exchange.chunk(METRICS)
        while not exchange.writer.transport.is_closing():
            await exchange.chunk(filler * 64)

    async with connected(server_with_metrics(send_endless_metrics), tmp_path) as (client, _):
        assert (await client.server()).gates == {"DRAConsumableCapacity": True, "DRADeviceTaints": False}


@pytest.mark.real
async def test_gates_are_unknown_to_a_user_without_rights(control_plane, tmp_path):
    path = tmp_path / "kubeconfig"
    text = kubeconfig(control_plane.url, token=control_plane.token, **{"as": "no-rights"})
    path.write_text(text.replace("server:", f"certificate-authority: {control_plane.ca}\n    server:"))
    client = Kubernetes.connect(kubeconfig=str(path))
    server_info = await client.server()
    with pytest.raises(Forbidden, match='"no-rights"'):
        await client.list(RESOURCE_CLAIMS)
    await client.close()
    assert server_info.serves("resource.k8s.io/v1")
    assert server_info.gates == {}
