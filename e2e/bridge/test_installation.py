"""The documented ways to install the bridge: kustomize builds the objects, the API server accepts them, and their roles suffice."""

import re
import subprocess

import pytest

from cluster import manifests
from e2e.actors import fleet
from e2e.actors.bridge import COMPONENT
from e2e.actors.webhook import ROOT, SYSTEM
from e2e.actors.workloads import claim, pod, request, using
from e2e.ground.controlplane import free_port

pytestmark = pytest.mark.real
PAGE = (ROOT / "docs/bridge.md").read_text()
KUSTOMIZATIONS = re.findall(r"```yaml\n(resources: .*?)```", PAGE, re.DOTALL)
DRIVER, CLASS, NODE = "apart.example.com", "apart-gpu", "apart-0"
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
    assert folders == {"base", "bridge", "bridge/plugin", "bridge/apart", "read-only"}


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


@pytest.mark.parametrize("file", ["scheduler.yaml", "apart/scheduler.yaml"])
def test_our_scheduler_has_the_roles_of_kube_scheduler(control_plane, file):
    """Without one of these roles the scheduler waits forever for a list that it may not read."""
    bindings = control_plane.get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")["items"]
    stock_roles = {binding["roleRef"]["name"] for binding in bindings if {"kind": "User", "name": "system:kube-scheduler", "apiGroup": "rbac.authorization.k8s.io"} in binding.get("subjects", [])}  # fmt: skip
    objects = [document.object for document in manifests.read([COMPONENT / file])]
    assert {obj["roleRef"]["name"] for obj in objects if obj["kind"] == "ClusterRoleBinding"} == stock_roles


@pytest.fixture
def separate_scheduler(control_plane, bridge, tmp_path):
    """Allocator and scheduler as their separate pods run them: the scheduler uses its own account and its own files."""
    section = PAGE.partition("## By address, with certificates")[2]
    commands = re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1]
    subprocess.run(["sh", "-e", "-c", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    manifest = [document.object for document in manifests.read([COMPONENT / "apart/scheduler.yaml"])]
    [configuration] = [obj["data"]["scheduler.yaml"] for obj in manifest if obj["kind"] == "ConfigMap"]
    for key, file in (("tls.crt", "scheduler.crt"), ("tls.key", "scheduler.key"), ("ca.crt", "ca.crt")):
        configuration = configuration.replace(f"/etc/bridge/{key}", str(tmp_path / file))
    port = free_port()
    host = f"https://drawbridge-allocator.{SYSTEM}.svc:9441/"  # this machine cannot resolve the names of Services
    assert host in configuration
    [document] = manifests.parse(configuration.replace(host, f"https://127.0.0.1:{port}/"))
    account_objects = [obj for obj in manifest if obj["kind"] in ("ServiceAccount", "ClusterRoleBinding")]
    for obj in account_objects:
        if obj["kind"] == "ServiceAccount":
            obj["metadata"]["namespace"] = SYSTEM
    objects = [
        fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"),
        *fleet.slices(DRIVER, NODE, [fleet.device("gpu-0", {})], by_name=True),
    ]
    control_plane.add_fake_nodes(1, prefix="apart-")
    control_plane.create(*objects)
    bridge.apply(*account_objects)
    for process in ("allocator-0", "scheduler"):
        bridge.processes[process].stop()
    files = {key: str(tmp_path / name) for key, name in (("tls_cert", "allocator.crt"), ("tls_key", "allocator.key"), ("client_ca", "ca.crt"))}  # fmt: skip
    bridge.start(extender=f"127.0.0.1:{port}", client_name="scheduler", **files)
    kubeconfig = control_plane.account_kubeconfig(SYSTEM, "drawbridge-scheduler")
    scheduler_configuration = document.object | {"clientConnection": {"kubeconfig": str(kubeconfig)}}
    scheduler = control_plane.start_scheduler(scheduler_configuration, name="apart-scheduler")
    try:
        yield
    finally:
        scheduler.stop()
        bridge.processes["allocator-0"].stop()
        control_plane.remove(*objects, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        bridge.start()
        bridge.processes["scheduler"] = bridge.start_scheduler()


def test_a_scheduler_in_its_own_pod_and_account_places_pods(control_plane, separate_scheduler, namespace):
    control_plane.create(
        claim("c", namespace, request("gpu", CLASS)),
        pod("p", namespace, schedulerName="drawbridge", resourceClaims=[using("c")]),
    )
    assert control_plane.wait_scheduled(namespace, "p")["spec"]["nodeName"] == NODE
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/c"
    writers = {field["manager"] for field in control_plane.get(path)["metadata"]["managedFields"]}
    assert "kube-scheduler" not in writers
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
