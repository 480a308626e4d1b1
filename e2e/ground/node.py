"""One real node: containerd, runc, CNI and the kubelet, with the drivers and device plugins that tests start on it.

Some settings only serve to let the node run on machines with cgroup v1, without CAP_SYS_RESOURCE, and in CI.
"""

import json
import os
import socket
import time
from pathlib import Path
from typing import Self

from e2e.actors.client import Object, conditions
from e2e.build import program
from e2e.ground import foreign, images, packages
from e2e.ground.addresses import free_port, free_subnet
from e2e.ground.box import Box
from e2e.ground.controlplane import NODE, ControlPlane
from e2e.ground.network import Network
from e2e.ground.process import Process

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
KUBELET = "/var/lib/kubelet"
DOMAIN = "cluster.local"
TEST_DRIVER = "test-driver.cdi.k8s.io"
READY_SECONDS = 90.0
# Kill containers and their shims, then remove mounts and the folders that a machine has in memory.
POWER_OFF = f"""
for shim in $(pidof containerd-shim-runc-v2); do kill -9 $(cat /proc/$shim/task/*/children) $shim || true; done
for mounted in $(cut -d ' ' -f 2 /proc/mounts | grep -E '^(/run/containerd|/run/netns|{KUBELET}/pods)/' | sort -r); do
  umount --lazy $mounted
done
rm -rf /run/containerd/* /run/netns/* /run/cdi/*
"""


class Node:
    """A node of `control_plane`; it ends with the control plane."""

    def __init__(self, control_plane: ControlPlane, name: str = NODE) -> None:
        self.cluster = control_plane
        self.name = name
        self.drivers: dict[str, Process] = {}
        self.root = control_plane.run.data / "node"
        self.pod_logs = control_plane.run.logs / "pods"
        self.binds = {
            KUBELET: self.root / "kubelet",
            "/var/lib/containerd": self.root / "containerd",
            "/run/containerd": self.root / "containerd-state",
            "/run/cdi": self.root / "cdi",
            "/run/netns": self.root / "netns",
            "/run/nri": self.root / "nri",
            "/var/lib/cni": self.root / "cni",
            "/etc/cni/net.d": self.root / "cni.conf",
            "/var/log/pods": self.pod_logs,
        }

    def start(self) -> Self:
        """Start containerd and the kubelet and wait until the node is ready."""
        foreign.refuse()
        packages.require()
        begun = time.monotonic()
        self.box = Box(self.cluster.spawn, self.cluster.run.data, self.binds)
        self.write_network()
        self.start_containerd()
        self.start_kubelet()
        self.cluster.until(f"node {self.name} is ready", self.ready, READY_SECONDS)
        if self.cluster.network:
            self.start_services(self.cluster.network)
        self.ready_seconds = time.monotonic() - begun
        return self

    def spawn(self, name: str, argv: list[str | Path], env: dict[str, str] | None = None) -> Process:
        """Start a process inside the node's box."""
        return self.cluster.spawn(name, argv, env=env, enter=self.box.enter())

    def outside(self, path: str) -> Path:
        """Return the path on this machine of a path in the node's box: `outside("/var/lib/kubelet/pod-resources")`."""
        for inside, bound in self.binds.items():
            if path == inside or path.startswith(f"{inside}/"):
                return bound / path[len(inside) :].lstrip("/")
        return Path(path)

    def start_containerd(self) -> None:
        configuration = self.root / "containerd.toml"
        configuration.write_text(CONTAINERD_TOML)
        binary = program("containerd")
        program("containerd-shim-runc-v2")
        path = {"PATH": f"{binary.parent}:{os.environ['PATH']}"}
        self.containerd = self.spawn("containerd", [binary, "--config", configuration], path)
        self.import_images(images.archive())

    def start_services(self, network: Network) -> None:
        """Start kube-proxy and CoreDNS, so that pods reach Services by address and by name."""
        self.cluster.spawn(
            "kube-proxy",
            [
                program("kube-proxy"),
                f"--kubeconfig={self.cluster.kubeconfig}",
                f"--hostname-override={self.name}",
                "--proxy-mode=iptables",
                f"--cluster-cidr={network.pods}",
                "--conntrack-max-per-core=0",  # 0 leaves this setting of the whole machine unchanged
                f"--healthz-bind-address=127.0.0.1:{free_port()}",
                f"--metrics-bind-address=127.0.0.1:{free_port()}",
            ],
        )
        corefile = self.root / "Corefile"
        corefile.write_text(
            f".:53 {{\n bind {network.address}\n kubernetes {DOMAIN} {{\n  kubeconfig {self.cluster.kubeconfig}\n }}\n}}\n"
        )
        coredns = self.cluster.spawn("coredns", [program("coredns"), "-conf", corefile])

        def answers() -> bool:
            coredns.check()
            with socket.socket() as connection:
                return connection.connect_ex((network.address, 53)) == 0

        self.cluster.until("CoreDNS accepts connections", answers, READY_SECONDS)

    def import_images(self, archive: Path) -> None:
        """Import the images of an archive into containerd."""
        importing: list[str | Path] = [program("ctr"), "--namespace=k8s.io", "images", "import", archive]
        self.cluster.until("containerd imports the images", lambda: self.attempt(importing), READY_SECONDS)

    def attempt(self, argv: list[str | Path]) -> bool:
        self.containerd.check()
        if not self.answers():
            return False
        self.box.run(*argv, timeout=300)  # half a gigabyte of images, beside other processes
        return True

    def answers(self) -> bool:
        """Return whether containerd answers. Its socket alone proves nothing: a killed containerd leaves it behind."""
        if not self.outside(CONTAINERD_SOCKET).exists():
            return False
        try:
            self.box.run(program("ctr"), "version")
        except RuntimeError:
            return False
        return True

    def start_kubelet(self) -> None:
        network = self.cluster.network
        resolve = self.root / "resolv.conf"
        resolve.write_text("nameserver 127.0.0.1\n")
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": free_port(),
            "readOnlyPort": 0,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            # Control groups: version 1 still exists, and without CAP_SYS_RESOURCE no hierarchy can be enforced.
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "oomScoreAdj": 0,
            "failSwapOn": False,
            # The machine is shared: do not judge or clean its disk, and do not fill its packet filter.
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": False,
            "resolvConf": str(resolve),
            "clusterDNS": [network.address] if network else [],
            "clusterDomain": DOMAIN if network else "",
            "volumePluginDir": f"{KUBELET}/volume-plugins",
            "nodeStatusUpdateFrequency": "2s",
            # Retry failed preparation in the next sync instead of after a minute.
            "syncFrequency": "10s",
            "kubeAPIQPS": self.cluster.qps,
            "kubeAPIBurst": self.cluster.burst,
            "featureGates": dict(gate_pair(gate) for gate in self.cluster.gates.split(",") if gate),
        }
        file = self.cluster.write_json("kubelet.json", configuration)
        kubeconfig = self.cluster.write_kubeconfig("node", self.cluster.node_token)
        self.kubelet_argv: list[str | Path] = [
            program("kubelet", self.cluster.version),
            f"--config={file}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={KUBELET}",
            f"--hostname-override={self.name}",
            *([f"--node-ip={network.address}"] if network else []),
            "--v=2",
        ]
        self.kubelet = self.spawn("kubelet", self.kubelet_argv)

    def restart_kubelet(self) -> None:
        """End the kubelet and start it again, as an upgrade would."""
        self.kubelet.stop()
        self.kubelet = self.spawn("kubelet", self.kubelet_argv)

    def restart_containerd(self) -> None:
        """End containerd and start it again, as an upgrade would: the containers keep running."""
        self.containerd.stop()
        self.start_containerd()

    def reboot(self) -> None:
        """End the node's processes except those that tests started, delete what a machine has in memory, and start the node again."""
        self.kubelet.stop()
        self.containerd.stop(hard=True)
        self.box.run("sh", "-c", POWER_OFF)
        self.start_containerd()
        self.kubelet = self.spawn("kubelet", self.kubelet_argv)

    def ready(self) -> bool:
        self.kubelet.check()
        self.containerd.check()
        node = self.cluster.read({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}})
        states = {c["type"]: c["status"] for c in conditions(node or {})}
        return states.get("Ready") == "True" and not (node or {})["spec"].get("taints")

    def write_network(self) -> None:
        self.subnet = self.cluster.network.pods if self.cluster.network else free_subnet()
        network = {
            "cniVersion": "1.0.0",
            "name": "drawbridge",
            "plugins": [
                {
                    "type": "ptp",
                    "ipam": {
                        "type": "host-local",
                        "dataDir": "/var/lib/cni/networks",
                        "ranges": [[{"subnet": self.subnet}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        (self.root / "cni.conf/drawbridge.conflist").write_text(json.dumps(network))

    def driver(self, driver: str = TEST_DRIVER, devices: int = 0) -> Process:
        """Return the running driver of that name, started on first use."""
        if driver not in self.drivers:
            self.drivers[driver] = self.start_driver(driver, devices)
        return self.drivers[driver]

    def end_driver(self, driver: str) -> None:
        """End the running driver of that name and delete its slices, so that a vendor's driver can replace it."""
        if driver in self.drivers:
            self.drivers.pop(driver).stop()
        slices = "/apis/resource.k8s.io/v1/resourceslices"
        for item in self.cluster.get(slices, fieldSelector=f"spec.driver={driver}")["items"]:
            self.cluster.delete(f"{slices}/{item['metadata']['name']}")

    def start_driver(self, driver: str, devices: int) -> Process:
        """Start Kubernetes' DRA test driver under a driver's name and wait until the kubelet knows it.

        Without devices of its own it stands in for a vendor's driver: it prepares devices of handwritten ResourceSlices (fleet.py).
        It does not delete these slices as long as they have no nodeName.
        """
        (self.outside(f"{KUBELET}/plugins") / driver).mkdir(parents=True, exist_ok=True)
        process = self.spawn(
            f"driver-{driver}",
            [
                program("dra-test-driver"),
                f"--drivername={driver}",
                f"--kubeconfig={self.cluster.kubeconfig}",
                "--v=3",
                "kubelet-plugin",
                f"--node-name={self.name}",
                f"--num-devices={devices}",
            ],
        )

        def registered() -> bool:
            process.check()
            slices = self.cluster.get("/apis/resource.k8s.io/v1/resourceslices", fieldSelector=f"spec.driver={driver}")
            published = any(item["spec"].get("nodeName") == self.name for item in slices["items"])
            # The kubelet watches device health as soon as a driver has registered. An earlier driver writes to the same log.
            output = process.log.read_text().rpartition("\n--- ")[2]
            return published and "WatchHealthStatus stream" in output

        self.cluster.until(f"driver {driver} is registered with the kubelet", registered)
        return process

    def start_device_plugin(self) -> Process:
        """Start Kubernetes' sample device plugin, which offers two `example.com/resource`."""
        return self.spawn("sample-device-plugin", [program("sample-device-plugin")])

    def allocatable(self) -> Object:
        amounts: Object = self.cluster.get(f"/api/v1/nodes/{self.name}")["status"]["allocatable"]
        return amounts

    def logs(self, namespace: str, pod: str, container: str) -> str:
        """Return what a container has printed, read from the node's own log files.

        The folder is found by the pod's UID: that of an earlier pod of this name may still be there.
        """
        uid = self.cluster.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["metadata"]["uid"]
        files = sorted(self.pod_logs.glob(f"{namespace}_{pod}_{uid}/{container}/*.log"))
        # Each line: time, stream, full or partial, text.
        lines = (line.split(" ", 3)[3] for file in files for line in file.read_text().splitlines())
        return "\n".join(lines)

    def output_of(self, namespace: str, pod: str, seconds: float = 90) -> str:
        """Return all that a pod's container printed before its line `spoken=yes`.

        containerd writes the log asynchronously, so the last lines of a pod that has ended may still be missing.
        """
        self.cluster.until(
            f"{pod} has printed spoken=yes", lambda: "spoken=yes" in self.logs(namespace, pod, "main"), seconds
        )
        return self.logs(namespace, pod, "main").partition("spoken=yes")[0]

    def environment(self, namespace: str, pod: str) -> dict[str, str]:
        """Return the environment that a pod's container printed with `env` before its line `spoken=yes`."""
        pairs = (line.partition("=") for line in self.output_of(namespace, pod).splitlines())
        return {key: value for key, _, value in pairs}


def gate_pair(gate: str) -> tuple[str, bool]:
    name, _, on = gate.partition("=")
    return name, on == "true"


CONTAINERD_TOML = f"""
version = 3
imports = []

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{images.PAUSE}'

[plugins.'io.containerd.cri.v1.runtime']
  # Without CAP_SYS_RESOURCE runc cannot lower the score and dies with "can't get final child's PID from pipe".
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ['/run/cdi']

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{packages.CNI_PLUGINS}']

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  options = {{ SystemdCgroup = false }}

[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = '/run/nri/nri.sock'
"""
