"""From the start of a process to its first answer, on 5,000 nodes with eight GPUs each: what a rolling update waits for.

The process is the gate as it is installed (`drawbridge webhook --no-controllers`), with what stands in its
Secrets. The API server is a stub that streams prepared events as a real one does, because its own work is not what is measured.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.row import Row
from certs import authority, material

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES, DEVICES = 5_000, 8
# By the clock, on a machine that has a core for it.
TARGET = 2.0
COMMAND = [str(Path(sys.executable).with_name("drawbridge")), "webhook", "--no-controllers", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0"]  # fmt: skip

SERVER = """
import http.server, json, pathlib, sys, time

prepared = pathlib.Path(sys.argv[1])
VERSION = {"gitVersion": "v1.37.1", "major": "1", "minor": "37"}
GROUPS = {"groups": [{"versions": [{"groupVersion": "resource.k8s.io/v1"}]}]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.answer(201, json.loads(self.rfile.read(length)))

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path in ("/version", "/apis"):
            self.answer(200, VERSION if path == "/version" else GROUPS)
            return
        secret = prepared / f"secret-{path.rpartition('/')[2]}"
        if "/secrets/" in path and secret.exists():
            self.answer(200, json.loads(secret.read_bytes()))
            return
        if "watch=" not in query:
            self.answer(404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"})
            return
        events = prepared / path.rpartition("/")[2]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines = events.read_bytes() if events.exists() else (prepared / "end").read_bytes()
        for start in range(0, len(lines), 65536):
            chunk = lines[start : start + 65536]
            self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(chunk), chunk))
        time.sleep(3600)


http.server.ThreadingHTTPServer.daemon_threads = True
http.server.ThreadingHTTPServer.request_queue_size = 64
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Started(NamedTuple):
    """How long one start took, in seconds, and what the process is then."""

    wall: float
    cpu: float
    memory: float  # MiB


def rows() -> Iterator[Row]:
    """Start it a few times; the quickest says what it takes where nobody is in the way."""
    with prepare() as directory:
        start(directory)
        starts = [start(directory) for _ in range(3)]
    quickest = min(starts)
    wall = min(one.wall for one in starts)
    yield Row(
        what=f"start to ready, {NODES:,} nodes of {DEVICES} GPUs, by the clock",
        unit="s",
        ours=wall,
        target=f"< {TARGET:g} s",
        note=f"{min(one.cpu for one in starts):.2f} s of CPU, {quickest.memory:.0f} MiB; the API server is a stub",
    )


def start(directory: Path) -> Started:
    """Start the gate once, wait until it says that it is ready, and end it."""
    log = directory / "log"
    begun = time.perf_counter()
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*COMMAND, f"--kubeconfig={directory / 'kubeconfig'}"],
            stdout=said,
            stderr=said,
            env=_environment(directory),
        )
        try:
            while b'"msg":"ready"' not in log.read_bytes():
                if process.poll() is not None:
                    raise RuntimeError(f"the gate has ended: {log.read_text()[-2000:]}")
                time.sleep(0.01)
            wall = time.perf_counter() - begun
            cpu = time.clock_gettime((~process.pid << 3) | 2)  # the kernel's clock of that process's CPU
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.kill()
            process.wait()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return Started(wall, cpu, int(resident.split()[1]) / 1024)


@contextlib.contextmanager
def prepare(nodes: int = NODES) -> Iterator[Path]:
    """A directory with all that a start needs, and a stub that serves from it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _write_events(directory, nodes)
        _write_secrets(directory)
        process = subprocess.Popen([sys.executable, "-c", SERVER, name], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            address = f"http://127.0.0.1:{int(process.stdout.readline())}"
            (directory / "kubeconfig").write_text(json.dumps(_kubeconfig(address)))
            yield directory
        finally:
            process.kill()
            process.communicate()


def _environment(directory: Path) -> dict[str, str]:
    """As in the image: modules are compiled before anybody starts, which the first start here does for the others."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(directory / "bytecode")}


def _write_events(directory: Path, nodes: int) -> None:
    end = _event("BOOKMARK", _bookmark())
    (directory / "end").write_bytes(end)
    found: dict[str, list[dict[str, Any]]] = {
        "nodes": [_node(number) for number in range(nodes)],
        "resourceslices": [_slice(number) for number in range(nodes)],
        "deviceclasses": [_class()],
        "namespaces": [{"metadata": {"name": f"team-{number}", "resourceVersion": "1"}} for number in range(200)],
    }
    for plural, objects in found.items():
        lines = [_event("ADDED", one) for one in objects]
        (directory / plural).write_bytes(b"".join(lines) + end)


def _event(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"


def _bookmark() -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}


def _node(number: int) -> dict[str, Any]:
    """A node as kubelets report it, managed fields and images included."""
    name = f"node-{number:04}"
    amounts = {"cpu": "128", "memory": "1056Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    images = [{"names": [f"registry.example.com/image-{n}@sha256:{n:064x}"], "sizeBytes": n} for n in range(20)]
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    return {
        "metadata": {"name": name, "resourceVersion": "1", "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts, "images": images},
    }


def _slice(number: int) -> dict[str, Any]:
    name = f"node-{number:04}"
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    devices = [_device(number, index) for index in range(DEVICES)]
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{name}-gpus", "resourceVersion": "1"}, "spec": spec}


def _device(number: int, index: int) -> dict[str, Any]:
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{number:08}-{index:04}"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "architecture": {"string": "Hopper"},
        "driverVersion": {"version": "580.65.6"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index:02}"},
    }
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": {"memory": {"value": "81559Mi"}}}


def _class() -> dict[str, Any]:
    expression = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
    return {
        "metadata": {"name": "gpu.nvidia.com", "resourceVersion": "1"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _write_secrets(directory: Path) -> None:
    """What the process serves with, and seals with."""
    now = dt.datetime.now(dt.UTC)
    signer = authority.authority("bench", now=now, life=dt.timedelta(days=30))
    leaf = authority.leaf(signer, ["127.0.0.1"], now=now, life=dt.timedelta(days=20))
    held = material.Material(authority=signer, leaf=leaf, seals=material.Seals(current=b"k" * material.SEAL_BYTES))
    data = material.encode(held)
    for name, entries in (("drawbridge", data.serving), ("drawbridge-seal", data.sealing)):
        texts = {entry: base64.b64encode(value).decode() for entry, value in (entries or {}).items()}
        metadata = {"name": name, "namespace": "drawbridge-system", "resourceVersion": "1"}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": texts}
        (directory / f"secret-{name}").write_text(json.dumps(secret))


def _kubeconfig(address: str) -> dict[str, Any]:
    return {
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": address}}],
        "users": [{"name": "bench", "user": {"token": "none"}}],
    }
