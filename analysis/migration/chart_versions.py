"""Versions of charts."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_RELEASE: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:\+.*)?")  # no prerelease: a range has none
_RANGE: Final = re.compile(r"v?(?:\d{1,9}|[xX*])(?:\.(?:\d{1,9}|[xX*])){0,2}")


def minor_version(version: str) -> tuple[int, int]:
    """Return major and minor of a version; a high number for any other string, such as a range."""
    parts = [part for part in version.lstrip("v").split(".")[:2] if part.isdecimal()]
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 else (1 << 30, 0)


def newest(wanted: str, versions: Iterable[str]) -> str:
    """Return a version of a chart: exactly this one, or the newest release that begins as `4`, `4.x` or `4.3.*` does.

    Return "" if there is none, and for other ranges.
    """
    available = list(versions)
    exact = [version for version in available if _plain(version) == _plain(wanted)]
    if exact or not _RANGE.fullmatch(wanted):
        return next(iter(exact), "")
    begin = [int(part) for part in takewhile(str.isdecimal, _plain(wanted).split("."))]
    releases = {
        version: [int(number) for number in match.groups()]
        for version in available
        if (match := _RELEASE.fullmatch(version))
    }
    matching = [version for version, numbers in releases.items() if numbers[: len(begin)] == begin]
    return max(matching, key=lambda version: releases[version], default="")


def _plain(version: str) -> str:
    """Return a version without the prefix `v`. Registry tags have `_` instead of `+`."""
    return version.removeprefix("v").replace("_", "+")
