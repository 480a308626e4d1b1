"""The steps of docs/bridge.md: `bridge` and `fence` are added to the configuration while two webhooks run.

The webhooks read the new configuration at different moments.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.replicas import Replicas
from e2e.actors.webhook import CONFIGURATION, ROOT, SYSTEM, gpu, replace_file
from e2e.actors.workloads import claim, pod, request, using
from e2e.bridge.test_doctor import examine
from e2e.build import program
from tests.limits import PATIENCE
from webhook.claims import taint_rule

pytestmark = [pytest.mark.real, pytest.mark.timeout(480)]
STOCK = "default-scheduler"
NODE = "fenced-0"
# The scheduler serves the class's extended resource, as with NVIDIA's chart: with the bridge the webhook translates such pods.
PLAIN = f"{CONFIGURATION}extendedResources: {{default: translate}}\n"
FENCED = f"{CONFIGURATION}bridge: {{schedulerName: {SCHEDULER}, drivers: [{fleet.NVIDIA}], fence: true}}\n"
RULE = taint_rule(fleet.NVIDIA)
CONFIG_MAP = f"/api/v1/namespaces/{SYSTEM}/configmaps/drawbridge"
LATER = {"schedulingGates": [{"name": "example.com/later"}]}
PAGE = (ROOT / "docs/bridge.md").read_text(encoding="utf-8").partition("## Fence against other schedulers")[2]
[SUM_OF_THE_CONFIG_MAP] = re.findall(r"`(kubectl get configmap .* \| sha256sum)`", PAGE)
[TAKE_AWAY] = re.findall(r"`kubectl (delete devicetaintrule drawbridge-fence-DRIVER)`", PAGE)


@pytest.fixture
def devices(control_plane, webhook, bridge):
    made = [*fleet.slices(fleet.NVIDIA, NODE, fleet.whole_gpus(64), by_name=True), *fleet.classes()]
    try:
        control_plane.add_fake_nodes(1, prefix="fenced-")
        control_plane.create(*made)
        yield
    finally:
        control_plane.remove(RULE, *made, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


@pytest.fixture
def replicas(webhook, devices, tmp_path):
    """Two webhooks, each with its own file. The ConfigMap, which doctor reads, is restored afterwards."""
    before = webhook.cluster.get(CONFIG_MAP)["data"]
    files = {name: tmp_path / f"{name}.yaml" for name in ("one", "two")}
    try:
        with Replicas(webhook) as running:
            for name, file in files.items():
                replace_file(PLAIN, file)
                running.start(name, config=file)
            running.files = files
            yield running
    finally:
        webhook.configure(CONFIGURATION)
        webhook.cluster.patch(CONFIG_MAP, {"data": before})


def shown(replicas):
    """Return the content hash that each replica reports."""
    pages = {name: replicas.webhook.plain(port, "/metrics") for name, port in replicas.metrics_ports.items()}
    return {name: re.findall(r'^drawbridge_configuration_info{sha256="(.*)"} 1.0$', page, re.MULTILINE) for name, page in pages.items()}  # fmt: skip


def in_the_cluster(cluster):
    """Return the hash of the ConfigMap, by the command of the page."""
    path = f"{Path(program('kubectl')).parent}:{os.environ['PATH']}"
    beside = os.environ | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run(["sh", "-c", SUM_OF_THE_CONFIG_MAP], env=beside, check=True, capture_output=True, text=True, timeout=60)  # fmt: skip
    return done.stdout.split()[0]


def create(cluster, namespace, name, **spec):
    """Create a pod, and return its scheduler's name. A connection that was just closed may fail a request once."""
    [made] = cluster.until(f"{name} is let in", lambda: cluster.create(gpu(name, namespace, **spec)), PATIENCE)
    assert "drawbridge.dev/original" in made["metadata"]["annotations"]
    return made["spec"]["schedulerName"]


def placed_by_each(replicas, cluster, namespace, when):
    """Let each replica translate a pod, and wait until it is placed; return their schedulers."""
    words = {}
    for file in replicas.files:
        replicas.route_only_to(file)
        words[file] = create(cluster, namespace, f"{when}-{file}")
        cluster.wait_scheduled(namespace, f"{when}-{file}")
    return words


def behind(cluster, namespace, config):
    """Return the pods of a namespace that doctor reports behind the fence."""
    objects = [finding["object"] for finding in examine(cluster, "--config", str(config)) if finding["code"] == "O110"]
    return [name for name in objects if name.startswith(f"Pod/{namespace}/")]


@pytest.fixture
def outside(control_plane):
    """A namespace that no webhook selects."""
    name = control_plane.namespace("fenced-outside")
    yield name
    control_plane.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
    control_plane.delete(f"/api/v1/namespaces/{name}")


def is_turned_back(cluster, namespace):
    """Return whether another untranslated pod waits; a scheduler that does not know the rule yet places it."""
    name = f"stranger-{len(cluster.get(f'/api/v1/namespaces/{namespace}/pods')['items'])}"
    stranger = pod(name, namespace, resourceClaims=[using(name)])
    cluster.create(claim(name, namespace, request("gpu", fleet.NVIDIA)), stranger)
    return cluster.until(f"{name} is judged", lambda: judged(cluster, namespace, name), PATIENCE) == "Unschedulable"


def judged(cluster, namespace, name):
    """Return the last scheduling reason of a pod; "" if there is none yet."""
    status = cluster.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]
    conditions = [condition for condition in status.get("conditions", ()) if condition["type"] == "PodScheduled"]
    return next(("Scheduled" if condition["status"] == "True" else condition["reason"] for condition in conditions), "")


def test_two_webhooks_take_the_fence_over_by_the_documented_steps(control_plane, replicas, gated, webhook, outside):
    first, two = replicas.files.values()
    before = create(control_plane, gated, "before", **LATER)
    late = create(control_plane, gated, "late", **LATER)
    assert (before, late) == (STOCK, STOCK)
    # Step 1, as kubelets do it: one webhook has the new configuration; the other one and the controller have the old.
    data = {"data": {"drawbridge.yaml": FENCED}}
    control_plane.patch(CONFIG_MAP, data)
    new = in_the_cluster(control_plane)
    replace_file(FENCED, first)
    control_plane.until("one webhook follows the new content", lambda: shown(replicas)["one"] == [new], PATIENCE)
    assert shown(replicas)["two"] not in ([], [new])
    assert placed_by_each(replicas, control_plane, gated, "meanwhile") == {"one": SCHEDULER, "two": STOCK}
    # Step 2: wait until all replicas show it.
    replace_file(FENCED, two)
    webhook.configure(FENCED)
    control_plane.until("all webhooks follow it", lambda: shown(replicas) == {"one": [new], "two": [new]}, PATIENCE)
    let_go(control_plane, gated, "before")
    control_plane.wait_scheduled(gated, "before")
    # Step 3: the rule. Only waiting pods that the old configuration translated are behind it.
    repaired = examine(control_plane, "--repair", "--yes", "--config", str(first))
    assert [finding["repaired"] for finding in repaired if finding["code"] == "O206"] == [True]
    control_plane.until("kube-scheduler has heard of it", lambda: is_turned_back(control_plane, outside), PATIENCE)
    let_go(control_plane, gated, "late")
    control_plane.until("it waits", lambda: judged(control_plane, gated, "late") == "Unschedulable", PATIENCE)
    assert create(control_plane, gated, "after") == SCHEDULER
    control_plane.wait_scheduled(gated, "after")
    assert behind(control_plane, gated, first) == [f"Pod/{gated}/late"]
    # The owner recreates it.
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/late", gracePeriodSeconds=0)
    assert create(control_plane, gated, "late") == SCHEDULER
    control_plane.wait_scheduled(gated, "late")
    assert behind(control_plane, gated, first) == []
    # The other order: the rule first. No pod waits, whichever configuration its webhook has.
    control_plane.kubectl(*TAKE_AWAY.replace("DRIVER", fleet.NVIDIA).split())
    replace_file(PLAIN, first)
    control_plane.until("they differ again", lambda: shown(replicas)["one"] != [new], PATIENCE)
    assert placed_by_each(replicas, control_plane, gated, "back") == {"one": STOCK, "two": SCHEDULER}


def let_go(cluster, namespace, name):
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", {"spec": {"schedulingGates": None}})
