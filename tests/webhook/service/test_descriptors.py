"""A process with a limit of 160 open files answers honest reviews while many clients open connections."""

import asyncio
import subprocess
import sys
from io import BytesIO

import aiohttp
import pytest

from bench.webhook.admission import ROOT, insecure_tls_context, pod, review

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def url():
    command = f"ulimit -n 160; exec {sys.executable} -m bench.webhook.admission webhook"
    with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as process:  # fmt: skip
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.mark.whole
async def test_connections_that_use_every_descriptor_do_not_lock_callers_out(url):
    host, _, port = url.removeprefix("https://").partition(":")
    body, writers = review(pod({"cpu": "1"})), []

    async def post_review(session):
        async with session.post(f"{url}/mutate", data=BytesIO(body), headers=JSON) as response:
            await response.read()
            return response.status

    try:
        for _ in range(20):
            for _ in range(15):  # connections that never begin a handshake
                _, writer = await asyncio.open_connection(host, int(port))
                writers.append(writer)
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=insecure_tls_context())) as session:
                assert await post_review(session) == 200
    finally:
        for writer in writers:
            writer.transport.abort()
