"""The clusters of tests/cluster, for tests of informers and controllers."""

from tests.cluster.conftest import cluster, connect
from tests.cluster.conftest import namespace as home

__all__ = ["cluster", "connect", "home"]
