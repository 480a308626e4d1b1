"""The timeline of a pod or claim from its objects, the earliest step first."""

import json
from datetime import UTC, datetime

import pytest

from analysis.loading import reading_of
from dashboard.timeline import ago, steps_of
from tests.cli.explain.scenes import DRIVER, fleet, held_claim, in_phase, pod
from tests.dashboard.test_dashboard import served, source_of, text_of
from webhook.state import Features


def at(minute):
    return f"2026-11-20T08:{minute:02}:00Z"


def lived():
    """A pod that waited, got a device and runs; one condition has an invalid time, and one has markup as its type."""
    claim = held_claim("c", "p", since=at(5))
    claim["metadata"]["creationTimestamp"] = at(1)
    obj = in_phase(pod("p", "c", nodeName="n0"), "Running", conditions=[
        {"type": "ContainersReady", "status": "True", "lastTransitionTime": at(9)},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(5)},
        {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": "soon"},
        {"type": "Initialized", "status": "True", "lastTransitionTime": at(4)},
        {"type": "example.com/<script>", "status": "True", "lastTransitionTime": at(7)},
    ])  # fmt: skip
    obj["metadata"]["creationTimestamp"] = at(0)
    return [*fleet(1), claim, obj]


def test_the_timeline_of_a_pod_is_in_chronological_order():
    scene = reading_of(lived(), Features())
    assert [(step.at, step.description) for step in steps_of(scene.pods["default/p"], scene)] == [
        (at(0), "the pod was created"),
        (at(1), "claim c was created"),
        (at(4), "its init containers have ended"),
        (at(5), f"claim c was given {DRIVER}/n0/gpu-0"),
        (at(5), "it was assigned to node n0"),
        (at(9), "its containers are ready"),
    ]


@pytest.mark.parametrize(
    ("then", "words"),
    [(at(0), "9 min ago"), ("2026-11-19T08:00:00Z", "1 d ago"), (at(9), "0 s ago"), (at(30), ""), ("soon", ""), ("2026-11-20T07:00:00Z", "1 h ago")],
)  # fmt: skip
def test_an_age_is_shown_in_its_largest_unit(then, words):
    assert ago(then, datetime(2026, 11, 20, 8, 9, tzinfo=UTC)) == words


async def test_the_pod_page_and_its_json_have_the_timeline():
    async with served(source_of(*lived())) as session:
        page = await text_of(session, "/pods/default/p")
        assert f'<time datetime="{at(5)}">' in page
        assert page.index("the pod was created") < page.index("its containers are ready")
        assert "it was assigned to node n0" in await text_of(session, "/api/v1/pods/default/p")


async def test_the_claim_page_and_its_json_have_the_timeline():
    claim = held_claim("c", "p", since=at(5))
    claim["metadata"] |= {"creationTimestamp": at(1), "deletionTimestamp": at(8)}
    [result] = claim["status"]["allocation"]["devices"]["results"]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": at(6)}
    broken = {"type": "Healthy", "status": "True", "lastTransitionTime": at(7)}
    claim["status"]["devices"] = [
        {name: result[name] for name in ("driver", "pool", "device")} | {"conditions": [ready, broken]}
    ]
    async with served(source_of(*fleet(1), claim)) as session:
        page = await text_of(session, "/claims/default/c")
        steps = json.loads(await text_of(session, "/api/v1/claims/default/c"))["steps"]
    assert [(step["at"], step["what"]) for step in steps] == [
        (at(1), "claim c was created"),
        (at(5), f"claim c was given {DRIVER}/n0/gpu-0"),
        (at(6), f"{DRIVER}/n0/gpu-0 is ready on its node"),
        (at(8), "its deletion was requested"),
    ]
    assert f'<time datetime="{at(6)}">' in page
