"""The commands apply modes, canaries, fences and refusals like the webhook."""

import json

import pytest

from cluster import manifests
from tests.cli.running import run
from tests.objects import claim, claim_template, exactly, namespace
from tests.webhook.admission.test_decide import answer, review
from tests.webhook.admission.test_verdict import GPU, PODS, REFUSED, STATE, THREE_GPU_TEMPLATE, pod_in_n
from tests.webhook.pods import EXAMPLES
from webhook.admission import decide_object
from webhook.admission import review as reviewing

INVENTORY = ["--inventory", str(EXAMPLES / "fleet")]
EPHEMERAL_POD = pod_in_n({GPU: 1})
EPHEMERAL_POD["spec"]["ephemeralContainers"] = [{"name": "d", "image": "i"}]
ALL_PODS = {**PODS, "ephemeral": EPHEMERAL_POD}
REFUSED_PODS = REFUSED | {"ephemeral"}


def run_on(obj, command, *options):
    """Run a command on this object and on the claim template that pods in PODS use."""
    return run(command, "-f", "-", *options, stdin=manifests.dump([THREE_GPU_TEMPLATE, obj]))


def claim_and_template(count, **fields):
    """Return a claim for whole GPUs, and a claim template with the same spec."""
    request = exactly("gpu.nvidia.com", name="g", count=count, **fields)
    return [claim("c", request, namespace="n"), claim_template("c", request, namespace="n")]


UNKNOWN_PRODUCT = [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].productName == 'H9000'"}}]


@pytest.mark.parametrize(("objects", "code"), [(claim_and_template(2), ""), (claim_and_template(9), "[R023]"), (claim_and_template(1, selectors=UNKNOWN_PRODUCT), "[R022]")], ids=["2 GPUs", "more GPUs than a node has", "a GPU of an unknown product"])  # fmt: skip
def test_the_commands_refuse_the_claims_that_the_webhook_refuses(objects, code):
    for obj in objects:
        plural = f"{obj['kind'].lower()}s"
        response = answer(
            reviewing.decide_review(
                "validate", review(obj, resource=plural, group="resource.k8s.io", namespace="n"), STATE
            )
        )
        assert (code in response["status"]["message"]) if code else response["allowed"]
        for command in ("translate", "check"):
            result = run_on(obj, command, *INVENTORY, "-o", "json")
            assert result.exit_code == bool(code), result.output
            assert not code or code in result.output or code.strip("[]") in result.output
            assert run_on(obj, command, *INVENTORY, "--mode", "warn").exit_code == 0
        allocated = obj | {"status": {"allocation": {"devices": {"results": []}}}}
        assert not decide_object(allocated, STATE).refusals


def simulate_pods(obj):
    """Return the outcomes of `simulate` by the names of the pods."""
    result = run_on(obj, "simulate", "-f", str(EXAMPLES / "fleet"), "-o", "json")
    return {pod["pod"]: pod for pod in json.loads(result.stdout)["pods"]}


def test_simulate_refuses_a_pod_that_no_node_could_serve():
    (outcome,) = simulate_pods(PODS["nine"]).values()
    assert outcome["reason"]["text"].startswith("refused: ")
    assert "container main (nvidia.com/gpu: 9)" in outcome["reason"]["text"]


def mode_namespace(mode):
    return namespace("n", labels={"drawbridge.dev/mode": mode})


def configuration(**fields):
    return {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", **fields}


# Each case has these values:
# - the objects that set the mode
# - the mode that a decision names beside the outcome that it would have in mode enforce. It is empty in mode enforce,
#   where this is the actual outcome.
# - whether the webhook refuses pods
MODES = {
    "namespace observe": ([mode_namespace("observe")], "observe", False),
    "namespace misspelt": ([mode_namespace("Enforce")], "warn", False),
    "canary of 0 percent": ([configuration(canary=0)], "warn", False),
    "configuration observe, namespace enforce": ([configuration(mode="observe"), mode_namespace("enforce")], "", True),
    "no mode": ([], "", True),
}
# Names of pods in ALL_PODS.
REFUSED_BY_API_SERVER = {"half a GPU", "unequal limits and requests", "requests only", "ephemeral"}


@pytest.mark.parametrize("case", MODES)
def test_the_mode_in_the_files_decides_about_refusals(case):
    """The other modes admit the pods that mode enforce refuses, and change nothing in them. The API server refuses an invalid pod in every mode."""
    files, mode, is_enforced = MODES[case]
    pods = {name: {**obj, "metadata": {**obj["metadata"], "name": f"p{i}"}} for i, (name, obj) in enumerate(ALL_PODS.items())}  # fmt: skip
    name_by_object = {f"Pod/n/{pod['metadata']['name']}": name for name, pod in pods.items()}
    text = manifests.dump([*files, THREE_GPU_TEMPLATE, *pods.values()])
    translated = run("translate", "-f", "-", *INVENTORY, "-o", "json", stdin=text)
    assert translated.exit_code == 1, translated.output
    answer = json.loads(translated.stdout)
    decisions_by_pod = {
        name: [decision for decision in answer["decisions"] if name_by_object.get(decision["object"]) == name]
        for name in ALL_PODS
    }
    expected_refusals = REFUSED_PODS if is_enforced else REFUSED_BY_API_SERVER
    assert {
        name
        for name, decisions in decisions_by_pod.items()
        if any(decision["outcome"] == "refused" for decision in decisions)
    } == expected_refusals
    for name, decisions in decisions_by_pod.items():
        if not is_enforced:
            assert pods[name] in answer["items"], "only mode enforce changes pods"
            assert not any(
                decision["outcome"] in ("translated", "refused") for decision in decisions if "code" not in decision
            )
        if mode and name in REFUSED_PODS - REFUSED_BY_API_SERVER:
            assert any(decision.get("mode") == mode and decision["potentialOutcome"] for decision in decisions), (
                name,
                decisions,
            )
    checked = run("check", "-f", "-", *INVENTORY, "-o", "json", stdin=text)
    assert checked.exit_code == 1, checked.output
    findings = json.loads(checked.stdout)["findings"]
    objects_with_errors = {finding["object"] for finding in findings if finding["severity"] == "error"}
    assert {name_by_object[error] for error in objects_with_errors & name_by_object.keys()} == expected_refusals
    assert bool(objects_with_errors - name_by_object.keys()) == (case == "namespace misspelt"), (
        "of the other objects, check finds an error only in a Namespace with a misspelt mode"
    )
    assert {finding["severity"] for finding in findings if finding["code"][0] == "R" and finding["code"] != "R001"} <= {
        "error" if is_enforced else "warning"
    }


def test_simulate_refuses_an_impossible_pod_only_in_mode_enforce():
    objects = [mode_namespace("observe"), THREE_GPU_TEMPLATE, ALL_PODS["nine"]]
    result = run("simulate", "-f", str(EXAMPLES / "fleet"), "-f", "-", stdin=manifests.dump(objects))
    assert "refused: " not in result.output
    assert "passed over" not in result.output
    result = run(
        "simulate", "-f", str(EXAMPLES / "fleet"), "-f", "-", "--mode", "enforce", stdin=manifests.dump(objects)
    )
    assert "refused: " in result.output


def test_commands_report_untranslated_pods_that_a_fence_excludes(tmp_path):
    """A fence keeps the devices of the bridge's drivers from pods of other schedulers."""
    config = tmp_path / "config.yaml"
    bridge = {"schedulerName": "drawbridge", "drivers": ["gpu.nvidia.com"], "fence": True}
    config.write_text(manifests.dump([{"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "mode": "enforce", "bridge": bridge}]))  # fmt: skip
    with_fleet = ["--config", str(config), "-f", str(EXAMPLES / "fleet")]
    with_inventory = ["--config", str(config), "--inventory", str(EXAMPLES / "fleet")]
    untranslated_pod = pod_in_n({GPU: 1})
    untranslated_pod["metadata"]["annotations"] = {"drawbridge.dev/extended-resources": "leave"}
    assert "D218" in run_on(untranslated_pod, "check", *with_inventory).output
    assert "[D218]" in run_on(untranslated_pod, "translate", *with_inventory, "-o", "report").output
    assert "      left main: nvidia.com/gpu" in run_on(untranslated_pod, "survey", *with_fleet, "-o", "wide").output
    for command in (("check", *with_inventory), ("survey", *with_fleet)):
        output = run_on(pod_in_n({GPU: 1}), *command).output
        assert "bridge.fence" not in output
    class_key_pod = pod_in_n({"deviceclass.resource.kubernetes.io/gpu.nvidia.com": 1})
    assert "warning D218" in run_on(class_key_pod, "check", *with_inventory).output
    survey = run_on(class_key_pod, "survey", *with_fleet).output
    assert "fence" in survey
    assert "0 served" not in survey
    assert ["left", "1"] in [line.split()[:2] for line in survey.splitlines()]
