"""Credentials of the client: kubeconfigs, tokens, credential programs and service accounts."""

import asyncio
import logging
import stat

import msgspec
import pytest

from cluster.errors import ConfigError, Unauthorized, Unavailable
from cluster.kubernetes.client import Kubernetes
from cluster.kubernetes.connection import Call, Connection, _keep_log, in_cluster
from cluster.resources import CONFIG_MAPS
from tests.cluster.conftest import eventually
from tests.cluster.kubernetes.server import (
    EMPTY_LIST,
    claim_of_version,
    connected,
    encoded_event,
    encoded_failure,
    follow_watch,
    write_kubeconfig,
)
from tests.cluster.objects import config_map
from tests.cluster.peer import kubeconfig


async def test_a_rotated_token_file_is_read_again(tmp_path):
    token = tmp_path / "token"
    token.write_text("old")

    async def answer(exchange):
        if exchange.headers["authorization"] == "Bearer old":
            token.write_text("new")
            await exchange.reply("401 Unauthorized", encoded_failure(401, "Unauthorized"))
        else:
            await exchange.reply(body=msgspec.json.encode(config_map("a")))

    async with connected(answer, tmp_path, tokenFile=str(token)) as (client, api_server):
        assert (await client.get(CONFIG_MAPS, "a", "ns")).metadata.name == "a"
    assert [exchange.headers["authorization"] for exchange in api_server.exchanges] == ["Bearer old", "Bearer new"]


def credential_program(tmp_path, script):
    """Write a credential program; return the user of a kubeconfig that gets its credentials from this program."""
    path = tmp_path / "credentials.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}}


ISSUE_NUMBERED_TOKENS = """
n=$(( $(cat "$0.count" 2>/dev/null || echo 0) + 1 )); echo $n > "$0.count"
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t-'$n'"}}'
"""


async def test_an_expired_token_reruns_the_credential_program(tmp_path):
    async def answer(exchange):
        if exchange.headers["authorization"] == "Bearer t-1":
            await exchange.reply("401 Unauthorized", encoded_failure(401, "Unauthorized"))
        else:
            await exchange.reply(body=msgspec.json.encode(config_map("a")))

    async with connected(answer, tmp_path, **credential_program(tmp_path, ISSUE_NUMBERED_TOKENS)) as (
        client,
        api_server,
    ):
        async with asyncio.TaskGroup() as tasks:  # all five are rejected, and the program runs again once
            for _ in range(5):
                tasks.create_task(client.get(CONFIG_MAPS, "a", "ns"))
        await client.get(CONFIG_MAPS, "a", "ns")
    assert {exchange.headers["authorization"] for exchange in api_server.exchanges} == {"Bearer t-1", "Bearer t-2"}
    assert (tmp_path / "credentials.sh.count").read_text().strip() == "2"


async def test_renewed_credentials_do_not_abort_running_requests(tmp_path):
    credentials_renewed = asyncio.Event()

    async def answer(exchange):
        if "watch=1" in exchange.request:
            await exchange.begin()
            await exchange.chunk(encoded_event("ADDED", claim_of_version("a", 2)))
            await credentials_renewed.wait()
            await exchange.chunk(encoded_event("ADDED", claim_of_version("b", 3)))
            await exchange.end()
            return
        if "/slow" in exchange.request:
            await credentials_renewed.wait()
        elif exchange.headers["authorization"] == "Bearer t-1":
            await exchange.reply("401 Unauthorized", encoded_failure(401, "Unauthorized"))
            return
        await exchange.reply(body=msgspec.json.encode(config_map("a")))

    async with connected(answer, tmp_path, **credential_program(tmp_path, ISSUE_NUMBERED_TOKENS)) as (
        client,
        api_server,
    ):

        async def both_requests_arrived():
            return len(api_server.exchanges) == 2

        async with asyncio.TaskGroup() as tasks:
            watch_task = tasks.create_task(follow_watch(client))
            slow_request = tasks.create_task(client.get(CONFIG_MAPS, "slow", "ns"))
            await eventually(both_requests_arrived)
            await client.get(CONFIG_MAPS, "a", "ns")
            credentials_renewed.set()
        versions, _ = watch_task.result()
        assert versions == ["2", "3"]
        assert slow_request.result().metadata.name == "a"
        assert not client._connection._retired  # the last request with the old credentials closed the old connections


async def test_a_credential_program_is_not_rerun_for_each_rejected_request(tmp_path):
    async def answer(exchange):
        await exchange.reply("401 Unauthorized", encoded_failure(401, "Unauthorized"))

    async with connected(answer, tmp_path, **credential_program(tmp_path, ISSUE_NUMBERED_TOKENS)) as (client, _):
        for _ in range(10):
            with pytest.raises(Unauthorized):
                await client.get(CONFIG_MAPS, "a", "ns")
    assert (tmp_path / "credentials.sh.count").read_text().strip() == "2"


async def test_a_failing_credential_program_is_reported(tmp_path):
    program = credential_program(tmp_path, "echo no luck >&2; exit 3")
    async with connected(lambda exchange: exchange.reply(), tmp_path, **program) as (client, api_server):
        with pytest.raises(ConfigError, match=r"credentials\.sh.*gave no credentials: exec: .* 3.*no luck"):
            await client.get(CONFIG_MAPS, "a", "ns")
    assert api_server.exchanges == []


async def test_a_missing_credential_program_is_reported(tmp_path, capfd):
    program = credential_program(tmp_path, ISSUE_NUMBERED_TOKENS)
    program["exec"]["command"] = "no-such-program"
    async with connected(lambda exchange: exchange.reply(), tmp_path, **program) as (client, _):
        with pytest.raises(ConfigError, match=r"program 'no-such-program' is not installed here$"):
            await client.get(CONFIG_MAPS, "a", "ns")
    assert capfd.readouterr().err == "", "the library printed its log"


@pytest.mark.parametrize("address", ["127.0.0.1:6443", "ftp://127.0.0.1"])
async def test_a_server_address_without_http_scheme_is_a_kubeconfig_error(tmp_path, address):
    client = Kubernetes.connect(kubeconfig=write_kubeconfig(tmp_path, address))
    with pytest.raises(ConfigError, match=f"not a URL that begins with https:// or http://: {address}"):
        await client.get(CONFIG_MAPS, "a", "ns")
    await client.close()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "kubeconfig"),
        ("a: [", "kubeconfig"),
        ("apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\n", "current-context"),
        (
            "current-context: x\nclusters: []\nusers: []\ncontexts: [{name: x, context: {cluster: none, user: u}}]\n",
            "none",
        ),
    ],
)
async def test_the_error_for_a_broken_kubeconfig_names_its_path(tmp_path, text, reason):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    client = Kubernetes.connect(kubeconfig=str(path))
    with pytest.raises(ConfigError, match=reason) as caught:
        await client.get(CONFIG_MAPS, "a", "ns")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value), "the message has several lines"


async def test_a_folder_in_place_of_a_kubeconfig_is_reported(tmp_path):
    with pytest.raises(ConfigError) as caught:
        await Kubernetes.connect(kubeconfig=str(tmp_path)).get(CONFIG_MAPS, "a", "ns")
    assert str(caught.value) == f"kubeconfig {tmp_path}: Is a directory"


async def test_a_missing_kubeconfig_or_context_is_reported(tmp_path):
    with pytest.raises(ConfigError, match=r"no kubeconfig at .*nowhere$"):
        await Kubernetes.connect(kubeconfig=str(tmp_path / "nowhere")).get(CONFIG_MAPS, "a", "ns")
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig("http://127.0.0.1:1"))
    with pytest.raises(ConfigError, match=r"there is no context 'other' in it$"):
        await Kubernetes.connect(kubeconfig=str(path), context="other").get(CONFIG_MAPS, "a", "ns")


async def test_outside_a_cluster_the_missing_service_account_is_reported(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="not inside a cluster"):
        await Connection(in_cluster()).call(Call("GET", "/version"))


@pytest.mark.real
async def test_the_service_account_token_is_reread_in_a_cluster(control_plane, tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("expired")
    host, port = control_plane.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    connection = Connection(in_cluster(str(token), str(control_plane.ca)), renewal_seconds=0.0)
    with pytest.raises(Unauthorized):
        await connection.call(Call("GET", "/api/v1/namespaces/default"))
    token.write_text(control_plane.token)
    assert b'"kind":"Namespace"' in await connection.call(Call("GET", "/api/v1/namespaces/default"))
    await connection.close()


@pytest.mark.real
async def test_an_untrusted_server_certificate_is_reported(control_plane, tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(control_plane.url))
    client = Kubernetes.connect(kubeconfig=str(path))
    with pytest.raises(Unavailable, match="certificate verify failed"):
        await client.server()
    await client.close()


async def test_a_kubeconfig_with_an_unsupported_field_is_refused(tmp_path):
    user = {"token": "t", "as": "me", "as-groups": ["a", "b"]}
    async with connected(lambda exchange: exchange.reply(), tmp_path, **user) as (client, api_server):
        with pytest.raises(ConfigError, match="as-groups cannot be used here"):
            await client.get(CONFIG_MAPS, "a", "ns")
    assert api_server.exchanges == []


async def test_netrc_is_not_read_for_the_api_server(tmp_path, monkeypatch):
    """The HTTP library would refuse to send a request with a token if it also read a matching entry in the netrc file."""
    (tmp_path / "netrc").write_text("default login user password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with connected(lambda exchange: exchange.reply(body=EMPTY_LIST), tmp_path, token="ours") as (client, api_server):  # fmt: skip
        await client.list(CONFIG_MAPS)
    assert api_server.exchanges[0].headers["authorization"] == "Bearer ours"


def test_reading_kubeconfigs_concurrently_restores_the_logger(caplog):
    """The logger of the library works again after both readings, although the first reading ends before the second."""
    first_reading, second_reading = _keep_log("kept.example"), _keep_log("kept.example")
    logger = logging.getLogger("kept.example")
    with first_reading as messages:
        logger.error("alone")
        second_reading.__enter__()
    second_reading.__exit__(None, None, None)
    assert (messages, caplog.messages) == (["alone"], [])
    logger.error("afterwards")
    assert caplog.messages == ["afterwards"]
