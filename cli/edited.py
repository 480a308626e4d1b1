"""The editor of YAML files: writes wanted values of documents, so that only the lines of their changes change.

A file is edited completely or not at all: the new text is written to a temporary file in the same folder, which then replaces the
old file atomically.
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
from typing import TYPE_CHECKING, NamedTuple

from cluster import manifests
from cluster.manifests import CannotEdit, Document, InputProblem, ManifestError, edit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dra.raw import Object

_BYTE_ORDER_MARK = "\ufeff"
_SEPARATOR = re.compile(r"---\s*(#|$)")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Change(NamedTuple):
    """A document as it is wanted, and the new objects that must precede it; `wanted` is None where the document goes."""

    document: Document
    wanted: Object | None
    new: Sequence[Object] = ()


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


def edit_file(path: str, changes: Sequence[Change]) -> Edited:
    """Edit the documents of one file. Raises ManifestError if this is not possible."""
    if not Path(path).is_file():
        raise _not_editable(path, "this is not a regular file")
    root = changes[0].document.root or str(Path(path).resolve().parent)
    before = text_at(path, root)
    return Edited(path, before, edit_text(path, before, changes), root=root)


def text_at(path: str, root: str = "/") -> str:
    """Return the text of a regular file below a folder."""
    with manifests.opened_folder(path, root) as (folder, name):
        return _text_of(name, folder)[0]


def edit_text(path: str, text: str, changes: Sequence[Change]) -> str:
    """Edit documents of a text that a file contains. Raises ManifestError if this is not possible."""
    lines = lines_of(text)
    # From the last document to the first, so that the line numbers of those not yet edited stay valid.
    for change in reversed(changes):
        try:
            _edit(lines, change)
        except CannotEdit as error:
            raise _not_editable(path, str(error), change.document.line) from error
    return "".join(lines)


def new_text(objects: Sequence[Object], like: Document | None = None) -> str:
    """Write the text of a new file. If there is a document `like`, the only object gets its header, order and style, without its comment lines."""
    if like is not None:
        lines = lines_of(like.text)
        begin = next(number for number, line in enumerate(lines) if line.strip() and not line.startswith("#"))
        body = "".join([line for line in lines[begin:] if line.strip() and not line.lstrip().startswith("#")])
        with suppress(CannotEdit):
            separator = "---\n" if like.first_line > 1 else ""
            return separator + "".join(lines[:begin]) + edit(body, objects[0])
    return manifests.dump(objects)


def _not_editable(path: str, why: str, line: int = 0) -> ManifestError:
    remedy = "edit the file by hand; `-o yaml` prints its translation"
    return ManifestError([InputProblem(path, f"cannot be edited in place: {why}", remedy, line)])


def lines_of(text: str) -> list[str]:
    """Split at line feeds only, as the YAML reader counts lines."""
    parts = text.split("\n")
    ended = [f"{part}\n" for part in parts[:-1]]
    return [*ended, parts[-1]] if parts[-1] else ended


def _edit(lines: list[str], change: Change) -> None:
    """Replace the lines of one document; raise CannotEdit."""
    document = change.document
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
    if change.wanted is None:
        # With its own separator, or else with the one that begins the next document.
        if first and _SEPARATOR.match(lines[first - 1]):
            first -= 1
        elif last < len(lines):
            last += 1
        del lines[first:last]
        return
    edited = edit(text, change.wanted)
    new = "".join(f"{manifests.dump([obj])}---\n" for obj in change.new)
    if "\r\n" in text:
        new = new.replace("\n", "\r\n")
    mark = old_text[: len(old_text) - len(text)]
    lines[first:last] = lines_of(mark + new + edited)


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
    elif edited.is_removed:
        yield "deleted file mode 100644\n"
    old_name = "/dev/null" if edited.is_new else f"a/{name}"
    for line in unified_diff(before, after, old_name, "/dev/null" if edited.is_removed else f"b/{name}"):
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
