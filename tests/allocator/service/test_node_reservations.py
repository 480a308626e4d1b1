"""The port of the audit agents: reservations of a node that are not written yet are shown to the agent of that node alone."""

import asyncio
import contextlib

import aiohttp
import pytest

from allocator.service.settings import LEASE
from cluster.embedded import Embedded
from cluster.errors import Unavailable
from cluster.resources import RESOURCE_CLAIMS
from runtime.authentication import Account, TokenReviews, TooManyTokens
from runtime.authentication import token_review as accounts
from runtime.controllers import now_of_the_wall
from runtime.http import Address
from tests.allocator.service.sidecar import DRIVER, claim, fleet, pod, running, until
from tests.limits import PATIENCE

AGENT = "system:serviceaccount:default-nodes:drawbridge-node-agent"
AUDIENCE = "drawbridge-allocator"


class Reviewing(Embedded):
    """A server that knows tokens, and may lose a write, or keep a look at a claim waiting."""

    def __init__(self):
        super().__init__()
        self.tokens = {"n0": user("n0"), "n1": user("n1")}
        self.reviews = 0
        self.broken = None
        self.lost = set()  # numbers of writes of claims that have no answer
        self.writes = 0
        self.looked_at = asyncio.Event()
        self.looked_at.set()

    async def create(self, resource, obj, namespace=None, **more):
        if resource.kind != "TokenReview":
            return await super().create(resource, obj, namespace, **more)
        self.reviews += 1
        await asyncio.sleep(0)
        if self.broken:
            raise self.broken
        return {"status": self.tokens.get(obj["spec"]["token"], {})}

    async def patch(self, resource, *where, **more):
        if resource.id == RESOURCE_CLAIMS.id:
            self.writes += 1
            if self.writes in self.lost:
                raise Unavailable("the connection broke")
        return await super().patch(resource, *where, **more)

    async def get(self, resource, *where, **more):
        if resource.id == RESOURCE_CLAIMS.id:
            await self.looked_at.wait()
        return await super().get(resource, *where, **more)


def user(node, name=AGENT, audience=AUDIENCE):
    extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
    return {"authenticated": True, "audiences": [audience], "user": {"username": name, "extra": extra}}


@contextlib.asynccontextmanager
async def serving(*objects, **more):
    cluster = Reviewing()
    cluster.load(list(objects))
    async with running(cluster, reservations=Address(), **more) as one, aiohttp.ClientSession() as session:

        async def told(token, path="/reservations"):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with session.get(f"http://{one.listening.reservations}{path}", headers=headers) as answer:
                return answer.status, await answer.json()

        one.told = told
        yield one


async def reserve(one, name, node):
    _, found = await one.plugin("prefilter", {"pod": await one.pod(name)})
    return (await one.plugin("reserve", {"token": found["token"], "node": node}))[1]


async def test_a_reservation_is_reported_to_its_node_until_the_claim_records_it():
    async with serving(*fleet(), claim("a", 2), pod("p", "a")) as one:
        assert await one.told("n0") == (200, {"node": "n0", "reservations": []})
        reserved = await reserve(one, "p", "n0")
        devices = [{"driver": DRIVER, "pool": "n0", "device": f"gpu-{at}", "shareId": ""} for at in (0, 1)]
        mine = {"namespace": "default", "claim": "a", "uid": "claim-a", "inDoubt": False, "devices": devices}
        assert await one.told("n0") == (200, {"node": "n0", "reservations": [mine]})
        assert await one.told("n1") == (200, {"node": "n1", "reservations": []}), "another node's is not its business"
        assert await one.plugin("commit", reserved) == (200, {"committed": True, "message": ""})
        assert await one.told("n0") == (200, {"node": "n0", "reservations": []})


async def test_an_unreserved_reservation_is_no_longer_reported():
    async with serving(*fleet(), claim("a"), pod("p", "a")) as one:
        reserved = await reserve(one, "p", "n0")
        await one.plugin("unreserve", reserved)
        assert (await one.told("n0"))[1]["reservations"] == []


async def test_a_write_without_an_answer_is_in_doubt_until_the_claim_tells_also_if_the_pod_lets_go():
    async with serving(*fleet(), claim("a"), pod("p", "a")) as one:
        one.cluster.lost = {2}
        one.cluster.looked_at.clear()
        reserved = await reserve(one, "p", "n0")
        commit = asyncio.create_task(one.plugin("commit", reserved))
        await until(lambda: one.cluster.writes == 2)

        async def doubted():
            return [row["inDoubt"] for row in (await one.told("n0"))[1]["reservations"]] == [True]

        async with asyncio.timeout(PATIENCE):
            while not await doubted():  # noqa: ASYNC110  what is waited for has no event of its own
                await asyncio.sleep(0.005)
        await one.plugin("unreserve", reserved)
        assert await doubted(), "the write may land yet"
        await commit
        one.cluster.looked_at.set()
        async with asyncio.timeout(PATIENCE):
            while (await one.told("n0"))[1]["reservations"]:  # noqa: ASYNC110  as above
                await asyncio.sleep(0.005)
        assert await one.held("a") == []


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        (user("n0", "system:serviceaccount:team:other"), 403, "is not"),
        (user(""), 403, "no pod"),
        (user("n0", audience="another"), 401, "audience"),
        ({"authenticated": True, "user": user("n0")["user"]}, 401, "audience"),
        ({"authenticated": False, "error": "expired"}, 401, "token"),
        ({}, 401, "token"),
    ],
    ids=["another account", "no node", "another audience", "no audience", "expired", "unknown"],
)
async def test_a_caller_that_is_not_a_node_agent_gets_an_error_and_no_reservations(said, status, words):
    async with serving(*fleet()) as one:
        one.cluster.tokens["t"] = said
        got, answer = await one.told("t")
        assert (got, words in answer["error"], bool(answer["remedy"])) == (status, True, True)
        assert (await one.told(""))[0] == 401
        assert (await one.told("n0", "/api/v1/claims"))[0] == 404, "there is nothing else at this door"


async def test_a_follower_reserves_nothing_and_says_so():
    spec = {"holderIdentity": "two", "leaseDurationSeconds": 3600, "renewTime": now_of_the_wall()}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE, "namespace": "default"}, "spec": spec}  # fmt: skip
    async with serving(*fleet(), lease, leads=False) as one:
        status, answer = await one.told("n0")
        assert (status, answer["error"]) == (503, "another replica leads")
    async with serving(*fleet()) as one:
        one.service._node_reservations._sure = lambda: False  # as one that was stopped for a while
        status, answer = await one.told("n0")
        assert (status, "lease" in answer["error"]) == (503, True)


async def test_node_requests_are_rejected_while_tokens_cannot_be_reviewed():
    async with serving(*fleet()) as one:
        one.cluster.broken = Unavailable("away")
        status, answer = await one.told("n0")
        assert (status, "away" in answer["error"]) == (503, True)
        one.cluster.broken = None
        assert (await one.told("n0"))[0] == 200, "what went wrong is not remembered"


async def test_a_token_is_asked_about_once_in_a_while_whether_it_counts_or_not():
    now = [0.0]
    cluster = Reviewing()
    known = TokenReviews(cluster, AUDIENCE, lambda: now[0])
    for token, account in (("n0", Account(AGENT, "n0")), ("no-account", Account())):
        before = cluster.reviews
        assert [(await known.account_of(token))[:2] for _ in range(5)] == [account[:2]] * 5
        assert cluster.reviews == before + 1
    now[0] = accounts.INVALID_SECONDS
    cluster.tokens["no-account"] = user("n1")
    assert (await known.account_of("no-account"))[:2] == (AGENT, "n1")
    now[0] = accounts.VALID_SECONDS
    del cluster.tokens["n0"]
    assert await known.account_of("n0") == Account(), "one that was taken back does not count forever"
    await cluster.close()


async def test_garbage_is_neither_sent_on_in_masses_nor_kept(monkeypatch):
    monkeypatch.setattr(accounts, "MOST_WAITING", 3)
    monkeypatch.setattr(accounts, "MOST_CACHED", 3)
    cluster = Reviewing()
    known = TokenReviews(cluster, AUDIENCE, lambda: 0.0)
    for none in ("x" * (accounts.LONGEST + 1), "", "\udcff", "é"):
        assert await known.account_of(none) == Account()
    assert cluster.reviews == 0
    answers = await asyncio.gather(*(known.account_of(f"t{number}") for number in range(9)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Account] * 3 + [TooManyTokens] * 6
    for number in range(9):
        await known.account_of(f"u{number}")
    assert len(known._known) == 3
    await cluster.close()


async def test_the_reservations_endpoint_refuses_a_request_body():
    """Agents of nodes ask with a token alone; nothing else is read, of any caller."""
    async with serving(*fleet(1, 1)) as one, aiohttp.ClientSession() as session:
        async with session.get(f"http://{one.listening.reservations}/reservations", data=b"x") as answer:
            assert (answer.status, (await answer.json())["error"]) == (413, "a body has at most 0 bytes")
        assert (await one.told("n0"))[0] == 200


class SlowServer:
    """Answers TokenReviews once it is let, and knows tokens that begin with `good`."""

    def __init__(self):
        self.answers = asyncio.Event()
        self.reviewed = []

    async def create(self, _, body):
        token = body["spec"]["token"]
        self.reviewed.append(token)
        await self.answers.wait()
        return {"status": {"authenticated": token.startswith("good"), "user": {"username": token}}}


async def test_an_address_that_guesses_keeps_no_token_of_another_address_from_its_review():
    server, now = SlowServer(), 0.0
    reviews = TokenReviews(server, "", lambda: now)
    server.answers.set()
    assert (await reviews.account_of("good-known", "10.0.0.9")).name == "good-known"
    server.answers.clear()
    now = 1000.0  # it is reviewed again
    guesses = [asyncio.create_task(reviews.account_of(f"bad-{at}", "10.0.0.1")) for at in range(100)]
    await asyncio.sleep(0)
    valid = [asyncio.create_task(reviews.account_of(f"good-{at}", f"10.0.1.{at}")) for at in range(23)]
    known = asyncio.create_task(reviews.account_of("good-known", "10.0.0.1"))
    await asyncio.sleep(0)
    assert server.reviewed[-1] == "good-known", "it does not wait behind new ones"
    server.answers.set()
    async with asyncio.timeout(PATIENCE):
        assert [account.name for account in await asyncio.gather(*valid)] == [f"good-{at}" for at in range(23)]
        assert (await known).name == "good-known"
        found = await asyncio.gather(*guesses, return_exceptions=True)
    assert sum(isinstance(one, TooManyTokens) for one in found) == 84
