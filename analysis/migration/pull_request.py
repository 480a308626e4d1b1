"""The commits of a move from device plugins to DRA drivers, as wanted objects of a Git tree.

`prepare` changes nothing that runs: it adds sources of charts, namespaces and labels. `switch` removes the plugins, adds the drivers and gives
every consumer its claims, because half of that would be an outage. `tidy` removes what nothing uses any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from dra.raw import Object

StepName = Literal["prepare", "switch", "tidy"]


class Edit(NamedTuple):
    """A document of the tree as it is wanted; `wanted` is None where the document goes."""

    number: int  # of the document
    wanted: Object | None


class NewFile(NamedTuple):
    """A file that a step writes."""

    path: str
    objects: tuple[Object, ...]
    like: int | None = None  # the document whose header, order and style the only object keeps


class Step(NamedTuple):
    """What one commit changes, and what its body says."""

    name: StepName
    edits: tuple[Edit, ...] = ()
    new: tuple[NewFile, ...] = ()
    notes: tuple[str, ...] = ()
