"""`drawbridge observed` counts the decisions in the webhook's log by namespace."""

import io
import json

import pytest

from tests.cli.running import run, run_json
from webhook.admission import Record
from webhook.dialects import Outcome
from webhook.service.log import Decisions
from webhook.translate import Decision


def decision(key, outcome, detail, code=""):
    return Decision("Pod/a/p", "c", "nvidia", key, outcome, detail, code=code)


def log_lines(*records):
    """The log lines that the webhook writes for these records."""
    stream = io.BytesIO()
    log = Decisions(stream)
    for number, record in enumerate(records):
        fields = {"path": "mutate", "uid": str(number), "mode": "observe", "operation": "CREATE", "object": "Pod/a/p"}
        log.write(Record(**{**fields, **record}), 0.001)
    return stream.getvalue().decode()


LEFT_RECORD = {"outcome": "left", "decisions": (decision("x.com/gpu", Outcome.LEFT, "no class"),)}
REFUSED_RECORD = {"outcome": "would refuse", "decisions": (decision("x.com/gpu", Outcome.REFUSED, "too many", "R002"),)}
TRANSLATED_RECORD = {"outcome": "would translate", "decisions": (decision("x.com/gpu", Outcome.TRANSLATED, "1 GPU"),)}
IN_NAMESPACE_B = {"object": "Pod/b/web-*"}


def test_pods_are_counted_by_namespace_with_the_reasons():
    text = log_lines(
        TRANSLATED_RECORD,
        TRANSLATED_RECORD,
        LEFT_RECORD,
        LEFT_RECORD,
        REFUSED_RECORD,
        {**TRANSLATED_RECORD, **IN_NAMESPACE_B, "outcome": "translated", "mode": "enforce"},
    )
    printed_lines = run("observed", stdin=text).stdout.splitlines()
    assert [line.split() for line in printed_lines[:3]] == [
        ["NAMESPACE", "MODE", "TRANSLATED", "LEFT", "REFUSED"],
        ["a", "observe", "2", "2", "1"],
        ["b", "enforce", "1", "0", "0"],
    ]
    assert printed_lines[3:] == [
        "a: left: x.com/gpu: no class (2 pods)",
        "a: refused: x.com/gpu: too many [R002] (1 pod)",
        "6 pods in 2 namespaces: 3 translated, 2 left, 1 refused",
    ]


def test_a_translated_pod_refused_at_validation_counts_only_as_refused():
    """After the mutating review, the API server asks for a validating review of the same pod."""
    validation = {**REFUSED_RECORD, "path": "validate", "decisions": (), "problems": ("no node has 16",)}
    [namespace] = run_json("observed", stdin=log_lines(TRANSLATED_RECORD, validation))[1]["namespaces"]
    assert namespace["outcomes"] == {"refused": 1}
    assert namespace["reasons"] == [{"outcome": "refused", "text": "no node has 16", "pods": 1}]


def test_partly_translated_pods_have_the_reason_for_the_untranslated_key():
    untranslated_key = decision("y.com/npu", Outcome.LEFT, "no class")
    partly_translated = {**TRANSLATED_RECORD, "decisions": (*TRANSLATED_RECORD["decisions"], untranslated_key)}
    [namespace] = run_json("observed", stdin=log_lines(TRANSLATED_RECORD, partly_translated))[1]["namespaces"]
    assert namespace["outcomes"] == {"translated": 1, "partly": 1}
    assert namespace["reasons"] == [{"outcome": "partly", "text": "y.com/npu: no class", "pods": 1}]


@pytest.mark.parametrize(
    "fields",
    [
        {"dry_run": True},
        {"operation": "UPDATE"},
        {"object": "ResourceClaim/a/c"},
        {"outcome": "untouched"},
        {"uid": "0"},
    ],
    ids=["a dry run", "an update", "a claim", "an untouched pod", "a repeated request"],
)
def test_log_lines_about_no_new_pod_are_not_counted(fields):
    [namespace] = run_json("observed", stdin=log_lines(TRANSLATED_RECORD, {**TRANSLATED_RECORD, **fields}))[1][
        "namespaces"
    ]
    assert namespace["outcomes"] == {"translated": 1}


def test_foreign_log_lines_and_collector_prefixes_are_ignored(tmp_path):
    prefixed_lines = "".join(
        f"[pod/webhook-1] {line}\n"
        for line in log_lines(TRANSLATED_RECORD, {**TRANSLATED_RECORD, **IN_NAMESPACE_B}).splitlines()
    )
    loss_report = json.dumps({"logger": "drawbridge.log", "msg": "lines were lost", "lines": 3}, separators=(",", ":"))
    broken_lines = (
        '{"logger":"drawbridge.decision", [\n"drawbridge.decision"\n{"logger":"drawbridge.decision","object":7}\n'
    )
    file = tmp_path / "webhook.log"
    file.write_text(f"Traceback\n{broken_lines}{loss_report}\n{prefixed_lines}")
    result = run("observed", file, "-n", "b")
    assert result.stdout.splitlines()[-1] == "1 pod in 1 namespace: 1 translated"
    assert "dropped log lines" in result.stderr
    assert run("observed", tmp_path / "gone").exit_code == 2
    empty_result = run("observed", stdin="kind: Pod\n")
    assert empty_result.stdout == "0 pods in 0 namespaces\n"
    assert "warning: no decision of a webhook was read: pass the webhook's log" in empty_result.stderr
    assert "no decision" not in run("observed", file, "-n", "b").stderr
