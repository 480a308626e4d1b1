"""The configuration a command was given, or the error that says everything that is wrong with it.

A file is read by `webhook.service` alone, whatever the command, so that none of them accepts what another refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import contract as inputs
from cli.contract import Broken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.service import Source
    from webhook.state import Configuration, Features


def source_of(path: str) -> Source:
    """Open a DrawbridgeConfiguration to follow it while it changes; without a path the defaults."""
    from webhook.service import Source

    return Source(path)


def configuration_of(path: str | None, *others: Sequence[str]) -> Configuration:
    """Read a DrawbridgeConfiguration; without a path the defaults. `others` may not name standard input as well."""
    from webhook.state import Configuration

    if not path:
        return Configuration()
    from webhook.service import load_configuration

    inputs.refuse_two_standard_inputs([path], *others)
    return load_configuration(path)


def features_of(version: str) -> Features:
    """Say what a version of Kubernetes, such as 1.37, understands."""
    from webhook.state import Features

    major, _, minor = version.removeprefix("v").partition(".")
    number = minor.partition(".")[0]
    if major != "1" or not number.isdecimal():
        raise Broken(f"{version!r} is not a version of Kubernetes", "write it like 1.37")
    return Features(minor=int(number))
