"""Rules that Kubernetes 1.38 added for new objects (1.38.0-beta.0, pkg/apis/resource/validation). Stored values stay valid while they do not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra import names
from dra.finding import Findings, finding_at
from dra.objects import DeviceSubRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from dra.pointer import member
from dra.validation.fields.limits import too_many, wrong_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.objects import DeviceClaim

SINCE: Final = 38
MAX_REQUESTED_CAPACITIES: Final = 32


def added_rules(value: object) -> Findings:
    """Judge an object by the rules that servers before 1.38 do not have."""
    match value:
        case ResourceSlice():
            yield from _slice(value)
        case ResourceClaim():
            yield from _claim(value.spec.devices, "/spec/devices")
            results = value.status.allocation.devices.results if value.status.allocation is not None else ()
            for index, result in enumerate(results):
                path = f"/status/allocation/devices/results/{index}/consumedCapacity"
                yield from _capacity_names(result.consumed_capacity, path)
        case ResourceClaimTemplate():
            yield from _claim(value.spec.spec.devices, "/spec/spec/devices")


def _slice(slice_: ResourceSlice) -> Findings:
    spec = slice_.spec
    if spec.partition_type_attribute is not None:
        yield from wrong_format(spec.partition_type_attribute, names.at_most_one_slash, "/spec/partitionTypeAttribute")
    for index, device in enumerate(spec.devices):
        path = f"/spec/devices/{index}"
        for name, attribute in device.attributes.items():
            pointer = member(f"{path}/attributes", name)
            yield from wrong_format(name, names.at_most_one_slash, pointer)
            if attribute.version is not None:
                yield from wrong_format(attribute.version, names.short_numbers, f"{pointer}/version")
            for number, version in enumerate(attribute.versions or ()):
                yield from wrong_format(version, names.short_numbers, f"{pointer}/versions/{number}")
        for name in device.capacity:
            yield from wrong_format(name, names.at_most_one_slash, member(f"{path}/capacity", name))
        if device.node_selector is not None and (count := len(device.node_selector.node_selector_terms)) != 1:
            message = f"exactly one node selector term is needed, not {count}"
            yield finding_at("D117", f"{path}/nodeSelector/nodeSelectorTerms", message)


def _claim(devices: DeviceClaim, path: str) -> Findings:
    for index, constraint in enumerate(devices.constraints):
        pointer = f"{path}/constraints/{index}"
        for field, name in (
            ("matchAttribute", constraint.match_attribute),
            ("distinctAttribute", constraint.distinct_attribute),
        ):
            if name is not None:
                yield from wrong_format(name, names.at_most_one_slash, f"{pointer}/{field}")
    for body, below in _bodies(devices, path):
        for index, derived in enumerate(body.derived_attributes):
            yield from wrong_format(derived.name, names.at_most_one_slash, f"{below}/derivedAttributes/{index}/name")
        requests = body.capacity.requests if body.capacity is not None else {}
        pointer = f"{below}/capacity/requests"
        yield from too_many(requests, MAX_REQUESTED_CAPACITIES, pointer)
        yield from _capacity_names(requests, pointer)
        for name, amount in requests.items():
            if amount.nano < 0:
                yield finding_at("D108", member(pointer, name), f"{amount} must be zero or more")


def _bodies(devices: DeviceClaim, path: str) -> Iterator[tuple[ExactDeviceRequest | DeviceSubRequest, str]]:
    for index, request in enumerate(devices.requests):
        pointer = f"{path}/requests/{index}"
        if request.exactly is not None:
            yield request.exactly, f"{pointer}/exactly"
        for number, alternative in enumerate(request.first_available):
            yield alternative, f"{pointer}/firstAvailable/{number}"


def _capacity_names(capacities: Iterable[str], path: str) -> Findings:
    for name in capacities:
        for rule in (names.qualified_name, names.at_most_one_slash):
            yield from wrong_format(name, rule, member(path, name))
