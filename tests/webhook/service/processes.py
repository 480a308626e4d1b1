"""A whole webhook, controller or authority in this process, and requests to it."""

import asyncio
import base64
import json
import ssl
from contextlib import asynccontextmanager
from types import SimpleNamespace

import aiohttp

from cluster import resources
from dra.wire import builtins
from runtime.controllers.election import Term
from runtime.http import Address
from tests.limits import PATIENCE
from tests.webhook.admission.reviews import CLASS, NODE, SLICE, review
from webhook.service.configuration_file import Source
from webhook.service.pace import Pace
from webhook.service.service import Service
from webhook.service.settings import Settings

NAMESPACE = "drawbridge-system"
QUICK = Pace(certificate=0.02, certificate_retry=0.02, retry=0.01)
# A waiting replica tries this often. Renewals are as frequent, and each of them wakes every watch of the embedded cluster.
TERM = Term(retry=0.2)


def plain(kind, api_version, obj):
    return {"apiVersion": api_version, "kind": kind} | builtins(obj)


def fill(made):
    made.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    made.load([plain("DeviceClass", "resource.k8s.io/v1", CLASS), plain("ResourceSlice", "resource.k8s.io/v1", SLICE)])
    made.load([plain("Node", "v1", NODE)])


@asynccontextmanager
async def running(cluster, source=None, **settings):
    free = Address("127.0.0.1", 0)
    usual = {"identity": "a", "names": ("127.0.0.1",), "listen": free, "metrics": free, "notice": 0.0}
    usual |= {"sweep_every": 0.05, "term": TERM}
    service = Service(cluster, source or Source(), Settings(**usual | settings))
    stop, heard = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(service.run(stop, lambda *where: heard.set_result(where)))
    try:
        done, _ = await asyncio.wait({task, heard}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        assert heard in done, task
        address, metrics = heard.result()
        yield SimpleNamespace(service=service, address=address, metrics=metrics, task=task)
    finally:
        stop.set()
        await asyncio.wait_for(task, PATIENCE)


async def trust(cluster):
    secret = await cluster.get(resources.SECRETS, "drawbridge", NAMESPACE)
    return ssl.create_default_context(cadata=base64.b64decode(secret.data["ca.crt"]).decode())


async def post(cluster, address, obj, path="mutate", **more):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=await trust(cluster))) as session:
        headers = {"Content-Type": "application/json"}
        async with session.post(f"https://{address}/{path}", data=review(obj, **more), headers=headers) as response:
            return json.loads(await response.text())["response"]


async def text(url, context=None):
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context or True)) as session,
        session.get(url) as response,
    ):
        return response.status, await response.text()


def replace(file, text):
    """Replace a file atomically, as the kubelet does, so that no partly written file is read."""
    written = file.with_suffix(".new")
    written.write_text(text)
    written.replace(file)
