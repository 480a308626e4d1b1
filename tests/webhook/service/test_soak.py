"""A short run of `make soak`, and the checks of its samples."""

import pytest

from bench.webhook import admission
from bench.webhook.soak import soak


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
