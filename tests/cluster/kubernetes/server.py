"""An API server whose answers a test sets, and a client that is connected to this server."""

import asyncio
from contextlib import asynccontextmanager

import msgspec

from cluster.errors import ApiError
from cluster.kubernetes.client import Kubernetes
from cluster.resources import RESOURCE_CLAIMS
from tests.cluster.objects import claim
from tests.cluster.peer import kubeconfig, peer
from tests.limits import PATIENCE


@asynccontextmanager
async def connected(answer, tmp_path, *, idle=5.0, **user):
    """Start a peer with this function for its answers; yield a client of the peer, and the peer."""
    async with asyncio.timeout(PATIENCE), peer(answer) as made:
        path = tmp_path / "kubeconfig"
        path.write_text(kubeconfig(made.url, **user))
        reached = Kubernetes.connect(kubeconfig=str(path))
        reached._idle = idle
        try:
            yield reached, made
        finally:
            await reached.close()


def failure(code, reason, **more):
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "because"} | more
    return msgspec.json.encode(body)


def versioned(name, version):
    return claim(name, metadata={"namespace": "ns", "resourceVersion": str(version)})


def event(type_, obj):
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


async def watched(reached, heard=None, **options):
    """Follow a watch until it ends; return its changes and the error that ended it. Each change sets `heard`."""
    seen, error = [], None
    try:
        async with reached.watch(RESOURCE_CLAIMS, resource_version="1", **options) as events:
            async for event in events:
                seen.append(event.resource_version)
                if heard is not None:
                    heard.set()
    except ApiError as caught:
        error = caught
    return seen, error


NOTHING = b'{"metadata":{},"items":[]}'


def at(folder, server):
    """Write a kubeconfig for a server; return its path."""
    path = folder / "kubeconfig"
    path.write_text(kubeconfig(server))
    return str(path)
