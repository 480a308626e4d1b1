"""Keeps the machine published: slices that another client changes or deletes are written again.

A kubelet deletes all slices of its node when it starts, and those of a driver half a minute after it is gone. An informer tells when
something happened; what is there is then read anew, because a copy that lags would have slices made twice.

Of two drivers on a node, which a rolling update has for a while, the later one publishes. They may have different inventories, and would undo each
other's slices. When the later one has gone, or stands still, the earlier one goes on; one that goes on after it stood still has the word again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from cluster import ApiError, Merge
from cluster.errors import NotFound
from cluster.resources import NODES, RESOURCE_SLICES
from dra.objects import ObjectMeta, OwnerReference, ResourceSlice
from node.service.metrics import DriverMetrics
from node.slices import dropped, pages_of, plan
from runtime.informers import Backoff, Informer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster import Cluster
    from dra.objects import ResourceSliceSpec
    from node.inventory import Machine

# Between two looks whether a later driver is still there.
LOOK = 2.0
logger = logging.getLogger("drawbridge.driver")


class Publisher:
    def __init__(
        self,
        cluster: Cluster,
        machine: Machine,
        node: str,
        backoff: Backoff | None = None,
        *,
        overtaken: Callable[[], bool] = lambda: False,
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
        self._overtaken = overtaken
        self._publications = (metrics or DriverMetrics()).publications
        self.leads = True
        self.problem = ""
        self.published = asyncio.Event()

    def offer(self, machine: Machine) -> None:
        wanted = pages_of(machine, self._node)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    def unready(self) -> str:
        """Say why nothing is published; "" if something is, or if that is a later driver's task."""
        if self.published.is_set() or not self.leads:
            return ""
        return f"nothing is published yet: {self.problem or 'it is being done'}"

    def note(self) -> str:
        """Say why what is published is not what the node has; "" if it is."""
        if not self.leads:
            return "a later driver of this node publishes"
        return f"not as they should be: {self.problem}" if self.published.is_set() and self.problem else ""

    async def run(self) -> None:
        informer = Informer(self._cluster, RESOURCE_SLICES, fields=self._fields)
        informer.listen(lambda _: self._changed.set())
        failures = 0
        self._changed.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            while True:
                await self._changed.wait()
                # As long as a later driver of this node is at work, it publishes.
                while await asyncio.to_thread(self._overtaken):
                    if self.leads:
                        logger.info("a later driver of this node publishes from now on")
                    self.leads = False
                    await asyncio.sleep(LOOK)
                if not self.leads:
                    logger.info("the later driver is gone or stands still, and we publish again")
                self.leads = True
                self._changed.clear()
                error: ApiError | None = None
                try:
                    wrote = await self.round()
                    self.problem = ""
                    if wrote:
                        self._publications.labels("written").inc()
                except ApiError as failed:
                    error, wrote = failed, True
                    self.problem = str(failed)
                    self._publications.labels("failed").inc()
                    logger.warning("not published", extra={"why": str(failed)})
                    self._changed.set()
                # Slower and slower while another client undoes it or the server refuses.
                failures = failures + 1 if wrote else 0
                if wrote:
                    await asyncio.sleep(self._backoff.seconds(failures, random.random(), error))  # noqa: S311

    async def round(self) -> bool:
        """Write what differs, and say whether anything did."""
        page = await self._cluster.list(RESOURCE_SLICES, fields=self._fields)
        decided = plan(page.items, self._wanted, self._echoes)
        for one in decided.gone:
            try:
                await self._cluster.delete(RESOURCE_SLICES, one.metadata.name, uid=one.metadata.uid)
            except NotFound:
                logger.debug("another client has deleted a slice", extra={"slice": one.metadata.name})
        for changed in decided.rewritten:
            stored = await self._cluster.patch(RESOURCE_SLICES, changed.slice.metadata.name, Merge(changed.body))
            self._compare(changed.spec, stored)
        if decided.new:
            # The node owns its slices, so that they go when it does.
            node = (await self._cluster.get(NODES, self._node)).metadata
            owner = OwnerReference(api_version="v1", kind="Node", name=node.name, uid=node.uid, controller=True)
            metadata = ObjectMeta(generate_name=f"{self._node}-{self._driver}-", owner_references=(owner,))
            for spec in decided.new:
                stored = await self._cluster.create(RESOURCE_SLICES, ResourceSlice(metadata=metadata, spec=spec))
                self._compare(spec, stored)
        if decided:
            counts = {"slices": len(self._wanted), "new": len(decided.new), "gone": len(decided.gone)}
            logger.info("published", extra=counts)
        self.published.set()
        return bool(decided)

    def _compare(self, said: ResourceSliceSpec, stored: ResourceSlice) -> None:
        echo = dropped(said, stored.spec)
        if echo is None:
            return
        self._echoes.update([echo])
        logger.warning(
            "the API server dropped fields of a slice: is a feature gate off that the inventory needs?",
            extra={"slice": stored.metadata.name},
        )
