"""Claims in the values of app-template: a controller is read as a pod, and the claims of the translated pod are written into the values.

Follows bjw-s-labs/helm-charts dfaf83d1: charts/library/common/templates/lib/pod/_getOption.tpl. An option of a controller's `pod` replaces that of
`defaultPodOptions`, which all controllers have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dra.pointer import member, split
from dra.raw import Object, inside, items

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_KINDS: Final = ("initContainers", "containers")
_DEPTH: Final = 7  # controllers, NAME, containers, NAME, resources, limits, KEY
_AMOUNTS: Final = ("limits", "requests")


class ContainerPlace(NamedTuple):
    """A container of a controller."""

    controller: str
    kind: str
    name: str

    @property
    def path(self) -> tuple[str, ...]:
        """The path in the values."""
        return ("controllers", *self)


class Requested(NamedTuple):
    """A key and an amount, with the values of their variables."""

    key: str
    amount: str


Requests = dict[ContainerPlace, dict[str, Requested]]  # of the containers of a controller, by key as it is written


def place_of_container(pointer: str) -> tuple[str, ContainerPlace, str] | None:
    """Return the pointer of the values, the container and the key that a pointer of an amount leads through; None if it leads elsewhere."""
    match split(pointer)[-_DEPTH:]:
        case ["controllers", controller, kind, name, "resources", _, key] if kind in _KINDS:
            return pointer.rsplit("/", _DEPTH)[0], ContainerPlace(controller, kind, name), key
    return None


def pod_of(values: Object, requests: Requests, name: str, namespace: str) -> Object:
    """Return the pod of one controller, with these requests of its containers and with the claims that it has already."""
    controller = next(iter(requests)).controller
    spec: dict[str, Any] = {}
    for kind in _KINDS:
        spec[kind] = []
        for container in inside(values, "controllers", controller, kind):
            place = ContainerPlace(controller, kind, container)
            resources = inside(values, *place.path, "resources")
            requested: Object = {"limits": dict(requests.get(place, {}).values())}
            if claims := items(resources, "claims"):
                requested["claims"] = claims
            spec[kind].append({"name": container, "image": container, "resources": requested})
    options = inside(values, *_path_of_options(values, controller))
    inherited = options if "resourceClaims" in options else inside(values, "defaultPodOptions")
    if claims := items(inherited, "resourceClaims"):
        spec["resourceClaims"] = claims
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def patch_of(values: Object, requests: Requests, pod: Object) -> Iterator[Object]:
    """Yield a JSON patch of the values, after which the controller has the claims of its translated pod in place of the keys."""
    spec = inside(pod, "spec")
    for place, removed in requests.items():
        container = next(container for container in items(spec, place.kind) if container.get("name") == place.name)
        kept = without_keys(inside(values, *place.path, "resources"), removed)
        claims = items(inside(container, "resources"), "claims")
        yield {"op": "add", "path": _pointer((*place.path, "resources")), "value": {**kept, "claims": claims}}
    path = _path_of_options(values, next(iter(requests)).controller)
    options = inside(values, *path)
    yield {"op": "add", "path": _pointer(path), "value": {**options, "resourceClaims": spec["resourceClaims"]}}


def _path_of_options(values: Object, controller: str) -> tuple[str, ...]:
    """Return the path of the options of a controller's pod, or of all pods if there is no other controller."""
    of_all, own = ("defaultPodOptions",), ("controllers", controller, "pod")
    if len(inside(values, "controllers")) > 1 or "resourceClaims" in inside(values, *own):
        return own
    return own if inside(values, *own) and "resourceClaims" not in inside(values, *of_all) else of_all


def without_keys(resources: Object, removed: Collection[str]) -> Object:
    """Return the resources of a container without these keys, and without the maps that they leave empty."""
    kept = dict(resources)
    for part in _AMOUNTS:
        amounts = inside(resources, part)
        if rest := {key: amount for key, amount in amounts.items() if key not in removed}:
            kept[part] = rest
        elif amounts:
            del kept[part]
    return kept


def _pointer(path: tuple[str, ...]) -> str:
    pointer = ""
    for name in path:
        pointer = member(pointer, name)
    return pointer
