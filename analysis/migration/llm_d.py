"""The values by which the chart of llm-d-modelservice makes claims of its own.

Follows llm-d-incubation/llm-d-modelservice 3051935: charts/llm-d-modelservice/templates/_helpers-dra.tpl, resource-claim-template.yaml. The chart
makes one claim for each pod, which all of its containers use, and counts its devices by `parallelism`.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from analysis.migration.values import patch_without_keys
from dra.raw import inside, items, text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from dra.raw import Object

CHART: Final = "llm-d-modelservice"
_ROLES: Final = ("decode", "prefill")
# By the type of accelerator: the DeviceClass, and the key that the claim replaces.
_TYPES: Final = {
    "nvidia": ("gpu.nvidia.com", "nvidia.com/gpu"),
    "amd": ("gpu.amd.com", "amd.com/gpu"),
    "intel-i915": ("gpu.intel.com", "gpu.intel.com/i915"),
    "intel-xe": ("gpu.intel.com", "gpu.intel.com/xe"),
}


def class_of_llm_d(values: Object) -> str:
    """Return the DeviceClass of the claims that replace what the chart requests; "" if their devices would not be the same."""
    accelerator = inside(values, "accelerator")
    name = text(accelerator.get("type")) or "nvidia"
    device_class, key = _TYPES.get(name, ("", ""))
    if inside(accelerator, "resources").get(name, key) != key or "resourceClaimTemplates" in accelerator:
        return ""
    for role in _ROLES:
        containers = items(inside(values, role), "containers")
        parallelism = inside(values, role, "parallelism")
        sizes = [str(parallelism.get(size, 1)) for size in ("tensor", "dataLocal")]
        if inside(values, role, "accelerator") or len(containers) > 1 or not all(map(str.isdecimal, sizes)):
            return ""
        count = str(prod(map(int, sizes)))
        if any(str(inside(container, "resources", "limits").get(key, count)) != count for container in containers):
            return ""
    return device_class


def patch_of_llm_d(values: Object, removed: Collection[str], _: str) -> Iterator[Object]:
    """Yield a JSON patch of the values, after which the chart makes claims in place of these keys."""
    yield {"op": "add", "path": "/accelerator", "value": {**inside(values, "accelerator"), "dra": True}}
    for role in _ROLES:
        for number, container in enumerate(items(inside(values, role), "containers")):
            yield from patch_without_keys(container, f"/{role}/containers/{number}", removed)
