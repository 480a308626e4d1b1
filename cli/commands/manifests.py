"""`drawbridge manifests`: the objects of an installation for `kubectl apply`, or a Helm chart of them.

The objects come from the folder `manifests/` (`analysis.installation`), except for the webhook configurations, whose rules follow
from the configured dialects (`webhook.registration`).
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from analysis import installation
from analysis.installation import IMAGES, LABEL, NAMESPACE, PARTS
from cli import options
from cli.command import declare
from rendering.exits import Broken, Exit
from rendering.output import print_lines, warn

# The chart's value for each option; "" if it has none. `PARTS` has those of optional parts.
_IN_VALUES = {
    "only": "",
    "namespace": "namespace",
    "image": "image",
    "level": "level",
    "bridge": "bridge.enabled",
    "reservations": "bridge.reservations",
    "scheduler_image": "bridge.schedulerImage",
    "api_servers": "networkPolicy.apiServers",
    "failure_policy": "webhooks.failurePolicy",
    "opt_in": "webhooks.optIn",
    "devices": "webhooks.devices",
    "url": "webhooks.url",
    "ca_bundle": "certificates.caBundle",
    "cert_manager": "certificates.certificate",
    **{name.replace("-", "_"): part.value for name, part in PARTS.items()},
}


class Pattern(click.ParamType["str"]):
    """Text that must match a pattern."""

    def __init__(self, name: str, pattern: str, problem: str) -> None:
        self.name = name
        self._pattern = re.compile(pattern, re.ASCII)
        self._problem = problem

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not self._pattern.fullmatch(value):
            self.fail(f"{value!r} {self._problem}", param, ctx)
        return value


class UrlType(click.ParamType["str"]):
    """A URL that a webhook configuration accepts (k8s.io/apiserver pkg/util/webhook, ValidateWebhookURL)."""

    name = "URL"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            url = urlsplit(value)
            port = url.port
        except ValueError as error:
            self.fail(f"{value!r} is not a valid URL: {error}", param, ctx)
        if value and (url.scheme != "https" or not url.hostname or port == 0):
            self.fail(f"{value!r} is not a valid webhook URL (expected https://HOST:PORT)", param, ctx)
        if url.username or url.password or url.query or url.fragment:
            self.fail(f"{value!r} is not a valid webhook URL (expected no user, query or fragment)", param, ctx)
        return value


_NAMESPACE = Pattern(
    "NAME", LABEL.pattern, "is not a valid namespace (expected lower case letters, digits and '-', at most 63)"
)
_IMAGE = Pattern("REF", f"({IMAGES.pattern})?", "is not a valid image (expected REGISTRY/drawbridge:TAG)")
_CERTIFICATE = Pattern(
    "NAMESPACE/NAME",
    rf"({LABEL.pattern}/{LABEL.pattern}(\.{LABEL.pattern})*)?",
    "is not a valid Certificate (expected NAMESPACE/NAME)",
)
_OF_PARTS = [
    click.option(f"--{name}", name.replace("-", "_"), is_flag=True, help=part.help) for name, part in PARTS.items()
]


@declare(
    "manifests",
    examples=(
        "drawbridge manifests --image registry.example.com/drawbridge:0.1.0 | kubectl apply -f -",
        "drawbridge manifests --only webhooks --config drawbridge.yaml",
    ),
)
@options.option(
    "--only", "Print only the webhook configurations, or all other objects.", type=click.Choice(["webhooks", "rest"])
)
@options.option("--namespace", "The namespace to install in.", type=_NAMESPACE, metavar="NAME", default=NAMESPACE)
@options.option("--image", "The image of drawbridge.", type=_IMAGE, metavar="REF")
@options.option(
    "--level",
    "`readOnly` adds --read-only; `bridge` adds --bridge; `node` adds --bridge, --node-agent and --reservations.",
    type=click.Choice(["webhook", "readOnly", "bridge", "node"]),
    default="webhook",
)
@options.option("--bridge", "Add the allocator, and our scheduler, which calls the allocator (docs/bridge.md).")
@options.option(
    "--scheduler-image",
    "With --bridge: the image of our scheduler.",
    type=_IMAGE,
    metavar="REF",
)
@options.all_of(_OF_PARTS)
@options.option(
    "--reservations",
    "With --bridge and --node-agent: the allocator shows each agent the reservations on its node (docs/node.md).",
)
@options.option(
    "--api-server",
    "An address from which the API server calls; the NetworkPolicy then admits no others. May be repeated.",
    metavar="CIDR",
    multiple=True,
    called="api_servers",
)
@options.config("A file with the DrawbridgeConfiguration to install.")
@options.option(
    "--failure-policy",
    "What the API server does with pods for accelerators while the webhook is unavailable.",
    type=click.Choice(["Ignore", "Fail"]),
    default="Ignore",
)
@options.option("--opt-in", "Review only namespaces with the label drawbridge.dev/mode.")
@options.option("--devices", "Also validate ResourceSlices, DeviceClasses and drawbridge's own kinds.")
@options.option("--url", "The URL of the webhook, if not its Service.", type=UrlType(), default="")
@options.option("--ca-bundle", "Your CA bundle. Default: drawbridge creates and rotates its own.", metavar="FILE")
@options.option(
    "--cert-manager",
    "The Certificate from which cert-manager injects the CA bundle.",
    type=_CERTIFICATE,
    metavar="NAMESPACE/NAME",
)
@options.option(
    "--helm",
    "Write a Helm chart for --config to this folder instead; set the other options as values of the chart.",
    metavar="DIR",
)
def command(
    *,
    only: str | None,
    namespace: str,
    image: str,
    level: str,
    bridge: bool,
    scheduler_image: str,
    reservations: bool,
    api_servers: tuple[str, ...],
    config: str,
    failure_policy: str,
    opt_in: bool,
    devices: bool,
    url: str,
    ca_bundle: str,
    cert_manager: str,
    helm: str,
    **parts: bool,
) -> Exit:
    """Print the manifests that install drawbridge, or write a Helm chart of them.

    `drawbridge uninstall` removes an installation.
    """
    from cluster import manifests
    from webhook.registration import Registration, configurations
    from webhook.state import Configuration

    text, source = installation.configuration_of(config) if config else ("", Configuration())
    if helm:
        from analysis.schemas import CONFIGURATION, text_of

        context = click.get_current_context()
        for parameter, value in _IN_VALUES.items():
            if context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE:
                option = next(param.opts[0] for param in context.command.params if param.name == parameter)
                remedy = f"set {value} in the values of the chart" if value else f"leave {option} out"
                raise Broken(f"{option} excludes --helm", remedy)
        installation.make_chart(Path(helm), text, source, text_of(CONFIGURATION))
        install = f"helm install drawbridge {helm} -n {NAMESPACE} --create-namespace"
        print_lines([f"{helm}: chart written. To install it:", f"{install} --set image=REGISTRY/drawbridge:TAG"])
        return Exit.FINE
    registered = Registration(
        namespace=namespace,
        failure_policy=failure_policy,
        # With mode off as the default, namespaces without the label need no reviews.
        opt_in=opt_in or source.file.mode == "off",
        devices=devices,
        url=url,
        ca_bundle=installation.ca_bundle_of(ca_bundle) if ca_bundle else "",
        inject_ca_from=cert_manager,
        cpus=source.file.cpu_claims,
    )
    try:
        # An address without a prefix length becomes a network of one address.
        networks = tuple(str(ip_network(api_server)) for api_server in api_servers)
    except ValueError as error:
        raise Broken(f"--api-server: {error}", "expected an address or CIDR, such as 10.0.0.0/28") from None

    # Options that imply, need or exclude others.
    bridge = bridge or level in ("bridge", "node")
    reservations = reservations or level == "node"
    parts |= {
        "read_only": parts["read_only"] or level == "readOnly",
        "node_agent": parts["node_agent"] or level == "node",
    }
    if reservations and not (bridge and parts["node_agent"]):
        raise Broken("--reservations needs --bridge and --node-agent", "add these options")
    if not image and only != "webhooks":
        raise Broken("no image is given, and none is published", "build one, and give --image REGISTRY/drawbridge:TAG")
    if bridge and not scheduler_image and only != "webhooks":
        raise Broken(
            "--bridge needs the image of a scheduler",
            "build our scheduler, and give --scheduler-image REGISTRY/drawbridge-scheduler:TAG (docs/bridge.md)",
        )

    objects: list[dict[str, Any]] = []
    if only != "webhooks":
        selection = installation.Selection(
            namespace,
            image,
            scheduler_image,
            bridge,
            [name for name in PARTS if parts[name.replace("-", "_")]],
            reservations,
            installation.OWN_SECRET if cert_manager or ca_bundle else "",
            networks,
        )
        objects += installation.selected(selection, text, source)
        if bridge and not installation.is_fenced(source):
            warn(
                "other schedulers can allocate the bridge's devices at the same time: "
                "set bridge.drivers and bridge.fence: true in the configuration (docs/bridge.md)"
            )
    if only != "rest":
        objects += configurations(source.dialects, registered)
    click.echo(manifests.dump(objects), nl=False)
    return Exit.FINE
