"""Compares what kustomize builds from a tree before and after each step of a move."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from analysis.gitops import FOLDERS, NAMES
from cli.outside import can_build
from cli.pull_request import REMEDY
from cli.trees import Trees, display_path
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


class _TreeState(NamedTuple):
    """A tree after a step: the texts that differ from the working tree, and the objects of all files."""

    name: str  # of the step
    changed: frozenset[str]  # by the step
    texts: Mapping[str, str | None]
    objects: Mapping[str, Mapping[str, Object]]  # by absolute path of the file, and place


def compare_builds(
    steps: Sequence[Step], written: Sequence[StepFiles], documents: Sequence[Document], repository: Repository
) -> list[str]:
    """Build the outermost kustomizations with changed files before and after each step. Return those not compared, with the reasons.

    Raises ManifestError if a step breaks a build, or changes anything else in it than the step's own objects.
    """
    if not can_build():
        return ["all kustomizations: neither kustomize nor kubectl is installed"]
    first, *later = _states(steps, written, documents, repository)
    last = later[-1].texts
    trees = Trees(documents, last, [repository.root])
    for state in later:
        for file, text in state.texts.items():
            if text and Path(file).name in NAMES:
                trees.add(file, text)
    # What Flux or Argo CD build by an object that changes: its folders are built by themselves.
    changed = [documents[edit.number] for step in steps for edit in step.edits]
    edited = {(os.path.realpath(document.file), document.first_line) for document in changed}
    touched = {
        folder
        for folder, known in trees.known.items()
        if not trees.files_of(folder).isdisjoint(last)
        and not (known.made and (known.document.file, known.document.first_line) in edited)
    }
    inner = {other for folder in touched for other in trees.used(folder) if other != folder}
    waiting = [folder for folder in trees.known if folder in touched - inner]
    unbuilt: dict[str, str] = {}
    for count, folder in enumerate(waiting):
        if count == _MAX_BUILDS:
            why = f"only the first {_MAX_BUILDS} kustomizations with changes are built"
            unbuilt |= dict.fromkeys(waiting[count:], why)
            break
        if why := _compare(trees, folder, first, later):
            unbuilt[folder] = why
            waiting += [other for other in trees.known[folder].folders if other in touched and other not in waiting]
    lines: dict[str, list[str]] = {}
    for folder, why in unbuilt.items():
        lines.setdefault(why, []).append(display_path(trees.known[folder].document.file))
    return [f"{list_first(files, _NAMED)}: {why}" for why, files in lines.items()]


def _states(
    steps: Sequence[Step], written: Sequence[StepFiles], documents: Sequence[Document], repository: Repository
) -> Iterator[_TreeState]:
    """Yield the state before the first step, and that after each one."""
    texts: dict[str, str | None] = {}
    objects: dict[str, dict[str, Object]] = {}
    # Documents that are read by several links have one place.
    places = [(os.path.realpath(document.file), document.first_line) for document in documents]
    for (file, line), document in zip(places, documents, strict=True):
        objects.setdefault(file, {})[f"{file}:{line}"] = document.object
    yield _TreeState("", frozenset(), texts, objects)
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
        yield _TreeState(step.name, frozenset(edits), texts, objects)


def _compare(trees: Trees, folder: str, first: _TreeState, later: Sequence[_TreeState]) -> str:
    """Build a kustomization in each state that changes its files. Return why it is not compared, "" if it is."""
    if trees.known[folder].document.object.get("kind") == "Component":
        return ""  # it has no build of its own
    files, why, before = trees.files_of(folder), "", first
    try:
        built = _build(trees, folder, before)
    except ManifestError as error:
        return error.problems[0].message
    for state in [state for state in later if state.changed & files]:
        try:
            new_built = _build(trees, folder, state)
        except ManifestError as error:
            message = f"cannot be built after the step `{state.name}`: {error.problems[0].message}"
            raise ManifestError([replace(error.problems[0], message=message, remedy=REMEDY)]) from error
        included = [frozenset(_included(trees, folder, of_state)) for of_state in (before, state)]
        if data := (state.changed & files) - included[0] - included[1]:
            why = f"{display_path(min(data))} is a patch or the data of a generator, so only that it builds is checked"
        else:
            old, new = _objects_in(before, included[0]), _objects_in(state, included[1])
            for key in [key for key, obj in old.items() if obj != new.get(key) and not _is_in(obj, built)]:
                del old[key]  # a patch deletes it
                new.pop(key, None)
            expected = _differences(old, new)
            actual = _differences(_by_name(built), _by_name(new_built))
            if wrong := sorted((expected - actual) + (actual - expected)):
                file = display_path(trees.known[folder].document.file)
                message = (
                    f"the step `{state.name}` would change {wrong[0].object} otherwise in the build than in its file"
                )
                raise ManifestError([InputProblem(file, message, REMEDY)])
        built, before = new_built, state
    return why


def _build(trees: Trees, folder: str, state: _TreeState) -> list[Document]:
    """Build a kustomization in a state; without one in this state there are no objects. Raises ManifestError."""
    if _kustomization(trees, folder, state) is None:
        return []
    builds, broken = trees.build([folder], state.texts)
    if broken:
        raise broken[folder]
    return builds[folder]


def _kustomization(trees: Trees, folder: str, state: _TreeState) -> Object | None:
    """Return the kustomization of a folder in a state."""
    if folder in trees.known and trees.known[folder].made:
        return trees.known[folder].document.object
    of_files = [state.objects.get(f"{folder}/{name}", {}) for name in NAMES]
    return next((obj for of_file in of_files for obj in of_file.values()), None)


def _included(trees: Trees, folder: str, state: _TreeState) -> Iterator[str]:
    """Yield the kustomizations and the files of objects that go into the build of a folder."""
    kustomization = _kustomization(trees, folder, state) or {}
    yield from (f"{folder}/{name}" for name in NAMES)
    for entry in (entry for field in FOLDERS for entry in strings(kustomization, field)):
        path = os.path.normpath(Path(folder, entry))
        if path in state.objects:
            yield path
        else:
            yield from _included(trees, path, state)


def _objects_in(state: _TreeState, files: Collection[str]) -> dict[str, Object]:
    """Return the objects of files that are no kustomizations."""
    return {
        key: obj for file in files if Path(file).name not in NAMES for key, obj in state.objects.get(file, {}).items()
    }


def _by_name(built: Sequence[Document]) -> dict[str, Object]:
    return {name_of(document.object): document.object for document in built}


class _Deviation(NamedTuple):
    object: str  # a kind, and the name of a new object
    fields: str = ""  # the fields with new values, as JSON


def _differences(before: Mapping[str, Object], after: Mapping[str, Object]) -> Counter[_Deviation]:
    """Count the differences between objects in a form that the files and a build share: without namespaces and places in lists."""
    differences: Counter[_Deviation] = Counter()
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old is not None and new is not None and _kind_and_name(old) == _kind_and_name(new):
            if old != new:
                fields = msgspec.json.encode([*_fields(old, new)], order="deterministic").decode()
                differences[_Deviation(str(old.get("kind")), fields)] += 1
            continue
        if old is not None:
            differences[_Deviation(str(old.get("kind")), "removed")] += 1
        if new is not None:
            differences[_Deviation(_kind_and_name(new), "added")] += 1
    return differences


def _is_in(obj: Object, built: Sequence[Document]) -> bool:
    """Return whether a build has an object, whose name may have a prefix and a suffix there."""
    kind, name = obj.get("kind"), str(mapping(obj.get("metadata")).get("name"))
    return any(
        document.object.get("kind") == kind and name in str(mapping(document.object.get("metadata")).get("name"))
        for document in built
    )


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
