"""The folders of CDI files: the values of the drivers name those that containerd reads, or containerd reads that of the driver."""

import pytest

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


OLD = {"talconfig.yaml": "kubernetesVersion: v1.35.1\n"}


@pytest.mark.parametrize(
    ("files", "decision", "is_named"),
    [
        (OLD, "shares", True),
        ({"talconfig.yaml": "kubernetesVersion: v1.36.1\n"}, "shares", False),
        (OLD, "exclusive", False),
    ],
    ids=["old", "new", "other decision"],
)
def test_the_gate_of_shares_is_named_with_the_components_that_need_it(repository, files, decision, is_named):
    _, steps = steps_of(repository, shared_apps() | files, decision)
    notes = [line for step in steps.values() for line in step.notes if "without the gate" in line]
    components = "add `DRAConsumableCapacity=true` to `feature-gates` of API server, controller manager and scheduler"
    assert [components in line for line in notes] == [True] * is_named
