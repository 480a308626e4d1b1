"""Reads manifests: files, folders, standard input, addresses, and built kustomizations and charts."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from rendering.answers import report_unread
from rendering.exits import Broken
from rendering.output import warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cluster.manifests import Document, InputProblem, Keep

# Options of the running command, in `click.Context.meta`.
KUSTOMIZATIONS, CHARTS, VALUES, EXCLUDED = (
    f"{__name__}.{name}" for name in ("kustomizations", "charts", "values", "excluded")
)


def read(paths: Sequence[str], *more: Sequence[str]) -> list[Document]:
    """Read manifests but for templates, or raise a ManifestError. `more` are other inputs, so that `-` is refused twice."""
    from analysis.manifest_files import SkippedFile, warn_of_skipped
    from cluster import manifests

    documents, problems_ = _read(paths, *more)
    templates = [one for one in problems_ if one.instead == "template"]
    if broken := [one for one in problems_ if one not in templates]:
        raise manifests.ManifestError(broken)
    warn_of_skipped([SkippedFile(one.file, one.line, "template") for one in templates])
    return documents


def read_tree(
    paths: Sequence[str], *more: Sequence[str], keep: Keep | None = None
) -> tuple[list[Document], list[InputProblem]]:
    """Read manifests and report those that cannot be read; return separately those that do not look like manifests.

    `keep` chooses what of an object is kept. Commands call `analysis.manifest_files.read_manifests`, which uses this.
    """
    documents, problems_ = _read(paths, *more, keep=keep)
    report_unread(problem for problem in problems_ if not problem.instead)
    return documents, [problem for problem in problems_ if problem.instead]


def values_of_charts() -> tuple[str, ...]:
    """Return the files of values that charts are rendered with."""
    ctx = click.get_current_context(silent=True)
    return tuple(ctx.meta.get(VALUES, ())) if ctx else ()


def _read(
    paths: Sequence[str], *more: Sequence[str], keep: Keep | None = None
) -> tuple[list[Document], list[InputProblem]]:
    from cluster import manifests

    refuse_two_standard_inputs(paths, *more)
    exclude = click.get_current_context().meta.get(EXCLUDED, ())
    with without_collection():
        documents, problems_ = manifests.read_leniently(
            paths,
            exclude=exclude,
            outside=_from_outside,
            keep=keep,
            report=warn,
        )
    for document in documents:
        if line := document.run_together:
            file = document.file
            warn(f"{file}:{line}: duplicate key kind: only one of two objects is read; is a line --- missing?")
    return documents, problems_


def _from_outside(name: str) -> tuple[bytes, str] | None:
    """Return the text of a URL or a built folder, and the file that it was built from; None for a file."""
    from analysis.outside import CHART, KUSTOMIZE, is_outside, text_of

    ctx = click.get_current_context()
    meta = ctx.meta
    for prefix, built in ((KUSTOMIZE, KUSTOMIZATIONS), (CHART, CHARTS)):
        if name.startswith(prefix) and name.removeprefix(prefix) not in meta.get(built, ()):
            return None  # a file with this name: only `-k` and `--chart` build folders
    if not is_outside(name):
        return None
    return text_of(name, meta.get(VALUES, ()), ctx.params.get("kubernetes", ""), ctx.params.get("namespace", ""))


@contextmanager
def without_collection() -> Iterator[None]:
    """Suspend the cycle collector while objects are made that live until the command ends."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def refuse_two_standard_inputs(*groups: Sequence[str]) -> None:
    """Refuse `-` in more than one place: standard input can be read once."""
    if sum(list(group).count("-") for group in groups) > 1:
        raise Broken("standard input (-) is given more than once", "give each further input as a file")


def refuse_files_and_cluster(files: Sequence[str], kubeconfig: str, context: str) -> None:
    """Refuse to read files and a cluster at once."""
    if files and (kubeconfig or context):
        raise Broken("-f excludes --kubeconfig and --context", "leave one of them out")


def problems(documents: Iterable[tuple[Document, str, str]]) -> list[InputProblem]:
    """Make problems of (document, pointer, message)."""
    from cluster.manifests import InputProblem

    return [
        InputProblem(document.file, message, "", *document.position_of(pointer), pointer)
        for document, pointer, message in documents
    ]


def refuse(wrong: Sequence[tuple[Document, str, str]]) -> None:
    """Raise a ManifestError if there is any (document, pointer, message)."""
    from cluster.manifests import ManifestError

    if wrong:
        raise ManifestError(problems(wrong))
