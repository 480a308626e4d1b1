"""Finds possible device requests in a tree that its plan does not contain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.gitops import PATCHES, files_of, is_kustomization, parsed, releases
from analysis.migration.plugins import installed_plugins
from analysis.migration.values_files import as_release
from dra.pointer import mappings_in, member
from dra.raw import text
from dra.texts import list_first
from webhook.translate import group_kind, name_of
from webhook.unknown import amounts_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from analysis.gitops import Release, Tree
    from analysis.migration.requests import RequestReader
    from analysis.skipped import SkippedFile
    from cluster.manifests import Document
    from webhook.state import State

_NAMED: Final = 4


def unread(
    documents: Sequence[Document],
    tree: Tree,
    reached: Collection[int],
    skipped: Sequence[SkippedFile],
    *,
    state: State,
    reader: RequestReader,
) -> Iterator[str]:
    """Yield files with plugins or requests that no build includes, that are not objects, or whose release was not read."""
    kustomizations = filter(is_kustomization, documents)
    patches = {tree.absolute(file) for document in kustomizations for file in files_of(document, PATCHES)}
    others = [
        number
        for number, document in enumerate(documents)
        if number not in reached and tree.absolute(document.file) not in patches
    ]
    all_releases = list(releases(documents, tree))
    of_others = [release for release in all_releases if release.number in others]
    for plugin in installed_plugins(documents, others, of_others):
        document = documents[plugin.number]
        yield f"{document.file}: no build includes {plugin.name or name_of(document.placed)}, which runs a device plugin"
    unbuilt = [documents[number] for number in others]
    unbuilt += [part.document for part in tree.patched if not set(part.by).issubset(reached)]
    for document in unbuilt:
        if keys := sorted({request.consumer.key for request in reader.requests_in(document, None)}):
            what = "the patch of " if document.patches else ""
            file = document.origin[0] if document.patches else document.file
            yield f"{file}: no build includes {what}{name_of(document.placed)}, which requests {list_first(keys, _NAMED)}"
    read = {
        documents[file.number].file for release in all_releases if release.number in reached for file in release.files
    }
    for skip in [skip for skip in skipped if skip.file not in read]:
        if skip.key:
            yield f"{skip.file}:{skip.line}: {skip.key} in a file that is {skip.kind}"
        elif skip.makes:
            yield f"{skip.file}:{skip.line}: a template of {skip.makes} is not rendered: read what it installs by hand"
    for number in reached:
        yield from _text_in_place_of_values(documents[number], state)
    if any(skip.makes for skip in skipped):
        with_keys = {skip.file for skip in skipped if skip.key}
        yield from _values_of_templates(documents, all_releases, with_keys, reader)


def _text_in_place_of_values(document: Document, state: State) -> Iterator[str]:
    """Yield places where chart values are a string that is not YAML, such as a template, and request devices."""
    if group_kind(document.object)[0] != "argoproj.io":
        return
    for pointer, part in mappings_in(document.object.get("spec"), "/spec"):
        values = text(part.get("values"))
        keys = sorted({key for key, _ in amounts_in(values) if state.configuration.resource(key)})
        if keys and not parsed(values):
            place = f"{document.file}:{document.line_of(member(pointer, 'values'))}"
            yield f"{place}: values that are no YAML request {list_first(keys, _NAMED)}: move them by hand"


def _values_of_templates(
    documents: Sequence[Document], all_releases: Sequence[Release], with_keys: Collection[str], reader: RequestReader
) -> Iterator[str]:
    """Yield files that may be values of an Application from a template."""
    of_releases = {file.number for release in all_releases for file in release.files}
    for number, document in enumerate(documents):
        if number in of_releases or document.file in with_keys or is_kustomization(document):
            continue
        if group_kind(document.object) == ("", "") and not document.is_item:
            of_release = as_release(document, {"name": "values"}, document.object)
            if keys := sorted({request.consumer.key for request in reader.indirect_uses(of_release, None)}):
                yield f"{document.file}: no release that is read has these values, which use {list_first(keys, _NAMED)}"
