"""Placement on the embedded store: strategies of pods and namespaces, and the limit of pods on a node."""

from allocator.decisions import PlacementRules
from allocator.strategies import read_placement
from cluster import resources
from cluster.patch import Merge
from tests.allocator.service.sidecar import claim, fleet, loaded, pod, pods_with_claims, running, until
from tests.objects import namespace

STRATEGY_ANNOTATION = "drawbridge.dev/strategy"


def default_namespace(strategy=None):
    return namespace(annotations={STRATEGY_ANNOTATION: strategy} if strategy else {})


def pod_with_strategy(name, strategy, *claims):
    return pod(name, *claims, annotations={STRATEGY_ANNOTATION: strategy})


def three_pods():
    """Return a pod that the tests place first, one without and one with a strategy of its own, and their claims."""
    pods = [pod("first", "held"), pod("plain", "a"), pod_with_strategy("own", "LowLoadFirst", "b")]
    return [*map(claim, ("held", "a", "b")), *pods]


def scores_in(answer):
    return {node["name"]: node["score"] for node in answer["nodes"]}


async def scores(sidecar, name):
    """Return the score of each node that fits a pod."""
    return scores_in(await sidecar.prefilter(name))


async def test_annotations_of_pods_and_namespaces_override_the_configured_strategy():
    cluster = loaded(*fleet(2, 2), default_namespace(), *three_pods())
    async with running(cluster, rules=PlacementRules(read_placement("CompactFirst"))) as sidecar:
        await sidecar.place("first", "n0")
        compact, spread = {"n0": 100, "n1": 50}, {"n0": 0, "n1": 50}
        assert (await scores(sidecar, "plain"), await scores(sidecar, "own")) == (compact, spread)
        annotations = {"metadata": {"annotations": {STRATEGY_ANNOTATION: "LowLoadFirst"}}}
        await cluster.patch(resources.NAMESPACES, "default", Merge(annotations))
        await until(lambda: sidecar.service.knowledge.namespaces.objects["", "default"].metadata.annotations == {STRATEGY_ANNOTATION: "LowLoadFirst"})  # fmt: skip
        assert await scores(sidecar, "plain") == spread


async def test_a_pod_waits_while_its_namespaces_strategy_is_unknown():
    cluster = loaded(*fleet(), default_namespace("best"), claim("a"), pod("p", "a"))
    async with running(cluster, tick=3600.0) as sidecar:  # no tick wakes the pod
        answer = await sidecar.prefilter("p")
        assert answer["verdict"] == "waiting"
        assert "of Namespace default: there is no strategy 'best'; the strategies are CompactFirst" in answer["message"]
        seq = sidecar.service.requeue_events.seq
        await cluster.patch(
            resources.NAMESPACES, "default", Merge({"metadata": {"annotations": {STRATEGY_ANNOTATION: "topology"}}})
        )
        await until(lambda: sidecar.service.requeue_events.seq > seq)
        assert (await sidecar.service.requeue_events.after(seq, 0)).pods == ("default/p",)
        assert (await sidecar.place("p"))[0] == 200


async def annotate(sidecar, name, strategy):
    """Annotate a pod with a strategy, and wait until the service has seen the annotation."""
    await sidecar.cluster.patch(
        resources.PODS, name, Merge({"metadata": {"annotations": {STRATEGY_ANNOTATION: strategy}}}), "default"
    )
    await sidecar.until_pod(name, lambda pod: pod.metadata.annotations[STRATEGY_ANNOTATION] == strategy)


async def test_a_changed_strategy_applies_from_the_next_call_on():
    """The pod that a scheduler sends may be older than the allocator's copy. A reservation that exists already stays."""
    cluster = loaded(
        *fleet(2, 2), claim("held"), claim("a"), pod("first", "held"), pod_with_strategy("p", "CompactFirst", "a")
    )
    async with running(cluster) as sidecar:
        await sidecar.place("first", "n0")
        outdated_pod = await sidecar.pod("p")
        _, answer = await sidecar.plugin("prefilter", {"pod": outdated_pod})
        assert scores_in(answer) == {"n0": 100, "n1": 50}
        await annotate(sidecar, "p", "LowLoadFirst")
        _, answer = await sidecar.plugin("prefilter", {"pod": outdated_pod})
        assert scores_in(answer) == {"n0": 0, "n1": 50}
        await annotate(sidecar, "p", "best")
        body = {"token": answer["token"], "node": "n0"}
        status, refusal = await sidecar.plugin("reserve", body)
        assert (status, "there is no strategy 'best'" in refusal["error"]) == (409, True)
        seq = sidecar.service.requeue_events.seq
        assert (await sidecar.plugin("prefilter", {"pod": outdated_pod}))[1]["verdict"] == "waiting"
        await annotate(sidecar, "p", "CompactFirst")
        await until(lambda: sidecar.service.requeue_events.seq > seq)
        body["token"] = (await sidecar.prefilter("p"))["token"]
        _, reserved = await sidecar.plugin("reserve", body)
        await annotate(sidecar, "p", "best")
        assert await sidecar.plugin("reserve", body) == (200, reserved)  # the reservation of the first call
        assert (await sidecar.plugin("commit", reserved))[1]["committed"]
        assert await sidecar.allocated_devices("a") == ["n0/gpu-1"]


async def test_a_node_never_exceeds_its_limit_of_pods():
    """A waiting pod is requeued when a pod of the node is deleted."""
    names = ("p", "q", "r")
    cluster = loaded(*fleet(2, 4), *pods_with_claims(*names))
    async with running(cluster, rules=PlacementRules(most_pods=1)) as sidecar:
        answers = {name: await sidecar.prefilter(name) for name in names}
        assert (await sidecar.place("p", "n0"))[0] == 200
        status, refusal = await sidecar.plugin("reserve", {"token": answers["q"]["token"], "node": "n0"})
        assert (status, refusal["error"]) == (409, "node(s) reached the limit of pods with devices: 1 of 1")
        assert (await sidecar.place("q"))[0] == 200
        answer = await sidecar.prefilter("r")
        assert (answer["verdict"], answer["nodes"]) == ("full", [])
        question = {"token": answers["r"]["token"], "node": "n0"}
        assert (await sidecar.plugin("filter", question))[1]["fits"] is False
        assert (await sidecar.plugin("filter", question | {"remove": [await sidecar.pod("p")]}))[1]["fits"] is True
        seq = sidecar.service.requeue_events.seq
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await until(lambda: "default/r" in sidecar.service.requeue_events.since(seq).pods)
        assert list(await scores(sidecar, "r")) == ["n0"]


async def test_new_rules_apply_at_once_and_requeue_refused_pods():
    cluster = loaded(*fleet(1, 4), *pods_with_claims("p", "q"))
    async with running(cluster, rules=PlacementRules(most_pods=1)) as sidecar:
        assert (await sidecar.place("p", "n0"))[0] == 200
        assert (await sidecar.prefilter("q"))["nodes"] == []
        seq = sidecar.service.requeue_events.seq
        sidecar.service.pods.place_by(PlacementRules(most_pods=1))
        assert sidecar.service.requeue_events.seq == seq
        sidecar.service.pods.place_by(PlacementRules(most_pods=2))
        assert (await sidecar.service.requeue_events.after(seq, 0)).pods == ("default/q",)
        assert (await sidecar.place("q", "n0"))[0] == 200
