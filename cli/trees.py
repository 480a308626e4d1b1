"""Trees of YAML files: the kustomizations of a repository, their files, and their builds before and after an edit.

This module does not compute the result of a kustomization. The user's own kustomize or kubectl builds it from copies of its files, without
plugins, Helm or the network.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.gitops import FOLDERS, NAMES, PATCHES, sources_of
from cli.edited import Edited, text_at
from cli.files import kustomizations_in, repository_of
from cli.outside import MAX_BYTES, build_offline
from cluster import manifests
from cluster.manifests import Document, InputProblem, ManifestError
from dra.pointer import values_in
from dra.raw import members

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

_DEPLOYED: Final = ("namePrefix", "nameSuffix", "namespace", "patches", "components")


class Kustomization(NamedTuple):
    """A kustomization that the command names or that is in the same repository, and the existing files that it names."""

    folder: str
    document: Document
    files: frozenset[str]  # all files that it names, and its own
    folders: tuple[str, ...]
    outside: str  # the first path that leads out of the repository
    made: str = ""  # the text, if Argo CD or Flux generate the kustomization


class Group(NamedTuple):
    """Kustomizations that share a file to edit. A group is edited as a whole, or not at all."""

    folders: tuple[str, ...]
    files: frozenset[str]


class Part(NamedTuple):
    """Objects, or patches, in one text of a kustomization: in a file, or in a field of the kustomization itself.

    A JSON patch has no documents.
    """

    home: Kustomization
    file: str
    pointer: str  # of the field
    documents: list[Document]
    is_patch: bool


def find_kustomizations(paths: Iterable[str]) -> dict[str, Kustomization]:
    """Read every kustomization that may use these files: those of their repository, or else those below the named paths."""
    roots: dict[str, str] = {}
    for path in paths:
        resolved = Path(os.path.realpath(path))
        folder = resolved if resolved.is_dir() else resolved.parent
        root = str(repository_of(folder))
        # The folder of a file outside a repository may contain other users' files, so its subfolders are skipped.
        is_ours = folder == resolved or Path(root, ".git").exists()
        for parent, folders, files in manifests.walk(root):
            folders[:] = sorted(name for name in folders if is_ours and name not in manifests.FOREIGN_FOLDERS)
            if not set(NAMES).isdisjoint(files):
                roots.setdefault(parent, root)
    documents = {str(Path(document.file).parent): document for document in kustomizations_in(map(Path, roots))}
    return {
        folder: _read_kustomization(folder, document, documents, roots[folder])
        for folder, document in documents.items()
    }


def deployed_kustomizations(documents: Iterable[Document], kustomizations: Collection[str]) -> Iterator[Kustomization]:
    """Yield a kustomization for each object of Argo CD and Flux that builds a folder with options of its own."""
    for document in documents:
        for number, source in enumerate(sources_of(document.object)):
            file = os.path.realpath(document.file)
            root = str(repository_of(Path(file).parent))
            target = os.path.normpath(f"{root}/{source.path}")
            own = {field: source.options[field] for field in _DEPLOYED if source.options.get(field)}
            if target not in kustomizations or not own:
                continue
            place = f"{file}:{document.first_line}:{number}"
            folder = str(Path(root, f".drawbridge-{sha256(place.encode()).hexdigest()}"))
            if components := members(own.get("components")):
                own["components"] = [os.path.relpath(f"{target}/{component}", folder) for component in components]
            value = {"resources": [os.path.relpath(target, folder)], **own}
            made = replace(document, object=value, file=file)
            kustomization = _read_kustomization(folder, made, kustomizations, root)
            yield kustomization._replace(made=manifests.dump([value]))


def _read_kustomization(folder: str, document: Document, kustomizations: Collection[str], root: str) -> Kustomization:
    """Find the paths among the texts of a kustomization. A file that is a link, or too large, is not copied, so the build names it."""
    files, folders, outside = {document.file}, [], ""
    all_texts = [value for _, value in values_in(document.object) if isinstance(value, str)]
    # A path is one line.
    for text in [text for text in all_texts if not {"\n", "\0"} & set(text)]:
        # Generators can also name a file as KEY=FILE.
        for name in (text, text.partition("=")[2]):
            path = os.path.normpath(Path(folder, name)) if name else folder
            is_file = os.path.isfile(path)  # noqa: PTH113  unlike Path.is_file, it takes a text that is longer than any name
            if not Path(path).is_relative_to(root):
                outside = outside or (text if is_file or name.startswith("../") else "")
            elif is_file and os.path.realpath(path) == path and Path(path).stat().st_size <= MAX_BYTES:
                files.add(path)
            elif path in kustomizations and path != folder:
                folders.append(path)
    return Kustomization(folder, document, frozenset(files), tuple(dict.fromkeys(folders)), outside)


class Trees:
    """The kustomizations around the files of a command."""

    def __init__(self, documents: Iterable[Document], others: Iterable[str], paths: Iterable[str]) -> None:
        """Read the kustomizations; `others` are named files without an object."""
        self.known = find_kustomizations(paths)
        # The documents of the files that the command names, and of further files; those of JSON patches have none.
        self.named: dict[str, list[Document]] = {os.path.realpath(file): [] for file in others}
        self._around: dict[str, list[Document]] = {}
        self._texts: dict[str, str] = {}
        for document in documents:
            self.named.setdefault(os.path.realpath(document.file), []).append(document)
        named_documents = [document for of_file in self.named.values() for document in of_file]
        for kustomization in [*deployed_kustomizations(named_documents, self.known)]:
            self.known[kustomization.folder] = kustomization

    def groups(self, concerns: Callable[[str], bool]) -> list[Group]:
        """Group the kustomizations with a named file whose text `concerns` the command."""
        concerned: dict[str, bool] = {}
        groups: list[tuple[Group, frozenset[str]]] = []
        for folder in self.known:
            files = self.files_of(folder)
            for file in files - concerned.keys():
                concerned[file] = concerns(self.text(file))
            shared = frozenset(file for file in files if concerned[file])
            if not shared:
                continue
            group = Group((folder,), files)
            for other in [other for other in groups if other[1] & shared]:
                groups.remove(other)
                group, shared = Group(other[0].folders + group.folders, other[0].files | group.files), shared | other[1]
            groups.append((group, shared))
        return [group for group, shared in groups if not shared.isdisjoint(self.named)]

    def add(self, file: str, text: str) -> None:
        """Add the files and folders that another text of a kustomization names, which may be a new one."""
        folder = str(Path(file).parent)
        document = replace(manifests.parse(text, file)[0], file=file)
        new = _read_kustomization(folder, document, self.known, str(repository_of(Path(folder))))
        old = self.known.get(folder, new)
        folders = tuple(dict.fromkeys((*old.folders, *new.folders)))
        self.known[folder] = old._replace(files=old.files | new.files, folders=folders)

    def files_of(self, folder: str) -> frozenset[str]:
        """Return the files that go into the build of a folder."""
        return frozenset(file for used in self.used(folder).values() for file in used.files)

    def used(self, folder: str) -> dict[str, Kustomization]:
        """Return the kustomizations that go into the build of a folder."""
        used: dict[str, Kustomization] = {}
        waiting = [folder]
        while waiting:
            kustomization = self.known[waiting.pop()]
            if kustomization.folder not in used:
                used[kustomization.folder] = kustomization
                waiting += kustomization.folders
        return used

    def text(self, file: str) -> str:
        """Return the text of a file; "" if it cannot be read, such as a picture in a ConfigMap."""
        if file not in self._texts:
            self._texts[file] = ""
            with suppress(OSError, UnicodeDecodeError):
                self._texts[file] = text_at(file) if Path(file).stat().st_size <= MAX_BYTES else ""
        return self._texts[file]

    def parts(self, group: Group) -> Iterator[Part]:
        """List the objects and patches of a group; files that a generator stores as data are neither."""
        for kustomization in {
            name: used for folder in group.folders for name, used in self.used(folder).items()
        }.values():
            for field in () if kustomization.made else (*FOLDERS, *PATCHES):
                for number, entry in enumerate(members(kustomization.document.object.get(field))):
                    path, text = (entry.get("path"), entry.get("patch")) if isinstance(entry, dict) else (entry, entry)
                    file = os.path.normpath(Path(kustomization.folder, str(path)))
                    documents = self._documents(file, kustomization.files)
                    if documents or (field in PATCHES and file in kustomization.files):
                        yield Part(kustomization, file, "", documents, field in PATCHES)
                    elif field in PATCHES and isinstance(text, str):
                        pointer = f"/{field}/{number}" + ("/patch" if isinstance(entry, dict) else "")
                        with suppress(ManifestError):  # a JSON patch
                            documents = manifests.parse(text, kustomization.document.file)
                        yield Part(kustomization, kustomization.document.file, pointer, documents, is_patch=True)

    def _documents(self, file: str, known: Collection[str]) -> list[Document]:
        """Return the objects of a file that the command names or that is in `known`; none if it cannot be read."""
        if file not in self.named and file not in self._around:
            self._around[file] = []
            if file in known:
                with suppress(ManifestError, ValueError):
                    self._around[file] = manifests.read([file])
        return self.named.get(file) or self._around.get(file, [])

    def edits(self, after: Mapping[str, str]) -> list[Edited]:
        """Return the edits that give files these texts."""
        return [
            Edited(display_path(file), self.text(file), text, root="/", is_new=not Path(file).exists())
            for file, text in after.items()
            if text != self.text(file)
        ]

    def build(
        self, folders: Collection[str], after: Mapping[str, str | None]
    ) -> tuple[dict[str, list[Document]], dict[str, ManifestError]]:
        """Build kustomizations from copies of their files; `after` has other texts of some, None for none.

        Return the objects by folder, and by folder the reason why it cannot be built.
        """
        texts = {file: text.encode() for file, text in after.items() if text is not None}
        files: set[str] = set()
        for kustomization in [used for folder in folders for used in self.used(folder).values()]:
            files |= kustomization.files
            if kustomization.made:
                texts[f"{kustomization.folder}/{NAMES[0]}"] = kustomization.made.encode()
        built: dict[str, list[Document]] = {}
        broken: dict[str, ManifestError] = {}
        with tempfile.TemporaryDirectory() as copy:
            for file in {*files, *texts} - (after.keys() - texts.keys()):
                target = Path(copy + file)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(texts[file] if file in texts else Path(file).read_bytes())
            for folder in folders:
                if self.known[folder].document.object.get("kind") != "Component":
                    try:
                        built[folder] = self._build(copy, folder)
                    except ManifestError as error:
                        broken[folder] = error
        return built, broken

    def _build(self, copy: str, folder: str) -> list[Document]:
        for kustomization in self.used(folder).values():
            if kustomization.outside:  # the path would lead out of the copy, too
                file, text = kustomization.document.file, kustomization.outside
                numbers = (number for number, line in enumerate(self.text(file).split("\n"), 1) if text in line)
                why = f"{text} is outside of the repository"
                raise ManifestError([InputProblem(display_path(file), why, "", next(numbers, 0))])
        name = display_path(self.known[folder].document.file)
        try:
            return manifests.parse(build_offline(copy + folder, name), name)
        except ManifestError as error:
            raise ManifestError(
                replace(problem, message=problem.message.replace(copy, "")) for problem in error.problems
            ) from error


def display_path(file: str) -> str:
    """Return a path for messages: relative to the working directory if the file is below that directory."""
    name = os.path.relpath(file)
    return file if name.startswith("..") else name
