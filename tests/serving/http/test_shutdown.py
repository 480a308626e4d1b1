"""Shutdown of the listener: arrived requests are answered, and silent clients delay the shutdown for a bounded time."""

import asyncio
import gc
import random
import socket
import warnings

import pytest

from serving.http import Limits, Listener
from tests.limits import PATIENCE
from tests.serving.http.clients import REQUEST, FailingServer, YesServer, read_yes_answer
from tests.waiting import until


@pytest.mark.parametrize("loop_turns", range(6))
async def test_a_connection_that_arrives_while_the_listener_closes_is_closed(loop_turns):
    """The listener ends at each step of accepting a connection. A socket without an owner would stay open until a garbage collection."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        listener = Listener(FailingServer(), Limits(), [].append)
        port = listener.open("127.0.0.1", 0)
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        for _ in range(loop_turns):
            await asyncio.sleep(0)
        await listener.end(0.0)
        for client in clients:
            client.settimeout(PATIENCE)
            try:
                assert client.recv(1) == b""
            except ConnectionResetError:
                pass
            client.close()
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
    assert not listener.connections


async def test_renewing_the_certificate_keeps_idle_connections_of_anonymous_clients():
    """A POST that is sent while the connection is closed would be lost. Instead, the next answer announces that the connection closes."""
    listener = Listener(YesServer(), Limits(), [].append)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.open("127.0.0.1", 0))
    writer.write(REQUEST)
    assert b"Connection: close" not in await read_yes_answer(reader)
    listener.renew(None)
    writer.write(REQUEST)
    assert b"Connection: close" in await read_yes_answer(reader)
    assert await reader.read() == b""
    writer.close()
    await listener.end(PATIENCE)


async def test_no_request_is_lost_during_shutdown():
    """A request that is sent while its connection is closed is lost, so the listener closes no connection while clients may still write."""
    listener = Listener(YesServer(), Limits(), [].append)
    port = listener.open("127.0.0.1", 0)
    generator = random.Random(23)
    connected = asyncio.Barrier(65)

    async def ask(delay, *, is_second_request):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if is_second_request:
            writer.write(REQUEST)
            assert b"Connection: close" not in await read_yes_answer(reader)
        await connected.wait()
        await asyncio.sleep(delay)
        writer.write(REQUEST)
        head = await read_yes_answer(reader)
        assert head[0] == b"HTTP/1.1 200 OK"
        assert b"Connection: close" in head
        writer.close()

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for number in range(64):
            group.create_task(ask(0.05 + generator.random() / 2, is_second_request=bool(number % 4)))
        await connected.wait()
        await listener.end(grace=0.0, linger=PATIENCE)
    assert not listener.connections


async def test_a_silent_client_delays_shutdown_for_a_bounded_time():
    listener = Listener(YesServer(), Limits(), [].append)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.open("127.0.0.1", 0))
    await until(lambda: listener.connections)
    async with asyncio.timeout(PATIENCE):
        await listener.end(grace=PATIENCE, linger=0.1)
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("rest", [b"}", b""], ids=["the rest arrives", "the rest never arrives"])
async def test_an_unfinished_request_at_shutdown_has_the_grace_period(rest):
    listener = Listener(YesServer(), Limits(), [].append)
    port = listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST[:-1])
    await until(lambda: [connection.is_waiting for connection in listener.connections] == [False])
    ending = asyncio.create_task(listener.end(PATIENCE if rest else 0.1))
    await asyncio.sleep(0)
    assert listener.connections, "the unfinished request was not left open"
    writer.write(rest)
    if rest:
        assert b"Connection: close" in await read_yes_answer(reader)
    async with asyncio.timeout(PATIENCE):
        await ending
    assert not listener.connections
    writer.close()
