"""No request holds the event loop for long, so that other requests are answered and the allocator renews its Lease."""

import asyncio
import json
from io import BytesIO

import pytest

from allocator.service import namespace_turns, question_runner
from dra.cache import Cache
from dra.cel.library import regexes
from dra.validation import errors, gates
from tests.allocator.service.sidecar import claim, fleet, loaded, node, pod, quota_of, running, until
from tests.webhook.hostile import SLOW_PATTERNS

BODY_SIZES = (6_000, 250_000, 4_000_000)  # bytes


def expensive_pods(size):
    """Yield pods of about `size` bytes that are the most expensive to decode or to decide."""
    yield pod("p", containers=[{}] * (size // 4))
    yield pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "a"}] * (size // 50))
    yield pod("p", containers=[{"name": "c", "resources": {"requests": {f"example.com/g{i}": "9" * 20 + "E9999" for i in range(size // 60)}}}])  # fmt: skip
    yield pod("p") | {"metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {f"a{i}": "x" * 9 for i in range(size // 20)}}}  # fmt: skip


def plugin_bodies(size):
    yield from ({"pod": body} for body in expensive_pods(size))


def encoded_bodies(bodies_of_size):
    """Return the bodies of all sizes as bytes. `bodies_of_size` is a function that yields bodies of one size."""
    return [json.dumps(body).encode() for size in BODY_SIZES for body in bodies_of_size(size)]


BODIES_BY_PATH = {
    "/plugin/v1/prefilter": plugin_bodies,
    "/plugin/v1/reserve": plugin_bodies,
}


@pytest.mark.long
@pytest.mark.parametrize("path", BODIES_BY_PATH)
async def test_no_request_body_blocks_the_loop(path):
    bodies = await asyncio.to_thread(encoded_bodies, BODIES_BY_PATH[path])
    cluster = loaded(*fleet(10, 4), quota_of(gpu__devices=3), claim("a"))
    async with running(cluster) as sidecar:
        session = sidecar._sessions["plugin"]
        for body in bodies:
            async with session.post(f"http://drawbridge{path}", data=BytesIO(body)) as answer:
                assert answer.status in (200, 400, 409, 413, 503), await answer.read()
        assert sidecar.service.lead.leads


async def test_queries_over_a_large_fleet_do_not_block_the_loop():
    cluster = await asyncio.to_thread(lambda: loaded(*fleet(1, 1), *(node(f"m{i}") for i in range(3_000))))
    async with running(cluster) as sidecar:
        for path in ("claims", "drift", "server", "quota"):
            assert (await sidecar.ask(f"/api/v1/{path}"))[0] == 200


@pytest.mark.parametrize("pattern", [*SLOW_PATTERNS, "a{0,1000}" * 10])
async def test_no_pattern_of_a_stored_claim_blocks_the_loop(pattern):
    """Compiling a pattern takes up to half a second and cannot be interrupted. The claim's pod gets no device, and the next call is answered."""
    await assert_next_pod_is_answered([f"{pattern}|stored"])  # a pattern that no other test has compiled


def claim_with_selectors(name, expressions):
    selective_claim = claim(name)
    selective_claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
        {"cel": {"expression": expression}} for expression in expressions
    ]
    return selective_claim


async def assert_next_pod_is_answered(patterns):
    """Call prefilter for a pod whose claim has these patterns, and then for another pod."""
    expensive_claim = claim_with_selectors("costly", [f"!device.driver.matches('{pattern}')" for pattern in patterns])
    cluster = loaded(*fleet(10, 4), expensive_claim, claim("a"), pod("p", "costly"), pod("q", "a"))
    async with running(cluster) as sidecar:
        for name, verdicts in (("p", ("undecided", "never")), ("q", ("fits",))):
            assert (await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name)}))[1]["verdict"] in verdicts


HUNDRED_ONES = f"[{','.join('1' * 100)}]"
EXPENSIVE_SELECTORS = {
    "evaluations": [f"{HUNDRED_ONES}.all(x, {HUNDRED_ONES}.all(y, x + y > {i - 100}))" for i in range(30)],
    "patterns": [f"!device.driver.matches('{f'(a{{0,30}}){{0,30}}b{i}' * 10}')" for i in range(32)],
}


@pytest.mark.long
@pytest.mark.parametrize("selectors", EXPENSIVE_SELECTORS.values(), ids=EXPENSIVE_SELECTORS)
async def test_other_pods_are_placed_during_an_expensive_question(selectors, monkeypatch):
    """A cheap pod is placed while a costly pod of its namespace is decided. In the end all three pods have different devices."""
    monkeypatch.setattr(namespace_turns.NamespaceTurns, "seconds_until", lambda *_: 0.0)
    questions_in_thread = []
    compute = question_runner.QuestionRunner._compute
    monkeypatch.setattr(
        question_runner.QuestionRunner,
        "_compute",
        lambda runner, lane, question: (questions_in_thread.append(question), compute(runner, lane, question)),
    )
    costly_claims = [claim_with_selectors(name, selectors) for name in ("costly-1", "costly-2")]
    # The embedded API server runs on the same loop. Compile the claims' expressions now, so that the creation of the claims takes no time.
    assert await asyncio.to_thread(lambda: [errors(claim_, gates.ALL) for claim_ in costly_claims]) == [[], []]
    monkeypatch.setattr(regexes, "_PATTERNS", Cache(32 << 20))  # the allocator has to compile the patterns itself
    cluster = loaded(
        *fleet(10, 4), *costly_claims, claim("a"), *(pod(f"p-{name}", name) for name in ("costly-1", "costly-2", "a"))
    )
    async with running(cluster) as sidecar:
        placements = [asyncio.create_task(sidecar.place(f"p-{name}")) for name in ("costly-1", "costly-2")]
        await until(lambda: questions_in_thread)
        assert (await sidecar.place("p-a"))[0] == 200
        assert not questions_in_thread[0].answer.done()
        assert [(await task)[0] for task in placements] == [200, 200]
        devices = [device for name in ("costly-1", "costly-2", "a") for device in await sidecar.allocated_devices(name)]
        assert len(set(devices)) == 3
        assert sidecar.service.pods.turns._paid_at["default"] > asyncio.get_running_loop().time(), (
            "the time of the costly questions was not charged to their namespace"
        )
