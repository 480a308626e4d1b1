"""The quota listener, over the embedded store: which pods are let in, what counts, and what holds when the leader goes."""

import asyncio
import contextlib
import json
import math
import ssl
import uuid

import aiohttp
import pytest

from allocator.service import LeaderIdentity, Reviewing
from allocator.service.quota.reviews import LARGEST
from cluster import resources
from cluster.patch import Merge
from runtime.controllers import Term
from runtime.http import Address
from tests.allocator.service.sidecar import DRIVER, claim, device_class, fleet, loaded, node, pod, running, until
from tests.allocator.service.test_quotas import quota_of
from tests.certs.peers import World
from tests.cluster.peer import peer
from tests.limits import PATIENCE
from tests.objects import admission_review, claim_template, exactly
from webhook.admission import future_claims_of_pod, review_quota
from webhook.claims import template as ours

REVIEWING = Reviewing(review_quota, future_claims_of_pod)
# A hundred reviews that are handed on at once take a busy machine longer than an API server waits.
HERE = {"reviewing": REVIEWING, "quota": Address("127.0.0.1", 0), "quota_trust": LeaderIdentity(seconds=PATIENCE)}


def template_of(name, count=1):
    return claim_template(name, exactly(count=count))


def using(name, *templates, **spec):
    entries = [{"name": f"e{at}", "resourceClaimTemplateName": one} for at, one in enumerate(templates)]
    return pod(name, resourceClaims=entries, **spec)


def review_of(thing, *, dry_run=False, operation="CREATE"):
    group = "" if thing["kind"] == "Pod" else "resource.k8s.io"
    kind = {"group": group, "version": "v1", "kind": thing["kind"]}
    where = thing["metadata"]["namespace"]
    return admission_review(thing, operation=operation, kind=kind, namespace=where, dryRun=dry_run)


async def post(where, body, **headers):
    async with aiohttp.ClientSession() as session, session.post(f"http://{where}/quota", data=body, headers=headers) as said:  # fmt: skip
        return said.status, await said.json(content_type=None)


async def ask(one, thing, **how):
    """Ask at the door; "" if it was let in."""
    status, said = await post(one.listening.quota, json.dumps(review_of(thing, **how)))
    if status != 200:
        return f"{status}: {said['error']}"
    response = said["response"]
    assert response["allowed"] == ("status" not in response)
    return "" if response["allowed"] else response["status"]["message"]


def count(one):
    """How much waits of what the quota is about."""
    admission = one.service._admission
    [found] = one.bridge.knowledge.quotas.objects.values()
    stock = one.bridge.knowledge.stock
    waits = admission.pending.waiting(
        found,
        stock,
        demand=lambda spec: admission._demands.upper_bound(spec, stock),
        find_pod=one.bridge.knowledge.pod,
        find_spec=admission._spec,
    )
    return waits.get(("gpu", "devices"), 0) // 10**9


async def test_a_pod_beyond_a_line_is_turned_back_with_what_is_used_and_what_would_pass():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=3), template_of("two", 2), template_of("one"))
    async with running(cluster, **HERE) as one:
        assert await ask(one, using("p", "two")) == ""
        words = "quota default/team: gpu/devices: 2 asked for, 2 of 3 used, 2 of it by pods that wait for devices; the most that would pass is 1"
        assert await ask(one, using("q", "two")) == words
        assert await ask(one, using("q", "one")) == ""
        assert (await ask(one, using("r", "one"))).endswith("the most that would pass is 0")


async def test_a_pod_reviewed_more_than_once_counts_once():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("two", 2))
    async with running(cluster, **HERE) as one:
        for _ in range(3):
            assert await ask(one, using("p", "two")) == ""
        assert count(one) == 2


async def test_a_dry_run_is_answered_by_what_is_so_and_leaves_nothing():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("two", 2))
    async with running(cluster, **HERE) as one:
        assert await ask(one, using("p", "two"), dry_run=True) == ""
        assert count(one) == 0
        assert await ask(one, using("p", "two")) == ""
        assert "2 of 2 used" in await ask(one, using("q", "two"), dry_run=True)


async def test_from_the_door_to_the_device_a_pod_counts_once_all_the_way():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=3), template_of("two", 2))
    async with running(cluster, **HERE) as one:
        assert await ask(one, using("p", "two")) == ""
        cluster.load([using("p", "two")])
        await until(lambda: one.bridge.knowledge.pod("default", "p") is not None)
        assert count(one) == 2
        stored = await one.pod("p")
        made = claim("made", 2)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": stored["metadata"]["uid"], "controller": True}
        made["metadata"] |= {"ownerReferences": [owner], "annotations": {"resource.kubernetes.io/pod-claim-name": "e0"}}
        cluster.load([made])
        await until(lambda: "default/made" in one.bridge.knowledge.stock.claims)
        assert count(one) == 2
        status = {"status": {"resourceClaimStatuses": [{"name": "e0", "resourceClaimName": "made"}]}}
        await cluster.patch(resources.PODS, "p", Merge(status), "default", subresource="status")
        await until(lambda: one.bridge.knowledge.pod("default", "p").status.resource_claim_statuses)
        assert "2 of 3 used, 2 of it" in await ask(one, using("q", "two"))
        _, found = await one.plugin("prefilter", {"pod": await one.pod("p")})
        assert (await one.plugin("reserve", {"token": found["token"], "node": "n0"}))[0] == 200
        assert count(one) == 0
        assert "2 of 3 used; " in await ask(one, using("q", "two")), "reserved, and not counted a second time"


async def test_a_claim_at_the_door_counts_until_it_is_gone():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=3))
    async with running(cluster, **HERE) as one:
        assert await ask(one, claim("a", 2)) == ""
        assert "2 of 3 used" in await ask(one, claim("b", 2))
        cluster.load([claim("a", 2)])
        await until(lambda: "default/a" in one.bridge.knowledge.stock.claims)
        assert "2 of 3 used" in await ask(one, claim("b", 2))
        await cluster.delete(resources.RESOURCE_CLAIMS, "a", "default")
        await until(lambda: "default/a" not in one.bridge.knowledge.stock.claims)
        assert await ask(one, claim("b", 2)) == ""


async def test_an_admitted_pod_that_is_never_stored_is_forgotten_in_time():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("two", 2))
    async with running(cluster, **HERE) as one:
        assert await ask(one, using("p", "two")) == ""
        assert "2 of 2 used" in await ask(one, using("q", "two"))
        one.service._admission.pending.expire(float("inf"))
        assert await ask(one, using("q", "two")) == ""


async def test_a_template_that_only_the_pod_has_yet_counts_if_its_name_says_what_is_in_it():
    spec = template_of("x", 2)["spec"]
    name = ours.name_of(spec)
    signed = ours.sign(
        {name: spec, "drawbridge-" + "0" * 32: template_of("x", 1)["spec"]}, b"k", ours.SignedPod("default")
    )
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=1))
    async with running(cluster, **HERE) as one:
        thing = using("p", name)
        thing["metadata"]["annotations"] = {"drawbridge.dev/templates": signed}
        assert "2 asked for" in await ask(one, thing)
        forged = using("p", "drawbridge-" + "0" * 32)
        forged["metadata"]["annotations"] = {"drawbridge.dev/templates": signed}
        assert await ask(one, forged) == "", "nothing is known of it; its claim counts once it is made"


async def test_pods_of_other_priority_classes_than_a_quota_names_do_not_count():
    scoped = quota_of(gpu__devices=1)
    scoped["spec"]["scopeSelector"] = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}  # fmt: skip
    cluster = loaded(*fleet(1, 8), scoped, template_of("two", 2))
    async with running(cluster, **HERE) as one:
        assert await ask(one, using("p", "two")) == ""
        assert "2 asked for, 0 of 1 used" in await ask(one, using("q", "two", priorityClassName="high"))


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[" * 5000, b'{"kind": "AdmissionReview"}', b"\xff\xfe"],
    ids=["nothing", "an empty object", "deep", "no request", "no text"],
)
async def test_a_body_that_is_not_an_admission_review_is_a_bad_request(body):
    async with running(loaded(*fleet(1, 1)), **HERE) as one:
        status, said = await post(one.listening.quota, body)
        assert (status, bool(said["error"])) == (400, True)


@pytest.mark.parametrize(
    "thing",
    [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default"}, "spec": {"resourceClaims": 3}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default"}, "spec": None},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default"}},
    ],
    ids=["a pod of another shape", "a pod without a spec", "another kind"],
)
async def test_an_object_that_cannot_be_counted_is_admitted(thing):
    async with running(loaded(*fleet(1, 1), quota_of(gpu__devices=0)), **HERE) as one:
        assert await ask(one, thing) == ""


async def test_a_replica_that_follows_hands_a_review_on_and_one_that_was_handed_on_goes_no_further():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("two", 2))
    async with running(cluster, **HERE) as leader, running(cluster, identity="two", leads=False, **HERE) as follower:
        await until(lambda: follower.service.election.holders_notes)
        assert await ask(follower, using("p", "two")) == ""
        assert count(leader) == 2
        assert "2 of 2 used" in await ask(leader, using("q", "two"))
        assert "2 of 2 used" in await ask(follower, using("q", "two"))
        body = json.dumps(review_of(using("q", "two")))
        status, said = await post(follower.listening.quota, body, **{"X-Drawbridge-Forwarded": "one"})
        assert (status, said["error"]) == (503, "no leader is known that could count this")


@pytest.mark.parametrize("size", [2000, 2 << 20])
async def test_an_answer_of_the_leader_is_handed_back_whole_or_not_at_all(size):
    """The number of its packets does not matter."""
    said = json.dumps({"response": {"status": {"message": "x" * size}}}).encode()
    async with peer(lambda exchange: exchange.reply_in_pieces("200 OK", said)) as leader:
        cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("two", 2))
        async with (
            running(cluster, quota_place=leader.url[7:], **HERE),
            running(cluster, identity="two", leads=False, **HERE) as two,
        ):
            await until(lambda: two.service.election.holders_notes)
            status, found = await post(two.listening.quota, json.dumps(review_of(using("p", "two"))))
    if size > LARGEST:
        assert (status, found["error"][-27:]) == (503, "has more than 1048576 bytes")
    else:
        assert (status, found) == (200, json.loads(said))


async def test_a_leader_is_known_by_one_context_until_the_file_names_another_authority(tmp_path, monkeypatch):
    made = []
    make = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda **how: made.append(make(**how)) or made[-1])
    world = World(tmp_path)
    trust = LeaderIdentity(str(world.ca), seconds=PATIENCE)
    shown = {"quota_certs": str(tmp_path), "look": 0.01}
    here = HERE | {"quota_trust": trust}
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("one"))
    async with running(cluster, **here, **shown) as one, running(cluster, identity="two", leads=False, **here) as two:
        await until(lambda: two.service.election.holders_notes)
        for name in ("p", "q"):
            assert await ask(two, using(name, "one")) == ""
        assert len(made) == 1
        [shown] = one.service.ports.certificates.values()
        before = shown.context
        world.renew()
        await until(lambda: shown.context is not before)
        assert "2 of 2 used" in await ask(two, using("r", "one"))
        assert len(made) == 2
        world.ca.write_text("")
        status, said = await post(two.listening.quota, json.dumps(review_of(using("s", "one"))))
        assert (status, said["error"][:18]) == (503, "the leader, at 127")


async def test_two_hundred_at_once_at_both_doors_never_overshoot():
    """And each of the pods that are let in is let in once more when the API server asks again."""
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=37), template_of("one"))
    async with running(cluster, **HERE) as one, running(cluster, identity="two", leads=False, **HERE) as two:
        await until(lambda: two.service.election.holders_notes)
        one.service._admission.pending._remembered = math.inf  # however busy the machine is
        doors = [one, two] * 100
        said = await asyncio.gather(*(ask(door, using(f"p{at}", "one")) for at, door in enumerate(doors)))
        assert said.count("") == 37
        assert len({words for words in said if words}) == 1
        again = await asyncio.gather(*(ask(door, using(f"p{at}", "one")) for at, door in enumerate(doors)))
        assert [bool(words) for words in again] == [bool(words) for words in said]


async def test_a_new_leader_counts_admitted_pods_only_if_they_were_stored():
    """The leader dies between a review and the reservation."""
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=3), template_of("two", 2), template_of("one"))
    async with running(cluster, identity="two", leads=False, **HERE) as two, contextlib.AsyncExitStack() as stack:
        await until(lambda: two.bridge.lead.leads)
        one = await stack.enter_async_context(running(cluster, identity="three", leads=False, **HERE))
        assert await ask(two, using("stored", "two")) == ""
        cluster.load([using("stored", "two")])
        assert await ask(two, using("lost", "one")) == ""
        assert "3 of 3 used" in await ask(two, using("q", "one"))
        await until(lambda: one.bridge.knowledge.pod("default", "stored") is not None)
        two.service.election._term = Term(duration=0.0, retry=3600.0)  # it never renews again
        await two.service.election.release()
        await until(lambda: one.bridge.lead.leads)
        assert "2 of 3 used, 2 of it" in await ask(one, using("q", "two"))
        assert await ask(one, using("q", "one")) == "", "a pod that was never stored does not count any more"


async def test_a_refusal_names_the_core_resourcequotas_that_count_the_same_devices():
    key = "gpu.deviceclass.resource.k8s.io/devices"
    core = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "core", "namespace": "default"},
        "spec": {"hard": {key: 9}},
    }
    words = f"ResourceQuota also counts: core: {key} ? of 9 used"
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=1), core)
    async with running(cluster, **HERE) as one, asyncio.timeout(PATIENCE):
        while words not in await ask(one, claim("much", 2)):
            pass  # it is not read yet: each question gives it a turn
        assert await ask(one, claim("little")) == ""


def large(nodes, each):
    """A fleet whose devices have memory, and a template whose claim names little of it."""
    of_little = template_of("little")
    [request] = of_little["spec"]["spec"]["devices"]["requests"]
    request["exactly"]["capacity"] = {"requests": {"memory": "1Ki"}}
    made = fleet(nodes, each)
    for one in made:
        if one["kind"] == "ResourceSlice":
            for device in one["spec"]["devices"]:
                device["capacity"] = {"memory": {"value": "4Gi"}}
    return [*made, of_little]


async def test_a_long_first_look_is_made_in_turns_and_others_are_answered_meanwhile():
    """The capacity of a device is known at the end of the look: no claim is admitted by its own amounts."""
    cluster = loaded(*large(100, 8), quota_of(gpu__memory="1Gi"))
    async with running(cluster, **HERE) as one:
        admission = one.service._admission
        admission.steps, admission.patience = 500, math.inf
        turns, go_on = [], asyncio.Event()

        async def wait(namespace):
            turns.append(namespace)
            await go_on.wait()

        admission._turns.wait = wait
        looking = asyncio.create_task(ask(one, using("p", "little")))
        await until(lambda: turns)
        assert await ask(one, using("q")) == ""
        assert not looking.done()
        go_on.set()
        assert "4Gi asked for, 0 of 1Gi used" in await looking
        assert set(turns) == {"default"}
        assert len(turns) >= 40, "of 800 devices 500 steps see 20 at most"


async def test_a_review_that_cannot_wait_for_the_search_counts_what_the_claim_says():
    cluster = loaded(*large(100, 8), quota_of(gpu__memory="1Gi"))
    async with running(cluster, **HERE) as one:
        admission = one.service._admission
        admission.steps, admission.patience = 500, 0.0
        assert await ask(one, using("p", "little")) == ""
        admission.patience = math.inf
        assert "4Gi asked for, 4Gi of 1Gi used, 4Gi of it by pods that wait" in await ask(one, using("q", "little"))


async def test_a_claim_that_a_scheduler_makes_for_an_extended_resource_counts_once_it_is_allocated():
    """Its pod brings no claim to the door."""
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=1))
    async with running(cluster, **HERE) as one:
        asking = using("p", containers=[{"name": "main", "resources": {"limits": {"example.com/gpu": "2"}}}])
        assert await ask(one, asking) == ""
        made = claim("made", 2)
        made["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        results = [{"request": "r", "driver": DRIVER, "pool": "n0", "device": f"gpu-{at}"} for at in range(2)]
        cluster.load([made | {"status": {"allocation": {"devices": {"results": results}}}}])
        await until(lambda: "default/made" in one.bridge.knowledge.stock.claims)
        assert "1 asked for, 2 of 1 used; the most that would pass is 0" in await ask(one, claim("more"))


async def test_of_two_quotas_that_contradict_each_other_both_hold_and_both_are_named():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=5), quota_of("narrow", gpu__devices=1, **{"*__devices": 9}))
    async with running(cluster, **HERE) as one:
        said = await ask(one, claim("both", 6))
        assert {line for line in said.split("; ") if line.startswith("quota")} == {
            "quota default/team: gpu/devices: 6 asked for, 0 of 5 used",
            "quota default/narrow: gpu/devices: 6 asked for, 0 of 1 used",
        }
        assert (await ask(one, claim("one", 2))).startswith(
            "quota default/narrow: gpu/devices: 2 asked for, 0 of 1 used"
        )
        assert await ask(one, claim("none")) == ""


async def test_requests_of_a_tenant_that_are_split_over_templates_and_entries_all_count():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=3), template_of("a"), template_of("b"), template_of("c", 2))
    async with running(cluster, **HERE) as one:
        assert "4 asked for" in await ask(one, using("p", "a", "b", "c"))
        assert "4 asked for" in await ask(one, using("p", "a", "a", "a", "b"))
        assert await ask(one, using("p", "a", "b", "a")) == ""
        assert "3 of 3 used, 3 of it by pods that wait" in await ask(one, using("renamed", "a"))


def requesting(name, count=1, key="example.com/gpu", **spec):
    """A pod whose container requests an extended resource."""
    return pod(name, requests={key: str(count)}, **spec)


@pytest.mark.parametrize("key", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"])
async def test_an_extended_resource_counts_once_from_the_pod_to_its_claim(key):
    served = device_class(extendedResourceName="example.com/gpu")
    others = [one for one in fleet(1, 8) if one["kind"] != "DeviceClass"]
    cluster = loaded(*others, served, quota_of(gpu__devices=1))
    async with running(cluster, **HERE) as one:
        assert await ask(one, requesting("p", key=key)) == ""
        assert "1 of 1 used, 1 of it by pods that wait" in await ask(one, requesting("q", key=key))
        cluster.load([requesting("p", key=key)])
        await until(lambda: one.bridge.knowledge.pod("default", "p") is not None)
        assert "1 of 1 used, 1 of it by pods that wait" in await ask(one, requesting("q", key=key))
        stored = await one.pod("p")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": stored["metadata"]["uid"], "controller": True}
        made = claim("made", 1)
        made["metadata"] |= {
            "ownerReferences": [owner],
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        }
        cluster.load([made])
        await until(lambda: "default/made" in one.bridge.knowledge.stock.claims)
        assert "1 of 1 used, 1 of it by pods that wait" in await ask(one, requesting("q", key=key)), "not counted twice"


async def test_an_extended_resource_that_a_device_plugin_may_serve_is_not_counted():
    served = device_class(extendedResourceName="example.com/gpu")
    others = [one for one in fleet(1, 8) if one["kind"] != "DeviceClass"]
    cluster = loaded(*others, node("old", allocatable={"example.com/gpu": "2"}), served, quota_of(gpu__devices=1))
    async with running(cluster, **HERE) as one:
        assert await ask(one, requesting("p", 2)) == ""
        assert "asked for" in await ask(one, requesting("q", 3))
        assert "asked for" in await ask(one, requesting("r", 2, nodeSelector={"where": "there is no plugin"}))


def made_for(stored, name="made", **how):
    """The claim that kube-controller-manager creates for a pod's first entry."""
    owner = {"apiVersion": "v1", "kind": "Pod", "controller": True} | {key: stored["metadata"][key] for key in ("name", "uid")}  # fmt: skip
    made = claim(name, **how)
    made["metadata"] |= {
        "uid": str(uuid.uuid4()),
        "ownerReferences": [owner],
        "annotations": {"resource.kubernetes.io/pod-claim-name": "e0"},
    }
    return made


async def test_pods_that_came_before_their_template_get_no_more_claims_than_the_quota_allows():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2))
    async with running(cluster, **HERE) as one:
        pods = [using(f"p{at}", "late") for at in range(5)]
        for waiting in pods:
            assert await ask(one, waiting) == ""
        cluster.load([*pods, template_of("late")])
        await until(lambda: count(one) == 5)
        stored = [await one.pod(f"p{at}") for at in range(5)]
        said = [await ask(one, made_for(owner, f"c{at}", count=1)) for at, owner in enumerate(stored)]
    assert said[:2] == ["", ""]
    assert all("1 asked for, 2 of 2 used" in refusal for refusal in said[2:])


async def test_a_pod_counts_once_while_its_claim_is_admitted_and_not_stored_yet(monkeypatch):
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("t"))
    async with running(cluster, **HERE) as one:
        assert await ask(one, using("p", "t")) == ""
        cluster.load([using("p", "t")])
        await until(lambda: one.bridge.knowledge.pod("default", "p") is not None)
        assert await ask(one, made_for(await one.pod("p"), count=1)) == ""
        assert count(one) == 1
        admission = one.service._admission
        later = admission._clock() + 60
        monkeypatch.setattr(admission, "_clock", lambda: later)
        assert await ask(one, using("q", "t"), dry_run=True) == ""
        assert count(one) == 1, "the claim was not stored, and its pod still waits for one"


async def test_a_claim_counts_under_the_quotas_of_its_pods_priority_class():
    scoped = quota_of(gpu__devices=1)
    scoped["spec"]["scopeSelector"] = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}  # fmt: skip
    cluster = loaded(*fleet(1, 8), scoped, using("low", "t"), using("high", "t", priorityClassName="high"))
    async with running(cluster, **HERE) as one:
        await until(lambda: one.bridge.knowledge.pod("default", "high") is not None)
        low, high = [made_for(await one.pod(name), name, count=2) for name in ("low", "high")]
        assert await ask(one, low) == ""
        assert "2 asked for, 0 of 1 used" in await ask(one, high)


async def test_claims_that_only_say_they_are_made_for_a_pod_get_no_more_than_the_quota_allows():
    """Anyone who may create claims may write the owner and the annotation that kube-controller-manager writes."""
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("t", 2))
    async with running(cluster, **HERE) as one:
        assert await ask(one, using("p", "t")) == ""
        cluster.load([using("p", "t")])
        await until(lambda: one.bridge.knowledge.pod("default", "p") is not None)
        stored = await one.pod("p")
        nobody = {"metadata": {"name": "nobody", "uid": "no-such-pod"}}
        said = [await ask(one, made_for(owner, f"c{at}", count=1)) for at, owner in enumerate((stored, stored, stored, nobody))]  # fmt: skip
        assert said[:2] == ["", ""]
        assert all("1 asked for, 2 of 2 used" in refusal for refusal in said[2:])
