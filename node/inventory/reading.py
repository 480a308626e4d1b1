"""A file becomes an inventory, or everything that is wrong with it.

Beyond its shape: names that two things have, layouts that nobody drew, lists of CPUs that are none; and whatever the API server would refuse
of the slices that the machine makes, because a driver that starts and cannot publish is found much later.
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
from node.inventory.machine import Machine, is_counted, machine_of
from node.inventory.numbers import Unlisted, numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dra.wire import Json
    from node.inventory.described import Gpu, Layout, NumaNode, Partition

CODE = "C001"
MOST_SLICES = 31  # a counter set has 32 counters, and compute is one
MOST_DEVICES = 8192


def read(value: Any) -> tuple[DeviceInventory | None, list[Problem]]:
    """Read a good inventory, or say what is wrong."""
    if not isinstance(value, dict):
        return None, [shape.expected_object(value)]
    problems = list(_not_ours(value)) or shape.check(value, DeviceInventory)
    if problems:
        return None, [_advised(problem) for problem in problems]
    inventory = shape.read(value, DeviceInventory)
    problems = list(_nonsense(inventory))
    if not problems:
        machine = machine_of(inventory)
        problems = list(unpublishable(machine))
    if problems:
        return None, problems
    return inventory, []


def _not_ours(value: Mapping[str, Any]) -> Iterator[Problem]:
    kind = value.get("apiVersion"), value.get("kind")
    if kind != (VERSION, KIND):
        said = f"{kind[0] or 'no apiVersion'}, {kind[1] or 'no kind'}"
        yield Problem(CODE, "/kind", f"this is not an inventory: {said}", f"it begins with apiVersion: {VERSION} and kind: {KIND}")  # fmt: skip


def _advised(problem: Problem) -> Problem:
    return problem._replace(hint=problem.hint or CODES[problem.code].hint)


def _nonsense(inventory: DeviceInventory) -> Iterator[Problem]:
    layouts = {layout.name: layout for layout in inventory.layouts}
    for number, layout in enumerate(inventory.layouts):
        yield from _impossible(layout, f"/layouts/{number}")
    for number, gpu in enumerate(inventory.gpus):
        yield from _of_gpu(gpu, layouts, f"/gpus/{number}")
    for number, numa_node in enumerate(inventory.numa_nodes):
        yield from _of_numa_node(numa_node, f"/numaNodes/{number}")
    yield from _repeated(inventory)


def _repeated(inventory: DeviceInventory) -> Iterator[Problem]:
    yield from _twice("/layouts", [one.name for one in inventory.layouts])
    yield from _twice("/gpus", [one.uuid for one in inventory.gpus])
    yield from _twice("/numaNodes", [one.number for one in inventory.numa_nodes])
    yield from _twice("/numaNodes", [cpu for one in inventory.numa_nodes for cpu in _cpus(one)])


def _impossible(layout: Layout, path: str) -> Iterator[Problem]:
    if not 1 <= layout.slices <= MOST_SLICES:
        yield Problem(CODE, f"{path}/slices", f"a GPU has 1 to {MOST_SLICES} slices, not {layout.slices}")
        return
    if layout.compute < 1:
        yield Problem(CODE, f"{path}/compute", f"a GPU has some compute, not {layout.compute}")
    for number, partition in enumerate(layout.partitions):
        yield from _does_not_fit(partition, layout, f"{path}/partitions/{number}")


def _does_not_fit(partition: Partition, layout: Layout, path: str) -> Iterator[Problem]:
    if partition.slices < 1 or not 0 <= partition.compute <= layout.compute:
        yield Problem(CODE, path, f"{partition.profile} takes {partition.slices} slices and {partition.compute} of {layout.compute} compute")  # fmt: skip
        return
    last = layout.slices - partition.slices
    for place, start in enumerate(partition.at):
        if not 0 <= start <= last:
            yield Problem(
                CODE,
                f"{path}/at/{place}",
                f"{partition.profile} has {partition.slices} slices and begins at {start}: the GPU ends before it does",
                f"it can begin at 0 to {last}" if last >= 0 else "give the layout more slices",
            )


def _of_gpu(gpu: Gpu, layouts: Mapping[str, Layout], path: str) -> Iterator[Problem]:
    if gpu.layout and gpu.layout not in layouts:
        yield _unknown_layout(gpu.layout, layouts, f"{path}/layout")
    if not (gpu.whole or gpu.layout or gpu.sharing):
        message = f"{gpu.name} is offered in no way"
        hint = "leave `whole: false` away, or give it a layout or sharing"
        yield Problem(CODE, path, message, hint)
    if _has_groups(gpu) and not is_counted(gpu):
        message = f"{gpu.name} has groups, and is one device only"
        hint = "groups say what goes together of the devices of one GPU"
        yield Problem(CODE, path, message, hint)
    if gpu.cores < 1:
        message = f"a GPU has some cores, not {gpu.cores}"
        yield Problem(CODE, f"{path}/cores", message)


def _unknown_layout(name: str, layouts: Mapping[str, Layout], path: str) -> Problem:
    near = shape.nearest(name, list(layouts))
    hint = f"did you mean {near}?" if near else "describe it in layouts"
    return Problem(CODE, path, f"there is no layout {name!r}", hint)


def _has_groups(gpu: Gpu) -> bool:
    return bool(gpu.groups or (gpu.sharing and gpu.sharing.groups))


def _of_numa_node(numa_node: NumaNode, path: str) -> Iterator[Problem]:
    try:
        numbers_of(numa_node.cpus)
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


def _cpus(numa_node: NumaNode) -> tuple[int, ...]:
    try:
        return numbers_of(numa_node.cpus)
    except Unlisted:
        return ()


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
    told: set[str] = set()
    for about, spec in _pieces(machine):
        for problem in errors(_slice_of(spec), gates.ALL):
            message = f"no API server takes {about}{problem.message} ({problem.path})"
            if message not in told:
                told.add(message)
                yield Problem(CODE, "", message, problem.hint)


def _pieces(machine: Machine) -> Iterator[tuple[str, ResourceSliceSpec]]:
    """Cut what would be published into pieces, so that an answer names what it is about."""
    bare = ResourceSliceSpec(
        driver=machine.driver,
        pool=ResourcePool(name="node", resource_slice_count=1),
        node_name="node",
    )
    yield "", bare
    for device in machine.devices:
        yield f"{device.name}: ", replace(bare, devices=(device,))
    for counter_set in machine.counter_sets:
        yield f"{counter_set.name}: ", replace(bare, shared_counters=(counter_set,))


def _slice_of(spec: ResourceSliceSpec) -> Json:
    made = ResourceSlice(metadata=ObjectMeta(name="inventory"), spec=spec)
    return {"apiVersion": made.api_version, "kind": made.kind} | builtins(made)
