"""A cluster with the node on which the driver and the adapter run."""

import pytest

from cluster.embedded import Embedded
from cluster.resources import NAMESPACES, NODES
from dra.objects import Node, ObjectMeta
from tests.node.machines import NODE


@pytest.fixture
async def cluster():
    made = Embedded()
    await made.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
    await made.create(NAMESPACES, {"metadata": {"name": "ns"}})
    yield made
    await made.close()
