"""Workloads: a fleet, and the pods that come to it. Written down as documents of kind Workload, or generated.

The kind is for files only: no API server knows it. An arrival names a ResourceClaimTemplate among the files, or says its
claims' specs. What is wrong with a document is answered as a value; the caller has read the file and knows the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from allocator.simulation.replay import Arrival
from dra.objects import ObjectMeta, ResourceClaim, ResourceClaimSpec, defaults
from dra.stock import Stock
from dra.wire import Wire, WireError, convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dra.objects import ResourceClaimTemplate

KIND = ("drawbridge.dev/v1alpha1", "Workload")


class Workload(msgspec.Struct, frozen=True):
    """A fleet, and the pods that come to it."""

    name: str
    stock: Stock
    arrivals: tuple[Arrival, ...]


class PodArrival(Wire, frozen=True, kw_only=True):
    """`at` and `lasts` are in seconds; without `lasts` the pod stays. `times` makes copies, one `every` so many seconds."""

    pod: str
    at: float = 0.0
    lasts: float | None = None
    priority: int = 0
    template: str = ""
    claims: tuple[ResourceClaimSpec, ...] = ()
    times: int = 1
    every: float = 0.0


class WorkloadSpec(Wire, frozen=True, kw_only=True):
    arrivals: tuple[PodArrival, ...] = ()


def read_arrivals(
    documents: Sequence[Mapping[str, Any]], templates: Iterable[ResourceClaimTemplate]
) -> tuple[list[Arrival], list[tuple[int, WireError]]]:
    """Read the arrivals of Workload documents; return them, and each mistake with the position of its document."""
    by_name = {one.metadata.key: one.spec.spec for one in templates}
    found: list[Arrival] = []
    mistakes: list[tuple[int, WireError]] = []
    for at, document in enumerate(documents):
        try:
            spec = convert(document.get("spec") or {}, WorkloadSpec)
        except WireError as error:
            mistakes.append((at, WireError(error.message, f"/spec{error.pointer}")))
            continue
        for number, one in enumerate(spec.arrivals):
            specs = one.claims
            name = one.template if "/" in one.template else f"default/{one.template}"
            problem = ""
            if not one.template:
                problem = "" if specs else "has neither a template nor claims"
            elif name in by_name:
                specs = (*specs, by_name[name])
            else:
                problem = f"ResourceClaimTemplate {name} is not among the files"
            if one.times < 1 or one.at < 0 or one.every < 0 or (one.lasts is not None and one.lasts < 0):
                problem = problem or "times must be at least 1, and at, every and lasts not negative"
            if problem:
                mistakes.append((at, WireError(problem, f"/spec/arrivals/{number}")))
                continue
            for copy in range(one.times):
                pod = one.pod if one.times == 1 else f"{one.pod}-{copy}"
                claims = tuple(
                    ResourceClaim(
                        metadata=ObjectMeta(name=f"{pod}-{part}", namespace="default"), spec=defaults.claim_spec(spec)
                    )
                    for part, spec in enumerate(specs)
                )
                found.append(Arrival(pod, one.at + copy * one.every, claims, one.lasts, one.priority))
    return found, mistakes


def is_workload(document: Mapping[str, Any]) -> bool:
    """Say whether a document is of kind Workload."""
    return (document.get("apiVersion"), document.get("kind")) == KIND


def name_of(documents: Iterable[Mapping[str, Any]]) -> str:
    """Name a workload by the first of its documents that has a name."""
    for document in documents:
        metadata = document.get("metadata")
        if metadata and "name" in metadata:
            return str(metadata["name"])
    return "workload"
