"""`bridge` and `fence` come into the configuration while two webhooks run, which see it at different moments: the steps of docs/bridge.md, one by one."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.replicas import Replicas
from e2e.actors.webhook import CONFIGURATION, ROOT, SYSTEM, bring, gpu
from e2e.actors.workloads import claim, pod, request, using
from e2e.bridge.test_doctor import examine
from e2e.build import program
from tests.limits import PATIENCE
from webhook.claims import taint_rule

pytestmark = [pytest.mark.real, pytest.mark.time_limit(480, "nine processes start")]
STOCK = "default-scheduler"
NODE = "fenced-0"
# The class has a name that core serves, as NVIDIA's chart renders it: with the bridge such pods are translated by themselves.
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
    """Two webhooks, each with the file that its kubelet brings. The ConfigMap, which the doctor reads, is afterwards as it was."""
    before = webhook.cluster.get(CONFIG_MAP)["data"]
    files = {name: tmp_path / f"{name}.yaml" for name in ("one", "two")}
    try:
        with Replicas(webhook) as running:
            for name, file in files.items():
                bring(PLAIN, file)
                running.start(name, config=file)
            running.files = files
            yield running
    finally:
        webhook.configure(CONFIGURATION)
        webhook.cluster.patch(CONFIG_MAP, {"data": before})


def shown(replicas):
    """The content that each replica says it follows."""
    pages = {name: replicas.webhook.plain(port, "/metrics") for name, port in replicas.metrics_ports.items()}
    return {name: re.findall(r'^drawbridge_configuration_info{sha256="(.*)"} 1.0$', page, re.MULTILINE) for name, page in pages.items()}  # fmt: skip


def in_the_cluster(cluster):
    """The content of the ConfigMap, by the command of the page."""
    path = f"{Path(program('kubectl')).parent}:{os.environ['PATH']}"
    beside = os.environ | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}
    said = subprocess.run(["sh", "-c", SUM_OF_THE_CONFIG_MAP], env=beside, check=True, capture_output=True, text=True, timeout=60)  # fmt: skip
    return said.stdout.split()[0]


def create(cluster, namespace, name, **spec):
    """Make a pod, and say by which word it was translated. A connection that was just hung up on may turn a request back."""
    [made] = cluster.until(f"{name} is let in", lambda: cluster.create(gpu(name, namespace, **spec)), PATIENCE)
    assert "drawbridge.dev/original" in made["metadata"]["annotations"]
    return made["spec"]["schedulerName"]


def placed_by_each(replicas, cluster, namespace, when):
    """Have each replica translate a pod, and each pod placed; answer with their words."""
    words = {}
    for file in replicas.files:
        replicas.only(file)
        words[file] = create(cluster, namespace, f"{when}-{file}")
        cluster.wait_scheduled(namespace, f"{when}-{file}")
    return words


def behind(cluster, namespace, config):
    """The pods of a namespace that the doctor calls behind the fence."""
    found = [one["object"] for one in examine(cluster, "--config", str(config)) if one["code"] == "O110"]
    return [one for one in found if one.startswith(f"Pod/{namespace}/")]


@pytest.fixture
def outside(control_plane):
    """A namespace that no webhook looks at."""
    name = control_plane.namespace("fenced-outside")
    yield name
    control_plane.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
    control_plane.delete(f"/api/v1/namespaces/{name}")


def is_turned_back(cluster, namespace):
    """Whether one more pod waits that was not let in; until a scheduler knows of a rule it places such a pod."""
    name = f"stranger-{len(cluster.get(f'/api/v1/namespaces/{namespace}/pods')['items'])}"
    stranger = pod(name, namespace, resourceClaims=[using(name)])
    cluster.create(claim(name, namespace, request("gpu", fleet.NVIDIA)), stranger)
    return cluster.until(f"{name} is judged", lambda: judged(cluster, namespace, name), PATIENCE) == "Unschedulable"


def judged(cluster, namespace, name):
    """What a scheduler has said of a pod last; "" if nothing yet."""
    status = cluster.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]
    said = [one for one in status.get("conditions", ()) if one["type"] == "PodScheduled"]
    return next(("Scheduled" if one["status"] == "True" else one["reason"] for one in said), "")


def test_two_webhooks_take_the_bridge_and_its_fence_over_by_the_steps_of_the_page(control_plane, replicas, gated, webhook, outside):  # fmt: skip
    one, two = replicas.files.values()
    before = create(control_plane, gated, "before", **LATER)
    late = create(control_plane, gated, "late", **LATER)
    assert (before, late) == (STOCK, STOCK)
    # The first step, as the kubelets have it: one webhook has the new word, the other one, and the controller, have the old.
    data = {"data": {"drawbridge.yaml": FENCED}}
    control_plane.patch(CONFIG_MAP, data)
    new = in_the_cluster(control_plane)
    bring(FENCED, one)
    control_plane.until("one webhook follows the new content", lambda: shown(replicas)["one"] == [new], PATIENCE)
    assert shown(replicas)["two"] not in ([], [new])
    assert placed_by_each(replicas, control_plane, gated, "meanwhile") == {"one": SCHEDULER, "two": STOCK}
    # The second: wait until all show it.
    bring(FENCED, two)
    webhook.configure(FENCED)
    control_plane.until("all webhooks follow it", lambda: shown(replicas) == {"one": [new], "two": [new]}, PATIENCE)
    let_go(control_plane, gated, "before")
    control_plane.wait_scheduled(gated, "before")
    # The third: the rule. Pods that were translated by the old configuration and wait are behind it, and no others.
    repaired = examine(control_plane, "--repair", "--yes", "--config", str(one))
    assert [found["repaired"] for found in repaired if found["code"] == "O206"] == [True]
    control_plane.until("kube-scheduler has heard of it", lambda: is_turned_back(control_plane, outside), PATIENCE)
    let_go(control_plane, gated, "late")
    control_plane.until("it waits", lambda: judged(control_plane, gated, "late") == "Unschedulable", PATIENCE)
    assert create(control_plane, gated, "after") == SCHEDULER
    control_plane.wait_scheduled(gated, "after")
    assert behind(control_plane, gated, one) == [f"Pod/{gated}/late"]
    # Its owner makes it anew.
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/late", gracePeriodSeconds=0)
    assert create(control_plane, gated, "late") == SCHEDULER
    control_plane.wait_scheduled(gated, "late")
    assert behind(control_plane, gated, one) == []
    # The other way round: the rule first, and no pod waits, whichever configuration its webhook has.
    control_plane.kubectl(*TAKE_AWAY.replace("DRIVER", fleet.NVIDIA).split())
    bring(PLAIN, one)
    control_plane.until("they differ again", lambda: shown(replicas)["one"] != [new], PATIENCE)
    assert placed_by_each(replicas, control_plane, gated, "back") == {"one": STOCK, "two": SCHEDULER}


def let_go(cluster, namespace, name):
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", {"spec": {"schedulingGates": None}})
