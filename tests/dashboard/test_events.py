"""Pages of pods and claims: their events, and the object without the fields that may contain passwords."""

import json
import time

import pytest

from analysis.errors import Failed
from analysis.object_events import MAX_SHOWN
from cluster.embedded import Embedded
from cluster.objects import Event
from cluster.resources import EVENTS
from dashboard import Login, read_events
from dra.wire import convert
from tests.cli.explain.scenes import claim, fleet, pod
from tests.dashboard.test_dashboard import HOSTILE_TEXT, dashboard_session, source_of, text_of
from tests.dashboard.test_login import ReviewServer, read_as, two_tenants
from tests.limits import PATIENCE

PASSWORD = "hunter2-in-clear"


def event(reason, minute, message="it happened", *, object_name="wants", kind="Pod", uid="", **fields):
    name = f"{object_name}.{reason.lower()}"
    involved = {"kind": kind, "namespace": "default", "name": object_name, "uid": uid}
    at = f"2026-11-20T08:{minute:02}:00Z"
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"}, "involvedObject": involved, "reason": reason, "message": message, "lastTimestamp": at, "source": {"component": "scheduler"}, **fields}  # fmt: skip


def objects_with_events(*events):
    """Return a fleet, a waiting pod and its claim, both with the name `wants`, and these events."""
    obj = pod("wants", "wants")
    obj["spec"]["containers"][0] |= {
        "env": [{"name": "PGPASSWORD", "value": PASSWORD}],
        "args": [f"--password={PASSWORD}"],
    }
    return [*fleet(1, 1), claim("wants", 2), obj, *events]


async def test_long_event_texts_are_cut():
    long = "long " * 200_000
    events = [event(f"R{i}" + "r" * 100_000, i, long, source={"component": long}) for i in range(3)]
    async with dashboard_session(source_of(*objects_with_events(*events))) as session:
        page = await text_of(session, "/pods/default/wants")
    assert "long long" in page
    assert len(page) < 60_000


async def test_a_pod_page_shows_its_own_events_in_reverse_order():
    series = {"lastTimestamp": None, "eventTime": "2026-11-20T08:02:00.000001Z", "series": {"count": 7, "lastObservedTime": "2026-11-20T08:09:00.000000Z"}}  # fmt: skip
    events = [
        event("Early", 1),
        event("Late", 5, count=3),
        event("Latest", 2, **series),
        event("Former", 6, uid="uid-of-a-deleted-pod"),
        event("Elsewhere", 6, object_name="other"),
        event("OfTheClaim", 6, kind="ResourceClaim"),
        event("Broken", 6) | {"involvedObject": 5},
        event("Hostile", 4, HOSTILE_TEXT),
    ]
    async with dashboard_session(source_of(*objects_with_events(*events))) as session:
        page = await text_of(session, "/pods/default/wants")
        shown_for_pod = json.loads(await text_of(session, "/api/v1/pods/default/wants"))["events"]["shown"]
        shown_for_claim = json.loads(await text_of(session, "/api/v1/claims/default/wants"))["events"]["shown"]
    assert [(happening["reason"], happening["times"]) for happening in shown_for_pod] == [
        ("Latest", 7),
        ("Late", 3),
        ("Hostile", 1),
        ("Early", 1),
    ]
    assert [happening["reason"] for happening in shown_for_claim] == ["OfTheClaim"]
    assert page.index("Latest") < page.index("Late<") < page.index("Early")
    assert "3 ×" in page
    assert "<img" not in page
    assert "Former" not in page


async def test_only_the_last_of_many_events_are_shown():
    events = [event(f"R{i}", i % 60, message=str(i)) for i in range(MAX_SHOWN + 9)]
    async with dashboard_session(source_of(*objects_with_events(*events))) as session:
        assert len(json.loads(await text_of(session, "/api/v1/pods/default/wants"))["events"]["shown"]) == MAX_SHOWN


async def test_a_page_explains_missing_events_after_a_bounded_wait():
    def refuse(*_):
        raise Failed("events is forbidden", "ask for the role")

    for read, patience, problem in (
        (refuse, PATIENCE, "events is forbidden"),
        (lambda *_: time.sleep(1) or [], 0.2, "did not answer in time"),
    ):
        source = source_of(*objects_with_events(), events=read)
        async with dashboard_session(source, patience=patience) as session:
            assert problem in await text_of(session, "/pods/default/wants")


async def test_only_the_events_of_one_object_are_listed():
    cluster = Embedded()
    for obj in (event("Mine", 1), event("Other", 1, object_name="other"), event("OfTheClaim", 1, kind="ResourceClaim")):
        await cluster.create(EVENTS.raw, obj, "default")
    assert [listed.reason for listed in await read_events(cluster, "Pod", "default", "wants")] == ["Mine"]


@pytest.mark.parametrize(("user", "reads"), [("mine", 1), ("all", 1), ("half", 0), ("stranger", 0)])
async def test_events_are_read_only_for_accounts_that_see_the_pod(user, reads):
    calls = []

    def read(*arguments):
        calls.append(arguments)
        return [convert(event("Happened", 1, object_name="wants"), Event)]

    async with dashboard_session(source_of(*two_tenants(), events=read), login=Login(ReviewServer())) as session:
        page = await read_as(user, session, "/pods/mine/wants", 200 if reads else 404)
        assert ("Happened" in page) == bool(reads)
        await read_as("mine", session, "/pods/secret/secret-holder", 404)
    assert calls == [("Pod", "mine", "wants")] * reads


async def test_an_account_without_the_right_to_list_events_is_informed():
    class ReviewsWithoutEvents(ReviewServer):
        async def create(self, resource, obj):
            if obj["spec"].get("resourceAttributes", {}).get("resource") == "events":
                return {"status": {"allowed": False}}
            return await super().create(resource, obj)

    source = source_of(*two_tenants(), events=lambda *_: 1 / 0)
    async with dashboard_session(source, login=Login(ReviewsWithoutEvents())) as session:
        assert "your account may not list events in mine" in await read_as("mine", session, "/pods/mine/wants")


async def test_the_object_is_shown_without_environment_variables_and_arguments():
    async with dashboard_session(source_of(*objects_with_events())) as session:
        page = await text_of(session, "/pods/default/wants")
        claim_page = await text_of(session, "/claims/default/wants")
        await text_of(session, "/pods/default/none", 404)
    assert PASSWORD not in page
    assert "resourceClaimName: wants" in page
    assert "deviceClassName: gpu" in claim_page
    assert "kubectl get resourceclaim wants -n default -o yaml" in claim_page
