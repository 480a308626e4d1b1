"""The leader writes the status of DeviceCompatibilities: how many devices a rule applies to, and what is wrong with the rule.

Drivers publish slices all day, which changes the number of devices. If only this number has changed, it is written at most twice a minute.
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
    from cluster.informers import Informer
    from cluster.protocol import Cluster
    from dra.stock import Stock

NUMBER_SECONDS = 30.0
_POOLS_A_TURN = 64


class Compatibilities:
    """Writes the status of all DeviceCompatibilities."""

    def __init__(self, cluster: Cluster, followed: Informer[DeviceCompatibility]) -> None:
        self._statuses = StatusWriter(cluster, DEVICE_COMPATIBILITIES)
        self._followed = followed
        self._clock = asyncio.get_running_loop().time
        self._evaluations: dict[str, _Evaluation] = {}  # by name
        self._written: dict[str, float] = {}  # the time of the last write, by name

    async def keep(self, stock: Stock, lead: Lead) -> None:
        """Write each status that differs from the stored one. A failed write is repeated in a later round."""
        rules = tuple(self._followed.objects.values())
        for deleted in self._evaluations.keys() - {rule.metadata.name for rule in rules}:
            del self._evaluations[deleted]
            self._written.pop(deleted, None)
        for rule in rules:
            if not lead.may_write():
                return
            name, stored, now = rule.metadata.name, rule.status, self._clock()
            evaluation = self._evaluations[name] = await _evaluate(rule, stock, self._evaluations.get(name))
            status = evaluation.status
            is_recent = now - self._written.get(name, -inf) < NUMBER_SECONDS
            only_number_changed = (
                stored.findings == status.findings and stored.observed_generation == status.observed_generation
            )
            if stored == status or (only_number_changed and is_recent):
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


class _Evaluation(msgspec.Struct, frozen=True, eq=False):
    """For a rule, its coverage by page (slice) of its driver, and the resulting status."""

    compatibility: DeviceCompatibility
    pages: object  # `Stock.pages` at the time of the evaluation
    coverage_by_page: dict[Page, PageCoverage]
    status: DeviceCompatibilityStatus


async def _evaluate(compatibility: DeviceCompatibility, stock: Stock, before: _Evaluation | None) -> _Evaluation:
    """Evaluate a rule on the pages that are new since the last evaluation."""
    known_coverage: dict[Page, PageCoverage] = {}
    if before is not None:
        former = before.compatibility
        same_spec = former.spec == compatibility.spec
        if same_spec and former.metadata.generation == compatibility.metadata.generation:
            known_coverage = before.coverage_by_page
            if before.pages is stock.pages:
                return before
    rule = rule_of(compatibility)
    coverage_by_page: dict[Page, PageCoverage] = {}
    pools = [pool for pool in stock.pages_of if pool[0] == compatibility.spec.driver]
    for index, pool in enumerate(pools):
        if index % _POOLS_A_TURN == 0:
            await asyncio.sleep(0)  # let other tasks run
        for page in stock.newest_pages(pool):
            coverage = known_coverage.get(page)
            coverage_by_page[page] = coverage_of(rule, page) if coverage is None else coverage
    status = status_of(compatibility, coverage_by_page.items())
    return _Evaluation(compatibility, stock.pages, coverage_by_page, status)
