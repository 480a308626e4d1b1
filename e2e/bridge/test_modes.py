"""The GPU of manifests/examples/modes on a real control plane. Some of its four modes exclude each other, by groups or by our rules.

Groups are the API's compatibility groups of devices; rules are objects of our kind DeviceCompatibility. The webhook refuses a claim
that can never fit. Our schedulers keep a pod waiting while a conflicting mode is in use. kube-scheduler enforces groups but not our
rules: the webhook warns about its pods, and the allocator reports conflicts.
"""

import json

import pytest

from cluster import manifests
from e2e.actors.bridge import SCHEDULER
from e2e.actors.webhook import ROOT
from e2e.actors.workloads import claim, pod, request, using

pytestmark = pytest.mark.real
EXAMPLES = ROOT / "manifests/examples/modes"
NODE = "fourway-0"
DRIVER = "fourway.example.com"
FORMS = {"groups": ("classes", "groups"), "rules": ("classes", "plain", "expressions")}
STOCK = "default-scheduler"
CONFLICTS = {
    "groups": "compatibility group",
    "rules": "DeviceCompatibility/gpu-mig",
}


def example(*names):
    """The objects of the example on a node, with a driver of this test's own."""
    texts = [(EXAMPLES / f"{name}.yaml").read_text() for name in names]
    text = "\n---\n".join(texts).replace("gpu-node", NODE).replace("gpu.example.com", DRIVER)
    objects = [document.object for document in manifests.parse(text)]
    return [obj for obj in objects if obj["kind"] != "Node"]


@pytest.fixture(scope="module")
def bridged_node(control_plane, bridge):
    """A fake node for the devices of the example."""
    control_plane.add_fake_nodes(1, prefix="fourway-")
    yield
    control_plane.remove({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


@pytest.fixture(params=FORMS)
def form(request, control_plane, bridge, bridged_node, created):
    """One form of the example: with groups, or with rules that the allocator knows."""
    created(*example(*FORMS[request.param]))
    rules = request.param == "rules"

    def rules_have_status():
        return not rules or all(has_status(control_plane, name) for name in ("gpu-mig", "gpu-shared"))

    control_plane.until("both rules have a status", rules_have_status, 30)
    return request.param


def has_status(cluster, name):
    rule = cluster.get(f"/apis/drawbridge.dev/v1alpha1/devicecompatibilities/{name}")
    return rule.get("status", {}).get("devices")


def claim_and_pod(mode, namespace, scheduler, name=""):
    """A claim for a device in one mode, and a pod that uses it."""
    name = name or mode
    return claim(name, namespace, request("gpu", mode)), pod(name, namespace, schedulerName=scheduler, resourceClaims=[using(name)])  # fmt: skip


def delete_pods(cluster, namespace, *names):
    for name in names:
        cluster.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)


def device(cluster, namespace, name):
    claim_ = cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")
    allocation = claim_.get("status", {}).get("allocation")
    return allocation["devices"]["results"][0]["device"] if allocation else None


@pytest.fixture
def own_namespace(control_plane, namespace):
    """A namespace whose pods are deleted after the test, because no kubelet ends them."""
    yield namespace
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)


def test_a_conflicting_mode_waits_and_a_compatible_mode_is_allocated(control_plane, form, own_namespace):
    control_plane.create(*claim_and_pod("mps", own_namespace, SCHEDULER))
    control_plane.wait_scheduled(own_namespace, "mps")
    control_plane.create(*claim_and_pod("mig", own_namespace, SCHEDULER))
    holder = f"held by claim {own_namespace}/mps"
    control_plane.until(
        "an event names the conflicting device and its holder",
        lambda: has_event(control_plane, own_namespace, "mig", CONFLICTS[form], holder),
        60,
    )
    control_plane.create(*claim_and_pod("fractioning", own_namespace, SCHEDULER))
    control_plane.wait_scheduled(own_namespace, "fractioning")
    assert device(control_plane, own_namespace, "mig") is None
    delete_pods(control_plane, own_namespace, "mps", "fractioning")
    control_plane.wait_scheduled(own_namespace, "mig", 60)
    assert device(control_plane, own_namespace, "mig") == "gpu-0-mig-0"


def has_event(cluster, namespace, name, *words):
    """Return whether an event of a waiting pod has all of these words."""
    return any(all(word in event for word in words) for event in cluster.events(namespace, name))


def test_the_webhook_refuses_only_claims_that_combine_conflicting_modes(control_plane, form, gated):
    def refusal(first, second):
        both = claim("both", gated, request("one", first), request("other", second))
        result = control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(both), check=False)
        return result.stderr

    def is_refused(first, second):
        """Return whether the webhook refuses the claim. The rest of its message depends on the number of nodes, also of other tests."""
        message = refusal(first, second)
        return "(Forbidden)" in message and "[R02" in message

    def knows_all():
        """Return whether the webhook knows all objects: while it knows only some, it refuses other claims."""
        return (
            refusal("mps", "fractioning") == "" and is_refused("mps", "mig") and is_refused("exclusive", "fractioning")
        )

    control_plane.until("MPS is refused beside MIG, a share beside the whole, and nothing else", knows_all, 30)


def test_rules_that_kube_scheduler_does_not_enforce_are_reported(control_plane, bridge, form, gated):
    """kube-scheduler enforces compatibility groups itself."""
    control_plane.create(*claim_and_pod("mps", gated, STOCK))
    control_plane.wait_scheduled(gated, "mps")
    claim_, pod_ = claim_and_pod("mig", gated, STOCK)
    control_plane.create(claim_)

    def warning():
        text = json.dumps(pod_)
        return control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=text).stderr

    if form == "groups":
        control_plane.until(
            "the webhook knows which devices are in use", lambda: "waits until devices are free" in warning(), 30
        )
        assert "does not know" not in warning()
        control_plane.create(pod_)
        control_plane.wait_unschedulable(gated, "mig")
        assert device(control_plane, gated, "mig") is None
        return
    words = f"scheduler {STOCK} does not know"
    control_plane.until(words, lambda: words in warning(), 30)
    control_plane.create(pod_)
    control_plane.wait_scheduled(gated, "mig")
    both = {f"{gated}/mps", f"{gated}/mig"}
    control_plane.until(
        "the allocator reports both claims", lambda: both <= set(bridge.ask("/api/v1/drift")[1]["overlapping"]), 30
    )
    delete_pods(control_plane, gated, "mig")
    control_plane.until(
        "the allocator reports neither claim", lambda: not both & set(bridge.ask("/api/v1/drift")[1]["overlapping"]), 30
    )
