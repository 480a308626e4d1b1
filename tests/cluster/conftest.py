"""Fixtures of the conformance suite, whose tests run on two clusters: the embedded store and a real control plane."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest

from cluster import Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import ApiError, NotFound
from cluster.protocol import Cluster
from cluster.resources import NAMESPACES, PODS, RESOURCE_CLAIMS
from tests.limits import PATIENCE

T = TypeVar("T")
_namespace_numbers = itertools.count(1)


@pytest.fixture(params=["embedded", pytest.param("kubernetes", marks=pytest.mark.real)])
def connect(request: pytest.FixtureRequest) -> Callable[[], Cluster]:
    """Return a function that connects to a cluster. The import and the start of a control plane end before an event loop runs."""
    if request.param == "embedded":
        return Embedded
    from cluster.kubernetes import Kubernetes

    kubeconfig = str(request.getfixturevalue("control_plane").kubeconfig)
    return lambda: Kubernetes.connect(kubeconfig=kubeconfig)


@pytest.fixture
async def cluster(connect: Callable[[], Cluster]) -> AsyncIterator[Cluster]:
    """Yield a connection to a cluster: each test runs once with the embedded store, and once with a real control plane."""
    connected_cluster = connect()
    yield connected_cluster
    await connected_cluster.close()


@pytest.fixture
async def namespace(cluster: Cluster) -> AsyncIterator[str]:
    """A namespace of the test's own, which is emptied after the test."""
    name = f"conformance-{next(_namespace_numbers)}"
    await cluster.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    await delete_pods_and_claims(cluster, name)


async def delete_pods_and_claims(cluster: Cluster, namespace: str) -> None:
    """Delete the pods and claims of a namespace, also those with finalizers.

    The namespace stays: the server needs a hundred requests to delete it, and a hundred more for each retry while a finalizer remains.
    """
    for resource in (PODS, RESOURCE_CLAIMS):
        for item in (await cluster.list(resource.raw, namespace)).items:
            name = item["metadata"]["name"]
            with contextlib.suppress(NotFound):
                if item["metadata"].get("finalizers"):
                    await cluster.patch(resource.raw, name, Merge({"metadata": {"finalizers": None}}), namespace)
                await cluster.delete(resource.raw, name, namespace, grace=0)


async def eventually(look: Callable[[], Awaitable[T]], seconds: float = PATIENCE) -> T:
    """Call `look` until its result is true, and return that result. On timeout, the message has the last result or error."""
    last_result: object = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                try:
                    if last_result := await look():
                        return last_result
                except ApiError as error:
                    last_result = error
                await asyncio.sleep(0.02)
    raise AssertionError(f"no true result within {seconds} s, the last one was: {last_result}")
