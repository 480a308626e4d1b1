"""The kubelet's part towards device plugins: plugins register at this module's socket, list their devices, and allocate them.

A plugin is connected while the stream of its device lists is open. When the stream ends, its devices are offered as disconnected for five
minutes, as in the kubelet; the update of a DaemonSet takes less time. A plugin that registers for the same resource takes over the devices.
As in the kubelet, a plugin gets one call at a time, with a timeout.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from grpclib.client import UnaryStreamMethod, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError

from node.messages import (
    AllocateRequest,
    AllocateResponse,
    DeviceIds,
    Empty,
    PluginDevices,
    PluginOptions,
    PreferenceRequest,
    PreferenceResponse,
    RegisterRequest,
)
from node.plugins import PluginFault, PluginPreference, PluginState, read_answer, refusal
from node.service.grpc import BROKEN, channel_to
from node.service.sockets import GrpcSocket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from grpclib.server import Stream

    from node.messages import Edits, PluginDevice

logger = logging.getLogger("drawbridge.node")

SOCKET = "kubelet.sock"
MAX_PLUGINS = 64
MAX_DEVICES = 1024  # devices of one plugin: sixteen slices
_SERVICE = "/v1beta1.DevicePlugin"


class PluginPatience(NamedTuple):
    """Timeouts in seconds."""

    reconnect: float = 300.0  # until a disconnected plugin's devices are removed: the kubelet's endpointStopGracePeriod
    answer: float = 20.0  # for Allocate and GetDevicePluginOptions
    start: float = 15.0  # for PreStartContainer
    choice: float = 2.0  # for GetPreferredAllocation


class PluginHost:
    """All plugins of a node. `changed` is called when a plugin's state changes."""

    def __init__(
        self,
        folder: Path,
        changed: Callable[[], None],
        patience: PluginPatience | None = None,
        max_plugins: int = MAX_PLUGINS,
    ) -> None:
        self._folder = folder
        self._patience = patience or PluginPatience()
        self._max_plugins = max_plugins
        self._changed = changed
        self._sessions: dict[str, _Session] = {}
        self._listening = GrpcSocket(self, str(folder / SOCKET))

    @asynccontextmanager
    async def serving(self, remembered: Iterable[PluginState] = ()) -> AsyncIterator[None]:
        """Listen. Running plugins watch for the socket, as after a restart of the kubelet, and register again.

        Until a plugin has registered again, its `remembered` devices are offered as disconnected.
        """
        for plugin in remembered:
            request = RegisterRequest(resource=plugin.resource)
            session = _Session(request, self._folder, plugin.devices, self._on_change, self._patience)
            self._sessions[plugin.resource] = session
            session.start()
        try:
            async with self._listening:
                yield
        finally:
            for session in tuple(self._sessions.values()):
                await session.close()

    def plugins(self) -> tuple[PluginState, ...]:
        return tuple(session.plugin for _, session in sorted(self._sessions.items()))

    def problems(self) -> dict[str, str]:
        return {resource: session.problem for resource, session in sorted(self._sessions.items()) if session.problem}

    async def allocate(self, resource: str, devices: Mapping[str, Sequence[str]]) -> dict[str, Edits]:
        """Allocate devices. `devices` are the ids for each request. Raises PluginFault if the plugin gives no valid answer."""
        session = self._sessions.get(resource)
        if session is None or not session.plugin.connected:
            raise PluginFault(f"the device plugin of {resource} is not connected")
        return await session.allocate(devices)

    def __mapping__(self) -> dict[str, Handler]:
        register = Handler(self._register, Cardinality.UNARY_UNARY, RegisterRequest, Empty)
        return {"/v1beta1.Registration/Register": register}

    async def _register(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        if request is None:
            return
        resource = request.resource
        problem = refusal(request)
        if not problem and resource not in self._sessions and len(self._sessions) >= self._max_plugins:
            problem = f"{self._max_plugins} resources are registered already, which is the maximum for a node"
        if problem:
            logger.warning(
                "the registration of a device plugin is refused", extra={"resource": resource, "problem": problem}
            )
            raise GRPCError(Status.INVALID_ARGUMENT, problem)
        await stream.send_message(Empty())
        await self.begin_session(request)

    async def begin_session(self, request: RegisterRequest) -> None:
        """Follow a registered plugin. Its session begins with the devices of the plugin that it replaces."""
        resource = request.resource
        replaced = self._sessions.get(resource)
        devices = replaced.plugin.devices if replaced is not None else ()
        session = _Session(request, self._folder, devices, self._on_change, self._patience)
        self._sessions[resource] = session
        if replaced is not None:
            await replaced.close()
        if self._sessions.get(resource) is not session:
            return  # another plugin registered meanwhile
        session.start()
        logger.info("a device plugin registered", extra={"resource": resource, "endpoint": request.endpoint})

    def _on_change(self, session: _Session) -> None:
        resource = session.plugin.resource
        if session.is_expired and self._sessions.get(resource) is session:
            del self._sessions[resource]
        self._changed()


class _Session:
    def __init__(
        self,
        request: RegisterRequest,
        folder: Path,
        devices: tuple[PluginDevice, ...],
        report_change: Callable[[_Session], None],
        patience: PluginPatience,
    ) -> None:
        self.plugin = PluginState(resource=request.resource, devices=devices, connected=False)
        self.is_expired = False
        self.problem = ""
        self._options = request.options
        self._folder = folder
        self._endpoint = request.endpoint  # "" for a remembered plugin that has not registered yet
        self._report_change = report_change
        self._patience = patience
        self._turn = asyncio.Lock()
        self._channel: Any = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """End the session without reporting a change."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._hang_up()

    async def allocate(self, devices: Mapping[str, Sequence[str]]) -> dict[str, Edits]:
        """Allocate devices as the kubelet does before a container starts."""
        containers = [DeviceIds(ids=tuple(ids)) for ids in devices.values()]
        request = AllocateRequest(containers=tuple(containers))
        needs_start = self._options.before_start
        async with self._turn:
            answer = await self._call("Allocate", request, AllocateResponse, self._patience.answer)
            edits = read_answer(answer, tuple(devices))
            for container in containers if needs_start else ():
                await self._call("PreStartContainer", container, Empty, self._patience.start)
        return edits

    async def _call(self, method: str, request: Any, answers: type[Any], seconds: float) -> Any:
        if self._channel is None:
            raise PluginFault(f"the device plugin of {self.plugin.resource} is not connected")
        call = UnaryUnaryMethod(self._channel, f"{_SERVICE}/{method}", type(request), answers)
        try:
            return await call(request, timeout=seconds)
        except BROKEN as error:
            why = str(error) or type(error).__name__
            raise PluginFault(f"the device plugin of {self.plugin.resource} does not answer {method}: {why}") from None

    async def _follow(self) -> None:
        """Follow the stream of device lists until it ends; remove the devices if the plugin does not register again in time."""
        if self._endpoint:
            self._channel = channel_to(str(self._folder / self._endpoint))
            try:
                # The options in the registration may be incomplete.
                with suppress(PluginFault):
                    self._options = await self._call(
                        "GetDevicePluginOptions", Empty(), PluginOptions, self._patience.answer
                    )
                await self._listen(self._channel)
                problem = "it closed the stream of devices"
            except BROKEN as error:
                problem = str(error) or type(error).__name__
            finally:
                self._hang_up()
            self._set_problem(f"it is disconnected: {problem}")
        self._update(connected=False)
        # Even if nothing changed here: this session may have replaced a connected one, and got no list.
        self._report_change(self)
        await asyncio.sleep(self._patience.reconnect)
        self.is_expired = True
        self._report_change(self)

    async def _listen(self, channel: Any) -> None:
        """Read the stream of device lists."""
        call = UnaryStreamMethod(channel, f"{_SERVICE}/ListAndWatch", Empty, PluginDevices)
        async with call.open() as stream:
            await stream.send_message(Empty(), end=True)
            list_timeout = asyncio.get_running_loop().call_later(self._patience.answer, self._miss_list)
            try:
                async for device_list in stream:
                    list_timeout.cancel()
                    offered = device_list.devices[:MAX_DEVICES]
                    surplus = len(device_list.devices) - len(offered)
                    self._set_problem(
                        f"it has {surplus} devices more than the maximum of {MAX_DEVICES}" if surplus else ""
                    )
                    if self._options.prefers:
                        # Published in the plugin's preferred order, because an allocator takes the first device that fits.
                        preference = PluginPreference(offered)
                        with suppress(PluginFault):
                            while choice := preference.next_choice():
                                request = PreferenceRequest(containers=(choice,))
                                answer = await self._call(
                                    "GetPreferredAllocation", request, PreferenceResponse, self._patience.choice
                                )
                                preference.learn(answer)
                        offered = preference.ordered()
                    self._update(connected=True, devices=offered)
            finally:
                list_timeout.cancel()
            async with asyncio.timeout(self._patience.answer):  # grpclib itself would wait forever
                await stream.recv_trailing_metadata()

    def _miss_list(self) -> None:
        """Note that the plugin sent no list in time. Report the state, because this session may have replaced a connected one."""
        self._set_problem("it has sent no list of its devices")
        self._report_change(self)

    def _set_problem(self, problem: str) -> None:
        """Set the problem ("" for none), and log it if it is new."""
        if problem and problem != self.problem:
            logger.warning(
                "a device plugin has a problem", extra={"resource": self.plugin.resource, "problem": problem}
            )
        self.problem = problem

    def _update(self, *, connected: bool, devices: tuple[PluginDevice, ...] | None = None) -> None:
        new_devices = self.plugin.devices if devices is None else devices
        new_plugin = PluginState(resource=self.plugin.resource, devices=new_devices, connected=connected)
        if new_plugin != self.plugin:
            self.plugin = new_plugin
            self._report_change(self)

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
