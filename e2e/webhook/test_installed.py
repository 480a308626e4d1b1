"""The setup of device plugins and autoscalers decides on a live cluster, if an administrator names their namespaces."""

import json
import subprocess

import pytest

from cluster import manifests
from e2e.actors.webhook import COMMAND, CONFIGURATION, NODE, gpu
from tests.corpus.move.autoscaled import NO_NODE_FOR_CLAIMS, pool, scaler
from tests.corpus.move.plugins import LABEL, PLAIN, config_map, policy, sharing
from tests.corpus.move.visible import runtime

pytestmark = pytest.mark.real
HOME = "installed-operator"
EVIDENCE = f"{CONFIGURATION}evidence: {{namespaces: [{HOME}]}}\n"
LEFT = f"{EVIDENCE}extendedResources: {{default: translate, autoscaled: leave}}\n"
CLASS = "/apis/resource.k8s.io/v1/deviceclasses/gpu.nvidia.com"
FOUR = f"ConfigMap {HOME}/plugin (any) makes 4 time-sliced replicas of each device"
SECRET = "hunter2"


def kind(group, plural, name):
    """A custom kind without a schema."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"kind": name, "plural": plural, "singular": name.lower()}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
    }


KINDS = [kind("karpenter.sh", "nodepools", "NodePool"), kind("nvidia.com", "clusterpolicies", "ClusterPolicy")]


def autoscaler(namespace):
    """A cluster-autoscaler that does not run, with a secret among its arguments and variables."""
    made = scaler("1.31.2", f"--token={SECRET}")
    made["metadata"] = {"name": "scaler", "namespace": namespace}
    [container] = made["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "TOKEN", "value": SECRET}]
    made["spec"] |= {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}}
    made["spec"]["template"]["metadata"] = {"labels": {"app": "x"}}
    return made


def plugin(namespace):
    """The ConfigMap that the policy names."""
    whole = {**PLAIN, "flags": {"migStrategy": "none", "plugin": {"secret": SECRET}}}
    return config_map("plugin", namespace, any=sharing(), plain=whole, other=SECRET)


@pytest.fixture
def declared(control_plane, fleet_node, gated, webhook, tmp_path):
    """A namespace for the operator with the printed rights, the kinds, and forged objects of a tenant."""
    file = tmp_path / "drawbridge.yaml"
    file.write_text(EVIDENCE)
    printed = webhook.drawbridge("manifests", "--only=rest", "--image=x.example/y:1", "--config", str(file))
    listed = [document.object for document in manifests.parse(printed)]
    rights = [obj for obj in listed if obj["metadata"]["name"] == "drawbridge-evidence"]
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}}
    served = {"spec": {"extendedResourceName": "nvidia.com/gpu"}}
    made = [home, *rights, *KINDS, runtime("cards", "nvidia")]
    try:
        control_plane.create(*made)
        control_plane.kubectl(
            "wait", "--for=condition=Established", "--timeout=30s", *[f"crd/{crd['metadata']['name']}" for crd in KINDS]
        )
        control_plane.create(policy(), pool(), autoscaler(gated), plugin(gated))
        control_plane.patch(CLASS, served)
        webhook.follow(EVIDENCE + "extendedResources: {default: translate}\n")
        yield rights
    finally:
        webhook.follow(CONFIGURATION)
        control_plane.patch(CLASS, {"spec": {"extendedResourceName": None}})
        control_plane.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {LABEL: None}}})
        control_plane.remove(*reversed(made))


def test_installed_components_decide_while_present_and_tenants_cannot_fake_them(
    control_plane, webhook, declared, gated, tmp_path
):
    def tried(**spec):
        """Return the outcome of a pod now, and the messages about it."""
        done = control_plane.kubectl(
            "create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(gpu("tried", gated, **spec))
        )
        return "resourceClaims" in json.loads(done.stdout)["spec"], done.stderr

    def seen(what, expected, *, translated, never="\0", seconds=40, **spec):
        def holds():
            became, warning = tried(**spec)
            return became == translated and expected in warning and never not in warning

        control_plane.until(what, holds, seconds)

    def drawbridge(*arguments, ends=0):
        command = [*COMMAND, *arguments, "--config", str(file), "--kubeconfig", str(control_plane.kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == ends, done.stderr
        return done.stdout

    file = tmp_path / "drawbridge.yaml"
    chosen = {"nodeSelector": {LABEL: "plain"}}
    control_plane.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {LABEL: "plain"}}})
    seen(
        "a warning names the pool",
        f"Karpenter (NodePool gpu) {NO_NODE_FOR_CLAIMS}",
        translated=True,
        never="cluster-autoscaler",
    )
    seen("a configuration of a tenant says nothing", "may be a replica", translated=False, **chosen)

    control_plane.remove(pool())
    control_plane.create(plugin(HOME), autoscaler(HOME))
    seen(
        "a warning names the autoscaler",
        f"cluster-autoscaler 1.31 {NO_NODE_FOR_CLAIMS}",
        translated=True,
        never="Karpenter",
    )
    seen("the configuration counts", "", translated=True, **chosen)
    seen("a warning names the time-sliced replicas", FOUR, translated=False, nodeSelector={LABEL: "any"})
    control_plane.create(gpu("waits", gated, nodeSelector={LABEL: "any"}))
    assert FOUR in drawbridge("explain", "pod/waits", "-n", gated)
    webhook.follow(LEFT)
    seen("the rule leaves the pod", "", translated=False)

    pods = {"runtimeClassName": "cards", "containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": {"app": "cards"}}, "spec": pods}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "cards"}}, "template": template}
    meta = {"name": "cards", "namespace": gated}
    control_plane.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
    surveyed = json.loads(drawbridge("survey", "-o", "json", "--fail-on", "left", ends=1))
    [cards] = [
        workload for workload in surveyed["workloads"] if (workload["namespace"], workload["name"]) == (gated, "cards")
    ]
    assert [key["key"] for key in cards["keys"]] == ["runtimeClassName"]
    obstacles = {finding["object"]: finding["message"] for finding in surveyed["obstacles"]}
    assert "does not consider claims" in obstacles[f"Deployment/{HOME}/scaler"]
    assert "4 time-sliced" in obstacles[f"ConfigMap/{HOME}/plugin (any)"]
    assert not any(gated in name for name in obstacles)
    snapshot = tmp_path / "snapshot.json"
    drawbridge("snapshot", "--to", str(snapshot))
    written = snapshot.read_text()
    assert SECRET not in written
    [kept] = [obj for obj in json.loads(written)["items"] if obj["kind"] == "ConfigMap"]
    assert kept["metadata"] == {"namespace": HOME, "name": "plugin"}

    control_plane.remove(*declared)
    seen("without the right nothing of it counts", "may be a replica", translated=False, **chosen)
    status, notes = webhook.get("/readyz?verbose")
    assert status == 200
    assert "`evidence.namespaces`) are not all known: not allowed to read nodepools.karpenter.sh" in notes
