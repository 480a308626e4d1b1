"""Failures around a running webhook on a real API server: replicas are replaced and killed under load, and an API server hangs."""

import base64
import contextlib
import signal
import time

import pytest

from e2e.actors.load import Calls
from e2e.actors.replicas import Replicas
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import claim, request
from e2e.ground.process import send

pytestmark = pytest.mark.real

# Seconds after a noticed kill in which reviews may still begin and fail: `timeoutSeconds` of our webhook in a cluster. The tests use a
# longer timeout, so that no test fails on a busy machine.
PATIENCE = 3.0
# Seconds that load may add to a measured time.
BUSY = 15.0
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


@pytest.fixture
def replicas(webhook):
    """Two replicas behind one address, instead of the session's webhook."""
    with Replicas(webhook) as running:
        running.start("webhook-a")
        running.start("webhook-b")
        yield running


@contextlib.contextmanager
def failure_policy(cluster, policy):
    """Register pods under another failurePolicy inside the block."""

    def put(value):
        for kind in KINDS:
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}/drawbridge"
            pods = [n for n, hook in enumerate(cluster.get(path)["webhooks"]) if hook["name"].startswith("pods.")]
            cluster.patch(
                path, [{"op": "replace", "path": f"/webhooks/{n}/failurePolicy", "value": value} for n in pods], "json"
            )

    put(policy)
    try:
        yield
    finally:
        put("Fail")


def test_a_rolling_update_under_load_fails_and_misses_no_pod(control_plane, gated, fleet_node, replicas):
    with Calls(control_plane, gated) as calls:
        control_plane.until("pods are made", lambda: calls.answered > 100)
        for old, new in (("webhook-a", "webhook-c"), ("webhook-b", "webhook-d")):
            replicas.start(new)  # maxSurge 1, maxUnavailable 0
            replicas.stop(old)
            replicas.await_removal(old)
        many = calls.answered + 100
        control_plane.until("pods are made by the new ones", lambda: calls.answered > many)
    print(calls)
    assert calls.failures == []
    assert calls.untranslated == []


@pytest.mark.parametrize("policy", ["Ignore", pytest.param("Fail", marks=pytest.mark.long)])
def test_a_killed_replica_affects_only_its_open_reviews(control_plane, gated, fleet_node, replicas, policy):
    """Under Ignore (the default) no pod is refused, and pods of open reviews are admitted untranslated. Under Fail they are refused."""
    with failure_policy(control_plane, policy), Calls(control_plane, gated) as calls:
        control_plane.until("pods are made", lambda: calls.answered > 100)
        killed = time.monotonic()
        replicas.stop("webhook-b", hard=True)
        replicas.await_removal("webhook-b")
        noticed = time.monotonic()
        many = calls.answered + 100
        control_plane.until("pods are made by the other one", lambda: calls.answered > many)
        replicas.start("webhook-b")
        many = calls.answered + 100
        control_plane.until("pods are made by both", lambda: calls.answered > many)
    hurt = calls.untranslated if policy == "Ignore" else [call for call in calls.calls if call.problem]
    print(f"{policy}: {calls}; noticed after {noticed - killed:.2f} s")
    if policy == "Ignore":
        assert calls.failures == []
    else:
        assert calls.untranslated == []
        assert all("failed calling webhook" in problem for problem in calls.failures)
    assert all(call.ended >= killed and call.begun <= noticed + PATIENCE for call in hurt)


def impossible_review(namespace):
    """The review of a claim that no node could ever serve."""
    made = claim("huge", namespace, request("gpus", "gpu.nvidia.com", 30))
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "stale",
            "operation": "CREATE",
            "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"},
            "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
            "namespace": namespace,
            "name": "huge",
            "object": made,
        },
    }


@pytest.mark.long  # what was read counts as outdated after a minute
@pytest.mark.timeout(300)
def test_a_stalled_api_server_causes_no_refusal(control_plane, webhook, gated, fleet_node):
    """Readiness reports the time of the last contact."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "drawbridge", "namespace": SYSTEM}}
    webhook.trusted = base64.b64decode(control_plane.read(secret)["data"]["ca.crt"]).decode()
    log = webhook.processes["webhook"].log
    try:
        control_plane.until("it is refused", lambda: not webhook.post("/validate", impossible_review(gated))["allowed"])
        before = log.read_text().count("the watch was silent for 30 s")
        send(control_plane.apiserver.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            control_plane.until(
                "a silent watch is noticed",
                lambda: log.read_text().count("the watch was silent for 30 s") > before,
                60,
            )
            noticed = time.monotonic() - stopped
            control_plane.until(
                "readiness says it, of a kind that was heard of last, too",
                lambda: "resourceslices.resource.k8s.io (" in webhook.get("/readyz?verbose")[1],
                90,
            )
            reported = time.monotonic() - stopped
            status, text = webhook.get("/readyz?verbose")
            answer = webhook.post("/validate", impossible_review(gated))
            metrics = webhook.metrics()
        finally:
            send(control_plane.apiserver.pid, signal.SIGCONT)
        back = time.monotonic()
        control_plane.until(
            "it is refused again", lambda: not webhook.post("/validate", impossible_review(gated))["allowed"], 60
        )
        print(
            f"a silent watch after {noticed:.0f} s, readiness after {reported:.0f} s, refused again after {time.monotonic() - back:.0f} s\n{text}"
        )
    finally:
        webhook.trusted = ""
    assert noticed < 30 + BUSY
    assert status == 200, "no replica leaves the Service: all of them would"
    assert "[!]stock: nothing is refused" in text
    assert answer["allowed"]
    age = next(
        float(line.split()[1]) for line in metrics.splitlines() if line.startswith("drawbridge_stock_age_seconds ")
    )
    assert age > 60
