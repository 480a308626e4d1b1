"""The webhook's server answers reviews only for callers with the configured credentials."""

import asyncio
import ssl

import aiohttp
import pytest

from serving.authentication import Callers, Credentials
from tests.certs.peers import certificate, pem
from tests.webhook import tls
from tests.webhook.service.serving import JSON, REVIEW, Allowing
from webhook.service.app import WebhookApp
from webhook.service.metrics import WebhookMetrics


@pytest.fixture
async def serve():
    started = []

    async def start(credentials, **options):
        authority, leaf = tls.authority_and_leaf()
        app = WebhookApp(Allowing(), WebhookMetrics(), callers=Callers(credentials, **options))
        port = await app.start("127.0.0.1", 0, tls.server(leaf))
        started.append(app)
        return f"https://127.0.0.1:{port}", tls.client(authority)

    yield start
    for app in started:
        await app.drain(notice=0, grace=1)


async def status(url, context, path="/mutate", **headers):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        if path != "/mutate":
            async with session.get(url + path) as response:
                return response.status
        async with session.post(url + path, data=REVIEW, headers=JSON | headers) as response:
            return response.status


async def test_reviews_are_answered_only_for_callers_with_the_token(serve, tmp_path):
    file = tmp_path / "token"
    file.write_text("sesame\n")
    url, context = await serve(Credentials(token_file=str(file)), every=0.0)
    assert await status(url, context) == 401
    assert await status(url, context, Authorization="Bearer sesam") == 401
    assert await status(url, context, Authorization="Basic sesame") == 401
    assert await status(url, context, Authorization="Bearer sesame") == 200
    assert await status(url, context, "/readyz") == 200
    file.write_text("another")
    assert await status(url, context, Authorization="Bearer sesame") == 401
    file.write_text("")
    assert await status(url, context, Authorization="Bearer ") == 401


async def test_the_last_token_stays_valid_while_its_file_is_unreadable(serve, tmp_path, caplog):
    file = tmp_path / "token"
    file.write_text("sesame")
    url, context = await serve(Credentials(token_file=str(file)), every=0.0)
    file.unlink()
    for _ in range(2):
        assert await status(url, context, Authorization="Bearer sesame") == 200
        assert await status(url, context, Authorization="Bearer sesam") == 401
    assert [record.message for record in caplog.records].count("cannot read the token file; the last token stays valid") == 1  # fmt: skip
    file.write_text("another")
    assert await status(url, context, Authorization="Bearer sesame") == 401
    assert await status(url, context, Authorization="Bearer another") == 200


async def test_reviews_are_answered_only_for_callers_with_an_accepted_certificate(serve, tmp_path):
    signer = certificate("clients")
    (tmp_path / "ca.pem").write_bytes(pem(signer[0]))
    url, context = await serve(Credentials(client_ca=str(tmp_path / "ca.pem"), client_names=("kube-apiserver",)))
    assert await status(url, context) == 401
    assert await status(url, context, "/readyz") == 200
    for name, expected in (("kube-apiserver", 200), ("another-client", 401)):
        (tmp_path / "client.pem").write_bytes(pem(*certificate(name, signer)))
        context.load_cert_chain(tmp_path / "client.pem")
        assert await status(url, context) == expected
    (tmp_path / "client.pem").write_bytes(pem(*certificate("kube-apiserver", certificate("clients"))))
    context.load_cert_chain(tmp_path / "client.pem")
    # The TLS handshake refuses a certificate of another signer.
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, asyncio.TimeoutError)):
        await status(url, context)
