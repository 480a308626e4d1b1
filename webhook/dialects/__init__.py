"""The vocabularies that pods use to ask for accelerators: one module each, a table of keys and the rule to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects import hami, koordinator, nvidia, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.dialects.table import Dialect, Role
    from webhook.dialects.words import Answer, Hint, Options, Said

    Rule = Callable[[tuple[Said, ...], Mapping[Role, Hint], Options, Dialect], Answer]

BUILT_IN: tuple[Dialect, ...] = (nvidia.DIALECT, hami.DIALECT, koordinator.DIALECT)

# How the words are read, by the name a table gives. Rules of container scope get one container at a time.
RULES: Mapping[str, Rule] = {
    "plain": lambda said, _, __, dialect: plain.read(said, dialect),
    "nvidia": lambda said, _, options, __: nvidia.read(said[0], options),
    "hami": lambda said, hints, options, _: hami.read(said[0], hints, options),
    "koordinator": lambda said, hints, options, _: koordinator.read(said, hints, options),
}

__all__ = ["BUILT_IN", "RULES"]
