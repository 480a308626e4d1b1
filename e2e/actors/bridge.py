"""Runs the allocator's service, and our scheduler, which calls it, on a control plane.

Roles, policy and custom kinds are those of manifests/, so the processes have exactly the rights that an installation gives them.
Tokens are bound to a pod, as in a cluster: the name of that pod is the holder of the lease.
"""

import http.client
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster import manifests
from e2e.actors.client import ApiError, Client, Object
from e2e.actors.webhook import COMMAND, ROOT, SYSTEM
from e2e.actors.workloads import acting_pod
from e2e.build import program
from e2e.ground.controlplane import ControlPlane, free_port
from e2e.ground.process import Process

COMPONENT = ROOT / "manifests/bridge"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/drawbridge-allocator"
SCHEDULER = "drawbridge"
SECOND_SCHEDULER = "drawbridge-second"  # for tests that need two of our schedulers
POLICY = "drawbridge-allocator-holder"


class Bridge:
    """Start it with `install()`, end it with `remove()`."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self.metrics_port = free_port()
        self.api_port = free_port()
        # Not below the run's directory: the path of a socket has at most 107 bytes.
        self.folder = tempfile.TemporaryDirectory(prefix="drawbridge-")
        self.socket = Path(self.folder.name) / "allocator/plugin.sock"
        self.processes: dict[str, Process] = {}
        self.applied: list[Object] = []

    def install(self) -> "Bridge":
        self.prepare()
        self.start()
        self.cluster.until("claim writes are refused to pods that do not hold the lease", self.is_fenced, 30)
        self.processes["scheduler"] = self.start_scheduler()
        return self

    def prepare(self) -> None:
        """Create the namespace, the roles, and the policy that lets only the holder of the lease write claims."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
        if self.cluster.read(namespace) is None:
            self.cluster.namespace(SYSTEM)
        self.apply(*kinds())
        names = [kind["metadata"]["name"] for kind in kinds()]
        self.cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", *names)
        self.apply(*objects())
        # The API server refuses an allocator that starts before its rights are in force.
        account = f"system:serviceaccount:{SYSTEM}:drawbridge-allocator"
        self.cluster.until_may(account, "patch", "resourceclaims", SYSTEM, "resource.k8s.io")
        self.cluster.until_may(account, "create", "leases", SYSTEM, "coordination.k8s.io")

    def apply(self, *objects: Object) -> None:
        self.cluster.kubectl("apply", "--server-side", "-f", "-", input=manifests.dump(objects))
        self.applied += objects

    def is_fenced(self, pod: str = "no-replica") -> bool:
        """Return whether the API server refuses claim writes of a pod: the policy is in force, and the lease has another holder."""
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "fence", "namespace": SYSTEM},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}]}},
        }
        if self.cluster.read(claim) is None:
            self.cluster.create(claim)
        stranger = Client(self.cluster.url, self.token(pod), self.cluster.ca)
        try:
            stranger.patch(
                self.cluster.path_of(claim),
                {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}},
                dryRun="All",
            )
        except ApiError as error:
            return POLICY in error.message
        finally:
            stranger.close()
            self.cluster.remove(claim)
        return False

    def token(self, pod: str) -> str:
        """Create a token as the kubelet mounts it into a pod of that name."""
        item = acting_pod(pod, SYSTEM, "drawbridge-allocator", schedulerName="none")
        return self.cluster.token_of(SYSTEM, "drawbridge-allocator", item)

    def start(self, name: str = "allocator-0", *, via: str = "", **options: Any) -> Process:
        """Start a replica and wait until it leads; with `via` it connects to the API server at that URL."""
        process = self.spawn(name, via=via, **options)
        self.cluster.until(f"{name} leads", lambda: process.check() or self.leads(), 30)
        return process

    def spawn(self, name: str, *, via: str = "", command: Sequence[str] = COMMAND, **changed: Any) -> Process:
        kubeconfig = self.cluster.write_kubeconfig(f"bridge-{name}", self.token(name), via)
        addresses = {
            "plugin": f"unix:{self.socket}",
            "api": f"127.0.0.1:{self.api_port}",
            "metrics-listen": f"127.0.0.1:{self.metrics_port}",
            "kubeconfig": str(kubeconfig),
            "namespace": SYSTEM,
            "identity": name,
        } | {key.replace("_", "-"): value for key, value in changed.items()}
        options = [f"--{key}={value}" for key, value in addresses.items()]
        options += [f"--scheduler-name={name}" for name in (SCHEDULER, SECOND_SCHEDULER)]
        process = self.cluster.spawn(f"drawbridge-{name}", [*command, "allocator", *options])
        self.processes[name] = process
        return process

    def leads(self, port: int = 0) -> bool:
        try:
            return "drawbridge_allocator_leader 1.0" in self.ask("/metrics", port or self.metrics_port)[1]
        except (OSError, http.client.HTTPException):
            return False

    def start_scheduler(self, name: str = SCHEDULER, **fields: Any) -> Process:
        """Start our scheduler for pods with this schedulerName. `fields` replace those of the shipped configuration."""
        configuration = scheduler_configuration(self.socket, name) | fields
        binary = program("drawbridge-scheduler", self.cluster.version)
        return self.cluster.start_scheduler(configuration, name=f"{name}-scheduler", binary=binary)

    def holder(self) -> str:
        try:
            holder: str = self.cluster.get(LEASE)["spec"].get("holderIdentity") or ""
        except ApiError as error:
            if error.code != 404:
                raise
            return ""
        return holder

    def ask(self, path: str, port: int = 0, body: Any = None) -> tuple[int, Any]:
        """Send a request to the service itself."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.api_port, timeout=60)
        try:
            connection.request("GET" if body is None else "POST", path, json.dumps(body) if body is not None else None)
            response = connection.getresponse()
            text = response.read().decode()
            plain = response.getheader("Content-Type", "").startswith("text/")
            return response.status, text if plain else json.loads(text)
        finally:
            connection.close()

    def held_devices(self) -> list[Object] | None:
        """Return the devices that claims hold according to the service; None if the service gives no list."""
        claims = self.ask("/api/v1/claims")[1].get("claims")
        return None if claims is None else [device for claim in claims for device in claim["devices"]]

    def remove(self) -> None:
        for process in self.processes.values():
            process.stop()
        self.cluster.delete(f"/api/v1/namespaces/{SYSTEM}/pods", gracePeriodSeconds=0)
        self.cluster.remove(*reversed(self.applied))
        self.folder.cleanup()


def kinds() -> list[Object]:
    """Our own kinds, which the service watches if they exist when it starts."""
    return [document.object for document in manifests.read([ROOT / "manifests/base/crds.yaml"])]


def scheduler_configuration(socket: Path, name: str = SCHEDULER) -> Object:
    """The scheduler's configuration of manifests/bridge with this socket and name of the scheduler, and with a shorter backoff."""
    config_map, *_ = manifests.read([COMPONENT / "scheduler.yaml"])
    [document] = manifests.parse(config_map.object["data"]["scheduler.yaml"])
    configuration = document.object | {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2}
    [profile] = configuration["profiles"]
    profile["schedulerName"] = name
    profile["pluginConfig"][0]["args"]["socket"] = str(socket)
    return configuration


def objects() -> list[Object]:
    """The objects of the component, without those that need images: in these tests the processes are no pods."""
    result = []
    for file in ("rbac.yaml", "policy.yaml", "tokens.yaml"):
        for document in manifests.read([COMPONENT / file]):
            item = document.object
            if item["kind"] in ("ServiceAccount", "Role", "RoleBinding"):
                item["metadata"]["namespace"] = SYSTEM
            result.append(item)
    return result
