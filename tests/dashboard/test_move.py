"""Progress of the migration: accounts that may list all namespaces see the results of `drawbridge survey`. A page waits only a limited time for a survey."""

import asyncio
import json
import threading
from pathlib import Path

import aiohttp
import pytest
import yaml

from analysis.errors import Failed
from dashboard import Dashboard, ReadingSource
from dashboard.move import mechanism_of, mechanisms_of
from dra.objects import Pod
from dra.wire import convert
from tests.cli.explain.scenes import fleet, held_claim, pod
from tests.cli.running import run
from tests.dashboard.test_dashboard import HOSTILE_TEXT, dashboard_session, reading_with, source_of, text_of
from tests.dashboard.test_login import login_session, read_as
from tests.limits import PATIENCE
from tests.objects import container, workload

EXAMPLE_FOLDERS = ("manifests/examples/fleet", "manifests/examples/pods")


def example_objects():
    files = [file for folder in EXAMPLE_FOLDERS for file in sorted(Path(folder).glob("*.yaml"))]
    return [obj for file in files for obj in yaml.safe_load_all(file.read_text()) if obj]


def gpu_deployment(name, namespace="default", amount=1):
    pods = {"containers": [container(limits={"nvidia.com/gpu": amount})]}
    return workload("Deployment", name, pods, labels={"app": "a"}, namespace=namespace, replicas=1)


@pytest.fixture(scope="module")
def survey_and_objects():
    """Return the output of `drawbridge survey` for the example, and the objects of the example."""
    output = run("survey", "-o", "json", *(word for folder in EXAMPLE_FOLDERS for word in ("-f", folder))).stdout
    return json.loads(output), example_objects()


async def test_the_page_and_its_json_match_survey(survey_and_objects):
    survey, objects = survey_and_objects
    async with dashboard_session(source_of(*objects)) as session:
        page = await text_of(session, "/move")
        answer = json.loads(await text_of(session, "/api/v1/move"))
    counts = {}
    for row in answer["namespaces"]:
        for outcome, number in row["workloads"].items():
            counts[outcome] = counts.get(outcome, 0) + number
    assert counts == survey["outcomes"]
    assert {row["namespace"]: row["pods"] for row in answer["namespaces"]} == {
        name: sum(row["pods"] for row in survey["workloads"] if row["namespace"] == name)
        for name in {row["namespace"] for row in survey["workloads"]}
    }
    assert answer["reasons"] == survey["reasons"]
    assert answer["obstacles"] == survey["obstacles"]
    assert {key: answer[key] for key in ("nodesByKey", "plugins", "drivers")} == {
        key: survey[key] for key in ("nodesByKey", "plugins", "drivers")
    }
    assert "make the sum divisible" in page
    assert all(f'href="/namespaces/{row["namespace"]}"' in page for row in answer["namespaces"])


async def test_only_accounts_that_list_all_namespaces_see_the_migration():
    async with login_session(more=[gpu_deployment("secret-app", "secret")]) as session:
        for path in ("/move", "/api/v1/move"):
            text = await read_as("mine", session, path, 403)
            assert "may list the pods and claims of all namespaces" in text
            assert "secret" not in text
            assert "secret" in await read_as("all", session, path)
            await text_of(session, path, 401)


async def test_a_failed_survey_is_reported_and_a_slow_survey_awaited():
    release, failures = threading.Event(), [Failed("pods is forbidden", "ask for the role")]

    def survey():
        if failures:
            raise failures.pop()
        release.wait(PATIENCE)
        return survey_of_many()

    source = ReadingSource("a test", lambda: reading_with(*fleet(1)), is_live=True, survey=survey)
    async with dashboard_session(source, search=0.1) as session:
        assert "the survey failed: pods is forbidden" in await text_of(session, "/move")
        assert "the survey is running" in await text_of(session, "/move")
        assert "survey is running" in await text_of(session, "/api/v1/move", 503)
        release.set()
        async with asyncio.timeout(PATIENCE):
            while "survey is running" in (page := await text_of(session, "/move")):
                pass
        assert "1 left" in page


async def test_an_old_survey_stays_when_the_next_survey_crashes():
    crashes = []

    def survey():
        if crashes:
            raise ZeroDivisionError
        return survey_of_many()

    source = ReadingSource("a test", lambda: reading_with(*fleet(1)), is_live=True, survey=survey)
    dashboard = Dashboard(source, search=PATIENCE)
    async with dashboard.open("127.0.0.1", 0) as url, aiohttp.ClientSession(url) as session:
        first_time = json.loads(await text_of(session, "/api/v1/move"))["readAt"]
        dashboard._survey_made_at = "2026-11-20T08:00:00Z"
        assert "Surveyed at 2026-11-20T08:00:00Z" in await text_of(session, "/move")
        assert json.loads(await text_of(session, "/api/v1/move"))["readAt"] == "2026-11-20T08:00:00Z" != first_time
        crashes.append(True)
        dashboard._surveyed_at -= 3600
        async with asyncio.timeout(PATIENCE):
            while "the log of the dashboard says why" not in (page := await text_of(session, "/move")):
                pass
        assert "Surveyed at 2026-11-20T08:00:00Z" in page


def survey_of_many():
    from dashboard.move import survey_of

    return survey_of(reading_with(*fleet(1, 1), *many_deployments()))


def many_deployments(count=130):
    return [gpu_deployment(f"app-{i}", f"team-{i}", 16) for i in range(count)]


async def test_the_page_of_many_workloads_stays_small_and_is_escaped():
    hostile_deployment = gpu_deployment("odd", "default", HOSTILE_TEXT)
    hostile_deployment["spec"]["template"]["metadata"]["annotations"] = {HOSTILE_TEXT: HOSTILE_TEXT}
    async with dashboard_session(
        source_of(*fleet(1, 1), *many_deployments(), hostile_deployment), search=PATIENCE
    ) as session:
        page = await text_of(session, "/move")
    assert len(page) < 200_000
    assert "31 more" in page
    assert page.count('<td class="w" data-head="Namespace">') <= 100
    assert "<img" not in page


ORIGINAL_ANNOTATION = {"annotations": {"drawbridge.dev/original": "{}"}}
EXTENDED_RESOURCE_STATUS = {"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": []}}
# Metadata, spec, status and resource key of a pod, by the mechanism through which the pod gets its devices.
PODS_BY_MECHANISM = {
    "device plugin": ({}, {"nodeName": "n0"}, {}, "example.com/gpu"),
    "an extended resource, not scheduled yet": ({}, {}, {}, "example.com/gpu"),
    "a claim that the scheduler created for an extended resource": ({}, {"nodeName": "n0"}, EXTENDED_RESOURCE_STATUS, "example.com/gpu"),
    "claims of its own": ({}, {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, {}, "cpu"),
    "translated by drawbridge": (ORIGINAL_ANNOTATION, {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, {}, "cpu"),
    "translated by drawbridge and device plugin": (ORIGINAL_ANNOTATION, {"nodeName": "n0", "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, {}, "example.com/nic"),
    "": ({}, {"nodeName": "n0"}, {}, "cpu"),
}  # fmt: skip


def test_a_pod_with_koordinators_old_keys_uses_a_device_plugin():
    containers = [{"name": "c", "image": "x", "resources": {"limits": {"kubernetes.io/gpu-memory": "1"}}}]
    koordinator_pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n0", "containers": containers}}
    assert mechanism_of(convert(koordinator_pod, Pod)) == "device plugin"


@pytest.mark.parametrize("mechanism", PODS_BY_MECHANISM, ids=lambda mechanism: mechanism or "no devices")
def test_a_pod_has_at_most_one_mechanism(mechanism):
    metadata, spec, status, key = PODS_BY_MECHANISM[mechanism]
    containers = [{"name": "c", "image": "x", "resources": {"limits": {key: "1"}}}]
    plain_pod = {"metadata": {"name": "p", "namespace": "n", **metadata}, "spec": {"containers": containers, **spec}, "status": status}  # fmt: skip
    running, ended = (convert(plain_pod | {"status": status | phase}, Pod) for phase in ({}, {"phase": "Succeeded"}))
    assert mechanism_of(running) == mechanism
    assert mechanisms_of([running, ended, running]) == ({mechanism: 2} if mechanism else {})


async def test_the_page_counts_pods_by_mechanism():
    objects = [*fleet(1), held_claim("c", "p"), pod("p", "c", nodeName="n0")]
    async with dashboard_session(source_of(*objects)) as session:
        assert "claims of its own</" in await text_of(session, "/move")
        assert json.loads(await text_of(session, "/api/v1/move"))["mechanisms"] == {"claims of its own": 1}
