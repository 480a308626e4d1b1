"""Chart versions, and version ranges as Helm, Flux and Argo CD read them (Masterminds/semver 3.5.0: constraints.go)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_Release = tuple[int, ...]  # major, minor and patch
_Range = tuple[_Release, _Release]  # from the first version, to before the second

_RELEASE: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:\+.*)?")  # no prerelease: a range has none
_COMPARISON: Final = re.compile(
    r"(=|!=|>=?|<=?|=>|=<|~>?|\^)?\s*v?(\d{1,9}|[xX*])((?:\.(?:\d{1,9}|[xX*])){0,2})(?:[-+][\w.+-]*)?"
)
_HYPHEN: Final = re.compile(r"(\S+)\s+-\s+(\S+)")
_FIRST: Final[_Release] = (0, 0, 0)
_END: Final[_Release] = (1 << 63, 0, 0)


def minor_version(version: str) -> tuple[int, int]:
    """Return major and minor of a version; a high number for any other string, such as a range."""
    parts = [part for part in version.lstrip("v").split(".")[:2] if part.isdecimal()]
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 else (1 << 30, 0)


def newest(wanted: str, versions: Iterable[str]) -> str:
    """Return the version of a chart: the given one or, for a range, the newest release in it; "" if there is none."""
    available = list(versions)
    exact = [version for version in available if _plain(version) == _plain(wanted)]
    if exact:
        return exact[0]
    alternatives = [_comparisons(part) for part in wanted.split("||")]
    releases = {version: _numbers(match.groups()) for version in available if (match := _RELEASE.fullmatch(version))}
    matching = [
        version
        for version, release in releases.items()
        if any(
            ranges and all((low <= release < high) != is_not for low, high, is_not in ranges) for ranges in alternatives
        )
    ]
    return max(matching, key=lambda version: releases[version], default="")


def _plain(version: str) -> str:
    """Return a version without the prefix `v`. Registry tags have `_` instead of `+`."""
    return version.removeprefix("v").replace("_", "+")


def _comparisons(wanted: str) -> list[tuple[_Release, _Release, bool]]:
    """Return the ranges that a version must be inside or outside of; none if the string cannot be parsed."""
    wanted = _HYPHEN.sub(r">=\1 <=\2", wanted.strip())
    matches = [*_COMPARISON.finditer(wanted)]
    if _COMPARISON.sub("", wanted).strip(" ,"):
        return []
    return [(*_range_of(match), match[1] == "!=") for match in matches]


def _range_of(match: re.Match[str]) -> _Range:
    numbers = [int(part) for part in _before_wildcard(f"{match[2]}{match[3]}".split("."))]
    first = (*numbers, 0, 0, 0)[:3]
    if not numbers:
        return _FIRST, _END
    match match[1]:
        case ">":
            return _after(numbers), _END
        case ">=" | "=>":
            return first, _END
        case "<":
            return _FIRST, first
        case "<=" | "=<":
            return _FIRST, _after(numbers)
        case "~" | "~>":
            return first, _after(numbers[:2])
        case "^":
            leading_zeros = next((position for position, number in enumerate(numbers) if number), len(numbers) - 1)
            return first, _after(numbers[: leading_zeros + 1])
    return first, _after(numbers)


def _before_wildcard(parts: list[str]) -> list[str]:
    return parts[: next((position for position, part in enumerate(parts) if not part.isdecimal()), len(parts))]


def _after(numbers: list[int]) -> _Release:
    """Return the lowest version above all versions with these leading numbers."""
    return (*numbers[:-1], numbers[-1] + 1, 0, 0)[:3]


def _numbers(parts: Iterable[str]) -> _Release:
    return tuple(map(int, parts))
