"""`drawbridge webhook`: the admission webhook, its controllers and its certificate authority.

The manifests run this command in three Deployments with different rights: the webhook may only read; with `--no-reviews --no-authority` it
manages templates; with `--no-reviews --no-controllers --authority` it manages certificates and the CA bundle. On SIGTERM the process
finishes the requests in progress, then exits. A second signal ends it at once.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from analysis.errors import Broken
from cli import loop, options
from cli.command import declare
from cli.exits import Exit
from cli.server_options import options_of
from serving.process import own_name
from webhook.names import RESERVATIONS
from webhook.service import WebhookSettings

if TYPE_CHECKING:
    import asyncio

    from cluster.protocol import Cluster
    from serving.http import Address


@declare(
    "webhook",
    examples=(
        "drawbridge webhook --config drawbridge.yaml",
        "drawbridge webhook --kubeconfig kubeconfig --listen :9443",
    ),
)
@options_of(WebhookSettings)
@options.cluster_access()
@options.log_level()
def command(*, settings: WebhookSettings, kubeconfig: str, context: str, log_level: str) -> Exit:
    """Run the admission webhook, its controllers and its certificate authority, or some of these."""
    from webhook.service import Source, WebhookServer, log

    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise Broken("--tls-cert and --tls-key belong together", "give both, or neither")
    decisions = log.configure(log_level)
    space = settings.namespace
    settings = replace(
        settings,
        identity=f"{own_name()}_{os.getpid()}",
        names=(*names_of(settings.service, space), *settings.names),
        allocator_names=names_of(RESERVATIONS, space),
    )
    source = Source(settings.config)

    def announce(reviews: Address, metrics: Address | None) -> None:
        loop.exempt_from_collection()
        logging.getLogger("drawbridge.service").info("ready", extra={"reviews": str(reviews), "metrics": str(metrics)})

    async def serve(cluster: Cluster, stop: asyncio.Event) -> None:
        await WebhookServer(cluster, source, settings, decisions).run(stop, announce)

    loop.serve(kubeconfig, context, serve)
    return Exit.FINE


def names_of(service: str, space: str) -> tuple[str, ...]:
    """Return the DNS names of a Service."""
    return f"{service}.{space}.svc", f"{service}.{space}.svc.cluster.local", f"{service}.{space}"
