"""Where the files of an installation stand, and what a namespace, an image and a configuration change of what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BASE = Path(__file__).resolve().parents[2] / "manifests" / "base"
BRIDGE = BASE.parent / "bridge"
QUOTA = BRIDGE / "quota"
PROMISES = BRIDGE / "promises"
ONLOOKER = BASE.parent / "onlooker"
NODE_AGENT = BASE.parent / "node-agent"
DRIVER = BASE.parent / "driver"
ADAPTER = BASE.parent / "adapter"
GUARDS = BASE.parent / "guards"
PROTECTED_CLAIMS = BASE.parent / "protected-claims"
NAMESPACE = "drawbridge-system"
GENERATED = "webhooks.yaml"
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
ASKED_BY_API_SERVERS = ("drawbridge-webhook", "drawbridge-quota")


def listed(folder: Path) -> list[Path]:
    """The files that a kustomization lists."""
    from cluster import manifests

    kustomization, *_ = manifests.read([folder / "kustomization.yaml"])
    names: list[str] = kustomization.object["resources"]
    return [folder / name for name in names if name.endswith(".yaml") and name != GENERATED]


def patches_of(folder: Path) -> list[Path]:
    """The patches that a kustomization lists."""
    from cluster import manifests

    kustomization, *_ = manifests.read([folder / "kustomization.yaml"])
    return [folder / one["path"] for one in kustomization.object["patches"]]


def adapt(obj: dict[str, Any], namespace: str, image: str, config: str, api_servers: tuple[str, ...]) -> dict[str, Any]:
    """Change an object as kustomize would, and give it back."""
    _place(obj, namespace)
    name = obj["metadata"]["name"]
    match obj["kind"]:
        case "Deployment" | "DaemonSet":
            _name_images(obj, image)
        case "NetworkPolicy" if name in ASKED_BY_API_SERVERS and api_servers:
            _let_in(obj, api_servers)
        case "ConfigMap" if name == "drawbridge" and config:
            text = Path(config).read_text(encoding="utf-8")
            obj["data"] = {"drawbridge.yaml": text}
    return obj


def _let_in(policy: dict[str, Any], blocks: tuple[str, ...]) -> None:
    """Have the first rule of a policy name who may come."""
    first, *_ = policy["spec"]["ingress"]
    first["from"] = [{"ipBlock": {"cidr": block}} for block in blocks]


def _name_images(workload: dict[str, Any], image: str) -> None:
    pod = workload["spec"]["template"]["spec"]
    for container in pod["containers"]:
        container["image"] = image


def _place(obj: dict[str, Any], namespace: str) -> None:
    """Put an object, and the accounts of ours that it names, into a namespace."""
    metadata = obj["metadata"]
    metadata.setdefault("labels", {})["app.kubernetes.io/name"] = "drawbridge"
    match obj["kind"]:
        case "Namespace":
            metadata["name"] = namespace
        case kind if kind in CLUSTER_WIDE:
            pass
        case _:
            metadata["namespace"] = namespace
    for subject in obj.get("subjects") or ():
        if subject.get("namespace") == NAMESPACE:  # others' accounts stay where they are
            subject["namespace"] = namespace


def move_names(obj: dict[str, Any], namespace: str) -> None:
    """Tell the fence in which namespace the lease and the account are, and the scheduler where the allocator is."""
    match obj["kind"]:
        case "ValidatingAdmissionPolicyBinding":
            obj["spec"]["paramRef"]["namespace"] = namespace
        case "ValidatingAdmissionPolicy":
            [condition] = obj["spec"]["matchConditions"]
            ours, theirs = f"serviceaccount:{NAMESPACE}:", f"serviceaccount:{namespace}:"
            condition["expression"] = condition["expression"].replace(ours, theirs)
        case "ConfigMap":
            text = obj["data"]["scheduler.yaml"]
            obj["data"]["scheduler.yaml"] = text.replace(f".{NAMESPACE}.svc", f".{namespace}.svc")
