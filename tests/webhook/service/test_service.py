import asyncio

from cluster import resources
from cluster.embedded.embedded import Embedded
from cluster.errors import Unavailable
from serving.http import Address
from tests.waiting import until
from tests.webhook.admission.reviews import gpu_pod
from tests.webhook.service.processes import QUICK_PACE, fill, get_text, post, running, trusting_context
from webhook.claims import template
from webhook.service.pace import Pace


async def test_a_listening_process_has_read_the_whole_cluster(cluster):
    async with running(cluster) as process:
        answer = await post(cluster, process.address, gpu_pod())
        assert answer["patchType"] == "JSONPatch"
        status, body = await get_text(f"https://{process.address}/readyz", await trusting_context(cluster))
        assert (status, body) == (200, "[+]cluster ok\n[+]certificate ok\n")


async def test_a_controllers_metrics_port_reports_readiness_and_quarantined_objects(cluster):
    async with running(cluster, reviews=False) as process:
        url = f"http://{process.metrics}/readyz"
        assert await get_text(url) == (200, "[+]cluster ok\n[+]certificate ok\n")
        process.service.quarantine.hold(("deployments.apps", "default", "hostile"), RecursionError("too deep"))
        assert "hostile" not in (await get_text(url))[1]
        status, body = await get_text(f"{url}?verbose")
        assert status == 200, "a quarantined object made the process unready"
        assert "[!]objects processed: set aside: deployments.apps default/hostile: RecursionError: too deep" in body
        assert "drawbridge_quarantined_objects 1.0" in (await get_text(f"http://{process.metrics}/metrics"))[1]


async def test_the_sweep_interval_does_not_prolong_a_grace_period(cluster):
    spec = {"spec": {"devices": {}}}
    unused_template = template.object_of(template.name_of(spec), spec["spec"], "default")
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES, unused_template, "default")
    async with running(cluster, sweep_every=3600.0, sweep_after=0.0):

        async def is_deleted():
            return not (await cluster.list(resources.RESOURCE_CLAIM_TEMPLATES)).items

        await until(is_deleted)


async def test_metrics_show_decisions_stock_and_certificate(cluster):
    async with running(cluster) as process:
        await post(cluster, process.address, gpu_pod())
        _, metrics = await get_text(f"http://{process.metrics}/metrics")
        for line in (
            'drawbridge_decisions_total{dialect="nvidia",mode="enforce",outcome="translated"} 1.0',
            'drawbridge_reviews_total{mode="enforce",outcome="translated",path="/mutate"} 1.0',
            "drawbridge_configuration_good 1.0",
            "drawbridge_stock_age_seconds",
        ):
            assert line in metrics
        days = next(
            float(line.split()[1]) for line in metrics.splitlines() if line.startswith("drawbridge_certificate_days")
        )
        assert 89 < days < 91


async def test_startup_waits_for_an_unavailable_api_server(cluster):
    class Away(Embedded):
        remaining_failures = 3

        async def server(self):
            if self.remaining_failures:
                self.remaining_failures -= 1
                raise Unavailable("no server there")
            return await super().server()

    unavailable_cluster = Away()
    fill(unavailable_cluster)
    async with running(unavailable_cluster, pace=QUICK_PACE) as process:
        assert (await post(unavailable_cluster, process.address, gpu_pod()))["allowed"]


async def test_with_outdated_devices_pods_are_translated_and_never_denied(cluster):
    impossible = gpu_pod(limits={"nvidia.com/gpu": "64"})

    async def is_allowed(process):
        answer = await post(cluster, process.address, impossible)
        assert answer["allowed"] == ("patch" in answer)
        return answer["allowed"]

    async with running(cluster) as process:
        assert not await is_allowed(process)
    async with running(cluster, pace=Pace(fresh=-1.0)) as process:  # what was read is outdated at once
        assert await is_allowed(process)


async def test_stopping_ends_every_task(cluster):
    async with running(cluster) as process:
        pass
    assert process.task.done()
    assert {task for task in asyncio.all_tasks() if task is not asyncio.current_task()} == set()


def test_addresses_are_formatted_for_urls():
    assert str(Address("127.0.0.1", 80)) == "127.0.0.1:80"
    assert str(Address("::1", 80)) == "[::1]:80"
