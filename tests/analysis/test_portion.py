"""A `Portion` bounds the memory of objects that are read. It keeps the device fields of large objects and drops the rest.

`Portion.cut` counts the objects that are kept in part or not at all. Texts that no command reads do not count.
"""

import tracemalloc

import msgspec
import pytest
from msgspec.structs import replace

from analysis.loading.portion import LARGEST_OBJECT, MIN_ROOM, Portion
from bench import hostile_store, stub
from cluster import resources
from cluster.kubernetes import answers
from cluster.outlines import NOT_KEPT
from dra.footprint import footprint
from tests.objects import claim, container, exactly, workload

GPU = {"nvidia.com/gpu": "1"}
MANY_LABELS = {f"l{number}": "" for number in range(40_000)}


def gpu_deployment(namespace="a", **fields):
    """Return a Deployment whose container has these fields."""
    pods = {"containers": [container("c", GPU) | fields]}
    return workload("Deployment", "d", pods, namespace=namespace, replicas=2)


def large_claim(**status):
    return claim("c", exactly("gpu.nvidia.com"), namespace="a", labels=MANY_LABELS, status=status)


def container_of(obj):
    return obj["spec"]["template"]["spec"]["containers"][0]


def test_an_ordinary_object_is_kept_whole():
    portion = Portion(resources.DEPLOYMENTS)
    obj = gpu_deployment(env=[{"name": "A", "value": "b"}], args=["--all"])
    assert portion.keep(obj) == obj
    assert not [*portion.cut()]


def test_an_object_with_long_texts_keeps_its_device_fields():
    portion = Portion(resources.DEPLOYMENTS)
    variables = [{"name": "SCRIPT", "value": "x" * 200_000}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    kept = portion.keep(gpu_deployment(env=variables, args=["y" * 200_000]))
    assert container_of(kept)["env"] == [{"name": "SCRIPT"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    assert container_of(kept)["resources"] == {"limits": GPU}
    assert not [*portion.cut()]


def test_a_too_large_workload_keeps_its_requests_and_is_reported():
    portion = Portion(resources.DEPLOYMENTS)
    obj = gpu_deployment()
    obj["metadata"]["labels"] = MANY_LABELS
    kept = portion.keep(obj)
    assert container_of(kept)["resources"] == {"limits": GPU}
    assert (kept["kind"], kept["metadata"]["name"], kept["spec"]["replicas"]) == ("Deployment", "d", 2)
    assert footprint(kept) < LARGEST_OBJECT / 10
    assert [missed.kind for missed in portion.cut()] == ["1 Deployment in a"]


@pytest.mark.parametrize("kind", [resources.RESOURCE_CLAIMS, resources.RESOURCE_CLAIMS.raw], ids=["typed", "plain"])
def test_a_too_large_claim_keeps_its_devices(kind):
    portion = Portion(resources.RESOURCE_CLAIMS)
    result = {"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"}
    claims = [large_claim(), large_claim(allocation={"devices": {"results": [result]}})]
    claim_without_device, claim_with_device = (portion.keep(msgspec.convert(obj, kind.type)) for obj in claims)
    claim_without_device, claim_with_device = (
        resources.RESOURCE_CLAIMS.plain(kept_claim) for kept_claim in (claim_without_device, claim_with_device)
    )
    assert [request["name"] for request in claim_without_device["spec"]["devices"]["requests"]] == [NOT_KEPT]
    assert claim_with_device["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"


def test_a_full_namespace_does_not_reduce_other_namespaces():
    portion = Portion(resources.RESOURCE_QUOTAS)
    hard = {f"requests.e.x/a{number}": "1" for number in range(1_000)}
    quota = {"metadata": {"name": "q", "namespace": "full"}, "spec": {"hard": hard}}
    quota_count = MIN_ROOM // footprint(quota) + 10
    kept = [kept_quota for _ in range(quota_count) if (kept_quota := portion.keep(quota))]
    assert sum(map(footprint, kept)) <= MIN_ROOM
    assert portion.keep({"metadata": {"name": "q", "namespace": "other"}, "spec": {"hard": hard}})
    assert [missed.kind for missed in portion.cut()] == [f"{quota_count - len(kept)} resourcequotas in full"]


def test_a_large_configuration_is_kept_unchanged():
    config_map = {"metadata": {"name": "drawbridge", "namespace": "a"}, "data": {"configuration.yaml": "x" * 1_000_000}}
    portion = Portion(resources.CONFIG_MAPS, whole=True)
    assert portion.keep(config_map) == config_map
    assert not portion.cut()


def test_five_thousand_pods_of_a_namespace_are_kept_whole():
    variables = [{"name": f"SETTING_{number}", "value": "x" * 40} for number in range(100)]
    pod = {"metadata": {"name": "p", "namespace": "a"}, "spec": {"containers": [{"name": "c", "env": variables}]}}
    assert len(msgspec.json.encode(pod)) > 7_000
    portion = Portion(resources.PODS)
    assert all(portion.keep(pod) == pod for _ in range(5_000))
    assert not portion.cut()


@pytest.mark.long
@pytest.mark.parametrize("plural", ["resourceclaims", "resourceclaimtemplates", "pods", "deployments"])
def test_a_page_of_hostile_objects_takes_bounded_memory(plural, tmp_path):
    hostile_store.write(tmp_path, plural, 6 << 20)  # bytes
    lines = (tmp_path / plural).read_bytes().splitlines(keepends=True)
    items = b",".join(line.removeprefix(stub.BEFORE).removesuffix(stub.AFTER) for line in lines)
    data = b'{"metadata":{"resourceVersion":"1"},"items":[' + items + b"]}"
    kind = next(resource for resource in resources.ALL if resource.plural == plural)
    reduced_kind = replace(kind.raw, reduce=Portion(kind).keep)
    tracemalloc.start()
    page = answers.page(data, reduced_kind)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not page.unreadable
    assert kept < len(data) / 8
    assert peak < 8 * len(data)
