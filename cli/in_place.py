"""`translate --in-place`: the edits after which files have the translated objects.

The files of kustomizations are edited only if every build of the edited files equals the translation of the build of the original files.
If a build differs, nothing is written, and the places to edit by hand are reported.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from analysis.claim_names import TemplateNames, with_plain_names, without_defaults
from cli.edited import Change, Edited, edit_file, edit_text
from cli.trees import display_path
from cluster import manifests
from cluster.manifests import Document, InputProblem, ManifestError, chart_of, is_of_chart
from cluster.patch import apply_json_patch
from dra.raw import Object, items
from webhook.names import ANNOTATIONS
from webhook.translate import PodVerdict, name_of, namespace_of, resolve_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from cli.trees import Group, Kustomization, Part, Trees

    Translate = Callable[[Sequence[Document]], list["Result"]]
    Meaning = Counter[tuple[str, str]]

_TEMPLATE: Final = "ResourceClaimTemplate"
_TEMPLATES: Final = "resource-claim-templates.yaml"
_REFERENCES: Final = "resource-claim-references.yaml"
_UNIT_TESTS: Final = "tests/*_test.yaml"  # tests of helm-unittest, with expected results of the templates
_HOLDING_VALUES: Final = frozenset(("HelmRelease", "HelmChart", "Application", "ApplicationSet"))
_EMPTY: Final = frozenset(("resources", "limits", "requests", "annotations", "metadata"))
# The places where a key may begin, which are few in a large file.
_DOMAIN: Final = re.compile(r"(?<![A-Za-z0-9.-])[A-Za-z0-9.-]+(?=/|~1)")
_AMOUNT: Final = re.compile(r"/(?:limits|requests)/")
_CHARTS: Final = re.compile(r"^helmCharts:", re.MULTILINE)
_NOTHING: Final = re.compile(r"""["']? *: *["']?0+["']? *(?:[#,}]|$)""")  # an amount that requests no device


class Result(msgspec.Struct, frozen=True):
    """One object as read and as translated, and the templates that must precede it."""

    name: str
    document: Document
    translation: PodVerdict
    object: Object
    templates: tuple[Object, ...] = ()
    foretold: tuple[Any, ...] = ()  # what quotas would answer (`analysis.quota_use.Foretold`)
    requests: bool = False  # requests devices (`analysis.requesting`)
    counts: bool = False  # only limits, describes or offers devices
    is_own: bool = True  # not created by a controller, and not an agent of a node


class FileEdits(msgspec.Struct):
    """The edits of files, what is wrong with other files, and the real paths of files that cannot be edited.

    The kustomizations in `not_compared` do not build, although others with the same files do.
    """

    edited: list[Edited] = []
    problems: list[InputProblem] = []
    uneditable: set[str] = set()
    not_compared: list[InputProblem] = []


def requests_devices(text: str, keys: re.Pattern[str]) -> bool:
    """Return whether a text contains one of these keys, other than in values of charts that a kustomization renders."""
    return not _CHARTS.search(text) and any(keys.match(text, match.start()) for match in _DOMAIN.finditer(text))


def edits(
    results: Iterable[Result], translate: Translate, trees: Trees, groups: Sequence[Group], keys: re.Pattern[str]
) -> FileEdits:
    """Edit the files of kustomizations so that their builds are translated, and each other file by itself."""
    made = FileEdits()
    by_file: dict[str, list[Document]] = {}
    for result in results:
        by_file.setdefault(result.document.file, []).append(result.document)
    of_groups = {file for group in groups for file in group.files}
    names = TemplateNames(document for documents in trees.named.values() for document in documents)
    # A file that is also the target of a link is edited once.
    paths: dict[str, str] = {}
    for file in by_file:
        paths.setdefault(os.path.realpath(file), file)
    for real_path, file in paths.items():
        if real_path in of_groups or chart_of(file):
            continue
        changes = [_change(result, names) for result in translate(by_file[file]) if result.translation.changed]
        try:
            edited = [edit_file(file, changes)] if changes else []
            made.edited.extend(edit for edit in edited if edit.before != edit.after)
        except ManifestError as error:
            made.problems.extend(error.problems)
            made.uneditable.add(real_path)
    for group in groups:
        try:
            edited, not_compared = _edit_group(trees, group, translate, keys)
            made.edited.extend(edited)
            made.not_compared.extend(not_compared)
        except ManifestError as error:
            made.problems.extend(error.problems)
            made.uneditable.update(group.files)
    return made


def lines_of_helm(trees: Trees, groups: Iterable[Group], keys: re.Pattern[str]) -> Iterator[InputProblem]:
    """Yield the lines of charts and of Helm values that request devices. These files are not edited."""
    of_groups = {file for group in groups for file in group.files}
    for file, documents in trees.named.items():
        objects = [document.object for document in documents]
        is_of_helm = any("helmCharts" in obj or str(obj.get("kind")) in _HOLDING_VALUES for obj in objects)
        if file not in of_groups:  # a file of a chart, or its values
            is_of_helm = is_of_helm or bool(chart_of(file)) or any("kind" not in obj for obj in objects)
        if is_of_helm and not Path(file).match(_UNIT_TESTS):
            where = " in a Helm template" if is_of_chart(file) else " in Helm values"
            yield from _lines_to_edit(file, trees.text(file), keys, where)


def _lines_to_edit(file: str, text: str, keys: re.Pattern[str], where: str = "") -> Iterator[InputProblem]:
    """Yield the lines of a file that request devices."""
    for number, line in enumerate(text.split("\n"), 1):
        match = keys.search(line)
        if match and not _NOTHING.match(line, match.end()) and not line.lstrip().startswith("#"):
            message = f"{match.group().replace('~1', '/')}{where} is not rewritten"
            yield InputProblem(display_path(file), message, "change this place by hand", number)


# Kustomizations


def _edit_group(
    trees: Trees, group: Group, translate: Translate, keys: re.Pattern[str]
) -> tuple[list[Edited], list[InputProblem]]:
    """Return edits after which every build of a group equals the translation of its former build.

    The second list has the kustomizations that do not build. Raises ManifestError if there are no such edits.
    """
    parts = list(trees.parts(group))
    after = _texts_after(trees, parts, translate)
    if not after:  # without a build: most kustomizations of a repository request devices only in values of charts
        if by_hand := list(_json_patches(trees, parts, keys)):
            raise ManifestError(by_hand)
        return [], []
    builds, broken = trees.build(group.folders, {})
    if not builds:
        raise next(iter(broken.values()))
    expected = {}
    for folder, built in builds.items():
        kept = frozenset(name_of(document.object) for document in built if document.object.get("kind") == _TEMPLATE)
        objects = [obj for result in translate(built) for obj in (*result.templates, result.object)]
        expected[folder] = kept, _meaning(objects, kept)
    # With a prefix of names, kustomize has to know the references. The tolerations of a patch may replace those of the object. A patch of one
    # of several containers needs the long name of the claim.
    tries = []
    for short, tolerations, references in product((True, False), (True, False), (False, True)):
        after = _texts_after(trees, parts, translate, short=short, tolerations=tolerations, references=references)
        wrong = _compare(trees, expected, after)
        if not wrong:
            return trees.edits(after), list(_not_compared(trees, builds, broken))
        tries.append((after, wrong))
    after, wrong = min(tries, key=lambda attempt: len(attempt[1]))
    # Report the builds that would be wrong, and the lines with device requests that would stay.
    remedy = "edit the files of this kustomization by hand"
    problems = [
        InputProblem(display_path(trees.known[folder].document.file), why, remedy) for folder, why in wrong.items()
    ]
    for file in sorted({file for folder in wrong for used in trees.used(folder).values() for file in used.files}):
        text = trees.text(file)
        lines, stay = text.split("\n"), set(after.get(file, text).split("\n"))
        problems += [problem for problem in _lines_to_edit(file, text, keys) if lines[problem.line - 1] in stay]
    raise ManifestError(problems)


def _json_patches(trees: Trees, parts: Iterable[Part], keys: re.Pattern[str]) -> Iterator[InputProblem]:
    """Yield the lines of JSON patches that request devices."""
    for part in parts:
        if part.documents:
            continue
        text = trees.text(part.file)
        first, last = 1, text.count("\n") + 1
        if part.pointer:
            first = part.home.document.line_of(part.pointer)
            last = first + str(resolve_pointer(part.home.document.object, part.pointer)).count("\n") + 1
        for problem in _lines_to_edit(part.file, text, keys):
            line = text.split("\n")[problem.line - 1]
            if first <= problem.line <= last and ("~1" not in line or _AMOUNT.search(line)):
                yield problem


def _not_compared(trees: Trees, builds: Iterable[str], broken: Mapping[str, ManifestError]) -> Iterator[InputProblem]:
    """Yield the kustomizations that do not build; a base of other kustomizations need not be buildable by itself."""
    used = {name for folder in builds for name in trees.used(folder)}
    for folder, error in broken.items():
        if folder not in used:
            problem = error.problems[0]
            why = f"{problem.message}: its objects before and after the edit were not compared"
            file = display_path(trees.known[folder].document.file)
            yield InputProblem(file, why, "build the kustomization elsewhere, and compare the objects", problem.line)


def _compare(
    trees: Trees, expected: Mapping[str, tuple[Collection[str], Meaning]], after: Mapping[str, str]
) -> dict[str, str]:
    """Return a problem for each folder whose build from the edited files has not the expected meaning."""
    wrong = {}
    builds, broken = trees.build(expected, after)
    for folder, (kept, meaning) in expected.items():
        if folder in broken:
            why = broken[folder].problems[0].message
            wrong[folder] = f"the kustomization cannot be built from the edited files: {why}"
            continue
        now = _meaning([document.object for document in builds[folder]], kept)
        if different := sorted((meaning - now) + (now - meaning)):
            wrong[folder] = f"{different[0][0]}, built from the edited files, would differ from its translation"
    return wrong


def _texts_after(
    trees: Trees,
    parts: Iterable[Part],
    translate: Translate,
    *,
    short: bool = True,
    tolerations: bool = True,
    references: bool = False,
) -> dict[str, str]:
    """Return the new texts of all files that a translation of these parts changes. Raises ManifestError if one cannot be edited.

    Claims have `short` names if these are unique in each pod. Patches get tolerations only with `tolerations`.
    """
    after: dict[str, str] = {}
    templates: dict[str, list[Object]] = {}  # a patch cannot contain them, so they are in a file of their own
    operations: dict[str, list[Object]] = {}
    fields: dict[str, set[tuple[str, str]]] = {}
    all_parts = list(parts)
    names = TemplateNames((document for part in all_parts for document in part.documents), is_one_build=True)
    for part in all_parts:
        folder, file = part.home.folder, part.file
        results = [result for result in translate(part.documents) if result.translation.changed]
        if not results or (file in after and not part.pointer):
            continue
        fields.setdefault(folder, set()).update(field for result in results for field in _fields_of(result))
        overlay = Path(folder).name if part.is_patch else ""
        with_tolerations = tolerations or not part.is_patch
        changes = [_change(result, names, overlay, short=short, tolerations=with_tolerations) for result in results]
        if part.is_patch:
            made = templates.setdefault(folder, [])
            made += [new for change in changes for new in change.new if new not in made]
            changes = [change._replace(new=()) for change in changes]
        old = resolve_pointer(part.home.document.object, part.pointer) if part.pointer else trees.text(file)
        text = edit_text(display_path(file), old, changes)
        if part.pointer:
            new = text.rstrip("\n") + old[len(old.rstrip("\n")) :]
            operations.setdefault(folder, []).append({"op": "replace", "path": part.pointer, "value": new})
        else:
            after[file] = text
    for folder, new_templates in templates.items():
        file = str(Path(folder, _TEMPLATES))
        before = f"{trees.text(file).rstrip()}\n---\n" if Path(file).exists() else ""
        after[file] = before + manifests.dump(new_templates)
        operations.setdefault(folder, []).extend(_listing(trees.known[folder], "resources", _TEMPLATES))
    for folder, of_folder in fields.items() if references else ():
        paths = [{"kind": kind, "path": path} for kind, path in sorted(of_folder)]
        reference = {"kind": _TEMPLATE, "group": "resource.k8s.io", "fieldSpecs": paths}
        after[str(Path(folder, _REFERENCES))] = manifests.dump([{"nameReference": [reference]}])
        operations.setdefault(folder, []).extend(_listing(trees.known[folder], "configurations", _REFERENCES))
    for folder, changes_of_folder in operations.items():
        document = trees.known[folder].document
        change = Change(document, apply_json_patch(document.object, changes_of_folder))
        after[document.file] = edit_text(display_path(document.file), trees.text(document.file), [change])
    return after


def _fields_of(result: Result) -> Iterator[tuple[str, str]]:
    """Yield kind and path of the fields of an object that name templates."""
    for operation in result.translation.operations:
        path, separator, _ = operation["path"].partition("/resourceClaims")
        if separator:
            field = re.sub(r"/\d+(?=/)", "", f"{path}/resourceClaims/resourceClaimTemplateName")
            yield str(result.object.get("kind")), field.lstrip("/")


def _listing(kustomization: Kustomization, field: str, name: str) -> Iterator[Object]:
    """Add a file to a field of a kustomization, unless the field has it."""
    listed = kustomization.document.object.get(field)
    if not listed:
        yield {"op": "add", "path": f"/{field}", "value": [name]}
    elif name not in listed:
        yield {"op": "add", "path": f"/{field}/-", "value": name}


# Objects


def _change(
    result: Result, names: TemplateNames, overlay: str = "", *, short: bool = True, tolerations: bool = True
) -> Change:
    """Return the change of an object, with names as people write them; `overlay` is the folder of a patch."""
    before = result.document.object
    operations = result.translation.operations
    if not tolerations:
        operations = tuple(operation for operation in operations if "/tolerations" not in operation["path"])
    translated = apply_json_patch(before, operations)
    wanted, new = with_plain_names(
        before, translated, result.templates, names, result.document, suffix=overlay, short=short
    )
    return Change(result.document, wanted, new)


def _meaning(objects: Iterable[Object], kept: Collection[str]) -> Meaning:
    """Return objects in a form to compare: with the content of templates and the position of claims in place of their names.

    Of templates it has only those to keep.
    """
    all_objects = list(objects)
    templates = {name_of(obj): without_defaults(obj.get("spec")) for obj in all_objects if obj.get("kind") == _TEMPLATE}

    def resolved(value: Any, namespace: str, claims: Sequence[str] = ()) -> Any:
        if isinstance(value, list):
            return [resolved(item, namespace, claims) for item in value]
        if not isinstance(value, dict):
            return value
        claims = [str(entry.get("name")) for entry in items(value, "resourceClaims")] or claims
        plain = {}
        for key, member in value.items():
            if key == "resourceClaimTemplateName":
                plain[key] = templates.get(f"{_TEMPLATE}/{namespace}/{member}", member)
            elif key in ("claims", "resourceClaims") and claims:
                entries = [resolved(entry, namespace, claims) for entry in items(value, key)]
                plain[key] = [
                    entry | {"name": claims.index(entry["name"])} if entry.get("name") in claims else entry
                    for entry in entries
                ]
            elif key not in ANNOTATIONS:
                plain[key] = resolved(member, namespace, claims)
        return {key: member for key, member in plain.items() if not (key in _EMPTY and member in ({}, None))}

    return Counter(
        (name_of(obj), msgspec.json.encode(resolved(obj, namespace_of(obj)), order="deterministic").decode())
        for obj in all_objects
        if obj.get("kind") != _TEMPLATE or name_of(obj) in kept
    )
