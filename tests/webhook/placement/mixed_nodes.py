"""Nodes with a device plugin, nodes with a driver, and the answer of the webhook for a pod in such a fleet."""

import msgspec

from cluster import manifests
from tests.objects import allocated, claim, device_class, exactly, node, pod, resource_slice, result
from tests.webhook.admission.reviews import KEY, answer, applied, device, review
from tests.webhook.pods import configured, state_of_files
from webhook.admission import decide_object
from webhook.admission import review as reviewing

GPU, DRIVER = "nvidia.com/gpu", "gpu.nvidia.com"
PREFER_DRA, PREFER_PLUGIN = {"prefer": "dra"}, {"prefer": "plugin"}
CLASS = device_class(DRIVER, f"device.driver == '{DRIVER}'")


def plugin_node(name, amount=None, *, labels=None, **spec):
    """Return a node whose device plugin offers `amount` GPUs, or a node without a device plugin."""
    return node(name, allocatable=None if amount is None else {GPU: str(amount)}, labels=labels, **spec)


def published(name, count=4):
    """Return the ResourceSlice of a node with `count` GPUs."""
    return resource_slice(name, *(device(i) for i in range(count)), driver=DRIVER, pool=name, nodeName=name)


def old_node(name, amount=4, **fields):
    """Return a node that is not migrated: its device plugin offers `amount` GPUs."""
    return [plugin_node(name, amount, **fields)]


def new_node(name, count=4, **fields):
    """Return a migrated node and its ResourceSlice. The kubelet still reports the resource name with the amount 0."""
    return [plugin_node(name, 0, **fields), published(name, count)]


def claim_holding(name, count):
    """Return a claim to which `count` devices of a node are allocated."""
    status = allocated(*(result(f"gpu-{i}", driver=DRIVER, pool=name) for i in range(count)))
    return claim(f"of-{name}", exactly(DRIVER, count=count), namespace="x", uid=name, status=status)


def gpu_pod(name="p", amount=1, *, nodeName="", namespace="ns", **spec):
    amounts = {GPU: amount}
    assignment = {"nodeName": nodeName} if nodeName else {}
    return pod(name, namespace=namespace, limits=amounts, requests=amounts, **assignment, **spec)


IDLE_POD = gpu_pod("idle", 0, nodeName="elsewhere") | {"metadata": {"name": "idle", "namespace": "x"}}
IDLE_POD["spec"]["containers"][0]["resources"] = {"limits": {"example.com/other": 1}}


def state_with(*objects, policy=None, counted=True, **fields):
    """Return the state of a webhook with these objects. `counted` adds a pod without GPUs, so that the pods of the cluster are known."""
    flat = [CLASS, *(IDLE_POD for _ in range(counted))]
    for obj in objects:
        flat += obj if isinstance(obj, list) else [obj]
    if policy is not None:
        fields["mixed"] = {GPU: policy}
    state = state_of_files(manifests.parse(manifests.dump(flat)), configured(mode="enforce", **fields))
    return msgspec.structs.replace(state, keys=(KEY,))


def decision_of(item, state):
    """Return the mechanism that the webhook chooses for a pod, the reason, and the response. Assert that the pod gets the same in a file."""
    outcome = reviewing.decide_review("mutate", review(item, namespace=item["metadata"]["namespace"]), state)
    response = answer(outcome)
    assert response["allowed"], response
    translated = "patch" in response
    verdict = decide_object(item, state)
    assert bool(verdict.operations) is translated, "the pod gets another mechanism in a file"
    assert not verdict.refusals
    reasons = {decision.key: decision.basis if translated else decision.detail for decision in outcome.record.decisions}
    reasons_in_file = {
        decision.key: decision.basis if translated else decision.detail for decision in verdict.decisions
    }
    assert reasons[GPU] == reasons_in_file[GPU]
    assert {str(decision.outcome) for decision in outcome.record.decisions} == {"translated" if translated else "left"}
    if not translated:
        assert applied(item, outcome) == item
        assert outcome.record.templates == ()
    return ("dra" if translated else "plugin"), reasons[GPU], response


def mechanism_in(*objects, policy, item=None, **fields):
    """Return the mechanism that the webhook chooses for a pod in a cluster with these objects; by default the pod requests one GPU."""
    return decision_of(item or gpu_pod(), state_with(*objects, policy=policy, **fields))[0]


MIXED = (*old_node("old-1"), *old_node("old-2"), *old_node("old-3"), *new_node("new-1"))
OLD_NODES_FULL = tuple(gpu_pod(f"full-{i}", 4, nodeName=f"old-{i}") for i in (1, 2, 3))
NEW_NODE_FULL = claim_holding("new-1", 4)
