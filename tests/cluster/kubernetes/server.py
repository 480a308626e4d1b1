"""An API server whose answers a test sets, a client of this server, and bodies of answers."""

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
    """Start an API server that calls `answer` for each request; yield a client of the server, and the server.

    The client ends a watch that is silent for `idle` seconds. `user` are the fields of the kubeconfig's user.
    """
    async with asyncio.timeout(PATIENCE), peer(answer) as api_server:
        path = tmp_path / "kubeconfig"
        path.write_text(kubeconfig(api_server.url, **user))
        client = Kubernetes.connect(kubeconfig=str(path))
        client._idle = idle
        try:
            yield client, api_server
        finally:
            await client.close()


def encoded_failure(code, reason, **fields):
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "because"} | fields
    return msgspec.json.encode(body)


def claim_of_version(name, version):
    return claim(name, metadata={"namespace": "ns", "resourceVersion": str(version)})


def encoded_event(type_, obj):
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


async def follow_watch(client, **options):
    """Follow a watch of claims until it ends; return the resourceVersions of its events and the error that ended it, or None."""
    versions, error = [], None
    try:
        async with client.watch(RESOURCE_CLAIMS, resource_version="1", **options) as events:
            async for event in events:
                versions.append(event.resource_version)  # noqa: PERF401  the events before an error must be kept
    except ApiError as api_error:
        error = api_error
    return versions, error


EMPTY_LIST = b'{"metadata":{},"items":[]}'


def write_kubeconfig(folder, url):
    """Write a kubeconfig for the server at this URL; return the path of the kubeconfig."""
    path = folder / "kubeconfig"
    path.write_text(kubeconfig(url))
    return str(path)
