"""`drawbridge uninstall` on a cluster that has all of it, a second time, and then an older installation that is upgraded.

There is no release yet. `older.yaml.gz` is what `drawbridge manifests --opt-in` printed at commit 1898e32; the image is today's, so what is
tested is the objects' way from old to new, and that today's program understands the old arguments.
"""

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from e2e.actors import fleet
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import container, limits, pod
from e2e.ground import product
from e2e.installed.installation import PROGRAM, Installation, objects, printed, translates

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.time_limit(540, "all of ours goes, and comes twice")]

OLDER = Path(__file__).with_name("older.yaml.gz")
CONFIGURATION = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "mode": "observe"}
QUOTA = {
    "apiVersion": "drawbridge.dev/v1alpha1",
    "kind": "DeviceQuota",
    "spec": {"hard": {"gpu.nvidia.com/devices": 4}},
}


def answer(cluster, *words):
    command = [PROGRAM, *words, "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def is_translated(cluster, namespace):
    item = pod("dry", namespace, container(**limits(**{"nvidia.com/gpu": 1})))
    return "drawbridge.dev/original" in cluster.create(item, dryRun="All")[0]["metadata"].get("annotations", {})


@pytest.fixture(scope="module")
def without(installation, tenants):
    """The cluster, and what was said when ours was taken away."""
    cluster = installation.cluster
    cluster.create(QUOTA | {"metadata": {"name": "kept", "namespace": tenants}})
    planned = answer(cluster, "uninstall")
    assert not planned["done"]
    done = answer(cluster, "uninstall", "--yes")
    assert done["done"]
    assert done["taken"] == planned["taken"]
    cluster.until("ours is gone", lambda: not answer(cluster, "uninstall", "--yes")["taken"], 90)
    return cluster, done


def test_what_is_ours_goes_and_what_users_have_stays_and_is_named(without, tenants):
    cluster, done = without
    assert done["taken"][0] == "MutatingWebhookConfiguration drawbridge"
    assert f"Namespace {tenants}: its labels drawbridge.dev/mode" in done["taken"]
    [kept] = [one for one in done["left"] if one.startswith("CustomResourceDefinition")]
    assert f"devicequotas.drawbridge.dev, for {tenants}/kept" in kept
    assert any("ConfigMap drawbridge-driver/drawbridge-inventory" in one for one in done["left"])
    left = cluster.kubectl("get", "deployments,secrets,clusterroles,validatingadmissionpolicies", "-A", "-o", "name", "-l", "app.kubernetes.io/name=drawbridge").stdout  # fmt: skip
    assert left == ""
    assert cluster.get(f"/apis/drawbridge.dev/v1alpha1/namespaces/{tenants}/devicequotas/kept")
    assert answer(cluster, "doctor")["findings"] == []


@pytest.fixture(scope="module")
def older(node, without, tenants):
    """An installation of older manifests, with a pod that it translated and that waits."""
    cluster, _ = without
    cluster.add_fake_nodes(1, prefix="far-")
    cluster.create(*fleet.slices(fleet.NVIDIA, "far-0", fleet.whole_gpus(1), by_name=True))  # our driver's went with it
    made = objects(gzip.decompress(OLDER.read_bytes()).decode().replace("REGISTRY/drawbridge:0.1.0", product.NAME))
    installed = Installation(node)
    installed.apply(made)
    installed.wait(made)
    cluster.until("the API server asks", lambda: answer(cluster, "doctor"), 30)
    return installed


def test_a_later_installation_begins_nowhere_in_enforce(older, tenants):
    """The label went with the installation before."""
    assert not is_translated(older.cluster, tenants)


def test_an_older_installation_is_told_apart_and_upgraded_and_what_it_translated_stays(older, tenants):
    cluster = older.cluster
    cluster.patch(f"/api/v1/namespaces/{tenants}", {"metadata": {"labels": {"drawbridge.dev/mode": "enforce"}}})
    translates(cluster, tenants)
    cluster.create(pod("before", tenants, container(**limits(**{"nvidia.com/gpu": 1})), nodeSelector={"no": "node"}))
    [entry] = cluster.get(f"/api/v1/namespaces/{tenants}/pods/before")["spec"]["resourceClaims"]
    template = (
        f"/apis/resource.k8s.io/v1/namespaces/{tenants}/resourceclaimtemplates/{entry['resourceClaimTemplateName']}"
    )
    cluster.until("its template is made", lambda: cluster.get(template))
    told = {(one["what"], one["object"]) for one in answer(cluster, "doctor")["findings"]}
    assert ("missing", "ValidatingAdmissionPolicy drawbridge-secrets") in told
    assert ("changed", "MutatingWebhookConfiguration drawbridge") in told or len(told) == 1
    made = printed(cluster, CONFIGURATION)
    kinds = [one for one in made if one["kind"] == "CustomResourceDefinition"]
    for some in (kinds, made):
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": some}))  # fmt: skip
    older.wait(made)
    cluster.until("nothing is wrong", lambda: not answer(cluster, "doctor")["findings"], 60)
    translates(cluster, tenants)
    assert cluster.get(template)
    assert cluster.get(f"/api/v1/namespaces/{SYSTEM}/secrets/drawbridge-seal")["data"]["seal.key"]
