"""Claims in the values of app-template: a controller is read as a pod, and the claims of the translated pod are written into the values.

Follows bjw-s-labs/helm-charts dfaf83d1: charts/library/common/templates/lib/pod/_getOption.tpl. An option of a controller's `pod` replaces that of
`defaultPodOptions`, which all controllers have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dra.pointer import member, split
from dra.raw import Object, inside, items

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

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
    containers: dict[str, list[Object]] = {}
    for kind in _KINDS:
        places = [ContainerPlace(controller, kind, name) for name in inside(values, "controllers", controller, kind)]
        containers[kind] = [
            with_requested(place.name, inside(values, *place.path, "resources"), requests.get(place, {}))
            for place in places
        ]
    options = inside(values, *_path_of_options(values, controller))
    inherited = options if "resourceClaims" in options else inside(values, "defaultPodOptions")
    return pod_with(containers, items(inherited, "resourceClaims"), name, namespace)


def pod_with(containers: Mapping[str, Sequence[Object]], claims: Sequence[Object], name: str, namespace: str) -> Object:
    """Return a pod with these containers, by kind, and with these claims if there are any."""
    spec = {**containers, "resourceClaims": claims} if claims else containers
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def with_requested(name: str, resources: Object, requested: Mapping[str, Requested]) -> Object:
    """Return a container with these requests and the claims of its resources."""
    wanted: Object = {"limits": dict(requested.values())}
    if claims := items(resources, "claims"):
        wanted["claims"] = claims
    return {"name": name, "image": name, "resources": wanted}


def patch_of(values: Object, requests: Requests, pod: Object) -> Iterator[Object]:
    """Yield a JSON patch of the values, after which the controller has the claims of its translated pod in place of the keys."""
    spec = inside(pod, "spec")
    for place, removed in requests.items():
        container = next(container for container in items(spec, place.kind) if container.get("name") == place.name)
        resources = resources_with_claims(inside(values, *place.path, "resources"), removed, container)
        yield {"op": "add", "path": _pointer((*place.path, "resources")), "value": resources}
    path = _path_of_options(values, next(iter(requests)).controller)
    options = inside(values, *path)
    yield {"op": "add", "path": _pointer(path), "value": {**options, "resourceClaims": spec["resourceClaims"]}}


def _path_of_options(values: Object, controller: str) -> tuple[str, ...]:
    """Return the path of the options of a controller's pod, or of all pods if there is no other controller."""
    of_all, own = ("defaultPodOptions",), ("controllers", controller, "pod")
    if len(inside(values, "controllers")) > 1 or "resourceClaims" in inside(values, *own):
        return own
    return own if inside(values, *own) and "resourceClaims" not in inside(values, *of_all) else of_all


def resources_with_claims(resources: Object, removed: Collection[str], translated: Object) -> Object:
    """Return resources with the claims of a translated container in place of these keys."""
    return {**without_keys(resources, removed), "claims": items(inside(translated, "resources"), "claims")}


def patch_without_keys(container: Object, path: str, removed: Collection[str]) -> Iterator[Object]:
    """Yield a JSON patch that removes these keys from the `resources` of what is at a path."""
    if resources := inside(container, "resources"):
        kept, path = without_keys(resources, removed), f"{path}/resources"
        yield {"op": "replace", "path": path, "value": kept} if kept else {"op": "remove", "path": path}


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
