"""`bridge` and `fence` come into the configuration while two gates run, which see it at different moments: the steps of docs/bridge.md, one by one."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.gate import CONFIGURATION, ROOT, SYSTEM, bring, gpu
from e2e.actors.replicas import Replicas
from e2e.bridge.test_doctor import examine
from e2e.build import program
from tests.limits import PATIENCE
from webhook.claims import taint_rule

pytestmark = [pytest.mark.real, pytest.mark.time_limit(300, "five processes start")]
STOCK = "default-scheduler"
NODE = "fenced-0"
FENCED = f"{CONFIGURATION}bridge: {{schedulerName: {SCHEDULER}, drivers: [{fleet.NVIDIA}], fence: true}}\n"
RULE = taint_rule(fleet.NVIDIA)
LATER = {"schedulingGates": [{"name": "example.com/later"}]}
PAGE = (ROOT / "docs/bridge.md").read_text(encoding="utf-8").partition("## Fence against other schedulers")[2]
[SUM_OF_THE_CONFIG_MAP] = re.findall(r"`(kubectl get configmap .* \| sha256sum)`", PAGE)
[TAKE_AWAY] = re.findall(r"`kubectl (delete devicetaintrule drawbridge-fence-DRIVER)`", PAGE)
AT_ONCE = 8  # pods: more connections than one


@pytest.fixture
def devices(control_plane, gate, bridge):
    made = [*fleet.slices(fleet.NVIDIA, NODE, fleet.whole_gpus(128), by_name=True), *fleet.classes(extended=False)]
    try:
        control_plane.add_fake_nodes(1, prefix="fenced-")
        control_plane.create(*made)
        yield
    finally:
        control_plane.remove(RULE, *made, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


@pytest.fixture
def replicas(gate, tmp_path):
    """Two gates, each with the file that its kubelet brings."""
    files = {name: tmp_path / f"{name}.yaml" for name in ("one", "two")}
    try:
        with Replicas(gate) as running:
            for name, file in files.items():
                bring(CONFIGURATION, file)
                running.start(name, config=file)
            running.files = files
            yield running
    finally:
        gate.configure(CONFIGURATION)


def shown(replicas):
    """The content that each replica says it follows."""
    pages = {name: replicas.gate.plain(port, "/metrics") for name, port in replicas.metrics_ports.items()}
    return {name: re.findall(r'^drawbridge_configuration_info{sha256="(.*)"} 1.0$', page, re.MULTILINE) for name, page in pages.items()}  # fmt: skip


def in_the_cluster(cluster):
    """The content of the ConfigMap, by the command of the page."""
    path = f"{Path(program('kubectl')).parent}:{os.environ['PATH']}"
    beside = os.environ | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}
    said = subprocess.run(["sh", "-c", SUM_OF_THE_CONFIG_MAP], env=beside, check=True, capture_output=True, text=True, timeout=60)  # fmt: skip
    return said.stdout.split()[0]


def create(cluster, namespace, name, **spec):
    """Make a pod, and say by which word it was translated."""
    [made] = cluster.create(gpu(name, namespace, **spec))
    assert "drawbridge.dev/original" in made["metadata"]["annotations"]
    return made["spec"]["schedulerName"]


def both_words(cluster, namespace, prefix):
    """Pods by either replica's word: rounds of some at once, which come by more than one connection."""
    words = {}

    def found():
        names = [f"{prefix}-{len(words) + at}" for at in range(AT_ONCE)]
        with ThreadPoolExecutor(AT_ONCE) as several:
            asked = several.map(lambda name: create(cluster, namespace, name), names)
            words.update(zip(names, asked, strict=True))
        return set(words.values()) == {STOCK, SCHEDULER} and words

    return cluster.until("both replicas have translated", found, PATIENCE)


def behind(cluster, config):
    """Whom the doctor calls behind the fence."""
    return [one["object"] for one in examine(cluster, "--config", str(config)) if one["what"] == "behind the fence"]


def test_two_gates_take_the_bridge_and_its_fence_over_by_the_steps_of_the_page(control_plane, devices, replicas, gated, gate):  # fmt: skip
    one, two = replicas.files.values()
    before = create(control_plane, gated, "before", **LATER)
    late = create(control_plane, gated, "late", **LATER)
    assert (before, late) == (STOCK, STOCK)
    # The first step, as the kubelets have it: one gate has the new word, the other one, and the controller, have the old.
    data = {"data": {"drawbridge.yaml": FENCED}}
    control_plane.patch(f"/api/v1/namespaces/{SYSTEM}/configmaps/drawbridge", data)
    new = in_the_cluster(control_plane)
    bring(FENCED, one)
    control_plane.until("one gate follows the new content", lambda: shown(replicas)["one"] == [new], PATIENCE)
    assert shown(replicas)["two"] not in ([], [new])
    for name in both_words(control_plane, gated, "meanwhile"):
        control_plane.wait_scheduled(gated, name)
    # The second: wait until all show it.
    bring(FENCED, two)
    gate.configure(FENCED)
    control_plane.until("all gates follow it", lambda: shown(replicas) == {"one": [new], "two": [new]}, PATIENCE)
    let_go(control_plane, gated, "before")
    control_plane.wait_scheduled(gated, "before")
    # The third: the rule. Who was translated by the old word and waits is behind it, and nobody else.
    repaired = examine(control_plane, "--repair", "--yes", "--config", str(one))
    assert [(found["what"], found["repaired"]) for found in repaired if "fence" in found["what"]] == [("without fence", True)]  # fmt: skip
    let_go(control_plane, gated, "late")
    control_plane.wait_unschedulable(gated, "late")
    assert create(control_plane, gated, "after") == SCHEDULER
    control_plane.wait_scheduled(gated, "after")
    assert behind(control_plane, one) == [f"Pod {gated}/late"]
    # Its owner makes it anew.
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/late", gracePeriodSeconds=0)
    assert create(control_plane, gated, "late") == SCHEDULER
    control_plane.wait_scheduled(gated, "late")
    assert behind(control_plane, one) == []
    # The other way round: the rule first, and nobody waits whose gate still has the word, or has it no more.
    control_plane.kubectl(*TAKE_AWAY.replace("DRIVER", fleet.NVIDIA).split())
    bring(CONFIGURATION, one)
    control_plane.until("they differ again", lambda: shown(replicas)["one"] != [new], PATIENCE)
    for name in both_words(control_plane, gated, "back"):
        control_plane.wait_scheduled(gated, name)


def let_go(cluster, namespace, name):
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", {"spec": {"schedulingGates": None}})
