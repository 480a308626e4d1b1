"""Renders what `drawbridge manifests` installs: the objects in the folders of `manifests/`, for a namespace and an image, as kustomize would;
or a Helm chart of these objects.

A chart has the objects and the hand-written files of `manifests/chart`. In the objects, placeholders stand for the namespace and the images,
which each release of the chart sets. The schema of the chart's values contains every key of a configuration.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster import resources
from cluster.resources import Raw, Resource
from dra.raw import inside, items, text
from rendering.exits import Broken

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from webhook.state import Configuration

    Objects = list[dict[str, Any]]

BASE = Path(__file__).resolve().parents[1] / "manifests" / "base"
BRIDGE = BASE.parent / "bridge"
NAMESPACE = "drawbridge-system"
MANAGED = "drawbridge-managed-drivers"
LEASES = ("drawbridge", "drawbridge-allocator")  # of the webhook's controllers, and of the allocators
CLUSTER_WIDE = frozenset(
    (
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    )
)
_ADMISSION, _RBAC = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
LABELLED = "app.kubernetes.io/name=drawbridge"  # as a selector
# The kinds of an installation's objects, except the webhook configurations. `drawbridge uninstall` removes the objects in this order.
KINDS: tuple[Resource[Raw], ...] = (
    *(
        Resource(
            _ADMISSION,
            "v1",
            f"{kind.lower()[:-1]}ies" if kind.endswith("y") else f"{kind.lower()}s",
            kind,
            Raw,
            namespaced=False,
        )
        for kind in (
            "ValidatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingAdmissionPolicy",
        )
    ),
    resources.DEPLOYMENTS,
    resources.DAEMON_SETS,
    resources.POD_DISRUPTION_BUDGETS.raw,
    Resource("", "v1", "services", "Service", Raw),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", Raw),
    resources.CONFIG_MAPS.raw,
    resources.SECRETS.raw,
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", Raw, namespaced=False),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", Raw, namespaced=False),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding", Raw),
    Resource(_RBAC, "v1", "roles", "Role", Raw),
    Resource("", "v1", "serviceaccounts", "ServiceAccount", Raw),
    resources.DEVICE_TAINT_RULES.raw,
    resources.CUSTOM_RESOURCE_DEFINITIONS,
    resources.NAMESPACES.raw,
)
# The Secret with the allocator's certificate if our authority maintains no certificates.
OWN_SECRET = "drawbridge-reservations-tls"  # noqa: S105  a name
CHART = BASE.parent / "chart"
# The chart's templates replace these placeholders by values. The objects contain these words only as placeholders.
PLACE, IMAGE, SCHEDULER_IMAGE = "__NAMESPACE__", "__IMAGE__", "__SCHEDULER_IMAGE__"
LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
# The names that a container runtime accepts for an image (distribution/reference).
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
IMAGES = re.compile(
    r"(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/)?"
    rf"{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@[a-z0-9]+:[0-9a-f]{{32,}})?",
    re.ASCII,
)


def is_labelled(obj: Raw) -> bool:
    """Return whether an object has the label of an installation."""
    return inside(obj, "metadata", "labels").get("app.kubernetes.io/name") == "drawbridge"


def namespaces_of(objects: Iterable[dict[str, Any]]) -> set[str]:
    """Return the namespaces of installations.

    Only our cluster-scoped objects count, because tenants may write our label in their namespaces.
    """
    namespaces: set[str] = set()
    for obj in objects:
        if obj["kind"] == "Namespace" and is_labelled(obj):
            namespaces.add(obj["metadata"]["name"])
        if obj["kind"] == "ClusterRoleBinding":
            namespaces.update(text(subject.get("namespace")) for subject in items(obj, "subjects"))
        if obj["kind"].endswith("WebhookConfiguration"):
            namespaces.update(
                text(inside(hook, "clientConfig", "service").get("namespace")) for hook in items(obj, "webhooks")
            )
    return namespaces - {""}


def render(folder: Path, namespace: str, image: str = "") -> Objects:
    """Render the resources that a folder's kustomization lists; every name of our namespace in them becomes `namespace`.

    Without an image, workloads keep the image of the folder. The webhook configurations are omitted, because they are generated.
    """
    from cluster import manifests

    kustomization = _kustomization(folder)
    home = kustomization.get("namespace", "")
    files: list[Path] = []
    objects: Objects = []
    for name in kustomization["resources"]:
        if not name.endswith(".yaml"):
            objects += render(folder / name, NAMESPACE)
        elif name != "webhooks.yaml":
            files.append(folder / name)
    objects += [document.object for document in manifests.read(files)]
    for obj in objects:
        metadata = obj["metadata"]
        metadata.setdefault("labels", {})["app.kubernetes.io/name"] = "drawbridge"
        if home and obj["kind"] not in (*CLUSTER_WIDE, "Namespace"):
            metadata["namespace"] = home
        if image and obj["kind"] in ("Deployment", "DaemonSet"):
            for container in obj["spec"]["template"]["spec"]["containers"]:
                container["image"] = image
    moved: Objects = _moved(objects, namespace)
    return moved


def _kustomization(folder: Path) -> dict[str, Any]:
    from cluster import manifests

    document, *_ = manifests.read([folder / "kustomization.yaml"])
    return document.object


def _moved(value: Any, namespace: str) -> Any:
    """Replace NAMESPACE in every string, also where it is a prefix, as in the name of the node agents' namespace."""
    return json.loads(json.dumps(value).replace(NAMESPACE, namespace))


def base(namespace: str, image: str, configuration: str = "", api_servers: tuple[str, ...] = ()) -> Objects:
    """Render the objects of every installation; `configuration` is a text that replaces the configuration in `manifests/base`."""
    objects = render(BASE, namespace, image)
    for obj in objects:
        if configuration and (obj["kind"], obj["metadata"]["name"]) == ("ConfigMap", "drawbridge"):
            obj["data"] = {"drawbridge.yaml": configuration}
    _restrict_api_servers(objects, "drawbridge-webhook", api_servers)
    return objects


def _restrict_api_servers(objects: Objects, policy: str, api_servers: tuple[str, ...]) -> None:
    """Restrict the first rule of a NetworkPolicy to these addresses of API servers, if there are any."""
    for obj in objects:
        if api_servers and (obj["kind"], obj["metadata"]["name"]) == ("NetworkPolicy", policy):
            obj["spec"]["ingress"][0]["from"] = [{"ipBlock": {"cidr": block}} for block in api_servers]


def configuration_of(file: str) -> tuple[str, Configuration]:
    """Read a configuration that will be installed. The file is read once, because a pipe is empty afterwards.

    If the text sets no mode, `mode: observe` is added, with which installations begin.
    """
    from cluster import manifests
    from webhook.service import load_configuration

    content = None
    with suppress(OSError):
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    configuration = load_configuration(file, content)  # its error names a file that cannot be read
    text = (content or b"").decode()
    [document] = manifests.parse(text)
    if "mode" in document.object:
        return text, configuration
    expected = {**document.object, "mode": "observe"}
    try:
        return manifests.edit(text, [{"op": "add", "path": "/mode", "value": "observe"}], expected), configuration
    except manifests.CannotEdit:
        return manifests.dump([expected]), configuration


def ca_bundle_of(file: str) -> str:
    """Read a CA bundle, in base64."""
    from base64 import b64encode

    from cryptography.x509 import load_pem_x509_certificates

    try:
        data = Path(file).read_bytes()
        load_pem_x509_certificates(data)
    except OSError as error:
        raise Broken(f"--ca-bundle: {file} cannot be read: {error.strerror}", "check the path") from None
    except ValueError:
        raise Broken(f"--ca-bundle: {file} holds no certificate", "give the CA certificate in PEM") from None
    return b64encode(data).decode()


def bridge(namespace: str, image: str, scheduler_image: str) -> Objects:
    """Render the allocator and the scheduler with our plugin."""
    objects = render(BRIDGE, namespace)
    for obj in objects:
        if obj["kind"] == "Deployment":
            for container in obj["spec"]["template"]["spec"]["containers"]:
                container["image"] = scheduler_image if container["name"] == "scheduler" else image
    return objects


def add_reservations(objects: Objects, namespace: str, secret: str = "") -> Objects:
    """Render the objects that `reservations` adds to the bridge, and patch the workloads that it changes.

    `secret` names the Secret with the allocator's certificate, if our authority does not maintain one.
    """
    from cluster.patch import apply_json_patch

    folder = BRIDGE / "reservations"
    for patch in _kustomization(folder)["patches"]:
        operations = _moved(json.loads(patch["patch"]), namespace)
        for obj in objects:
            if (obj["kind"], obj["metadata"]["name"]) != (patch["target"]["kind"], patch["target"]["name"]):
                continue
            obj.update(apply_json_patch(obj, operations))
            for volume in obj["spec"]["template"]["spec"]["volumes"]:
                if secret and volume["name"] == "reservations" and "secret" in volume:
                    volume["secret"]["secretName"] = secret
    return render(folder, namespace)


class Part(NamedTuple):
    """An optional part of an installation: the folder of its objects, the chart's value for it, and the help of its option."""

    folder: str
    value: str
    help: str


# By the name of the option.
PARTS = {
    "read-only": Part("read-only", "readOnly", "Also a read-only allocator alongside any scheduler (docs/bridge.md)."),
    "node-agent": Part("node-agent", "nodeAgent", "Also an audit agent on labelled nodes (docs/node.md)."),
    "driver": Part(
        "driver",
        "driver",
        "Also our driver on labelled nodes; it reads a ConfigMap of yours, drawbridge-inventory (docs/node.md).",
    ),
    "adapter": Part(
        "adapter",
        "adapter",
        "Also an adapter on labelled nodes, which serves the devices of device plugins as a DRA driver (docs/node.md).",
    ),
    "guards": Part(
        "guards", "guards", "Also policies on who may allocate devices, bind pods or publish slices (docs/security.md)."
    ),
    "protected-claims": Part(
        "protected-claims",
        "protectedClaims",
        "Also a policy that saves schedulers a write for each pod with claims; Kubernetes 1.36 and later (docs/bridge.md).",
    ),
}


def part(name: str, namespace: str, image: str, drivers: Iterable[str] = ()) -> Objects:
    """Render an optional part. The guards' ConfigMap lists the managed drivers, whose devices the bridge allocates."""
    objects = render(BASE.parent / PARTS[name].folder, namespace, image)
    for obj in objects:
        if obj["metadata"]["name"] == MANAGED:
            obj["data"] = dict.fromkeys(drivers, "given by the bridge")
    return objects


def evidence(namespace: str, namespaces: Iterable[str]) -> Objects:
    """Render the rights to read the settings of device plugins and autoscalers in these namespaces."""
    objects = render(BASE.parent / "evidence", namespace)
    inner = [obj for obj in objects if obj["kind"] not in CLUSTER_WIDE]
    added = [obj | {"metadata": obj["metadata"] | {"namespace": where}} for where in namespaces for obj in inner]
    return [obj for obj in objects if added and obj not in inner] + added


class Selection(NamedTuple):
    """The parts of an installation, and its namespace."""

    namespace: str
    image: str
    scheduler_image: str
    has_bridge: bool
    parts: Collection[str]  # names of `PARTS`
    has_reservations: bool
    secret: str  # the Secret with the allocator's certificate; "" for the Secret that our authority maintains
    api_servers: tuple[str, ...]


def selected(selection: Selection, text: str, configuration: Configuration) -> Objects:
    """Render an installation without its webhook configurations; `text` is the configuration, "" for the one in `manifests/base`."""
    from webhook.claims import taint_rule

    namespace, image = selection.namespace, selection.image
    drivers = configuration.file.bridge.drivers if configuration.file.bridge is not None else ()
    objects = base(namespace, image, text, selection.api_servers)
    objects += evidence(namespace, configuration.file.evidence.namespaces)
    if selection.has_bridge:
        objects += bridge(namespace, image, selection.scheduler_image)
        if is_fenced(configuration):
            objects += [taint_rule(driver) for driver in drivers]
    for name in PARTS:
        if name in selection.parts:
            objects += part(name, namespace, image, drivers)
        if name == "node-agent" and selection.has_reservations:
            objects += add_reservations(objects, namespace, selection.secret)
    return objects


def is_fenced(configuration: Configuration) -> bool:
    """Return whether the configuration sets `bridge.fence`: taints then keep other schedulers from the bridge's devices."""
    bridge_file = configuration.file.bridge
    return bridge_file is not None and bridge_file.fence and bool(bridge_file.drivers)


def make_chart(folder: Path, text: str, configuration: Configuration, schema_text: str) -> None:
    """Write the chart for a configuration into a new folder, completely or not at all.

    `schema_text` is the JSON schema of configurations.
    """
    from cluster import manifests
    from webhook import names

    objects = chart_objects(text, configuration)
    [data] = [obj["data"] for obj in objects["base"] if obj["kind"] == "ConfigMap"]

    # The schema of the chart's values, in which `configuration` gets the schema of configurations.
    schema: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    _require_all(schema)
    configuration_schema = json.loads(schema_text)
    schema["definitions"] |= configuration_schema["definitions"]
    values = schema["properties"]
    values["configuration"] = {
        "type": "object",
        "properties": configuration_schema["properties"],
        "additionalProperties": False,
    }
    values["image"]["pattern"] = f"^({IMAGES.pattern})?$"
    values["bridge"]["properties"]["schedulerImage"]["pattern"] = f"^({IMAGES.pattern})?$"
    values["namespace"]["pattern"] = f"^({LABEL.pattern})?$"
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Broken(f"{folder} already exists, and is not an empty folder", "name a folder that does not exist")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".chart-") as scratch:
            chart_folder = Path(scratch) / "chart"
            shutil.copytree(CHART, chart_folder)
            with (chart_folder / "Chart.yaml").open("a", encoding="utf-8") as chart:
                chart.write(f"version: {names.VERSION}\nappVersion: {names.VERSION}\n")
            (chart_folder / "values.schema.json").write_text(f"{json.dumps(schema, indent=1)}\n", encoding="utf-8")
            (chart_folder / "objects").mkdir()
            (chart_folder / "objects" / "configuration.yaml").write_text(data["drawbridge.yaml"], encoding="utf-8")
            for name, rendered in objects.items():
                (chart_folder / "objects" / f"{name}.yaml").write_text(manifests.dump(rendered), encoding="utf-8")
            chart_folder.rename(folder)
    except OSError as error:
        raise Broken(
            f"the chart cannot be written to {folder}: {error.strerror}", "name a folder that can be written"
        ) from None


def chart_objects(text: str, configuration: Configuration) -> dict[str, list[dict[str, Any]]]:
    """Render the objects by the names of the files that the templates read."""
    from webhook.claims import taint_rule
    from webhook.registration import Registration, configurations

    rights = evidence(PLACE, ("__WHERE__",))
    objects = {
        "base": base(PLACE, IMAGE, text),
        **{name: part(name, PLACE, IMAGE) for name in PARTS},
        "fence": [taint_rule("__DRIVER__")],
        "evidence": [right for right in rights if right["kind"] in CLUSTER_WIDE],
        "evidence-namespace": [right for right in rights if right["kind"] not in CLUSTER_WIDE],
        "webhooks": configurations(configuration.dialects, Registration(namespace=PLACE)),
        "devices": configurations(configuration.dialects, Registration(namespace=PLACE, devices=True)),
    }
    for reservations in ("", "-reservations"):
        bridges = bridge(PLACE, IMAGE, SCHEDULER_IMAGE)
        if reservations:
            bridges += add_reservations(bridges, PLACE)
        objects[f"bridge{reservations}"] = bridges
    # The objects that --reservations adds are among those of the bridge above; the node agent is only patched.
    objects["node-agent-reservations"] = deepcopy(objects["node-agent"])
    add_reservations(objects["node-agent-reservations"], PLACE)
    return objects


def _require_all(schema: dict[str, Any]) -> None:
    """Require every value: Helm removes a value that is set to null, and a template would fail without it."""
    members = schema.get("properties", {})
    if members:
        # The values of a release of an older chart lack these keys. Then the templates use the defaults, false and `webhook`.
        schema["required"] = [name for name in members if name not in ("global", "readOnly", "level")]
    for member in members.values():
        _require_all(member)
