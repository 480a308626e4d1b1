import base64
import copy
import json
import tracemalloc

import msgspec
import pytest

from dra import wire
from dra.objects.claim import ResourceClaimSpec
from tests.loops import every
from tests.webhook.admission.reviews import (
    ENFORCE,
    FORGED,
    GPU,
    KEY,
    answer,
    applied,
    gpu_pod,
    mutated,
    review,
    state,
    untouched,
)
from webhook.admission import answer_timeout, decide_object
from webhook.admission import review as admission
from webhook.claims import template
from webhook.translate import outcome_of

# Mutation


def test_a_legacy_pod_becomes_a_pod_with_a_signed_claim():
    translated_pod, outcome = mutated(gpu_pod())
    (entry,) = translated_pod["spec"]["resourceClaims"]
    signed = translated_pod["metadata"]["annotations"]["drawbridge.dev/templates"]
    verified = template.verify(signed, template.identify_raw(translated_pod, "ns"), KEY)
    assert list(verified) == [entry["resourceClaimTemplateName"]] == list(outcome.record.templates)
    assert "nvidia.com/gpu" not in translated_pod["spec"]["containers"][0]["resources"].get("limits", {})
    assert outcome.record.outcome == "translated"


def test_a_translation_keeps_unknown_fields():
    translated_pod, _ = mutated(gpu_pod())
    assert translated_pod["spec"]["containers"][0]["fromTheFuture"] == {"kept": [1]}


def test_keys_of_no_dialect_are_on_the_pod_and_in_the_log():
    """The outcome is that of `drawbridge translate`, which reads no record."""
    pod = gpu_pod()
    pod["spec"]["containers"][0]["resources"]["limits"]["example.com/odd"] = 1
    translated_pod, outcome = mutated(pod)
    recorded = json.loads(translated_pod["metadata"]["annotations"]["drawbridge.dev/decision"])["decisions"]
    logged = {decision.key: str(decision.outcome) for decision in outcome.record.decisions}
    assert logged == {decision["key"]: decision["outcome"] for decision in recorded}
    assert logged == {"nvidia.com/gpu": "translated", "example.com/odd": "unknown"}
    assert outcome_of(outcome.record.decisions) == outcome_of(decide_object(pod, ENFORCE).decisions)


def test_a_second_invocation_changes_nothing():
    translated_pod, _ = mutated(gpu_pod())
    again, outcome = mutated(translated_pod)
    assert again == translated_pod
    assert "patch" not in answer(outcome)


def test_a_dry_run_gets_the_same_answer():
    assert (
        admission.decide_review("mutate", review(gpu_pod(), dryRun=True), ENFORCE).body
        == admission.decide_review("mutate", review(gpu_pod()), ENFORCE).body
    )


@pytest.mark.parametrize(
    "value",
    [
        gpu_pod(labels={"drawbridge.dev/skip": "true"}),
        gpu_pod(annotations={"kubernetes.io/config.mirror": "x"}),
        gpu_pod() | {"spec": gpu_pod()["spec"] | {"nodeName": "n"}},
        gpu_pod(limits={"cpu": "1"}),
        gpu_pod(limits={}),
        {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}},
        {"kind": "Pod", "metadata": {"name": "p"}},
        {},
    ],
    ids=["skip", "mirror", "bound", "no accelerator", "no limits", "no resources", "no spec", "nothing at all"],
)
def test_exempt_pods_and_pods_without_accelerators_are_untouched(value):
    _, outcome = mutated(value)
    assert untouched(outcome)
    assert not outcome.record.is_logged_at_info


@pytest.mark.parametrize(
    "review_fields",
    [
        {"sub": "ephemeralcontainers", "operation": "UPDATE"},
        {"sub": "status", "operation": "UPDATE"},
        {"sub": "resize", "operation": "UPDATE"},
        {"resource": "deployments", "group": "apps"},
        {"operation": "DELETE"},
        {"operation": "CONNECT"},
    ],
)
def test_objects_of_other_operations_and_kinds_are_untouched(review_fields):
    _, outcome = mutated(gpu_pod(), **review_fields)
    assert untouched(outcome)


def test_a_refusal_names_container_key_and_remedy():
    _, outcome = mutated(gpu_pod(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500m"}))
    response = answer(outcome)
    assert (response["allowed"], response["status"]["code"]) == (False, 422)
    for part in ("container main", "nvidia.com/gpumem", "1500m", "ask for a whole number", "[R001]", "skip=true"):
        assert part in response["status"]["message"]


def test_a_pod_is_refused_if_its_templates_name_is_taken():
    """A template that somebody else created with this name must not determine the pod's devices."""
    (name,) = mutated(gpu_pod())[1].record.templates
    other_spec = wire.convert(
        {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": GPU, "count": 7}}]}}, ResourceClaimSpec
    )
    taken_name = msgspec.structs.replace(
        ENFORCE, templates={("ns", name): other_spec}, template_owners={("ns", name): "it belongs to Job x"}
    )
    response = answer(mutated(gpu_pod(), taken_name)[1])
    assert not response["allowed"]
    for part in (f"ns/{name}", "it belongs to Job x", "until it is deleted"):
        assert part in response["status"]["message"]
    observing = msgspec.structs.replace(taken_name, namespaces={"ns": {"drawbridge.dev/mode": "observe"}})
    assert answer(mutated(gpu_pod(), observing)[1])["allowed"]


AWAITED = {
    "a Job's pod": ({}, {}, True),
    "a pod without a controller": ({"owner": None}, {}, False),
    "a pod of a controller that is not watched": ({"owner": "PyTorchJob"}, {}, False),
    "a dry run": ({}, {"dryRun": True}, False),
    "a pod that the mode does not change": ({"mode": "warn"}, {}, False),
}


@pytest.mark.parametrize("case", AWAITED)
def test_only_answers_to_translated_workload_pods_await_templates(case):
    changes, request, awaits = AWAITED[case]
    kind = changes.get("owner", "Job")
    owners = {"ownerReferences": [{"kind": kind, "name": "j", "controller": True}]} if kind else {}
    _, outcome = mutated(gpu_pod(**owners), state(mode=changes.get("mode", "enforce")), **request)
    expected = tuple(("ns", name) for name in outcome.record.templates) if awaits else ()
    assert outcome.record.templates
    assert outcome.awaited_templates == expected


@pytest.mark.parametrize("names", [FORGED, ["drawbridge.dev/devices"], ["drawbridge.dev/original"]])
@pytest.mark.parametrize("limits", [{"nvidia.com/gpu": "1"}, {"cpu": "1"}, {"nvidia.com/gpumemory": "1"}])
def test_forged_drawbridge_annotations_are_replaced_or_removed(names, limits):
    forged = gpu_pod(limits=limits, annotations={"team": "a", **{name: FORGED[name] for name in names}})
    reviewed, _ = mutated(forged)
    clean, _ = mutated(gpu_pod(limits=limits, annotations={"team": "a"}))
    assert reviewed == clean


def test_an_interrupted_decision_removes_forged_annotations():
    outcome = admission.decide_review(
        "mutate", review(gpu_pod(annotations=FORGED)), ENFORCE, is_out_of_time=lambda: True
    )
    assert outcome.record.outcome == "undecided"
    assert "annotations" not in applied(gpu_pod(annotations=FORGED), outcome)["metadata"]


@pytest.mark.parametrize(("mode", "is_kept"), [("enforce", False), ("warn", False), ("observe", True), ("off", True)])
def test_the_timeout_answer_removes_forged_annotations(mode, is_kept):
    forged = gpu_pod(annotations={"team": "a", **FORGED})
    outcome = answer_timeout("mutate", review(forged), state(mode=mode))
    assert (applied(forged, outcome) == forged) is is_kept
    assert ("warnings" not in answer(outcome)) is is_kept, "a warning is returned in the modes enforce and warn only"
    translated_pod, _ = mutated(gpu_pod())
    assert applied(translated_pod, answer_timeout("mutate", review(translated_pod), state(mode=mode))) == translated_pod


def test_the_timeout_answer_keeps_only_genuine_annotations():
    translated_pod, _ = mutated({**gpu_pod(), "metadata": {"generateName": "p-", "labels": {"a": "b"}}})
    late = answer_timeout("mutate", review(translated_pod), ENFORCE)
    assert applied(translated_pod, late) == translated_pod
    for name in (
        "drawbridge.dev/devices",
        "drawbridge.dev/decision",
        "drawbridge.dev/original",
        "drawbridge.dev/templates",
    ):
        changed = copy.deepcopy(translated_pod)
        changed["metadata"]["annotations"][name] += " "
        reviewed = applied(changed, answer_timeout("mutate", review(changed), ENFORCE))
        assert not [key for key in reviewed["metadata"].get("annotations", {}) if key.startswith("drawbridge.dev/")], (
            name
        )


def test_the_timeout_answer_never_changes_a_skipped_pod():
    skipped = gpu_pod(annotations=FORGED, labels={"drawbridge.dev/skip": "true"})
    assert applied(skipped, answer_timeout("mutate", review(skipped), ENFORCE)) == skipped


FORGED_JSON = '"annotations":{"drawbridge.dev/devices":"x","team":"a"}'
# Pods with large content, by its place. The test replaces MANY by many values.
LARGE_AT = {
    "containers": f'{{"metadata":{{{FORGED_JSON}}},"spec":{{"containers":[MANY]}}}}',
    "labels": f'{{"metadata":{{{FORGED_JSON},"labels":{{"a":[MANY]}}}}}}',
    "annotations": f'{{"metadata":{{{FORGED_JSON[:-1]},"b":[MANY]}}}}}}',
    "an unknown field": f'{{"metadata":{{{FORGED_JSON}}},"unknown":[MANY]}}',
}


@every("element", ["{}", "[]", "0", '{"name":""}', '{"":{}}'])
@every("location", LARGE_AT)
def test_the_timeout_answer_skips_large_content(element, location):
    """Decoding 7 MiB of `{}` takes 2.4 s in one call, which cannot be interrupted."""
    repeated = ",".join([element] * (1_000_000 // len(element)))
    body = review("OBJECT").replace(b'"OBJECT"', LARGE_AT[location].replace("MANY", repeated).encode())
    tracemalloc.start()
    try:
        outcome = answer_timeout("mutate", body, ENFORCE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000, "the content was decoded"
    patch = json.loads(base64.b64decode(answer(outcome)["patch"]))
    assert patch == [{"op": "remove", "path": "/metadata/annotations/drawbridge.dev~1devices"}]


@every("part", ["ownerReferences", "labels", "annotations", "name", "generateName"])
@every("value", [1, "x", [1], {"a": 1}])
def test_metadata_of_the_wrong_shape_gets_an_answer(part, value):
    obj = gpu_pod() | {"metadata": {"ownerReferences": [{"controller": True, "name": "r"}], part: value}}
    for path in ("mutate", "validate"):
        assert answer(admission.decide_review(path, review(obj), ENFORCE))["uid"] == "u"


@pytest.mark.parametrize("name", ["drawbridge.dev/devices", "drawbridge.dev/decision"])
def test_tampering_with_one_annotation_removes_all(name):
    translated_pod, _ = mutated(gpu_pod())
    translated_pod["metadata"]["annotations"][name] = FORGED[name]
    reviewed, outcome = mutated(translated_pod)
    assert not {key for key in reviewed["metadata"].get("annotations", {}) if key.startswith("drawbridge.dev/")}
    assert outcome.record.outcome == "cleaned"


def test_a_pod_with_too_large_annotations_is_not_translated():
    large = gpu_pod(annotations={"team": "x" * (256 * 1024 - 200)})
    reviewed, outcome = mutated(large)
    assert reviewed == large
    assert "256 KiB" in answer(outcome)["warnings"][0]
    assert {str(decision.outcome) for decision in outcome.record.decisions} == {"left"}
