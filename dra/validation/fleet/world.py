"""The objects against which an object is judged: all judged objects and the inventory, as typed values.

The inventory has objects that are known but not judged. Objects that cannot be decoded are left out; `validate_object` reports them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from dra.objects import (
    DeviceClass,
    DeviceCompatibility,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dra.pointer import text_at
from dra.raw import inside
from dra.server import CURRENT
from dra.validation.fleet.domains import ComputeDomains
from dra.validation.fleet.held import ClaimHolder
from dra.validation.fleet.pools import Piece
from dra.validation.fleet.published import Fleet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_Key = tuple[str, str]  # namespace, name
ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"


def admin_namespaces(objects: Iterable[dict[str, Any]]) -> dict[str, bool]:
    """Return for each Namespace whether it allows admin access. If a name repeats, one Namespace that allows it is enough."""
    allowed: dict[str, bool] = {}
    for value in objects:
        if value.get("kind") == "Namespace" and value.get("apiVersion") == "v1":
            name = text_at(value, "/metadata/name")
            allowed[name] = allowed.get(name, False) or inside(value, "metadata", "labels").get(ADMIN_LABEL) == "true"
    return allowed


class World:
    """Objects by the names by which other objects refer to them. If a name repeats, the first object counts."""

    def __init__(
        self,
        judged: Iterable[Any] = (),
        inventory: Iterable[Any] = (),
        domains: ComputeDomains | None = None,
        namespaces: Mapping[str, bool] | None = None,
        *,
        whole: bool = True,
        minor: int = CURRENT,
    ) -> None:
        self.minor = minor
        # Whether a class that the input does not have does not exist. Manifests of a repository may use a class that a driver installs.
        self.whole = whole
        self.domains = domains or ComputeDomains()
        self.admin_namespaces = namespaces or {}
        self.classes: dict[str, DeviceClass] = {}
        self.claims: dict[_Key, ResourceClaim] = {}
        self.templates: dict[_Key, ResourceClaimTemplate] = {}
        self.pieces: list[Piece] = []
        self.holders: list[ClaimHolder] = []
        self.compatibilities: list[DeviceCompatibility] = []
        self.rules: dict[str, DeviceTaintRule] = {}
        for number, value in enumerate(judged):
            self._add(value, number)
        for value in inventory:
            self._add(value, None)

    def _add(self, value: Any, number: int | None) -> None:
        match value:
            case DeviceClass():
                self.classes.setdefault(value.metadata.name, value)
            case ResourceClaim():
                self.holders.append(ClaimHolder(number, value))
                self.claims.setdefault((value.metadata.namespace or "default", value.metadata.name), value)
            case ResourceClaimTemplate():
                self.templates.setdefault((value.metadata.namespace or "default", value.metadata.name), value)
            case ResourceSlice():
                self.pieces.append(Piece(number, value))
            case DeviceCompatibility():
                self.compatibilities.append(value)
            case DeviceTaintRule():
                self.rules.setdefault(value.metadata.name, value)

    @cached_property
    def fleet(self) -> Fleet:
        """All published devices."""
        return Fleet(piece.slice for piece in self.pieces)

    @cached_property
    def made_templates(self) -> frozenset[_Key]:
        """The namespace and name of each template that NVIDIA's controller creates for a ComputeDomain."""
        return frozenset(self.domains.by_template)

    @cached_property
    def homes(self) -> dict[str, list[str]]:
        """The namespaces with a claim or template of each name."""
        namespaces: dict[str, list[str]] = {}
        for namespace, name in (*self.claims, *self.templates, *self.made_templates):
            namespaces.setdefault(name, []).append(namespace)
        return namespaces
