"""Changes of users to a translated pod, through every subresource: none bypasses admission, and none is blocked."""

import json
import subprocess

import pytest

from e2e.actors.client import ApiError
from e2e.actors.webhook import COMMAND, MODE, NOWHERE, gpu, template_path, templates_of
from e2e.actors.workloads import container, limits

pytestmark = pytest.mark.real
ORIGINAL = "drawbridge.dev/original"


@pytest.fixture
def translated(control_plane, fleet_node, gated):
    """A running pod with a claim of ours, and its path."""
    control_plane.create(gpu("p", gated))
    control_plane.wait_scheduled(gated, "p")
    return f"/api/v1/namespaces/{gated}/pods/p"


def test_a_subresource_of_a_translated_pod_works_as_before(control_plane, translated):
    """Ephemeral containers, resize and status: the webhook is not called, and the legacy key does not return."""
    before = control_plane.get(translated)
    debugger = {"name": "debug", "image": "busybox", "targetContainerName": "main"}
    after = control_plane.patch(f"{translated}/ephemeralcontainers", {"spec": {"ephemeralContainers": [debugger]}})
    assert [container["name"] for container in after["spec"]["ephemeralContainers"]] == ["debug"]
    greedy = debugger | {"name": "greedy", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    with pytest.raises(ApiError):
        control_plane.patch(f"{translated}/ephemeralcontainers", {"spec": {"ephemeralContainers": [debugger, greedy]}})
    wider = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}}
    with pytest.raises(ApiError):
        control_plane.patch(f"{translated}/resize", {"spec": {"containers": [wider]}}, kind="strategic")
    condition = {"type": "example.com/Seen", "status": "True"}
    patched = control_plane.patch(f"{translated}/status", {"status": {"conditions": [condition]}}, kind="strategic")
    assert "example.com/Seen" in {condition["type"] for condition in patched["status"]["conditions"]}
    after = control_plane.get(translated)
    for part in ("resourceClaims", "containers"):
        assert after["spec"][part] == before["spec"][part]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]


CLAIMS_TO_BE = {
    "of a controller that does not exist": {
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "none", "uid": "0" * 8 + "-0000-4000-8000-" + "0" * 12, "controller": True, "blockOwnerDeletion": True},
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "name": "drawbridge-" + "0" * 32, "uid": "x"},
        ],
        "labels": {"pod-template-hash": "none"},
    },
    "deleted already": {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0, "finalizers": ["example.com/hold"]},
    "the uid of another pod": {"uid": "11111111-1111-4111-8111-111111111111", "selfLink": "/x", "generation": 7, "creationTimestamp": "2020-01-01T00:00:00Z"},
    "nameless": {"name": None, "generateName": "p-"},
}  # fmt: skip


@pytest.mark.parametrize("what", CLAIMS_TO_BE)
def test_false_metadata_or_status_does_not_change_a_translation(control_plane, fleet_node, gated, what):
    """Namespace, name and account decide the translation; owner references, status and dry run do not."""
    [honest] = control_plane.create(gpu("p", gated, nodeSelector=NOWHERE), dryRun="All")
    pretender = gpu("p", gated, nodeSelector=NOWHERE)
    pretender["metadata"] |= CLAIMS_TO_BE[what]
    pretender["metadata"] = {key: value for key, value in pretender["metadata"].items() if value is not None}
    pretender["status"] = {"phase": "Succeeded", "resourceClaimStatuses": [{"name": "x", "resourceClaimName": "y"}]}
    [dry] = control_plane.create(pretender, dryRun="All")
    assert templates_of(control_plane, gated) == {}, "a dry run leaves nothing behind"
    [made] = control_plane.create(pretender)
    for item in (dry, made):
        assert item["spec"]["resourceClaims"] == honest["spec"]["resourceClaims"]
        assert item["spec"]["containers"][0]["resources"] == honest["spec"]["containers"][0]["resources"]
        for name in ("original", "devices", "decision"):
            annotation = f"drawbridge.dev/{name}"
            assert item["metadata"]["annotations"][annotation] == honest["metadata"]["annotations"][annotation]
    [name] = [claim["resourceClaimTemplateName"] for claim in honest["spec"]["resourceClaims"]]
    if what != "of a controller that does not exist":  # the garbage collector deletes such a pod
        control_plane.until("its template is there", lambda: name in templates_of(control_plane, gated), 30)
        control_plane.patch(control_plane.path_of(made), {"metadata": {"finalizers": None}})


def test_a_client_that_takes_over_our_fields_blocks_no_update(control_plane, translated, gated):
    """One update removes our annotations, a second one forges them; finalizers can still be removed, and the pod can be deleted."""
    stolen = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": gated,
            "annotations": {ORIGINAL: "{}"},
            "finalizers": ["example.com/hold"],
        },
    }
    done = control_plane.kubectl(
        "apply", "--server-side", "--force-conflicts", "--field-manager=thief", "-f", "-", input=json.dumps(stolen)
    )
    assert "serverside-applied" in done.stdout
    control_plane.patch(translated, {"metadata": {"annotations": {ORIGINAL: None, "drawbridge.dev/templates": None}}})
    deep = "[" * 3_000
    for text in ('{"containers": {"main": {"cpu": "1"}}}', deep, "\u0000"):
        after = control_plane.patch(
            translated, {"metadata": {"annotations": {ORIGINAL: text}, "labels": {"seen": "yes"}}}
        )
        assert after["metadata"]["labels"]["seen"] == "yes"
        assert after["spec"]["resourceClaims"]
    control_plane.delete(translated)
    assert control_plane.get(translated)["metadata"]["deletionTimestamp"]
    gone = control_plane.patch(translated, {"metadata": {"finalizers": None}})
    assert "finalizers" not in gone["metadata"]


def test_a_pod_is_updated_and_deleted_after_mode_becomes_off(control_plane, fleet_node, gated):
    control_plane.create(gpu("p", gated, nodeSelector=NOWHERE))
    path = f"/api/v1/namespaces/{gated}/pods/p"
    for mode in ("off", "observe", "", None):
        control_plane.patch(f"/api/v1/namespaces/{gated}", {"metadata": {"labels": {MODE: mode}}})
        after = control_plane.patch(path, {"metadata": {"labels": {"mode": str(mode)}, "annotations": {ORIGINAL: "x"}}})
        assert after["metadata"]["labels"]["mode"] == str(mode)
    control_plane.delete(path)


def test_a_pod_in_a_terminating_namespace_gets_the_servers_refusal(control_plane, fleet_node, gated):
    """The pod has `generateName`, as a controller's has. The message is the server's, not the webhook's."""
    control_plane.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "holds", "namespace": gated, "finalizers": ["example.com/hold"]},
        }
    )
    control_plane.delete(f"/api/v1/namespaces/{gated}")
    item = gpu("p", gated)
    item["metadata"].pop("name")
    item["metadata"]["generateName"] = "p-"
    with pytest.raises(ApiError) as refused:
        control_plane.create(item)
    assert "being terminated" in str(refused.value)
    control_plane.patch(f"/api/v1/namespaces/{gated}/configmaps/holds", {"metadata": {"finalizers": None}})


@pytest.fixture
def tenant(control_plane, gated):
    """Run kubectl as an account that may edit its namespace and write templates there, except for reserved names."""
    account = f"system:serviceaccount:{gated}:default"
    verbs = "create,get,patch"
    control_plane.kubectl("create", "rolebinding", "edit", "--clusterrole=edit", "--serviceaccount", f"{gated}:default", "-n", gated)  # fmt: skip
    control_plane.kubectl("create", "role", "t", f"--verb={verbs}", "--resource=resourceclaimtemplates.resource.k8s.io", "-n", gated)  # fmt: skip
    control_plane.kubectl("create", "rolebinding", "t", "--role=t", "--serviceaccount", f"{gated}:default", "-n", gated)
    control_plane.until_may(account, "patch", "resourceclaimtemplates", gated, group="resource.k8s.io")
    return lambda *args, **more: control_plane.kubectl(*args, f"--as={account}", **more)


def test_a_translated_file_is_applied_twice_and_then_the_original(control_plane, fleet_node, gated, tenant):
    """A tenant may switch between translation in the file and at the webhook; the requested devices stay the same."""
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [container(**limits(**{"nvidia.com/gpu": 1}))]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    metadata = {"name": "d", "namespace": gated}
    original = json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    done = subprocess.run(
        [*COMMAND, "translate", "-f", "-"], input=original, capture_output=True, text=True, check=True
    )

    def requested(of_webhook):
        """Return the requests of a placed pod whose claim came from the webhook, or from the file."""

        def placed():
            for pod in control_plane.get(f"/api/v1/namespaces/{gated}/pods")["items"]:
                [name] = [
                    entry["resourceClaimTemplateName"]
                    for entry in pod["spec"].get("resourceClaims", [{"resourceClaimTemplateName": ""}])
                ]
                if name.startswith("drawbridge-") == of_webhook and pod["spec"].get("nodeName"):
                    annotations = pod["metadata"].get("annotations", {})
                    assert (ORIGINAL in annotations) == of_webhook
                    return control_plane.get(template_path(gated, name))["spec"]["spec"]["devices"]["requests"][0][
                        "exactly"
                    ]
            return None

        return control_plane.until("a pod has its device", placed, 30)

    first = tenant("apply", "-f", "-", input=done.stdout)
    assert "is reserved" not in first.stderr
    in_place = requested(of_webhook=False)
    again = tenant("apply", "-f", "-", input=done.stdout)
    assert [line.rpartition(" ")[2] for line in again.stdout.splitlines()] == ["unchanged", "unchanged"]
    assert "Warning" not in first.stderr + again.stderr
    tenant("apply", "-f", "-", input=original)
    assert requested(of_webhook=True)["deviceClassName"] == in_place["deviceClassName"]
    tenant("apply", "-f", "-", input=done.stdout)
    requested(of_webhook=False)
