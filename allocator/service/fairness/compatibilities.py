"""DeviceCompatibilities at work: `status`, which the leader keeps: how many devices carry a rule, and what is wrong with it.

Drivers publish all day and the number of devices follows them, so a number alone is written twice a minute at most.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from allocator.reports import Seen, look, rule_of, status_of
from cluster.errors import ApiError, Conflict, NotFound
from cluster.patch import Merge
from cluster.resources import DEVICE_COMPATIBILITIES
from dra.objects import DeviceCompatibility, DeviceCompatibilityStatus
from dra.stock import Page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from cluster.informers import Informer
    from cluster.protocol import Cluster
    from dra.stock import Stock

logger = logging.getLogger("drawbridge.allocator")
NUMBER_SECONDS = 30.0
_POOLS_A_TURN = 64


class Compatibilities:
    """The rules of a cluster about which devices go together."""

    def __init__(
        self,
        cluster: Cluster,
        followed: Informer[DeviceCompatibility],
        *,
        may_write: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._followed = followed
        self._may_write = may_write
        self._clock = clock
        self._looks: dict[str, _Look] = {}  # by name
        self._written: dict[str, float] = {}  # by name: when
        self._denied = ""

    async def keep(self, stock: Stock) -> None:
        """Write `status` where it is not what there is. What cannot be written now is written in a later round."""
        rules = tuple(self._followed.objects.values())
        self._forget_others(rules)
        for one in rules:
            if not self._may_write():
                return
            name = one.metadata.name
            before = self._looks.get(name)
            now = await _look(one, stock, before)
            self._looks[name] = now
            await self._keep(one, now.status)

    def _forget_others(self, rules: Iterable[DeviceCompatibility]) -> None:
        there = {one.metadata.name for one in rules}
        for gone in self._looks.keys() - there:
            del self._looks[gone]
            self._written.pop(gone, None)

    async def _keep(self, compatibility: DeviceCompatibility, status: DeviceCompatibilityStatus) -> None:
        meta = compatibility.metadata
        was = compatibility.status
        if was == status:
            return
        now = self._clock()
        since = now - self._written.get(meta.name, -inf)
        only_the_number = was.findings == status.findings and was.observed_generation == status.observed_generation
        if only_the_number and since < NUMBER_SECONDS:
            return
        patch = {"metadata": {"resourceVersion": meta.resource_version}, "status": _written_out(status)}
        try:
            await self._cluster.patch(DEVICE_COMPATIBILITIES, meta.name, Merge(patch), subresource="status")
        except (Conflict, NotFound):
            return  # it is another by now; the next round sees it
        except ApiError as error:
            self._complain(error.message)
        else:
            self._written[meta.name] = now
            self._denied = ""

    def _complain(self, problem: str) -> None:
        if problem != self._denied:
            logger.warning("what a DeviceCompatibility comes to could not be written", extra={"problem": problem})
        self._denied = problem


class _Look(msgspec.Struct, frozen=True, eq=False):
    """What was seen of the pages of a rule's driver, and what it comes to."""

    compatibility: DeviceCompatibility
    pages: object  # of the stock
    seen: dict[Page, Seen]
    status: DeviceCompatibilityStatus

    def is_about(self, compatibility: DeviceCompatibility) -> bool:
        """Whether another state of the object would be told the same."""
        mine = self.compatibility
        return mine.spec == compatibility.spec and mine.metadata.generation == compatibility.metadata.generation


async def _look(compatibility: DeviceCompatibility, stock: Stock, before: _Look | None) -> _Look:
    """Look at the pages that were not looked at yet; where nothing changed, at none."""
    known: dict[Page, Seen] = {}
    if before is not None and before.is_about(compatibility):
        known = before.seen
        if before.pages is stock.pages:
            return before
    rule = rule_of(compatibility)
    seen: dict[Page, Seen] = {}
    async for page in _pages(stock, compatibility.spec.driver):
        found = known.get(page)
        if found is None:
            found = look(rule, page)
        seen[page] = found
    status = status_of(compatibility, seen.items())
    return _Look(compatibility, stock.pages, seen, status)


async def _pages(stock: Stock, driver: str) -> AsyncIterator[Page]:
    """List the pages of a driver's pools as allocators see them, and let others have a turn in between."""
    pools = [pool for pool in stock.pages_of if pool[0] == driver]
    for at, pool in enumerate(pools):
        if at % _POOLS_A_TURN == 0:
            await asyncio.sleep(0)
        for page in stock.newest_pages(pool):
            yield page


def _written_out(status: DeviceCompatibilityStatus) -> dict[str, Any]:
    findings = [{"code": one.code, "path": one.path, "message": one.message} for one in status.findings]
    return {"observedGeneration": status.observed_generation, "devices": status.devices, "findings": findings}
