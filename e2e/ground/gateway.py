"""What a cluster has Service addresses for: the way from a node's pods to the API server, which listens on loopback, and to the pods behind a Service.

`python -m e2e.ground.gateway KUBECONFIG ADDRESS [PORT=NAMESPACE/SERVICE ...]` listens on an address of the pods' network until it is ended. What comes to
the API server's port is passed on to it, and what comes to the others to a ready pod of that Service, as its EndpointSlices are at that moment.
"""

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from e2e.actors.client import Client

FREEBIND = 15  # IP_FREEBIND: the address is there as soon as the first pod is
CHUNK = 64 * 1024
Find = Callable[[], Awaitable[tuple[str, int] | None]]


async def serve(address: str, port: int, find: Find) -> None:
    """Pass on what comes to a port to the server that is found for it."""

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            found = await find()
            if found is not None:
                answers, questions = await asyncio.open_connection(*found)
                await asyncio.gather(copy(reader, questions), copy(answers, writer))
        writer.close()

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.IPPROTO_IP, FREEBIND, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((address, port))
    server = await asyncio.start_server(lead, sock=listening)
    await server.serve_forever()


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while content := await source.read(CHUNK):
            target.write(content)
            await target.drain()
    finally:
        target.close()


def ready_pod(client: Client, service: str) -> tuple[str, int] | None:
    """Look for a ready pod of a Service with one port, and the port that it has there."""
    namespace, _, name = service.partition("/")
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    for one in client.get(path, labelSelector=f"kubernetes.io/service-name={name}")["items"]:
        for endpoint in one["endpoints"] or ():
            if endpoint["conditions"]["ready"]:
                return endpoint["addresses"][0], one["ports"][0]["port"]
    return None


async def main(kubeconfig: bytes, address: str, *services: str) -> None:
    told = json.loads(kubeconfig)
    cluster, user = told["clusters"][0]["cluster"], told["users"][0]["user"]
    client = Client(cluster["server"], user["token"], Path(cluster["certificate-authority"]))
    server = urlsplit(cluster["server"])
    host, port = str(server.hostname), int(server.port or 0)

    async def api_server() -> tuple[str, int]:
        return host, port

    async with asyncio.TaskGroup() as group:
        group.create_task(serve(address, port, api_server))
        for one in services:
            number, _, service = one.partition("=")
            find = partial(asyncio.to_thread, ready_pod, client, service)
            group.create_task(serve(address, int(number), find))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).read_bytes(), *sys.argv[2:]))
