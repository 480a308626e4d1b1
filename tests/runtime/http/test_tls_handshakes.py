"""TLS handshakes: an iteration of the loop begins few of them; known and unknown peers alternate."""

import asyncio
import socket
import ssl
from collections import Counter
from contextlib import suppress

import pytest

from runtime.http.tls_handshakes import Handshakes, is_whole
from tests.limits import PATIENCE


def client_hello():
    """Return the ClientHello of OpenSSL."""
    outgoing = ssl.MemoryBIO()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="x")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


CLIENT_HELLO = client_hello()


class Guest:
    """A peer that has sent bytes, usually a whole ClientHello."""

    def __init__(self, peer, sent=CLIENT_HELLO):
        self.peer = peer
        self.handshake_task = None
        self.was_cut = False
        self.server_socket, self.client_socket = socket.socketpair()
        self.server_socket.setblocking(False)
        self.client_socket.sendall(sent)

    def cut(self):
        self.was_cut = True

    def close(self):
        self.server_socket.close()
        self.client_socket.close()


@pytest.fixture
def guests():
    all_guests = []

    def make(*peers, sent=CLIENT_HELLO):
        new_guests = [Guest(peer, sent) for peer in peers]
        all_guests.extend(new_guests)
        return new_guests

    yield make
    for guest in all_guests:
        guest.close()


class HandshakeLog:
    """Records which peer begins a handshake in which turn of the loop. Each handshake lasts until `may_end` is set."""

    def __init__(self, handshakes, *, known=()):
        self.handshakes, self.known = handshakes, known
        self.begun, self.turn, self.may_end = [], 0, asyncio.Event()
        self.may_end.set()
        self._count()

    def _count(self):
        self.turn += 1
        if not asyncio.current_task():
            asyncio.get_running_loop().call_soon(self._count)

    async def begin_handshake(self, guest):
        async with self.handshakes.turn_of(guest, guest.server_socket, is_known=guest.peer in self.known):
            self.begun.append((guest, self.turn))
            await self.may_end.wait()


async def test_one_loop_iteration_begins_few_handshakes(guests):
    log = HandshakeLog(Handshakes(turn=4))
    asyncio.get_running_loop().call_soon(log._count)
    crowd = guests(*["stranger"] * 40)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*map(log.begin_handshake, crowd))
    turns = Counter(turn for _, turn in log.begun)
    assert max(turns.values()) <= 4
    assert len(log.begun) == 40
    assert not log.handshakes._is_scheduled


async def test_known_peers_and_other_addresses_precede_a_crowd(guests):
    log = HandshakeLog(Handshakes(turn=4), known={"known"})
    crowd = guests(*["stranger"] * 40, "another", "known")
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*map(log.begin_handshake, crowd))
    names = [guest.peer for guest, _ in log.begun]
    assert "known" in names[:2]
    assert "another" in names[:4]


async def test_too_many_handshakes_end_the_oldest_of_the_largest_peer(guests):
    log = HandshakeLog(Handshakes(turn=16, most=4))
    log.may_end.clear()
    crowd, (other,) = guests(*["many"] * 4), guests("other")
    tasks = [asyncio.create_task(log.begin_handshake(guest)) for guest in crowd]
    async with asyncio.timeout(PATIENCE):
        while len(log.begun) < 4:  # noqa: ASYNC110  the product has no event for it, and needs none
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(log.begin_handshake(other)))
        tasks.append(asyncio.create_task(log.begin_handshake(*guests("many"))))
        while len(log.begun) < 6:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        assert [guest.was_cut for guest in crowd] == [True, True, False, False]
        assert not other.was_cut
        log.may_end.set()
        await asyncio.gather(*tasks)
    assert not log.handshakes._in_progress


@pytest.mark.parametrize("sent", [b"", CLIENT_HELLO[:1], CLIENT_HELLO[:8], CLIENT_HELLO[:-1]])
async def test_an_incomplete_client_hello_delays_no_other_handshake(guests, sent):
    log = HandshakeLog(Handshakes(turn=1))
    slow, quick = guests(*["slow"] * 8, sent=sent), guests(*["other"] * 20)
    tasks = [asyncio.create_task(log.begin_handshake(guest)) for guest in slow]
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*map(log.begin_handshake, quick))
        slow[0].client_socket.sendall(CLIENT_HELLO[len(sent) :])
        await tasks[0]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [guest.peer for guest, _ in log.begun] == ["other"] * 20 + ["slow"]
    assert not asyncio.get_running_loop().remove_reader(slow[1].server_socket)
    assert all(guest.handshake_task is None for guest in slow)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\xff\xff\x01",
        CLIENT_HELLO[:3] + b"\x00\x05" + CLIENT_HELLO[5:10],
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
    ],
    ids=["HTTP request", "too large record", "ClientHello in several records", "ServerHello"],
)
async def test_unexpected_first_bytes_get_no_handshake(guests, sent):
    log = HandshakeLog(Handshakes())
    (guest,) = guests("odd", sent=sent)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ConnectionAbortedError):
            await log.begin_handshake(guest)
    assert not log.begun


def test_a_client_hello_is_complete_with_its_last_byte():
    assert [is_whole(CLIENT_HELLO[:count]) for count in range(1, len(CLIENT_HELLO) + 1)] == [False] * (
        len(CLIENT_HELLO) - 1
    ) + [True]
    with pytest.raises(ConnectionResetError):
        is_whole(b"")
