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
PARTS = [
    gpu(0, place={"pciBusId": "0000:3b:00.0"}),
    gpu(1, layout="small"),
    gpu(2, sharing={"memory": {"minimum": "1Gi", "step": "1Gi"}, "cores": {"minimum": "1", "step": "1"}}),
]


def slices(driver=DRIVER, **parts):
    described = machine(**(parts or {"gpus": PARTS, "layouts": [LAYOUT]}))
    specs = pages_of(described, NODE)
    return tuple(
        ResourceSlice(metadata=ObjectMeta(name=f"{driver}-{number}"), spec=spec) for number, spec in enumerate(specs)
    )


def published(driver, *devices, pool=NODE, counters=()):
    """Return a slice as any driver may publish it: devices by name, with their attributes."""
    whole = [{"name": name, "attributes": attributes} for name, attributes in devices]
    fields = {"driver": driver, "pool": pool, "nodeName": NODE, "sharedCounters": list(counters)}
    return typed(resource_slice(f"{driver}-{pool}", *whole, **fields))


def device(name, driver=DRIVER, pool=NODE):
    return DeviceId(driver, pool, name)


def plugged(pod, *ids, resource=RESOURCE):
    """Return the holding of a pod with devices of a plugin."""
    return PodHolding(name=pod, namespace="ns", containers=(ContainerHolding(name="c", devices=(PluginHolding(resource=resource, ids=ids),)),))  # fmt: skip


def claiming(pod, claim, *devices, driver=DRIVER, namespace="ns"):
    """Return the holding of a pod with devices of a claim."""
    held = tuple(ClaimDevice(driver=driver, pool=NODE, device=device) for device in devices)
    claims = (ClaimHolding(claim=claim, namespace=namespace, devices=held),)
    return PodHolding(name=pod, namespace=namespace, containers=(ContainerHolding(name="c", claims=claims),))


def pod(name, *claims, phase="Running", namespace="ns"):
    containers = [objects.container("c", claims=claims)]
    fields = {"namespace": namespace, "uid": f"pod-{name}", "nodeName": NODE, "containers": containers}
    return typed(objects.pod(name, *claims, phase=phase, **fields))


def allocated(name, *devices, driver=DRIVER, **more):
    results = [result(device) | {"driver": driver} | more for device in devices]
    fields = {"namespace": "ns", "uid": f"uid-{name}", "status": objects.allocated(*results) if devices else None}
    return typed(objects.claim(name, objects.exactly("c"), **fields))


def prepared(claim, name, *, uid="", share="", driver=DRIVER, **consumed):
    amounts = {key: parse(value) for key, value in consumed.items()}
    return PreparedDeviceRecord(
        "the driver", "ns", claim, device(name, driver), uid or f"uid-{claim}", share, consumed=amounts
    )


def snapshot(*held, pods=(), claims=(), gone=(), **more):
    known = {("ns", claim.metadata.name): claim for claim in claims} | {("ns", name): None for name in gone}
    more.setdefault("slices", slices())
    return NodeSnapshot(NODE, PodHoldings(pods=held), pods=tuple(pods), claims=known, **more)


def hardware(seen):
    return Hardware(seen.slices)


def owner():
    return Node(metadata=ObjectMeta(name=NODE, uid="node-uid"))


ROW = {"namespace": "ns", "claim": "c", "uid": "u", "inDoubt": True}
DEVICE = {"driver": DRIVER, "pool": NODE, "device": "gpu-0", "shareId": "s"}


def answer(**changes):
    return {"node": NODE, "reservations": [ROW | {"devices": [DEVICE]} | changes]}
