import asyncio
import gzip
import json
import socket
from collections import Counter
from contextlib import asynccontextmanager, suppress
from copy import copy
from functools import partial
from time import sleep
from types import SimpleNamespace
from typing import get_args

import aiohttp
import msgspec
import pytest

from runtime.http import Limits, Reply
from runtime.http.connection import ConnectionPhase
from runtime.workers import Undecided
from tests.limits import PATIENCE
from tests.waiting import until
from tests.webhook import tls
from webhook.admission import Answer, Record
from webhook.admission import admission_review as reviews
from webhook.admission import review as admission
from webhook.service.app import App, _OpenReview
from webhook.service.deciding.decider import ReviewDecider
from webhook.service.deciding.limits import DecisionLimits
from webhook.service.metrics import WebhookMetrics
from webhook.state.configuration import DEFAULT, Configuration
from webhook.state.state import State

REQUEST = {"uid": "u", "operation": "CREATE", "resource": {"resource": "pods"}}
REVIEW = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": REQUEST}).encode()
POD = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
}
ENFORCE = State(configuration=Configuration(msgspec.structs.replace(DEFAULT, mode="enforce")))
JSON = {"Content-Type": "application/json"}


def named(name, **more):
    """Return a review of a pod with this name; `Allowing` acts on the name."""
    return json.dumps(json.loads(REVIEW) | {"request": REQUEST | {"name": name} | more}).encode()


class Allowing:
    """A decider that allows every pod; some pod names make it slow, endless, late or broken."""

    checks = {"stock": ""}

    def __init__(self):
        self.seen = Counter()
        self.now = ENFORCE
        self.early = 0  # for so many checks, a template is missing

    def is_early(self, _outcome):
        self.early -= 1
        return self.early >= 0

    def state(self):
        return self.now

    def decide(self, path, body, _state, _patience):
        request = reviews.decode(body)
        self.seen[path] += 1
        if request.name == "bug":
            raise RuntimeError("a bug")
        while request.name == "endless":
            with suppress(Exception):
                sum(range(100))
        if request.name == "slow":
            sleep(0.05)
        while request.name == "held" and not self.release.exists():
            sleep(0.001)  # polls, because a worker shares no event with its parent
        refused = request.name == "late" and self.seen[path] < 2
        if refused:
            self.now = copy(ENFORCE)  # a new state, as if the missing class had been created
        outcome = "refused" if refused else "untouched"
        record = Record(path=path, uid=request.uid, mode="enforce", outcome=outcome)
        no = reviews.DenialStatus(message="no class")
        response = reviews.deny(request.uid, no) if refused else reviews.allow(request.uid)
        return Answer(response=response, record=record)

    def unready(self):
        return self.checks

    def notes(self):
        return {"objects": "pods default/x: deep", "stock": ""}


class Running(SimpleNamespace):
    async def connect(self, peer="127.0.0.1"):
        """Open a connection that is closed at the end of the test."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls, local_addr=(peer, 0))
        self.held.append(writer)
        return reader, writer

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
    asked = getattr(request, "param", None)
    kept = {"connections" if isinstance(asked, Limits) else "limits": asked}
    decider, metrics = Allowing(), WebhookMetrics()
    app = App(decider, metrics, **kept)
    port = await app.start("127.0.0.1", 0, tls.server(leaf))
    client, held = tls.client(authority), []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client)) as session:
        yield Running(app=app, decider=decider, metrics=metrics, session=session, url=f"https://127.0.0.1:{port}", port=port, tls=client, held=held)  # fmt: skip
    for writer in held:
        with suppress(AttributeError):  # early Pythons 3.11, of a transport that has ended
            writer.transport.abort()
    await app.drain(notice=0, grace=1)


async def test_an_answer_waits_for_the_template_that_its_pod_names(running):
    running.app._limits = running.app._limits._replace(second_look=3600.0)
    running.decider.early = 3
    status, text = await running.post()
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)
    assert running.decider.early == -1
    assert running.decider.seen["mutate"] == 1


async def test_an_answer_does_not_wait_forever_for_a_template(running):
    running.app._limits = running.app._limits._replace(second_look=0.05)
    running.decider.early = 1 << 60
    status, _ = await running.post()
    assert status == 200
    assert running.app._waiting == 0


EARLY = {
    "a Job's pod": ({}, True),
    "its template is there": ({"templates": ("there",)}, False),
    "a bare pod": ({"controller": "Pod"}, False),
    "another controller's": ({"controller": "PyTorchJob"}, False),
    "a dry run": ({"dry_run": True}, False),
    "it stays as it is": ({"outcome": "would translate"}, False),
}


@pytest.mark.parametrize("case", EARLY)
def test_only_pods_of_workloads_wait_for_templates(case):
    changes, early = EARLY[case]
    changes = dict(changes)
    controller = changes.pop("controller", "Job")
    record = Record(path="mutate", uid="u", outcome="translated", templates=("there", "absent"))
    follower = SimpleNamespace(state=lambda: msgspec.structs.replace(ENFORCE, templates={("ns", "there"): None}))
    record = msgspec.structs.replace(record, **changes)
    outcome = Answer(response=reviews.allow("u"), record=record, namespace="ns", controller=controller)
    assert ReviewDecider(None, follower, str).is_early(outcome) is early


def test_the_metric_of_reviews_documents_every_outcome():
    [counter] = [one for one in WebhookMetrics().registry.collect() if one.name == "drawbridge_reviews"]
    listed = counter.documentation.partition("by outcome: ")[2].partition(", or ")[0]
    assert set(listed.split(", ")) == set(get_args(admission.ReviewOutcome))


async def test_a_review_is_answered_and_counted(running):
    status, text = await running.post()
    assert (status, json.loads(text)["response"]) == (200, {"uid": "u", "allowed": True})
    count = running.metrics.registry.get_sample_value
    assert count("drawbridge_reviews_total", {"path": "/mutate", "mode": "enforce", "outcome": "untouched"}) == 1
    assert count("drawbridge_review_seconds_count", {"path": "/mutate"}) == 1


async def test_reviews_are_timed_in_less_than_a_millisecond(running, monkeypatch):
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with monkeypatch.context() as coarse:
        coarse.setattr(loop, "time", lambda: begun)
        await running.post()
    assert running.metrics.registry.get_sample_value("drawbridge_review_seconds_sum", {"path": "/mutate"}) > 0
    assert running.app.longest_hold > 0


async def test_a_refused_review_is_decided_a_second_time(running):
    status, text = await running.post(named("late"))
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)
    assert running.decider.seen["mutate"] == 2


@pytest.mark.parametrize("running", [DecisionLimits(reviews=1)], indirect=True)
async def test_a_busy_process_decides_only_once(running):
    status, text = await running.post(named("late"))
    assert (status, json.loads(text)["response"]["allowed"]) == (200, False)
    assert running.decider.seen["mutate"] == 1


async def test_a_connection_serves_many_reviews(running):
    reader, writer = await running.connect()
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
    assert running.decider.seen["mutate"] == 3


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
async def test_an_invalid_request_gets_the_matching_http_status(running, request_, status):
    assert (await running.post(**request_))[0] == status
    assert (await running.post())[0] == 200


@pytest.mark.parametrize("running", [Limits(body=1000)], indirect=True)
async def test_a_body_beyond_the_limit_is_not_read(running):
    assert (await running.post(b"x" * 1001))[0] == 413
    assert (await running.post())[0] == 200


@pytest.mark.parametrize(
    "running", [DecisionLimits(inline=0, patience=3), DecisionLimits(members=8, patience=3)], indirect=True
)
async def test_an_endless_decision_in_a_worker_is_killed_and_allowed(running):
    endless = asyncio.create_task(running.post(named("endless", namespace="theirs")))
    honest = [await running.post() for _ in range(5)]
    assert {status for status, _ in honest} == {200}
    status, text = await endless
    assert status == 200
    answer = json.loads(text)["response"]
    assert answer["allowed"]
    assert "left this pod as it is: it could not be decided in time" in answer["warnings"][0]
    assert running.app.workers["killed"] == 1


@pytest.mark.parametrize("running", [DecisionLimits(inline=0)], indirect=True)
async def test_the_timeout_warning_does_not_depend_on_the_exhausted_limit(running, monkeypatch):
    """Which limit is exceeded first depends on the load, so only the log has it."""
    answers = set()
    for short in ("it took more than 1.5 s", "the worker ended before it had decided", "too many such reviews", ""):

        async def undecided(*_, short=short, **__):
            raise Undecided(short)

        monkeypatch.setattr(running.app._pool, "decide", undecided)
        answers.add(await running.post(named("p", object=POD)))
    late = admission.mutate(named("p", object=POD), ENFORCE, impatient=lambda: True)
    [(status, text)] = answers
    assert status == 200
    assert json.loads(text)["response"]["warnings"] == json.loads(late.body)["response"]["warnings"]


@pytest.mark.parametrize("running", [DecisionLimits(inline=0, patience=30)], indirect=True)
async def test_one_namespace_does_not_occupy_all_workers(running, tmp_path):
    running.decider.release = tmp_path / "release"
    slow = [asyncio.create_task(running.post(named("held", namespace="theirs"))) for _ in range(6)]
    await until(lambda: running.app._waiting == 6)
    status, text = await running.post(named("p", namespace="ours"))
    assert (status, json.loads(text)["response"]) == (200, {"uid": "u", "allowed": True})
    assert not any(one.done() for one in slow)
    running.decider.release.touch()
    assert {status for status, _ in await asyncio.gather(*slow)} == {200}


@asynccontextmanager
async def peer_at(running, address):
    """Yield a client with another address."""
    connector = aiohttp.TCPConnector(ssl=running.tls, local_addr=(address, 0))
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Running(session=session, url=running.url)


@pytest.mark.parametrize("running", [DecisionLimits(reviews=8, patience=1000, inline=0)], indirect=True)
@pytest.mark.linux("127.0.0.2 is an address of the loopback")
async def test_one_peer_does_not_occupy_all_waiting_places(running, tmp_path):
    running.decider.release = tmp_path / "release"
    async with peer_at(running, "127.0.0.2") as stranger:
        many = [asyncio.create_task(stranger.post(named("held", namespace=f"ns{n}"))) for n in range(9)]
        await until(lambda: sum(one.done() for one in many) == 3)
        assert running.app._waiting == 6
        ours = asyncio.create_task(running.post(named("held", namespace="ours")))
        await until(lambda: running.app._waiting == 7)
        running.decider.release.touch()
        assert sorted([status for status, _ in await asyncio.gather(*many)]) == [200] * 6 + [503] * 3
        assert (await ours)[0] == 200
    assert not running.app._waiting_of_peer


async def test_a_bug_in_a_later_decision_is_answered(running, monkeypatch):
    async def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(running.app, "_decide_again", broken)
    assert (await running.post(named("late")))[0] == 500
    assert running.app._waiting == 0


async def test_a_body_without_content_length_is_refused(running):
    async def chunks():
        yield REVIEW

    assert (await running.post(chunks()))[0] == 411
    assert (await running.post())[0] == 200


def phases(running):
    return Counter(connection.phase.name for connection in running.app._listener.connections)


HEAD = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"


async def connections_with(running, count, data):
    """Open connections, and send these bytes on each."""
    held = []
    for _ in range(count):
        reader, writer = await running.connect()
        writer.write(data)
        await writer.drain()
        held.append((reader, writer))
    return held


@pytest.mark.parametrize("running", [Limits(deadline=60)], indirect=True)
async def test_incomplete_requests_do_not_block_a_review(running):
    await connections_with(running, 150, HEAD + b"{")
    await until(lambda: phases(running)["BODY"] == 150)
    assert (await running.post())[0] == 200


@pytest.mark.parametrize("running", [DecisionLimits(reviews=1, inline=0, patience=30)], indirect=True)
async def test_too_many_waiting_reviews_are_answered_with_503(running, tmp_path):
    running.decider.release = tmp_path / "release"
    held = asyncio.create_task(running.post(named("held")))
    await until(lambda: running.app._waiting == 1)
    assert (await running.post())[0] == 503
    assert not held.done()
    running.decider.release.touch()
    assert (await held)[0] == 200


@pytest.mark.parametrize("running", [DecisionLimits(line=0.01, crowd=1, hold=1)], indirect=True)
async def test_a_review_in_a_long_queue_is_answered_with_503(running):
    connections = [await running.connect() for _ in range(6)]
    review = named("slow")
    data = HEAD.replace(b"99", str(len(review)).encode()) + review
    for _, writer in connections:
        writer.write(data)
    # Client and server share one loop, so most reviews have arrived when the server answers the first one.
    answers = [await reader.readline() for reader, _ in connections]
    assert {line.split()[1] for line in answers} == {b"200", b"503"}


@pytest.mark.parametrize("running", [Limits(bytes=5000, deadline=30)], indirect=True)
async def test_too_many_bytes_of_bodies_drop_the_oldest_body(running):
    long = HEAD.replace(b"99", b"4000") + b" " * 3000
    (old,) = await connections_with(running, 1, long)
    await until(lambda: running.app._listener.body_bytes == 3000)
    (new,) = await connections_with(running, 1, long)
    assert (await old[0].readline()).startswith(b"HTTP/1.1 503")
    new[1].write(b" " * 1000)
    assert (await new[0].readline()).startswith(b"HTTP/1.1 400")
    assert running.app._listener.body_bytes == 0


@pytest.mark.parametrize("running", [Limits(bytes=5000, deadline=60)], indirect=True)
@pytest.mark.linux("127.0.0.2 is an address of the loopback")
async def test_the_dropped_body_is_of_the_peer_with_most_bytes(running):
    long = HEAD.replace(b"99", b"4000")
    reader, writer = await running.connect()
    writer.write(HEAD.replace(b"99", b"1600") + b" " * 1500)
    await until(lambda: running.app._listener.body_bytes == 1500)
    others = [await running.connect("127.0.0.2") for _ in range(2)]
    others[0][1].write(long + b" " * 3000)
    await until(lambda: running.app._listener.body_bytes == 4500)
    others[1][1].write(long + b" " * 3000)
    assert (await others[0][0].readline()).startswith(b"HTTP/1.1 503")
    writer.write(b" " * 100)
    assert (await reader.readline()).startswith(b"HTTP/1.1 400"), "its body was read to the end"


@pytest.mark.parametrize("running", [Limits(deadline=0.05, head=0.05, flush=0.05)], indirect=True)
@pytest.mark.parametrize("data", [HEAD + b"{", b"POST /mutate HTT", HEAD[:-2]], ids=["body", "line", "headers"])
async def test_an_incomplete_request_is_answered_with_408_at_the_deadline(running, data):
    ((reader, writer),) = await connections_with(running, 1, data)
    async with asyncio.timeout(PATIENCE):
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        await reader.read()
    writer.close()
    await until(lambda: not running.app._listener.connections)


@pytest.mark.parametrize("running", [Limits(deadline=0.05)], indirect=True)
async def test_a_client_that_is_still_sending_can_read_the_answer(running):
    """If the server closed a socket with unread bytes, the kernel would reset the connection, and the answer would be lost."""
    ((reader, writer),) = await connections_with(running, 1, HEAD.replace(b"99", b"5000000") + b"{")
    await until(lambda: phases(running)["CLOSED"] == 1)
    for _ in range(64):
        writer.write(b" " * 65536)
        await writer.drain()
        for _ in range(8):
            await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    writer.close()
    await until(lambda: not running.app._listener.connections)


@pytest.mark.parametrize("running", [Limits(quiet=3, idle=3, handshake=3)], indirect=True)
async def test_silent_connections_are_closed_in_every_phase(running):
    raw, writer = await asyncio.open_connection("127.0.0.1", running.port)
    running.held.append(writer)
    ((quiet, _),) = await connections_with(running, 1, b"")
    ((idle, _),) = await connections_with(running, 1, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        assert (await idle.readline()).startswith(b"HTTP/1.1 200")
        for reader in (raw, quiet, idle):
            with suppress(ConnectionError):
                await reader.read()
    await until(lambda: not running.app._listener.connections)


@pytest.mark.parametrize("running", [Limits(connections=8, peer=100, deadline=60)], indirect=True)
async def test_a_full_connection_limit_does_not_lock_other_clients_out(running):
    assert (await running.post())[0] == 200
    await connections_with(running, 8, HEAD + b"{")
    assert len(running.app._listener.connections) <= 8
    for _ in range(5):
        assert (await running.post())[0] == 200
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=running.tls)) as other,
        other.post(f"{running.url}/mutate", data=REVIEW, headers=JSON) as response,
    ):
        assert response.status == 200
    assert len(running.app._listener.connections) <= 8


@pytest.mark.parametrize("running", [Limits(peer=4, deadline=60)], indirect=True)
async def test_one_address_has_a_share_of_the_connections(running):
    await connections_with(running, 9, HEAD + b"{")
    assert len(running.app._listener.connections) <= 4
    assert (await running.post())[0] == 200


@pytest.mark.parametrize("running", [Limits(peer=4, deadline=60, head=60)], indirect=True)
async def test_idle_connections_of_an_address_make_room_for_new_ones(running):
    """After some rotations of the CA, an API server has hundreds of idle connections and opens new ones."""
    idle = await connections_with(running, 3, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    for reader, _ in idle:
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    await until(
        lambda: [connection.phase for connection in running.app._listener.connections] == [ConnectionPhase.IDLE] * 3
    )
    for connection in running.app._listener.connections:
        connection.since -= 10.0  # time has passed
    ((reader, writer),) = await connections_with(running, 1, HEAD + b"{")
    await connections_with(running, 2, HEAD + b"{")
    writer.write(b" " * 98)
    assert (await reader.readline()).startswith(b"HTTP/1.1 400"), "its body was read to the end"


async def test_accepting_continues_after_a_lack_of_descriptors(running, monkeypatch):
    failures = [OSError(24, "Too many open files")] * 3
    accept = socket.socket.accept

    def failing(listener):
        if failures:
            raise failures.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing)
    assert (await running.post())[0] == 200
    assert not failures


async def test_readyz_reports_each_check(running):
    assert await running.get("/readyz") == (200, "[+]stock ok\n")
    running.decider.checks = {"stock": "not read yet", "certificate": ""}
    assert await running.get("/readyz") == (503, "[-]stock: not read yet\n[+]certificate ok\n")
    assert (await running.get("/livez"))[0] == 200


async def test_verbose_readyz_also_lists_harmless_problems(running):
    text = "[+]stock ok\n[!]objects: pods default/x: deep\n"
    assert await running.get("/readyz?verbose") == (200, text)


async def test_plain_http_gets_no_answer(running):
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{running.port}/livez")


async def test_a_draining_webhook_is_unready_and_still_answers(running):
    drain = asyncio.create_task(running.app.drain(notice=3600, grace=2))
    await asyncio.sleep(0)
    assert (await running.get("/readyz"))[0] == 503
    for _ in range(5):
        async with running.session.post(f"{running.url}/mutate", data=REVIEW, headers=JSON) as response:
            assert response.status == 200
            assert response.headers["Connection"] == "close"
    assert not drain.done()
    drain.cancel()
    await asyncio.wait([drain])
    await running.app.drain(notice=0.01, grace=2)
    with pytest.raises(aiohttp.ClientConnectorError):
        await running.post()


async def test_an_open_review_is_answered_after_the_listener_closes(running):
    head = HEAD.replace(b"99", str(len(REVIEW)).encode())
    ((reader, writer),) = await connections_with(running, 1, head + REVIEW[:9])
    await until(lambda: phases(running)["BODY"] == 1)
    drain = asyncio.create_task(running.app.drain(notice=0, grace=5))
    await until(lambda: not running.app._listener.is_open)
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
async def test_garbage_on_one_connection_does_not_affect_other_connections(running, rubbish, caplog):
    reader, writer = await running.connect()
    writer.write(rubbish)
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read(200)
    assert answer == b"" or answer.startswith(b"HTTP/1.")
    writer.close()
    assert (await running.post())[0] == 200


async def test_an_aborted_connection_leaves_nothing_behind(running):
    for _, writer in await connections_with(running, 3, HEAD + b"{"):
        writer.transport.abort()
    await until(lambda: not running.app._listener.connections and running.app._listener.body_bytes == 0)
    assert (await running.post())[0] == 200


async def test_a_client_that_pipelines_requests_gets_only_the_first_answer(running):
    head = HEAD.replace(b"99", str(len(REVIEW)).encode())
    ((reader, writer),) = await connections_with(running, 1, (head + REVIEW) * 50)
    assert (await reader.read()).count(b"HTTP/1.1 200") == 1
    assert running.decider.seen["mutate"] == 1
    writer.close()


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length : 5\r\n",
        b"Content-Length: 99999999999999999999999999\r\n",
        b"Transfer-Encoding: identity, chunked\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"X: a\r\n b\r\nContent-Length: 5\r\n Content-Length: 6\r\n",
        b"X: " + b"x" * 20_000 + b"\r\n",
        b"X" * 20_000 + b": x\r\n",
        b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 0\r\n",
        b"Host: y\r\n",
    ],
)
async def test_an_ambiguous_request_is_refused_and_its_connection_closed(running, headers):
    data = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + headers + b"\r\nhello"
    ((reader, writer),) = await connections_with(running, 1, data + b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert answer.count(b"Content-Length: ") == 1
    assert running.decider.seen.total() == 0
    writer.close()


async def test_http_2_is_not_offered(running):
    context = running.tls
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await running.connect()
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.close()


async def test_a_peer_that_does_not_read_is_disconnected(running):
    data = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
    running.decider.checks = {"stock": "x" * 12_000_000}
    _, writer = await running.connect()
    writer.write(data)
    await until(lambda: phases(running)["CLOSED"] == 1)
    (connection,) = running.app._listener.connections
    connection.sweep(asyncio.get_running_loop().time() + running.app._listener.limits.flush + 1)
    await until(lambda: not running.app._listener.connections)
    writer.close()


async def test_expect_100_continue_is_answered(running):
    head = HEAD.replace(b"99\r\n", str(len(REVIEW)).encode() + b"\r\nExpect: 100-continue\r\n")
    ((reader, writer),) = await connections_with(running, 1, head)
    assert (await reader.readline()).startswith(b"HTTP/1.1 100")
    writer.write(REVIEW)
    await reader.readline()
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


@pytest.mark.parametrize("limits", [{}, {"patience": -1.0}], ids=["second decisions", "timeouts"])
async def test_second_decisions_and_timeouts_run_in_separate_turns(running, limits, monkeypatch):
    """Reviews that are refused at the same time wake up at the same time. Together they would delay other reviews."""
    loop, app, turn, done = asyncio.get_running_loop(), running.app, 0, []

    def count():
        nonlocal turn
        turn += 1
        counting[0] = loop.call_soon(count)

    def decide(path, *_):
        done.append(turn)
        return Answer(response=reviews.allow("u"), record=Record(path=path, uid="u", outcome="untouched"))

    counting = [loop.call_soon(count)]
    app._limits = app._limits._replace(second_look=0.0, **limits)
    monkeypatch.setattr(running.decider, "decide", decide)
    monkeypatch.setattr("webhook.service.app.answer_timeout", decide)
    first = Answer(response=reviews.allow("u"), record=Record(path="mutate", uid="u", outcome="refused"))
    decide_later = app._decide_in_worker if limits else partial(app._decide_again, refused=first, earlier_state=None)
    review = _OpenReview("mutate", REVIEW, "", loop.time(), loop.time())
    replies = await asyncio.gather(*(decide_later(review) for _ in range(8)))
    counting[0].cancel()
    assert {reply.status for reply in replies} == {200}
    assert len(done) == 8
    assert len(set(done)) == 8, "each has its own turn"


@pytest.mark.parametrize("changed", [False, True])
async def test_a_refusal_is_reconsidered_only_if_the_state_changes(running, monkeypatch, changed):
    """If the state is the same, the first refusal stands: it had more time, so its text is more complete."""
    first, second = (
        Answer(response=reviews.allow(text), record=Record(path="mutate", uid="u", outcome="refused"))
        for text in ("long", "short")
    )
    monkeypatch.setattr(running.decider, "decide", lambda *_: second)
    running.app._limits = running.app._limits._replace(second_look=0.0)
    now = asyncio.get_running_loop().time()
    review = _OpenReview("mutate", REVIEW, "", now, now)
    seen = object() if changed else running.decider.state()
    reply = await running.app._decide_again(review, first, seen)
    assert reply.body == (second if changed else first).body


@pytest.mark.parametrize("last_decision", ["the first, and the state is the same", "the second"])
@pytest.mark.parametrize("outcome", ["undecided", "refused"])
async def test_a_decision_without_enough_time_is_left_to_a_worker(running, monkeypatch, outcome, last_decision):
    """A decision that ran out of time must not replace a refusal."""
    late = Answer(response=reviews.allow("u"), record=Record(path="mutate", uid="u", outcome=outcome), is_late=True)
    monkeypatch.setattr(running.decider, "decide", lambda *_: late)
    running.app._limits = running.app._limits._replace(second_look=0.0)
    handed = []

    async def decide_in_worker(review, otherwise):
        handed.append((review, otherwise))
        return Reply(200, b"refused", "application/json")

    monkeypatch.setattr(running.app, "_decide_in_worker", decide_in_worker)
    now = asyncio.get_running_loop().time()
    review = _OpenReview("mutate", REVIEW, "", now, now)
    earlier = object() if last_decision == "the second" else running.decider.state()
    assert (await running.app._decide_again(review, late, earlier)).body == b"refused"
    assert handed == [(review, late)]


@pytest.mark.parametrize("running", [DecisionLimits(inline=0)], indirect=True)
async def test_a_worker_also_refuses_a_body_without_a_review(running):
    assert (await running.post(b"{"))[0] == 400
    assert running.app.workers["decided"] == 1
