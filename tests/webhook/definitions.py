"""CustomResourceDefinitions for tests, with schemas like those of published ones."""

from typing import Any

# The schema of the field `claims` of a container's resources.
CLAIMS = {
    "type": "array",
    "items": {"type": "object", "properties": {"name": {"type": "string"}, "request": {"type": "string"}}},
}
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with these fields."""
    return {"type": "object", "properties": properties}


_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_AMOUNTS = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}


def pod_spec(
    *, claim_fields: tuple[str, ...] = ("name", "resourceClaimName", "resourceClaimTemplateName"), claims: bool = True
) -> dict[str, Any]:
    """Return the schema of a pod's spec. `claim_fields` are the fields of an entry of resourceClaims; if empty, the spec has no resourceClaims.

    Without `claims`, the resources of a container have no field `claims`.
    """
    resources = {"limits": _AMOUNTS, "requests": _AMOUNTS} | ({"claims": CLAIMS} if claims else {})
    container = {"name": {"type": "string"}, "image": {"type": "string"}, "resources": _object(resources)}
    members: dict[str, Any] = {
        part: {"type": "array", "items": _object(container)} for part in ("containers", "initContainers")
    }
    members["tolerations"] = {"type": "array", "items": ANY}
    members["nodeSelector"] = _STRINGS
    if claim_fields:
        members["resourceClaims"] = {
            "type": "array",
            "items": _object({name: {"type": "string"} for name in claim_fields}),
        }
    return _object(members)


KEEPS_CLAIMS = pod_spec()
DROPS_CLAIMS = pod_spec(claim_fields=(), claims=False)
# Before Kubernetes 1.31, an entry of resourceClaims named its claim or template in the field `source`.
BEFORE_131 = pod_spec(claim_fields=("name", "source"))


def object_with(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with one field."""
    return _object({name: schema})


def template(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a pod template with this schema of its spec."""
    return _object({"metadata": ANY, "spec": spec})


def definition(
    group_and_kind: tuple[str, str], *versions: dict[str, Any] | tuple[str, dict[str, Any]], **spec: Any
) -> dict[str, Any]:
    """Return the definition of a kind, with a schema of the spec for each version. The first version is stored."""
    group, kind = group_and_kind
    named_versions = [
        version if isinstance(version, tuple) else (f"v{number}", version) for number, version in enumerate(versions, 1)
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {"name": name, "served": True, "storage": not number, "schema": {"openAPIV3Schema": _object({"spec": schema})}}
                for number, (name, schema) in enumerate(named_versions)
            ],
            **spec,
        },
    }  # fmt: skip
