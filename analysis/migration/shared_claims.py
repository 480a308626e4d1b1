"""Claims that workloads share: one named claim in a namespace, or claims with admin access."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from analysis.claim_names import pod_specs, renamed, without_defaults
from dra.raw import Object, containers_of, inside, items, mapping, text
from webhook.names import PREFIX
from webhook.translate import name_of, namespace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cluster.manifests import Document

CLAIM: Final = "ResourceClaim"


class NamedClaims:
    """The ResourceClaims that all workloads of a namespace share."""

    def __init__(self, documents: Iterable[Document]) -> None:
        """Read the claims of a tree."""
        placed = [document.placed for document in documents if document.object.get("kind") == CLAIM]
        self._specs: dict[str, Object] = {name_of(obj): without_defaults(obj.get("spec")) for obj in placed}
        self._of_tree = frozenset(self._specs)
        self._users: dict[str, tuple[Object, list[int]]] = {}

    def claim(self, spec: Object, namespace: str) -> Object:
        """Return the claim with this spec. Its name is that of its request, with a number if the name is taken."""
        request = text(items(inside(spec, "devices"), "requests")[0].get("name"))
        for number in count(1):
            name = request if number == 1 else f"{request}-{number}"
            claim = claim_object(CLAIM, name, namespace, without_defaults(spec))
            if self._specs.setdefault(name_of(claim), claim["spec"]) == claim["spec"]:
                return claim
        raise AssertionError

    def use(self, claim: Object, number: int) -> None:
        """Record that a document names a claim."""
        self._users.setdefault(name_of(claim), (claim, []))[1].append(number)

    def used(self) -> Iterator[tuple[str, list[int], Object]]:
        """Yield the claims to add to the tree, with their namespace and the documents that name them."""
        for name, (claim, numbers) in self._users.items():
            if name not in self._of_tree:
                yield namespace_of(claim), numbers, claim


def claim_object(kind: str, name: str, namespace: str, spec: Object) -> Object:
    """Return a claim or a template."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def without_shares(template_spec: Object) -> Object:
    """Return the spec of a template without a number of shares, so that each claim gets the driver's default: one share, or a whole device."""
    return _with_bodies(
        template_spec,
        lambda body: _without(body, "capacity") if "shares" in inside(body, "capacity", "requests") else body,
    )


def as_admin(template_spec: Object) -> Object:
    """Return a template spec for claims with admin access to all devices of the class on the node. No quota counts them."""
    everything = {"allocationMode": "All", "adminAccess": True}
    return _with_bodies(template_spec, lambda body: _without(body, "count") | everything)


def _without(obj: Object, member: str) -> Object:
    return {name: value for name, value in obj.items() if name != member}


def _with_bodies(template_spec: Object, change: Callable[[Object], Object]) -> Object:
    devices = template_spec["spec"]["devices"]
    requests = [{**request, "exactly": change(request["exactly"])} for request in devices["requests"]]
    return {**template_spec, "spec": {**template_spec["spec"], "devices": {**devices, "requests": requests}}}


def with_one_claim(translated: Object, template: str, claim: str = "") -> Object:
    """Give each pod of an object one claim, from a template or by name, which all of its containers use."""
    names: dict[str, str] = {}
    for spec in pod_specs(translated):
        entries = {entry["name"]: entry.get("resourceClaimTemplateName") for entry in items(spec, "resourceClaims")}
        same = [name for name, source in entries.items() if source == template]
        first = (
            (claim if claim not in entries else same[0].removeprefix(PREFIX)) if same and claim else "".join(same[:1])
        )
        names |= dict.fromkeys(same, first)
    copy = renamed(translated, names)
    for spec in pod_specs(copy):
        if claim:
            spec["resourceClaims"] = [
                {"name": entry["name"], "resourceClaimName": claim}
                if entry.get("resourceClaimTemplateName") == template
                else entry
                for entry in items(spec, "resourceClaims")
            ]
        resources = [inside(container, "resources") for container in containers_of(spec)]
        for owner, field in ((spec, "resourceClaims"), *[(of_container, "claims") for of_container in resources]):
            if listed := items(owner, field):
                owner[field] = [entry for index, entry in enumerate(listed) if entry not in listed[:index]]
    return mapping(copy)
