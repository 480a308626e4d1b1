"""What `translate --in-place` has changed, kept for `--undo`: what files were and became, in the user's folder for state.

It is written before the files are, so that a command that was killed between two of them can be undone as well.
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

from cli.edited import Edited, lines_of, text_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class SavedFile(msgspec.Struct, frozen=True):
    """A file before and after it was edited."""

    path: str
    before: str | None  # None of a file that was new
    after: str


def _folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "drawbridge", "undo")


def _entry(path: str) -> Path:
    return _folder() / f"{sha256(path.encode()).hexdigest()}.json"


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other process of this user edits files."""
    with ExitStack() as stack:
        with suppress(OSError):  # said when what files were is to be kept there
            _folder().mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = stack.enter_context(Path(_folder(), "lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def save(edits: Iterable[Edited]) -> None:
    """Keep what files are before they are edited; of one that was edited by us before, and not since, what it was at first."""
    for one in edits:
        path = os.path.realpath(one.path)
        entry = _entry(path)
        before = None if one.is_new else one.before
        with suppress(OSError, msgspec.DecodeError):
            earlier = msgspec.json.decode(entry.read_bytes(), type=SavedFile)
            if earlier.after == before:
                before = earlier.before
        new = entry.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(SavedFile(path, before, one.after)))
            file.flush()
            os.fsync(file.fileno())
        new.replace(entry)


def saved(paths: Sequence[str]) -> list[SavedFile]:
    """Find what was kept of files that are named or lie in a folder that is."""
    named = [Path(os.path.realpath(path)) for path in paths]
    found = []
    for entry in sorted(_folder().glob("*.json")):
        with suppress(OSError, msgspec.DecodeError):
            one = msgspec.json.decode(entry.read_bytes(), type=SavedFile)
            if any(Path(one.path).is_relative_to(path) for path in named):
                found.append(one)
    return sorted(found, key=lambda one: one.path)


def forget(found: Iterable[SavedFile]) -> None:
    """Take away what was kept of files that are as they were."""
    for one in found:
        _entry(one.path).unlink(missing_ok=True)


def undo(one: SavedFile) -> Edited:
    """Take our edit out of a file; what was edited elsewhere in it since then stays, and what is in the way is named."""
    path = os.path.relpath(one.path)
    try:
        now = text_at(one.path)
    except FileNotFoundError:
        if one.before is None:
            return Edited(path, "", "", root="/", is_new=True)
        return Edited(path, "", "", "it is gone: what it was is not brought back", 1)
    if one.before is None:
        if now == one.after:
            return Edited(path, now, "", root="/", is_gone=True)
        first_edit = _hunks(lines_of(one.after), lines_of(now))[0][2] + 1
        return Edited(path, now, now, "it was made by --in-place and edited since", first_edit)
    if now in (one.before, one.after):
        return Edited(path, now, one.before, root="/")
    between, at_first, here = lines_of(one.after), lines_of(one.before), lines_of(now)
    ours, theirs = _hunks(between, at_first), _hunks(between, here)
    for start, end, line, _ in theirs:
        for first, last, _, _ in ours:
            overlaps = start < last and first < end
            if overlaps or (start, end) == (first, last):
                why = "it was edited here after --in-place, so it is not brought back"
                return Edited(path, now, now, why, line + 1)
    changes = [(start, end, at_first[first:last]) for start, end, first, last in ours]
    changes += [(start, end, here[first:last]) for start, end, first, last in theirs]
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
