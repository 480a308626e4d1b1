"""resourceVersions, which of two is the later: numbers since KEP-5504, and before that what no client may compare."""

from __future__ import annotations


def is_later(version: str, than: str) -> bool:
    """Say whether one is later than another; not if that cannot be told."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)


def is_news(version: str, than: str) -> bool:
    """Say whether one is later than another; where that cannot be told, whether it is another."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
