"""ObjectMeta and its parts (k8s.io/apimachinery/pkg/apis/meta/v1).

Times are kept as text, because times in RFC 3339 in UTC with whole seconds sort as text. Since KEP-5504, resource
versions can be compared as numbers; servers without it may have versions that cannot be compared.
"""

from __future__ import annotations

from dra.wire import Wire


class OwnerReference(Wire, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Wire, frozen=True, kw_only=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The object's namespace/name."""
        return f"{self.namespace or 'default'}/{self.name}"

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that created the object, if it is a controller."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Condition(Wire, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


def is_later(version: str, than: str) -> bool:
    """Whether a resourceVersion is known to be later than another."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)


def is_news(version: str, than: str) -> bool:
    """Whether a resourceVersion is later than another. If they cannot be compared, whether they differ."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
