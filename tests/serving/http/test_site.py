"""A site: its routes, the requests that it refuses, and streamed answers."""

import asyncio
import contextlib
from http import HTTPStatus

import pytest

from serving.http import Limits, Reply, Route, Site, StatusError, html, text
from tests.limits import PATIENCE

CLOSE_HEADER = "Connection: close\r\n"


async def show_names(request):
    return text(200, f"{sorted(request.names.items())} {sorted(request.query.items())}")


async def show_fields(request):
    return text(200, f"{sorted(request.fields().items())} {request.cookie('mine')}")


async def fail(request):
    raise RuntimeError("a defect")


async def reject(request):
    raise StatusError(HTTPStatus.SERVICE_UNAVAILABLE, ("Retry-After", "7"))


ROUTES = [
    Route("GET", "/named/{one}", show_names),
    Route("GET", "/deep/{one}/{rest*}/{last}", show_names),
    Route("GET", "/a.b", show_names),
    Route("POST", "/form", show_fields),
    Route("PUT", "/form", show_fields),
    Route("GET", "/broken", fail),
    Route("GET", "/occupied", reject),
    Route("GET", "/page", lambda _: asyncio.sleep(0, html("<p>é", 404, ("X-Own", "1")))),
]


async def answer_to(url, raw_request):
    """Send a request; return the status, the head and the body of the answer."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(PATIENCE):
        writer.write(raw_request)
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), body.decode()


def request_bytes(method, path, headers="", body=b"", host="127.0.0.1:1"):
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{CLOSE_HEADER}{headers}{length}\r\n".encode() + body


FORM_HEADER = "Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n"


@pytest.mark.parametrize(
    ("raw_request", "expected_status", "expected_body"),
    [
        (request_bytes("GET", "/named/a%20b?x=1&x=2&y"), 200, "[('one', 'a b')] [('x', '1'), ('y', '')]"),
        (request_bytes("GET", "/named/%FF?x=%FF"), 200, "[('one', '\ufffd')] [('x', '\ufffd')]"),
        (request_bytes("GET", "/deep/a/b%2Fc/d/e"), 200, "[('last', 'e'), ('one', 'a'), ('rest', 'b/c/d')] []"),
        (request_bytes("GET", "/deep/a/b"), 404, "Not Found\n"),
        (request_bytes("GET", "/named/a/b"), 404, "Not Found\n"),
        (request_bytes("GET", "/named/a%20b/"), 308, "Permanent Redirect\n"),
        (request_bytes("GET", "//evil.example/"), 404, "Not Found\n"),
        (request_bytes("GET", "/acb"), 404, "Not Found\n"),
        (request_bytes("HEAD", "/named/a"), 200, ""),
        (request_bytes("GET", "/page"), 404, "<p>é"),
        (request_bytes("GET", "/form"), 405, "Method Not Allowed\n"),
        (request_bytes("GET", "/broken"), 500, "internal error, see the log\n"),
        (request_bytes("GET", "/occupied"), 503, "Service Unavailable\n"),
        (request_bytes("POST", "/form", FORM_HEADER + 'Cookie: other="; mine=a=b\r\n', b"a=%C3%A9&b="), 200, "[('a', 'é'), ('b', '')] a=b"),
        (request_bytes("POST", "/form", FORM_HEADER, b"a=\xff"), 400, "Bad Request\n"),
        (request_bytes("POST", "/form", FORM_HEADER, b"a=%ff"), 400, "Bad Request\n"),
        (request_bytes("POST", "/form", FORM_HEADER, b"&".join([b"a=1"] * 65)), 400, "Bad Request\n"),
        (request_bytes("POST", "/form", "Content-Type: text/plain\r\n", b"a=1"), 415, "Unsupported Media Type\n"),
        (request_bytes("POST", "/form", FORM_HEADER, b"a=" + b"b" * 999), 413, "1001 bytes, at most 1000"),
        (request_bytes("GET", "/named/a", host="evil.example"), 403, "use an IP address or localhost"),
        (request_bytes("GET", "/named/a", host="evil.example@127.0.0.1"), 403, "use an IP address or localhost"),
        (request_bytes("GET", "/named/a", host="[::1"), 403, "use an IP address or localhost"),
        (request_bytes("GET", "/named/a", "Origin: http://evil.example\r\n"), 403, "another origin"),
        (request_bytes("GET", "/named/a", "Origin: http://[\r\n"), 403, "another origin"),
        (request_bytes("GET", "/named/a", "Origin: http://127.0.0.1:1\r\n"), 200, "[('one', 'a')] []"),
    ],
)  # fmt: skip
async def test_a_request_is_answered_by_its_route_or_refused(raw_request, expected_status, expected_body):
    async with Site(ROUTES, Limits(body=1000), headers=[("X-All", "yes")]).open("127.0.0.1", 0) as url:
        status, head, body = await answer_to(url, raw_request)
        assert status == expected_status
        assert expected_body in body if status in (403, 413) else body == expected_body
        assert "X-All: yes" in head
        assert ("Allow: POST, PUT" in head) == (expected_status == 405)
        assert ("Location: /named/a%20b\r\n" in head) == (expected_status == 308)
        assert ("Retry-After: 7" in head) == (expected_status == 503)
        assert ("X-Own: 1" in head) == (b"/page" in raw_request)


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
async def test_a_site_for_any_host_refuses_only_other_origins(host, origin, status):
    async with Site(ROUTES, Limits(), any_host=True).open("127.0.0.1", 0) as url:
        assert (await answer_to(url, request_bytes("GET", "/named/a", origin, host=host)))[0] == status


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
        assert (status, body.splitlines()) == (200, ["6", "first;", "7", "second;", "5", "third", "0", ""])
        assert "Transfer-Encoding: chunked" in head
        assert "Connection: close" in head


@pytest.mark.parametrize("cause", ["the peer reads nothing", "the peer closes", "the handler ends"])
async def test_a_streamed_answer_ends_when_peer_or_handler_stops(cause):
    streamed = Streamed(then=lambda: b"x" * (1 << 20 if cause == "the peer reads nothing" else 1))
    async with asyncio.timeout(PATIENCE):
        async with Site([Route("GET", "/", streamed)], Limits(flush=0.3)).open("127.0.0.1", 0) as url:
            host, _, port = url.removeprefix("http://").rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readline()
            if cause == "the peer closes":
                writer.transport.abort()
            if cause == "the handler ends":
                streamed._then = None
            await streamed.ended.wait()
        if cause == "the peer reads nothing":
            with contextlib.suppress(ConnectionError):
                while await reader.read(1 << 20):
                    pass
        writer.close()


@pytest.mark.parametrize("failing_part", ["the handler", "a streamed part"])
async def test_an_answer_that_fails_ends_only_its_connection(failing_part, caplog):
    def raise_error():
        raise RuntimeError("a defect")

    class Failing:
        """A handler whose errors no site catches."""

        def refuse(self, head):
            del head

        async def answer(self, head, body):
            del head, body
            if failing_part == "the handler":
                raise_error()
            return Reply(200, b"", parts=Streamed(then=raise_error).parts())

    site = Site([Route("GET", "/", show_names)], Limits())
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
