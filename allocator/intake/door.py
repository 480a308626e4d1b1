"""The question at the door: what somebody who comes would add to which lines, beside what claims have and what waits. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dra.policy import quota_lines
from dra.stock import total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allocator.intake.book import Demand, FindSpec
    from allocator.intake.newcomer import Newcomer
    from dra.objects import DeviceQuota
    from dra.policy import QuotaLine
    from dra.stock import Amounts

    OfQuota = Callable[[DeviceQuota], Amounts]


class Indoors(NamedTuple):
    """What is known of those who are in: what they have of what a quota is about, and what waits."""

    quotas: Iterable[DeviceQuota]
    held: OfQuota
    waiting: OfQuota
    demand: Demand
    find_spec: FindSpec

    def wanted_by(self, newcomer: Newcomer) -> Amounts:
        """Say how much somebody may come to hold at most."""
        specs = [self.find_spec(newcomer.namespace, one.template) or one.spec for one in newcomer.wants.values()]
        return total(self.demand(spec) for spec in specs if spec is not None)

    def lines_for(self, newcomer: Newcomer, wanted: Amounts) -> tuple[QuotaLine, ...]:
        """Say what somebody who wants so much would add to which lines."""
        who = newcomer.namespace, newcomer.priority_class
        return quota_lines(self.quotas, who, wanted, self.held, self.waiting)
