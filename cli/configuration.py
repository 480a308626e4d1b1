"""Reads the file of `--config`, and prints which configuration is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.configuration import ConfigurationInForce, configuration_in_force
from cli.output import note, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.manifests import Document
    from webhook.service import Source


def watched_configuration(
    path: str, documents: Sequence[Document], inventory: Sequence[Document] = ()
) -> tuple[Source, ConfigurationInForce]:
    """Return the configuration that applies to the documents, and its source. If it is the file at `path`, the source rereads a changed file."""
    from webhook.service import Source

    source = Source(path)
    given = ConfigurationInForce(source.current, path) if path else None
    in_force = configuration_in_force(given, documents, inventory)
    source.current = in_force.configuration
    return source, in_force


def given_configuration(path: str | None) -> ConfigurationInForce | None:
    """Read the file of `--config`; None if the option is not given."""
    if not path:
        return None
    from webhook.service import load_configuration

    return ConfigurationInForce(load_configuration(path), path)


def report_configuration(in_force: ConfigurationInForce, mode: str | None = None) -> None:
    """Note the source and the mode in one line, unless the default configuration and mode apply. Also warn of a problem."""
    if in_force.problem:
        warn(f"{in_force.problem}, so the default configuration applies")
    if mode or not in_force.is_default:
        note(in_force.sentence(mode))
