"""A cluster with the node on which the driver and the adapter run, and a kubelet that calls the driver."""

import tempfile
from pathlib import Path

import pytest

from cluster.embedded import Embedded
from cluster.resources import NAMESPACES, NODES
from dra.objects import Node, ObjectMeta
from tests.node.machines import NODE
from tests.node.service.fake_kubelet import Kubelet


@pytest.fixture
async def cluster():
    embedded = Embedded()
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
