"""A site: its routes, the requests that it refuses, and streamed answers."""

import asyncio
import contextlib
from http import HTTPStatus

import pytest

from runtime.http import Limits, Refused, Reply, Route, Site, html, text
from tests.limits import PATIENCE

CLOSED = "Connection: close\r\n"


async def named(request):
    return text(200, f"{sorted(request.names.items())} {sorted(request.query.items())}")


async def form(request):
    return text(200, f"{sorted(request.fields().items())} {request.cookie('mine')}")


async def broken(request):
    raise RuntimeError("a defect")


async def occupied(request):
    raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, ("Retry-After", "7"))


ROUTES = [
    Route("GET", "/named/{one}", named),
    Route("GET", "/deep/{one}/{rest*}/{last}", named),
    Route("GET", "/a.b", named),
    Route("POST", "/form", form),
    Route("PUT", "/form", form),
    Route("GET", "/broken", broken),
    Route("GET", "/occupied", occupied),
    Route("GET", "/page", lambda _: asyncio.sleep(0, html("<p>é", 404, ("X-Own", "1")))),
]


async def answer_to(url, request):
    """Send a request; return the status, the head and the body of the answer."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(PATIENCE):
        writer.write(request)
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), body.decode()


def request(method, path, headers="", body=b"", host="127.0.0.1:1"):
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{CLOSED}{headers}{length}\r\n".encode() + body


FORM = "Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n"


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        (request("GET", "/named/a%20b?x=1&x=2&y"), 200, "[('one', 'a b')] [('x', '1'), ('y', '')]"),
        (request("GET", "/named/%FF?x=%FF"), 200, "[('one', '\ufffd')] [('x', '\ufffd')]"),
        (request("GET", "/deep/a/b%2Fc/d/e"), 200, "[('last', 'e'), ('one', 'a'), ('rest', 'b/c/d')] []"),
        (request("GET", "/deep/a/b"), 404, "Not Found\n"),
        (request("GET", "/named/a/b"), 404, "Not Found\n"),
        (request("GET", "/acb"), 404, "Not Found\n"),
        (request("HEAD", "/named/a"), 200, ""),
        (request("GET", "/page"), 404, "<p>é"),
        (request("GET", "/form"), 405, "Method Not Allowed\n"),
        (request("GET", "/broken"), 500, "internal error, see the log\n"),
        (request("GET", "/occupied"), 503, "Service Unavailable\n"),
        (request("POST", "/form", FORM + 'Cookie: other="; mine=a=b\r\n', b"a=%C3%A9&b="), 200, "[('a', 'é'), ('b', '')] a=b"),
        (request("POST", "/form", FORM, b"a=\xff"), 400, "Bad Request\n"),
        (request("POST", "/form", FORM, b"a=%ff"), 400, "Bad Request\n"),
        (request("POST", "/form", FORM, b"&".join([b"a=1"] * 65)), 400, "Bad Request\n"),
        (request("POST", "/form", "Content-Type: text/plain\r\n", b"a=1"), 415, "Unsupported Media Type\n"),
        (request("POST", "/form", FORM, b"a=" + b"b" * 999), 413, "the body has 1001 bytes, at most 1000 are accepted\n"),
        (request("GET", "/named/a", host="evil.example"), 403, "use an IP address or localhost: another host name may belong to another machine\n"),
        (request("GET", "/named/a", host="[::1"), 403, "use an IP address or localhost: another host name may belong to another machine\n"),
        (request("GET", "/named/a", "Origin: http://evil.example\r\n"), 403, "a page of another origin may not use this port\n"),
        (request("GET", "/named/a", "Origin: http://[\r\n"), 403, "a page of another origin may not use this port\n"),
        (request("GET", "/named/a", "Origin: http://127.0.0.1:1\r\n"), 200, "[('one', 'a')] []"),
    ],
)  # fmt: skip
async def test_a_request_is_answered_by_its_route_or_refused(sent, status, says):
    async with Site(ROUTES, Limits(body=1000), headers=[("X-All", "yes")]).open("127.0.0.1", 0) as url:
        answered_status, head, body = await answer_to(url, sent)
        assert (answered_status, body) == (status, says)
        assert "X-All: yes" in head
        assert ("Allow: POST, PUT" in head) == (status == 405)
        assert ("Retry-After: 7" in head) == (status == 503)
        assert ("X-Own: 1" in head) == (b"/page" in sent)


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("any.example", "", 200),
        ("any.example", "Origin: https://any.example\r\n", 200),
        ("any.example", "Origin: https://evil.example\r\n", 403),
        ("any.example", "Origin: null\r\n", 403),
        ("", "Origin: null\r\n", 403),
    ],
)
async def test_a_site_for_any_host_still_refuses_other_origins(host, origin, status):
    async with Site(ROUTES, Limits(), any_host=True).open("127.0.0.1", 0) as url:
        assert (await answer_to(url, request("GET", "/named/a", origin, host=host)))[0] == status


class Streamed:
    """A handler that streams these parts, and then results of `then` until that is None. `ended` is set when the stream ends."""

    def __init__(self, *parts, then=None):
        self._parts, self._then = parts, then
        self.ended = asyncio.Event()

    async def parts(self):
        try:
            for part in self._parts:
                await asyncio.sleep(0)
                yield part
            while self._then is not None:
                yield self._then()
                await asyncio.sleep(0.01)
        finally:
            self.ended.set()

    async def __call__(self, request):
        del request
        return Reply(200, b"first;", "text/event-stream", parts=self.parts())


async def test_a_streamed_answer_ends_with_its_connection():
    streamed = Streamed(b"second;", b"third")
    async with Site([Route("GET", "/", streamed)], Limits()).open("127.0.0.1", 0) as url:
        status, head, body = await answer_to(url, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (status, body) == (200, "first;second;third")
        assert "Content-Length" not in head
        assert "Connection: close" in head


@pytest.mark.parametrize("gone", ["reads nothing", "closes", "is told to end"])
async def test_a_streamed_answer_ends_when_its_peer_stops_reading(gone):
    streamed = Streamed(then=lambda: b"x" * (1 << 20 if gone == "reads nothing" else 1))
    async with asyncio.timeout(PATIENCE):
        async with Site([Route("GET", "/", streamed)], Limits(flush=0.3)).open("127.0.0.1", 0) as url:
            host, _, port = url.removeprefix("http://").rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readline()
            if gone == "closes":
                writer.transport.abort()
            if gone == "is told to end":
                streamed._then = None
            await streamed.ended.wait()
        if gone == "reads nothing":
            with contextlib.suppress(ConnectionError):
                while await reader.read(1 << 20):
                    pass
        writer.close()


@pytest.mark.parametrize("how", ["at once", "in a part"])
async def test_an_answer_that_fails_ends_its_connection_alone(how, caplog):
    def fails():
        raise RuntimeError("a defect")

    class Failing:
        """A handler whose errors no site catches."""

        def refuse(self, head):
            del head

        async def answer(self, head, body):
            del head, body
            if how == "at once":
                fails()
            return Reply(200, b"", parts=Streamed(then=fails).parts())

    site = Site([Route("GET", "/", named)], Limits())
    failing = Failing()
    site.answer, site.refuse = failing.answer, failing.refuse
    async with site.open("127.0.0.1", 0) as url:
        host, _, port = url.removeprefix("http://").rpartition(":")
        for _ in range(2):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(PATIENCE):
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            writer.close()
    assert [record.message for record in caplog.records] == ["a bug while answering; please report it"] * 2
