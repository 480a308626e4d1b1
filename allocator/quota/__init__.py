"""DeviceQuota as pure functions: what a new object would add, the pending usage of admitted objects, and reports."""

from allocator.quota.pending_usage import PendingUsage
from allocator.quota.quota_admission import (
    FutureClaim,
    NewObject,
    QuotaQuestion,
    core_lines,
    entry_of,
    future_extended_claims,
)
from allocator.quota.report import QuotaReport, report_quota

__all__ = [
    "FutureClaim",
    "NewObject",
    "PendingUsage",
    "QuotaQuestion",
    "QuotaReport",
    "core_lines",
    "entry_of",
    "future_extended_claims",
    "report_quota",
]
