"""Keeps the machine published: slices as they should be, whoever changes or deletes them.

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
from cluster.informers import Backoff, Batch, Informer
from cluster.resources import NODES, RESOURCE_SLICES
from dra.objects import ObjectMeta, OwnerReference, ResourceSlice
from node.slices import dropped, pages_of, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cluster import Cluster
    from dra.objects import ResourceSliceSpec
    from node.inventory import Machine
    from node.slices import Plan

# Between two looks whether a later driver is still there.
LOOK = 2.0
logger = logging.getLogger("drawbridge.driver")


class Publisher:
    """Publishes one machine as one node's pool."""

    def __init__(
        self,
        cluster: Cluster,
        machine: Machine,
        node: str,
        backoff: Backoff | None = None,
        *,
        overtaken: Callable[[], bool] = lambda: False,
        count: Callable[[str], None] = lambda _: None,
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
        self._count = count
        self.leads = True
        self.problem = ""
        self.published = asyncio.Event()

    def offer(self, machine: Machine) -> None:
        """Publish another machine from now on."""
        wanted = pages_of(machine, self._node)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    async def run(self) -> None:
        """Follow the slices and put them right, until cancelled."""
        informer = Informer(self._cluster, RESOURCE_SLICES, fields=self._fields)
        informer.listen(self._hear)
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            group.create_task(self._keep())

    def _hear(self, batch: Batch[ResourceSlice]) -> None:
        del batch
        self._changed.set()

    async def _keep(self) -> None:
        """Put right what is not, slower and slower while somebody undoes it or the server refuses."""
        failures = 0
        self._changed.set()
        while True:
            await self._changed.wait()
            await self._stand_aside()
            self._changed.clear()
            error: ApiError | None = None
            try:
                wrote = await self.round()
                self.problem = ""
                if wrote:
                    self._count("written")
            except ApiError as failed:
                error, wrote = failed, True
                self.problem = str(failed)
                self._count("failed")
                logger.warning("not published", extra={"why": str(failed)})
                self._changed.set()
            failures = failures + 1 if wrote else 0
            if wrote:
                await asyncio.sleep(self._backoff.seconds(failures, random.random(), error))  # noqa: S311

    async def _stand_aside(self) -> None:
        """Wait for as long as a later driver of this node is there."""
        while await asyncio.to_thread(self._overtaken):
            if self.leads:
                logger.info("a later driver of this node publishes from now on")
            self.leads = False
            await asyncio.sleep(LOOK)
        if not self.leads:
            logger.info("the later driver is gone or stands still, and we publish again")
        self.leads = True

    async def round(self) -> bool:
        """Write what has to be written, and say whether that was anything."""
        page = await self._cluster.list(RESOURCE_SLICES, fields=self._fields)
        decided = plan(page.items, self._wanted, self._echoes)
        if decided:
            await self._carry_out(decided)
        self.published.set()
        return bool(decided)

    async def _carry_out(self, decided: Plan) -> None:
        for one in decided.gone:
            await self._delete(one)
        for changed in decided.rewritten:
            name = changed.slice.metadata.name
            patch = Merge(changed.body)
            stored = await self._cluster.patch(RESOURCE_SLICES, name, patch)
            self._compare(changed.spec, stored)
        if decided.new:
            await self._create(decided.new)
        count = len(self._wanted)
        logger.info("published", extra={"slices": count, "new": len(decided.new), "gone": len(decided.gone)})

    async def _delete(self, one: ResourceSlice) -> None:
        metadata = one.metadata
        try:
            await self._cluster.delete(RESOURCE_SLICES, metadata.name, uid=metadata.uid)
        except NotFound:
            logger.debug("somebody else has deleted a slice", extra={"slice": metadata.name})

    async def _create(self, specs: Iterable[ResourceSliceSpec]) -> None:
        owners = await self._owners()
        metadata = ObjectMeta(generate_name=f"{self._node}-{self._driver}-", owner_references=owners)
        for spec in specs:
            made = ResourceSlice(metadata=metadata, spec=spec)
            stored = await self._cluster.create(RESOURCE_SLICES, made)
            self._compare(spec, stored)

    async def _owners(self) -> tuple[OwnerReference, ...]:
        """Name the node as owner, so that its slices go when it does."""
        node = await self._cluster.get(NODES, self._node)
        metadata = node.metadata
        return (OwnerReference(api_version="v1", kind="Node", name=metadata.name, uid=metadata.uid, controller=True),)

    def _compare(self, said: ResourceSliceSpec, stored: ResourceSlice) -> None:
        echo = dropped(said, stored.spec)
        if echo is None:
            return
        self._echoes.update([echo])
        logger.warning(
            "the API server dropped fields of a slice: is a feature gate off that the inventory needs?",
            extra={"slice": stored.metadata.name},
        )
