"""TLS records of any size: a connection decrypts few in one turn of the loop, and is closed if they are too small."""

import asyncio
import gc
import socket
import ssl
from collections import Counter
from contextlib import asynccontextmanager, suppress

import pytest

from bench.webhook.attacks import Sealer, Target, connect
from serving.http import Limits, Listener, text
from serving.http import tls as records
from serving.http.connection import GuardedConnection
from tests.certs.peers import certificate, pem
from tests.limits import PATIENCE
from tests.serving.http.clients import YesServer, post, read_answer
from tests.waiting import until
from tests.webhook import tls

LONG = post(b"", length=1_000_000)  # the head of a request whose body never ends


class LengthServer(YesServer):
    """A server that answers every request with the length of its body."""

    def answer(self, _head, body):
        return text(200, str(len(body)))


class CallsByTurn:
    """Counts the calls of a method of the server's SSLObjects in each turn of the loop."""

    def __init__(self, monkeypatch, name):
        self.counts = [0]
        method = getattr(ssl.SSLObject, name)

        def counted(ssl_object, *arguments):
            self.counts[-1] += ssl_object.server_side
            return method(ssl_object, *arguments)

        monkeypatch.setattr(ssl.SSLObject, name, counted)
        self._begin_turn()

    def _begin_turn(self):
        self.counts.append(0)
        self._next = asyncio.get_running_loop().call_soon(self._begin_turn)

    def end(self):
        """Stop counting; return the number of calls in the busiest turn, and of all calls."""
        self._next.cancel()
        return max(self.counts), sum(self.counts)


@asynccontextmanager
async def listening(handler=None, client_ca=b""):
    """Run a listener with TLS; yield it with its port, its closures, and a context for clients."""
    signer, leaf = tls.authority_and_leaf()
    context, closures = tls.server(leaf), Counter()
    if client_ca:
        context.load_verify_locations(cadata=client_ca.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
    listener = Listener(handler or LengthServer(), Limits(), lambda reason: closures.update([reason]))
    listener.port = listener.open("127.0.0.1", 0, context)
    listener.closures, listener.client = closures, tls.client(signer)
    try:
        async with asyncio.timeout(PATIENCE):
            yield listener
    finally:
        await listener.end(0.0)
        assert not listener.connections


async def open_connections(listener, count):
    return [await asyncio.open_connection("127.0.0.1", listener.port, ssl=listener.client) for _ in range(count)]


async def ask(reader, writer, pieces):
    """Send a request whose body has one record of each of these sizes; return the body of the answer."""
    writer.write(post(b"", length=sum(pieces)))
    for size in pieces:
        writer.write(b" " * size)
    await reader.readuntil(b"\r\n\r\n")
    return int(await reader.readexactly(len(str(sum(pieces)))))


async def test_tiny_records_end_only_their_own_connection(monkeypatch, caplog):
    async with listening() as listener:
        *hostile, honest = await open_connections(listener, 5)
        calls = CallsByTurn(monkeypatch, "read")
        for _, writer in hostile:
            writer.write(LONG)
            for _ in range(2_000):
                writer.write(b" ")
        assert await ask(*honest, [2]) == 2
        for reader, writer in hostile:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        _, decrypted = calls.end()
        assert decrypted < 4 * (records.FREE_RECORDS + 4 * records.RECORDS_A_TURN) + 8
        assert listener.closures == {"records": 4}
        assert await ask(*honest, [2]) == 2
        honest[1].close()
        assert not caplog.records, "an attacker can fill the log"


async def test_a_connection_decrypts_few_records_in_one_turn_of_the_loop(monkeypatch):
    """The records of the busy connections are not small enough to close them."""
    async with listening() as listener:
        *busy, honest = await open_connections(listener, 5)
        calls = CallsByTurn(monkeypatch, "read")
        for _, writer in busy:
            writer.write(LONG)
            for _ in range(1_000):
                writer.write(b" " * 2 * records.BYTES_OF_RECORD)
        assert await ask(*honest, [2, 2]) == 4
        assert sum(calls.counts) < 2_000, "the honest request waited for all records of the others"
        await until(lambda: sum(calls.counts) >= 4_000)
        busiest, _ = calls.end()
        assert busiest <= 5 * records.RECORDS_A_TURN
        assert not listener.closures
        for _, writer in [*busy, honest]:
            writer.transport.abort()


async def test_key_updates_end_their_connection():
    """OpenSSL handles all of its input in one call, and answers each KeyUpdate with a record."""
    async with listening() as listener:
        sock, sealer = await connect(Target(("127.0.0.1", listener.port), 0.0, ()), "127.0.0.1")
        with sock:
            loop, received = asyncio.get_running_loop(), 0
            await loop.sock_sendall(sock, b"".join([Sealer.update_key(sealer) for _ in range(1_000)]))
            with suppress(ConnectionError):
                while data := await loop.sock_recv(sock, 1 << 16):
                    received += len(data)
        assert listener.closures == {"records": 1}
        assert received <= 40 * (records.FREE_RECORDS + records.RECORDS_A_TURN)


@pytest.mark.parametrize(
    "pieces",
    [[1] * (records.FREE_RECORDS - 1), [1200] * 600, [3 << 20], []],
    ids=["few small records", "records of a Go client", "one large body", "no body"],
)
async def test_the_records_of_ordinary_clients_are_read(pieces):
    async with listening() as listener:
        ((reader, writer),) = await open_connections(listener, 1)
        for _ in range(40 if sum(pieces) < 100 else 3):
            assert await ask(reader, writer, pieces) == sum(pieces)
        writer.close()
        await until(lambda: not listener.connections)
        assert not listener.closures


async def test_a_request_that_arrives_with_the_end_of_the_handshake_is_answered():
    async with listening() as listener:
        loop = asyncio.get_running_loop()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        peer = listener.client.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with socket.create_connection(("127.0.0.1", listener.port)) as sock:
            sock.setblocking(False)

            async def finish(step):
                while True:
                    with suppress(ssl.SSLWantReadError):
                        return step()
                    await loop.sock_sendall(sock, outgoing.read())
                    incoming.write(await loop.sock_recv(sock, 1 << 14))

            await finish(peer.do_handshake)
            peer.write(post(b"12345"))
            assert (await finish(lambda: peer.read(1 << 14))).endswith(b"\r\n\r\n5")


async def test_a_long_answer_arrives_whole():
    class LongAnswers(YesServer):
        def answer(self, _head, _body):
            return text(200, "x" * 3_000_000)

    async with listening(LongAnswers()) as listener:
        ((reader, writer),) = await open_connections(listener, 1)
        writer.write(post(b""))
        assert (await read_answer(reader))[-1] == b"x" * 3_000_000
        writer.close()


@pytest.mark.parametrize(("certificate_count", "is_served"), [(4, True), (100, False)])
async def test_only_a_short_certificate_chain_is_verified(tmp_path, certificate_count, is_served):
    """OpenSSL accepts 100 KiB of certificates, and spends 40 ms of CPU on a chain that the authority did not sign."""
    clients = certificate("clients")
    peer_certificate, key = certificate("peer", clients)
    (tmp_path / "chain.pem").write_bytes(pem(peer_certificate, key) + pem(clients[0]) * (certificate_count - 1))
    async with listening(client_ca=pem(clients[0])) as listener:
        listener.client.load_cert_chain(tmp_path / "chain.pem")
        answer = None
        with suppress(OSError, asyncio.IncompleteReadError):
            ((reader, writer),) = await open_connections(listener, 1)
            answer = await ask(reader, writer, [2])
            writer.close()
        assert (answer, listener.closures) == ((2, {}) if is_served else (None, {"handshake": 1}))


@pytest.mark.parametrize("end", ["answered request", "failed handshake"])
async def test_an_ended_connection_is_freed_without_garbage_collection(end):
    """A garbage collection of some thousand connections delayed every review by a tenth of a second."""
    async with listening() as listener:
        gc.collect()
        gc.disable()
        try:
            if end == "failed handshake":
                listener.client.set_ecdh_curve("secp384r1")
                with pytest.raises(OSError, match="HANDSHAKE_FAILURE"):
                    await open_connections(listener, 1)
            else:
                ((reader, writer),) = await open_connections(listener, 1)
                assert await ask(reader, writer, [2]) == 2
                writer.transport.abort()
            kinds = (records.TlsTransport, GuardedConnection)
            await until(lambda: not any(isinstance(obj, kinds) for obj in gc.get_objects()))
        finally:
            gc.enable()
