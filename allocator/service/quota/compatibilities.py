"""The status of DeviceCompatibilities, which the leader keeps: how many devices a rule matches, and what is wrong with it.

Drivers publish all day and the number of devices follows them, so a mere change of the number is written at most twice a minute.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

import msgspec

from allocator.reports import PageCoverage, coverage_of, rule_of, status_of
from allocator.service.quota.quotas import StatusWriter
from cluster.resources import DEVICE_COMPATIBILITIES
from dra.objects import DeviceCompatibility, DeviceCompatibilityStatus
from dra.stock import Page

if TYPE_CHECKING:
    from allocator.service.knowledge import Lead
    from cluster.protocol import Cluster
    from dra.stock import Stock
    from runtime.informers import Informer

NUMBER_SECONDS = 30.0
_POOLS_A_TURN = 64


class Compatibilities:
    """The rules of a cluster about which devices go together."""

    def __init__(self, cluster: Cluster, followed: Informer[DeviceCompatibility]) -> None:
        self._statuses = StatusWriter(cluster, DEVICE_COMPATIBILITIES)
        self._followed = followed
        self._clock = asyncio.get_running_loop().time
        self._looks: dict[str, _Look] = {}  # by name
        self._written: dict[str, float] = {}  # by name: when

    async def keep(self, stock: Stock, lead: Lead) -> None:
        """Write `status` where it is not what there is. A write that fails is repeated in a later round."""
        rules = tuple(self._followed.objects.values())
        for deleted in self._looks.keys() - {rule.metadata.name for rule in rules}:
            del self._looks[deleted]
            self._written.pop(deleted, None)
        for rule in rules:
            if not lead.may_write():
                return
            name, was, now = rule.metadata.name, rule.status, self._clock()
            found = self._looks[name] = await _look(rule, stock, self._looks.get(name))
            status = found.status
            is_recent = now - self._written.get(name, -inf) < NUMBER_SECONDS
            only_the_number = was.findings == status.findings and was.observed_generation == status.observed_generation
            if was == status or (only_the_number and is_recent):
                continue
            written = {
                "observedGeneration": status.observed_generation,
                "devices": status.devices,
                "findings": [
                    {"code": finding.code, "path": finding.path, "message": finding.message}
                    for finding in status.findings
                ],
            }
            if await self._statuses.write(rule.metadata, written):
                self._written[name] = now


class _Look(msgspec.Struct, frozen=True, eq=False):
    """What was seen of the pages of a rule's driver, and the status that follows."""

    compatibility: DeviceCompatibility
    pages: object  # of the stock
    coverage_by_page: dict[Page, PageCoverage]
    status: DeviceCompatibilityStatus


async def _look(compatibility: DeviceCompatibility, stock: Stock, before: _Look | None) -> _Look:
    """Look at the pages that were not looked at yet; where nothing changed, at none."""
    known: dict[Page, PageCoverage] = {}
    if before is not None:
        former = before.compatibility
        same_spec = former.spec == compatibility.spec
        if same_spec and former.metadata.generation == compatibility.metadata.generation:
            known = before.coverage_by_page
            if before.pages is stock.pages:
                return before
    rule = rule_of(compatibility)
    coverage_by_page: dict[Page, PageCoverage] = {}
    pools = [pool for pool in stock.pages_of if pool[0] == compatibility.spec.driver]
    for at, pool in enumerate(pools):
        if at % _POOLS_A_TURN == 0:
            await asyncio.sleep(0)  # other tasks get a turn
        for page in stock.newest_pages(pool):
            found = known.get(page)
            coverage_by_page[page] = coverage_of(rule, page) if found is None else found
    status = status_of(compatibility, coverage_by_page.items())
    return _Look(compatibility, stock.pages, coverage_by_page, status)
