"""A process of the gate starts on a large fleet: soon enough for a rolling update, and for a replica that was killed."""

import pytest

from bench.webhook.start import prepare, start


@pytest.mark.time_limit(180, "a fleet of 5,000 nodes is written, served, and read twice")
def test_the_gate_is_ready_soon_on_five_thousand_nodes():
    """1.3 s of CPU on a busy machine, which is most of what it takes; the limits leave a crowded one room."""
    with prepare() as directory:
        start(directory)  # compiles the modules, as an image has them
        ready = start(directory)
    assert ready.cpu < 4
    assert ready.wall < 60
    assert ready.memory < 300
