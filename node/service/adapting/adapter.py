"""Serves device plugins as a DRA driver, which publishes and prepares their devices.

The list of devices is saved before it is published, so a restarted adapter still has the devices that the cluster knows. It is saved and
published at most once every PUBLISH_INTERVAL, even if plugins change their lists more often.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from node.checkpoint import durable_steps
from node.plugins import PluginState, machine_of_plugins
from node.service.adapting.plugin_host import PluginHost
from node.service.adapting.plugin_writer import PluginWriter
from node.service.disk import Disk
from node.service.driver import Driver

if TYPE_CHECKING:
    from pathlib import Path

    from cluster import Cluster
    from node.plugins import FactSources
    from node.service.settings import NodePaths

PUBLISH_INTERVAL = 0.5  # seconds
logger = logging.getLogger("drawbridge.driver")


class Adapter:
    def __init__(self, cluster: Cluster, name: str, folder: Path, facts: FactSources, paths: NodePaths) -> None:
        self._name = name
        self._facts = facts
        self._disk = Disk()
        self._file = f"{paths.state(name)}/plugins"
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self.host = PluginHost(folder, self._changed.set)
        loop = asyncio.get_running_loop()
        writer = PluginWriter(name, self.host, loop)
        self.driver = Driver(cluster, machine_of_plugins(name, (), facts), paths, self._disk, writer)
        self._published: tuple[PluginState, ...] = ()

        self.metrics = self.driver.metrics
        self.metrics.more_notes = lambda: {f"plugin {name}": why for name, why in self.host.problems().items()}
        gauge = self.metrics.gauge
        gauge(
            "drawbridge_driver_plugins",
            "Connected device plugins.",
            lambda: sum(plugin.connected for plugin in self.host.plugins()),
        )
        gauge(
            "drawbridge_driver_plugin_problems",
            "Device plugins with a problem.",
            lambda: len(self.host.problems()),
        )

    async def run(self, stop: asyncio.Event) -> None:
        saved = await asyncio.to_thread(self._load)
        self._offer(saved)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_plugins())
            async with self.host.serving(saved):
                await self.driver.run(stop)
            self._stopped.set()
            self._changed.set()

    async def _follow_plugins(self) -> None:
        """Save and publish the plugins' devices after changes, and a last time when stopped."""
        stopped = False
        while not stopped:
            await self._changed.wait()
            self._changed.clear()
            stopped = self._stopped.is_set()
            plugins = self.host.plugins()
            if plugins != self._published:
                # Saved first: a restarted adapter keeps the devices until the plugins are back.
                await asyncio.to_thread(self._save, plugins)
                self._offer(plugins)
            with suppress(TimeoutError):
                async with asyncio.timeout(PUBLISH_INTERVAL):
                    await self._stopped.wait()

    def _offer(self, plugins: tuple[PluginState, ...]) -> None:
        self._published = plugins
        self.driver.update_machine(machine_of_plugins(self._name, plugins, self._facts))

    def _save(self, plugins: tuple[PluginState, ...]) -> None:
        # In a rolling update the plugins may have registered with the later adapter, which saves their devices.
        if self.driver.has_successor():
            return
        steps = durable_steps(self._file, msgspec.json.encode(plugins))
        try:
            with self._disk.locked(f"{self._file}.lock"):
                self._disk.carry_out(steps)
        except OSError as error:
            logger.warning("cannot save the plugins' devices", extra={"why": str(error)})

    def _load(self) -> tuple[PluginState, ...]:
        data = self._disk.read(self._file)
        if data is None:
            return ()
        try:
            saved = msgspec.json.decode(data, type=tuple[PluginState, ...])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            logger.warning("cannot read the saved devices of plugins", extra={"why": str(error)})
            return ()
        return tuple(msgspec.structs.replace(plugin, connected=False) for plugin in saved)
