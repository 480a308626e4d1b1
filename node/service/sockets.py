"""The two gRPC sockets of a driver: one registers the driver with the kubelet, the other serves the kubelet's calls."""

from __future__ import annotations

import asyncio
import logging
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from grpclib.const import Cardinality, Handler

from node.messages import (
    Empty,
    HealthReport,
    PluginInfo,
    PrepareRequest,
    PrepareResponse,
    RegistrationStatus,
    UnprepareResponse,
)
from node.service.grpc import server_of
from serving.http import listens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from node.service.preparing import Preparing

PLUGINS = ("v1", "v1beta1")
HEALTHS = ("v1", "v1alpha1")
SERVICES = (*(f"{version}.DRAPlugin" for version in PLUGINS), *(f"{version}.DRAResourceHealth" for version in HEALTHS))
LONGEST = 106  # bytes of a socket's path, with room for the dot of its temporary name
HEALTH_INTERVAL = 10.0  # seconds between two reports, which are valid for thirty
ANSWER_TIMEOUT = 10.0  # seconds after which a peer counts as hanging
logger = logging.getLogger("drawbridge.driver")


class DriverRegistration:
    def __init__(self, driver: str, endpoint: str) -> None:
        self._info = PluginInfo(type="DRAPlugin", name=driver, endpoint=endpoint, supported_versions=SERVICES)
        self.registered = asyncio.Event()
        self.refusal = ""

    def __mapping__(self) -> Mapping[str, Any]:
        service = "/pluginregistration.Registration"
        return {
            f"{service}/GetInfo": _unary(self.info, Empty, PluginInfo),
            f"{service}/NotifyRegistrationStatus": _unary(self.notify, RegistrationStatus, Empty),
        }

    def unready(self, registry_socket: str) -> str:
        """Return why the kubelet does not use this driver; "" if it does."""
        if self.refusal:
            return f"the kubelet rejected the registration: {self.refusal}"
        return "" if self.registered.is_set() else f"the kubelet has not found this driver yet, at {registry_socket}"

    async def info(self, request: Empty) -> PluginInfo:
        del request
        return self._info

    async def notify(self, status: RegistrationStatus) -> Empty:
        if status.registered:
            logger.info("the kubelet has registered this driver")
            self.registered.set()
            self.refusal = ""
        else:
            self.refusal = status.error or "the kubelet does not say why"
            logger.error("the kubelet rejected the registration", extra={"why": status.error})
        return Empty()


class DraPlugin:
    def __init__(self, preparing: Preparing, health: Callable[[], HealthReport]) -> None:
        self._preparing = preparing
        self._health = health

    def __mapping__(self) -> Mapping[str, Any]:
        handlers: dict[str, Any] = {}
        for version in PLUGINS:
            service = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
            prepare = _unary(self._preparing.prepare, PrepareRequest, PrepareResponse)
            unprepare = _unary(self._preparing.unprepare, PrepareRequest, UnprepareResponse)
            handlers[f"{service}/NodePrepareResources"] = prepare
            handlers[f"{service}/NodeUnprepareResources"] = unprepare
        for version in HEALTHS:
            path = f"/{version}.DRAResourceHealth/NodeWatchResources"
            handlers[path] = Handler(self._watch, Cardinality.UNARY_STREAM, Empty, HealthReport)
        return handlers

    async def _watch(self, stream: Any) -> None:
        """Stream health reports until the kubelet ends the call."""
        await stream.recv_message()
        while True:
            await stream.send_message(self._health())
            await asyncio.sleep(HEALTH_INTERVAL)


def _unary(answer: Callable[[Any], Awaitable[Any]], request_type: type, response_type: type) -> Any:
    async def handle(stream: Any) -> None:
        request = await stream.recv_message()
        await stream.send_message(await answer(request))

    return Handler(handle, Cardinality.UNARY_UNARY, request_type, response_type)


class GrpcSocket:
    def __init__(self, handler: Any, path: str) -> None:
        self._server = server_of(handler)
        self._path = path
        self._ours: tuple[int, int] | None = None

    async def __aenter__(self) -> Self:
        """Listen on a socket that only its owner may use. The socket gets its final name once it listens, so that no `sweep` deletes it."""
        folder, _, name = self._path.rpartition("/")
        hidden_path = Path(folder, f".{name}")
        hidden_path.unlink(missing_ok=True)  # noqa: ASYNC240  left by a process that was killed at this point
        listening_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening_socket.bind(str(hidden_path))
        hidden_path.chmod(stat.S_IRUSR | stat.S_IWUSR)  # noqa: ASYNC240
        listening_socket.listen()
        hidden_path.rename(self._path)  # noqa: ASYNC240
        self._ours = _identity(self._path)
        await self._server.start(sock=listening_socket)
        return self

    async def __aexit__(self, *failure: object) -> None:
        # Without its name the socket gets no new calls; running calls are answered. A later socket may already have the same name.
        if _identity(self._path) == self._ours:
            Path(self._path).unlink(missing_ok=True)  # noqa: ASYNC240
        self._server.close()
        await self._server.wait_closed()


def _identity(path: str) -> tuple[int, int] | None:
    """Return device and inode, which distinguish a file from a later file of the same name."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def sweep(folder: str, prefix: str) -> None:
    """Delete the sockets of killed processes, on which no process listens: the kubelet would try to connect to them forever."""
    for path in sorted(Path(folder).glob(f"{prefix}*.sock")):
        if not listens(path):
            path.unlink(missing_ok=True)


def successor(path: str, patience: float = ANSWER_TIMEOUT) -> str:
    """Return the name of a later instance's socket that answers; "" if there is none. Waits up to `patience` for each later instance."""
    for other in _later(path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(patience)
            with suppress(OSError):
                connection.connect(str(other))
                if connection.recv(1):  # in HTTP/2 the server sends first
                    return other.name
    return ""


def has_later(path: str) -> bool:
    """Report whether a later instance listens, even if it hangs: the kubelet may have called the later instance instead of this one."""
    return any(map(listens, _later(path)))


def _later(path: str) -> list[Path]:
    """Return the sockets of later instances, whose names sort after this one's."""
    own = Path(path)
    prefix = own.name.partition("-")[0]
    return sorted(other for other in own.parent.glob(f"{prefix}-*.sock") if other.name > own.name)
