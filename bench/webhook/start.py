"""Measures how long the webhook takes from its start until it is ready, on 5,000 nodes with eight GPUs each. A rolling update waits for this.

The process is the webhook as installed (`drawbridge webhook --no-controllers`), with the content of its Secrets. The API server is a
stub that streams prepared events as a real server does, so that its own work is not measured.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench import stub
from bench.meter import cpu_of, memory_of
from bench.row import Row
from certs import authority, material

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES, DEVICES = 5_000, 8
# In elapsed seconds, on a machine with a free core.
TARGET = 2.0
COMMAND = [str(Path(sys.executable).with_name("drawbridge")), "webhook", "--no-controllers", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0"]  # fmt: skip


class Started(NamedTuple):
    """The seconds that a start took, and the process' memory afterwards."""

    wall: float
    cpu: float
    memory: float  # MiB


def rows() -> Iterator[Row]:
    """Start the webhook a few times; the quickest start is the closest to that of an idle machine."""
    with prepare() as directory:
        start(directory)
        starts = [start(directory) for _ in range(3)]
    quickest = min(starts)
    wall = min(start.wall for start in starts)
    yield Row(
        what=f"start to ready, {NODES:,} nodes of {DEVICES} GPUs, elapsed time",
        unit="s",
        ours=wall,
        target=f"< {TARGET:g} s",
        note=f"{min(start.cpu for start in starts):.2f} s of CPU, {quickest.memory:.0f} MiB; the API server is a stub",
    )


def start(directory: Path) -> Started:
    """Start the webhook once, wait until its log reports that it is ready, and end it."""
    log = directory / "log"
    started = time.perf_counter()
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            [*COMMAND, f"--kubeconfig={directory / 'kubeconfig'}"],
            stdout=log_file,
            stderr=log_file,
            env=stub.compiled(directory),
        )
        try:
            while b'"msg":"ready"' not in log.read_bytes():
                if process.poll() is not None:
                    raise RuntimeError(f"the webhook has ended: {log.read_text()[-2000:]}")
                time.sleep(0.01)
            wall = time.perf_counter() - started
            cpu, memory = cpu_of(process.pid), memory_of(process.pid)
        finally:
            process.kill()
            process.wait()
    return Started(wall, cpu, memory)


@contextlib.contextmanager
def prepare(nodes: int = NODES) -> Iterator[Path]:
    """Prepare a directory with everything that a start needs, and a stub that serves from it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _write_events(directory, nodes)
        _write_secrets(directory)
        with stub.serving(directory):
            yield directory


def _write_events(directory: Path, nodes: int) -> None:
    collections: dict[str, list[stub.Object]] = {
        "nodes": [node(number) for number in range(nodes)],
        "resourceslices": [slice_(number) for number in range(nodes)],
        "deviceclasses": [device_class()],
        "namespaces": [{"metadata": {"name": f"team-{number}", "resourceVersion": "1"}} for number in range(200)],
    }
    for plural, objects in collections.items():
        stub.write_collection(directory, plural, objects)


def node(number: int) -> stub.Object:
    """Return a node as its kubelet reports it, with images."""
    name = f"node-{number:04}"
    amounts = {"cpu": "128", "memory": "1056Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    images = [{"names": [f"registry.example.com/image-{n}@sha256:{n:064x}"], "sizeBytes": n} for n in range(20)]
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    return {
        "metadata": {"name": name, "resourceVersion": "1", "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts, "images": images},
    }


def slice_(number: int) -> stub.Object:
    name = f"node-{number:04}"
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    devices = [device(number, index) for index in range(DEVICES)]
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{name}-gpus", "resourceVersion": "1"}, "spec": spec}


def device(number: int, index: int) -> stub.Object:
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{number:08}-{index:04}"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "architecture": {"string": "Hopper"},
        "driverVersion": {"version": "580.65.6"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index:02}"},
    }
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": {"memory": {"value": "81559Mi"}}}


def device_class() -> stub.Object:
    expression = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
    return {
        "metadata": {"name": "gpu.nvidia.com", "resourceVersion": "1"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _write_secrets(directory: Path) -> None:
    """Write the serving and signing Secrets for the stub."""
    now = dt.datetime.now(dt.UTC)
    signer = authority.authority("bench", now=now, life=dt.timedelta(days=30))
    leaf = authority.leaf(signer, ["127.0.0.1"], now=now, life=dt.timedelta(days=20))
    certificate_material = material.Material(
        authority=signer, leaf=leaf, signing_keys=material.SigningKeys(current=b"k" * material.SIGNING_KEY_BYTES)
    )
    data = material.encode(certificate_material)
    for name, entries in (("drawbridge", data.serving), ("drawbridge-signature", data.signing)):
        texts = {entry: base64.b64encode(value).decode() for entry, value in (entries or {}).items()}
        metadata = {"name": name, "namespace": "drawbridge-system", "resourceVersion": "1"}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": texts}
        stub.write_object(directory, "secrets", name, secret)
