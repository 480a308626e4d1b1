"""Documents of kind Workload: pods that arrive and leave, as `drawbridge simulate` replays them.

A file-only kind: no API server knows it. An arrival names a ResourceClaimTemplate among the files, or says its claims' specs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.objects import ObjectMeta, ResourceClaim, ResourceClaimSpec, defaults
from dra.wire import Wire, WireError, convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from allocator.simulation import Arrival
    from cluster.manifests import Document
    from dra.objects import ResourceClaimTemplate

KIND = ("drawbridge.dev/v1alpha1", "Workload")


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


def arrivals(documents: Sequence[Document], templates: Iterable[ResourceClaimTemplate]) -> tuple[Arrival, ...] | None:
    """Read the arrivals of all Workload documents; None if there is no such document."""
    from cli import contract as inputs
    from cluster.manifests import ManifestError

    by_name = {f"{one.metadata.namespace or 'default'}/{one.metadata.name}": one.spec.spec for one in templates}
    found: list[Arrival] = []
    wrong: list[tuple[Document, str, str]] = []
    ours = [one for one in documents if (one.object.get("apiVersion"), one.object.get("kind")) == KIND]
    for document in ours:
        try:
            spec = convert(document.object.get("spec") or {}, WorkloadSpec)
        except WireError as error:
            wrong.append((document, f"/spec{error.pointer}", error.message))
            continue
        for number, one in enumerate(spec.arrivals):
            try:
                found += _copies(one, by_name)
            except ValueError as error:
                wrong.append((document, f"/spec/arrivals/{number}", str(error)))
    if wrong:
        raise ManifestError(inputs.problems(wrong))
    return tuple(found) if ours else None


def name_of(documents: Iterable[Document]) -> str:
    """Name the workload: the first document's name counts."""
    ours = (one.object for one in documents if (one.object.get("apiVersion"), one.object.get("kind")) == KIND)
    return next((str(meta["name"]) for one in ours if (meta := one.get("metadata")) and "name" in meta), "workload")


def _copies(one: PodArrival, templates: Mapping[str, ResourceClaimSpec]) -> list[Arrival]:
    from allocator.simulation import Arrival

    specs = one.claims
    if one.template:
        name = one.template if "/" in one.template else f"default/{one.template}"
        if name not in templates:
            raise ValueError(f"ResourceClaimTemplate {name} is not among the files")
        specs = (*specs, templates[name])
    if not specs:
        raise ValueError("says neither a template nor claims")
    if one.times < 1 or one.at < 0 or one.every < 0 or (one.lasts is not None and one.lasts < 0):
        raise ValueError("times must be at least 1, and at, every and lasts not negative")
    return [
        Arrival(pod, one.at + copy * one.every, _claims(pod, specs), one.lasts, one.priority)
        for copy in range(one.times)
        for pod in [one.pod if one.times == 1 else f"{one.pod}-{copy}"]
    ]


def _claims(pod: str, specs: Sequence[ResourceClaimSpec]) -> tuple[ResourceClaim, ...]:
    return tuple(
        ResourceClaim(metadata=ObjectMeta(name=f"{pod}-{at}", namespace="default"), spec=defaults.claim_spec(spec))
        for at, spec in enumerate(specs)
    )
