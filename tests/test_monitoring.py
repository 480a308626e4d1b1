"""The alert rules and the Grafana dashboard query metrics that exist, by labels that they have, and advise what to do."""

import json
import re
from pathlib import Path

import pytest
import yaml

from docs import metrics

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "manifests" / "monitoring"
MADE = {metric.name: metric for metric in metrics.find_metrics()}
OF_TARGETS = {"namespace", "pod", "instance"}  # Prometheus adds these labels
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
PANELS = json.loads((FOLDER / "grafana.json").read_text())["panels"]
QUERIES = [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]


def measured(name):
    """Return the metric of a series, or None if no code records one."""
    for suffix in ("_bucket", "_sum", "_count"):
        if MADE.get(name.removesuffix(suffix), MADE["drawbridge_leader"]).kind == "histogram":
            return MADE[name.removesuffix(suffix)]
    return MADE.get(name)


def kept(query):
    """Return the labels by which a query groups its series, without `le`."""
    outer = re.match(r"(?:histogram_quantile\([^,]+, )?(?:min|max|sum|count) by \(([^)]*)\)", query)
    return set(outer[1].split(", ")) - {"le"} if outer else set()


@pytest.mark.parametrize("query", QUERIES)
def test_every_series_is_recorded_with_the_labels_in_queries(query):
    names = re.findall(r"\bdrawbridge_\w+", query)
    assert names
    families = [measured(name) for name in names]
    assert None not in families, names
    queried = {label for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(", ")}
    queried |= set(re.findall(r"(\w+)!?=~?\"", query))
    for family in families:
        of_its_own = {"le"} if family.kind == "histogram" else set()
        assert queried - OF_TARGETS <= set(family.labels) | of_its_own, family.name


@pytest.mark.parametrize("query", QUERIES)
def test_brackets_of_expressions_are_balanced(query):
    left = re.sub(r"\"[^\"]*\"", "", query)
    while (shorter := re.sub(r"\(\)|\[\]|\{\}|[^()\[\]{}]", "", left)) != left:
        left = shorter
    assert left == ""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_has_a_summary_and_a_runbook(rule):
    """docs/operating.md contains the description unchanged, so the description has no template."""
    annotations = rule["annotations"]
    summary, (page, _, heading) = annotations["summary"], annotations["runbook_url"].partition("#")
    assert re.fullmatch(r"\{\{[^}]*\}\}.*\.|[A-Z0-9].*\.", summary)
    assert re.fullmatch(r"[A-Z0-9`].*[.?]", annotations["description"])
    assert "{{" not in annotations["description"]
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= kept(rule["expr"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert "for" in rule or "increase(" in rule["expr"]
    assert f"\n## {heading.capitalize()}\n" in (ROOT / page).read_text()


def test_alert_and_panel_names_are_unique():
    for names in (
        [rule["alert"] for rule in RULES],
        [panel["title"] for panel in PANELS],
        [panel["id"] for panel in PANELS],
    ):
        assert len(set(names)) == len(names) > 10


def test_legends_use_labels_of_their_series():
    for panel in PANELS:
        for target in panel["targets"]:
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept(target["expr"]), panel["title"]
