"""Installs drawbridge on a real control plane: the unchanged kustomize base, and its three processes, each with its own account's rights.

The processes run beside the cluster instead of in it, because there is no image registry and no Service routing here;
so the webhook configurations call them by URL. The webhook reviews only namespaces that opt in, so that it does not affect
the other tests of the session.
"""

import base64
import contextlib
import hashlib
import http.client
import json
import secrets
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

from e2e.actors import fleet
from e2e.actors.workloads import claim, container, limits, pod, request
from e2e.ground.controlplane import ControlPlane, free_port
from e2e.ground.process import Process

ROOT = Path(__file__).parents[2]
BASE = ROOT / "manifests/base"
SYSTEM = "drawbridge-system"
CONFIGURATION = """\
apiVersion: drawbridge.dev/v1alpha1
kind: DrawbridgeConfiguration
mode: enforce
"""
MODE = "drawbridge.dev/mode"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/drawbridge"
COMMAND = [str(Path(sys.executable).with_name("drawbridge"))]


class Webhook:
    """Start it with `install()`, end it with `remove()`."""

    def __init__(self, cluster: ControlPlane, *, sweep_after: int = 2) -> None:
        """Unused templates are deleted after `sweep_after` seconds, sooner than in production."""
        self.cluster = cluster
        self.sweep_after = sweep_after
        self.port = free_port()
        self.metrics_port = free_port()
        self.controller_ports: dict[str, int] = {}
        self.config = cluster.run.data / "drawbridge.yaml"
        self.processes: dict[str, Process] = {}
        self.trusted = ""  # the CA bundle of an external certificate; if empty, the bundle is in the Secret

    def install(self) -> "Webhook":
        self.configure(CONFIGURATION)
        self.cluster.kubectl("apply", "--server-side", "-k", str(BASE))
        for name in ("drawbridge-webhook", "drawbridge-controller", "drawbridge-authority"):
            path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{name}"
            self.cluster.patch(path, {"spec": {"replicas": 0}})
        self.register()
        self.start_authority()
        self.start_controller()
        self.start_webhook()
        self.cluster.until("every registered webhook has a CA bundle and rules", self.is_called, 30)
        return self

    def is_called(self) -> bool:
        """Return whether all registered webhooks have a bundle and rules, which the authority writes."""
        registered = [
            webhook
            for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
            for webhook in self.cluster.get(f"/apis/admissionregistration.k8s.io/v1/{kind}/drawbridge")["webhooks"]
        ]
        return all(webhook["clientConfig"].get("caBundle") and webhook.get("rules") for webhook in registered)

    def configure(self, text: str) -> None:
        """Replace the configuration atomically, as the kubelet does with the file of a ConfigMap."""
        replace_file(text, self.config)

    def follow(self, text: str) -> None:
        """Replace the configuration, and wait until webhook and controllers use the new one: each process reads the file at intervals."""
        self.configure(text)
        metric = f'drawbridge_configuration_info{{sha256="{hashlib.sha256(text.encode()).hexdigest()}"}} 1.0'

        def is_in_force() -> bool:
            ports = self.controller_ports | {"webhook": self.metrics_port}
            running = [port for name, port in ports.items() if name in self.processes and self.processes[name].alive]
            return all(metric in self.plain(port, "/metrics") for port in running)

        self.cluster.until("the configuration is in force", is_in_force, 20)

    def register(self, *options: str, **certificates: str) -> None:
        """Apply the generated webhook configurations, with the webhook's URL instead of a Service.

        The API server calls the webhook only for namespaces with a mode label, and refuses their pods while the webhook is down.
        """
        url = f"https://127.0.0.1:{self.port}"
        values = {"webhooks": {"url": url, "optIn": True, "failurePolicy": "Fail"}, "certificates": certificates}
        configurations = self.webhooks(values, *options)
        # Three seconds are enough in a cluster; here a busy machine must not fail a test.
        assert "timeoutSeconds: 3\n" in configurations
        configurations = configurations.replace("timeoutSeconds: 3\n", "timeoutSeconds: 20\n")
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=configurations)

    def drawbridge(self, *args: str) -> str:
        """Run the command line and return what it printed."""
        return subprocess.run([*COMMAND, *args], capture_output=True, text=True, check=True, cwd=ROOT).stdout

    def webhooks(self, values: dict[str, Any], *options: str) -> str:
        """Return the webhook configurations that `drawbridge manifests` prints for these values."""
        file = self.cluster.write_json("values.json", values)
        return self.drawbridge("manifests", "--only=webhooks", "--values", str(file), *options)

    def start_controller(self, name: str = "controller") -> Process:
        port = self.controller_ports[name] = free_port()
        options = (
            "--no-reviews",
            "--no-authority",
            f"--sweep-after={self.sweep_after}",
            f"--metrics-listen=127.0.0.1:{port}",
        )
        process = self.start("controller", *options, name=name)
        self.cluster.until(f"the {name} is ready", lambda: process.check() or self.controller_ready(port), 30)
        return process

    def controller_ready(self, port: int) -> bool:
        try:
            return self.ask(port, "/readyz")[0] == 200
        except OSError:
            return False

    def kill_controller(self) -> None:
        """Kill the controller, and delete the lease, so that the next controller need not wait until the lease has expired."""
        self.processes["controller"].stop(hard=True)
        self.cluster.delete(LEASE)

    def start_authority(self) -> Process:
        options = ("--no-reviews", "--no-controllers", "--authority", f"--metrics-listen=127.0.0.1:{free_port()}")
        return self.start("authority", *options)

    def start_webhook(self, *options: str, notice: float = 0.5) -> Process:
        process = self.start(
            "webhook",
            "--no-controllers",
            *options,
            f"--listen=127.0.0.1:{self.port}",
            f"--metrics-listen=127.0.0.1:{self.metrics_port}",
            f"--notice={notice}",
        )
        self.cluster.until("the webhook is ready", lambda: process.check() or self.ready(), 30)
        return process

    def start(self, role: str, *options: str, name: str = "", config: Path | None = None) -> Process:
        kubeconfig = self.cluster.account_kubeconfig(SYSTEM, f"drawbridge-{role}")
        shared = [
            f"--config={config or self.config}",
            f"--kubeconfig={kubeconfig}",
            f"--namespace={SYSTEM}",
            "--name=127.0.0.1",
        ]
        process = self.cluster.spawn(f"drawbridge-{name or role}", [*COMMAND, "webhook", *options, *shared])
        self.processes[name or role] = process
        return process

    def ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def get(self, path: str) -> tuple[int, str]:
        """Send a request to the webhook itself."""
        return read(http.client.HTTPSConnection("127.0.0.1", self.port, context=self.trust(), timeout=60), path)

    def metrics(self) -> str:
        return self.plain(self.metrics_port, "/metrics")

    def controllers(self, path: str) -> str:
        """Request a page from the metrics ports of all controllers; one of them leads."""
        answers = []
        for port in self.controller_ports.values():
            with contextlib.suppress(OSError):
                answers.append(self.plain(port, path))
        return "".join(answers)

    def plain(self, port: int, path: str) -> str:
        return self.ask(port, path)[1]

    def ask(self, port: int, path: str) -> tuple[int, str]:
        return read(http.client.HTTPConnection("127.0.0.1", port, timeout=60), path)

    def post(self, path: str, review: Any) -> Any:
        """Post a review, as any client that reaches the port can."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.trust(), timeout=60)
        try:
            connection.request("POST", path, json.dumps(review), {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())["response"]
        finally:
            connection.close()

    def trust(self) -> ssl.SSLContext:
        if self.trusted:
            return ssl.create_default_context(cadata=self.trusted)
        secret = self.cluster.read({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "drawbridge", "namespace": SYSTEM}})  # fmt: skip
        bundle = base64.b64decode(((secret or {}).get("data") or {}).get("ca.crt", ""))
        if not bundle:
            raise OSError("there is no bundle yet")
        return ssl.create_default_context(cadata=bundle.decode())

    def stop(self) -> None:
        """End the processes in the documented order: the webhook configurations first."""
        configurations = self.drawbridge("manifests", "--only=webhooks")
        self.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=configurations)
        for process in self.processes.values():
            process.stop()
        self.processes.clear()
        self.controller_ports.clear()

    def remove(self) -> None:
        """Uninstall."""
        self.stop()
        self.cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-k", str(BASE))

    def admits(self, namespace: str) -> None:
        """Set mode enforce for a namespace, and wait until the API server calls the mutating and the validating webhook for it."""
        self.cluster.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {MODE: "enforce"}}})
        invalid_pod = pod(
            "probe", namespace, container(**limits(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": "1500m"}))
        )
        invalid_claim = claim("probe", namespace, request("r", "no-such-class"))
        reviews = {
            "mutates": (invalid_pod, "[R001]"),
            "validates": (invalid_claim, "[R021]"),
        }
        for verb, (item, words) in reviews.items():
            self.cluster.until(
                f"the webhook {verb} objects in {namespace}",
                lambda item=item, words=words: words in self.cluster.refusal(item),
                20,
            )

    def reads_on(self, node: str) -> None:
        """Wait until the webhook's copies of nodes, slices and classes are current.

        Label the node, add a slice and a class, and wait for a refusal that depends on all three.
        """
        label = f"seen-{secrets.token_hex(4)}.example.com"
        self.cluster.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {label: "yes"}}})
        [slice_] = fleet.slices(label, node, [fleet.device("one", {})])
        term = {"matchExpressions": [{"key": label, "operator": "In", "values": ["yes"]}]}
        slice_["spec"]["nodeSelector"] = {"nodeSelectorTerms": [term]}
        objects = self.cluster.create(fleet.device_class(label, f"device.driver == '{label}'"), slice_)
        if not self.cluster.read(probe := {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "webhook-probe", "labels": {MODE: "enforce"}}}):  # fmt: skip
            self.cluster.create(probe)
        two_devices = claim("two", "webhook-probe", request("r", label, 2))
        try:
            self.cluster.until(
                "the webhook knows the new slice, class and label",
                lambda: "[R023]" in self.cluster.refusal(two_devices),
                20,
            )
        finally:
            self.cluster.remove(*objects)
            self.cluster.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {label: None}}})


# Shared by the tests of the webhook


def replace_file(text: str, file: Path) -> None:
    """Replace the content of a file atomically."""
    temporary = file.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(file)


def read(connection: http.client.HTTPConnection, path: str) -> tuple[int, str]:
    """Request a page and close the connection."""
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


NODE = "webhook-fake-0"
NOWHERE = {"kubernetes.io/hostname": "nowhere"}  # for pods that should wait
DEVICES = {
    fleet.NVIDIA: [*fleet.whole_gpus(8), *fleet.static_mig(9, ["3g.20gb", "1g.5gb", "1g.5gb"])],
    fleet.HAMI: fleet.hami_gpus(4),
    fleet.DRANET: fleet.dranet_nics(8),
}


def gpu(name, namespace, **spec):
    """A pod that requests a GPU as for the NVIDIA device plugin."""
    return pod(name, namespace, container(**limits(**{"nvidia.com/gpu": 1})), **spec)


def review(item, namespace):
    """The review that an API server sends for a new pod."""
    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "system:apiserver"},
        "object": item,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def is_translated(cluster, item):
    """Return whether a pod that is created now would be translated."""
    (answer,) = cluster.create(item, dryRun="All")
    return "drawbridge.dev/original" in answer["metadata"].get("annotations", {})


def known(cluster, item, seconds=60):
    """Wait until the webhook would translate a pod, without creating it; return the pod."""
    cluster.until("the webhook translates the pod", lambda: is_translated(cluster, item), seconds)
    return item


def untouched(cluster, item, seconds=60):
    """Wait until the webhook would not translate a pod, without creating it; return the pod.

    The API server's view of webhooks and namespace labels may be some moments old.
    """
    cluster.until("the pod stays as it is", lambda: not is_translated(cluster, item), seconds)
    return item


def claims_of(cluster, namespace, name):
    """The claims of a pod, by their names in the pod's spec."""
    statuses = cluster.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"].get("resourceClaimStatuses", [])
    base = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    return {s["name"]: cluster.get(f"{base}/{s['resourceClaimName']}") for s in statuses}


def template_path(namespace, name=""):
    """The path of a claim template, or of all templates in a namespace."""
    base = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"
    return f"{base}/{name}" if name else base


def templates_of(cluster, namespace):
    """The claim templates of a namespace by their names."""
    return {item["metadata"]["name"]: item for item in cluster.get(template_path(namespace))["items"]}


def results_of(claim):
    return claim["status"]["allocation"]["devices"]["results"]
