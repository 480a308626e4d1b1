"""Fixtures of the webhook, for the tests in this directory."""

import pytest

from e2e import build
from e2e.actors import fleet
from e2e.actors.bridge import Bridge
from e2e.actors.webhook import DEVICES, NODE, Webhook


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by their marks
def pytest_collection_modifyitems(items):
    """Mark the tests that use the fixture `webhook` but no node: they run in a process of their own, with its own control plane."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if not item.get_closest_marker("real"):
            if getattr(item.module, "program", None) is build.program:
                raise pytest.UsageError(f"{item.nodeid} needs a program that Go builds, and is not marked as real")
        elif "webhook" in fixtures and "node_cluster" not in fixtures:
            item.add_marker("gated")


@pytest.fixture(scope="session")
def webhook(control_plane):
    """drawbridge on the session's control plane, for namespaces that opt in. It ends with the control plane."""
    running = Webhook(control_plane)
    try:
        return running.install()
    except BaseException:  # tests without a webhook continue
        running.remove()
        raise


@pytest.fixture
def gated(webhook, namespace, control_plane):
    """The name of a new namespace with mode enforce. Its workloads are deleted afterwards, so that their devices are free again."""
    try:
        webhook.admits(namespace)
        yield namespace
    finally:
        control_plane.until(
            f"namespace {namespace} has no workloads", lambda: delete_workloads(control_plane, namespace)
        )


def delete_workloads(cluster, namespace):
    """Delete workloads and pods of a namespace; return whether none is left.

    No kubelet runs the pods of a fake node, so none would ever end them. A ReplicaSet outlives its Deployment and creates pods
    in place of the deleted ones, so callers repeat this.
    """
    paths = [f"/apis/apps/v1/namespaces/{namespace}/{kind}" for kind in ("deployments", "replicasets")]
    paths.append(f"/api/v1/namespaces/{namespace}/pods")
    nonempty = [path for path in paths if cluster.get(path)["items"]]
    for path in nonempty:
        cluster.delete(path, gracePeriodSeconds=0)
    return not nonempty


@pytest.fixture(scope="module")
def fleet_node(control_plane, webhook):
    """One fake node with whole GPUs, MIG devices, shared GPUs and NICs, as their drivers publish them."""
    objects = [s for driver, devices in DEVICES.items() for s in fleet.slices(driver, NODE, devices, by_name=True)]
    objects += fleet.classes(extended=False)
    try:
        control_plane.add_fake_nodes(1, prefix="webhook-fake-")
        control_plane.create(*objects)
        webhook.reads_on(NODE)
        yield NODE
    finally:  # an error here fails the tests of this module only
        control_plane.remove(*objects, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


@pytest.fixture(scope="session")
def bridge(control_plane):
    """The allocator's service, and our scheduler, which calls it. They run on the session's control plane and end with it."""
    running = Bridge(control_plane)
    try:
        running.install()
    except BaseException:
        running.remove()
        raise
    with running.folder:
        yield running
