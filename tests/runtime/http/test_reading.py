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


class LengthServer:
    """A server that answers every request with the length of its body."""

    def refuse(self, _head):
        return None

    def answer(self, _head, body):
        return text(200, str(len(body)))


class DecryptedRecords:
    """Counts the records that the server's side decrypts: all records so far, and the records in each turn of the loop."""

    def __init__(self, monkeypatch):
        self.total, self.by_turn, self._turn = 0, [0], 0
        read = ssl.SSLObject.read

        def counting_read(ssl_object, *arguments):
            data = read(ssl_object, *arguments)
            if ssl_object.server_side:
                self.total += 1
                self.by_turn[-1] += 1
            return data

        monkeypatch.setattr(ssl.SSLObject, "read", counting_read)

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
    context, close_reasons = tls.server(leaf), []
    if client_ca:
        context.load_verify_locations(cadata=client_ca.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
    listener = Listener(LengthServer(), Limits(), close_reasons.append)
    port = listener.open("127.0.0.1", 0, context)
    try:
        async with asyncio.timeout(PATIENCE):
            yield port, tls.client(signer), close_reasons
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
    decrypted, clock = DecryptedRecords(monkeypatch), count(0.0, reading.READ_TURN_SECONDS / 3)
    monkeypatch.setattr(reading, "thread_time", lambda: next(clock))
    async with listening() as (port, client_context, close_reasons):
        hostile = [await asyncio.open_connection("127.0.0.1", port, ssl=client_context) for _ in range(4)]
        honest = await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
        for _, writer in hostile:
            writer.write(HEAD % 1_000_000)
            for _ in range(2_000):
                writer.write(b" ")
        total_before = decrypted.total
        decrypted.follow()
        assert await ask(*honest, [2]) == b"2"
        assert decrypted.total - total_before <= 5 * (reading.FREE_RECORDS + 3 * reading.RECORDS)
        for reader, writer in hostile:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        decrypted.end()
        assert max(decrypted.by_turn) <= 4 * reading.RECORDS
        assert decrypted.total - total_before <= 4 * (reading.MAX_SMALL + reading.RECORDS) + 3
        assert close_reasons == ["records"] * 4
        assert await ask(*honest, [2]) == b"2"
        honest[1].close()


async def test_connections_with_tiny_records_are_read_one_per_turn(monkeypatch):
    """Eight records of each of a thousand connections would take a tenth of a second."""
    decrypted = DecryptedRecords(monkeypatch)
    async with listening() as (port, client_context, _):
        hostile = [await asyncio.open_connection("127.0.0.1", port, ssl=client_context) for _ in range(6)]
        for _, writer in hostile:
            writer.write(HEAD % 1_000_000)
            for _ in range(reading.FREE_RECORDS + reading.RECORDS):
                writer.write(b" ")
        while decrypted.total < 6 * (1 + reading.FREE_RECORDS + reading.RECORDS):  # noqa: ASYNC110  the product has no event for it, and needs none
            await asyncio.sleep(0)
        decrypted.follow()
        for _, writer in hostile:
            for _ in range(100):
                writer.write(b" ")
        while decrypted.total < 6 * 100:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        decrypted.end()
        assert max(decrypted.by_turn) <= reading.RECORDS
        for _, writer in hostile:
            writer.transport.abort()


async def test_too_many_key_updates_end_a_connection():
    """OpenSSL handles all of its input in one call and answers each KeyUpdate with a record."""
    async with listening() as (port, _, close_reasons):
        sock, sealer = await connect(Target(("127.0.0.1", port), 0.0, ()), "127.0.0.1")
        with sock:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, b"".join([Sealer.update_key(sealer) for _ in range(1_000)]))
            received = 0
            with suppress(ConnectionError):
                while data := await loop.sock_recv(sock, 1 << 16):
                    received += len(data)
    assert close_reasons == ["records"]
    assert received <= 40 * (reading.MAX_SMALL + reading.RECORDS)


@pytest.mark.parametrize(
    "pieces",
    [
        [1] * (reading.FREE_RECORDS - 1),
        [1200] * 600,
        [7 << 20],
    ],
    ids=["few small records", "records of a Go client", "one large body"],
)
async def test_all_records_of_ordinary_clients_are_read(pieces):
    async with listening() as (port, client_context, close_reasons):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
        for _ in range(3):
            assert await ask(reader, writer, pieces) == b"%d" % sum(pieces)
        writer.close()
    assert not close_reasons


async def test_a_connection_may_send_many_small_requests():
    async with listening() as (port, client_context, close_reasons):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
        for _ in range(reading.MAX_SMALL):
            assert await ask(reader, writer, [2]) == b"2"
        writer.close()
    assert not close_reasons


@pytest.mark.parametrize(("certificate_count", "is_served"), [(4, True), (100, False)])
async def test_only_a_short_certificate_chain_is_verified(tmp_path, certificate_count, is_served):
    """OpenSSL accepts 100 KiB of certificates and spends 40 ms of CPU on a chain that the authority did not sign."""
    clients = certificate("clients")
    peer_certificate, key = certificate("peer", clients)
    (tmp_path / "chain.pem").write_bytes(pem(peer_certificate, key) + pem(clients[0]) * (certificate_count - 1))
    async with listening(client_ca=pem(clients[0])) as (port, client_context, close_reasons):
        client_context.load_cert_chain(tmp_path / "chain.pem")
        received = b""
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
            received = await ask(reader, writer, [2])
            writer.close()
    assert (received, close_reasons) == ((b"2", []) if is_served else (b"", ["handshake"]))


@pytest.mark.parametrize("end", ["answered request", "failed handshake", "too small records"])
async def test_an_ended_connection_is_freed_without_garbage_collection(end):
    """A garbage collection of some thousand connections delayed every review by a tenth of a second."""
    async with listening() as (port, client_context, _):
        gc.collect()
        gc.disable()
        try:
            if end == "failed handshake":
                client_context.set_ecdh_curve("secp384r1")
                with pytest.raises(OSError, match="HANDSHAKE_FAILURE"):
                    await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
            else:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
                if end == "answered request":
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


async def test_a_bug_while_reading_ends_only_one_connection(caplog, monkeypatch):
    def refuse(_own, head):
        if head.path == "/bug":
            raise RuntimeError("a bug")

    monkeypatch.setattr(LengthServer, "refuse", refuse)
    async with listening() as (port, client_context, _):
        broken = await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
        working = await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
        broken[1].write(HEAD.replace(b"/", b"/bug", 1) % 0)
        with suppress(ConnectionError):
            assert await broken[0].read() == b""
        assert await ask(*working, [2]) == b"2"
        for _, writer in (broken, working):
            writer.close()
    assert "a bug while reading" in caplog.text
