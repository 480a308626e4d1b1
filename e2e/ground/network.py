"""A network namespace for a whole cluster with its pods and Services, and the only connection into it.

The kernel takes addresses, routes and packet filters away with the namespace, so nothing is left when its processes have ended.
"""

import ipaddress
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from e2e.ground.addresses import free_subnet
from e2e.ground.process import Process

READY_SECONDS = 60.0


class Network:
    """A /24: the lower half contains this machine (the first address) and the cluster (the second), and the upper half contains the pods."""

    def __init__(self, spawn: Callable[..., Process]) -> None:
        """Make the namespace, and the pair of interfaces that ends with it."""
        subnet = ipaddress.ip_network(free_subnet())
        self.outside, self.address = map(str, list(subnet.hosts())[:2])
        self.pods = str(list(subnet.subnets())[1])
        holder = spawn("network", ["unshare", "--net", "sleep", "infinity"])
        self.path = f"/proc/{holder.pid}/ns/net"
        deadline = time.monotonic() + READY_SECONDS
        while Path(self.path).readlink() == Path("/proc/self/ns/net").readlink():
            holder.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"the cluster's network is not ready after {READY_SECONDS:.0f} s: {holder.log}")
            time.sleep(0.01)
        interface = f"drawbridge{subnet.network_address.packed[2]}"
        inside = [*self.enter(), "ip"]
        for command in (
            ["ip", "link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid)],
            ["ip", "address", "add", self.outside, "peer", self.address, "dev", interface],
            ["ip", "link", "set", interface, "up"],
            ["ip", "route", "add", str(subnet), "via", self.address],
            [*inside, "link", "set", "lo", "up"],
            [*inside, "address", "add", self.address, "peer", self.outside, "dev", "eth0"],
            [*inside, "link", "set", "eth0", "up"],
            # Pods route through this machine only, but a node requires a default route.
            [*inside, "route", "add", "default", "via", self.outside],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True)

    def enter(self) -> list[str]:
        """Return the command that leads into the network."""
        return ["nsenter", f"--net={self.path}", "--"]
