"""The version, served API groups and feature gates of an API server.

The server's metrics list all of its feature gates. Without the permission to read metrics, no gate is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from dra import server as gates

METRICS: Final = "/metrics"
_GATE = re.compile(rb'kubernetes_feature_enabled\{name="([A-Za-z0-9]{1,80})",stage="[A-Z]{0,16}"\} ([01])').fullmatch


class ServerInfo(msgspec.Struct, frozen=True):
    """An API server at one moment, with the known feature gates for devices."""

    version: str
    minor: int
    served: frozenset[str]
    gates: Mapping[str, bool] = {}

    def serves(self, api_version: str) -> bool:
        return api_version in self.served


def parse_gate(line: bytes) -> tuple[str, bool] | None:
    """Parse the metrics line of a feature gate; None for other lines, and for gates that do not concern devices."""
    parsed = _GATE(line)
    if parsed is None:
        return None
    name = parsed[1].decode("ascii")
    return (name, parsed[2] == b"1") if name in gates.GATES else None
