"""An HTTP server in place of the allocator. A test chooses its answers: right, late, wrong or missing."""

import asyncio
import contextlib
import json

from aiohttp import web

from tests.node.audit.snapshots import reservations_answer

ANSWER = json.dumps(reservations_answer()).encode()


class Allocator:
    """The server. `handler` returns the answer to a request, or never returns; `requests` lists the requests."""

    def __init__(self, handler=None):
        self.handler = handler or (lambda _: web.Response(body=ANSWER))
        self.requests = []

    async def handle(self, request):
        self.requests.append(request)
        response = self.handler(request)
        return await response if asyncio.iscoroutine(response) else response

    @contextlib.asynccontextmanager
    async def open(self, context=None):
        runner = web.ServerRunner(web.Server(self.handle), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        _, port = runner.addresses[0]
        try:
            yield f"{'https' if context else 'http'}://localhost:{port}"
        finally:
            await runner.cleanup()
