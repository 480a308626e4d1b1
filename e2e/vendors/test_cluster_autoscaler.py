"""cluster-autoscaler beside drawbridge: it creates a node, or none, as the webhook and `survey` have predicted.

Its provider creates Nodes and no machines, from templates in a ConfigMap, and declares no devices for a group without nodes (kwok).
Each program in the directory DRAWBRIDGE_DRIVERS is tried; without it these tests are not collected (conftest.py).
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cluster.manifests import dump, parse
from e2e.actors import fleet
from e2e.actors.webhook import COMMAND, CONFIGURATION
from e2e.ground.controlplane import free_port
from e2e.installed.test_autoscaler import GPU, gpu_pod, until_warned

pytestmark = pytest.mark.real

PROGRAMS = Path(os.environ.get("DRAWBRIDGE_DRIVERS", "/nonexistent"))
# kubernetes/autoscaler, and kubernetes-sigs/cluster-autoscaler with the same core and this provider alone.
VERSIONS = {"cluster-autoscaler": "1.36.1", "cluster-autoscaler-kwok": "1.37.0"}
PLACE = "cluster-autoscaler"
EVIDENCE = f"{CONFIGURATION}evidence: {{namespaces: [{PLACE}]}}\n"
CLASS = f"/apis/resource.k8s.io/v1/deviceclasses/{fleet.NVIDIA}"
GROUP = "example.com/group"
EMPTY, DRIVEN = "empty", "driven"  # the first has no node; the second has one, with a driver
FIRST = f"{DRIVEN}-first-0"
PROVIDER = {
    "apiVersion": "v1alpha1",
    "readNodesFrom": "configmap",
    "nodegroups": {"fromNodeLabelKey": GROUP},
    "nodes": {"skipTaint": True},
    "configmap": {"name": "templates"},
}


def template(group, **amounts):
    """A Node as the provider creates it for a group."""
    able = {"cpu": "64", "memory": "512Gi", "pods": "110"} | amounts
    status = {"capacity": able, "allocatable": able, "conditions": [{"type": "Ready", "status": "True"}]}
    size = {"cluster-autoscaler.kwok.nodegroup/max-count": "3"}
    metadata = {"name": group, "labels": {GROUP: group}, "annotations": size}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def config_map(name, **data):
    metadata = {"name": name, "namespace": PLACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def deployment(image):
    """The Deployment of a cluster-autoscaler that runs in pods."""
    name = {"app": PLACE}
    pods = {"metadata": {"labels": name}, "spec": {"containers": [{"name": "main", "image": image}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": PLACE, "namespace": PLACE},
        "spec": {"replicas": 0, "selector": {"matchLabels": name}, "template": pods},
    }


@pytest.fixture(scope="module", params=[name for name in VERSIONS if (PROGRAMS / name).exists()])
def autoscaler(request, control_plane, webhook):
    """The running program, and a webhook that reads its Deployment."""
    cluster = control_plane
    config = cluster.run.data / "evidence.yaml"
    config.write_text(EVIDENCE)
    printed = parse(webhook.drawbridge("manifests", "--only=rest", "--image=x.example/y:1", "--config", str(config)))
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}},
        *[document.object for document in printed if document.object["metadata"]["name"] == "drawbridge-evidence"],
        config_map("kwok-provider-config", config=dump([PROVIDER])),
        config_map("templates", templates=dump([template(EMPTY, **{GPU: "8"}), template(DRIVEN)])),
        deployment(f"registry.example.com/{request.param}:v{VERSIONS[request.param]}"),
        *fleet.classes(extended=False),
        *fleet.slices(fleet.NVIDIA, FIRST, fleet.whole_gpus(2), by_name=True),
    ]
    options = [
        "--cloud-provider=kwok",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--namespace={PLACE}",
        "--leader-elect=false",
        "--scan-interval=1s",
        "--scale-down-enabled=false",
        f"--address=127.0.0.1:{free_port()}",
    ]
    variables = {"KUBECONFIG": str(cluster.kubeconfig), "POD_NAMESPACE": PLACE, "KWOK_PROVIDER_MODE": "local"}
    try:
        cluster.create(*made)
        cluster.add_fake_nodes(1, prefix=f"{DRIVEN}-first-", labels={GROUP: DRIVEN})
        cluster.patch(f"/api/v1/nodes/{FIRST}", {"spec": {"providerID": f"kwok:{FIRST}"}})
        webhook.reads_on(FIRST)
        webhook.follow(EVIDENCE)
        process = cluster.spawn(request.param, [PROGRAMS / request.param, *options], env=variables)
        yield process
        process.check()
        process.stop()
    finally:
        webhook.follow(CONFIGURATION)
        cluster.remove({"apiVersion": "v1", "kind": "Node", "metadata": {"name": FIRST}}, *reversed(made))
        cluster.until("its namespace is gone", lambda: not cluster.read(made[0]), 60)


@pytest.fixture
def scaled(autoscaler, control_plane, gated):
    """A namespace for pods; nodes that were created for them are deleted afterwards."""
    yield gated
    control_plane.kubectl("delete", "pods", "--all", "-n", gated, "--force", "--wait=false")
    for name in made(control_plane):
        control_plane.delete(f"/api/v1/nodes/{name}")


def made(cluster):
    """Return the names of the Nodes that cluster-autoscaler created."""
    nodes = cluster.get("/api/v1/nodes", labelSelector=GROUP)["items"]
    return [node["metadata"]["name"] for node in nodes if node["metadata"]["name"] != FIRST]


def groups(cluster, count):
    """Return the groups of the created nodes, once there are this many."""
    return [
        name.partition("-")[0]
        for name in cluster.until("nodes are made", lambda: len(made(cluster)) == count and made(cluster), 90)
    ]


def kept(item):
    """The pod with the label that skips the webhook."""
    item["metadata"]["labels"] = {"drawbridge.dev/skip": "true"}
    return item


def test_survey_names_a_group_without_nodes(autoscaler, control_plane, webhook):
    def obstacles():
        command = [
            *COMMAND,
            "survey",
            "-o",
            "json",
            "--kubeconfig",
            control_plane.kubeconfig,
            "--config",
            webhook.config,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return {finding["code"]: finding for finding in json.loads(done.stdout)["obstacles"]}

    obstacle = control_plane.until("the group is named", lambda: obstacles().get("S009"), 60)
    assert obstacle["object"] == f"Deployment/{PLACE}/{PLACE}"
    assert obstacle["message"].startswith(f"no node of {EMPTY} is there")
    assert "S008" not in obstacles()


def test_no_node_is_created_for_a_claim_at_zero(autoscaler, control_plane, scaled):
    item = gpu_pod("claims", scaled, 3)
    assert "(cluster-autoscaler)" in until_warned(control_plane, item, "R023")
    control_plane.create(item)
    event = "NotTriggerScaleUp: pod didn't trigger scale-up: 2 cannot allocate all claims"
    control_plane.until("it says why", lambda: event in control_plane.events(scaled, "claims"), 60)
    assert made(control_plane) == []


def test_a_node_is_created_for_an_extended_resource_at_zero(autoscaler, control_plane, scaled):
    control_plane.create(kept(gpu_pod("kept", scaled, 3)))
    assert groups(control_plane, 1) == [EMPTY]


def test_a_node_is_created_for_a_claim_from_existing_slices(autoscaler, control_plane, scaled):
    control_plane.create(gpu_pod("first", scaled, 2))
    control_plane.wait_scheduled(scaled, "first")
    control_plane.create(gpu_pod("claims", scaled, 1))
    assert groups(control_plane, 1) == [DRIVEN]


def test_a_node_is_created_for_a_resource_of_a_class(autoscaler, control_plane, scaled):
    control_plane.patch(CLASS, {"spec": {"extendedResourceName": GPU}})
    try:
        control_plane.create(kept(gpu_pod("first", scaled, 2)))
        control_plane.wait_scheduled(scaled, "first")
        control_plane.create(kept(gpu_pod("named", scaled, 1, nodeSelector={GROUP: DRIVEN})))
        assert groups(control_plane, 1) == [DRIVEN]
    finally:
        control_plane.patch(CLASS, {"spec": {"extendedResourceName": None}})
