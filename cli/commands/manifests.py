"""`drawbridge manifests`: everything `kubectl apply` needs, for the options and the configuration of one installation, or a chart of it.

The objects are those of `manifests/base` (`cli.installation`); only the webhook configurations are generated (`webhook.admission.registration`), because
what they let through follows from the dialects in force.
"""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cli import contract as inputs
from cli.contract import Broken, Exit
from cli.installation import (
    BASE,
    ELSEWHERES,
    EXTENDER,
    GENERATED,
    NAMESPACE,
    QUOTA,
    CertificateType,
    ImageType,
    NamespaceType,
    UrlType,
    adapting,
    at_the_door,
    beside,
    driving,
    fences,
    guarding,
    make_chart,
    on_looking,
    on_nodes,
    promising,
    protecting,
    quota_text,
    rest,
    webhooks_text,
)

# Where a chart has in its values what is an option here.
_IN_VALUES = {
    "only": "",
    "namespace": "namespace",
    "image": "image",
    "bridge": "bridge.way",
    "apart": "bridge.way",
    "plugin": "bridge.way",
    "quota": "bridge.quota",
    "onlooker": "onlooker",
    "node_agent": "nodeAgent",
    "promises": "bridge.promises",
    "driver": "driver",
    "adapter": "adapter",
    "guards": "guards",
    "protected_claims": "protectedClaims",
    "scheduler_image": "bridge.schedulerImage",
    "api_servers": "networkPolicy.apiServers",
    "failure_policy": "webhooks.failurePolicy",
    "opt_in": "webhooks.optIn",
    "devices": "webhooks.devices",
    "url": "webhooks.url",
    "ca_bundle": "certificates.caBundle",
    "cert_manager": "certificates.certificate",
}


@inputs.command("manifests")
@click.option(
    "--only", type=click.Choice(["webhooks", "rest"]), help="The generated webhook configurations, or all but them."
)
@click.option("--namespace", type=NamespaceType(), metavar="NAME", default=NAMESPACE, show_default=True)
@click.option(
    "--image",
    type=ImageType(),
    metavar="REF",
    default="",
    help="The image of all Deployments, as the cluster can pull it.",
)
@click.option(
    "--bridge", is_flag=True, help="Also a scheduler of its own, and the allocator that it asks (docs/bridge.md)."
)
@click.option(
    "--apart", is_flag=True, help="With --bridge: scheduler and allocator in two pods, with certificates of yours."
)
@click.option("--plugin", is_flag=True, help="With --bridge: our scheduler with the plugin, in place of a stock one.")
@click.option(
    "--quota",
    is_flag=True,
    help="With --bridge: API servers ask its allocator whether a DeviceQuota lets pods and claims in (docs/quota.md).",
)
@click.option(
    "--scheduler-image",
    type=ImageType(),
    metavar="REF",
    default="",
    help="With --bridge: the image of kube-scheduler, of the cluster's version; with --plugin: of ours.",
)
@click.option("--onlooker", is_flag=True, help="Also an onlooker beside any scheduler (docs/bridge.md).")
@click.option("--node-agent", is_flag=True, help="Also an audit agent on nodes that say so (docs/node-agent.md).")
@click.option(
    "--promises",
    is_flag=True,
    help="With --bridge and --node-agent: agents see what its allocator has promised on their nodes (docs/node-agent.md).",
)
@click.option(
    "--driver",
    is_flag=True,
    help="Also our driver on nodes that say so; it reads a ConfigMap of yours, drawbridge-inventory (docs/driver.md).",
)
@click.option("--adapter", is_flag=True, help="Also device plugins as drivers, on nodes that say so (docs/adapter.md).")
@click.option(
    "--guards",
    is_flag=True,
    help="Also policies about who may give devices, bind pods, publish slices (docs/security.md).",
)
@click.option(
    "--protected-claims",
    is_flag=True,
    help="Also a policy that saves schedulers a write for each pod with claims; Kubernetes 1.36 and later (docs/bridge.md).",
)
@click.option(
    "--api-server",
    "api_servers",
    metavar="CIDR",
    multiple=True,
    help="Where the API server calls from: the NetworkPolicy lets nobody else ask for reviews.",
)
@click.option("--config", metavar="FILE", default="", help="A DrawbridgeConfiguration to install, and to generate for.")
@click.option(
    "--failure-policy",
    type=click.Choice(["Ignore", "Fail"]),
    default="Ignore",
    show_default=True,
    help="What happens to pods that name an accelerator while drawbridge is away.",
)
@click.option("--opt-in", is_flag=True, help="Only namespaces with the label drawbridge.dev/mode.")
@click.option("--devices", is_flag=True, help="Also look at slices, classes and our own kinds.")
@click.option(
    "--url",
    type=UrlType(),
    metavar="URL",
    default="",
    help="Where the API server finds drawbridge, if not behind its Service.",
)
@click.option("--ca-bundle", metavar="FILE", default="", help="The bundle, if you keep it; default: drawbridge does.")
@click.option(
    "--cert-manager",
    type=CertificateType(),
    metavar="NAMESPACE/NAME",
    default="",
    help="The Certificate from which cert-manager injects the bundle.",
)
@click.option(
    "--helm",
    metavar="DIR",
    default="",
    help="Print nothing, and make a Helm chart in this folder, for --config; its values are the other options.",
)
def command(
    *,
    only: str | None,
    namespace: str,
    image: str,
    bridge: bool,
    apart: bool,
    plugin: bool,
    quota: bool,
    onlooker: bool,
    node_agent: bool,
    promises: bool,
    driver: bool,
    adapter: bool,
    scheduler_image: str,
    guards: bool,
    protected_claims: bool,
    api_servers: tuple[str, ...],
    config: str,
    failure_policy: str,
    opt_in: bool,
    devices: bool,
    url: str,
    ca_bundle: str,
    cert_manager: str,
    helm: str,
) -> Exit:
    """Print what `kubectl apply` needs to install drawbridge, or make a Helm chart of it.

    To take it away again, delete the webhook configurations first: without them no pod waits for templates that nobody
    makes any more. Then delete the rest.
    """
    from cli.configuration import source_of
    from cluster import manifests
    from webhook.admission import Registration, configurations, registration

    source = source_of(config).current
    if helm:
        _refuse_beside_helm()
        make_chart(Path(helm), config, source)
        inputs.tell(
            [
                f"{helm} is a chart. To install it:",
                f"helm install drawbridge {helm} -n {NAMESPACE} --create-namespace --set image=REGISTRY/drawbridge:TAG",
            ]
        )
        return Exit.FINE
    options = Registration(
        namespace=namespace,
        failure_policy=failure_policy,
        # Where all is off that does not say otherwise, the API server need not ask about it.
        opt_in=opt_in or source.file.mode == "off",
        devices=devices,
        url=url,
        ca_bundle=_bundle(ca_bundle) if ca_bundle else "",
        inject_ca_from=cert_manager,
    )
    objects: list[dict[str, Any]] = []
    networks = _blocks(api_servers)
    secret = ELSEWHERES if cert_manager or ca_bundle else ""  # of the allocator's doors
    way = _way(bridge=bridge, apart=apart, plugin=plugin)
    if quota and not bridge and only != "webhooks":
        raise Broken("--quota has the bridge's allocator asked, and there is none", "say --bridge, too")
    if promises and not (bridge and node_agent):
        raise Broken(
            "--promises is between the bridge's allocator and audit agents", "say --bridge and --node-agent, too"
        )
    if only != "webhooks":
        if not image:
            raise Broken(
                "no image is given, and none is published", "build one, and say --image REGISTRY/drawbridge:TAG"
            )
        objects += rest(namespace, image, config, networks)
        if way:
            if not scheduler_image:
                raise Broken(
                    "--bridge runs a scheduler, and no image of one is given",
                    "say --scheduler-image REGISTRY/kube-scheduler:v1.N.P, as the cluster's own has it; with --plugin ours",
                )
            bridges = list(beside(namespace, image, scheduler_image, way))
            objects += bridges
            if quota:
                objects += at_the_door(bridges, namespace, networks, secret)
            objects += fences(source.file.bridge)
        if onlooker:
            objects += on_looking(namespace, image)
        if node_agent:
            objects += on_nodes(namespace, image)
        if promises:
            objects += promising(list(objects), namespace, secret)
        if driver:
            objects += driving(image)
        if adapter:
            objects += adapting(image)
        if guards:
            drivers = source.file.bridge.drivers if source.file.bridge else ()
            objects += guarding(namespace, drivers)
        if protected_claims:
            objects += protecting()
    if only != "rest":
        objects += configurations(source.dialects, options)
        if quota:
            objects.append(registration.at_quotas(options))
    click.echo(manifests.dump(objects), nl=False)
    return Exit.FINE


def _way(*, bridge: bool, apart: bool, plugin: bool) -> str:
    """Name how a scheduler asks the allocator, as the values of a chart do; "" if none does."""
    said = [name for name, wanted in (("apart", apart), ("plugin", plugin)) if wanted]
    if said and not bridge:
        raise Broken(f"--{said[0]} says how the bridge is installed, and there is none", "say --bridge, too")
    if len(said) > 1:
        raise Broken("--apart has a stock scheduler in a pod of its own, and --plugin has ours", "say one of them")
    if not bridge:
        return ""
    return said[0] if said else EXTENDER


def _refuse_beside_helm() -> None:
    """A chart is made for everybody: what is an option here is a value there."""
    context = click.get_current_context()
    for parameter, value in _IN_VALUES.items():
        if context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE:
            option = next(one.opts[0] for one in context.command.params if one.name == parameter)
            remedy = f"set {value} in the values of the chart" if value else "leave it out"
            raise Broken(f"{option} says nothing about a chart", remedy)


def _bundle(file: str) -> str:
    """Read the authorities that the API server is to believe."""
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


def _blocks(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Read addresses and networks; a bare address is a network of one."""
    try:
        return tuple(str(ip_network(text)) for text in texts)
    except ValueError as error:
        raise Broken(f"--api-server: {error}", "e.g. 10.0.0.10 or 10.0.0.0/28") from None


if __name__ == "__main__":
    from webhook.admission import Registration

    (BASE / GENERATED).write_text(webhooks_text(Registration()), encoding="utf-8")
    (QUOTA / GENERATED).write_text(quota_text(), encoding="utf-8")
