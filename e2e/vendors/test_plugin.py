"""A vendor's device plugin behind our adapter on a real node.

The program is in the directory DRAWBRIDGE_DRIVERS; without it these tests are not collected (conftest.py).
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.actors.workloads import container, limits, pod
from e2e.driver.test_adapter import PROGRAM, Adapter
from e2e.ground.controlplane import free_port
from e2e.vendors.pods import gone, runs

pytestmark = [pytest.mark.real, pytest.mark.node]

PROGRAMS = Path(os.environ.get("DRAWBRIDGE_DRIVERS", "/nonexistent"))


def test_the_generic_device_plugin_keeps_its_devices_behind_our_adapter(node_cluster, gated):
    resource = "squat.ai/zero"
    adapted = Adapter(node_cluster)
    command = [PROGRAM, "driver", "--classes", resource]
    class_ = yaml.safe_load(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    node_cluster.cluster.create(class_)
    adapted.start()
    spec = {"name": "zero", "groups": [{"count": 2, "paths": [{"path": "/dev/zero", "mountPath": "/dev/given"}]}]}
    arguments = [
        PROGRAMS / "generic-device-plugin",
        f"--device={json.dumps(spec)}",
        f"--listen=127.0.0.1:{free_port()}",
    ]
    plugin = adapted.start_plugin(*arguments)
    try:
        node_cluster.cluster.until("the plugin's devices are published", lambda: len(adapted.healthy_ids()) == 2, 60)
        see = "ls -l /dev/given; echo spoken=yes; sleep 600"
        pod_ = pod("p", gated, container(command=see, **limits(**{resource: 1})), node=node_cluster.name)
        assert "/dev/given" in runs(node_cluster, gated, pod_)
        node_cluster.cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
        gone(node_cluster.cluster, gated)
    finally:
        plugin.stop()
        adapted.remove()
        node_cluster.cluster.remove(class_)
