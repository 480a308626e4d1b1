"""A pair of namespaces (processes and mounts) in which one real node lives, like a machine inside the machine.

Inside, kubelet and containerd find their usual directories (/var/lib/kubelet, /run/containerd, ...), which are bind mounts
of the run's directories. So drivers and device plugins with fixed paths work unchanged, and several nodes can run at the same time.
When the first process of the box ends, the kernel ends all others and drops every mount, so nothing is left to clean up.
"""

import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from e2e.ground.process import Process

READY_SECONDS = 60.0


class Box:
    """Namespaces with their own bind mounts; the command of `enter()` starts programs in them."""

    def __init__(self, spawn: Callable[..., Process], scratch: Path, binds: Mapping[str, Path]) -> None:
        """Make the namespaces; `binds` maps paths inside to directories outside, `scratch` holds the file that shows readiness."""
        ready_file = scratch / "box-ready"
        # As under systemd, containers see later mounts, which they may need. No mount is visible outside the box.
        lines = ["set -e", "mount --make-rshared /"]
        for inside, outside in binds.items():
            outside.mkdir(parents=True, exist_ok=True)
            lines += [
                f"mkdir -p {shlex.quote(inside)}",
                f"mount --bind {shlex.quote(str(outside))} {shlex.quote(inside)}",
            ]
        # bash as process 1 also reaps orphans.
        lines += [f"touch {shlex.quote(str(ready_file))}", "while :; do sleep 3600 & wait; done"]
        namespaces = ["--mount", "--propagation=private", "--pid", "--mount-proc"]
        self.process = spawn("box", ["unshare", *namespaces, "--fork", "--kill-child", "bash", "-c", "\n".join(lines)])
        deadline = time.monotonic() + READY_SECONDS
        while not ready_file.exists():
            self.process.check()
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"the node's namespaces are not ready after {READY_SECONDS:.0f} s: {self.process.log}"
                )
            time.sleep(0.01)
        self.init = child_of(self.process.child.pid)

    def enter(self) -> list[str]:
        """Return the command that leads into the box."""
        return ["nsenter", f"--target={self.init}", "--net", "--mount", "--pid", "--"]

    def run(self, *argv: str | Path, env: Mapping[str, str] | None = None, timeout: float = 120) -> str:
        """Run a command inside and return what it prints."""
        done = subprocess.run(
            [*self.enter(), *map(str, argv)], capture_output=True, text=True, check=False, env=env, timeout=timeout
        )
        if done.returncode:
            raise RuntimeError(f"{shlex.join(map(str, argv))} ended with {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
