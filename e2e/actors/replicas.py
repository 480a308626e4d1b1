"""Several replicas of the webhook behind one address, as a Service has them.

A connection goes to one of the endpoints and stays there. Endpoints are the replicas whose last readiness probe succeeded. Requests are
not repeated: like kube-proxy, this proxy refuses a request to an endpoint whose replica has ended. A probe that times out does not
count, because on a busy machine no replica would stay an endpoint.
"""

import asyncio
import contextlib
import http.client
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

from e2e.actors.webhook import Webhook
from e2e.ground.controlplane import free_port

if TYPE_CHECKING:
    from e2e.ground.process import Process

PROBE_SECONDS = 0.2
# Seconds for which a stopped replica keeps serving: some rounds of probes, also on a busy machine.
NOTICE = 6.0


class Replicas:
    """Replaces the session's webhook at its address while the `with` block runs."""

    def __init__(self, webhook: Webhook) -> None:
        self.webhook = webhook
        self.ports: dict[str, int] = {}
        self.metrics_ports: dict[str, int] = {}
        self.processes: dict[str, Process] = {}
        self.ready: tuple[int, ...] = ()
        # Open connections, by port.
        self.open_connections: Counter[int] = Counter()
        self.connection_count = 0
        # If set, new connections go to this port only.
        self.only_port = 0
        self.connections: dict[asyncio.Task[object] | None, int] = {}
        self.loop = asyncio.new_event_loop()
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.forward), threading.Thread(target=self.probe)]

    def __enter__(self) -> Self:
        self.webhook.processes["webhook"].stop()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.loop.call_soon_threadsafe(self.loop.stop)
        for thread in self.threads:
            thread.join()
        for process in self.processes.values():
            process.stop()
        self.webhook.start_webhook()

    # What a Deployment does

    def start(self, name: str, *, notice: float = NOTICE, config: Path | None = None) -> None:
        """Start a replica, with its own configuration if given, and wait until it is an endpoint."""
        port, metrics = self.ports[name], self.metrics_ports[name] = free_port(), free_port()
        options = (f"--listen=127.0.0.1:{port}", f"--metrics-listen=127.0.0.1:{metrics}", f"--notice={notice}")
        self.processes[name] = self.webhook.start("webhook", "--no-controllers", *options, name=name, config=config)
        self.until(f"{name} is ready", lambda: self.processes[name].check() or port in self.ready)

    def stop(self, name: str, *, hard: bool = False) -> None:
        """End a replica, with SIGTERM or SIGKILL, and wait until it has ended."""
        self.processes.pop(name).stop(hard=hard)

    def await_removal(self, name: str) -> None:
        """Wait until a stopped replica is no endpoint and no client is connected to it."""
        port = self.ports.pop(name)
        self.until(
            f"{name} is no endpoint and has no connections",
            lambda: port not in self.ready and not self.open_connections[port],
        )

    def route_only_to(self, name: str) -> None:
        """Route new connections to one replica only, and close the connections to the others."""
        self.only_port = self.ports[name]
        self.loop.call_soon_threadsafe(self.close_other_connections)
        others = [port for port in self.ports.values() if port != self.only_port]
        self.until(
            f"no client is connected to a replica other than {name}",
            lambda: not any(map(self.open_connections.get, others)),
        )

    def close_other_connections(self) -> None:
        for task, port in self.connections.items():
            if port != self.only_port and task:
                task.cancel()

    def until(self, awaited: str, check: Callable[[], object]) -> None:
        self.webhook.cluster.until(awaited, check, 30)

    # What kubelets do

    def probe(self) -> None:
        with ThreadPoolExecutor() as kubelets:  # a slow probe does not delay the others
            while not self.stopped.wait(PROBE_SECONDS):
                before, ports = self.ready, tuple(self.ports.values())
                results = kubelets.map(lambda port, before=before: is_ready(port, before=port in before), ports)
                self.ready = tuple(port for port, ready in zip(ports, results, strict=True) if ready)

    # What kube-proxy does

    def forward(self) -> None:
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(
            asyncio.start_server(self.forward_connection, "127.0.0.1", self.webhook.port)
        )
        self.loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.1))
        self.loop.close()

    async def forward_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = [port for port in self.ready if self.only_port in (0, port)]
        task = asyncio.current_task()
        self.connection_count += 1
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if ready:
                port = ready[self.connection_count % len(ready)]
                self.open_connections[port] += 1
                self.connections[task] = port
                try:
                    from_replica, to_replica = await asyncio.open_connection("127.0.0.1", port)
                    await asyncio.gather(copy(reader, to_replica), copy(from_replica, writer))
                finally:
                    self.open_connections[port] -= 1
                    del self.connections[task]
        writer.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward bytes until one side closes; the close is forwarded too."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def is_ready(port: int, *, before: bool) -> bool:
    """Return whether a replica reports ready; if it does not answer in time, return `before`. Like a kubelet, ignore its certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except TimeoutError:
        return before
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
