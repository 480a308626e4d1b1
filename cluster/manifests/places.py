"""Opens files of a folder that may be untrusted, and follows no link out of it, even if the link is created meanwhile.

A path below the current folder must stay in it; a file found below a named folder must stay in that folder. A path outside of the current
folder (`/etc/x`, `../x`, a shell's `<(…)`) is opened without this check. Paths are walked folder by folder, so that a link created in
between is not followed either.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NO_LINK: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | _NO_LINK
# Levels of folders that are read: in Python 3.11 os.walk calls itself for each level, and Python's stack ends at a thousand.
MAX_FOLDERS: Final = 256


class LeadsOut(OSError):  # noqa: N818  what happened
    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "a link leads out of the folder", path)


class UnreadFile(OSError):  # noqa: N818  what happened
    """A file or folder that no command reads; bytes of its name that are not UTF-8 are shown as escapes."""

    def __init__(self, why: str, path: str) -> None:
        super().__init__(errno.EINVAL, why, path.encode(errors="backslashreplace").decode())


def _as_text(path: str) -> None:
    """Refuse a name with bytes that are not UTF-8, because no report can contain the name."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UnreadFile("its name is not UTF-8", path) from None


def bounds(path: str) -> str:
    """The folder that a path must not leave by a link: the current one; "" if the path is outside of it."""
    _as_text(path)
    try:
        current = Path.cwd()
    except FileNotFoundError:
        return ""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  where the path says that it is, whatever its links say
    return str(current) if current != current.parent and absolute.is_relative_to(current) else ""


def settled(path: str, root: str) -> str:
    """Return a path with its links resolved, relative to `root`; raise LeadsOut if it is outside of `root`."""
    _as_text(path)
    try:
        real = Path(os.path.realpath(path, strict=True))  # Path.resolve has its own error for a loop of links
    except OSError as error:
        error.filename = path
        raise
    if not real.is_relative_to(root):
        raise LeadsOut(path)
    return str(real.relative_to(root))


def walk(
    top: str | Path, onerror: Callable[[OSError], None] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk as os.walk does, but pass folders that are nested too deep to `onerror` instead of reading them."""
    for parent, folders, files in os.walk(top, onerror=onerror):
        yield parent, folders, files
        if folders and len(Path(parent).relative_to(top).parts) >= MAX_FOLDERS:
            if onerror is not None:
                onerror(UnreadFile(f"its folders are nested deeper than {MAX_FOLDERS}", parent))
            folders.clear()


@contextmanager
def opened_folder(path: str, root: str) -> Iterator[tuple[int, str]]:
    """Open the folder of a file, and yield it with the file's name there."""
    *folders, name = Path(settled(path, root)).parts
    handle = os.open(root, _FOLDER)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle, name
    finally:
        os.close(handle)


def opened(path: str, root: str, *, regular: bool = False) -> int:
    """Open a file for reading. With `regular`, opening a pipe does not block."""
    if not root:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with opened_folder(path, root) as (folder, name):
        handle = os.open(name, os.O_RDONLY | _NO_LINK | (os.O_NONBLOCK if regular else 0), dir_fd=folder)
    if regular and not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return handle
