"""A rule of Node Feature Discovery in place of the discovery that goes with a device plugin."""

import pytest

from tests.analysis.migration.test_admin_namespaces import steps_of
from tests.cli.test_git_trees import CONSUMER, flux, repository
from tests.cli.test_migrate_plan import INTEL, LABEL, RULE, app, plugin

__all__ = ["repository"]

SELECTOR = f"    pod: {{nodeSelector: {{{LABEL}: 'true'}}}}\n"
EXPRESSION = f"    pod: {{affinity: {{terms: [{{key: {LABEL}, operator: Exists}}]}}}}\n"
DRIVER = INTEL.replace("intel-device-plugins-gpu", "intel-gpu-resource-driver").replace("intel-gpu, ", "driver, ")
INSTALLED = {"clusters/home/driver.yaml": flux("driver"), "apps/driver/release.yaml": DRIVER}
OTHER_RULE = RULE.replace(LABEL, "example.com/usb")
NFD = {"clusters/home/nfd.yaml": flux("nfd"), "apps/nfd/kustomization.yaml": "resources: [usb.yaml]\n", "apps/nfd/usb.yaml": OTHER_RULE}  # fmt: skip


@pytest.mark.parametrize(
    ("selector", "files", "decision", "outcome"),
    [
        (SELECTOR, NFD, "exclusive", ("apps/nfd/nodefeaturerule.yaml", "")),
        (EXPRESSION, NFD, "exclusive", ("apps/nfd/nodefeaturerule.yaml", "")),
        ("", NFD, "exclusive", ("", "")),
        (SELECTOR, {}, "exclusive", ("", "")),
        (SELECTOR, INSTALLED, "exclusive", ("", "label the nodes")),
        (SELECTOR, {"apps/plugin/rule.yaml": RULE}, "exclusive", ("", "")),
        (SELECTOR, {"apps/plugin/rule.yaml": OTHER_RULE}, "exclusive", ("", "")),
    ],
    ids=["selector", "expression", "no selector", "no rule in the tree", "driver in the tree", "rule of the plugin", "other rule of the plugin"],
)  # fmt: skip
def test_a_label_that_selectors_need_gets_a_rule_beside_those_of_the_tree(
    repository, selector, files, decision, outcome
):
    file, note = outcome
    values = CONSUMER.format(key="gpu.intel.com/i915") + selector
    documents, steps = steps_of(repository, app("plex", "media", values=values) | plugin() | files, decision)
    new = {new.path: new.objects for step in steps.values() for new in step.new if "nodefeaturerule" in new.path}
    assert list(new) == ([file] if file else [])
    for [rule] in new.values():
        assert rule["spec"]["rules"][0]["labels"] == {LABEL: "true"}
        [kustomization] = [edit.wanted for edit in steps["prepare"].edits if documents[edit.number].file in NFD]
        assert kustomization["resources"] == ["nodefeaturerule.yaml", "usb.yaml"]
        assert not [line for step in steps.values() for line in step.notes if "selects nodes" in line]
    notes = [line for step in steps.values() for line in step.notes if "PCI" in line]
    assert [note in line for line in notes] == ([True] if note else [])


@pytest.mark.parametrize(("selector", "rules"), [(SELECTOR, {"enabled": True}), ("", None)])
def test_the_chart_of_a_new_driver_makes_a_label_that_selectors_need(repository, selector, rules):
    values = CONSUMER.format(key="gpu.intel.com/i915") + selector
    _, steps = steps_of(repository, app("plex", "media", values=values) | plugin(), "exclusive")
    written = [obj for new in steps["switch"].new for obj in new.objects]
    [of_driver] = [obj["spec"]["values"] for obj in written if obj["kind"] == "HelmRelease"]
    assert of_driver.get("nodeFeatureRules") == rules
    notes = [line for step in steps.values() for line in step.notes]
    assert not [line for line in notes if "selects nodes" in line]
    assert any("keeps the label" in line for line in notes) is bool(selector)
