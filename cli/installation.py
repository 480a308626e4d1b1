"""Makes the objects of an installation for its values, from the kustomize bases in `manifests/`; or a Helm chart of these bases.

A chart has the objects of the bases and the hand-written files of `manifests/chart`, whose templates change the objects as the functions
here do.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.errors import Broken
from analysis.installation import BASE, CLUSTER_WIDE, NAMESPACE, PARTS, RESERVATIONS, render, with_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analysis.installation import Objects
    from cli.installation_values import Values
    from webhook.registration import Registration
    from webhook.state import Configuration

CHART = BASE.parent / "chart"
MANAGED = "drawbridge-managed-drivers"
TLS_FOLDER = "/etc/drawbridge-tls"


def configuration_of(file: str, overriding: dict[str, Any]) -> tuple[str, Configuration]:
    """Read the configuration to install: that of a file, or of `manifests/base`, and the settings that override it.

    The file is read once, because a pipe is empty afterwards. If the text sets no mode, `mode: observe` is added, with which
    installations begin.
    """
    from cluster import manifests
    from webhook.service import load_configuration

    content = None
    if file:
        with suppress(OSError):
            content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    else:
        [config_map] = manifests.read([BASE / "configuration.yaml"])
        content = config_map.object["data"]["drawbridge.yaml"].encode()
    configuration = load_configuration(file, content)  # its error names a file that cannot be read
    text = (content or b"").decode()
    [document] = manifests.parse(text)
    expected = {"mode": "observe"} | _merged(document.object, overriding)
    if overriding:
        text = manifests.dump([expected])
        return text, load_configuration("configuration (of the values)", text.encode())
    if "mode" not in document.object:
        try:
            text = manifests.edit(text, expected)
        except manifests.CannotEdit:
            text = manifests.dump([expected])
    return text, configuration


def _merged(value: dict[str, Any], overriding: dict[str, Any]) -> dict[str, Any]:
    """Merge objects at every depth, as Helm merges values."""
    merged = dict(value)
    for key, member in overriding.items():
        old = value.get(key)
        merged[key] = _merged(old, member) if isinstance(old, dict) and isinstance(member, dict) else member
    return merged


def installed_objects(values: Values, text: str, configuration: Configuration) -> Objects:
    """Return the objects of an installation without its webhook configurations; `text` is the text of the configuration."""
    from webhook.claims import taint_rule

    names = (values.namespace or NAMESPACE, values.image, values.bridge.scheduler_image)
    bridge = configuration.file.bridge
    drivers = bridge.drivers if bridge is not None else ()
    folders = ["base", *(["bridge"] if values.bridge.enabled else ())]
    folders += [part for part in PARTS if getattr(values, part.replace("-", "_"))]
    folders += ["monitor"] if values.monitor.enabled else ()
    objects = [obj for folder in folders for obj in render(BASE.parent / folder, *names)]
    if values.bridge.reservations:
        objects += add_reservations(objects, names[0])
    for obj in objects:
        _change(obj, values)
        if obj["kind"] == "ConfigMap" and obj["metadata"]["name"] == "drawbridge":
            obj["data"] = {"drawbridge.yaml": text}
        if obj["metadata"]["name"] == MANAGED:
            obj["data"] = dict.fromkeys(drivers, "given by the bridge")
    if values.bridge.enabled and is_fenced(configuration):
        objects += [taint_rule(driver) for driver in drivers]
    objects += evidence(names[0], configuration.file.evidence.namespaces)
    return [obj for obj in objects if _is_wanted(obj, values)]


def is_fenced(configuration: Configuration) -> bool:
    """Return whether the configuration sets `bridge.fence`: taints then keep other schedulers from the bridge's devices."""
    bridge = configuration.file.bridge
    return bridge is not None and bridge.fence and bool(bridge.drivers)


def add_reservations(objects: Objects, namespace: str = NAMESPACE) -> Objects:
    """Render the objects that `reservations` adds to the bridge, and patch the workloads that it changes."""
    from cluster import manifests
    from cluster.patch import apply_json_patch

    [kustomization] = manifests.read([RESERVATIONS / "kustomization.yaml"])
    for patch in kustomization.object["patches"]:
        operations = with_names(json.loads(patch["patch"]), namespace)
        for obj in objects:
            if (obj["kind"], obj["metadata"]["name"]) == (patch["target"]["kind"], patch["target"]["name"]):
                obj.update(apply_json_patch(obj, operations))
    return render(RESERVATIONS, namespace)


def evidence(namespace: str, namespaces: Iterable[str]) -> Objects:
    """Render the rights to read the settings of device plugins and autoscalers in these namespaces."""
    objects = render(BASE.parent / "evidence", namespace)
    inner = [obj for obj in objects if obj["kind"] not in CLUSTER_WIDE]
    added = [obj | {"metadata": obj["metadata"] | {"namespace": where}} for where in namespaces for obj in inner]
    return [obj for obj in objects if added and obj not in inner] + added


def _change(obj: dict[str, Any], values: Values) -> None:
    """Change an object as the values require."""
    match obj["kind"]:
        case "Deployment":
            _change_deployment(obj["spec"], values)
        case "DaemonSet" if values.image_pull_secrets:
            obj["spec"]["template"]["spec"]["imagePullSecrets"] = values.image_pull_secrets
        case "NetworkPolicy" if values.network_policy.api_servers and obj["metadata"]["name"] == "drawbridge-webhook":
            blocks = [{"ipBlock": {"cidr": cidr}} for cidr in values.network_policy.api_servers]
            obj["spec"]["ingress"][0]["from"] = blocks
        case "PodMonitor":
            obj["metadata"]["labels"] = values.monitor.labels | obj["metadata"]["labels"]
            obj["spec"]["podMetricsEndpoints"][0]["interval"] = values.monitor.interval


def _change_deployment(spec: dict[str, Any], values: Values) -> None:
    pod, component = spec["template"]["spec"], spec["selector"]["matchLabels"]["app.kubernetes.io/component"]
    spec["replicas"] = values.replicas.get(component, spec["replicas"])
    for field, value in (
        ("tolerations", values.tolerations),
        ("nodeSelector", values.node_selector),
        ("priorityClassName", values.priority_class_name),
        ("imagePullSecrets", values.image_pull_secrets),
    ):
        if value:
            pod[field] = value
    for container in pod["containers"]:
        name = container["name"]
        container["resources"] = values.resources.get(name, container["resources"])
        container["args"] = [*container["args"], *values.args.get(name, ())]
    certificates = values.certificates
    if certificates.source != "own" and component == "webhook":
        webhook = pod["containers"][0]
        webhook["args"] += [f"--tls-cert={TLS_FOLDER}/tls.crt", f"--tls-key={TLS_FOLDER}/tls.key"]
        webhook["volumeMounts"].append({"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True})
        pod["volumes"].append({"name": "tls", "secret": {"secretName": certificates.secret}})
    for volume in pod.get("volumes", ()):
        if certificates.source != "own" and component == "allocator" and volume["name"] == "reservations":
            volume["secret"]["secretName"] = certificates.reservations_secret


def _is_wanted(obj: dict[str, Any], values: Values) -> bool:
    """Return whether no value omits an object."""
    if obj["kind"] == "NetworkPolicy":
        return values.network_policy.enabled
    if obj["kind"].startswith("ValidatingAdmissionPolicy"):
        return values.policies
    return values.quota or obj["metadata"]["name"] != "devicequotas.drawbridge.dev"


def registration(values: Values, configuration: Configuration) -> Registration:
    """Return the values of the webhook configurations."""
    from webhook.registration import Registration

    namespace, certificates = values.namespace or NAMESPACE, values.certificates
    ca_bundle = inject_ca_from = ""
    if certificates.source == "files":
        ca_bundle = b64encode(certificates.ca_bundle.encode()).decode()
    if certificates.source == "cert-manager":
        inject_ca_from = certificates.certificate or f"{namespace}/{certificates.secret}"
    return Registration(
        namespace=namespace,
        failure_policy=values.webhooks.failure_policy,
        # With mode off as the default, namespaces without the label need no reviews.
        opt_in=values.webhooks.opt_in or configuration.file.mode == "off",
        devices=values.webhooks.devices,
        url=values.webhooks.url,
        ca_bundle=ca_bundle,
        inject_ca_from=inject_ca_from,
        cpus=configuration.file.cpu_claims,
    )


def write_chart(folder: Path, text: str, configuration: Configuration) -> None:
    """Write the chart for a configuration into a new folder, completely or not at all."""
    from cluster import manifests
    from webhook import names

    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Broken(f"{folder} already exists, and is not an empty folder", "name a folder that does not exist")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".chart-") as scratch:
            chart_folder = Path(scratch) / "chart"
            shutil.copytree(CHART, chart_folder)
            with (chart_folder / "Chart.yaml").open("a", encoding="utf-8") as chart:
                chart.write(f"version: {names.VERSION}\nappVersion: {names.VERSION}\n")
            (chart_folder / "objects").mkdir()
            (chart_folder / "objects" / "configuration.yaml").write_text(text, encoding="utf-8")
            for name, objects in chart_objects(configuration).items():
                (chart_folder / "objects" / f"{name}.yaml").write_text(manifests.dump(objects), encoding="utf-8")
            chart_folder.rename(folder)
    except OSError as error:
        raise Broken(
            f"the chart cannot be written to {folder}: {error.strerror}", "name a folder that can be written"
        ) from None


def chart_objects(configuration: Configuration) -> dict[str, Objects]:
    """Render the objects by the names of the files that the templates read."""
    from webhook.claims import taint_rule
    from webhook.registration import Registration, configurations

    folders = ("base", "bridge", *PARTS, "monitor")
    objects = {folder: render(BASE.parent / folder) for folder in folders}
    patched = {folder: render(BASE.parent / folder) for folder in ("bridge", "node-agent")}
    objects["reservations"] = add_reservations([*patched["bridge"], *patched["node-agent"]])
    objects |= {f"{folder}-reservations": rendered for folder, rendered in patched.items()}
    rights = evidence(NAMESPACE, ("__WHERE__",))
    return objects | {
        "fence": [taint_rule("__DRIVER__")],
        "evidence": [right for right in rights if right["kind"] in CLUSTER_WIDE],
        "evidence-namespace": [right for right in rights if right["kind"] not in CLUSTER_WIDE],
        "webhooks": configurations(configuration.dialects, Registration()),
        "devices": configurations(configuration.dialects, Registration(devices=True)),
    }
