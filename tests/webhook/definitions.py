"""CustomResourceDefinitions for tests, with schemas like those of published ones."""

from typing import Any

CLAIMS = {
    "type": "array",
    "items": {"type": "object", "properties": {"name": {"type": "string"}, "request": {"type": "string"}}},
}
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


_NAMES = {"type": "object", "additionalProperties": {"type": "string"}}
_AMOUNTS = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}


def pod_spec(
    *, claim_fields: tuple[str, ...] = ("name", "resourceClaimName", "resourceClaimTemplateName"), claims: bool = True
) -> dict[str, Any]:
    """Return the schema of a pod's spec. `claim_fields` are the fields of an entry of resourceClaims; if empty, the spec has no resourceClaims."""
    resources = {"limits": _AMOUNTS, "requests": _AMOUNTS} | ({"claims": CLAIMS} if claims else {})
    container = {"name": {"type": "string"}, "image": {"type": "string"}, "resources": _object(resources)}
    members: dict[str, Any] = {
        part: {"type": "array", "items": _object(container)} for part in ("containers", "initContainers")
    }
    members["tolerations"] = {"type": "array", "items": ANY}
    members["nodeSelector"] = _NAMES
    if claim_fields:
        members["resourceClaims"] = {
            "type": "array",
            "items": _object({name: {"type": "string"} for name in claim_fields}),
        }
    return _object(members)


KEEPS_CLAIMS = pod_spec()
DROPS_CLAIMS = pod_spec(claim_fields=(), claims=False)
BEFORE_131 = pod_spec(claim_fields=("name", "source"))


def object_with(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return _object({name: schema})


def template(spec: dict[str, Any]) -> dict[str, Any]:
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
