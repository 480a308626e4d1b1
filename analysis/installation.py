"""The objects of an installation: their kinds, their label, and the kustomize bases and components in `manifests/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import manifests, resources
from cluster.resources import Raw, Resource
from dra.raw import inside, items, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    Objects = list[dict[str, Any]]

# The namespace and the images in the bases. They occur in the bases only as names to replace.
NAMESPACE = "drawbridge-system"
IMAGE, SCHEDULER_IMAGE = "drawbridge.invalid/name-an-image", "drawbridge-scheduler.invalid/name-an-image"
BASE = Path(__file__).resolve().parents[1] / "manifests" / "base"
BRIDGE = BASE.parent / "bridge"
RESERVATIONS = BRIDGE / "reservations"
# The folders of optional parts, which the values of the same names add, such as `readOnly`.
PARTS = ("read-only", "node-agent", "driver", "adapter", "guards", "protected-claims")
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


def render(
    folder: Path, namespace: str = NAMESPACE, image: str = IMAGE, scheduler_image: str = SCHEDULER_IMAGE
) -> Objects:
    """Render the resources that a folder's kustomization lists, for a namespace and the images.

    The webhook configurations are omitted, because they are generated.
    """
    [kustomization] = [document.object for document in manifests.read([folder / "kustomization.yaml"])]
    home = kustomization.get("namespace", "")
    files: list[Path] = []
    objects: Objects = []
    for name in kustomization["resources"]:
        if not name.endswith(".yaml"):
            objects += render(folder / name)
        elif name != "webhooks.yaml":
            files.append(folder / name)
    objects += [document.object for document in manifests.read(files)]
    for obj in objects:
        metadata = obj["metadata"]
        metadata.setdefault("labels", {})["app.kubernetes.io/name"] = "drawbridge"
        if home and obj["kind"] not in (*CLUSTER_WIDE, "Namespace"):
            metadata["namespace"] = home
    rendered: Objects = with_names(objects, namespace, image, scheduler_image)
    return rendered


def with_names(
    value: Any, namespace: str = NAMESPACE, image: str = IMAGE, scheduler_image: str = SCHEDULER_IMAGE
) -> Any:
    """Replace the names of the bases in every string, also where they are part of a name, as in the node agents' namespace."""
    text = json.dumps(value).replace(NAMESPACE, namespace).replace(IMAGE, image)
    return json.loads(text.replace(SCHEDULER_IMAGE, scheduler_image))
