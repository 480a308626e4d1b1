"""Reads and validates an inventory file.

Besides the schema it checks for repeated names, unknown layouts and invalid lists of CPUs, and for everything that the API server would
reject in the resulting slices. Without these checks the driver would start, and fail only when it publishes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dra.errors import QuantityError
from dra.finding import Finding, finding_at
from dra.objects import ObjectMeta, ResourcePool, ResourceSlice, ResourceSliceSpec
from dra.quantity import parse
from dra.validation import errors, gates, shape
from dra.wire import builtins
from node.inventory.described import KIND, VERSION, DeviceInventory
from node.inventory.machine import InvalidCpuList, Machine, is_counted, machine_of, numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from node.inventory.described import Layout

CODE = "C001"
MAX_SLICES = 31  # a counter set has at most 32 counters, and compute is one of them
MAX_DEVICES = 8192


def read_inventory(value: Any) -> tuple[DeviceInventory | None, list[Finding]]:
    """Return a valid inventory, or its problems."""
    if not isinstance(value, dict):
        return None, [shape.expected_object(value)]
    version, kind = value.get("apiVersion"), value.get("kind")
    if (version, kind) != (VERSION, KIND):
        message = f"this is not an inventory: it has {version or 'no apiVersion'} and {kind or 'no kind'}"
        problems = [finding_at(CODE, "/kind", message, f"set apiVersion: {VERSION} and kind: {KIND}")]
    else:
        problems = shape.check(value, DeviceInventory)
    if problems:
        return None, problems
    inventory = shape.convert_checked(value, DeviceInventory)
    problems = list(_inconsistencies(inventory)) or list(unpublishable(machine_of(inventory)))
    return (None, problems) if problems else (inventory, [])


def _inconsistencies(inventory: DeviceInventory) -> Iterator[Finding]:
    """Yield problems beyond the schema in the order of the fields; repeated names come last."""
    layouts = {layout.name: layout for layout in inventory.layouts}
    cpus: list[int] = []
    for number, layout in enumerate(inventory.layouts):
        yield from _layout_findings(layout, f"/layouts/{number}")
    for number, gpu in enumerate(inventory.gpus):
        path = f"/gpus/{number}"
        if gpu.layout and gpu.layout not in layouts:
            suggestion = shape.nearest_name(gpu.layout, list(layouts))
            hint = f"did you mean {suggestion}?" if suggestion else "describe it in layouts"
            yield finding_at(CODE, f"{path}/layout", f"there is no layout {gpu.layout!r}", hint)
        if not (gpu.whole or gpu.layout or gpu.sharing):
            hint = "remove `whole: false`, or add a layout or sharing"
            yield finding_at(CODE, path, f"{gpu.name} is offered neither whole, nor in partitions, nor in shares", hint)
        if (gpu.groups or (gpu.sharing and gpu.sharing.groups)) and not is_counted(gpu):
            hint = "remove the groups, because groups say which devices of the same GPU can be used together"
            yield finding_at(CODE, path, f"{gpu.name} has groups, but is published as only one device", hint)
        if gpu.cores < 1:
            yield finding_at(CODE, f"{path}/cores", f"{gpu.cores} is not a valid number of cores (expected at least 1)")
    for number, numa_node in enumerate(inventory.numa_nodes):
        path = f"/numaNodes/{number}"
        try:
            cpus += numbers_of(numa_node.cpus)
        except InvalidCpuList as error:
            yield finding_at(CODE, f"{path}/cpus", str(error), "write a list as Linux does: 0-3,8")
        for size, count in numa_node.hugepages.items():
            where = f"{path}/hugepages/{size}"
            try:
                positive = parse(size).nano > 0
            except QuantityError as error:
                yield finding_at(CODE, where, str(error), "name a size of pages, such as 2Mi or 1Gi")
                continue
            if not positive or count < 1:
                message = f"{count} pages of {size} are not valid (expected a positive number and size)"
                yield finding_at(CODE, where, message, "remove this entry")
    yield from _duplicate_findings("/layouts", [layout.name for layout in inventory.layouts])
    yield from _duplicate_findings("/gpus", [gpu.uuid for gpu in inventory.gpus])
    yield from _duplicate_findings("/numaNodes", [numa_node.number for numa_node in inventory.numa_nodes])
    yield from _duplicate_findings("/numaNodes", cpus)


def _layout_findings(layout: Layout, path: str) -> Iterator[Finding]:
    if not 1 <= layout.slices <= MAX_SLICES:
        message = f"{layout.slices} is not a valid number of slices (expected 1 to {MAX_SLICES})"
        yield finding_at(CODE, f"{path}/slices", message)
        return
    if layout.compute < 1:
        yield finding_at(
            CODE, f"{path}/compute", f"{layout.compute} is not a valid number of compute units (expected at least 1)"
        )
    for number, partition in enumerate(layout.partitions):
        where = f"{path}/partitions/{number}"
        if partition.slices < 1 or not 0 <= partition.compute <= layout.compute:
            takes = f"{partition.slices} slices and {partition.compute} of {layout.compute} compute units"
            yield finding_at(CODE, where, f"{partition.profile} cannot take {takes}")
            continue
        last = layout.slices - partition.slices
        for index, start in enumerate(partition.at):
            if not 0 <= start <= last:
                yield finding_at(
                    CODE,
                    f"{where}/at/{index}",
                    f"{partition.profile} with {partition.slices} slices does not fit into the GPU from slice {start}",
                    f"start the placement at 0 to {last}" if last >= 0 else "give the layout more slices",
                )


def _duplicate_findings(path: str, names: Iterable[object]) -> Iterator[Finding]:
    for name, count in Counter(names).items():
        if count > 1:
            yield finding_at(CODE, path, f"{name} is used {count} times", "make each name unique")


def unpublishable(machine: Machine) -> Iterator[Finding]:
    """Yield what the API server would reject, device by device, so that each problem names its device."""
    if len(machine.devices) > MAX_DEVICES:
        yield finding_at(
            CODE, "", f"the inventory has {len(machine.devices)} devices, and {MAX_DEVICES} is the maximum"
        )
        return
    yield from _duplicate_findings("", (device.name for device in machine.devices))
    pool = ResourcePool(name="node", resource_slice_count=1)
    empty_spec = ResourceSliceSpec(driver=machine.driver, pool=pool, node_name="node")
    specs = [("", empty_spec)]
    specs += ((f"{device.name}: ", replace(empty_spec, devices=(device,))) for device in machine.devices)
    specs += (
        (f"{counter_set.name}: ", replace(empty_spec, shared_counters=(counter_set,)))
        for counter_set in machine.counter_sets
    )
    reported: set[str] = set()
    for about, spec in specs:
        slice_ = ResourceSlice(metadata=ObjectMeta(name="inventory"), spec=spec)
        for problem in errors({"apiVersion": slice_.api_version, "kind": slice_.kind} | builtins(slice_), gates.ALL):
            message = f"the API server would reject the slice: {about}{problem.message} ({problem.path})"
            if message not in reported:
                reported.add(message)
                yield finding_at(CODE, "", message, problem.remedy)
