"""A plain loopback port that plays API server for pods: POST a manifest to /pods, read what became of it.

For people and `curl`; text in, text out. Only what listens on loopback may stand behind it: nobody is asked who he is.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from cli.playground import story as fates
from cli.playground.way import end_of, pod_of, seen
from cluster import manifests, resources
from cluster.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from cli.playground.playground import Playground
    from cli.playground.story import Fate

SECONDS = 10.0
WIDTH = 110
HELP = """\
POST /pods    a manifest (YAML or JSON) with pods or workloads, as `curl --data-binary @pod.yaml` sends it: pushed through the gate
GET  /pods    what became of every pod
"""


class Door:
    """Serves a playground."""

    def __init__(self, here: Playground) -> None:
        self._here = here

    @asynccontextmanager
    async def open(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Listen; give the URL."""
        app = web.Application(client_max_size=4 << 20)
        app.add_routes([web.get("/", self._help), web.get("/pods", self._list), web.post("/pods", self._push)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            host_, port_ = runner.addresses[0][:2]
            yield f"http://{host_}:{port_}"
        finally:
            await runner.cleanup()

    async def _help(self, request: web.Request) -> web.Response:
        del request
        return web.Response(text=HELP)

    async def _push(self, request: web.Request) -> web.Response:
        try:
            documents = manifests.parse(await request.read(), "your manifest")
        except manifests.ManifestError as error:
            return web.Response(status=400, text=f"{error}\n")
        pods = [pod for document in documents if (pod := pod_of(document.object))]
        if not pods:
            return web.Response(status=400, text="there is no pod in it, and no workload that makes pods\n")
        try:
            told = [await end_of(self._here, pod, SECONDS) for pod in pods]
        except ApiError as error:
            return web.Response(status=error.status or 500, text=f"{error}\n")
        return _text(told)

    async def _list(self, request: web.Request) -> web.Response:
        del request
        page = await self._here.cluster.list(resources.PODS, limit=0)
        return _text([await seen(self._here, pod) for pod in page.items])


def _text(told: Iterable[Fate]) -> web.Response:
    return web.Response(text="\n".join(fates.lines(list(told), width=WIDTH, colour=False)))
