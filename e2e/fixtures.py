"""Pytest fixtures for the real cluster, shared by e2e/ and the `real` and `node` tests of tests/.

One control plane serves a whole session: tests keep to their own namespace (`namespace`), give cluster-wide
objects names of their own, and have them removed afterwards (`created`).
"""

import re
from collections.abc import Callable, Generator, Iterator

import pytest

from e2e import build
from e2e.actors.client import Object
from e2e.ground import packages
from e2e.ground.controlplane import ControlPlane
from e2e.ground.node import TEST_DRIVER, Node


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that need an older Kubernetes last, because it is built right before the first of them."""
    items.sort(key=lambda item: any(minors_of(item)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs before the first test that needs them: a build is not a test, and has no time limit."""
    if not session.config.option.collectonly and any(item.get_closest_marker("real") for item in session.items):
        build_programs(node=any(item.get_closest_marker("node") for item in session.items))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Build an older Kubernetes before the first test that asks for it. This wrapper is outside that of the time limit."""
    if minors := set(minors_of(item)):
        build_programs(*minors, node=False)
    return (yield)


def build_programs(*minors: str, node: bool = True) -> None:
    try:
        if node:
            packages.require()  # before the builds, which take long on a fresh machine
        build.everything(*minors, node=node)
    except build.BuildError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane with the alpha gates on, client limits raised and an audit log."""
    with ControlPlane(name="tests", audit=True) as running:
        yield running


@pytest.fixture(scope="session")
def node_cluster(control_plane: ControlPlane) -> Node:
    """The one real node of the session's control plane, with Kubernetes' DRA test driver and four devices on it."""
    node = Node(control_plane).start()  # it ends with the control plane
    node.driver(TEST_DRIVER, devices=4)
    return node


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test, named after it."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    count = request.session.stash.setdefault(COUNT, [0])
    count[0] += 1
    name = control_plane.namespace(f"{words}-{count[0]}")
    yield name
    # A test may have deleted it.
    control_plane.remove({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


@pytest.fixture
def created(control_plane: ControlPlane) -> Iterator[Callable[..., list[Object]]]:
    """A function that creates objects. They are deleted after the test, in reverse order."""
    objects: list[Object] = []

    def create(*new: Object) -> list[Object]:
        objects.extend(new)
        return control_plane.create(*new)

    try:
        yield create
    finally:
        control_plane.remove(*reversed(objects))


def minors_of(item: pytest.Item) -> Iterator[str]:
    """Yield the minors of Kubernetes that a test needs."""
    for marker in item.iter_markers("kubernetes"):
        yield from marker.args


COUNT = pytest.StashKey[list[int]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the cluster's logs to the report of a failed test."""
    report = yield
    running = getattr(item, "funcargs", {}).get("control_plane")
    if report.failed and running is not None:
        report.sections.append(("real cluster", running.failure_report()))
    return report
