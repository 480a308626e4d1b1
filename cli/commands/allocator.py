"""`drawbridge allocator`: the bridge's service, beside a scheduler or two. It decides which devices pods get, holds them, and writes.

Each group of calls has a port of its own: `--plugin` for our scheduler's plugin, `--extender` for a stock kube-scheduler, `--api` for
people. All of them are unix sockets or loopback: whoever can reach them can have devices held. With `--read-only` it decides nothing:
it looks on beside any scheduler, and tells pods that wait why. SIGTERM ends in good order.
"""

from __future__ import annotations

import logging
import os
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allocator.strategies import DEFAULT
from cli import contract as inputs
from cli import loop
from cli.commands.webhook import AddressType, own_namespace, stopping
from cli.contract import Broken, Exit, Failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.decisions import Placement
    from allocator.service import Listening, Settings
    from cluster.serving import Address
    from dra.stock import Stock
    from webhook.service import Source

UNIX = "unix:"
Object = dict[str, Any]
_Translated = tuple[list[Object], list[str]]  # and what was said about them


class PlaceType(click.ParamType["Address | Path"]):
    """unix:PATH, or HOST:PORT on loopback."""

    name = "unix:PATH|HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Address | Path:
        if value.startswith(UNIX):
            path = value.removeprefix(UNIX)
            if not path:
                self.fail(f"{value!r} names no socket", param, ctx)
            return Path(path)
        address = AddressType().convert(value, param, ctx)
        if not _is_loopback(address.host):
            self.fail(f"{value!r} is not on loopback: whoever reaches this port can have devices held", param, ctx)
        return address


class StrategyType(click.ParamType["Placement"]):
    """NAME, or NAME=WEIGHT,NAME=WEIGHT."""

    name = "strategy"

    def convert(self, value: str | Placement, param: click.Parameter | None, ctx: click.Context | None) -> Placement:
        from allocator.decisions import UnknownStrategy, read_placement

        if not isinstance(value, str):
            return value
        try:
            return read_placement(value)
        except UnknownStrategy as error:
            self.fail(str(error), param, ctx)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@inputs.command("allocator")
@click.option(
    "--read-only",
    is_flag=True,
    help="Beside any scheduler, deciding nothing: reasons as events on pods that wait, drift, and who has what as a metric.",
)
@click.option("--plugin", type=PlaceType(), help="Where the scheduler's plugin asks.")
@click.option("--extender", type=PlaceType(), help="Where a stock kube-scheduler asks, as its HTTP extender.")
@click.option("--api", type=PlaceType(), help="Where people ask: /api/v1/simulate-schedule, /claims, /fleet.")
@click.option(
    "--metrics-listen", type=AddressType(), default="127.0.0.1:9091", show_default=True, help="Where to show metrics."
)
@click.option(
    "--token-file",
    metavar="FILE",
    default="",
    help="Answer plugin and api only to callers that show this bearer token.",
)
@click.option(
    "--scheduler-name",
    "schedulers",
    metavar="NAME",
    multiple=True,
    default=("drawbridge",),
    show_default=True,
    help="Pods of these schedulers are ours to place.",
)
@click.option(
    "--strategy",
    type=StrategyType(),
    default=DEFAULT,
    show_default=True,
    help="How pods are placed that say nothing about it, and whose Namespace does not: NAME, or NAME=WEIGHT,NAME=WEIGHT.",
)
@click.option(
    "--most-pods-per-node",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="As many pods with devices as we put on one node; 0 for any number.",
)
@click.option("--config", metavar="FILE", default="", help="The DrawbridgeConfiguration by which legacy pods are read.")
@click.option(
    "--namespace", metavar="NAME", help="Where the lease is. Default: the one we run in, else drawbridge-system."
)
@click.option("--identity", metavar="NAME", default="", help="Who we are in the lease. Default: our pod's name.")
@click.option("--kubeconfig", metavar="FILE", default="", help="Default: the cluster we run in, else kubectl's.")
@click.option("--context", metavar="NAME", default="", help="A context of the kubeconfig.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def command(
    *,
    read_only: bool,
    plugin: Address | Path | None,
    extender: Address | Path | None,
    api: Address | Path | None,
    metrics_listen: Address,
    token_file: str,
    schedulers: tuple[str, ...],
    strategy: Placement,
    most_pods_per_node: int,
    config: str,
    namespace: str | None,
    identity: str,
    kubeconfig: str,
    context: str,
    log_level: str,
) -> Exit:
    """Decide which devices pods get, for the schedulers that ask, and write it into their claims."""
    from allocator.service import Settings
    from cli.configuration import source_of
    from cluster.errors import ClusterError
    from cluster.serving import Credentials
    from webhook.service import log

    if read_only and not (plugin is None and extender is None):
        raise Broken("--read-only decides nothing, so no scheduler can ask", "leave --plugin and --extender away")
    if not read_only and plugin is None and extender is None and api is None:
        raise Broken("nobody could ask", "say at least one of --plugin, --extender and --api")
    log.configure(log_level)
    settings = Settings(
        # The policy that fences the lease compares it with the pod's name, so nothing is added to that.
        identity=identity or os.environ.get("POD_NAME") or socket.gethostname(),
        namespace=namespace or own_namespace(),
        schedulers=schedulers,
        placement=strategy,
        most_pods=most_pods_per_node,
        plugin=plugin,
        extender=extender,
        api=api,
        metrics=metrics_listen,
        credentials=Credentials(token_file=token_file),
    )
    try:
        loop.run(_serve(settings, source_of(config), kubeconfig, context, read_only=read_only))
    except* ClusterError as group:
        raise Failed(str(group.exceptions[0])) from None
    except* OSError as group:
        raise Failed(str(group.exceptions[0])) from None
    return Exit.FINE


async def _serve(settings: Settings, source: Source, kubeconfig: str, context: str, *, read_only: bool) -> None:
    from allocator.service import Onlooker, Service
    from cluster.kubernetes import Kubernetes

    cluster = Kubernetes.connect(kubeconfig=kubeconfig, context=context)
    process = Onlooker if read_only else Service
    try:
        await process(cluster, settings, translator(source)).run(stopping(), _announce)
    finally:
        await cluster.close()


def translator(source: Source) -> Callable[[list[Object], Stock], _Translated]:
    """How legacy objects become translated ones, by a configuration and what a stock shows."""
    from cluster.patch import apply_json_patch
    from webhook.claims import template
    from webhook.state import Features, Inventory, State
    from webhook.translate import translate_object

    def translate(objects: list[Object], stock: Stock) -> _Translated:
        classes = stock.classes.values()
        slices = stock.slices.values()
        nodes = stock.nodes.values()
        fleet = Inventory.of(classes, slices, nodes)
        state = State(configuration=source.current, fleet=fleet, features=Features(minor=37))
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
            notes += done.refusals
            notes += done.warnings
        return translated, notes

    return translate


def _announce(where: Listening) -> None:
    loop.settle()
    said = {name: str(place) for name, place in where._asdict().items() if place is not None}
    logging.getLogger("drawbridge.allocator").info("ready", extra=said)
