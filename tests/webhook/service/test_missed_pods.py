"""Missed pods, which were admitted while the webhook was away, are reported. If enabled, they are also evicted, at a limited rate."""

import re

import msgspec
import pytest

from cluster import manifests, resources
from cluster.controllers import Recorder
from cluster.embedded.embedded import Embedded
from cluster.errors import Forbidden, NotFound, Throttled
from cluster.patch import Merge
from dra import wire
from dra.finding import stated
from dra.objects import Pod
from tests.loops import every
from tests.objects import node, typed
from tests.webhook.admission.reviews import CLASS, NODE, SLICE, gpu_pod, state
from tests.webhook.pods import ROOT, WHOLE_GPUS, configured
from webhook.names import MODE_LABEL, ORIGINAL, SKIP_LABEL
from webhook.refusals import Code
from webhook.service import missed_pods
from webhook.service.metrics import WebhookMetrics
from webhook.service.missed_pods import EVENTS, OF_NAMESPACE, MissedPods
from webhook.service.template_controller import FAILED
from webhook.state.inventory import Inventory
from webhook.unknown import find_missed, find_unknown

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "Insufficient nvidia.com/gpu",
}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}


def pending_pod(name="p", namespace="default", *, owner=OWNER, conditions=(UNSCHEDULABLE,), **changes):
    metadata = {"namespace": namespace, "ownerReferences": [owner] if owner else [], **changes.pop("metadata", {})}
    pod = gpu_pod(name=name, **metadata, **changes)
    return pod | {"status": {"phase": "Pending", "conditions": list(conditions)}}


def state_offering(amount):
    return state_of(typed(node("n", allocatable={"nvidia.com/gpu": amount})))


def state_of(*nodes, classes=(CLASS,)):
    return msgspec.structs.replace(state(), fleet=Inventory.gather(classes, [SLICE], nodes))


def missed(pod, webhook_state):
    return find_missed(wire.convert(pod, Pod), webhook_state)


def unknown(pod, webhook_state):
    return find_unknown(wire.convert(pod, Pod), webhook_state)


def test_an_unserved_pod_that_would_be_translated_now_was_missed():
    controlled = missed(pending_pod(), state())
    assert controlled.text == "no node has nvidia.com/gpu, and the pod was created without a claim for it"
    assert controlled.remedies == ("delete the pod, and ReplicaSet web creates another",)
    assert missed(pending_pod(owner=None), state()).remedies == ("delete the pod and create it again",)
    assert missed(pending_pod(), state_offering("0")) is not None


def two_pools(**old_labels):
    """A fleet in migration: one node with a device plugin, and one with the driver."""
    nodes = [typed(node("old", labels=old_labels, allocatable={"nvidia.com/gpu": "8"})), NODE]
    return msgspec.structs.replace(state_of(*nodes), configuration=configured(mode="enforce", **WHOLE_GPUS))


def test_a_node_that_the_pod_cannot_reach_offers_it_nothing():
    confined = pending_pod(nodeSelector={"pool": "new"})
    assert missed(confined, two_pools(pool="old")).text.startswith("no node where the pod can run has nvidia.com/gpu, ")
    assert missed(confined, two_pools(pool="new")) is None
    assert missed(pending_pod(), two_pools(pool="old")) is None


NOT_MISSED = {
    "a device plugin offers it": (pending_pod(), state_offering("1")),
    "its scheduler has not tried it": (pending_pod(conditions=()), state()),
    "gated": (pending_pod(conditions=[UNSCHEDULABLE | {"reason": "SchedulingGated"}]), state()),
    "translated": (pending_pod(metadata={"annotations": {ORIGINAL: "{}"}}), state()),
    "skipped by its label": (pending_pod(metadata={"labels": {SKIP_LABEL: "true"}}), state()),
    "requests nothing": (pending_pod(limits={"cpu": "1"}), state()),
    "would be refused": (pending_pod(limits={"nvidia.com/gpu": "0.5"}), state()),
    "warned only": (pending_pod(), state(mode="warn")),
    "its namespace is off": (pending_pod(), state(namespaces={"default": {MODE_LABEL: "off"}})),
    "no device is known": (pending_pod(), msgspec.structs.replace(state(), fleet=Inventory())),
    "the state is stale": (pending_pod(), state(confirmed=False)),
    "no class": (pending_pod(), state_of(NODE, classes=())),
}


@every("case", NOT_MISSED)
def test_other_pods_are_not_reported_as_missed(case):
    assert missed(*NOT_MISSED[case]) is None


# The pod's limits, the node's allocatable resources, and for each unknown name the likely name ("" if there is none).
RESOURCE_NAMES = [
    ({"nvdia.com/gpu": "1"}, {}, {"nvdia.com/gpu": "nvidia.com/gpu"}),
    ({"nvidia.com/gppu": "1"}, {}, {"nvidia.com/gppu": "nvidia.com/gpu"}),
    ({"nvdia.com/mig-1g.5gb": "1"}, {}, {"nvdia.com/mig-1g.5gb": "nvidia.com/mig-1g.5gb"}),
    ({"exmaple.com/nic": "1"}, {"example.com/nic": "1"}, {"exmaple.com/nic": "example.com/nic"}),
    ({"example.com/nics": "1"}, {"example.com/nic": "1"}, {"example.com/nics": "example.com/nic"}),
    ({"example.com/other": "1"}, {"example.com/nic": "1"}, {"example.com/other": ""}),
    ({"nvidia.com/gpu": "1", "nvdia.com/gpumem": "1"}, {}, {"nvdia.com/gpumem": "nvidia.com/gpumem"}),
    ({"nvdia.com/gpu": "0"}, {}, {}),
    ({"nvdia.com/gpu": "1"}, {"nvdia.com/gpu": "0"}, {}),
    ({"nvidia.com/gpu": "1"}, {}, {}),
    ({"cpu": "1", "hugepages-2Mi": "2Mi", "example.kubernetes.io/x": "1"}, {}, {}),
    ({"deviceclass.resource.kubernetes.io/gpu": "1"}, {}, {}),
]


@every(("limits", "allocatable", "expected"), RESOURCE_NAMES)
def test_an_unknown_resource_name_is_found_with_the_likely_name(limits, allocatable, expected):
    webhook_state = state_of(typed(node("n", allocatable=allocatable)))
    assert unknown(pending_pod(limits=limits), webhook_state) == expected
    assert unknown(pending_pod(limits=limits, conditions=()), webhook_state) == expected


UNKNOWN_RESOURCE = {"nvdia.com/gpu": "1"}


def with_spec(**fields):
    pod = pending_pod(limits=UNKNOWN_RESOURCE)
    return pod | {"spec": pod["spec"] | fields}


NOT_CHECKED = {
    "on a node": (with_spec(nodeName="n"), state()),
    "gated": (with_spec(schedulingGates=[{"name": "g"}]), state()),
    "being deleted": (pending_pod(limits=UNKNOWN_RESOURCE, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), state()),
    "the state is stale": (pending_pod(limits=UNKNOWN_RESOURCE), state(confirmed=False)),
    "no node is known": (pending_pod(limits=UNKNOWN_RESOURCE), state_of()),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_CHECKED)
def test_resource_names_are_not_checked_where_warnings_would_not_help(case):
    assert unknown(*NOT_CHECKED[case]) == {}


async def test_a_misspelt_name_is_reported_to_the_author_once():
    cluster = Evicting()
    skipped = pending_pod("skipped", limits=UNKNOWN_RESOURCE, metadata={"labels": {SKIP_LABEL: "true"}})
    await create_pods(
        cluster, pending_pod(limits=UNKNOWN_RESOURCE), skipped, pending_pod("other", limits={"example.com/x": "1"})
    )
    controller = controller_of(cluster, evict=60)
    for _ in range(3):
        await controller.check()
    [event] = (await cluster.list(resources.EVENTS)).items
    assert (event.involved_object.name, event.reason, event.type, event.count) == ("p", "UnknownResource", "Warning", 1)
    assert event.message == "no node has nvdia.com/gpu: did you mean nvidia.com/gpu? Correct the pod template of ReplicaSet web, or of its owner"  # fmt: skip
    assert cluster.evicted == []


def test_the_policy_admits_the_controllers_events():
    documents = manifests.read([ROOT / "manifests/base/policies.yaml"])
    [policy] = [document.object for document in documents if document.object["metadata"]["name"] == "drawbridge-events" and document.object["kind"] == "ValidatingAdmissionPolicy"]  # fmt: skip
    [validation] = policy["spec"]["validations"]
    [reasons] = re.findall(r"reason\.orValue\(''\) in \[(.*?)\]", validation["expression"])
    assert set(re.findall(r"'(\w+)'", reasons)) == {missed_pods.REASON, missed_pods.MISSPELT, FAILED}


@pytest.mark.parametrize(("mode", "events"), [("enforce", 1), ("warn", 1), ("observe", 0), ("off", 0)])
async def test_a_misspelt_name_is_reported_in_enforce_and_warn_mode(mode, events):
    cluster = Evicting()
    await create_pods(cluster, pending_pod(limits=UNKNOWN_RESOURCE, owner=None))
    await controller_of(cluster, webhook_state=state(mode=mode)).check()
    messages = [item.message for item in (await cluster.list(resources.EVENTS)).items]
    assert messages == ["no node has nvdia.com/gpu: did you mean nvidia.com/gpu? Create the pod again with that name"] * events  # fmt: skip


class Evicting(Embedded):
    """A cluster that records evictions and answers them with an error, if there is one."""

    def __init__(self, answer=None):
        super().__init__()
        self.evicted = []
        self.answer = answer

    async def create(self, resource, obj, namespace=None, **kwargs):
        if resource.kind != "Eviction":
            return await super().create(resource, obj, namespace, **kwargs)
        self.evicted.append((resource.path(namespace), obj["deleteOptions"]["preconditions"]["uid"]))
        if self.answer:
            raise self.answer
        return obj


async def create_pods(cluster, *pods):
    for name in {pod["metadata"]["namespace"] for pod in pods} - {"default"}:
        await cluster.create(resources.NAMESPACES, {"metadata": {"name": name}})
    for pod in pods:
        namespace = pod["metadata"]["namespace"]
        await cluster.create(resources.PODS, {k: v for k, v in pod.items() if k != "status"}, namespace)
        patch = Merge({"status": pod["status"]})
        await cluster.patch(resources.PODS, pod["metadata"]["name"], patch, namespace, subresource="status")


def controller_of(cluster, *, evict=0, webhook_state=None, refused=None):
    """Return a controller that evicts at most `evict` missed pods a minute."""
    webhook_state = webhook_state or state()
    webhook_state.configuration.file = msgspec.structs.replace(
        webhook_state.configuration.file, evict_missed_pods=evict
    )
    recorder = Recorder(cluster, "drawbridge-controller", instance="c")
    return MissedPods(cluster, lambda: webhook_state, recorder, WebhookMetrics(), refused=refused)


async def events_of(cluster):
    events = (await cluster.list(resources.EVENTS)).items
    return sorted((event.involved_object.namespace, event.involved_object.name, event.reason) for event in events)


async def test_a_missed_pod_is_reported_once_with_a_remedy():
    cluster = Evicting()
    await create_pods(cluster, pending_pod(), pending_pod("fine", limits={"cpu": "1"}))
    controller = controller_of(cluster)
    for _ in range(3):
        await controller.check()
    [event] = (await cluster.list(resources.EVENTS)).items
    assert (event.involved_object.name, event.reason, event.type, event.count) == ("p", "NotTranslated", "Warning", 1)
    assert event.message.endswith("without a claim for it: delete the pod, and ReplicaSet web creates another")
    assert cluster.evicted == []
    assert controller._metrics.missed.collect()[0].samples[0].value == 1


async def test_evictions_are_limited_per_minute_to_reported_controlled_pods():
    cluster = Evicting()
    node_owner = {**OWNER, "kind": "Node", "uid": "node"}
    await create_pods(
        cluster,
        *(pending_pod(f"p{index}") for index in range(5)),
        pending_pod("bare", owner=None),
        pending_pod("static", owner=node_owner),
    )
    controller = controller_of(cluster, evict=2)
    await controller.check()
    assert cluster.evicted == []
    await controller.check()
    stored = {item.metadata.name: item.metadata.uid for item in (await cluster.list(resources.PODS)).items}
    paths = [
        path.removeprefix("/api/v1/namespaces/default/pods/").removesuffix("/eviction") for path, _ in cluster.evicted
    ]
    assert len(paths) == 2
    assert [uid for _, uid in cluster.evicted] == [stored[name] for name in paths]
    assert not {"bare", "static"} & set(paths)


async def test_an_eviction_that_did_not_help_is_not_repeated():
    cluster = Evicting()
    await create_pods(cluster, pending_pod())
    controller = controller_of(cluster, evict=60)
    controller._evicted["rs"] = "2000-01-01T00:00:00Z"  # pods created later come from an earlier eviction
    for _ in range(3):
        await controller.check()
    assert cluster.evicted == []


async def test_only_the_owner_of_the_oldest_eviction_is_forgotten(monkeypatch):
    monkeypatch.setattr(missed_pods, "OWNERS", 2)
    cluster = Evicting()
    await create_pods(cluster, *(pending_pod(f"p{index}", owner={**OWNER, "uid": f"rs{index}"}) for index in range(3)))
    controller = controller_of(cluster, evict=60)
    for _ in range(2):
        await controller.check()
    assert len(cluster.evicted) == 3
    assert len(controller._evicted) == 2


async def test_a_clock_ahead_of_the_server_causes_no_extra_eviction():
    cluster = Evicting()
    controller = controller_of(cluster, evict=60)
    for second, name in ((10, "p0"), (12, "p1"), (11, "p2"), (13, "next")):
        cluster._api._identity = msgspec.structs.replace(cluster._api._identity, now=lambda seconds=second: f"2020-01-01T00:00:{seconds}Z")  # fmt: skip
        if name == "next":
            for _ in range(2):
                await controller.check()
            assert len(cluster.evicted) == 3, "a pod that existed at the first eviction was not evicted"
            for evicted_name in ("p0", "p1", "p2"):
                await cluster.delete(resources.PODS, evicted_name, "default")
        await create_pods(cluster, pending_pod(name))
    for _ in range(3):
        await controller.check()
    assert len(cluster.evicted) == 3


@pytest.mark.parametrize(
    ("answer", "attempts"), [(Throttled("a budget"), 3), (NotFound("gone"), 3), (Forbidden("no right"), 1)]
)
async def test_a_refused_eviction_does_not_stop_the_controller(answer, attempts):
    cluster = Evicting(answer)
    await create_pods(cluster, *(pending_pod(f"p{index}") for index in range(3)))
    controller = controller_of(cluster, evict=60)
    await controller.check()
    await controller.check()
    assert len(cluster.evicted) == attempts


async def test_a_namespace_full_of_missed_pods_hides_no_other_namespace():
    cluster = Evicting()
    await create_pods(
        cluster, *(pending_pod(f"a{index:03}", "a") for index in range(2 * EVENTS)), pending_pod("only", "z")
    )
    controller = controller_of(cluster)
    await controller.check()
    first_events = await events_of(cluster)
    assert len(first_events) == EVENTS
    assert ("z", "only", "NotTranslated") in first_events
    await controller.check()
    await controller.check()
    assert len(await events_of(cluster)) == 2 * EVENTS + 1


async def test_pods_beyond_the_limit_of_a_check_are_examined_later(monkeypatch):
    monkeypatch.setattr(missed_pods, "JUDGED", 3)
    cluster = Evicting()
    await create_pods(cluster, *(pending_pod(f"p{index}") for index in range(5)))
    controller = controller_of(cluster)
    await controller.check()
    assert len(await events_of(cluster)) == 3
    await controller.check()
    assert len(await events_of(cluster)) == 5


DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "drawbridge-controller"}, "spec": {}}


async def cluster_with_deployment(*pods, refused=None):
    """Return a cluster with the controller's Deployment, and a controller that knows no DeviceClass."""
    cluster = Evicting()
    await cluster.create(resources.NAMESPACES, {"metadata": {"name": "drawbridge-system"}})
    await cluster.create(resources.DEPLOYMENTS, DEPLOYMENT, "drawbridge-system")
    await create_pods(cluster, *pods)
    return cluster, controller_of(cluster, webhook_state=state_of(NODE, classes=()), refused=refused)


async def test_admin_problems_are_reported_once_on_the_controller_deployment():
    denial = stated(Code.NO_CLASS, "DeviceClass x does not exist", "ask an administrator")
    cluster, controller = await cluster_with_deployment(
        pending_pod("p"), pending_pod("q"), refused={("Deployment", ("a", name)): denial for name in ("web", "worker")}
    )
    for _ in range(3):
        await controller.check()
    stored = await cluster.get(resources.DEPLOYMENTS, "drawbridge-controller", "drawbridge-system")
    events = (await cluster.list(resources.EVENTS)).items
    assert {(event.reason, event.type, event.involved_object.kind, event.involved_object.uid) for event in events} == {
        ("AdministratorNeeded", "Warning", "Deployment", stored["metadata"]["uid"])
    }
    waits, refused = sorted((event.message for event in events), reverse=True)
    assert waits.startswith("Pod default/p and 1 more: no node has nvidia.com/gpu: ")
    assert refused == (
        "Deployment a/web and 1 more: its pods are refused: DeviceClass x does not exist [R021]; "
        "provide what is missing, or inform the author"
    )


async def test_admin_events_are_limited_per_namespace_and_in_total():
    def denials(namespace):
        return {("Job", (namespace, f"j{index}")): stated(Code.NO_CLASS, f"{namespace} {index}") for index in range(50)}

    refused = denials("hostile")
    cluster, controller = await cluster_with_deployment(refused=refused)
    await controller.check()
    assert len((await cluster.list(resources.EVENTS)).items) == OF_NAMESPACE
    for index in range(2 * EVENTS):
        refused |= denials(f"n{index}")
    await controller.check()
    await controller.check()
    assert len((await cluster.list(resources.EVENTS)).items) == EVENTS
