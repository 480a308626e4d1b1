"""Requests to an API server: paths, answers, errors and patches."""

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cluster import Apply, Merge
from cluster.errors import (
    LONGEST_RETRY_SECONDS,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)
from cluster.kubernetes import answers
from cluster.kubernetes.client import PATCH_ATTEMPTS, Kubernetes
from cluster.kubernetes.connection import Call
from cluster.kubernetes.protobuf import CONTENT_TYPE, patched
from cluster.patch import Operations
from cluster.resources import CONFIG_MAPS, RESOURCE_CLAIMS, eviction_of
from tests.cluster.conftest import eventually
from tests.cluster.kubernetes.server import EMPTY_LIST, connected, encoded_failure, follow_watch
from tests.cluster.kubernetes.test_protobuf import encoded_claim
from tests.cluster.objects import claim, config_map
from tests.cluster.peer import kubeconfig
from tests.limits import PATIENCE

ROOT = Path(__file__).parents[3]


def test_only_an_eviction_may_return_a_status_without_a_name():
    success = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
    assert answers.decode_object(success, eviction_of("p"))["status"] == "Success"
    with pytest.raises(Unavailable, match="it has no name"):
        answers.decode_object(success, CONFIG_MAPS)


@pytest.mark.parametrize(
    ("status", "body", "error_type"),
    [
        ("400 Bad Request", encoded_failure(400, "BadRequest"), BadRequest),
        ("401 Unauthorized", encoded_failure(401, "Unauthorized"), Unauthorized),
        ("403 Forbidden", encoded_failure(403, "Forbidden"), Forbidden),
        ("404 Not Found", encoded_failure(404, "NotFound"), NotFound),
        ("404 Not Found", b"404 page not found\n", NotFound),
        ("410 Gone", encoded_failure(410, "Expired"), Gone),
        ("422 Unprocessable Entity", encoded_failure(422, "Invalid"), Invalid),
        ("429 Too Many Requests", encoded_failure(429, "TooManyRequests"), Throttled),
        ("500 Internal Server Error", encoded_failure(500, "InternalError"), ApiError),
        ("502 Bad Gateway", b"<html>a proxy is sorry</html>", Unavailable),
        ("503 Service Unavailable", b"", Unavailable),
        ("504 Gateway Timeout", encoded_failure(504, "Timeout"), Unavailable),
    ],
)
async def test_an_error_status_raises_the_corresponding_exception(tmp_path, status, body, error_type):
    async with connected(lambda exchange: exchange.reply(status, body), tmp_path) as (client, _):
        with pytest.raises(ApiError) as caught:
            await client.get(CONFIG_MAPS, "a", "ns")
    assert type(caught.value) is error_type
    assert caught.value.status == int(status[:3])


async def test_a_refusal_that_arrives_in_pieces_is_read_completely(tmp_path):
    body = encoded_failure(422, "Invalid", message="why not " * 1000)
    async with connected(lambda exchange: exchange.reply_in_pieces("422 Unprocessable Entity", body), tmp_path) as (
        client,
        _,
    ):
        with pytest.raises(Invalid, match=r"^(why not )+"):
            await client.get(CONFIG_MAPS, "a", "ns")


@pytest.mark.parametrize(
    ("status", "reason", "cause"),
    [
        ("403 Forbidden", "Forbidden", "NamespaceTerminating"),
        ("429 Too Many Requests", "TooManyRequests", "StorageReadinessCheck"),
        ("500 Internal Server Error", "InternalError", "ClientRateLimited"),
        ("504 Gateway Timeout", "Timeout", "ResourceVersionTooLarge"),
    ],
)
async def test_the_error_of_a_refused_request_keeps_its_cause(tmp_path, status, reason, cause):
    body = encoded_failure(
        int(status[:3]), reason, details={"causes": [{"field": "spec.x", "message": "no", "reason": cause}]}
    )
    async with connected(lambda exchange: exchange.reply(status, body), tmp_path) as (client, _):
        with pytest.raises(ApiError) as caught:
            await client.get(CONFIG_MAPS, "a", "ns")
    assert caught.value.has_cause(cause)
    assert not caught.value.has_cause("another")
    assert caught.value.causes[0].field == "spec.x"


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry_After": "7"}, encoded_failure(429, "TooManyRequests", details={"retryAfterSeconds": 3}), 7),
        ({}, encoded_failure(429, "TooManyRequests", details={"retryAfterSeconds": 3}), 3),
        ({}, b"", 1),
        ({"Retry_After": "Fri, 31 Dec 2027 23:59:59 GMT"}, b"", 1),
        ({"Retry_After": "9" * 400}, b"", LONGEST_RETRY_SECONDS),
        ({}, encoded_failure(429, "TooManyRequests", details={"retryAfterSeconds": 10**15}), LONGEST_RETRY_SECONDS),
        ({}, encoded_failure(429, "TooManyRequests", details={"retryAfterSeconds": -7}), 0),
    ],
)
async def test_the_error_of_a_throttled_request_has_a_retry_delay(tmp_path, headers, body, seconds):
    async def answer(exchange):
        await exchange.reply("429 Too Many Requests", body, **headers)

    async with connected(answer, tmp_path) as (client, _):
        with pytest.raises(Throttled) as caught:
            await client.list(CONFIG_MAPS)
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    "data",
    [b"", b"220 smtp ready\r\n\r\n", b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"metadata":'],
    ids=["nothing", "another protocol", "a part of the answer"],
)
async def test_a_server_that_sends_no_whole_answer_is_unavailable(tmp_path, data):
    async def answer(exchange):
        await exchange.send(data)
        exchange.writer.close()

    async with connected(answer, tmp_path) as (client, _):
        with pytest.raises(Unavailable, match="connection to the API server failed"):
            await client.create(CONFIG_MAPS, config_map("a"), "ns")


async def test_a_server_that_no_longer_listens_is_unavailable(tmp_path):
    async with connected(lambda _: None, tmp_path) as (client, api_server):
        address = api_server.url
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(address))
    client = Kubernetes.connect(kubeconfig=str(path))
    with pytest.raises(Unavailable, match="connection to the API server failed"):
        await client.get(CONFIG_MAPS, "a", "ns")
    await client.close()


async def test_a_request_to_a_silent_server_times_out(tmp_path):
    async def answer(_):
        await asyncio.sleep(30)

    async with connected(answer, tmp_path) as (client, _):
        with pytest.raises(Unavailable, match="did not answer in time"):
            await client._connection.call(Call("GET", "/version"), seconds=0.1)


async def test_lists_are_requested_compressed_and_watches_uncompressed(tmp_path):
    async def answer(exchange):
        if "watch=1" in exchange.request:
            await exchange.begin()
            await exchange.end()
        else:
            await exchange.reply("200 OK", b'{"metadata":{},"items":[]}')

    async with connected(answer, tmp_path) as (client, api_server):
        await client.list(RESOURCE_CLAIMS)
        await follow_watch(client)
    assert [exchange.headers["accept-encoding"] for exchange in api_server.exchanges] == ["gzip", "identity"]


async def test_a_request_can_be_cancelled(tmp_path):
    async def answer(_):
        await asyncio.sleep(30)

    async with connected(answer, tmp_path) as (client, api_server):
        task = asyncio.ensure_future(client.get(CONFIG_MAPS, "a", "ns"))
        await eventually(lambda: asyncio.sleep(0, api_server.exchanges))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, PATIENCE)


async def test_the_client_sends_correct_paths_queries_headers_and_bodies(tmp_path):
    async with connected(lambda exchange: exchange.reply(body=msgspec.json.encode(config_map("a"))), tmp_path) as (
        client,
        api_server,
    ):
        body = {"data": {"a": "b"}}
        await client.patch(CONFIG_MAPS, "a", Merge(body), "ns", dry_run=True)
        await client.patch(CONFIG_MAPS, "a", Operations(({"op": "remove", "path": "/data"},)), "ns")
        await client.patch(CONFIG_MAPS, "a", Apply(body, "me"), "ns")
        await client.delete(CONFIG_MAPS, "a", "ns", uid="u", resource_version="7", grace=0)
        with pytest.raises(Unavailable):  # one object, where a list is expected
            await client.list(CONFIG_MAPS, labels="a in (b,c)", fields="metadata.name!=x", limit=5, more="t+/=")
    path = "/api/v1/namespaces/ns/configmaps"
    assert [exchange.request.rsplit(" ", 1)[0] for exchange in api_server.exchanges] == [
        f"PATCH {path}/a?dryRun=All",
        f"PATCH {path}/a",
        f"PATCH {path}/a?fieldManager=me&force=true",
        f"DELETE {path}/a",
        "GET /api/v1/configmaps?limit=5&labelSelector=a%20in%20(b,c)&fieldSelector=metadata.name!%3Dx&continue=t%2B/%3D",
    ]
    assert [exchange.headers["content-type"] for exchange in api_server.exchanges[:3]] == [
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
    ]
    assert msgspec.json.decode(api_server.exchanges[1].body) == [{"op": "remove", "path": "/data"}]
    assert msgspec.json.decode(api_server.exchanges[2].body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"a": "b"},
    }
    assert msgspec.json.decode(api_server.exchanges[3].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
    }
    assert {exchange.headers["authorization"] for exchange in api_server.exchanges} == {"Bearer secret"}
    assert {exchange.headers["user-agent"] for exchange in api_server.exchanges} == {"drawbridge"}


@pytest.mark.parametrize("name", [".", "..", "a/b", "a?b", "a%2Fb", "ü"])
async def test_a_name_cannot_change_the_request_path(tmp_path, name):
    async with connected(lambda exchange: exchange.reply("404 Not Found"), tmp_path) as (client, api_server):
        with pytest.raises((BadRequest, NotFound)):
            await client.get(CONFIG_MAPS, name, "ns")
    for exchange in api_server.exchanges:
        path = exchange.request.split(" ")[1]
        assert path.startswith("/api/v1/namespaces/ns/configmaps/")
        assert path.count("/") == 6
        assert "?" not in path


def test_embedded_cluster_and_runtime_do_not_import_the_http_library():
    script = (
        "import sys, cluster, cluster.embedded.embedded, cluster.informers.informer, cluster.controllers.claim_controller",
        "print(sorted({'aiohttp', 'kubernetes', 'ssl'} & set(sys.modules)))",
    )
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(script)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() in ("[]", "['ssl']")


async def test_requests_share_a_connection(tmp_path):
    body = msgspec.json.encode(config_map("a"))
    async with connected(lambda exchange: exchange.reply(body=body), tmp_path) as (client, api_server):
        for _ in range(5):
            await client.get(CONFIG_MAPS, "a", "ns")
            with pytest.raises(Unavailable):
                await client.list(RESOURCE_CLAIMS)  # the answer has no list, which does not end the connection
    assert len({id(exchange.writer) for exchange in api_server.exchanges}) == 1


async def test_a_request_uses_no_thread(tmp_path, monkeypatch):
    """The HTTP library can look up proxies and passwords in threads. On a busy machine, each switch of threads delays a request."""
    async with connected(lambda exchange: exchange.reply(body=EMPTY_LIST), tmp_path) as (client, api_server):
        await client.list(CONFIG_MAPS)

        def fail_for_thread(*_):
            raise AssertionError("the client used a thread")

        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", fail_for_thread)
        await client.list(CONFIG_MAPS)
    assert len(api_server.exchanges) == 2


def server_that_refuses_patches(update_statuses, claim_bytes=b"", immutable_fields=("spec",)):
    """Return a function that answers as a server: it refuses each patch, sends `claim_bytes`, and answers updates with these statuses.

    A real server refuses a patch if encoding the claim again would change the bytes of immutable fields.
    """
    remaining_statuses = list(update_statuses)

    async def answer(exchange):
        match exchange.request.split()[0]:
            case "PATCH":
                causes = [{"field": field, "message": "field is immutable"} for field in immutable_fields]
                await exchange.reply("422 Invalid", encoded_failure(422, "Invalid", details={"causes": causes}))
            case "GET":
                await exchange.reply("200 OK", claim_bytes)
            case _:
                status = remaining_statuses.pop(0)
                body = msgspec.json.encode(claim("c")) if status == 200 else encoded_failure(status, "Conflict")
                await exchange.reply(f"{status} Because", body)

    return answer


@pytest.mark.parametrize(("subresource", "path"), [("", "/c?"), ("status", "/c/status?")])
async def test_an_update_replaces_a_patch_that_would_reencode_the_claim(tmp_path, subresource, path):
    """The client reads the claim and writes the patched bytes to the path of the refused patch. A conflict makes the client try again."""
    patch = Merge({"metadata": {"finalizers": ["a"]}})
    async with connected(server_that_refuses_patches([409, 200], encoded_claim()), tmp_path) as (client, api_server):
        await client.patch(RESOURCE_CLAIMS, "c", patch, "ns", subresource=subresource, dry_run=True)
        requests = [exchange.request.split() for exchange in api_server.exchanges]
    assert [request[0] for request in requests] == ["PATCH", "GET", "PUT", "GET", "PUT"]
    assert requests[1][1].endswith("/namespaces/ns/resourceclaims/c")
    assert api_server.exchanges[1].headers["accept"] == api_server.exchanges[2].headers["content-type"] == CONTENT_TYPE
    assert requests[2][1].endswith(f"{path}dryRun=All")
    assert api_server.exchanges[2].body == patched(encoded_claim(), patch)


async def test_the_client_gives_up_patching_a_constantly_changing_claim(tmp_path):
    async with connected(server_that_refuses_patches([409] * 9, encoded_claim()), tmp_path) as (client, api_server):
        with pytest.raises(Conflict):
            await client.patch(RESOURCE_CLAIMS, "c", Merge({"metadata": {"finalizers": ["a"]}}), "ns")
        assert [exchange.request.split()[0] for exchange in api_server.exchanges].count("PUT") == PATCH_ATTEMPTS


@pytest.mark.parametrize(
    ("patch", "resource", "answer"),
    [
        (
            Merge({"metadata": {"finalizers": ["a"]}}),
            RESOURCE_CLAIMS,
            server_that_refuses_patches([], b'{"kind":"ResourceClaim"}'),
        ),
        (
            Merge({"metadata": {"labels": {"a": "b"}}}),
            RESOURCE_CLAIMS,
            server_that_refuses_patches([], encoded_claim()),
        ),
        (Merge({"metadata": {"finalizers": ["a"]}}), CONFIG_MAPS, server_that_refuses_patches([], encoded_claim())),
        (
            Merge({"metadata": {"finalizers": ["a"]}}),
            RESOURCE_CLAIMS,
            server_that_refuses_patches([], encoded_claim(), ["metadata"]),
        ),
    ],
    ids=["claim is not in protobuf", "patch of labels", "patch of a ConfigMap", "refusal of metadata"],
)
async def test_a_refused_patch_raises_if_no_update_can_replace_it(tmp_path, patch, resource, answer):
    async with connected(answer, tmp_path) as (client, api_server):
        with pytest.raises(Invalid, match="because"):
            await client.patch(resource, "c", patch, "ns")
        assert "PUT" not in [exchange.request.split()[0] for exchange in api_server.exchanges]
