"""Files that `check` passes by in a tree: those without a manifest, templates, and patches of kustomizations. Pure.

A repository has workflows, values and package.json beside its manifests. Kubernetes' own words tell them apart: an object has
apiVersion and kind, or one of them beside metadata or spec, and then the other was forgotten.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cli.outside import CHART, KUSTOMIZE
from cli.terminal import count_of
from dra.pointer import split
from dra.validation import Problem, findings, name
from webhook.translate import at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cli.check.reports import Placed
    from cluster.manifests import Document, InputProblem

_SHOWN: Final = 3  # files of a kind that people are shown
_BUILT: Final = ("kustomization.yaml", "kustomization.yml")
_PATCHES: Final = ("patches", "patchesStrategicMerge", "patchesJson6902")
_FOLDERS: Final = ("resources", "bases", "components")
# Reasons, and what to do: counted, and said once.
_REASONS: Final = {
    "other": ("no manifest", ""),
    "template": ("a template", "check what it renders to: --chart DIR"),
    "patch": ("part of a kustomization", "check what is built of it: -k DIR"),
}  # fmt: skip
_PLACEHOLDER: Final = re.compile(r"\$\{[^{}\n]+\}|\{\{(?>[^{}\n]|\{(?!\{)|\}(?!\}))*+\}\}|<[A-Za-z][\w .:/-]*>")


class PassedBy(NamedTuple):
    """A document that is not judged, and why: one of the reasons above."""

    file: str
    line: int
    reason: str


def sort_out(
    documents: Iterable[Document], others: Iterable[InputProblem], files: Iterable[str] = ()
) -> tuple[list[Document], list[PassedBy]]:
    """Tell the objects apart from what is passed by; templates and patches of what is built among the files are not: they are judged as built."""
    every = list(documents)
    patches = {path for document in every for path in _patches(document)}
    judged: list[Document] = []
    passed = [PassedBy(one.file, one.line, one.instead) for one in others]
    for document in every:
        value = document.object
        has = value.keys() & {"apiVersion", "kind"}
        beside = isinstance(value.get("metadata"), dict) or isinstance(value.get("spec"), dict)
        reason = "" if len(has) > 1 or (has and beside) else "other"
        if _is_kustomization(document) or os.path.normpath(document.file) in patches:
            reason = "patch"
        if reason:
            passed.append(PassedBy(document.file, document.first_line, reason))
        else:
            judged.append(document)
    charts, folders = _built(every, files)
    return judged, [
        one
        for one in passed
        if not (one.reason == "template" and any(map(PurePath(os.path.normpath(one.file)).is_relative_to, charts)))
        and not (one.reason == "patch" and os.path.normpath(one.file) in folders)
    ]


def _built(documents: Sequence[Document], files: Iterable[str]) -> tuple[list[str], set[str]]:
    """Name the charts that are rendered, and the kustomizations that are built with their patches."""
    charts, waiting = [], []
    for file in files:
        if file.startswith(CHART):
            charts.append(os.path.normpath(file.removeprefix(CHART)))
        elif file.startswith(KUSTOMIZE):
            waiting.append(os.path.normpath(file.removeprefix(KUSTOMIZE)))
    by_folder = {str(PurePath(os.path.normpath(one.file)).parent): one for one in documents if _is_kustomization(one)}
    used: set[str] = set()
    while waiting:
        one = by_folder.pop(waiting.pop(), None)
        if one:
            used |= {os.path.normpath(one.file), *_patches(one)}
            folder = PurePath(one.file).parent
            for key in _FOLDERS:
                listed = one.object.get(key)
                waiting += [
                    os.path.normpath(folder / path)
                    for path in (listed if isinstance(listed, list) else ())
                    if isinstance(path, str)
                ]
    return charts, used


def _is_kustomization(document: Document) -> bool:
    return PurePath(document.file).name in _BUILT or str(document.object.get("apiVersion")).startswith(
        "kustomize.config.k8s.io/"
    )


def _patches(document: Document) -> Iterable[str]:
    """Name the files that a kustomization patches objects with."""
    if not _is_kustomization(document):
        return
    folder = PurePath(document.file).parent
    for key in _PATCHES:
        listed = document.object.get(key)
        for one in listed if isinstance(listed, list) else ():
            path = one.get("path") if isinstance(one, dict) else one
            if isinstance(path, str) and "\n" not in path:
                yield os.path.normpath(folder / path)


def say(passed: Sequence[PassedBy]) -> list[str]:
    """Say what was passed by: how many of each reason, and the first few."""
    lines = []
    for reason, (what, remedy) in _REASONS.items():
        there = dict.fromkeys(one.file for one in passed if one.reason == reason)
        if not there:
            continue
        shown = ", ".join(list(there)[:_SHOWN])
        more = f" and {len(there) - _SHOWN} more, which `-o json` lists" if len(there) > _SHOWN else ""
        lines.append(
            f"passed by, {what}: {count_of(len(there), 'file')} ({shown}{more}){f'; {remedy}' if remedy else ''}"
        )
    return lines


def name_placeholders(placed: Iterable[Placed], documents: Sequence[Document]) -> list[Placed]:
    """Say of each file once that a value is not filled in, in place of all that is wrong with such values."""
    kept: list[Placed] = []
    said: Counter[str] = Counter()
    for one in placed:
        document = documents[one.number]
        found = _placeholder(document.object, one.finding.path)
        if not found:
            kept.append(one)
            continue
        said[one.file] += 1
        if said[one.file] == 1:
            problem = Problem("D011", one.finding.path, f"{found} is a placeholder that is not filled in")
            (finding,) = findings([problem], name(document.object))
            kept.append(one._replace(finding=finding))
    return kept


def _placeholder(value: Any, path: str) -> str:
    """Find a placeholder in the value at a path, or in the last name on the way there."""
    held = at(value, path) if path else None
    for text in (held, *split(path)[-1:]):
        if isinstance(text, str) and (found := _PLACEHOLDER.search(text)):
            return found.group()
    return ""
