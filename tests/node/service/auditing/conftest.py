"""A cluster with a node and its slices, a kubelet, and the audit agent."""

import pytest

from cluster.resources import RESOURCE_SLICES
from node.service import NodePaths
from tests.node.audit.snapshots import slices
from tests.node.machines import NODE
from tests.node.service.auditing.agents import watching_agent
from tests.node.service.fake_kubelet import PodResources


@pytest.fixture
def root(folder):
    return folder


@pytest.fixture
async def kubelet(root):
    server = PodResources(root)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def cluster(cluster):
    for slice_ in slices():
        await cluster.create(RESOURCE_SLICES, slice_)
    return cluster


@pytest.fixture
def paths(root):
    (root / "cdi").mkdir()
    (root / "plugins").mkdir()
    return NodePaths(NODE, str(root), str(root / "cdi"))


@pytest.fixture
async def agent(cluster, kubelet, paths):
    async with watching_agent(cluster, paths) as agent:
        yield agent
