"""Helpers for tests of preemption on the embedded store: a full node, pods that may be evicted, and calls of schedulers."""

from cluster import resources
from cluster.embedded import Embedded
from cluster.patch import Merge
from tests.allocator.service.sidecar import claim, fleet, pod, pods_with_claims


def important_pod(name, *claims, **spec):
    """Return a pod with a high priority."""
    return pod(name, *claims, priority=100, **spec)


def disruption_budget(allowed):
    """Return a PodDisruptionBudget for pods with the label app=protected. Its status allows this number of disruptions."""
    meta = {"name": "b", "namespace": "default"}
    spec = {"selector": {"matchLabels": {"app": "protected"}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec, "status": {"disruptionsAllowed": allowed}}  # fmt: skip


async def start_pod(sidecar, name, node):
    """Place and bind a pod as a scheduler does."""
    status, answer = await sidecar.place(name, node)
    assert status == 200, answer
    await sidecar.cluster.bind(name, "default", node)
    await sidecar.until_pod(name, lambda pod: pod.spec.node_name == node)


async def postfilter(sidecar, name, *nodes):
    """Call postfilter, in which the allocator may evict pods from these nodes; return the status and the answer."""
    return await sidecar.plugin("postfilter", {"pod": await sidecar.pod(name), "nodes": nodes})


async def pod_exists(sidecar, name):
    return await existing_pods(sidecar, name) == [name]


class StoreWithDeletionHooks(Embedded):
    """A store that runs a hook before it deletes a pod. `before_deletion` maps names of pods to hooks; each hook runs once."""

    def __init__(self, *objects):
        super().__init__()
        self.before_deletion = {}
        self.load(list(objects))

    async def delete(self, resource, name, namespace=None, **options):
        if resource.kind == "Pod" and name in self.before_deletion:
            await self.before_deletion.pop(name)()
        return await super().delete(resource, name, namespace, **options)


def full_node_and_preemptor(*names, requested=2):
    """Return a node with a device and a pod for each name, and the important pod `urgent`, which requests `requested` devices."""
    low_pods = pods_with_claims(*names, priority=1)
    return [*fleet(1, len(names)), *low_pods, claim("urgent", requested), important_pod("urgent", "urgent")]


async def existing_pods(sidecar, *names):
    """Return those of these pods that are stored."""
    stored = {pod.metadata.name for pod in (await sidecar.cluster.list(resources.PODS, "default")).items}
    return [name for name in names if name in stored]


async def nominate(sidecar, node, name="urgent"):
    """Write a pod's nominatedNodeName, as a scheduler does after preemption, and wait until the service sees it."""
    status = Merge({"status": {"nominatedNodeName": node}})
    await sidecar.cluster.patch(resources.PODS, name, status, "default", subresource="status")
    await sidecar.until_pod(name, lambda pod: pod.status.nominated_node_name == (node or ""))
