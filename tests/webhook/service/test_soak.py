"""A short run of `make soak`, and the checks of its samples."""

import pytest

from bench.webhook import admission
from bench.webhook.soak import NO_HONEST_REVIEWS, DelayFigures, Sample, SoakResult, soak, why_lost


@pytest.mark.long
@pytest.mark.linux("reads /proc")
async def test_a_webhook_under_hostile_reviews_loses_nothing_and_stays_small():
    with admission.server("webhook") as server:
        result = await soak(server, seconds=8, reviews=2_000, share=0.5, hostile=100)
    assert not result.lost
    assert result.hostile >= 100
    assert result.honest_results.answered > 5
    assert not result.honest_results.lost
    assert result.honest_results.cpu_time.longest < 1_000
    assert result.answers[200] > 5
    assert set(result.answers) <= {200, 400, 413, 503}
    assert max(sample.memory for sample in result.samples) < 512
    assert max(sample.descriptors for sample in result.samples) < 64


@pytest.mark.parametrize(
    ("memory", "descriptors", "problem"),
    [
        (lambda n: 100 + 3 * n, lambda _: 20, "memory grew"),
        (lambda _: 100, lambda n: 20 + n, "descriptors grew"),
        (lambda _: 600, lambda _: 20, "more than 512 MiB"),
        (lambda n: 100 + n % 7, lambda n: 20 + n % 3, ""),
        (lambda n: 400 if n == 55 else 100, lambda n: 60 if n == 55 else 20, ""),
    ],
)
def test_growth_of_memory_or_descriptors_is_reported(memory, descriptors, problem):
    result = SoakResult({200: 1}, 0, [Sample(float(n), memory(n), descriptors(n)) for n in range(60)])
    assert problem in "; ".join(result.problems)
    assert bool(result.problems) == bool(problem)


def test_held_and_lost_honest_reviews_are_reported():
    flat = [Sample(float(n), 100.0, 20) for n in range(60)]
    held = NO_HONEST_REVIEWS._replace(cpu_time=DelayFigures.of([0.001] * 200 + [0.4]))
    assert SoakResult({200: 1}, 0, flat, honest_results=held).problems == [
        "an honest review waited for 400 ms of the webhook's CPU time"
    ]
    often = NO_HONEST_REVIEWS._replace(cpu_time=DelayFigures.of([0.001] * 90 + [0.09] * 10))
    assert SoakResult({200: 1}, 0, flat, honest_results=often).problems == [
        "one honest review of a hundred waited for 90 ms of the webhook's CPU time"
    ]
    lost = NO_HONEST_REVIEWS._replace(lost=["3.1 s: 503", "4.0 s: 503"])
    assert SoakResult({200: 1}, 0, flat, honest_results=lost).problems == [
        "2 honest reviews were lost, the first: 3.1 s: 503"
    ]
    assert DelayFigures.of([0.001] * 200 + [0.4]) == (1.0, 1.0, 400.0)


@pytest.mark.parametrize(
    ("status", "text", "explanation"),
    [
        (200, b'{"response": {"allowed": true, "patch": "W10="}}', ""),
        (503, b"too many reviews in flight", "503: too many reviews in flight"),
        (200, b'{"response": {"allowed": true, "warnings": ["left as it is: late"]}}', "left as it is: late"),
        (200, b'{"response": {"allowed": false}}', '{"allowed": false}'),
    ],
)
def test_only_a_lost_honest_review_is_explained(status, text, explanation):
    assert why_lost(status, text) == explanation
