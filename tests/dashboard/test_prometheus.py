"""History of more than a day from Prometheus, queried once for all open pages; a bad answer breaks no page."""

import asyncio
import json

import pytest
from aiohttp import web

from dashboard import Login, Prometheus
from tests.cli.explain.scenes import fleet
from tests.cli.running import run
from tests.dashboard.test_dashboard import dashboard_session, source_of, text_of
from tests.dashboard.test_login import ReviewServer, read_as, two_tenants


@pytest.fixture
def prometheus(aiohttp_server):
    """Return a function that starts a Prometheus with the answers of `make_answer`; it returns the address and the queries so far."""

    async def serve(make_answer):
        queries = []

        async def handle(request):
            queries.append(dict(request.query))
            body = make_answer(request.query["query"])
            body = await body if asyncio.iscoroutine(body) else body
            return body if isinstance(body, web.StreamResponse) else web.json_response(body)

        app = web.Application()
        app.router.add_get("/api/v1/query_range", handle)
        app.router.add_get("/elsewhere", handle)
        return str((await aiohttp_server(app, shutdown_timeout=0.1)).make_url("")), queries

    return serve


def series_answer(*values):
    points = [[1_795_000_000 + 3600 * i, value] for i, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": points}]}}


def answer_by_query(query):
    return series_answer("3", "4", "2") if "drawbridge_pod_device" in query else series_answer("7", "NaN", "8")


async def test_pages_of_many_viewers_share_one_query_per_line(prometheus):
    """The page has a line for devices in use and a line for waiting pods."""
    url, queries = await prometheus(answer_by_query)
    async with dashboard_session(source_of(*fleet(1)), prometheus=Prometheus(f"{url}/")) as session:
        assert 'href="/history?days=30"' in await text_of(session, "/history")
        pages = await asyncio.gather(*(text_of(session, "/history?days=30") for _ in range(5)))
        answer = json.loads(await text_of(session, "/api/v1/history?days=30"))
        assert "A line needs two readings" in await text_of(session, "/history?days=4000"), (
            "a period that the page does not offer was queried"
        )
    assert {
        "Devices in use: from 3 to 2, at least 2 and at most 4" in page
        and "Pods waiting: from 7 to 8" in page
        and "History of 30 days" in page
        for page in pages
    } == {True}
    assert [len(line["points"]) for line in answer["lines"]] == [3, 2]
    assert len(queries) == 2
    assert {round(float(query["end"]) - float(query["start"])) for query in queries} == {30 * 86400}


async def test_without_an_address_no_page_mentions_prometheus():
    async with dashboard_session(source_of(*fleet(1))) as session:
        for path in ("/history", "/history?days=7"):
            assert "A line needs two readings" in (page := await text_of(session, path))
            assert "Prometheus" not in page


async def test_prometheus_counts_of_waiting_pods_are_hidden_from_tenants(prometheus):
    url, _ = await prometheus(answer_by_query)
    login, prometheus = Login(ReviewServer()), Prometheus(url)
    async with dashboard_session(source_of(*two_tenants()), login=login, prometheus=prometheus) as session:
        for path in ("/history?days=7", "/api/v1/history?days=7"):
            for user, sees_pods in (("mine", False), ("all", True)):
                text = await read_as(user, session, path)
                assert "Devices in use" in text
                assert ("Pods waiting" in text) == sees_pods
            await text_of(session, path, 401)


def refuse(query):
    raise web.HTTPServiceUnavailable


BAD_ANSWERS = {  # the function that makes the answer, and the problem on the page
    "an error": (refuse, "it answers 503"),
    "too long": (lambda _: web.Response(body=b"[" * (2 << 20)), "its answer is too long"),
    "not JSON": (lambda _: web.Response(text="<html>"), "JSON is malformed"),
    "a time that is no number": (lambda _: {"data": {"result": [{"values": [["a", 1]]}]}}, "Expected"),
    "a value with markup": (lambda _: series_answer("<script>"), "could not convert"),
    "a redirection": (lambda _: web.Response(status=302, headers={"Location": "/elsewhere?query=x"}), "it answers 302"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_a_bad_prometheus_answer_is_reported_and_breaks_no_page(name, prometheus):
    make_answer, problem = BAD_ANSWERS[name]
    url, queries = await prometheus(make_answer)
    async with dashboard_session(source_of(*fleet(1)), prometheus=Prometheus(url)) as session:
        page = await text_of(session, "/history?days=7")
        body = json.loads(await text_of(session, "/api/v1/history?days=7", 502))
    assert problem in page
    assert problem in body["error"]
    assert "check --prometheus" in page
    assert "<script>" not in page.replace("<script src", "")
    assert all("start" in query for query in queries)


async def test_the_page_does_not_wait_long_for_prometheus(prometheus):
    url, _ = await prometheus(lambda _: asyncio.sleep(30))
    async with dashboard_session(source_of(*fleet(1)), prometheus=Prometheus(url, patience=0.2)) as session:
        assert "it did not answer in time" in await text_of(session, "/history?days=7")


async def test_an_empty_prometheus_answer_refers_to_the_documentation(prometheus):
    empty = {"status": "success", "data": {"resultType": "matrix", "result": []}}
    url, _ = await prometheus(lambda _: empty)
    async with dashboard_session(source_of(*fleet(1)), prometheus=Prometheus(url)) as session:
        assert "Prometheus has no series of drawbridge: docs/operating.md" in await text_of(session, "/history?days=7")


def test_an_invalid_prometheus_address_is_refused():
    result = run("dashboard", "--prometheus", "localhost:9090")
    assert result.exit_code == 2
    assert "--prometheus localhost:9090 is not a valid URL" in result.stderr
