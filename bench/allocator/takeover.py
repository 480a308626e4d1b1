"""Measures the time from the death of a leader to the first answer of the standby, on 5,000 nodes of eight devices with 30,000 held claims.

Both replicas are processes as installed (`drawbridge allocator`). The first replica is killed with SIGKILL once it leads and the other
replica is ready. The time until the lease expires is reported separately, because only a shorter lease shortens it. The API server is a
stub, so that its own work is not measured. Its list pages are as long as those of a real server, and compressed.

    python -m bench.allocator.takeover [--nodes 5000] [--claims 30000] [--rounds 2]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from bench import stub
from bench.meter import cpu_of, memory_of
from bench.row import Row
from bench.webhook import start

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES, CLAIMS, ROUNDS = 5_000, 30_000, 2
TARGET = 2.0
LOOK_SECONDS = 0.01
PATIENCE = 300.0
COMMAND = [str(Path(sys.executable).with_name("drawbridge")), "allocator", "--metrics-listen=127.0.0.1:0"]
DRIVER, CLASS = "gpu.nvidia.com", "gpu.nvidia.com"
LEADING, READY = b'"msg":"leading"', b'"msg":"ready"'
TEAMS = 200


class TakeOver(NamedTuple):
    """The figures of one take-over; times in seconds."""

    wall: float  # from the lease to the first decision
    cpu: float  # of the new leader, in that time
    lease: float  # from the kill until the new leader has the lease
    start: float  # CPU of the new leader from its start until it had read everything
    memory: float  # MiB, at the end


def rows() -> Iterator[Row]:
    """Measure twice and use the quicker run, as on a quiet machine."""
    best = min(take_overs(NODES, CLAIMS, ROUNDS))
    yield Row(
        what=f"take-over to first decision, {NODES:,} nodes, {CLAIMS:,} allocated claims, elapsed time",
        unit="s",
        ours=best.wall,
        target=f"< {TARGET:g} s",
        note=line_of(best),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--claims", type=int, default=CLAIMS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    for take_over in take_overs(asked.nodes, asked.claims, asked.rounds):
        print(f"{take_over.wall:.2f} s elapsed, {line_of(take_over)}; load {os.getloadavg()[0]:.1f}", flush=True)


def line_of(found: TakeOver) -> str:
    return (
        f"{found.cpu:.2f} s of CPU, after {found.lease:.1f} s for the lease; "
        f"{found.start:.1f} s of CPU to start, {found.memory:.0f} MiB"
    )


def take_overs(nodes: int, claims: int, rounds: int) -> Iterator[TakeOver]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_cluster(directory, nodes, claims)
        for _ in range(rounds):
            with stub.served(directory):
                yield take_over(directory)


def take_over(directory: Path) -> TakeOver:
    with Replica(directory, "a") as leader, contextlib.ExitStack() as stack:
        leader.wait_for(LEADING)
        other = stack.enter_context(Replica(directory, "b"))
        other.wait_for(READY)
        started = cpu_of(other.process.pid)
        leader.kill()
        killed = time.monotonic()
        other.wait_for(LEADING)
        leads, used = time.monotonic(), cpu_of(other.process.pid)
        node = other.first_node()
        decided = time.monotonic()
        assert node
        after, memory = cpu_of(other.process.pid), memory_of(other.process.pid)
        return TakeOver(decided - leads, after - used, leads - killed, started, memory)


class Replica:
    """A process of the allocator."""

    def __init__(self, directory: Path, name: str) -> None:
        folder = directory / name
        folder.mkdir(exist_ok=True)
        self.socket, self.log = folder / "plugin.sock", folder / "log"
        options = [f"--plugin=unix:{self.socket}", f"--kubeconfig={directory / 'kubeconfig'}", f"--identity={name}"]
        with self.log.open("wb") as said:
            self.process = subprocess.Popen(
                [*COMMAND, *options], stdout=said, stderr=said, env=stub.compiled(directory)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait_for(self, words: bytes) -> None:
        end = time.monotonic() + PATIENCE
        while words not in self.log.read_bytes():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the log of the allocator has no {words!r}: {self.log.read_text()[-2000:]}")
            time.sleep(LOOK_SECONDS)

    def first_node(self) -> str:
        """Send a pod until the allocator has decided; return the pod's node."""
        body = json.dumps({"pod": waiting_pod()})
        while True:
            code, said = self.ask("/plugin/v1/prefilter", body)
            if code == 200:
                return str(said["nodes"][0]["name"])
            assert code == 503, said
            time.sleep(LOOK_SECONDS)

    def ask(self, path: str, body: str) -> tuple[int, stub.Object]:
        with contextlib.closing(http.client.HTTPConnection("allocator", timeout=PATIENCE)) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(self.socket))
            connection.request("POST", path, body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


# What the cluster holds


def write_cluster(directory: Path, nodes: int, claims: int) -> None:
    collections = {
        "nodes": [start.node(number) for number in range(nodes)],
        "resourceslices": [start.slice_(number) for number in range(nodes)],
        "deviceclasses": [start.device_class()],
        "namespaces": [{"metadata": {"name": f"team-{number}", "resourceVersion": "1"}} for number in range(TEAMS)],
        "resourceclaims": [*(claim(number, nodes) for number in range(claims)), waiting_claim()],
        "pods": [pod(number, nodes) for number in range(claims)],
        "poddisruptionbudgets": [],
    }
    for plural, objects in collections.items():
        stub.write_collection(directory, plural, objects)


def claim(number: int, nodes: int) -> stub.Object:
    """Return the claim of a running pod as the API server stores it, with managed fields."""
    node = f"node-{number % nodes:04}"
    index = number // nodes
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": f"gpu-{index}"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    consumer = {"resource": "pods", "name": f"train-{number:05}", "uid": f"pod-{number:032}"}
    status = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [term]},
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        },
        "reservedFor": [consumer],
    }
    made = bare_claim(f"train-{number:05}-gpu", number)
    meta = made["metadata"]
    meta["finalizers"] = ["drawbridge.dev/allocation", "resource.kubernetes.io/delete-protection"]
    meta["managedFields"] = [managed("kube-controller-manager", 6), managed("drawbridge", 10)]
    return made | {"status": status}


def bare_claim(name: str, number: int) -> stub.Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}}
    metadata = {
        "name": name,
        "namespace": f"team-{number % TEAMS}",
        "uid": f"claim-{number:032}",
        "resourceVersion": "5",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
    }
    return {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}


def managed(manager: str, fields: int) -> stub.Object:
    held: stub.Object = {f"f:field-{at}": {"f:inner": {}, ".": {}} for at in range(fields)}
    return {"manager": manager, "operation": "Update", "apiVersion": "resource.k8s.io/v1", "fieldsV1": held}


def pod(number: int, nodes: int) -> stub.Object:
    name = f"train-{number:05}"
    made = bare_pod(name, number)
    made["spec"]["nodeName"] = f"node-{number % nodes:04}"
    named = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    conditions = [{"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "PodScheduled")]
    made["status"] = {"phase": "Running", "resourceClaimStatuses": named, "conditions": conditions}
    made["metadata"]["managedFields"] = [managed("kube-controller-manager", 20), managed("kubelet", 20)]
    return made


def bare_pod(name: str, number: int) -> stub.Object:
    metadata = {
        "name": name,
        "namespace": f"team-{number % TEAMS}",
        "uid": f"pod-{number:032}",
        "resourceVersion": "5",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {f"label-{at}": f"value-{at}" for at in range(8)},
    }
    limits = {"cpu": "4", "memory": "16Gi"}
    environment = [{"name": f"SETTING_{at}", "value": "x" * 40} for at in range(10)]
    container = {"name": "main", "image": "registry.example.com/train:1", "env": environment}
    resources = {"limits": limits, "requests": limits, "claims": [{"name": "gpu"}]}
    uses = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    spec = {
        "schedulerName": "drawbridge",
        "containers": [container | {"resources": resources}],
        "resourceClaims": uses,
    }
    return {"metadata": metadata, "spec": spec}


def waiting_pod() -> stub.Object:
    made = bare_pod("waiting", 99_999)
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "waiting-gpu"}]
    return made


def waiting_claim() -> stub.Object:
    made = bare_claim("waiting-gpu", 99_999)
    del made["metadata"]["annotations"]
    return made


if __name__ == "__main__":
    main()
