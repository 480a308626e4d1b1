"""How `explain` shows the webhook's record on a pod: the request, the decision, and how far the record is trusted."""

import base64
import json
from pathlib import Path

import pytest

from analysis.explain import as_written
from tests.cli.explain.scenes import explain, explain_json
from tests.webhook.admission.test_decide import KEY, mutated
from tests.webhook.admission.test_decide import gpu_pod as legacy
from tests.webhook.pods import patched, verdict_of
from tests.webhook.pods import pod as asking_pod

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "drawbridge-signature", "namespace": "drawbridge-system"},
    "data": {"signature.key": base64.b64encode(KEY).decode()},
}


def translated(**changes):
    """A pod that the webhook translated, as the API server stores it."""
    after, _ = mutated(legacy(namespace="ns", uid="1"))
    after["metadata"]["annotations"] |= changes
    return after


def forged():
    obj = translated()
    record = json.loads(obj["metadata"]["annotations"]["drawbridge.dev/original"])
    record["containers"]["main"]["nvidia.com/gpu"] = "8"
    return translated(**{"drawbridge.dev/original": json.dumps(record)})


@pytest.mark.parametrize(
    ("objects", "trust", "message"),
    [
        ([translated()], "cannot be verified here", "cannot be verified here: the signing key was not given"),
        ([translated(), SECRET], "verified", "is signed by this installation"),
        ([forged(), SECRET], "does not verify", "does not verify: the annotation or the pod was changed"),
    ],
    ids=["without the key", "with the key", "forged"],
)
def test_a_webhook_record_is_shown_with_its_trust(objects, trust, message, tmp_path):
    code, answer = explain_json(tmp_path, "pod p", *objects)
    assert (code, answer["pod"]["webhook"]["trust"]) == (0, trust)
    assert message in explain(tmp_path, "pod p", *objects).stdout


def test_the_webhook_record_shows_the_original_request_and_its_translation(tmp_path):
    _, answer = explain_json(tmp_path, "pod p", translated())
    story = answer["pod"]["webhook"]
    assert story["removedKeys"] == {"main": {"nvidia.com/gpu": "1"}}
    [decision] = story["decisions"]
    assert (decision["dialect"], decision["key"], decision["outcome"]) == ("nvidia", "nvidia.com/gpu", "translated")
    assert story["predicted"] is False
    shown = explain(tmp_path, "pod p", translated()).stdout
    assert "container main: nvidia.com/gpu: 1" in shown
    assert "main: nvidia.com/gpu (nvidia) translated" in shown


FLEET_OF_EXAMPLES = str(Path(__file__).parents[3] / "manifests/examples/fleet")
FLEET = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
    },
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    },
]


def test_a_webhook_record_is_shown_with_its_current_basis(tmp_path):
    _, answer = explain_json(tmp_path, "pod p", translated(), *FLEET)
    [decision] = answer["pod"]["webhook"]["decisions"]
    assert decision["basis"] == "1 of 1 nodes publish it as a whole GPU (class gpu.nvidia.com)"
    shown = explain(tmp_path, "pod p", translated(), *FLEET).stdout
    assert "now 1 of 1 nodes publish it" in shown


def test_the_pods_node_does_not_change_the_decision(tmp_path):
    obj = translated()
    obj["spec"]["nodeName"] = "n"
    _, answer = explain_json(tmp_path, "pod p", obj, *FLEET)
    [decision] = answer["pod"]["webhook"]["decisions"]
    assert decision["basis"] == "1 of 1 nodes publish it as a whole GPU (class gpu.nvidia.com)"


@pytest.mark.parametrize(("uid", "stands"), [("", ("webhook", False)), ("1", ("scheduler", True))])
def test_an_uncreated_pod_waits_for_the_webhook(uid, stands, tmp_path):
    """A pod without a uid is not created yet, so the webhook acts next. For a stored pod with the same keys, the scheduler acts next."""
    asks = legacy(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "2000"}, uid=uid)
    more = ("-f", FLEET_OF_EXAMPLES, "-o", "json")
    story = json.loads(explain(tmp_path, "pod p", asks, more=more).stdout)["pod"]
    assert {decision["outcome"] for decision in story["webhook"]["decisions"]} == {"translated", "approximated"}
    assert (story["nextStep"]["actor"], bool(story.get("prospect"))) == stands


def test_a_forged_webhook_record_is_not_examined(tmp_path):
    _, answer = explain_json(tmp_path, "pod p", forged(), SECRET, *FLEET)
    assert all("basis" not in decision for decision in answer["pod"]["webhook"]["decisions"])


def test_a_pod_with_untranslated_keys_waits_for_the_scheduler(tmp_path):
    for uid in ("", "1"):
        pod = legacy(uid=uid, limits={"rdma/hca": "1"})
        pod["spec"]["nodeSelector"] = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
        _, answer = explain_json(tmp_path, "pod p", pod)
        next_step = answer["pod"]["nextStep"]
        assert next_step["actor"] == "scheduler"
        assert next_step["message"].startswith("no claim replaces rdma/hca: ")


def test_without_an_inventory_explain_assumes_the_same_meaning_as_translate(tmp_path):
    code, answer = explain_json(tmp_path, "pod p", legacy())
    [decision] = answer["pod"]["webhook"]["decisions"]
    assert (code, decision["outcome"], answer["pod"]["nextStep"]["actor"]) == (0, "translated", "webhook")
    assert decision["basis"].startswith("assumed: nvidia.com/gpu is a whole device")


def test_without_a_record_the_webhooks_decision_is_predicted(tmp_path):
    _, answer = explain_json(tmp_path, "pod p", legacy(limits={"nvidia.com/gpu": "1.5"}))
    story = answer["pod"]["webhook"]
    assert story["predicted"] is True
    [refusal] = story["refusals"]
    assert refusal.endswith("[R001]")
    assert answer["pod"]["nextStep"]["actor"] == "webhook"


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "null", '{"containers": {"main": {"nvidia.com/gpu": {"a": 1}}}, "schedulerName": 7}', '{"containers": 3}', '{"containers": {"main": []}}', "[" * 5000, '{"containers": {"main": {"x": {"y": [1]}}}}']
)  # fmt: skip
def test_an_invalid_record_causes_no_exception(text, tmp_path):
    notes = dict.fromkeys(("drawbridge.dev/original", "drawbridge.dev/decision", "drawbridge.dev/templates"), text)
    for more in ([], [SECRET]):
        code, answer = explain_json(tmp_path, "pod p", translated(**notes), *more)
        assert code == 0
        assert answer["pod"]["webhook"]["decisions"] == []


def test_removed_annotations_are_restored_from_the_record(tmp_path):
    original = asking_pod({}, annotations={"gpu-memory": "2000"}, scheduler="kai-scheduler")
    options = {"kai": {"fractions": "translate"}}
    obj = {"apiVersion": "v1", "kind": "Pod", **patched(original, verdict_of(original, **options))}
    written = as_written(obj)
    assert written["metadata"]["annotations"] == {"gpu-memory": "2000"}
    assert written["spec"]["schedulerName"] == "kai-scheduler"
    assert (
        "limits" not in written["spec"]["containers"][0]["resources"]
        or not written["spec"]["containers"][0]["resources"]["limits"]
    )
    assert "container c0: gpu-memory: 2000" in explain(tmp_path, "pod p", obj).stdout


@pytest.mark.parametrize(
    "fields",
    [{"limits": {"nvidia.com/gpu": "many"}}, {"name": "Not_A_Name"}],
    ids=["cannot be decoded", "decoded, with a name that is none"],
)
def test_a_pod_the_api_server_refuses_waits_for_its_author(fields, tmp_path):
    """The API server refuses the pod before or after it calls the webhook."""
    pod = legacy(limits=fields.get("limits", {"nvidia.com/gpu": "1"}))
    pod["metadata"]["name"] = name = fields.get("name", "p")
    _, answer = explain_json(tmp_path, f"pod {name}", pod)
    assert answer["pod"]["webhook"]["refusals"][0].rpartition("[")[2].startswith("D")
    assert answer["pod"]["nextStep"]["actor"] == "user"
    assert "the API server refuses it" in answer["pod"]["nextStep"]["message"]
    assert "at the webhook" not in explain(tmp_path, f"pod {name}", pod).stdout
