"""Shutdown of the listener: arrived requests are answered, and silent clients delay the shutdown for a bounded time."""

import asyncio
import gc
import os
import random
import socket
import warnings

import pytest

from runtime.http import Limits, Listener
from runtime.http.connection import ConnectionPhase
from tests.limits import PATIENCE
from tests.runtime.http.clients import REQUEST, Friend, Unasked, answer, in_phase


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_arrives_while_the_listener_closes_is_closed(turns):
    """The listener ends at each step of accepting a connection. A socket without an owner would stay open until a garbage collection."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
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
    assert [str(warning.message) for warning in caught] == []
    assert not listener.connections


async def test_renewing_our_certificate_keeps_anonymous_idle_connections():
    """A POST that is sent while the connection is closed would be lost. Instead, the next answer announces that the connection closes."""
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
    """No client repeats a POST, so a request that arrived just before the close would be lost."""
    listener = Listener(Friend(), Limits(), [].append)
    port = listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if asked_before:
        writer.write(REQUEST)
        assert (await answer(reader))[0] == b"HTTP/1.1 200 OK"
    else:
        await in_phase(listener, ConnectionPhase.QUIET)
    sock = writer.get_extra_info("socket")
    os.write(sock.fileno(), REQUEST)  # the loop has no turn between this request and the shutdown
    if going == "renew":
        listener.renew(None)
    ending = asyncio.create_task(listener.end(PATIENCE))
    head = await answer(reader)
    assert head[0] == b"HTTP/1.1 200 OK"
    assert b"Connection: close" in head
    await ending
    writer.close()


async def test_no_request_is_lost_during_shutdown():
    """A request that is sent while its connection is closed is lost, so the listener closes no connection while clients may still write."""
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


@pytest.mark.parametrize("rest", [b"}", b""], ids=["the rest comes", "the rest never comes"])
async def test_half_a_request_at_shutdown_has_the_grace_period(rest):
    listener = Listener(Friend(), Limits(), [].append)
    port = listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST[:-1])
    await in_phase(listener, ConnectionPhase.BODY)
    ending = asyncio.create_task(listener.end(PATIENCE if rest else 0.1))
    await asyncio.sleep(0)
    assert [connection.phase for connection in listener.connections] == [ConnectionPhase.BODY], "it is not cut at once"
    writer.write(rest)
    if rest:
        assert b"Connection: close" in await answer(reader)
    async with asyncio.timeout(PATIENCE):
        await ending
    assert not listener.connections
    writer.close()
