"""TLS handshakes: an iteration of the loop begins few of them; known and unknown peers alternate."""

import asyncio
import socket
import ssl
from collections import Counter
from contextlib import suppress

import pytest

from runtime.http.tls_handshakes import Handshakes, is_whole
from tests.limits import PATIENCE


def hello():
    """Return the ClientHello of OpenSSL."""
    outgoing = ssl.MemoryBIO()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="x")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = hello()


class Guest:
    """A peer that has sent bytes, usually a whole ClientHello."""

    def __init__(self, peer, sent=HELLO):
        self.peer = peer
        self.handshake_task = None
        self.was_cut = False
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.sendall(sent)

    def cut(self):
        self.was_cut = True

    def close(self):
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def guests():
    made = []

    def make(*peers, sent=HELLO):
        new = [Guest(peer, sent) for peer in peers]
        made.extend(new)
        return new

    yield make
    for connection in made:
        connection.close()


class Log:
    """Records which peer begins a handshake in which turn of the loop. Each handshake lasts until `may_end` is set."""

    def __init__(self, greetings, *, known=()):
        self.greetings, self.known = greetings, known
        self.greeted, self.turn, self.stay = [], 0, asyncio.Event()
        self.stay.set()
        self._count()

    def _count(self):
        self.turn += 1
        if not asyncio.current_task():
            asyncio.get_running_loop().call_soon(self._count)

    async def greet(self, guest):
        async with self.greetings.turn_of(guest, guest.ours, is_known=guest.peer in self.known):
            self.greeted.append((guest, self.turn))
            await self.stay.wait()


async def test_one_loop_iteration_begins_few_handshakes(guests):
    log = Log(Handshakes(turn=4))
    asyncio.get_running_loop().call_soon(log._count)
    crowd = guests(*["stranger"] * 40)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*map(log.greet, crowd))
    turns = Counter(turn for _, turn in log.greeted)
    assert max(turns.values()) <= 4
    assert len(log.greeted) == 40
    assert not log.greetings._is_scheduled


async def test_known_peers_and_addresses_get_handshakes_in_turn(guests):
    log = Log(Handshakes(turn=4), known={"known"})
    crowd = guests(*["stranger"] * 40, "another", "known")
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*map(log.greet, crowd))
    names = [guest.peer for guest, _ in log.greeted]
    assert "known" in names[:2]
    assert "another" in names[:4]


async def test_too_many_handshakes_cut_those_of_the_largest_peer(guests):
    log = Log(Handshakes(turn=16, most=4))
    log.stay.clear()
    many, (honest,) = guests(*["many"] * 4), guests("honest")
    tasks = [asyncio.create_task(log.greet(connection)) for connection in many]
    async with asyncio.timeout(PATIENCE):
        while len(log.greeted) < 4:  # noqa: ASYNC110  the product has no event for it, and needs none
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(log.greet(honest)))
        tasks.append(asyncio.create_task(log.greet(*guests("many"))))
        while len(log.greeted) < 6:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        assert [connection.was_cut for connection in many] == [True, True, False, False]
        assert not honest.was_cut
        log.stay.set()
        await asyncio.gather(*tasks)
    assert not log.greetings._in_progress


@pytest.mark.parametrize("sent", [b"", HELLO[:1], HELLO[:8], HELLO[:-1]])
async def test_an_incomplete_client_hello_is_cleaned_up(guests, sent):
    log = Log(Handshakes(turn=1))
    slow, others = guests(*["slow"] * 8, sent=sent), guests(*["other"] * 20)
    tasks = [asyncio.create_task(log.greet(connection)) for connection in slow]
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*map(log.greet, others))
        slow[0].theirs.sendall(HELLO[len(sent) :])
        await tasks[0]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [guest.peer for guest, _ in log.greeted] == ["other"] * 20 + ["slow"]
    assert not asyncio.get_running_loop().remove_reader(slow[1].ours)
    assert all(connection.handshake_task is None for connection in slow)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\xff\xff\x01",  # a record larger than the maximum
        HELLO[:3] + b"\x00\x05" + HELLO[5:10],  # a ClientHello in several records
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",  # a ServerHello
    ],
)
async def test_a_fragmented_client_hello_gets_no_handshake(guests, sent):
    log = Log(Handshakes())
    (guest,) = guests("odd", sent=sent)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ConnectionAbortedError):
            await log.greet(guest)
    assert not log.greeted


def test_a_client_hello_is_complete_with_its_last_byte():
    assert [is_whole(HELLO[:count]) for count in range(1, len(HELLO) + 1)] == [False] * (len(HELLO) - 1) + [True]
    with pytest.raises(ConnectionResetError):
        is_whole(b"")
