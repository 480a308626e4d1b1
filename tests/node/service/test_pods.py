"""Pods are read with the account of the node, or with that of the agent if the API server refuses impersonation."""

import pytest

from cluster.embedded import Embedded
from cluster.errors import Forbidden, Unavailable
from cluster.resources import NAMESPACES, PODS
from node.service.auditing.watcher import AsNode


class Refusing:
    """A cluster that refuses all reads."""

    def __init__(self, error):
        self.error = error

    async def list(self, *_, **__):
        raise self.error

    def watch(self, *_, **__):
        return self

    async def __aenter__(self):
        raise self.error

    async def __aexit__(self, *_):
        pass


async def cluster_with(name):
    cluster = Embedded()
    await cluster.create(NAMESPACES, {"metadata": {"name": "ns"}})
    await cluster.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}}, "ns")
    return cluster


async def read_pods(reader):
    """Return the pods of a list, and the first pod of a watch."""
    page = await reader.list(PODS, fields="spec.nodeName=")
    async with reader.watch(PODS, initial=True, timeout=1) as events:
        first = await anext(events)
    return [item.metadata.name for item in page.items], first.object.metadata.name


async def test_an_agent_reads_as_its_node_if_permitted():
    reader = AsNode(await cluster_with("p"), Refusing(AssertionError("asked as the agent")))
    assert await read_pods(reader) == (["p"], "p")


async def test_an_agent_reads_as_itself_without_permission_to_impersonate():
    reader = AsNode(Refusing(Forbidden("cannot impersonate")), await cluster_with("p"))
    assert await read_pods(reader) == (["p"], "p")


async def list_pods(reader):
    await reader.list(PODS)


async def watch_pods(reader):
    async with reader.watch(PODS):
        pass


@pytest.mark.parametrize("read", [list_pods, watch_pods])
async def test_an_outage_causes_no_fallback_to_the_agents_account(read):
    """An agent uses its own account only after Forbidden. If both accounts are refused, the agent raises the error."""
    refused_reader = AsNode(Refusing(Forbidden("as the node")), Refusing(Forbidden("as the agent")))
    with pytest.raises(Forbidden, match="as the agent"):
        await read(refused_reader)
    failing_reader = AsNode(Refusing(Unavailable("away")), Refusing(AssertionError("asked as the agent")))
    with pytest.raises(Unavailable):
        await read(failing_reader)
