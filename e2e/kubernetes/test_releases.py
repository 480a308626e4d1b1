"""A release of the chart is installed, upgraded and uninstalled on a control plane as the page says."""

import json
import re

import pytest

from e2e.actors.webhook import CONFIGURATION, SYSTEM, Webhook
from e2e.ground.controlplane import ControlPlane
from e2e.kubernetes import charts
from e2e.kubernetes.charts import IMAGE, IMAGES, RELEASE, WITH_SCHEDULER, drawbridge, helm, printed, value_file

pytestmark = pytest.mark.real
chart = charts.chart


@pytest.fixture(scope="module")
def cluster():
    with ControlPlane(name="chart") as running:
        yield running


def release(cluster, *arguments, check=True):
    return helm(*arguments, "--kubeconfig", str(cluster.kubeconfig), "--namespace", SYSTEM, check=check)


def stored(cluster, *kinds):
    listed = json.loads(cluster.kubectl("get", ",".join(kinds), "-A", "-o", "json").stdout)["items"]
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in listed if obj["metadata"]["name"].startswith(RELEASE) or ".drawbridge.dev" in obj["metadata"]["name"]}  # fmt: skip


EVERYWHERE = [
    "namespaces",
    "deployments",
    "services",
    "configmaps",
    "secrets",
    "serviceaccounts",
    "leases",
    "poddisruptionbudgets",
    "networkpolicies",
    "roles",
    "rolebindings",
    "clusterroles",
    "clusterrolebindings",
    "crds",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "devicetaintrules",
]
# Fields that Kubernetes' controllers write, each at its own time.
THEIRS = ("resourceVersion", "managedFields")
REVISION = "deployment.kubernetes.io/revision"


def applied(objects):
    """Objects without the fields that Kubernetes' controllers write."""
    left = {}
    for name, obj in objects.items():
        metadata = {key: value for key, value in obj["metadata"].items() if key not in THEIRS}
        metadata["annotations"] = {
            key: value for key, value in metadata.get("annotations", {}).items() if key != REVISION
        }
        left[name] = {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}
    return left


REGISTRATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


def bundles(cluster):
    """Return the bundle of each webhook, and whether it has rules."""
    return {
        webhook["name"]: (webhook["clientConfig"].get("caBundle"), bool(webhook.get("rules")))
        for registration in stored(cluster, *REGISTRATIONS).values()
        for webhook in registration["webhooks"]
    }


def kept_keys(cluster):
    """Return the data of our Secrets, by name."""
    return {name: secret["data"] for (_, name), secret in stored(cluster, "secrets").items()}


def test_a_release_is_installed_upgraded_and_uninstalled_with_documented_leftovers(cluster, chart, tmp_path):
    values = [*IMAGES, "--set", "bridge.enabled=true"]
    output = release(cluster, "install", RELEASE, chart, "--create-namespace", *values).stdout
    assert f"kubectl -n {SYSTEM} rollout status deploy/drawbridge-webhook" in output
    assert "kubectl label namespace NAMESPACE drawbridge.dev/mode=warn" in output
    made = stored(cluster, *EVERYWHERE)
    wanted = {(kind, name) for kind, _, name in printed("--values", value_file(tmp_path, bridge=WITH_SCHEDULER))}
    assert wanted <= made.keys()

    webhook = Webhook(cluster)
    webhook.configure(CONFIGURATION)
    webhook.start_authority()
    cluster.until(
        "every webhook is called", lambda: all(bundle and rules for bundle, rules in bundles(cluster).values()), 60
    )
    before, keys = bundles(cluster), kept_keys(cluster)
    assert len(keys) == 4
    quota = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"gpu/devices": 1}}}  # fmt: skip
    cluster.create(quota)

    changed = ["--set", "configuration.mode=warn,replicas.webhook=3,webhooks.failurePolicy=Fail"]
    release(cluster, "upgrade", RELEASE, chart, *values, *changed)
    after = stored(cluster, "deployments", "configmaps", *REGISTRATIONS)
    assert after["Deployment", "drawbridge-webhook"]["spec"]["replicas"] == 3
    assert "mode: warn" in after["ConfigMap", RELEASE]["data"]["drawbridge.yaml"]
    assert after["MutatingWebhookConfiguration", RELEASE]["webhooks"][0]["failurePolicy"] == "Fail"
    assert bundles(cluster) == before, "an upgrade takes neither bundle nor rules away"
    assert kept_keys(cluster) == keys, "nor keys"

    refused = release(cluster, "upgrade", RELEASE, chart, *values, "--set", "replcas.webhook=1", check=False)
    assert (refused.returncode != 0, "replcas" in refused.stderr) == (True, True)
    assert applied(stored(cluster, "deployments", "configmaps", *REGISTRATIONS)) == applied(after)

    [first, second] = re.findall(r"^  (kubectl delete mutating.*|helm uninstall .*)$", output, re.MULTILINE)
    cluster.kubectl(*first.split()[1:])
    kept = release(cluster, *second.removesuffix(f" -n {SYSTEM}").split()[1:]).stdout
    webhook.processes["authority"].stop()
    assert "devicequotas.drawbridge.dev" in kept
    kinds = {
        ("CustomResourceDefinition", f"{plural}.drawbridge.dev") for plural in ("devicequotas", "devicecompatibilities")
    }
    secrets = {
        ("Secret", name)
        for name in (RELEASE, f"{RELEASE}-authority", f"{RELEASE}-signature", f"{RELEASE}-reservations")
    }
    assert stored(cluster, *EVERYWHERE).keys() == {("Namespace", SYSTEM)} | kinds | secrets
    assert cluster.read(quota)["spec"] == quota["spec"]

    release(cluster, "install", RELEASE, chart, *values)
    assert wanted <= stored(cluster, *EVERYWHERE).keys()
    assert cluster.read(quota)["spec"] == quota["spec"]
    assert kept_keys(cluster) == keys
    webhook.start_authority()
    cluster.until("the same bundles are everywhere", lambda: bundles(cluster) == before, 60)
    assert kept_keys(cluster) == keys
    webhook.processes["authority"].stop()
    release(cluster, "uninstall", RELEASE)


def test_a_helm_release_can_adopt_a_kubectl_installation(cluster, chart):
    cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", input=drawbridge("manifests", "--image", IMAGE)
    )
    refused = release(cluster, "install", RELEASE, chart, *IMAGES, check=False)
    assert "cannot be imported into the current release" in refused.stderr
    release(cluster, "install", RELEASE, chart, *IMAGES, "--take-ownership")
    release(cluster, "uninstall", RELEASE)
    kinds = {kind for kind, _ in stored(cluster, *EVERYWHERE)}
    assert kinds == {"Namespace", "CustomResourceDefinition", "Secret"}
