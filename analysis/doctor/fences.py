"""Findings about missing fences.

A fence is a DeviceTaintRule of ours that keeps other schedulers from the devices that the bridge allocates.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from analysis.doctor.observed import (
    DoctorInput,
    drivers_of_classes,
)
from analysis.doctor.repair import RuleCreation
from analysis.explain import scheduler_actor
from dra.finding import Finding, make_finding
from dra.objects import (
    claim_keys,
    results_of,
)
from dra.policy import fences
from dra.reason import Actor
from webhook import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.doctor.repair import Repairable


def without_fence(observed: DoctorInput) -> Iterator[Repairable]:
    """Drivers whose devices should be fenced, but are not."""
    rules = observed.reading.stock.rules
    for driver in observed.fenced:
        if not any(fences(rule, driver) for rule in rules.values()):
            finding = make_finding(
                "O206",
                f"DeviceTaintRule/drawbridge-fence-{driver}",
                f"the configuration requires a fence around the devices of {driver}, but no rule taints all of them",
            )
            # A rule with this name and another selector was written by a person, and stays.
            yield finding, None if f"drawbridge-fence-{driver}" in rules else RuleCreation(driver)


def two_schedulers(observed: DoctorInput) -> Iterator[Finding]:
    """Drivers whose devices the bridge and another scheduler allocate, and that no DeviceTaintRule fences from the other scheduler."""
    stock, bridge = observed.reading.stock, observed.bridge
    configuration = observed.reading.configuration
    by_key = {claim.metadata.key: claim for claim in observed.reading.stock.claims.values()}
    driver_of = drivers_of_classes(stock)
    used_by: defaultdict[str, set[str]] = defaultdict(set)
    for pod in observed.reading.pods.values():
        for key in () if pod.has_ended else claim_keys(pod):
            claim = by_key.get(key)
            if claim is None:
                continue
            # The drivers of the claim's devices; for a claim without devices, those of the classes that it names.
            several = [request.alternatives.values() for request in claim.spec.devices.requests]
            drivers = {driver_of.get(request.device_class_name, "") for request in chain.from_iterable(several)} - {""}
            for driver in {result.driver for result in results_of(claim)} or drivers:
                used_by[driver].add(pod.spec.scheduler_name or "default-scheduler")
    managed = bridge.drivers if bridge is not None and not bridge.fence else ()
    for driver in sorted({*used_by, *managed}):
        ours = {user for user in used_by[driver] if scheduler_actor(user, configuration) is Actor.BRIDGE}
        others = used_by[driver] - ours
        if not (ours and others) and driver not in managed:
            continue
        if driver in observed.fenced or any(fences(rule, driver) for rule in stock.rules.values()):
            continue
        first = ", ".join(sorted(ours)) or (bridge.scheduler_name if bridge is not None else names.NAME)
        second = ", ".join(sorted(others)) or "any other scheduler"
        yield make_finding(
            "O205",
            f"Driver/{driver}",
            f"{first} and {second} may give the same device to two pods, because no fence keeps one of these schedulers from the driver's devices",
        )
