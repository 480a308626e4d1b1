"""The generated webhook configurations on a real API server, with no server behind them.

failurePolicy Fail and a closed port make the match conditions visible: a pod that matches is refused because no server answers, other
pods are admitted, and a broken expression would cause another message.
"""

import base64
import datetime as dt

import pytest

from certs import authority
from e2e.actors.client import ApiError
from e2e.ground.controlplane import free_port
from webhook.registration import Registration, configurations, validating
from webhook.state.configuration import Configuration

pytestmark = pytest.mark.real


def pod(name, namespace, *, containers=None, init=(), claims=(), **metadata):
    containers = containers or [{"name": "main", "image": "none"}]
    spec = {"containers": containers}
    if init:
        spec["initContainers"] = list(init)
    if claims:
        spec["resourceClaims"] = list(claims)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
    }


def container(name="main", **resources):
    return {"name": name, "image": "none", "resources": resources}


@pytest.fixture
def unanswered(control_plane, namespace, created):
    """Both configurations, for one namespace only, without a server."""
    now = dt.datetime.now(dt.UTC)
    bundle = authority.authority("unknown", now=now, life=dt.timedelta(hours=1)).certificate
    options = Registration(
        url=f"https://127.0.0.1:{free_port()}", ca_bundle=base64.b64encode(bundle).decode(), failure_policy="Fail"
    )
    made = configurations(Configuration().dialects, options)
    for configuration in made:
        configuration["metadata"]["name"] = f"drawbridge-{namespace}"[:63].rstrip("-")
        for webhook in configuration["webhooks"]:
            only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
            webhook["namespaceSelector"]["matchExpressions"].append(only)
            webhook["failurePolicy"] = "Fail"  # also where we generate Ignore, so that every condition is visible
    created(*made)
    matching = pod("warm", namespace, containers=[container(limits={"nvidia.com/gpu": "1"})])
    wanted = claim("ResourceClaim", namespace)
    # Each configuration takes effect at its own time.
    control_plane.until("what mutates is in force", lambda: control_plane.refusal(matching), 20)
    control_plane.until("what validates is in force", lambda: control_plane.refusal(wanted), 20)
    return namespace


def claim(kind, namespace):
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    metadata = {"name": "a", "namespace": namespace}
    body = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": body}


def not_ours(test):
    return [
        ("a pod without resources", pod("a", test)),
        ("empty resources", pod("a", test, containers=[container()])),
        ("requests and no limits", pod("a", test, containers=[container(requests={"cpu": "1"})])),
        ("limits and no requests", pod("a", test, containers=[container(limits={"memory": "1Gi"})])),
        ("a foreign resource", pod("a", test, containers=[container(limits={"example.com/foo": "1"})])),
        ("hugepages", pod("a", test, containers=[container(limits={"hugepages-2Mi": "2Mi", "memory": "1Gi"})])),
        ("foreign annotations and labels", pod("a", test, annotations={"a/b": "c"}, labels={"d": "e"})),
        ("an init container", pod("a", test, init=[container("init", limits={"cpu": "1"})])),
        (
            "800 containers",
            pod("a", test, containers=[container(f"c{i}", limits={"cpu": "1", "memory": "1Mi", "example.com/foo": "1"}) for i in range(800)]),
        ),
        (
            "400 containers and 400 init containers with long names",
            pod(
                "a",
                test,
                containers=[container(f"c{i}", limits={"cpu": "1", f"{'x' * 50}.example.com/{'y' * 60}": "1"}) for i in range(400)],
                init=[container(f"i{i}", limits={"cpu": "1", "memory": "1Mi", "example.com/foo": "1"}) for i in range(400)],
                annotations={f"example.com/{i}": "x" * 200 for i in range(300)},
                labels={f"example.com/{i}": "x" for i in range(300)},
            ),
        ),
    ]  # fmt: skip


def test_pods_without_accelerators_are_not_affected_by_our_outage(control_plane, unanswered):
    for what, item in not_ours(unanswered):
        assert control_plane.refusal(item) == "", what


def test_pods_that_concern_drawbridge_reach_the_webhook(control_plane, unanswered):
    limits = {"nvidia.com/gpu": "1"}
    several = [container(f"c{i}", limits={"cpu": "1"}) for i in range(799)]
    own = {"name": "gpu", "resourceClaimName": "x"}
    for what, item in [
        ("a limit", pod("a", unanswered, containers=[container(limits=limits)])),
        ("an init container's limit", pod("a", unanswered, init=[container("init", limits=limits)])),
        ("the last of 800 containers", pod("a", unanswered, containers=[*several, container(limits=limits)])),
        ("a claim of the user's own", pod("a", unanswered, claims=[own])),
        ("an annotation of ours", pod("a", unanswered, annotations={"drawbridge.dev/templates": "x"})),
    ]:
        assert "failed calling webhook" in control_plane.refusal(item), what


def test_pods_with_skip_and_foreign_namespaces_are_not_reviewed(control_plane, unanswered):
    limits = {"nvidia.com/gpu": "1"}
    skipped = pod("a", unanswered, containers=[container(limits=limits)], labels={"drawbridge.dev/skip": "true"})
    assert control_plane.refusal(skipped) == ""
    assert control_plane.refusal(pod("a", "default", containers=[container(limits=limits)])) == ""


def test_a_namespace_with_mode_off_is_not_reviewed(control_plane, unanswered):
    item = pod("a", unanswered, containers=[container(limits={"nvidia.com/gpu": "1"})])
    control_plane.patch(f"/api/v1/namespaces/{unanswered}", {"metadata": {"labels": {"drawbridge.dev/mode": "off"}}})
    control_plane.until("the label is seen", lambda: control_plane.refusal(item) == "", 20)


def test_updates_reach_us_only_for_pods_that_we_translated(control_plane, unanswered):
    base = f"/api/v1/namespaces/{unanswered}/pods"
    control_plane.create(pod("plain", unanswered))
    control_plane.patch(f"{base}/plain", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(ApiError, match="failed calling webhook"):
        control_plane.patch(f"{base}/plain", {"metadata": {"annotations": {"drawbridge.dev/original": "{}"}}})


def workload(kind, namespace, template):
    version = "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
    spec = {"template": template}
    if kind in ("Job", "CronJob"):
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": {"a": "b"}}
    if kind == "StatefulSet":
        spec["serviceName"] = "x"
    if kind == "CronJob":
        spec = {"schedule": "@daily", "jobTemplate": {"spec": spec}}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "a", "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"])
def test_a_workload_reaches_us_if_its_pods_would(control_plane, unanswered, kind):
    plain, gpu = (
        workload(
            kind, unanswered, {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container(limits=limits)]}}
        )
        for limits in ({"cpu": "1"}, {"nvidia.com/gpu": "1"})
    )
    assert control_plane.refusal(plain) == ""
    assert "failed calling webhook" in control_plane.refusal(gpu)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
    gpu["metadata"]["ownerReferences"] = [owner]
    assert control_plane.refusal(gpu) == "", (
        "what a controller made was judged when a person made the controller's object"
    )


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_claims_reach_us_unless_a_template_made_them(control_plane, unanswered, kind):
    item = claim(kind, unanswered)
    assert "failed calling webhook" in control_plane.refusal(item)
    item["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert control_plane.refusal(item) == ""


# Translated pods are reviewed once more, for keys that others restore


TRANSLATED = {"drawbridge.dev/translated": "true"}
GIVEN = {"name": "drawbridge-main-gpu", "resourceClaimTemplateName": "drawbridge-0123456789abcdef0123456789abcdef"}


@pytest.fixture
def unasked(control_plane, namespace, created):
    """Only the webhook that reviews translated pods again, for one namespace, without a server."""
    now = dt.datetime.now(dt.UTC)
    bundle = authority.authority("unknown", now=now, life=dt.timedelta(hours=1)).certificate
    options = Registration(
        url=f"https://127.0.0.1:{free_port()}", ca_bundle=base64.b64encode(bundle).decode(), failure_policy="Fail"
    )
    made = validating(Configuration().dialects, options)
    made["metadata"]["name"] = f"drawbridge-{namespace}"[:63].rstrip("-")
    made["webhooks"] = [webhook for webhook in made["webhooks"] if webhook["name"].startswith("pods.")]
    for webhook in made["webhooks"]:
        only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
        webhook["namespaceSelector"]["matchExpressions"].append(only)
    created(made)
    back = pod("warm", namespace, containers=[container(limits={"nvidia.com/gpu": "1"})], labels=TRANSLATED)
    control_plane.until("the webhook configuration is in force", lambda: control_plane.refusal(back), 20)
    return namespace


def test_updates_of_untranslated_pods_are_not_reviewed(control_plane, unasked):
    crowd = [container(f"c{i}", limits={"cpu": "1", "memory": "1Mi", "example.com/foo": "1"}) for i in range(800)]
    own = {"name": "own", "resourceClaimName": "x"}
    for what, item in [
        ("a claim of ours", pod("a", unasked, claims=[GIVEN], labels=TRANSLATED)),
        ("a claim of its own", pod("a", unasked, claims=[own])),
        ("a claim of its own beside ours", pod("a", unasked, claims=[own, GIVEN], labels=TRANSLATED)),
        ("800 containers", pod("a", unasked, containers=crowd, claims=[GIVEN], labels=TRANSLATED)),
        (
            "a pod that is passed by",
            pod("a", unasked, containers=keys(), labels=TRANSLATED | {"drawbridge.dev/skip": "true"}),
        ),
    ]:
        assert control_plane.refusal(item) == "", what


def keys(name="main"):
    return [container(name, limits={"nvidia.com/gpu": "1"})]


def test_an_update_of_a_translated_pod_is_reviewed(control_plane, unasked):
    """The pod names a key again."""
    crowd = [container(f"c{i}", limits={"cpu": "1"}) for i in range(799)]
    for what, item in [
        ("a key that was put back", pod("a", unasked, containers=keys(), claims=[GIVEN], labels=TRANSLATED)),
        ("on an init container", pod("a", unasked, init=keys("init"), claims=[GIVEN], labels=TRANSLATED)),
        ("on the last of 800", pod("a", unasked, containers=[*crowd, *keys()], claims=[GIVEN], labels=TRANSLATED)),
    ]:
        assert "failed calling webhook" in control_plane.refusal(item), what
