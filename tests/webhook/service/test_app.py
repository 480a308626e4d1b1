"""Reviews at the webhook's server: their answers, metrics, workers and readiness."""

import asyncio
import gzip
import json
from functools import partial
from types import SimpleNamespace
from typing import get_args

import msgspec
import pytest

from runtime.http import Reply
from runtime.workers import Undecided
from tests.waiting import until
from tests.webhook.service.serving import ENFORCE, JSON, REVIEW, review_of
from webhook.admission import Answer, Record
from webhook.admission import admission_review as reviews
from webhook.admission import review as admission
from webhook.service.app import DecisionLimits, _OpenReview
from webhook.service.decider import ReviewDecider
from webhook.service.metrics import WebhookMetrics

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
    assert running.app._waiting == 0


@pytest.mark.parametrize(("stored", "waits"), [(("there",), True), (("there", "absent"), False)])
def test_an_answer_waits_until_all_its_templates_exist(stored, waits):
    templates = {("ns", name): None for name in stored}
    follower = SimpleNamespace(state=lambda: msgspec.structs.replace(ENFORCE, templates=templates))
    record = Record(path="mutate", uid="u", outcome="translated")
    awaited = (("ns", "there"), ("ns", "absent"))
    outcome = Answer(response=reviews.allow("u"), record=record, awaited_templates=awaited)
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


async def test_a_refused_review_is_decided_a_second_time(running):
    status, text = await running.post(review_of("refused-once"))
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)
    assert running.decider.decisions["mutate"] == 2


@pytest.mark.parametrize("running", [DecisionLimits(reviews=1)], indirect=True)
async def test_a_busy_process_decides_only_once(running):
    status, text = await running.post(review_of("refused-once"))
    assert (status, json.loads(text)["response"]["allowed"]) == (200, False)
    assert running.decider.decisions["mutate"] == 1


async def test_a_connection_serves_many_reviews(running):
    reader, writer = await running.connect()
    head = (
        f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(REVIEW)}\r\n\r\n"
    )
    for _ in range(3):
        writer.write(head.encode() + REVIEW)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        headers = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in headers.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()
    assert running.decider.decisions["mutate"] == 3


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


@pytest.mark.parametrize(
    "running", [DecisionLimits(inline=0, worker_seconds=3), DecisionLimits(members=8, worker_seconds=3)], indirect=True
)
async def test_an_endless_decision_is_killed_and_its_pod_allowed(running):
    endless = asyncio.create_task(running.post(review_of("endless", namespace="theirs")))
    honest = [await running.post() for _ in range(5)]
    assert {status for status, _ in honest} == {200}
    status, text = await endless
    assert status == 200
    answer = json.loads(text)["response"]
    assert answer["allowed"]
    assert "left this pod as it is: it could not be decided in time" in answer["warnings"][0]
    assert running.app.workers["killed"] == 1


@pytest.mark.parametrize("running", [DecisionLimits(inline=0)], indirect=True)
async def test_the_timeout_warning_does_not_depend_on_the_exhausted_limit(running, monkeypatch):
    """Which limit is exceeded first depends on the load, so only the log names the limit."""
    answers = set()
    for reason in ("it took more than 1.5 s", "the worker ended before it had decided", "too many requests wait", ""):

        async def undecided(*_, reason=reason, **__):
            raise Undecided(reason)

        monkeypatch.setattr(running.app._pool, "decide", undecided)
        answers.add(await running.post(review_of("p", object=POD)))
    late_answer = admission.decide_review("mutate", review_of("p", object=POD), ENFORCE, is_out_of_time=lambda: True)
    [(status, text)] = answers
    assert status == 200
    assert json.loads(text)["response"]["warnings"] == json.loads(late_answer.body)["response"]["warnings"]


@pytest.mark.parametrize("running", [DecisionLimits(inline=0, worker_seconds=30)], indirect=True)
async def test_one_namespace_does_not_occupy_all_workers(running, tmp_path):
    running.decider.release = tmp_path / "release"
    held_reviews = [asyncio.create_task(running.post(review_of("held", namespace="theirs"))) for _ in range(6)]
    await until(lambda: running.app._waiting == 6)
    status, text = await running.post(review_of("p", namespace="ours"))
    assert (status, json.loads(text)["response"]) == (200, {"uid": "u", "allowed": True})
    assert not any(request.done() for request in held_reviews)
    running.decider.release.touch()
    assert {status for status, _ in await asyncio.gather(*held_reviews)} == {200}


async def test_a_bug_in_a_second_decision_is_answered_with_500(running, monkeypatch):
    async def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(running.app, "_decide_again", broken)
    assert (await running.post(review_of("refused-once")))[0] == 500
    assert running.app._waiting == 0


async def test_readyz_reports_each_check(running):
    assert await running.get("/readyz") == (200, "[+]stock ok\n")
    running.metrics.checks = {"stock": lambda: "not read yet", "certificate": lambda: ""}
    assert await running.get("/readyz") == (503, "[-]stock: not read yet\n[+]certificate ok\n")
    assert (await running.get("/livez"))[0] == 200


async def test_verbose_readyz_also_lists_harmless_problems(running):
    text = "[+]stock ok\n[!]objects: pods default/x: deep\n"
    assert await running.get("/readyz?verbose") == (200, text)


@pytest.mark.parametrize("limits", [{}, {"worker_seconds": -1.0}], ids=["second decisions", "timeouts"])
async def test_second_decisions_and_timeouts_run_in_separate_iterations(running, limits, monkeypatch):
    """Reviews that are refused at the same time are decided again at the same time. In one iteration they would delay other reviews."""
    loop, app, iteration, iterations_of_decisions = asyncio.get_running_loop(), running.app, 0, []

    def count_iteration():
        nonlocal iteration
        iteration += 1
        next_count[0] = loop.call_soon(count_iteration)

    def decide(path, *_):
        iterations_of_decisions.append(iteration)
        return Answer(response=reviews.allow("u"), record=Record(path=path, uid="u", outcome="untouched"))

    next_count = [loop.call_soon(count_iteration)]
    app._limits = app._limits._replace(recheck_delay=0.0, **limits)
    monkeypatch.setattr(running.decider, "decide", decide)
    monkeypatch.setattr("webhook.service.app.answer_timeout", decide)
    refused_answer = Answer(response=reviews.allow("u"), record=Record(path="mutate", uid="u", outcome="refused"))
    decide_later = (
        app._decide_in_worker if limits else partial(app._decide_again, refused=refused_answer, earlier_state=None)
    )
    review = _OpenReview("mutate", REVIEW, "", loop.time(), loop.time())
    replies = await asyncio.gather(*(decide_later(review) for _ in range(8)))
    next_count[0].cancel()
    assert {reply.status for reply in replies} == {200}
    assert len(iterations_of_decisions) == 8
    assert len(set(iterations_of_decisions)) == 8, "two decisions ran in the same iteration"


@pytest.mark.parametrize("changed", [False, True])
async def test_a_refusal_is_reconsidered_only_if_the_state_changes(running, monkeypatch, changed):
    """If the state is the same, the first refusal is the answer. It had more time, so its text is more complete."""
    first_answer, second_answer = (
        Answer(response=reviews.allow(text), record=Record(path="mutate", uid="u", outcome="refused"))
        for text in ("long", "short")
    )
    monkeypatch.setattr(running.decider, "decide", lambda *_: second_answer)
    running.app._limits = running.app._limits._replace(recheck_delay=0.0)
    time = asyncio.get_running_loop().time()
    review = _OpenReview("mutate", REVIEW, "", time, time)
    earlier_state = object() if changed else running.decider.state()
    reply = await running.app._decide_again(review, first_answer, earlier_state)
    assert reply.body == (second_answer if changed else first_answer).body


@pytest.mark.parametrize("last_decision", ["the first, and the state is the same", "the second"])
@pytest.mark.parametrize("outcome", ["undecided", "refused"])
async def test_a_decision_without_enough_time_is_left_to_a_worker(running, monkeypatch, outcome, last_decision):
    """A decision that ran out of time must not replace a refusal."""
    late_answer = Answer(
        response=reviews.allow("u"), record=Record(path="mutate", uid="u", outcome=outcome), is_late=True
    )
    monkeypatch.setattr(running.decider, "decide", lambda *_: late_answer)
    running.app._limits = running.app._limits._replace(recheck_delay=0.0)
    handed = []

    async def decide_in_worker(review, otherwise):
        handed.append((review, otherwise))
        return Reply(200, b"refused", "application/json")

    monkeypatch.setattr(running.app, "_decide_in_worker", decide_in_worker)
    time = asyncio.get_running_loop().time()
    review = _OpenReview("mutate", REVIEW, "", time, time)
    earlier_state = object() if last_decision == "the second" else running.decider.state()
    assert (await running.app._decide_again(review, late_answer, earlier_state)).body == b"refused"
    assert handed == [(review, late_answer)]


@pytest.mark.parametrize("running", [DecisionLimits(inline=0)], indirect=True)
async def test_a_worker_also_refuses_a_body_without_a_review(running):
    assert (await running.post(b"{"))[0] == 400
    assert running.app.workers["decided"] == 1
