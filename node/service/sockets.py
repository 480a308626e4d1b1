"""The sockets of a driver: one by which the kubelet finds it, one by which it asks.

gRPC is grpclib's: a handler maps paths to functions.
"""

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
    HealthReport,
    NothingSaid,
    PluginInfo,
    PrepareRequest,
    PrepareResponse,
    RegistrationStatus,
    UnprepareResponse,
)
from node.service.grpc import server_of
from runtime.http import listens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from node.service.preparing import Preparing

PLUGINS = ("v1", "v1beta1")
HEALTHS = ("v1", "v1alpha1")
SERVICES = (*(f"{version}.DRAPlugin" for version in PLUGINS), *(f"{version}.DRAResourceHealth" for version in HEALTHS))
LONGEST = 106  # bytes of a socket's path, and a dot while it is being made
# An answer about health is believed for thirty seconds.
HEARTBEAT = 10.0
# A peer that is called and says nothing for so long stands still.
ANSWER = 10.0
logger = logging.getLogger("drawbridge.driver")


class DriverRegistration:
    def __init__(self, driver: str, endpoint: str) -> None:
        self._info = PluginInfo(type="DRAPlugin", name=driver, endpoint=endpoint, supported_versions=SERVICES)
        self.registered = asyncio.Event()
        self.refusal = ""

    def __mapping__(self) -> Mapping[str, Any]:
        service = "/pluginregistration.Registration"
        return {
            f"{service}/GetInfo": _unary(self.info, NothingSaid, PluginInfo),
            f"{service}/NotifyRegistrationStatus": _unary(self.notify, RegistrationStatus, NothingSaid),
        }

    def unready(self, where: str) -> str:
        """Say why the kubelet, which looks at this socket, does not ask us; "" if it does."""
        if self.refusal:
            return f"the kubelet refuses us: {self.refusal}"
        return "" if self.registered.is_set() else f"the kubelet has not found us yet, at {where}"

    async def info(self, request: NothingSaid) -> PluginInfo:
        del request
        return self._info

    async def notify(self, status: RegistrationStatus) -> NothingSaid:
        if status.registered:
            logger.info("the kubelet has registered us")
            self.registered.set()
            self.refusal = ""
        else:
            self.refusal = status.error or "it does not say why"
            logger.error("the kubelet refuses us", extra={"why": status.error})
        return NothingSaid()


class DraPlugin:
    def __init__(self, preparing: Preparing, health: Callable[[], HealthReport]) -> None:
        self._preparing = preparing
        self._health = health

    def __mapping__(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for version in PLUGINS:
            service = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
            prepare = _unary(self._preparing.prepare, PrepareRequest, PrepareResponse)
            unprepare = _unary(self._preparing.unprepare, PrepareRequest, UnprepareResponse)
            found[f"{service}/NodePrepareResources"] = prepare
            found[f"{service}/NodeUnprepareResources"] = unprepare
        for version in HEALTHS:
            path = f"/{version}.DRAResourceHealth/NodeWatchResources"
            found[path] = Handler(self._watch, Cardinality.UNARY_STREAM, NothingSaid, HealthReport)
        return found

    async def _watch(self, stream: Any) -> None:
        """Report the health of the devices, again and again; the kubelet ends it."""
        await stream.recv_message()
        while True:
            await stream.send_message(self._health())
            await asyncio.sleep(HEARTBEAT)


def _unary(answer: Callable[[Any], Awaitable[Any]], said: type, told: type) -> Any:
    async def handle(stream: Any) -> None:
        request = await stream.recv_message()
        await stream.send_message(await answer(request))

    return Handler(handle, Cardinality.UNARY_UNARY, said, told)


class GrpcSocket:
    def __init__(self, handler: Any, path: str) -> None:
        self._server = server_of(handler)
        self._path = path
        self._ours: tuple[int, int] | None = None

    async def __aenter__(self) -> Self:
        """Listen on a socket that its owner alone may use. It gets its name when it answers, so that no sweep takes it for dead."""
        folder, _, name = self._path.rpartition("/")
        early = Path(folder, f".{name}")
        early.unlink(missing_ok=True)  # noqa: ASYNC240  of a process that was killed before its socket had its name
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(early))
        early.chmod(stat.S_IRUSR | stat.S_IWUSR)  # noqa: ASYNC240
        listening.listen()
        early.rename(self._path)  # noqa: ASYNC240
        self._ours = _identity(self._path)
        await self._server.start(sock=listening)
        return self

    async def __aexit__(self, *failure: object) -> None:
        # Without its name the socket gets no new calls; those that were made are answered. A successor may listen by the same name by now.
        if _identity(self._path) == self._ours:
            Path(self._path).unlink(missing_ok=True)  # noqa: ASYNC240  at once
        self._server.close()
        await self._server.wait_closed()


def _identity(path: str) -> tuple[int, int] | None:
    """Tell a file from another that has got its name."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def sweep(folder: str, prefix: str) -> None:
    """Remove sockets that a killed process has left, and where no process listens. The kubelet would try them for ever."""
    for path in sorted(Path(folder).glob(f"{prefix}*.sock")):
        if not listens(path):
            path.unlink(missing_ok=True)


def successor(path: str, patience: float = ANSWER) -> str:
    """Name a socket beside this one that is of a later process and answers; "" if there is none. By their names later ones stand later.

    Takes as long as the patience for each that listens and stands still.
    """
    for other in _later(path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(patience)
            with suppress(OSError):
                asking.connect(str(other))
                if asking.recv(1):  # in HTTP/2 a server that works speaks first
                    return other.name
    return ""


def has_later(path: str) -> bool:
    """Say whether a later process is there, though it may stand still: it has been asked for what we do not know of."""
    return any(map(listens, _later(path)))


def _later(path: str) -> list[Path]:
    own = Path(path)
    kind = own.name.partition("-")[0]
    return sorted(other for other in own.parent.glob(f"{kind}-*.sock") if other.name > own.name)
