"""`drawbridge standalone`: webhook, controllers and allocator on loopback over the embedded store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import loop, options
from cli.command import declare
from cli.commands.demo import IGNORED, count_by_kind, read_fleet
from cli.exits import Exit
from cli.output import print_lines

if TYPE_CHECKING:
    from serving.http import Address

FREE = "127.0.0.1:0"


@declare(
    "standalone",
    examples=("drawbridge standalone", "drawbridge standalone --inventory fleet.yaml --pods-listen 127.0.0.1:8080"),
)
@options.inventory("Default: the example fleet. ")
@options.config(
    "A file with a DrawbridgeConfiguration; reloaded when it changes. Default: the one in the input, else the built-in one."
)
@options.listen("--listen", FREE, "The address of the webhook (TLS); port 0 chooses a free one.")
@options.metrics_listen(FREE)
@options.listen("--pods-listen", FREE, "The address to post pods to.")
@options.listen("--dashboard-listen", FREE, "The address of the dashboard.")
@options.log_level()
def command(
    *,
    inventory: tuple[str, ...],
    config: str,
    listen: Address,
    metrics_listen: Address,
    pods_listen: Address,
    dashboard_listen: Address,
    log_level: str,
) -> Exit:
    """Run webhook, controllers and allocator on loopback, without a cluster."""
    from analysis.configuration import KIND
    from cli.configuration import watched_configuration
    from cli.playground import PodsListener, playground
    from dashboard import Dashboard, ReadingSource
    from serving.process import stopping
    from webhook.service import WebhookSettings, log

    decisions = log.configure(log_level)
    documents = read_fleet(inventory)
    settings = WebhookSettings(identity="standalone", listen=listen, metrics=metrics_listen)

    source, in_force = watched_configuration(config, documents)
    objects = [document.object for document in documents if document.object.get("kind") != KIND]

    async def serve() -> None:
        stop = stopping()
        product = playground(objects, source, settings, decisions)
        async with product as running, PodsListener(running).open(pods_listen.host, pods_listen.port) as url:
            pictures = ReadingSource.of_cluster(running.cluster, "the store of drawbridge standalone", in_force)
            async with Dashboard(pictures).open(dashboard_listen.host, dashboard_listen.port) as pages:
                print_lines(
                    [
                        f"reviews    {running.url}/mutate and /validate (TLS)",
                        f"pods       {url}/pods    curl --data-binary @pod.yaml {url}/pods",
                        f"metrics    {running.metrics_url}",
                        f"dashboard  {pages}",
                        f"configuration: {in_force.source}; mode {in_force.configuration.file.mode}",
                        *count_by_kind(running.ignored, IGNORED),
                    ]
                )
                loop.exempt_from_collection()
                await stop.wait()

    loop.run(serve())
    return Exit.FINE
