"""NVIDIA's own DRA driver on a node, with the DeviceClasses of its chart."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import yaml

from dra.server import RELEASE
from e2e.actors import fleet
from e2e.build import program, source_of
from e2e.ground import images
from e2e.ground.node import KUBELET

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from e2e.ground.node import Node
    from e2e.ground.process import Process

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
PLUGIN = "gpu-kubelet-plugin"
# A root with the machine's folders, and /templates as in the driver's image, for the template of its MPS daemon.
ROOT = """\
set -e; mount -t tmpfs root /mnt
for one in /*; do
  if [ -L "$one" ]; then cp -P "$one" /mnt; elif [ -d "$one" ] && [ "$one" != /mnt ]; then
    mkdir "/mnt$one"; mount --rbind "$one" "/mnt$one"; fi
done"""
GATES = "TimeSlicingSettings=true,MPSSupport=true"


class Driver:
    """The driver's process on a node, which can be killed and started again."""

    def __init__(
        self, node: Node, root: Path, *, host_root: Path, shares: str, prepare: str, env: Mapping[str, str]
    ) -> None:
        gates = GATES if shares == "disabled" else f"{GATES},ConsumableShares=true"
        command = [
            program(PLUGIN), f"--kubeconfig={node.cluster.kubeconfig}", f"--node-name={node.name}",
            "--cdi-root=/run/cdi", f"--nvidia-driver-root={host_root}", f"--container-driver-root={root}",
            f"--nvidia-cdi-hook-path={program('nvidia-cdi-hook')}", "-v=4", f"--feature-gates={gates}",
            f"--consumable-shares={shares}",
            f"--image-name={images.BUSYBOX}", f"--kubelet-plugins-directory-path={KUBELET}/plugins",
            f"--kubelet-registrar-directory-path={KUBELET}/plugins_registry",
        ]  # fmt: skip
        templates = f"mkdir /mnt/templates; cp {source_of(PLUGIN)}/templates/* /mnt/templates"
        script = "\n".join((ROOT, templates, prepare, f"exec chroot /mnt {shlex.join(map(str, command))}"))
        self.node = node
        self.argv = ["unshare", "--mount", "sh", "-c", script]
        self.env = dict(env)
        self.process = self.start()

    def start(self) -> Process:
        """Start the process; `slices` raises if it ends."""
        self.process = self.node.spawn(PLUGIN, list(self.argv), self.env)
        return self.process

    def slices(self) -> list[dict[str, Any]]:
        """Return the slices that the driver has published."""
        self.process.check()
        slices: list[dict[str, Any]] = self.node.cluster.get(SLICES, fieldSelector=f"spec.driver={fleet.NVIDIA}")[
            "items"
        ]
        return slices

    def devices(self) -> dict[str, dict[str, Any]]:
        """Return the published devices by name."""
        return {device["name"]: device for item in self.slices() for device in item["spec"]["devices"]}


def classes() -> list[dict[str, Any]]:
    """Return the DeviceClasses of the driver's chart."""
    chart = [
        program("helm"),
        "template",
        "it",
        source_of(PLUGIN) / "deployments/helm/dra-driver-nvidia-gpu",
        "--namespace=nvidia",
        f"--kube-version={RELEASE}",
    ]
    chart += ["--api-versions=resource.k8s.io/v1", "--set=gpuResourcesEnabledOverride=true"]
    made = subprocess.run(chart, capture_output=True, text=True, check=True, timeout=60).stdout
    return [obj for obj in yaml.safe_load_all(made) if obj and obj["kind"] == "DeviceClass"]


@contextlib.contextmanager
def installed(
    node: Node,
    root: Path,
    *,
    host_root: Path | None = None,
    shares: str = "disabled",
    prepare: str = "",
    env: Mapping[str, str] | None = None,
) -> Iterator[Driver]:
    """Install the classes and start the driver, which finds NVIDIA's GPU driver below `root`; yield when it has published.

    `host_root` is the folder of the GPU driver on the host, as an administrator has set it.
    """
    cluster = node.cluster
    made = classes()
    node.end_driver(fleet.NVIDIA)
    (node.outside(f"{KUBELET}/plugins") / fleet.NVIDIA).mkdir(parents=True, exist_ok=True)
    for obj in made:
        cluster.create(obj)
    driver = Driver(node, root, host_root=host_root or root, shares=shares, prepare=prepare, env=env or {})
    try:
        cluster.until("NVIDIA's driver has published", driver.slices, 60)
        yield driver
    finally:
        driver.process.stop()
        node.end_driver(fleet.NVIDIA)
        for obj in made:
            cluster.remove(obj)
