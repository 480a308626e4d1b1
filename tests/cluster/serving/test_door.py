"""The door: whoever comes while it shuts is sent away, and nobody is forgotten in it."""

import asyncio
import gc
import socket
import warnings

import pytest

from cluster.serving import Door, Limits
from tests.limits import PATIENCE


class Nobody:
    """Answers nothing: nobody gets that far here."""

    def refuse(self, head):
        raise AssertionError(head)

    def answer(self, head, body):
        raise AssertionError(head, body)


@pytest.mark.parametrize("turns", range(6))
async def test_who_comes_while_the_door_shuts_is_let_go(turns):
    """However far taking the connection has come: a socket that nobody holds would be closed by the collector, some day."""
    gc.collect()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        door = Door(Nobody(), Limits(), [].append)
        port = door.open("127.0.0.1", 0)
        guests = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await door.end(0.0)
        for guest in guests:
            guest.settimeout(PATIENCE)
            try:
                assert guest.recv(1) == b""
            except ConnectionResetError:
                pass
            guest.close()
        gc.collect()
    assert [str(one.message) for one in told] == []
    assert not door.connections
