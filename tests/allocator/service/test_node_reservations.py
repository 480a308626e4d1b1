"""The port for node agents: an agent gets only its own node's reservations that no claim records yet."""

import asyncio
import contextlib
import time

import aiohttp
import pytest

from allocator.service.settings import LEASE
from cluster.controllers import api_timestamp
from cluster.embedded import Embedded
from cluster.errors import Unavailable
from cluster.resources import RESOURCE_CLAIMS
from serving.authentication import Account, TokenReviews, TooManyTokens
from serving.authentication import token_review as accounts
from serving.http import Address
from tests.allocator.service.sidecar import DRIVER, claim, fleet, loaded, pod, running, until
from tests.limits import PATIENCE

AGENT = "system:serviceaccount:default-nodes:drawbridge-node-agent"
AUDIENCE = "drawbridge-allocator"


class ReviewingServer(Embedded):
    """An API server that reviews tokens, leaves some writes of claims without an answer, and can delay reads of claims."""

    def __init__(self):
        super().__init__()
        self.tokens = {"n0": review_of_user("n0"), "n1": review_of_user("n1")}
        self.reviews = 0
        self.review_error = None
        self.unanswered_writes = set()  # numbers of the writes of claims that get no answer
        self.writes = 0
        self.claims_can_be_read = asyncio.Event()
        self.claims_can_be_read.set()

    async def create(self, resource, obj, namespace=None, **options):
        if resource.kind != "TokenReview":
            return await super().create(resource, obj, namespace, **options)
        self.reviews += 1
        await asyncio.sleep(0)
        if self.review_error:
            raise self.review_error
        return {"status": self.tokens.get(obj["spec"]["token"], {})}

    async def patch(self, resource, *arguments, **options):
        if resource.id == RESOURCE_CLAIMS.id:
            self.writes += 1
            if self.writes in self.unanswered_writes:
                raise Unavailable("the connection broke")
        return await super().patch(resource, *arguments, **options)

    async def get(self, resource, *arguments, **options):
        if resource.id == RESOURCE_CLAIMS.id:
            await self.claims_can_be_read.wait()
        return await super().get(resource, *arguments, **options)


def review_of_user(node, name=AGENT, audience=AUDIENCE):
    """Return the status of a TokenReview for the token of a pod on this node."""
    extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
    return {"authenticated": True, "audiences": [audience], "user": {"username": name, "extra": extra}}


@contextlib.asynccontextmanager
async def serving(*objects, **settings):
    """Run an allocator with the port for node agents; yield a client that can ask for reservations."""
    cluster = loaded(*objects, cluster=ReviewingServer())
    async with running(cluster, reservations=Address(), **settings) as sidecar, aiohttp.ClientSession() as session:

        async def reservations_of(token, path="/reservations"):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with session.get(f"http://{sidecar.listening.reservations}{path}", headers=headers) as answer:
                return answer.status, await answer.json()

        sidecar.reservations_of = reservations_of
        yield sidecar


async def test_a_reservation_is_reported_until_the_claim_records_it():
    async with serving(*fleet(), claim("a", 2), pod("p", "a")) as sidecar:
        assert await sidecar.reservations_of("n0") == (200, {"node": "n0", "reservations": []})
        _, reserved = await sidecar.reserve("p", "n0")
        devices = [{"driver": DRIVER, "pool": "n0", "device": f"gpu-{i}", "shareId": ""} for i in (0, 1)]
        reservation = {"namespace": "default", "claim": "a", "uid": "claim-a", "inDoubt": False, "devices": devices}
        assert await sidecar.reservations_of("n0") == (200, {"node": "n0", "reservations": [reservation]})
        assert await sidecar.reservations_of("n1") == (200, {"node": "n1", "reservations": []}), (
            "an agent got reservations of another node"
        )
        assert await sidecar.plugin("commit", reserved) == (200, {"committed": True, "message": ""})
        assert await sidecar.reservations_of("n0") == (200, {"node": "n0", "reservations": []})


async def test_an_unanswered_write_is_in_doubt_until_resolved():
    """The reservation stays in doubt after its release, because the write may still arrive at the server."""
    async with serving(*fleet(), claim("a"), pod("p", "a")) as sidecar:
        sidecar.cluster.unanswered_writes = {2}
        sidecar.cluster.claims_can_be_read.clear()
        _, reserved = await sidecar.reserve("p", "n0")
        commit = asyncio.create_task(sidecar.plugin("commit", reserved))
        await until(lambda: sidecar.cluster.writes == 2)

        async def is_in_doubt():
            return [row["inDoubt"] for row in (await sidecar.reservations_of("n0"))[1]["reservations"]] == [True]

        await until(is_in_doubt)
        await sidecar.plugin("unreserve", reserved)
        assert await is_in_doubt(), "the release ended the doubt"
        await commit
        sidecar.cluster.claims_can_be_read.set()

        async def is_resolved():
            return (await sidecar.reservations_of("n0"))[1]["reservations"] == []

        await until(is_resolved)
        assert await sidecar.allocated_devices("a") == []


@pytest.mark.parametrize(
    ("review", "status", "words"),
    [
        (review_of_user("n0", "system:serviceaccount:team:other"), 403, "is not"),
        (review_of_user(""), 403, "no pod"),
        (review_of_user("n0", audience="another"), 401, "audience"),
        ({"authenticated": True, "user": review_of_user("n0")["user"]}, 401, "audience"),
        ({"authenticated": False, "error": "expired"}, 401, "token"),
        ({}, 401, "token"),
    ],
    ids=["another account", "no node", "another audience", "no audience", "an expired token", "an unknown token"],
)
async def test_a_caller_other_than_a_node_agent_gets_an_error(review, status, words):
    async with serving(*fleet()) as sidecar:
        sidecar.cluster.tokens["t"] = review
        answer_status, answer = await sidecar.reservations_of("t")
        assert (answer_status, words in answer["error"], bool(answer["remedy"])) == (status, True, True)
        assert (await sidecar.reservations_of(""))[0] == 401
        assert (await sidecar.reservations_of("n0", "/api/v1/claims"))[0] == 404, (
            "the port for node agents also serves the API"
        )


async def test_only_a_replica_with_a_certain_lease_reports_reservations():
    spec = {"holderIdentity": "two", "leaseDurationSeconds": 3600, "renewTime": api_timestamp()}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE, "namespace": "default"}, "spec": spec}  # fmt: skip
    async with serving(*fleet(), lease, leads=False) as follower:
        status, answer = await follower.reservations_of("n0")
        assert (status, answer["error"]) == (503, "another replica leads")
    async with serving(*fleet()) as leader:
        leader.service.lead.may_write = lambda: False  # as after a pause of the process
        status, answer = await leader.reservations_of("n0")
        assert (status, "lease" in answer["error"]) == (503, True)


async def test_node_requests_are_rejected_while_tokens_cannot_be_reviewed():
    async with serving(*fleet()) as sidecar:
        sidecar.cluster.review_error = Unavailable("away")
        status, answer = await sidecar.reservations_of("n0")
        assert (status, "away" in answer["error"]) == (503, True)
        sidecar.cluster.review_error = None
        assert (await sidecar.reservations_of("n0"))[0] == 200, "an error of the review was cached"


async def test_valid_and_invalid_tokens_are_reviewed_once_per_interval():
    now = [0.0]
    cluster = ReviewingServer()
    reviews = TokenReviews(cluster, AUDIENCE, lambda: now[0])
    for token, account in (("n0", Account(AGENT, "n0")), ("no-account", Account())):
        earlier_reviews = cluster.reviews
        assert [(await reviews.account_of(token))[:2] for _ in range(5)] == [account[:2]] * 5
        assert cluster.reviews == earlier_reviews + 1
    now[0] = accounts.INVALID_SECONDS
    cluster.tokens["no-account"] = review_of_user("n1")
    assert (await reviews.account_of("no-account"))[:2] == (AGENT, "n1")
    now[0] = accounts.VALID_SECONDS
    del cluster.tokens["n0"]
    assert await reviews.account_of("n0") == Account(), "a revoked token was accepted after its cached review expired"
    await cluster.close()


async def test_the_numbers_of_reviewed_and_cached_invalid_tokens_are_limited(monkeypatch):
    monkeypatch.setattr(accounts, "MAX_WAITING", 3)
    monkeypatch.setattr(accounts, "MAX_CACHED", 3)
    cluster = ReviewingServer()
    reviews = TokenReviews(cluster, AUDIENCE, lambda: 0.0)
    for invalid in ("x" * (accounts.LONGEST + 1), "", "\udcff", "é"):
        assert await reviews.account_of(invalid) == Account()
    assert cluster.reviews == 0
    answers = await asyncio.gather(*(reviews.account_of(f"t{number}") for number in range(9)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Account] * 3 + [TooManyTokens] * 6
    for number in range(9):
        await reviews.account_of(f"u{number}")
    assert len(reviews._invalid) == 3
    await cluster.close()


async def test_invalid_tokens_push_no_valid_token_out_of_the_cache(monkeypatch):
    monkeypatch.setattr(accounts, "MAX_CACHED", 3)
    server, now = SlowServer(), 0.0
    reviews = TokenReviews(server, "", lambda: now)
    server.answers.set()
    assert (await reviews.account_of("good")).name == "good"
    for number in range(9):
        await reviews.account_of(f"bad-{number}")
    assert (await reviews.account_of("good")).name == "good"
    assert server.reviewed.count("good") == 1


async def test_the_valid_tokens_of_one_account_push_no_token_of_another_out_of_the_cache(monkeypatch):
    monkeypatch.setattr(accounts, "MAX_CACHED", 3)
    cluster = ReviewingServer()
    reviews = TokenReviews(cluster, AUDIENCE, lambda: 0.0)
    cluster.tokens = {"other": review_of_user("n1")} | {f"t{number}": review_of_user("n2") for number in range(9)}
    for token in cluster.tokens:
        await reviews.account_of(token)
    earlier_reviews = cluster.reviews
    await reviews.account_of("other")
    assert cluster.reviews == earlier_reviews
    assert len(reviews._valid) == 3
    await cluster.close()


@pytest.mark.long
async def test_a_flood_of_invalid_tokens_through_a_proxy_refuses_no_logged_in_viewer():
    """All requests have the proxy's address. The times of the reviews are those of an API server."""
    server, start = SlowServer(), time.monotonic()
    reviews = TokenReviews(server, "", time.monotonic)
    server.answers.set()
    assert (await reviews.account_of("good", "10.0.0.1")).name == "good"

    async def flood(lane):
        for number in range(accounts.MAX_CACHED // 16 + 10):
            with contextlib.suppress(TooManyTokens):
                await reviews.account_of(f"bad-{lane}-{number}", "10.0.0.1")
            assert (await reviews.account_of("good", "10.0.0.1")).name == "good"

    async with asyncio.TaskGroup() as tasks:
        for lane in range(16):
            tasks.create_task(flood(lane))
    assert len(server.reviewed) > accounts.MAX_CACHED
    assert server.reviewed.count("good") <= 1 + (time.monotonic() - start) / accounts.VALID_SECONDS


async def test_the_reservations_endpoint_refuses_a_request_body():
    """Agents send only a token, and the server reads nothing else."""
    async with serving(*fleet(1, 1)) as sidecar, aiohttp.ClientSession() as session:
        async with session.get(f"http://{sidecar.listening.reservations}/reservations", data=b"x") as answer:
            assert (answer.status, (await answer.json())["error"]) == (413, "the body may have at most 0 bytes")
        assert (await sidecar.reservations_of("n0"))[0] == 200


class SlowServer:
    """A server that answers TokenReviews while `answers` is set, and accepts tokens that begin with `good`."""

    def __init__(self):
        self.answers = asyncio.Event()
        self.reviewed = []

    async def create(self, _, body):
        token = body["spec"]["token"]
        self.reviewed.append(token)
        await self.answers.wait()
        return {"status": {"authenticated": token.startswith("good"), "user": {"username": token}}}


async def test_invalid_tokens_of_one_address_do_not_delay_other_addresses():
    server, now = SlowServer(), 0.0
    reviews = TokenReviews(server, "", lambda: now)
    server.answers.set()
    assert (await reviews.account_of("good-known", "10.0.0.9")).name == "good-known"
    server.answers.clear()
    now = 1000.0  # the cached review has expired
    guesses = [asyncio.create_task(reviews.account_of(f"bad-{i}", "10.0.0.1")) for i in range(100)]
    await asyncio.sleep(0)
    valid_tokens = [asyncio.create_task(reviews.account_of(f"good-{i}", f"10.0.1.{i}")) for i in range(23)]
    known_token = asyncio.create_task(reviews.account_of("good-known", "10.0.0.1"))
    await asyncio.sleep(0)
    assert server.reviewed[-1] == "good-known", "a known token had to wait for the reviews of unknown tokens"
    server.answers.set()
    async with asyncio.timeout(PATIENCE):
        assert [account.name for account in await asyncio.gather(*valid_tokens)] == [f"good-{i}" for i in range(23)]
        assert (await known_token).name == "good-known"
        results = await asyncio.gather(*guesses, return_exceptions=True)
    assert sum(isinstance(result, TooManyTokens) for result in results) == len(guesses) - accounts.MAX_WAITING_OF_PEER


async def test_invalid_tokens_of_many_addresses_do_not_delay_another_address():
    server = SlowServer()
    reviews = TokenReviews(server, "", lambda: 0.0)
    guesses = [asyncio.create_task(reviews.account_of(f"bad-{i}", f"10.0.0.{i % 8}")) for i in range(160)]
    await asyncio.sleep(0)
    valid_tokens = [asyncio.create_task(reviews.account_of(f"good-{i}", f"10.0.1.{i % 3}")) for i in range(9)]
    await asyncio.sleep(0)
    server.answers.set()
    async with asyncio.timeout(PATIENCE):
        assert [account.name for account in await asyncio.gather(*valid_tokens)] == [f"good-{i}" for i in range(9)]
        results = await asyncio.gather(*guesses, return_exceptions=True)
    assert sum(isinstance(result, Account) for result in results) == accounts.MAX_WAITING - len(valid_tokens)
    assert not reviews._new


async def test_an_agent_reports_the_claims_that_its_kubelet_still_has_prepared():
    async with serving(*fleet(), claim("a"), pod("p", "a")) as sidecar:

        async def nodes_after(token, query):
            assert (await sidecar.reservations_of(token, f"/reservations{query}"))[0] == 200
            return sorted(node["name"] for node in (await sidecar.prefilter("p"))["nodes"])

        assert await nodes_after("n0", "?prepared=claim-a,claim-b") == ["n1"]
        assert await nodes_after("n0", "") == ["n1"], "a call without a report has freed the claim"
        assert await nodes_after("n1", "?prepared=") == ["n1"]
        assert await nodes_after("n0", "?prepared=") == ["n0", "n1"]
