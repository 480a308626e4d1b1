"""Snapshots of a node for the tests of the audit."""

from dra.objects import Node, ObjectMeta, ResourceSlice
from dra.quantity import parse
from node.audit import DeviceId, Hardware, NodeSnapshot, PreparedDeviceRecord
from node.messages import ClaimDevice, ClaimHolding, ContainerHolding, PluginHolding, PodHolding, PodHoldings
from node.slices import pages_of
from tests import objects
from tests.node.machines import DRIVER, LAYOUT, NODE, gpu, machine, result
from tests.objects import resource_slice, typed

RESOURCE = "example.com/gpu"
UID = "0f0e0d0c-1111-4222-8333-444455556666"
GPUS = [
    gpu(0, place={"pciBusId": "0000:3b:00.0"}),
    gpu(1, layout="small"),
    gpu(2, sharing={"memory": {"minimum": "1Gi", "step": "1Gi"}, "cores": {"minimum": "1", "step": "1"}}),
]


def slices(driver=DRIVER, **parts):
    node_machine = machine(**(parts or {"gpus": GPUS, "layouts": [LAYOUT]}))
    specs = pages_of(node_machine, NODE)
    return tuple(
        ResourceSlice(metadata=ObjectMeta(name=f"{driver}-{number}"), spec=spec) for number, spec in enumerate(specs)
    )


def published_slice(driver, *devices, pool=NODE, counters=()):
    """Return a slice of any driver. A device is a pair of its name and its attributes."""
    device_objects = [{"name": name, "attributes": attributes} for name, attributes in devices]
    fields = {"driver": driver, "pool": pool, "nodeName": NODE, "sharedCounters": list(counters)}
    return typed(resource_slice(f"{driver}-{pool}", *device_objects, **fields))


def device(name, driver=DRIVER, pool=NODE):
    return DeviceId(driver, pool, name)


def plugin_holding(pod_name, *ids, resource=RESOURCE):
    """Return the holding of a pod: what the kubelet says that the pod has, here devices of a plugin."""
    return PodHolding(name=pod_name, namespace="ns", containers=(ContainerHolding(name="c", devices=(PluginHolding(resource=resource, ids=ids),)),))  # fmt: skip


def claim_holding(pod_name, claim, *devices, driver=DRIVER, namespace="ns"):
    """Return the holding of a pod with devices of a claim."""
    claim_devices = tuple(ClaimDevice(driver=driver, pool=NODE, device=device) for device in devices)
    claims = (ClaimHolding(claim=claim, namespace=namespace, devices=claim_devices),)
    return PodHolding(name=pod_name, namespace=namespace, containers=(ContainerHolding(name="c", claims=claims),))


def pod(name, *claims, phase="Running", namespace="ns"):
    containers = [objects.container("c", claims=claims)]
    fields = {"namespace": namespace, "uid": f"pod-{name}", "nodeName": NODE, "containers": containers}
    return typed(objects.pod(name, *claims, phase=phase, **fields))


def allocated_claim(name, *devices, driver=DRIVER, **result_fields):
    results = [result(device) | {"driver": driver} | result_fields for device in devices]
    fields = {"namespace": "ns", "uid": f"uid-{name}", "status": objects.allocated(*results) if devices else None}
    return typed(objects.claim(name, objects.exactly("c"), **fields))


def prepared_record(claim, device_name, *, uid="", share="", driver=DRIVER, given=None, **consumed):
    amounts = {key: parse(value) for key, value in consumed.items()}
    return PreparedDeviceRecord(
        "the driver",
        "ns",
        claim,
        device(device_name, driver),
        uid or f"uid-{claim}",
        share,
        consumed=amounts,
        given=given,
    )


def make_snapshot(*holdings, pods=(), claims=(), missing=(), **sources):
    """Return what the agent knows of a node: holdings of pods, pods, claims, names of missing claims, and other sources."""
    claims_by_name = {("ns", claim.metadata.name): claim for claim in claims} | {("ns", name): None for name in missing}
    sources.setdefault("slices", slices())
    return NodeSnapshot(NODE, PodHoldings(pods=holdings), pods=tuple(pods), claims=claims_by_name, **sources)


def hardware_of(snapshot):
    return Hardware(snapshot.slices)


def node_object():
    return Node(metadata=ObjectMeta(name=NODE, uid="node-uid"))


RESERVATION = {"namespace": "ns", "claim": "c", "uid": "u", "inDoubt": True}
RESERVED_DEVICE = {"driver": DRIVER, "pool": NODE, "device": "gpu-0", "shareId": "s"}


def reservations_answer(**changes):
    return {"node": NODE, "reservations": [RESERVATION | {"devices": [RESERVED_DEVICE]} | changes]}
