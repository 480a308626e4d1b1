"""A rolling update under load: two replicas are replaced one after the other, and no review fails."""

import asyncio
from contextlib import AsyncExitStack, suppress
from io import BytesIO

import aiohttp
import pytest

from tests.limits import PATIENCE
from tests.webhook.admission.reviews import gpu_pod, review
from tests.webhook.service.processes import running, trusting_context

JSON = {"Content-Type": "application/json"}
NOTICE = 2.0  # seconds for which a terminating replica is unready and still answers


class Endpoints:
    """Stands for the kubelet's readiness probes and for a Service, which sends reviews to the ready replicas."""

    def __init__(self, session):
        self.session = session
        self.replicas = []
        self.ready = []
        self.reviews_sent = 0
        # The time at which the probes whose result is `ready` began.
        self.probed = 0.0

    async def probe(self):
        while True:
            ready, started = [], asyncio.get_running_loop().time()
            for address in tuple(self.replicas):
                with suppress(aiohttp.ClientError):
                    async with self.session.get(f"https://{address}/readyz") as response:
                        ready += [address] if response.status == 200 else []
            self.ready, self.probed = ready, started
            await asyncio.sleep(0.02)

    async def wait_for_ready(self, count):
        while len(self.ready) < count:  # noqa: ASYNC110  probes are polls, as a kubelet's are
            await asyncio.sleep(0.01)

    async def post_review(self, body):
        """Send a review as an API server does: if a kept connection was closed before the answer began, use another one.

        A refused connection fails the test only if the last probes are recent. A paused machine may not probe a replica during its notice.
        """
        tries = 0
        while tries < 2:
            self.reviews_sent += 1
            address = self.ready[self.reviews_sent % len(self.ready)]
            try:
                async with self.session.post(f"https://{address}/mutate", data=BytesIO(body), headers=JSON) as response:
                    await response.read()
                    return response.status
            except aiohttp.ServerDisconnectedError:
                tries += 1
            except aiohttp.ClientConnectorError:
                if asyncio.get_running_loop().time() - self.probed < NOTICE:
                    raise
                await asyncio.sleep(0.01)
        raise AssertionError("no replica has answered")


@pytest.mark.whole
async def test_two_replicas_are_replaced_under_load_without_a_lost_review(cluster):
    body, statuses, load_ended = review(gpu_pod()), [], asyncio.Event()
    async with running(cluster, identity="z"), AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(ssl=await trusting_context(cluster), limit=20)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        service = Endpoints(session)

        async def replica(name, stop):
            async with running(cluster, identity=name, notice=NOTICE, linger=0.2) as process:
                service.replicas.append(process.address)
                await stop.wait()
            service.replicas.remove(process.address)

        async def load():
            while not load_ended.is_set():
                statuses.append(await service.post_review(body))

        async with asyncio.TaskGroup() as group:
            stop_old, stop_new = [asyncio.Event(), asyncio.Event()], [asyncio.Event(), asyncio.Event()]
            old_replicas = [group.create_task(replica(f"old-{n}", stop)) for n, stop in enumerate(stop_old)]
            probing = group.create_task(service.probe())
            async with asyncio.timeout(PATIENCE):
                await service.wait_for_ready(2)
                clients = [group.create_task(load()) for _ in range(6)]
                for number, stop in enumerate(stop_new):
                    group.create_task(replica(f"new-{number}", stop))
                    await service.wait_for_ready(3)
                    stop_old[number].set()
                    await old_replicas[number]
                load_ended.set()
                await asyncio.gather(*clients)
            probing.cancel()
            for stop in stop_new:
                stop.set()
    assert set(statuses) == {200}
    assert len(statuses) > 100
