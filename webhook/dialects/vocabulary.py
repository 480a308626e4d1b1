"""A vocabulary: everything there is to know about one dialect, as one value.

A dialect is one module with a `VOCABULARY`, and one line in `webhook.dialects`. Nothing else in the house names it: its
part of the configuration file, its schedulers, its keys in the webhook configurations and what its vendor's node labels
mean are all found here. CONTRIBUTING.md says how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic

import msgspec

from webhook.dialects.demand import Answer
from webhook.dialects.table import Dialect, Scheduler
from webhook.dialects.words import Meaning, O, Options, Selected, Words


class Bare(msgspec.Struct, frozen=True, gc=False):
    """What a unit of a key can be that nobody else claims: the vendor's knowledge of what gives its meaning away."""

    # What a unit is if nothing shows otherwise (`webhook.dialects.targets`).
    target: str
    # What an administrator may declare it to be (`meanings`), and how that is told; None for any other text.
    declared: Callable[[str], Meaning | None]
    words: str
    # What the pod gives away by what it demands of its node; None if nothing.
    pod: Callable[[Selected], Meaning | None]
    # Which label of a node says that its units are not whole devices; "" if none does.
    node: Callable[[Mapping[str, str]], str]
    # Key: the kind of device of a unit, where keys differ in it.
    targets: Mapping[str, str] = {}
    # Whether a node that publishes devices of the class, and none of the target, shows that a unit is a part of one.
    parts: bool = False


class Vocabulary(msgspec.Struct, Generic[O], frozen=True, kw_only=True):
    """A table of keys and what goes with it."""

    table: Dialect
    # How the words are read. In container scope it gets one container at a time.
    read: Callable[[Words[O]], Answer]
    # Its part of the configuration file.
    options: type[O]
    # What its own schedulers make of claims.
    schedulers: Mapping[str, Scheduler] = {}
    # For dialects that read a name which several systems use when no system claims it.
    bare: Bare | None = None


__all__ = ["Bare", "Options", "Vocabulary"]
