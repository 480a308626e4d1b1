"""Two replicas on their own control plane, and the short form of `make chaos`: one trouble of each kind.

The judge reads etcd's history, revision by revision.
"""

import time

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import POLICY, SCHEDULER
from e2e.actors.workloads import claim, pod, request, template, using, using_template
from e2e.chaos.churn import URGENT, WHOLE
from e2e.chaos.hardware import Hardware
from e2e.chaos.mixed import mixed
from e2e.chaos.pairs import until
from e2e.chaos.run import run, stage
from e2e.chaos.troubles import LEASE_SECONDS, MISSED, SHORT, SHORT_NODE
from tests.limits import PATIENCE

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def chaos_stage():
    """A control plane whose API server and etcd may be killed, with two replicas and ten fake nodes."""
    with stage(10) as running:
        yield running


@pytest.fixture
def node_stage(chaos_stage):
    """The same with a real node and our driver."""
    hardware = Hardware(chaos_stage.cluster)
    yield chaos_stage._replace(hardware=hardware)
    hardware.close()


def claim_and_pod(name, namespace):
    """A pod of ours and its claim."""
    item = pod(name, namespace, schedulerName=SCHEDULER, resourceClaims=[using(name)])
    return claim(name, namespace, request("gpu", WHOLE)), item


def test_a_replica_takes_over_within_a_lease_after_a_kill(chaos_stage):
    """A pod that was created meanwhile is placed. The killed replica returns as a standby."""
    chaos_stage.cluster.namespace("killed")
    leader = chaos_stage.pairs.leader()
    other = chaos_stage.pairs.other(leader)
    begun = time.monotonic()
    chaos_stage.cluster.process(leader.allocator).stop(hard=True)
    chaos_stage.cluster.create(*claim_and_pod("p", "killed"))
    until("the other replica leads", other.leads, 2 * LEASE_SECONDS)
    chaos_stage.cluster.wait_scheduled("killed", "p")
    print(f"taken over and placed {time.monotonic() - begun:.1f} s after the leader was killed")
    chaos_stage.cluster.kill(leader.allocator)
    until("the killed replica is ready again", lambda: leader.bridge.ask("/readyz", leader.metrics)[0] == 200, PATIENCE)
    assert (leader.leads(), other.leads()) == (False, True)
    chaos_stage.cluster.delete("/api/v1/namespaces/killed/pods/p", gracePeriodSeconds=0)


def test_the_api_server_refuses_a_paused_leaders_late_write(chaos_stage):
    """The leader is stopped while its write is in progress. Another replica leads when the write arrives, and nothing else has changed."""
    chaos_stage.cluster.namespace("late")
    leader = chaos_stage.pairs.leader()
    other = chaos_stage.pairs.other(leader)
    leader.proxy.hold_at(1)
    chaos_stage.cluster.create(*claim_and_pod("p", "late"))
    assert leader.proxy.held.wait(PATIENCE), "the leader wrote to no claim"
    with chaos_stage.cluster.process(leader.allocator).frozen():
        chaos_stage.cluster.delete("/api/v1/namespaces/late/pods/p", gracePeriodSeconds=0)
        before = chaos_stage.cluster.get("/apis/resource.k8s.io/v1/namespaces/late/resourceclaims/p")
        until("the other replica leads", other.leads, 6 * LEASE_SECONDS)
        # A policy uses the API server's cached lease, which lags behind the stored one.
        until(
            "the API server refuses claim writes of the former leader",
            lambda: leader.bridge.is_fenced(leader.name),
            PATIENCE,
        )
        leader.proxy.let_go.set()
        late = until("the API server has answered the write", lambda: leader.proxy.late, PATIENCE)
    leader.proxy.restore()
    assert late.startswith(b"HTTP/1.1 403 ")
    assert POLICY.encode() in late
    until("the stopped replica knows that it does not lead", lambda: not leader.leads(), PATIENCE)
    assert chaos_stage.cluster.get("/apis/resource.k8s.io/v1/namespaces/late/resourceclaims/p") == before


SHORT_SECONDS = 360.0  # after which no further trouble begins; a quiet machine needs a third
SCARCE = "chaos-scarce"
USUAL = "chaos-usual"
# The two writes of an eviction: the connection breaks after the API server has processed one of them, and the response is lost.
EVICTION = {
    "the condition": lambda write: write.verb == "PATCH" and "/pods/low/status" in write.path,
    "the deletion": lambda write: write.verb == "DELETE" and write.path.split("?")[0].endswith("/pods/low"),
}


@pytest.fixture(scope="module")
def scarce(chaos_stage):
    """A node with two devices that no other test uses, and a priority between none and urgent."""
    driver = f"{SCARCE}.example.com"
    chaos_stage.cluster.create(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": USUAL}, "value": 500},
        fleet.device_class(SCARCE, f"device.driver == '{driver}'"),
        *fleet.slices(driver, "fake-0", [fleet.device(f"gpu-{at}", {}) for at in range(2)], by_name=True),
    )


@pytest.fixture
def namespace(chaos_stage, scarce, cut_after):
    """A namespace whose pods are deleted at the end, whatever the result."""
    name = chaos_stage.cluster.namespace(f"evicted-after-{cut_after.rpartition(' ')[2]}")
    yield name
    chaos_stage.cluster.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)


@pytest.mark.parametrize("cut_after", EVICTION)
def test_the_next_allocator_finishes_an_eviction_after_a_kill(chaos_stage, namespace, cut_after):
    """If only the condition was written, both writes are repeated. If the pod was deleted, no other pod is evicted."""
    path = f"/api/v1/namespaces/{namespace}/pods"

    def create(name, **spec):
        item = pod(name, namespace, schedulerName=SCHEDULER, resourceClaims=[using_template("one")], **spec)
        chaos_stage.cluster.create(item)

    chaos_stage.cluster.create(template("one", namespace, request("gpu", SCARCE)))
    create("low", terminationGracePeriodSeconds=0)
    create("usual", priorityClassName=USUAL, terminationGracePeriodSeconds=0)
    for name in ("low", "usual"):
        chaos_stage.cluster.wait_scheduled(namespace, name)
    leader = chaos_stage.pairs.leader()
    leader.proxy.break_at(1, answered=True, selects=EVICTION[cut_after])
    create("urgent", priorityClassName=URGENT)
    assert leader.proxy.broken.wait(PATIENCE), "no pod was evicted"
    pods = [pod for pod in chaos_stage.cluster.get(path)["items"] if pod["metadata"]["name"] == "low"]
    conditions = [(mark["type"], pod["metadata"].get("deletionTimestamp")) for pod in pods for mark in pod["status"]["conditions"]]  # fmt: skip
    assert (("DisruptionTarget", None) in conditions) == (cut_after == "the condition")
    assert bool(pods) == (cut_after == "the condition")
    repeated = []

    def record_write(write):
        repeated.extend(step for step, matches in EVICTION.items() if matches(write))
        return False

    chaos_stage.cluster.process(leader.allocator).stop(hard=True)
    for pair in chaos_stage.pairs.all:
        pair.proxy.break_at(1, answered=True, selects=record_write)
    chaos_stage.cluster.kill(leader.allocator)
    chaos_stage.cluster.wait_scheduled(namespace, "urgent", PATIENCE)
    for pair in chaos_stage.pairs.all:
        pair.proxy.restore()
    assert repeated == (list(EVICTION) if cut_after == "the condition" else [])
    assert sorted(pod["metadata"]["name"] for pod in chaos_stage.cluster.get(path)["items"]) == ["urgent", "usual"]


# Without the fence, double holding may end before the next check (one per second), so that some cases go unreported.
@pytest.mark.parametrize(
    "fenced", [pytest.param(True, id="fenced"), pytest.param(False, id="not fenced", marks=pytest.mark.long)]
)
def test_two_schedulers_hold_no_device_twice_behind_a_fence(chaos_stage, fenced):
    """Half of the pods use the default scheduler, half ours. Without a fence, ours binds no pod after the other wrote its allocation."""
    outcome = mixed(chaos_stage, fenced=fenced, seconds=10, seed=1)
    print(outcome)
    assert outcome.bound_ours >= 10
    assert outcome.remaining == ()
    assert outcome.late == ()
    if fenced:
        assert (outcome.bound_theirs, outcome.overlaps, outcome.unseen) == (0, 0, ())
    else:
        assert outcome.bound_theirs >= 10


@pytest.mark.timeout(600)
def test_no_failure_leaks_a_device_or_leaves_a_pod_stuck(chaos_stage):
    report = run(chaos_stage, SHORT, namespace="short", seed=1, seconds=SHORT_SECONDS)
    assert report.faults == ()
    assert [row.trouble for row in report.rows if row.note == MISSED] == []
    assert [row.trouble for row in report.rows] == [trouble.name for trouble in SHORT]
    assert report.verdict.counts["bound"] >= 50


@pytest.mark.node
@pytest.mark.timeout(600)
def test_containers_keep_their_hardware_while_the_inventory_changes(node_stage):
    report = run(node_stage, SHORT_NODE, namespace="node", seed=1, seconds=SHORT_SECONDS)
    assert report.faults == ()
    assert [row.trouble for row in report.rows] == [trouble.name for trouble in SHORT_NODE]
    assert report.verdict.counts["containers"] >= 10
