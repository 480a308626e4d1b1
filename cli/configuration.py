"""The configuration a command was given, or the error that says everything that is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.contract import Broken

if TYPE_CHECKING:
    from webhook.service import Source


def source_of(path: str) -> Source:
    """Open a DrawbridgeConfiguration; without a path the defaults."""
    from webhook.service import ConfigurationError, Source

    try:
        return Source(path)
    except ConfigurationError as error:
        raise Broken(str(error), "correct the file") from error
