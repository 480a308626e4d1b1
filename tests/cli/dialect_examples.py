"""The manifests of manifests/examples/<dialect>, the outcome that the first line of each expects, and the drivers' inventory.

A dialect is the table of the keys of one system.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster import manifests
from tests.webhook.pods import EXAMPLES
from webhook.dialects import VOCABULARIES

if TYPE_CHECKING:
    from pathlib import Path

DRIVERS = EXAMPLES / "drivers"
CONFIGURATION = EXAMPLES / "dialects.yaml"
DIALECTS = [vocabulary.table.name for vocabulary in VOCABULARIES]
FILES = sorted(path for name in DIALECTS for path in (EXAMPLES / name).glob("*.yaml"))
# A configuration whose options translate further dialects, and pods of these dialects.
OPTIONAL_CONFIGURATION = EXAMPLES / "annotated.yaml"
OPTIONAL_FILES = sorted(OPTIONAL_CONFIGURATION.with_suffix("").glob("*.yaml"))
_EXPECTATION = re.compile(r"^# expect: (.+)$", re.MULTILINE)


class Example(NamedTuple):
    """A manifest and its `# expect:` line: `translated 8 DRIVER, 8 DRIVER; left KEY KEY`, or `refused CODE`."""

    path: Path
    object: dict[str, Any]
    devices: dict[str, int]  # number by driver, for one pod of each template of the manifest
    left: frozenset[str]  # keys that stay
    refused: str  # code of the refusal, or empty

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def configuration(self) -> Path:
        return OPTIONAL_CONFIGURATION if self.path in OPTIONAL_FILES else CONFIGURATION


def example(path: Path) -> Example:
    (expectation,) = _EXPECTATION.findall(path.read_text())
    devices: dict[str, int] = {}
    left: frozenset[str] = frozenset()
    refused = ""
    for part in expectation.split("; "):
        word, _, rest = part.partition(" ")
        if word == "translated":
            counts = [count.split() for count in rest.split(", ")]
            devices = {driver: int(count) for count, driver in counts}
        elif word == "left":
            left = frozenset(rest.split())
        else:
            assert word == "refused", expectation
            refused = rest
    (document,) = manifests.read([path])
    return Example(path, document.object, devices, left, refused)


@cache
def inventory() -> list[dict[str, Any]]:
    return [document.object for document in manifests.read([DRIVERS])]
