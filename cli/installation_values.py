"""The values of an installation: `drawbridge manifests --values FILE` reads them, and they are the values of the chart.

`docs.chart_values` generates the chart's `values.yaml` and `values.schema.json` from these types.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from analysis.errors import Broken

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
# The names that a container runtime accepts for an image (distribution/reference).
_PART = r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
_IMAGE = (
    r"^((([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(:[0-9]+)?/)?"
    rf"{_PART}(/{_PART})*(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@[a-z0-9]+:[0-9a-f]{{32,}})?)?$"
)
_Container = Annotated[str, Meta(pattern="^(webhook|controller|authority|allocator|scheduler|read-only)$")]
_Image = Annotated[str, Meta(pattern=_IMAGE)]
_Url = Annotated[str, Meta(pattern=r"^(https://(\[[0-9a-fA-F:.]+\]|[^@?#/:\[\]\s]+)(:[0-9]+)?(/[^@?#\s]*)?)?$")]
_Namespace = Annotated[str, Meta(pattern=f"^({_LABEL})?$")]
_CertificateName = Annotated[str, Meta(pattern=rf"^({_LABEL}/{_LABEL}(\.{_LABEL})*)?$")]
_Cidr = Annotated[str, Meta(pattern="^[0-9a-fA-F.:]+/[0-9]+$")]
_Duration = Annotated[str, Meta(pattern="^([0-9]+(ms|s|m|h))+$")]
_SecretName = Annotated[str, Meta(min_length=1)]
_Replicas = Annotated[int, Meta(ge=0)]
_Argument = Annotated[str, Meta(pattern="^--")]
_Resource = Annotated[str, Meta(pattern="^(requests|limits|claims)$")]


class _Values(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of the values: an unknown value is refused."""


class WebhookValues(_Values, frozen=True, kw_only=True):
    # What the API server does with pods that request accelerators while the webhook is unavailable: Ignore (admit them unchanged) or Fail
    # (refuse them).
    failure_policy: Literal["Ignore", "Fail"] = "Ignore"
    # Review only namespaces with the label drawbridge.dev/mode.
    opt_in: bool = False
    # Also validate ResourceSlices, DeviceClasses and drawbridge's own kinds.
    devices: bool = False
    # The URL at which the API server calls the webhook, https://HOST:PORT; "" for the webhook's Service.
    url: _Url = ""


class CertificateValues(_Values, frozen=True, kw_only=True):
    # Where the certificates come from. own: drawbridge creates and renews them. cert-manager or files: drawbridge reads tls.crt and tls.key
    # from the Secret below.
    source: Literal["own", "cert-manager", "files"] = msgspec.field(default="own", name="from")
    # The Secret with the webhook's tls.crt and tls.key.
    secret: _SecretName = "drawbridge-tls"  # noqa: S105
    # The Secret with the allocator's tls.crt, tls.key and ca.crt. Only bridge.reservations needs this Secret.
    reservations_secret: _SecretName = "drawbridge-reservations-tls"  # noqa: S105
    # With cert-manager: the Certificate, as NAMESPACE/NAME. "" means the Certificate with the Secret's name in the namespace of the
    # installation.
    certificate: _CertificateName = ""
    # With files: the CA's certificate (PEM). With Helm, use --set-file.
    ca_bundle: str = ""


class BridgeValues(_Values, frozen=True, kw_only=True):
    # Install the allocator, and drawbridge's scheduler, which calls the allocator (docs/bridge.md).
    enabled: bool = False
    # The image of drawbridge's scheduler, REGISTRY/drawbridge-scheduler:TAG.
    scheduler_image: _Image = ""
    # Let audit agents (nodeAgent below) read the allocator's reservations on their nodes (docs/node.md).
    reservations: bool = False


class NetworkPolicyValues(_Values, frozen=True, kw_only=True):
    # Install the NetworkPolicies.
    enabled: bool = True
    # The addresses of the API server, e.g. [10.0.0.0/28]. If they are set, no other address can send reviews.
    api_servers: tuple[_Cidr, ...] = ()


class MonitorValues(_Values, frozen=True, kw_only=True):
    # A PodMonitor for the Prometheus operator. Prometheus' namespace needs the label drawbridge.dev/metrics=true.
    enabled: bool = False
    # The time between two scrapes.
    interval: _Duration = "30s"
    # Labels by which the operator selects the PodMonitor.
    labels: dict[str, str] = {}


class Values(_Values, frozen=True, kw_only=True):
    # The image of all drawbridge workloads, REGISTRY/drawbridge:TAG. No image is published: build one (docs/install.md).
    image: _Image = ""
    # The namespace to install in, of lower case letters, digits and '-'; "" for the namespace of the Helm release, or drawbridge-system.
    namespace: _Namespace = ""
    # A DrawbridgeConfiguration, without apiVersion and kind, e.g. {mode: warn}. It overrides the configuration of
    # `drawbridge manifests --config FILE`. A chart's `dialects`, `keys` and `cpuClaims` belong in that FILE, because the chart's webhook
    # configurations depend on them.
    configuration: dict[str, Any] = {}
    # How much is installed. webhook: only the webhook and its controllers. readOnly: also what `readOnly: true` adds. bridge: also what
    # `bridge.enabled: true` adds. node: as bridge, and also what `nodeAgent: true` and `bridge.reservations: true` add.
    # The values below can add more.
    level: Literal["webhook", "readOnly", "bridge", "node"] = "webhook"
    webhooks: WebhookValues = WebhookValues()
    certificates: CertificateValues = CertificateValues()
    bridge: BridgeValues = BridgeValues()
    # A read-only allocator beside any scheduler: it explains waiting pods, reports drift, and shows held devices (docs/bridge.md).
    read_only: bool = False
    # An audit agent on nodes with the label drawbridge.dev/node-agent=on. It also marks devices that device plugins hold (docs/node.md).
    node_agent: bool = False
    # Drawbridge's driver, on nodes with the label drawbridge.dev/driver=reference. It reads the ConfigMap drawbridge-inventory in the
    # namespace drawbridge-driver; you write this ConfigMap (docs/node.md).
    driver: bool = False
    # An adapter that serves device plugins as DRA drivers, on nodes with the label drawbridge.dev/adapter=on, in the namespace
    # drawbridge-adapter (docs/node.md).
    adapter: bool = False
    # ValidatingAdmissionPolicies about who may allocate managed devices, bind pods, publish slices and request adminAccess
    # (docs/security.md, "Guards").
    guards: bool = False
    # A policy that saves schedulers one write for each pod with claims (docs/bridge.md). Kubernetes 1.36 and later.
    protected_claims: bool = False
    # Install the kind DeviceQuota.
    quota: bool = True
    # ValidatingAdmissionPolicies that protect drawbridge's names, webhook configurations, modes and Lease.
    policies: bool = True
    network_policy: NetworkPolicyValues = NetworkPolicyValues()
    monitor: MonitorValues = MonitorValues()
    # The number of replicas by Deployment: webhook, controller, authority, allocator, read-only.
    replicas: dict[_Container, _Replicas] = {}
    # Requests and limits by container, instead of the defaults: webhook, controller, authority, allocator, scheduler, read-only.
    resources: dict[_Container, dict[_Resource, Any]] = {}
    # Arguments by container, added after the default arguments, e.g. {allocator: [--binding-timeout=300]}.
    args: dict[_Container, list[_Argument]] = {}
    # For all Deployments of drawbridge.
    tolerations: list[dict[str, Any]] = []
    # For all Deployments of drawbridge.
    node_selector: dict[str, str] = {}
    # For all Deployments of drawbridge.
    priority_class_name: str = ""
    # For all workloads of drawbridge.
    image_pull_secrets: list[dict[str, Any]] = []


def read_values(file: str, image: str, namespace: str) -> Values:
    """Read a file of values, "" for none. An image and a namespace that are given replace those of the file."""
    from cluster import manifests
    from dra import wire

    documents = manifests.read([file]) if file else []
    if len(documents) > 1:
        raise Broken(f"{file}: a file of values has one object", "put anything else into a file of its own")
    in_file = documents[0].object if documents else {}
    given = {name: value for name, value in (("image", image), ("namespace", namespace)) if value}
    try:
        values = wire.convert(in_file | given, Values)
    except wire.WireError as error:
        name = error.pointer[1:].replace("/", ".")
        if name in given:
            raise Broken(f"--{name}: {given[name]!r} is not valid", _remedy(error.pointer)) from None
        line, column = documents[0].position_of(error.pointer)
        message = "not a valid value" if "matching regex" in error.message else error.message
        problem = manifests.InputProblem(file, message, _remedy(error.pointer), line, column, error.pointer)
        raise manifests.ManifestError([problem]) from None
    bridge = replace(
        values.bridge,
        enabled=values.bridge.enabled or values.level in ("bridge", "node"),
        reservations=values.bridge.reservations or values.level == "node",
    )
    values = replace(
        values,
        bridge=bridge,
        read_only=values.read_only or values.level == "readOnly",
        node_agent=values.node_agent or values.level == "node",
    )
    _check(values)
    return values


def _remedy(pointer: str) -> str:
    """Return the description of a value; for an unknown value, the names of the values at its place."""
    from cli.schemas import schemas_of_types

    [field], definitions = schemas_of_types([Values])
    for name in pointer.split("/")[1:]:
        field = definitions[field["$ref"].rpartition("/")[2]] if "$ref" in field else field
        names = field.get("properties", {})
        if names and name not in names:
            return f"expected one of {', '.join(names)}"
        field = names.get(name, field)
    return str(field.get("description", "see values.yaml of the chart"))


def _check(values: Values) -> None:
    """Refuse what a schema cannot express: invalid addresses and certificates."""
    from cryptography.x509 import load_pem_x509_certificates

    try:
        if values.certificates.source == "files":
            load_pem_x509_certificates(values.certificates.ca_bundle.encode())
    except ValueError:
        raise Broken("certificates.caBundle holds no certificate", "give the CA certificate in PEM") from None
    try:
        _ = urlsplit(values.webhooks.url).port
    except ValueError as error:
        raise Broken(f"webhooks.url: {error}", "expected https://HOST:PORT") from None
    try:
        for block in values.network_policy.api_servers:
            ip_network(block)
    except ValueError as error:
        raise Broken(f"networkPolicy.apiServers: {error}", "expected a CIDR, such as 10.0.0.0/28") from None
