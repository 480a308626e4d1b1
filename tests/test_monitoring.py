"""The alert rules and the Grafana dashboard query metrics that exist, by labels that they have, and advise what to do."""

import ast
import json
import re
from pathlib import Path

import pytest
import yaml

from docs import metrics
from tests.loops import every

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "manifests" / "monitoring"
METRICS = {metric.name: metric for metric in metrics.find_metrics()}
LABELS_OF_TARGETS = {"namespace", "pod", "instance"}  # Prometheus adds these labels
ALERT_RULES = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
PANELS = json.loads((FOLDER / "grafana.json").read_text())["panels"]
QUERIES = [rule["expr"] for rule in ALERT_RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]


def metric_of_series(name):
    """Return the metric of a series, or None if no code records one."""
    # drawbridge_leader is a gauge, so a name without a metric counts as no histogram.
    for suffix in ("_bucket", "_sum", "_count"):
        if METRICS.get(name.removesuffix(suffix), METRICS["drawbridge_leader"]).kind == "histogram":
            return METRICS[name.removesuffix(suffix)]
    return METRICS.get(name)


def grouping_labels(query):
    """Return the labels by which a query groups its series, without `le`."""
    outer = re.match(r"(?:histogram_quantile\([^,]+, )?(?:min|max|sum|count) by \(([^)]*)\)", query)
    return set(outer[1].split(", ")) - {"le"} if outer else set()


@every("query", QUERIES)
def test_every_queried_series_is_recorded_with_the_queried_labels(query):
    names = re.findall(r"\bdrawbridge_\w+", query)
    assert names
    queried_metrics = [metric_of_series(name) for name in names]
    assert None not in queried_metrics, names
    queried = {label for label_list in re.findall(r"by \(([^)]*)\)", query) for label in label_list.split(", ")}
    queried |= set(re.findall(r"(\w+)!?=~?\"", query))
    for metric in queried_metrics:
        own_labels = {"le"} if metric.kind == "histogram" else set()
        assert queried - LABELS_OF_TARGETS <= set(metric.labels) | own_labels, metric.name


@every("query", QUERIES)
def test_brackets_of_queries_are_balanced(query):
    brackets = re.sub(r"\"[^\"]*\"", "", query)
    while (shorter := re.sub(r"\(\)|\[\]|\{\}|[^()\[\]{}]", "", brackets)) != brackets:
        brackets = shorter
    assert brackets == ""


@every("rule", ALERT_RULES)
def test_an_alert_has_a_summary_and_a_runbook(rule):
    """docs/operating.md contains the description unchanged, so the description has no template."""
    annotations = rule["annotations"]
    summary, (page, _, heading) = annotations["summary"], annotations["runbook_url"].partition("#")
    assert re.fullmatch(r"\{\{[^}]*\}\}.*\.|[A-Z0-9].*\.", summary)
    assert re.fullmatch(r"[A-Z0-9`].*[.?]", annotations["description"])
    assert "{{" not in annotations["description"]
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= grouping_labels(rule["expr"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert "for" in rule or "increase(" in rule["expr"]
    assert f"\n## {heading.capitalize()}\n" in (ROOT / page).read_text()


def test_alert_and_panel_names_are_unique():
    for names in (
        [rule["alert"] for rule in ALERT_RULES],
        [panel["title"] for panel in PANELS],
        [panel["id"] for panel in PANELS],
    ):
        assert len(set(names)) == len(names) > 10


def test_legends_use_labels_of_their_series():
    for panel in PANELS:
        for target in panel["targets"]:
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouping_labels(target["expr"]), panel[
                "title"
            ]


def test_a_metric_without_a_constant_help_text_is_an_error():
    call = ast.parse('counter("drawbridge_x", f"of {n}")').body[0].value
    with pytest.raises(ValueError, match="drawbridge_x"):
        list(metrics.metrics_of_call(call, {}, "webhook"))
