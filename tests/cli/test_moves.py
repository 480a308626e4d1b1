"""Cases of clusters during a migration (tests/corpus/move): decisions and messages are those of the tables."""

import random

import msgspec
import pytest

from analysis.arrivals import arrivals, brings_pods
from analysis.loading import identity_of
from analysis.printable import printable
from analysis.survey import SurveyScope, overview, report
from cli.reports import as_text
from dra.raw import mapping
from tests.corpus import move
from tests.limits import draws
from tests.loops import every
from tests.webhook.pods import pod
from webhook.admission import decide_object
from webhook.dialects import REPLACED, Outcome, Position
from webhook.state import Configuration
from webhook.translate import outcome_of
from webhook.unknown import counts_keys
from webhook.unknown.unanswered_requests import NO_NODE

CASES = [case for cases in move.tables().values() for case in cases]


@every("case", CASES)
def test_each_case_is_decided_and_described_as_its_table_says(case):
    outcome, description = move.judge(case)
    expected_texts = (case.says,) if isinstance(case.says, str) else case.says
    assert outcome == case.becomes, description
    for text in expected_texts:
        assert text in description
    assert not case.never or case.never not in description


def test_the_names_of_a_tables_cases_are_unique():
    for cases in move.tables().values():
        names = [case.name for case in cases]
        assert len(names) == len(set(names))


@every("case", random.Random(0).sample(CASES, draws(len(CASES))))
def test_the_survey_and_its_formats_agree_with_the_decisions(case):
    reading = move.world(case)
    verdict = decide_object(case.given, move.state(case))
    # A place is a container and a key in it.
    decision_by_place = {(decision.container, decision.key): decision for decision in verdict.decisions}
    survey = overview(reading, SurveyScope())
    workloads = [
        workload
        for workload in survey.workloads
        if workload.kind == case.given["kind"] and workload.name == identity_of(case.given).name
    ]
    keys = {(key.container, key.key): key for workload in workloads for key in workload.keys}
    if counts_keys(case.given, move.state(case)):
        # The survey lists what counts keys apart.
        counted = [finding.message for finding in survey.obstacles if finding.code in ("S012", "S020", "S021")]
        assert not keys
        assert all(any(key in message for message in counted) for _, key in decision_by_place)
    # Only `check` reports errors of an object without a device request; the survey skips the object.
    elif keys or not all(key.startswith("/") and not key.startswith("/dev/") for _, key in decision_by_place):
        assert keys.keys() == decision_by_place.keys()
    for place, key in keys.items():
        decision = decision_by_place[place]
        assert (key.outcome, key.code, key.detail, key.keep_reason) == (
            decision.outcome,
            decision.code,
            decision.detail,
            decision.keep_reason,
        )
    if not keys:
        return
    [requesting_workload] = workloads
    assert requesting_workload.outcome is outcome_of(verdict.decisions)
    document = msgspec.json.decode(msgspec.json.encode(survey))
    [workload_in_json] = [
        workload
        for workload in document["workloads"]
        if workload["kind"] == requesting_workload.kind and workload["name"] == requesting_workload.name
    ]
    text = "\n".join(line for _, lines in as_text(report(survey, whole=True)) for line in lines)
    assert workload_in_json["outcome"] == requesting_workload.outcome
    name = f"{requesting_workload.kind}/{requesting_workload.name}"
    assert [line.split()[:2] for line in text.splitlines()].count([requesting_workload.outcome, name]) == 1
    for key in requesting_workload.keys:
        assert f"      {key.outcome} {key.container or 'pod'}: {printable(key.key)}" in text
        assert printable(key.detail) in text
    # For each key that claims replace: whether the object keeps it, and only the webhook replaces it in the pods.
    has_keep_reason = {bool(key.keep_reason) for key in requesting_workload.keys if key.outcome in REPLACED}
    assert bool(verdict.operations) == (False in has_keep_reason)
    if brings_pods(case.given) and not mapping(case.given["metadata"]).get("uid"):
        created = arrivals([case.given], move.state(case))
        assert bool(created.refused) == (requesting_workload.outcome is Outcome.REFUSED)
        claimed = any(outcome.spec.resource_claims for outcome in created.pods.values())
        assert verdict.decisions[0].code == "D002" or claimed == bool(has_keep_reason)


# A dialect is the table of the keys of one system. A name with "<" is a pattern, not a key.
KEYS = sorted(
    row.name
    for dialect in Configuration().dialects
    for row in dialect.keys
    if row.place is Position.RESOURCE and "<" not in row.name
)
REASONS = {(dialect.name, row.name): row.because for dialect in Configuration().dialects for row in dialect.keys}
SCHEDULERS = ("", "koord-scheduler", "volcano", "hami-scheduler")


def pod_with_keys(keys, scheduler, *, in_own_containers):
    """Return a pod with one unit of each key, in a single container or with a container for each key."""
    limits = [{key: 1} for key in keys] if in_own_containers else [dict.fromkeys(keys, 1)]
    return {"apiVersion": "v1", "kind": "Pod", **pod(*limits, scheduler=scheduler or None)}


def reason_of(decision):
    """Return the reason why a key stays, without the text that no node has it."""
    return decision.detail.removeprefix(NO_NODE)


@pytest.mark.parametrize("objects", [(), move.migrated_fleet("a", "b")], ids=["no fleet", "a fleet"])
def test_each_key_that_stays_has_its_own_reason(objects):
    state = move.state(move.Case("", move.requesting_pod(0), "", cluster_objects=objects))
    draw = random.Random(27)
    decided_alone = {}

    def decide(keys, scheduler, *, in_own_containers=True):
        verdict = decide_object(
            pod_with_keys(keys, scheduler, in_own_containers=in_own_containers), state, rewrite_unknown=True
        )
        return verdict, {decision.key: decision for decision in verdict.decisions if decision.key in keys}

    for _ in range(250):
        keys, scheduler = draw.sample(KEYS, draw.choice((2, 2, 3))), draw.choice(SCHEDULERS)
        verdict, decision_by_key = decide(keys, scheduler, in_own_containers=draw.random() < 0.5)
        assert verdict.refusals or decision_by_key.keys() == set(keys)
        for key, decision in decision_by_key.items():
            if decision.outcome is not Outcome.LEFT or decision.potential_outcome:
                continue
            for name in keys:
                if (name, scheduler) not in decided_alone:
                    decided_alone[name, scheduler] = decide([name], scheduler)[1][name]
            # Keys of the same system form a single request. A key of several systems belongs to the system that another key identifies.
            reasons = {REASONS.get((decision.dialect, key)), reason_of(decided_alone[key, scheduler])}
            reasons |= {
                reason_of(decided_alone[name, scheduler])
                for name in keys
                if decided_alone[name, scheduler].dialect == decision.dialect
            }
            keys_named = [
                name_in_detail for name_in_detail in keys if name_in_detail != key and name_in_detail in decision.detail
            ]
            # A pod with a key that stays keeps its scheduler, which may be unable to allocate claims for the other keys.
            is_of_scheduler = bool(scheduler) and repr(scheduler) in decision.detail
            assert keys_named or is_of_scheduler or reason_of(decision) in reasons, (keys, scheduler, decision)
