"""The replicas of the bridge as they are shipped: pairs of an allocator and the scheduler beside it, which share a pod and a socket.

Allocator and scheduler of each pair reach the API server through proxies of their own, which can break (`e2e.actors.proxy`): the
allocator writes claims, and the scheduler writes bindings and events. Tests can set the allocator's wall clock (`e2e.actors.clock`).
"""

import http.client
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from e2e.actors import clock
from e2e.actors.bridge import Bridge, scheduler_configuration
from e2e.actors.client import BUSY_FACTOR
from e2e.actors.proxy import Proxy
from e2e.build import program
from e2e.ground.controlplane import free_port

T = TypeVar("T")
NAMES = ("allocator-0", "allocator-1")


class Pair:
    """One replica."""

    def __init__(self, bridge: Bridge, name: str) -> None:
        self.bridge = bridge
        self.cluster = bridge.cluster
        self.name = name
        self.allocator = f"drawbridge-{name}"  # the name of its process
        self.scheduler = f"scheduler-of-{name}"
        self.folder = tempfile.TemporaryDirectory(prefix="drawbridge-")
        self.socket = Path(self.folder.name) / "allocator/plugin.sock"
        self.api, self.metrics = free_port(), free_port()
        self.proxy = Proxy(self.cluster.url, self.cluster.ca)
        self.scheduler_proxy = Proxy(self.cluster.url, self.cluster.ca, self.cluster.token)  # the scheduler's proxy
        self.clock = Path(self.folder.name) / "clock"

    def start(self) -> None:
        self.bridge.spawn(
            self.name,
            via=f"http://127.0.0.1:{self.proxy.port}",
            command=clock.command(self.clock),
            plugin=f"unix:{self.socket}",
            api=f"127.0.0.1:{self.api}",
            metrics_listen=f"127.0.0.1:{self.metrics}",
        )
        kubeconfig = self.cluster.write_kubeconfig(
            self.scheduler, self.cluster.token, f"http://127.0.0.1:{self.scheduler_proxy.port}"
        )
        configuration = scheduler_configuration(self.socket) | {"clientConnection": {"kubeconfig": str(kubeconfig)}}
        self.cluster.start_scheduler(configuration, name=self.scheduler, binary=program("drawbridge-scheduler"))

    def leads(self) -> bool:
        return self.bridge.leads(self.metrics)

    def ask(self, path: str) -> Any:
        return self.bridge.ask(path, self.api)[1]

    def reservation_count(self) -> float:
        """Return for how many pods the allocator's ledger holds devices."""
        lines = self.bridge.ask("/metrics", self.metrics)[1].splitlines()
        [line] = [line for line in lines if line.startswith("drawbridge_reservations ")]
        return float(line.split()[1])

    def close(self) -> None:
        self.proxy.close()
        self.scheduler_proxy.close()
        self.folder.cleanup()


class Pairs:
    """All replicas, on a control plane that has the manifests of the bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self.all = [Pair(bridge, name) for name in NAMES]

    def start(self) -> None:
        """Start the replicas one after the other, so that the first one leads."""
        for pair in self.all:
            pair.start()
            self.leader()

    def leader(self) -> Pair:
        """Wait until a replica leads, and return it."""
        return until("a replica leads", lambda: next((pair for pair in self.all if pair.leads()), None), 90)

    def other(self, pair: Pair) -> Pair:
        [other] = [candidate for candidate in self.all if candidate is not pair]
        return other

    def close(self) -> None:
        for pair in self.all:
            pair.close()


def until(awaited: str, check: Callable[[], T | None], seconds: float) -> T:
    """Wait until a check is true; errors of connections are ignored."""
    deadline = time.monotonic() + seconds * BUSY_FACTOR
    while time.monotonic() < deadline:
        try:
            if answer := check():
                return answer
        except (
            OSError,
            http.client.HTTPException,
        ):  # a process that is killed while it answers sends half an answer
            pass
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds * BUSY_FACTOR:.0f} s: {awaited}")
