"""The kubelet's side of device plugins: plugins register at our socket, list their devices, and allocate them.

A plugin is believed for as long as its list of devices streams. When it breaks off, or another registers for the same resource, what it had is kept
as disconnected for the kubelet's five minutes: an update of a DaemonSet takes less. A plugin is asked for one thing at a time, as the
kubelet does, and has so many seconds for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from grpclib.client import UnaryStreamMethod, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError

from node.messages import (
    AllocateRequest,
    AllocateResponse,
    DeviceIds,
    NothingSaid,
    PluginDevices,
    PluginOptions,
    PreferenceRequest,
    PreferenceResponse,
    RegisterRequest,
    decode,
)
from node.plugins import Plugged, PluginFault, PluginPreference, read_answer, refusal
from node.service.grpc import BROKEN, channel_to
from node.service.sockets import GrpcSocket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from grpclib.server import Stream

    from node.messages import Edits, PluginDevice

logger = logging.getLogger("drawbridge.node")

SOCKET = "kubelet.sock"
MOST_PLUGINS = 64
MOST_DEVICES = 1024  # of a plugin: eight slices of it
_SERVICE = "/v1beta1.DevicePlugin"


class PluginPatience(NamedTuple):
    """How long is waited for what, in seconds."""

    gone: float = 300.0  # until what a plugin had goes, too: the kubelet's time (endpointStopGracePeriod)
    answer: float = 20.0
    start: float = 15.0
    choice: float = 2.0
    rest: float = 0.5  # between two looks at what a plugin says


class PluginHost:
    """All plugins of a node. `changed` is called when one of them says something new."""

    def __init__(
        self,
        folder: Path,
        changed: Callable[[], None],
        patience: PluginPatience | None = None,
        most: int = MOST_PLUGINS,
    ) -> None:
        self._folder = folder
        self._patience = patience or PluginPatience()
        self._most = most
        self._changed = changed
        self._sessions: dict[str, _Session] = {}
        self._listening = GrpcSocket(self, str(folder / SOCKET))

    @asynccontextmanager
    async def serving(self, remembered: Iterable[Plugged] = ()) -> AsyncIterator[None]:
        """Listen. Plugins that are there see our socket come, as after a restart of the kubelet, and register again.

        Until then what they had is `remembered`.
        """
        for plugin in remembered:
            absent = RegisterRequest(resource=plugin.resource)
            session = _Session(absent, self._folder, plugin.devices, self._tell, self._patience)
            self._sessions[plugin.resource] = session
            session.start()
        try:
            async with self._listening:
                yield
        finally:
            for session in tuple(self._sessions.values()):
                await session.close()

    def plugins(self) -> tuple[Plugged, ...]:
        return tuple(session.plugin for _, session in sorted(self._sessions.items()))

    def problems(self) -> dict[str, str]:
        return {resource: session.problem for resource, session in sorted(self._sessions.items()) if session.problem}

    async def allocate(self, resource: str, devices: Mapping[str, Sequence[str]]) -> dict[str, Edits]:
        """Ask for devices, by the requests that get them; PluginFault if there is nothing that can be used."""
        session = self._sessions.get(resource)
        if session is None or not session.plugin.connected:
            raise PluginFault(f"the device plugin of {resource} is not connected")
        return await session.allocate(devices)

    def __mapping__(self) -> dict[str, Handler]:
        register = Handler(self._register, Cardinality.UNARY_UNARY, RegisterRequest, NothingSaid)
        return {"/v1beta1.Registration/Register": register}

    async def _register(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        if request is None:
            return
        resource = request.resource
        problem = refusal(request)
        if not problem and resource not in self._sessions and len(self._sessions) >= self._most:
            problem = f"{self._most} resources are registered, which is all that one node may have"
        if problem:
            logger.warning("a device plugin is not taken", extra={"resource": resource, "problem": problem})
            raise GRPCError(Status.INVALID_ARGUMENT, problem)
        await stream.send_message(NothingSaid())
        await self.begin_session(request)

    async def begin_session(self, request: RegisterRequest) -> None:
        """Follow a plugin that has registered. Its session begins with the devices of the one that it replaces."""
        resource = request.resource
        before = self._sessions.get(resource)
        devices = before.plugin.devices if before is not None else ()
        session = _Session(request, self._folder, devices, self._tell, self._patience)
        self._sessions[resource] = session
        if before is not None:
            await before.close()
        if self._sessions.get(resource) is not session:
            return  # another plugin registered meanwhile
        session.start()
        logger.info("a device plugin registered", extra={"resource": resource, "endpoint": request.endpoint})

    def _tell(self, session: _Session) -> None:
        resource = session.plugin.resource
        if session.is_gone and self._sessions.get(resource) is session:
            del self._sessions[resource]
        self._changed()


class _Session:
    def __init__(
        self,
        request: RegisterRequest,
        folder: Path,
        devices: tuple[PluginDevice, ...],
        tell: Callable[[_Session], None],
        patience: PluginPatience,
    ) -> None:
        self.plugin = Plugged(resource=request.resource, devices=devices, connected=False)
        self.is_gone = False
        self.problem = ""
        self._options = request.options
        self._folder = folder
        # "" for one that has not registered yet, since we started.
        self._endpoint = request.endpoint
        self._tell = tell
        self._patience = patience
        self._turn = asyncio.Lock()
        self._channel: Any = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """End it; nothing is reported."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._hang_up()

    async def allocate(self, devices: Mapping[str, Sequence[str]]) -> dict[str, Edits]:
        """Ask for devices as the kubelet would before a container starts."""
        containers = [DeviceIds(ids=tuple(ids)) for ids in devices.values()]
        request = AllocateRequest(containers=tuple(containers))
        wants_start = self._options.before_start
        async with self._turn:
            answer = await self._ask("Allocate", request, AllocateResponse, self._patience.answer)
            edits = read_answer(answer, tuple(devices))
            for one in containers if wants_start else ():
                await self._ask("PreStartContainer", one, NothingSaid, self._patience.start)
        return edits

    async def _ask(self, method: str, request: Any, answers: type[Any], seconds: float) -> Any:
        if self._channel is None:
            raise PluginFault(f"the device plugin of {self.plugin.resource} is not connected")
        call = UnaryUnaryMethod(self._channel, f"{_SERVICE}/{method}", type(request), answers)
        try:
            return await call(request, timeout=seconds)
        except BROKEN as error:
            why = str(error) or type(error).__name__
            raise PluginFault(f"the device plugin of {self.plugin.resource} does not answer {method}: {why}") from None

    async def _follow(self) -> None:
        """Follow the list of devices to its end, wait for the plugin to come back, and forget it."""
        if self._endpoint:
            self._channel = channel_to(str(self._folder / self._endpoint))
            try:
                # The options that it registered with need not be all.
                with suppress(PluginFault):
                    self._options = await self._ask(
                        "GetDevicePluginOptions", NothingSaid(), PluginOptions, self._patience.answer
                    )
                await self._listen(self._channel)
                problem = "it ended its list of devices"
            except BROKEN as error:
                problem = str(error) or type(error).__name__
            finally:
                self._hang_up()
            self._complain(f"it is gone: {problem}")
        self._say(connected=False)
        await asyncio.sleep(self._patience.gone)
        self.is_gone = True
        self._tell(self)

    async def _listen(self, channel: Any) -> None:
        """Take in lists of devices, each time the last. A long one is read beside the loop."""
        call = UnaryStreamMethod(channel, f"{_SERVICE}/ListAndWatch", NothingSaid, bytes)
        async with call.open() as stream:
            await stream.send_message(NothingSaid(), end=True)
            latest = Latest(stream)
            try:
                async for said in latest:
                    plugged = await asyncio.to_thread(decode, said, PluginDevices)
                    offered = plugged.devices[:MOST_DEVICES]
                    over = len(plugged.devices) - len(offered)
                    self._complain(
                        f"it has {over} devices more than the {MOST_DEVICES} that are offered" if over else ""
                    )
                    if self._options.prefers:
                        # In the order in which the plugin would hand them out, so that the first that do are those it prefers.
                        preference = PluginPreference(offered)
                        with suppress(PluginFault):
                            while choice := preference.next_choice():
                                request = PreferenceRequest(containers=(choice,))
                                answer = await self._ask(
                                    "GetPreferredAllocation", request, PreferenceResponse, self._patience.choice
                                )
                                preference.learn(answer)
                        offered = preference.ordered()
                    self._say(connected=True, devices=offered)
                    await asyncio.sleep(self._patience.rest)
            finally:
                await latest.close()

    def _complain(self, problem: str) -> None:
        """Keep the problem, "" for none, and log a new one once."""
        if problem and problem != self.problem:
            logger.warning(
                "a device plugin has a problem", extra={"resource": self.plugin.resource, "problem": problem}
            )
        self.problem = problem

    def _say(self, *, connected: bool, devices: tuple[PluginDevice, ...] | None = None) -> None:
        kept = self.plugin.devices if devices is None else devices
        now = Plugged(resource=self.plugin.resource, devices=kept, connected=connected)
        if now != self.plugin:
            self.plugin = now
            self._tell(self)

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


T = TypeVar("T")

# Between two messages that are read. A faster sender waits: gRPC takes only so many bytes that were not read.
BREATH = 0.01


class Latest(Generic[T]):
    """Iterate over a stream, without messages that were overtaken before they were read."""

    def __init__(self, stream: AsyncIterator[T], breath: float = BREATH) -> None:
        self._said: deque[T] = deque(maxlen=1)
        self._news = asyncio.Event()

        async def read() -> None:
            async for said in stream:
                self._said.append(said)
                self._news.set()
                await asyncio.sleep(breath)

        self._reading = asyncio.create_task(read())
        # However the stream ends, the waiting reader is woken.
        self._reading.add_done_callback(lambda _: self._news.set())

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Wait for something new; raise what ended the stream when its last word was heard."""
        await self._news.wait()
        if self._said:
            if not self._reading.done():
                self._news.clear()
            return self._said.pop()
        await self._reading
        raise StopAsyncIteration
