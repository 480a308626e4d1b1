"""The webhook starts on a large fleet fast enough for a rolling update and after a kill."""

import pytest

from bench.webhook.start import prepare, start

FLEET, NO_FLEET = 5_000, 1
# The ratio of CPU times. About 2 is measured; work that grows faster than the fleet would exceed 5 by far.
ALLOWED = 5


@pytest.mark.time_limit(300, "a fleet of 5,000 nodes is written, served, and read three times")
@pytest.mark.linux("reads /proc")
def test_startup_cost_grows_little_with_five_thousand_nodes():
    """Both fleets are measured in one run, each by its cheaper start, because the first start compiles. Absolute times are in the benchmark."""
    small, large = cheapest(NO_FLEET), cheapest(FLEET)
    assert large.cpu < ALLOWED * small.cpu
    assert large.memory < 300


def cheapest(nodes):
    with prepare(nodes) as directory:
        return min(start(directory), start(directory), key=lambda started: started.cpu)
