"""The clock and the log of the fair queue's tests."""

import pytest

from runtime.http import fair_queue
from tests.runtime.http.queue_clients import Clock


@pytest.fixture
def clock(monkeypatch):
    """Replace the queue's clock, so that results do not depend on the machine's load."""
    queue_clock = Clock()
    monkeypatch.setattr(fair_queue, "thread_time", queue_clock)
    return queue_clock


@pytest.fixture
def log():
    """Return a list to which clients append their names, or how long they waited, in the order of the answers."""
    return []
