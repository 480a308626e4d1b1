"""The values by which the chart of Ollama makes a claim of its own.

Follows otwld/ollama-helm eadf03e: templates/resourceclaimtemplate.yaml, templates/deployment.yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.migration.indirect import IndirectUse
from analysis.migration.values import patch_without_keys
from dra.pointer import mappings_in
from dra.raw import inside, text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from dra.raw import Object

CHART: Final = "ollama"
_DEFAULT_CLASS: Final = "gpu.nvidia.com"
_CLASSES: Final = {"": _DEFAULT_CLASS, "nvidia": _DEFAULT_CLASS, "amd": "gpu.amd.com"}


def class_of_ollama(values: Object) -> str:
    """Return the DeviceClass of the claim that replaces what the chart requests; "" if there is none."""
    gpu = inside(values, "ollama", "gpu")
    if gpu.get("enabled") is not True or inside(gpu, "mig").get("enabled") is True:
        return ""
    return _CLASSES.get(text(gpu.get("type")), "")


def uses_of_ollama(obj: Object) -> Iterator[IndirectUse]:
    """Yield the GPU of a release whose values leave the number to the chart, which requests one."""
    for pointer, gpu in mappings_in(obj.get("spec"), "/spec"):
        is_default = "number" not in gpu and gpu.get("draEnabled") is not True
        if pointer.endswith("/ollama/gpu") and is_default and (driver := class_of_ollama({"ollama": {"gpu": gpu}})):
            yield IndirectUse(pointer, "gpu", "", (driver,), is_requested=True)


def patch_of_ollama(values: Object, removed: Collection[str], template: str) -> Iterator[Object]:
    """Yield a JSON patch of the values, after which the chart makes a claim in place of these keys; from a template if there is one."""
    switches: Object = {"draEnabled": True}
    if (device_class := class_of_ollama(values)) != _DEFAULT_CLASS:
        switches |= {"draDriverClass": device_class}
    if template:
        switches |= {"draExistingClaimTemplate": template}
    for name, value in switches.items():
        yield {"op": "add", "path": f"/ollama/gpu/{name}", "value": value}
    yield from patch_without_keys(values, "", removed)
