"""Pods in the cluster of `drawbridge demo` and `drawbridge standalone`, also those that a user posts over HTTP."""

import asyncio

import aiohttp
import pytest

from cli.commands.demo import EXAMPLES
from cli.playground.playground import playground
from cli.playground.pod_progress import end_of, pods_of
from cli.playground.pods_port import PodsListener
from cluster import manifests, resources
from rendering.story import End
from tests.cli.commands.playgrounds import CONFIGURATION, POD_WITH_TEMPLATE
from tests.limits import PATIENCE
from webhook.names import MODE_LABEL
from webhook.service.configuration_file import Source

FLEET = [d.object for d in manifests.read([EXAMPLES / "fleet"])]


async def push(here, name, **limits):
    container = {"name": "c", "image": "x", "resources": {"limits": limits}}
    return await end_of(here, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": {"containers": [container]}}, PATIENCE)  # fmt: skip


async def test_a_device_is_allocated_once_and_freed_with_its_pod():
    async with playground(FLEET, Source(CONFIGURATION)) as here:
        several = await asyncio.gather(*(push(here, f"p{i}", **{"nvidia.com/gpu": "1"}) for i in range(12)))
        placed = [line for progress in several for line in progress.runs]
        assert len(set(placed)) == len(placed) == 10
        waiting = [progress for progress in several if progress.end is End.WAITS]
        assert len(waiting) == 2
        ended = next(progress.name for progress in several if progress.end is End.PLACED)
        await here.cluster.delete(resources.PODS, ended, "default", grace=0)
        async with asyncio.timeout(PATIENCE):
            while not any([(await here.pod("default", progress.name)).spec.node_name for progress in waiting]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


SERVICE = "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}]}}\n---\n"
WORKERS = """\
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
    (document,) = manifests.parse(WORKERS.encode(), "workers")
    replicas = pods_of(document.object)
    parts = ["headGroupSpec", "workerGroupSpecs/0, 1 of 2", "workerGroupSpecs/0, 2 of 2"]
    assert [replica.part for replica in replicas] == parts
    async with playground(FLEET, Source(CONFIGURATION)) as here:
        head, *workers = [await end_of(here, replica.pod, PATIENCE) for replica in replicas]
    assert (head.name, head.requested) == ("ray-0-0", ())
    assert [(worker.name, worker.end) for worker in workers] == [("ray-1-0", End.PLACED), ("ray-1-1", End.PLACED)]


async def test_admitting_a_pod_does_not_read_the_fleet_again(monkeypatch):
    """The demo's webhook keeps its state. Otherwise it would read the fleet for each of hundreds of pods."""
    quiet = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quiet", "labels": {MODE_LABEL: "off"}}}
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    left = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "quiet"}, "spec": {"containers": [container]}}  # fmt: skip
    async with playground([*FLEET, quiet], Source(CONFIGURATION)) as here:
        await here.push(left)
        pod = await here.pod("quiet", "p")
        deciding, real, listed = asyncio.current_task(), here.cluster.list, []

        async def list_(resource, *args, **options):
            if asyncio.current_task() is deciding:
                listed.append(resource.id)
            return await real(resource, *args, **options)

        monkeypatch.setattr(here.cluster, "list", list_)
        decisions = await here.decisions(pod)
    assert [(decision.key, decision.outcome) for decision in decisions] == [("nvidia.com/gpu", "left")]
    assert listed == []


async def test_pods_can_be_posted_with_curl():
    async with playground(FLEET, Source(CONFIGURATION)) as here, PodsListener(here, patience=PATIENCE).open() as url, aiohttp.ClientSession() as session:  # fmt: skip
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
            ((SERVICE + WORKERS).encode(), 200, "ignored Service/default/s\n"),
            (b"", 400, "no pod"),
            (b"{", 400, "your manifest"),
        ):
            async with session.post(f"{url}/pods", data=body) as response:
                assert (response.status, message in (text := await response.text())) == (status, True), text
        async with session.get(f"{url}/pods") as response:
            assert "training-0" in await response.text()


async def test_a_pod_with_its_own_template_is_placed_and_deleted():
    async with playground(FLEET, Source(CONFIGURATION)) as here, PodsListener(here, patience=PATIENCE).open() as url, aiohttp.ClientSession() as session:  # fmt: skip
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


async def test_an_ambiguous_pod_name_is_not_deleted():
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: {}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
    async with playground(FLEET, Source(CONFIGURATION)) as here, PodsListener(here, patience=PATIENCE).open() as url, aiohttp.ClientSession() as session:  # fmt: skip
        for home in ("one", "two"):
            async with session.post(f"{url}/pods", data=pod.format(home)) as response:
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
    async with playground(FLEET, Source(CONFIGURATION)) as here, PodsListener(here, patience=0.5).open() as url, aiohttp.ClientSession() as session:  # fmt: skip
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
async def test_a_page_of_another_origin_cannot_use_the_port(headers, status):
    async with (
        playground(FLEET, Source(CONFIGURATION)) as here,
        PodsListener(here).open() as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/pods", headers=headers) as response,
    ):
        assert response.status == status, await response.text()
