"""Koordinator's dialect: `table` has its keys, `pod_request` sums up and parses them, `reader` returns the demands."""

from webhook.dialects.koordinator.reader import VOCABULARY

__all__ = ["VOCABULARY"]
