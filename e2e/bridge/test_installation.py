"""The documented ways to install the bridge: kustomize builds the objects, the API server accepts them, and their roles suffice."""

import re

import pytest

from cluster import manifests
from e2e.actors.bridge import COMPONENT
from e2e.actors.webhook import ROOT, SYSTEM

pytestmark = pytest.mark.real
PAGE = (ROOT / "docs/bridge.md").read_text()
KUSTOMIZATIONS = re.findall(r"```yaml\n(resources: .*?)```", PAGE, re.DOTALL)
# Cluster-wide kinds; kustomize gives some of them a namespace, which the API server ignores.
CLUSTER_WIDE = re.compile("ClusterRole|CustomResource|Policy(Binding)?$|WebhookConfiguration|^Namespace$")


def build(control_plane, folder, text):
    """Return what `kubectl kustomize` builds from the text of a kustomization, with the manifests of this checkout."""
    (folder / "drawbridge").mkdir()
    (folder / "drawbridge/manifests").symlink_to(ROOT / "manifests")
    up_to_root = "../" * (len(folder.resolve().parts) - 1)
    (folder / "kustomization.yaml").write_text(
        text.replace("drawbridge/manifests", f"{up_to_root}{str(ROOT)[1:]}/manifests")
    )
    return control_plane.kubectl("kustomize", str(folder)).stdout


def test_the_page_lists_all_ways_to_install():
    folders = {folder for text in KUSTOMIZATIONS for folder in re.findall(r"drawbridge/manifests/([\w/-]+)", text)}
    assert folders == {"base", "bridge", "read-only"}


@pytest.mark.parametrize("text", KUSTOMIZATIONS, ids=[str(at) for at in range(len(KUSTOMIZATIONS))])
def test_documented_kustomize_builds_stay_in_our_namespace_and_are_accepted(control_plane, bridge, tmp_path, text):
    objects = build(control_plane, tmp_path, text)
    outside = [
        f"{obj['kind']}/{obj['metadata']['name']}"
        for obj in (document.object for document in manifests.parse(objects))
        if not CLUSTER_WIDE.search(obj["kind"]) and obj["metadata"].get("namespace") != SYSTEM
    ]
    assert outside == []
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", input=objects)


def test_our_scheduler_has_the_roles_of_kube_scheduler(control_plane):
    """Without one of these roles the scheduler waits forever for a list that it may not read."""
    bindings = control_plane.get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")["items"]
    stock_roles = {binding["roleRef"]["name"] for binding in bindings if {"kind": "User", "name": "system:kube-scheduler", "apiGroup": "rbac.authorization.k8s.io"} in binding.get("subjects", [])}  # fmt: skip
    objects = [document.object for document in manifests.read([COMPONENT / "scheduler.yaml"])]
    assert {obj["roleRef"]["name"] for obj in objects if obj["kind"] == "ClusterRoleBinding"} == stock_roles
