"""A real control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback.

Everything is a plain process on a free port with its own directory, so several control planes run side by side.
The object is its own API client (client.py), logged in as an administrator.
"""

import http.client
import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import yaml

from e2e.actors.client import ApiError, Client, Object
from e2e.build import CONTROL_PLANE, CURRENT, program
from e2e.ground import pki
from e2e.ground.addresses import free_port, reserve
from e2e.ground.network import Network
from e2e.ground.process import Process, ProcessError
from e2e.ground.run import Run

# The gates of kind/cluster.yaml, so that users with a Docker engine get the same cluster.
ALPHA_GATES: dict[str, bool] = yaml.safe_load((Path(__file__).parents[1] / "kind/cluster.yaml").read_text())[
    "featureGates"
]
GROUP_GATES = ALPHA_GATES | {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
AUDIT_EVERYTHING = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
READY_SECONDS = 60.0


class ControlPlane(Client):
    """Start it with `with ControlPlane(...) as cp:`, or `start()` and `stop()`."""

    def __init__(
        self,
        *,
        name: str = "cp",
        feature_gates: Mapping[str, bool] = ALPHA_GATES,
        qps: int = 2000,
        burst: int = 4000,
        audit: bool | Object = False,
        admission: Object | None = None,
        scheduler: Object | None = None,
        version: str = CURRENT,
        network: bool = False,
        api_args: Sequence[str] = (),
        controller_args: Sequence[str] = (),
    ) -> None:
        """Prepare a control plane; nothing runs yet.

        Args:
            name: Part of the name of the run's directory.
            feature_gates: For all components, the kubelet included.
            qps: Client limit of controller manager, schedulers and kubelet; the defaults of Kubernetes are 20 and 50.
            burst: Client limit of the same components for short bursts.
            audit: Write an audit log, by this policy or with the metadata of every request.
            admission: An AdmissionConfiguration for the API server.
            scheduler: A KubeSchedulerConfiguration for the stock scheduler, without its clientConnection.
            version: The minor of API server, controller manager and scheduler.
            network: Give the cluster its own network, with Services that pods and the API server reach; needs root.
            api_args: More arguments for kube-apiserver.
            controller_args: More arguments for kube-controller-manager.
        """
        self.name = name
        self.gates = ",".join(f"{gate}={str(on).lower()}" for gate, on in feature_gates.items())
        self.qps = qps
        self.burst = burst
        self.audit_policy = AUDIT_EVERYTHING if audit is True else audit
        self.admission = admission
        self.scheduler_configuration = scheduler or {}
        self.version = version
        self.has_network = network
        self.api_args = api_args
        self.controller_args = controller_args
        self.processes: list[Process] = []
        self.ready_seconds = 0.0
        self.detached = False
        self.network: Network | None = None
        self.address = "127.0.0.1"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start everything and wait until the API server is ready."""
        for binary in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"):
            program(binary, self.version)
        begun = time.monotonic()
        self.run = Run(self.name)
        self.port = free_port()
        super().__init__(f"https://127.0.0.1:{self.port}", secrets.token_hex(16), self.run.data / "pki/ca.crt")
        try:
            if self.has_network:
                self.network = Network(self.spawn)
                self.address = self.network.address
                self.url = f"https://{self.address}:{self.port}"
            pki.write(self.run.data / "pki", self.address)
            self.node_token, self.stolen_token = secrets.token_hex(16), secrets.token_hex(16)
            self.kubeconfig = self.write_kubeconfig("admin", self.token)
            self.start_etcd()
            self.start_apiserver()
            self.start_controllers()
            self.scheduler = self.start_scheduler(self.scheduler_configuration, name="kube-scheduler")
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            self.until("the default service account", lambda: self.read_checked(account), READY_SECONDS)
        except BaseException as error:
            error.add_note(self.failure_report())
            self.stop()
            raise
        self.ready_seconds = time.monotonic() - begun
        return self

    def stop(self) -> None:
        """End everything, unless it was detached; the logs stay in `run.logs`."""
        self.close()
        if self.detached:
            return
        with ThreadPoolExecutor() as executor:
            # Nothing that these processes would still write is needed, and SIGKILL is a second faster.
            list(executor.map(lambda process: process.stop(hard=True), reversed(self.processes)))
        self.processes.clear()
        self.run.end()

    def detach(self) -> None:
        """Leave everything running when this process and the `with` statement end."""
        self.run.detach()
        self.detached = True

    def read_checked(self, item: Object) -> Object | None:
        """Read an object; raise if a process has ended meanwhile."""
        for process in self.processes:
            process.check()
        return self.read(item)

    def spawn(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        enter: Sequence[str] = (),
    ) -> Process:
        """Start a process that ends with this control plane; its log is `run.logs/<name>.log`."""
        enter = enter or (self.network.enter() if self.network else ())
        process = Process(name, argv, root=self.run.root, env=env, enter=enter)
        self.processes.append(process)
        return process

    def process(self, name: str) -> Process:
        """Find a process by the name that its log has."""
        [process] = [process for process in self.processes if process.name == name]
        return process

    def become(self, version: str) -> None:
        """Replace the running programs by those of another minor, over the same etcd."""
        self.version = version
        for name in CONTROL_PLANE:
            process = self.process(name)
            process.stop(hard=True)  # otherwise kube-apiserver waits a minute for its watches
            self.processes.remove(process)
        self.start_apiserver()
        self.start_controllers()
        self.scheduler = self.start_scheduler(self.scheduler_configuration, name="kube-scheduler")

    def restart_controllers(self, url: str) -> None:
        """Let kube-controller-manager connect to the API server at this URL."""
        self.controller_manager.stop()
        self.processes.remove(self.controller_manager)
        self.start_controllers(self.write_kubeconfig("controllers", self.token, url))

    def kill(self, name: str) -> None:
        """Kill a process, and start it again with the same arguments. The caller waits until the process is ready."""
        old = self.process(name)
        old.stop(hard=True)
        self.processes.remove(old)
        new = self.spawn(name, old.argv)
        if old is self.apiserver:
            self.apiserver = new

    def start_etcd(self) -> None:
        client, peer = free_port(), free_port()
        self.etcd = f"http://127.0.0.1:{client}"
        self.spawn(
            "etcd",
            [
                program("etcd"),
                f"--data-dir={self.run.data / 'etcd'}",
                f"--listen-client-urls={self.etcd}",
                f"--advertise-client-urls={self.etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-cluster=default=http://127.0.0.1:{peer}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
        )

    def start_apiserver(self) -> None:
        keys = self.run.data / "pki"
        tokens = self.run.data / "tokens.csv"
        tokens.write_text(
            f'{self.token},admin,admin,"system:masters"\n'
            f'{self.node_token},system:node:{NODE},node,"system:nodes,system:authenticated"\n'
            f'{self.stolen_token},system:node:{STOLEN},stolen,"system:nodes,system:authenticated"\n'
        )
        self.apiserver = self.spawn(
            "kube-apiserver",
            [
                program("kube-apiserver", self.version),
                f"--etcd-servers={self.etcd}",
                f"--bind-address={self.address}",
                f"--secure-port={self.port}",
                # Without a network, 127.0.0.1 would be refused as the advertised address.
                f"--endpoint-reconciler-type={'lease' if self.network else 'none'}",
                f"--tls-cert-file={keys / 'server.crt'}",
                f"--tls-private-key-file={keys / 'server.key'}",
                f"--token-auth-file={tokens}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={keys / 'accounts.pub'}",
                f"--service-account-signing-key-file={keys / 'accounts.key'}",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--authorization-mode=Node,RBAC",
                "--allow-privileged=true",  # as kubeadm has it: drivers are privileged pods
                "--enable-admission-plugins=NodeRestriction",
                "--kubelet-preferred-address-types=Hostname",  # the kubelet listens on loopback only
                "--runtime-config=api/all=true",
                "--profiling=false",
                *self.gate_args(),
                *self.audit_args(),
                *self.admission_args(),
                *self.api_args,
            ],
        )
        self.until("the API server is ready", self.api_ready, READY_SECONDS)

    def start_controllers(self, kubeconfig: Path | None = None) -> None:
        keys = self.run.data / "pki"
        self.controller_manager = self.spawn(
            "kube-controller-manager",
            [
                program("kube-controller-manager", self.version),
                f"--kubeconfig={kubeconfig or self.kubeconfig}",
                "--secure-port=0",
                "--leader-elect=false",
                f"--service-account-private-key-file={keys / 'accounts.key'}",
                f"--root-ca-file={self.ca}",
                f"--kube-api-qps={self.qps}",
                f"--kube-api-burst={self.burst}",
                # Fake nodes send no heartbeats and have to stay ready.
                "--node-monitor-grace-period=24h",
                "--node-startup-grace-period=24h",
                *self.gate_args(),
                *self.controller_args,
            ],
        )

    def start_scheduler(
        self, configuration: Object, *, name: str, binary: Path | None = None, args: Sequence[str] = ()
    ) -> Process:
        """Start one more kube-scheduler, or another program that takes its flags, with its own configuration."""
        client = {"kubeconfig": str(self.kubeconfig), "qps": self.qps, "burst": self.burst}
        complete = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
        } | configuration
        complete["clientConnection"] = client | configuration.get("clientConnection", {})
        file = self.write_json(f"{name}.json", complete)
        return self.spawn(
            name,
            [
                binary or program("kube-scheduler", self.version),
                f"--config={file}",
                "--bind-address=127.0.0.1",
                f"--secure-port={free_port()}",
                "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
                *self.gate_args(),
                *args,
            ],
        )

    def gate_args(self) -> list[str]:
        return [f"--feature-gates={self.gates}"] if self.gates else []

    def audit_args(self) -> list[str]:
        if not self.audit_policy:
            return []
        self.audit_log = self.run.logs / "audit.log"
        policy = self.write_json("audit-policy.json", self.audit_policy)
        # Blocking: a request is logged before its response is sent.
        return [
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking-strict",
        ]

    def admission_args(self) -> list[str]:
        if not self.admission:
            return []
        return [f"--admission-control-config-file={self.write_json('admission.json', self.admission)}"]

    def api_ready(self) -> bool:
        self.apiserver.check()
        try:
            return bool(self.get("/readyz") == "ok")
        except (OSError, http.client.HTTPException, ApiError):
            return False

    def audit_events(self) -> Iterator[Object]:
        """Read the audit log from its beginning, without an incomplete last line."""
        with self.audit_log.open() as log:
            for line in log:
                if line.endswith("\n"):
                    yield json.loads(line)

    def write_json(self, name: str, content: Any) -> Path:
        path = self.run.data / name
        path.write_text(json.dumps(content, indent=1))
        return path

    def write_kubeconfig(self, user: str, token: str, url: str = "") -> Path:
        """Write a kubeconfig for a token and return its path; `url` replaces the API server's."""
        return self.write_json(
            f"{user}.kubeconfig",
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {"name": "e2e", "cluster": {"server": url or self.url, "certificate-authority": str(self.ca)}},
                ],
                "users": [{"name": user, "user": {"token": token}}],
                "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
                "current-context": "e2e",
            },
        )

    def account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig for a service account, to run a program with exactly its rights."""
        return self.write_kubeconfig(f"{namespace}-{name}", self.token_of(namespace, name))

    def token_of(self, namespace: str, account: str, pod: dict[str, Any] | None = None, **spec: Any) -> str:
        """Request a token of a service account. With `pod`, create a missing pod, and bind the token to it, as the kubelet does."""
        if pod:
            meta = (self.read(pod) or self.create(pod)[0])["metadata"]
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        token: str = self.post(path, request)["status"]["token"]
        return token

    def client_of(self, namespace: str, account: str, pod: dict[str, Any] | None = None) -> closing[Client]:
        """Return a client with the rights of a service account, which is closed at the end of the block."""
        return closing(Client(self.url, self.token_of(namespace, account, pod), self.ca))

    def kubectl(
        self,
        *args: str,
        input: str | None = None,  # noqa: A002 - named as subprocess.run names it
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator; AssertionError with its messages if it fails and `check` holds."""
        done = subprocess.run(
            [program("kubectl"), *args],
            input=input,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig)},
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(args)} ended with {done.returncode}: {done.stderr}{done.stdout}")
        return done

    def failure_report(self) -> str:
        """Return where the logs are and their last lines, more of them for processes that ended by themselves."""
        parts = [f"logs of the cluster: {self.run.logs}"]
        for process in self.processes:
            if process.failed:
                parts.append(f"{process.name} HAS ENDED:\n{process.tail(20)}")
            elif not process.stopped:
                parts.append(f"{process.name}:\n{process.tail(3)}")
        return "\n".join(parts)


# The name of the real node. It resolves without DNS, so that kubectl logs and exec reach its kubelet.
NODE = "127.0.0.1"
# A node without a kubelet, with credentials for tests.
STOLEN = "stolen-0"

__all__ = ["ALPHA_GATES", "AUDIT_EVERYTHING", "GROUP_GATES", "ControlPlane", "ProcessError", "free_port", "reserve"]
