"""The agent asks an allocator that is away, slow, a liar or a flood: it is told so once, and all else goes on."""

import asyncio
import contextlib
import datetime as dt
import json
import logging
import zlib
from base64 import b64encode
from socket import AF_INET, SOCK_STREAM

import pytest
from aiohttp import web

from certs import authority, reload
from cluster.embedded import Embedded
from cluster.resources import MUTATING_WEBHOOKS
from node.service.auditing import allocator_client
from node.service.auditing.allocator_client import AllocatorClient
from node.service.settings import AllocatorAddress
from tests.node.audit.test_reservations import answer
from tests.node.machines import NODE
from tests.webhook import tls

BOMB = zlib.compress(b" " * (8 << 20))
TRUTH = json.dumps(answer()).encode()


class Allocator:
    """The server at the address. `says` gives the answer to a request, or never."""

    def __init__(self, says=None):
        self.says = says or (lambda _: web.Response(body=TRUTH))
        self.asked = []

    async def handle(self, request):
        self.asked.append(request)
        said = self.says(request)
        return await said if asyncio.iscoroutine(said) else said

    @contextlib.asynccontextmanager
    async def open(self, context=None):
        runner = web.ServerRunner(web.Server(self.handle), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        _, port = runner.addresses[0]
        try:
            yield f"{'https' if context else 'http'}://localhost:{port}"
        finally:
            await runner.cleanup()


@pytest.fixture
async def cluster():
    made = Embedded()
    yield made
    await made.close()


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.write_text("mine\n")
    return str(file)


async def ask(cluster, url, token, **more):
    return await AllocatorClient(cluster, AllocatorAddress(url, token, **more), NODE).ask()


async def test_it_is_asked_with_the_token_of_the_moment(cluster, token, tmp_path):
    there = Allocator()
    async with there.open() as url:
        client = AllocatorClient(cluster, AllocatorAddress(url, token), NODE)
        [reservation] = await client.ask()
        assert (reservation.claim, client.problem) == ("c", "")
        (tmp_path / "token").write_text("renewed")
        await client.ask()
        assert [request.headers["Authorization"] for request in there.asked] == ["Bearer mine", "Bearer renewed"]
        assert {request.path for request in there.asked} == {"/reservations"}


async def test_it_is_believed_as_api_servers_believe_the_webhook(cluster, token):
    signer, leaf = tls.pair("localhost")
    bundle = b64encode(signer.certificate).decode()
    hook = {"name": "pods.drawbridge.dev", "clientConfig": {"caBundle": bundle}}
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    await cluster.create(MUTATING_WEBHOOKS, kind | {"metadata": {"name": "drawbridge"}, "webhooks": [hook]})
    async with Allocator().open(tls.server(leaf)) as url:
        assert len(await ask(cluster, url, token)) == 1
    another = tls.pair("localhost")[1]
    unrelated = Allocator()
    async with unrelated.open(tls.server(another)) as url:
        assert await ask(cluster, url, token) is None
        assert unrelated.asked == [], "another server is shown no token"
    elsewhere = of_another_name(signer)
    async with unrelated.open(tls.server(elsewhere)) as url:
        assert await ask(cluster, url, token) is None
        assert unrelated.asked == [], "nor is one of the same authority with another name"


def of_another_name(signer):
    return authority.leaf(signer, ("webhook.example.com",), now=dt.datetime.now(dt.UTC), life=dt.timedelta(days=1))


async def test_a_renewed_authority_is_found_after_a_question_that_failed(cluster, token, tmp_path):
    file = tmp_path / "ca"
    first, second = tls.pair("localhost"), tls.pair("localhost")
    file.write_bytes(first[0].certificate)
    shown = tls.server(first[1])
    async with Allocator().open(shown) as url:
        client = AllocatorClient(cluster, AllocatorAddress(url, token, str(file)), NODE, rest=0.0)
        assert await client.ask() is not None
        reload.load(shown, second[1])
        file.write_bytes(second[0].certificate)
        assert await client.ask() is None
        assert await client.ask() is not None


async def never(_):
    await asyncio.Event().wait()


async def drop_by_drop(request):
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.01)


async def flood(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(100):
        await response.write(b" " * (1 << 20))
    return response


async def bomb(_):
    return web.Response(body=BOMB, headers={"Content-Encoding": "deflate"})


LIES = {
    "never": (never, "no answer within"),
    "drop by drop": (drop_by_drop, "no answer within"),
    "100 MB": (flood, "more than 1048576 bytes"),
    "a bomb": (bomb, "not a list of reservations"),
    "junk": (lambda _: web.Response(body=b"\x00\xff" * 1000), "not a list of reservations"),
    "another node": (lambda _: web.Response(body=TRUTH.replace(NODE.encode(), b"elsewhere", 1)), "not about this node"),
    "a redirection": (lambda _: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "302"),
    "a refusal": (lambda _: web.Response(status=403, body=b"\x1b[2Jno " * 200), "403"),
    "headers without end": (lambda _: web.Response(headers={"X": "x" * (1 << 20)}), ""),
}


@pytest.mark.parametrize("lie", LIES)
async def test_an_unusable_answer_of_the_allocator_is_reported_as_a_problem(cluster, token, lie):
    says, words = LIES[lie]
    patience = 0.3 if "no answer" in words else 20.0
    async with Allocator(says).open() as url:
        client = AllocatorClient(cluster, AllocatorAddress(url, token), NODE, patience=patience)
        assert await client.ask() is None
        assert words in client.problem
        assert 0 < len(client.problem) <= allocator_client.LONGEST
        assert client.problem.isprintable()


async def test_an_unreachable_allocator_or_an_unusable_token_is_reported_by_cause(cluster, token, tmp_path):
    for url, file, words in (
        ("http://127.0.0.1:1", token, "Cannot connect"),
        ("http://allocator.invalid:1", token, ""),
        ("http://127.0.0.1:1", str(tmp_path / "none"), "No such file"),
        ("http://127.0.0.1:1", "/dev/zero", "holds no token"),
        ("https://127.0.0.1:1", token, "not found"),
    ):
        client = AllocatorClient(cluster, AllocatorAddress(url, file), NODE)
        assert await client.ask() is None
        assert client.problem
        assert words in client.problem


async def test_an_outage_is_logged_once_and_its_end_once(cluster, token, caplog):
    caplog.set_level(logging.INFO, "drawbridge.agent")
    there = Allocator(lambda _: web.Response(status=503, body=b"another replica leads"))
    async with there.open() as url:
        client = AllocatorClient(cluster, AllocatorAddress(url, token), NODE, rest=0.0)
        for _ in range(3):
            assert await client.ask() is None
        there.says = lambda _: web.Response(body=TRUTH)
        for _ in range(3):
            assert await client.ask() is not None
    ours = [record for record in caplog.records if record.name == "drawbridge.agent"]
    assert [record.levelname for record in ours] == ["WARNING", "INFO"]
    assert "another replica leads" in ours[0].why


async def test_an_allocator_that_failed_is_not_asked_again_for_a_while(cluster, token):
    there = Allocator(lambda _: web.Response(status=503))
    async with there.open() as url:
        client = AllocatorClient(cluster, AllocatorAddress(url, token), NODE)
        for _ in range(3):
            assert await client.ask() is None
    assert len(there.asked) == 1


async def test_of_several_replicas_the_one_that_leads_is_found(cluster, token, monkeypatch):
    """One is gone, and its address is not; one follows; one leads."""
    answers = [web.Response(status=503), web.Response(body=TRUTH)]
    there = Allocator(lambda _: answers.pop(0))

    async def all_three(_, port, **__):
        return [(AF_INET, SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.9", "127.0.0.1", "0.0.0.0")]

    async with there.open() as url:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", all_three)
        assert len(await ask(cluster, url, token)) == 1
