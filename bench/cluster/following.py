"""Decoding of watch events beside the official client."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from bench.row import Row, side_by_side
from cluster import resources
from cluster.kubernetes.answers import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 64 * 1024


def rows() -> Iterator[Row]:
    """Measure the decoding of watches."""
    yield decoding_row("pods of 8 kB", resources.PODS, "V1Pod", [pod(number) for number in range(1_000)], ">= 20x")
    yield decoding_row(
        "slices of 128 devices", resources.RESOURCE_SLICES, "V1ResourceSlice", [slice_(n) for n in range(200)]
    )


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
