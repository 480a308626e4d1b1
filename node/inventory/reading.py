"""A file becomes an inventory, or everything that is wrong with it.

Beyond its shape: repeated names, unknown layouts, invalid lists of CPUs; and all that the API server would refuse of the slices that the
machine makes, because a driver that starts and cannot publish is found much later.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dra.errors import QuantityError
from dra.objects import ObjectMeta, ResourcePool, ResourceSlice, ResourceSliceSpec
from dra.quantity import parse
from dra.validation import CODES, Problem, errors, gates, shape
from dra.wire import builtins
from node.inventory.described import KIND, VERSION, DeviceInventory
from node.inventory.machine import Machine, Unlisted, is_counted, machine_of, numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from node.inventory.described import Layout

CODE = "C001"
MOST_SLICES = 31  # a counter set has 32 counters, and compute is one
MOST_DEVICES = 8192


def read(value: Any) -> tuple[DeviceInventory | None, list[Problem]]:
    """Read a good inventory, or say what is wrong."""
    if not isinstance(value, dict):
        return None, [shape.expected_object(value)]
    version, kind = value.get("apiVersion"), value.get("kind")
    if (version, kind) != (VERSION, KIND):
        message = f"this is not an inventory: {version or 'no apiVersion'}, {kind or 'no kind'}"
        problems = [Problem(CODE, "/kind", message, f"it begins with apiVersion: {VERSION} and kind: {KIND}")]
    else:
        problems = shape.check(value, DeviceInventory)
    if problems:
        return None, [problem._replace(hint=problem.hint or CODES[problem.code].hint) for problem in problems]
    inventory = shape.read(value, DeviceInventory)
    problems = list(_nonsense(inventory)) or list(unpublishable(machine_of(inventory)))
    return (None, problems) if problems else (inventory, [])


def _nonsense(inventory: DeviceInventory) -> Iterator[Problem]:
    """Problems beyond the file's shape, in the order of its fields; repeated names come last."""
    layouts = {layout.name: layout for layout in inventory.layouts}
    cpus: list[int] = []
    for number, layout in enumerate(inventory.layouts):
        yield from _of_layout(layout, f"/layouts/{number}")
    for number, gpu in enumerate(inventory.gpus):
        path = f"/gpus/{number}"
        if gpu.layout and gpu.layout not in layouts:
            near = shape.nearest(gpu.layout, list(layouts))
            hint = f"did you mean {near}?" if near else "describe it in layouts"
            yield Problem(CODE, f"{path}/layout", f"there is no layout {gpu.layout!r}", hint)
        if not (gpu.whole or gpu.layout or gpu.sharing):
            hint = "leave `whole: false` away, or give it a layout or sharing"
            yield Problem(CODE, path, f"{gpu.name} is offered in no way", hint)
        if (gpu.groups or (gpu.sharing and gpu.sharing.groups)) and not is_counted(gpu):
            hint = "groups say what goes together of the devices of one GPU"
            yield Problem(CODE, path, f"{gpu.name} has groups, and is one device only", hint)
        if gpu.cores < 1:
            yield Problem(CODE, f"{path}/cores", f"a GPU has some cores, not {gpu.cores}")
    for number, numa_node in enumerate(inventory.numa_nodes):
        path = f"/numaNodes/{number}"
        try:
            cpus += numbers_of(numa_node.cpus)
        except Unlisted as error:
            yield Problem(CODE, f"{path}/cpus", str(error), "write a list as Linux does: 0-3,8")
        for size, count in numa_node.hugepages.items():
            where = f"{path}/hugepages/{size}"
            try:
                positive = parse(size).nano > 0
            except QuantityError as error:
                yield Problem(CODE, where, str(error), "name a size of pages, such as 2Mi or 1Gi")
                continue
            if not positive or count < 1:
                yield Problem(CODE, where, f"{count} pages of {size} are no pages", "leave the line away")
    yield from _twice("/layouts", [one.name for one in inventory.layouts])
    yield from _twice("/gpus", [one.uuid for one in inventory.gpus])
    yield from _twice("/numaNodes", [one.number for one in inventory.numa_nodes])
    yield from _twice("/numaNodes", cpus)


def _of_layout(layout: Layout, path: str) -> Iterator[Problem]:
    if not 1 <= layout.slices <= MOST_SLICES:
        yield Problem(CODE, f"{path}/slices", f"a GPU has 1 to {MOST_SLICES} slices, not {layout.slices}")
        return
    if layout.compute < 1:
        yield Problem(CODE, f"{path}/compute", f"a GPU has some compute, not {layout.compute}")
    for number, partition in enumerate(layout.partitions):
        where = f"{path}/partitions/{number}"
        if partition.slices < 1 or not 0 <= partition.compute <= layout.compute:
            takes = f"{partition.slices} slices and {partition.compute} of {layout.compute} compute"
            yield Problem(CODE, where, f"{partition.profile} takes {takes}")
            continue
        last = layout.slices - partition.slices
        for place, start in enumerate(partition.at):
            if not 0 <= start <= last:
                yield Problem(
                    CODE,
                    f"{where}/at/{place}",
                    f"{partition.profile} has {partition.slices} slices and begins at {start}: the GPU ends before it does",
                    f"it can begin at 0 to {last}" if last >= 0 else "give the layout more slices",
                )


def _twice(path: str, names: Iterable[object]) -> Iterator[Problem]:
    for name, count in Counter(names).items():
        if count > 1:
            yield Problem(CODE, path, f"{name} stands here {count} times", "give each its own")


def unpublishable(machine: Machine) -> Iterator[Problem]:
    """Say what an API server would refuse: each device by itself, so that the answer names it."""
    if len(machine.devices) > MOST_DEVICES:
        yield Problem(CODE, "", f"{len(machine.devices)} devices are more than {MOST_DEVICES}")
        return
    yield from _twice("", (device.name for device in machine.devices))
    pool = ResourcePool(name="node", resource_slice_count=1)
    bare = ResourceSliceSpec(driver=machine.driver, pool=pool, node_name="node")
    pieces = [("", bare)]
    pieces += ((f"{one.name}: ", replace(bare, devices=(one,))) for one in machine.devices)
    pieces += ((f"{one.name}: ", replace(bare, shared_counters=(one,))) for one in machine.counter_sets)
    told: set[str] = set()
    for about, spec in pieces:
        made = ResourceSlice(metadata=ObjectMeta(name="inventory"), spec=spec)
        for problem in errors({"apiVersion": made.api_version, "kind": made.kind} | builtins(made), gates.ALL):
            message = f"no API server takes {about}{problem.message} ({problem.path})"
            if message not in told:
                told.add(message)
                yield Problem(CODE, "", message, problem.hint)
