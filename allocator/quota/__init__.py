"""Quotas of devices, pure: what an object being created would add, what is admitted and has no devices yet, and what is left."""

from __future__ import annotations

from allocator.quota.pending_usage import PendingUsage
from allocator.quota.quota_admission import FutureClaim, NewObject, QuotaQuestion, core_lines, extended_wants
from allocator.quota.report import QuotaReport, report_quota

__all__ = [
    "FutureClaim",
    "NewObject",
    "PendingUsage",
    "QuotaQuestion",
    "QuotaReport",
    "core_lines",
    "extended_wants",
    "report_quota",
]
