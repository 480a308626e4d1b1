"""Limits of the webhook's server: incomplete requests, large bodies, and waiting reviews and connections."""

import asyncio
import socket
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest

from runtime.http import Limits
from runtime.http.connection import ConnectionPhase
from tests.limits import PATIENCE
from tests.waiting import until
from tests.webhook.service.serving import HEAD, JSON, REVIEW, Running, connections_with, phases, review_of
from webhook.service.app import DecisionLimits


@pytest.mark.parametrize("running", [Limits(body=1000)], indirect=True)
async def test_a_body_beyond_the_limit_is_not_read(running):
    assert (await running.post(b"x" * 1001))[0] == 413
    assert (await running.post())[0] == 200


@asynccontextmanager
async def peer_at(running, address):
    """Yield a client with another address."""
    connector = aiohttp.TCPConnector(ssl=running.tls, local_addr=(address, 0))
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Running(session=session, url=running.url)


@pytest.mark.parametrize("running", [DecisionLimits(reviews=8, worker_seconds=1000, inline=0)], indirect=True)
@pytest.mark.linux("127.0.0.2 is an address of the loopback")
async def test_one_peer_does_not_occupy_all_waiting_places(running, tmp_path):
    running.decider.release = tmp_path / "release"
    async with peer_at(running, "127.0.0.2") as stranger:
        stranger_reviews = [asyncio.create_task(stranger.post(review_of("held", namespace=f"ns{n}"))) for n in range(9)]
        await until(lambda: sum(request.done() for request in stranger_reviews) == 3)
        assert running.app._waiting == 6  # three quarters of the 8 places
        own_review = asyncio.create_task(running.post(review_of("held", namespace="ours")))
        await until(lambda: running.app._waiting == 7)
        running.decider.release.touch()
        assert sorted([status for status, _ in await asyncio.gather(*stranger_reviews)]) == [200] * 6 + [503] * 3
        assert (await own_review)[0] == 200
    assert not running.app._waiting_of_peer


async def test_a_body_without_content_length_is_refused(running):
    async def chunks():
        yield REVIEW

    assert (await running.post(chunks()))[0] == 411
    assert (await running.post())[0] == 200


@pytest.mark.parametrize("running", [Limits(deadline=60)], indirect=True)
async def test_incomplete_requests_do_not_block_a_review(running):
    await connections_with(running, 150, HEAD + b"{")
    await until(lambda: phases(running)["BODY"] == 150)
    assert (await running.post())[0] == 200


@pytest.mark.parametrize("running", [DecisionLimits(reviews=1, inline=0, worker_seconds=30)], indirect=True)
async def test_too_many_waiting_reviews_are_answered_with_503(running, tmp_path):
    running.decider.release = tmp_path / "release"
    held_review = asyncio.create_task(running.post(review_of("held")))
    await until(lambda: running.app._waiting == 1)
    assert (await running.post())[0] == 503
    assert not held_review.done()
    running.decider.release.touch()
    assert (await held_review)[0] == 200


@pytest.mark.parametrize("running", [DecisionLimits(queue_wait=0.01, crowd=1, loop_seconds=1)], indirect=True)
async def test_a_review_in_a_long_queue_is_answered_with_503(running):
    connections = [await running.connect() for _ in range(6)]
    review = review_of("slow")
    data = HEAD.replace(b"99", str(len(review)).encode()) + review
    for _, writer in connections:
        writer.write(data)
    # Client and server share one event loop, so most reviews have arrived when the server answers the first one.
    answers = [await reader.readline() for reader, _ in connections]
    assert {line.split()[1] for line in answers} == {b"200", b"503"}


@pytest.mark.parametrize("running", [Limits(bytes=5000, deadline=30)], indirect=True)
async def test_too_many_bytes_of_bodies_drop_the_oldest_body(running):
    incomplete_request = HEAD.replace(b"99", b"4000") + b" " * 3000
    (old_connection,) = await connections_with(running, 1, incomplete_request)
    await until(lambda: running.app._listener.body_bytes == 3000)
    (new_connection,) = await connections_with(running, 1, incomplete_request)
    assert (await old_connection[0].readline()).startswith(b"HTTP/1.1 503")
    new_connection[1].write(b" " * 1000)
    assert (await new_connection[0].readline()).startswith(b"HTTP/1.1 400")
    assert running.app._listener.body_bytes == 0


@pytest.mark.parametrize("running", [Limits(bytes=5000, deadline=60)], indirect=True)
@pytest.mark.linux("127.0.0.2 is an address of the loopback")
async def test_the_dropped_body_belongs_to_the_peer_with_most_bytes(running):
    head_of_large_body = HEAD.replace(b"99", b"4000")
    reader, writer = await running.connect()
    writer.write(HEAD.replace(b"99", b"1600") + b" " * 1500)
    await until(lambda: running.app._listener.body_bytes == 1500)
    other_connections = [await running.connect("127.0.0.2") for _ in range(2)]
    other_connections[0][1].write(head_of_large_body + b" " * 3000)
    await until(lambda: running.app._listener.body_bytes == 4500)
    other_connections[1][1].write(head_of_large_body + b" " * 3000)
    assert (await other_connections[0][0].readline()).startswith(b"HTTP/1.1 503")
    writer.write(b" " * 100)
    assert (await reader.readline()).startswith(b"HTTP/1.1 400"), "the body was not read to its end"


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
    without_tls, writer = await asyncio.open_connection("127.0.0.1", running.port)
    running.writers.append(writer)
    ((quiet, _),) = await connections_with(running, 1, b"")
    ((idle, _),) = await connections_with(running, 1, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        assert (await idle.readline()).startswith(b"HTTP/1.1 200")
        for reader in (without_tls, quiet, idle):
            with suppress(ConnectionError):
                await reader.read()
    await until(lambda: not running.app._listener.connections)


@pytest.mark.parametrize("running", [Limits(connections=8, peer=100, deadline=60)], indirect=True)
async def test_reaching_the_connection_limit_locks_no_client_out(running):
    assert (await running.post())[0] == 200
    await connections_with(running, 8, HEAD + b"{")
    assert len(running.app._listener.connections) <= 8
    for _ in range(5):
        assert (await running.post())[0] == 200
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=running.tls)) as other_session,
        other_session.post(f"{running.url}/mutate", data=REVIEW, headers=JSON) as response,
    ):
        assert response.status == 200
    assert len(running.app._listener.connections) <= 8


@pytest.mark.parametrize("running", [Limits(peer=4, deadline=60)], indirect=True)
async def test_one_address_can_open_only_its_share_of_connections(running):
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
        connection.since -= 10.0  # as if it had been idle for 10 s
    ((reader, writer),) = await connections_with(running, 1, HEAD + b"{")
    await connections_with(running, 2, HEAD + b"{")
    writer.write(b" " * 98)
    assert (await reader.readline()).startswith(b"HTTP/1.1 400"), "the body was not read to its end"


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
