"""The extender's calls, on the embedded store: filter, prioritize and bind for a stock (unmodified) scheduler."""

import asyncio

from cluster import resources
from tests.allocator.service.sidecar import claim, fleet, loaded, node, pod, running


async def test_the_extender_refuses_group_members_that_request_devices():
    group = {"podGroupName": "trio"}
    cluster = loaded(*fleet(), claim("a"), pod("p", "a", schedulingGroup=group), pod("plain", schedulingGroup=group))
    async with running(cluster) as sidecar:
        question = {"Pod": await sidecar.pod("p"), "NodeNames": ["n0", "n1"]}
        _, answer = await sidecar.ask("/extender/filter", question)
        assert (answer["NodeNames"], answer["Error"], answer["FailedAndUnresolvableNodes"].keys()) == (
            [],
            "",
            {"n0", "n1"},
        )
        [message] = set(answer["FailedAndUnresolvableNodes"].values())
        assert "PodGroup trio" in message
        assert "plugin" in message
        _, answer = await sidecar.ask("/extender/filter", question | {"Pod": await sidecar.pod("plain")})
        assert answer["NodeNames"] == ["n0", "n1"]


async def test_surplus_pods_on_a_node_get_conflicts():
    """In the worst order all pods are filtered before any is bound, and all choose the first node. Each device of a node serves one pod."""
    nodes, per_node = 5, 2
    names = [f"p{i}" for i in range(nodes * per_node)]
    cluster = loaded(*fleet(nodes, per_node), *map(claim, names), *(pod(name, name) for name in names))
    async with running(cluster) as sidecar:
        waiting_pods, conflicts, rounds = set(names), 0, 0
        while waiting_pods:
            chosen_nodes = {name: await first_node(sidecar, name, nodes) for name in sorted(waiting_pods)}
            errors = await asyncio.gather(*(bind(sidecar, name, node) for name, node in chosen_nodes.items()))
            bound_pods = {name for name, error in zip(chosen_nodes, errors, strict=True) if not error}
            assert len(bound_pods) == per_node
            assert {error for error in errors if error} <= {"node(s) had no free devices left: another pod took them"}
            conflicts += len(waiting_pods) - per_node
            waiting_pods -= bound_pods
            rounds += 1
        assert rounds == nodes
        devices = [device for name in names for device in await sidecar.allocated_devices(name)]
        assert len(set(devices)) == len(names)
        binds_by_outcome = {outcome: sidecar.service.metrics.registry.get_sample_value("drawbridge_extender_binds_total", {"outcome": outcome}) for outcome in ("bound", "conflict", "failed")}  # fmt: skip
        assert binds_by_outcome == {"bound": len(names), "conflict": conflicts, "failed": None}


async def first_node(sidecar, name, nodes):
    """Call filter with this number of nodes; return the first node that fits."""
    question = {"Pod": await sidecar.pod(name), "NodeNames": [f"n{i}" for i in range(nodes)]}
    _, answer = await sidecar.ask("/extender/filter", question)
    return answer["NodeNames"][0]


async def bind(sidecar, name, node):
    """Bind a pod through the extender; return the error, or "" if there is none."""
    binding = {"PodName": name, "PodNamespace": "default", "PodUID": f"pod-{name}", "Node": node}
    return (await sidecar.ask("/extender/bind", binding))[1]["Error"]


async def test_a_stock_scheduler_places_pods_with_the_extender():
    cluster = loaded(*fleet(), node("cpu"), claim("a"), pod("p", "a"), pod("plain"))
    async with running(cluster) as sidecar:
        names = ["n0", "n1", "cpu"]
        _, answer = await sidecar.ask("/extender/filter", {"Pod": await sidecar.pod("p"), "NodeNames": names})
        assert answer == {"NodeNames": ["n0", "n1"], "FailedAndUnresolvableNodes": {}, "Error": ""}
        _, answer = await sidecar.ask("/extender/filter", {"Pod": await sidecar.pod("p"), "NodeNames": ["cpu"]})
        assert answer["NodeNames"] == []
        assert "cannot serve the claims" in answer["FailedAndUnresolvableNodes"]["cpu"]
        _, scores = await sidecar.ask(
            "/extender/prioritize", {"Pod": await sidecar.pod("p"), "NodeNames": ["n0", "n1"]}
        )
        assert scores == [{"Host": "n0", "Score": 0}, {"Host": "n1", "Score": 0}]
        for name in ("p", "plain"):
            binding = {"PodName": name, "PodNamespace": "default", "PodUID": f"pod-{name}", "Node": "n1"}
            assert await sidecar.ask("/extender/bind", binding) == (200, {"Error": ""})
            assert (await cluster.get(resources.PODS, name, "default")).spec.node_name == "n1"
        assert await sidecar.allocated_devices("a") == ["n1/gpu-0"]
        assert (await sidecar.ask("/extender/preempt", {}))[1] == {"NodeNameToMetaVictims": {}}


async def test_a_failed_binding_releases_the_devices():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as sidecar:
        binding = {"PodName": "p", "PodNamespace": "default", "PodUID": "pod-p", "Node": "nowhere"}
        assert "does not exist" in (await sidecar.ask("/extender/bind", binding))[1]["Error"]
        assert await sidecar.allocated_devices("a") == []
