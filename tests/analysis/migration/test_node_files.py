"""The folders of CDI files: the values of the drivers name those that containerd reads, or containerd reads that of the driver."""

import pytest
import yaml

from cli.edited import Change, edit_text
from tests.analysis.migration.test_admin_namespaces import steps_of
from tests.analysis.migration.test_consumers import shared_apps
from tests.cli.test_git_trees import repository
from tests.cli.test_migrate_plan import INTEL, OPERATOR, app, plan, plugin

__all__ = ["repository"]

FOLDERS = '["/var/cdi/static", "/var/cdi/dynamic"]'
PATCH = """\
machine:
  files:
  - op: create
    path: /etc/cri/conf.d/20-customization.part
    content: |
      [plugins."io.containerd.cri.v1.runtime"]
        cdi_spec_dirs = %s
"""
TALOS = {"talos/talconfig.yaml": "talosVersion: v1.12.1\n"}


def cdi_values(repository, files):
    [family] = plan(repository, files)["families"]
    return family["replacement"]["values"].get("cdi")


@pytest.mark.parametrize(
    ("files", "values"),
    [
        ({}, None),
        (TALOS, {"staticPath": "/run/cdi", "dynamicPath": "/run/cdi"}),
        ({"talos/files.yaml": PATCH % FOLDERS}, {"staticPath": "/var/cdi/static", "dynamicPath": "/var/cdi/dynamic"}),
        (TALOS | {"talos/files.yaml": PATCH % '["/etc/cdi", "/var/cdi"]'}, {"staticPath": "/var/cdi", "dynamicPath": "/var/cdi"}),
    ],
    ids=["default", "Talos", "folders", "folders of Talos"],
)  # fmt: skip
def test_the_values_of_a_driver_name_the_folders_that_containerd_reads(repository, files, values):
    assert cdi_values(repository, app("plex", "media") | plugin(INTEL) | files) == values


def test_the_folders_of_the_nearest_cluster_count(repository):
    files = {"apps/talos/files.yaml": PATCH % '["/near"]', "a/files.yaml": PATCH % '["/a"]'}
    assert cdi_values(repository, app("plex", "media") | plugin(INTEL) | files)["staticPath"] == "/near"


@pytest.mark.parametrize(
    ("decision", "before", "after"),
    [
        ("exclusive", FOLDERS, '["/var/cdi/static", "/var/cdi/dynamic", "/var/run/cdi"]'),
        ("exclusive", "[]", '["/var/run/cdi"]'),
        ("exclusive", '["/run/cdi"]', ""),
    ],
    ids=["other folders", "no folder", "its folder"],
)
def test_containerd_reads_the_folder_of_a_driver_without_a_value_for_it(repository, decision, before, after):
    documents, steps = steps_of(repository, shared_apps() | {"talos/files.yaml": PATCH % before}, decision)
    edits = [edit.wanted for step in steps.values() for edit in step.edits if "talos" in documents[edit.number].file]
    assert [edit["machine"]["files"][0]["content"].splitlines()[1] for edit in edits] == (
        [f"  cdi_spec_dirs = {after}"] if after else []
    )
    assert any("talos/files.yaml" in line for step in steps.values() for line in step.notes) == bool(after)


@pytest.mark.parametrize(("files", "root"), [({}, "/usr/local/glibc/usr/lib"), (TALOS, "/usr/local")])
def test_the_driver_of_talos_is_not_where_its_operator_has_the_libraries(repository, files, root):
    values = "driver: {enabled: false}, hostPaths: {driverInstallDir: /usr/local/glibc/usr/lib}, devicePlugin"
    operator = (OPERATOR % "true").replace("devicePlugin", values, 1)
    [family] = plan(repository, plugin(operator) | files)["families"]
    assert family["replacement"]["values"]["nvidiaDriverRoot"] == root


TALHELPER = """\
clusterName: home
endpoint: https://10.0.0.1:6443
kubernetesVersion: v1.%s.1
nodes: []
controlPlane:
  patches:
    - "@./patches/a.yaml"
"""
GATES = "cluster: {apiServer: {extraArgs: {feature-gates: ImageVolume=true}}}\n"


@pytest.mark.parametrize(
    ("files", "decision", "is_edited", "note"),
    [
        ({"talos/talconfig.yaml": TALHELPER % 34}, "shares", True, "apply talos/talconfig.yaml"),
        ({"talos/talconfig.yaml": TALHELPER % 36}, "shares", False, ""),
        ({"talos/talconfig.yaml": TALHELPER % 34}, "exclusive", False, ""),
        ({"talos/talconfig.yaml": TALHELPER % 34, "talos/patches/a.yaml": GATES}, "shares", False, "add `DRAConsumableCapacity=true`"),
        ({"k3s.yaml": "kubernetesVersion: v1.35.1\n"}, "shares", False, "add `DRAConsumableCapacity=true`"),
    ],
    ids=["talhelper", "newer", "other decision", "gates elsewhere", "other nodes"],
)  # fmt: skip
def test_the_gate_of_shares_is_enabled_where_nothing_else_sets_gates(repository, files, decision, is_edited, note):
    documents, steps = steps_of(repository, shared_apps() | files, decision)
    edits = [edit for step in steps.values() for edit in step.edits if "talos" in documents[edit.number].file]
    assert [documents[edit.number].file for edit in edits] == ["talos/talconfig.yaml"] * is_edited
    for edit in edits:
        [file, patch] = edit.wanted["controlPlane"]["patches"]
        assert file == "@./patches/a.yaml"
        assert {
            component: settings["extraArgs"]["feature-gates"]
            for component, settings in yaml.safe_load(patch)["cluster"].items()
        } == dict.fromkeys(["apiServer", "controllerManager", "scheduler"], "DRAConsumableCapacity=true")
        assert "patches" not in edit.wanted  # of all nodes: the kubelet does not read the gate
        text = edit_text("talconfig.yaml", files["talos/talconfig.yaml"], [Change(documents[edit.number], edit.wanted)])
        assert "    - |\n" in text
    notes = [line for step in steps.values() for line in step.notes if "without the gate" in line]
    assert [note in line for line in notes] == ([True] if note else [])
