"""The listener: a peer that comes while it closes is sent away, and none is forgotten."""

import asyncio
import gc
import os
import random
import socket
import warnings
from collections import Counter
from contextlib import suppress

import pytest
from aiohttp.streams import StreamReader

from runtime.http import Limits, Listener, connection, reading, text
from runtime.http import listener as listeners
from runtime.http.connection import ConnectionPhase, PeerConnection
from tests.limits import PATIENCE


class Unasked:
    """Answers nothing: no request gets that far here."""

    def refuse(self, head):
        raise AssertionError(head)

    def answer(self, head, body):
        raise AssertionError(head, body)


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_arrives_while_the_listener_closes_is_closed(turns):
    """However far taking the connection has come: a socket without an owner would be closed by the collector, some day."""
    gc.collect()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        listener = Listener(Unasked(), Limits(), [].append)
        port = listener.open("127.0.0.1", 0)
        guests = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.end(0.0)
        for guest in guests:
            guest.settimeout(PATIENCE)
            try:
                assert guest.recv(1) == b""
            except ConnectionResetError:
                pass
            guest.close()
        gc.collect()
    assert [str(one.message) for one in told] == []
    assert not listener.connections


async def test_only_a_stale_socket_is_replaced(tmp_path):
    """The first would go on without being found, and would not notice."""
    path = tmp_path / "s" / "listener.sock"
    first, second = (Listener(Unasked(), Limits(), [].append) for _ in range(2))
    first.open_socket(path)
    with pytest.raises(OSError, match=r"another process listens there already: .*listener\.sock"):
        second.open_socket(path)
    with socket.socket(socket.AF_UNIX) as guest:
        guest.connect(str(path))
    await first.end(0.0)
    assert path.is_socket()
    second.open_socket(path)
    await second.end(0.0)


def held():
    """Bytes of bodies that are in memory, of whatever connection."""
    gc.collect()
    parsed, collected = 0, 0
    for obj in gc.get_objects():
        if type(obj) is StreamReader:
            parsed += sum(len(piece) for piece in obj._buffer)
        elif type(obj) is PeerConnection:
            collected += len(obj._body)
    return parsed + collected


@pytest.mark.parametrize("given_up", ["for want of room", "for want of time"])
async def test_an_abandoned_body_is_freed_at_once(given_up):
    """Peers that keep sending for as long as they may would each have theirs in memory, and room is made for others meanwhile."""
    others = held()
    few, most = Limits(deadline=0.0, flush=1e9), 0
    if given_up == "for want of room":
        few, most = Limits(bytes=10_000, deadline=1e9, flush=1e9), 10_000
    listener = Listener(Friend(), few, [].append)
    port = listener.open("127.0.0.1", 0)
    guests = []
    for _ in range(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Length: 8000\r\n\r\n" + b" " * 7000)
        guests.append((reader, writer))
    for reader, _ in guests[: -1 if most else None]:
        assert (await reader.readline()).split()[1] in (b"408", b"503")
    assert held() <= others + most
    assert len(listener.connections) == 30
    await listener.end(0.0)
    for _, writer in guests:
        writer.close()


REQUEST = b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Length: 2\r\n\r\n{}"


class Friend:
    """Answers every request."""

    def refuse(self, head):
        del head

    def answer(self, head, body):
        del head, body
        return text(200, "yes")


def post(body, *more, length=None):
    """A request as an API server writes it."""
    lines = ["POST /mutate?timeout=3s HTTP/1.1", "Host: webhook", f"Content-Length: {length or len(body)}", *more]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def whole(reader):
    """The lines of an answer, the body last."""
    async with asyncio.timeout(PATIENCE):
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
        [length] = [line.partition(b": ")[2] for line in head if line.startswith(b"Content-Length")]
        return [*head, await reader.readexactly(int(length))]


class Echo(Friend):
    """Answers with what it was asked; bodies of more than a hundred bytes are refused."""

    def refuse(self, head):
        return text(413, "too large", close=True) if head.length > 100 else None

    def answer(self, head, body):
        return text(200, f"{head.method} {head.path} {head.query} {head.headers['Host']} {head.length} {body.decode()}")


async def test_a_later_request_is_read_in_any_pieces():
    listener = Listener(Echo(), Limits(), [].append)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.open("127.0.0.1", 0))
    sent = [b"a", b"bc", b"x" * 99, b"", b"d"]
    for body in sent:
        writer.write(post(body))
        head = await whole(reader)
        assert head[0] == b"HTTP/1.1 200 OK"
        assert head[-1] == f"POST /mutate timeout=3s webhook {len(body)} ".encode() + body
    request = post(b"in pieces")
    for split in (5, 60, len(request) - 3):  # within the head and within the body
        writer.write(request[:split])
        await asyncio.sleep(0.02)
        writer.write(request[split:])
        assert (await whole(reader))[-1].endswith(b" 9 in pieces")
    writer.write(post(b"", length=101))
    assert (await whole(reader))[0].startswith(b"HTTP/1.1 413 ")
    await listener.end(0.0)
    writer.close()


FOLLOWING = {
    "another path": (post(b"{}").replace(b"/mutate", b"/other"), b"POST /other timeout=3s webhook 2 {}"),
    "two at once": (post(b"{}") * 2, b"POST /mutate timeout=3s webhook 2 {}"),
    "more than its length": (post(b"{}", length=1), b"this is not a valid HTTP/1.1 request"),
    "an invalid length": (post(b"{}", length="+2"), b"this is not a valid HTTP/1.1 request"),
    "a second length": (post(b"{}", "Content-Length: 3"), b"this is not a valid HTTP/1.1 request"),
    "chunks": (post(b"{}", "Transfer-Encoding: chunked"), None),
    "no more connection": (post(b"{}", "Connection: close"), b"POST /mutate timeout=3s webhook 2 {}"),
}


@pytest.mark.parametrize("case", FOLLOWING)
async def test_a_second_request_is_read_like_the_first(case):
    second, said = FOLLOWING[case]

    async def ask(*requests):
        listener = Listener(Echo(), Limits(), [].append)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.open("127.0.0.1", 0))
        for request in requests:
            writer.write(request)
            found = await whole(reader)
        await listener.end(0.0)
        writer.close()
        return [line for line in found if not line.startswith(b"Date")]

    after = await ask(post(b"{}"), second)
    assert after == await ask(second)
    assert said is None or after[-1] == said


async def test_renewing_our_certificate_keeps_anonymous_idle_connections():
    """A POST that crosses the close would be lost; the next answer announces the close instead."""
    listener = Listener(Friend(), Limits(), [].append)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.open("127.0.0.1", 0))
    writer.write(REQUEST)
    assert b"Connection: keep-alive" in await answer(reader)
    listener.renew(None)
    writer.write(REQUEST)
    assert b"Connection: close" in await answer(reader)
    assert await reader.read() == b""
    writer.close()
    await listener.end(PATIENCE)


@pytest.mark.parametrize("asked_before", [False, True])
@pytest.mark.parametrize("going", ["end", "renew"])
async def test_an_arrived_request_is_answered_before_closing(going, asked_before):
    """No client repeats a POST for us: what came in the moment before the end would be lost."""
    listener = Listener(Friend(), Limits(), [].append)
    port = listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if asked_before:
        writer.write(REQUEST)
        assert (await answer(reader))[0] == b"HTTP/1.1 200 OK"
    else:
        await in_phase(listener, ConnectionPhase.QUIET)
    sock = writer.get_extra_info("socket")
    os.write(sock.fileno(), REQUEST)  # the loop has no turn between this and the end
    if going == "renew":
        listener.renew(None)
    ending = asyncio.create_task(listener.end(PATIENCE))
    head = await answer(reader)
    assert head[0] == b"HTTP/1.1 200 OK"
    assert b"Connection: close" in head
    await ending
    writer.close()


async def test_no_request_is_lost_during_shutdown():
    """A close that is on its way when a client writes costs the request: so none is sent while clients may still ask."""
    listener = Listener(Friend(), Limits(), [].append)
    port = listener.open("127.0.0.1", 0)
    moments = random.Random(23)
    connected = asyncio.Barrier(65)

    async def ask(at, *, asked_before):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if asked_before:
            writer.write(REQUEST)
            assert b"Connection: keep-alive" in await answer(reader)
        await connected.wait()
        await asyncio.sleep(at)
        writer.write(REQUEST)
        head = await answer(reader)
        assert head[0] == b"HTTP/1.1 200 OK"
        assert b"Connection: close" in head
        writer.close()

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for number in range(64):
            group.create_task(ask(0.05 + moments.random() / 2, asked_before=bool(number % 4)))
        await connected.wait()
        await listener.end(grace=0.0, linger=PATIENCE)
    assert not listener.connections


async def test_a_silent_client_delays_shutdown_for_a_bounded_time():
    listener = Listener(Friend(), Limits(), [].append)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.open("127.0.0.1", 0))
    await in_phase(listener, ConnectionPhase.QUIET)
    async with asyncio.timeout(PATIENCE):
        await listener.end(grace=PATIENCE, linger=0.1)
    assert await reader.read() == b""
    writer.close()


async def in_phase(listener, phase):
    """Let the loop run until the one client of a listener is so far."""
    async with asyncio.timeout(PATIENCE):
        while [one.phase for one in listener.connections] != [phase]:  # noqa: ASYNC110  the product has no event for it
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("rest", [b"}", b""], ids=["the rest comes", "the rest never comes"])
async def test_half_a_request_at_shutdown_has_the_grace_period(rest):
    listener = Listener(Friend(), Limits(), [].append)
    port = listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST[:-1])
    await in_phase(listener, ConnectionPhase.BODY)
    ending = asyncio.create_task(listener.end(PATIENCE if rest else 0.1))
    await asyncio.sleep(0)
    assert [one.phase for one in listener.connections] == [ConnectionPhase.BODY], "it is not cut at once"
    writer.write(rest)
    if rest:
        assert b"Connection: close" in await answer(reader)
    async with asyncio.timeout(PATIENCE):
        await ending
    assert not listener.connections
    writer.close()


@pytest.mark.parametrize("unseen", [False, True])
async def test_pipelined_requests_end_the_connection_after_one_answer(unseen):
    """What is behind it holds no listener open, whether the loop has seen it or the kernel has it."""
    listener = Listener(Friend(), Limits(), [].append)
    port = listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if unseen:
        await in_phase(listener, ConnectionPhase.QUIET)
        os.write(writer.get_extra_info("socket").fileno(), REQUEST * 3)
        ending = asyncio.create_task(listener.end(PATIENCE))
    else:
        writer.write(REQUEST * 3)
    assert b"Connection: close" in await answer(reader)
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionResetError):  # there was something that is never read
            assert await reader.read() == b""
        await (ending if unseen else listener.end(PATIENCE))
    assert not listener.connections
    writer.close()


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", post(b"x" * 100_000), post(b"x", "X-Long: " + "y" * 4000)]
)
async def test_the_parser_gets_at_most_one_head_at_once(monkeypatch, first):
    """It reads every request of what it gets: 9,000 in a read of 256 KiB, which held the loop for 40 ms, for each of a crowd."""
    given = []

    class Parser(connection.HttpRequestParser):
        def feed_data(self, data):
            given.append(len(data))
            return super().feed_data(data)

    monkeypatch.setattr(connection, "HttpRequestParser", Parser)
    listener = Listener(Friend(), Limits(), [].append)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.open("127.0.0.1", 0))
    await in_phase(listener, ConnectionPhase.QUIET)
    [peer] = listener.connections
    peer.data_received(first + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 9_000)
    async with asyncio.timeout(PATIENCE):
        answers = await reader.read()
    assert answers.count(b"HTTP/1.1 200 OK") == 1
    assert max(given) <= Limits().line
    assert len(given) <= 2
    writer.close()
    await listener.end(PATIENCE)


async def answer(reader):
    """The lines of one answer's head, once its body is read too."""
    async with asyncio.timeout(PATIENCE):
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len("yes"))
    return head.splitlines()


async def test_time_while_the_process_was_stopped_is_not_charged(monkeypatch):
    """Bytes that had arrived meanwhile were cut unread: an honest review, lost because the machine stood still."""
    loop = asyncio.get_running_loop()
    jump, real, swept = 0.0, loop.time, []
    monkeypatch.setattr(loop, "time", lambda: real() + jump)
    listener = Listener(Friend(), Limits(deadline=30.0), [].append)
    port = listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST[:-1])
    await in_phase(listener, ConnectionPhase.BODY)
    (connection,) = listener.connections
    sweep = connection.sweep
    monkeypatch.setattr(connection, "sweep", lambda now: (sweep(now), swept.append(now)))
    jump = 1000.0
    async with asyncio.timeout(PATIENCE):
        while not swept or swept[-1] < real() + jump - 1.0:  # noqa: ASYNC110  as above
            await asyncio.sleep(0.001)
        writer.write(REQUEST[-1:])
        assert (await answer(reader))[0] == b"HTTP/1.1 200 OK"
        await listener.end(0.0)
    writer.close()


async def closed(reader):
    """Wait until the other side has ended a connection, whatever it said before."""
    with suppress(ConnectionError):
        await reader.read()


@pytest.mark.parametrize("why", ["they are too many", "their time to read is over"])
async def test_a_connection_evicted_within_a_body_is_closed(monkeypatch, why):
    """Each held a descriptor without end, and a few hundred of one peer shut all others out."""
    soon = why == "their time to read is over"
    if not soon:
        monkeypatch.setattr(listeners, "PARTING", 2)
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
    """A request of which half is there, on a connection that has been taken."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = REQUEST.partition(b"\r\n\r\n")[0]
    writer.write(head + b"\r\nExpect: 100-continue\r\n\r\n")
    assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
    return reader, writer


def knock(port, count):
    """Connections that the kernel has taken and the loop has not seen."""
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]


async def test_of_a_crowd_many_are_taken_at_one_look(monkeypatch):
    """One a turn left the others to the kernel, which drops what it has no room for: an honest one came through after seconds."""
    looks = []
    accept = Listener._accept
    monkeypatch.setattr(Listener, "_accept", lambda own, sock: (looks.append(1), accept(own, sock)))
    listener = Listener(Unasked(), Limits(), [].append)
    guests = knock(listener.open("127.0.0.1", 0), 64)
    async with asyncio.timeout(PATIENCE):
        while len(listener.connections) < len(guests):  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
    assert len(looks) <= 4
    await listener.end(0.0)
    for guest in guests:
        guest.close()


@pytest.mark.parametrize(("handler", "answer"), [(Friend, b"yes"), (Echo, b"too large")])
async def test_a_crowd_with_large_bodies_is_read_from_in_turns(handler, answer, monkeypatch):
    """Reading what 150 peers send at once held every other connection for 0.3 s. All bodies come in the end, refused ones too."""
    now, turns, turn = 0.0, Counter(), 0
    read_on, serve = reading.PeerTransport.read_on, reading.ReadQueue._serve

    def read(own):
        nonlocal now
        now += 0.6 * reading.SHARE
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
            for asked in range(2_000):
                try:
                    guest.sendall(REQUEST)
                except OSError:
                    break
                while not gone and handler.answered <= asked:
                    await asyncio.sleep(0)
                    gone = asked > 0 and not listener.connections
                if gone:
                    break
            while listener.connections:  # noqa: ASYNC110  as above
                await asyncio.sleep(0)
        assert handler.answered * 60_000 < 32 << 20, "what the kernel holds for one connection, and one answer more"
        await listener.end(0.0)


async def test_many_simultaneous_timeouts_are_answered_in_batches(monkeypatch):
    """Three hundred answers of 408 held an honest review for a tenth of a second."""
    now, told, turns = 0.0, [], 0
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
        told.append(turns)

    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        while len(listener.connections) < 40:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        loop.call_soon(count)
        monkeypatch.setattr(listeners.PeerConnection, "sweep", sweep)
        while len(told) < 40:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
    monkeypatch.undo()
    assert max(told.count(turn) for turn in told) * 0.001 <= listeners.SWEEP_SECONDS + 0.002
    await listener.end(0.0)
    for guest in guests:
        guest.close()


@pytest.mark.linux("127.0.0.2 is an address of the loopback")
async def test_unknown_peers_are_evicted_before_a_known_idle_one():
    """An API server keeps its connections, and is idle on most."""
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
    os.write(first, REQUEST)  # the connection idle for longest goes, and the loop has no turn before the next one comes
    (stranger,) = knock(port, 1)
    listener._accept(listener._socket)
    assert (await answer(friends[0][0]))[0] == b"HTTP/1.1 200 OK"
    await closed(friends[1][0])
    await listener.end(0.0)
    stranger.close()
    for _, writer in friends:
        writer.close()
