"""Reviews at the webhook's server: their answers, metrics, turns and readiness."""

import asyncio
import gzip
import json
from copy import copy
from types import SimpleNamespace
from typing import get_args

import msgspec
import pytest

from serving.http import Turns
from tests.waiting import until
from tests.webhook.service.serving import ENFORCE, JSON, REVIEW, review_of
from webhook.admission import Record, ReviewAnswer
from webhook.admission import admission_review as reviews
from webhook.admission import review as admission
from webhook.service import app
from webhook.service.app import DecisionLimits
from webhook.service.decider import ReviewDecider
from webhook.service.metrics import WebhookMetrics

LIMITS = DecisionLimits()
POD = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
}


async def test_an_answer_waits_for_the_template_that_its_pod_names(running):
    running.app._limits = running.app._limits._replace(recheck_delay=3600.0)
    running.decider.checks_without_template = 3
    status, text = await running.post()
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)
    assert running.decider.checks_without_template == -1  # the fourth check found the template
    assert running.decider.decisions["mutate"] == 1


async def test_an_answer_does_not_wait_forever_for_a_template(running):
    running.app._limits = running.app._limits._replace(recheck_delay=0.05)
    running.decider.checks_without_template = 1 << 60
    status, _ = await running.post()
    assert status == 200


@pytest.mark.parametrize(("stored", "waits"), [(("there",), True), (("there", "absent"), False)])
def test_an_answer_waits_until_all_its_templates_exist(stored, waits):
    templates = {("ns", name): None for name in stored}
    follower = SimpleNamespace(state=lambda: msgspec.structs.replace(ENFORCE, templates=templates))
    record = Record(path="mutate", uid="u", outcome="translated")
    awaited = (("ns", "there"), ("ns", "absent"))
    outcome = ReviewAnswer(response=reviews.allow("u"), record=record, awaited_templates=awaited)
    assert ReviewDecider(None, follower).awaits_template(outcome) is waits


def test_the_metric_of_reviews_documents_every_outcome():
    [counter] = [metric for metric in WebhookMetrics().registry.collect() if metric.name == "drawbridge_reviews"]
    listed = counter.documentation.partition("by outcome: ")[2].partition(". ")[0]
    assert set(listed.split(", ")) == set(get_args(admission.ReviewOutcome))


async def test_a_review_is_answered_and_counted(running):
    status, text = await running.post()
    assert (status, json.loads(text)["response"]) == (200, {"uid": "u", "allowed": True})
    count = running.metrics.registry.get_sample_value
    assert count("drawbridge_reviews_total", {"path": "/mutate", "mode": "enforce", "outcome": "untouched"}) == 1
    assert count("drawbridge_review_seconds_count", {"path": "/mutate"}) == 1


async def test_reviews_are_timed_with_a_finer_clock_than_the_loops(running, monkeypatch):
    loop = asyncio.get_running_loop()
    frozen_time = loop.time()
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: frozen_time)
        await running.post()
    assert running.metrics.registry.get_sample_value("drawbridge_review_seconds_sum", {"path": "/mutate"}) > 0
    assert running.app.longest_hold > 0


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"body": b"{"}, 400),
        ({"body": b""}, 400),
        ({"body": REVIEW.replace(b"/v1", b"/v1beta1")}, 400),
        ({"headers": {"Content-Type": "text/plain"}}, 415),
        ({"body": gzip.compress(REVIEW), "headers": JSON | {"Content-Encoding": "gzip"}}, 415),
        ({"path": "/convert"}, 404),
        ({"path": "/livez"}, 405),
        ({"body": REVIEW.replace(b'"u"', b'"u","name":"bug"')}, 500),
    ],
)
async def test_an_invalid_request_gets_the_matching_http_status(running, request_, status):
    assert (await running.post(**request_))[0] == status
    assert (await running.post())[0] == 200


async def test_a_review_without_a_decision_in_time_is_allowed_with_a_warning(running):
    status, text = await running.post(review_of("undecided"))
    answer = json.loads(text)["response"]
    assert (status, answer["allowed"]) == (200, True)
    assert [seconds for _, seconds in running.decider.budgets] == [LIMITS.at_once, LIMITS.in_turn]
    count = running.metrics.registry.get_sample_value
    assert count("drawbridge_reviews_total", {"path": "/mutate", "mode": "enforce", "outcome": "undecided"}) == 1


@pytest.mark.parametrize("running", [DecisionLimits(members=30, small_members=30)], indirect=True)
async def test_a_review_with_too_many_members_is_allowed_unread_with_a_warning(running, caplog):
    """The warning does not name the limit: which limit a review exceeds first depends on the load."""
    many_members = review_of("p", object=POD | {"metadata": {"labels": {f"l{i}": "" for i in range(40)}}})
    status, text = await running.post(many_members)
    late_answer = admission.decide_review("mutate", many_members, ENFORCE, is_out_of_time=lambda: True)
    assert status == 200
    assert json.loads(text)["response"]["warnings"] == json.loads(late_answer.body)["response"]["warnings"]
    assert not running.decider.budgets
    assert [record.problem for record in caplog.records] == ["it has too many members"]
    assert (await running.post(b"{" * 50))[0] == 400


@pytest.mark.parametrize("running", [DecisionLimits(small=0), DecisionLimits(small_members=2)], indirect=True)
async def test_a_large_review_is_decided_in_its_turn(running):
    assert (await running.post())[0] == 200
    assert [seconds for _, seconds in running.decider.budgets] == [LIMITS.in_turn]


async def test_namespaces_take_turns_with_reviews_that_take_long(running):
    """The namespace that has used less CPU time is next, and small reviews do not wait."""
    running.app._limits = running.app._limits._replace(wait=3600.0)
    async with running.app._turns.turn("another"):
        running.app._turns.charge("theirs", 1.0)
        theirs = [asyncio.create_task(running.post(review_of("undecided", namespace="theirs"))) for _ in range(6)]
        await until(lambda: len(running.decider.budgets) == 6)
        ours = asyncio.create_task(running.post(review_of("undecided", namespace="ours")))
        await until(lambda: len(running.decider.budgets) == 7)
        assert (await running.post(review_of("p", namespace="ours")))[0] == 200
        assert not any(task.done() for task in (ours, *theirs))
    assert {status for status, _ in await asyncio.gather(ours, *theirs)} == {200}
    in_turn = [namespace for namespace, seconds in running.decider.budgets if seconds == LIMITS.in_turn]
    assert in_turn.index("ours") == 0


async def test_dear_decisions_count_for_their_namespace(running, monkeypatch):
    monkeypatch.setattr(app, "CHEAP", -1.0)
    await running.post(review_of("p", namespace="dear"))
    assert list(running.app._turns._used) == ["dear"]


async def test_a_review_that_ran_out_of_time_twice_is_answered_at_once(running):
    """A third attempt with the same state would run out of time, too. Other reviews and other states are decided."""
    for uid in ("u", "v", "w"):
        _, text = await running.post(review_of("undecided", uid=uid))
        assert json.loads(text)["response"]["uid"] == uid
    assert len(running.decider.budgets) == 4
    assert "in time" in json.loads(text)["response"]["warnings"][0]
    await running.post(review_of("undecided", namespace="another"))
    assert len(running.decider.budgets) == 6
    running.decider.current_state = copy(ENFORCE)
    await running.post(review_of("undecided"))
    assert len(running.decider.budgets) == 8


async def test_few_reviews_without_a_decision_are_remembered(running, monkeypatch):
    monkeypatch.setattr(app, "MAX_EXHAUSTED", 2)
    for name in ("a", "b", "c", "d"):
        await running.post(review_of(f"{name} undecided"))
    assert len(running.app._exhausted._attempts) == 2


@pytest.mark.parametrize("limits", [{"wait": 0.05}, {"waiting": 0}], ids=["too long", "too many"])
@pytest.mark.parametrize("running", [DecisionLimits(small=0)], indirect=True)
async def test_a_review_without_a_turn_is_allowed_with_a_warning(running, limits):
    running.app._limits = running.app._limits._replace(**limits)
    running.app._turns = Turns(running.app._limits.waiting)
    async with running.app._turns.turn("n"):
        status, text = await running.post(review_of("p", namespace="n"))
    assert status == 200
    assert "in time" in json.loads(text)["response"]["warnings"][0]
    assert not running.decider.budgets
    assert (await running.post(review_of("p", namespace="n")))[0] == 200


@pytest.mark.parametrize("running", [DecisionLimits(wait=0.0)], indirect=True)
async def test_without_a_turn_the_first_decision_is_final(running):
    _, text = await running.post(review_of("refused-once"))
    assert json.loads(text)["response"]["allowed"] is False
    assert running.decider.decisions["mutate"] == 1


async def test_a_bug_in_a_second_decision_is_answered_with_500(running, monkeypatch):
    async def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(running.app, "_decide_in_turn", broken)
    assert (await running.post(review_of("refused-once")))[0] == 500


async def test_readyz_reports_each_check(running):
    assert await running.get("/readyz") == (200, "[+]stock ok\n")
    assert await running.get("/readyz?verbose") == (200, "[+]stock ok\n[!]objects: pods default/x: deep\n")
    running.metrics.checks = {"stock": lambda: "not read yet", "certificate": lambda: ""}
    assert await running.get("/readyz") == (503, "[-]stock: not read yet\n[+]certificate ok\n")
    assert (await running.get("/livez"))[0] == 200


@pytest.mark.parametrize("changed", [False, True])
async def test_a_refusal_is_reconsidered_only_if_the_state_changes(running, changed):
    running.decider.changes_state = changed
    running.app._limits = running.app._limits._replace(recheck_delay=0.0)
    _, text = await running.post(review_of("refused-once"))
    assert json.loads(text)["response"]["allowed"] is changed
    assert running.decider.decisions["mutate"] == 1 + changed


async def test_a_decision_without_enough_time_does_not_replace_a_refusal(running):
    running.app._limits = running.app._limits._replace(recheck_delay=0.0)
    _, text = await running.post(review_of("refused, then undecided"))
    assert json.loads(text)["response"]["allowed"] is False
    assert running.decider.decisions["mutate"] == 2


@pytest.mark.parametrize("running", [DecisionLimits(small=0)], indirect=True)
async def test_a_body_without_a_review_is_refused_in_its_turn_too(running):
    assert (await running.post(b"{"))[0] == 400
