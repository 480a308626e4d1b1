"""The status of a ResourceClaim: what was allocated, for whom it is reserved, what drivers report (validateAllocationResult).

A status is judged as if it were written to the claim at once: what the API server would answer to such a write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra.validation.fields import names
from dra.validation.fields.limits import duplicates, empty_or_wrong_format, empty_text, too_many, wrong_format
from dra.validation.fields.metadata import conditions, node_selector
from dra.validation.fields.parameters import driver_parameters
from dra.validation.objects.claims import RequestNames
from dra.validation.objects.classes import opaque
from dra.validation.objects.slices import binding_conditions, skipped_operations
from dra.validation.objects.taints import tolerations
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.objects import (
        AllocatedDeviceStatus,
        AllocationResult,
        DeviceRequestAllocationResult,
        NetworkDeviceData,
        ResourceClaim,
    )

MAX_RESERVED: Final = 256
MAX_RESULTS: Final = 32
MAX_CONFIG: Final = 64
MAX_CONDITIONS: Final = 8
MAX_IPS: Final = 16


def status(claim: ResourceClaim) -> Problems:
    """Judge the status of a claim."""
    allocation = claim.status.allocation
    consumers = claim.status.reserved_for
    yield from too_many(consumers, MAX_RESERVED, "/status/reservedFor")
    if len(consumers) <= MAX_RESERVED:
        yield from duplicates([one.uid for one in consumers], "/status/reservedFor", "consumer", field="/uid")
        for index, consumer in enumerate(consumers):
            at = f"/status/reservedFor/{index}"
            yield from empty_text(consumer.resource, f"{at}/resource", "resource")
            yield from empty_text(consumer.name, f"{at}/name", "name")
            yield from empty_text(consumer.uid, f"{at}/uid", "uid")
    if consumers and allocation is None:
        yield Problem("D116", "/status/reservedFor", "may not be specified when `allocated` is not set")
    if allocation is not None:
        yield from _allocation(allocation, RequestNames(claim.spec.devices), "/status/allocation")
    yield from _device_statuses(claim.status.devices, allocation, "/status/devices")


def _allocation(allocation: AllocationResult, known: RequestNames, path: str) -> Problems:
    results, config = allocation.devices.results, allocation.devices.config
    yield from too_many(results, MAX_RESULTS, f"{path}/devices/results")
    if len(results) <= MAX_RESULTS:
        for index, result in enumerate(results):
            yield from _result(result, known, f"{path}/devices/results/{index}")
    yield from too_many(config, MAX_CONFIG, f"{path}/devices/config")
    if len(config) <= MAX_CONFIG:
        for index, entry in enumerate(config):
            at = f"{path}/devices/config/{index}"
            if entry.source not in ("FromClass", "FromClaim"):
                yield Problem("D106", f"{at}/source", f"{entry.source!r} must be FromClass or FromClaim")
            yield from known.judge_all(entry.requests, f"{at}/requests")
            yield from opaque(entry.opaque, at)
    if allocation.node_selector is not None:
        yield from node_selector(allocation.node_selector, f"{path}/nodeSelector")


def _result(result: DeviceRequestAllocationResult, known: RequestNames, path: str) -> Problems:
    yield from known.judge(result.request, f"{path}/request")
    yield from _device_id(result, path)
    yield from binding_conditions(result.binding_conditions, result.binding_failure_conditions, path)
    yield from tolerations(result.tolerations, f"{path}/tolerations")
    if result.share_id is not None:
        yield from wrong_format(result.share_id, names.uuid(result.share_id), f"{path}/shareID")
    yield from skipped_operations(result.skip_node_operations, f"{path}/skipNodeOperations")


def _device_id(one: DeviceRequestAllocationResult | AllocatedDeviceStatus, path: str) -> Problems:
    """Judge the three names that tell one device from all others."""
    yield from empty_or_wrong_format(one.driver, names.driver_name(one.driver), f"{path}/driver", "driver")
    yield from empty_or_wrong_format(one.pool, names.pool_name(one.pool), f"{path}/pool", "pool")
    yield from empty_or_wrong_format(one.device, names.dns_label(one.device), f"{path}/device", "device")


def _device_statuses(
    statuses: Sequence[AllocatedDeviceStatus],
    allocation: AllocationResult | None,
    path: str,
) -> Problems:
    allocated: set[object] = set()
    if allocation is not None:
        for one in allocation.devices.results:
            allocated.add((one.driver, one.pool, one.device, one.share_id))
    keys = [(one.driver, one.pool, one.device, one.share_id) for one in statuses]
    yield from duplicates(keys, path, "device")
    for index, (key, status) in enumerate(zip(keys, statuses, strict=True)):
        at = f"{path}/{index}"
        if key not in allocated:
            yield Problem("D116", at, "must be an allocated device of the claim")
        yield from _device_id(status, at)
        if status.share_id is not None:
            yield from wrong_format(status.share_id, names.uuid(status.share_id), f"{at}/shareID")
        yield from conditions(status.conditions, MAX_CONDITIONS, f"{at}/conditions")
        yield from driver_parameters(status.data, f"{at}/data", needed=False)
        if status.network_data is not None:
            yield from _network(status.network_data, f"{at}/networkData")


def _network(data: NetworkDeviceData, path: str) -> Problems:
    for name, value, limit in (
        ("interfaceName", data.interface_name, 256),
        ("hardwareAddress", data.hardware_address, 128),
    ):
        if names.size(value) > limit:
            yield Problem("D103", f"{path}/{name}", f"at most {limit} bytes are allowed")
    yield from too_many(data.ips, MAX_IPS, f"{path}/ips")
    if len(data.ips) > MAX_IPS:
        return
    yield from duplicates(data.ips, f"{path}/ips", "address")
    for index, address in enumerate(data.ips):
        yield from wrong_format(address, names.interface_address(address), f"{path}/ips/{index}")
