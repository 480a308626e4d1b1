"""`drawbridge manifests`: everything `kubectl apply` needs, for the options and the configuration of one installation, or a chart of it.

The objects are those of `manifests/` (`cli.installation`); only the webhook configurations are generated (`webhook.admission.registration`),
because the requests they select follow from the dialects in force.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from cli import contract as inputs
from cli import installation
from cli.contract import Broken, Exit
from cli.installation import IMAGES, LABEL, NAMESPACE, PARTS

# The chart's value for each option; those of parts have theirs in `PARTS`.
_IN_VALUES = {
    "only": "",
    "namespace": "namespace",
    "image": "image",
    "rung": "rung",
    "bridge": "bridge.way",
    "apart": "bridge.way",
    "plugin": "bridge.way",
    "quota": "bridge.quota",
    "reservations": "bridge.promises",
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
    """A text that has to match a pattern."""

    def __init__(self, name: str, pattern: str, problem: str) -> None:
        self.name = name
        self._pattern = re.compile(pattern, re.ASCII)
        self._problem = problem

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not self._pattern.fullmatch(value):
            self.fail(f"{value!r} {self._problem}", param, ctx)
        return value


class UrlType(click.ParamType["str"]):
    """An address that a webhook configuration can hold (k8s.io/apiserver pkg/util/webhook, ValidateWebhookURL)."""

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
            self.fail(f"{value!r}: a webhook's URL has no user, no query and no fragment", param, ctx)
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
    click.option(
        f"--{name}",
        *(["--onlooker"] if name == "read-only" else ()),
        name.replace("-", "_"),
        is_flag=True,
        help=part.help,
    )
    for name, part in PARTS.items()
]


@inputs.command(
    "manifests",
    examples=(
        "drawbridge manifests --image registry.example.com/drawbridge:0.1.0 | kubectl apply -f -",
        "drawbridge manifests --only webhooks --config drawbridge.yaml",
    ),
)
@inputs.option(
    "--only", "The generated webhook configurations, or all but them.", type=click.Choice(["webhooks", "rest"])
)
@inputs.option("--namespace", "Where it goes.", type=_NAMESPACE, metavar="NAME", default=NAMESPACE)
@inputs.option("--image", "The image of all Deployments, as the cluster can pull it.", type=_IMAGE, metavar="REF")
@inputs.option(
    "--rung",
    "How much, in one word: readOnly is --read-only, bridge is --bridge, node is --bridge --node-agent --reservations.",
    type=click.Choice(["webhook", "readOnly", "bridge", "node"]),
    default="webhook",
)
@inputs.option("--bridge", "Also a scheduler of its own, and the allocator that it asks (docs/bridge.md).")
@inputs.option("--apart", "With --bridge: scheduler and allocator in two pods, with your certificates.")
@inputs.option("--plugin", "With --bridge: our scheduler with the plugin, in place of a stock one.")
@inputs.option("--quota", "With --bridge: API servers ask its allocator about DeviceQuotas (docs/quota.md).")
@inputs.option(
    "--scheduler-image",
    "With --bridge: the image of kube-scheduler, of the cluster's version; with --plugin: of ours.",
    type=_IMAGE,
    metavar="REF",
)
@inputs.all_of(_OF_PARTS)
@click.option(
    "--reservations",
    "--promises",
    "reservations",
    is_flag=True,
    help="With --bridge and --node-agent: agents see what its allocator has reserved on their nodes (docs/node-agent.md).",
)
@inputs.option(
    "--api-server",
    "Where the API server calls from: the NetworkPolicy then lets no other address ask for reviews.",
    metavar="CIDR",
    multiple=True,
    called="api_servers",
)
@inputs.config("A DrawbridgeConfiguration to install, and to generate for.")
@inputs.option(
    "--failure-policy",
    "What happens to pods that name an accelerator while drawbridge is away.",
    type=click.Choice(["Ignore", "Fail"]),
    default="Ignore",
)
@inputs.option("--opt-in", "Only namespaces with the label drawbridge.dev/mode.")
@inputs.option("--devices", "Also look at slices, classes and our own kinds.")
@inputs.option("--url", "Where the API server finds drawbridge, if not behind its Service.", type=UrlType(), default="")
@inputs.option("--ca-bundle", "The bundle, if you keep it; default: drawbridge does.", metavar="FILE")
@inputs.option(
    "--cert-manager",
    "The Certificate from which cert-manager injects the bundle.",
    type=_CERTIFICATE,
    metavar="NAMESPACE/NAME",
)
@inputs.option(
    "--helm",
    "Print nothing, and make a Helm chart in this folder, for --config; its values are the other options.",
    metavar="DIR",
)
def command(
    *,
    only: str | None,
    namespace: str,
    image: str,
    rung: str,
    bridge: bool,
    apart: bool,
    plugin: bool,
    quota: bool,
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
    """Print what `kubectl apply` needs to install drawbridge, or make a Helm chart of it.

    `drawbridge uninstall` takes it away again.
    """
    from cli.configuration import source_of
    from cluster import manifests
    from webhook.admission import Registration, configurations, registration
    from webhook.claims import taint_rule

    source = source_of(config).current
    text = installation.configuration_text(config) if config else ""
    if helm:
        context = click.get_current_context()
        for parameter, value in _IN_VALUES.items():  # a chart takes these as values instead
            if context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE:
                option = next(one.opts[0] for one in context.command.params if one.name == parameter)
                remedy = f"set {value} in the values of the chart" if value else "leave it out"
                raise Broken(f"{option} says nothing about a chart", remedy)
        installation.make_chart(Path(helm), text, source)
        install = f"helm install drawbridge {helm} -n {NAMESPACE} --create-namespace"
        inputs.tell([f"{helm} is a chart. To install it:", f"{install} --set image=REGISTRY/drawbridge:TAG"])
        return Exit.FINE
    registered = Registration(
        namespace=namespace,
        failure_policy=failure_policy,
        # If the mode is off where a namespace has no label, the API server need not ask about it.
        opt_in=opt_in or source.file.mode == "off",
        devices=devices,
        url=url,
        ca_bundle=_bundle(ca_bundle) if ca_bundle else "",
        inject_ca_from=cert_manager,
        cpus=source.file.cpu_claims,
    )
    try:
        networks = tuple(str(ip_network(one)) for one in api_servers)  # a bare address is a network of one
    except ValueError as error:
        raise Broken(f"--api-server: {error}", "e.g. 10.0.0.10 or 10.0.0.0/28") from None

    # Options that stand for others, need others, or exclude them.
    bridge = bridge or rung in ("bridge", "node")
    reservations = reservations or rung == "node"
    parts |= {
        "read_only": parts["read_only"] or rung == "readOnly",
        "node_agent": parts["node_agent"] or rung == "node",
    }
    way = "apart" if apart else "plugin" if plugin else installation.EXTENDER
    if (apart or plugin) and not bridge:
        raise Broken(f"--{way} says how the bridge is installed, which is not asked for", "say --bridge, too")
    if apart and plugin:
        raise Broken("--apart has a stock scheduler in a pod of its own, and --plugin has ours", "say one of them")
    if quota and not bridge and only != "webhooks":
        raise Broken("--quota asks the bridge's allocator, which is not installed", "say --bridge, too")
    if reservations and not (bridge and parts["node_agent"]):
        raise Broken(
            "--reservations is between the bridge's allocator and audit agents", "say --bridge and --node-agent, too"
        )
    if not image and only != "webhooks":
        raise Broken("no image is given, and none is published", "build one, and say --image REGISTRY/drawbridge:TAG")
    if bridge and not scheduler_image and only != "webhooks":
        raise Broken(
            "--bridge runs a scheduler, and no image of one is given",
            "say --scheduler-image REGISTRY/kube-scheduler:v1.N.P, as the cluster's own has it; with --plugin ours",
        )

    objects: list[dict[str, Any]] = []
    if only != "webhooks":
        own_secret = installation.OWN_SECRET if cert_manager or ca_bundle else ""
        file = source.file.bridge
        drivers = file.drivers if file is not None else ()
        objects += installation.base(namespace, image, text, networks)
        objects += installation.evidence(namespace, source.file.evidence.namespaces)
        if bridge:
            bridges = installation.bridge(namespace, image, scheduler_image, way)
            objects += bridges
            if quota:
                objects += installation.component(bridges, "quota", namespace, networks, own_secret)
            if file is not None and file.fence and drivers:
                objects += [taint_rule(driver) for driver in drivers]
            else:
                inputs.warn(
                    "other schedulers can allocate the bridge's devices at the same time: "
                    "set bridge.drivers and bridge.fence: true in the configuration (docs/bridge.md)"
                )
        for name in PARTS:
            if parts[name.replace("-", "_")]:
                objects += installation.part(name, namespace, image, drivers)
            if name == "node-agent" and reservations:
                objects += installation.component(objects, "promises", namespace, secret=own_secret)
    if only != "rest":
        objects += configurations(source.dialects, registered)
        if quota:
            objects.append(registration.at_quotas(registered))
    click.echo(manifests.dump(objects), nl=False)
    return Exit.FINE


def _bundle(file: str) -> str:
    """Read the CA bundle that the API server is to trust."""
    from base64 import b64encode

    from cryptography.x509 import load_pem_x509_certificates

    try:
        data = Path(file).read_bytes()
        load_pem_x509_certificates(data)
    except OSError as error:
        raise Broken(f"--ca-bundle: {file} cannot be read: {error.strerror}", "check the path") from None
    except ValueError:
        raise Broken(f"--ca-bundle: {file} holds no certificate", "give the authority's, in PEM") from None
    return b64encode(data).decode()
