"""The driver process: it repairs its files, listens on its sockets, registers with the kubelet, and publishes slices."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cluster import ApiError
from cluster.resources import DEVICE_COMPATIBILITIES
from dra.policy import Rules
from dra.texts import list_first
from node.checkpoint import BrokenCheckpoint
from node.guard import Guard
from node.inventory import tainted, unpublishable
from node.messages import DeviceHealth, DeviceIdentifier, HealthReport
from node.service.disk import Disk
from node.service.metrics import DriverMetrics
from node.service.prepared_store import PreparedStore
from node.service.preparing import Preparing
from node.service.publisher import Publisher
from node.service.sockets import (
    ANSWER_TIMEOUT,
    LONGEST,
    DraPlugin,
    DriverRegistration,
    GrpcSocket,
    has_later,
    successor,
    sweep,
)
from serving.process import run_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster import Cluster
    from dra.objects import Device
    from node.inventory import Machine
    from node.service.prepared_store import Writer
    from node.service.settings import NodePaths

SETTLE_INTERVAL = 60.0  # seconds
HEALTH_INTERVAL = 5.0  # seconds between two checks of the devices' files
HEALTH_VALIDITY = 30  # seconds
DISCOVERY_INTERVAL = 30.0  # seconds
HEALTHY, UNHEALTHY = 1, 2  # values of `health` in DRAResourceHealth
logger = logging.getLogger("drawbridge.driver")


class UnusablePath(OSError):  # noqa: N818  names the problem
    """A socket's path is too long."""


class Driver:
    def __init__(
        self,
        cluster: Cluster,
        machine: Machine,
        paths: NodePaths,
        disk: Disk | None = None,
        writer: Writer | None = None,
        *,
        discover: Callable[[], Machine] | None = None,
        patience: float = ANSWER_TIMEOUT,
        health_interval: float = HEALTH_INTERVAL,
        discovery_interval: float = DISCOVERY_INTERVAL,
    ) -> None:
        """`patience` is how many seconds a later instance of the driver has to answer, until it counts as hanging.

        `discover` reads the machine again: a device can appear when its kernel module is loaded, minutes after the start of the node.
        """
        self._discover = discover
        self._patience = patience
        self._health_interval = health_interval
        self._discovery_interval = discovery_interval
        self._cluster = cluster
        self._machine = machine
        self._paths = paths
        disk = disk or Disk()
        state = paths.state(machine.driver)
        # In a rolling update two instances run at once, maybe with the same process id. The name of the later instance sorts later.
        instance = f"{time.monotonic_ns() // 1000:012x}"
        self._endpoint = f"{state}/dra-{instance}.sock"
        self._registry_socket = f"{paths.registry}/{machine.driver}-{instance}-reg.sock"
        for path in (self._endpoint, self._registry_socket):
            if len(path.encode()) > LONGEST:
                raise UnusablePath(f"{path} is longer than {LONGEST} bytes, the maximum for a socket's path")
        disk.make_folder(state)
        self._rules = Rules()
        self._guard = Guard(machine, paths.node)
        self._store = PreparedStore(self._guard, disk, state, paths.cdi, pods=paths.pods, writer=writer)
        self.metrics = DriverMetrics()
        self._preparing = Preparing(cluster, self._store, clock=time.monotonic, metrics=self.metrics)
        self.publisher = Publisher(cluster, machine, paths.node, has_successor=self.has_successor, metrics=self.metrics)
        self.registration = DriverRegistration(machine.driver, self._endpoint)
        self._checkpoint_problem = ""
        self._discovery_problem = ""
        self._failures: Mapping[str, str] = {}  # why devices have failed, by device name
        self._withheld: Mapping[str, str] = {}  # why devices are not published, by device name
        self.metrics.checks = {
            "kubelet": lambda: self.registration.unready(self._registry_socket),
            "slices": self.publisher.unready,
            "checkpoint": lambda: self._checkpoint_problem,
            "serving": str,  # while it serves
        }
        self.metrics.notes["slices"] = self.publisher.note
        self.metrics.notes["withheld"] = lambda: list_first([*self._withheld.values()], 3, "; ")
        self.metrics.notes["discovery"] = lambda: self._discovery_problem
        gauge = self.metrics.gauge
        gauge("drawbridge_driver_prepared_claims", "Prepared claims.", lambda: len(self._store.prepared))
        gauge(
            "drawbridge_driver_waiting_claims",
            "Claims waiting for deleted claims to be unprepared.",
            lambda: self._preparing.waiting,
        )
        gauge("drawbridge_driver_devices", "Devices of the node.", lambda: len(self._machine.devices))
        gauge(
            "drawbridge_driver_unhealthy_devices",
            "Unhealthy devices of the node.",
            lambda: sum(bool(self._health_problem(device)) for device in self._machine.devices),
        )
        gauge(
            "drawbridge_driver_publishes",
            "1 if this instance publishes the slices, 0 while a later instance on this node does.",
            lambda: self.publisher.leads,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises BrokenCheckpoint if the checkpoint cannot be read."""
        driver = self._machine.driver
        await asyncio.to_thread(self._store.repair)
        await asyncio.to_thread(sweep, self._paths.state(driver), "dra-")
        await asyncio.to_thread(sweep, self._paths.registry, f"{driver}-")
        await self._update_health()  # before the first publication, which would otherwise remove the taints
        plugin = DraPlugin(self._preparing, self.health)
        async with GrpcSocket(plugin, self._endpoint), GrpcSocket(self.registration, self._registry_socket):
            logger.info("ready", extra={"driver": driver})
            await run_until(
                stop,
                self.publisher.run,
                self._follow_claims,
                self._follow_health,
                self._follow_files,
                self._follow_machine,
                metrics=self.metrics,
            )
        await self._preparing.wait_for_statuses()

    def update_machine(self, machine: Machine) -> None:
        """Publish and prepare the machine's current devices. Prepared claims stay prepared."""
        self._machine = machine
        self._guard = Guard(machine, self._paths.node, self._rules)
        self._store.guard = self._guard
        self._withheld = self._guard.withheld(self._store.prepared.values())
        self._publish()

    def _publish(self) -> None:
        """Publish the devices, without those whose hardware a claim holds under another name."""
        free = (device for device in self._machine.devices if device.name not in self._withheld)
        self.publisher.update_machine(tainted(replace(self._machine, devices=tuple(free)), self._failures))

    def has_successor(self) -> bool:
        """Report whether a later instance answers on this node, as in a rolling update. Then only the later one publishes. May take seconds."""
        return bool(successor(self._endpoint, self._patience))

    def health(self) -> HealthReport:
        """Report the health of the devices. A device with a taint or without a usable file in /dev is unhealthy."""
        now = int(time.time())
        devices = tuple(
            DeviceHealth(
                device=DeviceIdentifier(pool=self._paths.node, device=device.name),
                health=UNHEALTHY if problem else HEALTHY,
                updated=now,
                seconds=HEALTH_VALIDITY,
                message=problem,
            )
            for device in self._machine.devices
            for problem in [self._health_problem(device)]
        )
        return HealthReport(devices=devices)

    def _health_problem(self, device: Device) -> str:
        return device.taints[0].key if device.taints else self._failures.get(device.name, "")

    async def _follow_health(self) -> None:
        """Periodically check the devices' files. A failed device has a taint until it is healthy again."""
        while True:
            await asyncio.sleep(self._health_interval)
            await self._update_health()

    async def _update_health(self) -> None:
        old_failures, failures = self._failures, await asyncio.to_thread(_failed_devices, self._machine)
        withheld = self._guard.withheld(self._store.prepared.values())
        if (old_failures, self._withheld) == (failures, withheld):
            return
        for name in sorted(failures.keys() - old_failures.keys()):
            logger.warning("a device has failed", extra={"device": name, "why": failures[name]})
        for name in sorted(old_failures.keys() - failures.keys()):
            logger.info("a device is healthy again", extra={"device": name})
        for name in sorted(withheld.keys() - self._withheld.keys()):
            logger.warning("a device is not published", extra={"device": name, "why": withheld[name]})
        self._failures, self._withheld = failures, withheld
        self._publish()

    async def _follow_files(self) -> None:
        """Periodically write missing files of prepared claims again. After a failure the next attempt comes later, or with other devices."""
        failed_with, retry_at = None, 0.0
        while True:
            await asyncio.sleep(self._health_interval)
            if has_later(self._endpoint):
                continue  # the later instance restores the files
            machine = self._machine
            if machine is failed_with and time.monotonic() < retry_at:
                continue
            try:
                complete = await asyncio.to_thread(self._store.restore)
            except (OSError, BrokenCheckpoint):  # `_follow_claims` reports it
                complete = False
            failed_with, retry_at = None if complete else machine, time.monotonic() + SETTLE_INTERVAL

    async def _follow_machine(self) -> None:
        """Periodically discover the devices again, and publish those that appeared. If this fails, the last devices stay."""
        while self._discover is not None:
            await asyncio.sleep(self._discovery_interval)
            machine, problem = self._machine, ""
            try:
                machine = await asyncio.to_thread(self._discover)
                if machine != self._machine:
                    problem = list_first([finding.message for finding in unpublishable(machine)], 3, "; ")
            except Exception as error:  # noqa: BLE001  the last devices stay
                problem = str(error) or type(error).__name__
            if problem:
                self.metrics.failed_discoveries.inc()
                if problem != self._discovery_problem:
                    logger.warning("the devices cannot be discovered again; the last ones stay", extra={"why": problem})
            elif machine != self._machine and not has_later(self._endpoint):
                logger.info("the devices have changed", extra={"devices": len(machine.devices)})
                self.update_machine(machine)
            self._discovery_problem = problem

    async def _follow_claims(self) -> None:
        """Periodically read the DeviceCompatibility rules, and unprepare claims deleted long ago."""
        while True:
            # A cluster without the CRDs has no rules. While the API server does not answer, the last rules stay in force.
            try:
                page = await self._cluster.list(DEVICE_COMPATIBILITIES)
            except ApiError as error:
                logger.debug("no rules about devices", extra={"why": str(error)})
            else:
                self._rules = Rules(page.items)
                self._guard.use_rules(self._rules)
            try:
                # The kubelet calls only the latest instance, so an earlier one does not know which claims are in use.
                if not has_later(self._endpoint):
                    await self._preparing.unprepare_deleted()
                self._checkpoint_problem = ""
            except (OSError, BrokenCheckpoint) as error:
                self._checkpoint_problem = f"the prepared claims cannot be read: {error}"
                logger.error("cannot read the prepared claims", extra={"why": str(error)})  # noqa: TRY400
            await asyncio.sleep(SETTLE_INTERVAL)


def _failed_devices(machine: Machine) -> dict[str, str]:
    """Return the devices that have failed, and why: one of the device's files in /dev is missing, or cannot be used."""
    problems: dict[str, str] = {}  # by file, because the devices of one GPU have the same files
    failed: dict[str, str] = {}
    for name, offer in machine.offers.items():
        for file in offer.files:
            path = file.partition(":")[0]
            if path not in problems:
                problems[path] = _file_problem(path)
            if problems[path]:
                failed.setdefault(name, problems[path])
    return failed


def _file_problem(path: str) -> str:
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return f"{path} does not exist"
    except PermissionError:
        return ""  # which does not mean that the device has failed
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""
