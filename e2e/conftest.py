"""Fixtures of the gate, for the tests in this directory."""

import pytest

from e2e.gate import Gate


@pytest.fixture(scope="session")
def gate(control_plane):
    """drawbridge on the session's control plane, for namespaces that ask for it."""
    running = Gate(control_plane)
    try:
        yield running.install()
    finally:
        running.remove()


@pytest.fixture
def gated(gate, namespace, control_plane):
    """The name of a fresh namespace that the gate enforces in; its devices are free again afterwards."""
    gate.admits(namespace)
    yield namespace
    control_plane.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments")
    # Nobody runs the pods of a fake node, so nobody would ever end them.
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
