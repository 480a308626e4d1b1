"""Makes a stock (`dra.stock`) of the nodes that an autoscaler can create, as the administrator declares them (`nodeTemplates`).

If the existing fleet can never serve some claims, this stock shows whether a new node could. All of its devices are free. Its nodes show nothing
about the meaning of keys.

Each template becomes one node with the template's name, and with one slice for each driver. Slices that belong to no node are copied from the
fleet, because a new node may reach their devices. DeviceTaintRules are not copied, because they are temporary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.names import label_key
from dra.objects import Device, Node, NodeStatus, ObjectMeta, ResourcePool, ResourceSlice, ResourceSliceSpec
from dra.pointer import escape
from dra.quantity import parse
from dra.stock import Stock
from dra.validation import problems
from dra.wire import builtins
from webhook.dialects import mistake
from webhook.state.schema import MAX_DEVICES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.finding import Finding
    from webhook.state.schema import NodeTemplate, TemplateDevices

# Only devices are declared, so a template node has enough of all other resources.
PLENTY = {name: parse("1Ei") for name in ("cpu", "memory", "ephemeral-storage", "pods")}


def prospects(templates: Sequence[NodeTemplate], stock: Stock) -> Stock | None:
    """Return a stock with one idle node for each template that has fewer nodes than `maxNodes`; None if there is no such template."""
    slices = [piece for piece in stock.slices.values() if not piece.spec.node_name]
    nodes: list[Node] = []
    for template in templates:
        # The existing nodes of a template are those with its labels.
        labels = template.labels.items()
        existing = [node for node in stock.nodes.values() if labels and labels <= node.metadata.labels.items()]
        if template.max_nodes is not None and len(existing) >= template.max_nodes:
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
    declared = [field for field in entry.__struct_fields__ if field not in ("driver", "count")]
    return Device(name=name, **{field: getattr(entry, field) for field in declared})


def wrong_templates(templates: Sequence[NodeTemplate]) -> Iterable[Finding]:
    """Find templates that no node and no ResourceSlice could match."""
    names = [template.name for template in templates]
    for i, template in enumerate(templates):
        path = f"/nodeTemplates/{i}"
        if names.index(template.name) != i:
            yield mistake(f"{path}/name", f"node template {template.name!r} exists already", "choose another name")
        if template.max_nodes and not template.labels:
            reason = "without labels the nodes of this template cannot be counted"
            yield mistake(
                f"{path}/labels", reason, "write labels that all of its nodes have, and that no other node has"
            )
        if not (template.devices or template.allocatable):
            yield mistake(
                f"{path}/devices",
                "no devices are given",
                "list the devices that one of its nodes publishes, or delete the template",
            )
        for key in template.allocatable:
            if problem_text := label_key(key):
                yield mistake(
                    f"{path}/allocatable/{escape(key)}",
                    f"resource {key[:80]!r} {problem_text}",
                    "write the name as it is in a node's `allocatable`",
                )
        total = sum(entry.count for entry in template.devices)
        if total > MAX_DEVICES:
            reason = f"{total} devices are more than {MAX_DEVICES} on one node"
            yield mistake(f"{path}/devices", reason, "delete the devices that no pod requests by an extended resource")
        for j, entry in enumerate(template.devices):
            # Validate a slice with one such device, and report each problem at the template's field.
            fields = {
                "/spec/devices/0": f"{path}/devices/{j}",
                "/spec/driver": f"{path}/devices/{j}/driver",
                "/spec/nodeName": f"{path}/name",
                "/spec/pool/name": f"{path}/name",
            }
            piece = builtins(_slice(template.name, entry.driver, [_device(entry, "device-0")]))
            assert isinstance(piece, dict)
            for problem in problems(piece | {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}):
                for of_slice, of_template in fields.items():
                    if problem.path.startswith(of_slice):
                        where = of_template + problem.path.removeprefix(of_slice)
                        yield mistake(where, problem.message, problem.remedy)
