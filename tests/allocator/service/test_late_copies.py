"""Two processes decide about a pod, each from its own copies: the scheduler with our plugin, and the allocator.

In each case one object changes, and one side learns of it late. Meanwhile no pod is bound without its devices. Once the late side has seen
the change, something wakes the pod: a requeue event if the allocator was late, else an event of the scheduler's own watch.
"""

import asyncio
import contextlib
from typing import Any, NamedTuple

import pytest

from allocator.decisions import PlacementRules
from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import Conflict, NotFound
from cluster.patch import Merge
from dra.objects import claim_name, claim_names, mapped_resources, results_of
from dra.server import DeclaredServer
from tests.allocator.service.sidecar import (
    RULES,
    claim,
    device_class,
    gpus,
    loaded,
    node,
    pod,
    running,
    until,
)
from tests.objects import allocated, container, owner, result, template_entries, typed

GPU, NIC = "example.com/gpu", "example.com/nic"
CONFIGURATION = "DrawbridgeConfiguration"
KINDS = (
    resources.DEVICE_CLASSES,
    resources.NODES,
    resources.RESOURCE_SLICES,
    resources.RESOURCE_CLAIMS,
    resources.PODS,
)


class LateStore(Embedded):
    """A store whose watches of the kinds in `late` show nothing until `catch_up`."""

    def __init__(self):
        super().__init__()
        self.late = set()
        self._caught_up = asyncio.Event()

    def catch_up(self):
        self.late.clear()
        self._caught_up.set()

    @contextlib.asynccontextmanager
    async def watch(self, resource, *args, **options):
        async with super().watch(resource, *args, **options) as events:
            yield self._delayed(resource.kind, events)

    async def _delayed(self, kind, events):
        async for event in events:
            while kind in self.late:
                await self._caught_up.wait()
            yield event


class Scheduler:
    """The scheduler's copies, and what NodeResourcesFit and our plugin (`bridge/plugin`) do with them.

    Other plugins refuse the nodes in `refused`.
    """

    def __init__(self, sidecar, refused=()):
        self._sidecar = sidecar
        self._refused = refused
        self.is_late = False

    async def see(self):
        """Let the copies catch up with the store."""
        lists = [(await self._sidecar.cluster.list(kind.raw)).items for kind in KINDS]
        self._copies = [{item["metadata"]["name"]: item for item in items} for items in lists]

    async def attempt(self, name):
        """Try to place a pod as the scheduler does; return its node, or "" if it is not bound."""
        if not self.is_late:
            await self.see()
        classes, nodes, _, claims, pods = self._copies
        if name not in pods or "nodeName" in pods[name]["spec"]:
            return pods[name]["spec"]["nodeName"] if name in pods else ""
        pod_ = pods[name]
        requested = {key for c in pod_["spec"]["containers"] for key in c["resources"].get("limits", {}) if "/" in key}
        served = requested & {class_["spec"].get("extendedResourceName") for class_ in classes.values()}
        entries = typed(pod_).spec.resource_claims
        wanted = {claim_name(typed(pod_), entry) for entry in entries} - {None}  # None: the template requests nothing
        if any(claim not in claims or "deletionTimestamp" in claims[claim]["metadata"] for claim in wanted):
            return ""  # PreEnqueue gates the pod
        fitting, token, written, version = nodes.keys(), "", set(), ""
        if served or entries:
            body = {"pod": pod_, "served": sorted(served)}
            answer = (await self._sidecar.plugin("prefilter", body))[1]
            if answer["verdict"] != "skip":
                fitting, token = [fit["name"] for fit in answer["nodes"]], answer["token"]
            elif wanted or served:
                return ""  # the scheduler has seen what the allocator has not seen yet

        def offers(name, key):
            return nodes[name].get("status", {}).get("allocatable", {}).get(key, "0") != "0"

        fitting = [
            n
            for n in fitting
            if n in nodes and n not in self._refused and all(offers(n, key) for key in requested - served)
        ]
        if not fitting:
            return ""
        if token:
            status, reserved = await self._sidecar.plugin("reserve", {"token": token, "node": fitting[0]})
            status, commit = await self._commit(reserved) if status == 200 else (status, {})
            if status != 200:
                return ""
            written, version = set(commit.get("resources", ())), commit.get("resourceVersion", "")
        if any(not offers(fitting[0], key) for key in served - written):
            return ""  # Bind rejects the pod
        with contextlib.suppress(Conflict, NotFound):
            if version in ("", (await self._sidecar.pod(name))["metadata"]["resourceVersion"]):
                await self._sidecar.cluster.bind(name, "default", fitting[0], uid=pod_["metadata"]["uid"])
                return fitting[0]
        return ""

    async def _commit(self, reserved):
        """Call the allocator, which waits until its watch shows the claims that it writes."""
        cluster = self._sidecar.cluster
        call = asyncio.create_task(self._sidecar.plugin("commit", reserved))

        async def is_written():
            claims = (await cluster.list(resources.RESOURCE_CLAIMS)).items
            return call.done() or any(user.name == "p" for item in claims for user in item.status.reserved_for)

        if resources.RESOURCE_CLAIMS.kind in cluster.late:
            await until(is_written)
            cluster.catch_up()
        return await call


class Case(NamedTuple):
    """One change of one kind of object, and the node of the pod `p` once both sides have seen the change."""

    late: str
    before: tuple[Any, ...]
    change: Any  # an object that is created, PlacementRules, or a coroutine function that takes the store
    pod: Any
    node: str = ""
    refused: tuple[str, ...] = ()
    is_tried_before: bool = False  # whether the scheduler tries the pod before the change, too
    node_before: str = (
        ""  # the node if the allocator decides before it sees the change; the pod has its devices all the same
    )
    rules: PlacementRules = RULES  # before the change


def by_name(*keys):
    return pod("p", containers=[container("c", dict.fromkeys(keys, "1"))])


def serving(key, name="gpu"):
    return device_class(name, extendedResourceName=key)


def deleting(kind, name, namespace=None):
    return lambda cluster: cluster.delete(kind, name, namespace)


def changing(kind, name, body, **options):
    return lambda cluster: cluster.patch(kind, name, Merge(body), **options)


def each(*changes):
    """Return a change that makes these changes in turn."""

    async def change(cluster):
        for part in changes:
            await (
                part(cluster) if callable(part) else cluster.create(resources.resource_of(part).raw, part, "default")
            )

    return change


def changing_status(kind, name, body):
    namespace = {} if kind in (resources.NODES, resources.DEVICE_CLASSES) else {"namespace": "default"}
    return changing(kind, name, {"status": body}, subresource="status", **namespace)


def naming(claim_name):
    """Return the status of a pod whose template got this claim; None if the template requests nothing."""
    return {"resourceClaimStatuses": [{"name": "t"} | ({"resourceClaimName": claim_name} if claim_name else {})]}


def templated(**fields):
    return pod("p", resourceClaims=template_entries("t"), **fields)


def generated(name):
    return claim(name, ownerReferences=[owner("Pod", "p", uid="pod-p")])


def offering(name, *keys):
    return node(name, allocatable=dict.fromkeys(keys, "2"))


N0, DEVICES = node("n0"), gpus("n0", 1)
CLASS = serving(GPU)
RENAMED = changing(resources.DEVICE_CLASSES, "gpu", {"spec": {"extendedResourceName": "example.com/other"}})
NAMED = changing(resources.DEVICE_CLASSES, "gpu", {"spec": {"extendedResourceName": GPU}})
NO_DEVICE = {"spec": {"selectors": [{"cel": {"expression": "device.driver == 'none'"}}]}}
PLUGIN_GONE = changing_status(resources.NODES, "n1", {"allocatable": {GPU: "0"}})
PLUGIN_ADDED = changing_status(resources.NODES, "n1", {"allocatable": {GPU: "2"}})
WITH_CLAIM = pod("p", "c")
# Another pod that holds the only device, and changes of this pod and its claim.
HELD = allocated(result("gpu-0", pool="n0"), pods=["q"], node="n0")
HOLDER = (claim("d", status=HELD), pod("q", "d", nodeName="n0"))
FREED = changing_status(resources.RESOURCE_CLAIMS, "d", {"allocation": None, "reservedFor": None})
TAKEN = each(changing_status(resources.RESOURCE_CLAIMS, "d", HELD), lambda cluster: cluster.bind("q", "default", "n0"))
CLAIM_GONE = deleting(resources.RESOURCE_CLAIMS, "c", "default")
POD_GONE = deleting(resources.PODS, "p", "default")
LIMITED = PlacementRules(most_pods=1)
TWO_DEVICES_AND_HOLDER = (N0, gpus("n0", 2), device_class(), claim("c"), *HOLDER)
FLEET = (N0, DEVICES, device_class())
CASES = {
    "a class is created": Case("DeviceClass", (N0, DEVICES), CLASS, by_name(GPU), "n0"),
    "a class is deleted": Case("DeviceClass", (N0, DEVICES, CLASS), deleting(resources.DEVICE_CLASSES, "gpu"), by_name(GPU)),
    "a class begins to serve": Case("DeviceClass", (N0, DEVICES, device_class()), NAMED, by_name(GPU), "n0"),
    "a class serves no longer": Case("DeviceClass", (N0, DEVICES, CLASS), RENAMED, by_name(GPU)),
    "one of two classes is created": Case("DeviceClass", (N0, gpus("n0", 2), CLASS), serving(NIC, "nic"), by_name(GPU, NIC), "n0"),
    "one of two classes is created after the claim": Case(
        *("DeviceClass", (N0, gpus("n0", 2), CLASS, offering("n1", NIC)), serving(NIC, "nic"), by_name(GPU, NIC)),
        is_tried_before=True,
    ),
    "one of two classes is created after the first attempt": Case(
        *("DeviceClass", (N0, gpus("n0", 2), CLASS), serving(NIC, "nic"), by_name(GPU, NIC), "n0"), is_tried_before=True
    ),
    "one of two classes is deleted": Case(
        "DeviceClass", (N0, gpus("n0", 2), CLASS, serving(NIC, "nic")), deleting(resources.DEVICE_CLASSES, "nic"), by_name(GPU, NIC)
    ),
    "the class of a claim is created": Case("DeviceClass", (N0, DEVICES, claim("c")), device_class(), WITH_CLAIM, "n0"),
    "the class of a claim is deleted": Case(
        *("DeviceClass", (N0, DEVICES, device_class(), claim("c")), deleting(resources.DEVICE_CLASSES, "gpu"), WITH_CLAIM),
        node_before="n0",
    ),
    "the only node is created": Case("Node", (DEVICES, CLASS), N0, by_name(GPU), "n0"),
    "a further node is created": Case("Node", (N0, DEVICES, CLASS, gpus("n1", 1)), node("n1"), by_name(GPU), "n1", ("n0",)),
    "a node is deleted": Case("Node", (N0, DEVICES, CLASS), deleting(resources.NODES, "n0"), by_name(GPU)),
    "a device plugin ends": Case("Node", (CLASS, offering("n1", GPU)), PLUGIN_GONE, by_name(GPU)),
    "a device plugin begins": Case("Node", (device_class(), node("n1")), PLUGIN_ADDED, by_name(GPU), "n1"),
    "a second class of the name is created": Case("DeviceClass", (N0, DEVICES, CLASS), serving(GPU, "gpu2"), by_name(GPU), "n0"),
    "the first of two classes of a name is deleted": Case(
        "DeviceClass", (N0, DEVICES, CLASS, serving(GPU, "gpu2")), deleting(resources.DEVICE_CLASSES, "gpu"), by_name(GPU), "n0"
    ),
    "a class selects no device any more": Case(
        *("DeviceClass", (N0, DEVICES, CLASS), changing(resources.DEVICE_CLASSES, "gpu", NO_DEVICE), by_name(GPU)), node_before="n0"
    ),
    "a slice is created": Case("ResourceSlice", (N0, CLASS), DEVICES, by_name(GPU), "n0"),
    "a slice is deleted": Case(
        "ResourceSlice", (N0, DEVICES, CLASS), deleting(resources.RESOURCE_SLICES, "n0-gpus"), by_name(GPU), node_before="n0"
    ),
    "a slice loses its devices": Case(
        *("ResourceSlice", (N0, DEVICES, CLASS), changing(resources.RESOURCE_SLICES, "n0-gpus", {"spec": {"devices": []}}), by_name(GPU)),
        node_before="n0",
    ),
    "a slice gets devices": Case(
        "ResourceSlice", (N0, gpus("n0", 0), CLASS), changing(resources.RESOURCE_SLICES, "n0-gpus", {"spec": DEVICES["spec"]}), by_name(GPU), "n0"
    ),
    "a claim is created": Case("ResourceClaim", FLEET, claim("c"), WITH_CLAIM, "n0"),
    "a claim is deleted": Case("ResourceClaim", (*FLEET, claim("c")), CLAIM_GONE, WITH_CLAIM),
    "a claim is created again": Case("ResourceClaim", (*FLEET, claim("c")), each(CLAIM_GONE, claim("c", uid="new")), WITH_CLAIM, "n0"),
    "a claim is created again with another class": Case(
        "ResourceClaim", (*FLEET, claim("c")), each(CLAIM_GONE, claim("c", class_name="none", uid="new")), WITH_CLAIM
    ),
    "a claim is being deleted": Case(
        "ResourceClaim", (*FLEET, claim("c", finalizers=["example.com/keep"])), CLAIM_GONE, WITH_CLAIM, node_before="n0"
    ),
    "another claim gets the device": Case("ResourceClaim", (*FLEET, claim("c"), claim("d"), pod("q", "d")), TAKEN, WITH_CLAIM),
    "another claim gets the device of a name": Case("ResourceClaim", (N0, DEVICES, CLASS, claim("d"), pod("q", "d")), TAKEN, by_name(GPU)),
    "the claim gets the device from another writer": Case(
        "ResourceClaim", (*FLEET, claim("c")), changing_status(resources.RESOURCE_CLAIMS, "c", HELD), WITH_CLAIM, "n0"
    ),
    "another claim is deallocated": Case(
        "ResourceClaim", (*FLEET, claim("c"), *HOLDER), each(deleting(resources.PODS, "q", "default"), FREED), WITH_CLAIM, "n0"
    ),
    "a generated claim is created": Case("ResourceClaim", FLEET, generated("g"), templated(status=naming("g")), "n0"),
    "a generated claim is deleted": Case(
        "ResourceClaim", (*FLEET, generated("g")), deleting(resources.RESOURCE_CLAIMS, "g", "default"), templated(status=naming("g"))
    ),
    "a pod gets a generated claim": Case(
        "Pod", (*FLEET, generated("g")), changing_status(resources.PODS, "p", naming("g")), templated(), "n0"
    ),
    "a pod gets another generated claim": Case(
        "Pod", (*FLEET, generated("g"), generated("h")), changing_status(resources.PODS, "p", naming("h")), templated(status=naming("g")), "n0"
    ),
    "a pod gets a generated claim after none": Case(
        "Pod", (*FLEET, generated("g")), changing_status(resources.PODS, "p", naming("g")), templated(status=naming(None)), "n0"
    ),
    "a template requests nothing": Case("Pod", FLEET, changing_status(resources.PODS, "p", naming(None)), templated(), "n0"),
    "a pod is created": Case("Pod", (N0, DEVICES, CLASS), by_name(GPU), None, "n0"),
    "a pod is deleted": Case("Pod", (N0, DEVICES, CLASS), POD_GONE, by_name(GPU)),
    "a pod is created again with another claim": Case(
        "Pod", (*FLEET, claim("c"), claim("d")), each(POD_GONE, pod("p", "d", uid="new")), WITH_CLAIM, "n0"
    ),
    "a pod is created again without a claim": Case("Pod", (*FLEET, claim("c")), each(POD_GONE, pod("p", uid="new")), WITH_CLAIM, "n0"),
    "a pod gets the claim of its name from another writer": Case(
        *("Pod", (N0, DEVICES, CLASS, generated("g"))),
        changing_status(resources.PODS, "p", {"extendedResourceClaimStatus": {"resourceClaimName": "g", "requestMappings": [
            {"containerName": "c", "resourceName": GPU, "requestName": "r"}]}}),
        by_name(GPU), "n0",
    ),
    "a limit of pods on a node is set": Case(CONFIGURATION, TWO_DEVICES_AND_HOLDER, LIMITED, WITH_CLAIM, node_before="n0"),
    "a limit of pods on a node is lifted": Case(CONFIGURATION, TWO_DEVICES_AND_HOLDER, RULES, WITH_CLAIM, "n0", rules=LIMITED),
}  # fmt: skip


async def what_bound_pods_lack(cluster):
    """Return the claims and extended resources of bound pods that no device serves, and the devices of two claims."""
    claims = {item.metadata.name: item for item in (await cluster.list(resources.RESOURCE_CLAIMS)).items}
    nodes = {item.metadata.name: item for item in (await cluster.list(resources.NODES)).items}
    lacking, given = set(), {}
    for item in (await cluster.list(resources.PODS)).items:
        if item.spec.node_name:
            names = claim_names(item)
            for name in names:
                users = [user.uid for user in claims[name].status.reserved_for] if name in claims else ()
                devices = {(device.pool, device.device) for device in results_of(claims[name])} if users else set()
                if item.metadata.uid not in users or any(given.setdefault(device, name) != name for device in devices):
                    lacking.add(name)
            offered = nodes[item.spec.node_name].status.allocatable
            limits = {key for container_ in item.spec.containers for key in container_.resources.limits}
            lacking |= {key for key in limits - mapped_resources(item) if key not in offered or not offered[key].nano}
    return lacking


async def is_current(sidecar):
    """Return whether the allocator's copies, except those of late kinds, have the versions of the store."""
    cluster, knowledge = sidecar.cluster, sidecar.service.knowledge
    stock = knowledge.stock
    copies = (stock.classes, stock.nodes, stock.slices, knowledge.claims.objects, knowledge.pods.objects)

    def versions(items):
        return {item.metadata.resource_version for item in items}

    for kind, copy in zip(KINDS, copies, strict=True):
        if kind.kind not in cluster.late and versions((await cluster.list(kind)).items) != versions(copy.values()):
            return False
    return True


async def attempt_often(sidecar, scheduler):
    """Let the scheduler try the pod as often as an answer may need: the claim for extended resources is created between two attempts."""
    for _ in range(3):
        if chosen := await scheduler.attempt("p"):
            return chosen
        await until(lambda: not sidecar.service.extended.is_making("pod-p"))
        await until(lambda: is_current(sidecar))
    return ""


@pytest.mark.parametrize("late_side", ["allocator", "scheduler"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_no_pod_is_bound_without_devices_while_one_side_is_late(case, late_side):
    cluster = loaded(*case.before, *([case.pod] if case.pod else []), cluster=LateStore())
    async with running(cluster, rules=case.rules) as sidecar:
        scheduler = Scheduler(sidecar, case.refused)
        await scheduler.see()
        if case.is_tried_before:
            assert not await attempt_often(sidecar, scheduler)
        if late_side == "allocator":
            cluster.late.add(case.late)
        scheduler.is_late = late_side == "scheduler"
        if callable(case.change):
            await case.change(cluster)
        elif case.late != CONFIGURATION:
            cluster.load([case.change])
        elif late_side == "scheduler":
            sidecar.service.configure(case.change, DeclaredServer())
        await until(lambda: is_current(sidecar))
        chosen = await attempt_often(sidecar, scheduler)
        assert not await what_bound_pods_lack(cluster)
        seq, was_late = sidecar.service.requeue_events.seq, bool(cluster.late)
        cluster.catch_up()
        scheduler.is_late = False
        if case.late == CONFIGURATION:
            sidecar.service.configure(case.change, DeclaredServer())
        await until(lambda: is_current(sidecar))
        if case.node and not chosen and (was_late or (case.late == CONFIGURATION and late_side == "allocator")):
            await until(lambda: "default/p" in sidecar.service.requeue_events.since(seq).pods)
        assert (chosen or await attempt_often(sidecar, scheduler)) in (case.node, case.node_before)
        assert not await what_bound_pods_lack(cluster)
