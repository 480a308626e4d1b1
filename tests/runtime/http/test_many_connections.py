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
from tests.runtime.http.clients import REQUEST, Echo, FailingServer, YesServer, post, read_answer, read_yes_answer


async def wait_for_close(reader):
    """Wait until the server has closed a connection, and ignore what it sent before."""
    with suppress(ConnectionError):
        await reader.read()


@pytest.mark.parametrize("reason", ["too many connections leave", "time to read is over"])
async def test_a_connection_evicted_while_it_sends_is_closed(monkeypatch, reason):
    """Evicted connections once kept their descriptors, so that a few hundred connections of one peer locked out all other peers."""
    is_late = reason == "time to read is over"
    if not is_late:
        monkeypatch.setattr(listeners, "MAX_PARTING", 2)
    listener = Listener(YesServer(), Limits(peer=2, deadline=1000.0, flush=0.01 if is_late else 1000.0), [].append)
    port = listener.open("127.0.0.1", 0)
    clients = [await send_head(port) for _ in range(8)]
    async with asyncio.timeout(PATIENCE):
        # Six of the eight are evicted, because a peer may have two. Two of the six may still be leaving if their number is limited.
        for reader, _ in clients[: 6 if is_late else 4]:
            await wait_for_close(reader)
    assert len(listener.connections) == 2
    await listener.end(0.0)
    async with asyncio.timeout(PATIENCE):
        for reader, writer in clients:
            await wait_for_close(reader)
            writer.close()


async def send_head(port):
    """Send the head of a request on a new connection; return the reader and the writer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = REQUEST.partition(b"\r\n\r\n")[0]
    writer.write(head + b"\r\nExpect: 100-continue\r\n\r\n")
    assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
    return reader, writer


def connect_unaccepted(port, count):
    """Return connections that the kernel has accepted and the loop has not seen."""
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]


async def test_many_connections_are_accepted_in_few_iterations(monkeypatch):
    """With one accepted connection per iteration, the kernel dropped the others, and an honest client waited for seconds."""
    accept_calls = []
    accept = Listener._accept
    monkeypatch.setattr(Listener, "_accept", lambda self, sock: (accept_calls.append(1), accept(self, sock)))
    listener = Listener(FailingServer(), Limits(), [].append)
    clients = connect_unaccepted(listener.open("127.0.0.1", 0), 64)
    async with asyncio.timeout(PATIENCE):
        while len(listener.connections) < len(clients):  # noqa: ASYNC110  the product has no event for it
            await asyncio.sleep(0)
    assert len(accept_calls) <= 4
    await listener.end(0.0)
    for client in clients:
        client.close()


@pytest.mark.parametrize(("handler", "expected_body"), [(YesServer, b"yes"), (Echo, b"too large")])
async def test_large_bodies_of_many_clients_are_read_in_turns(handler, expected_body, monkeypatch):
    """Reading 150 bodies at once delayed every other connection by 0.3 s. All bodies are read in the end, even bodies that are refused."""
    now, turns, turn = 0.0, Counter(), 0
    read_on, serve = reading.PeerTransport.read_on, reading.ReadQueue._serve

    def counted_read(self):
        nonlocal now
        now += 0.6 * reading.READ_TURN_SECONDS
        turns[turn] += 1
        return read_on(self)

    def begin_turn(self):
        nonlocal turn
        turn += 1
        serve(self)

    monkeypatch.setattr(reading, "thread_time", lambda: now)
    monkeypatch.setattr(reading.PeerTransport, "read_on", counted_read)
    monkeypatch.setattr(reading.ReadQueue, "_serve", begin_turn)
    listener = Listener(handler(), Limits(), [].append)
    port = listener.open("127.0.0.1", 0)
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(9)]
    for _, writer in clients:
        writer.write(post(b" " * (2 << 20)))
    assert {(await read_answer(reader))[-1] for reader, _ in clients} == {expected_body}
    assert max(turns.values()) == 2  # the second read exceeds the time of a turn
    await listener.end(0.0)
    for _, writer in clients:
        writer.close()


async def test_a_client_that_never_reads_is_disconnected():
    class LongAnswers(YesServer):
        answer_count = 0

        def answer(self, _head, _body):
            self.answer_count += 1
            return text(200, "x" * 60_000)

    handler, is_disconnected = LongAnswers(), False
    listener = Listener(handler, Limits(flush=0.01), [].append)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", listener.open("127.0.0.1", 0)))
        async with asyncio.timeout(PATIENCE):
            for number in range(2_000):
                try:
                    client.sendall(REQUEST)
                except OSError:
                    break
                while not is_disconnected and handler.answer_count <= number:
                    await asyncio.sleep(0)
                    is_disconnected = number > 0 and not listener.connections
                if is_disconnected:
                    break
            while listener.connections:  # noqa: ASYNC110  as above
                await asyncio.sleep(0)
        assert handler.answer_count * 60_000 < 32 << 20, (
            "the listener answered more than the kernel holds for one connection"
        )
        await listener.end(0.0)


async def test_many_simultaneous_timeouts_are_answered_in_batches(monkeypatch):
    """300 answers with status 408 in one turn delayed an honest review by a tenth of a second. A sweep answers one connection."""
    now, sweep_turns, turns = 0.0, [], 0
    monkeypatch.setattr(listeners, "thread_time", lambda: now)
    listener = Listener(FailingServer(), Limits(), [].append)
    clients = connect_unaccepted(listener.open("127.0.0.1", 0), 40)

    def count_turn():
        nonlocal turns
        turns += 1
        loop.call_soon(count_turn)

    def sweep(_self, _now):
        nonlocal now
        now += 0.001
        sweep_turns.append(turns)

    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        while len(listener.connections) < 40:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        loop.call_soon(count_turn)
        monkeypatch.setattr(listeners.PeerConnection, "sweep", sweep)
        while len(sweep_turns) < 40:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
    monkeypatch.undo()
    assert max(sweep_turns.count(turn) for turn in sweep_turns) * 0.001 <= listeners.SWEEP_SECONDS + 0.002
    await listener.end(0.0)
    for client in clients:
        client.close()


@pytest.mark.linux("127.0.0.2 is an address of the loopback")
async def test_unknown_peers_are_evicted_before_a_known_idle_peer():
    """An API server keeps its connections, and most of them are idle."""
    listener = Listener(YesServer(), Limits(connections=8), [].append)
    port = listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
    writer.write(REQUEST)
    await read_yes_answer(reader)
    (known_connection,) = listener.connections
    known_connection.since -= 100.0
    clients = connect_unaccepted(port, 40)
    async with asyncio.timeout(PATIENCE):
        while "127.0.0.2" in listener._by_peer and len(listener._parting) + len(listener.connections) < 40:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        writer.write(REQUEST)
        assert (await read_yes_answer(reader))[0] == b"HTTP/1.1 200 OK"
    await listener.end(0.0)
    writer.close()
    for client in clients:
        client.close()


async def test_a_connection_with_an_unread_request_is_not_evicted():
    listener = Listener(YesServer(), Limits(peer=2), [].append)
    port = listener.open("127.0.0.1", 0)
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    for reader, writer in clients:
        writer.write(REQUEST)
        await read_yes_answer(reader)
    idle_socket = clients[0][1].get_extra_info("socket").fileno()
    # The request is on the connection that was idle longest. The loop has no turn to read it before the next connection.
    os.write(idle_socket, REQUEST)
    (new_client,) = connect_unaccepted(port, 1)
    listener._accept(listener._socket)
    assert (await read_yes_answer(clients[0][0]))[0] == b"HTTP/1.1 200 OK"
    await wait_for_close(clients[1][0])
    await listener.end(0.0)
    new_client.close()
    for _, writer in clients:
        writer.close()
