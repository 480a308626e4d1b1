"""TLS records of any size: an iteration of the loop decrypts few records, and a connection with too many small records is closed."""

import asyncio
import gc
import ssl
from contextlib import asynccontextmanager, suppress
from itertools import count

import pytest

from bench.webhook.attacks import Sealer, Target, connect
from runtime.http import Limits, Listener, reading, text
from runtime.http.connection import PeerConnection
from tests.certs.peers import certificate, pem
from tests.limits import PATIENCE
from tests.webhook import tls

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


class Friend:
    """A server that answers every request with the length of its body."""

    def refuse(self, _head):
        return None

    def answer(self, _head, body):
        return text(200, str(len(body)))


class Decrypted:
    """Counts the records that the server's side decrypts: all records so far, and the records in each turn of the loop."""

    def __init__(self, monkeypatch):
        self.all, self.by_turn, self._turn = 0, [0], 0
        read = ssl.SSLObject.read

        def counted(own, *how):
            data = read(own, *how)
            if own.server_side:
                self.all += 1
                self.by_turn[-1] += 1
            return data

        monkeypatch.setattr(ssl.SSLObject, "read", counted)

    def follow(self):
        """From now on, begin a new count in each turn of the loop."""
        self.by_turn = [0]
        self._begin()

    def _begin(self):
        self.by_turn.append(0)
        self._next = asyncio.get_running_loop().call_soon(self._begin)

    def end(self):
        self._next.cancel()


@asynccontextmanager
async def listening(*, client_ca=b""):
    """Run a listener with TLS; yield its port, a context for clients, and the reasons why the listener closed connections."""
    signer, leaf = tls.authority_and_leaf()
    context, refused = tls.server(leaf), []
    if client_ca:
        context.load_verify_locations(cadata=client_ca.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
    listener = Listener(Friend(), Limits(), refused.append)
    port = listener.open("127.0.0.1", 0, context)
    try:
        async with asyncio.timeout(PATIENCE):
            yield port, tls.client(signer), refused
    finally:
        await listener.end(0.0)


async def ask(reader, writer, pieces):
    """Send a request whose body has one record of each of these sizes; return the body of the answer."""
    writer.write(HEAD % sum(pieces))
    for size in pieces:
        writer.write(b" " * size)
    await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(len(str(sum(pieces))))


async def test_one_byte_records_end_only_their_own_connection(monkeypatch):
    """OpenSSL once decrypted all arrived bytes, 12,000 records in 100 ms, before any other connection was read."""
    decrypted, clock = Decrypted(monkeypatch), count(0.0, reading.READ_TURN_SECONDS / 3)
    monkeypatch.setattr(reading, "thread_time", lambda: next(clock))
    async with listening() as (port, trusting, refused):
        hostile = [await asyncio.open_connection("127.0.0.1", port, ssl=trusting) for _ in range(4)]
        honest = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        for _, writer in hostile:
            writer.write(HEAD % 1_000_000)
            for _ in range(2_000):
                writer.write(b" ")
        before = decrypted.all
        decrypted.follow()
        assert await ask(*honest, [2]) == b"2"
        assert decrypted.all - before <= 5 * (reading.FREE_RECORDS + 3 * reading.RECORDS)
        for reader, writer in hostile:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        decrypted.end()
        assert max(decrypted.by_turn) <= 4 * reading.RECORDS
        assert decrypted.all - before <= 4 * (reading.MAX_SMALL + reading.RECORDS) + 3
        assert refused == ["records"] * 4
        assert await ask(*honest, [2]) == b"2"
        honest[1].close()


async def test_wasteful_connections_are_read_from_one_at_a_time(monkeypatch):
    """Eight records of each of a thousand connections would take a tenth of a second."""
    decrypted = Decrypted(monkeypatch)
    async with listening() as (port, trusting, _):
        hostile = [await asyncio.open_connection("127.0.0.1", port, ssl=trusting) for _ in range(6)]
        for _, writer in hostile:
            writer.write(HEAD % 1_000_000)
            for _ in range(reading.FREE_RECORDS + reading.RECORDS):
                writer.write(b" ")
        while decrypted.all < 6 * (1 + reading.FREE_RECORDS + reading.RECORDS):  # noqa: ASYNC110  the product has no event for it, and needs none
            await asyncio.sleep(0)
        decrypted.follow()
        for _, writer in hostile:
            for _ in range(100):
                writer.write(b" ")
        while decrypted.all < 6 * 100:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        decrypted.end()
        assert max(decrypted.by_turn) <= reading.RECORDS
        for _, writer in hostile:
            writer.transport.abort()


async def test_key_updates_are_records_too():
    """OpenSSL handles all of its input in one call and answers each KeyUpdate with a record."""
    async with listening() as (port, _, refused):
        sock, sealer = await connect(Target(("127.0.0.1", port), 0.0, ()), "127.0.0.1")
        with sock:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, b"".join([Sealer.update_key(sealer) for _ in range(1_000)]))
            received = 0
            with suppress(ConnectionError):
                while data := await loop.sock_recv(sock, 1 << 16):
                    received += len(data)
    assert refused == ["records"]
    assert received <= 40 * (reading.MAX_SMALL + reading.RECORDS)


@pytest.mark.parametrize(
    "pieces",
    [
        [1] * (reading.FREE_RECORDS - 1),  # a client that writes a little at a time
        [1200] * 600,  # the first records of a Go client
        [7 << 20],
    ],
    ids=["few", "as Go", "large"],
)
async def test_records_of_clients_that_fill_them_are_all_read(pieces):
    async with listening() as (port, trusting, refused):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        for _ in range(3):
            assert await ask(reader, writer, pieces) == b"%d" % sum(pieces)
        writer.close()
    assert not refused


async def test_small_requests_on_one_connection_are_each_counted_alone():
    async with listening() as (port, trusting, refused):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        for _ in range(reading.MAX_SMALL):
            assert await ask(reader, writer, [2]) == b"2"
        writer.close()
    assert not refused


@pytest.mark.parametrize(("number", "is_served"), [(4, True), (100, False)])
async def test_a_chain_of_many_certificates_is_not_verified(tmp_path, number, is_served):
    """OpenSSL accepts 100 KiB of certificates and spends 40 ms of CPU on a chain that the authority did not sign."""
    clients = certificate("clients")
    made, key = certificate("peer", clients)
    (tmp_path / "chain.pem").write_bytes(pem(made, key) + pem(clients[0]) * (number - 1))
    async with listening(client_ca=pem(clients[0])) as (port, trusting, refused):
        trusting.load_cert_chain(tmp_path / "chain.pem")
        received = b""
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
            received = await ask(reader, writer, [2])
            writer.close()
    assert (received, refused) == ((b"2", []) if is_served else (b"", ["handshake"]))


@pytest.mark.parametrize("end", ["answered", "no handshake", "too small records"])
async def test_an_ended_connection_leaves_nothing_for_the_garbage_collector(end):
    """A garbage collection of some thousand connections delayed every review by a tenth of a second."""
    async with listening() as (port, trusting, _):
        gc.collect()
        gc.disable()
        try:
            if end == "no handshake":
                trusting.set_ecdh_curve("secp384r1")
                with pytest.raises(OSError, match="HANDSHAKE_FAILURE"):
                    await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
            else:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
                if end == "answered":
                    assert await ask(reader, writer, [2]) == b"2"
                else:
                    writer.write(HEAD % 1_000_000)
                    for _ in range(1_000):
                        writer.write(b" ")
                    with suppress(ConnectionError):
                        await reader.read()
                writer.transport.abort()
            kinds = (reading.PeerTransport, PeerConnection)
            while any(isinstance(obj, kinds) for obj in gc.get_objects()):  # noqa: ASYNC110  as above
                await asyncio.sleep(0.01)
        finally:
            gc.enable()


async def test_a_bug_while_reading_ends_one_connection_only(caplog, monkeypatch):
    def refuse(_own, head):
        if head.path == "/bug":
            raise RuntimeError("a bug")

    monkeypatch.setattr(Friend, "refuse", refuse)
    async with listening() as (port, trusting, _):
        broken = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        other = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        broken[1].write(HEAD.replace(b"/", b"/bug", 1) % 0)
        with suppress(ConnectionError):
            assert await broken[0].read() == b""
        assert await ask(*other, [2]) == b"2"
        for _, writer in (broken, other):
            writer.close()
    assert "a bug while reading" in caplog.text
