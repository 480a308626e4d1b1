"""The two clusters that the conformance suite holds to one behaviour, and what its tests share."""

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
_numbers = itertools.count(1)


@pytest.fixture(params=["embedded", pytest.param("kubernetes", marks=pytest.mark.real)])
def connect(request: pytest.FixtureRequest) -> Callable[[], Cluster]:
    """How to reach a cluster. What takes long, importing the client and starting the real one, is over before a loop runs."""
    if request.param == "embedded":
        return Embedded
    from cluster.kubernetes import Kubernetes

    kubeconfig = str(request.getfixturevalue("control_plane").kubeconfig)
    return lambda: Kubernetes.connect(kubeconfig=kubeconfig)


@pytest.fixture
async def cluster(connect: Callable[[], Cluster]) -> AsyncIterator[Cluster]:
    """A cluster: once in memory, once a real control plane."""
    made = connect()
    yield made
    await made.close()


@pytest.fixture
async def home(cluster: Cluster) -> AsyncIterator[str]:
    """A namespace of the test's own; nothing in it has an effect afterwards."""
    name = f"conformance-{next(_numbers)}"
    await cluster.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    await empty(cluster, name)


async def empty(cluster: Cluster, namespace: str) -> None:
    """Let pods and claims go, whatever holds them. The namespace stays: for each that goes, a server makes a hundred requests of itself, and as many at each new try while a finalizer holds something."""
    for resource in (PODS, RESOURCE_CLAIMS):
        for item in (await cluster.list(resource.raw, namespace)).items:
            name = item["metadata"]["name"]
            with contextlib.suppress(NotFound):
                if item["metadata"].get("finalizers"):
                    await cluster.patch(resource.raw, name, Merge({"metadata": {"finalizers": None}}), namespace)
                await cluster.delete(resource.raw, name, namespace, grace=0)


async def eventually(look: Callable[[], Awaitable[T]], seconds: float = PATIENCE) -> T:
    """Look until something true is seen; the last answer or error is the failure's message."""
    last: object = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                try:
                    if last := await look():
                        return last
                except ApiError as error:
                    last = error
                await asyncio.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {last}")
