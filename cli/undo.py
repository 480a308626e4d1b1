"""`translate --undo`: restores files from their texts before and after `--in-place`, which are kept in the user's state folder.

These texts are saved before the files are written, so that a command that was killed halfway can be undone, too.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, contextmanager, suppress
from difflib import SequenceMatcher
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cli.edited import Edited, lines_of, text_at, write
from cli.output import warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class SavedFile(msgspec.Struct, frozen=True):
    """A file before and after it was edited."""

    path: str
    before: str | None  # None: the file was new
    after: str


def _folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "drawbridge", "undo")


def _entry(path: str) -> Path:
    return _folder() / f"{sha256(path.encode()).hexdigest()}.json"


@contextmanager
def edit_lock() -> Iterator[None]:
    """Hold a lock against other edits by this user; without a state folder there is no lock."""
    with ExitStack() as stack:
        with suppress(OSError):  # `_save` reports the error
            _folder().mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = stack.enter_context(Path(_folder(), "lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_undoable(edits: Sequence[Edited]) -> None:
    """Save the texts of edited files for `--undo`, then write the files."""
    with edit_lock():
        try:
            _save(edits)
        except OSError as error:
            where = error.filename or "the state folder"
            warn(f"{where}: {error.strerror}: --undo will not work for these files")
        write(edits)


def restore(files: Sequence[str]) -> tuple[list[Edited], list[Edited]]:
    """Restore files, unless one of them has conflicting later edits. Return the files that change, and those with conflicts."""
    with edit_lock():
        saved = _saved(files)
        edits = [_undo(file) for file in saved]
        changing = [edit for edit in edits if edit.before != edit.after or edit.is_removed]
        conflicts = [edit for edit in edits if edit.problem]
        if not conflicts:
            # `write` also removes the temporary files that a killed run left beside unchanged files.
            write([edit for edit in edits if edit in changing or Path(edit.path).parent.is_dir()])
            for file in saved:
                _entry(file.path).unlink(missing_ok=True)
    return changing, conflicts


def _save(edits: Iterable[Edited]) -> None:
    """Save the texts of files before an edit. For a file whose last change was our edit, the text before that edit stays saved."""
    for edit in edits:
        path = os.path.realpath(edit.path)
        entry = _entry(path)
        before = None if edit.is_new else edit.before
        with suppress(OSError, msgspec.DecodeError):
            earlier = msgspec.json.decode(entry.read_bytes(), type=SavedFile)
            if earlier.after == before:
                before = earlier.before
        new = entry.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(SavedFile(path, before, edit.after)))
            file.flush()
            os.fsync(file.fileno())
        new.replace(entry)


def _saved(paths: Sequence[str]) -> list[SavedFile]:
    """Return the saved texts of these files, and of files in these folders."""
    named_paths = [Path(os.path.realpath(path)) for path in paths]
    saved = []
    for entry in sorted(_folder().glob("*.json")):
        with suppress(OSError, msgspec.DecodeError):
            file = msgspec.json.decode(entry.read_bytes(), type=SavedFile)
            if any(Path(file.path).is_relative_to(path) for path in named_paths):
                saved.append(file)
    return sorted(saved, key=lambda file: file.path)


def _undo(saved: SavedFile) -> Edited:
    """Revert our edit of a file and keep later edits of other lines; a later edit of the same lines is a problem."""
    path = os.path.relpath(saved.path)
    try:
        now = text_at(saved.path)
    except FileNotFoundError:
        if saved.before is None:
            return Edited(path, "", "", root="/", is_new=True)
        return Edited(path, "", "", "not restored: the file was removed", 1)
    if saved.before is None:
        if now == saved.after:
            return Edited(path, now, "", root="/", is_removed=True)
        first_edit = _hunks(lines_of(saved.after), lines_of(now))[0][2] + 1
        return Edited(path, now, now, "not removed: the file was made by --in-place and edited since", first_edit)
    if now in (saved.before, saved.after):
        return Edited(path, now, saved.before, root="/")
    between, at_first, edited = lines_of(saved.after), lines_of(saved.before), lines_of(now)
    undo_hunks, later_hunks = _hunks(between, at_first), _hunks(between, edited)
    for start, end, line, _ in later_hunks:
        for first, last, _, _ in undo_hunks:
            overlaps = start < last and first < end
            if overlaps or (start, end) == (first, last):
                why = "not restored: this line was edited after --in-place"
                return Edited(path, now, now, why, line + 1)
    changes = [(start, end, at_first[first:last]) for start, end, first, last in undo_hunks]
    changes += [(start, end, edited[first:last]) for start, end, first, last in later_hunks]
    merged: list[str] = []
    position = 0
    for start, end, lines in sorted(changes, key=lambda change: change[:2]):
        merged += between[position:start]
        merged += lines
        position = end
    return Edited(path, now, "".join([*merged, *between[position:]]), root="/")


def _hunks(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int, int, int]]:
    opcodes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [(start, end, first, last) for tag, start, end, first, last in opcodes if tag != "equal"]
