"""Nodes that are not there yet: what an administrator says that an autoscaler can make, as a stock of its own. Pure.

It is asked one question only, after the fleet that is there has answered "never": whether a node could be made that
serves the claims. Nothing here is evidence for what a key means, nothing is chosen from it, and nothing is in use on it.

A template's devices stand in one slice a driver on a node that has the template's name. Devices of no node are taken over
from the fleet, since a new node may reach them; taints that an administrator put on devices are not, since they go again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.objects import Device, Node, NodeStatus, ObjectMeta, ResourcePool, ResourceSlice, ResourceSliceSpec
from dra.quantity import parse
from dra.stock import Stock
from dra.validation import CODES, problems
from dra.wire import builtins
from webhook.dialects import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from webhook.state.schema import NodeTemplate, TemplateDevices

# Of a node and of all templates: what one refusal may have to look through.
MOST_DEVICES = 128
MOST_TEMPLATES = 16
# Only devices are declared; a question about more than devices finds enough of the rest.
PLENTY = {name: parse("1Ei") for name in ("cpu", "memory", "ephemeral-storage", "pods")}


def prospects(templates: Sequence[NodeTemplate], stock: Stock) -> Stock | None:
    """Lay out one idle node for each template of which another node can be made; None if there is none."""
    slices = [piece for piece in stock.slices.values() if not piece.spec.node_name]
    nodes: list[Node] = []
    for template in templates:
        # Nodes of a template are known by its labels.
        labels = template.labels.items()
        there = [node for node in stock.nodes.values() if labels and labels <= node.metadata.labels.items()]
        if template.max_nodes is not None and len(there) >= template.max_nodes:
            continue
        metadata = ObjectMeta(name=template.name, labels=template.labels)
        nodes.append(Node(metadata=metadata, status=NodeStatus(allocatable=PLENTY | template.allocatable)))
        by_driver: dict[str, list[Device]] = {}
        for entry in template.devices:
            devices = by_driver.setdefault(entry.driver, [])
            first = len(devices)
            devices += [_device(entry, f"device-{number}") for number in range(first, first + entry.count)]
        slices += [_slice(template.name, driver, devices) for driver, devices in by_driver.items()]
    if not nodes:
        return None
    return Stock.of(
        slices=slices,
        classes=stock.classes.values(),
        nodes=nodes,
        compatibilities=stock.compatibilities.values(),
    )


def _slice(node: str, driver: str, devices: Sequence[Device]) -> ResourceSlice:
    pool = ResourcePool(name=node, generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver=driver, node_name=node, pool=pool, devices=tuple(devices))
    return ResourceSlice(metadata=ObjectMeta(name=f"{node}-{driver}"), spec=spec)


def _device(entry: TemplateDevices, name: str) -> Device:
    return Device(
        name=name,
        attributes=entry.attributes,
        capacity=entry.capacity,
        allow_multiple_allocations=entry.allow_multiple_allocations,
    )


def wrong_templates(templates: Sequence[NodeTemplate]) -> Iterable[Mistake]:
    """What is wrong with the templates of a configuration: what no node and no slice could be like."""
    if len(templates) > MOST_TEMPLATES:
        reason = f"{len(templates)} templates are more than {MOST_TEMPLATES}"
        yield Mistake("/nodeTemplates", reason, "declare those with devices that no other one has")
    names = [template.name for template in templates]
    for i, template in enumerate(templates):
        path = f"/nodeTemplates/{i}"
        if names.index(template.name) != i:
            yield Mistake(f"{path}/name", f"node template {template.name!r} exists already", "choose another name")
        if template.max_nodes is not None and template.max_nodes < 0:
            yield Mistake(f"{path}/maxNodes", f"{template.max_nodes} is not a number of nodes", "write 0 or more")
        if template.max_nodes and not template.labels:
            reason = "without labels the nodes of this template cannot be counted"
            yield Mistake(f"{path}/labels", reason, "write labels that all of its nodes have, and no others")
        if not (template.devices or template.allocatable):
            yield Mistake(f"{path}/devices", "no devices are given", "say what a node of it publishes, or leave it out")
        for j, entry in enumerate(template.devices):
            if not 1 <= entry.count <= MOST_DEVICES:
                reason = f"{entry.count} is not a number of devices on a node"
                yield Mistake(f"{path}/devices/{j}/count", reason, f"write 1 to {MOST_DEVICES}")
        total = sum(entry.count for entry in template.devices)
        if total > MOST_DEVICES:
            reason = f"{total} devices are more than {MOST_DEVICES} on one node"
            yield Mistake(f"{path}/devices", reason, "leave out those that no pod asks for by an extended resource")
        for j, entry in enumerate(template.devices):
            yield from _wrong_devices(entry, template.name, f"{path}/devices/{j}")


def _wrong_devices(entry: TemplateDevices, node: str, path: str) -> Iterable[Mistake]:
    """Judge a slice with one such device as the API server would, and say it where it was written."""
    piece = builtins(_slice(node, entry.driver, [_device(entry, "device-0")]))
    assert isinstance(piece, dict)
    parent = path.rpartition("/devices/")[0]
    places = {
        "/spec/devices/0": path,
        "/spec/driver": f"{path}/driver",
        "/spec/nodeName": f"{parent}/name",
        "/spec/pool/name": f"{parent}/name",
    }
    for one in problems(piece | {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}):
        for there, here in places.items():
            if one.path.startswith(there):
                where = here + one.path.removeprefix(there)
                yield Mistake(where, one.message, one.hint or CODES[one.code].hint)
