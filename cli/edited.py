"""Files with the translation in them: the lines that change are changed, and every other one stays. Texts in, texts out, but for the write.

New templates stand before the object that needs them. A file is edited as a whole or not at all; it is written to another name
beside it, and takes its place at once, so that whoever looks sees the old one or the new one.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from cluster import manifests
from cluster.manifests import CannotEdit, Document, edit
from webhook.translate import Translation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Object = dict[str, Any]
_MARK = "\ufeff"  # of the order of bytes


class Result(msgspec.Struct, frozen=True):
    """One object as it was read, what became of it, and the templates that must stand before it."""

    document: Document
    translation: Translation
    object: Object
    templates: tuple[Object, ...] = ()
    foretold: tuple[Any, ...] = ()  # what quotas say of it (`cli.quota`)


class Edited(NamedTuple):
    """A file as it is and as it would be, or why it cannot be edited."""

    path: str
    before: str
    after: str
    problem: str = ""
    line: int = 0
    root: str = ""  # the folder that it is not looked for outside of


def edit_files(results: Iterable[Result]) -> list[Edited]:
    """Edit every file in which something changes."""
    by_file: dict[str, list[Result]] = {}
    for result in results:
        of_file = by_file.setdefault(result.document.file, [])
        of_file.append(result)
    changing = [group for group in by_file.values() if any(one.translation.changed for one in group)]
    return [_edit_file(group) for group in changing]


def _edit_file(results: Sequence[Result]) -> Edited:
    path = results[0].document.file
    if not Path(path).is_file():
        return Edited(path, "", "", "it is not a file")
    root = results[0].document.root or str(Path(path).resolve().parent)
    with manifests.beside(path, root) as (folder, name):
        before, _ = _text_of(name, folder)
    lines = _lines(before)
    # From the end on, so that the lines before stay where they are.
    for result in reversed(results):
        if not result.translation.changed:
            continue
        try:
            _edit_document(lines, result)
        except CannotEdit as error:
            return Edited(path, before, before, str(error), result.document.line)
    return Edited(path, before, "".join(lines), root=root)


def _lines(text: str) -> list[str]:
    """Lines as the reader counts them: each ends with a line feed, and with nothing else."""
    parts = text.split("\n")
    ended = [f"{part}\n" for part in parts[:-1]]
    return [*ended, parts[-1]] if parts[-1] else ended


def _edit_document(lines: list[str], result: Result) -> None:
    document = result.document
    if document.is_item:
        raise CannotEdit("it is an item of a List")
    first = document.first_line - 1
    last = first + document.line_count
    whole = "".join(lines[first:last])
    text = whole.removeprefix(_MARK)
    if text.lstrip().startswith("{"):
        raise CannotEdit("it is JSON, in which there are no comments to keep")
    edited = edit(text, result.translation.operations, result.object)
    newline = "\r\n" if "\r\n" in text else "\n"
    before = [_written(template, newline) for template in result.templates]
    mark = whole[: len(whole) - len(text)]
    lines[first:last] = _lines(mark + "".join(before) + edited)


def _written(template: dict[str, object], newline: str) -> str:
    text = manifests.dump([template]) + "---\n"
    return text.replace("\n", newline)


def diff(edited: Edited) -> Iterator[str]:
    """Write a diff that `git apply` and `patch -p1` take."""
    name = _name(edited.path)
    before, after = _lines(edited.before), _lines(edited.after)
    if before == after:
        return
    yield f"diff --git a/{name} b/{name}\n"
    for line in unified_diff(before, after, f"a/{name}", f"b/{name}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _name(path: str) -> str:
    """A path as git has it: from here on where it lies below, else from the root."""
    inside = os.path.relpath(path)
    return inside if not inside.startswith("..") else str(Path(path).absolute()).lstrip("/")


def write(edited: Edited) -> None:
    """Put the new text in the place of the old one, at once; the file keeps its mode, a link stays a link and leads nowhere else."""
    with manifests.beside(edited.path, edited.root) as (folder, name):
        new = f".{name}.{secrets.token_hex(8)}"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(edited.after)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), _unchanged(edited, name, folder))
            os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(new, dir_fd=folder)
            raise


def _unchanged(edited: Edited, name: str, folder: int) -> int:
    """The mode of a file that still has the text that was read."""
    now, mode = _text_of(name, folder)
    if now != edited.before:
        raise FileExistsError(errno.EEXIST, "it was changed meanwhile: run the command again", edited.path)
    return mode


def _text_of(name: str, folder: int) -> tuple[str, int]:
    """The text of a regular file, and its mode. No link is followed, and no pipe waited for."""
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(handle, encoding="utf-8", newline="") as file:
        mode = os.fstat(handle).st_mode
        return file.read() if stat.S_ISREG(mode) else "", stat.S_IMODE(mode)
