"""Compatibility with control planes: the table of docs/versions.md, each cell tested on the real servers of that minor.

Every run tests the oldest minor, the newest release and an unreleased minor; the others are tested by `make long`. With DRAWBRIDGE_RECORD=1 the
cells are written into the page instead of compared.
"""

import os
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER, Bridge
from e2e.actors.webhook import NOWHERE, Webhook, claims_of, gpu, results_of, templates_of
from e2e.actors.workloads import pod, template, using_template
from e2e.actors.workloads import request as devices
from e2e.bridge import gpu_nodes
from e2e.bridge import test_plugin as plugin
from e2e.bridge import test_read_only as read_only
from e2e.build import CURRENT, KUBERNETES_VERSIONS, NEWEST
from e2e.driver.installed import GPU, claiming_pod, device_variables, installed_driver, until_freed
from e2e.ground.controlplane import ControlPlane
from e2e.ground.node import Node
from e2e.webhook import test_impossible as impossible
from e2e.webhook import test_translation as usual
from tests.limits import PATIENCE

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
]

PAGE = Path(__file__).parents[2] / "docs/versions.md"
OLDEST = min(KUBERNETES_VERSIONS)
COLUMNS = sorted(KUBERNETES_VERSIONS)
USUAL = sorted({OLDEST, CURRENT, NEWEST})
AWAY = 6.0  # seconds without a controller
NODE = "versions-0"
DRIVER = "versions.example.com"


def minor(version):
    """Return the parameter of a column, with the mark `long` if not every run tests it."""
    marks = [pytest.mark.kubernetes(version), *([] if version in USUAL else [pytest.mark.long])]
    return pytest.param(version, marks=marks)


upgraded = pytest.mark.parametrize(
    ("old", "new"),
    [pytest.param(*pair, marks=pytest.mark.kubernetes(*pair), id="-".join(pair)) for pair in pairwise(USUAL)],
)


@pytest.fixture(scope="module", params=map(minor, COLUMNS))
def control_plane(request):
    """A control plane of one minor, with its default gates."""
    with ControlPlane(name=f"v{request.param}", version=request.param, feature_gates={}, audit=True) as running:
        yield running


@pytest.fixture(scope="module")
def webhook(control_plane):
    return Webhook(control_plane).install()


@pytest.fixture(scope="module")
def bridge(control_plane):
    running = Bridge(control_plane)
    with running.folder:
        yield running.install()
        running.remove()


# Fixtures of e2e/bridge, here on a control plane of this minor.
read_only_allocator, gpus, scheduler = read_only.read_only_allocator, gpu_nodes.gpus, plugin.scheduler


@pytest.fixture
def cell(control_plane):
    """Compare a result with the page's cell for this minor, or write it there."""

    def record(row, answer="yes"):
        lines = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
        [cells] = [line for line in lines if line[0] == f"| {row}"]
        column = 1 + COLUMNS.index(control_plane.version)
        shown = cells[column].removesuffix(" |")
        if os.environ.get("DRAWBRIDGE_RECORD"):
            cells[column] = answer
            line = " | ".join(part.removesuffix(" |") for part in cells) + " |"
            PAGE.write_text(re.sub(rf"^\| {re.escape(row)} \|.*$", line, PAGE.read_text(), flags=re.MULTILINE))
        else:
            assert answer == shown, f"{row}, {control_plane.version}: the page says {shown}"

    return record


def test_a_pod_is_translated_and_placed(control_plane, fleet_node, gated, cell):
    usual.test_the_stock_scheduler_places_a_translated_legacy_pod(control_plane, fleet_node, gated, "nvidia, whole")
    cell("webhook: a pod is translated, claimed and placed")


def test_a_pod_that_no_node_could_serve_is_refused(control_plane, fleet_node, gated, cell):
    code, message = impossible.applied(control_plane, "p", gated)
    assert code
    assert "[R023]" in message
    cell("webhook: a pod that no node could serve is refused")


def test_a_dry_run_prints_what_is_stored(control_plane, fleet_node, gated, cell):
    usual.test_a_dry_run_prints_what_a_real_apply_stores(control_plane, fleet_node, gated)
    cell("webhook: a dry run stores nothing, and prints what an apply would store")


@pytest.mark.parametrize("server_side", [False, True], ids=["client-side", "server-side"])
def test_a_manifest_is_applied_again(control_plane, fleet_node, gated, cell, server_side):
    usual.test_the_same_manifest_can_be_applied_again(control_plane, fleet_node, gated, server_side, "nvidia")
    cell("webhook: a manifest is applied again")


def test_a_late_template_leads_to_a_claim(control_plane, fleet_node, gated, webhook, cell):
    """The controller was stopped when the pod was created. Older claim controllers retry with doubled intervals."""
    webhook.processes.pop("controller").stop(hard=True)
    begun = time.monotonic()
    control_plane.create(gpu("p", gated, nodeSelector=NOWHERE))
    time.sleep(AWAY)
    webhook.start_controller()
    control_plane.until("the template is there", lambda: templates_of(control_plane, gated), PATIENCE)
    late = time.monotonic() - begun
    control_plane.until("its claim is there", lambda: claims_of(control_plane, gated, "p"), late + PATIENCE)
    cell("webhook: a template that is created after its pod leads to a claim")


def test_a_read_only_allocator_explains_a_waiting_pod(control_plane, read_only_allocator, namespace, cell):
    """A whole device, because older minors do not enable shared devices by default."""
    read_only.check_events_and_metrics(control_plane, read_only_allocator, namespace)
    cell("read-only allocator: an event explains a waiting pod")


def test_pods_get_devices_through_the_plugin(control_plane, bridge, scheduler, namespace, cell):
    plugin.test_pods_get_and_reuse_devices_through_the_plugin(control_plane, namespace)
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    cell("allocator with our plugin: devices are allocated and freed, a waiting pod is placed")


@pytest.fixture(scope="module")
def driver(control_plane):
    """Our driver on a real node whose kubelet is of this minor, with a class for its devices."""
    made = fleet.device_class(DRIVER, f"device.driver == '{DRIVER}'")
    control_plane.create(made)
    with installed_driver(
        Node(control_plane).start(), DRIVER, {"gpus": [GPU | {"name": "gpu-0", "uuid": "GPU-0"}]}
    ) as running:
        yield running
    control_plane.remove(made)


@pytest.mark.long
@pytest.mark.node
def test_our_driver_prepares_devices(control_plane, driver, namespace, created, cell):
    """Building the kubelet of an older minor takes minutes."""
    created(
        template("one", namespace, devices("r", DRIVER)),
        claiming_pod(namespace, "p", driver.node.name, [using_template("one")]),
    )
    assert device_variables(driver, namespace, "p") == {"DRAWBRIDGE_DEVICE_GPU_0": "GPU-0", "card": "yes"}
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/p", gracePeriodSeconds=0)
    until_freed(driver, set())
    cell("our node driver: a container sees its device")


@upgraded
@pytest.mark.timeout(400)
def test_running_pods_keep_their_devices_through_upgrade_and_downgrade(request, old, new):
    """The API server over one etcd is old, then new, then old again; webhook, allocator and our scheduler keep running."""
    with ControlPlane(name="upgrade", version=old, feature_gates={}) as cluster:
        webhook, bridge = Webhook(cluster).install(), Bridge(cluster)
        request.addfinalizer(bridge.folder.cleanup)
        bridge.prepare()
        bridge.start()
        bridge.start_scheduler()
        name = cluster.namespace("upgraded")
        webhook.admits(name)
        cluster.add_fake_nodes(1, prefix="versions-")
        cluster.create(
            *fleet.slices(fleet.NVIDIA, NODE, fleet.whole_gpus(4), by_name=True),
            *fleet.slices(DRIVER, NODE, [fleet.device(f"own-{at}", {}) for at in range(3)], by_name=True),
            *fleet.classes(extended=False),
            fleet.device_class(DRIVER, f"device.driver == '{DRIVER}'"),
            template("one", name, devices("r", DRIVER)),
        )
        webhook.reads_on(NODE)
        running: list[str] = []
        for minor in (old, new, old):
            if running:
                cluster.become(minor)
            before = [held(cluster, name, pod_name) for pod_name in running]
            made = [f"stock-{len(running)}", f"ours-{len(running)}"]
            cluster.create(
                gpu(made[0], name),
                pod(made[1], name, schedulerName=SCHEDULER, resourceClaims=[using_template("one")]),
            )
            for pod_name in made:
                cluster.wait_scheduled(name, pod_name)
                cluster.patch(f"/api/v1/namespaces/{name}/pods/{pod_name}/status", {"status": {"phase": "Running"}})
            assert [held(cluster, name, pod_name) for pod_name in running] == before
            running += made
        assert len({device for pod_name in running for device in held(cluster, name, pod_name)}) == len(running)
        assert cluster.get("/version")["minor"] == old.partition(".")[2]


@upgraded
@pytest.mark.long
@pytest.mark.node
@pytest.mark.timeout(400)
def test_a_container_keeps_its_device_through_control_plane_upgrades(old, new):
    """The kubelet stays at the old minor, which the version skew policy allows. In each round our driver prepares a device for another pod."""
    with ControlPlane(name="upgrade-node", version=old, feature_gates={}) as cluster:
        name = cluster.namespace("upgraded")
        cluster.create(
            fleet.device_class(DRIVER, f"device.driver == '{DRIVER}'"), template("one", name, devices("r", DRIVER))
        )
        gpus = [GPU | {"name": f"gpu-{at}", "uuid": f"GPU-{at}"} for at in range(3)]
        with installed_driver(Node(cluster).start(), DRIVER, {"gpus": gpus}) as driver:
            starts = []
            for number, minor in enumerate((old, new, old)):
                if number:
                    cluster.become(minor)
                cluster.create(claiming_pod(name, f"p{number}", driver.node.name, [using_template("one")]))
                assert len(device_variables(driver, name, f"p{number}")) == 2
                starts.append(cluster.wait_phase(name, f"p{number}", "Running")["status"]["containerStatuses"][0])
            for number, start in enumerate(starts):
                now = cluster.wait_phase(name, f"p{number}", "Running")["status"]["containerStatuses"][0]
                assert (now["containerID"], now["restartCount"]) == (start["containerID"], 0)
            assert len(driver.prepared()) == len(starts)


def held(cluster, namespace, name):
    """Return the devices of a pod's claims; the pod has to be Running."""
    assert cluster.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]["phase"] == "Running"
    return [result["device"] for claim in claims_of(cluster, namespace, name).values() for result in results_of(claim)]
