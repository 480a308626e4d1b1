"""No request holds the event loop for long, so that other requests are answered and the allocator renews its Lease."""

import asyncio
import json
from io import BytesIO

import pytest

from allocator.service import namespace_turns, question_runner
from dra.cache import Cache
from dra.cel.library import regexes
from dra.validation import errors, gates
from tests.allocator.service.sidecar import claim, fleet, loaded, pod, quota_of, running, until
from tests.webhook.hostile import SLOW_PATTERNS

BODY_SIZES = (6_000, 250_000, 4_000_000)  # bytes


def expensive_pods(size):
    """Yield pods of about `size` bytes that are the most expensive to decode or to decide."""
    yield pod("p", containers=[{}] * (size // 4))
    yield pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "a"}] * (size // 50))
    yield pod("p", containers=[{"name": "c", "resources": {"requests": {f"example.com/g{i}": "9" * 20 + "E9999" for i in range(size // 60)}}}])  # fmt: skip
    yield pod("p") | {"metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {f"a{i}": "x" * 9 for i in range(size // 20)}}}  # fmt: skip


def encoded_bodies():
    """Return the bodies of all sizes as bytes."""
    return [json.dumps({"pod": body}).encode() for size in BODY_SIZES for body in expensive_pods(size)]


@pytest.mark.long
@pytest.mark.parametrize("path", ["/plugin/v1/prefilter", "/plugin/v1/reserve"])
async def test_no_request_body_blocks_the_loop(path):
    bodies = await asyncio.to_thread(encoded_bodies)
    cluster = loaded(*fleet(10, 4), quota_of(gpu__devices=3), claim("a"))
    async with running(cluster) as sidecar:
        session = sidecar._sessions["plugin"]
        for body in bodies:
            async with session.post(f"http://drawbridge{path}", data=BytesIO(body)) as answer:
                assert answer.status in (200, 400, 409, 413, 503), await answer.read()
        assert sidecar.service.lead.leads


@pytest.mark.parametrize("pattern", [*SLOW_PATTERNS, "a{0,1000}" * 10])
async def test_no_pattern_of_a_stored_claim_blocks_the_loop(pattern):
    """Compiling a pattern takes up to half a second and cannot be interrupted. The claim's pod gets no device, and the next call is answered."""
    # No other test has compiled this pattern.
    expensive_claim = claim("costly", selectors=[f"!device.driver.matches('{pattern}|stored')"])
    cluster = loaded(*fleet(10, 4), expensive_claim, claim("a"), pod("p", "costly"), pod("q", "a"))
    async with running(cluster) as sidecar:
        for name, verdicts in (("p", ("undecided", "never")), ("q", ("fits",))):
            assert (await sidecar.prefilter(name))["verdict"] in verdicts


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
    costly_claims = [claim(name, selectors=selectors) for name in ("costly-1", "costly-2")]
    # The embedded API server runs on the same loop. Compile the claims' expressions now, so that the creation of the claims takes no time.
    assert await asyncio.to_thread(lambda: [errors(claim_, gates.ALL) for claim_ in costly_claims]) == [[], []]
    monkeypatch.setattr(regexes, "_PATTERNS", Cache(32 << 20))  # the allocator has to compile the patterns itself
    cluster = loaded(
        *fleet(10, 4), *costly_claims, claim("a"), *(pod(f"p-{name}", name) for name in ("costly-1", "costly-2", "a"))
    )
    async with running(cluster, free=namespace_turns.FREE) as sidecar:
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
