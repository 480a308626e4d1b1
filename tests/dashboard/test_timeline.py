"""The timeline of a pod or claim from its objects, the earliest step first."""

import json
from datetime import UTC, datetime

import pytest

from analysis.loading import reading_of
from dashboard.timeline import age, steps_of
from tests.cli.explain.scenes import DRIVER, fleet, held_claim, in_phase, pod
from tests.dashboard.test_dashboard import dashboard_session, source_of, text_of
from webhook.state import Features


def time_at(minute):
    return f"2026-11-20T08:{minute:02}:00Z"


def objects_of_running_pod():
    """Return a pod that waited, got a device and runs, its claim and a node. One condition of the pod has an invalid time, and one condition has markup as its type."""
    claim = held_claim("c", "p", since=time_at(5))
    claim["metadata"]["creationTimestamp"] = time_at(1)
    obj = in_phase(pod("p", "c", nodeName="n0"), "Running", conditions=[
        {"type": "ContainersReady", "status": "True", "lastTransitionTime": time_at(9)},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": time_at(5)},
        {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": "soon"},
        {"type": "Initialized", "status": "True", "lastTransitionTime": time_at(4)},
        {"type": "example.com/<script>", "status": "True", "lastTransitionTime": time_at(7)},
    ])  # fmt: skip
    obj["metadata"]["creationTimestamp"] = time_at(0)
    return [*fleet(1), claim, obj]


def test_the_timeline_of_a_pod_is_in_chronological_order():
    reading = reading_of(objects_of_running_pod(), Features())
    assert [(step.at, step.description) for step in steps_of(reading.pods["default/p"], reading)] == [
        (time_at(0), "the pod was created"),
        (time_at(1), "claim c was created"),
        (time_at(4), "its init containers have ended"),
        (time_at(5), f"claim c was given {DRIVER}/n0/gpu-0"),
        (time_at(5), "it was assigned to node n0"),
        (time_at(9), "its containers are ready"),
    ]


@pytest.mark.parametrize(
    ("time", "expected"),
    [(time_at(0), "9m"), ("2026-11-19T08:00:00Z", "1d"), (time_at(9), "0s"), (time_at(30), ""), ("soon", ""), ("2026-11-20T07:00:00Z", "1h")],
)  # fmt: skip
def test_only_a_past_time_has_an_age(time, expected):
    assert age(time, datetime(2026, 11, 20, 8, 9, tzinfo=UTC)) == expected


async def test_the_pod_page_and_its_json_have_the_timeline():
    async with dashboard_session(source_of(*objects_of_running_pod())) as session:
        page = await text_of(session, "/pods/default/p")
        assert f'<time datetime="{time_at(5)}">' in page
        assert page.index("the pod was created") < page.index("its containers are ready")
        assert "it was assigned to node n0" in await text_of(session, "/api/v1/pods/default/p")


async def test_the_claim_page_and_its_json_have_the_timeline():
    claim = held_claim("c", "p", since=time_at(5))
    claim["metadata"] |= {"creationTimestamp": time_at(1), "deletionTimestamp": time_at(8)}
    [result] = claim["status"]["allocation"]["devices"]["results"]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": time_at(6)}
    healthy = {"type": "Healthy", "status": "True", "lastTransitionTime": time_at(7)}
    claim["status"]["devices"] = [
        {name: result[name] for name in ("driver", "pool", "device")} | {"conditions": [ready, healthy]}
    ]
    async with dashboard_session(source_of(*fleet(1), claim)) as session:
        page = await text_of(session, "/claims/default/c")
        steps = json.loads(await text_of(session, "/api/v1/claims/default/c"))["steps"]
    assert [(step["at"], step["what"]) for step in steps] == [
        (time_at(1), "claim c was created"),
        (time_at(5), f"claim c was given {DRIVER}/n0/gpu-0"),
        (time_at(6), f"{DRIVER}/n0/gpu-0 is ready on its node"),
        (time_at(8), "its deletion was requested"),
    ]
    assert f'<time datetime="{time_at(6)}">' in page
