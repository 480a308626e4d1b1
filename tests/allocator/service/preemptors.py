"""Helpers for tests of preemption on the embedded store: a full node, pods that may be evicted, and calls of schedulers."""

from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import NotFound
from cluster.patch import Merge
from tests.allocator.service.sidecar import claim, fleet, pod, until


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
    await until(lambda: sidecar.service.pods.find(f"pod-{name}").spec.node_name == node)


async def postfilter(sidecar, name, *nodes):
    """Call postfilter, in which the allocator may evict pods from these nodes; return the status and the answer."""
    return await sidecar.plugin("postfilter", {"pod": await sidecar.pod(name), "nodes": nodes})


async def pod_exists(sidecar, name):
    try:
        await sidecar.cluster.get(resources.PODS, name, "default")
    except NotFound:
        return False
    return True


class StoreWithDeletionHooks(Embedded):
    """A store that runs a hook before it deletes a pod. `before_deletion` maps names of pods to hooks; each hook runs once."""

    def __init__(self):
        super().__init__()
        self.before_deletion = {}

    async def delete(self, resource, name, namespace=None, **options):
        if resource.kind == "Pod" and name in self.before_deletion:
            await self.before_deletion.pop(name)()
        return await super().delete(resource, name, namespace, **options)


def cluster_with_deletion_hooks(*objects):
    cluster = StoreWithDeletionHooks()
    cluster.load(list(objects))
    return cluster


def full_node_and_preemptor(*names, requested=2):
    """Return a node with a device and a pod for each name, and the important pod `urgent`, which requests `requested` devices."""
    low_pods = [pod(name, name, priority=1) for name in names]
    claims = [claim(name) for name in names]
    return [*fleet(1, len(names)), *claims, *low_pods, claim("urgent", requested), important_pod("urgent", "urgent")]


async def existing_pods(sidecar, *names):
    return [name for name in names if await pod_exists(sidecar, name)]


async def nominate(cluster, node, name="urgent"):
    """Write a pod's nominatedNodeName, as a scheduler does after preemption."""
    status = Merge({"status": {"nominatedNodeName": node}})
    await cluster.patch(resources.PODS, name, status, "default", subresource="status")
