"""Claims for the CPUs of Guaranteed pods. No pod is refused because of its CPUs. A manifest in a file gets the same claims as its pods in a cluster."""

import pytest

from cluster.patch import apply_json_patch
from dra.stock.stock import Stock
from tests.objects import workload
from tests.webhook.admission.reviews import answer, applied, review
from tests.webhook.pods import SIGNING_KEY, WHOLE_GPUS, configured, pod
from tests.webhook.translate.cpu_fleets import (
    CLASS,
    EVERYWHERE,
    GROUPS,
    TWO_CPUS,
    cpu_slice,
    gpu_objects,
    labelled_node,
    typed_by_kind,
)
from webhook.admission import decide_object, decide_review
from webhook.dialects.table import Outcome
from webhook.names import TEMPLATES, TRANSLATED_LABEL
from webhook.state import Inventory, State

# The node has two groups of 24 CPUs, so three containers with 16 CPUs each do not fit, although the node has 48 CPUs.
NODES = [labelled_node("a"), cpu_slice("a", GROUPS), CLASS]
CPUS = {"cpu": "16", "memory": "1Gi"}
GPU = {"nvidia.com/gpu": "1"}
POD_THAT_NO_CLAIM_SERVES = pod(CPUS, CPUS, CPUS)
MODES = ("enforce", "warn", "observe")


def world(*objects, mode="enforce", **fields):
    classes, slices, nodes = typed_by_kind(*NODES, *objects)
    return State(
        configuration=configured(mode=mode, **(EVERYWHERE | WHOLE_GPUS | fields)),
        fleet=Inventory.gather(classes, slices, nodes),
        stock=Stock.of(slices=slices, classes=classes, nodes=nodes),
        keys=(SIGNING_KEY,),
    )


def reviewed(value, state):
    value = {"apiVersion": "v1", "kind": "Pod", **value}
    outcome = decide_review("mutate", review(value, namespace="n"), state)
    return value, outcome


def test_a_guaranteed_pod_gets_a_signed_claim_for_cpus_once():
    state = world()
    value, outcome = reviewed(pod(TWO_CPUS), state)
    assert outcome.record.outcome == "translated"
    stored = applied(value, outcome)
    assert TEMPLATES in stored["metadata"]["annotations"]
    assert stored["metadata"]["labels"][TRANSLATED_LABEL] == "true"
    assert stored["spec"]["containers"][0]["resources"]["limits"] == TWO_CPUS
    _, again = reviewed(stored, state)
    assert answer(again).get("patch") is None
    assert again.record.outcome == "untouched"
    assert answer(decide_review("validate", review(stored, namespace="n"), state))["allowed"]
    update = decide_review("mutate", review(stored, operation="UPDATE", old=stored, namespace="n"), state)
    assert answer(update).get("patch") is None


def test_a_review_makes_no_claims_for_cpus_of_windows_pods():
    _, outcome = reviewed(pod(TWO_CPUS, os={"name": "windows"}), world())
    assert outcome.record.outcome == "left"
    assert answer(outcome).get("patch") is None


@pytest.mark.parametrize("impossible_setting", ["refuse", "warn"])
@pytest.mark.parametrize("mode", MODES)
def test_cpus_that_no_claim_can_serve_stay_with_the_kubelet(mode, impossible_setting):
    state = world(mode=mode, impossible=impossible_setting)
    value, outcome = reviewed(POD_THAT_NO_CLAIM_SERVES, state)
    response = answer(outcome)
    assert (response["allowed"], response.get("patch"), response.get("warnings")) == (True, None, None)
    assert outcome.record.outcome == "left"
    assert {decision.outcome for decision in outcome.record.decisions} == {Outcome.LEFT}
    assert "no node could serve claims for them" in outcome.record.decisions[0].detail
    file_verdict = decide_object(value, state)
    assert (file_verdict.operations, file_verdict.refusals) == ((), ())
    if mode == "enforce":
        assert [decision.detail for decision in file_verdict.decisions] == [
            decision.detail for decision in outcome.record.decisions
        ]


def test_a_gpu_gets_a_claim_even_if_cpus_get_none():
    value, outcome = reviewed(pod(CPUS | GPU, CPUS, CPUS), world(*gpu_objects("a")))
    stored = applied(value, outcome)
    assert [entry["name"] for entry in stored["spec"]["resourceClaims"]] == ["drawbridge-c0-gpu"]
    assert [decision.outcome for decision in outcome.record.decisions] == [Outcome.TRANSLATED, *[Outcome.LEFT] * 3]
    state = world(*gpu_objects("a"))
    file_verdict = decide_object(value, state)
    assert len(file_verdict.templates) == 1
    assert [decision.detail for decision in file_verdict.decisions] == [
        decision.detail for decision in outcome.record.decisions
    ]


def test_a_pod_with_possible_cpus_and_impossible_gpus_is_refused():
    state = world(*gpu_objects("a"))
    value, outcome = reviewed(pod(TWO_CPUS | {"nvidia.com/gpu": "9"}), state)
    assert not answer(outcome)["allowed"]
    assert "9 devices of class gpu.nvidia.com" in answer(outcome)["status"]["message"]
    assert [str(refusal.code) for refusal in decide_object(value, state).refusals] == ["R023"]


@pytest.mark.parametrize("cpus", [2, 16, 24, 30])
def test_a_deployment_in_a_file_gets_claims_like_its_pods(cpus):
    state = world()
    limits = {"cpu": cpus, "memory": "1Gi"}
    value, outcome = reviewed(pod(limits), state)
    of_pod = [entry["name"] for entry in applied(value, outcome)["spec"]["resourceClaims"]]
    deployment = workload("Deployment", "d", value["spec"], labels={"a": "b"}, namespace="n")
    verdict = decide_object(deployment, state)
    assert set(verdict.templates) == set(outcome.record.templates)
    translated = apply_json_patch(deployment, verdict.operations)
    assert [entry["name"] for entry in translated["spec"]["template"]["spec"]["resourceClaims"]] == of_pod
