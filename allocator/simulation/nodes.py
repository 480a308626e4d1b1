"""A snapshot with nodes removed or added.

The pods of a removed node become pending, because their owners would create them again. Pods of DaemonSets and static pods are removed with
the node. An added node is a healthy, idle copy of another node, with the same labels, allocatable resources and devices.
"""

from __future__ import annotations

from itertools import count, islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from allocator.preemption import without_pods

if TYPE_CHECKING:
    from collections.abc import Collection

    from allocator.simulation.snapshot import Snapshot
    from dra.objects import Node, Pod, ResourceSlice

_HOSTNAME: Final = "kubernetes.io/hostname"
_OF_KUBELET: Final = "kubernetes.io/config.mirror"
# Taints with this prefix describe the condition of a node, not its purpose.
_STATE_OF_NODE: Final = "node.kubernetes.io/"


def without_nodes(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """Return the snapshot without these nodes and their devices. The pods of these nodes become pending."""
    leaving: list[Pod] = []
    pods: list[Pod] = []
    for pod in snapshot.pods:
        if pod.spec.node_name not in names:
            pods.append(pod)
        elif not pod.has_ended:
            leaving.append(pod)
    stock = without_pods(snapshot.stock, leaving)
    removed = [stock.nodes[name] for name in names if name in stock.nodes]
    slices = [slice_ for slice_ in stock.slices.values() if slice_.spec.node_name in names]
    for pod in leaving:
        meta = pod.metadata
        of_daemon_set = any(owner.kind == "DaemonSet" for owner in meta.owner_references)
        if meta.deletion_timestamp or _OF_KUBELET in meta.annotations or of_daemon_set:
            continue
        spec = replace(pod.spec, node_name="")
        status = replace(pod.status, phase="Pending", extended_resource_claim_status=None)
        pods.append(replace(pod, spec=spec, status=status))
    return replace(snapshot, stock=stock.with_all((), removed=(*removed, *slices)), pods=tuple(pods))


def with_more_nodes(snapshot: Snapshot, template: str, number: int) -> Snapshot:
    """Return the snapshot with `number` copies of the node `template`."""
    stock = snapshot.stock
    node = stock.nodes[template]
    slices = [slice_ for slice_ in stock.slices.values() if slice_.spec.node_name == template]
    free_names = (name for suffix in count(1) if (name := f"{template}-{suffix}") not in stock.nodes)
    taints = tuple(taint for taint in node.spec.taints if not taint.key.startswith(_STATE_OF_NODE))
    healthy = replace(node.spec, taints=taints, unschedulable=False)
    added: list[Node | ResourceSlice] = []
    for name in islice(free_names, number):
        labels = node.metadata.labels
        if _HOSTNAME in labels:
            labels = labels | {_HOSTNAME: name}
        metadata = replace(node.metadata, name=name, uid="", labels=labels)
        added.append(replace(node, metadata=metadata, spec=healthy))
        for page in slices:
            spec = page.spec
            old = spec.pool.name
            pool = replace(spec.pool, name=name if old == template else f"{old}-of-{name}")
            metadata = replace(page.metadata, name=f"{page.metadata.name}-of-{name}", uid="")
            spec = replace(spec, node_name=name, pool=pool)
            added.append(replace(page, metadata=metadata, spec=spec))
    return replace(snapshot, stock=stock.with_all(added))
