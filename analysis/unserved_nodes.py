"""Finds nodes with devices that nobody serves, as an allocatable amount of 0, a label or a DaemonSet shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.container_states import failing_containers
from analysis.installation import is_labelled
from analysis.loading import host_paths, identity_of, inside, owner_of
from analysis.rules import Rule
from dra.finding import Finding, make_finding
from dra.raw import text
from dra.texts import count_of, list_first
from webhook.dialects import TARGETS
from webhook.names import PLUGIN_FOLDER
from webhook.placement import group_nodes
from webhook.state import Inventory

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from analysis.loading import Object, ObjectIdentity, Reading
    from analysis.rules import Observed
    from dra.stock import Stock
    from webhook.placement import NodesOfName

# Labels by which discovery says that a node has GPUs, and the beginning of the keys of the vendor's device plugins.
_DISCOVERED = {
    "nvidia.com/gpu.present": "nvidia.com/",
    "feature.node.kubernetes.io/amd-gpu": "amd.com/",
    "intel.feature.node.kubernetes.io/gpu": "gpu.intel.com/",
}
_GPU_DRIVERS = {target.driver for target in TARGETS.values() if target.request == "gpu"}
_OTHER_DRIVERS = {target.driver for target in TARGETS.values()} - _GPU_DRIVERS
# Folders that device plugins mount, and folders of which DRA drivers mount the first and one of the others.
_REGISTRY = "/var/lib/kubelet/plugins_registry"
_OF_DRIVERS = ("/cdi", "/nri")


def keys_of_nodes(reading: Reading) -> tuple[NodesOfName, ...]:
    """Return by key the nodes on which device plugins and drivers serve it."""
    stock = reading.stock
    inventory = Inventory.gather(stock.classes.values(), stock.slices.values(), stock.nodes.values())
    return group_nodes(stock.nodes.values(), inventory, reading.configuration)


def _unserved_nodes(observed: Observed) -> Iterator[Finding]:
    """Yield nodes whose devices neither a device plugin nor a driver serves."""
    named: set[str] = set()
    for key_nodes in keys_of_nodes(observed.reading):
        named.update(key_nodes.plugin_without_devices)
        for node in key_nodes.plugin_without_devices:
            yield make_finding(
                "O203",
                f"Node/{node}",
                f"its allocatable amount of {key_nodes.key} is 0, and no driver publishes such devices in a complete pool, so no pod can use them",
            )
    yield from _discovered(observed.reading.stock, named)


def _discovered(stock: Stock, named: Container[str]) -> Iterator[Finding]:
    """Yield other nodes that have GPUs, as their labels say, and neither slices nor a resource of the vendor."""
    publishing = {piece.spec.node_name for piece in stock.slices.values() if piece.spec.driver not in _OTHER_DRIVERS}
    for name, node in stock.nodes.items():
        if name in publishing or name in named:
            continue
        keys = [key for key, amount in node.status.allocatable.items() if amount.nano > 0]
        for label, vendor in _DISCOVERED.items():
            if node.metadata.labels.get(label) == "true" and not any(key.startswith(vendor) for key in keys):
                yield make_finding(
                    "O203",
                    f"Node/{name}",
                    f"its label {label} says that it has GPUs, but no driver publishes them and no device plugin offers them, so no pod can use them",
                )


def _lacking_pods(observed: Observed) -> Iterator[Finding]:
    """Yield DaemonSets of drivers and device plugins that are not ready on all of their nodes. Those of drawbridge have other findings."""
    for daemon_set in observed.reading.of_kinds("DaemonSet"):
        status, name = inside(daemon_set, "status"), identity_of(daemon_set)
        desired, ready = status.get("desiredNumberScheduled") or 0, status.get("numberReady") or 0
        pod_template = inside(daemon_set, "spec", "template", "spec")
        if is_labelled(daemon_set) or not _serves_devices(pod_template) or not isinstance(ready, int):
            continue
        if isinstance(desired, int) and ready < desired:
            faults = [fault for owner, _, fault in _failing_pods(observed.reading) if owner == name]
            why = f"; {list_first(faults, 1)}" if faults else ""
            yield make_finding(
                "O203",
                f"DaemonSet/{name.namespace}/{name.name}",
                f"it shall run on {count_of(desired, 'node')}, and is ready on {ready}: it serves no devices of the other {desired - ready}{why}",
                f"`kubectl get pods -n {name.namespace} -o wide` shows on which nodes the pods are not ready; look at the events and logs of these pods",
            )


def driver_fault(node: str, reading: Reading) -> str:
    """Return which pod of a driver or device plugin does not run on a node, and why; "" if none is known."""
    return next((fault for _, placed_on, fault in _failing_pods(reading) if placed_on == node), "")


def _failing_pods(reading: Reading) -> Iterator[tuple[ObjectIdentity, str, str]]:
    """Yield the DaemonSet, the node and the fault of each pod of a driver or device plugin whose container does not run."""
    for pod in reading.raw.values():
        owner, spec = owner_of(pod), inside(pod, "spec")
        if owner is not None and owner.kind == "DaemonSet" and _serves_devices(spec):
            for words in failing_containers(pod):
                node = text(spec.get("nodeName"))
                yield owner, node, f"pod {owner.namespace}/{identity_of(pod).name} on {node}: {words}"


def _serves_devices(spec: Object) -> bool:
    paths = [path.rstrip("/") for path in host_paths(spec)]
    if any(path.startswith(PLUGIN_FOLDER) for path in paths):
        return True
    return any(path.startswith(_REGISTRY) for path in paths) and any(path.endswith(_OF_DRIVERS) for path in paths)


UNSERVED = Rule(_unserved_nodes, "O203", ("Node",), ("ResourceSlice",))
LACKING_PODS = Rule(_lacking_pods, "O203", (), ("DaemonSet",))
