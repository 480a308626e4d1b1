"""`drawbridge migrate status`: from the plan of a move to its end, in a tree and on nodes."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes
from cluster.resources import Raw, Resource
from tests.cli.running import run, run_json
from tests.cli.test_migrate_plan import INTEL, K36, NAMED_CLASS, app, nodes, plugin, without_place
from tests.cli.test_migrate_pr import commit, git, home, move, write

__all__ = ["home"]

SLICE = """\
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-gpu}
spec:
  {driver: gpu.intel.com, nodeName: n1, pool: {name: n1, generation: 1, resourceSliceCount: 1}, devices: [{name: card0}]}
"""
EXCLUSIVE = INTEL.replace(", sharedDevNum: 5", "")


def status(*arguments):
    """Return the exit code, and the state of the tree and of each node."""
    code, answer = run_json("migrate", "status", *arguments)
    assert answer["done"] is (code == 0)
    return code, {entry.get("node", ""): entry["state"] for entry in answer["progress"]}


@pytest.mark.usefixtures("home")
def test_a_tree_is_planned_branched_merged_in_part_and_done():
    write(app("plex", "media") | plugin(EXCLUSIVE))
    commit()
    Path("../plan.yaml").write_text(run("migrate", "plan").stdout)
    assert status() == (1, {"": "plan"})
    move()
    assert status() == (1, {"": "branch"})
    assert status("--branch", "another") == (1, {"": "plan"})
    git("merge", "-q", "move-to-dra")
    assert status() == (0, {"": "done"})
    check = run("migrate", "plan", "--check", "../plan.yaml")
    assert (check.exit_code, check.stdout.partition(":")[0]) == (0, "done")
    write(app("tv", "media"))
    assert status() == (1, {"": "merged in part"})
    assert "left: HelmRelease/media/tv" in run("migrate", "status").stdout


@pytest.mark.usefixtures("home")
def test_a_move_is_done_where_a_device_class_serves_the_rest():
    write(without_place() | NAMED_CLASS | K36)
    commit()
    Path("../plan.yaml").write_text(run("migrate", "plan").stdout)
    assert run("migrate", "plan", "--check", "../plan.yaml").stdout == "the plan is still true\n"
    assert run("migrate", "pr").exit_code == 0
    git("merge", "-q", "move-to-dra")
    assert status() == (0, {"": "done"})
    assert run("migrate", "plan", "--check", "../plan.yaml").stdout.startswith("done")
    assert run("migrate", "plan", "-o", "text").stdout.startswith("Done: gpu.intel.com")


def acceptance(*, passed=True, node="n1"):
    checks = [{"node": node, "check": "start", "passed": passed, "message": "it ran", "driver": "gpu.intel.com"}]
    return json.dumps({"passed": passed, "checks": checks})


@pytest.mark.parametrize(
    ("fleet", "files", "states"),
    [
        (nodes(), (), {"": "merged", "n1": "plan"}),
        (nodes() + SLICE, (), {"": "merged", "n1": "merged in part"}),
        (nodes(amount=0), (acceptance(),), {"": "merged", "n1": "allocatable 0"}),
        (nodes(amount=0) + SLICE, (), {"": "merged", "n1": "allocatable 0"}),
        (nodes(amount=0) + SLICE, (acceptance(node="n2"),), {"": "merged", "n1": "allocatable 0"}),
        (nodes(amount=0) + SLICE, (acceptance(), acceptance(passed=False)), {"": "merged", "n1": "allocatable 0"}),
        (nodes(amount=0) + SLICE, (acceptance(passed=False), acceptance()), {"": "done", "n1": "accepted"}),
        (nodes("n1 n2", amount=0) + SLICE, (acceptance(),), {"": "merged", "n1": "accepted", "n2": "allocatable 0"}),
        (nodes(key="cpu"), (), {"": "done"}),
    ],
)
@pytest.mark.usefixtures("home")
def test_a_node_is_done_when_it_is_accepted(monkeypatch, fleet, files, states):
    driver = EXCLUSIVE.replace("intel-device-plugins-gpu", "intel-gpu-resource-driver").replace("0.34.0", "0.11.0")
    write(plugin(driver) | {"../fleet.yaml": fleet})
    accepted = []
    for number, text in enumerate(files):
        write({f"../{number}.json": text})
        accepted += ["--accepted", f"../{number}.json"]
    assert status("--inventory", "../fleet.yaml", *accepted) == (int(states[""] != "done"), states)
    first_line = run("migrate", "status", "--inventory", "../fleet.yaml", *accepted).stdout.partition("\n")[0]
    assert first_line == ("done" if states[""] == "done" else "not done: gpu.intel.com, on 1 node")
    cluster = Embedded()
    for obj in yaml.safe_load_all(fleet):
        group, _, version = obj["apiVersion"].rpartition("/")
        kind = Resource(group, version, f"{obj['kind'].lower()}s", obj["kind"], Raw, namespaced=False)
        asyncio.run(cluster.create(kind, obj))
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: cluster)
    assert status("--context", "home", *accepted)[1] == states


@pytest.mark.usefixtures("home")
def test_a_file_that_is_no_acceptance_is_an_error():
    write({"../a.json": "{}"})
    for file in ("../a.json", "../b.json"):
        result = run("migrate", "status", "--accepted", file)
        assert (result.exit_code, "no result of `migrate accept`" in result.stderr) == (2, True)


@pytest.mark.usefixtures("home")
def test_a_request_in_a_patch_is_neither_nothing_to_move_nor_done():
    """The build adds the request to an object."""
    write(
        {
            "base/kustomization.yaml": "resources: [pod.yaml]\n",
            "base/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: x}]}\n",
            "gpu/kustomization.yaml": "resources: [../base]\npatches: [{path: gpu.yaml}]\n",
            "gpu/gpu.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
            "  - {name: c, resources: {limits: {gpu.intel.com/i915: 1}}}\n",
        }
    )
    commit()
    assert "Would lose devices: Pod/default/p (gpu.intel.com/i915)" in run("migrate", "plan", "-o", "text").stdout
    assert status() == (1, {"": "plan"})
