"""Finds the known key that a misspelt one most likely means."""

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
    """Name the key of the same vendor that a misspelt one most likely stands for, or nothing."""
    domain, _, end = key.partition("/")
    return _nearest(end, _ends(configuration).get(domain, ()), domain)


@lru_cache(maxsize=1024)
def _nearest(end: str, ends: tuple[str, ...], domain: str) -> str:
    nearest = shape.nearest(end, list(ends))
    return f"{domain}/{nearest}" if nearest and nearest != end else ""


@lru_cache(maxsize=4)
def _ends(configuration: Configuration) -> Mapping[str, tuple[str, ...]]:
    """List the names of resources after the slash, by their domains."""
    found: dict[str, list[str]] = {}
    for row in rows_at(configuration, Position.RESOURCE):
        domain, slash, end = row.name.partition("/")
        if slash and "<" not in end:
            found.setdefault(domain, []).append(end)
    return {domain: tuple(ends) for domain, ends in found.items()}


def rows_at(configuration: Configuration, place: Position) -> Iterator[Row]:
    """List the rows of all dialects for one place of a pod."""
    for dialect in configuration.dialects:
        yield from (row for row in dialect.keys if row.place is place)


def _in_text(name: str) -> str:
    """Write a name, or a part of one, as a pattern; a placeholder such as `<profile>` stands for any letters."""
    parts = re.split("(<[A-Za-z]+>)", name)
    return "".join(["[A-Za-z0-9_.+-]+" if part.startswith("<") else re.escape(part) for part in parts])


def keys_of(configuration: Configuration) -> re.Pattern[str]:
    """Make a pattern that finds, in a text, the keys by which devices are asked for: before a colon, or in a path.

    A resource's name before a word is a label of nodes (`nvidia.com/gpu: present`), and behind another name a part of it.
    """
    names: set[str] = set()
    for place in (Position.RESOURCE, Position.ANNOTATION, Position.LABEL):
        for row in rows_at(configuration, place):
            domain, slash, end = map(_in_text, row.name.partition("/"))
            if slash:
                value = "(?! *[\"']?(?!null\\b)[A-Za-z])" if place is Position.RESOURCE else ""
                names.add(f"{domain}(?:/{end}(?=[\"']? *(?::{value}|\\]))|~1{end})")
    return re.compile(f"(?<![A-Za-z0-9.-])(?:{'|'.join(sorted(names, reverse=True))})")
