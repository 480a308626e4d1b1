"""Reads the files of a command, and tells manifests from the other YAML files of a repository.

A repository has workflows, values and package.json beside its manifests. A manifest has apiVersion and kind, or one of
them beside metadata or spec, and then the other was forgotten. Templates and patches of kustomizations are skipped, too:
what is built of them can be read with --chart and -k.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.configuration import configuration_in_force
from analysis.outside import CHART, KUSTOMIZE
from analysis.reading import read_tree, values_of_charts
from cluster import manifests
from cluster.manifests import ManifestError, chart_of
from dra.raw import members, strings
from dra.texts import count_of, list_first
from rendering.answers import unread
from rendering.output import warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analysis.configuration import ConfigurationInForce
    from cluster.manifests import Document, InputProblem, Keep
    from webhook.state import Configuration

_SHOWN: Final = 3  # files of one kind that people are shown
_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml")
_PATCHES: Final = ("patches", "patchesStrategicMerge", "patchesJson6902")
_FOLDERS: Final = ("resources", "bases", "components")
# What a skipped file is, and what to do.
_REASONS: Final = {
    "other": ("not a manifest:", ""),
    "template": ("templates in", "read what they render to: --chart DIR, or another program's output with -f -"),
    "patch": ("part of a kustomization:", "read what is built of it: -k DIR"),
}

_ASKING: Final = "read the rendered objects: --chart DIR --values FILE, -k DIR, or -f -"


class SkippedFile(NamedTuple):
    """A document that is not judged as a manifest, and its reason: a key of the table above.

    `key` is the first one in it by which devices are asked for; then `line` is the line of that.
    """

    file: str
    line: int
    reason: str
    key: str = ""

    @property
    def kind(self) -> str:
        """What the file is, where an object would have its name."""
        return {"other": "not a manifest", "patch": "part of a kustomization"}.get(self.reason, self.reason)


def read_manifests(
    files: Sequence[str],
    *others: Sequence[str],
    keep: Keep | None = None,
    given: ConfigurationInForce | None = None,
) -> tuple[list[Document], list[SkippedFile]]:
    """Read the manifests among files and folders. Manifests that cannot be read are reported, and the command goes on.

    `others` are further inputs of the command, of which only one may be standard input; `keep` chooses what of an object is kept.
    `given` is as for `separate_manifests`.
    """
    read = read_tree(files, *others, keep=keep)
    documents, skipped = separate_manifests(*read, files, given=given)
    if not documents and not skipped and not unread():
        warn("the input holds no objects")
    return documents, skipped


def separate_manifests(
    documents: Iterable[Document],
    others: Iterable[InputProblem],
    files: Iterable[str] = (),
    *,
    given: ConfigurationInForce | None = None,
) -> tuple[list[Document], list[SkippedFile]]:
    """Separate manifests from the rest; `others` are texts that cannot be read and do not look like manifests.

    Templates and patches of charts and kustomizations that are built (among `files`) are in neither list: they are read as built.
    The configuration in force says which keys ask for devices; `given` is that of `--config`.
    """
    every = list(documents)
    patches = {_absolute(path) for document in (*every, *_kustomizations_above(every)) for path in _patches(document)}
    objects: list[Document] = []
    skipped = [(SkippedFile(one.file, one.line, _reason(one)), one.text, one.first_line) for one in others]
    for document in every:
        value = document.object
        has = value.keys() & {"apiVersion", "kind"}
        has_body = isinstance(value.get("metadata"), dict) or isinstance(value.get("spec"), dict)
        reason = "" if len(has) > 1 or (has and has_body) else "other"
        if _is_kustomization(document) or _absolute(document.file) in patches:
            reason = "patch"
        if reason:
            begin = document.first_line
            skipped.append((SkippedFile(document.file, begin, reason), document.text.encode(), begin))
        else:
            objects.append(document)
    charts, built = _built(every, files)
    known = configuration_in_force(given, objects, judged=True).configuration
    not_built: list[SkippedFile] = []
    for one, data, begin in skipped:
        path = PurePath(os.path.normpath(one.file))
        is_of_chart = any(path.is_relative_to(chart) for chart in charts)
        if (one.reason == "template" and is_of_chart) or (one.reason == "patch" and str(path) in built):
            continue
        # Values of a chart that is rendered are in what it renders to.
        not_built.append(one if is_of_chart else _asking(one, data.decode(errors="replace"), begin, known))
    return objects, not_built


def _asking(one: SkippedFile, text: str, begin: int, known: Configuration) -> SkippedFile:
    """Add the first key by which a text asks for devices, and its line."""
    from webhook.translate import amounts_in

    for key, start in amounts_in(text):
        if known.resource(key):
            return one._replace(key=key, line=begin + text.count("\n", 0, start))
    return one


def _reason(one: InputProblem) -> str:
    """Say why an unreadable text is skipped; GitHub fills in the expressions of its own files."""
    return "other" if ".github" in PurePath(one.file).parts else one.instead


def _built(documents: Sequence[Document], files: Iterable[str]) -> tuple[list[str], set[str]]:
    """Name the charts that are rendered and their values, and the files of kustomizations that are built."""
    charts, waiting = [os.path.normpath(file) for file in values_of_charts()], []
    for file in files:
        if file.startswith(CHART):
            charts.append(os.path.normpath(file.removeprefix(CHART)))
        elif file.startswith(KUSTOMIZE):
            waiting.append(os.path.normpath(file.removeprefix(KUSTOMIZE)))
    by_folder = {str(PurePath(os.path.normpath(one.file)).parent): one for one in documents if _is_kustomization(one)}
    used: set[str] = set()
    while waiting:
        one = by_folder.pop(waiting.pop(), None)
        if one is None:
            continue
        used |= {os.path.normpath(one.file), *_patches(one)}
        folder = PurePath(one.file).parent
        for key in _FOLDERS:
            waiting += [os.path.normpath(folder / path) for path in strings(one.object, key)]
    return charts, used


def _absolute(path: str) -> str:
    return os.path.normpath(Path(path).absolute())


def _kustomizations_above(documents: Iterable[Document]) -> Iterable[Document]:
    """Read the kustomizations in the folders of these documents and above, up to that of .git: a commit may have a patch alone."""
    named = {Path(one.file).absolute() for one in documents}
    folders: set[Path] = set()
    for home in {file.parent for file in named if file.is_file()}:
        above = [home, *home.parents]
        root = next((number for number, folder in enumerate(above) if (folder / ".git").exists()), 0)
        folders.update(above[: root + 1])
    for folder in sorted(folders):
        for file in (folder / name for name in _KUSTOMIZATIONS):
            if file not in named and file.is_file():
                with suppress(ManifestError):
                    yield from manifests.read([os.path.relpath(file)])


def _is_kustomization(document: Document) -> bool:
    named_so = PurePath(document.file).name in _KUSTOMIZATIONS
    return named_so or str(document.object.get("apiVersion")).startswith("kustomize.config.k8s.io/")


def _patches(document: Document) -> Iterable[str]:
    """Name the patch files of a kustomization."""
    if not _is_kustomization(document):
        return
    folder = PurePath(document.file).parent
    for key in _PATCHES:
        for one in members(document.object.get(key)):
            path = one.get("path") if isinstance(one, dict) else one
            if isinstance(path, str) and "\n" not in path:
                yield os.path.normpath(folder / path)


def describe_skipped(skipped: Sequence[SkippedFile]) -> list[str]:
    """Write one line for each reason: how many files, and the first few."""
    lines = []
    for reason, (reason_text, remedy) in _REASONS.items():
        names = list(dict.fromkeys(one.file for one in skipped if one.reason == reason))
        if not names:
            continue
        line = f"skipped, {reason_text} {count_of(len(names), 'file')} ({list_first(names, _SHOWN)})"
        charts = {os.path.relpath(chart) for chart in map(chart_of, names) if chart} if reason == "template" else ()
        if len(charts) == 1:
            remedy = remedy.replace("DIR", shlex.quote(*charts))  # noqa: PLW2901
        lines.append(f"{line}; {remedy}" if remedy else line)
    asking = {one.file: f"{one.file}:{one.line} {one.key}" for one in reversed(skipped) if one.key}
    if asking:
        named = list_first(list(reversed(asking.values())), _SHOWN)
        files = count_of(len(asking), "file")
        lines.append(f"not read as objects, though devices are requested in {files} ({named}); {_ASKING}")
    return lines


def warn_of_skipped(skipped: Sequence[SkippedFile]) -> None:
    for line in describe_skipped(skipped):
        warn(line)
