"""Claims whose opaque parameters a JSON patch would spell differently, and claims that no account may write."""

import json

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.client import ApiError
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import claim, pod, request, using
from tests.cluster.conformance.test_conformance_spellings import SPELLINGS
from tests.limits import PATIENCE

pytestmark = pytest.mark.real
DRIVER = "spelled.example.com"
CLASS = "spelled"
NODE = "spelled-0"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:drawbridge-allocator"
REFUSED = "drawbridge.dev/e2e-refused"
WRITES = {"patch", "update"}


@pytest.fixture(scope="module")
def spelling_cluster(control_plane, bridge):
    """The control plane, with a node that has enough devices for all spellings."""
    control_plane.add_fake_nodes(1, prefix="spelled-")
    devices = [fleet.device(f"gpu-{at}", {}) for at in range(len(SPELLINGS) + 8)]
    objects = [
        fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"),
        *fleet.slices(DRIVER, NODE, devices, by_name=True),
    ]
    control_plane.create(*objects)
    try:
        yield control_plane
    finally:
        control_plane.remove(*objects, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


@pytest.fixture
def ours(spelling_cluster, namespace):
    """A namespace whose pods are deleted after the test, and whose devices are free again."""
    yield namespace
    spelling_cluster.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    spelling_cluster.until(
        "the devices are free", lambda: not any(map(allocation_of, claims(spelling_cluster, namespace))), 60
    )


def claims(cluster, namespace):
    return cluster.get(path_of(namespace))["items"]


def path_of(namespace, name=""):
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims" + (f"/{name}" if name else "")


def allocation_of(claim_):
    return claim_.get("status", {}).get("allocation")


def raw(cluster, method, path, body=None, accept="application/json"):
    """Send exactly these bytes, and return the raw response."""
    headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json", "Accept": accept}
    code, answer = cluster.send(method, path, body, headers)
    assert code < 300, answer
    return answer


def create_spelled(cluster, namespace, name, spelling):
    config = {"opaque": {"driver": DRIVER, "parameters": "PARAMETERS"}}
    body = json.dumps(claim(name, namespace, request("gpu", CLASS), config=[config])).replace('"PARAMETERS"', spelling)
    raw(cluster, "POST", path_of(namespace), body.encode())


def check_spec(cluster, namespace, name, spelling):
    """Check that the stored spec has its original spelling."""
    stored = raw(cluster, "GET", path_of(namespace, name), accept="application/vnd.kubernetes.protobuf")
    content = spelling.strip().encode()
    assert b"\x0a%c%b" % (len(content), content) in stored


def claim_pod(name, namespace, scheduler, claim_name=""):
    return pod(name, namespace, schedulerName=scheduler, resourceClaims=[using(claim_name or name)])


def allocator_writes(cluster, namespace):
    """Yield the allocator's writes to claims of a namespace: verb, subresource, and the code of the API server's response."""
    for event in cluster.audit_events():
        reference = event.get("objectRef", {})
        by_allocator = event["user"].get("username") == ACCOUNT and event["verb"] in WRITES
        if by_allocator and reference.get("resource") == "resourceclaims" and reference.get("namespace") == namespace:
            yield event["verb"], reference.get("subresource", ""), event["responseStatus"]["code"]


def test_a_claim_is_placed_with_any_spelling_of_its_parameters(spelling_cluster, ours):
    names = [f"c-{at}" for at in range(len(SPELLINGS))]
    for name, spelling in zip(names, SPELLINGS.values(), strict=True):
        create_spelled(spelling_cluster, ours, name, spelling)
        spelling_cluster.create(claim_pod(name, ours, SCHEDULER))
    for name, spelling in zip(names, SPELLINGS.values(), strict=True):
        spelling_cluster.wait_scheduled(ours, name, PATIENCE)
        claim_ = spelling_cluster.get(path_of(ours, name))
        assert allocation_of(claim_)
        assert [consumer["name"] for consumer in claim_["status"]["reservedFor"]] == [name]
        check_spec(spelling_cluster, ours, name, spelling)
    assert ("update", "", 200) in {*allocator_writes(spelling_cluster, ours)}


def test_kube_schedulers_claim_is_shared_despite_its_spelling(spelling_cluster, ours):
    spelling = SPELLINGS["blanks all over"]
    create_spelled(spelling_cluster, ours, "c", spelling)
    spelling_cluster.create(claim_pod("theirs", ours, "default-scheduler", "c"))
    spelling_cluster.wait_scheduled(ours, "theirs")
    spelling_cluster.create(claim_pod("ours", ours, SCHEDULER, "c"))
    spelling_cluster.wait_scheduled(ours, "ours")
    assert {consumer["name"] for consumer in spelling_cluster.get(path_of(ours, "c"))["status"]["reservedFor"]} == {
        "theirs",
        "ours",
    }
    check_spec(spelling_cluster, ours, "c", spelling)
    assert ("update", "status", 200) in {*allocator_writes(spelling_cluster, ours)}


def unwritable_claim(name, namespace):
    claim_ = claim(name, namespace, request("gpu", CLASS))
    claim_["metadata"]["labels"] = {REFUSED: "yes"}
    return claim_


def is_refused(cluster, item):
    try:
        cluster.patch(cluster.path_of(item), {"metadata": {"finalizers": ["drawbridge.dev/e2e"]}}, dryRun="All")
    except ApiError as error:
        return error.code == 403
    return False


@pytest.fixture
def refusing_policy(spelling_cluster, ours):
    """A policy that refuses every write to claims with a label."""
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "e2e-refusing"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["resource.k8s.io"],
                        "apiVersions": ["*"],
                        "resources": ["resourceclaims", "resourceclaims/status"],
                        "operations": ["UPDATE"],
                    }
                ]
            },
            "matchConditions": [
                {"name": "labelled", "expression": f"'{REFUSED}' in object.metadata.?labels.orValue({{}})"},
            ],
            "validations": [{"expression": "false", "message": "not to be written", "reason": "Forbidden"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "e2e-refusing"},
        "spec": {"policyName": "e2e-refusing", "validationActions": ["Deny"]},
    }
    probe = unwritable_claim("tried", ours)
    spelling_cluster.create(policy, binding, probe)
    spelling_cluster.until("the policy is in force", lambda: is_refused(spelling_cluster, probe), PATIENCE)
    spelling_cluster.remove(probe)
    yield
    spelling_cluster.remove(binding, policy)


def test_unwritable_claims_do_not_affect_other_pods(spelling_cluster, bridge, ours, refusing_policy):
    names = [f"bad-{at}" for at in range(8)]
    spelling_cluster.create(
        *(unwritable_claim(name, ours) for name in names), *(claim_pod(name, ours, SCHEDULER) for name in names)
    )
    for name in names:
        awaited = f"an event of {name} has the refusal"
        spelling_cluster.until(
            awaited,
            lambda n=name: any("not to be written" in event for event in spelling_cluster.events(ours, n)),
            PATIENCE,
        )
    assert bridge.ask("/readyz", bridge.metrics_port)[0] == 200
    spelling_cluster.create(claim("good", ours, request("gpu", CLASS)), claim_pod("good", ours, SCHEDULER))
    spelling_cluster.wait_scheduled(ours, "good")
    spelling_cluster.delete(f"/api/v1/namespaces/{ours}/pods/good", gracePeriodSeconds=0)
    denied = [code for _, _, code in allocator_writes(spelling_cluster, ours) if code >= 400]
    # With exponential backoff of at most a minute, each claim is written a few times.
    assert len(names) <= len(denied) <= 12 * len(names)
    for name in names:
        spelling_cluster.remove(claim_pod(name, ours, SCHEDULER), claim(name, ours))
    spelling_cluster.until(
        "the allocator lists no device of these claims", lambda: not any(claims_with_devices(bridge, ours)), 60
    )
    assert bridge.ask("/readyz", bridge.metrics_port)[0] == 200


def claims_with_devices(bridge, namespace):
    """Return the claims of a namespace that have devices according to the allocator."""
    claims = bridge.ask("/api/v1/claims")[1]["claims"]
    return [row["claim"] for row in claims if row["claim"].startswith(f"{namespace}/") and row["devices"]]
