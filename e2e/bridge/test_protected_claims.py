"""Claims to which manifests/protected-claims adds the finalizer at their creation, on a real API server.

The tests count the writes of each scheduler, which need not add the finalizer, and check which component removes it.
"""

import pytest

from cluster import manifests
from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.client import USER_AGENT
from e2e.actors.webhook import ROOT
from e2e.actors.workloads import claim, container, limits, pod, request, template, using, using_template
from tests.limits import PATIENCE

pytestmark = pytest.mark.real
FINALIZER = "resource.kubernetes.io/delete-protection"
DRIVER = "protected.example.com"
CLASS = "protected"
EXTENDED = f"{DRIVER}/gpu"
NODE = "protected-0"
NO_SCHEDULER = "no-such-scheduler"
STOCK = "default-scheduler"
WRITES = {"create", "update", "patch", "delete"}


@pytest.fixture(scope="module")
def protected(control_plane):
    """The control plane with the unmodified component, and a node with devices. Both are removed afterwards."""
    policy = [document.object for document in manifests.read([ROOT / "manifests/protected-claims/policy.yaml"])]
    class_ = fleet.device_class(CLASS, f"device.driver == '{DRIVER}'")
    class_["spec"]["extendedResourceName"] = EXTENDED
    devices = [fleet.device(f"gpu-{at}", {}) for at in range(4)]
    objects = [class_, *fleet.slices(DRIVER, NODE, devices, by_name=True), *policy]
    try:
        control_plane.add_fake_nodes(1, prefix="protected-")
        control_plane.kubectl("apply", "--server-side", "-f", "-", input=manifests.dump(objects))
        control_plane.until("the policy is in force", lambda: protects(control_plane, "default"), PATIENCE)
        yield control_plane
    finally:
        control_plane.remove(*objects, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        control_plane.until("the policy is gone", lambda: not protects(control_plane, "default"), PATIENCE)


@pytest.fixture
def home(protected, namespace):
    """A namespace with a template. Its pods are deleted afterwards, so that nothing blocks the deletion of the namespace."""
    protected.create(template("gpu", namespace, request("gpu", CLASS)))
    yield namespace
    protected.delete(pods_of(namespace), gracePeriodSeconds=0)


def owned(name, namespace, owner):
    """A claim as kube-controller-manager creates it for a pod."""
    item = claim(name, namespace, request("gpu", CLASS))
    item["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "controller": True, **owner}]
    return item


def protects(cluster, namespace):
    [claim_] = cluster.create(owned("tried", namespace, {"name": "none", "uid": "none"}), dryRun="All")
    return FINALIZER in claim_["metadata"].get("finalizers", ())


def pods_of(namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


def claims_of(namespace):
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"


def claims(cluster, namespace):
    return cluster.get(claims_of(namespace))["items"]


def until_no_claims(cluster, namespace):
    cluster.until("no claim is left", lambda: not claims(cluster, namespace), PATIENCE)


def foreign_writes(cluster, namespace):
    """Yield the successful writes to claims of a namespace and to bindings of its pods, except those of this test's client."""
    for event in cluster.audit_events():
        reference = event.get("objectRef", {})
        kind = (
            f"{reference.get('resource')}/{reference['subresource']}"
            if "subresource" in reference
            else reference.get("resource")
        )
        is_foreign = not event.get("userAgent", "").startswith(USER_AGENT)
        is_counted = reference.get("namespace") == namespace and kind in (
            "resourceclaims",
            "resourceclaims/status",
            "pods/binding",
        )
        if is_counted and is_foreign and event["verb"] in WRITES and event["responseStatus"]["code"] < 300:
            yield event["verb"], kind


@pytest.mark.parametrize("scheduler", [STOCK, SCHEDULER])
def test_a_pods_claim_takes_two_writes_and_is_deleted(protected, bridge, home, scheduler):
    protected.create(pod("p", home, schedulerName=scheduler, resourceClaims=[using_template("gpu")]))
    protected.wait_scheduled(home, "p")
    creation, *rest = foreign_writes(protected, home)
    assert creation == ("create", "resourceclaims")
    assert [kind for _, kind in rest] == ["resourceclaims/status", "pods/binding"]
    protected.delete(f"{pods_of(home)}/p", gracePeriodSeconds=0)
    until_no_claims(protected, home)


def test_an_extended_resource_claim_takes_two_writes_and_is_deleted(protected, home):
    protected.create(pod("p", home, container(**limits(**{EXTENDED: 1}))))
    protected.wait_scheduled(home, "p")
    assert [kind for _, kind in foreign_writes(protected, home)] == [
        "resourceclaims",
        "resourceclaims/status",
        "pods/binding",
    ]
    protected.delete(f"{pods_of(home)}/p", gracePeriodSeconds=0)
    until_no_claims(protected, home)


def claim_of_waiting_pod(cluster, namespace):
    """The claim of a pod that no scheduler places."""
    cluster.create(pod("p", namespace, schedulerName=NO_SCHEDULER, resourceClaims=[using_template("gpu")]))
    [claim_] = cluster.until("the pod has a claim", lambda: claims(cluster, namespace))
    assert claim_["metadata"]["finalizers"] == [FINALIZER]
    return claim_


DELETIONS = {
    "its pod is deleted": lambda cluster, metadata: cluster.delete(f"{pods_of(metadata['namespace'])}/p"),
    "its pod is deleted by force": lambda cluster, metadata: cluster.delete(
        f"{pods_of(metadata['namespace'])}/p", gracePeriodSeconds=0
    ),
    "a user deletes it": lambda cluster, metadata: cluster.delete(
        f"{claims_of(metadata['namespace'])}/{metadata['name']}"
    ),
    "all are deleted": lambda cluster, metadata: cluster.delete(claims_of(metadata["namespace"])),
}


@pytest.mark.parametrize("deletion", DELETIONS)
def test_a_claim_that_was_never_allocated_can_be_deleted(protected, home, deletion):
    metadata = claim_of_waiting_pod(protected, home)["metadata"]
    DELETIONS[deletion](protected, metadata)
    protected.until("the claim is deleted", lambda: metadata["uid"] not in {claim["metadata"]["uid"] for claim in claims(protected, home)}, PATIENCE)  # fmt: skip


def test_a_namespace_with_a_never_allocated_claim_can_be_deleted(protected):
    home = protected.namespace("protected-briefly")
    protected.create(template("gpu", home, request("gpu", CLASS)))
    claim_of_waiting_pod(protected, home)
    protected.delete(f"/api/v1/namespaces/{home}")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}}
    protected.until("the namespace is gone", lambda: protected.read(namespace) is None, PATIENCE)


def test_a_deleted_claim_stays_while_kube_controller_manager_is_stopped(protected, home):
    metadata = claim_of_waiting_pod(protected, home)["metadata"]
    with protected.controller_manager.frozen():
        protected.delete(f"{claims_of(home)}/{metadata['name']}")
        deleted = protected.get(f"{claims_of(home)}/{metadata['name']}")["metadata"]
        assert deleted["finalizers"] == [FINALIZER]
        assert deleted["deletionTimestamp"]
    protected.until("the claim is deleted", lambda: metadata["uid"] not in {claim["metadata"]["uid"] for claim in claims(protected, home)}, PATIENCE)  # fmt: skip


def test_a_freed_claim_loses_its_finalizer_until_its_next_allocation(protected, home):
    """Two pods that do not own the claim use the claim, one after the other."""
    metadata = claim_of_waiting_pod(protected, home)["metadata"]
    for name in ("first", "second"):
        protected.create(pod(name, home, resourceClaims=[using(metadata["name"])]))
        protected.wait_scheduled(home, name)
        protected.delete(f"{pods_of(home)}/{name}", gracePeriodSeconds=0)
        protected.until(
            "the claim has neither finalizer nor allocation",
            lambda: is_free(protected, home, metadata["name"]),
            PATIENCE,
        )
    writes = [kind for verb, kind in foreign_writes(protected, home) if verb != "create" or "pods" in kind]
    deallocation = ["resourceclaims/status", "resourceclaims"]
    allocation = ["resourceclaims/status", "pods/binding"]
    assert writes == [*allocation, *deallocation, "resourceclaims", *allocation, *deallocation]


def is_free(cluster, namespace, name):
    claim_ = cluster.get(f"{claims_of(namespace)}/{name}")
    return "finalizers" not in claim_["metadata"] and "allocation" not in claim_.get("status", {})


ALLOCATED = {
    "allocationTimestamp": "2026-01-01T00:00:00Z",
    "devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": f"{NODE}-fleet", "device": "gpu-0"}]},
}


@pytest.mark.parametrize(
    ("finalizers", "stays_allocated"), [(None, True), ([FINALIZER], False)], ids=["plain", "protected"]
)
def test_a_claim_without_an_owner_pod_gets_no_finalizer(protected, home, finalizers, stays_allocated):
    """With the finalizer, kube-controller-manager would deallocate the claim when the first pod ends."""
    [claim_] = protected.create(claim("mine", home, request("gpu", CLASS)))
    path = protected.path_of(claim_)
    assert "finalizers" not in claim_["metadata"]
    protected.patch(path, {"metadata": {"finalizers": finalizers}})
    protected.patch(f"{path}/status", {"status": {"allocation": ALLOCATED}})
    protected.create(pod("p", home, resourceClaims=[using("mine")]))
    protected.wait_scheduled(home, "p")
    protected.delete(f"{pods_of(home)}/p", gracePeriodSeconds=0)
    protected.until("no pod reserves it", lambda: not protected.get(path)["status"].get("reservedFor"), PATIENCE)
    assert ("allocation" in protected.get(path)["status"]) is stays_allocated


@pytest.mark.parametrize("protected_from_creation", [True, False])
def test_an_apply_that_drops_its_finalizer_also_removes_unmanaged_ones(protected, home, protected_from_creation):
    """The finalizer of the admission policy has no field manager. A finalizer of a scheduler belongs to the scheduler and stays."""
    if protected_from_creation:
        name = claim_of_waiting_pod(protected, home)["metadata"]["name"]
    else:
        protected.create(claim("mine", home, request("gpu", CLASS)))
        protected.patch(f"{claims_of(home)}/mine", {"metadata": {"finalizers": [FINALIZER]}})
        name = "mine"
    path = f"{claims_of(home)}/{name}"
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
    for finalizers in (["example.com/mine"], []):
        body["metadata"]["finalizers"] = finalizers
        remaining = protected.patch(path, body, "apply", fieldManager="me")["metadata"].get("finalizers", [])
        assert sorted(remaining) == sorted(
            [*finalizers, *([FINALIZER] if finalizers or not protected_from_creation else [])]
        )
