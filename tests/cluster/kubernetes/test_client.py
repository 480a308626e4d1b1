"""The way to a real API server, with peers that behave badly and credentials that run out."""

import asyncio
import logging
import stat
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from cluster import Apply, Merge
from cluster.errors import (
    LONGEST_RETRY_SECONDS,
    ApiError,
    BadRequest,
    ConfigError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)
from cluster.kubernetes import answers, client
from cluster.kubernetes.client import Kubernetes
from cluster.kubernetes.connection import Call, Connection, _keep_log, in_cluster
from cluster.kubernetes.protobuf import CONTENT_TYPE, patched
from cluster.patch import Operations
from cluster.resources import CONFIG_MAPS, RESOURCE_CLAIMS, eviction_of
from cluster.server import PROBES
from runtime.informers.backoff import Backoff
from runtime.informers.informer import Informer
from tests.cluster.conftest import eventually
from tests.cluster.kubernetes.test_protobuf import stored
from tests.cluster.objects import claim, config_map
from tests.cluster.peer import kubeconfig, peer
from tests.limits import PATIENCE
from tests.webhook import tls

ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def connected(answer, tmp_path, *, idle=5.0, **user):
    """A cluster behind a peer that answers so."""
    async with asyncio.timeout(PATIENCE), peer(answer) as made:
        path = tmp_path / "kubeconfig"
        path.write_text(kubeconfig(made.url, **user))
        reached = Kubernetes.connect(kubeconfig=str(path))
        reached._idle = idle
        try:
            yield reached, made
        finally:
            await reached.close()


def failure(code, reason, **more):
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "because"} | more
    return msgspec.json.encode(body)


def versioned(name, version):
    return claim(name, metadata={"namespace": "ns", "resourceVersion": str(version)})


def event(type_, obj):
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


async def watched(reached, heard=None, **options):
    """Follow a watch until it ends; give what was seen and the error that ended it. `heard` is set by what is seen."""
    seen, error = [], None
    try:
        async with reached.watch(RESOURCE_CLAIMS, resource_version="1", **options) as events:
            async for event in events:
                seen.append(event.resource_version)
                if heard is not None:
                    heard.set()
    except ApiError as caught:
        error = caught
    return seen, error


def test_a_successful_eviction_returns_a_status_without_name():
    done = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
    assert answers.decode_object(done, eviction_of("p"))["status"] == "Success"
    with pytest.raises(Unavailable, match="it has no name"):
        answers.decode_object(done, CONFIG_MAPS)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        ("400 Bad Request", failure(400, "BadRequest"), BadRequest),
        ("401 Unauthorized", failure(401, "Unauthorized"), Unauthorized),
        ("403 Forbidden", failure(403, "Forbidden"), Forbidden),
        ("404 Not Found", failure(404, "NotFound"), NotFound),
        ("404 Not Found", b"404 page not found\n", NotFound),
        ("410 Gone", failure(410, "Expired"), Gone),
        ("422 Unprocessable Entity", failure(422, "Invalid"), Invalid),
        ("429 Too Many Requests", failure(429, "TooManyRequests"), Throttled),
        ("500 Internal Server Error", failure(500, "InternalError"), ApiError),
        ("502 Bad Gateway", b"<html>a proxy is sorry</html>", Unavailable),
        ("503 Service Unavailable", b"", Unavailable),
        ("504 Gateway Timeout", failure(504, "Timeout"), Unavailable),
    ],
)
async def test_every_refusal_is_the_error_it_means(tmp_path, status, body, kind):
    async with connected(lambda exchange: exchange.reply(status, body), tmp_path) as (reached, _):
        with pytest.raises(ApiError) as caught:
            await reached.get(CONFIG_MAPS, "a", "ns")
    assert type(caught.value) is kind
    assert caught.value.status == int(status[:3])


async def test_a_chunked_refusal_is_read_to_its_end(tmp_path):
    """What has arrived is not all there is: a long one comes in several packets."""
    body = failure(422, "Invalid", message="why not " * 1000)
    async with connected(lambda exchange: exchange.reply_in_pieces("422 Unprocessable Entity", body), tmp_path) as (
        reached,
        _,
    ):
        with pytest.raises(Invalid, match=r"^(why not )+"):
            await reached.get(CONFIG_MAPS, "a", "ns")


async def test_an_invalid_object_names_its_fields(tmp_path):
    causes = [{"field": "spec.x", "message": "no", "reason": "FieldValueInvalid"}]
    body = failure(422, "Invalid", details={"causes": causes})
    async with connected(lambda exchange: exchange.reply("422 Unprocessable Entity", body), tmp_path) as (reached, _):
        with pytest.raises(Invalid) as caught:
            await reached.create(CONFIG_MAPS, config_map("a"), "ns")
    assert caught.value.causes[0].field == "spec.x"


@pytest.mark.parametrize(
    ("status", "reason", "cause"),
    [
        ("403 Forbidden", "Forbidden", "NamespaceTerminating"),
        ("429 Too Many Requests", "TooManyRequests", "StorageReadinessCheck"),
        ("500 Internal Server Error", "InternalError", "ClientRateLimited"),
        ("504 Gateway Timeout", "Timeout", "ResourceVersionTooLarge"),
    ],
)
async def test_a_refused_request_keeps_the_causes_of_its_error(tmp_path, status, reason, cause):
    body = failure(int(status[:3]), reason, details={"causes": [{"message": "no", "reason": cause}]})
    async with connected(lambda exchange: exchange.reply(status, body), tmp_path) as (reached, _):
        with pytest.raises(ApiError) as caught:
            await reached.get(CONFIG_MAPS, "a", "ns")
    assert caught.value.has_cause(cause)
    assert not caught.value.has_cause("another")


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry_After": "7"}, failure(429, "TooManyRequests", details={"retryAfterSeconds": 3}), 7),
        ({}, failure(429, "TooManyRequests", details={"retryAfterSeconds": 3}), 3),
        ({}, b"", 1),
        ({"Retry_After": "Fri, 31 Dec 2027 23:59:59 GMT"}, b"", 1),
        ({"Retry_After": "9" * 400}, b"", LONGEST_RETRY_SECONDS),
        ({}, failure(429, "TooManyRequests", details={"retryAfterSeconds": 10**15}), LONGEST_RETRY_SECONDS),
        ({}, failure(429, "TooManyRequests", details={"retryAfterSeconds": -7}), 0),
    ],
)
async def test_a_throttled_request_says_how_long_to_wait(tmp_path, headers, body, seconds):
    async def answer(exchange):
        await exchange.reply("429 Too Many Requests", body, **headers)

    async with connected(answer, tmp_path) as (reached, _):
        with pytest.raises(Throttled) as caught:
            await reached.list(CONFIG_MAPS)
    assert caught.value.retry_after == seconds


async def test_a_throttling_server_refuses_a_watch_at_once(tmp_path):
    async def answer(exchange):
        await exchange.reply("429 Too Many Requests", b"", Retry_After="2")

    async with connected(answer, tmp_path) as (reached, _):
        seen, error = await watched(reached)
    assert seen == []
    assert isinstance(error, Throttled)


async def test_a_server_that_hangs_up_is_unavailable(tmp_path):
    async def answer(exchange):
        exchange.hang_up()

    async with connected(answer, tmp_path) as (reached, _):
        with pytest.raises(Unavailable, match="connection to the API server failed"):
            await reached.create(CONFIG_MAPS, config_map("a"), "ns")


async def test_a_server_that_is_not_there_is_unavailable(tmp_path):
    async with connected(lambda _: None, tmp_path) as (reached, made):
        address = made.url
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(address))
    reached = Kubernetes.connect(kubeconfig=str(path))
    with pytest.raises(Unavailable, match="connection to the API server failed"):
        await reached.get(CONFIG_MAPS, "a", "ns")
    await reached.close()


async def test_a_server_that_says_nothing_is_not_waited_for(tmp_path):
    async def answer(_):
        await asyncio.sleep(30)

    async with connected(answer, tmp_path) as (reached, _):
        with pytest.raises(Unavailable, match="did not answer in time"):
            await reached._connection.call(Call("GET", "/version"), seconds=0.1)


async def test_a_server_that_speaks_something_else_is_unavailable(tmp_path):
    async with connected(lambda exchange: exchange.send(b"220 smtp ready\r\n\r\n"), tmp_path) as (reached, _):
        with pytest.raises(Unavailable):
            await reached.get(CONFIG_MAPS, "a", "ns")


async def test_an_answer_cut_short_is_unavailable(tmp_path):
    async def answer(exchange):
        await exchange.send(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"metadata":')
        exchange.writer.close()

    async with connected(answer, tmp_path) as (reached, _):
        with pytest.raises(Unavailable):
            await reached.get(CONFIG_MAPS, "a", "ns")


async def test_a_watch_survives_any_cutting_into_chunks(tmp_path):
    data = event("ADDED", versioned("a", 1)) + event("MODIFIED", versioned("ü", 2))

    async def answer(exchange):
        await exchange.begin()
        for start in range(0, len(data), 7):
            await exchange.chunk(data[start : start + 7])
        await exchange.end()

    async with connected(answer, tmp_path) as (reached, _):
        assert await watched(reached) == (["1", "2"], None)


async def test_lists_are_asked_for_compressed_and_watches_as_they_are(tmp_path):
    async def answer(exchange):
        if "watch=1" in exchange.request:
            await exchange.begin()
            await exchange.end()
        else:
            await exchange.reply("200 OK", b'{"metadata":{},"items":[]}')

    async with connected(answer, tmp_path) as (reached, made):
        await reached.list(RESOURCE_CLAIMS)
        await watched(reached)
    assert [exchange.headers["accept-encoding"] for exchange in made.asked] == ["gzip", "identity"]


async def test_a_watch_that_is_truncated_gives_what_came_whole(tmp_path):
    heard = asyncio.Event()

    async def answer(exchange):
        await exchange.begin()
        await exchange.chunk(event("ADDED", versioned("a", 1)) + event("ADDED", versioned("b", 2))[:-10])
        await heard.wait()  # the library below gives out nothing any more when it has seen the end
        exchange.writer.close()

    async with connected(answer, tmp_path) as (reached, _):
        seen, error = await watched(reached, heard)
    assert seen == ["1"]
    assert isinstance(error, Unavailable)


async def test_an_expired_version_within_a_watch_is_gone(tmp_path):
    async def answer(exchange):
        await exchange.begin()
        body = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (99)"}
        await exchange.chunk(event("ADDED", versioned("a", 1)) + event("ERROR", body))
        await exchange.end()

    async with connected(answer, tmp_path) as (reached, _):
        seen, error = await watched(reached)
    assert seen == ["1"]
    assert isinstance(error, Gone)


async def test_a_dead_peer_is_noticed(tmp_path):
    async def answer(exchange):
        await exchange.begin()
        await exchange.chunk(event("ADDED", versioned("a", 1)))
        await asyncio.sleep(30)

    async with connected(answer, tmp_path, idle=2) as (reached, _):
        seen, error = await watched(reached)
    assert seen == ["1"]
    assert isinstance(error, Unavailable)
    assert "did not answer in time" in str(error)


async def test_a_slow_peer_is_waited_for(tmp_path):
    data = event("ADDED", versioned("a", 1))

    async def answer(exchange):
        await exchange.begin()
        size = len(data) // 50
        for start in range(0, len(data), size):  # longer than `idle` in all, and never nearly so between two
            await exchange.chunk(data[start : start + size])
            await asyncio.sleep(0.15)
        await exchange.end()

    async with connected(answer, tmp_path, idle=6) as (reached, _):
        assert await watched(reached) == (["1"], None)


async def test_a_watch_that_is_not_read_holds_the_peer_back(tmp_path):
    """Bytes that a reader does not take stay with the server: memory on our side is bounded."""
    data, sent, much = event("ADDED", versioned("a", 1)) * 200, 0, 64 << 20

    async def answer(exchange):
        nonlocal sent
        await exchange.begin()
        while sent < much:
            await exchange.chunk(data)
            sent += len(data)

    async with (
        connected(answer, tmp_path) as (reached, _),
        reached.watch(RESOURCE_CLAIMS, resource_version="1") as events,
    ):
        await anext(events)
        for _ in range(5000):  # turns in which a peer that nothing holds back sends all of it
            await asyncio.sleep(0)
        held = sent
        assert held < much // 2
        while sent == held:  # it was the reader that held it back
            await anext(events)


async def test_a_watch_that_is_left_ends_at_the_peer_too(tmp_path):
    left = asyncio.Event()

    async def answer(exchange):
        await exchange.begin()
        try:
            while True:
                await exchange.chunk(event("ADDED", versioned("a", 1)))
                await asyncio.sleep(0.01)
        except ConnectionError:
            left.set()
            raise

    async with connected(answer, tmp_path) as (reached, _):
        async with reached.watch(RESOURCE_CLAIMS, resource_version="1") as events:
            await anext(events)
        await asyncio.wait_for(left.wait(), PATIENCE)


async def test_a_request_can_be_cancelled(tmp_path):
    async def answer(_):
        await asyncio.sleep(30)

    async with connected(answer, tmp_path) as (reached, made):
        task = asyncio.ensure_future(reached.get(CONFIG_MAPS, "a", "ns"))
        await eventually(lambda: asyncio.sleep(0, made.asked))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, PATIENCE)


async def test_an_error_of_the_reader_is_no_connection_error(tmp_path):
    async def answer(exchange):
        await exchange.begin()
        await exchange.chunk(event("ADDED", versioned("a", 1)))

    async with connected(answer, tmp_path) as (reached, _):
        with pytest.raises(TimeoutError, match="mine"):  # noqa: PT012  the watch is what raises must pass through
            async with reached.watch(RESOURCE_CLAIMS, resource_version="1") as events:
                await anext(events)
                raise TimeoutError("mine")


async def test_the_client_sends_correct_paths_queries_headers_and_bodies(tmp_path):
    async with connected(lambda exchange: exchange.reply(body=msgspec.json.encode(config_map("a"))), tmp_path) as (
        reached,
        made,
    ):
        body = {"data": {"a": "b"}}
        await reached.patch(CONFIG_MAPS, "a", Merge(body), "ns", dry_run=True)
        await reached.patch(CONFIG_MAPS, "a", Operations(({"op": "remove", "path": "/data"},)), "ns")
        await reached.patch(CONFIG_MAPS, "a", Apply(body, "me", force=True), "ns")
        await reached.delete(CONFIG_MAPS, "a", "ns", uid="u", resource_version="7", propagation="Orphan", grace=0)
        with pytest.raises(Unavailable):  # one object, where a list is expected
            await reached.list(CONFIG_MAPS, labels="a in (b,c)", fields="metadata.name!=x", limit=5, more="t+/=")
    path = "/api/v1/namespaces/ns/configmaps"
    assert [exchange.request.rsplit(" ", 1)[0] for exchange in made.asked] == [
        f"PATCH {path}/a?dryRun=All",
        f"PATCH {path}/a",
        f"PATCH {path}/a?fieldManager=me&force=true",
        f"DELETE {path}/a",
        f"GET {'/api/v1/configmaps'}?limit=5&labelSelector=a%20in%20(b,c)&fieldSelector=metadata.name!%3Dx&continue=t%2B/%3D",
    ]
    assert [exchange.headers["content-type"] for exchange in made.asked[:3]] == [
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
    ]
    assert msgspec.json.decode(made.asked[1].body) == [{"op": "remove", "path": "/data"}]
    assert msgspec.json.decode(made.asked[2].body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"a": "b"},
    }
    assert msgspec.json.decode(made.asked[3].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Orphan",
        "gracePeriodSeconds": 0,
    }
    assert {exchange.headers["authorization"] for exchange in made.asked} == {"Bearer secret"}
    assert {exchange.headers["user-agent"] for exchange in made.asked} == {"drawbridge"}


@pytest.mark.parametrize("name", [".", "..", "a/b", "a?b", "a%2Fb", "ü"])
async def test_a_name_cannot_lead_elsewhere(tmp_path, name):
    async with connected(lambda exchange: exchange.reply("404 Not Found"), tmp_path) as (reached, made):
        with pytest.raises((BadRequest, NotFound)):
            await reached.get(CONFIG_MAPS, name, "ns")
    for exchange in made.asked:
        path = exchange.request.split(" ")[1]
        assert path.startswith("/api/v1/namespaces/ns/configmaps/")
        assert path.count("/") == 6
        assert "?" not in path


async def test_a_token_file_that_was_rotated_is_read_again(tmp_path):
    token = tmp_path / "token"
    token.write_text("old")

    async def answer(exchange):
        if exchange.headers["authorization"] == "Bearer old":
            token.write_text("new")
            await exchange.reply("401 Unauthorized", failure(401, "Unauthorized"))
        else:
            await exchange.reply(body=msgspec.json.encode(config_map("a")))

    async with connected(answer, tmp_path, tokenFile=str(token)) as (reached, made):
        assert (await reached.get(CONFIG_MAPS, "a", "ns")).metadata.name == "a"
    assert [exchange.headers["authorization"] for exchange in made.asked] == ["Bearer old", "Bearer new"]


def credential_program(tmp_path, script):
    path = tmp_path / "credentials.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}}


ISSUE = """
n=$(( $(cat "$0.count" 2>/dev/null || echo 0) + 1 )); echo $n > "$0.count"
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t-'$n'"}}'
"""


async def test_an_expired_token_reruns_the_credential_program(tmp_path):
    async def answer(exchange):
        if exchange.headers["authorization"] == "Bearer t-1":
            await exchange.reply("401 Unauthorized", failure(401, "Unauthorized"))
        else:
            await exchange.reply(body=msgspec.json.encode(config_map("a")))

    async with connected(answer, tmp_path, **credential_program(tmp_path, ISSUE)) as (reached, made):
        async with asyncio.TaskGroup() as tasks:  # all of them are refused, one asks again
            for _ in range(5):
                tasks.create_task(reached.get(CONFIG_MAPS, "a", "ns"))
        await reached.get(CONFIG_MAPS, "a", "ns")
    assert {exchange.headers["authorization"] for exchange in made.asked} == {"Bearer t-1", "Bearer t-2"}
    assert (tmp_path / "credentials.sh.count").read_text().strip() == "2"


async def test_renewed_credentials_do_not_abort_running_requests(tmp_path):
    renewed = asyncio.Event()

    async def answer(exchange):
        if "watch=1" in exchange.request:
            await exchange.begin()
            await exchange.chunk(event("ADDED", versioned("a", 2)))
            await renewed.wait()
            await exchange.chunk(event("ADDED", versioned("b", 3)))
            await exchange.end()
            return
        if "/slow" in exchange.request:
            await renewed.wait()
        elif exchange.headers["authorization"] == "Bearer t-1":
            await exchange.reply("401 Unauthorized", failure(401, "Unauthorized"))
            return
        await exchange.reply(body=msgspec.json.encode(config_map("a")))

    async with connected(answer, tmp_path, **credential_program(tmp_path, ISSUE)) as (reached, made):

        async def both_are_under_way():
            return len(made.asked) == 2

        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watched(reached))
            waiting = tasks.create_task(reached.get(CONFIG_MAPS, "slow", "ns"))
            await eventually(both_are_under_way)
            await reached.get(CONFIG_MAPS, "a", "ns")
            renewed.set()
        seen, _ = watching.result()
        assert seen == ["2", "3"]
        assert waiting.result().metadata.name == "a"
        assert not reached._connection._retired  # the last to use the old credentials closed what they had open


async def test_wrong_credentials_are_not_requested_repeatedly(tmp_path):
    async def answer(exchange):
        await exchange.reply("401 Unauthorized", failure(401, "Unauthorized"))

    async with connected(answer, tmp_path, **credential_program(tmp_path, ISSUE)) as (reached, _):
        for _ in range(10):
            with pytest.raises(Unauthorized):
                await reached.get(CONFIG_MAPS, "a", "ns")
    assert (tmp_path / "credentials.sh.count").read_text().strip() == "2"


async def test_a_credential_program_that_fails_is_named(tmp_path):
    program = credential_program(tmp_path, "echo no luck >&2; exit 3")
    async with connected(lambda exchange: exchange.reply(), tmp_path, **program) as (reached, made):
        with pytest.raises(ConfigError, match=r"credentials\.sh.*gave no credentials: exec: .* 3.*no luck"):
            await reached.get(CONFIG_MAPS, "a", "ns")
    assert made.asked == []


async def test_a_missing_credential_program_is_named(tmp_path, capfd):
    program = credential_program(tmp_path, ISSUE)
    program["exec"]["command"] = "no-such-program"
    async with connected(lambda exchange: exchange.reply(), tmp_path, **program) as (reached, _):
        with pytest.raises(ConfigError, match=r"program 'no-such-program' is not installed here$"):
            await reached.get(CONFIG_MAPS, "a", "ns")
    assert capfd.readouterr().err == "", "the library's own log is in the message"


@pytest.mark.parametrize("address", ["127.0.0.1:6443", "ftp://127.0.0.1"])
async def test_an_address_without_a_scheme_is_a_kubeconfig_error(tmp_path, address):
    reached = Kubernetes.connect(kubeconfig=at(tmp_path, address))
    with pytest.raises(ConfigError, match=f"not a URL that begins with https:// or http://: {address}"):
        await reached.get(CONFIG_MAPS, "a", "ns")
    await reached.close()


async def test_an_informer_survives_every_server_failure(tmp_path):
    watches = 0
    items = [versioned("a", 1), versioned("b", 2)]

    async def answer(exchange):
        nonlocal watches
        if "watch=1" not in exchange.request:
            listing = {"metadata": {"resourceVersion": "5"}, "items": items}
            await exchange.reply(body=msgspec.json.encode(listing))
            return
        watches += 1
        match watches:
            case 1:
                await exchange.reply("422 Unprocessable Entity", failure(422, "Invalid"))
            case 2:
                await exchange.reply("503 Service Unavailable", b"")
            case 3:
                exchange.hang_up()
            case 4:
                await exchange.begin()
                await exchange.chunk(event("MODIFIED", versioned("a", 6)) + b'{"type":"ADD')
                exchange.writer.close()
            case 5:
                await exchange.reply("429 Too Many Requests", b"", Retry_After="0")
            case 6:
                await exchange.begin()
                await exchange.chunk(event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"}))
                await exchange.end()
            case _:
                await exchange.begin()
                await exchange.chunk(event("DELETED", versioned("b", 7)))
                await asyncio.sleep(30)

    async with connected(answer, tmp_path) as (reached, made):
        informer = Informer(reached, RESOURCE_CLAIMS, backoff=Backoff(least=0.001, most=0.01))
        task = asyncio.ensure_future(informer.run())
        while watches < 7 or len(informer.objects) != 1:
            assert not task.done()
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert informer.health.reads == 2
    versions = [one.request.partition("resourceVersion=")[2].partition("&")[0].split(" ")[0] for one in made.asked]
    assert versions[-1] == "5"


@pytest.mark.parametrize(
    ("text", "message"),
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
async def test_a_broken_kubeconfig_is_named(tmp_path, text, message):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    reached = Kubernetes.connect(kubeconfig=str(path))
    with pytest.raises(ConfigError, match=message) as caught:
        await reached.get(CONFIG_MAPS, "a", "ns")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value), "it is told in a line"


async def test_a_folder_for_a_kubeconfig_is_called_one(tmp_path):
    with pytest.raises(ConfigError) as caught:
        await Kubernetes.connect(kubeconfig=str(tmp_path)).get(CONFIG_MAPS, "a", "ns")
    assert str(caught.value) == f"kubeconfig {tmp_path}: Is a directory"


async def test_a_missing_kubeconfig_or_context_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no kubeconfig at .*nowhere$"):
        await Kubernetes.connect(kubeconfig=str(tmp_path / "nowhere")).get(CONFIG_MAPS, "a", "ns")
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig("http://127.0.0.1:1"))
    with pytest.raises(ConfigError, match=r"there is no context 'other' in it$"):
        await Kubernetes.connect(kubeconfig=str(path), context="other").get(CONFIG_MAPS, "a", "ns")


async def test_outside_a_cluster_its_service_account_is_missed_clearly(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="not inside a cluster"):
        await Connection(in_cluster()).call(Call("GET", "/version"))


def test_nothing_but_its_own_module_brings_the_client_along():
    lines = (
        "import sys, cluster, cluster.embedded.embedded, runtime.informers.informer, runtime.controllers.claim_controller",
        "print(sorted({'aiohttp', 'kubernetes', 'ssl'} & set(sys.modules)))",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in ("[]", "['ssl']")


async def test_a_proxy_named_in_the_kubeconfig_is_used(tmp_path):
    async with (
        asyncio.timeout(PATIENCE),
        peer(lambda exchange: exchange.reply(body=msgspec.json.encode(config_map("a")))) as made,
    ):
        path = tmp_path / "kubeconfig"
        path.write_text(
            kubeconfig("http://cluster.invalid:80").replace("server:", f"proxy-url: {made.url}\n    server:")
        )
        reached = Kubernetes.connect(kubeconfig=str(path))
        await reached.get(CONFIG_MAPS, "a", "ns")
        await reached.close()
    assert made.asked[0].request.startswith("GET http://cluster.invalid")


@pytest.mark.real
async def test_the_service_account_token_is_reread_in_a_cluster(control_plane, tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("expired")
    host, port = control_plane.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    way = Connection(in_cluster(str(token), str(control_plane.ca)), renewal_seconds=0.0)
    with pytest.raises(Unauthorized):
        await way.call(Call("GET", "/api/v1/namespaces/default"))
    token.write_text(control_plane.token)
    assert b'"kind":"Namespace"' in await way.call(Call("GET", "/api/v1/namespaces/default"))
    await way.close()


@pytest.mark.real
async def test_a_server_whose_certificate_is_not_trusted_is_refused_clearly(control_plane, tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(control_plane.url))
    reached = Kubernetes.connect(kubeconfig=str(path))
    with pytest.raises(Unavailable, match="certificate verify failed"):
        await reached.server()
    await reached.close()


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
    """A server of 1.37 that does as 1.36, allows nothing to be created, and answers with these metrics."""

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
        assert server.minor == 36  # as which it does, not which it is
        assert [one for one in made.asked if one.request.startswith("POST")] == []
        assert (await reached.server(probe=False)).gates == {}


NO_SERVER = [b'{"gitVersion": "v1.3', b"", b"<html>log in</html>", b"[1]", b"{}", b'{"gitVersion": 7, "groups": 7}', b'{"a":"\xff"}']  # fmt: skip


@pytest.mark.parametrize("asked", ["/version", "/apis"])
@pytest.mark.parametrize("body", NO_SERVER)
async def test_an_invalid_answer_about_the_server_is_unavailable(tmp_path, asked, body):
    async def answer(exchange):
        _, path, _ = exchange.request.split()
        await exchange.reply(body=body if path == asked else msgspec.json.encode(VERSION | {"groups": []}))

    async with connected(answer, tmp_path) as (reached, _):
        with pytest.raises(Unavailable, match=f"the answer to {asked} is not of an API server"):
            await reached.server()


async def test_a_client_without_metrics_probes_with_dry_runs(tmp_path):
    async def metrics(exchange):
        await exchange.reply("403 Forbidden", failure(403, "Forbidden"))

    async with connected(telling(metrics), tmp_path) as (reached, made):
        server = await reached.server()
    assert server.gates == {}
    tried = [one for one in made.asked if one.request.startswith("POST")]
    assert len(tried) == len(PROBES)
    assert all("dryRun=All" in one.request for one in tried)


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


async def test_an_unsupported_kubeconfig_is_refused(tmp_path):
    user = {"token": "t", "as": "me", "as-groups": ["a", "b"]}
    async with connected(lambda exchange: exchange.reply(), tmp_path, **user) as (reached, made):
        with pytest.raises(ConfigError, match="as-groups cannot be used here"):
            await reached.get(CONFIG_MAPS, "a", "ns")
    assert made.asked == []


async def test_requests_share_a_connection(tmp_path):
    body = msgspec.json.encode(config_map("a"))
    async with connected(lambda exchange: exchange.reply(body=body), tmp_path) as (reached, made):
        for _ in range(5):
            await reached.get(CONFIG_MAPS, "a", "ns")
            with pytest.raises(Unavailable):
                await reached.list(RESOURCE_CLAIMS)  # no list comes back, which does not end the connection
    assert len({id(exchange.writer) for exchange in made.asked}) == 1


@pytest.mark.linux("reads /proc")
async def test_leaving_a_watch_always_closes_its_connection(tmp_path):
    """The polite end of TLS waits for a word of the peer, and this one never says it."""
    _, leaf = tls.pair()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.transport.pause_reading()
        begun.set()
        await ended.wait()
        writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls.server(leaf))
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(address).replace("server:", "insecure-skip-tls-verify: true\n    server:"))
    reached = Kubernetes.connect(kubeconfig=str(path))
    async with asyncio.timeout(PATIENCE), server:
        async with reached.watch(CONFIG_MAPS, resource_version="1", timeout=60) as events:
            reading = asyncio.ensure_future(anext(aiter(events)))
            await begun.wait()
            held = open_sockets()
            reading.cancel()
            await asyncio.wait([reading])
        await reached.close()
        await turns()
        still = open_sockets()
        ended.set()
        await turns()
    assert still == held - 1


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


def open_sockets():
    return sum(str(one.readlink()).startswith("socket:") for one in Path("/proc/self/fd").iterdir() if one.is_symlink())


# What the environment says

NOTHING = b'{"metadata":{},"items":[]}'


async def test_netrc_is_not_read_for_the_api_server(tmp_path, monkeypatch):
    """A ~/.netrc with an entry for every host: together with a token the HTTP library would refuse to send anything."""
    (tmp_path / "netrc").write_text("default login user password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with connected(lambda exchange: exchange.reply(body=NOTHING), tmp_path, token="ours") as (reached, made):  # fmt: skip
        await reached.list(CONFIG_MAPS)
    assert made.asked[0].headers["authorization"] == "Bearer ours"


async def test_a_request_asks_no_thread_for_anything(tmp_path, monkeypatch):
    """Two threads were asked about each: one for proxies, one for passwords. On a busy machine each hop is a wait."""
    async with connected(lambda exchange: exchange.reply(body=NOTHING), tmp_path) as (reached, made):
        await reached.list(CONFIG_MAPS)

        def asked(*_):
            raise AssertionError("a thread is asked")

        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", asked)
        await reached.list(CONFIG_MAPS)
    assert len(made.asked) == 2


@pytest.mark.parametrize(
    ("left_out", "through"),
    [
        ("", True),
        ("elsewhere.example.com,10.0.0.0/8", True),
        ("127.0.0.1", False),
        ("*", False),
        ("kube.example.com, 127.1.0.0/8", False),
        ("127.0.0.0/8x,::/0", True),
    ],
)
async def test_the_environment_proxy_is_used_unless_excluded(tmp_path, monkeypatch, left_out, through):  # fmt: skip
    for name in ("HTTP_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with asyncio.timeout(PATIENCE), peer(lambda exchange: exchange.reply(body=NOTHING)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", left_out)
        reached = Kubernetes.connect(kubeconfig=at(tmp_path, "http://127.0.0.1:1"))
        try:
            if through:
                await reached.list(CONFIG_MAPS)
            else:
                with pytest.raises(Unavailable):
                    await reached.list(CONFIG_MAPS)
        finally:
            await reached.close()
    assert [one.request.split()[1].startswith("http://127.0.0.1:1/api") for one in proxy.asked] == [True] * through


@pytest.mark.parametrize("said", ["{}", "http://user:secret@{}", "http://{}/", " {} "])
async def test_a_proxy_may_have_every_common_spelling(tmp_path, monkeypatch, said):
    async with asyncio.timeout(PATIENCE), peer(lambda exchange: exchange.reply(body=NOTHING)) as proxy:
        monkeypatch.setenv("http_proxy", said.format(proxy.url.removeprefix("http://")))
        monkeypatch.setenv("no_proxy", "")
        reached = Kubernetes.connect(kubeconfig=at(tmp_path, "http://127.0.0.1:1"))
        try:
            await reached.list(CONFIG_MAPS)
        finally:
            await reached.close()
    assert len(proxy.asked) == 1


@pytest.mark.parametrize("said", ["socks5://127.0.0.1:9", "://", "http://user:secret@", "http://a:b", "http://u:secret@h:99999", "http://h:1/secret"])  # fmt: skip
async def test_an_invalid_proxy_is_named_without_its_password(tmp_path, monkeypatch, said):
    monkeypatch.setenv("http_proxy", said)
    monkeypatch.setenv("no_proxy", "")
    reached = Kubernetes.connect(kubeconfig=at(tmp_path, "http://127.0.0.1:1"))
    with pytest.raises(ConfigError, match=r"http_proxy in the environment.*write http://HOST:PORT") as caught:
        await reached.list(CONFIG_MAPS)
    assert "secret" not in str(caught.value)
    await reached.close()


def at(folder, server):
    """A kubeconfig for a server."""
    path = folder / "kubeconfig"
    path.write_text(kubeconfig(server))
    return str(path)


def refusing_patches(puts, stored=b"", fields=("spec",)):
    """A server that would spell the claim anew by a patch, and answers so to one update after the other."""
    left = list(puts)

    async def answer(exchange):
        match exchange.request.split()[0]:
            case "PATCH":
                causes = [{"field": field, "message": "field is immutable"} for field in fields]
                await exchange.reply("422 Invalid", failure(422, "Invalid", details={"causes": causes}))
            case "GET":
                await exchange.reply("200 OK", stored)
            case _:
                status = left.pop(0)
                body = msgspec.json.encode(claim("c")) if status == 200 else failure(status, "Conflict")
                await exchange.reply(f"{status} Because", body)

    return answer


@pytest.mark.parametrize(("subresource", "path"), [("", "/c?"), ("status", "/c/status?")])
async def test_a_claim_keeps_its_bytes_where_a_patch_reencodes(tmp_path, subresource, path):
    """Read as a whole, which takes no right to read its status; written where the patch was to go, and only tried if that was."""
    patch = Merge({"metadata": {"finalizers": ["a"]}})
    async with connected(refusing_patches([409, 200], stored()), tmp_path) as (reached, made):
        await reached.patch(RESOURCE_CLAIMS, "c", patch, "ns", subresource=subresource, dry_run=True)
        asked = [one.request.split() for one in made.asked]
    assert [one[0] for one in asked] == ["PATCH", "GET", "PUT", "GET", "PUT"]
    assert asked[1][1].endswith("/namespaces/ns/resourceclaims/c")
    assert made.asked[1].headers["accept"] == made.asked[2].headers["content-type"] == CONTENT_TYPE
    assert asked[2][1].endswith(f"{path}dryRun=All")
    assert made.asked[2].body == patched(stored(), patch)


async def test_a_constantly_changing_claim_is_given_up(tmp_path):
    async with connected(refusing_patches([409] * 9, stored()), tmp_path) as (reached, made):
        with pytest.raises(Conflict):
            await reached.patch(RESOURCE_CLAIMS, "c", Merge({"metadata": {"finalizers": ["a"]}}), "ns")
        assert [one.request.split()[0] for one in made.asked].count("PUT") == client.PATCH_ATTEMPTS


@pytest.mark.parametrize(
    ("patch", "resource", "answer"),
    [
        (
            Merge({"metadata": {"finalizers": ["a"]}}),
            RESOURCE_CLAIMS,
            refusing_patches([], b'{"kind":"ResourceClaim"}'),
        ),
        (Merge({"metadata": {"labels": {"a": "b"}}}), RESOURCE_CLAIMS, refusing_patches([], stored())),
        (Merge({"metadata": {"finalizers": ["a"]}}), CONFIG_MAPS, refusing_patches([], stored())),
        (Merge({"metadata": {"finalizers": ["a"]}}), RESOURCE_CLAIMS, refusing_patches([], stored(), ["metadata"])),
    ],
    ids=["no protobuf", "another patch", "another kind", "another field"],
)
async def test_where_that_cannot_be_the_refusal_of_the_patch_stands(tmp_path, patch, resource, answer):
    async with connected(answer, tmp_path) as (reached, made):
        with pytest.raises(Invalid, match="because"):
            await reached.patch(resource, "c", patch, "ns")
        assert "PUT" not in [one.request.split()[0] for one in made.asked]


def test_reading_kubeconfigs_concurrently_restores_the_logger(caplog):
    """Whichever ends first: an error of the library is logged afterwards."""
    first, second = _keep_log("kept.example"), _keep_log("kept.example")
    logger = logging.getLogger("kept.example")
    with first as said:
        logger.error("alone")
        second.__enter__()
    second.__exit__(None, None, None)
    assert (said, caplog.messages) == (["alone"], [])
    logger.error("afterwards")
    assert caplog.messages == ["afterwards"]
