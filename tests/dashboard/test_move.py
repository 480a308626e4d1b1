"""Progress of the migration: accounts that may list all namespaces see the results of `drawbridge survey`; the wait for them is bounded."""

import asyncio
import json
import threading
from pathlib import Path

import aiohttp
import pytest
import yaml

from dashboard import Dashboard, Login, PictureSource
from dashboard.move import mechanism_of, mechanisms_of
from dra.objects import Pod
from dra.wire import convert
from rendering.exits import CommandFailed
from tests.cli.explain.scenes import fleet, held_claim, pod
from tests.cli.running import run
from tests.dashboard import test_login
from tests.dashboard.test_dashboard import HOSTILE, scene, served, source_of, text_of
from tests.dashboard.test_login import bearing
from tests.objects import container, workload

FOLDERS = ("manifests/examples/fleet", "manifests/examples/pods")


def example():
    files = [file for folder in FOLDERS for file in sorted(Path(folder).glob("*.yaml"))]
    return [obj for file in files for obj in yaml.safe_load_all(file.read_text()) if obj]


def gpu_deployment(name, namespace="default", amount=1):
    pods = {"containers": [container(limits={"nvidia.com/gpu": amount})]}
    return workload("Deployment", name, pods, labels={"app": "a"}, namespace=namespace, replicas=1)


@pytest.fixture(scope="module")
def survey_and_objects():
    """Return the command's output for the example, and its objects; read outside of an event loop."""
    output = run("survey", "-o", "json", *(word for folder in FOLDERS for word in ("-f", folder))).stdout
    return json.loads(output), example()


async def test_the_page_and_its_json_match_survey(survey_and_objects):
    survey, objects = survey_and_objects
    async with served(source_of(*objects)) as session:
        page = await text_of(session, "/move")
        answer = json.loads(await text_of(session, "/api/v1/move"))
    counted = {}
    for row in answer["namespaces"]:
        for outcome, number in row["workloads"].items():
            counted[outcome] = counted.get(outcome, 0) + number
    assert counted == survey["outcomes"]
    assert {row["namespace"]: row["pods"] for row in answer["namespaces"]} == {
        name: sum(row["pods"] for row in survey["workloads"] if row["namespace"] == name)
        for name in {row["namespace"] for row in survey["workloads"]}
    }
    assert answer["reasons"] == survey["reasons"]
    assert answer["obstacles"] == survey["obstacles"]
    assert {what: answer[what] for what in ("nodesByKey", "plugins", "drivers")} == {
        what: survey[what] for what in ("nodesByKey", "plugins", "drivers")
    }
    assert "make the sum divisible" in page
    assert all(f'href="/namespaces/{row["namespace"]}"' in page for row in answer["namespaces"])


async def test_the_migration_is_shown_to_accounts_that_list_all_namespaces():
    source = PictureSource(
        "a test", lambda: scene(*test_login.objects(), gpu_deployment("secret-app", "secret")), lives=False
    )
    async with served(source, login=Login(test_login.Server())) as session:
        for path in ("/move", "/api/v1/move"):
            async with session.get(path, headers=bearing("mine")) as answer:
                assert answer.status == 403
                text = await answer.text()
                assert "may list the pods and claims of all namespaces" in text
                assert "secret" not in text
            async with session.get(path, headers=bearing("all")) as answer:
                assert "secret" in await answer.text()
            async with session.get(path) as answer:
                assert answer.status == 401


async def test_a_slow_survey_is_shown_later_and_a_failure_reported():
    go, failures = threading.Event(), [CommandFailed("pods is forbidden", "ask for the role")]

    def survey():
        if failures:
            raise failures.pop()
        go.wait(120)
        return standing_survey()

    source = PictureSource("a test", lambda: scene(*fleet(1)), lives=True, survey=survey)
    async with served(source, search=0.1) as session:
        assert "the survey failed: pods is forbidden" in await text_of(session, "/move")
        assert "the survey is running" in await text_of(session, "/move")
        assert "survey is running" in await text_of(session, "/api/v1/move", 503)
        go.set()
        async with asyncio.timeout(60):
            while "survey is running" in (page := await text_of(session, "/move")):
                pass
        assert "1 left" in page


async def test_an_old_survey_shows_its_age_and_reports_a_crash():
    broken = []

    def survey():
        if broken:
            raise ZeroDivisionError
        return standing_survey()

    source = PictureSource("a test", lambda: scene(*fleet(1)), lives=True, survey=survey)
    dashboard = Dashboard(source, search=60.0)
    async with dashboard.open("127.0.0.1", 0) as url, aiohttp.ClientSession(url) as session:
        first = json.loads(await text_of(session, "/api/v1/move"))["readAt"]
        dashboard._survey_made_at = "2026-11-20T08:00:00Z"
        assert "Surveyed at 2026-11-20T08:00:00Z" in await text_of(session, "/move")
        assert json.loads(await text_of(session, "/api/v1/move"))["readAt"] == "2026-11-20T08:00:00Z" != first
        broken.append(True)
        dashboard._surveyed_at -= 3600
        async with asyncio.timeout(60):
            while "the log of the dashboard says why" not in (page := await text_of(session, "/move")):
                pass
        assert "Surveyed at 2026-11-20T08:00:00Z" in page


def standing_survey():
    from dashboard.move import survey_of

    return survey_of(scene(*fleet(1, 1), *large()))


def large(count=400):
    return [gpu_deployment(f"app-{i}", f"team-{i}", 16) for i in range(count)]


async def test_many_workloads_and_hostile_names_keep_the_page_small():
    """Hostile names are escaped."""
    odd = gpu_deployment("odd", "default", HOSTILE)
    odd["spec"]["template"]["metadata"]["annotations"] = {HOSTILE: HOSTILE}
    async with served(source_of(*fleet(1, 1), *large(), odd), search=60.0) as session:
        page = await text_of(session, "/move")
    assert len(page) < 200_000
    assert "301 more" in page
    assert page.count('<td class="w" data-head="Namespace">') <= 100
    assert "<img" not in page


ORIGINAL = {"annotations": {"drawbridge.dev/original": "{}"}}
MADE_BY_CORE = {"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": []}}
PODS = {
    "device plugin": ({}, {"nodeName": "n0"}, {}, "example.com/gpu"),
    "an extended resource, not scheduled yet": ({}, {}, {}, "example.com/gpu"),
    "a claim that the scheduler created for an extended resource": ({}, {"nodeName": "n0"}, MADE_BY_CORE, "example.com/gpu"),
    "claims of its own": ({}, {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, {}, "cpu"),
    "translated by drawbridge": (ORIGINAL, {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, {}, "cpu"),
    "translated by drawbridge and device plugin": (ORIGINAL, {"nodeName": "n0", "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, {}, "example.com/nic"),
    "": ({}, {"nodeName": "n0"}, {}, "cpu"),
}  # fmt: skip


def test_a_pod_with_only_koordinators_old_keys_has_a_mechanism():
    container = {"name": "c", "image": "x", "resources": {"limits": {"kubernetes.io/gpu-memory": "1"}}}
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n0", "containers": [container]}}
    assert mechanism_of(convert(pod, Pod)) == "device plugin"


@pytest.mark.parametrize("mechanism", PODS)
def test_each_pod_has_one_mechanism(mechanism):
    metadata, spec, status, key = PODS[mechanism]
    container = {"name": "c", "image": "x", "resources": {"limits": {key: "1"}}}
    pod = {"metadata": {"name": "p", "namespace": "n", **metadata}, "spec": {"containers": [container], **spec}, "status": status}  # fmt: skip
    alive, ended = (convert(pod | {"status": status | more}, Pod) for more in ({}, {"phase": "Succeeded"}))
    assert mechanism_of(alive) == mechanism
    assert mechanisms_of([alive, ended, alive]) == ({mechanism: 2} if mechanism else {})


async def test_the_page_counts_pods_by_mechanism():
    objects = [*fleet(1), held_claim("c", "p"), pod("p", "c", nodeName="n0")]
    async with served(source_of(*objects)) as session:
        assert "claims of its own</" in await text_of(session, "/move")
        assert json.loads(await text_of(session, "/api/v1/move"))["mechanisms"] == {"claims of its own": 1}
