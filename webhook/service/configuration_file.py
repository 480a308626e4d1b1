"""The configuration file while it changes: the last good one stays in force, and a bad one is named, once, in full.

A ConfigMap that is mounted changes under us by a symlink; anything else by a write. Both are seen by looking at the content
every second, which also needs no right to watch anything.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import manifests
from webhook.state import Configuration
from webhook.state import configuration as config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dra.finding import Finding

logger = logging.getLogger("drawbridge.configuration")
EVERY = 1.0


class ConfigurationError(Exception):
    """A file that cannot be used, and every reason why."""

    def __init__(self, path: str, findings: Sequence[Finding] = (), problem: str = "") -> None:
        lines = [f"{path}: {problem}"] if problem else []
        lines += [f"{path}: {f.path or '/'}: {f.message}{f' ({f.hint})' if f.hint else ''}" for f in findings]
        super().__init__("\n".join(lines))
        self.findings = findings


def load(path: str) -> Configuration:
    """Read one file; raise ConfigurationError with everything that is wrong with it."""
    try:
        documents = manifests.read([path])
    except (manifests.ManifestError, OSError) as error:
        raise ConfigurationError(path, problem=str(error)) from error
    found = [d for d in documents if d.object.get("kind") == config.KIND]
    if len(found) != 1:
        raise ConfigurationError(path, problem=f"expected one {config.KIND}, found {len(found)}")
    read, findings = config.read(found[0].object)
    if read is None:
        raise ConfigurationError(path, findings)
    return read


class Source:
    """One file, the configuration in force, and what is wrong with the newest content."""

    def __init__(self, path: str = "") -> None:
        """Without a path the defaults are in force for ever. A file that is bad at the start is an error."""
        self.path = path
        self.problem = ""
        self._content = self._bytes()
        self.current = load(path) if path else Configuration()

    async def follow(self, changed: Callable[[Configuration], None]) -> None:
        """Call `changed` with each new good configuration, for ever."""
        while self.path:
            await asyncio.sleep(EVERY)
            if self.look():
                changed(self.current)

    def look(self) -> bool:
        """Look at the file once; say whether another configuration is in force now."""
        content = self._bytes()
        if content == self._content:
            return False
        self._content = content
        try:
            self.current, self.problem = load(self.path), ""
        except ConfigurationError as error:
            self.problem = str(error)
            logger.error("the new configuration is not used, the last good one stays", extra={"problem": self.problem})  # noqa: TRY400  the findings say it all
            return False
        logger.info("a new configuration is in force", extra={"path": self.path})
        return True

    def _bytes(self) -> bytes | None:
        try:
            return Path(self.path).read_bytes() if self.path else None
        except OSError:
            return None
