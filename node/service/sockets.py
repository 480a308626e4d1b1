"""The sockets of a driver: one by which the kubelet finds it, one by which it asks.

gRPC is grpclib's; it is known to this file alone, and only by what it calls: a handler is whatever says which function has which path, a
codec whatever turns messages into bytes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from grpclib import GRPCError
from grpclib.const import Cardinality, Handler, Status
from grpclib.server import Server

from node.messages import (
    HealthReport,
    MessageError,
    NothingSaid,
    PluginInfo,
    PrepareRequest,
    PrepareResponse,
    RegistrationStatus,
    UnprepareResponse,
    decode,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from node.service.preparing import Preparing

PLUGINS = ("v1", "v1beta1")
HEALTHS = ("v1", "v1alpha1")
SERVICES = (*(f"{version}.DRAPlugin" for version in PLUGINS), *(f"{version}.DRAResourceHealth" for version in HEALTHS))
LONGEST = 106  # bytes of a socket's path, and a dot while it is being made
# An answer about health is believed for thirty seconds.
HEARTBEAT = 10.0
logger = logging.getLogger("drawbridge.driver")


class Codec:
    """Our messages, for grpclib."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        """Write a message."""
        del message_type
        return encode(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        """Read a message."""
        try:
            return decode(data, message_type)
        except MessageError as error:
            raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from None


class Registration:
    """Tells the kubelet who we are and where we listen."""

    def __init__(self, driver: str, endpoint: str) -> None:
        self._info = PluginInfo(type="DRAPlugin", name=driver, endpoint=endpoint, supported_versions=SERVICES)
        self.registered = asyncio.Event()

    def __mapping__(self) -> Mapping[str, Any]:
        """Say which function has which path."""
        service = "/pluginregistration.Registration"
        return {
            f"{service}/GetInfo": _unary(self._tell, NothingSaid, PluginInfo),
            f"{service}/NotifyRegistrationStatus": _unary(self._hear, RegistrationStatus, NothingSaid),
        }

    async def _tell(self, request: NothingSaid) -> PluginInfo:
        del request
        return self._info

    async def _hear(self, status: RegistrationStatus) -> NothingSaid:
        if status.registered:
            logger.info("the kubelet has registered us")
            self.registered.set()
        else:
            logger.error("the kubelet refuses us", extra={"why": status.error})
        return NothingSaid()


class Plugin:
    """Answers the kubelet's requests, in the versions that there are."""

    def __init__(self, preparing: Preparing, health: Callable[[], HealthReport]) -> None:
        self._preparing = preparing
        self._health = health

    def __mapping__(self) -> Mapping[str, Any]:
        """Say which function has which path."""
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
        """Say how the devices fare, again and again; the kubelet ends it."""
        await stream.recv_message()
        while True:
            await stream.send_message(self._health())
            await asyncio.sleep(HEARTBEAT)


def _unary(answer: Callable[[Any], Awaitable[Any]], said: type, told: type) -> Any:
    async def handle(stream: Any) -> None:
        request = await stream.recv_message()
        await stream.send_message(await answer(request))

    return Handler(handle, Cardinality.UNARY_UNARY, said, told)


class Listening:
    """A socket with a handler behind it, until it is closed."""

    def __init__(self, handler: Any, path: str) -> None:
        self._server = Server([handler], codec=Codec())
        self._path = path

    async def __aenter__(self) -> Self:
        bound = _bind(self._path)
        await self._server.start(sock=bound)
        return self

    async def __aexit__(self, *failure: object) -> None:
        # Who can find it no more asks nothing new; what was asked is answered.
        _remove(self._path)
        self._server.close()
        await self._server.wait_closed()


def _remove(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def _bind(path: str) -> socket.socket:
    """Listen on a unix socket that its owner alone may use. It gets its name when it answers, so that nobody sweeps it as dead."""
    folder, _, name = path.rpartition("/")
    early = Path(folder, f".{name}")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(early))
    early.chmod(stat.S_IRUSR | stat.S_IWUSR)
    listening.listen()
    early.rename(path)
    return listening


def sweep(folder: str, prefix: str) -> None:
    """Remove sockets that a killed process has left: nobody answers there. The kubelet would try them for ever."""
    for path in sorted(Path(folder).glob(f"{prefix}*.sock")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            try:
                asking.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue
