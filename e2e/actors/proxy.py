"""A proxy to the API server that can break its connections at a chosen write, delay requests, or answer watches with 410 Gone.

The proxy counts patches of ResourceClaims, or the requests that `selects` accepts. At the chosen request it closes the connection, before
the server receives the request or after the server has answered. From then on it forwards nothing, as if the client's machine had lost
its network. It is not a general proxy: clients use HTTP without TLS, a connection carries one request, bodies have a length, and each
response ends with its connection, so that watches stream.
"""

import json
import socket
import socketserver
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

CHUNK = 64 * 1024
HELD_SECONDS = 120.0
# The API server's answer to a watch from a version that is compacted.
EXPIRED = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
    b'"message":"too old resource version","reason":"Expired","code":410}}\n'
)
GONE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + EXPIRED


class Request(NamedTuple):
    """A request in transit."""

    verb: str
    path: str
    raw: bytes

    @property
    def body(self) -> Any:
        """The body, if it is JSON."""
        return json.loads(self.raw)

    @property
    def patches_claim(self) -> bool:
        """Return whether the request patches a ResourceClaim."""
        return self.verb == "PATCH" and "/resourceclaims/" in self.path


def is_claim_patch(request: Request) -> bool:
    return request.patches_claim


class Proxy:
    """Listens on `port` until `close()`."""

    def __init__(self, url: str, ca: Path, token: str = "") -> None:
        """Add `token`, if given, to every request, because Go's client sends no token without TLS."""
        parts = urllib.parse.urlsplit(url)
        self.target = (str(parts.hostname), int(parts.port or 443))
        self.context = ssl.create_default_context(cafile=str(ca))
        self.header = f"Authorization: Bearer {token}".encode() if token else b""
        self.writes = 0
        self.cut_at = 0  # the number of the write at which the connection breaks; 0 for never
        self.selects: Callable[[Request], bool] = is_claim_patch  # whether a request counts as a write
        self.answered = False  # whether the server still receives write number `cut_at`
        self.part = 0  # how many bytes of the response to that write are forwarded
        self.broken = threading.Event()
        self.holding = False  # whether that write is delayed, and the connection does not break
        self.held = threading.Event()
        self.let_go = threading.Event()
        self.late = b""  # the server's response to the delayed or replaced write
        self.instead = b""  # replaces the server's response to that write
        self.silenced = ""  # the resource whose watches stay open without events; "*" for all resources
        self.pause = 0.0  # seconds by which each request is delayed
        self.forgotten = 0.0  # the time until which watches that start from a resourceVersion get 410 Gone
        self.cuts = 0  # how often all watches were closed
        self.lock = threading.Lock()
        self.server = Server(("127.0.0.1", 0), Relay)
        self.server.proxy = self
        self.port: int = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def break_at(self, write: int, *, answered: bool, selects: Callable[[Request], bool] = is_claim_patch) -> None:
        """Break the connection at a write, counted from now: before the server receives it, or after it has `answered`."""
        self.expect(write, answered=answered, selects=selects, holding=False)

    def hold_at(self, write: int, *, selects: Callable[[Request], bool] = is_claim_patch) -> None:
        """Delay a write until `let_go`; everything else passes."""
        self.expect(write, answered=True, selects=selects, holding=True)

    def answer_at(self, write: int, answer: bytes, *, selects: Callable[[Request], bool] = is_claim_patch) -> None:
        """Forward a write, and answer it with this text instead of the server's; everything else passes."""
        self.expect(write, answered=True, selects=selects, holding=False)
        self.instead = answer

    def expect(self, write: int, *, answered: bool, selects: Callable[[Request], bool], holding: bool) -> None:
        """Forget earlier plans and events, and plan this one."""
        with self.lock:
            for sign in (self.broken, self.held, self.let_go):
                sign.clear()
            self.late = self.instead = b""
            self.writes, self.cut_at, self.answered, self.selects = 0, write, answered, selects
            self.holding = holding

    def restore(self) -> None:
        """Let everything pass."""
        self.pause = self.forgotten = 0.0
        self.silenced = ""
        self.break_at(0, answered=True)

    def forget(self, seconds: float) -> None:
        """Close all connections; a watch that resumes gets 410 Gone."""
        self.forgotten = time.monotonic() + seconds
        self.cuts += 1

    def forgets(self, request: bytes) -> bool:
        line = request.partition(b"\r\n")[0]
        from_a_version = b"watch=" in line and b"resourceVersion=" in line and b"sendInitialEvents" not in line
        return from_a_version and time.monotonic() < self.forgotten

    def silences(self, request: Request) -> bool:
        """Return whether the request is a watch of the silenced resource."""
        name = request.path.partition("?")[0].rpartition("/")[2]
        return bool(self.silenced) and "watch=" in request.path and self.silenced in ("*", name)

    def count_and_match(self, request: Request) -> bool:
        """Count a request; return whether to break at it."""
        if not self.selects(request):
            return False
        with self.lock:
            self.writes += 1
            return self.writes == self.cut_at

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    proxy: Proxy


class Relay(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        proxy = self.server.proxy
        request = read_request(self.request, proxy.header)
        # The last request of a killed client must not reach the server when the proxy forwards again.
        if request is None or proxy.broken.is_set() or is_gone(self.request):
            return
        time.sleep(proxy.pause)
        if proxy.forgets(request):
            self.request.sendall(GONE)
            return
        head, _, body = request.partition(b"\r\n\r\n")
        verb, path, _ = head.partition(b"\r\n")[0].decode().split(" ")
        parsed = Request(verb, path, body)
        chosen = proxy.count_and_match(parsed)
        if chosen and proxy.holding:
            proxy.held.set()
            proxy.let_go.wait(HELD_SECONDS)
        elif chosen and not proxy.answered:
            proxy.broken.set()
            return
        try:
            # Wrap the socket before it is connected: otherwise it would stay open without a peer if the server dies right after accepting.
            with proxy.context.wrap_socket(socket.socket(), server_hostname=proxy.target[0]) as server:
                server.connect(proxy.target)
                server.sendall(request)
                if chosen and proxy.holding:
                    proxy.late = read_all(server)
                    self.request.sendall(proxy.late)
                    return
                if chosen and proxy.instead:
                    proxy.late = read_all(server)
                    self.request.sendall(proxy.instead)
                    proxy.held.set()
                    return
                self.relay(server, proxy, parsed, silent=chosen)
        except OSError:
            return

    def relay(self, server: ssl.SSLSocket, proxy: Proxy, request: Request, *, silent: bool) -> None:
        server.settimeout(0.2)
        cuts = proxy.cuts
        while not proxy.broken.is_set() and proxy.cuts == cuts:
            if proxy.silences(request):
                if is_gone(self.request):
                    return
                time.sleep(0.05)
                continue
            try:
                chunk = server.recv(CHUNK)
            except TimeoutError:
                continue
            if silent:
                self.request.sendall(chunk[: proxy.part])
                proxy.broken.set()
                return
            if not chunk:
                return
            self.request.sendall(chunk)


def is_gone(connection: socket.socket) -> bool:
    """Return whether the peer has closed its connection, which the kernel does for a killed process."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def read_all(server: ssl.SSLSocket) -> bytes:
    parts: list[bytes] = []
    while chunk := server.recv(CHUNK):
        parts.append(chunk)
    return b"".join(parts)


def read_request(connection: socket.socket, header: bytes = b"") -> bytes | None:
    """Read one request; add a header, and make the server close the connection after its response."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(CHUNK)
        if not chunk:
            return None
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    length = next((int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        chunk = connection.recv(CHUNK)
        if not chunk:
            return None
        body += chunk
    headers = [*lines, header] if header else lines
    return b"\r\n".join([*headers, b"Connection: close", b"", body])
