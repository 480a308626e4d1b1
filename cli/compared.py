"""Compares what kustomize builds from a tree before and after each step of a move."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from analysis.gitops import FOLDERS, NAMES
from cli.edited import text_at
from cli.outside import can_build
from cli.pull_request import REMEDY
from cli.trees import Group, Trees, display_path
from cluster.manifests import InputProblem, ManifestError
from dra.pointer import member
from dra.raw import mapping, strings
from dra.texts import list_first
from webhook.translate import name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from analysis.migration import Step
    from cli.branch import Repository
    from cli.pull_request import StepFiles
    from cluster.manifests import Document
    from dra.raw import Object

_MAX_BUILDS: Final = 200  # kustomizations that are built, each one before and after every step
_NAMED: Final = 5


class _State(NamedTuple):
    """A tree after a step: the texts that differ from the working tree, and the objects of all files."""

    name: str  # of the step
    changed: frozenset[str]  # by the step
    texts: Mapping[str, str | None]
    objects: Mapping[str, Mapping[str, Object]]  # by absolute path of the file, and place


def compare_builds(
    steps: Sequence[Step], written: Sequence[StepFiles], documents: Sequence[Document], repository: Repository
) -> list[str]:
    """Build every kustomization with a changed file before and after each step. Return those that were not compared, with the reasons.

    Raises ManifestError if a step breaks a build, or changes anything else in it than the step's own objects.
    """
    if not can_build():
        return ["all kustomizations: neither kustomize nor kubectl is installed"]
    states = [*_states(steps, written, documents, repository)]
    trees, groups = _groups(states[-1].texts, documents, repository)
    # What Flux or Argo CD build by an object that changes: its folders are built by themselves.
    changed = [documents[edit.number] for step in steps for edit in step.edits]
    edited = {(os.path.realpath(document.file), document.first_line) for document in changed}
    unbuilt: dict[str, str] = {}
    left = _MAX_BUILDS
    for group in groups:
        for folder in group.folders[left:]:
            unbuilt[folder] = f"only the first {_MAX_BUILDS} kustomizations with changes are built"
        of_group = [trees.known[folder] for folder in group.folders[:left]]
        left -= len(of_group)
        folders = [
            known.folder
            for known in of_group
            if not known.made or (known.document.file, known.document.first_line) not in edited
        ]
        unbuilt |= _compare_group(trees, group._replace(folders=tuple(folders)), states)
    lines: dict[str, list[str]] = {}
    for folder, why in unbuilt.items():
        lines.setdefault(why, []).append(display_path(trees.known[folder].document.file))
    return [f"{list_first(files, _NAMED)}: {why}" for why, files in lines.items()]


def _groups(
    last: Mapping[str, str | None], documents: Sequence[Document], repository: Repository
) -> tuple[Trees, list[Group]]:
    """Return the kustomizations that include a file with a text after the last step, and new ones."""
    texts_before = {text_at(file) for file in last if Path(file).exists()}
    trees = Trees(documents, last, [repository.root], texts_before.__contains__)
    new = [
        trees.add(file, text)
        for file, text in last.items()
        if text and Path(file).name in NAMES and not Path(file).exists()
    ]
    # What a new kustomization names has to be in the copies of those that include it.
    named = {file for group in new for file in group.files if Path(file).exists()}
    return trees, [*[group._replace(files=group.files | named) for group in trees.groups], *new]


def _states(
    steps: Sequence[Step], written: Sequence[StepFiles], documents: Sequence[Document], repository: Repository
) -> Iterator[_State]:
    """Yield the state before the first step, and that after each one."""
    texts: dict[str, str | None] = {}
    objects: dict[str, dict[str, Object]] = {}
    # Documents that are read by several links have one place.
    places = [(os.path.realpath(document.file), document.first_line) for document in documents]
    for (file, line), document in zip(places, documents, strict=True):
        objects.setdefault(file, {})[f"{file}:{line}"] = document.object
    yield _State("", frozenset(), texts, objects)
    for step, files in zip(steps, written, strict=True):
        edits = {str(Path(repository.root, path)): edited for path, edited in files.edits.items()}
        texts = texts | {file: None if edited.is_removed else edited.after for file, edited in edits.items()}
        objects = {file: dict(of_file) for file, of_file in objects.items()}
        for number, wanted in step.edits:
            file, line = places[number]
            if wanted is None:
                objects[file].pop(f"{file}:{line}", None)
            else:
                objects[file][f"{file}:{line}"] = wanted
        for new in step.new:
            file = os.path.realpath(new.path)
            objects[file] = {f"{file}:{number}": obj for number, obj in enumerate(new.objects)}
        yield _State(step.name, frozenset(edits), texts, objects)


def _compare_group(trees: Trees, group: Group, states: Sequence[_State]) -> dict[str, str]:
    """Build the kustomizations of a group in each state. Return those that cannot be built at first or compared, with the reasons."""
    first, *later = states
    builds, broken = _build(trees, group, first)
    unbuilt = {folder: error.problems[0].message for folder, error in broken.items()}
    before = first
    for state in later:
        if not state.changed & group.files:
            before = state
            continue
        new_builds, broken = _build(trees, group, state)
        # A component has no build of its own.
        for folder in [folder for folder in group.folders if folder in builds and folder in {**new_builds, **broken}]:
            if folder in broken:
                problem = broken[folder].problems[0]
                why = f"cannot be built after the step `{state.name}`: {problem.message}"
                raise ManifestError([replace(problem, message=why, remedy=REMEDY)])
            included = [frozenset(_included(trees, folder, of_state)) for of_state in (before, state)]
            used = {file for known in trees.used(folder).values() for file in known.files}
            if data := (state.changed & used) - included[0] - included[1]:
                unbuilt[folder] = (
                    f"{display_path(min(data))} is a patch or the data of a generator, so only that it builds is checked"
                )
                continue
            expected = _differences(_objects_in(before, included[0]), _objects_in(state, included[1]))
            actual = _differences(_by_name(builds[folder]), _by_name(new_builds[folder]))
            if wrong := sorted((expected - actual) + (actual - expected)):
                file = display_path(trees.known[folder].document.file)
                why = f"the step `{state.name}` would change {wrong[0].object} otherwise in the build than in its file"
                raise ManifestError([InputProblem(file, why, REMEDY)])
        builds, before = new_builds, state
    return unbuilt


def _build(trees: Trees, group: Group, state: _State) -> tuple[dict[str, list[Document]], dict[str, ManifestError]]:
    """Build the kustomizations of a group that exist in a state; the others have no objects."""
    existing = [folder for folder in group.folders if _kustomization(trees, folder, state) is not None]
    builds, broken = trees.build(group, state.texts, existing) if existing else ({}, {})
    return {folder: [] for folder in group.folders if folder not in existing} | builds, broken


def _kustomization(trees: Trees, folder: str, state: _State) -> Object | None:
    """Return the kustomization of a folder in a state."""
    if folder in trees.known and trees.known[folder].made:
        return trees.known[folder].document.object
    of_files = [state.objects.get(f"{folder}/{name}", {}) for name in NAMES]
    return next((obj for of_file in of_files for obj in of_file.values()), None)


def _included(trees: Trees, folder: str, state: _State) -> Iterator[str]:
    """Yield the kustomizations and the files of objects that go into the build of a folder."""
    kustomization = _kustomization(trees, folder, state) or {}
    yield from (f"{folder}/{name}" for name in NAMES)
    for entry in (entry for field in FOLDERS for entry in strings(kustomization, field)):
        path = os.path.normpath(Path(folder, entry))
        if path in state.objects:
            yield path
        else:
            yield from _included(trees, path, state)


def _objects_in(state: _State, files: Collection[str]) -> dict[str, Object]:
    """Return the objects of files that are no kustomizations."""
    return {
        key: obj for file in files if Path(file).name not in NAMES for key, obj in state.objects.get(file, {}).items()
    }


def _by_name(built: Sequence[Document]) -> dict[str, Object]:
    return {name_of(document.object): document.object for document in built}


class _Difference(NamedTuple):
    object: str  # a kind, and the name of a new object
    fields: str = ""  # the fields with new values, as JSON


def _differences(before: Mapping[str, Object], after: Mapping[str, Object]) -> Counter[_Difference]:
    """Count the differences between objects in a form that the files and a build share: without namespaces and places in lists."""
    differences: Counter[_Difference] = Counter()
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old is not None and new is not None and _kind_and_name(old) == _kind_and_name(new):
            if old != new:
                fields = msgspec.json.encode([*_fields(old, new)], order="deterministic").decode()
                differences[_Difference(str(old.get("kind")), fields)] += 1
            continue
        if old is not None:
            differences[_Difference(str(old.get("kind")), "removed")] += 1
        if new is not None:
            differences[_Difference(_kind_and_name(new), "added")] += 1
    return differences


def _kind_and_name(obj: Object) -> str:
    return f"{obj.get('kind')} {mapping(obj.get('metadata')).get('name')}"


def _fields(before: Any, after: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields that differ, with their new values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                yield from _fields(before.get(name), after.get(name), member(pointer, name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            if old != new:
                yield from _fields(old, new, f"{pointer}/{number}")
    else:
        yield pointer, after
