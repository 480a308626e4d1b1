"""Why pods wait: pods with equal requests share one search, each has its own reason, and the first page does not wait."""

import asyncio
import json
import random
import re
import threading

import msgspec
import pytest

from analysis import explain
from dashboard import pages, server
from dashboard import waiting as waiting_module
from dashboard.html import escaped
from dashboard.waiting import Waiting, by_cause, waiting, waiting_row, waits_for_node
from tests.cli.explain.scenes import DRIVER, claim, dump, fleet, full_fleet, held_claim, in_phase, pod
from tests.cli.running import run_json
from tests.dashboard.test_dashboard import dashboard_session, reading_with, source_of, text_of
from tests.limits import draws
from tests.loops import every

UNSCHEDULED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available",
}


def reading_with_varied_pods(seed, count=40):
    """Return a reading with random waiting pods of a few variants, so that many pods are equal and many are almost equal."""
    rng = random.Random(seed)
    objects = full_fleet("c1", "c3") if rng.random() < 0.5 else full_fleet()
    for i in range(count):
        name = f"w{i}"
        fields = rng.choice([
            {}, {}, {"nodeSelector": {"zone": "b"}}, {"schedulingGates": [{"name": "queue"}]}, {"schedulerName": "other"},
            {"priority": 7}, {"tolerations": [{"operator": "Exists"}]}, {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]},
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}},
        ])  # fmt: skip
        device_count = rng.choice([1, 1, 2, 3])
        obj = pod(name, name, **fields)
        obj["spec"]["resourceClaims"][0]["name"] = "gpu"  # like pods of one template
        if rng.random() < 0.3:
            del obj["spec"]["resourceClaims"]
            obj["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": device_count}}
        match rng.randrange(8):
            case 0:
                obj = in_phase(obj, "Pending", conditions=[UNSCHEDULED | {"message": rng.choice(["full", "1 node(s) didn't match pod affinity rules"])}])  # fmt: skip
            case 1:
                obj["metadata"] |= {"deletionTimestamp": "2026-11-20T09:00:00Z", "finalizers": ["example.com/hold"]}
            case 2:
                obj["metadata"]["labels"] = {"app": rng.choice("ab")}
            case 3:
                obj["metadata"]["annotations"] = {
                    "drawbridge.dev/original": rng.choice(["{}", "[]", '{"schedulerName":"x"}'])
                }
            case 4:
                obj["metadata"]["uid"] = ""
            case 5:
                obj["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{i % 3}", "uid": "u", "controller": True}]  # fmt: skip
        objects.append(obj)
        if rng.random() < 0.85:  # the claims of the other pods are missing
            new_claim = claim(name, device_count)
            if rng.random() < 0.1:
                new_claim["metadata"]["deletionTimestamp"] = "2026-11-20T09:00:00Z"
            objects.append(new_claim)
    return reading_with(*objects)


@every("seed", range(draws(60)))
def test_the_list_has_the_reason_that_each_pod_has_alone(seed):
    """`waiting` shares searches between pods, and `pod_story` explains one pod."""
    reading = reading_with_varied_pods(seed)
    rows = {key: waiting_row(key, reading) for key, waiting_pod in reading.pods.items() if waits_for_node(waiting_pod)}
    assert {row.pod: row for row in waiting(reading)} == rows
    assert len(rows) > 30


@pytest.mark.parametrize(("key", "is_listed"), [("kubernetes.io/gpu-memory", True), ("cpu", False)])
def test_only_a_pod_with_a_device_key_is_listed(key, is_listed):
    """Koordinator's old keys are device keys, although their domain is that of Kubernetes itself."""
    container = {"name": "c", "image": "i", "resources": {"limits": {key: "2"}}}
    reading = reading_with(
        *full_fleet(), in_phase(pod("p", containers=[container]), "Pending", conditions=[UNSCHEDULED])
    )
    assert [row.pod for row in waiting(reading)] == ["default/p"] * is_listed


def test_pods_with_equal_requests_are_searched_once(monkeypatch):
    searches = []
    find_story = explain.pod_story
    monkeypatch.setattr(
        waiting_module.explain, "pod_story", lambda key, *arguments: searches.append(key) or find_story(key, *arguments)
    )
    objects = [*full_fleet(), *(obj for i in range(300) for obj in (claim(f"w{i}", 1 + i % 2), pod(f"w{i}", f"w{i}")))]
    rows = list(waiting(reading_with(*objects)))
    assert len(rows) == 300
    assert len(searches) == 2
    assert all(row.actor for row in rows)


async def test_the_page_of_a_fleet_that_is_not_drawn_does_not_wait_for_reasons(monkeypatch):
    monkeypatch.setattr(pages, "NODES_DRAWN", 1)
    release, find_reasons = threading.Event(), server.with_reasons
    monkeypatch.setattr(server, "with_reasons", lambda *arguments: release.wait(120) and find_reasons(*arguments))
    objects = [*full_fleet(), claim("wants", 3), pod("wants", "wants")]
    async with dashboard_session(source_of(*objects)) as session:
        async with asyncio.timeout(60):
            assert "nodes with devices" in await text_of(session, "/")
        list_request = asyncio.create_task(text_of(session, "/api/v1/waiting"))
        await asyncio.sleep(0.3)
        assert not list_request.done()
        release.set()
        [row] = json.loads(await list_request)["waiting"]
        assert "2 nodes can serve" in row["reason"]


async def test_the_pages_have_the_code_severity_remedy_and_age_that_doctor_has(tmp_path):
    """Both pages list the worst first. The first page has at most twelve words of a reason."""
    objects = [*full_fleet(), *two_waiting_pods()[2:]]
    for obj in objects:
        obj["metadata"]["creationTimestamp"] = "2026-11-20T09:00:00Z"
    objects += [claim("c9", 1), in_phase(pod("c9", "c9"), "Pending", conditions=[UNSCHEDULED])]
    objects[-1]["metadata"]["creationTimestamp"] = "2026-11-20T09:00:00Z"
    findings = {
        finding["object"]: finding for finding in run_json("doctor", "-f", dump(tmp_path, *objects))[1]["findings"]
    }
    async with dashboard_session(source_of(*objects)) as session:
        rows = json.loads(await text_of(session, "/api/v1/waiting"))["waiting"]
        table, queue = await text_of(session, "/waiting"), await text_of(session, "/")
    assert [row["pod"] for row in rows] == ["default/a", "default/b", "default/c9"]
    for row in rows:
        finding = findings[f"Pod/{row['pod']}"]
        assert finding["message"].startswith(row["reason"])
        assert (row["code"], row["severity"], "; or ".join(row["remedies"])) == (finding["code"], finding["severity"], finding["remedy"])  # fmt: skip
        assert f'<b class="{row["severity"]}">{row["degree"] or row["severity"]}</b> {row["code"]}<' in table
        assert escaped(row["remedies"][0]) in table
        assert escaped(" ".join(row["reason"].split()[:12])) in queue
        assert escaped(" ".join(row["reason"].split()[:13])) not in queue
    assert {row["pod"][-1]: row["degree"] for row in rows} == {"a": "waits", "b": "never", "9": "waits"}
    for page in (table, queue):
        assert re.findall("/pods/(default/(?:a|b|c9))", page) == ["default/b", "default/c9", "default/a"]
        assert len(re.findall('<time datetime="2026-11-20T09:00:00Z"[^>]*>[0-9]+d</time>', page)) == 3


def test_a_row_has_pods_with_one_reason_and_one_remedy_and_the_worst_is_first():
    row = Waiting(pod="a/a", since="", code="O116", severity="info", reason="full", remedies=("wait",))
    change = lambda **fields: msgspec.structs.replace(row, **fields)  # noqa: E731
    rows = [row, change(pod="a/b"), change(pod="a/c", remedies=("end a pod",)), change(pod="a/d", code="O107", severity="error"), change(pod="a/e", never=True)]  # fmt: skip
    assert [[pod.pod[-1] for pod in pods] for pods in by_cause(rows)] == [["e"], ["d"], ["a", "b"], ["c"]]


def two_waiting_pods():
    unscheduled = [in_phase(pod(name, name), "Pending", conditions=[UNSCHEDULED]) for name in "ab"]
    return [*fleet(1, 1), claim("a", 2), claim("b", 3), *unscheduled]


async def test_a_slow_machine_finds_the_same_reasons():
    """The search ends after a number of steps, whatever the clock says."""
    async with dashboard_session(source_of(*two_waiting_pods()), search=-1.0) as session:
        rows = json.loads(await text_of(session, "/api/v1/waiting"))["waiting"]
        assert all(row["actor"] for row in rows)
        assert "only the scheduler" not in await text_of(session, "/waiting")


async def test_a_pod_beyond_the_steps_is_marked_on_the_page_and_in_the_answer(monkeypatch):
    monkeypatch.setattr(waiting_module, "REASONS", 1)
    async with dashboard_session(source_of(*two_waiting_pods())) as session:
        explained, unexplained = json.loads(await text_of(session, "/api/v1/waiting"))["waiting"]
        assert "For 1 pod only the scheduler" in await text_of(session, "/waiting")
    assert explained["actor"]
    assert unexplained["actor"] == ""
    assert unexplained["reason"] == "its scheduler says: 0/2 nodes are available"


def test_a_list_of_reasons_is_the_same_whatever_was_explained_before(monkeypatch):
    fresh, asked = reading_with(*two_waiting_pods()), reading_with(*two_waiting_pods())
    [(first, _)] = [(key, explain.pod_story(key, asked)) for key in ["default/b"]]
    assert first in asked.pods
    for steps in (1, 20_000, 10_000_000):
        monkeypatch.setattr(waiting_module, "REASONS", steps)
        assert list(waiting(asked)) == list(waiting(fresh))


def large_crowd(count=3_000):
    """Return a node whose first device many pods share, many pods with different reasons to wait, and many quotas."""
    objects = [*fleet(1, 128)]
    for i in range(count):
        name = f"p{i}"
        condition = UNSCHEDULED | {
            "message": f"a reason of {name} only, about as long as the usual message of a scheduler"
        }
        objects += [
            held_claim(name, name, on="n0/gpu-0", share={"memory": "1Mi"}),
            in_phase(pod(name, name, nodeName="n0"), "Running"),
            in_phase(pod(f"w{i}", "gone", schedulerName="other"), "Pending", conditions=[condition]),
            {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": {"name": f"q{i}", "namespace": "default" if i < 3 else "other"}, "spec": {"limits": [{"key": "gpu", "hard": "100", "devices": {}}]}},
        ]  # fmt: skip
    objects.append(held_claim("shared", *(f"p{i}" for i in range(256)), on="n0/gpu-1"))
    return objects


@pytest.mark.long
async def test_pages_stay_small_with_thousands_of_tenant_objects():
    paths = ("/", "/waiting", "/quota", "/move", "/together", "/find?q=p", "/nodes/n0", "/nodes/n0/together", f"/devices/{DRIVER}/n0/gpu-0", "/namespaces/default", "/namespaces/other", "/claims/default/shared", "/pods/default/p0", "/pods/default/w0")  # fmt: skip
    async with dashboard_session(source_of(*large_crowd()), search=1.0) as session:
        sizes = {path: len(await text_of(session, path)) for path in paths}
    assert {path: size for path, size in sizes.items() if size > 200_000} == {}


async def test_pods_with_one_generate_name_have_separate_pages():
    pods = [pod("", "c") | {"metadata": {"generateName": "train-", "namespace": "default"}} for _ in range(2)]
    async with dashboard_session(source_of(*fleet(1, 1), *pods)) as session:
        assert [row["pod"] for row in json.loads(await text_of(session, "/api/v1/waiting"))["waiting"]] == [
            "default/train-00001",
            "default/train-00002",
        ]
        assert "Pod default/train-00002" in await text_of(session, "/pods/default/train-00002")
