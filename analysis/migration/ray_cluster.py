"""Claims in the values of KubeRay's chart ray-cluster: a group of workers, or the head, is read as a pod.

Follows ray-project/kuberay feeaf72: helm-chart/ray-cluster/templates/raycluster-cluster.yaml, ray-operator/controllers/ray/common/pod.go and
utils/resources.go. KubeRay passes the number of GPUs to Ray from the limits, unless `rayStartParams` has it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from analysis.migration.values import ContainerPlace, pod_with, resources_with_claims, with_requested
from dra.pointer import split
from dra.raw import Object, inside, items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.migration.values import Requests

CHART: Final = "ray-cluster"
_PLACE: Final = re.compile(r"(.*?)(/(?:head|worker|additionalWorkerGroups/[^/]+))/resources/(?:limits|requests)/[^/]+")
_GPU: Final = re.compile(r".*gpu|nvidia\.com/mig-.*")


def place_in_group(pointer: str) -> tuple[str, ContainerPlace, str] | None:
    """Return the pointer of the values, the container of a group and the key that a pointer of an amount leads through; None if it leads elsewhere."""
    match = _PLACE.fullmatch(pointer)
    return match and (match[1], ContainerPlace(match[2], "containers", "ray"), split(pointer)[-1])


def pod_of_group(values: Object, requests: Requests, name: str, namespace: str) -> Object:
    """Return the pod of one group, with these requests and with the claims that it has already."""
    [(place, requested)] = requests.items()
    group = inside(values, *split(place.controller))
    container = with_requested(place.name, inside(group, "resources"), requested)
    return pod_with({place.kind: [container]}, items(group, "resourceClaims"), name, namespace)


def patch_of_group(values: Object, requests: Requests, pod: Object) -> Iterator[Object]:
    """Yield a JSON patch of the values, after which the group has the claims of its translated pod in place of the keys."""
    [(place, removed)] = requests.items()
    path, spec = place.controller, inside(pod, "spec")
    group = inside(values, *split(path))
    resources = resources_with_claims(inside(group, "resources"), removed, items(spec, "containers")[0])
    yield {"op": "add", "path": f"{path}/resources", "value": resources}
    yield {"op": "add", "path": f"{path}/resourceClaims", "value": spec["resourceClaims"]}
    parameters = inside(group, "rayStartParams")
    if gpus := [request.amount for request in removed.values() if _GPU.fullmatch(request.key)]:
        yield {"op": "add", "path": f"{path}/rayStartParams", "value": {"num-gpus": gpus[0], **parameters}}
