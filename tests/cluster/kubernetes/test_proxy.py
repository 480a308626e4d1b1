"""Proxies of the client, from the kubeconfig and from the environment."""

import asyncio

import msgspec
import pytest

from cluster.errors import ConfigError, Unavailable
from cluster.kubernetes.client import Kubernetes
from cluster.resources import CONFIG_MAPS
from tests.cluster.kubernetes.server import EMPTY_LIST, write_kubeconfig
from tests.cluster.objects import config_map
from tests.cluster.peer import kubeconfig, peer
from tests.limits import PATIENCE


async def test_a_proxy_named_in_the_kubeconfig_is_used(tmp_path):
    async with (
        asyncio.timeout(PATIENCE),
        peer(lambda exchange: exchange.reply(body=msgspec.json.encode(config_map("a")))) as proxy,
    ):
        path = tmp_path / "kubeconfig"
        path.write_text(
            kubeconfig("http://cluster.invalid:80").replace("server:", f"proxy-url: {proxy.url}\n    server:")
        )
        client = Kubernetes.connect(kubeconfig=str(path))
        await client.get(CONFIG_MAPS, "a", "ns")
        await client.close()
    assert proxy.exchanges[0].request.startswith("GET http://cluster.invalid")


@pytest.mark.parametrize(
    ("no_proxy", "is_used"),
    [
        ("", True),
        ("elsewhere.example.com,10.0.0.0/8", True),
        ("127.0.0.1", False),
        ("*", False),
        ("kube.example.com, 127.1.0.0/8", False),
        ("127.0.0.0/8x,::/0", True),
    ],
)
async def test_the_environment_proxy_is_used_unless_excluded(tmp_path, monkeypatch, no_proxy, is_used):  # fmt: skip
    for name in ("HTTP_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with asyncio.timeout(PATIENCE), peer(lambda exchange: exchange.reply(body=EMPTY_LIST)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", no_proxy)
        client = Kubernetes.connect(kubeconfig=write_kubeconfig(tmp_path, "http://127.0.0.1:1"))
        try:
            if is_used:
                await client.list(CONFIG_MAPS)
            else:
                with pytest.raises(Unavailable):
                    await client.list(CONFIG_MAPS)
        finally:
            await client.close()
    assert [exchange.request.split()[1].startswith("http://127.0.0.1:1/api") for exchange in proxy.exchanges] == [
        True
    ] * is_used


@pytest.mark.parametrize("spelling", ["{}", "http://user:secret@{}", "http://{}/", " {} "])
async def test_a_proxy_address_may_have_any_common_spelling(tmp_path, monkeypatch, spelling):
    async with asyncio.timeout(PATIENCE), peer(lambda exchange: exchange.reply(body=EMPTY_LIST)) as proxy:
        monkeypatch.setenv("http_proxy", spelling.format(proxy.url.removeprefix("http://")))
        monkeypatch.setenv("no_proxy", "")
        client = Kubernetes.connect(kubeconfig=write_kubeconfig(tmp_path, "http://127.0.0.1:1"))
        try:
            await client.list(CONFIG_MAPS)
        finally:
            await client.close()
    assert len(proxy.exchanges) == 1


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "://", "http://user:secret@", "http://a:b", "http://u:secret@h:99999", "http://h:1/secret"])  # fmt: skip
async def test_an_invalid_proxy_is_reported_without_any_secret(tmp_path, monkeypatch, proxy):
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    client = Kubernetes.connect(kubeconfig=write_kubeconfig(tmp_path, "http://127.0.0.1:1"))
    with pytest.raises(ConfigError, match=r"http_proxy in the environment.*write http://HOST:PORT") as caught:
        await client.list(CONFIG_MAPS)
    assert "secret" not in str(caught.value)
    await client.close()
