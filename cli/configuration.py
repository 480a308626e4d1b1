"""The configuration of a command, or an error with every mistake in it.

All commands read the file by the same function of `webhook.service`, so all accept and refuse the same files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import contract as inputs
from cli.contract import Broken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.contract import Decorator
    from cluster.manifests import Document
    from dra.server import Server
    from webhook.service import Source
    from webhook.state import Configuration, Features, State

CONFIGURATION = "DrawbridgeConfiguration"


def mode_option() -> Decorator:
    """Add `--mode`."""
    return inputs.option(
        "--mode",
        "Decide in this mode, instead of those of the namespaces and the configuration.",
        type=click.Choice(("enforce", "warn", "observe", "off")),
    )


def in_mode(state: State, mode: str | None) -> State:
    """Return the state with one mode for all namespaces, if a mode is given."""
    if not mode:
        return state
    from webhook.state import Mode, with_mode

    return with_mode(state, Mode(mode))


def source_of(path: str) -> Source:
    """Return a DrawbridgeConfiguration that is reread when its file changes; without a path the defaults."""
    from webhook.service import Source

    return Source(path)


def configuration_of(path: str | None, *others: Sequence[str]) -> Configuration:
    """Read a DrawbridgeConfiguration; without a path the defaults. `others` are the command's other inputs."""
    from webhook.state import Configuration

    if not path:
        return Configuration()
    from webhook.service import load_configuration

    inputs.refuse_two_standard_inputs([path], *others)
    return load_configuration(path)


def configuration_in(
    documents: Sequence[Document], known: Sequence[Document] = (), *, judged: bool = False
) -> Configuration:
    """Return the last configuration in the input, or the defaults.

    With `judged`, an invalid one among the documents is ignored: `check` makes findings of its mistakes.
    """
    from webhook.state import Configuration, read

    configuration = Configuration()
    for number, document in enumerate((*known, *documents)):
        if document.object.get("kind") != CONFIGURATION:
            continue
        if judged and number >= len(known):
            good, _ = read(document.object)
            configuration = good or configuration
            continue
        from webhook.service import configuration_in

        configuration = configuration_in(document)
    return configuration


def server_named(kubernetes: str, feature_gates: str) -> Server | None:
    """Read `--kubernetes` and `--feature-gates`; None if neither is given."""
    from dra.errors import ServerError
    from dra.server import read_server

    if not kubernetes and not feature_gates:
        return None
    try:
        return read_server(kubernetes, feature_gates)
    except ServerError as error:
        option = "--feature-gates" if feature_gates else "--kubernetes"
        raise Broken(f"{option}: {error}", error.remedy) from error


def features_of(server: Server | None, configuration: Configuration | None = None) -> Features:
    """Return the API features of the given server, else of the one the configuration declares, else of the newest."""
    from webhook.state import Features

    if server is not None:
        return Features.of(server)
    newest = Features()
    if configuration is None:
        return newest
    declared = configuration.file.kubernetes.declared()
    if not (declared.minor or declared.gates):
        return newest
    minor = declared.minor or newest.minor
    return Features.combine(minor, {}, declared)
