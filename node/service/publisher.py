"""Publishes the machine's slices, and writes them again when another client changes or deletes them.

A kubelet deletes all slices of its node when it starts, and a driver's slices half a minute after the driver has ended. An informer reports
changes of slices. The publisher then lists the slices again, because with a cached copy it could create a slice twice.

In a rolling update two instances of a driver run on a node. They may have different inventories and would undo each other's slices, so only
the later instance publishes. If the later instance ends or hangs, the earlier one publishes again, until the later one answers.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from cluster import ApiError, Merge
from cluster.errors import NotFound
from cluster.informers import Backoff, Informer
from cluster.resources import NODES, RESOURCE_SLICES
from dra.names import shortened
from dra.objects import ObjectMeta, OwnerReference, ResourceSlice
from node.service.metrics import DriverMetrics
from node.slices import dropped, pages_of, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster import Cluster
    from dra.objects import ResourceSliceSpec
    from node.inventory import Machine

LONGEST_PREFIX = 150  # characters of a node's name that are used in generateName, which has at most 253
CHECK_INTERVAL = 2.0  # seconds between two checks whether a later instance still answers
logger = logging.getLogger("drawbridge.driver")


class Publisher:
    def __init__(
        self,
        cluster: Cluster,
        machine: Machine,
        node: str,
        backoff: Backoff | None = None,
        *,
        has_successor: Callable[[], bool] = lambda: False,
        metrics: DriverMetrics | None = None,
    ) -> None:
        self._cluster = cluster
        self._driver = machine.driver
        self._node = node
        self._wanted = pages_of(machine, node)
        self._fields = f"spec.driver={machine.driver},spec.nodeName={node}"
        self._backoff = backoff or Backoff()
        self._changed = asyncio.Event()
        self._echoes: dict[bytes, bytes] = {}
        self._has_successor = has_successor
        self._publications = (metrics or DriverMetrics()).publications
        self.leads = True
        self.problem = ""
        self.published = asyncio.Event()

    def update_machine(self, machine: Machine) -> None:
        specs = pages_of(machine, self._node)
        if specs != self._wanted:
            self._wanted = specs
            self._changed.set()

    def unready(self) -> str:
        """Return why no slices are published; "" if slices are published, or if a later instance publishes."""
        if self.published.is_set() or not self.leads:
            return ""
        return f"nothing is published yet: {self.problem or 'publishing is in progress'}"

    def note(self) -> str:
        """Return why the published slices differ from the node's devices; "" if they do not."""
        if not self.leads:
            return "a later driver of this node publishes"
        return f"out of date: {self.problem}" if self.published.is_set() and self.problem else ""

    async def run(self) -> None:
        informer = Informer(self._cluster, RESOURCE_SLICES, fields=self._fields)
        informer.listen(lambda _: self._changed.set())
        failures = 0
        self._changed.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            while True:
                await self._changed.wait()
                while await asyncio.to_thread(self._has_successor):
                    if self.leads:
                        logger.info("a later driver of this node publishes from now on")
                    self.leads = False
                    await asyncio.sleep(CHECK_INTERVAL)
                if not self.leads:
                    logger.info("the later driver is gone or does not answer; publishing again")
                self.leads = True
                self._changed.clear()
                error: ApiError | None = None
                try:
                    needs_pause = await self.round()
                    self.problem = ""
                    if needs_pause:
                        self._publications.labels("written").inc()
                except ApiError as failed:
                    error, needs_pause = failed, True
                    self.problem = str(failed)
                    self._publications.labels("failed").inc()
                    logger.warning("not published", extra={"why": str(failed)})
                    self._changed.set()
                # Wait longer after each round in which another client had undone the writes, or the server rejected them.
                failures = failures + 1 if needs_pause else 0
                if needs_pause:
                    await asyncio.sleep(self._backoff.seconds(failures, random.random(), error))  # noqa: S311

    async def round(self) -> bool:
        """Write the slices that differ from the machine, and report whether any slice differed."""
        page = await self._cluster.list(RESOURCE_SLICES, fields=self._fields)
        slice_plan = plan(page.items, self._wanted, self._echoes)
        for slice_ in slice_plan.deleted:
            try:
                await self._cluster.delete(RESOURCE_SLICES, slice_.metadata.name, uid=slice_.metadata.uid)
            except NotFound:
                logger.debug("another client has deleted a slice", extra={"slice": slice_.metadata.name})
        for changed in slice_plan.rewritten:
            stored = await self._cluster.patch(RESOURCE_SLICES, changed.slice.metadata.name, Merge(changed.body))
            self._remember_dropped(changed.spec, stored)
        if slice_plan.new:
            # The node owns its slices, so that they are deleted with it.
            node = (await self._cluster.get(NODES, self._node)).metadata
            owner = OwnerReference(api_version="v1", kind="Node", name=node.name, uid=node.uid, controller=True)
            prefix = f"{shortened(self._node, LONGEST_PREFIX)}-{self._driver}-"
            metadata = ObjectMeta(generate_name=prefix, owner_references=(owner,))
            for spec in slice_plan.new:
                stored = await self._cluster.create(RESOURCE_SLICES, ResourceSlice(metadata=metadata, spec=spec))
                self._remember_dropped(spec, stored)
        if slice_plan:
            counts = {"slices": len(self._wanted), "new": len(slice_plan.new), "gone": len(slice_plan.deleted)}
            logger.info("published", extra=counts)
        self.published.set()
        return bool(slice_plan)

    def _remember_dropped(self, sent: ResourceSliceSpec, stored: ResourceSlice) -> None:
        echo = dropped(sent, stored.spec)
        if echo is None:
            return
        self._echoes.update([echo])
        logger.warning(
            "the API server dropped fields of a slice: check the feature gates that the inventory needs",
            extra={"slice": stored.metadata.name},
        )
