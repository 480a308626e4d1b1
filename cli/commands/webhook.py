"""`drawbridge webhook`: the admission webhook, its controllers and its certificate authority, as processes of a cluster.

The manifests run it three times, each with an identity of its own: the webhook may only read, `--no-reviews --no-authority` keeps
templates, `--no-reviews --no-controllers --authority` keeps the certificates and the bundle. SIGTERM drains; a second signal ends at once.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import contract as inputs
from cli import loop
from cli.contract import Broken, Exit

if TYPE_CHECKING:
    import asyncio

    from cluster.protocol import Cluster
    from runtime.http import Address

IN_CLUSTER_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


@inputs.command(
    "webhook",
    examples=(
        "drawbridge webhook --config drawbridge.yaml",
        "drawbridge webhook --kubeconfig kubeconfig --listen :9443",
    ),
)
@inputs.config("The DrawbridgeConfiguration; followed while it changes.")
@click.option("--reviews/--no-reviews", "--gate/--no-gate", "reviews", default=True, help="Answer reviews.")
@click.option("--controllers/--no-controllers", default=True, help="Keep the templates.")
@click.option(
    "--authority/--no-authority",
    default=None,
    help="Keep certificates, seal keys and caBundle.  [default: as --controllers]",
)
@inputs.listen("--listen", "127.0.0.1:8443", "Where to answer reviews (TLS).")
@inputs.metrics_listen("127.0.0.1:9090")
@click.option(
    "--namespace", metavar="NAME", help="Our own namespace. Default: the one we run in, else drawbridge-system."
)
@inputs.option("--service", "The Service the API server calls.", metavar="NAME", default="drawbridge")
@inputs.option(
    "--name", "A further name or address the certificate is for.", metavar="HOST", multiple=True, called="names"
)
@click.option(
    "--tls-cert", metavar="FILE", help="Serve this certificate, which is renewed elsewhere, instead of our own."
)
@click.option("--tls-key", metavar="FILE", help="The key of --tls-cert.")
@inputs.callers("reviews", "reviews")
@inputs.option("--notice", "Seconds to serve on after SIGTERM.", type=inputs.Number(0), default=5.0)
@inputs.option("--sweep-after", "Seconds to keep an unused template.", type=inputs.Number(0), default=3600.0)
@inputs.reached()
@inputs.log_level()
def command(
    *,
    config: str,
    reviews: bool,
    controllers: bool,
    authority: bool | None,
    listen: Address,
    metrics_listen: Address,
    namespace: str | None,
    service: str,
    names: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    client_ca: str,
    client_names: tuple[str, ...],
    token_file: str,
    notice: float,
    sweep_after: float,
    kubeconfig: str,
    context: str,
    log_level: str,
) -> Exit:
    """Run the admission webhook, its controllers and its authority, or some of them."""
    from cli.configuration import source_of
    from runtime.authentication import Credentials
    from webhook.names import PROMISES, QUOTA
    from webhook.service import Service, Settings, log

    if bool(tls_cert) != bool(tls_key):
        raise Broken("--tls-cert and --tls-key belong together", "give both, or neither")
    decisions = log.configure(log_level)
    space = namespace or own_namespace()
    settings = Settings(
        identity=f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.getpid()}",
        namespace=space,
        names=(*names_of(service, space), *names),
        allocator_names=(*names_of(QUOTA, space), *names_of(PROMISES, space)),
        reviews=reviews,
        controllers=controllers,
        authority=controllers if authority is None else authority,
        listen=listen,
        metrics=metrics_listen,
        files=(tls_cert, tls_key) if tls_cert and tls_key else None,
        credentials=Credentials(client_ca, client_names, token_file),
        notice=notice,
        sweep_after=sweep_after,
    )
    source = source_of(config)

    def announce(reviews: Address, metrics: Address | None) -> None:
        loop.settle()
        logging.getLogger("drawbridge.service").info("ready", extra={"reviews": str(reviews), "metrics": str(metrics)})

    async def serve(cluster: Cluster, stop: asyncio.Event) -> None:
        await Service(cluster, source, settings, decisions).run(stop, announce)

    loop.serve(kubeconfig, context, serve)
    return Exit.FINE


def names_of(service: str, space: str) -> tuple[str, ...]:
    """The names of a Service."""
    return f"{service}.{space}.svc", f"{service}.{space}.svc.cluster.local", f"{service}.{space}"


def own_namespace() -> str:
    """Name the namespace that this process runs in, or would."""
    if named := os.environ.get("POD_NAMESPACE"):
        return named
    try:
        return Path(IN_CLUSTER_NAMESPACE).read_text().strip()
    except OSError:
        return "drawbridge-system"
