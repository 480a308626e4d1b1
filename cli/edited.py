"""`translate --in-place`: edits files so that only the lines of the translation change.

New templates precede the object that needs them. A file is edited completely or not at all: the new text is written to a
temporary file in the same folder, which then replaces the old file atomically.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from contextlib import ExitStack, contextmanager, suppress
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from cluster import manifests
from cluster.manifests import CannotEdit, Document, edit
from cluster.patch import apply_json_patch
from dra.pointer import split
from dra.raw import Object
from webhook.names import ANNOTATIONS
from webhook.translate import PodVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_BYTE_ORDER_MARK = "\ufeff"
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Result(msgspec.Struct, frozen=True):
    """One object as read and as translated, and the templates that must precede it."""

    name: str
    document: Document
    translation: PodVerdict
    object: Object
    templates: tuple[Object, ...] = ()
    foretold: tuple[Any, ...] = ()  # what quotas would answer (`analysis.quota.Foretold`)
    requests: bool = False  # requests devices (`analysis.requesting`)
    is_own: bool = True  # not created by a controller, and not an agent of a node


class Edited(NamedTuple):
    """A file before and after, or why it cannot be edited."""

    path: str
    before: str
    after: str
    problem: str = ""
    line: int = 0
    root: str = ""  # symbolic links must not lead out of this folder
    is_new: bool = False
    is_removed: bool = False


def without_record(result: Result) -> Result:
    """Return the result without the annotations that record a translation: files have a history, and a later patch would falsify the record."""
    operations = []
    for operation in result.translation.operations:
        *_, last = split(operation["path"])
        value: Any = operation.get("value", {})
        if last == "metadata":
            value = value["annotations"]
        if last in {"metadata", "annotations"} and value.keys() & set(ANNOTATIONS):
            remaining = {key: text for key, text in value.items() if key not in ANNOTATIONS}
            if remaining:
                operations.append(
                    {**operation, "value": {"annotations": remaining} if last == "metadata" else remaining}
                )
        elif last not in ANNOTATIONS or operation["op"] == "remove":
            operations.append(operation)
    changed = replace(result.translation, operations=tuple(operations))
    obj = apply_json_patch(result.document.object, changed.operations)
    return replace(result, translation=changed, object=obj)


def edit_files(results: Iterable[Result]) -> list[Edited]:
    """Edit every file in which an object changes."""
    by_file: dict[str, list[Result]] = {}
    for result in results:
        by_file.setdefault(result.document.file, []).append(result)
    edited: list[Edited] = []
    for path, group in by_file.items():
        changing = [without_record(result) for result in group if result.translation.changed]
        if not changing:
            continue
        if not Path(path).is_file():
            edited.append(Edited(path, "", "", "not a regular file"))
            continue
        root = group[0].document.root or str(Path(path).resolve().parent)
        before = text_at(path, root)
        try:
            edited.append(Edited(path, before, edit_text(before, changing), root=root))
        except CannotEdit as error:
            edited.append(Edited(path, before, before, str(error), error.line))
    return edited


def text_at(path: str, root: str = "/") -> str:
    """Return the text of a regular file below a folder."""
    with manifests.opened_folder(path, root) as (folder, name):
        return _text_of(name, folder)[0]


def edit_text(text: str, results: Sequence[Result]) -> str:
    """Replace the lines of translated documents; raise CannotEdit."""
    lines = lines_of(text)
    # From the last document to the first, so that the line numbers of those not yet edited stay valid.
    for result in reversed(results):
        try:
            _edit(lines, result)
        except CannotEdit as error:
            error.line = result.document.line
            raise
    return "".join(lines)


def lines_of(text: str) -> list[str]:
    """Split at line feeds only, as the YAML reader counts lines."""
    parts = text.split("\n")
    ended = [f"{part}\n" for part in parts[:-1]]
    return [*ended, parts[-1]] if parts[-1] else ended


def _edit(lines: list[str], result: Result) -> None:
    """Replace the lines of one document by its templates and its translation; raise CannotEdit."""
    document = result.document
    if document.is_item:
        raise CannotEdit("the object is an item of a List")
    first = document.first_line - 1
    last = first + document.line_count
    old_text = "".join(lines[first:last])
    text = old_text.removeprefix(_BYTE_ORDER_MARK)
    if document.is_json:
        raise CannotEdit("the object is JSON, not YAML")
    if not document.is_text(text):
        raise _changed_meanwhile(document.file)
    edited = edit(text, result.translation.operations, result.object)
    templates = "".join(f"{manifests.dump([template])}---\n" for template in result.templates)
    if "\r\n" in text:
        templates = templates.replace("\n", "\r\n")
    mark = old_text[: len(old_text) - len(text)]
    lines[first:last] = lines_of(mark + templates + edited)


def diff(edited: Edited) -> Iterator[str]:
    """Write a diff that `git apply` and `patch -p1` accept."""
    # The path relative to the working directory, or absolute without its slash.
    name = os.path.relpath(edited.path)
    if name.startswith(".."):
        name = str(Path(edited.path).absolute()).lstrip("/")
    before, after = lines_of(edited.before), lines_of(edited.after)
    if before == after:
        return
    yield f"diff --git a/{name} b/{name}\n"
    if edited.is_new:
        yield "new file mode 100644\n"
    for line in unified_diff(before, after, "/dev/null" if edited.is_new else f"a/{name}", f"b/{name}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def write(edits: Sequence[Edited]) -> None:
    """Write all new texts to disk, then replace the files; if one file cannot be replaced, restore all others.

    A file keeps its mode; a symbolic link stays, and its target is written.
    """
    with ExitStack() as stack:
        opened_files = [(edited, *stack.enter_context(_opened_folder(edited))) for edited in edits]
        new = f".{secrets.token_hex(8)}"
        for edited, folder, name in opened_files:  # temporary files of a killed run
            for leftover in Path(os.path.realpath(edited.path)).parent.iterdir():
                if re.fullmatch(rf"\.{re.escape(name)}\.[0-9a-f]{{16}}", leftover.name):
                    _remove(leftover.name, folder)
        ready = [opened for opened in opened_files if opened[0].before != opened[0].after or opened[0].is_removed]
        for edited, folder, name in ready:
            handle = os.open(f".{name}{new}", _CREATE, 0o666 if edited.is_new else 0o600, dir_fd=folder)
            stack.callback(_remove, f".{name}{new}", folder)
            with _with_file_name(edited), os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(edited.after)
                file.flush()
                os.fsync(file.fileno())
                if not edited.is_new:
                    now, mode = _text_of(name, folder)
                    if now != edited.before:
                        raise _changed_meanwhile(edited.path)
                    os.fchmod(file.fileno(), mode)
        replaced: list[Edited] = []
        try:
            for edited, folder, name in ready:
                if edited.is_new:
                    os.link(f".{name}{new}", name, src_dir_fd=folder, dst_dir_fd=folder)
                elif edited.is_removed:
                    os.unlink(name, dir_fd=folder)
                else:
                    os.replace(f".{name}{new}", name, src_dir_fd=folder, dst_dir_fd=folder)
                replaced.append(edited)
        except BaseException as error:
            for edited in replaced:
                back = edited._replace(
                    before=edited.after, after=edited.before, is_new=edited.is_removed, is_removed=edited.is_new
                )
                try:
                    write([back])
                except OSError as other:
                    why = f"{other.strerror}: the file stays edited; run translate --undo"
                    raise OSError(other.errno, why, edited.path) from error
            raise


@contextmanager
def _with_file_name(edited: Edited) -> Iterator[None]:
    """Add the file name to errors without one, such as the error of a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or edited.path
        raise


def _remove(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


@contextmanager
def _opened_folder(edited: Edited) -> Iterator[tuple[int, str]]:
    """Open the folder of a file that may be new."""
    if not edited.is_new:
        with manifests.opened_folder(edited.path, edited.root) as opened:
            yield opened
        return
    with manifests.opened_folder(str(Path(edited.path).parent), edited.root) as (above, name):
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        try:
            yield folder, Path(edited.path).name
        finally:
            os.close(folder)


def _changed_meanwhile(path: str) -> OSError:
    return FileExistsError(errno.EEXIST, "the file changed during the command: run it again", path)


def _text_of(name: str, folder: int) -> tuple[str, int]:
    """Return the text and mode of a regular file. Follows no symbolic link and never blocks on a pipe."""
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(handle, encoding="utf-8", newline="") as file:
        mode = os.fstat(handle).st_mode
        return file.read() if stat.S_ISREG(mode) else "", stat.S_IMODE(mode)
