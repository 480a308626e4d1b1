"""A cluster with the node on which the driver and the adapter run, and a kubelet that calls the driver."""

import tempfile
from pathlib import Path

import pytest

from cluster import Apply, Merge
from cluster.embedded import Embedded
from cluster.resources import NAMESPACES, NODES
from dra.objects import Node, ObjectMeta
from node.audit import CONDITION
from tests.node.machines import NODE
from tests.node.service.fake_kubelet import Kubelet


class NodeCluster(Embedded):
    """The embedded store, in which the agent's empty apply removes the agent's condition, as on an API server."""

    async def patch(self, resource, name, patch, *arguments, **options):
        if isinstance(patch, Apply) and patch.body.get("status") == {}:
            before = (await self.get(resource.raw, name)).get("status", {}).get("conditions", ())
            patch = Merge({"status": {"conditions": [item for item in before if item["type"] != CONDITION]}})
        return await super().patch(resource, name, patch, *arguments, **options)


@pytest.fixture
async def cluster():
    embedded = NodeCluster()
    await embedded.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
    await embedded.create(NAMESPACES, {"metadata": {"name": "ns"}})
    yield embedded
    await embedded.close()


@pytest.fixture
def folder():
    """Return a folder with a short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def kubelet(folder):
    return Kubelet(folder)
