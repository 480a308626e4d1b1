"""Finds consumers in chart values that are outside of the objects that name the charts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as replace_field
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from analysis.migration.lenses import CHARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from analysis.gitops import Release, ValuesFile
    from analysis.migration.requests import Request
    from cluster.manifests import Document
    from dra.raw import Object

_VALUES: Final = "/spec/values"


class ReleasesOfFiles:
    """The releases in a tree that have values in other documents."""

    def __init__(self, documents: Sequence[Document], all_releases: Sequence[Release]) -> None:
        self._documents = documents
        self._releases = [release for release in all_releases if release.files]
        self._uses = Counter((file.number, file.pointer) for release in self._releases for file in release.files)

    def release_at(self, number: int, place: str) -> Release | None:
        """Return the release whose values include a place of a document."""
        around = [
            (len(file.pointer), release)
            for release in self._releases
            for file in release.files
            if file.number == number and place.startswith(f"{file.pointer}/")
        ]
        return max(around, key=lambda found: found[0])[1] if around else None

    def requests(
        self, read: Callable[[Document, Release | None], Iterator[Request]], without: Collection[int] = ()
    ) -> Iterator[Request]:
        """Yield what `read` finds in these values, read as values of a HelmRelease. Releases in the documents `without` are skipped."""
        for release in [release for release in self._releases if release.number not in without]:
            name = name_of_release(release)
            for file in release.files:
                document = self._documents[file.number]
                metadata = {"name": release.name, "namespace": release.namespace}
                for request in read(as_release(document, metadata, file.values), release):
                    consumer = request.consumer
                    place = file.pointer + consumer.place.removeprefix(_VALUES)
                    moved = replace(consumer, object=name, place=place, line=document.line_of(place))
                    if consumer.verdict == "edit" and (why := self._why_by_hand(release, file)):
                        why = f"{why}; write the claim into the values of {name}: {CHARTS[release.chart].place}"
                        moved = replace(moved, verdict="by hand", why=why)
                    yield request._replace(consumer=moved)

    def _why_by_hand(self, release: Release, file: ValuesFile) -> str:
        uses = self._uses[file.number, file.pointer]
        if uses > 1:
            return f"{uses} releases have these values"
        if any(release.values[name] != value for name, value in file.values.items()):
            return "other values of the release change these"
        return ""


def as_release(document: Document, metadata: Object, values: Object) -> Document:
    """Wrap a document of values into a HelmRelease."""
    obj = {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": metadata,
        "spec": {"values": values},
    }
    return replace_field(document, object=obj, namespace="", with_values=None)


def name_of_release(release: Release) -> str:
    """Return the name that a plan uses for a release."""
    return f"{release.kind}/{release.namespace}/{release.name}"
