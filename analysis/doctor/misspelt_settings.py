"""Finds names in the configuration that no object has, but that are similar to the name of an object.

A setting for a driver or a namespace that does not exist has no effect, and causes no message. A name that is similar to no existing name may
be that of a later object, so it is not reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.objects import Namespace
from dra.finding import Finding, make_finding
from dra.validation import shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from analysis.doctor.observed import DoctorInput
    from webhook.state import Configuration


def misspelt_settings(observed: DoctorInput) -> Iterator[Finding]:
    """Report drivers and namespaces of the configuration that are likely misspelt."""
    if observed.configuration is None:
        return
    existing = {
        "driver": {piece.spec.driver for piece in observed.reading.stock.slices.values()},
        "namespace": {namespace.metadata.name for namespace in observed.reading.typed.of_type(Namespace)},
    }
    effects = {"driver": "publishes no ResourceSlice", "namespace": "does not exist"}
    for kind, field, names in _named(observed.configuration):
        for name in names:
            similar = "" if name in existing[kind] else shape.nearest_name(name, sorted(existing[kind] - set(names)))
            if similar:
                yield make_finding(
                    "O019",
                    "DrawbridgeConfiguration",
                    f"{field} names {kind} {name}, which {effects[kind]}: did you mean {similar}?",
                    f"correct {field} in the configuration: as it is, the setting has no effect",
                )


def _named(configuration: Configuration) -> Iterator[tuple[str, str, Iterable[str]]]:
    """List the drivers and namespaces of a configuration, by field."""
    file = configuration.file
    yield "driver", "evidence.drivers", file.evidence.drivers
    yield "driver", "extendedResources.drivers", file.extended_resources.drivers
    yield "namespace", "evidence.namespaces", file.evidence.namespaces
    yield "namespace", "extendedResources.namespaces", file.extended_resources.namespaces
    yield "namespace", "cpuClaims.namespaces", file.cpu_claims.namespaces
    for key, mixed in file.mixed.items():
        yield "namespace", f"mixed.{key}.namespaces", mixed.namespaces
    if file.bridge is not None:
        yield "driver", "bridge.drivers", file.bridge.drivers
        yield "namespace", "bridge.placement.namespaces", file.bridge.placement.namespaces
