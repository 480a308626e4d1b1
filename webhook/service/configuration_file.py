"""Reads the configuration file, and follows its changes. Invalid content is logged once, and the last valid configuration stays in use.

A mounted ConfigMap changes by a symlink, other files by a write. The content is read every second, which notices both kinds of change and needs
no permission to watch.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import manifests
from dra.codes import INSTALL_WEBHOOKS
from webhook import registration
from webhook.state import Configuration
from webhook.state import configuration as config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dra.finding import Finding


logger = logging.getLogger("drawbridge.configuration")
EVERY = 1.0
_LONGEST_LINE = 300  # the most characters of a problem in a readiness note
_MISTAKES = 100  # the most mistakes that are logged
_REMOVE_ONE = "remove one of them: only the later one would count"


class ConfigurationError(manifests.ManifestError):
    """A configuration file cannot be used. The error has all mistakes with their positions."""


def load_configuration(path: str, content: bytes | None = None) -> Configuration:
    """Return the configuration in a file, `-` for standard input. Raises ConfigurationError with all mistakes.

    All commands read configuration files with this function, so that they agree. `content` is the content of the file, if the caller has
    read it already: the file may have changed since.
    """
    configuration, _ = configuration_in(only_document(path, content))
    return configuration


def only_document(path: str, content: bytes | None = None) -> manifests.Document:
    """Return the document in a configuration file. Raises ConfigurationError unless it is exactly one DrawbridgeConfiguration."""
    try:
        documents = manifests.read([path]) if content is None else manifests.parse(content, path)
    except manifests.ManifestError as error:
        raise ConfigurationError(error.problems) from error
    if len(documents) != 1:
        number = f"{len(documents)} objects" if documents else "no object"
        problem = f"a configuration file holds one {config.KIND}, this one holds {number}"
        raise ConfigurationError([manifests.InputProblem(path, problem, "put anything else into a file of its own")])
    (document,) = documents
    kind = document.object.get("kind")
    if isinstance(kind, str) and kind != config.KIND and kind not in get_close_matches(config.KIND, [kind]):
        remedy = f"name a file with a {config.KIND}"
        if kind == "ConfigMap":
            remedy = (
                "extract the text in its data: kubectl get configmap drawbridge -o jsonpath='{.data.drawbridge\\.yaml}'"
            )
        problem = f"this is a {kind[:_LONGEST_LINE]}, not a {config.KIND}"
        raise ConfigurationError([manifests.InputProblem(path, problem, remedy, document.line)])
    return document


def configuration_in(document: manifests.Document) -> tuple[Configuration, list[Finding]]:
    """Return the configuration in a document, and warnings about it. Raises ConfigurationError with all mistakes."""
    duplicates = [
        manifests.InputProblem(document.file, f"the key {key!r} is given twice", _REMOVE_ONE, line)
        for key, line in document.duplicates
    ]
    configuration, findings = config.read_configuration(document.object)
    if configuration is not None and not duplicates:
        return configuration, findings
    problems = [
        manifests.InputProblem(
            document.file, finding.message, finding.remedy, *document.position_of(finding.path), finding.path
        )
        for finding in (findings if configuration is None else ())
    ]
    raise ConfigurationError(sorted([*duplicates, *problems], key=lambda problem: (problem.line, problem.column)))


def _digest(content: bytes | None) -> str:
    return hashlib.sha256(content).hexdigest() if content is not None else ""


class Source:
    """A configuration file: the configuration in use with its digest, and what is wrong with the newest content."""

    def __init__(self, path: str = "", *, every: float = EVERY) -> None:
        """Without a path the defaults are used. Raises ConfigurationError if the file is invalid now."""
        self.path = path
        self._every = every
        self.problem = ""
        self._content = self._last_look = self._bytes()
        self.current = load_configuration(path, self._content) if path else Configuration()
        self.digest = _digest(self._content)
        # The configuration at the start of the process. The webhook configurations are assumed to be generated for it.
        self._initial = self.current
        self._names_not_sent: list[str] = []

    def notes(self) -> Mapping[str, str]:
        """Return the notes for readiness: the newest content is invalid, or the API server may not send all pods with configured keys."""
        first, *others = self.problem.splitlines() or [""]
        rest = f" (and {len(others)} more, in the log)" if others else ""
        refused = f"the new content is invalid, so the last valid one stays in use: {first[:_LONGEST_LINE]}{rest}"
        domains = ", ".join(self._names_not_sent)[:_LONGEST_LINE]
        not_sent = (
            f"the API server might not send pods with keys of {domains}: generate the webhook configurations again"
        )
        return {"configuration": refused if first else "", "webhooks": not_sent if domains else ""}

    async def follow(self, changed: Callable[[Configuration], None]) -> None:
        """Call `changed` with each new good configuration, forever."""
        while self.path:
            await asyncio.sleep(self._every)
            # In a thread, because a file of the size of the largest ConfigMap takes seconds, and reviews must be answered.
            if await asyncio.to_thread(self.look):
                changed(self.current)

    def look(self) -> bool:
        """Use the content once two looks have seen it, because the file may be half written. Return whether a new configuration is in use."""
        content = self._bytes()
        is_settled, self._last_look = content == self._last_look, content
        return is_settled and self._use(content)

    def _use(self, content: bytes | None) -> bool:
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
            details = {"problem": self.problem}
            logger.error("the new configuration is invalid, so the last valid one stays in use", extra=details)  # noqa: TRY400  the problem says it all
            return False
        logger.info("a new configuration is in use", extra={"path": self.path})
        self._names_not_sent = registration.names_not_sent(self.current, self._initial)
        if self._names_not_sent:
            logger.warning("run `%s`", INSTALL_WEBHOOKS, extra=self.notes())
        return True

    def _bytes(self) -> bytes | None:
        try:
            return Path(self.path).read_bytes() if self.path else None
        except OSError:
            return None
