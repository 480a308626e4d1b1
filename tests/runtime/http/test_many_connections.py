"""Many connections at once: accepting, reading in turns, timeouts and eviction."""

import asyncio
import os
import socket
from collections import Counter
from contextlib import suppress

import pytest

from runtime.http import Limits, Listener, reading, text
from runtime.http import listener as listeners
from tests.limits import PATIENCE
from tests.runtime.http.clients import REQUEST, Echo, Friend, Unasked, answer, post, whole


async def closed(reader):
    """Wait until the server has closed a connection, and ignore what it sent before."""
    with suppress(ConnectionError):
        await reader.read()


@pytest.mark.parametrize("why", ["they are too many", "their time to read is over"])
async def test_a_connection_evicted_within_a_body_is_closed(monkeypatch, why):
    """Evicted connections once kept their descriptors, so that a few hundred connections of one peer locked out all other peers."""
    soon = why == "their time to read is over"
    if not soon:
        monkeypatch.setattr(listeners, "MAX_PARTING", 2)
    listener = Listener(Friend(), Limits(peer=2, deadline=1000.0, flush=0.01 if soon else 1000.0), [].append)
    port = listener.open("127.0.0.1", 0)
    guests = [await half(port) for _ in range(8)]
    async with asyncio.timeout(PATIENCE):
        for reader, _ in guests[: 6 if soon else 4]:
            await closed(reader)
    assert len(listener.connections) == 2
    await listener.end(0.0)
    async with asyncio.timeout(PATIENCE):
        for reader, writer in guests:
            await closed(reader)
            writer.close()


async def half(port):
    """Send half a request on a new connection; return the reader and the writer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = REQUEST.partition(b"\r\n\r\n")[0]
    writer.write(head + b"\r\nExpect: 100-continue\r\n\r\n")
    assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
    return reader, writer


def knock(port, count):
    """Return connections that the kernel has accepted and the loop has not seen."""
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]


async def test_many_connections_are_accepted_in_one_iteration(monkeypatch):
    """With one accepted connection per iteration, the kernel dropped the others, and an honest client waited for seconds."""
    looks = []
    accept = Listener._accept
    monkeypatch.setattr(Listener, "_accept", lambda own, sock: (looks.append(1), accept(own, sock)))
    listener = Listener(Unasked(), Limits(), [].append)
    guests = knock(listener.open("127.0.0.1", 0), 64)
    async with asyncio.timeout(PATIENCE):
        while len(listener.connections) < len(guests):  # noqa: ASYNC110  the product has no event for it
            await asyncio.sleep(0)
    assert len(looks) <= 4
    await listener.end(0.0)
    for guest in guests:
        guest.close()


@pytest.mark.parametrize(("handler", "answer"), [(Friend, b"yes"), (Echo, b"too large")])
async def test_a_crowd_with_large_bodies_is_read_from_in_turns(handler, answer, monkeypatch):
    """Reading 150 bodies at once delayed every other connection by 0.3 s. All bodies are read in the end, even bodies that are refused."""
    now, turns, turn = 0.0, Counter(), 0
    read_on, serve = reading.PeerTransport.read_on, reading.ReadQueue._serve

    def read(own):
        nonlocal now
        now += 0.6 * reading.READ_TURN_SECONDS
        turns[turn] += 1
        return read_on(own)

    def begin(own):
        nonlocal turn
        turn += 1
        serve(own)

    monkeypatch.setattr(reading, "thread_time", lambda: now)
    monkeypatch.setattr(reading.PeerTransport, "read_on", read)
    monkeypatch.setattr(reading.ReadQueue, "_serve", begin)
    listener = Listener(handler(), Limits(), [].append)
    port = listener.open("127.0.0.1", 0)
    guests = [await asyncio.open_connection("127.0.0.1", port) for _ in range(9)]
    for _, writer in guests:
        writer.write(post(b" " * (2 << 20)))
    assert {(await whole(reader))[-1] for reader, _ in guests} == {answer}
    assert max(turns.values()) == 2
    await listener.end(0.0)
    for _, writer in guests:
        writer.close()


async def test_a_client_that_never_reads_is_disconnected():
    class Long(Friend):
        answered = 0

        def answer(self, _head, _body):
            self.answered += 1
            return text(200, "x" * 60_000)

    handler, gone = Long(), False
    listener = Listener(handler, Limits(flush=0.01), [].append)
    with socket.socket() as guest:
        guest.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        guest.connect(("127.0.0.1", listener.open("127.0.0.1", 0)))
        async with asyncio.timeout(PATIENCE):
            for number in range(2_000):
                try:
                    guest.sendall(REQUEST)
                except OSError:
                    break
                while not gone and handler.answered <= number:
                    await asyncio.sleep(0)
                    gone = number > 0 and not listener.connections
                if gone:
                    break
            while listener.connections:  # noqa: ASYNC110  as above
                await asyncio.sleep(0)
        assert handler.answered * 60_000 < 32 << 20, "what the kernel holds for one connection, and one answer more"
        await listener.end(0.0)


async def test_many_simultaneous_timeouts_are_answered_in_batches(monkeypatch):
    """300 answers with status 408 in one turn delayed an honest review by a tenth of a second. A sweep answers one connection."""
    now, answered, turns = 0.0, [], 0
    monkeypatch.setattr(listeners, "thread_time", lambda: now)
    listener = Listener(Unasked(), Limits(), [].append)
    guests = knock(listener.open("127.0.0.1", 0), 40)

    def count():
        nonlocal turns
        turns += 1
        loop.call_soon(count)

    def sweep(_self, _now):
        nonlocal now
        now += 0.001
        answered.append(turns)

    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        while len(listener.connections) < 40:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        loop.call_soon(count)
        monkeypatch.setattr(listeners.PeerConnection, "sweep", sweep)
        while len(answered) < 40:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
    monkeypatch.undo()
    assert max(answered.count(turn) for turn in answered) * 0.001 <= listeners.SWEEP_SECONDS + 0.002
    await listener.end(0.0)
    for guest in guests:
        guest.close()


@pytest.mark.linux("127.0.0.2 is an address of the loopback")
async def test_unknown_peers_are_evicted_before_a_known_idle_one():
    """An API server keeps its connections, and most of them are idle."""
    listener = Listener(Friend(), Limits(connections=8), [].append)
    port = listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
    writer.write(REQUEST)
    await answer(reader)
    (friend,) = listener.connections
    friend.since -= 100.0
    guests = knock(port, 40)
    async with asyncio.timeout(PATIENCE):
        while "127.0.0.2" in listener._by_peer and len(listener._parting) + len(listener.connections) < 40:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        writer.write(REQUEST)
        assert (await answer(reader))[0] == b"HTTP/1.1 200 OK"
    await listener.end(0.0)
    writer.close()
    for guest in guests:
        guest.close()


async def test_a_connection_with_an_unread_request_is_not_evicted():
    listener = Listener(Friend(), Limits(peer=2), [].append)
    port = listener.open("127.0.0.1", 0)
    friends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    for reader, writer in friends:
        writer.write(REQUEST)
        await answer(reader)
    first = friends[0][1].get_extra_info("socket").fileno()
    # The request is on the connection that was idle longest. The loop has no turn to read it before the next connection.
    os.write(first, REQUEST)
    (stranger,) = knock(port, 1)
    listener._accept(listener._socket)
    assert (await answer(friends[0][0]))[0] == b"HTTP/1.1 200 OK"
    await closed(friends[1][0])
    await listener.end(0.0)
    stranger.close()
    for _, writer in friends:
        writer.close()
