"""Looks up known keys: the key that is nearest to a misspelt key, and the keys in a text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from dra.validation import shape
from webhook.dialects import Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.dialects import Row
    from webhook.state import Configuration


def near_key(key: str, configuration: Configuration) -> str:
    """Return the key of the same domain that a misspelt key most likely means; "" if none is near."""
    domain, _, end = key.partition("/")
    return _nearest(end, _ends(configuration).get(domain, ()), domain)


@lru_cache(maxsize=1024)
def _nearest(end: str, ends: tuple[str, ...], domain: str) -> str:
    nearest = shape.nearest_name(end, list(ends))
    return f"{domain}/{nearest}" if nearest and nearest != end else ""


@lru_cache(maxsize=4)
def _ends(configuration: Configuration) -> Mapping[str, tuple[str, ...]]:
    """Return the parts of resource names after the slash, by domain."""
    by_domain: dict[str, list[str]] = {}
    for row in rows_at(configuration, Position.RESOURCE):
        domain, slash, end = row.name.partition("/")
        if slash and "<" not in end:
            by_domain.setdefault(domain, []).append(end)
    return {domain: tuple(ends) for domain, ends in by_domain.items()}


def rows_at(configuration: Configuration, position: Position) -> Iterator[Row]:
    """Yield the rows of all dialects for one position."""
    for dialect in configuration.dialects:
        yield from (row for row in dialect.keys if row.place is position)


def _in_text(name: str) -> str:
    """Return a pattern for a name or a part of a name; a placeholder such as `<profile>` matches any characters of names."""
    parts = re.split("(<[A-Za-z]+>)", name)
    return "".join(["[A-Za-z0-9_.+-]+" if part.startswith("<") else re.escape(part) for part in parts])


def keys_of(configuration: Configuration) -> re.Pattern[str]:
    """Return a pattern that finds the keys of device requests in a text: before a colon, or in a JSON pointer.

    It does not match a resource name with a word as its value, which is a node label (`nvidia.com/gpu: present`), or the end of a longer name.
    """
    names: set[str] = set()
    for position in (Position.RESOURCE, Position.ANNOTATION, Position.LABEL):
        for row in rows_at(configuration, position):
            domain, slash, end = map(_in_text, row.name.partition("/"))
            if slash:
                value = "(?! *[\"']?(?!null\\b)[A-Za-z])" if position is Position.RESOURCE else ""
                names.add(f"{domain}(?:/{end}(?=[\"']? *(?::{value}|\\]))|~1{end})")
    return re.compile(f"(?<![A-Za-z0-9.-])(?:{'|'.join(sorted(names, reverse=True))})")
