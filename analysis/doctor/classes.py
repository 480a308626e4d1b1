"""Findings about DeviceClasses, and about the devices that drivers publish."""

from __future__ import annotations

from collections import defaultdict
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from allocator.reports import unpublished
from analysis.doctor.observed import MAX_NAMED, DoctorInput, classes_of, drivers_of_classes
from analysis.doctor.open_claims import classes_named, open_claims
from analysis.requesting import kept_by, taint_on_all
from dra.finding import Finding, make_finding
from dra.stock import newest
from dra.texts import list_first
from dra.validation import find_incomplete

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dra.objects import ResourceClaimSpec


def without_class(observed: DoctorInput) -> Iterator[Finding]:
    """DeviceClasses that do not exist, and the claims, templates and pods that name them."""
    requesters: defaultdict[str, dict[str, None]] = defaultdict(dict)

    def note(spec: ResourceClaimSpec, requester: str) -> None:
        for request in spec.devices.requests:
            for alternative in request.alternatives.values():
                if alternative.device_class_name:
                    requesters[alternative.device_class_name][requester] = None

    for claim in observed.reading.stock.claims.values():
        if claim.status.allocation is None:
            note(claim.spec, f"ResourceClaim/{claim.metadata.key}")
    for template in observed.reading.templates.values():
        note(template.spec.spec, f"ResourceClaimTemplate/{template.metadata.namespace}/{template.metadata.name}")
    for name, requester in (*classes_named(observed), *_classes_of_webhook(observed)):
        requesters[name][requester] = None
    for name in sorted(requesters.keys() - observed.reading.stock.classes.keys()):
        yield make_finding(
            "O107",
            f"DeviceClass/{name}",
            f"it does not exist, but is requested by {list_first(list(requesters[name]), MAX_NAMED)}",
        )


def _classes_of_webhook(observed: DoctorInput) -> Iterator[tuple[str, str]]:
    """Yield each DeviceClass that claims of future pods will name, and the setting or the target (a known kind of device) that names it."""
    existing_classes = observed.reading.stock.classes.keys()
    if observed.configuration is None or (not observed.reading.is_live and not existing_classes):
        return
    file, targets = observed.configuration.file, observed.configuration.targets
    for name, class_name in file.classes.items():
        yield class_name, f"the configuration (classes.{name})"
    for class_name in file.kueue.device_classes:
        yield class_name, "the configuration (kueue.deviceClasses)"
    published: defaultdict[str, set[str | None]] = defaultdict(set)  # the types of devices, by driver
    for piece in observed.reading.stock.slices.values():
        driver = piece.spec.driver
        for device in piece.spec.devices:
            type_ = device.attributes.get("type") or device.attributes.get(f"{driver}/type")
            published[driver].add(type_.string if type_ is not None else None)
    drivers = set(drivers_of_classes(observed.reading.stock).values())

    def has_class(name: str) -> bool:
        target = targets[name]
        declared = name in file.classes or not existing_classes.isdisjoint(target.classes)
        return declared or (not target.type and target.driver in drivers)

    for name, target in targets.items():
        types = published[target.driver]
        others = [device_class for device_class in (target.instead, target.virtual) if device_class in targets]
        publishes = bool(types) and (not target.type or target.type in types)
        if target.classes and publishes and not any(map(has_class, (name, *others))):
            yield target.classes[0], f"claims of the webhook for devices of driver {target.driver} (target {name})"


def without_devices(observed: DoctorInput) -> Iterator[Finding]:
    """DeviceClasses that select no device, and the claims and pods that wait for a device of such a class."""
    waiting = list(open_claims(observed))
    classes = classes_of(observed.reading.stock) if waiting else {}
    empty: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for requester, requests in waiting:
        for request in requests:
            class_names = [alternative.device_class_name for alternative in request.alternatives.values()]
            named_classes = [classes.get(name) for name in class_names]
            if named_classes and all(
                device_class is not None and not device_class.devices for device_class in named_classes
            ):
                empty[class_names[0]][requester] = None
    for name, claims in empty.items():
        yield make_finding(
            "O108",
            f"DeviceClass/{name}",
            f"it selects no device of a pool that can be used, and is requested by {list_first(list(claims), MAX_NAMED)}",
        )


def incomplete_pools(observed: DoctorInput) -> Iterator[Finding]:
    """Pools with missing slices, and pools that have lost their devices."""
    with_devices: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for piece in observed.reading.stock.slices.values():
        if piece.spec.devices:
            with_devices[piece.spec.driver, piece.spec.pool.name].append(piece.metadata.name)
    pools: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for piece in newest(observed.reading.stock.slices.values()):
        pools[piece.spec.driver, piece.spec.pool.name].append(piece)
    for (driver, name), pieces in pools.items():
        generation = max(piece.spec.pool.generation for piece in pieces)
        if incomplete := next(filter(None, [find_incomplete(piece, pieces) for piece in pieces]), None):
            yield make_finding(incomplete.code, f"ResourceSlice/{pieces[0].metadata.name}", incomplete.message)
        elif (old := with_devices[driver, name]) and not any(piece.spec.devices for piece in pieces):
            yield make_finding(
                "O208",
                f"ResourceSlice/{pieces[0].metadata.name}",
                f"driver {driver} has published pool {name} without devices in generation {generation}, so the devices in the older {list_first(old, MAX_NAMED)} do not count",
            )


def on_devices_that_are_gone(observed: DoctorInput) -> Iterator[Finding]:
    """Claims on devices that no driver publishes any more."""
    devices: defaultdict[str, list[str]] = defaultdict(list)
    for key, device in unpublished(observed.reading.stock):
        devices[key].append(device)
    for key, missing in devices.items():
        message = f"it holds {list_first(missing, 3)}, which the driver no longer publishes"
        yield make_finding("O218", f"ResourceClaim/{key}", message)


def tainted(observed: DoctorInput) -> Iterator[Finding]:
    """Drivers whose devices are all tainted, and the claims and pods that wait for such a device and do not tolerate the taint."""
    stock = observed.reading.stock
    drivers, taint_of = drivers_of_classes(stock), cache(partial(taint_on_all, stock))
    waiting: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for requester, requests in open_claims(observed):
        for request in requests:
            for driver, key in kept_by(request, drivers, taint_of):
                # Other findings report the taints of the bridge's fence and of audit agents.
                if not key.startswith("drawbridge.dev/"):
                    waiting[driver, key][requester] = None
    for (driver, key), claims in waiting.items():
        rules = [
            rule.metadata.name
            for rule in stock.rules.values()
            if rule.spec.taint.key == key
            and (selector := stock.reading.rule(rule).spec.device_selector) is not None
            and selector.driver in (None, driver)
        ]
        yield make_finding(
            "O111",
            f"DeviceTaintRule/{rules[0]}" if rules else f"Driver/{driver}",
            f"every device of {driver} has a taint, such as {key}, that is not tolerated by {list_first(list(claims), MAX_NAMED)}",
            f"delete the rule once the devices may be used again: kubectl delete devicetaintrule {rules[0]}"
            if rules
            else "the driver publishes this taint: its log, or the state of its devices, gives the reason",
        )
