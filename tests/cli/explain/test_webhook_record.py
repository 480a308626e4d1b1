"""How `explain` shows the record of the webhook on a pod: the request, the decisions, and whether the record is verified."""

import base64
import json
from pathlib import Path

import pytest

from analysis.explain import as_written
from tests.cli.explain.scenes import explain, explain_json
from tests.objects import device_class, node, obj, resource_slice
from tests.webhook.admission.test_decide import KEY, gpu_pod, mutated
from tests.webhook.pods import patched, verdict_of
from tests.webhook.pods import pod as annotated_pod

SIGNING_KEY_SECRET = obj("Secret", "drawbridge-signature", namespace="drawbridge-system")
SIGNING_KEY_SECRET["data"] = {"signature.key": base64.b64encode(KEY).decode()}


def translated_pod(**annotations):
    """Return a pod that the webhook translated, as the API server stores it, with these annotations changed."""
    pod, _ = mutated(gpu_pod(namespace="ns", uid="1"))
    pod["metadata"]["annotations"] |= annotations
    return pod


def pod_with_forged_record():
    pod = translated_pod()
    record = json.loads(pod["metadata"]["annotations"]["drawbridge.dev/original"])
    record["containers"]["main"]["nvidia.com/gpu"] = "8"
    return translated_pod(**{"drawbridge.dev/original": json.dumps(record)})


RECORDS = {
    "signing key not given": ([translated_pod()], "cannot be verified here", "the signing key was not given"),
    "signing key given": ([translated_pod(), SIGNING_KEY_SECRET], "verified", "is signed by this installation"),
    "record forged": ([pod_with_forged_record(), SIGNING_KEY_SECRET], "does not verify", "was changed"),
}


@pytest.mark.parametrize(("objects", "trust", "message"), RECORDS.values(), ids=RECORDS)
def test_explain_shows_whether_a_webhook_record_is_verified(objects, trust, message, tmp_path):
    code, answer = explain_json(tmp_path, "pod p", *objects)
    assert (code, answer["pod"]["webhook"]["trust"]) == (0, trust)
    assert message in explain(tmp_path, "pod p", *objects).stdout


def test_the_webhook_record_shows_the_original_request_and_its_translation(tmp_path):
    _, answer = explain_json(tmp_path, "pod p", translated_pod())
    webhook_answer = answer["pod"]["webhook"]
    assert webhook_answer["removedKeys"] == {"main": {"nvidia.com/gpu": "1"}}
    [decision] = webhook_answer["decisions"]
    assert (decision["dialect"], decision["key"], decision["outcome"]) == ("nvidia", "nvidia.com/gpu", "translated")
    assert webhook_answer["predicted"] is False
    text = explain(tmp_path, "pod p", translated_pod()).stdout
    assert "container main: nvidia.com/gpu: 1" in text
    assert "main: nvidia.com/gpu (nvidia) translated" in text


EXAMPLE_FLEET_FOLDER = str(Path(__file__).parents[3] / "manifests/examples/fleet")
FLEET = [
    node("n"),
    device_class("gpu.nvidia.com", "device.driver == 'gpu.nvidia.com'"),
    resource_slice("s", "gpu-0", driver="gpu.nvidia.com", pool="n", nodeName="n"),
]


@pytest.mark.parametrize("node_fields", [{}, {"nodeName": "n"}], ids=["no node", "a node"])
def test_a_recorded_decision_is_shown_with_its_current_basis(node_fields, tmp_path):
    """The basis says on how many nodes the resource is published now."""
    pod = translated_pod()
    pod["spec"] |= node_fields
    _, answer = explain_json(tmp_path, "pod p", pod, *FLEET)
    [decision] = answer["pod"]["webhook"]["decisions"]
    assert decision["basis"] == "1 of 1 nodes publish it as a whole GPU (class gpu.nvidia.com)"
    assert "now 1 of 1 nodes publish it" in explain(tmp_path, "pod p", pod, *FLEET).stdout


@pytest.mark.parametrize(("uid", "next_actor_and_prospect"), [("", ("webhook", False)), ("1", ("scheduler", True))])
def test_only_a_pod_not_yet_created_waits_for_the_webhook(uid, next_actor_and_prospect, tmp_path):
    """A pod without a uid is not created yet, so the webhook acts next. For a stored pod with the same keys, the scheduler acts next."""
    pod = gpu_pod(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "2000"}, uid=uid)
    options = ("-f", EXAMPLE_FLEET_FOLDER, "-o", "json")
    pod_answer = json.loads(explain(tmp_path, "pod p", pod, options=options).stdout)["pod"]
    assert {decision["outcome"] for decision in pod_answer["webhook"]["decisions"]} == {"translated", "approximated"}
    assert (pod_answer["state"]["reasons"][0]["actor"], bool(pod_answer.get("prospect"))) == next_actor_and_prospect


def test_decisions_of_a_forged_record_are_shown_without_a_basis(tmp_path):
    _, answer = explain_json(tmp_path, "pod p", pod_with_forged_record(), SIGNING_KEY_SECRET, *FLEET)
    assert all("basis" not in decision for decision in answer["pod"]["webhook"]["decisions"])


def test_a_pod_with_untranslated_keys_waits_for_the_scheduler(tmp_path):
    for uid in ("", "1"):  # a pod that is not created yet, and a stored pod
        pod = gpu_pod(uid=uid, limits={"rdma/hca": "1"})
        pod["spec"]["nodeSelector"] = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
        _, answer = explain_json(tmp_path, "pod p", pod)
        reason = answer["pod"]["state"]["reasons"][0]
        assert reason["actor"] == "scheduler"
        assert reason["text"].startswith("no claim replaces rdma/hca: ")


def test_without_an_inventory_a_key_requests_whole_devices(tmp_path):
    code, answer = explain_json(tmp_path, "pod p", gpu_pod())
    [decision] = answer["pod"]["webhook"]["decisions"]
    assert (code, decision["outcome"], answer["pod"]["state"]["reasons"][0]["actor"]) == (0, "translated", "webhook")
    assert decision["basis"].startswith("assumed: nvidia.com/gpu is a whole device")


def test_without_a_record_the_webhooks_decision_is_predicted(tmp_path):
    _, answer = explain_json(tmp_path, "pod p", gpu_pod(limits={"nvidia.com/gpu": "1.5"}))
    webhook_answer = answer["pod"]["webhook"]
    assert webhook_answer["predicted"] is True
    [refusal] = webhook_answer["refusals"]
    assert refusal["code"] == "R001"
    assert answer["pod"]["state"]["reasons"][0]["actor"] == "webhook"


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "null", '{"containers": {"main": {"nvidia.com/gpu": {"a": 1}}}, "schedulerName": 7}', '{"containers": 3}', '{"containers": {"main": []}}', "[" * 5000, '{"containers": {"main": {"x": {"y": [1]}}}}']
)  # fmt: skip
def test_an_invalid_record_causes_no_exception(text, tmp_path):
    annotations = dict.fromkeys(
        ("drawbridge.dev/original", "drawbridge.dev/decision", "drawbridge.dev/templates"), text
    )
    for signing_keys in ([], [SIGNING_KEY_SECRET]):
        code, answer = explain_json(tmp_path, "pod p", translated_pod(**annotations), *signing_keys)
        assert code == 0
        assert answer["pod"]["webhook"]["decisions"] == []


def test_removed_annotations_are_restored_from_the_record(tmp_path):
    original = annotated_pod({}, annotations={"gpu-memory": "2000"}, scheduler="kai-scheduler")
    options = {"kai": {"fractions": "translate"}}
    translated = {"apiVersion": "v1", "kind": "Pod", **patched(original, verdict_of(original, **options))}
    written = as_written(translated)
    assert written["metadata"]["annotations"] == {"gpu-memory": "2000"}
    assert written["spec"]["schedulerName"] == "kai-scheduler"
    assert not written["spec"]["containers"][0]["resources"].get("limits")
    assert "container c0: gpu-memory: 2000" in explain(tmp_path, "pod p", translated).stdout


@pytest.mark.parametrize(
    "fields",
    [{"limits": {"nvidia.com/gpu": "many"}}, {"name": "Not_A_Name"}],
    ids=["limit is no quantity", "name is no DNS name"],
)
def test_a_pod_the_api_server_refuses_waits_for_its_author(fields, tmp_path):
    """The API server refuses the pod before or after it calls the webhook."""
    pod = gpu_pod(limits=fields.get("limits", {"nvidia.com/gpu": "1"}))
    pod["metadata"]["name"] = name = fields.get("name", "p")
    _, answer = explain_json(tmp_path, f"pod {name}", pod)
    assert answer["pod"]["webhook"]["refusals"][0]["code"].startswith("D")
    assert answer["pod"]["state"]["reasons"][0]["actor"] == "user"
    assert "the API server refuses it" in answer["pod"]["state"]["reasons"][0]["text"]
    assert "at the webhook" not in explain(tmp_path, f"pod {name}", pod).stdout
