"""The short form of `make chaos`: pods come and go while one of each kind of thing goes wrong, and the judge reads what was stored."""

import pytest

from e2e.chaos.run import run, stage
from e2e.chaos.troubles import SHORT

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def on():
    """A control plane of its own: its API server and etcd are killed."""
    with stage(10) as running:
        yield running


@pytest.mark.time_limit(600, "seven things go wrong one after the other, and each takes seconds to get over")
def test_whatever_is_killed_no_device_is_held_twice_nothing_is_left_and_nobody_is_stuck(on):
    report = run(on, SHORT, namespace="short", seed=1, seconds=400)
    assert report.faults == ()
    assert [row.trouble for row in report.rows] == [trouble.name for trouble in SHORT]
    assert report.verdict.counts["bound"] >= 50
