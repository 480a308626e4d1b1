"""The reviews that are counted for quotas: who is at the door, and the answer of whoever counts."""

from __future__ import annotations

from webhook.admission.quota.review import review_quota, wants_of_pod

__all__ = ["review_quota", "wants_of_pod"]
