"""Judges what a pod's new claims, or a new claim, request by the DeviceQuotas of the namespace.

A request beyond the whole limit is refused, because waiting cannot help. A request beyond what is left gets a warning. Neither counts what other
pods wait for. The allocator counts exactly when it reserves devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra.policy import QuotaLine, held_of_quota, quota_lines, requested_amounts, write_amount
from dra.reason import Reason
from dra.stock import total
from webhook.placement.problems import NO_PROBLEMS, MayServe, Problems, denied
from webhook.refusals import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.objects import DeviceQuota, ResourceClaimSpec
    from dra.stock import Amounts
    from webhook.state import State

_REMEDY: Final = "request less, or ask for a larger quota"


def judge_quotas(specs: Iterable[ResourceClaimSpec], scope: tuple[str, str], state: State) -> Problems:
    """Judge new claims. `scope` is the namespace, and the priority class of the claims' pod. A stale copy of the cluster refuses nothing."""
    quotas = state.device_quotas.get(scope[0] or "default", ())
    if not quotas or not state.confirmed:
        return NO_PROBLEMS
    stock = state.stock

    def used(quota: DeviceQuota) -> Amounts:
        # The webhook does not follow pods, so it does not know which claims a quota for some priority classes counts.
        if stock is None or quota.spec.scope_selector is not None:
            return {}
        return held_of_quota(quota, stock, lambda *_: None)

    lines = quota_lines(quotas, scope, total(map(requested_amounts, specs)), used)
    beyond = [_beyond(line) for line in lines if line.requested > line.hard]
    if beyond and state.configuration.file.impossible != "warn":
        return denied(Reason(text="; ".join(beyond), code=Code.QUOTA, remedies=(_REMEDY,)), "", "", MayServe(0))
    left = [str(line) for line in lines if line.requested <= line.hard and line.exceeded]
    return Problems(warnings=(*beyond, *left)) if beyond or left else NO_PROBLEMS


def _beyond(line: QuotaLine) -> str:
    """Describe a line whose whole limit is exceeded."""
    requested, hard = write_amount(line.key, line.requested), write_amount(line.key, line.hard)
    return f"quota {line.key}: {requested} requested, but the whole quota is {hard}"
