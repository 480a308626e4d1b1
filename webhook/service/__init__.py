"""The rim: HTTPS, informers, controllers, files and clocks. It decides nothing.

What is named here is imported when it is asked for: a command that reads a configuration file needs no web server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webhook.service import log
    from webhook.service.configuration_file import Source
    from webhook.service.configuration_file import load as load_configuration
    from webhook.service.evidence import read_evidence
    from webhook.service.log import Decisions
    from webhook.service.service import Service, Settings

__all__ = [
    "Decisions",
    "Service",
    "Settings",
    "Source",
    "load_configuration",
    "log",
    "read_evidence",
]

_HOMES = {
    "Decisions": ("log", "Decisions"),
    "Service": ("service", "Service"),
    "Settings": ("service", "Settings"),
    "Source": ("configuration_file", "Source"),
    "load_configuration": ("configuration_file", "load"),
    "read_evidence": ("evidence", "read_evidence"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, member = _HOMES[name]
    return getattr(import_module(f"{__name__}.{module}"), member)
