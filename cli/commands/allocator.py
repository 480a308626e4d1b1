"""`drawbridge allocator`: the bridge's service, beside a scheduler or two. It decides which devices pods get, holds them, and writes.

Each group of calls has a port of its own: `--plugin` for our scheduler's plugin, `--extender` for a stock kube-scheduler, `--api` for
people. A client that reaches them can reserve devices, so all of them are unix sockets, loopback, or speak mutual TLS. With `--read-only`
it decides nothing: it looks on beside any scheduler, and tells pods that wait why. SIGTERM ends in good order.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allocator.strategies import DEFAULT
from cli import contract as inputs
from cli import loop
from cli.commands.webhook import own_namespace
from cli.contract import AddressType, Broken, Exit, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.decisions import PlacementRules
    from allocator.service import Listening
    from allocator.strategies import Placement
    from certs.mutual import Files
    from cluster.protocol import Cluster
    from dra.stock import Stock
    from runtime.http import Address
    from webhook.service import Source
    from webhook.state import Configuration

    ReadRules = Callable[[Configuration], PlacementRules]

UNIX = "unix:"
TAKEN = "stop the process that uses that address, or name another one: --plugin, --extender, --api, --reservations, --metrics-listen"
Object = dict[str, Any]
_Translated = tuple[list[Object], list[str]]  # and what was said about them


class PlaceType(click.ParamType["Address | Path"]):
    """unix:PATH, or HOST:PORT."""

    name = "unix:PATH|HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Address | Path:
        if value.startswith(UNIX):
            path = value.removeprefix(UNIX)
            if not path:
                self.fail(f"{value!r} names no socket", param, ctx)
            return Path(path)
        return AddressType().convert(value, param, ctx)


class StrategyType(click.ParamType["Placement"]):
    """NAME, or NAME=WEIGHT,NAME=WEIGHT."""

    name = "strategy"

    def convert(self, value: str | Placement, param: click.Parameter | None, ctx: click.Context | None) -> Placement:
        from allocator.strategies import UnknownStrategy, read_placement

        if not isinstance(value, str):
            return value
        try:
            return read_placement(value)
        except UnknownStrategy as error:
            self.fail(str(error), param, ctx)


def _files(certificate: str, key: str, client_ca: str, remedy: str) -> Files:
    """Read files for TLS, so that one that cannot be used is told at once."""
    from certs import mutual

    files = mutual.Files(certificate, key, client_ca)
    try:
        mutual.Mutual(files)
    except mutual.UnusableFile as error:
        raise Broken(str(error), remedy) from None
    return files


_TLS = "give --tls-cert, --tls-key and --client-ca, or a unix socket, or an address of 127.0.0.1"
_QUOTA_TLS = "give --quota-certs, or an address of 127.0.0.1"


def _demand_loopback(remedy: str, **places: Address | Path | None) -> None:
    """Without TLS nothing may leave the machine."""
    for option, place in places.items():
        if place is None or isinstance(place, Path) or _is_here(place.host):
            continue
        raise Broken(
            f"--{option} {place} is not on loopback, and any client that reaches it can reserve devices",
            remedy,
        )


def _is_here(host: str) -> bool:
    return host == "localhost" or is_loopback(host)


@inputs.command(
    "allocator",
    examples=(
        "drawbridge allocator --plugin 127.0.0.1:9444 --api 127.0.0.1:9446",
        "drawbridge allocator --read-only --api 127.0.0.1:9446",
    ),
)
@inputs.option(
    "--read-only",
    "Decide nothing, beside any scheduler: why pods wait as events, drift, and which claims hold what as a metric.",
)
@click.option("--plugin", type=PlaceType(), help="Where the scheduler's plugin asks. Off loopback only by mutual TLS.")
@click.option("--extender", type=PlaceType(), help="Where a stock kube-scheduler asks, as its HTTP extender.")
@click.option("--api", type=PlaceType(), help="Where people ask: /api/v1/simulate-schedule, /claims, /fleet.")
@inputs.listen("--quota", None, "Where API servers ask whether a quota lets a pod or claim in (/quota).")
@inputs.option(
    "--quota-certs",
    "The folder with tls.crt and tls.key for --quota, and ca.crt for other replicas; followed while they change.",
    metavar="DIR",
)
@inputs.option(
    "--quota-client-ca", "Answer at --quota only to callers with a certificate of this authority.", metavar="FILE"
)
@click.option(
    "--reservations",
    "--promises",
    "reservations",
    type=AddressType(),
    help="Where audit agents read the reservations on their nodes, with tokens of their account (docs/node-agent.md).",
)
@click.option(
    "--reservations-certs",
    "--promises-certs",
    "reservations_certs",
    metavar="DIR",
    default="",
    help="The folder with tls.crt and tls.key for --reservations; followed while they change.",
)
@inputs.metrics_listen("127.0.0.1:9091")
@inputs.option("--tls-cert", "The certificate of plugin, extender and api (PEM); followed.", metavar="FILE")
@inputs.option("--tls-key", "The key of --tls-cert.", metavar="FILE")
@inputs.callers("plugin, extender and api", "plugin and api")
@inputs.option(
    "--scheduler-name",
    "Place the pods of this scheduler. May be repeated.",
    metavar="NAME",
    multiple=True,
    default=("drawbridge",),
    called="schedulers",
)
@inputs.option(
    "--strategy",
    "How to place pods when neither they nor their Namespace name a strategy: NAME, or NAME=WEIGHT,NAME=WEIGHT."
    f"  [default: bridge.placement of --config, else {DEFAULT}]",
    type=StrategyType(),
)
@inputs.option(
    "--most-pods-per-node",
    "The most pods with devices on one node; 0 for any number.  [default: bridge.placement of --config, else 0]",
    type=click.IntRange(min=0),
)
@inputs.config(
    "The DrawbridgeConfiguration: how pods are placed, and how legacy ones are read. Followed while it changes."
)
@inputs.option(
    "--extender-preemption",
    "For pods of --extender that devices of lower-priority pods would serve: name those pods in an event, or evict them.",
    type=click.Choice(["off", "advise", "evict"]),
    default="advise",
)
@inputs.option(
    "--binding-timeout",
    "How long devices may take until pods can be bound to them (bindingConditions), before others are chosen.",
    type=click.FloatRange(min=1, max=86400),
    metavar="SECONDS",
    default=600.0,
)
@click.option(
    "--namespace", metavar="NAME", help="Where the lease is. Default: the one we run in, else drawbridge-system."
)
@inputs.option("--identity", "Our name in the lease. Default: our pod's name.", metavar="NAME")
@inputs.reached()
@inputs.log_level()
def command(
    *,
    read_only: bool,
    plugin: Address | Path | None,
    extender: Address | Path | None,
    api: Address | Path | None,
    quota: Address | None,
    quota_certs: str,
    quota_client_ca: str,
    reservations: Address | None,
    reservations_certs: str,
    metrics_listen: Address,
    tls_cert: str,
    tls_key: str,
    client_ca: str,
    client_names: tuple[str, ...],
    token_file: str,
    schedulers: tuple[str, ...],
    strategy: Placement | None,
    most_pods_per_node: int | None,
    extender_preemption: str,
    binding_timeout: float,
    config: str,
    namespace: str | None,
    identity: str,
    kubeconfig: str,
    context: str,
    log_level: str,
) -> Exit:
    """Decide which devices pods get, for the schedulers that ask, and write it into their claims."""
    from allocator.service import Preempting, ReadOnlyAllocator, Reviewing, Service, Settings, Trust
    from cli.configuration import source_of
    from webhook import names
    from webhook.admission import review_quota, wants_of_pod
    from webhook.service import log

    asked = (plugin, extender, quota, reservations)
    if read_only and any(place is not None for place in asked):
        problem = "--read-only decides nothing, so it cannot answer a scheduler, an API server or an agent"
        raise Broken(problem, "leave out --plugin, --extender, --quota and --reservations")
    if not read_only and all(place is None for place in (plugin, extender, quota, api)):
        raise Broken("no listener is named", "give at least one of --plugin, --extender, --quota and --api")
    tls = quota_tls = reservations_tls = None
    if tls_cert or tls_key or client_ca:
        if not (tls_cert and tls_key and client_ca):
            raise Broken("--tls-cert, --tls-key and --client-ca belong together", "give all three, or none")
        tls = _files(tls_cert, tls_key, client_ca, "give files as openssl and cert-manager write them (docs/bridge.md)")
    elif client_names:
        raise Broken("--client-name needs client certificates", "give --client-ca, --tls-cert and --tls-key, too")
    else:
        _demand_loopback(_TLS, plugin=plugin, extender=extender, api=api)
    if quota_certs:
        remedy = "give a folder with tls.crt, tls.key and ca.crt (docs/quota.md)"
        quota_tls = _files(f"{quota_certs}/tls.crt", f"{quota_certs}/tls.key", quota_client_ca, remedy)
    elif quota_client_ca:
        raise Broken("--quota-client-ca needs a listener with TLS", "give --quota-certs, too")
    else:
        _demand_loopback(_QUOTA_TLS, quota=quota)
    if reservations_certs:
        remedy = "give a folder with tls.crt and tls.key (docs/node-agent.md)"
        reservations_tls = _files(f"{reservations_certs}/tls.crt", f"{reservations_certs}/tls.key", "", remedy)
    elif reservations is not None and not _is_here(reservations.host):
        problem = f"--reservations {reservations} is not on loopback, and without TLS its bearer tokens can be read on the way"
        raise Broken(problem, "give --reservations-certs, or an address of 127.0.0.1")
    if token_file and not os.access(token_file, os.R_OK):
        raise Broken(f"--token-file {token_file} cannot be read", "give a file that holds the token and nothing else")
    log.configure(log_level)
    source = source_of(config)
    read_rules = partial(rules_of, strategy=strategy, most_pods=most_pods_per_node)
    space = namespace or own_namespace()
    own_address = os.environ.get("POD_IP", "")
    settings = Settings(
        # The policy that fences the lease compares it with the pod's name, so nothing is added to that.
        identity=identity or os.environ.get("POD_NAME") or socket.gethostname(),
        namespace=space,
        schedulers=schedulers,
        rules=read_rules(source.current),
        preempting=Preempting(extender_preemption),
        binding=binding_timeout,
        plugin=plugin,
        extender=extender,
        api=api,
        metrics=metrics_listen,
        quota=quota,
        quota_tls=quota_tls,
        quota_place=str(quota._replace(host=own_address)) if quota and own_address else "",
        quota_trust=Trust(f"{quota_certs}/ca.crt", f"{names.QUOTA}.{space}.svc") if quota_tls else Trust(),
        reservations=reservations,
        reservations_tls=reservations_tls,
        agent=f"system:serviceaccount:{space}-nodes:drawbridge-node-agent",
        tls=tls,
        client_names=client_names,
        token_file=token_file,
    )

    def announce(where: Listening) -> None:
        loop.settle()
        said = {name: str(place) for name, place in where._asdict().items() if place is not None}
        logging.getLogger("drawbridge.allocator").info("ready", extra=said)

    async def serve(cluster: Cluster, stop: asyncio.Event) -> None:
        translate = translator(source)
        service = (
            ReadOnlyAllocator(cluster, settings, translate)
            if read_only
            else Service(cluster, settings, translate, Reviewing(review_quota, wants_of_pod))
        )

        def follow(new: Configuration) -> None:
            service.place_by(read_rules(new))
            service.declare(new.file.kubernetes.said())

        service.declare(source.current.file.kubernetes.said())
        async with asyncio.TaskGroup() as group:
            following = group.create_task(source.follow(follow))
            await service.run(stop, announce)
            following.cancel()

    loop.serve(kubeconfig, context, serve, TAKEN)
    return Exit.FINE


def rules_of(
    configuration: Configuration, strategy: Placement | None = None, most_pods: int | None = None
) -> PlacementRules:
    """Read how pods are placed; what was said on the command line goes before the file."""
    from allocator.decisions import PlacementRules
    from allocator.strategies import read_placement
    from webhook.state import Placing

    bridge = configuration.file.bridge
    placing = bridge.placement if bridge is not None else Placing()
    namespaces = {name: read_placement(text) for name, text in placing.namespaces.items()}
    return PlacementRules(
        otherwise=strategy or read_placement(placing.strategy),
        namespaces=namespaces,
        most_pods=placing.most_pods_per_node if most_pods is None else most_pods,
    )


def translator(source: Source) -> Callable[[list[Object], Stock], _Translated]:
    """How legacy objects become translated ones, by a configuration and what a stock shows."""
    from cluster.patch import apply_json_patch
    from dra.server import known_gates
    from webhook.claims import template
    from webhook.state import Features, Inventory, State
    from webhook.translate import translate_object

    def translate(objects: list[Object], stock: Stock) -> _Translated:
        classes = stock.classes.values()
        slices = stock.slices.values()
        nodes = stock.nodes.values()
        fleet = Inventory.of(classes, slices, nodes)
        server = stock.reading.server
        # What is not known of it counts as on where claims are judged, and by default for what is written.
        off = dict.fromkeys(known_gates(server.minor).keys() - server.gates, False)
        features = Features.seen(server.minor, off)
        state = State(configuration=source.current, fleet=fleet, features=features)
        translated: list[Object] = []
        notes: list[str] = []
        for obj in objects:
            done = translate_object(obj, state)
            metadata = obj.get("metadata") or {}
            namespace = str(metadata.get("namespace") or "default")
            for name, spec in done.templates.items():
                made = template.object_of(name, spec, namespace)
                translated.append(made)
            after = apply_json_patch(obj, done.operations) if done.changed else obj
            translated.append(after)
            notes += map(str, done.refusals)
            notes += done.warnings
        return translated, notes

    return translate
