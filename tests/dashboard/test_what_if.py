"""The page "What would happen?" places pasted pods like `simulate`, limits the input and the time, and has a link that repeats the question."""

import asyncio
import gc
import json
import threading

import pytest

from cluster import manifests
from dashboard.server import finish_in_thread
from dashboard.whatif import LONGEST, MAX_NAMES, MAX_PODS, Unanswerable, pack, unpack
from tests.cli.explain.scenes import fleet, held_claim
from tests.cli.running import manifest, run_json
from tests.corpus.move.plugins import GPU, config_map, sharing
from tests.dashboard.browser.fleets import example_fleet
from tests.dashboard.elements import Elements
from tests.dashboard.test_dashboard import HOSTILE_TEXT, crowded_fleet, dashboard_session, source_of, text_of
from tests.limits import PATIENCE
from tests.objects import container, node, pod

JOB_MANIFEST = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 3
  completions: 3
  template:
    spec:
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
      containers: [{name: main, image: x, resources: {claims: [{name: gpu}]}}]
"""


def fleet_with_free_devices():
    """Return two nodes with two devices each. A claim holds one device."""
    return [*fleet(2, 2), held_claim("c")]


async def ask_what_if(session, text, status=200, **node_fields):
    """Send the form with this manifest; return the elements of the answer."""
    async with session.post("/what-if", data={"manifest": text, **node_fields}) as answer:
        page = await answer.text()
        assert answer.status == status, page
        return Elements(page)


async def test_pasted_pods_have_the_places_of_simulate_and_a_link(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB_MANIFEST)
    _, simulated = run_json(
        "simulate", "-f", manifest(tmp_path / "fleet.yaml", *fleet_with_free_devices()), "-f", tmp_path / "job.yaml"
    )
    async with dashboard_session(source_of(*fleet_with_free_devices())) as session:
        page = await ask_what_if(session, JOB_MANIFEST)
        assert "3 of 3 pods would fit" in page.text
        for outcome in simulated["pods"]:
            assert outcome["pod"] in page.text
            assert ", ".join(outcome["devices"]) in page.text
        assert JOB_MANIFEST.rstrip() in page.text
        [link] = [target for target in page.targets() if target.startswith("/what-if?q=")]
        assert "3 of 3 pods would fit" in await text_of(session, link)
        answer = json.loads(await text_of(session, f"/api/v1{link}"))["found"]
        assert [(outcome["pod"], outcome["node"], outcome["devices"]) for outcome in answer["pods"]] == [(outcome["pod"], outcome["node"], outcome["devices"]) for outcome in simulated["pods"]]  # fmt: skip


async def test_the_empty_page_offers_an_example_and_the_waiting_pods():
    async with dashboard_session(source_of(*example_fleet())) as session:
        offers = [target for target in Elements(await text_of(session, "/what-if")).targets() if "what-if?q=" in target]
        answers = [Elements(await text_of(session, offer)).text for offer in offers]
    assert len(offers) == 1 + 10
    assert "1 of 1 pod would fit" in answers[0]
    assert all(" pod would fit" in answer for answer in answers)


async def test_a_posted_manifest_has_the_answer_of_simulate(tmp_path):
    """One pod fits, and the webhook refuses the other; YAML and JSON mean the same."""
    refused_pod = pod("refused", containers=[container(limits={"nvidia.com/gpu": "1500m"})])
    one_pod = JOB_MANIFEST.replace("parallelism: 3", "parallelism: 1")
    documents = [*(document.object for document in manifests.parse(one_pod)), refused_pod]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    (tmp_path / "posted.yaml").write_text(body)
    _, simulated = run_json(
        "simulate", "-f", manifest(tmp_path / "fleet.yaml", *fleet_with_free_devices()), "-f", tmp_path / "posted.yaml"
    )
    assert [outcome["node"] is None for outcome in simulated["pods"]] == [False, True]
    async with dashboard_session(source_of(*fleet_with_free_devices())) as session:
        for text in (body, manifests.dump(documents)):
            async with session.post("/api/v1/simulate", data=text) as answer:
                assert (await answer.json())["found"]["pods"] == simulated["pods"]
        for text, status in (("", 400), ("a: [", 400), ("# " + "x" * LONGEST, 400), ("x" * (1 << 17) + "x", 413)):
            async with session.post("/api/v1/simulate", data=text) as answer:
                assert answer.status == status


async def test_a_pod_on_shared_devices_has_a_note_about_replicas():
    node_with_replicas = node("n0", allocatable={"cpu": "4", GPU: "16"})
    async with dashboard_session(source_of(node_with_replicas, config_map(any=sharing()))) as session:
        page = await ask_what_if(session, json.dumps(pod("p", containers=[container(limits={GPU: "16"})])))
        assert f"{GPU}: ConfigMap gpu-operator/plugin (any) makes 4 time-sliced replicas of each device" in page.text


async def test_each_quota_of_the_namespace_has_a_verdict():
    def quota(namespace, hard):
        metadata = {"name": "gpus", "namespace": namespace}
        return {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": metadata, "spec": {"hard": {"gpu/devices": hard}}}  # fmt: skip

    for hard, verdict in (("3", "over the limit"), ("4", "within the limit")):
        async with dashboard_session(
            source_of(*fleet_with_free_devices(), quota("default", hard), quota("other", "1"))
        ) as session:
            page = await ask_what_if(session, JOB_MANIFEST)
            assert "default/gpus: gpu/devices" in page.text
            assert verdict in page.text
            assert "other/gpus" not in page.text
            [link] = [target for target in page.targets() if target.startswith("/what-if?q=")]
            [verdict_row] = json.loads(await text_of(session, f"/api/v1{link}"))["found"]["quotas"]
            assert verdict_row["exceeded"] == (hard == "3")
    async with dashboard_session(source_of(*fleet_with_free_devices())) as session:
        assert "Quotas that count" not in (await ask_what_if(session, JOB_MANIFEST)).text


async def test_a_pod_without_a_place_has_a_reason():
    async with dashboard_session(source_of(*crowded_fleet())) as session:
        page = await ask_what_if(session, JOB_MANIFEST)
        assert "0 of 3 pods would fit" in page.text
        assert "2 of 2 devices are in use" in page.text
        refused_manifest = JOB_MANIFEST.replace("resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]", "").replace("{claims: [{name: gpu}]}", "{limits: {nvidia.com/gpu: 1500m}}")  # fmt: skip
        assert "refused: " in (await ask_what_if(session, refused_manifest)).text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "manifest:"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "no pod and no workload"),
        (JOB_MANIFEST.replace(": 3", ": 900"), f"more than {MAX_PODS}"),
        ("# " + "x" * LONGEST, "at most 32 KiB"),
        (JOB_MANIFEST.replace("exactly: {deviceClassName: gpu}", "exactly: 5"), "Expected"),
        ("[" * 20_000, "manifest:"),
    ],
)
async def test_an_unusable_manifest_is_answered_with_an_explanation(text, problem):
    async with dashboard_session(source_of(*fleet_with_free_devices())) as session:
        page = await ask_what_if(session, text, 400)
        assert problem in page.text
        assert "What would happen?" in page.text


async def test_a_slow_simulation_is_reported_and_blocks_no_other_page():
    async with dashboard_session(source_of(*fleet_with_free_devices()), search=0.0) as session:
        assert "the simulation takes too long for a page" in (await ask_what_if(session, JOB_MANIFEST, 400)).text
        await asyncio.gather(
            *(ask_what_if(session, JOB_MANIFEST, 400) for _ in range(3)), text_of(session, "/style.css")
        )


async def test_form_text_is_escaped_and_foreign_forms_are_refused():
    async with dashboard_session(source_of(*fleet_with_free_devices())) as session:
        text = JOB_MANIFEST.replace("name: train", "name: " + json.dumps(HOSTILE_TEXT))
        page = await ask_what_if(session, text)
        assert {name for name, _ in page.seen}.isdisjoint({"script", "img"})
        async with session.post(
            "/what-if", data={"manifest": JOB_MANIFEST}, headers={"Origin": "https://evil.example"}
        ) as answer:
            assert answer.status == 403
        for body, status in (
            (b"manifest=" + b"x" * (1 << 17), 413),
            (b"manifest=%ff%00%ed%a0%80", 400),
            (b"\xff=\xff", 400),
            (b"", 200),
        ):
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            async with session.post("/what-if", data=body, headers=headers) as answer:
                assert answer.status == status, body[:30]
                assert ("at most 131072 are accepted" in await answer.text()) == (status == 413)


@pytest.mark.parametrize("packed", ["x", "====", "eJw", pack("a" * LONGEST) + "AAAA", pack("a" * (LONGEST + 1)), "é"])
def test_an_invalid_or_too_long_packed_manifest_is_refused(packed):
    with pytest.raises(Unanswerable):
        unpack(packed)


def test_a_packed_manifest_is_restored_by_unpacking():
    assert unpack(pack(JOB_MANIFEST)) == JOB_MANIFEST


async def test_nodes_are_removed_and_added_like_in_simulate(tmp_path):
    fleet_file = manifest(tmp_path / "fleet.yaml", *crowded_fleet())
    _, simulated = run_json("simulate", "-f", fleet_file, "--remove-node", "n0", "--add-nodes", "n1=1")
    async with dashboard_session(source_of(*crowded_fleet())) as session:
        page = await ask_what_if(session, "", remove="n0", add="n1=1")
        [link] = [target for target in page.targets() if target.startswith("/what-if?")]
        assert link == "/what-if?remove=n0&add=n1%3D1"
        answer = json.loads(await text_of(session, f"/api/v1{link}"))["found"]
    nodes_by_pod = {outcome["pod"]: outcome["node"] for outcome in answer["pods"]}
    assert nodes_by_pod == {outcome["pod"]: outcome["node"] for outcome in simulated["pods"]}
    assert set(nodes_by_pod) == {"default/p0", "default/p1", "default/wants"}
    assert sorted(str(node_name) for node_name in nodes_by_pod.values()) == ["None", "n1-1", "n1-1"]
    assert f"{simulated['totals']['placed']} of 3 pods would fit" in page.text


async def test_removing_a_node_does_not_simulate_waiting_pods():
    async with dashboard_session(source_of(*crowded_fleet())) as session:
        answer = json.loads(await text_of(session, "/api/v1/what-if?remove=n0"))["found"]
        assert [outcome["pod"] for outcome in answer["pods"]] == ["default/p0", "default/p1"]


@pytest.mark.parametrize(
    ("node_fields", "problem"),
    [
        ({"remove": "n7"}, "there is no node 'n7': there are: n0, n1"),
        ({"add": "n1"}, "'n1' is not NODE=N"),
        ({"add": "n1=0"}, "is not NODE=N"),
        ({"add": "n1=²"}, "is not NODE=N"),
        ({"add": "n7=1"}, "there is no node 'n7'"),
        ({"add": "n1=900 n0=900"}, "more than 1,000 nodes"),
        ({"remove": "a " * (MAX_NAMES + 1)}, f"more than {MAX_NAMES}"),
    ],
)
async def test_invalid_nodes_to_remove_or_add_are_explained(node_fields, problem):
    async with dashboard_session(source_of(*fleet_with_free_devices())) as session:
        page = await ask_what_if(session, "", 400, **node_fields)
        assert problem in page.text


async def test_the_failure_of_a_thread_whose_caller_is_gone_is_not_an_unread_exception():
    """A browser that goes away cancels its request; asyncio would report an exception that nobody reads."""
    reported, may_fail = [], threading.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def fail():
        may_fail.wait(PATIENCE)
        raise Unanswerable("too late")

    caller = asyncio.create_task(finish_in_thread(fail))
    await asyncio.sleep(0)  # the caller starts the thread, and waits for it
    caller.cancel()
    asyncio.get_running_loop().call_soon(may_fail.set)
    await asyncio.wait([caller], timeout=PATIENCE)
    assert caller.cancelled()
    del caller
    gc.collect()  # asyncio reports an unread exception when its task is deleted
    assert reported == []
