"""`drawbridge dashboard`: pages about devices, their holders and waiting pods, on loopback or with a login."""

from __future__ import annotations

from contextlib import AsyncExitStack
from ipaddress import ip_network
from typing import TYPE_CHECKING

from analysis.errors import Broken, Failed
from cli import loop, options
from cli.command import declare
from cli.configuration import given_configuration, report_configuration
from cli.exits import Exit
from cli.options import is_loopback
from cli.output import print_lines

if TYPE_CHECKING:
    from analysis.survey import Overview
    from cli.files import InputFiles
    from serving.http import Address

_LISTEN = "127.0.0.1:8642"
_READ_EVERY = 300.0  # seconds between readings for the history, with --login


@declare("dashboard", examples=("drawbridge dashboard", "drawbridge dashboard -f snapshot.json --open"))
@options.files(
    positional=False,
    help="A snapshot, a dump of a cluster, or manifests, instead of a live cluster. May be repeated.",
)
@options.cluster_access()
@options.config()
@options.listen("--listen", _LISTEN, "The address of the pages, on loopback; port 0 chooses a free port.")
@options.option(
    "--login",
    "Require a bearer token of the cluster, and show in each namespace only what the token's account may list.",
)
@options.option(
    "--trusted-proxy",
    "With --login: a proxy whose X-Forwarded-For names the client, so that login attempts are limited by client. May be repeated.",
    metavar="CIDR",
    multiple=True,
)
@options.option("--tls-cert", "The serving certificate (PEM); reloaded when it changes.", metavar="FILE")
@options.option("--tls-key", "The key of --tls-cert.", metavar="FILE")
@options.option(
    "--prometheus", "A Prometheus that scrapes drawbridge, for the history of more than a day.", metavar="URL"
)
@options.option("--open", "Open the first page in the browser.", called="open_browser")
def command(
    *,
    files: InputFiles,
    kubeconfig: str,
    context: str,
    config: str,
    listen: Address,
    login: bool,
    trusted_proxy: tuple[str, ...],
    tls_cert: str,
    tls_key: str,
    prometheus: str,
    open_browser: bool,
) -> Exit:
    """Show devices, their holders, waiting pods with the reasons, and quotas as pages in a browser.

    Without -f the command reads the live cluster when a page is requested, at most every ten seconds. It writes nothing. Without
    --login only this machine can open the pages. /api/v1 has their content as JSON. SIGINT ends the server.
    """
    from analysis.loading import SURVEY, Needs
    from analysis.survey import SurveyScope, overview
    from cli.loading import read_dump, read_live
    from cluster.kubernetes import Kubernetes
    from dashboard import Dashboard, Login, Prometheus, ReadingSource, certificate, read_events, waits_for_node
    from serving.process import stopping

    if not is_loopback(listen.host) and not (login and tls_cert):
        raise Broken(
            f"--listen {listen} is not on loopback, so it needs --login and a certificate",
            "use 127.0.0.1 with `ssh -L`; or give --login, --tls-cert and --tls-key",
        )
    if bool(tls_cert) != bool(tls_key):
        raise Broken("--tls-cert and --tls-key belong together", "give both, or neither")
    if prometheus and not prometheus.startswith(("http://", "https://")):
        raise Broken(f"--prometheus {prometheus} is not a valid URL", "expected http://HOST:PORT or https://HOST")
    try:
        proxies = [ip_network(proxy) for proxy in trusted_proxy]
    except ValueError as error:
        raise Broken(f"--trusted-proxy: {error}", "expected an address, or a range such as 10.0.0.0/8") from None
    if login and files:
        raise Broken("--login needs a cluster, and excludes -f", "leave out -f, or --login")
    given = given_configuration(config)
    if files:
        reading = read_dump(files, given)
        report_configuration(reading.in_force)
        source = ReadingSource(
            ", ".join((*files.paths, *files.kustomizations, *files.charts)), lambda: reading, is_live=False
        )
    else:
        name = f"context {context}" if context else "the current context"

        def survey() -> Overview:
            return overview(read_live(kubeconfig, context, SURVEY, given=given), SurveyScope())

        source = ReadingSource(
            name,
            lambda: read_live(kubeconfig, context, Needs(stored=waits_for_node), given=given),
            is_live=True,
            survey=survey,
            events=lambda *arguments: loop.visit(
                kubeconfig, context, lambda client: read_events(client, *arguments), "docs/dashboard.md"
            ),
        )

    async def serve() -> None:
        stop = stopping()
        async with AsyncExitStack() as resources:
            accounts = None
            if login:
                cluster = Kubernetes.connect(kubeconfig=kubeconfig, context=context)
                resources.push_async_callback(cluster.close)
                accounts = Login(cluster, proxies)
            tls = await resources.enter_async_context(certificate(tls_cert, tls_key)) if tls_cert else None
            url = await resources.enter_async_context(
                Dashboard(
                    source,
                    login=accounts,
                    again=_READ_EVERY if login else 0.0,
                    prometheus=Prometheus(prometheus) if prometheus else None,
                ).open(listen.host, listen.port, tls)
            )
            print_lines([f"dashboard  {url}"])
            if open_browser:
                import webbrowser

                webbrowser.open(url)
            await stop.wait()

    try:
        loop.run(serve())
    except OSError as error:
        raise Failed(
            f"--listen {listen}: {error.strerror or error}", "choose another port, or 0 for a free one"
        ) from None
    return Exit.FINE
