"""What works next to which control plane: the table of docs/versions.md, each cell seen on the real servers of that minor.

The oldest and the newest are in every whole run, those between them in the long form. With DRAWBRIDGE_RECORD=1 the cells are written
into the page instead of being compared with it.
"""

import os
import re
import time
from pathlib import Path

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import PLUGIN_SCHEDULER, Bridge, plugin_configuration
from e2e.actors.webhook import NOWHERE, Webhook, claims_of, gpu, results_of
from e2e.actors.workloads import pod, template, using_template
from e2e.actors.workloads import request as devices
from e2e.bridge import test_bridge as extender
from e2e.bridge import test_plugin as plugin
from e2e.bridge import test_read_only as read_only
from e2e.build import CURRENT, KUBERNETES_VERSIONS, program
from e2e.driver.installed import GPU, freed, installed, seen, user
from e2e.ground.controlplane import ControlPlane
from e2e.ground.node import Node
from e2e.webhook import test_impossible as impossible
from e2e.webhook import test_webhook as usual
from tests.limits import PATIENCE

pytestmark = [
    pytest.mark.real,
    pytest.mark.kubernetes("1.34"),
    pytest.mark.time_limit(300, "a control plane and all of ours start"),
]

PAGE = Path(__file__).parents[2] / "docs/versions.md"
OLDEST = min(KUBERNETES_VERSIONS)
COLUMNS = sorted(KUBERNETES_VERSIONS)
BETWEEN = [one for one in COLUMNS if one not in (OLDEST, CURRENT)]
AWAY = 6.0  # as long as no controller of ours is there
NODE = "versions-0"
DRIVER = "versions.example.com"


def minor(version):
    """A column; those between the oldest and the newest belong to the long form."""
    rare = [pytest.mark.long, pytest.mark.kubernetes(version)] if version in BETWEEN else []
    return pytest.param(version, marks=rare)


@pytest.fixture(scope="module", params=map(minor, COLUMNS))
def control_plane(request):
    """A control plane of one minor, with the gates that are on in it by default."""
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


# As in the folders that they are of, only that the control plane is of this minor.
read_only_allocator, gpus, scheduler = read_only.read_only_allocator, extender.gpus, plugin.scheduler


@pytest.fixture
def cell(control_plane):
    """Compare what was seen with the page's cell for this minor, or write it there."""

    def seen(row, answer="yes"):
        lines = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
        [found] = [line for line in lines if line[0] == f"| {row}"]
        column = 1 + COLUMNS.index(control_plane.version)
        said = found[column].removesuffix(" |")
        if os.environ.get("DRAWBRIDGE_RECORD"):
            found[column] = answer
            line = " | ".join(part.removesuffix(" |") for part in found) + " |"
            PAGE.write_text(re.sub(rf"^\| {re.escape(row)} \|.*$", line, PAGE.read_text(), flags=re.MULTILINE))
        else:
            assert answer == said, f"{row}, {control_plane.version}: the page says {said}"

    return seen


def test_a_pod_is_translated_and_placed(control_plane, fleet_node, gated, cell):
    usual.test_a_legacy_pod_is_claimed_and_placed_by_the_stock_scheduler(
        control_plane, fleet_node, gated, "nvidia, whole"
    )
    cell("webhook: a pod is translated, claimed and placed")


def test_a_pod_that_no_node_could_serve_is_refused(control_plane, fleet_node, gated, cell):
    code, said = impossible.applied(control_plane, "p", gated)
    assert code
    assert "[R023]" in said
    cell("webhook: what no node could serve is refused")


def test_a_dry_run_prints_what_is_stored(control_plane, fleet_node, gated, cell):
    usual.test_a_dry_run_prints_what_a_real_apply_stores(control_plane, fleet_node, gated)
    cell("webhook: a dry run prints what is stored, and leaves nothing")


@pytest.mark.parametrize("server_side", [False, True], ids=["client-side", "server-side"])
def test_a_manifest_is_applied_again(control_plane, fleet_node, gated, cell, server_side):
    usual.test_the_same_manifest_can_be_applied_again(control_plane, fleet_node, gated, server_side, "nvidia")
    cell("webhook: a manifest is applied again")


def test_a_template_that_comes_late_leads_to_a_claim(control_plane, fleet_node, gated, webhook, cell):
    """It comes late because no controller of ours was there. Older claim controllers look again after twice the time, and no later."""
    webhook.processes.pop("controller").stop(hard=True)
    begun = time.monotonic()
    control_plane.create(gpu("p", gated, nodeSelector=NOWHERE))
    time.sleep(AWAY)
    webhook.start_controller()
    control_plane.until("the template is there", lambda: usual.templates(control_plane, gated), PATIENCE)
    late = time.monotonic() - begun
    control_plane.until("its claim is there", lambda: claims_of(control_plane, gated, "p"), late + PATIENCE)
    cell("webhook: a template that comes late leads to its claim")


def test_a_read_only_allocator_says_why_a_pod_waits(control_plane, read_only_allocator, namespace, cell):
    """A whole device, for not every minor shares devices by default."""
    read_only.tell_and_show(control_plane, read_only_allocator, namespace)
    cell("read-only allocator: why a pod waits is told")


def test_the_extender_gives_devices(control_plane, bridge, gpus, namespace, cell):
    extender.give_and_take_back(control_plane, namespace)
    cell("bridge, extender: devices are given, and given back")


def test_the_plugin_gives_devices(control_plane, bridge, scheduler, namespace, cell):
    plugin.test_pods_get_devices_by_the_plugin_and_a_waiting_pod_comes_when_one_is_free(control_plane, namespace)
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    cell("bridge, our scheduler: the same, and a waiting pod goes on")


@pytest.fixture(scope="module")
def driver(control_plane):
    """Our driver on a real node whose kubelet is of this minor, with a class for its devices."""
    made = fleet.device_class(DRIVER, f"device.driver == '{DRIVER}'")
    control_plane.create(made)
    with installed(
        Node(control_plane).start(), DRIVER, {"gpus": [GPU | {"name": "gpu-0", "uuid": "GPU-0"}]}
    ) as running:
        yield running
    control_plane.remove(made)


@pytest.mark.long
@pytest.mark.node
def test_our_driver_prepares_devices(control_plane, driver, namespace, created, cell):
    """The kubelet of each older minor takes minutes to build."""
    created(
        template("one", namespace, devices("r", DRIVER)),
        user(namespace, "p", driver.node.name, [using_template("one")]),
    )
    assert seen(driver, namespace, "p") == {"DRAWBRIDGE_DEVICE_GPU_0": "GPU-0", "card": "yes"}
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/p", gracePeriodSeconds=0)
    freed(driver, set())
    cell("node, our driver: a container sees its device")


@pytest.mark.time_limit(400, "the control plane starts three times")
def test_running_pods_keep_their_devices_through_an_upgrade_and_a_downgrade(request):
    """The same etcd below 1.34, 1.37 and 1.34 again; webhook, allocator and our scheduler go on through all of it."""
    with ControlPlane(name="upgrade", version=OLDEST, feature_gates={}) as cluster:
        webhook, bridge = Webhook(cluster).install(), Bridge(cluster)
        request.addfinalizer(bridge.folder.cleanup)
        bridge.prepare()
        bridge.start()
        ours = plugin_configuration(bridge.socket)
        cluster.start_scheduler(ours, name="drawbridge-scheduler", binary=program("drawbridge-scheduler"))
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
        for minor in (OLDEST, CURRENT, OLDEST):
            if running:
                cluster.become(minor)
            before = [held(cluster, name, one) for one in running]
            made = [f"stock-{len(running)}", f"ours-{len(running)}"]
            cluster.create(
                gpu(made[0], name),
                pod(made[1], name, schedulerName=PLUGIN_SCHEDULER, resourceClaims=[using_template("one")]),
            )
            for one in made:
                cluster.wait_scheduled(name, one)
                cluster.patch(f"/api/v1/namespaces/{name}/pods/{one}/status", {"status": {"phase": "Running"}})
            assert [held(cluster, name, one) for one in running] == before
            running += made
        assert len({device for one in running for device in held(cluster, name, one)}) == len(running)
        assert cluster.get("/version")["minor"] == OLDEST.partition(".")[2]


@pytest.mark.long
@pytest.mark.node
@pytest.mark.time_limit(400, "the control plane starts three times")
def test_a_container_keeps_its_device_through_an_upgrade_of_the_control_plane_and_back():
    """The kubelet stays at 1.34, as one may; each round a further pod gets a device from our driver."""
    with ControlPlane(name="upgrade-node", version=OLDEST, feature_gates={}) as cluster:
        name = cluster.namespace("upgraded")
        cluster.create(
            fleet.device_class(DRIVER, f"device.driver == '{DRIVER}'"), template("one", name, devices("r", DRIVER))
        )
        gpus = [GPU | {"name": f"gpu-{at}", "uuid": f"GPU-{at}"} for at in range(3)]
        with installed(Node(cluster).start(), DRIVER, {"gpus": gpus}) as driver:
            starts = []
            for number, minor in enumerate((OLDEST, CURRENT, OLDEST)):
                if number:
                    cluster.become(minor)
                cluster.create(user(name, f"p{number}", driver.node.name, [using_template("one")]))
                assert len(seen(driver, name, f"p{number}")) == 2
                starts.append(cluster.wait_phase(name, f"p{number}", "Running")["status"]["containerStatuses"][0])
            for number, start in enumerate(starts):
                now = cluster.wait_phase(name, f"p{number}", "Running")["status"]["containerStatuses"][0]
                assert (now["containerID"], now["restartCount"]) == (start["containerID"], 0)
            assert len(driver.prepared()) == len(starts)


def held(cluster, namespace, name):
    """What a pod's claims hold, and its phase is that of a pod that runs."""
    assert cluster.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]["phase"] == "Running"
    return [result["device"] for claim in claims_of(cluster, namespace, name).values() for result in results_of(claim)]
