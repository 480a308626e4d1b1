"""A server stops on SIGTERM. If an error ends a server, one sentence reports the error."""

import errno
import os
import signal

import pytest

from analysis.errors import Failed
from cli import loop
from cluster.embedded import Embedded
from cluster.errors import Unavailable
from cluster.kubernetes import Kubernetes


class ClosableCluster(Embedded):
    closed = False

    async def close(self):
        self.closed = True
        await super().close()


@pytest.fixture
def cluster(monkeypatch):
    closable_cluster = ClosableCluster()
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: closable_cluster)
    return closable_cluster


def error_of_serving(error):
    """Return the error that `serve` raises if this error ends the server."""

    async def process(cluster, stop):
        raise ExceptionGroup("two", [ExceptionGroup("one", [error])])

    with pytest.raises((Failed, ExceptionGroup)) as failed:
        loop.serve("", "", process, "take another one")
    raised = failed.value
    return raised.exceptions[0] if isinstance(raised, ExceptionGroup) else raised


@pytest.mark.parametrize(
    ("error", "message", "remedy"),
    [
        (Unavailable("away"), "away", ""),
        (OSError(errno.EADDRINUSE, "in use"), "[Errno 98] in use", "take another one"),
        (OSError("too long a path"), "too long a path", ""),
    ],
)
def test_an_error_that_ends_a_server_is_reported(cluster, error, message, remedy):
    raised = error_of_serving(error)
    assert isinstance(raised, Failed)
    assert (raised.message, raised.remedy) == (message, remedy)
    assert cluster.closed


def test_sigterm_stops_the_server_and_closes_the_connection(cluster):
    async def process(cluster, stop):
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()

    loop.serve("", "", process)
    assert cluster.closed
