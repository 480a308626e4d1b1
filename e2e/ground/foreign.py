"""Foreign kubelets and container engines: the harness does not start a node beside them."""

import os
from pathlib import Path

from e2e.ground.cache import cache

NAMES = frozenset({"kubelet", "containerd", "dockerd", "crio", "k3s", "rke2"})
OVERRIDE = "DRAWBRIDGE_BESIDE_OTHERS"


class ForeignError(RuntimeError):
    """Another node runs on this machine."""


def refuse() -> None:
    """Raise if a node runs on this machine."""
    foreign = running()
    if foreign and os.environ.get(OVERRIDE) != "1":
        names = ", ".join(f"{name} (pid {pid})" for pid, name in foreign.items())
        raise ForeignError(
            f"{names} of another user runs on this machine, and a second node could disturb it. Use another machine, "
            f"or end that process, or set {OVERRIDE}=1 if it may share this machine with a test node (which keeps to "
            "namespaces and directories of its own)"
        )


def running() -> dict[int, str]:
    """Return kubelets and container engines that were not built by us, by pid."""
    daemons = {}
    built_by_us = f"{cache()}/"
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text().strip()
            program = str((folder / "exe").readlink())
        except OSError:  # it ended meanwhile, or is a kernel thread
            continue
        if name in NAMES and not program.startswith(built_by_us):
            daemons[int(folder.name)] = name
    return daemons
