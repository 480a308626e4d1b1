"""A webhook's server on a socket, and an embedded cluster for whole processes."""

from contextlib import suppress

import aiohttp
import pytest

from cluster.embedded.embedded import Embedded
from serving.http import Limits
from tests.webhook import tls
from tests.webhook.service.processes import fill
from tests.webhook.service.serving import Allowing, Running
from webhook.service.app import WebhookApp
from webhook.service.metrics import WebhookMetrics


@pytest.fixture
async def running(request):
    """Yield a started server. A test can give it `Limits` of connections, or `DecisionLimits`."""
    authority, leaf = tls.authority_and_leaf()
    parameter = getattr(request, "param", None)
    limits_argument = "connections" if isinstance(parameter, Limits) else "limits"
    decider, metrics = Allowing(), WebhookMetrics()
    metrics.checks = {"stock": lambda: ""}
    metrics.notes = {"objects": lambda: "pods default/x: deep", "stock": lambda: ""}
    app = WebhookApp(decider, metrics, **{limits_argument: parameter})
    port = await app.start("127.0.0.1", 0, tls.server(leaf))
    client_context, writers = tls.client(authority), []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client_context)) as session:
        yield Running(app=app, decider=decider, metrics=metrics, session=session, url=f"https://127.0.0.1:{port}", port=port, tls=client_context, writers=writers)  # fmt: skip
    for writer in writers:
        with suppress(AttributeError):  # early releases of Python 3.11 raise it for a closed transport
            writer.transport.abort()
    await app.drain(notice=0, grace=1)


@pytest.fixture
def cluster():
    embedded = Embedded()
    fill(embedded)
    return embedded
