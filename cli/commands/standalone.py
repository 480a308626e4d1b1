"""`drawbridge standalone`: webhook, controllers and allocator on loopback over the embedded store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis import loop
from cli import contract as inputs
from cli.commands.demo import EXAMPLES, IGNORED, count_by_kind
from cli.contract import Exit

if TYPE_CHECKING:
    from runtime.http import Address

FREE = "127.0.0.1:0"


@inputs.command(
    "standalone", examples=("drawbridge standalone", "drawbridge standalone -f fleet.yaml --pods-listen 127.0.0.1:8080")
)
@inputs.files(required=False, help="Nodes, classes, slices and other objects of the store. Default: the example fleet.")
@inputs.config(
    "A file with a DrawbridgeConfiguration; reloaded when it changes. Default: for the example fleet its own, else the built-in one."
)
@inputs.option("--data", "A file that keeps the store through restarts; -f is read only if it is new.", metavar="FILE")
@inputs.listen("--listen", FREE, "The address of the webhook (TLS); port 0 chooses a free one.")
@inputs.metrics_listen(FREE)
@inputs.listen("--pods-listen", FREE, "The address to post pods to.")
@inputs.listen("--dashboard-listen", FREE, "The address of the dashboard.")
@inputs.log_level()
def command(
    *,
    files: tuple[str, ...],
    config: str,
    data: str,
    listen: Address,
    metrics_listen: Address,
    pods_listen: Address,
    dashboard_listen: Address,
    log_level: str,
) -> Exit:
    """Run webhook, controllers and allocator on loopback, without a cluster."""
    from analysis.configuration import KIND, watched_configuration
    from cli.playground import PodsListener, playground
    from cluster.errors import StoreError
    from dashboard import Dashboard, PictureSource
    from runtime.process import stopping
    from webhook.service import Settings, log

    decisions = log.configure(log_level)
    documents = inputs.read(files or (str(EXAMPLES / "fleet"),))
    settings = Settings(identity="standalone", listen=listen, metrics=metrics_listen)

    config = config or ("" if files else str(EXAMPLES / "configuration.yaml"))
    source, in_force = watched_configuration(config, documents)
    objects = [document.object for document in documents if document.object.get("kind") != KIND]

    async def serve() -> None:
        stop = stopping()
        whole = playground(objects, source, settings, decisions, data=data)
        async with whole as running, PodsListener(running).open(pods_listen.host, pods_listen.port) as url:
            read = PictureSource.of_cluster(running.cluster, "the store of drawbridge standalone", in_force)
            async with Dashboard(read).open(dashboard_listen.host, dashboard_listen.port) as pages:
                inputs.print_lines(
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

    try:
        loop.run(serve())
    except StoreError as error:
        raise inputs.CommandFailed(
            str(error), "give a file that drawbridge wrote, or a new one, with --data"
        ) from error
    return Exit.FINE
