"""Measures the memory of drawbridge's processes when tenants, or a stolen node, fill the store with hostile objects.

There are hostile objects of every kind that a process of ours follows. They have the contents that need most memory when they are decoded:
parameters of empty objects, a hundred thousand labels, long lists of tolerations, workloads without replicas. A stub serves the objects,
because a real API server takes minutes and gigabytes to store them (`e2e/webhook/test_memory.py` uses a real server, with fewer objects).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench import stub
from bench.meter import cpu_of
from bench.webhook import start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
PATIENCE = 600.0
TENANTS = 5
# A process keeps more objects if its memory limit is higher. Without LIMITS it assumes the limit in manifests/, on every machine.
WITH_SHIPPED_LIMIT = "from cli import begin\nfrom cluster.informers import allotment\nallotment.LIMITS = ()\nbegin()"
# By process name: its command, and its log message when it is ready.
PROCESSES: dict[str, tuple[tuple[str, ...], bytes]] = {
    "webhook": (("webhook", "--no-controllers", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0"), b'"msg":"ready"'),
    "controllers": (("webhook", "--no-reviews", "--controllers", "--no-authority", "--metrics-listen=127.0.0.1:0"), b'"msg":"ready"'),
    "allocator": (("allocator", "--identity=a", "--api=127.0.0.1:0", "--metrics-listen=127.0.0.1:0"), b'"msg":"leading"'),
}  # fmt: skip


class StartMeasurement(NamedTuple):
    """The seconds until a process was ready, and its highest resident memory in MiB."""

    seconds: float
    peak: float


def parameters(size: int) -> bytes:
    """Return a JSON object of about this size, with a nested object for every three bytes."""
    return b'{"a":[' + b"{}," * (size // 3) + b"{}]}"


def labels(size: int) -> bytes:
    """Return a JSON object of about this size, with labels that are as short as possible."""
    return b"{" + b",".join(b'"l%x":""' % number for number in range(size // 9)) + b"}"


def _claim_spec(size: int) -> bytes:
    entry = b'{"opaque":{"driver":"gpu.nvidia.com","parameters":' + parameters(10_000) + b"}}"
    config = b",".join([entry] * max(1, size // 10_000))
    request = b'{"name":"r","exactly":{"deviceClassName":"gpu.nvidia.com","allocationMode":"ExactCount","count":1}}'
    return b'"spec":{"devices":{"requests":[' + request + b'],"config":[' + config + b"]}}"


def _pod_spec(size: int) -> bytes:
    variables = b",".join(b'{"name":"E%x"}' % number for number in range(size // 40))
    tolerations = b",".join([b'{"operator":"Exists"}'] * (size // 50))
    terms = b",".join([b'{"weight":1,"preference":{}}'] * (size // 60))
    affinity = b'{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[' + terms + b"]}}"
    return b'{"containers":[{"name":"c","env":[' + variables + b']}],"tolerations":[' + tolerations + b'],"affinity":' + affinity + b"}"  # fmt: skip


def _amounts(size: int) -> bytes:
    return b"{" + b",".join(b'"requests.e.x/a%x":"1"' % number for number in range(size // 26)) + b"}"


def _device(size: int) -> bytes:
    attributes = b",".join(b'"a%x":{"int":1}' % number for number in range(size // 17))
    return b'{"name":"d","attributes":{' + attributes + b"}}"


def _workload(size: int) -> bytes:
    return b'"spec":{"replicas":0,"template":{"metadata":{},"spec":' + _pod_spec(size) + b"}}"


# By plural: whether the kind is namespaced, the bytes of an object, and a function that makes the rest of its JSON.
KINDS: dict[str, tuple[bool, int, Callable[[int], bytes]]] = {
    "resourceclaimtemplates": (True, 328_000, lambda size: b'"spec":{' + _claim_spec(size) + b"}"),
    "resourceclaims": (True, 328_000, _claim_spec),
    "pods": (True, 900_000, lambda size: b'"spec":' + _pod_spec(size)),
    **dict.fromkeys(
        ("deployments", "statefulsets", "daemonsets", "replicasets", "jobs", "cronjobs"), (True, 900_000, _workload)
    ),
    "resourcequotas": (True, 900_000, lambda size: b'"spec":{"hard":' + _amounts(size) + b"}"),
    "devicequotas": (True, 900_000, lambda size: b'"spec":{"hard":' + _amounts(size) + b"}"),
    "limitranges": (True, 900_000, lambda size: b'"spec":{"limits":[{"type":"Pod","max":' + _amounts(size) + b"}]}"),
    "poddisruptionbudgets": (True, 900_000, lambda size: b'"spec":{"selector":{"matchLabels":' + labels(size) + b"}}"),
    "resourceslices": (
        False,
        900_000,
        lambda size: b'"spec":{"driver":"gpu.nvidia.com","nodeName":"stolen","pool":{"name":"stolen","generation":1,"resourceSliceCount":1},"devices":[' + _device(size) + b"]}",
    ),
}  # fmt: skip


def write(directory: Path, plural: str, size: int, *, beside: list[stub.Object] | None = None) -> int:
    """Write `size` bytes of hostile objects of one kind for the stub, after the honest objects `beside`; return the hostile bytes.

    Every second object has large labels instead of a large spec.
    """
    namespaced, object_size, make_rest = KINDS[plural]
    body, large_labels = make_rest(object_size), labels(object_size)
    written = number = 0
    with (directory / plural).open("wb") as file:
        for obj in beside or []:
            file.write(stub.BEFORE + stub.encoded(obj) + stub.AFTER)
        while written < size:
            namespace_field = b'"namespace":"tenant-%d",' % (number % TENANTS) if namespaced else b""
            metadata = b'"name":"x%d",%s"uid":"u%d","resourceVersion":"%d"' % (
                number,
                namespace_field,
                number,
                number + 10,
            )
            if number % 2:
                object_json = b'{"metadata":{' + metadata + b"}," + body + b"}"
            else:
                object_json = b'{"metadata":{' + metadata + b',"labels":' + large_labels + b"}," + make_rest(0) + b"}"
            written += file.write(stub.BEFORE + object_json + stub.AFTER)
            number += 1
    return written


@contextlib.contextmanager
def stored(size: int) -> Iterator[Path]:
    """Serve an honest cluster with `size` bytes of hostile objects, as many bytes of each kind."""
    with start.prepare(20) as directory:
        for plural in KINDS:
            honest_objects = [start.slice_(number) for number in range(20)] if plural == "resourceslices" else []
            write(directory, plural, size // len(KINDS), beside=honest_objects)
        yield directory


def run(directory: Path, name: str) -> StartMeasurement:
    """Start a process, wait until it is ready and has read everything, and measure it."""
    command, ready_message = PROCESSES[name]
    log = directory / f"{name}.log"
    started = time.monotonic()
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-c", WITH_SHIPPED_LIMIT, *command, f"--kubeconfig={directory / 'kubeconfig'}"],
            stdout=log_file,
            stderr=log_file,
            env=stub.compiled(directory),
        )
        try:
            while ready_message not in log.read_bytes():
                if process.poll() is not None or time.monotonic() - started > PATIENCE:
                    raise RuntimeError(f"{name} is not ready: {log.read_text()[-2000:]}")
                time.sleep(0.1)
            seconds = time.monotonic() - started
            return StartMeasurement(seconds, settled_peak(process.pid))
        finally:
            process.kill()
            process.wait()


def peak_of_command(directory: Path, *command: str) -> float:
    """Run a command to its end, and return its highest resident memory in MiB.

    The command reports it, because the kernel counts this process's memory for a child until the child executes its program.
    """
    report = "import atexit, sys; atexit.register(lambda: print(open('/proc/self/status').read(), file=sys.stderr))"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{report}\nfrom cli import begin\nbegin()",
            *command,
            f"--kubeconfig={directory / 'kubeconfig'}",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env=stub.compiled(directory),
    )
    if "Traceback" in done.stderr or "VmHWM:" not in done.stderr:
        raise RuntimeError(f"{command[0]} has failed: {done.stderr[-2000:]}")
    return peak_in(done.stderr)


def peak_in(status: str) -> float:
    """Return the highest resident memory, in MiB, from the text of a process's `status` file."""
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024


def settled_peak(pid: int) -> float:
    """Wait until a process is idle; return its highest resident memory in MiB."""
    before = -1.0
    while (now := cpu_of(pid)) - before > 0.2:
        before = now
        time.sleep(2.0)
    return peak_in(Path(f"/proc/{pid}/status").read_text())
