"""Strategies by pod and Namespace, and as many pods on a node as may be, over the embedded store."""

from allocator.decisions import PlacementRules, placement_of
from allocator.strategies import UnknownStrategy, read_placement
from cluster import resources
from cluster.patch import Merge
from tests.allocator.service.sidecar import claim, fleet, loaded, pod, running, until
from tests.objects import namespace

KEY = "drawbridge.dev/strategy"


def annotated_namespace(**annotations):
    return namespace(annotations={KEY: annotations["strategy"]} if annotations else {})


def placed_pod(name, strategy, *claims):
    return pod(name, *claims, annotations={KEY: strategy})


async def scores(one, name):
    _, found = await one.plugin("prefilter", {"pod": await one.pod(name)})
    return {node["name"]: node["score"] for node in found["nodes"]}


async def test_pod_namespace_and_configuration_say_how_a_pod_is_placed():
    claims = [claim(name) for name in ("held", "a", "b")]
    pods = [pod("first", "held"), pod("plain", "a"), placed_pod("own", "LowLoadFirst", "b")]
    cluster = loaded(*fleet(2, 2), annotated_namespace(), *claims, *pods)
    async with running(cluster, rules=PlacementRules(read_placement("CompactFirst"))) as one:
        await one.place("first", "n0")
        compact, spread = {"n0": 100, "n1": 50}, {"n0": 0, "n1": 50}
        assert (await scores(one, "plain"), await scores(one, "own")) == (compact, spread)
        asked = {"metadata": {"annotations": {KEY: "LowLoadFirst"}}}
        await cluster.patch(resources.NAMESPACES, "default", Merge(asked))
        await until(lambda: one.bridge.knowledge.namespaces.objects["", "default"].metadata.annotations == {KEY: "LowLoadFirst"})  # fmt: skip
        assert await scores(one, "plain") == spread


async def test_an_unknown_placement_strategy_keeps_a_pod_waiting_until_it_is_fixed():
    cluster = loaded(*fleet(), annotated_namespace(strategy="best"), claim("a"), pod("p", "a"))
    async with running(cluster) as one:
        _, found = await one.plugin("prefilter", {"pod": await one.pod("p")})
        assert found["verdict"] == "waiting"
        assert "of Namespace default: there is no strategy 'best'; there are CompactFirst" in found["message"]
        seq = one.bridge.requeue_events.seq
        await cluster.patch(resources.NAMESPACES, "default", Merge({"metadata": {"annotations": {KEY: "topology"}}}))
        await until(lambda: one.bridge.requeue_events.seq > seq)
        assert (await one.bridge.requeue_events.after(seq, 0)).pods == ("default/p",)
        assert (await one.place("p"))[0] == 200


async def asked(one, name, *nodes):
    """Return the scores of nodes that the extender answers after a filter call."""
    await one.ask("/extender/filter", {"Pod": await one.pod(name), "NodeNames": ["n0", "n1", "n2"]})
    return (await one.ask("/extender/prioritize", {"Pod": await one.pod(name), "NodeNames": nodes}))[1]


async def test_a_stock_scheduler_is_told_a_score_of_each_node_and_where_they_are_alike_that_none_is_better():
    """A node without a score is not drawn by lot where several are as good: pods that come at once would all go to the first."""
    pods = [pod("first", "held"), placed_pod("p", "CompactFirst", "a"), pod("plain", "b")]
    cluster = loaded(*fleet(3, 2), *map(claim, ("held", "a", "b")), *pods)
    equal = [{"Host": "n0", "Score": 0}, {"Host": "n1", "Score": 0}]
    async with running(cluster) as one:
        assert await asked(one, "p", "n0", "n1") == equal
        await one.place("first", "n1")
        assert await asked(one, "p", "n0", "n1") == [{"Host": "n0", "Score": 5}, {"Host": "n1", "Score": 10}]
        assert await asked(one, "plain", "n0", "n1") == equal
        assert await asked(one, "p") == []
        await one.place("plain", "n0")
        await one.place("p", "n2")
        assert await asked(one, "p", "n0", "n1") == equal


async def annotate(one, name, text):
    """Say another strategy on a pod, and wait until the service knows."""
    await one.cluster.patch(resources.PODS, name, Merge({"metadata": {"annotations": {KEY: text}}}), "default")
    await until(lambda: one.bridge.pods.find(f"pod-{name}").metadata.annotations[KEY] == text)


async def test_a_strategy_that_changes_between_two_questions_holds_from_the_next_one_on_and_takes_nothing_back():
    """The pod that a scheduler sends along may be older than what is known of it."""
    cluster = loaded(
        *fleet(2, 2), claim("held"), claim("a"), pod("first", "held"), placed_pod("p", "CompactFirst", "a")
    )
    async with running(cluster) as one:
        await one.place("first", "n0")
        before = await one.pod("p")
        _, found = await one.plugin("prefilter", {"pod": before})
        assert {node["name"]: node["score"] for node in found["nodes"]} == {"n0": 100, "n1": 50}
        await annotate(one, "p", "LowLoadFirst")
        _, found = await one.plugin("prefilter", {"pod": before})
        assert {node["name"]: node["score"] for node in found["nodes"]} == {"n0": 0, "n1": 50}
        await annotate(one, "p", "best")
        asked = {"token": found["token"], "node": "n0"}
        status, refused = await one.plugin("reserve", asked)
        assert (status, "there is no strategy 'best'; there are CompactFirst" in refused["error"]) == (409, True)
        seq = one.bridge.requeue_events.seq
        assert (await one.plugin("prefilter", {"pod": before}))[1]["verdict"] == "waiting"
        await annotate(one, "p", "CompactFirst")
        await until(lambda: one.bridge.requeue_events.seq > seq)
        asked["token"] = (await one.plugin("prefilter", {"pod": await one.pod("p")}))[1]["token"]
        _, reserved = await one.plugin("reserve", asked)
        await annotate(one, "p", "best")
        assert await one.plugin("reserve", asked) == (200, reserved)  # what is held is held
        assert (await one.plugin("commit", {"reservation": reserved["reservation"]}))[1]["committed"]
        assert await one.held("a") == ["n0/gpu-1"]


async def test_no_more_pods_than_may_be_on_a_node_are_put_there_and_the_next_comes_when_one_goes():
    names = ("p", "q", "r")
    cluster = loaded(*fleet(2, 4), *(claim(name) for name in names), *(pod(name, name) for name in names))
    async with running(cluster, rules=PlacementRules(most_pods=1)) as one:
        asked = {name: (await one.plugin("prefilter", {"pod": await one.pod(name)}))[1] for name in names}
        assert (await one.place("p", "n0"))[0] == 200
        status, refused = await one.plugin("reserve", {"token": asked["q"]["token"], "node": "n0"})
        assert (status, refused["error"]) == (409, "the node has as many pods with devices as it may: 1 of 1")
        assert (await one.place("q"))[0] == 200
        _, found = await one.plugin("prefilter", {"pod": await one.pod("r")})
        assert (found["verdict"], found["nodes"]) == ("full", [])
        question = {"token": asked["r"]["token"], "node": "n0"}
        assert (await one.plugin("filter", question))[1]["fits"] is False
        assert (await one.plugin("filter", question | {"remove": [await one.pod("p")]}))[1]["fits"] is True
        seq = one.bridge.requeue_events.seq
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await until(lambda: "default/r" in one.bridge.requeue_events.since(seq).pods)
        assert list(await scores(one, "r")) == ["n0"]


async def test_rules_for_a_namespace_hold_where_neither_pod_nor_namespace_says_anything():
    claims = [claim(name) for name in ("held", "a", "b")]
    pods = [pod("first", "held"), pod("plain", "a"), placed_pod("own", "LowLoadFirst", "b")]
    rules = PlacementRules(
        read_placement("LowLoadFirst"), {"default": read_placement("CompactFirst"), "other": read_placement("topology")}
    )
    async with running(loaded(*fleet(2, 2), *claims, *pods), rules=rules) as one:
        await one.place("first", "n0")
        assert await scores(one, "plain") == {"n0": 100, "n1": 50}
        assert await scores(one, "own") == {"n0": 0, "n1": 50}


async def test_other_rules_hold_at_once_and_pods_refused_by_the_old_ones_are_tried_again():
    cluster = loaded(*fleet(1, 4), claim("p"), claim("q"), pod("p", "p"), pod("q", "q"))
    async with running(cluster, rules=PlacementRules(most_pods=1)) as one:
        assert (await one.place("p", "n0"))[0] == 200
        _, refused = await one.plugin("prefilter", {"pod": await one.pod("q")})
        assert refused["nodes"] == []
        seq = one.bridge.requeue_events.seq
        one.service.place_by(PlacementRules(most_pods=1))
        assert one.bridge.requeue_events.seq == seq
        one.service.place_by(PlacementRules(most_pods=2))
        assert (await one.bridge.requeue_events.after(seq, 0)).pods == ("default/q",)
        assert (await one.place("q", "n0"))[0] == 200


async def test_a_pod_that_the_old_rules_kept_waiting_is_tried_again(monkeypatch):
    def waiting_for_room(pod, namespace, rules):
        if rules.most_pods == 1:
            raise UnknownStrategy("not by these rules")
        return placement_of(pod, namespace, rules)

    monkeypatch.setattr("allocator.service.pending_pods.placement_of", waiting_for_room)
    cluster = loaded(*fleet(1, 4), claim("p"), pod("p", "p"))
    async with running(cluster, rules=PlacementRules(most_pods=1)) as one:
        _, found = await one.plugin("prefilter", {"pod": await one.pod("p")})
        assert (found["verdict"], found["message"]) == ("waiting", "not by these rules")
        seq = one.bridge.requeue_events.seq
        one.service.place_by(PlacementRules(most_pods=2))
        assert (await one.bridge.requeue_events.after(seq, 0)).pods == ("default/p",)
