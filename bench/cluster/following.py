"""Decoding of watch events beside the official client, and an informer behind a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.row import Row, median_seconds, side_by_side
from cluster import resources
from cluster.embedded.embedded import Embedded
from cluster.informers.informer import Informer
from cluster.kubernetes.answers import Stream
from cluster.patch import Merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK = 64 * 1024
EVENTS = 20_000


def rows() -> Iterator[Row]:
    """Measure the decoding of watches, an informer that follows a watch, and the embedded store."""
    yield decoding_row("pods of 8 kB", resources.PODS, "V1Pod", [pod(number) for number in range(1_000)], ">= 20x")
    yield decoding_row(
        "slices of 128 devices", resources.RESOURCE_SLICES, "V1ResourceSlice", [slice_(n) for n in range(200)]
    )
    yield from following_row()
    yield from measure_embedded()


def decoding_row(what: str, resource: Any, model: str, objects: list[Any], target: str = "") -> Row:
    """Decode the same watch with both clients: drawbridge from chunks of bytes, the official one from lines."""
    from kubernetes.aio.client import ApiClient, Configuration
    from kubernetes.aio.watch import Watch

    lines = [json.dumps({"type": "ADDED", "object": obj}, separators=(",", ":")).encode() + b"\n" for obj in objects]
    data = b"".join(lines)
    chunks = [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]

    def ours() -> None:
        stream = Stream(resource)
        assert sum(len(stream.feed(chunk)) for chunk in chunks) == len(lines)

    async def client() -> Watch:
        watch: Watch = Watch()  # type: ignore[no-untyped-call]
        watch._api_client = ApiClient(Configuration())  # noqa: SLF001  as Watch.stream() does
        return watch

    watch = asyncio.run(client())
    sample_lines = lines[: max(20, len(lines) // 20)]  # the official client is slow, so it decodes a twentieth

    def theirs() -> None:
        for line in sample_lines:
            watch.unmarshal_event(line.decode(), model)

    our_seconds, their_seconds = side_by_side(ours, theirs, runs=3)
    rate = len(lines) / our_seconds
    return Row(
        what=f"decode a watch of {what} ({len(data) // len(lines) // 1000} kB an event)",
        unit="µs",
        ours=our_seconds / len(lines) * 1e6,
        peer="official client, aio",
        theirs=their_seconds / len(sample_lines) * 1e6,
        target=target,
        note=f"{rate:,.0f} events/s, theirs {len(sample_lines) / their_seconds:,.0f}",
    )


SERVER = """
import http.server, sys
events, listing = int(sys.argv[1]), open(sys.argv[2], "rb").read()
lines = open(sys.argv[3], "rb").read()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200)
        if "watch=1" not in self.path:
            self.send_header("Content-Length", str(len(listing)))
            self.end_headers()
            self.wfile.write(listing)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(lines), 16384):
            chunk = lines[start : start + 16384]
            self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(chunk), chunk))
        sys.stdin.readline()

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def following_row() -> Iterator[Row]:
    """Run an informer against a server in another process that sends pods as fast as the informer reads them."""
    bodies = [pod(number % 500, version=number + 1) for number in range(EVENTS)]
    lines = b"".join(json.dumps({"type": "MODIFIED", "object": body}).encode() + b"\n" for body in bodies)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        listing, events, config = (Path(directory) / name for name in ("list", "events", "kubeconfig"))
        listing.write_bytes(json.dumps({"metadata": {"resourceVersion": "0"}, "items": []}).encode())
        events.write_bytes(lines)
        command = [sys.executable, "-c", SERVER, str(EVENTS), str(listing), str(events)]
        server = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(server.kill)
        assert server.stdout is not None
        port = int(server.stdout.readline())
        config.write_text(json.dumps(kubeconfig(f"http://127.0.0.1:{port}")))
        wall, cpu = asyncio.run(follow(str(config)))
    yield Row(
        what="an informer follows pods of 8 kB through a socket, CPU an event",
        unit="µs",
        ours=cpu / EVENTS * 1e6,
        target="1,000 events/s on one core with time to spare",
        note=f"{EVENTS / wall:,.0f} events/s; at 1,000 events/s {cpu / EVENTS * 1e5:.1f} % of a core",
    )


async def follow(config: str) -> tuple[float, float]:
    """Return the seconds and CPU seconds that an informer needs for all events."""
    from cluster.kubernetes.client import Kubernetes

    cluster = Kubernetes.connect(kubeconfig=config)
    informer = Informer(cluster, resources.PODS, stream=False)
    received = 0
    started = time.perf_counter(), time.process_time()
    done = asyncio.Event()

    def listener(batch: Any) -> None:
        nonlocal received, started
        if received == 0:
            started = time.perf_counter(), time.process_time()
        received += len(batch.deltas)
        if received == EVENTS:
            done.set()

    informer.listen(listener)
    task = asyncio.ensure_future(informer.run())
    await asyncio.wait_for(done.wait(), 60)
    spent = time.perf_counter() - started[0], time.process_time() - started[1]
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await cluster.close()
    return spent


def measure_embedded() -> Iterator[Row]:
    """Measure writes of the embedded store: in memory, and into a file."""
    with tempfile.TemporaryDirectory() as directory:
        stores: tuple[tuple[str, Callable[[], Embedded]], ...] = (
            ("in memory", Embedded),
            ("in a file", lambda: Embedded.open(Path(directory) / "store")),
        )
        for what, make in stores:
            yield Row(what=f"embedded store, create and patch a pod of 8 kB {what}", unit="µs", ours=writes(make) * 1e6)


def writes(make: Callable[[], Embedded], number: int = 300) -> float:
    """Return the mean seconds of a create, a patch and a delete."""

    async def work() -> None:
        cluster = make()
        for index in range(number):
            body = pod(index)
            del body["metadata"]["resourceVersion"], body["metadata"]["namespace"]
            created = await cluster.create(resources.PODS, body, "default")
            version = {"resourceVersion": created.metadata.resource_version}
            patch = Merge({"metadata": version | {"labels": {"a": "b"}}})
            await cluster.patch(resources.PODS, created.metadata.name, patch, "default")
            await cluster.delete(resources.PODS, created.metadata.name, "default")
        await cluster.close()

    return median_seconds(lambda: asyncio.run(work()), runs=3) / number / 3


def kubeconfig(url: str) -> dict[str, Any]:
    return {
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {"token": "none"}}],
    }


def pod(number: int, version: int = 1) -> dict[str, Any]:
    """Return a pod like those of a busy cluster: two containers, environment, probes, managed fields."""
    container = {
        "name": "main",
        "image": "registry.example.com/team/service:1.2.3",
        "env": [{"name": f"SETTING_{n}", "value": f"value-{n}-" + "x" * 40} for n in range(24)],
        "resources": {"limits": {"cpu": "4", "memory": "16Gi"}, "requests": {"cpu": "2", "memory": "16Gi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "config", "mountPath": "/etc/config"}],
        "livenessProbe": {"httpGet": {"path": "/livez", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
    }
    fields: dict[str, Any] = {f"f:field-{n}": {"f:inner": {}, ".": {}} for n in range(40)}
    managed = {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "fieldsV1": fields}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"train-{number:05}",
            "namespace": "team",
            "uid": f"00000000-0000-4000-8000-{number:012}",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {f"label-{n}": f"value-{n}" for n in range(8)},
            "annotations": {f"example.com/note-{n}": "y" * 60 for n in range(6)},
            "managedFields": [managed],
        },
        "spec": {
            "containers": [container, {**container, "name": "side"}],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "config", "configMap": {"name": "config"}}],
            "nodeName": f"node-{number % 100}",
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "PodScheduled")],
        },
    }


def slice_(number: int) -> dict[str, Any]:
    """Return a slice with 128 devices, the most that a slice can have."""
    attributes: dict[str, Any] = {f"attribute-{n}": {"string": f"value-{n}-" + "z" * 16} for n in range(10)}
    attributes |= {"index": {"int": 7}, "healthy": {"bool": True}, "driverVersion": {"version": "1.2.3"}}
    device = {"attributes": attributes, "capacity": {"memory": {"value": "80Gi"}, "cores": {"value": "132"}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{number}", "resourceVersion": "1"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": f"node-{number}",
            "pool": {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{index}", **device} for index in range(128)],
        },
    }
