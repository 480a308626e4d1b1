"""`drawbridge uninstall` on a cluster that has all of it, and a second time."""

import json
import subprocess

import pytest

from e2e.installed.installation import PROGRAM

pytestmark = [
    pytest.mark.real,
    pytest.mark.node,
    pytest.mark.time_limit(540, "a dozen processes start, and all of ours goes"),
]

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
    assert "devicequotas.drawbridge.dev" in kept
    assert f"{tenants}/kept" in kept
    assert any("ConfigMap drawbridge-driver/drawbridge-inventory" in one for one in done["left"])
    assert cluster.get(f"/apis/drawbridge.dev/v1alpha1/namespaces/{tenants}/devicequotas/kept")
