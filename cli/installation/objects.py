"""The objects of an installation: those of the folders of `manifests/`, rendered as kustomize would for a namespace and an image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    Objects = list[dict[str, Any]]

BASE = Path(__file__).resolve().parents[2] / "manifests" / "base"
BRIDGE = BASE.parent / "bridge"
GUARDS = BASE.parent / "guards"
NAMESPACE = "drawbridge-system"
GENERATED = "webhooks.yaml"
MANAGED = "drawbridge-managed-drivers"
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
EXTENDER = "extender"  # how a scheduler asks the allocator where neither --apart nor --plugin is given
# The Secret with the allocator's certificate where our authority keeps no certificates.
OWN_SECRET = "drawbridge-quota-tls"  # noqa: S105  a name


def render(folder: Path, namespace: str, image: str = "") -> Objects:
    """Render the resources that a folder's kustomization lists; every name of our namespace in them becomes `namespace`.

    Without an image, workloads keep theirs. The webhook configurations are generated and left out.
    """
    from cluster import manifests

    kustomization = _kustomization(folder)
    home = kustomization.get("namespace", "")
    files: list[Path] = []
    objects: Objects = []
    for name in kustomization["resources"]:
        if not name.endswith(".yaml"):
            objects += render(folder / name, NAMESPACE)
        elif name != GENERATED:
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
    """Write another namespace, and the one for nodes beside it, wherever ours is named."""
    return json.loads(json.dumps(value).replace(NAMESPACE, namespace))


def base(namespace: str, image: str, configuration: str = "", api_servers: tuple[str, ...] = ()) -> Objects:
    """Render everything that every installation has; `configuration` is the text of another one than that in `manifests/base`."""
    objects = render(BASE, namespace, image)
    for obj in objects:
        if configuration and (obj["kind"], obj["metadata"]["name"]) == ("ConfigMap", "drawbridge"):
            obj["data"] = {"drawbridge.yaml": configuration}
    _let_in(objects, "drawbridge-webhook", api_servers)
    return objects


def _let_in(objects: Objects, policy: str, api_servers: tuple[str, ...]) -> None:
    """Restrict the first rule of a NetworkPolicy to the API servers, if they are named."""
    for obj in objects:
        if api_servers and (obj["kind"], obj["metadata"]["name"]) == ("NetworkPolicy", policy):
            obj["spec"]["ingress"][0]["from"] = [{"ipBlock": {"cidr": block}} for block in api_servers]


def configuration_text(file: str) -> str:
    """Read a configuration that is to be installed; if it names no mode, it gets `mode: observe`, with which installations begin."""
    from cluster import manifests

    text = Path(file).read_text(encoding="utf-8")
    documents = manifests.parse(text)
    if not documents or "mode" in documents[0].object:
        return text
    expected = {**documents[0].object, "mode": "observe"}
    try:
        return manifests.edit(text, [{"op": "add", "path": "/mode", "value": "observe"}], expected)
    except manifests.CannotEdit:
        return manifests.dump([expected])


def bridge(namespace: str, image: str, scheduler_image: str, way: str = EXTENDER) -> Objects:
    """Render allocator and scheduler: in one pod (`extender`), in two (`apart`), or in one with our plugin (`plugin`)."""
    from cluster import manifests

    objects = render(BRIDGE / "apart" if way == "apart" else BRIDGE, namespace)
    if way == "plugin":
        folder = BRIDGE / "plugin"
        files = [folder / one["path"] for one in _kustomization(folder)["patches"]]
        patches = {(one.object["kind"], one.object["metadata"]["name"]): one.object for one in manifests.read(files)}
        for obj in objects:
            patch = patches.get((obj["kind"], obj["metadata"]["name"]), {})
            _merge(obj, _moved(patch, namespace))
    for obj in objects:
        if obj["kind"] == "Deployment":
            for container in obj["spec"]["template"]["spec"]["containers"]:
                container["image"] = scheduler_image if container["name"] == "scheduler" else image
    return objects


def _merge(obj: dict[str, Any], patch: dict[str, Any]) -> None:
    """Merge a patch into an object as kustomize does: members of a list that have the same name are one."""
    for key, value in patch.items():
        match obj.get(key), value:
            case dict() as there, dict():
                _merge(there, value)
            case list() as there, [dict(), *_]:
                named = {one["name"]: one for one in there}
                for member in value:
                    if member["name"] in named:
                        _merge(named[member["name"]], member)
                    else:
                        there.append(member)
            case _:
                obj[key] = value


def quotas(objects: Objects, namespace: str, api_servers: tuple[str, ...] = (), secret: str = "") -> Objects:
    """Render what --quota adds, and patch the allocator's Deployment among the objects.

    `secret` names the Secret with its certificate, where that is not the one that our authority keeps.
    """
    _patch(objects, BRIDGE / "quota", namespace, secret)
    added = render(BRIDGE / "quota", namespace)
    _let_in(added, "drawbridge-quota", api_servers)
    return added


def promises(objects: Objects, namespace: str, secret: str = "") -> Objects:
    """Render what --promises adds, and patch allocator and agent among the objects; `secret` as for quotas."""
    _patch(objects, BRIDGE / "promises", namespace, secret)
    return render(BRIDGE / "promises", namespace)


def _patch(objects: Objects, folder: Path, namespace: str, secret: str) -> None:
    """Apply a component's JSON patches, and mount another Secret in the volume that has the component's name."""
    from cluster.patch import apply_json_patch

    for one in _kustomization(folder)["patches"]:
        operations = _moved(json.loads(one["patch"]), namespace)
        for obj in objects:
            if (obj["kind"], obj["metadata"]["name"]) != (one["target"]["kind"], one["target"]["name"]):
                continue
            obj.update(apply_json_patch(obj, operations))
            for volume in obj["spec"]["template"]["spec"]["volumes"]:
                if secret and volume["name"] == folder.name and "secret" in volume:
                    volume["secret"]["secretName"] = secret


def guards(namespace: str, drivers: Iterable[str]) -> Objects:
    """Render the policies about devices, pods and slices, with the drivers that are managed."""
    objects = render(GUARDS, namespace)
    for obj in objects:
        if obj["metadata"]["name"] == MANAGED:
            obj["data"] = dict.fromkeys(drivers, "given by the bridge")
    return objects
