"""A stub of an API server, with which a program is measured without a real server's work.

A collection is a file of watch events (`write_collection`). The stub lists a collection page by page, or streams it in a watch that then
stays silent, like a real server. Clients may also create, read and patch single objects; a patch with another resourceVersion is a conflict.
Watches do not show these single objects. The stub validates nothing.

    python -m bench.stub DIRECTORY prints its port.
"""

from __future__ import annotations

import contextlib
import gzip
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from dra.server import CURRENT, RELEASE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Object = dict[str, Any]
VERSION = {"gitVersion": f"v{RELEASE}", "major": "1", "minor": str(CURRENT)}
GROUPS = {"groups": [{"versions": [{"groupVersion": "resource.k8s.io/v1"}]}]}
OUR_GROUP = {"groups": [*GROUPS["groups"], {"versions": [{"groupVersion": "drawbridge.dev/v1alpha1"}]}]}
NOW = {"metadata": {"resourceVersion": "9"}}
END = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
PLAIN = 128 * 1024  # bytes; an API server compresses only larger answers
CHUNK = 1 << 16
BEFORE, AFTER = b'{"type":"ADDED","object":', b"}\n"


# For measurements


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[None]:
    """Serve a directory; its `kubeconfig` has the address."""
    command = [sys.executable, "-m", "bench.stub", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = f"http://127.0.0.1:{int(process.stdout.readline())}"
        (directory / "kubeconfig").write_text(json.dumps(kubeconfig(address)))
        yield
    finally:
        process.kill()
        process.communicate()


def write_collection(directory: Path, plural: str, objects: Iterable[Object]) -> None:
    lines = [BEFORE + encoded(obj) + AFTER for obj in objects]
    (directory / plural).write_bytes(b"".join(lines))


def write_object(directory: Path, plural: str, name: str, obj: Object) -> None:
    """Write an object that the stub reads when it starts."""
    (directory / f"{plural}-{name}.json").write_bytes(encoded(obj))


def compiled(directory: Path) -> dict[str, str]:
    """Return an environment with compiled modules, as in the image. The first process compiles them for all later ones."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return environment | {"PYTHONPYCACHEPREFIX": str(directory / "bytecode")}


def kubeconfig(address: str) -> Object:
    return {
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": address}}],
        "users": [{"name": "bench", "user": {"token": "none"}}],
    }


def encoded(value: Object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# The stub itself


class Store:
    """The collections and the single objects that the stub serves."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = threading.Lock()
        self.versions = count(1_000_000)
        self.pages: dict[tuple[str, str, int, int], bytes] = {}
        self.objects: dict[tuple[str, str], Object] = {}
        for path in directory.glob("*-*.json"):
            plural, _, name = path.stem.partition("-")
            self.objects[plural, name] = json.loads(path.read_bytes())

    def events(self, plural: str) -> bytes:
        path = self.directory / plural
        return path.read_bytes() if path.exists() else b""

    def page(self, plural: str, namespace: str, start: int, limit: int) -> bytes:
        """Return one page of a list, built once."""
        body = self.pages.get((plural, namespace, start, limit))
        if body is None:
            lines = self.events(plural).splitlines(keepends=True)
            if namespace:
                lines = [line for line in lines if b'"namespace":"%s"' % namespace.encode() in line]
            page_lines = lines[start : start + limit] if limit else lines
            items = b",".join(line.removeprefix(BEFORE).removesuffix(AFTER) for line in page_lines)
            more = str(start + limit) if limit and start + limit < len(lines) else ""
            meta = encoded({"resourceVersion": "9", "continue": more})
            body = b'{"kind":"List","metadata":' + meta + b',"items":[' + items + b"]}"
            body = self.pages[plural, namespace, start, limit] = body if len(body) <= PLAIN else gzip.compress(body, 1)
        return body

    def create(self, plural: str, obj: Object) -> tuple[int, Object]:
        key = plural, obj["metadata"].get("name", "")
        with self.lock:
            if key in self.objects:
                return 409, status(409, "AlreadyExists")
            self.objects[key] = obj
            return 201, self.stamped(obj)

    def patch(self, plural: str, name: str, body: Object) -> tuple[int, Object]:
        with self.lock:
            stored = self.objects.get((plural, name))
            if stored is None:
                return 404, status(404, "NotFound")
            version = body.get("metadata", {}).get("resourceVersion", stored["metadata"]["resourceVersion"])
            if version != stored["metadata"]["resourceVersion"]:
                return 409, status(409, "Conflict")
            stored = self.objects[plural, name] = merged(stored, body)
            return 200, self.stamped(stored)

    def stamped(self, obj: Object) -> Object:
        obj["metadata"]["resourceVersion"] = str(next(self.versions))
        return obj


def merged(old: Any, patch: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        new[key] = merged(new.get(key), value)
    return {key: value for key, value in new.items() if value is not None}


def bookmark(obj: Object) -> bytes:
    return encoded({"type": "BOOKMARK", "object": obj}) + b"\n"


def status(code: int, reason: str) -> Object:
    return {"kind": "Status", "code": code, "reason": reason, "message": reason}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if body.startswith(b"\x1f\x8b"):
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    def answer_json(self, result: tuple[int, Object]) -> None:
        code, value = result
        self.answer(code, encoded(value))

    def body(self) -> Object:
        decoded: Object = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return decoded

    def path_words(self) -> list[str]:
        """Return plural, name and subresource of a path."""
        return self.namespace_and_words()[1]

    def namespace_and_words(self) -> tuple[str, list[str]]:
        """Return the namespace of a path, and what follows it."""
        path = self.path.partition("?")[0].strip("/").split("/")
        words = path[2:] if path[0] == "api" else path[3:]
        return (words[1], words[2:]) if words[:1] == ["namespaces"] and len(words) > 2 else ("", words)

    def do_POST(self) -> None:
        body = self.body()
        if "dryRun" in self.path or "events" in self.path_words():
            self.answer_json((201, body))
        else:
            self.answer_json(self.store.create(self.path_words()[0], body))

    def do_PATCH(self) -> None:
        plural, name, *_ = self.path_words()
        body = self.body()
        if "dryRun" in self.path:
            self.answer_json((200, merged({"metadata": {"name": name}}, body)))
        else:
            self.answer_json(self.store.patch(plural, name, body))

    def do_GET(self) -> None:
        query = parse_qs(self.path.partition("?")[2])
        if self.path in ("/version", "/apis"):
            groups = OUR_GROUP if (self.store.directory / "devicequotas").exists() else GROUPS
            self.answer_json((200, VERSION if self.path == "/version" else groups))
            return
        namespace, (plural, *names) = self.namespace_and_words()
        if names:
            stored = self.store.objects.get((plural, names[0]))
            self.answer_json((404, status(404, "NotFound")) if stored is None else (200, stored))
        elif "watch" in query:
            events = self.store.events(plural) + bookmark(END) if "sendInitialEvents" in query else b""
            self.stream(events, float(query.get("timeoutSeconds", ["60"])[0]))
        else:
            start, limit = (int(query.get(name, ["0"])[0]) for name in ("continue", "limit"))
            self.answer(200, self.store.page(plural, namespace, start, limit))

    def stream(self, first: bytes, seconds: float) -> None:
        """Send the existing events, then only a bookmark before the end."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(first), CHUNK):
            self.chunk(first[start : start + CHUNK])
        time.sleep(max(0.0, seconds - 2))
        self.chunk(bookmark(NOW))
        time.sleep(2)
        self.chunk(b"")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """Ignore clients that were killed while reading."""


def main() -> None:
    Handler.store = Store(Path(sys.argv[1]))
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
