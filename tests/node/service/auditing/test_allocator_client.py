"""The agent's client of the allocator: trust, outages, and answers that are slow, wrong or too large."""

import asyncio
import datetime as dt
import logging
from base64 import b64encode
from socket import AF_INET, SOCK_STREAM

import pytest
from aiohttp import web

from certs import authority, reload
from cluster.resources import MUTATING_WEBHOOKS
from node.service.auditing import allocator_client
from node.service.auditing.allocator_client import AllocatorClient
from node.service.settings import AllocatorAddress
from tests.node.machines import NODE
from tests.node.service.auditing.fake_allocator import ANSWER, Allocator
from tests.webhook import tls


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.write_text("mine\n")
    return str(file)


async def ask_allocator(cluster, url, token):
    return await AllocatorClient(cluster, AllocatorAddress(url, token), NODE).ask()


async def test_each_request_has_the_current_token(cluster, token, tmp_path):
    allocator = Allocator()
    async with allocator.open() as url:
        client = AllocatorClient(cluster, AllocatorAddress(url, token), NODE)
        [reservation] = await client.ask()
        assert (reservation.claim, client.problem) == ("c", "")
        (tmp_path / "token").write_text("renewed")
        await client.ask()
        assert [request.headers["Authorization"] for request in allocator.requests] == ["Bearer mine", "Bearer renewed"]
        assert {request.path for request in allocator.requests} == {"/reservations"}


async def create_webhooks(cluster, *signers):
    """Create the webhook configuration, with a webhook for each signer of certificates."""
    hooks = [
        {"name": f"h{number}.drawbridge.dev", "clientConfig": {"caBundle": b64encode(signer.certificate).decode()}}
        for number, signer in enumerate(signers)
    ]
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    await cluster.create(MUTATING_WEBHOOKS, kind | {"metadata": {"name": "drawbridge"}, "webhooks": hooks})


async def test_the_client_trusts_the_webhooks_ca_bundle(cluster, token):
    signer, certificate = tls.authority_and_leaf("localhost")
    await create_webhooks(cluster, signer)
    async with Allocator().open(tls.server(certificate)) as url:
        assert len(await ask_allocator(cluster, url, token)) == 1
    unrelated_certificate = tls.authority_and_leaf("localhost")[1]
    other_allocator = Allocator()
    async with other_allocator.open(tls.server(unrelated_certificate)) as url:
        assert await ask_allocator(cluster, url, token) is None
        assert other_allocator.requests == [], (
            "the client sends its token to a server with the certificate of another authority"
        )
    misnamed_certificate = certificate_for_another_name(signer)
    async with other_allocator.open(tls.server(misnamed_certificate)) as url:
        assert await ask_allocator(cluster, url, token) is None
        assert other_allocator.requests == [], "the client sends its token to a server with another name"


async def test_the_client_trusts_the_ca_bundles_of_all_webhooks(cluster, token):
    """While the authority is renewed, one webhook can have its new bundle and another webhook the old one."""
    authorities = [tls.authority_and_leaf("localhost") for _ in range(2)]
    await create_webhooks(cluster, *(signer for signer, _ in authorities))
    for _, certificate in authorities:
        async with Allocator().open(tls.server(certificate)) as url:
            assert len(await ask_allocator(cluster, url, token)) == 1


def certificate_for_another_name(signer):
    return authority.leaf(signer, ("webhook.example.com",), now=dt.datetime.now(dt.UTC), life=dt.timedelta(days=1))


async def test_a_renewed_authority_is_read_after_a_failed_request(cluster, token, tmp_path):
    file = tmp_path / "ca"
    first, second = tls.authority_and_leaf("localhost"), tls.authority_and_leaf("localhost")
    file.write_bytes(first[0].certificate)
    server_context = tls.server(first[1])
    async with Allocator().open(server_context) as url:
        # `rest` is the pause after a failed request.
        client = AllocatorClient(cluster, AllocatorAddress(url, token, str(file)), NODE, rest=0.0)
        assert await client.ask() is not None
        reload.load(server_context, second[1])
        file.write_bytes(second[0].certificate)
        assert await client.ask() is None
        assert await client.ask() is not None


async def never_answer(_):
    await asyncio.Event().wait()


async def send_byte_by_byte(request):
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.01)


UNUSABLE_ANSWERS = {  # the handler, and a part of the problem that the client reports
    "no answer": (never_answer, "no answer within"),
    "one byte at a time": (send_byte_by_byte, "no answer within"),
    "no JSON": (lambda _: web.Response(body=b"\x00\xff" * 1000), "not a list of reservations"),
    "another node": (
        lambda _: web.Response(body=ANSWER.replace(NODE.encode(), b"elsewhere", 1)),
        "not about this node",
    ),
    "a redirection": (lambda _: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "302"),
    "a refusal with escape sequences": (lambda _: web.Response(status=403, body=b"\x1b[2Jno " * 200), "403"),
    "a header of 1 MiB": (lambda _: web.Response(headers={"X": "x" * (1 << 20)}), ""),
}


@pytest.mark.parametrize("name", UNUSABLE_ANSWERS)
async def test_an_unusable_answer_of_the_allocator_is_reported(cluster, token, name):
    handler, problem = UNUSABLE_ANSWERS[name]
    patience = 0.3 if "no answer" in problem else 20.0
    async with Allocator(handler).open() as url:
        client = AllocatorClient(cluster, AllocatorAddress(url, token), NODE, patience=patience)
        assert await client.ask() is None
        assert problem in client.problem
        assert 0 < len(client.problem) <= allocator_client.LONGEST
        assert client.problem.isprintable()


async def test_an_unreachable_allocator_or_unusable_token_is_reported(cluster, token, tmp_path):
    for url, token_file, problem in (
        ("http://127.0.0.1:1", token, "Cannot connect"),
        ("http://allocator.invalid:1", token, ""),
        ("http://127.0.0.1:1", str(tmp_path / "none"), "No such file"),
        ("https://127.0.0.1:1", token, "not found"),
    ):
        client = AllocatorClient(cluster, AllocatorAddress(url, token_file), NODE)
        assert await client.ask() is None
        assert client.problem
        assert problem in client.problem


async def test_begin_and_end_of_an_outage_are_logged_once(cluster, token, caplog):
    caplog.set_level(logging.INFO, "drawbridge.agent")
    allocator = Allocator(lambda _: web.Response(status=503, body=b"another replica leads"))
    async with allocator.open() as url:
        client = AllocatorClient(cluster, AllocatorAddress(url, token), NODE, rest=0.0)
        for _ in range(3):
            assert await client.ask() is None
        allocator.handler = lambda _: web.Response(body=ANSWER)
        for _ in range(3):
            assert await client.ask() is not None
    records = [record for record in caplog.records if record.name == "drawbridge.agent"]
    assert [record.levelname for record in records] == ["WARNING", "INFO"]
    assert "another replica leads" in records[0].why


async def test_a_failed_allocator_is_not_asked_during_the_pause(cluster, token):
    allocator = Allocator(lambda _: web.Response(status=503))
    async with allocator.open() as url:
        client = AllocatorClient(cluster, AllocatorAddress(url, token), NODE)
        for _ in range(3):
            assert await client.ask() is None
    assert len(allocator.requests) == 1


async def test_the_client_finds_the_leading_replica(cluster, token, monkeypatch):
    """The first replica is gone, although its address remains. The second is not the leader; the third is the leader."""
    answers = [web.Response(status=503), web.Response(body=ANSWER)]
    allocator = Allocator(lambda _: answers.pop(0))

    async def three_addresses(_, port, **__):
        return [(AF_INET, SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.9", "127.0.0.1", "0.0.0.0")]

    async with allocator.open() as url:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", three_addresses)
        assert len(await ask_allocator(cluster, url, token)) == 1
