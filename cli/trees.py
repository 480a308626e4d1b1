"""Edits repositories of kustomizations: an edit is written only if every build of the edited files equals the translation of the build of
the original files.

This module does not compute the result of a kustomization. The user's own kustomize or kubectl builds each kustomization before and after
the edit, from copies of its files, without plugins, Helm or the network. If a build differs, nothing is written, and each difference is
reported.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections import Counter, deque
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace as replace_fields

from cli.edited import Edited, Result, edit_text, text_at
from cli.outside import CHART, MAX_BYTES, build_offline, builder, text_of
from cluster import manifests
from cluster.manifests import CannotEdit, Document, InputProblem, ManifestError, chart_of, is_of_chart
from cluster.patch import apply_json_patch
from dra.raw import Object, inside, mapping, members
from dra.texts import list_first
from webhook.names import ANNOTATIONS
from webhook.translate import PodVerdict, group_kind, name_of, namespace_of, resolve_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    Translate = Callable[[Sequence[Document]], list[Result]]
    Meaning = Counter[tuple[str, str]]

_NAMES: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_TEMPLATE: Final = "ResourceClaimTemplate"
_TEMPLATES: Final = "resource-claim-templates.yaml"
_REFERENCES: Final = "resource-claim-references.yaml"
_OF_CHARTS: Final = frozenset((".yaml", ".yml", ".tpl"))
_UNIT_TESTS: Final = "tests/*_test.yaml"  # tests of helm-unittest, with expected results of the templates
_DIGITS: Final = 8
_DEPLOYED: Final = ("namePrefix", "nameSuffix", "namespace", "patches", "components")
_PATCHES: Final = ("patches", "patchesStrategicMerge", "patchesJson6902")
_EMPTY: Final = frozenset(("resources", "limits", "requests", "annotations"))
_LISTS: Final = ("resources", "bases", "components")
# Fields that change neither a translation nor the names of templates.
_PLAIN: Final = frozenset(
    ("apiVersion", "kind", "metadata", "resources", "bases", "images", "replicas", "commonAnnotations", "buildMetadata")
)
_NO_PATHS: Final = frozenset(
    ("apiVersion", "kind", "metadata", "commonAnnotations", "commonLabels", "labels", "images")
)
_REMOTE: Final = re.compile(r"[a-z+]+://|git@|[\w-]+\.[a-z]+/.*(//|\?ref=)")
_DOMAIN: Final = re.compile(
    r"(?<![A-Za-z0-9.-])[A-Za-z0-9.-]+(?=/|~1)"
)  # the places where a key may begin, which are few in a large file
_NOTHING: Final = re.compile(r"""["']? *: *["']?0+["']? *(?:[#,}]|$)""")  # an amount that requests no device
_HOLDING_VALUES: Final = frozenset(("HelmRelease", "HelmChart", "Application", "ApplicationSet"))
_MAX: Final = 10_000  # kustomizations of a repository


class Kustomization(NamedTuple):
    """A kustomization that the command names or that is in the same repository, and the existing files that it names."""

    folder: str
    document: Document
    files: frozenset[str]  # all files that it names, and its own
    folders: tuple[str, ...]
    missing: str  # the first file that does not exist here, or is remote
    made: str = ""  # the text, if Argo CD or Flux generate the kustomization


class Plan(NamedTuple):
    """The edit of a group of kustomizations, and the problems because of which it must not be written; it is then only shown."""

    edited: list[Edited]
    problems: list[InputProblem]
    unnamed: list[InputProblem] = []  # files that would change and that the command does not name
    not_compared: list[InputProblem] = []  # kustomizations that do not build, although others with the same files do


class _EditedPart(NamedTuple):
    """Objects, or patches, in one text of a kustomization: in a file, or in a field of the kustomization itself."""

    home: Kustomization
    file: str
    pointer: str  # of the field
    documents: list[Document]
    is_patch: bool


def find_kustomizations(paths: Iterable[str]) -> dict[str, Kustomization]:
    """Read every kustomization that may use these files: those of their repository, or else those below the named paths."""
    documents: dict[str, Document] = {}
    roots: dict[str, str] = {}
    for path in paths:
        resolved = Path(os.path.realpath(path))
        folder = resolved if resolved.is_dir() else resolved.parent
        root = _repository(folder)
        # The folder of a file outside a repository may contain other users' files, so its subfolders are skipped.
        is_ours = folder == resolved or Path(root, ".git").exists()
        for parent, folders, files in manifests.walk(root):
            folders[:] = sorted(name for name in folders if is_ours and name not in manifests.FOREIGN_FOLDERS)
            name = next((name for name in _NAMES if name in files), "")
            if name and parent not in documents and Path(parent, name).is_file() and len(documents) < _MAX:
                roots[parent] = root
                try:
                    documents[parent], *_ = manifests.read([Path(parent, name)])
                except (ManifestError, ValueError):
                    continue  # kustomize would not build it either
    return {
        folder: _read_kustomization(folder, document, documents, roots[folder])
        for folder, document in documents.items()
    }


def _repository(folder: Path) -> str:
    return str(next((path for path in (folder, *folder.parents) if (path / ".git").exists()), folder))


def deployed_kustomizations(
    documents: Iterable[Document], kustomizations: Mapping[str, Kustomization]
) -> Iterator[Kustomization]:
    """Yield a kustomization for each object of Argo CD and Flux that builds a folder with options of its own."""
    for document in documents:
        spec = mapping(document.object.get("spec"))
        sources: list[tuple[Object, Object]] = []
        match group_kind(document.object):
            case "kustomize.toolkit.fluxcd.io", "Kustomization":
                sources = [(spec, {**spec, "namespace": spec.get("targetNamespace")})]
            case "argoproj.io", "Application":
                spec_sources = [spec.get("source"), *members(spec.get("sources"))]
                sources = [(mapping(source), inside(source, "kustomize")) for source in spec_sources]
        for number, (source, fields) in enumerate(sources):
            file = Path(os.path.realpath(document.file))
            root = _repository(file.parent)
            target = os.path.normpath(f"{root}/{source.get('path')}")
            own = {field: fields[field] for field in _DEPLOYED if fields.get(field)}
            if target not in kustomizations or not own:
                continue
            folder = str(
                Path(root, f".drawbridge-{sha256(f'{file}:{document.first_line}:{number}'.encode()).hexdigest()}")
            )
            listed = own.get("components")
            if isinstance(listed, list):
                own["components"] = [os.path.relpath(f"{target}/{component}", folder) for component in listed]
            value = {"resources": [os.path.relpath(target, folder)], **own}
            kustomization = _read_kustomization(
                folder, replace(document, object=value, file=str(file)), kustomizations, root
            )
            yield kustomization._replace(made=manifests.dump([value]))


def _read_kustomization(folder: str, document: Document, kustomizations: Collection[str], root: str) -> Kustomization:
    files, folders, missing = {document.file}, [], ""
    for key, text in _texts(document.object):
        if _REMOTE.match(text):
            missing = missing or text
            continue
        # Generators can also name a file as KEY=FILE.
        for name in (text, text.partition("=")[2]):
            path = os.path.normpath(Path(folder, name)) if name else ""
            is_file = os.path.isfile(path)  # noqa: PTH113  unlike Path.is_file, it takes a text that is longer than any name
            if (is_file or name.startswith("../")) and not Path(path).is_relative_to(root):
                missing = missing or text
            elif is_file:
                # Larger files are not copied, so the build fails and names them.
                if Path(path).stat().st_size <= MAX_BYTES:
                    files.add(path)
            elif path in kustomizations and path != folder:
                folders.append(path)
            elif name == text and key in _LISTS:
                missing = missing or text
    if link := next((path for path in sorted({*files, *folders}) if os.path.realpath(path) != path), ""):
        missing = missing or os.path.relpath(link, folder)
    return Kustomization(folder, document, frozenset(files), tuple(dict.fromkeys(folders)), missing)


def _texts(value: Object) -> Iterator[tuple[str, str]]:
    """Yield each text of one line that may be a path, and its field."""
    waiting = deque((key, inner) for key, inner in value.items() if key not in _NO_PATHS)
    while waiting:
        key, member = waiting.popleft()
        if isinstance(member, str) and member and not {"\n", "\0"} & set(member) and len(member) < 4096:
            yield key, member
        elif isinstance(member, dict):
            waiting += [(key, inner) for inner in member.values()]
        elif isinstance(member, list):
            waiting += [(key, inner) for inner in member]


class Trees:
    """The kustomizations around the files of a command, and their files that request devices."""

    def __init__(
        self,
        documents: Sequence[Document],
        others: Iterable[str],
        paths: Iterable[str],
        keys: re.Pattern[str],
        *,
        changed: bool = False,
    ) -> None:
        """With `changed`, leave out each kustomization in which no file that the command names requests devices."""
        self._known = find_kustomizations(paths)
        self._known |= {
            deployed_kustomization.folder: deployed_kustomization
            for deployed_kustomization in list(deployed_kustomizations(documents, self._known))
        }
        self._keys = keys
        self._texts: dict[str, str] = {}
        self._asking: dict[str, bool] = {}
        self._read: dict[str, list[Document]] = {os.path.realpath(file): [] for file in others}  # may be JSON patches
        self._around: dict[str, list[Document]] = {}  # files of kustomizations that the command does not name
        for document in documents:
            self._read.setdefault(os.path.realpath(document.file), []).append(document)
        # Group kustomizations that share a file with device requests: a group is edited as a whole, or not at all.
        groups: list[tuple[list[str], frozenset[str], frozenset[str]]] = []
        for folder in self._known:
            files = frozenset(
                file for kustomization in self._used_kustomizations(folder).values() for file in kustomization.files
            )
            requesting = frozenset(filter(self._requests_devices, files))
            if not requesting:
                continue
            members = [folder]
            for group in [group for group in groups if group[2] & requesting]:
                groups.remove(group)
                members, files, requesting = group[0] + members, files | group[1], requesting | group[2]
            groups.append((members, files, requesting))
        # A group without a file that the command names is not edited.
        self.groups = [
            (members, files)
            for members, files, requesting in groups
            if not (requesting if changed else files).isdisjoint(self._read)
        ]
        self.files = frozenset(file for _, files in self.groups for file in files)

    def _used_kustomizations(self, folder: str) -> dict[str, Kustomization]:
        """Return the kustomizations that go into the build of a folder."""
        used: dict[str, Kustomization] = {}
        waiting = [folder]
        while waiting:
            kustomization = self._known[waiting.pop()]
            if kustomization.folder not in used:
                used[kustomization.folder] = kustomization
                waiting += kustomization.folders
        return used

    def _requests_devices(self, file: str) -> bool:
        """Return whether a file contains a key of devices. The answer is cached, because many kustomizations use the same file."""
        if file not in self._asking:
            text = self._text(file)
            self._asking[file] = any(self._keys.match(text, match.start()) for match in _DOMAIN.finditer(text))
        return self._asking[file]

    def _text(self, file: str) -> str:
        if file not in self._texts:
            try:
                self._texts[file] = text_at(file) if Path(file).stat().st_size <= MAX_BYTES else ""
            except (OSError, UnicodeDecodeError):
                self._texts[file] = ""  # a binary file, such as a picture in a ConfigMap
        return self._texts[file]

    def _documents(self, file: str, known: Collection[str]) -> list[Document]:
        """Return the objects of a file that the command names or that is in `known`; none if it cannot be read."""
        if file not in self._read and file not in self._around:
            self._around[file] = []
            if file in known:
                with suppress(ManifestError, ValueError):
                    self._around[file] = manifests.read([file])
        return self._read.get(file) or self._around.get(file, [])

    def plan(self, folders: Sequence[str], files: Collection[str], translate: Translate) -> Plan:
        """Return an edit after which every build of a group equals the translation of its former build, or why there is no such edit."""
        used = {
            name: kustomization
            for folder in folders
            for name, kustomization in self._used_kustomizations(folder).items()
        }
        after: dict[str, str] = {}
        not_compared: list[InputProblem] = []
        try:
            parts = list(self._parts(used.values()))
            after, problems = self._edit(parts, translate, frozenset())
            uncomparable = self._uncomparable(used.values())
            if after or problems:
                problems = uncomparable or problems
            if not (problems or uncomparable) and builder():
                after, problems, not_compared = self._compared(parts, folders, files, translate)
        except ManifestError as error:
            problems = list(error.problems)
        edited = []
        for file, text in after.items():
            is_new = not Path(file).exists()
            edited.append(Edited(display_path(file), "" if is_new else self._text(file), text, root="/", is_new=is_new))
        unnamed = sorted(file for file in after if file not in self._read and Path(file).exists())
        return Plan(edited, problems, self._unnamed(unnamed, used.values()) if unnamed else [], not_compared)

    def _uncomparable(self, used: Iterable[Kustomization]) -> list[InputProblem]:
        """Return the first reason why builds before and after an edit cannot be compared."""
        for kustomization in used:
            if kustomization.missing:
                problem = (
                    f"{kustomization.missing} is not a file of this repository, so builds with it cannot be compared"
                )
                return [self._name_line(kustomization.document.file, kustomization.missing, problem)]
        for kustomization in () if builder() else used:
            for field in sorted(kustomization.document.object.keys() - _PLAIN):
                problem = f"{field} may change what is built, and neither kustomize nor kubectl is installed to compare the builds"
                return [self._name_line(kustomization.document.file, f"{field}:", problem)]
        return []

    def _unnamed(self, unnamed: Sequence[str], used: Iterable[Kustomization]) -> list[InputProblem]:
        """Return a problem: a file that the command names belongs to a kustomization, and other files would change with that file."""
        named_file, folder = next(
            (file, kustomization.folder)
            for kustomization in used
            for file in sorted(kustomization.files)
            if file in self._read
        )
        homes: list[str] = []
        for home in sorted({str(Path(file).parent) for file in unnamed}):
            if not any(Path(home).is_relative_to(above) for above in homes):
                homes.append(home)
        others = list_first([display_path(file) for file in unnamed], 3)
        verb = "changes" if len(unnamed) == 1 else "change"
        problem = f"belongs to the kustomization {display_path(folder)}/, in which {others} {verb}, too"
        options = " ".join(f"-f {shlex.quote(display_path(home))}" for home in homes)
        return [InputProblem(display_path(named_file), problem, f"pass `{options}` too")]

    def _compared(
        self, parts: Sequence[_EditedPart], folders: Sequence[str], files: Collection[str], translate: Translate
    ) -> tuple[dict[str, str], list[InputProblem], list[InputProblem]]:
        """Return the first edit whose builds are as expected; else the edit with the fewest wrong builds, and a problem for each of these.

        The last list has a problem for each kustomization that does not build, which the edit does not change.
        """
        meanings, keys, broken = self._expected_meanings(folders, files, translate)
        tries: list[tuple[dict[str, str], dict[str, str]]] = []
        for options in ((), (_REFERENCES,), ("no tolerations",), (_REFERENCES, "no tolerations")):
            after, problems = self._edit(parts, translate, frozenset(options))
            if problems:
                return after, problems, []
            wrong = self._compare(meanings, files, after)
            if not wrong:
                return after, [], [*self._not_compared(broken, after)]
            tries.append((after, wrong))
        after, wrong = min(tries, key=lambda attempt: len(attempt[1]))
        # Report the builds that would be wrong, and the lines with device requests that would stay.
        problems = [
            InputProblem(
                display_path(self._known[folder].document.file), problem, "edit the files of this kustomization by hand"
            )
            for folder, problem in wrong.items()
        ]
        concerned = {
            file
            for folder in wrong
            for kustomization in self._used_kustomizations(folder).values()
            for file in kustomization.files
        }
        for file in sorted(concerned & set(files)):
            stay = Counter(after.get(file, self._text(file)).split("\n"))
            problems += [
                line for line in self.lines_to_edit(file, keys) if self._text(file).split("\n")[line.line - 1] in stay
            ]
        return after, problems, []

    def _not_compared(self, broken: Mapping[str, ManifestError], after: Mapping[str, str]) -> Iterator[InputProblem]:
        """Yield the kustomizations that do not build, and the lines in them with device requests, which stay."""
        for folder, error in broken.items():
            file = self._known[folder].document.file
            why = f"{error.problems[0].message}: its objects before and after the edit were not compared"
            yield InputProblem(display_path(file), why, "build it elsewhere, and compare the objects")
            if file not in after:
                yield from self.lines_to_edit(file)

    # Editing

    def _parts(self, used: Iterable[Kustomization]) -> Iterator[_EditedPart]:
        """List the objects and patches of kustomizations; files that a generator stores as data are neither."""
        for kustomization in used:
            for field in () if kustomization.made else (*_LISTS[:2], *_PATCHES):
                for number, entry in enumerate(members(kustomization.document.object.get(field))):
                    path = entry.get("path") if isinstance(entry, dict) else entry
                    text = entry.get("patch") if isinstance(entry, dict) else entry
                    file = (
                        os.path.normpath(Path(kustomization.folder, path))
                        if isinstance(path, str) and "\n" not in path
                        else ""
                    )
                    if documents := self._documents(file, kustomization.files):
                        yield _EditedPart(kustomization, file, "", documents, field in _PATCHES)
                    elif field in _PATCHES and isinstance(text, str) and (isinstance(entry, dict) or "\n" in text):
                        pointer = f"/{field}/{number}" + ("/patch" if isinstance(entry, dict) else "")
                        with suppress(ManifestError):  # a JSON patch
                            patches = manifests.parse(text, kustomization.document.file)
                            yield _EditedPart(kustomization, "", pointer, patches, is_patch=True)

    def _edit(
        self, parts: Iterable[_EditedPart], translate: Translate, options: frozenset[str]
    ) -> tuple[dict[str, str], list[InputProblem]]:
        """Return the new texts of all files that a translation of these parts changes, and the problems of files that cannot be edited."""
        after: dict[str, str] = {}
        problems: list[InputProblem] = []
        new_templates: dict[str, list[Object]] = {}  # the templates that the patches of a kustomization need
        operations: dict[str, list[Object]] = {}
        references: dict[str, set[tuple[str, str]]] = {}
        for part in parts:
            home = part.home
            results = [
                _named_by_object(result, os.path.relpath(part.file or home.document.file, home.folder) + part.pointer)
                for result in translate(part.documents)
                if result.translation.changed
            ]
            if not results:
                continue
            for result in results:
                for change in result.translation.operations:
                    path, separator, _ = change["path"].partition("/resourceClaims")
                    if separator:
                        field = re.sub(r"/\d+(?=/)", "", f"{path}/resourceClaims/resourceClaimTemplateName")
                        fields = references.setdefault(home.folder, set())
                        fields.add((str(result.object.get("kind")), field.lstrip("/")))
            if part.is_patch:
                # A patch cannot contain templates, so they go into a file of their own.
                # The tolerations of a patch may replace those of the object.
                new_templates.setdefault(home.folder, []).extend(
                    template for result in results for template in result.templates
                )
                results = [_patch_result(result, tolerations="no tolerations" not in options) for result in results]
            where = part.file or home.document.file
            if where in after and not part.pointer:
                continue
            old = resolve_pointer(home.document.object, part.pointer) if part.pointer else self._text(where)
            try:
                text = _edited(display_path(where), old, results)
            except ManifestError as error:
                problems += error.problems
                continue
            if part.pointer:
                new = text.rstrip("\n") + old[len(old.rstrip("\n")) :]
                operation = {"op": "replace", "path": part.pointer, "value": new}
                operations.setdefault(home.folder, []).append(operation)
            else:
                after[where] = text
        for folder, templates in new_templates.items():
            file = str(Path(folder, _TEMPLATES))
            before = f"{self._text(file).rstrip()}\n---\n" if Path(file).exists() else ""
            after[file] = before + manifests.dump(templates)
            operations.setdefault(folder, []).extend(self._listing(folder, "resources", _TEMPLATES))
        for folder, fields in references.items() if _REFERENCES in options else ():
            paths = [{"kind": kind, "path": path} for kind, path in sorted(fields)]
            reference = {"kind": _TEMPLATE, "group": "resource.k8s.io", "fieldSpecs": paths}
            after[str(Path(folder, _REFERENCES))] = manifests.dump([{"nameReference": [reference]}])
            operations.setdefault(folder, []).extend(self._listing(folder, "configurations", _REFERENCES))
        for folder, folder_operations in operations.items():
            document = self._known[folder].document
            if folder_operations:
                changed = PodVerdict(operations=tuple(folder_operations))
                result = Result("", document, changed, apply_json_patch(document.object, changed.operations))
                try:
                    after[document.file] = _edited(display_path(document.file), self._text(document.file), [result])
                except ManifestError as error:
                    problems += error.problems
        return after, problems

    def _listing(self, folder: str, field: str, name: str) -> Iterator[Object]:
        """Add a file to a field of a kustomization, unless the field has it."""
        listed = self._known[folder].document.object.get(field)
        if not listed:
            yield {"op": "add", "path": f"/{field}", "value": [name]}
        elif name not in listed:
            yield {"op": "add", "path": f"/{field}/-", "value": name}

    # Comparing

    def _expected_meanings(
        self, folders: Sequence[str], files: Collection[str], translate: Translate
    ) -> tuple[dict[str, tuple[frozenset[str], Meaning]], set[str], dict[str, ManifestError]]:
        """Return the expected meaning (`_meaning`) of each build, the keys with which the builds request devices, and why some do not build.

        Raises ManifestError if none builds. A base of other kustomizations need not be buildable by itself.
        """
        meanings = {}
        keys: set[str] = set()
        broken: dict[str, ManifestError] = {}
        with self._copied(files, {}) as copy:
            for folder in folders:
                if self._known[folder].document.object.get("kind") == "Component":
                    continue
                try:
                    built = self._build(copy, folder)
                except ManifestError as error:
                    broken[folder] = error
                    continue
                results = translate(built)
                keys |= {decision.key for result in results for decision in result.translation.decisions}
                template_names = frozenset(
                    name_of(document.object) for document in built if document.object.get("kind") == _TEMPLATE
                )
                meanings[folder] = (
                    template_names,
                    _meaning([obj for result in results for obj in (*result.templates, result.object)], template_names),
                )
        if broken and not meanings:
            raise next(iter(broken.values()))
        used = {folder for other in meanings for folder in self._used_kustomizations(other)}
        return meanings, keys - {""}, {folder: why for folder, why in broken.items() if folder not in used}

    def _compare(
        self, expected: Mapping[str, tuple[frozenset[str], Meaning]], files: Collection[str], after: Mapping[str, str]
    ) -> dict[str, str]:
        """Return a problem for each folder whose build from the edited files has not the expected meaning."""
        wrong = {}
        with self._copied(files, after) as copy:
            for folder, (template_names, meaning) in expected.items():
                try:
                    now = _meaning([document.object for document in self._build(copy, folder)], template_names)
                except ManifestError as error:
                    wrong[folder] = (
                        f"the kustomization cannot be built from the edited files: {error.problems[0].message}"
                    )
                    continue
                if different := sorted((meaning - now) + (now - meaning)):
                    wrong[folder] = f"{different[0][0]}, built from the edited files, would differ from its translation"
        return wrong

    def _build(self, copy: str, folder: str) -> list[Document]:
        name = display_path(self._known[folder].document.file)
        try:
            return manifests.parse(build_offline(copy + folder, name), name)
        except ManifestError as error:
            raise ManifestError(
                replace(problem, message=problem.message.replace(copy, "")) for problem in error.problems
            ) from error

    @contextmanager
    def _copied(self, files: Collection[str], after: Mapping[str, str]) -> Iterator[str]:
        """Copy files to a temporary folder for a build. `after` has the texts that replace their content."""
        texts = {file: text.encode() for file, text in after.items()}
        texts |= {
            f"{kustomization.folder}/{_NAMES[0]}": kustomization.made.encode()
            for kustomization in self._known.values()
            if kustomization.made
        }
        with tempfile.TemporaryDirectory() as copy:
            for file in {*files, *texts}:
                target = Path(copy + file)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(texts[file] if file in texts else Path(file).read_bytes())
            yield copy

    # Reporting

    def _name_line(self, file: str, token: str, problem: str) -> InputProblem:
        """Return a problem at the first line of a file that contains a word."""
        numbers = (number for number, line in enumerate(self._text(file).split("\n"), 1) if token in line)
        return InputProblem(display_path(file), problem, "", next(numbers, 0))

    def left_to_charts(self, translate: Translate) -> Iterator[InputProblem]:
        """Yield the lines of charts and of Helm values that request devices. These files are not edited."""
        # Folders of charts that an object of Argo CD or Flux renders with values of its own.
        chart_folders: set[str] = set()
        for file, documents in self._read.items():
            for document in documents:
                spec = mapping(document.object.get("spec"))
                paths: list[object] = []
                match document.object.get("kind"):
                    case "HelmRelease" if spec.keys() & {"values", "valuesFrom"}:
                        paths.append(inside(spec, "chart", "spec").get("chart"))
                    case "Application":
                        sources = [spec.get("source"), *members(spec.get("sources"))]
                        paths += [mapping(source).get("path") for source in sources if mapping(source).get("helm")]
                chart_folders.update(os.path.normpath(f"{_repository(Path(file).parent)}/{path}") for path in paths)
        for chart in sorted({chart_of(file) for file in self._read} - {""}):
            keys: set[str] = set()
            with suppress(ManifestError):  # helm is not installed, or the chart needs values
                results = translate(manifests.parse(text_of(f"{CHART}{chart}")[0], chart))
                keys = {decision.key for result in results for decision in result.translation.decisions if decision.key}
                if not keys and chart not in chart_folders:
                    continue
            files = (Path(parent, name) for parent, _, names in manifests.walk(chart) for name in sorted(names))
            files = (file for file in files if file.suffix in _OF_CHARTS and not file.match(_UNIT_TESTS))
            lines = [line for file in files for line in self.lines_to_edit(str(file), keys)]
            if keys and not lines:
                lines = [
                    InputProblem(
                        display_path(f"{chart}/Chart.yaml"),
                        f"this chart renders to {min(keys)}",
                        "edit the chart by hand",
                    )
                ]
            yield from lines
        for file, documents in self._read.items():
            # Values of a chart, or an object that contains values.
            holds_values = any(
                "kind" not in document.object or str(document.object["kind"]) in _HOLDING_VALUES
                for document in documents
            )
            if file not in self.files and holds_values and not chart_of(file):
                yield from self.lines_to_edit(file)

    def lines_to_edit(self, file: str, keys: Collection[str] = ()) -> list[InputProblem]:
        """Return the lines of a file that request devices, by these keys or by any."""
        problems = []
        suffix = ""
        if file not in self.files:
            suffix = " in a Helm template" if is_of_chart(file) else " in Helm values"
        for number, line in enumerate(self._text(file).split("\n"), 1):
            match = self._keys.search(line)
            key = match.group().replace("~1", "/") if match and not _NOTHING.match(line, match.end()) else ""
            if key and (key in keys or not keys) and not line.lstrip().startswith("#"):
                problems.append(
                    InputProblem(display_path(file), f"{key}{suffix} is not rewritten", "change it by hand", number)
                )
        return problems


def _edited(file: str, text: str, results: Sequence[Result]) -> str:
    try:
        return edit_text(text, results)
    except CannotEdit as error:
        remedy = "edit the file by hand, or remove what prevents the edit"
        line = results[0].document.line if len(results) == 1 else 0
        raise ManifestError([InputProblem(file, f"cannot be edited in place: {error}", remedy, line)]) from error


def _patch_result(result: Result, *, tolerations: bool) -> Result:
    """Remove templates from a translated patch, and tolerations unless they are wanted."""
    operations = result.translation.operations
    if not tolerations:
        operations = tuple(operation for operation in operations if "/tolerations" not in operation["path"])
    obj = apply_json_patch(result.document.object, operations)
    return replace_fields(
        result, translation=replace_fields(result.translation, operations=operations), object=obj, templates=()
    )


def with_own_templates(results: Sequence[Result], documents: Iterable[Document]) -> list[Result]:
    """Give each file the templates that its objects need, each once.

    If two files need the same template, each gets a copy named after its object.
    """
    templates = [(document.object, document.file) for document in documents if document.object.get("kind") == _TEMPLATE]
    present = {(name_of(template), file) for template, file in templates}
    # Templates are compared by content, because an interrupted run may have named some of them after their objects.
    holders: dict[bytes, set[str]] = {}
    for template, file in [
        *templates,
        *((template, result.document.file) for result in results for template in result.templates),
    ]:
        holders.setdefault(_encoded_spec(template), set()).add(file)
    separate = []
    for result in results:
        file = result.document.file
        if any(len(holders[_encoded_spec(template)]) > 1 for template in result.templates):
            result = _named_by_object(result, Path(file).name)  # noqa: PLW2901
        new = tuple(template for template in result.templates if (name_of(template), file) not in present)
        present.update((name_of(document), file) for document in new)
        separate.append(replace_fields(result, templates=new))
    return separate


def _encoded_spec(template: Object) -> bytes:
    return msgspec.json.encode(template.get("spec"), order="deterministic")


def _named_by_object(result: Result, source: str) -> Result:
    """Name the templates of an object after the object and its place, so that they are unique in every build."""
    metadata = result.object.get("metadata")
    name = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
    owner = f"{name[:200]}-" if re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) else ""
    names = {}
    for template in result.templates:
        old = template["metadata"]["name"]
        digest = sha256(f"{old}\n{result.object.get('kind')}\n{source}".encode()).hexdigest()[:_DIGITS]
        names[old] = f"{owner}{old.rpartition('-')[0]}-{digest}"
    operations = tuple(_renamed(operation, names) for operation in result.translation.operations)
    translation = replace_fields(result.translation, operations=operations)
    templates = tuple(_renamed(template, names) for template in result.templates)
    return replace_fields(result, translation=translation, object=_renamed(result.object, names), templates=templates)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a copy with new names in place of the texts that are old names."""
    if isinstance(value, dict):
        return {key: _renamed(member, names) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def _meaning(objects: Iterable[Object], template_names: Collection[str]) -> Meaning:
    """Return objects in a form to compare: with the content of templates in place of their names, and without new templates."""
    all_objects = list(objects)
    templates = {name_of(obj): obj.get("spec") for obj in all_objects if obj.get("kind") == _TEMPLATE}

    def resolved(value: Any, namespace: str) -> Any:
        if isinstance(value, list):
            return [resolved(item, namespace) for item in value]
        if not isinstance(value, dict):
            return value
        plain = {}
        for key, member in value.items():
            if key == "resourceClaimTemplateName":
                plain[key] = templates.get(f"{_TEMPLATE}/{namespace}/{member}", member)
            elif key not in ANNOTATIONS:
                plain[key] = resolved(member, namespace)
        return {key: member for key, member in plain.items() if not (key in _EMPTY and member in ({}, None))}

    return Counter(
        (name_of(obj), msgspec.json.encode(resolved(obj, namespace_of(obj)), order="deterministic").decode())
        for obj in all_objects
        if obj.get("kind") != _TEMPLATE or name_of(obj) in template_names
    )


def display_path(file: str) -> str:
    """Return a path for messages: relative to the working directory if the file is below that directory."""
    name = os.path.relpath(file)
    return file if name.startswith("..") else name
