"""The cases of a cluster during a migration have the decisions and messages of their tables."""

import random

import msgspec
import pytest

from analysis.arrivals import arrivals, brings_pods
from analysis.loading import identity_of
from analysis.survey import SurveyScope, overview, report, table
from dra.raw import mapping
from rendering.report import as_csv, as_html, as_text
from rendering.terminal import escaped, printable
from tests.corpus import move
from tests.webhook.pods import pod
from webhook.admission import decide_object
from webhook.dialects import REPLACED, Outcome, Position
from webhook.state import Configuration
from webhook.translate import outcome_of
from webhook.translate.unanswered_requests import NO_NODE

CASES = [pytest.param(case, id=f"{kind}: {case.name}") for kind, cases in move.tables().items() for case in cases]


@pytest.mark.parametrize("case", CASES)
def test_each_case_is_decided_and_described_as_its_table_says(case):
    outcome, description = move.judge(case)
    wanted = (case.says,) if isinstance(case.says, str) else case.says
    assert outcome == case.becomes, description
    for text in wanted:
        assert text in description
    assert not case.never or case.never not in description


def test_no_case_is_repeated():
    for cases in move.tables().values():
        names = [case.name for case in cases]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("case", CASES)
def test_every_command_and_format_gives_the_same_answer(case):
    reading = move.world(case)
    verdict = decide_object(case.given, move.state(case))
    by_key = {(decision.container, decision.key): decision for decision in verdict.decisions}
    seen = overview(reading, SurveyScope())
    mine = [
        workload
        for workload in seen.workloads
        if workload.kind == case.given["kind"] and workload.name == identity_of(case.given).name
    ]
    keys = {(key.container, key.key): key for workload in mine for key in workload.keys}
    # Only `check` reports errors of an object without a device request; the survey skips the object.
    if keys or not all(key.startswith("/") for _, key in by_key):
        assert keys.keys() == by_key.keys()
    for word, key in keys.items():
        finding = by_key[word]
        assert (key.outcome, key.code, key.detail, key.keep_reason) == (
            finding.outcome,
            finding.code,
            finding.detail,
            finding.keep_reason,
        )
    if not keys:
        return
    [asking] = mine
    assert asking.outcome is outcome_of(verdict.decisions)
    json = msgspec.json.decode(msgspec.json.encode(seen))
    [written] = [
        workload
        for workload in json["workloads"]
        if workload["kind"] == asking.kind and workload["name"] == asking.name
    ]
    text, html, rows = (
        "\n".join(line for _, lines in as_text(report(seen, whole=True)) for line in lines),
        as_html(report(seen, whole=True), ""),
        as_csv(table(seen)),
    )
    assert written["outcome"] == asking.outcome
    name = f"{asking.kind}/{asking.name}"
    assert (
        f'<b class="{asking.outcome}">{asking.outcome}</b></td><td class="w" data-head="Workload">{name}</td>' in html
    )
    assert [line.split()[:2] for line in text.splitlines()].count([asking.outcome, name]) == 1
    for key in asking.keys:
        assert f"      {key.outcome} {key.container or 'pod'}: {printable(key.key)}" in text
        assert printable(key.detail) in text
        assert escaped(key.detail) in html
        assert printable(key.detail).replace('"', '""') in rows
    replaced = {bool(key.keep_reason) for key in asking.keys if key.outcome in REPLACED}
    assert bool(verdict.operations) == (False in replaced)
    if brings_pods(case.given) and not mapping(case.given["metadata"]).get("uid"):
        came = arrivals([case.given], move.state(case))
        assert bool(came.refused) == (asking.outcome is Outcome.REFUSED)
        claimed = any(outcome.spec.resource_claims for outcome in came.pods.values())
        assert verdict.decisions[0].code == "D002" or claimed == bool(replaced)


KEYS = sorted(
    row.name
    for dialect in Configuration().dialects
    for row in dialect.keys
    if row.place is Position.RESOURCE and "<" not in row.name
)
REASONS = {(table.name, row.name): row.because for table in Configuration().dialects for row in table.keys}
SCHEDULERS = ("", "koord-scheduler", "volcano", "hami-scheduler")


def several(keys, scheduler, *, apart):
    """A pod with one unit of each key, in a single container or in one container each."""
    limits = [{key: 1} for key in keys] if apart else [dict.fromkeys(keys, 1)]
    return {"apiVersion": "v1", "kind": "Pod", **pod(*limits, scheduler=scheduler or None)}


def reason_of(decision):
    """Return the reason why a key stays, without the text that no node has it."""
    return decision.detail.removeprefix(NO_NODE)


@pytest.mark.parametrize("around", [(), move.migrated_fleet("a", "b")], ids=["files", "a fleet"])
def test_every_key_of_a_pod_has_its_own_reason(around):
    known = move.state(move.Case("", move.requesting_pod(0), "", around=around))
    draw = random.Random(27)
    alone = {}

    def decide(keys, scheduler, *, apart=True):
        done = decide_object(several(keys, scheduler, apart=apart), known, rewrite_unknown=True)
        return done, {decision.key: decision for decision in done.decisions if decision.key in keys}

    for _ in range(250):
        keys, scheduler = draw.sample(KEYS, draw.choice((2, 2, 3))), draw.choice(SCHEDULERS)
        done, reported = decide(keys, scheduler, apart=draw.random() < 0.5)
        assert done.refusals or reported.keys() == set(keys)
        for key, decision in reported.items():
            if decision.outcome is not Outcome.LEFT or decision.potential_outcome:
                continue
            for name in keys:
                if (name, scheduler) not in alone:
                    alone[name, scheduler] = decide([name], scheduler)[1][name]
            # Keys of the same system form a single request. A key of several systems belongs to the system that another key identifies.
            reasons = {REASONS.get((decision.dialect, key)), reason_of(alone[key, scheduler])}
            reasons |= {
                reason_of(alone[key, scheduler]) for key in keys if alone[key, scheduler].dialect == decision.dialect
            }
            others = [other for other in keys if other != key and other in decision.detail]
            assert others or reason_of(decision) in reasons, (keys, scheduler, decision)
