"""Rules about the status of a ResourceClaim: allocation, reservedFor and the status of devices (validateAllocationResult).

The findings are the errors that the API server would return if the whole status were written in one update.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra import names
from dra.finding import Findings, finding_at
from dra.validation.fields.limits import duplicates, entries, required, wrong_format
from dra.validation.fields.metadata import conditions, node_selector
from dra.validation.objects.claims import RequestNames
from dra.validation.objects.classes import free_form, opaque
from dra.validation.objects.slices import binding_conditions, skipped_operations
from dra.validation.objects.taints import tolerations

if TYPE_CHECKING:
    from dra.objects import (
        AllocatedDeviceStatus,
        DeviceAllocationConfiguration,
        DeviceRequestAllocationResult,
        ResourceClaim,
        ResourceClaimConsumerReference,
    )

MAX_RESERVED: Final = 256
MAX_RESULTS: Final = 32
MAX_CONFIG: Final = 64
MAX_CONDITIONS: Final = 8
MAX_IPS: Final = 16


def status(claim: ResourceClaim) -> Findings:
    """Judge the status of a claim."""
    allocation = claim.status.allocation
    consumers = claim.status.reserved_for
    request_names = RequestNames(claim.spec.devices)

    def judge_consumer(consumer: ResourceClaimConsumerReference, pointer: str) -> Findings:
        yield from required(consumer.resource, f"{pointer}/resource")
        yield from required(consumer.name, f"{pointer}/name")
        yield from required(consumer.uid, f"{pointer}/uid")

    def judge_result(result: DeviceRequestAllocationResult, pointer: str) -> Findings:
        yield from request_names.validate(result.request, f"{pointer}/request")
        yield from _device_id(result, pointer)
        yield from binding_conditions(result.binding_conditions, result.binding_failure_conditions, pointer)
        yield from tolerations(result.tolerations, f"{pointer}/tolerations")
        yield from skipped_operations(result.skip_node_operations, f"{pointer}/skipNodeOperations")

    def judge_config(entry: DeviceAllocationConfiguration, pointer: str) -> Findings:
        if entry.source not in ("FromClass", "FromClaim"):
            yield finding_at("D106", f"{pointer}/source", f"{entry.source!r} must be FromClass or FromClaim")
        yield from request_names.validate_all(entry.requests, f"{pointer}/requests")
        yield from opaque(entry.opaque, pointer)

    def judge_address(address: str, pointer: str) -> Findings:
        return wrong_format(address, names.interface_address, pointer)

    path = "/status/reservedFor"
    yield from entries(consumers, MAX_RESERVED, path, judge_consumer, noun="consumer", field="/uid")
    if consumers and allocation is None:
        yield finding_at("D116", path, "may not be specified when `allocated` is not set")
    if allocation is not None:
        path = "/status/allocation"
        yield from entries(allocation.devices.results, MAX_RESULTS, f"{path}/devices/results", judge_result)
        yield from entries(allocation.devices.config, MAX_CONFIG, f"{path}/devices/config", judge_config)
        if allocation.node_selector is not None:
            yield from node_selector(allocation.node_selector, f"{path}/nodeSelector")
    allocated = set(map(_key, allocation.devices.results if allocation is not None else ()))
    yield from duplicates(map(_key, claim.status.devices), "/status/devices", "device")
    for index, device in enumerate(claim.status.devices):
        pointer = f"/status/devices/{index}"
        if _key(device) not in allocated:
            yield finding_at("D116", pointer, "must be an allocated device of the claim")
        yield from _device_id(device, pointer)
        yield from conditions(device.conditions, MAX_CONDITIONS, f"{pointer}/conditions")
        if device.data is not None:
            yield from free_form(device.data, f"{pointer}/data")
        network, pointer = device.network_data, f"{pointer}/networkData"
        if network is None:
            continue
        texts = (("interfaceName", network.interface_name, 256), ("hardwareAddress", network.hardware_address, 128))
        for name, value, limit in texts:
            if names.size(value) > limit:
                yield finding_at("D103", f"{pointer}/{name}", f"at most {limit} bytes are allowed")
        yield from entries(network.ips, MAX_IPS, f"{pointer}/ips", judge_address, noun="address")


def _key(device: DeviceRequestAllocationResult | AllocatedDeviceStatus) -> tuple[str, str, str, str | None]:
    return device.driver, device.pool, device.device, device.share_id


def _device_id(device: DeviceRequestAllocationResult | AllocatedDeviceStatus, path: str) -> Findings:
    """Judge the names that identify a device, and the share ID of the device."""
    yield from required(device.driver, f"{path}/driver", names.driver_name)
    yield from required(device.pool, f"{path}/pool", names.pool_name)
    yield from required(device.device, f"{path}/device", names.dns_label)
    if device.share_id is not None:
        yield from wrong_format(device.share_id, names.uuid, f"{path}/shareID")
