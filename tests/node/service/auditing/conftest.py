"""A cluster with a node and its slices, a kubelet, and the audit agent."""

import tempfile
from pathlib import Path

import pytest

from cluster.embedded import Embedded
from cluster.resources import NAMESPACES, NODES, RESOURCE_SLICES
from dra.objects import Node, ObjectMeta
from node.service import NodePaths
from tests.node.audit.snapshots import slices
from tests.node.machines import NODE
from tests.node.service.auditing.agents import watching_agent
from tests.node.service.fake_kubelet import PodResources


@pytest.fixture
def root():
    """Return a folder with a short path, for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
async def kubelet(root):
    server = PodResources(root)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def cluster():
    embedded = Embedded()
    await embedded.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
    await embedded.create(NAMESPACES, {"metadata": {"name": "ns"}})
    for slice_ in slices():
        await embedded.create(RESOURCE_SLICES, slice_)
    yield embedded
    await embedded.close()


@pytest.fixture
def paths(root):
    (root / "cdi").mkdir()
    (root / "plugins").mkdir()
    return NodePaths(NODE, str(root), str(root / "cdi"))


@pytest.fixture
async def agent(cluster, kubelet, paths):
    async with watching_agent(cluster, paths) as agent:
        yield agent
