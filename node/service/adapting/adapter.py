"""Device plugins as a DRA driver: their devices are published and prepared as if they were the driver's own.

The list of devices is written down before it is published, so that a kill takes nothing away that the cluster knows of; and however often
plugins change it, that is done once in a while.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from node.checkpoint import written
from node.plugins import Plugged, machine_of_plugins
from node.service.adapting.plugin_host import PluginHost
from node.service.adapting.plugin_writer import PluginWriter
from node.service.disk import Disk
from node.service.driver import Driver

if TYPE_CHECKING:
    from pathlib import Path

    from cluster import Cluster
    from node.plugins import Lore
    from node.service.settings import NodePaths

# Between two times that what plugins say is written down and published.
REST = 0.5
logger = logging.getLogger("drawbridge.driver")


class Adapter:
    def __init__(self, cluster: Cluster, name: str, folder: Path, lore: Lore, paths: NodePaths) -> None:
        self._name = name
        self._lore = lore
        self._disk = Disk()
        self._file = f"{paths.state(name)}/plugins"
        self._heard = asyncio.Event()
        self._over = asyncio.Event()
        self.host = PluginHost(folder, self._heard.set)
        loop = asyncio.get_running_loop()
        writer = PluginWriter(name, self.host, loop)
        self.driver = Driver(cluster, machine_of_plugins(name, (), lore), paths, self._disk, writer)
        self._said: tuple[Plugged, ...] = ()

        self.metrics = self.driver.metrics
        self.metrics.more_notes = lambda: {f"plugin {name}": why for name, why in self.host.problems().items()}
        gauge = self.metrics.gauge
        gauge(
            "drawbridge_driver_plugins",
            "Device plugins that are connected.",
            lambda: sum(plugin.connected for plugin in self.host.plugins()),
        )
        gauge(
            "drawbridge_driver_plugin_problems",
            "Device plugins with which something is wrong.",
            lambda: len(self.host.problems()),
        )

    async def run(self, stop: asyncio.Event) -> None:
        remembered = await asyncio.to_thread(self._recall)
        self._follow(remembered)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep())
            async with self.host.serving(remembered):
                await self.driver.run(stop)
            self._over.set()
            self._heard.set()

    async def _keep(self) -> None:
        """Follow the plugins' devices, each time the last state; at the end the very last."""
        over = False
        while not over:
            await self._heard.wait()
            self._heard.clear()
            over = self._over.is_set()
            plugins = self.host.plugins()
            if plugins != self._said:
                # Written down first: a restart then takes nothing away until the plugins are back, which may have gone to a later adapter.
                await asyncio.to_thread(self._remember, plugins)
                self._follow(plugins)
            with suppress(TimeoutError):
                async with asyncio.timeout(REST):
                    await self._over.wait()

    def _follow(self, plugins: tuple[Plugged, ...]) -> None:
        self._said = plugins
        self.driver.offer(machine_of_plugins(self._name, plugins, self._lore))

    def _remember(self, plugins: tuple[Plugged, ...]) -> None:
        if self.driver.overtaken():
            return
        steps = written(self._file, msgspec.json.encode(plugins))
        try:
            with self._disk.alone(f"{self._file}.lock"):
                self._disk.carry_out(steps)
        except OSError as error:
            logger.warning("the plugins' devices are not remembered", extra={"why": str(error)})

    def _recall(self) -> tuple[Plugged, ...]:
        data = self._disk.read(self._file)
        if data is None:
            return ()
        try:
            known = msgspec.json.decode(data, type=tuple[Plugged, ...])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            logger.warning("what plugins had is not remembered", extra={"why": str(error)})
            return ()
        return tuple(msgspec.structs.replace(one, connected=False) for one in known)
