"""Metrics and probes of the driver."""

import asyncio

from cluster.errors import Unavailable
from node.messages import Empty, RegistrationStatus
from serving.http import Address
from tests.limits import PATIENCE
from tests.node.machines import result
from tests.node.service.fake_kubelet import REGISTRATION_ROUTE
from tests.node.service.running_driver import create_claim, eventually, running_driver


async def get(address, path):
    """Return the status and the lines of an HTTP answer."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.splitlines()


async def test_the_driver_is_ready_after_registration_and_publication(cluster, kubelet):
    async with running_driver(cluster, kubelet) as driver, driver.metrics.serving(Address()) as address:
        async with asyncio.timeout(PATIENCE):
            await driver.publisher.published.wait()
        status, lines = await get(address, "/readyz")
        assert (status, lines[0].partition(":")[0]) == (503, "[-]kubelet")
        assert "has not found this driver yet" in lines[0]
        info = await kubelet.register()
        assert await get(address, "/readyz") == (
            200, ["[+]kubelet ok", "[+]slices ok", "[+]checkpoint ok", "[+]serving ok"],
        )  # fmt: skip
        first, second = [await create_claim(cluster, name, result("gpu-1")) for name in "ab"]
        await kubelet.prepare(info.endpoint, first, second)
        _, metrics = await get(address, "/metrics")
        assert {
            'drawbridge_driver_claims_total{call="prepare",outcome="done"} 1.0',
            'drawbridge_driver_claims_total{call="prepare",outcome="refused"} 1.0',
            'drawbridge_driver_call_seconds_count{call="prepare"} 1.0',
            'drawbridge_driver_publications_total{outcome="written"} 1.0',
            "drawbridge_driver_prepared_claims 1.0",
            "drawbridge_driver_devices 3.0",
            "drawbridge_driver_publishes 1.0",
        } <= set(metrics)
        await kubelet.unprepare(info.endpoint, first)
        _, metrics = await get(address, "/metrics")
        assert "drawbridge_driver_prepared_claims 0.0" in metrics


async def test_readiness_reports_a_rejected_registration_and_a_newer_driver(cluster, kubelet):
    async with running_driver(cluster, kubelet) as driver:
        [socket_path] = kubelet.sockets()
        status = RegistrationStatus(registered=False, error="no such version")
        await kubelet.call(socket_path, REGISTRATION_ROUTE.format("NotifyRegistrationStatus"), status, Empty)
        assert driver.metrics.readiness()[0]["kubelet"] == "the kubelet rejected the registration: no such version"
        async with asyncio.timeout(PATIENCE):
            await driver.publisher.published.wait()
        driver.publisher.leads = False
        assert driver.metrics.readiness()[1]["slices"] == "a later driver of this node publishes"


async def test_readiness_reports_that_slices_are_refused(cluster, kubelet):
    async def refuse(*arguments, **options):
        raise Unavailable("out of order")

    cluster.create = refuse
    async with running_driver(cluster, kubelet) as driver:

        async def publisher_problem():
            return driver.publisher.problem

        await eventually(publisher_problem)
        assert driver.metrics.readiness()[0]["slices"] == "nothing is published yet: out of order"
