"""The devices of each container, from the kubelet's answer, the pod and the claim."""

from dra.objects import Pod
from dra.quantity import parse
from dra.wire import convert
from node.audit import Hardware, holders
from node.audit.hardware_identity import ExporterIds
from node.messages import ClaimDevice, ClaimHolding, ContainerHolding, PluginHolding, PodHolding
from tests.node.audit.snapshots import RESOURCE, allocated, claiming, hardware, plugged, pod, published, snapshot
from tests.node.machines import DRIVER, NODE, result
from tests.objects import allocated as allocated_status
from tests.objects import claim, typed

CARD = "GPU-01234567-89ab-cdef-0123-456789abcdef"


def rows(*held, **more):
    seen = snapshot(*held, **more)
    return list(holders(seen, hardware(seen)))


def test_a_claims_device_has_the_ids_that_exporters_use():
    [row] = rows(claiming("p", "c", "gpu-0"), pods=[pod("p", "c")], claims=[allocated("c", "gpu-0")])
    assert (row.namespace, row.pod, row.container) == ("ns", "p", "c")
    assert (row.claim, row.driver, row.pool, row.device, row.share, row.resource) == ("c", DRIVER, NODE, "gpu-0", "", "")  # fmt: skip
    assert row.exporter_ids == ExporterIds("GPU-0", "GPU-0", "0000:3b:00.0")
    assert row.amounts == {}


def test_a_partition_has_its_own_uuid_and_its_cards():
    [row] = rows(claiming("p", "c", "gpu-1-1g-0"), claims=[allocated("c", "gpu-1-1g-0")])
    assert row.exporter_ids == ExporterIds("GPU-1/1g/0", "GPU-1", "")


def test_a_share_has_its_own_amounts_only():
    first = holding(result("gpu-2-shared", share="s1", memory="8Gi"), result("gpu-2-shared", share="s2", memory="2Gi"))
    held = having("p", container("c", ("c", shared("s2"))))
    [row] = rows(held, pods=[pod("p", "c")], claims=[first])
    assert (row.share, row.amounts) == ("s2", {"memory": parse("2Gi")})


def test_a_container_has_only_the_devices_of_its_own_requests():
    """The kubelet lists all devices of the claim for both containers."""
    both = holding(result("gpu-0", "a"), result("gpu-1", "b/large"))
    held = having("p", container("one", ("c", "gpu-0", "gpu-1")), container("two", ("c", "gpu-0", "gpu-1")))
    of = two_containers(one=[{"name": "c", "request": "a"}], two=[{"name": "c", "request": "b"}])
    assert names(rows(held, pods=[of], claims=[both])) == [("one", "gpu-0"), ("two", "gpu-1")]
    of = two_containers(one=[{"name": "c", "request": "a"}, {"name": "c"}], two=[{"name": "c", "request": "b/large"}])
    assert names(rows(held, pods=[of], claims=[both])) == [("one", "gpu-0"), ("one", "gpu-1"), ("two", "gpu-1")]
    everything = [(name, device) for name in ("one", "two") for device in ("gpu-0", "gpu-1")]
    assert names(rows(held, pods=[], claims=[both])) == everything, "of a pod that is not known nothing is left out"
    assert names(rows(held, pods=[of])) == everything, "nor of a claim"
    earlier = two_containers(one=[], two=[])
    assert names(rows(held, pods=[earlier], claims=[both])) == everything, "nor of a pod that says nothing of it"


def test_an_extended_resource_belongs_to_its_container():
    both = holding(result("gpu-0", "container-0-request-0"), result("gpu-1", "container-1-request-0"))
    held = having("p", container("one", ("c", "gpu-0", "gpu-1")), container("two", ("c", "gpu-0", "gpu-1")))
    mappings = [
        {"containerName": name, "resourceName": RESOURCE, "requestName": f"container-{number}-request-0"}
        for number, name in enumerate(("one", "two"))
    ]
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": mappings}}
    of = convert({"metadata": {"name": "p", "namespace": "ns"}, "status": status}, Pod)
    assert names(rows(held, pods=[of], claims=[both])) == [("one", "gpu-0"), ("two", "gpu-1")]


def test_a_claim_with_admin_access_holds_no_device():
    looking = holding(result("gpu-0") | {"adminAccess": True})
    assert rows(claiming("p", "c", "gpu-0"), pods=[pod("p", "c")], claims=[looking]) == []


def test_a_plugin_device_has_its_published_uuid_or_its_id():
    known = {row.device: row.exporter_ids for row in rows(plugged("p", "GPU-0", "GPU-0::3", f"{CARD}::1", "3B:00.0", "thing"))}  # fmt: skip
    whole = ExporterIds("GPU-0", "GPU-0", "0000:3b:00.0")
    assert known["GPU-0"] == known["GPU-0::3"] == known["3B:00.0"] == whole
    assert known[f"{CARD}::1"] == ExporterIds(CARD, CARD, "")
    assert known["thing"] == ExporterIds()


def test_a_plugin_device_with_two_matches_has_no_uuid():
    twice = [published(driver, ("d", {"index": {"int": 0}, "uuid": {"string": f"GPU-of-{driver}"}})) for driver in ("a.example.com", "b.example.com")]  # fmt: skip
    assert Hardware(twice).exporter_ids_of_plugin(RESOURCE, "0") == ExporterIds()
    assert Hardware(twice[:1]).exporter_ids_of_plugin(RESOURCE, "0") == ExporterIds(
        "GPU-of-a.example.com", "GPU-of-a.example.com"
    )


def test_without_the_kubelets_answer_there_are_no_rows():
    seen = snapshot()
    assert list(holders(type(seen)(NODE), hardware(seen))) == []


def shared(share):
    return ClaimDevice(driver=DRIVER, pool=NODE, device="gpu-2-shared", share=share)


def container(name, *claims):
    held = tuple(
        ClaimHolding(claim=claim, namespace="ns", devices=tuple(device if isinstance(device, ClaimDevice) else ClaimDevice(driver=DRIVER, pool=NODE, device=device) for device in devices))
        for claim, *devices in claims
    )  # fmt: skip
    return ContainerHolding(name=name, claims=held, devices=(PluginHolding(resource=RESOURCE, ids=()),))


def having(name, *containers):
    return PodHolding(name=name, namespace="ns", containers=containers)


def holding(*results):
    return typed(claim("c", namespace="ns", uid="uid-c", status=allocated_status(*results)))


def two_containers(**claims):
    containers = [{"name": name, "resources": {"claims": named}} for name, named in claims.items()]
    spec = {"containers": containers, "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}
    return convert({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec}, Pod)


def names(found_holders):
    return [(holder.container, holder.device) for holder in found_holders]
