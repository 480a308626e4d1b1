"""Files with the translation in them: the lines that change are changed, and every other one stays. Texts in, texts out, but for the write.

New templates stand before the object that needs them. A file is edited as a whole or not at all; it is written to another name
beside it, and takes its place at once, so that a reader sees the old one or the new one.
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
    from collections.abc import Iterable, Iterator

Object = dict[str, Any]
_MARK = "\ufeff"  # of the order of bytes


class Result(msgspec.Struct, frozen=True):
    """One object as it was read, what became of it, and the templates that must stand before it."""

    name: str
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
        by_file.setdefault(result.document.file, []).append(result)
    edited: list[Edited] = []
    for path, group in by_file.items():
        changing = [one for one in group if one.translation.changed]
        if not changing:
            continue
        if not Path(path).is_file():
            edited.append(Edited(path, "", "", "it is not a file"))
            continue
        root = group[0].document.root or str(Path(path).resolve().parent)
        with manifests.beside(path, root) as (folder, name):
            before, _ = _text_of(name, folder)
        lines = _lines(before)
        try:
            # From the end on, so that the lines before stay where they are.
            for result in reversed(changing):
                _edit(lines, result)
        except CannotEdit as error:
            edited.append(Edited(path, before, before, str(error), result.document.line))
        else:
            edited.append(Edited(path, before, "".join(lines), root=root))
    return edited


def _lines(text: str) -> list[str]:
    """Lines as the reader counts them: each ends with a line feed, and with nothing else."""
    parts = text.split("\n")
    ended = [f"{part}\n" for part in parts[:-1]]
    return [*ended, parts[-1]] if parts[-1] else ended


def _edit(lines: list[str], result: Result) -> None:
    """Put a translated document and its templates in the place of its lines; raise CannotEdit."""
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
    templates = "".join(f"{manifests.dump([one])}---\n" for one in result.templates)
    if "\r\n" in text:
        templates = templates.replace("\n", "\r\n")
    mark = whole[: len(whole) - len(text)]
    lines[first:last] = _lines(mark + templates + edited)


def diff(edited: Edited) -> Iterator[str]:
    """Write a diff that `git apply` and `patch -p1` take."""
    # A path as git has it: from here on where it lies below, else from the root.
    name = os.path.relpath(edited.path)
    if name.startswith(".."):
        name = str(Path(edited.path).absolute()).lstrip("/")
    before, after = _lines(edited.before), _lines(edited.after)
    if before == after:
        return
    yield f"diff --git a/{name} b/{name}\n"
    for line in unified_diff(before, after, f"a/{name}", f"b/{name}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


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
                os.fchmod(file.fileno(), _mode_of_unchanged(edited, name, folder))
            os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(new, dir_fd=folder)
            raise


def _mode_of_unchanged(edited: Edited, name: str, folder: int) -> int:
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
