"""The webhook starts on a large fleet fast enough for a rolling update and after a kill."""

import sys

import pytest

from bench.webhook.start import prepare, start

LARGE_FLEET, SMALL_FLEET = 5_000, 1  # nodes
# The largest ratio of the CPU times of a start. About 2 is measured; work that grows faster than the fleet would exceed 5 by far.
MAX_CPU_RATIO = 5


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_startup_cost_grows_little_with_five_thousand_nodes():
    """Each fleet is measured by the cheaper of two starts, because the first start compiles modules. The benchmark has absolute times."""
    small, large = cheapest(SMALL_FLEET), cheapest(LARGE_FLEET)
    assert large.cpu < MAX_CPU_RATIO * small.cpu
    assert large.memory < 300  # MiB


def cheapest(nodes):
    with prepare(nodes) as directory:
        return min(start(directory), start(directory), key=lambda started: started.cpu)
