"""The alert rules and the Grafana dashboard ask for metrics that are measured, by labels that these have, and say what to do."""

import json
import re
from pathlib import Path

import pytest
import yaml

from docs import metrics

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "manifests" / "monitoring"
MADE = {metric.name: metric for metric in metrics.metrics()}
OF_TARGETS = {"namespace", "pod", "instance"}  # which Prometheus adds to what it scrapes
RULES = [one for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for one in group["rules"]]
PANELS = json.loads((FOLDER / "grafana.json").read_text())["panels"]
QUERIES = [one["expr"] for one in RULES] + [one["expr"] for panel in PANELS for one in panel["targets"]]


def measured(name):
    """The metric of a series."""
    for suffix in ("_bucket", "_sum", "_count"):
        if MADE.get(name.removesuffix(suffix), MADE["drawbridge_leader"]).form == "histogram":
            return MADE[name.removesuffix(suffix)]
    return MADE.get(name)


def kept(query):
    """The labels that a series of the answer has."""
    outer = re.match(r"(?:histogram_quantile\([^,]+, )?(?:min|max|sum|count) by \(([^)]*)\)", query)
    return set(outer[1].split(", ")) - {"le"} if outer else set()


@pytest.mark.parametrize("query", QUERIES)
def test_every_series_is_measured_with_the_labels_that_are_asked_for(query):
    names = re.findall(r"\bdrawbridge_\w+", query)
    assert names
    found = [measured(name) for name in names]
    assert None not in found, names
    asked = {label for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(", ")}
    asked |= set(re.findall(r"(\w+)!?=~?\"", query))
    for one in found:
        of_its_own = {"le"} if one.form == "histogram" else set()
        assert asked - OF_TARGETS <= set(one.labels) | of_its_own, one.name


@pytest.mark.parametrize("query", QUERIES)
def test_brackets_close(query):
    left = re.sub(r"\"[^\"]*\"", "", query)
    while (shorter := re.sub(r"\(\)|\[\]|\{\}|[^()\[\]{}]", "", left)) != left:
        left = shorter
    assert left == ""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule):
    """Its summary is filled in; its description stands as it is in docs/operating.md, which is made from both."""
    said = rule["annotations"]
    summary, (page, _, heading) = said["summary"], said["runbook_url"].partition("#")
    assert re.fullmatch(r"\{\{[^}]*\}\}.*\.|[A-Z0-9].*\.", summary)
    assert re.fullmatch(r"[A-Z0-9`].*[.?]", said["description"])
    assert "{{" not in said["description"]
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= kept(rule["expr"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert "for" in rule or "increase(" in rule["expr"]
    assert f"\n## {heading.capitalize()}\n" in (ROOT / page).read_text()


def test_alerts_and_panels_have_names_of_their_own():
    for names in ([one["alert"] for one in RULES], [one["title"] for one in PANELS], [one["id"] for one in PANELS]):
        assert len(set(names)) == len(names) > 10


def test_legends_name_labels_of_their_series():
    for panel in PANELS:
        for one in panel["targets"]:
            assert set(re.findall(r"\{\{(\w+)\}\}", one["legendFormat"])) <= kept(one["expr"]), panel["title"]
