"""The devices of each container, from the kubelet's answer, the pod and the claim."""

from dra.objects import Pod
from dra.quantity import parse
from dra.wire import convert
from node.audit import Hardware, holders
from node.hardware import ExporterIds
from node.messages import ClaimDevice, ClaimHolding, ContainerHolding, PluginHolding, PodHolding
from tests.node.audit.snapshots import (
    RESOURCE,
    allocated_claim,
    claim_holding,
    hardware_of,
    make_snapshot,
    plugin_holding,
    pod,
    published_slice,
)
from tests.node.machines import DRIVER, NODE, result
from tests.objects import allocated as allocated_status
from tests.objects import claim, typed

CARD_UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"


def device_rows(*holdings, **sources):
    snapshot = make_snapshot(*holdings, **sources)
    return list(holders(snapshot, hardware_of(snapshot)))


def test_a_claims_device_has_the_ids_that_exporters_use():
    [row] = device_rows(claim_holding("p", "c", "gpu-0"), pods=[pod("p", "c")], claims=[allocated_claim("c", "gpu-0")])
    assert (row.namespace, row.pod, row.container) == ("ns", "p", "c")
    assert (row.claim, row.driver, row.pool, row.device, row.share, row.resource) == ("c", DRIVER, NODE, "gpu-0", "", "")  # fmt: skip
    assert row.exporter_ids == ExporterIds("GPU-0", "GPU-0", "0000:3b:00.0")
    assert row.amounts == {}


def test_a_partition_has_its_own_and_its_cards_uuid():
    [row] = device_rows(claim_holding("p", "c", "gpu-1-1g-0"), claims=[allocated_claim("c", "gpu-1-1g-0")])
    assert row.exporter_ids == ExporterIds("GPU-1/1g/0", "GPU-1", "")


def test_a_share_has_its_own_amounts_only():
    claim_of_two_shares = claim_with_results(
        result("gpu-2-shared", share="s1", memory="8Gi"), result("gpu-2-shared", share="s2", memory="2Gi")
    )
    holding = pod_holding("p", container_holding("c", ("c", share_of_gpu_2("s2"))))
    [row] = device_rows(holding, pods=[pod("p", "c")], claims=[claim_of_two_shares])
    assert (row.share, row.amounts) == ("s2", {"memory": parse("2Gi")})


def devices_by_container(consumer, *requests):
    """Return what holds the devices gpu-0 and gpu-1 of a claim, allocated for these requests. The kubelet lists both for both containers."""
    used = ("c", "gpu-0", "gpu-1")
    holding = pod_holding("p", container_holding("one", used), container_holding("two", used))
    claims = [claim_with_results(*(result(f"gpu-{i}", name) for i, name in enumerate(requests)))] if requests else []
    rows = device_rows(holding, pods=[consumer] if consumer else [], claims=claims)
    return [(row.container, row.device) for row in rows]


def test_a_container_has_only_the_devices_of_its_own_requests():
    consumer = pod_with_claims(one=[{"name": "c", "request": "a"}], two=[{"name": "c", "request": "b"}])
    assert devices_by_container(consumer, "a", "b/large") == [("one", "gpu-0"), ("two", "gpu-1")]
    consumer = pod_with_claims(
        one=[{"name": "c", "request": "a"}, {"name": "c"}], two=[{"name": "c", "request": "b/large"}]
    )
    one_and_two = [("one", "gpu-0"), ("one", "gpu-1"), ("two", "gpu-1")]
    assert devices_by_container(consumer, "a", "b/large") == one_and_two
    all_devices = [(name, device) for name in ("one", "two") for device in ("gpu-0", "gpu-1")]
    assert devices_by_container(None, "a", "b/large") == all_devices, "the pod is not known"
    assert devices_by_container(consumer) == all_devices, "the claim is not known"
    assert devices_by_container(pod_with_claims(one=[], two=[]), "a", "b/large") == all_devices


def test_devices_of_an_extended_resource_belong_to_their_container():
    requests = ["container-0-request-0", "container-1-request-0"]
    mappings = [
        {"containerName": container, "resourceName": RESOURCE, "requestName": request}
        for container, request in zip(("one", "two"), requests, strict=True)
    ]
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": mappings}}
    consumer = convert({"metadata": {"name": "p", "namespace": "ns"}, "status": status}, Pod)
    assert devices_by_container(consumer, *requests) == [("one", "gpu-0"), ("two", "gpu-1")]


def test_a_claim_with_admin_access_holds_no_device():
    admin_claim = claim_with_results(result("gpu-0") | {"adminAccess": True})
    assert device_rows(claim_holding("p", "c", "gpu-0"), pods=[pod("p", "c")], claims=[admin_claim]) == []


def test_a_plugin_devices_uuid_comes_from_slice_or_id():
    ids = {row.device: row.exporter_ids for row in device_rows(plugin_holding("p", "GPU-0", "GPU-0::3", f"{CARD_UUID}::1", "3B:00.0", "thing"))}  # fmt: skip
    gpu_ids = ExporterIds("GPU-0", "GPU-0", "0000:3b:00.0")
    assert ids["GPU-0"] == ids["GPU-0::3"] == ids["3B:00.0"] == gpu_ids
    assert ids[f"{CARD_UUID}::1"] == ExporterIds(CARD_UUID, CARD_UUID, "")
    assert ids["thing"] == ExporterIds()


def test_a_plugin_device_with_two_matches_has_no_uuid():
    matching_slices = [published_slice(driver, ("d", {"index": {"int": 0}, "uuid": {"string": f"GPU-of-{driver}"}})) for driver in ("a.example.com", "b.example.com")]  # fmt: skip
    assert Hardware(matching_slices).exporter_ids_of_plugin(RESOURCE, "0") == ExporterIds()
    assert Hardware(matching_slices[:1]).exporter_ids_of_plugin(RESOURCE, "0") == ExporterIds(
        "GPU-of-a.example.com", "GPU-of-a.example.com"
    )


def test_a_snapshot_without_the_kubelets_answer_has_no_rows():
    snapshot = make_snapshot()
    assert list(holders(type(snapshot)(NODE), hardware_of(snapshot))) == []


def share_of_gpu_2(share):
    return ClaimDevice(driver=DRIVER, pool=NODE, device="gpu-2-shared", share=share)


def container_holding(name, *claims):
    claim_holdings = tuple(
        ClaimHolding(claim=claim, namespace="ns", devices=tuple(device if isinstance(device, ClaimDevice) else ClaimDevice(driver=DRIVER, pool=NODE, device=device) for device in devices))
        for claim, *devices in claims
    )  # fmt: skip
    return ContainerHolding(name=name, claims=claim_holdings, devices=(PluginHolding(resource=RESOURCE, ids=()),))


def pod_holding(name, *containers):
    return PodHolding(name=name, namespace="ns", containers=containers)


def claim_with_results(*results):
    return typed(claim("c", namespace="ns", uid="uid-c", status=allocated_status(*results)))


def pod_with_claims(**claims):
    """Return a pod of containers with these entries of `resources.claims`."""
    containers = [{"name": name, "resources": {"claims": entries}} for name, entries in claims.items()]
    spec = {"containers": containers, "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}
    return convert({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec}, Pod)
