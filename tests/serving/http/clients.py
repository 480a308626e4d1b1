"""Clients of a listener that send and read raw bytes, and servers that answer them."""

import asyncio

from serving.http import text
from tests.limits import PATIENCE


class FailingServer:
    """A server that raises an error when it gets a complete request, for tests that send none."""

    def refuse(self, head):
        raise AssertionError(head)

    def answer(self, head, body):
        raise AssertionError(head, body)


REQUEST = b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Length: 2\r\n\r\n{}"


class YesServer:
    """A server that answers every request with `yes`."""

    def refuse(self, head):
        del head

    def answer(self, head, body):
        del head, body
        return text(200, "yes")


def post(body, *headers, length=None):
    """Return a request with further header lines, as an API server writes it."""
    lines = ["POST /mutate?timeout=3s HTTP/1.1", "Host: webhook", f"Content-Length: {length or len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def read_answer(reader):
    """Read any answer; return the lines of its head, and its body as the last item."""
    async with asyncio.timeout(PATIENCE):
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
        [length] = [line.partition(b": ")[2] for line in head if line.startswith(b"Content-Length")]
        return [*head, await reader.readexactly(int(length))]


class Echo(YesServer):
    """A server that answers with the request; it refuses bodies of more than a hundred bytes."""

    def refuse(self, head):
        return text(413, "too large", close=True) if head.length > 100 else None

    def answer(self, head, body):
        return text(200, f"{head.method} {head.path} {head.query} {head.headers['Host']} {head.length} {body.decode()}")


async def read_yes_answer(reader):
    """Read an answer of `YesServer` with its body; return the lines of its head."""
    return (await read_answer(reader))[:-1]
