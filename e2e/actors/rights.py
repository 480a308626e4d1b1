"""The rights of a service account of ours: those that its roles grant, and those that the API server's audit log shows in use."""

from collections.abc import Container, Iterator
from itertools import product

from e2e.actors.client import USER_AGENT, Client
from e2e.actors.webhook import SYSTEM
from e2e.ground.controlplane import ControlPlane

Right = tuple[str, str, str]  # API group, resource or URL path, verb


def check_rights(cluster: ControlPlane, account: str, allowed_unused: Container[Right]) -> set[Right]:
    """Fail if a request was forbidden, or if a right outside `kept` was never used; return the used rights."""
    used, refused = used_rights(cluster, f"system:serviceaccount:{SYSTEM}:{account}")
    assert not refused, f"{account} requests {sorted(refused)}, which its roles do not grant"
    unused = granted_rights(cluster, account) - used
    spare = sorted(
        right for right in unused if right not in allowed_unused and ("*", "*", right[2]) not in allowed_unused
    )
    assert not spare, f"{account} does not use {spare}"
    return used


def granted_rights(cluster: Client, account: str) -> set[Right]:
    """Return what the roles that are bound to an account grant."""
    base = "/apis/rbac.authorization.k8s.io/v1"
    granted: set[Right] = set()
    for bindings, roles in (
        (f"{base}/clusterrolebindings", f"{base}/clusterroles"),
        (f"{base}/namespaces/{SYSTEM}/rolebindings", f"{base}/namespaces/{SYSTEM}/roles"),
    ):
        for binding in cluster.get(bindings)["items"]:
            if any(subject["name"] == account for subject in binding.get("subjects", ())):
                for rule in cluster.get(f"{roles}/{binding['roleRef']['name']}")["rules"]:
                    resources = rule.get("resources", []) + rule.get("nonResourceURLs", [])
                    granted |= set(product(rule.get("apiGroups", [""]), resources, rule["verbs"]))
    return granted


def used_rights(cluster: ControlPlane, user: str) -> tuple[set[Right], set[Right]]:
    """Return the rights that a user has used, and those that its requests lacked; the tests' own requests do not count.

    A dry run does not count either: it only tests which fields a server knows. Admission also
    answers 403, so only the decision of the authorizer shows that a right is missing.
    """
    used: set[Right] = set()
    refused: set[Right] = set()
    for right, forbidden in requested_rights(cluster, user):
        (refused if forbidden else used).add(right)
    return used, refused


def requested_rights(cluster: ControlPlane, user: str) -> Iterator[tuple[Right, bool]]:
    for event in cluster.audit_events():
        counts = event["user"].get("username") == user and USER_AGENT not in event.get("userAgent", "")
        if not counts or "dryRun=All" in event["requestURI"]:
            continue
        reference = event.get("objectRef")
        if reference is None:  # a URL path, such as /metrics
            yield ("", event["requestURI"].partition("?")[0], event["verb"]), False
            continue
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
        forbidden = event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
        yield (reference.get("apiGroup", ""), resource, event["verb"]), forbidden
