"""The clusters of tests/cluster, for what follows one."""

from tests.cluster.conftest import cluster, connect, home

__all__ = ["cluster", "connect", "home"]
