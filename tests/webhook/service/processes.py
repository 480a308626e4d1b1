"""A whole webhook, controller or authority in this process, and requests to it."""

import asyncio
import base64
import json
import ssl
from contextlib import asynccontextmanager
from types import SimpleNamespace

import aiohttp

from cluster import resources
from cluster.controllers.election import Term
from dra.wire import builtins
from serving.http import Address
from tests.limits import PATIENCE
from tests.objects import namespace
from tests.webhook.admission.reviews import CLASS, NODE, SLICE, review
from webhook.service.configuration_file import Source
from webhook.service.pace import Pace
from webhook.service.service import WebhookServer
from webhook.service.settings import WebhookSettings

NAMESPACE = "drawbridge-system"
QUICK_PACE = Pace(certificate=0.02, certificate_retry=0.02, retry=0.01)
# The interval in which a waiting replica tries to get the lease. The leader renews it as often, which wakes every watch of the embedded cluster.
TERM = Term(retry=0.2)


def manifest_of(kind, api_version, obj):
    return {"apiVersion": api_version, "kind": kind} | builtins(obj)


def fill(cluster):
    cluster.load([namespace(NAMESPACE)])
    cluster.load(
        [
            manifest_of(kind, "resource.k8s.io/v1", obj)
            for kind, obj in (("DeviceClass", CLASS), ("ResourceSlice", SLICE))
        ]
    )
    cluster.load([manifest_of("Node", "v1", NODE)])


@asynccontextmanager
async def running(cluster, source=None, **settings):
    """Run a service with the configuration of `source` and changed settings; yield its addresses and its task."""
    free_address = Address("127.0.0.1", 0)
    defaults = {
        "identity": "a",
        "names": ("127.0.0.1",),
        "listen": free_address,
        "metrics": free_address,
        "notice": 0.0,
    }
    defaults |= {"sweep_every": 0.05, "term": TERM}
    service = WebhookServer(cluster, source or Source(), WebhookSettings(**defaults | settings))
    stop, addresses = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(service.run(stop, lambda *bound: addresses.set_result(bound)))
    try:
        finished, _ = await asyncio.wait({task, addresses}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        assert addresses in finished, task
        address, metrics = addresses.result()
        yield SimpleNamespace(service=service, address=address, metrics=metrics, task=task)
    finally:
        stop.set()
        await asyncio.wait_for(task, PATIENCE)


async def trusting_context(cluster):
    secret = await cluster.get(resources.SECRETS, "drawbridge", NAMESPACE)
    return ssl.create_default_context(cadata=base64.b64decode(secret.data["ca.crt"]).decode())


async def post(cluster, address, obj, path="mutate", **review_fields):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=await trusting_context(cluster))) as session:
        headers = {"Content-Type": "application/json"}
        async with session.post(
            f"https://{address}/{path}", data=review(obj, **review_fields), headers=headers
        ) as response:
            return json.loads(await response.text())["response"]


async def get_text(url, context=None):
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context or True)) as session,
        session.get(url) as response,
    ):
        return response.status, await response.text()


def replace(file, content):
    """Replace a file atomically, as the kubelet does, so that no partly written file is read."""
    new_file = file.with_suffix(".new")
    new_file.write_text(content)
    new_file.replace(file)
