"""The listener: it answers requests, and limits connections, bytes and times."""

import asyncio
import socket
import sys
from collections import Counter
from contextlib import asynccontextmanager, suppress

import pytest

from serving.http import Limits, Listener, text
from serving.http import listener as listener_module
from tests.limits import PATIENCE
from tests.serving.http.clients import REQUEST, Echo, FailingServer, YesServer, post, read_answer, read_yes_answer
from tests.waiting import until


@asynccontextmanager
async def listening(handler, **limits):
    """Yield a listener, with its port and the reasons of its closures."""
    closures = Counter()
    listener = Listener(handler, Limits(**limits), lambda reason: closures.update([reason]))
    listener.port, listener.closures = listener.open("127.0.0.1", 0), closures
    try:
        yield listener
    finally:
        await listener.end(0.0)
        assert not listener.connections
        assert not listener._by_peer


async def send(listener, data, peer="127.0.0.1"):
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, local_addr=(peer, 0))
    writer.write(data)
    return reader, writer


async def wait_for_close(reader):
    """Wait until the server has closed a connection; return what it sent before."""
    received = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE):
            while part := await reader.read(1 << 16):
                received += part
    return received


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


async def test_requests_of_a_connection_are_read_in_any_pieces():
    async with listening(Echo()) as listener:
        reader, writer = await send(listener, b"")
        for body in [b"a", b"bc", b"x" * 99, b"", b"d"]:
            writer.write(post(body))
            head = await read_answer(reader)
            assert head[0] == b"HTTP/1.1 200 OK"
            assert head[-1] == f"POST /mutate timeout=3s webhook {len(body)} ".encode() + body
        request = post(b"in pieces")
        end = request.index(b"\r\n\r\n")
        for split in (5, 60, end + 1, end + 2, end + 3, end + 4, len(request) - 3):
            writer.write(request[:split])
            await asyncio.sleep(0.02)
            writer.write(request[split:])
            assert (await read_answer(reader))[-1].endswith(b" 9 in pieces")
        writer.write(post(b"", length=101))
        assert (await read_answer(reader))[0].startswith(b"HTTP/1.1 413 ")
        assert await wait_for_close(reader) == b""
        writer.close()


async def test_a_bug_while_answering_is_answered_with_500(caplog):
    class BrokenServer(YesServer):
        def answer(self, *_):
            raise RuntimeError("broken")

    async with listening(BrokenServer()) as listener:
        reader, writer = await send(listener, REQUEST)
        assert (await read_answer(reader))[0].startswith(b"HTTP/1.1 500 ")
        assert "please report it" in caplog.text
        writer.close()


# Header lines that two servers might read in different ways.
AMBIGUOUS = (
    b"Content-Length: 5\r\nContent-Length: 6",
    b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    b"Content-Length: +5",
    b"Content-Length: -1",
    b"Content-Length: 5, 5",
    b"Content-Length: 0x5",
    b"Content-Length : 5",
    b"Content-Length: 99999999999999999999999999",
    b"Transfer-Encoding: identity, chunked",
    b"Transfer-Encoding:\x0bchunked",
    b"X: a\r\n b\r\nContent-Length: 5\r\n Content-Length: 6",
    b"X" * 20_000 + b": x",
    b"Host: y",
)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        *((b"POST / HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n\r\nhello", b"400") for headers in AMBIGUOUS),
        (b"\x00" * 500, b"400"),
        (b"GET " + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", b"505"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", b"400"),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),
        (post(b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"") + b"0\r\n\r\n", b"411"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 100 + b"\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 10_000 + b"\r\n\r\n", b"400"),
    ],
)
async def test_ambiguous_requests_other_protocols_and_long_heads_are_refused(request_, status, caplog):
    async with listening(YesServer()) as listener:
        reader, writer = await send(listener, request_ + (b"" if status == b"505" else REQUEST))
        answers = await wait_for_close(reader)
        assert answers.split()[1] == status
        assert answers.count(b"\r\nDate: ") == 1, "the request behind the refused one was answered too"
        assert not caplog.records, "an attacker can fill the log"
        writer.close()


@pytest.mark.parametrize("data", [b"", b"POST /mutate HTT", REQUEST[:-1]], ids=["nothing", "head", "body"])
async def test_a_connection_without_a_complete_request_is_aborted_at_the_deadline(data):
    async with listening(YesServer(), deadline=0.1, quiet=0.1) as listener:
        reader, writer = await send(listener, data)
        assert await wait_for_close(reader) == b""
        assert listener.closures == {"deadline": 1}
        writer.close()


async def test_a_byte_at_a_time_does_not_extend_the_deadline():
    async with listening(YesServer(), deadline=0.3) as listener:
        reader, writer = await send(listener, REQUEST[:1])
        for byte in REQUEST[1:-1]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)
            if reader.at_eof() or reader.exception():
                break
        assert await wait_for_close(reader) == b""
        writer.close()


async def test_an_idle_connection_is_closed():
    async with listening(YesServer(), idle=0.1) as listener:
        reader, writer = await send(listener, REQUEST)
        assert (await read_yes_answer(reader))[0] == b"HTTP/1.1 200 OK"
        assert await wait_for_close(reader) == b""
        writer.close()


async def test_a_slow_answer_has_no_deadline():
    class SlowServer(YesServer):
        async def answer(self, head, body):
            await asyncio.sleep(2.5)
            return YesServer.answer(self, head, body)

    async with listening(SlowServer(), deadline=2, quiet=2, flush=2) as listener:
        reader, writer = await send(listener, REQUEST)
        assert (await read_yes_answer(reader))[0] == b"HTTP/1.1 200 OK"
        writer.close()


@pytest.mark.parametrize("pause_answer", [True, False], ids=["the handler works", "the answer is written"])
async def test_a_peer_that_disconnects_leaves_nothing_behind(pause_answer):
    class SlowServer(YesServer):
        async def answer(self, *_):
            await may_answer.wait()
            return text(200, "x" * 10_000_000)

    may_answer = asyncio.Event()
    async with listening(SlowServer()) as listener:
        _, writer = await send(listener, post(b" " * 100_000))
        await until(lambda: listener._body_bytes == 100_000)
        if not pause_answer:
            may_answer.set()
        writer.transport.abort()
        await until(lambda: not listener.connections)
        assert listener._body_bytes == (100_000 if pause_answer else 0), "the body is in memory until it is answered"
        may_answer.set()
        await until(lambda: not listener._body_bytes)


async def test_a_client_that_never_reads_is_disconnected():
    class LongAnswers(YesServer):
        def answer(self, _head, _body):
            return text(200, "x" * 10_000_000)

    async with listening(LongAnswers(), flush=0.1) as listener:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", listener.port))
            client.sendall(REQUEST)
            await until(lambda: listener.closures == {"deadline": 1} and not listener.connections)


async def test_large_bodies_beyond_the_limit_of_bytes_are_refused_and_small_ones_are_not():
    async with listening(YesServer(), bytes=250_000) as listener:
        unfinished = [await send(listener, post(b" " * 100_000)[:-1]) for _ in range(2)]
        await until(lambda: listener._body_bytes == 200_000)
        refused, writer = await send(listener, post(b" " * 100_000))
        assert (await read_answer(refused))[0].startswith(b"HTTP/1.1 503 ")
        assert listener.closures == {"bytes": 1}
        small, small_writer = await send(listener, post(b" " * 60_000))
        assert (await read_yes_answer(small))[0] == b"HTTP/1.1 200 OK"
        for reader, unfinished_writer in unfinished:
            unfinished_writer.write(b" ")
            assert (await read_yes_answer(reader))[0] == b"HTTP/1.1 200 OK"
        assert not listener._body_bytes
        for open_writer in (writer, small_writer, *(peer for _, peer in unfinished)):
            open_writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of the loopback")
@pytest.mark.parametrize("limits", [{"connections": 8}, {"peer": 8}])
async def test_a_new_connection_replaces_the_one_that_has_waited_longest_for_a_request(limits):
    """After some rotations of the CA, an API server has hundreds of idle connections and opens new ones."""
    async with listening(YesServer(), **limits) as listener:
        others = [await send(listener, b"") for _ in range(7)]
        kept, kept_writer = await send(listener, REQUEST)
        await read_yes_answer(kept)
        others += [await send(listener, REQUEST[:-1]) for _ in range(5)]
        for reader, _ in others[:5]:
            assert await wait_for_close(reader) == b""
        assert len(listener.connections) == 8
        kept_writer.write(REQUEST)
        assert (await read_yes_answer(kept))[0] == b"HTTP/1.1 200 OK"
        for _, writer in [*others, (kept, kept_writer)]:
            writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of the loopback")
async def test_one_address_has_only_its_share_of_connections():
    async with listening(YesServer(), peer=4, connections=6) as listener:
        stranger, stranger_writer = await send(listener, b"", "127.0.0.2")
        await until(lambda: len(listener.connections) == 1)
        others = [await send(listener, b"") for _ in range(40)]
        await until(lambda: listener.closures == {"peer": 36})
        stranger_writer.write(REQUEST)
        assert (await read_yes_answer(stranger))[0] == b"HTTP/1.1 200 OK"
        for _, writer in [*others, (stranger, stranger_writer)]:
            writer.close()


async def test_a_connection_whose_request_is_being_answered_is_never_replaced():
    class SlowServer(YesServer):
        async def answer(self, head, body):
            await may_answer.wait()
            return YesServer.answer(self, head, body)

    may_answer = asyncio.Event()
    async with listening(SlowServer(), connections=2) as listener:
        answering = [await send(listener, REQUEST) for _ in range(2)]
        await until(lambda: all(connection.is_answering for connection in listener.connections))
        refused, writer = await send(listener, b"")
        assert await wait_for_close(refused) == b""
        may_answer.set()
        for reader, _ in answering:
            assert (await read_yes_answer(reader))[0] == b"HTTP/1.1 200 OK"
        for _, open_writer in [*answering, (refused, writer)]:
            open_writer.close()


async def test_accepting_continues_after_a_lack_of_descriptors(monkeypatch):
    failures = [OSError(24, "Too many open files")] * 3
    accept = socket.socket.accept

    def failing(listener):
        if failures:
            raise failures.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing)
    async with listening(YesServer()) as listener:
        reader, writer = await send(listener, REQUEST)
        assert (await read_yes_answer(reader))[0] == b"HTTP/1.1 200 OK"
        assert not failures
        writer.close()


async def test_time_while_the_process_was_stopped_is_not_charged(monkeypatch):
    """Otherwise a deadline would drop bytes that arrived while the machine was paused."""
    loop = asyncio.get_running_loop()
    pause_seconds, real_time = 0.0, loop.time
    monkeypatch.setattr(loop, "time", lambda: real_time() + pause_seconds)
    async with listening(YesServer(), deadline=30.0) as listener:
        reader, writer = await send(listener, REQUEST[:-1])
        await until(lambda: [connection.is_waiting for connection in listener.connections] == [False])
        (connection,) = listener.connections
        due = connection.due
        pause_seconds = 1000.0
        await until(lambda: connection.due > due)
        writer.write(REQUEST[-1:])
        assert (await read_yes_answer(reader))[0] == b"HTTP/1.1 200 OK"
        writer.close()


async def test_time_that_the_process_used_extends_no_deadline(monkeypatch):
    """Otherwise clients that keep the process busy extend their own deadlines."""
    loop = asyncio.get_running_loop()
    busy_seconds, real_time = 0.0, loop.time
    monkeypatch.setattr(loop, "time", lambda: real_time() + busy_seconds)
    monkeypatch.setattr(listener_module, "thread_time", lambda: busy_seconds, raising=False)
    async with listening(YesServer(), deadline=500.0) as listener:
        reader, writer = await send(listener, REQUEST[:-1])
        await until(lambda: [connection.is_waiting for connection in listener.connections] == [False])
        busy_seconds = 1000.0
        assert await wait_for_close(reader) == b""
        assert listener.closures == {"deadline": 1}
        writer.close()
