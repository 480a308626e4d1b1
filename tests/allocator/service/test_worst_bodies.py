"""No request blocks the loop: other schedulers get answers, and the lease is renewed."""

import asyncio
import json
from io import BytesIO

import aiohttp
import pytest

from allocator.service import namespace_turns, question_runner
from dra.cache import Cache
from dra.cel.library import regexes
from dra.validation import errors, gates
from tests.allocator.service.reviews import QUOTA_LISTENER, review_of
from tests.allocator.service.sidecar import claim, fleet, loaded, node, pod, quota_of, running, until
from tests.webhook.hostile import SLOW_PATTERNS

SIZES = (6_000, 250_000, 4_000_000)
LIMIT = pytest.mark.slow_turn(0.1, "no body holds the loop for longer")


def exactly(**more):
    return {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **more}


def pods(size):
    """Yield pods of about `size` bytes that are the most expensive to decode or to decide."""
    yield pod("p", containers=[{}] * (size // 4))
    yield pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "a"}] * (size // 50))
    yield pod("p", containers=[{"name": "c", "resources": {"requests": {f"example.com/g{i}": "9" * 20 + "E9999" for i in range(size // 60)}}}])  # fmt: skip
    yield pod("p") | {"metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {f"a{i}": "x" * 9 for i in range(size // 20)}}}  # fmt: skip


def claims(size):
    for requests in (
        [{"name": f"r{i}", "exactly": exactly()} for i in range(size // 80)],
        [{"name": f"r{i}", "exactly": exactly(selectors=[{"cel": {"expression": f"device.driver.matches('{SLOW_PATTERNS[i % 4]}')"}}])} for i in range(size // 5_000 + 1)],
        [{"name": f"r{i}", "firstAvailable": [{"name": f"s{sub}", **exactly(count=32)} for sub in range(8)]} for i in range(size // 800 + 1)],
    ):  # fmt: skip
        yield claim("x") | {"spec": {"devices": {"requests": requests}}}
    constraints = [{"matchAttribute": f"a.b/c{i}"} for i in range(size // 40)]
    yield claim("x") | {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly()}], "constraints": constraints}}}  # fmt: skip


def to_plugin(size):
    yield from ({"pod": body} for body in pods(size))


def to_extender(size):
    yield from ({"Pod": body, "NodeNames": ["n0"]} for body in pods(size))
    yield {"Pod": pod("p"), "NodeNames": [f"n{i}" for i in range(size // 9)]}


def reviews(size):
    yield from map(review_of, (*pods(size), *claims(size)))


def written(bodies):
    return [
        (body if isinstance(body, str) else json.dumps(body)).encode(errors="surrogateescape")
        for size in SIZES
        for body in bodies(size)
    ]


CALLS = {
    "/quota": reviews,
    "/plugin/v1/prefilter": to_plugin,
    "/plugin/v1/reserve": to_plugin,
    "/extender/filter": to_extender,
    "/extender/prioritize": to_extender,
    "/extender/bind": to_extender,
}


@LIMIT
@pytest.mark.parametrize("path", CALLS)
async def test_no_request_body_blocks_the_loop(path):
    bodies = await asyncio.to_thread(written, CALLS[path])
    cluster = loaded(*fleet(10, 4), quota_of(gpu__devices=3), claim("a"))
    async with running(cluster, answer=0.2, **QUOTA_LISTENER) as sidecar, aiohttp.ClientSession() as other_session:
        session = other_session if path == "/quota" else sidecar._sessions[path.split("/")[1]]
        address = sidecar.listening.quota if path == "/quota" else "drawbridge"
        for body in bodies:
            async with session.post(f"http://{address}{path}", data=BytesIO(body)) as answer:
                assert answer.status in (200, 400, 409, 413, 503), await answer.read()
        assert sidecar.service.lead.leads


@LIMIT
async def test_queries_over_a_large_fleet_do_not_block_the_loop():
    cluster = await asyncio.to_thread(lambda: loaded(*fleet(1, 1), *(node(f"m{i}") for i in range(3_000))))
    async with running(cluster) as client:
        for path in ("claims", "drift", "server", "quota"):
            assert (await client.ask(f"/api/v1/{path}"))[0] == 200


@LIMIT
@pytest.mark.parametrize("pattern", [*SLOW_PATTERNS, "a{0,1000}" * 10])
async def test_no_pattern_of_a_stored_claim_blocks_the_loop(pattern):
    """Compiling a pattern takes up to half a second and cannot be interrupted; the pod waits, and the next call is answered."""
    await others_are_answered_beside([f"{pattern}|stored"])


def with_selectors(name, texts):
    selecting = claim(name)
    selecting["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
        {"cel": {"expression": text}} for text in texts
    ]
    return selecting


async def others_are_answered_beside(patterns):
    dear = with_selectors("dear", [f"!device.driver.matches('{pattern}')" for pattern in patterns])
    cluster = loaded(*fleet(10, 4), dear, claim("a"), pod("p", "dear"), pod("q", "a"))
    async with running(cluster) as sidecar:
        for name, verdicts in (("p", ("undecided", "never")), ("q", ("fits",))):
            assert (await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name)}))[1]["verdict"] in verdicts


ONES = f"[{','.join('1' * 100)}]"
DEAR = {
    "evaluations": [f"{ONES}.all(x, {ONES}.all(y, x + y > {i - 100}))" for i in range(30)],
    "patterns": [f"!device.driver.matches('{f'(a{{0,30}}){{0,30}}b{i}' * 10}')" for i in range(32)],
}


@LIMIT
@pytest.mark.parametrize("selectors", DEAR.values(), ids=DEAR)
async def test_other_pods_are_placed_during_an_expensive_question(selectors, monkeypatch):
    """A pod of the same namespace is reserved and committed during the question; in the end all three have different devices."""
    monkeypatch.setattr(namespace_turns.NamespaceTurns, "seconds_until", lambda *_: 0.0)
    in_thread = []
    compute = question_runner.QuestionRunner._compute
    monkeypatch.setattr(
        question_runner.QuestionRunner,
        "_compute",
        lambda runner, lane, question: (in_thread.append(question), compute(runner, lane, question)),
    )
    expensive = [with_selectors(name, selectors) for name in ("dear", "same")]
    # The embedded API server runs on the same loop. Compile the expressions of the claims now, so that their creation takes no time.
    assert await asyncio.to_thread(lambda: [errors(claim_, gates.ALL) for claim_ in expensive]) == [[], []]
    monkeypatch.setattr(regexes, "_PATTERNS", Cache(32 << 20))
    cluster = loaded(*fleet(10, 4), *expensive, claim("a"), *(pod(f"p-{name}", name) for name in ("dear", "same", "a")))
    async with running(cluster) as sidecar:
        asking = [asyncio.create_task(sidecar.place(f"p-{name}")) for name in ("dear", "same")]
        await until(lambda: in_thread)
        assert (await sidecar.place("p-a"))[0] == 200
        assert not in_thread[0].answer.done()
        assert [(await task)[0] for task in asking] == [200, 200]
        held = [device for name in ("dear", "same", "a") for device in await sidecar.allocated_devices(name)]
        assert len(set(held)) == 3
        assert sidecar.service.pods.turns._paid_at["default"] > asyncio.get_running_loop().time()
