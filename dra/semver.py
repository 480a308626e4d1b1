"""Semantic versions as DRA reads them (github.com/blang/semver/v4, k8s.io/apiserver/pkg/cel/library/semverlib.go).

Order and equality ignore build metadata, as in CEL. For matchAttribute, Kubernetes compares versions as strings;
compare `str(version)` there.
"""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering

from dra.errors import SemverError

_MAX_CACHED = 128  # longer texts are not cached: the cache is bounded by entries
_LARGEST = 2**64 - 1
_SHAPE = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    # Python before 3.11.5 mismatches a possessive group `(…)?+`.
    r"(?:-([0-9A-Za-z-]++(?:\.[0-9A-Za-z-]++)*))?"
    r"(?:\+([0-9A-Za-z-]++(?:\.[0-9A-Za-z-]++)*))?"
).fullmatch
_DIGITS = frozenset("0123456789")

# Major, minor, patch, whether it is a release (which sorts after its prereleases), and the parts of the prerelease
# (of which numbers sort before words).
_Key = tuple[int, int, int, bool, tuple[tuple[int, int, str], ...]]


@total_ordering
class Version:
    """An immutable semantic version 2.0.0."""

    __slots__ = ("_key", "_text")

    def __init__(self, key: _Key, text: str) -> None:
        self._key = key
        self._text = text

    @staticmethod
    def parse(text: str) -> Version:
        """Parse a strict `major.minor.patch[-prerelease][+build]`."""
        return _cached_parse(text) if len(text) <= _MAX_CACHED else _parse(text)

    @staticmethod
    def parse_tolerant(text: str) -> Version:
        """Parse a version as CEL's `semver(text, true)` does, which also accepts `v1.2` and `01.2.3`."""
        parts: list[str] = []
        for part in text.removeprefix("v").split(".", 2):
            bare = part.lstrip("0")
            # Strip leading zeros, but keep one where no digit would remain.
            parts.append(part if len(part) < 2 else bare if bare and bare[0] in _DIGITS else "0" + bare)
        missing_parts = 3 - len(parts)
        if missing_parts and ("+" in parts[-1] or "-" in parts[-1]):
            raise _semver_error(text, "a short version cannot have a prerelease or build part")
        return Version.parse(".".join(parts + ["0"] * missing_parts))

    @property
    def major(self) -> int:
        return self._key[0]

    @property
    def minor(self) -> int:
        return self._key[1]

    @property
    def patch(self) -> int:
        return self._key[2]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Version):
            return self._key == other._key
        return NotImplemented

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Version({self._text!r})"


def _parse(text: str) -> Version:
    shape = _SHAPE(text)
    if shape is None:
        raise _semver_error(text, "major.minor.patch is expected, without a leading v or leading zeros")
    *numbers, prerelease, _ = shape.groups()
    parts: tuple[tuple[int, int, str], ...] = ()
    if prerelease:
        parts = tuple(
            (0, _number(text, part), "") if _DIGITS.issuperset(part) else (1, 0, part) for part in prerelease.split(".")
        )
    major, minor, patch = (_number(text, digits) for digits in numbers)
    released = not parts
    return Version((major, minor, patch, released, parts), text)


_cached_parse = lru_cache(maxsize=4096)(_parse)


def _number(text: str, digits: str) -> int:
    if len(digits) > 1 and digits[0] == "0":
        raise _semver_error(text, f"the prerelease number {digits} has a leading zero")
    if len(digits) > 20 or int(digits) > _LARGEST:
        raise _semver_error(text, f"{digits[:25]} is too large")
    return int(digits)


def _semver_error(text: str, why: str) -> SemverError:
    excerpt = text if len(text) <= 64 else text[:64] + "…"
    return SemverError(f"{excerpt!r} is not a semantic version 2.0.0: {why}; write it like 1.2.3 or 1.2.3-rc.1")
