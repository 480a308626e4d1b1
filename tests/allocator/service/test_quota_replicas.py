"""Quota listeners of several replicas, on the embedded store: a follower forwards reviews, and a new leader counts stored pods."""

import asyncio
import contextlib
import json
import math
import ssl

import pytest

from allocator.service import LeaderIdentity
from allocator.service.quota.reviews import LARGEST
from runtime.controllers import Term
from tests.allocator.service.reviews import (
    QUOTA_LISTENER,
    pending_devices,
    pod_using,
    post,
    refusal,
    review_of,
    template_of,
)
from tests.allocator.service.sidecar import fleet, loaded, quota_of, running, until
from tests.certs.peers import Peers
from tests.cluster.peer import peer
from tests.limits import PATIENCE


async def test_a_follower_forwards_a_review_to_the_leader_once():
    """A follower does not forward a review that another replica has forwarded."""
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("two", 2))
    async with (
        running(cluster, **QUOTA_LISTENER) as leader,
        running(cluster, identity="two", leads=False, **QUOTA_LISTENER) as follower,
    ):
        await until(lambda: follower.service.election.holders_notes)
        assert await refusal(follower, pod_using("p", "two")) == ""
        assert pending_devices(leader) == 2
        assert "2 of 2 used" in await refusal(leader, pod_using("q", "two"))
        assert "2 of 2 used" in await refusal(follower, pod_using("q", "two"))
        body = json.dumps(review_of(pod_using("q", "two")))
        status, answer = await post(follower.listening.quota, body, **{"X-Drawbridge-Forwarded": "one"})
        assert (status, answer["error"]) == (503, "no leader is known that could count the object")


@pytest.mark.parametrize("size", [2000, 2 << 20])
async def test_a_follower_returns_the_leaders_answer_completely_or_an_error(size):
    """The leader's answer may arrive in many TCP segments."""
    body = json.dumps({"response": {"status": {"message": "x" * size}}}).encode()
    async with peer(lambda exchange: exchange.reply_in_pieces("200 OK", body)) as leader:
        cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("two", 2))
        async with (
            running(cluster, quota_place=leader.url[7:], **QUOTA_LISTENER),
            running(cluster, identity="two", leads=False, **QUOTA_LISTENER) as follower,
        ):
            await until(lambda: follower.service.election.holders_notes)
            status, answer = await post(follower.listening.quota, json.dumps(review_of(pod_using("p", "two"))))
    if size > LARGEST:
        assert status == 503
        assert answer["error"].endswith("has more than 1048576 bytes")
    else:
        assert (status, answer) == (200, json.loads(body))


async def test_a_follower_reuses_its_tls_context_until_the_authority_changes(tmp_path, monkeypatch):
    contexts = []
    make = ssl.create_default_context
    monkeypatch.setattr(
        ssl, "create_default_context", lambda **options: contexts.append(make(**options)) or contexts[-1]
    )
    peers = Peers(tmp_path)
    trust = LeaderIdentity(str(peers.ca), seconds=PATIENCE)
    certificate_settings = {"quota_certs": str(tmp_path), "look": 0.01}
    settings = QUOTA_LISTENER | {"quota_trust": trust}
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("one"))
    async with (
        running(cluster, **settings, **certificate_settings) as leader,
        running(cluster, identity="two", leads=False, **settings) as follower,
    ):
        await until(lambda: follower.service.election.holders_notes)
        for name in ("p", "q"):
            assert await refusal(follower, pod_using(name, "one")) == ""
        assert len(contexts) == 1
        [certificates] = leader.service.ports.certificates.values()
        old_context = certificates.context
        peers.renew()
        await until(lambda: certificates.context is not old_context)
        assert "2 of 2 used" in await refusal(follower, pod_using("r", "one"))
        assert len(contexts) == 2
        peers.ca.write_text("")
        status, body = await post(follower.listening.quota, json.dumps(review_of(pod_using("s", "one"))))
        assert status == 503
        assert body["error"].startswith("the call of the leader at 127.")


async def test_concurrent_reviews_on_two_replicas_never_exceed_the_quota():
    """A repeated review of an admitted pod is admitted again."""
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=37), template_of("one"))
    async with (
        running(cluster, **QUOTA_LISTENER) as leader,
        running(cluster, identity="two", leads=False, **QUOTA_LISTENER) as follower,
    ):
        await until(lambda: follower.service.election.holders_notes)
        leader.service._admission.pending._remembered = math.inf  # no admission expires on a busy machine
        replicas = [leader, follower] * 100
        refusals = await asyncio.gather(
            *(refusal(replica, pod_using(f"p{i}", "one")) for i, replica in enumerate(replicas))
        )
        assert refusals.count("") == 37
        assert len({message for message in refusals if message}) == 1
        later_refusals = await asyncio.gather(
            *(refusal(replica, pod_using(f"p{i}", "one")) for i, replica in enumerate(replicas))
        )
        assert [bool(message) for message in later_refusals] == [bool(message) for message in refusals]


async def test_a_new_leader_counts_only_admitted_pods_that_were_stored():
    """The leadership changes between the reviews of pods and their reservations."""
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=3), template_of("two", 2), template_of("one"))
    async with (
        running(cluster, identity="two", leads=False, **QUOTA_LISTENER) as old_leader,
        contextlib.AsyncExitStack() as stack,
    ):
        await until(lambda: old_leader.service.lead.leads)
        new_leader = await stack.enter_async_context(running(cluster, identity="new", leads=False, **QUOTA_LISTENER))
        assert await refusal(old_leader, pod_using("stored", "two")) == ""
        cluster.load([pod_using("stored", "two")])
        assert await refusal(old_leader, pod_using("lost", "one")) == ""
        assert "3 of 3 used" in await refusal(old_leader, pod_using("q", "one"))
        await until(lambda: new_leader.service.knowledge.pod("default", "stored") is not None)
        # The old leader never tries to get the Lease again.
        old_leader.service.election._term = Term(duration=0.0, retry=3600.0)
        await old_leader.service.election.release()
        await until(lambda: new_leader.service.lead.leads)
        assert "2 of 3 used, including 2 by" in await refusal(new_leader, pod_using("q", "two"))
        assert await refusal(new_leader, pod_using("q", "one")) == "", "a pod that was never stored still counts"
