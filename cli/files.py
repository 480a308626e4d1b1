"""Reads the files of a command: manifests, standard input, URLs, and built kustomizations and charts.

A repository has workflows, values and package.json beside its manifests; they are skipped. A document counts as a manifest if it has
apiVersion and kind, or one of these with metadata or spec. Templates of charts and patches of kustomizations are skipped, too: --chart
and -k read the objects that are built from them.
"""

from __future__ import annotations

import gc
import os
import re
import shlex
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.errors import Broken
from analysis.skipped import SkippedFile
from cli.answers import report_problems, unread
from cli.output import warn
from dra.texts import count_of, list_first

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from analysis.configuration import ConfigurationInForce
    from analysis.gitops import Patched, Tree
    from analysis.loading import UnreadableObject
    from cluster.manifests import Document, InputProblem, Keep
    from dra.raw import Object
    from webhook.state import Configuration

_SHOWN: Final = 3  # files of one kind that a message names
_CHAINSAW: Final = "chainsaw.kyverno.io/"
# Policies of Kyverno also have keys in parentheses.
_KYVERNO: Final = ("kyverno.io/", "policies.kyverno.io/")
_KUTTL: Final = re.compile(r"\d+-(assert|errors?)\b[^/]*\.ya?ml")
_BUILDER: Final = re.compile(r"^kind:[ \t]*(Application|ApplicationSet|HelmRelease)\b", re.MULTILINE)
# What a skipped file is, and the remedy.
_REASONS: Final = {
    "other": ("not a manifest:", ""),
    "template": ("templates in", "read what they render to: --chart DIR, or another program's output with -f -"),
    "patch": ("part of a kustomization:", "read what is built from it: -k DIR"),
    "assertion": ("what tests of Chainsaw or kuttl expect, which is not applied:", ""),
}

FLEET_KINDS: Final = ("Node", "ResourceSlice")  # without them, there is no device to show or to allocate
_REMEDY_FOR_REQUESTS: Final = "read the rendered objects: --chart DIR --values FILE, -k DIR, or -f -"


@dataclass(frozen=True)
class InputFiles:
    """What a command reads: files, folders, addresses and `-`; and folders that are built first."""

    paths: tuple[str, ...] = ()
    kustomizations: tuple[str, ...] = ()
    charts: tuple[str, ...] = ()
    # The files of values, the version of Kubernetes and the namespace with which charts are rendered.
    values: tuple[str, ...] = ()
    kubernetes: str = ""
    namespace: str = ""
    excluded: tuple[str, ...] = ()  # patterns of files in folders that are skipped
    inventory: tuple[str, ...] = ()  # files and folders that describe the fleet, and are not the subject of the command

    def __bool__(self) -> bool:
        return bool(self.paths or self.kustomizations or self.charts)


class ReadFiles(NamedTuple):
    """The manifests of files and folders, the other documents and why they are skipped, and the configuration in force."""

    documents: list[Document]
    skipped: list[SkippedFile]
    inventory: list[Document]  # not the subject of the command
    in_force: ConfigurationInForce
    everything: list[Document]  # including documents that are not manifests
    others: list[InputProblem]  # texts that cannot be read and do not look like manifests
    made: tuple[Object, ...] = ()  # what generators and charts among the documents make
    tree: Tree | None = None  # of `everything`
    patched: tuple[Patched, ...] = ()  # the objects whose requests patches change
    is_whole_tree: bool = False  # whether the input is a whole Git repository, or a folder outside of any

    @property
    def built(self) -> list[Document]:
        """The manifests as builds make them: with the requests that patches add."""
        replaced = {
            self.everything[part.number].index for part in self.patched if not (part.is_new or part.is_also_bare)
        }
        unchanged = [document for document in self.documents if document.index not in replaced]
        return [*unchanged, *[part.document for part in self.patched]]


def read_files(
    files: InputFiles,
    *,
    given: ConfigurationInForce | None = None,
    judged: bool = False,
    keep: Keep | None = None,
) -> ReadFiles:
    """Read the manifests among files and folders. Unreadable files are reported, and the command continues.

    Every file of the inventory has to be readable. `keep` reduces each object. `given` is the configuration of `--config`. With
    `judged`, an invalid configuration among the files is not an error here, because the command reports its mistakes as findings.
    """
    from analysis.configuration import configuration_in_force
    from analysis.gitops import NAMES, Tree, made_objects
    from analysis.requesting import with_other_requests
    from webhook.state import State

    inventory_documents = []
    if files.inventory:
        inventory_documents = read_input_files(
            replace(files, paths=files.inventory, kustomizations=(), charts=()), keep
        )
        refuse_without_fleet([document.object for document in inventory_documents])
    folders = [path for path in files.paths if Path(path).is_dir()]
    read, problems_ = _read(files, keep)
    problems_ = [_as_named(problem, folders) for problem in problems_]
    # A file that the user names has to be a text, and a kustomization to be readable. In a folder, other files are skipped.
    unreadable = [
        problem
        for problem in problems_
        if not problem.apparent_kind
        or (problem.is_no_text and problem.file in files.paths)
        or (problem.apparent_kind != "template" and Path(problem.file).name in NAMES)
    ]
    report_problems(unreadable, are_all=not read)
    others = [problem for problem in problems_ if problem not in unreadable]
    tree = Tree(read, absolute, repository_root, others)
    # With -k, the built objects are read.
    parts = tree.patched if tree.has_builds and not files.kustomizations else ()
    if tree.is_too_large:
        warn("the tree has too many builds or patches: only the first builds and patches were followed")
    documents, skipped = manifests_among(read, others, files, tree)
    if not documents and not skipped and not unread():
        warn("the input holds no objects")
    in_force = configuration_in_force(given, documents, inventory_documents, judged=judged)
    read_places = {
        part.document.place_of(pointer)[:2]
        for part in parts
        for overlay in part.document.patches
        for pointer in overlay.pointers
        if overlay.is_patch and "~1" in pointer.rpartition("/")[2]
    }
    with_keys = [skip.with_first_key(in_force.configuration, read_places) for skip in skipped]
    patched = tuple(with_other_requests(parts, read, State(configuration=in_force.configuration)))
    is_whole_tree = any(repository_of(folder) == folder for folder in map(Path.absolute, map(Path, folders)))
    manifests = {document.index: document for document in documents}
    everything = [manifests.get(document.index, document) for document in read]
    made = tuple(made_objects(everything, tree)) if tree.has_builds else ()
    return ReadFiles(
        documents, with_keys, inventory_documents, in_force, everything, others, made, tree, patched, is_whole_tree
    )


def read_input_files(files: InputFiles, keep: Keep | None = None) -> list[Document]:
    """Read manifests except templates, or raise a ManifestError."""
    from cluster.manifests import ManifestError

    documents, problems_ = _read(files, keep)
    templates = [problem for problem in problems_ if problem.apparent_kind == "template"]
    if broken := [problem for problem in problems_ if problem not in templates]:
        raise ManifestError(broken)
    warn_of_skipped([SkippedFile(template.file, template.line, "template") for template in templates])
    return documents


class SkippedText(NamedTuple):
    """A document that is not judged as a manifest, with its text."""

    skipped: SkippedFile
    text: bytes = b""
    first_line: int = 0

    def with_first_key(self, configuration: Configuration, read: Collection[tuple[str, int]] = ()) -> SkippedFile:
        """Add the first key with which the text requests devices, and its line; those of the places `read` are in objects."""
        from webhook.unknown import amounts_in

        text = self.text.decode(errors="replace")
        builder = _BUILDER.search(text) if self.skipped.reason == "template" else None
        skipped = self.skipped._replace(makes=builder[1] if builder else "")
        for key, start in amounts_in(text):
            line = self.first_line + text.count("\n", 0, start)
            if configuration.resource(key) and (skipped.file, line) not in read:
                return skipped._replace(key=key, line=line)
        return skipped


def manifests_among(
    documents: Iterable[Document],
    others: Iterable[InputProblem],
    files: InputFiles | None = None,
    tree: Tree | None = None,
) -> tuple[list[Document], list[SkippedText]]:
    """Separate manifests from the rest; `others` are texts that cannot be read and do not look like manifests.

    What a test expects of objects is skipped. Templates of charts and patches of kustomizations are in neither list if the input is built from them, because the result is read.
    `tree` is the tree of the documents, if it is known.
    """
    from analysis.gitops import FOLDERS, PATCHES, Tree, files_of, is_kustomization, with_values
    from cluster.manifests import is_named_template, is_named_test

    all_documents = list(documents)
    kustomizations = [*filter(is_kustomization, all_documents), *_kustomizations_around(all_documents)]
    patches = {absolute(path) for document in kustomizations for path in files_of(document, PATCHES)}
    resources = {absolute(path) for document in kustomizations for path in files_of(document, FOLDERS)}
    expected = _expected(all_documents)
    folders = files.paths if files else ()
    objects: list[Document] = []
    skipped = [
        SkippedText(SkippedFile(other.file, other.line, _reason(other)), other.text, other.first_line)
        for other in others
    ]
    tree = tree or Tree(all_documents, absolute, repository_root)
    for number, document in enumerate(all_documents):
        value, namespace = document.object, tree.namespace_of(number)
        type_keys = value.keys() & {"apiVersion", "kind"}
        has_body = isinstance(value.get("metadata"), dict) or isinstance(value.get("spec"), dict)
        reason = "" if len(type_keys) > 1 or (type_keys and has_body) else "other"
        if is_kustomization(document) or (patches and absolute(document.file) in patches):
            reason = "patch"
        if len(type_keys) == 1 and is_named_template(document.file):
            reason = "template"
        is_test = len(type_keys) > 1 and _is_partial(value) and is_named_test(_within(document.file, folders))
        if document.file in expected or is_test:
            reason = "assertion"
        if reason:
            begin, text = document.first_line, "" if reason == "assertion" else document.text
            skipped.append(SkippedText(SkippedFile(document.file, begin, reason), text.encode(), begin))
        else:
            is_resource = resources and absolute(document.file) in resources
            values = with_values(value)
            placed = replace(document, namespace=namespace, with_values=values) if namespace or values else document
            objects.append(placed.read_like_kustomize() if is_resource else placed)
    charts, built = _built(all_documents, files or InputFiles())
    not_built: list[SkippedText] = []
    for skip in skipped:
        path, reason = PurePath(os.path.normpath(skip.skipped.file)), skip.skipped.reason
        is_of_chart = any(path.is_relative_to(chart) for chart in charts)
        if (reason == "template" and is_of_chart) or (reason == "patch" and str(path) in built):
            continue
        # Values of a rendered chart are in the rendered objects.
        not_built.append(SkippedText(skip.skipped) if is_of_chart else skip)
    return objects, not_built


def _expected(documents: Iterable[Document]) -> set[str]:
    """Return the files with what tests of Chainsaw and kuttl expect of objects."""
    expected: set[str] = set()
    for document in documents:
        kind = str(document.object.get("apiVersion")), document.object.get("kind")
        if _KUTTL.fullmatch(PurePath(document.file).name) or kind == ("kuttl.dev/v1beta1", "TestAssert"):
            expected.add(document.file)
        elif kind[0].startswith(_CHAINSAW):
            folder = PurePath(document.file).parent
            expected.update(os.path.normpath(folder / file) for file in _asserted(document.object))
        elif not kind[0].startswith(_KYVERNO) and document.has_expressions:
            expected.add(document.file)
    return expected


def _asserted(value: object) -> Iterator[str]:
    """Yield the files that the steps of a Chainsaw test compare with objects."""
    if isinstance(value, list):
        for item in value:
            yield from _asserted(item)
    elif isinstance(value, dict):
        for key, member in value.items():
            if key in ("assert", "error") and isinstance(member, dict) and isinstance(member.get("file"), str):
                yield member["file"]
            else:
                yield from _asserted(member)


def _as_named(problem: InputProblem, folders: Iterable[str]) -> InputProblem:
    """Give a text in one of these folders that cannot be read the kind that its name shows. Other manifests have to be readable."""
    from cluster.manifests import is_named_template, is_named_test

    path = _within(problem.file, folders) if problem.text and not problem.apparent_kind else ""
    if is_named_template(path):
        return replace(problem, apparent_kind="template")
    return replace(problem, apparent_kind="other") if is_named_test(path) else problem


def _within(file: str, folders: Iterable[str]) -> str:
    """Return the path of a file relative to the first of these folders that contains it; "" if none does."""
    path = PurePath(absolute(file))
    above = (PurePath(absolute(folder)) for folder in folders)
    return next((path.relative_to(folder).as_posix() for folder in above if folder in path.parents), "")


def _is_partial(obj: Object) -> bool:
    """Return whether an object has no name, or only a status: then it is what a test expects of an object."""
    metadata = obj.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    return not (names.get("name") or names.get("generateName")) or ("status" in obj and "spec" not in obj)


def _reason(problem: InputProblem) -> str:
    """Return why an unreadable text is skipped. In .github, `{{ }}` is no template but an expression that GitHub evaluates."""
    return "other" if ".github" in PurePath(problem.file).parts else problem.apparent_kind


def _built(documents: Sequence[Document], files: InputFiles) -> tuple[list[str], set[str]]:
    """Return the paths of rendered charts and of their values, and the files that built kustomizations consist of."""
    from analysis.gitops import FOLDERS, PATCHES, files_of, is_kustomization

    charts = [os.path.normpath(path) for path in (*files.values, *files.charts)]
    waiting = [os.path.normpath(path) for path in files.kustomizations]
    by_folder = {
        str(PurePath(os.path.normpath(document.file)).parent): document
        for document in documents
        if is_kustomization(document)
    }
    used: set[str] = set()
    while waiting:
        kustomization = by_folder.pop(waiting.pop(), None)
        if kustomization is None:
            continue
        used |= {os.path.normpath(kustomization.file), *files_of(kustomization, PATCHES)}
        waiting += files_of(kustomization, FOLDERS)
    return charts, used


def absolute(path: str) -> str:
    """Return the absolute path of a file, without following links."""
    return os.path.abspath(path)  # noqa: PTH100  Path is much slower, and a tree has many documents


def repository_of(folder: Path) -> Path:
    """Return the root of the repository of an absolute folder, or else the folder itself."""
    return Path(repository_root(str(folder)) or folder)


def repository_root(folder: str) -> str:
    """Return the folder with .git at or above an absolute folder; "" if there is none."""
    return next((str(above) for above in (Path(folder), *Path(folder).parents) if (above / ".git").exists()), "")


def kustomizations_in(folders: Iterable[Path]) -> Iterator[Document]:
    """Read the kustomizations of these folders, except those that kustomize would not build either."""
    from analysis.gitops import NAMES
    from cluster import manifests

    for folder in folders:
        if file := next((folder / name for name in NAMES if (folder / name).is_file()), None):
            with suppress(manifests.ManifestError):
                yield from manifests.read([file])[:1]


def _kustomizations_around(documents: Sequence[Document]) -> Iterator[Document]:
    """Read further kustomizations in the documents' folders and above, up to the folder with .git: the input may contain only a patch of one."""
    from analysis.gitops import is_kustomization

    files = {Path(file).absolute() for file in {document.file for document in documents}}
    folders: set[Path] = set()
    for home in {file.parent for file in files if file.is_file()}:
        above = [home, *home.parents]
        folders.update(above[: above.index(repository_of(home)) + 1])
    folders -= {Path(document.file).absolute().parent for document in documents if is_kustomization(document)}
    return kustomizations_in(sorted(folders))


def describe_skipped(skipped: Sequence[SkippedFile]) -> list[str]:
    """Return a line for each reason, and one for the files that request devices: how many files, and the first few."""
    from cluster.manifests import chart_of

    lines = []
    for reason, (reason_text, remedy) in _REASONS.items():
        names = list(dict.fromkeys(problem.file for problem in skipped if problem.reason == reason))
        if not names:
            continue
        line = f"skipped, {reason_text} {count_of(len(names), 'file')} ({list_first(names, _SHOWN)})"
        charts = {os.path.relpath(chart) for chart in map(chart_of, names) if chart} if reason == "template" else ()
        if len(charts) == 1:
            remedy = remedy.replace("DIR", shlex.quote(*charts))  # noqa: PLW2901
        lines.append(f"{line}; {remedy}" if remedy else line)
    requesting = {
        problem.file: f"{problem.file}:{problem.line} {problem.key}" for problem in reversed(skipped) if problem.key
    }
    if requesting:
        first_requests = list_first(list(reversed(requesting.values())), _SHOWN)
        files = count_of(len(requesting), "file")
        lines.append(
            f"devices are requested in {files} ({first_requests}), outside of any object that is read; {_REMEDY_FOR_REQUESTS}"
        )
    return lines


def warn_of_skipped(skipped: Sequence[SkippedFile]) -> None:
    for line in describe_skipped(skipped):
        warn(line)


def _read(files: InputFiles, keep: Keep | None = None) -> tuple[list[Document], list[InputProblem]]:
    from cli.outside import CHART, KUSTOMIZE
    from cluster.manifests import read_leniently

    built = [f"{KUSTOMIZE}{folder}" for folder in files.kustomizations]
    built += [f"{CHART}{folder}" for folder in files.charts]
    outside = partial(_from_outside, files)
    with without_collection():
        documents, problems_ = read_leniently(
            (*files.paths, *built), exclude=files.excluded, outside=outside, keep=keep, report=warn
        )
    for document in documents:
        if line := document.run_together:
            file = document.file
            warn(f"{file}:{line}: duplicate key kind: only one of two objects is read; is a line --- missing?")
    return documents, problems_


def _from_outside(files: InputFiles, name: str) -> tuple[bytes, str] | None:
    """Return the text of a URL or a built folder, and the file that it was built from; None for a file."""
    from cli.outside import CHART, KUSTOMIZE, is_outside, text_of

    for prefix, built in ((KUSTOMIZE, files.kustomizations), (CHART, files.charts)):
        if name.startswith(prefix) and name.removeprefix(prefix) not in built:
            return None  # a file with this name: only `-k` and `--chart` build folders
    if not is_outside(name):
        return None
    return text_of(name, files.values, files.kubernetes, files.namespace)


@contextmanager
def without_collection() -> Iterator[None]:
    """Suspend the garbage collector while objects are created that live until the command ends."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def refuse_without_fleet(objects: Sequence[Object], kinds: Collection[str] = ()) -> None:
    """Refuse input that has no object of `kinds`. Without `kinds`, refuse input that has only pods and workloads as users write them."""
    from analysis.arrivals import brings_pods

    if kinds:
        is_fleet = any(obj.get("kind") in kinds for obj in objects)
    else:
        is_fleet = any(not brings_pods(obj) or obj.get("status") for obj in objects)
    if objects and not is_fleet:
        present = ", ".join(dict.fromkeys(str(obj.get("kind")) for obj in objects))
        remedy = "give a file that `drawbridge snapshot --to FILE` or `kubectl get nodes,resourceslices,deviceclasses -o yaml` wrote"
        raise Broken(f"no fleet in the input, only {present}", remedy)


def problems(documents: Iterable[tuple[Document, str, str]]) -> list[InputProblem]:
    from cluster.manifests import InputProblem

    return [
        InputProblem(document.file, message, "", *document.position_of(pointer), pointer)
        for document, pointer, message in documents
    ]


def refuse(wrong: Sequence[tuple[Document, str, str]]) -> None:
    """Raise a ManifestError of these (document, pointer, message), if there are any."""
    from cluster.manifests import ManifestError

    if wrong:
        raise ManifestError(problems(wrong))


def problems_of_unreadable(documents: Sequence[Document], unreadable: Iterable[UnreadableObject]) -> list[InputProblem]:
    """Describe the objects that cannot be read; `documents` is the input."""
    from dra.objects import versions

    wrong: list[tuple[Document, str, str]] = []
    for number, error in unreadable:
        document = documents[number]
        pointer = versions.written_pointer(
            error.pointer, str(document.object.get("apiVersion") or ""), str(document.object.get("kind") or "")
        )
        wrong.append((document, pointer, error.message))
    return problems(wrong)
