"""A review writes nothing: neither the audit log nor the metrics of the API server show a write by the webhook."""

import itertools
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.actors.client import ApiError
from e2e.actors.webhook import gpu
from e2e.actors.workloads import container, limits, pod

pytestmark = pytest.mark.real
AWAITS = "drawbridge.dev/awaits-template"


def test_a_thousand_reviews_leave_no_write_of_ours(control_plane, fleet_node, gated, webhook):
    """1,000 dry runs and creations, some of them refused: the audit log has no write by the webhook's account."""
    before = sum(1 for _ in control_plane.audit_events())
    good, bad = (
        gpu("p", gated),
        pod("q", gated, container(**limits(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": "1500m"}))),
    )

    def ask(number):
        """One review in four is refused, one in fifty is of a pod that is stored."""
        if number % 4 == 0:
            with pytest.raises(ApiError, match="is not a whole number"):
                control_plane.create(bad, dryRun="All")
        elif number % 50 == 1:
            control_plane.create(good | {"metadata": {"name": f"p-{number}", "namespace": gated}})
        else:
            control_plane.create(good | {"metadata": {"name": f"x-{number}", "namespace": gated}}, dryRun="All")

    reviews = 1000
    with ThreadPoolExecutor(16) as several:  # a refused review is repeated after a quarter of a second
        list(several.map(ask, range(reviews)))
    events = list(control_plane.audit_events())[before:]
    created = [e for e in events if e["verb"] == "create" and place(e) == ("pods", gated)]
    assert len(created) == reviews
    ours = [e for e in events if e["user"]["username"] == "system:serviceaccount:drawbridge-system:drawbridge-webhook"]
    assert [e for e in ours if e["verb"] not in ("get", "list", "watch")] == []
    webhook.processes["webhook"].check()


def place(event):
    """Return resource and namespace of a request; None for subresources such as bindings."""
    reference = event.get("objectRef", {})
    return None if "subresource" in reference else (reference.get("resource"), reference.get("namespace"))


def test_a_pod_costs_one_review_and_no_write_of_ours(control_plane, fleet_node, gated):
    """From creation until the pod is bound and its claim allocated. `docs/comparison.md` gives this as the cost of a GPU pod."""
    control_plane.create(gpu("first", gated))  # creates the template
    control_plane.wait_scheduled(gated, "first")
    control_plane.until(
        "the webhook knows the template", lambda: AWAITS not in labels_of_another(control_plane, gated), 30
    )
    assert {place(e) for e in writes_of_ours(control_plane, gated, 0)} == {("resourceclaimtemplates", gated)}
    calls, seen = webhook_calls(control_plane), sum(1 for _ in control_plane.audit_events())
    several = [f"p-{number}" for number in range(4)]
    for name in several:
        control_plane.create(gpu(name, gated))
    for name in several:
        control_plane.wait_scheduled(gated, name)
    assert webhook_calls(control_plane) - calls == {("admit", "CREATE"): len(several)}
    assert writes_of_ours(control_plane, gated, seen) == []


def writes_of_ours(cluster, namespace, seen):
    """Return the writes of our accounts in a namespace, without those seen before."""
    return [
        event
        for event in itertools.islice(cluster.audit_events(), seen, None)
        if event.get("objectRef", {}).get("namespace") == namespace
        and event["verb"] not in ("get", "list", "watch")
        and event["user"]["username"].startswith("system:serviceaccount:drawbridge-system:")
    ]


def labels_of_another(cluster, namespace):
    """Return the labels that one more pod would get."""
    [stored] = cluster.create(gpu("another", namespace), dryRun="All")
    return stored["metadata"]["labels"]


def webhook_calls(cluster):
    """Return how often the API server has called our webhooks, by type and operation."""
    calls = Counter()
    for line in cluster.kubectl("get", "--raw", "/metrics").stdout.splitlines():
        name, _, labels = line.partition("{")
        if name != "apiserver_admission_webhook_admission_duration_seconds_count" or "drawbridge" not in labels:
            continue
        type_, operation = (
            re.search(rf'\b{label}="([a-z]+)"', labels, re.IGNORECASE)[1] for label in ("type", "operation")
        )
        calls[type_, operation] += int(float(line.rpartition(" ")[2]))
    return calls


def test_the_webhooks_account_has_no_write_access(control_plane, webhook):
    account = "system:serviceaccount:drawbridge-system:drawbridge-webhook"
    done = control_plane.kubectl("auth", "can-i", "--list", f"--as={account}", "-n", "drawbridge-system")
    lines = [line for line in done.stdout.splitlines()[1:] if "selfsubject" not in line]
    verbs = {word for line in lines for word in line.rpartition("[")[2].rstrip("]").split()}
    assert verbs <= {"get", "list", "watch"}
