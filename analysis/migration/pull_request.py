"""The commits of a move from device plugins to DRA drivers, as the wanted objects in a Git tree.

`prepare` changes nothing that runs: it adds sources of charts, namespaces and labels. `switch` removes the plugins, adds the drivers and gives
every consumer its claims, because half of that would be an outage. `tidy` removes what nothing uses any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from analysis.gitops import with_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.migration.plan import Consumer
    from cluster.manifests import Document
    from dra.raw import Object

StepName = Literal["prepare", "switch", "tidy"]


class Edit(NamedTuple):
    """The wanted content of a document; `wanted` is None if the document is removed."""

    number: int  # of the document
    wanted: Object | None


class NewFile(NamedTuple):
    """A file that a step writes."""

    path: str
    objects: tuple[Object, ...]
    like: int | None = None  # the document whose header, order and style the only object keeps


class Step(NamedTuple):
    """The edits of one commit, and the notes for its message."""

    name: StepName
    edits: tuple[Edit, ...] = ()
    new: tuple[NewFile, ...] = ()
    notes: tuple[str, ...] = ()
    moved: tuple[Consumer, ...] = ()  # that get claims
    unmoved: tuple[tuple[Consumer, str], ...] = ()  # that the plan wants edited and no edit moves, with the reasons

    def applied(self, documents: Sequence[Document]) -> list[Document]:
        """Return the documents after the step; a removed document has an empty object."""
        after = list(documents)
        for number, wanted in self.edits:
            obj = wanted or {}
            after[number] = replace(after[number], object=obj, with_values=with_values(obj))
        return after
