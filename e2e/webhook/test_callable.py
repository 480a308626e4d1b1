"""A webhook configuration without a bundle calls no webhook, however it is applied, and stays callable once it has one.

No server listens behind these configurations, and their failurePolicy is Fail: a pod that reaches them is refused.
"""

import asyncio
import base64
import datetime as dt
import json

import pytest

from certs import authority, inject
from cluster.kubernetes import Kubernetes
from e2e.actors.client import ApiError
from e2e.actors.workloads import container, limits, pod
from e2e.ground.controlplane import free_port
from webhook.registration import Registration, configurations
from webhook.state import Configuration

pytestmark = pytest.mark.real

BASE = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
def generated(control_plane, namespace):
    """Both generated configurations, for one namespace and with names of their own; not applied yet."""
    made = configurations(
        Configuration().dialects, Registration(url=f"https://127.0.0.1:{free_port()}", failure_policy="Fail")
    )
    for configuration in made:
        configuration["metadata"]["name"] = namespace
        for webhook in configuration["webhooks"]:
            only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
            webhook["namespaceSelector"]["matchExpressions"].append(only)
    yield made
    control_plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=json.dumps(listed(made)))


def listed(items):
    return {"apiVersion": "v1", "kind": "List", "items": items}


def injected(control_plane, name):
    """What the authority writes into a configuration."""
    bundle = authority.authority("unknown", now=dt.datetime.now(dt.UTC), life=dt.timedelta(hours=1)).certificate

    async def do():
        cluster = Kubernetes.connect(kubeconfig=str(control_plane.kubeconfig))
        try:
            return await inject.ensure_bundle(cluster, await inject.read_webhooks(cluster, [name]), bundle)
        finally:
            await cluster.close()

    assert asyncio.run(do())
    return base64.b64encode(bundle).decode()


def refused(control_plane, namespace):
    """Return whether a pod with an accelerator is refused because the webhook does not answer."""
    try:
        control_plane.create(pod("p", namespace, container(**limits(**{"nvidia.com/gpu": 1}))), dryRun="All")
    except ApiError as error:
        if "webhook" not in error.message:
            raise
        return True
    return False


@pytest.mark.parametrize("how", [[], ["--server-side"]], ids=["client-side", "server-side"])
def test_webhooks_need_a_bundle_and_a_reapply_keeps_it(control_plane, namespace, generated, how):
    def apply():
        control_plane.kubectl("apply", *how, "-f", "-", input=json.dumps(listed(generated)))

    apply()
    # The server uses a configuration some moments after it has accepted it: a second one that is called shows that it does.
    witness(control_plane, namespace)
    assert not refused(control_plane, namespace)
    bundle = injected(control_plane, namespace)
    control_plane.until("it is called", lambda: refused(control_plane, namespace), 20)
    apply()
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for webhook in control_plane.get(f"{BASE}/{kind}/{namespace}")["webhooks"]:
            assert webhook["rules"]
            assert webhook["clientConfig"]["caBundle"] == bundle
    assert refused(control_plane, namespace)


def witness(control_plane, namespace):
    """Wait until a new configuration is in force, and delete it again."""
    name = f"{namespace[:50].rstrip('-')}-witness"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    webhook = {
        "name": "witness.drawbridge.dev",
        "clientConfig": {"url": f"https://127.0.0.1:{free_port()}"},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        made = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": [webhook],
        }
        control_plane.create(made)
        try:
            control_plane.until("a configuration is in force", lambda: not creates(control_plane, namespace), 20)
        finally:
            control_plane.remove(made)


def creates(control_plane, namespace):
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe", "namespace": namespace}}
    try:
        control_plane.create(item, dryRun="All")
    except ApiError:
        return False
    return True
