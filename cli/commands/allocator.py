"""`drawbridge allocator`: the service that allocates devices for schedulers, reserves them and writes the claims.

It listens on one address for each kind of client: `--plugin` for our scheduler's plugin, `--api` for people. Any client can reserve devices. So each address is a unix socket or on loopback, or requires mutual
TLS. With `--read-only` the service works beside any scheduler: it allocates nothing, and writes events with the reasons why pods wait.
On SIGTERM it finishes the calls in progress, then exits.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import TYPE_CHECKING

from allocator.service import AllocatorSettings
from analysis.errors import Broken
from cli import loop, options
from cli.command import declare
from cli.exits import Exit
from cli.options import is_loopback
from cli.server_options import options_of
from serving.http import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allocator.decisions import PlacementRules
    from allocator.service import Listening
    from certs.mutual import Files
    from cluster.protocol import Cluster
    from dra.server import KnownServer
    from webhook.state import Configuration

_LISTEN_OPTIONS = "--plugin, --api, --reservations, --metrics-listen"
ADDRESS_IN_USE = f"stop the process that uses this address, or choose another one: {_LISTEN_OPTIONS}"


def _check_usable(files: Files | None, remedy: str) -> None:
    """Read the TLS files now, so that the command fails at its start if they are unusable."""
    from certs import mutual

    try:
        if files is not None:
            mutual.Mutual(files)
    except mutual.UnusableFile as error:
        raise Broken(str(error), remedy) from None


def _check_loopback(settings: AllocatorSettings, remedy: str, *options: str) -> None:
    """Refuse addresses beyond loopback for listeners without TLS."""
    for option in options:
        address = getattr(settings, option)
        if isinstance(address, Address) and not _is_local(address.host):
            problem = f"--{option} {address} is not on loopback, and any client that reaches it can reserve devices"
            raise Broken(problem, remedy)


def _is_local(host: str) -> bool:
    return host == "localhost" or is_loopback(host)


@declare(
    "allocator",
    examples=(
        "drawbridge allocator --plugin 127.0.0.1:9444 --api 127.0.0.1:9446",
        "drawbridge allocator --read-only --api 127.0.0.1:9446",
    ),
)
@options_of(AllocatorSettings)
@options.cluster_access()
@options.log_level()
def command(*, settings: AllocatorSettings, kubeconfig: str, context: str, log_level: str) -> Exit:
    """Allocate devices for schedulers, and write the allocations into the claims."""
    from allocator.service import AllocatorServer, ReadOnlyAllocator
    from webhook.service import Source, log

    _refuse_contradictions(settings)
    log.configure(log_level)
    source = Source(settings.config)

    def announce(where: Listening) -> None:
        loop.exempt_from_collection()
        addresses = {name: str(address) for name, address in where._asdict().items() if address is not None}
        logging.getLogger("drawbridge.allocator").info("ready", extra=addresses)

    async def serve(cluster: Cluster, stop: asyncio.Event) -> None:
        service = ReadOnlyAllocator(cluster, settings) if settings.read_only else AllocatorServer(cluster, settings)

        def follow(new: Configuration) -> None:
            service.configure(rules_of(new), new.file.kubernetes.declared(), partial(simulate, new))

        follow(source.current)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(source.follow(follow))
            await service.run(stop, announce)
            following.cancel()

    loop.serve(kubeconfig, context, serve, ADDRESS_IN_USE)
    return Exit.FINE


def _refuse_contradictions(settings: AllocatorSettings) -> None:
    wanted_roles = (settings.plugin, settings.reservations)
    if settings.read_only and any(role is not None for role in wanted_roles):
        problem = "--read-only excludes --plugin and --reservations"
        raise Broken(problem, "leave these options out, or --read-only")
    if not settings.read_only and settings.plugin is None and settings.api is None:
        raise Broken("no address to listen on is given", "give --plugin, --api or both")
    tls_files = (settings.tls_cert, settings.tls_key, settings.client_ca)
    if any(tls_files) and not all(tls_files):
        raise Broken("--tls-cert, --tls-key and --client-ca belong together", "give all three, or none")
    if settings.client_names and not settings.tls:
        raise Broken("--client-name needs client certificates", "give --client-ca, --tls-cert and --tls-key, too")
    _check_usable(settings.tls, "give files as openssl and cert-manager write them (docs/bridge.md)")
    if not settings.tls:
        remedy = "give --tls-cert, --tls-key and --client-ca, or a unix socket, or an address of 127.0.0.1"
        _check_loopback(settings, remedy, "plugin", "api")
    _check_usable(settings.reservations_tls, "give a folder with tls.crt and tls.key (docs/node.md)")
    agents = settings.reservations
    if agents is not None and not settings.reservations_tls and not _is_local(agents.host):
        problem = f"--reservations {agents} is not on loopback: without TLS, bearer tokens would be sent in clear text"
        raise Broken(problem, "give --reservations-certs, or an address of 127.0.0.1")
    token = settings.token_file
    if token and not os.access(token, os.R_OK):
        raise Broken(f"--token-file {token} cannot be read", "give a file that holds the token and nothing else")


def rules_of(configuration: Configuration) -> PlacementRules:
    """Return the placement rules of a configuration."""
    from allocator.decisions import PlacementRules
    from allocator.strategies import read_placement
    from webhook.state import Placing

    bridge = configuration.file.bridge
    placing = bridge.placement if bridge is not None else Placing()
    namespaces = {name: read_placement(text) for name, text in placing.namespaces.items()}
    return PlacementRules(read_placement(placing.strategy), namespaces, placing.most_pods_per_node)


def simulate(
    configuration: Configuration, objects: Iterable[object], server: KnownServer, text: str, is_late: Callable[[], bool]
) -> tuple[int, object]:
    """Place the pods of a manifest, as the dashboard does; return the status of the reply and its content."""
    from analysis.configuration import ConfigurationInForce
    from analysis.loading import reading_of
    from dashboard import Unanswerable, WhatIfQuestion, what_if
    from webhook.state import Features

    features = Features.combine(server.minor, server.reported, server.declared)
    reading = reading_of(objects, features, in_force=ConfigurationInForce(configuration))
    try:
        return 200, what_if(reading, WhatIfQuestion(text), is_late)
    except Unanswerable as error:
        return 400, {"error": str(error), "remedy": "see docs/bridge.md#calls"}
