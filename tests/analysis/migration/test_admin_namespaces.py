"""The label of namespaces whose claims get admin access."""

import click
import pytest
from msgspec.structs import replace

from analysis.migration import commits, make_plan
from cli.configuration import given_configuration
from cli.files import InputFiles
from cli.loading import read_whole
from tests.analysis.migration.test_consumers import shared_apps
from tests.cli.test_git_trees import flux, repository, write

__all__ = ["repository"]

LABEL = "resource.kubernetes.io/admin-access"
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s}}\n"
OVER = {"apps/kustomization.yaml": "namespace: ai\nresources: [namespace.yaml]\n"}
TWO = {"other/kustomization.yaml": "namespace: other\nresources: [../common]\n", "ai/kustomization.yaml": "namespace: ai\nresources: [../common]\n", "common/kustomization.yaml": "resources: [namespace.yaml]\n"}  # fmt: skip
DRIVER = {"clusters/home/driver.yaml": flux("driver"), "apps/driver/release.yaml": "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: dra}\nspec: {chart: {spec: {chart: dra-driver-nvidia-gpu, version: 0.5.0}}}\n"}  # fmt: skip


def steps_of(repository, files, decision):
    """Return the documents of a tree, and the steps of its move by name."""
    write(repository, files)
    with click.Context(click.Command("migrate")):
        reading, read = read_whole(InputFiles(paths=(".",)), given_configuration(""), None)
    documents = read.everything
    plan = make_plan(documents, read.tree, reading.state, read.skipped)
    families = [replace(family, sharing=replace(family.sharing, decision=decision)) for family in plan.families]
    plan = replace(plan, families=tuple(families))
    return documents, {step.name: step for step in commits.pull_request(documents, read.tree, plan, reading.state)}


@pytest.mark.parametrize(
    ("files", "decision", "labelled", "note"),
    [
        ({"apps/ns.yaml": NAMESPACE % ("ai", "a: b")}, "admin access", ["apps/ns.yaml"], ""),
        (OVER | {"apps/namespace.yaml": NAMESPACE % ("_", "a: b")}, "admin access", ["apps/namespace.yaml"], ""),
        ({"apps/ns.yaml": NAMESPACE % ("ai", "a: b")}, "named claim", [], ""),
        ({"apps/ns.yaml": NAMESPACE % ("ai", f"{LABEL}: 'true'")}, "admin access", [], ""),
        ({}, "admin access", [], "no file"),
        (DRIVER, "admin access", [], "no file"),
        ({"a.yaml": NAMESPACE % ("ai", ""), "b.yaml": NAMESPACE % ("ai", "")}, "admin access", [], "several files"),
        (TWO | {"common/namespace.yaml": NAMESPACE % ("_", "")}, "admin access", [], "several namespaces"),
    ],
    ids=["file", "name by a build", "other decision", "has it", "no file", "nothing to prepare", "two files", "two names"],
)  # fmt: skip
def test_a_namespace_is_labelled_before_the_switch_where_its_file_is_certain(
    repository, files, decision, labelled, note
):
    documents, steps = steps_of(repository, shared_apps() | files, decision)
    edits = [edit for step in steps.values() for edit in step.edits if "labels" in edit.wanted.get("metadata", {})]
    assert [documents[edit.number].file for edit in edits] == labelled
    assert all(edit.wanted["metadata"]["labels"] == {"a": "b", LABEL: "true"} for edit in edits)
    assert not labelled or set(labelled) <= {documents[edit.number].file for edit in steps["prepare"].edits}
    notes = [line for step in steps.values() for line in step.notes if LABEL in line]
    assert [note in line and "namespace ai" in line for line in notes] == ([True] if note else [])
