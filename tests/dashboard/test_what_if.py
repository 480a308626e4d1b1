"""Where pods that are pasted would go: as `simulate` says it, bounded, and with a link that brings the question."""

import asyncio
import json
import time

import pytest

from dashboard.whatif import LONGEST, MOST_NAMES, MOST_PODS, Unanswerable, pack, unpack
from tests.cli.elements import Elements
from tests.cli.explain.scenes import fleet, held
from tests.cli.running import manifest, run_json
from tests.dashboard.test_dashboard import HOSTILE, crowded, served, standing, text_of

POD = """\
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


def roomy():
    """Two nodes with two devices each, of which one is held."""
    return [*fleet(2, 2), held("c")]


async def ask(session, text, status=200, **nodes):
    async with session.post("/what-if", data={"manifest": text, **nodes}) as answer:
        page = await answer.text()
        assert answer.status == status, page
        return Elements(page)


async def test_pods_are_placed_as_simulate_places_them_and_a_link_brings_the_same(tmp_path):
    (tmp_path / "job.yaml").write_text(POD)
    _, said = run_json("simulate", "-f", manifest(tmp_path / "fleet.yaml", *roomy()), "-f", tmp_path / "job.yaml")
    async with served(standing(*roomy())) as session:
        page = await ask(session, POD)
        assert "3 of 3 pods would fit" in page.text
        for outcome in said["pods"]:
            assert outcome["pod"] in page.text
            assert ", ".join(outcome["devices"]) in page.text
        assert POD.rstrip() in page.text
        [link] = [target for target in page.targets() if target.startswith("/what-if?q=")]
        assert "3 of 3 pods would fit" in await text_of(session, link)
        told = json.loads(await text_of(session, f"/api/v1{link}"))["found"]
        assert [(outcome["pod"], outcome["node"], outcome["devices"]) for outcome in told["pods"]] == [(outcome["pod"], outcome["node"], outcome["devices"]) for outcome in said["pods"]]  # fmt: skip


async def test_quotas_that_count_are_named_and_others_are_not():
    def quota(namespace, hard):
        metadata = {"name": "gpus", "namespace": namespace}
        return {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": metadata, "spec": {"hard": {"gpu/devices": hard}}}  # fmt: skip

    for hard, said in (("3", "more than is left"), ("4", "within")):
        async with served(standing(*roomy(), quota("default", hard), quota("other", "1"))) as session:
            page = await ask(session, POD)
            assert "default/gpus: gpu/devices" in page.text
            assert said in page.text
            assert "other/gpus" not in page.text
            [link] = [target for target in page.targets() if target.startswith("/what-if?q=")]
            [line] = json.loads(await text_of(session, f"/api/v1{link}"))["found"]["quotas"]
            assert line["exceeded"] == (hard == "3")
    async with served(standing(*roomy())) as session:
        assert "Quotas that count" not in (await ask(session, POD)).text


async def test_a_pod_without_a_place_is_told_why():
    async with served(standing(*crowded())) as session:
        page = await ask(session, POD)
        assert "0 of 3 pods would fit" in page.text
        assert "2 of 2 devices are in use" in page.text
        refused = POD.replace("resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]", "").replace("{claims: [{name: gpu}]}", "{limits: {nvidia.com/gpu: 1500m}}")  # fmt: skip
        assert "refused: " in (await ask(session, refused)).text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "manifest:"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "no pod and no workload"),
        (POD.replace(": 3", ": 900"), f"more than {MOST_PODS}"),
        ("# " + "x" * LONGEST, "at most 32 KiB"),
        (POD.replace("exactly: {deviceClassName: gpu}", "exactly: 5"), "Expected"),
        ("[" * 20_000, "manifest:"),
    ],
)
async def test_an_unusable_manifest_is_answered_with_an_explanation(text, problem):
    async with served(standing(*roomy())) as session:
        page = await ask(session, text, 400)
        assert problem in page.text
        assert "What would happen?" in page.text


async def test_a_slow_simulation_is_reported_and_blocks_no_other_page():
    async with served(standing(*roomy()), search=0.0) as session:
        assert "it takes longer than a page may" in (await ask(session, POD, 400)).text
        begun = time.monotonic()
        await asyncio.gather(*(ask(session, POD, 400) for _ in range(5)), text_of(session, "/style.css"))
        assert time.monotonic() - begun < 20


async def test_names_of_a_question_are_no_markup_and_no_other_site_may_ask():
    async with served(standing(*roomy())) as session:
        text = POD.replace("name: train", "name: " + json.dumps(HOSTILE))
        page = await ask(session, text)
        assert {name for name, _ in page.seen}.isdisjoint({"script", "img"})
        async with session.post(
            "/what-if", data={"manifest": POD}, headers={"Origin": "https://evil.example"}
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
def test_an_address_that_is_not_whole_or_too_long_does_not_count(packed):
    with pytest.raises(Unanswerable):
        unpack(packed)


def test_a_packed_manifest_is_restored_by_unpacking():
    assert unpack(pack(POD)) == POD


async def test_nodes_are_taken_away_and_added_as_simulate_does_it(tmp_path):
    here = manifest(tmp_path / "fleet.yaml", *crowded())
    _, said = run_json("simulate", "-f", here, "--remove-node", "n0", "--add-nodes", "n1=1")
    async with served(standing(*crowded())) as session:
        page = await ask(session, "", remove="n0", add="n1=1")
        [link] = [target for target in page.targets() if target.startswith("/what-if?")]
        assert link == "/what-if?remove=n0&add=n1%3D1"
        told = json.loads(await text_of(session, f"/api/v1{link}"))["found"]
    places = {outcome["pod"]: outcome["node"] for outcome in told["pods"]}
    assert places == {outcome["pod"]: outcome["node"] for outcome in said["pods"]}
    assert set(places) == {"default/p0", "default/p1", "default/wants"}
    assert sorted(str(node) for node in places.values()) == ["None", "n1-1", "n1-1"]
    assert f"{said['totals']['placed']} of 3 pods would fit" in page.text


async def test_without_more_nodes_pods_that_wait_are_not_asked_for():
    async with served(standing(*crowded())) as session:
        told = json.loads(await text_of(session, "/api/v1/what-if?remove=n0"))["found"]
        assert [outcome["pod"] for outcome in told["pods"]] == ["default/p0", "default/p1"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"remove": "n7"}, "there is no node 'n7': there are: n0, n1"),
        ({"add": "n1"}, "'n1' is not NODE=N"),
        ({"add": "n1=0"}, "is not NODE=N"),
        ({"add": "n1=²"}, "is not NODE=N"),
        ({"add": "n7=1"}, "there is no node 'n7'"),
        ({"add": "n1=900 n0=900"}, "more than 1,000 nodes"),
        ({"remove": "a " * (MOST_NAMES + 1)}, f"more than {MOST_NAMES}"),
    ],
)
async def test_a_node_that_is_not_there_is_named(words, problem):
    async with served(standing(*roomy())) as session:
        page = await ask(session, "", 400, **words)
        assert problem in page.text
