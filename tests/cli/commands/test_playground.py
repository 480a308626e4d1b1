"""Pods in the cluster of `drawbridge demo` and `drawbridge standalone`, also those that a user posts over HTTP."""

import asyncio

import aiohttp
import pytest

from cli.commands.demo import EXAMPLES
from cli.playground.playground import playground
from cli.playground.pod_progress import end_of, pods_of
from cli.playground.pods_port import PodsListener
from cli.story import End
from cluster import manifests, resources
from tests.cli.commands.playgrounds import CONFIGURATION, POD_WITH_TEMPLATE
from tests.limits import PATIENCE
from webhook.service.configuration_file import Source

FLEET = [d.object for d in manifests.read([EXAMPLES / "fleet"])]


async def end_of_pushed_pod(demo, name, **limits):
    """Create a pod with these limits in the demo; return its progress once it is placed, refused, left unchanged or waiting."""
    container = {"name": "c", "image": "x", "resources": {"limits": limits}}
    return await end_of(demo, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": {"containers": [container]}}, PATIENCE)  # fmt: skip


@pytest.mark.parametrize("name", ["drawbridge", "drawbridge-signature", "drawbridge-authority"])
async def test_secrets_of_an_installation_in_a_dump_are_not_used(name):
    metadata = {"name": name, "namespace": "drawbridge-system"}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "kubernetes.io/basic-auth",
        "data": {},
    }
    async with playground([*FLEET, secret], Source(CONFIGURATION)) as demo:
        assert (await end_of_pushed_pod(demo, "p", **{"nvidia.com/gpu": "1"})).end is End.PLACED


@pytest.mark.parametrize("configuration", [CONFIGURATION, ""], ids=["translated", "served"])
async def test_a_device_is_allocated_once_and_freed_with_its_pod(configuration):
    async with playground(FLEET, Source(configuration)) as demo:
        pods = await asyncio.gather(*(end_of_pushed_pod(demo, f"p{i}", **{"nvidia.com/gpu": "1"}) for i in range(12)))
        # `runs` of a placed pod has one text for its claim, with the node and the GPU.
        allocated_gpus = [node_and_gpu for progress in pods for node_and_gpu in progress.runs]
        assert len(set(allocated_gpus)) == len(allocated_gpus) == 10  # the GPUs of the fleet
        waiting_pods = [progress for progress in pods if progress.end is End.WAITS]
        assert len(waiting_pods) == 2
        placed_pod = next(progress.name for progress in pods if progress.end is End.PLACED)
        await demo.cluster.delete(resources.PODS, placed_pod, "default", grace=0)
        async with asyncio.timeout(PATIENCE):
            while not any([(await demo.pod("default", progress.name)).spec.node_name for progress in waiting_pods]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


SERVICE = "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}]}}\n---\n"
RAY_CLUSTER = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray}
spec:
  headGroupSpec: {template: {spec: {containers: [{name: head, image: i}]}}}
  workerGroupSpecs:
  - replicas: 2
    template: {spec: {containers: [{name: worker, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}
"""


async def test_each_pod_of_a_workload_names_its_part():
    (document,) = manifests.parse(RAY_CLUSTER.encode(), "workers")
    replicas = pods_of(document.object)
    parts = ["headGroupSpec", "workerGroupSpecs/0, 1 of 2", "workerGroupSpecs/0, 2 of 2"]
    assert [replica.part for replica in replicas] == parts
    async with playground(FLEET, Source(CONFIGURATION)) as demo:
        head, *workers = [await end_of(demo, replica.pod, PATIENCE) for replica in replicas]
    assert (head.name, head.requested) == ("ray-0-0", ())
    assert [(worker.name, worker.end) for worker in workers] == [("ray-1-0", End.PLACED), ("ray-1-1", End.PLACED)]


async def test_a_posted_manifest_is_answered_with_outcomes_or_an_error():
    async with playground(FLEET, Source(CONFIGURATION)) as demo, PodsListener(demo, patience=PATIENCE).open() as url, aiohttp.ClientSession() as session:  # fmt: skip
        for body, status, message in (
            ((EXAMPLES / "pods/nvidia-training.yaml").read_bytes(), 200, "✓ training-0"),
            (
                b"{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c}]}}",
                200,
                "·",
            ),
            (b"kind: Pod", 400, "needs apiVersion and kind"),
            (
                b"{apiVersion: v1, kind: ConfigMap}",
                400,
                "the manifest holds no pod",
            ),
            (b"{apiVersion: v1, kind: Pod}", 400, "a Pod without the spec of a pod"),
            (b"{apiVersion: resource.k8s.io/v1, kind: ResourceClaim}", 400, "a ResourceClaim needs a name"),
            (b"kind: Pod\nmetadata: [1]", 400, "metadata is not an object"),
            ((SERVICE + RAY_CLUSTER).encode(), 200, "ignored Service/default/s\n"),
            (b"", 400, "no pod"),
            (b"{", 400, "your manifest"),
        ):
            async with session.post(f"{url}/pods", data=body) as response:
                assert (response.status, message in (text := await response.text())) == (status, True), text
        async with session.get(f"{url}/pods") as response:
            assert "training-0" in await response.text()


async def test_a_pod_with_its_own_template_is_placed_and_deleted():
    async with playground(FLEET, Source(CONFIGURATION)) as demo, PodsListener(demo, patience=PATIENCE).open() as url, aiohttp.ClientSession() as session:  # fmt: skip
        async with session.post(f"{url}/pods", data=POD_WITH_TEMPLATE) as response:
            text = await response.text()
            assert response.status == 200, text
            assert "applied ResourceClaimTemplate mine" in text
            assert "✓ own" in text
        for status in (200, 404):
            async with session.delete(f"{url}/pods/own") as response:
                assert response.status == status, await response.text()
        async with session.get(f"{url}/pods") as response:
            assert "own" not in await response.text()


async def test_a_pod_with_an_ambiguous_name_is_not_deleted():
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: {}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
    async with playground(FLEET, Source(CONFIGURATION)) as demo, PodsListener(demo, patience=PATIENCE).open() as url, aiohttp.ClientSession() as session:  # fmt: skip
        for namespace in ("one", "two"):
            async with session.post(f"{url}/pods", data=pod.format(namespace)) as response:
                assert response.status == 200
        for path, status, message in (
            ("p", 409, "one, two"),
            ("one/p", 200, "one/p"),
            ("p", 200, "two/p"),
            ("p", 404, "p"),
        ):
            async with session.delete(f"{url}/pods/{path}") as response:
                assert (response.status, message in await response.text()) == (status, True)


async def test_a_pod_without_its_template_is_reported_as_waiting():
    pod = POD_WITH_TEMPLATE.partition("---\n")[2]
    async with playground(FLEET, Source(CONFIGURATION)) as demo, PodsListener(demo, patience=0.5).open() as url, aiohttp.ClientSession() as session:  # fmt: skip
        async with session.post(f"{url}/pods", data=pod) as response:
            text = await response.text()
            assert response.status == 200, text
        assert "… own" in text
        assert "nothing more was decided within 0.5 s" in text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "rebound.example.com"}, 403),
        ({"Host": "localhost.example.com:80"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "https://evil.example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:1", "Origin": "http://[::1]:1"}, 200),
        ({}, 200),
    ],
)
async def test_only_requests_with_local_host_and_origin_are_answered(headers, status):
    async with (
        playground(FLEET, Source(CONFIGURATION)) as demo,
        PodsListener(demo).open() as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/pods", headers=headers) as response,
    ):
        assert response.status == status, await response.text()
