"""The calls of the scheduler's plugin, on the embedded store: answers, reservations and writes."""

import pytest

from cluster import resources
from cluster.informers import Allotment
from dra.footprint import footprint
from dra.objects import Pod
from dra.wire import convert
from tests.allocator.service.sidecar import DRIVER, claim, device_class, fleet, gpus, loaded, node, pod, running, until
from tests.objects import obj


async def test_placing_a_pod_reserves_devices_and_writes_its_claim():
    cluster = loaded(*fleet(), claim("a"), claim("b", 2), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as sidecar:
        assert await sidecar.place("p") == (200, {"committed": True, "message": ""})
        assert await sidecar.place("q") == (200, {"committed": True, "message": ""})
        devices = [*await sidecar.allocated_devices("a"), *await sidecar.allocated_devices("b")]
        assert len(set(devices)) == 3
        written = await sidecar.claim("a")
        assert written.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
        assert written.status.allocation.allocation_timestamp
        assert [consumer.uid for consumer in written.status.reserved_for] == ["pod-p"]


async def test_a_recreated_pod_inherits_no_reservation():
    """A new pod must not get the state of a deleted pod with the same name."""
    cluster = loaded(*fleet(1, 2), claim("a"), pod("p", "a"))
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200
        await cluster.delete(resources.PODS, "p", "default")
        await cluster.create(resources.RESOURCE_CLAIMS, claim("b"), "default")
        await cluster.create(resources.PODS, pod("p", "b", uid="pod-again"), "default")
        await until(lambda: "pod-p" not in sidecar.service.ledger.state.reservations)
        await until(lambda: sidecar.service.knowledge.stock.claims.get("default/b") is not None)
        assert (await sidecar.place("p"))[0] == 200
        [uid] = sidecar.service.ledger.state.reservations
        assert uid == (await sidecar.pod("p"))["metadata"]["uid"] != "pod-p"
        _, claims = await sidecar.ask("/api/v1/claims")
        assert {row["claim"]: row["pods"] for row in claims["claims"]}["default/b"] == ["p"]
        assert await sidecar.allocated_devices("b")


async def test_reserved_devices_are_not_given_to_another_pod_until_released():
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as sidecar:
        answers = {name: await sidecar.prefilter(name) for name in ("p", "q")}
        assert answers["p"]["verdict"] == answers["q"]["verdict"] == "fits"
        status, reserved = await sidecar.plugin("reserve", {"token": answers["p"]["token"], "node": "n0"})
        assert status == 200
        assert await sidecar.plugin("reserve", {"token": answers["p"]["token"], "node": "n0"}) == (200, reserved)
        status, refusal = await sidecar.plugin("reserve", {"token": answers["q"]["token"], "node": "n0"})
        assert (status, refusal["remedy"]) == (409, "schedule the pod again")
        assert "schedule the pod again" not in refusal["error"]
        answer = await sidecar.prefilter("q")
        assert (answer["verdict"], answer["nodes"]) == ("full", [])
        assert answer["token"], "preemption needs a token for its filter questions"
        assert "in use" in answer["message"]
        for _ in range(2):
            assert await sidecar.plugin("unreserve", reserved) == (200, {})
        assert (await sidecar.prefilter("q"))["verdict"] == "fits"
        assert await sidecar.allocated_devices("a") == []


async def test_the_last_token_is_known_when_other_namespaces_use_the_memory(monkeypatch):
    monkeypatch.setattr("cluster.informers.allotment.FLOOR", 0)
    other = convert(pod("other", namespace="other"), Pod)
    async with running(loaded(*fleet(), claim("a"), pod("p", "a"))) as sidecar:
        allocator = sidecar.service.allocator
        size = footprint(allocator.pods_by_token.pop((await sidecar.prefilter("p"))["token"]))
        allocator._memory = Allotment(size // 3, size // 3)  # the memory of a small pod counts a third
        allocator._remember("other", other)
        assert (await sidecar.reserve("p", "n0"))[0] == 200
        assert [kept.metadata.name for kept in allocator.pods_by_token.values()] == ["p"]


async def test_a_node_rule_also_applies_to_reserved_devices():
    """Both pods get "fits" before either reserves."""
    first_slice, second_slice = gpus("n0", 1), gpus("n0", 1)
    second_slice["metadata"]["name"] = second_slice["spec"]["pool"]["name"] = "other"
    spec = {"driver": DRIVER, "compatibleOnlyWith": "false", "scope": "node"}
    rule = obj("DeviceCompatibility", "alone", "drawbridge.dev/v1alpha1", **spec)
    objects = (claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    cluster = loaded(device_class(), node("n0"), first_slice, second_slice, rule, *objects)
    async with running(cluster) as sidecar:
        answers = {name: await sidecar.prefilter(name) for name in ("p", "q")}
        assert answers["p"]["verdict"] == answers["q"]["verdict"] == "fits"
        status, reserved = await sidecar.plugin("reserve", {"token": answers["p"]["token"], "node": "n0"})
        assert status == 200
        status, refusal = await sidecar.plugin("reserve", {"token": answers["q"]["token"], "node": "n0"})
        assert (status, refusal["remedy"]) == (409, "schedule the pod again")
        assert "schedule the pod again" not in refusal["error"]
        answer = await sidecar.prefilter("q")
        assert (answer["verdict"], "DeviceCompatibility/alone" in answer["message"]) == ("full", True)
        await sidecar.plugin("unreserve", reserved)
        assert (await sidecar.place("q"))[0] == 200


async def test_a_claims_second_pod_fits_only_the_claims_node():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"), pod("q", "a"))
    async with running(cluster) as sidecar:
        await sidecar.place("p", "n1")
        answer = await sidecar.prefilter("q")
        assert [fitting["name"] for fitting in answer["nodes"]] == ["n1"]
        assert (await sidecar.place("q"))[0] == 200
        assert [consumer.uid for consumer in (await sidecar.claim("a")).status.reserved_for] == ["pod-p", "pod-q"]


async def test_prefilter_answers_with_a_verdict_and_names_missing_objects():
    claims = [claim("big", 3), claim("lost", class_name="nowhere")]
    pods = [pod("plain"), pod("never", "big"), pod("early", "later"), pod("classless", "lost")]
    cluster = loaded(*fleet(), *claims, *pods)
    async with running(cluster) as sidecar:
        answers = {name: await sidecar.prefilter(name) for name in ("plain", "never", "early", "classless")}
        assert [answer["verdict"] for answer in answers.values()] == ["skip", "never", "waiting", "waiting"]
        assert "claim later" in answers["early"]["message"]
        assert "DeviceClass nowhere" in answers["classless"]["message"]
        [reason] = answers["never"]["reasons"]
        assert (sorted(reason["nodes"]), reason["count"]) == (["n0", "n1"], 2)


async def test_filter_considers_the_removal_and_the_addition_of_pods():
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), claim("c"), pod("p", "a"), pod("q", "b"), pod("r", "c"))
    async with running(cluster) as sidecar:
        answer = await sidecar.prefilter("q")
        await sidecar.place("p")
        question = {"token": answer["token"], "node": "n0"}
        assert (await sidecar.plugin("filter", question))[1]["fits"] is False
        victim, nominated = await sidecar.pod("p"), await sidecar.pod("r")
        assert (await sidecar.plugin("filter", question | {"remove": [victim]}))[1]["fits"] is True
        assert (await sidecar.plugin("filter", question | {"remove": [victim], "add": [nominated]}))[1]["fits"] is False


@pytest.mark.parametrize(
    ("call", "body", "status", "words"),
    [
        ("prefilter", {"pod": 7}, 400, "pod"),
        ("prefilter", {"pod": {}, "nodes": {"count": "many", "sum": 1}}, 400, "/nodes/count"),
        ("prefilter", {"pod": {}, "nodes": {"count": 1}}, 400, "sum"),
        ("reserve", {"token": "unknown", "node": "n0"}, 410, "token"),
        ("commit", {"reservation": "unknown"}, 409, "not known"),
        ("nothing", {}, 404, "not supported here"),
    ],
)
async def test_an_invalid_call_gets_an_error_and_a_remedy(call, body, status, words):
    async with running(loaded(*fleet())) as sidecar:
        answer = await sidecar.plugin(call, body)
        assert (answer[0], sorted(answer[1])) == (status, ["error", "remedy"])
        assert words in answer[1]["error"]
        assert answer[1]["remedy"]


async def test_only_a_client_with_the_token_is_answered(tmp_path):
    secret = tmp_path / "token"
    secret.write_text("only-the-scheduler-knows\n")
    async with running(loaded(*fleet()), token_file=str(secret)) as sidecar:
        for path in ("/plugin/v1/state", "/api/v1/claims"):
            assert (await sidecar.ask(path))[0] == 401
            sidecar.headers = {"Authorization": "Bearer only-the-scheduler-knows"}
            assert (await sidecar.ask(path))[0] == 200
            sidecar.headers = {}


async def test_a_device_reserved_within_a_group_is_not_called_held():
    """There is one device. Until the commit of the first pod, messages for its group say "meant for", and other messages "held by"."""
    group = {"schedulingGroup": {"podGroupName": "pair"}}
    other_group = {"schedulingGroup": {"podGroupName": "other"}}
    pods = [pod("p", "a", **group), pod("q", "b", **group), pod("r", "c", **other_group)]
    cluster = loaded(*fleet(1, 1), *map(claim, "abc"), *pods)
    async with running(cluster) as sidecar:

        async def messages(name):
            answer = await sidecar.prefilter(name)
            return answer["message"], answer["reasons"][0]["message"]

        _, reserved = await sidecar.reserve("p", "n0")
        for message in await messages("q"):
            assert message.endswith("1 of 1 devices are in use: meant for pod default/p of the same group")
        assert (await messages("r"))[0].endswith("held by claim default/a")
        await sidecar.plugin("commit", reserved)
        assert (await messages("q"))[0].endswith("held by claim default/a")


async def test_messages_do_not_name_claims_of_other_namespaces():
    """A scheduler copies these messages into the pod's events. The messages name only claims of the pod's own namespace."""
    foreign_pod = pod("secret", "secret", namespace="theirs")
    claims = [
        claim("secret", namespace="theirs", memory="40Gi"),
        claim("mine", memory="20Gi"),
        claim("late", memory="40Gi"),
    ]
    device_class_, node_, slice_ = fleet(1, 1)
    slice_["spec"]["devices"][0] |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
    objects = (*claims, foreign_pod, pod("mine", "mine"), pod("late", "late"))
    async with running(loaded(device_class_, node_, slice_, *objects)) as sidecar:
        await sidecar.place("mine")
        first_answer = await sidecar.prefilter("late")
        _, answer = await sidecar.plugin("prefilter", {"pod": foreign_pod})
        await sidecar.plugin("reserve", {"token": answer["token"], "node": "n0"})
        answer = await sidecar.prefilter("late")
        reserve_answer = await sidecar.plugin("reserve", {"token": first_answer["token"], "node": "n0"})
        filter_answer = await sidecar.plugin("filter", {"token": first_answer["token"], "node": "n0"})
        messages = repr((answer, reserve_answer, filter_answer))
        assert "theirs" not in messages
        assert "default/mine" in messages
        assert "a claim of another namespace" in messages
        assert "theirs/secret" in repr(await sidecar.ask("/api/v1/claims"))
