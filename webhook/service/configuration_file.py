"""The configuration file while it changes: the last good one stays in force, and a bad one is named, once, in full.

A ConfigMap that is mounted changes under us by a symlink; anything else by a write. Both are seen by looking at the content
every second, which also needs no right to watch anything.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import manifests
from webhook import registration
from webhook.state import Configuration
from webhook.state import configuration as config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dra.finding import Finding


logger = logging.getLogger("drawbridge.configuration")
EVERY = 1.0
_LONGEST_LINE = 300  # letters of what is wrong, in one line
_MISTAKES = 100  # that are logged
_REMOVE_ONE = "remove one of them: only the later one would count"


class ConfigurationError(manifests.ManifestError):
    """A file that cannot be used, and every reason why, each with its place."""


def load_configuration(path: str, content: bytes | None = None) -> Configuration:
    """Read one file, `-` for standard input; raise ConfigurationError with everything that is wrong with it.

    Each command that is given a configuration file reads it here, so that every command has the same verdict on it. `content` is what
    is in it, for a caller that has read it already: it may be another by now.
    """
    configuration, _ = configuration_in(only_document(path, content))
    return configuration


def only_document(path: str, content: bytes | None = None) -> manifests.Document:
    """Read the document in a configuration file; raise ConfigurationError if it does not hold one configuration."""
    try:
        documents = manifests.read([path]) if content is None else manifests.parse(content, path)
    except manifests.ManifestError as error:
        raise ConfigurationError(error.problems) from error
    if len(documents) != 1:
        number = f"{len(documents)} objects" if documents else "no object"
        found = f"a configuration file holds one {config.KIND}, this one holds {number}"
        raise ConfigurationError([manifests.InputProblem(path, found, "put anything else into a file of its own")])
    (document,) = documents
    kind = document.object.get("kind")
    if isinstance(kind, str) and kind != config.KIND and kind not in get_close_matches(config.KIND, [kind]):
        remedy = f"name a file with a {config.KIND}"
        if kind == "ConfigMap":
            remedy = (
                "extract the text in its data: kubectl get configmap drawbridge -o jsonpath='{.data.drawbridge\\.yaml}'"
            )
        found = f"this is a {kind[:_LONGEST_LINE]}, not a {config.KIND}"
        raise ConfigurationError([manifests.InputProblem(path, found, remedy, document.line)])
    return document


def configuration_in(document: manifests.Document) -> tuple[Configuration, list[Finding]]:
    """Read the configuration in a document, with doubts about it; raise ConfigurationError with everything that is wrong with it."""
    twice = [
        manifests.InputProblem(document.file, f"the key {key!r} is given twice", _REMOVE_ONE, line)
        for key, line in document.duplicates
    ]
    configuration, findings = config.read(document.object)
    if configuration is not None and not twice:
        return configuration, findings
    problems = [
        manifests.InputProblem(
            document.file, finding.message, finding.remedy, *document.position_of(finding.path), finding.path
        )
        for finding in (findings if configuration is None else ())
    ]
    raise ConfigurationError(sorted([*twice, *problems], key=lambda problem: (problem.line, problem.column)))


def _digest(content: bytes | None) -> str:
    return hashlib.sha256(content).hexdigest() if content is not None else ""


class Source:
    """One file, the configuration in force with its digest, and what is wrong with the newest content."""

    def __init__(self, path: str = "", *, every: float = EVERY) -> None:
        """Without a path the defaults are in force forever. A file that is bad at the start is an error."""
        self.path = path
        self._every = every
        self.problem = ""
        self._content = self._bytes()
        self.current = load_configuration(path, self._content) if path else Configuration()
        self.digest = _digest(self._content)
        # What was in force when the process started; the webhook configurations were generated for that, as far as we know.
        self._first = self.current
        self._names_not_sent: list[str] = []

    def notes(self) -> Mapping[str, str]:
        """Say what readiness tells of the file: that it is not in force, or not for all pods that it names."""
        first, *others = self.problem.splitlines() or [""]
        more = f" (and {len(others)} more, in the log)" if others else ""
        refused = f"the new content is refused, and the last good one is in force: {first[:_LONGEST_LINE]}{more}"
        domains = ", ".join(self._names_not_sent)[:_LONGEST_LINE]
        not_sent = f"the API server may not send pods with names of {domains} to the webhook: generate its configurations again"
        return {"configuration": refused if first else "", "webhooks": not_sent if domains else ""}

    async def follow(self, changed: Callable[[Configuration], None]) -> None:
        """Call `changed` with each new good configuration, forever."""
        while self.path:
            await asyncio.sleep(self._every)
            # Beside the loop: a file as large as a ConfigMap may be takes seconds, and reviews go on.
            if await asyncio.to_thread(self.reload):
                changed(self.current)

    def reload(self) -> bool:
        """Look at the file once; say whether another configuration is in force now."""
        content = self._bytes()
        if content == self._content:
            return False
        self._content = content
        try:
            self.current, self.problem = load_configuration(self.path, content), ""
            self.digest = _digest(content)
        except ConfigurationError as error:
            problems = [str(problem) for problem in error.problems[:_MISTAKES]]
            more = len(error.problems) - len(problems)
            self.problem = "\n".join([*problems, f"and {more} more"] if more else problems)
            logger.error("the new configuration is not used, the last good one stays", extra={"problem": self.problem})  # noqa: TRY400  the findings say it all
            return False
        logger.info("a new configuration is in force", extra={"path": self.path})
        self._names_not_sent = registration.names_not_sent(self.current, self._first)
        if self._names_not_sent:
            logger.warning("apply what `drawbridge manifests --only webhooks --config FILE` prints", extra=self.notes())
        return True

    def _bytes(self) -> bytes | None:
        try:
            return Path(self.path).read_bytes() if self.path else None
        except OSError:
            return None
