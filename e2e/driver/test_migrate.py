"""The documented migration (docs/migrate.md): a real node moves from a device plugin to DRA and back, and no workload is edited."""

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
from e2e.driver.test_adapter import HOLD, PROGRAM, RESOURCE, SOCKETS, Adapted

pytestmark = [pytest.mark.real, pytest.mark.node]

PAGE = (Path(__file__).parents[2] / "docs" / "migrate.md").read_text(encoding="utf-8")
PLUGIN = "nvidia-device-plugin"
DEVICES = {"Dev-1", "Dev-2"}


def commands(section, **names):
    """The kubectl commands in a section of the page, with the names of this cluster."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^ *```\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    names |= {r"nvidia\.com/gpu": RESOURCE.replace(".", r"\."), "}=COUNT": "}=2"}
    for name, here in names.items():
        block = block.replace(name, here)
    return [shlex.split(command) for command in re.split(r"^ *kubectl ", block, flags=re.MULTILINE)[1:]]


def daemon_set(namespace, name, folder, **where):
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
        **where,
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


def running(cluster, namespace):
    """Return the running pod of the Deployment; None unless there is exactly one."""
    pods = cluster.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector="app=old")["items"]
    alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    return alive[0] if len(alive) == 1 and alive[0]["status"].get("phase") == "Running" else None


def test_a_node_moves_to_dra_and_back_by_the_runbook(control_plane, node_cluster, namespace, created):
    node, cluster = node_cluster, control_plane
    adapted = Adapted(node)
    names = {"NODE": node.name, "kube-system": namespace}

    def walk(section):
        for command in commands(section, **names):
            cluster.kubectl(*command)

    def runs():
        pod = cluster.until("the Deployment's pod runs", lambda: running(cluster, namespace), 90)
        seen = node.output_of(namespace, pod["metadata"]["name"]).split()
        assert set(seen) < DEVICES, seen
        return "extendedResourceClaimStatus" in pod["status"]

    def standing():
        """Return the groups in which `drawbridge survey`, the command of the page, lists the node."""
        survey = [PROGRAM, "survey", "--kubeconfig", cluster.kubeconfig, "-o", "json", "--fail-on", "never"]
        survey_ = json.loads(subprocess.run(survey, capture_output=True, check=True, timeout=120).stdout)
        [side] = [row for row in survey_["nodesByKey"] if row["key"] == RESOURCE]
        return {group for group, nodes in side.items() if group != "key" and node.name in nodes}

    def published():
        return adapted.healthy() == sorted(DEVICES)

    with contextlib.ExitStack() as ending:
        ending.callback(cluster.kubectl, "uncordon", node.name)
        ending.callback(cluster.kubectl, "label", "node", node.name, "drawbridge.dev/moved-")
        created(daemon_set(namespace, PLUGIN, SOCKETS), deployment(namespace))
        assert runs() is False, "by the device plugin"

        walk("Before the first node")
        printed = subprocess.run(
            [PROGRAM, "driver", "--classes", RESOURCE], capture_output=True, check=True, timeout=60
        )
        created(yaml.safe_load(printed.stdout))
        moved = {"nodeSelector": {"drawbridge.dev/moved": "true"}}
        created(daemon_set(namespace, f"{PLUGIN}-adapted", adapted.folder, **moved))
        adapted.start()
        ending.callback(adapted.take_away)
        assert runs() is False, "nothing changes for any pod yet"
        cluster.until("the node hands the name out", lambda: standing() == {"plugin"}, 60)

        walk("A node moves")
        cluster.until("the devices are published", published, 60)
        assert runs() is True, "by a claim that the scheduler made"
        cluster.until("the node publishes it", lambda: standing() == {"driver"}, 60)

        walk("A node goes back")
        assert runs() is False, "by the device plugin again"
        assert cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    template = cluster.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/old")["spec"]["template"]["spec"]
    assert template["containers"][0]["resources"]["limits"] == {RESOURCE: "1"}
