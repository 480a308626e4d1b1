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
        self.carried: Counter[int] = Counter()
        self.turn = 0
        # If set, new connections go to this port only.
        self.chosen = 0
        self.lines: dict[asyncio.Task[object] | None, int] = {}
        self.loop = asyncio.new_event_loop()
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.forward), threading.Thread(target=self.probe)]

    def __enter__(self) -> Self:
        self.webhook.processes["webhook"].stop()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
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

    def forget(self, name: str) -> None:
        """Wait until a stopped replica is no endpoint and no client is connected to it."""
        port = self.ports.pop(name)
        self.until(f"{name} is not an endpoint", lambda: port not in self.ready and not self.carried[port])

    def only(self, name: str) -> None:
        """Route new connections to one replica only, and close the connections to the others."""
        self.chosen = self.ports[name]
        self.loop.call_soon_threadsafe(self.hang_up)
        others = [port for port in self.ports.values() if port != self.chosen]
        self.until(f"no client is connected with another than {name}", lambda: not any(map(self.carried.get, others)))

    def hang_up(self) -> None:
        for line, port in self.lines.items():
            if port != self.chosen and line:
                line.cancel()

    def until(self, what: str, check: Callable[[], object]) -> None:
        self.webhook.cluster.until(what, check, 30)

    # What kubelets do

    def probe(self) -> None:
        with ThreadPoolExecutor() as kubelets:  # a slow probe does not delay the others
            while not self.over.wait(PROBE_SECONDS):
                before, ports = self.ready, tuple(self.ports.values())
                results = kubelets.map(lambda port, before=before: answers(port, before=port in before), ports)
                self.ready = tuple(port for port, good in zip(ports, results, strict=True) if good)

    # What kube-proxy does

    def forward(self) -> None:
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.carry, "127.0.0.1", self.webhook.port))
        self.loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.1))
        self.loop.close()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = [port for port in self.ready if self.chosen in (0, port)]
        line = asyncio.current_task()
        self.turn += 1
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if ready:
                port = ready[self.turn % len(ready)]
                self.carried[port] += 1
                self.lines[line] = port
                try:
                    theirs, to_them = await asyncio.open_connection("127.0.0.1", port)
                    await asyncio.gather(pass_on(reader, to_them), pass_on(theirs, writer))
                finally:
                    self.carried[port] -= 1
                    del self.lines[line]
        writer.close()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward bytes until one side closes; the close is forwarded too."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def answers(port: int, *, before: bool) -> bool:
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
