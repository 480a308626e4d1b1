"""Amounts of extended resources (nvidia.com/gpu: 2) in the containers of a pod, as the API server judges them.

They have a domain, are whole, cannot be overcommitted, and belong to containers: pkg/apis/core/validation, ValidateContainerResourceRequirements
and validatePodResources. Amounts of cpu, memory and huge pages are not judged here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.pointer import member
from dra.validation.fields.names import label_key
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from dra.objects import PodSpec, ResourceRequirements

_THOUSANDTHS = 1000
_STANDARD = ("cpu", "memory", "ephemeral-storage")


def extended_problems(spec: PodSpec, path: str) -> Problems:
    """Judge what the containers of a pod, and the pod itself, ask for."""
    for kind, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            at = f"{path}/{kind}/{index}/resources"
            yield from _container(container.resources, at)
    for side, amounts in (("limits", spec.resources.limits), ("requests", spec.resources.requests)):
        for name in filter(_is_extended, amounts):
            at = member(f"{path}/resources/{side}", name)
            message = f"{name} cannot be asked for by the pod as a whole"
            yield Problem("D209", at, message, "ask for it in a container")


def _container(resources: ResourceRequirements, path: str) -> Problems:
    limits, requests = resources.limits, resources.requests
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            at = member(f"{path}/{side}", name)
            misspelt = label_key(name)
            message = f"{name} is not a resource that a container can ask for"
            if misspelt:
                yield Problem("D213", at, f"{message}: it {misspelt}")
            elif not _is_extended(name):
                # What a container may ask for of Kubernetes' own resources (validateContainerResourceName).
                own = name in _STANDARD or name.startswith("hugepages-")
                if name.startswith("requests.") if "/" in name else not own:
                    yield Problem("D213", at, message)
            elif amount.nano < 0:
                yield Problem("D209", at, f"{amount} of {name} is less than zero", "write zero or more")
            elif amount.milli() % _THOUSANDTHS:
                hint = "write a whole number; a part of a device is asked for in other words, which `drawbridge dialects` lists"
                yield Problem("D209", at, f"{amount} of {name} is not a whole number", hint)
    for name, amount in requests.items():
        if not _is_extended(name):
            continue
        at = member(f"{path}/requests", name)
        limit = limits.get(name)
        if limit is None:
            yield Problem("D209", at, f"{name} has a request and no limit", f"set limits: {{{name}: {amount}}}")
        elif limit != amount:
            yield Problem("D209", at, f"the request of {name}, {amount}, is not its limit, {limit}", "make them equal")


def _is_extended(name: str) -> bool:
    """Say whether a resource is not one of Kubernetes' own (IsExtendedResourceName)."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")
