"""Findings about missing fences, and about pods that a fence keeps from their devices.

A fence is a DeviceTaintRule of ours that keeps other schedulers from the devices that the bridge allocates.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from analysis.doctor.observed import (
    DoctorInput,
    drivers_of_classes,
    kept_by,
)
from analysis.doctor.repair import RuleCreation
from dra.finding import Finding, make_finding
from dra.objects import (
    DeviceToleration,
    blocks,
    claim_keys,
    results_of,
    served_resources,
)
from dra.policy import fences
from webhook import names
from webhook.state import (
    BridgeSettings,
    Configuration,
)

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


def behind_the_fence(observed: DoctorInput) -> Iterator[Finding]:
    """Unschedulable pods whose claims do not tolerate the taint of a fence."""
    stock = observed.reading.stock
    rules = stock.rules.values()

    def fence_of(driver: str, tolerations: tuple[DeviceToleration, ...]) -> str:
        blocking = [rule for rule in rules if fences(rule, driver) and blocks(rule.spec.taint, tolerations)]
        return names.FENCE if blocking else ""

    driver_of = drivers_of_classes(stock)
    fenced = {name for name, driver in driver_of.items() if any(fences(rule, driver) for rule in rules)}
    if not fenced:
        return
    serving = stock.serving()
    by_key = {claim.metadata.key: claim for claim in observed.reading.stock.claims.values()}
    configuration = observed.configuration or Configuration()
    for pod in observed.reading.pods.values():
        if pod.spec.node_name or pod.has_ended or pod.metadata.deletion_timestamp:
            continue
        if not any(
            condition.type == "PodScheduled" and condition.status == "False" for condition in pod.status.conditions
        ):
            continue
        fenced_names = [name for name in served_resources(pod, serving) if serving[name] in fenced]
        if fenced_names and not _is_ours(pod.spec.scheduler_name, observed.bridge):
            remedy = (
                f"give the pod the bridge's schedulerName: the webhook translates no {fenced_names[0]} into a claim"
            )
            if all(configuration.resource(name) for name in fenced_names):
                remedy = "recreate the pod where the webhook translates it (docs/bridge.md), or give it the bridge's schedulerName"
            yield make_finding(
                "O110",
                f"Pod/{pod.metadata.key}",
                f"it waits with scheduler {pod.spec.scheduler_name or 'default-scheduler'} for {', '.join(fenced_names)}, which fenced devices serve by name, "
                "and claims that kube-scheduler creates tolerate no taint",
                remedy,
            )
        for key in claim_keys(pod):
            claim = by_key.get(key)
            if claim is None or claim.status.allocation is not None:
                continue
            barred = [kept_by(request, driver_of, fence_of) for request in claim.spec.devices.requests]
            drivers = ", ".join(sorted({driver for driver, _ in chain.from_iterable(barred)}))
            if drivers:
                yield make_finding(
                    "O110",
                    f"Pod/{pod.metadata.key}",
                    f"it waits with scheduler {pod.spec.scheduler_name or 'default-scheduler'} for devices of {drivers}, which are tainted, "
                    f"and claim {claim.metadata.name} does not tolerate the taint",
                )


def two_schedulers(observed: DoctorInput) -> Iterator[Finding]:
    """Drivers whose devices the bridge and another scheduler allocate, and that no DeviceTaintRule fences from the other scheduler."""
    stock, bridge = observed.reading.stock, observed.bridge
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
        ours = {user for user in used_by[driver] if _is_ours(user, bridge)}
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


def _is_ours(scheduler: str, bridge: BridgeSettings | None) -> bool:
    return scheduler.startswith(names.NAME) if bridge is None else scheduler == bridge.scheduler_name
