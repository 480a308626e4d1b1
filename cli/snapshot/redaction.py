"""What of an object goes into a snapshot: all that decides about devices, and nothing that is known to hold secrets. Pure.

Passwords stand in manifests where people put them: in the values of variables, in arguments, in what a probe sends, in members and
annotations that say so by their name, and once more in what kubectl writes down of what was applied. None of that decides about devices, but for the few
variables that a dialect reads. Secrets and config maps are never read at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    Object = dict[str, Any]

# What a server keeps in mind about an object, and the whole object once more.
_BOOKKEEPING: Final = ("managedFields", "selfLink")
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# What a container is told, and by whom; in kinds of others, too.
_TOLD: Final = frozenset(
    ("command", "args", "arguments", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "stringData")
)
_VARIABLES: Final = frozenset(("env", "envs", "environment"))
_NAMED: Final = ("name", "key")  # how such lists call what they name
_SECRET = re.compile(r"passw|token|secret|credential|private|api[-_]?key|access[-_]?key", re.IGNORECASE)
# Names of secrets are none.
_REFERENCE = re.compile(r"(name|ref|namespace|path|file|seconds)s?$", re.IGNORECASE)


class Redaction:
    """Leaves out what is secret, and counts how much that was. `reads` says of a variable whether its value is of use."""

    def __init__(self, reads: Callable[[str], bool]) -> None:
        self.left_out = 0
        self._reads = reads

    def redact(self, given: Object) -> Object:
        """Give an object of one's own without what is secret in the one given."""
        obj: Object = msgspec.json.decode(msgspec.json.encode(given))
        metadata = obj.get("metadata")
        if isinstance(metadata, dict):
            _forget(metadata)
        status = obj.get("status")
        if obj.get("kind") == "Node" and isinstance(status, dict):
            status.pop("images", None)  # the largest part of a node, and of no use to anybody here
        waiting: list[Any] = [obj]
        while waiting:
            part = waiting.pop()
            if isinstance(part, list):
                waiting += part
            elif isinstance(part, dict):
                self._look(part)
                waiting += part.values()
        return obj

    def _look(self, part: Object) -> None:
        for name, value in list(part.items()):
            if name in _VARIABLES:
                self._empty(value)
            elif _is_secret(name, value):
                del part[name]
                self.left_out += 1

    def _empty(self, variables: Any) -> None:
        """Leave out the values of variables, in either of the forms that people give lists of them."""
        if isinstance(variables, dict):
            for name in variables:
                if not self._reads(name):
                    variables[name] = ""
                    self.left_out += 1
        elif isinstance(variables, list):
            for one in variables:
                if isinstance(one, dict) and one.get("value") and not self._reads(_name_of(one)):
                    del one["value"]
                    self.left_out += 1


def _forget(metadata: Object) -> None:
    for name in _BOOKKEEPING:
        metadata.pop(name, None)
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        annotations.pop(_APPLIED, None)


def _name_of(variable: Object) -> str:
    named = [variable[name] for name in _NAMED if name in variable]
    return str(named[0]) if named else ""


def _is_secret(name: str, value: Any) -> bool:
    if name in _TOLD:
        return True
    # What is text is a secret itself; an object under such a name says where one is.
    return isinstance(value, str) and bool(_SECRET.search(name)) and not _REFERENCE.search(name)
