import asyncio
import gzip
import json
from collections import Counter
from types import SimpleNamespace

import aiohttp
import pytest

from tests.webhook import tls
from webhook.admission import admission_review as reviews
from webhook.service.app import App, Limits
from webhook.service.metrics import Metrics

REVIEW = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u"}}).encode()
JSON = {"Content-Type": "application/json"}


class Allowing:
    """A gate that allows everything, and breaks on request."""

    checks = {"stock": ""}

    def __init__(self):
        self.seen = Counter()

    def mutate(self, body):
        request = reviews.decode(body)
        self.seen["mutate"] += 1
        if request.name == "bug":
            raise RuntimeError("a bug")
        refused = request.name == "late" and self.seen["mutate"] < 2
        outcome = "refused" if refused else "untouched"
        record = SimpleNamespace(mode="enforce", outcome=outcome, decisions=(), worth_telling=True)
        body = reviews.deny(request.uid, reviews.Status(message="no class")) if refused else reviews.allow(request.uid)
        return SimpleNamespace(body=body, record=record)

    validate = mutate

    def unready(self):
        return self.checks


class Running(SimpleNamespace):
    async def post(self, body=REVIEW, path="/mutate?timeout=3s", **kwargs):
        kwargs.setdefault("headers", JSON)
        async with self.session.post(f"{self.url}{path}", data=body, **kwargs) as response:
            return response.status, await response.text()

    async def get(self, path):
        async with self.session.get(f"{self.url}{path}") as response:
            return response.status, await response.text()


@pytest.fixture
async def running(request):
    authority, leaf = tls.pair()
    limits = getattr(request, "param", None) or Limits()
    gate, metrics = Allowing(), Metrics()
    app = App(gate, metrics, limits)
    port = await app.start("127.0.0.1", 0, tls.server(leaf))
    client = tls.client(authority)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client)) as session:
        yield Running(app=app, gate=gate, metrics=metrics, session=session, url=f"https://127.0.0.1:{port}", port=port, tls=client)  # fmt: skip
    await app.drain(notice=0, grace=1)


async def test_a_review_is_answered_and_counted(running):
    status, text = await running.post()
    assert (status, json.loads(text)["response"]) == (200, {"uid": "u", "allowed": True})
    count = running.metrics.registry.get_sample_value
    assert count("drawbridge_reviews_total", {"path": "/mutate", "mode": "enforce", "outcome": "untouched"}) == 1
    assert count("drawbridge_review_seconds_count", {"path": "/mutate"}) == 1


async def test_a_refusal_is_looked_at_twice_because_a_class_may_come_just_before_its_first_pod(running):
    status, text = await running.post(
        json.dumps(json.loads(REVIEW) | {"request": {"uid": "u", "name": "late"}}).encode()
    )
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)
    assert running.gate.seen["mutate"] == 2


@pytest.mark.parametrize("running", [Limits(reviews=1)], indirect=True)
async def test_a_busy_process_refuses_at_the_first_look(running):
    status, text = await running.post(
        json.dumps(json.loads(REVIEW) | {"request": {"uid": "u", "name": "late"}}).encode()
    )
    assert (status, json.loads(text)["response"]["allowed"]) == (200, False)
    assert running.gate.seen["mutate"] == 1


async def test_a_connection_serves_many_reviews(running):
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=running.tls)
    head = (
        f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(REVIEW)}\r\n\r\n"
    )
    for _ in range(3):
        writer.write(head.encode() + REVIEW)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        headers = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in headers.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()
    assert running.gate.seen["mutate"] == 3


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"body": b"{"}, 400),
        ({"body": b""}, 400),
        ({"body": REVIEW.replace(b"/v1", b"/v1beta1")}, 400),
        ({"headers": {"Content-Type": "text/plain"}}, 415),
        ({"body": gzip.compress(REVIEW), "headers": JSON | {"Content-Encoding": "gzip"}}, 415),
        ({"path": "/convert"}, 404),
        ({"path": "/livez"}, 405),
        ({"body": REVIEW.replace(b'"u"', b'"u","name":"bug"')}, 500),
    ],
)
async def test_what_is_no_review_gets_the_status_that_says_so(running, request_, status):
    assert (await running.post(**request_))[0] == status
    assert (await running.post())[0] == 200


@pytest.mark.parametrize("running", [Limits(body=1000)], indirect=True)
async def test_a_body_beyond_the_limit_is_refused_whether_its_length_is_told_or_not(running):
    async def chunks():
        for _ in range(20):
            yield b"x" * 100

    assert (await running.post(b"x" * 1001))[0] == 413
    assert (await running.post(chunks()))[0] == 413
    assert (await running.post())[0] == 200


async def until(true):
    """Let the loop run until something is so; a test that waits for nothing fails."""
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110  the product has no event for it, and needs none
            await asyncio.sleep(0.001)


async def half(running, count):
    """Connections that promise a body and never send it."""
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=running.tls)
        writer.write(
            b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        )
        await writer.drain()
        yield writer


@pytest.mark.parametrize("running", [Limits(reviews=2, deadline=30)], indirect=True)
async def test_beyond_the_limit_of_reviews_in_flight_the_answer_is_503_at_once(running):
    held = [writer async for writer in half(running, 2)]
    await until(lambda: running.app._reviews == 2)
    assert (await running.post())[0] == 503
    for writer in held:
        writer.close()
    await until(lambda: running.app._reviews == 0)
    assert (await running.post())[0] == 200


@pytest.mark.parametrize("running", [Limits(bytes=150, deadline=30)], indirect=True)
async def test_bytes_in_flight_are_bounded_too(running):
    held = [writer async for writer in half(running, 1)]
    await until(lambda: running.app._reviews == 1)
    assert (await running.post())[0] == 503
    held[0].close()


@pytest.mark.parametrize("running", [Limits(deadline=0.05)], indirect=True)
async def test_a_body_that_does_not_arrive_is_given_up_at_the_deadline(running):
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=running.tls)
    writer.write(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
    assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    writer.close()


async def test_ready_means_every_check_is_fine(running):
    assert await running.get("/readyz") == (200, "[+]stock ok\n")
    running.gate.checks = {"stock": "not read yet", "certificate": ""}
    assert await running.get("/readyz") == (503, "[-]stock: not read yet\n[+]certificate ok\n")
    assert (await running.get("/livez"))[0] == 200


async def test_plain_http_gets_no_answer(running):
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{running.port}/livez")


async def test_a_drain_says_unready_and_serves_on_while_others_notice(running):
    drain = asyncio.create_task(running.app.drain(notice=0.2, grace=2))
    await asyncio.sleep(0)
    assert (await running.get("/readyz"))[0] == 503
    for _ in range(5):
        async with running.session.post(f"{running.url}/mutate", data=REVIEW, headers=JSON) as response:
            assert response.status == 200
            assert response.headers["Connection"] == "close"
    await drain
    with pytest.raises(aiohttp.ClientConnectorError):
        await running.post()


async def test_a_review_that_is_in_flight_when_the_door_shuts_is_still_answered(running):
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=running.tls)
    head = (
        f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(REVIEW)}\r\n\r\n"
    )
    writer.write(head.encode() + REVIEW[:9])
    await until(lambda: running.app._reviews == 1)
    drain = asyncio.create_task(running.app.drain(notice=0, grace=5))
    await until(lambda: not running.app._server.is_serving())
    writer.write(REVIEW[9:])
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await drain


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x00" * 500,
        b"POST /mutate HTTP/9.9\r\n\r\n",
        b"GET " + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: -1\r\n\r\n",
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /mutate HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["zeros", "version", "long line", "negative length", "bad chunk", "many headers", "HTTP/2"],
)
async def test_rubbish_on_a_connection_hurts_nobody_else(running, rubbish, caplog):
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=running.tls)
    writer.write(rubbish)
    async with asyncio.timeout(5):
        answer = await reader.read(200)
    assert answer == b"" or answer.startswith(b"HTTP/1.")
    writer.close()
    assert (await running.post())[0] == 200


async def test_a_connection_that_is_cut_in_the_middle_of_a_review_frees_its_place(running):
    async for writer in half(running, 3):
        writer.transport.abort()
    await until(lambda: running.app._reviews == 0 and running.app._bytes == 0)
    assert (await running.post())[0] == 200
