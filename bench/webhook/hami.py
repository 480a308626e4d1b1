"""HAMi-DRA's webhook, for comparison with ours: a Go program in the cache, and the answers of an API server that accepts its claims.

`bench.webhook.admission` gives HAMi-DRA's webhook an API server that only creates claims, faster than a real one. So the figures do not
include the CPU time of an API server for these claims, which is twice the CPU time of the webhook. The webhook's client has no rate limit.

The program is built on first use, from the source in HAMI_DRA_SOURCE, or else from the Go module. If neither is available, `program()`
raises MissingError with the reason; then `bench.webhook.admission` uses recorded figures.
"""

from __future__ import annotations

import base64
import os
import shutil
import ssl
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from e2e.ground.cache import cache
from e2e.ground.controlplane import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from certs.authority import Pair

MODULE = "github.com/Project-HAMi/HAMi-DRA"
COMMIT = "0213e665667f"
BUILD_SECONDS = 900
START_SECONDS = 60
CONFIGURATION = """\
nvidia:
  resourceCountName: nvidia.com/gpu
  resourceMemoryName: nvidia.com/gpumem
  resourceCoreName: nvidia.com/gpucores
  defaultGPUNum: 1
"""
# The answers to the discovery requests that a client sends before its first write.
CLAIMS = {
    "name": "resourceclaims",
    "singularName": "",
    "namespaced": True,
    "kind": "ResourceClaim",
    "verbs": ["create"],
}
V1 = {"groupVersion": "resource.k8s.io/v1", "version": "v1"}
RESOURCES = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": V1["groupVersion"], "resources": [CLAIMS]}
GROUP = {"name": "resource.k8s.io", "versions": [V1], "preferredVersion": V1}
DISCOVERY = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [GROUP]},
    "/apis/resource.k8s.io": {"kind": "APIGroup", "apiVersion": "v1", **GROUP},
    "/apis/resource.k8s.io/v1": RESOURCES,
}
CREATED = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "a", "resourceVersion": "1"},
}


class MissingError(Exception):
    """The program is not available; the message says why."""


class RunningWebhook(NamedTuple):
    """The server's address and process."""

    url: str
    pid: int


def program() -> Path:
    """Return the program in the cache; build it if necessary. Raise MissingError if it cannot be built."""
    path = cache() / "bin" / f"hami-dra-{COMMIT}" / "webhook"
    if path.exists():
        return path
    if shutil.which("go") is None:
        raise MissingError("Go is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        built = _build(Path(scratch))
        path.parent.mkdir(parents=True, exist_ok=True)
        partial_copy = path.with_suffix(f".{os.getpid()}")
        shutil.copy2(built, partial_copy)
        partial_copy.rename(path)
    return path


def _build(scratch: Path) -> Path:
    built = scratch / "webhook"
    environment = os.environ | {"GOBIN": str(scratch), "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
    command, directory = ["go", "install", f"{MODULE}/cmd/webhook@{COMMIT}"], scratch
    if source := os.environ.get("HAMI_DRA_SOURCE"):
        command, directory = ["go", "build", "-o", str(built), "./cmd/webhook"], Path(source)
    try:
        subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS)  # fmt: skip
    except subprocess.CalledProcessError as error:
        last_line = error.stderr.strip().splitlines()[-1:] or ["go printed no error"]
        raise MissingError(f"go could not build HAMi-DRA: {last_line[0].strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"go could not build HAMi-DRA: {error}") from error
    return built


@contextmanager
def running(path: Path, serving: Pair, api: bytes) -> Iterator[RunningWebhook]:
    """Run the webhook with a certificate, and with the kubeconfig `api` for its API server."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = {
            "tls.crt": serving.certificate,
            "tls.key": serving.key,
            "device-config.yaml": CONFIGURATION.encode(),
            "kubeconfig": api,
        }
        for name, content in files.items():
            (folder / name).write_bytes(content)
        port = free_port()
        options = {
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "cert-dir": folder,
            "device-config-file": folder / "device-config.yaml",
            "kubeconfig": folder / "kubeconfig",
            "metrics-bind-address": "0",
            "health-probe-bind-address": "0",
            "kube-api-qps": 1_000_000,
            "kube-api-burst": 1_000_000,
        }
        command = [str(path), *(f"--{name}={value}" for name, value in options.items())]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until_listening(port, process)
            yield RunningWebhook(f"https://127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()
            process.wait(20)


def registration(url: str, bundle: bytes) -> dict[str, Any]:
    """Return the registration of HAMi-DRA, as in its chart: for each created pod, without conditions."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    webhook = {
        "name": "pods.hami.bench.invalid",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"{url}/mutate", "caBundle": base64.b64encode(bundle).decode()},
        "failurePolicy": "Ignore",  # as ours: a pod is accepted if the webhook stops during its review
        "rules": [rule],
        "sideEffects": "None",
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "hami-dra"},
        "webhooks": [webhook],
    }


def wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait for the first TLS handshake that succeeds; raise MissingError if there is none."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            ssl.get_server_certificate(("127.0.0.1", port), timeout=5)
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise MissingError(f"HAMi-DRA did not listen within {START_SECONDS} s, or ended with {process.poll()}")
