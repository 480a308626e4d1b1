"""The documented migration (docs/node-by-node.md): a real node moves from a device plugin to DRA and back, and no workload is edited."""

import contextlib
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.actors.workloads import container, limits
from e2e.build import program
from e2e.driver.test_adapter import HOLD, PROGRAM, RESOURCE, SOCKETS, Adapter

pytestmark = [pytest.mark.real, pytest.mark.node]

PAGE = (Path(__file__).parents[2] / "docs" / "node-by-node.md").read_text(encoding="utf-8")
PLUGIN = "nvidia-device-plugin"
DEVICES = {"Dev-1", "Dev-2"}


def commands(section, **names):
    """The kubectl commands in a section of the page, with the names of this cluster."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^ *```\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    names |= {r"nvidia\.com/gpu": RESOURCE.replace(".", r"\."), "}=COUNT": "}=2"}
    for name, value in names.items():
        block = block.replace(name, value)
    return [shlex.split(command) for command in re.split(r"^ *kubectl ", block, flags=re.MULTILINE)[1:]]


def daemon_set(namespace, name, folder, **spec_fields):
    """The sample device plugin as its vendor would install it."""
    mounts = {"/plugin": program("sample-device-plugin").parent, SOCKETS: folder, "/tmp": "/tmp"}
    labels = {"app": name}
    plugin = container() | {
        "command": ["/plugin/sample-device-plugin"],
        "volumeMounts": [{"name": f"v{i}", "mountPath": path} for i, path in enumerate(mounts)],
    }
    spec = {
        "containers": [plugin],
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": f"v{i}", "hostPath": {"path": str(path)}} for i, path in enumerate(mounts.values())],
        **spec_fields,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def deployment(namespace):
    """An old, unmodified workload."""
    main = container(command=HOLD, **limits(**{RESOURCE: 1}))
    template = {
        "metadata": {"labels": {"app": "old"}},
        "spec": {"containers": [main], "terminationGracePeriodSeconds": 1},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "old"}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "old", "namespace": namespace},
        "spec": spec,
    }


def running_pod(cluster, namespace):
    """Return the running pod of the Deployment; None unless there is exactly one."""
    pods = cluster.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector="app=old")["items"]
    alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    return alive[0] if len(alive) == 1 and alive[0]["status"].get("phase") == "Running" else None


def test_a_node_moves_to_dra_and_back_by_the_runbook(control_plane, node_cluster, namespace, created):
    node, cluster = node_cluster, control_plane
    adapter = Adapter(node)
    names = {"NODE": node.name, "kube-system": namespace}

    def run_section(section):
        for command in commands(section, **names):
            cluster.kubectl(*command)

    def pod_has_claim():
        pod = cluster.until("the Deployment's pod runs", lambda: running_pod(cluster, namespace), 90)
        devices = node.output_of(namespace, pod["metadata"]["name"]).split()
        assert set(devices) < DEVICES, devices
        return "extendedResourceClaimStatus" in pod["status"]

    def groups_of_node():
        """Return the groups in which `drawbridge survey`, the command of the page, lists the node."""
        command = [PROGRAM, "survey", "--kubeconfig", cluster.kubeconfig, "-o", "json", "--fail-on", "never"]
        survey_ = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
        [row_of_key] = [row for row in survey_["nodesByKey"] if row["key"] == RESOURCE]
        return {group for group, nodes in row_of_key.items() if group != "key" and node.name in nodes}

    def is_published():
        return adapter.healthy_ids() == sorted(DEVICES)

    with contextlib.ExitStack() as stack:
        stack.callback(cluster.kubectl, "uncordon", node.name)
        stack.callback(cluster.kubectl, "label", "node", node.name, "drawbridge.dev/moved-")
        created(daemon_set(namespace, PLUGIN, SOCKETS), deployment(namespace))
        assert pod_has_claim() is False, "the pod has a claim before the migration"

        run_section("Before the first node")
        printed = subprocess.run(
            [PROGRAM, "driver", "--classes", RESOURCE], capture_output=True, check=True, timeout=60
        )
        created(yaml.safe_load(printed.stdout))
        selector = {"nodeSelector": {"drawbridge.dev/moved": "true"}}
        created(daemon_set(namespace, f"{PLUGIN}-adapted", adapter.folder, **selector))
        adapter.start()
        stack.callback(adapter.remove)
        assert pod_has_claim() is False, "the pod has a claim before its node moves"
        cluster.until("the survey lists the node for the device plugin", lambda: groups_of_node() == {"plugin"}, 60)

        run_section("A node moves")
        cluster.until("the devices are published", is_published, 60)
        assert pod_has_claim() is True, "the pod has no claim after its node has moved"
        cluster.until("the survey lists the node for the driver", lambda: groups_of_node() == {"driver"}, 60)

        run_section("A node goes back")
        assert pod_has_claim() is False, "the pod has a claim after its node has moved back"
        assert cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    template = cluster.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/old")["spec"]["template"]["spec"]
    assert template["containers"][0]["resources"]["limits"] == {RESOURCE: "1"}
