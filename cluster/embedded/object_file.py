"""The file behind an embedded store: an SQLite database with a row for each object.

Each write of the store is one transaction, so a kill loses no acknowledged write. A loss of power can lose the latest writes.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import StoreError, map_exceptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from cluster.resources import Key

_APPLICATION = 0x64726177  # marks databases of this module: "draw" in ASCII
_SCHEMA = """\
CREATE TABLE objects (
    resource TEXT, namespace TEXT, name TEXT, version INTEGER, object BLOB, PRIMARY KEY (resource, namespace, name)
)"""


class ObjectFile:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open or create a file. No other process can open it meanwhile."""
        self._path = os.fspath(path)
        with _naming(self._path):
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._database = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        try:
            with _naming(self._path):
                self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        if self._pragma("page_count") == 0:
            self._database.executescript(f"BEGIN; PRAGMA application_id = {_APPLICATION}; {_SCHEMA}; COMMIT")
        if self._pragma("application_id") != _APPLICATION:
            raise StoreError(f"{self._path} is a database of another program")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        Path(self._path).chmod(0o600)  # an existing file as well: it holds Secrets

    def version(self) -> int:
        """Return the version of the last write."""
        return self._pragma("user_version")

    def objects(self) -> Iterator[tuple[str, Key, int, bytes]]:
        """Yield resource, key, version and JSON of each object, in the order of the versions."""
        with _naming(self._path):
            for resource, namespace, name, version, data in self._database.execute(
                "SELECT resource, namespace, name, version, object FROM objects ORDER BY version"
            ):
                yield resource, (namespace, name), version, data

    def write(self, version: int, changes: Iterable[tuple[str, Key, int, bytes | None]]) -> None:
        """Write objects, and remove those without JSON; raise StoreError and write nothing if one of them cannot be written."""
        try:
            with self._database:
                self._database.execute("BEGIN")
                for resource, key, object_version, data in changes:
                    if data is None:
                        self._database.execute(
                            "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", (resource, *key)
                        )
                    else:
                        row = (resource, *key, object_version, data)
                        self._database.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", row)
                self._database.execute(f"PRAGMA user_version = {version}")
        except sqlite3.Error as error:
            raise StoreError(f"cannot write {self._path}: {error}; nothing was changed") from error

    def close(self) -> None:
        self._database.close()

    def _pragma(self, name: str) -> int:
        value: int = self._database.execute(f"PRAGMA {name}").fetchone()[0]
        return value


def _naming(path: str) -> AbstractContextManager[None]:
    def name(error: Exception) -> StoreError:
        return StoreError(f"{path}: {error}")

    return map_exceptions({OSError: name, sqlite3.Error: name})
