"""The listener: reading requests, and the memory and time that each connection takes."""

import asyncio
import contextlib
import gc
import os
import socket
from contextlib import suppress

import pytest

from runtime.http import Limits, Listener, connection
from runtime.http.connection import END_OF_HEAD, ConnectionPhase, PeerConnection
from tests.limits import PATIENCE
from tests.runtime.http.clients import (
    REQUEST,
    Echo,
    FailingServer,
    YesServer,
    post,
    read_answer,
    read_yes_answer,
    wait_for_phase,
)
from tests.waiting import until


async def test_only_a_stale_socket_is_replaced(tmp_path):
    """Otherwise the first process would keep running on a socket that no client finds."""
    path = tmp_path / "s" / "listener.sock"
    first, second = (Listener(FailingServer(), Limits(), [].append) for _ in range(2))
    first.open_socket(path)
    with pytest.raises(OSError, match=r"another process listens there already: .*listener\.sock"):
        second.open_socket(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    await first.end(0.0)
    assert path.is_socket()
    second.open_socket(path)
    await second.end(0.0)


def body_bytes_in_memory():
    """Return the bytes of bodies in memory, over all connections."""
    gc.collect()
    return sum(len(obj._buffer) for obj in gc.get_objects() if type(obj) is PeerConnection)


@pytest.mark.parametrize("reason", ["too many bytes", "too much time"])
async def test_a_body_that_the_listener_abandons_is_freed_at_once(reason):
    """Otherwise each of many peers that keep sending would keep a body in memory."""
    bytes_before = body_bytes_in_memory()
    limits, max_bytes = Limits(deadline=0.0, flush=1e9), 0
    if reason == "too many bytes":
        limits, max_bytes = Limits(bytes=10_000, deadline=1e9, flush=1e9), 10_000
    listener = Listener(YesServer(), limits, [].append)
    port = listener.open("127.0.0.1", 0)
    clients = []
    for _ in range(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Length: 8000\r\n\r\n" + b" " * 7000)
        clients.append((reader, writer))
    # If the bytes are limited, there is room for one body, whose client gets no answer.
    for reader, _ in clients[: -1 if max_bytes else None]:
        assert (await reader.readline()).split()[1] in (b"408", b"503")
    assert body_bytes_in_memory() <= bytes_before + max_bytes
    assert len(listener.connections) == 30
    await listener.end(0.0)
    for _, writer in clients:
        writer.close()


async def test_a_body_counts_until_its_request_is_answered():
    """Reviews wait for workers. Until then their bodies are in memory, even if the peer closes its connection."""

    class SlowServer(YesServer):
        async def answer(self, head, body):
            await may_answer.wait()
            return YesServer.answer(self, head, body)

    may_answer = asyncio.Event()
    listener = Listener(SlowServer(), Limits(), [].append)
    port = listener.open("127.0.0.1", 0)
    peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    for _, writer in peers:
        writer.write(post(b" " * 50_000))
    await until(lambda: listener.body_bytes == 100_000 and len(listener._tasks) == 2)
    peers[0][1].close()
    await until(lambda: len(listener.connections) == 1)
    assert listener.body_bytes == 100_000
    may_answer.set()
    assert (await read_answer(peers[1][0]))[0].endswith(b"200 OK")
    await until(lambda: not listener.body_bytes)
    peers[1][1].close()
    await listener.end(0.0)


async def test_a_body_is_not_counted_after_a_bug_while_answering():
    class BrokenServer(YesServer):
        def answer(self, head, body):
            del head, body
            raise RuntimeError("a bug")

    listener = Listener(BrokenServer(), Limits(), [].append)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.open("127.0.0.1", 0))
    writer.write(post(b" " * 50_000))
    with contextlib.suppress(ConnectionResetError):
        await asyncio.wait_for(reader.read(), PATIENCE)
    await until(lambda: not listener.connections)
    assert listener.body_bytes == 0
    writer.close()
    await listener.end(0.0)


async def test_a_later_request_is_read_in_any_pieces():
    listener = Listener(Echo(), Limits(), [].append)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.open("127.0.0.1", 0))
    bodies = [b"a", b"bc", b"x" * 99, b"", b"d"]
    for body in bodies:
        writer.write(post(body))
        head = await read_answer(reader)
        assert head[0] == b"HTTP/1.1 200 OK"
        assert head[-1] == f"POST /mutate timeout=3s webhook {len(body)} ".encode() + body
    request = post(b"in pieces")
    end = request.index(END_OF_HEAD)
    # Positions within the head, within the end of the head, and within the body.
    for split in (5, 60, end + 1, end + 2, end + 3, end + 4, len(request) - 3):
        writer.write(request[:split])
        await asyncio.sleep(0.02)
        writer.write(request[split:])
        assert (await read_answer(reader))[-1].endswith(b" 9 in pieces")
    writer.write(post(b"", length=101))
    assert (await read_answer(reader))[0].startswith(b"HTTP/1.1 413 ")
    await listener.end(0.0)
    writer.close()


SECOND_REQUESTS = {
    "another path": (post(b"{}").replace(b"/mutate", b"/other"), b"POST /other timeout=3s webhook 2 {}"),
    "two requests at once": (post(b"{}") * 2, b"POST /mutate timeout=3s webhook 2 {}"),
    "a body longer than its header says": (post(b"{}", length=1), b"POST /mutate timeout=3s webhook 1 {"),
    "an invalid length": (post(b"{}", length="+2"), b"this is not a valid HTTP/1.1 request"),
    "two different lengths": (post(b"{}", "Content-Length: 3"), b"this is not a valid HTTP/1.1 request"),
    "a chunked body": (post(b"{}", "Transfer-Encoding: chunked"), None),
    "a header that closes the connection": (post(b"{}", "Connection: close"), b"POST /mutate timeout=3s webhook 2 {}"),
}


@pytest.mark.parametrize("case", SECOND_REQUESTS)
async def test_a_second_request_is_read_like_the_first(case):
    second, expected = SECOND_REQUESTS[case]

    async def ask(*requests):
        listener = Listener(Echo(), Limits(), [].append)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.open("127.0.0.1", 0))
        for request in requests:
            writer.write(request)
            received = await read_answer(reader)
        await listener.end(0.0)
        writer.close()
        return [line for line in received if not line.startswith(b"Date")]

    answer_to_second = await ask(post(b"{}"), second)
    assert answer_to_second == await ask(second)
    assert expected is None or answer_to_second[-1] == expected


@pytest.mark.parametrize("is_unread", [False, True], ids=["read by the loop", "unread"])
async def test_pipelined_requests_end_the_connection_after_one_answer(is_unread):
    """Later requests do not keep the listener open, whether the loop has read them or not."""
    listener = Listener(YesServer(), Limits(), [].append)
    port = listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if is_unread:
        await wait_for_phase(listener, ConnectionPhase.QUIET)
        os.write(writer.get_extra_info("socket").fileno(), REQUEST * 3)
        ending = asyncio.create_task(listener.end(PATIENCE))
    else:
        writer.write(REQUEST * 3)
    assert b"Connection: close" in await read_yes_answer(reader)
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionResetError):  # the listener leaves bytes unread
            assert await reader.read() == b""
        await (ending if is_unread else listener.end(PATIENCE))
    assert not listener.connections
    writer.close()


@pytest.mark.parametrize(
    "first_request", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", post(b"x" * 100_000), post(b"x", "X-Long: " + "y" * 4000)]
)
async def test_the_parser_gets_only_the_head_of_one_request(monkeypatch, first_request):
    """The parser reads every request that it gets: 9,000 requests in 256 KiB delayed the loop by 40 ms for each connection."""
    parsed_lengths = []

    class Parser(connection.HttpRequestParser):
        def feed_data(self, data):
            parsed_lengths.append(len(data))
            return super().feed_data(data)

    monkeypatch.setattr(connection, "HttpRequestParser", Parser)
    listener = Listener(YesServer(), Limits(), [].append)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.open("127.0.0.1", 0))
    await wait_for_phase(listener, ConnectionPhase.QUIET)
    [peer] = listener.connections
    peer.data_received(first_request + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 9_000)
    async with asyncio.timeout(PATIENCE):
        answers = await reader.read()
    assert answers.count(b"HTTP/1.1 200 OK") == 1
    assert parsed_lengths == [first_request.index(END_OF_HEAD) + len(END_OF_HEAD)]
    writer.close()
    await listener.end(PATIENCE)


async def test_time_while_the_process_was_stopped_is_not_charged(monkeypatch):
    """Otherwise a sweep, which closes connections that exceed their time, would drop bytes that arrived while the machine was paused."""
    loop = asyncio.get_running_loop()
    pause_seconds, real_time, swept_at = 0.0, loop.time, []
    monkeypatch.setattr(loop, "time", lambda: real_time() + pause_seconds)
    listener = Listener(YesServer(), Limits(deadline=30.0), [].append)
    port = listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST[:-1])
    await wait_for_phase(listener, ConnectionPhase.BODY)
    (peer,) = listener.connections
    sweep = peer.sweep
    monkeypatch.setattr(peer, "sweep", lambda now: (sweep(now), swept_at.append(now)))
    pause_seconds = 1000.0
    async with asyncio.timeout(PATIENCE):
        while not swept_at or swept_at[-1] < real_time() + pause_seconds - 1.0:  # noqa: ASYNC110  the product has no event for it
            await asyncio.sleep(0.001)
        writer.write(REQUEST[-1:])
        assert (await read_yes_answer(reader))[0] == b"HTTP/1.1 200 OK"
        await listener.end(0.0)
    writer.close()
