import base64
import copy
import json
import random
import tracemalloc

import jsonpatch
import msgspec
import pytest

from dra import wire
from dra.objects.claim import ResourceClaimSpec
from dra.stock.stock import Stock
from tests.draws import draws
from tests.objects import (
    admission_review,
    claim,
    container,
    device_class,
    exactly,
    node,
    obj,
    pod,
    resource_slice,
    typed,
)
from tests.webhook.pods import configured
from webhook.admission import admission_review as reviews
from webhook.admission import answer_timeout
from webhook.admission import review as admission
from webhook.claims import template
from webhook.names import MODE_LABEL
from webhook.state.configuration import DEFAULT, Configuration
from webhook.state.inventory import Inventory
from webhook.state.node_templates import prospects
from webhook.state.state import State

KEY = b"k" * 32
GPU = "gpu.nvidia.com"


def device(index):
    attributes = {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{index}"}, "productName": {"string": "A100"}}
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}


SLICE = typed(resource_slice("s", *(device(i) for i in range(4)), driver=GPU, pool="n", nodeName="n"))
CLASS = typed(device_class(GPU, f"device.driver == '{GPU}'"))
NODE = typed(node("n"))
STOCK = Stock.of(slices=[SLICE], classes=[CLASS], nodes=[NODE])


def state(*, mode="enforce", canary=100, stock=STOCK, **changes):
    configuration = Configuration(msgspec.structs.replace(DEFAULT, mode=mode, canary=canary))
    return State(
        configuration=configuration,
        fleet=Inventory.gather([CLASS], [SLICE], [NODE]),
        keys=(KEY,),
        stock=stock,
        **changes,
    )


ENFORCE = state()


def gpu_pod(*, limits=None, name="p", namespace="", **metadata):
    """Return a pod as the webhook sees it: without a namespace, and with a field of a future Kubernetes."""
    limits = {"nvidia.com/gpu": "1"} if limits is None else limits
    containers = [container(limits=limits, fromTheFuture={"kept": [1]})]
    return pod(name, namespace=namespace, containers=containers, schedulerName="default-scheduler", **metadata)


def review(obj, *, operation="CREATE", old=None, resource="pods", group="", namespace="ns", sub="", **more):
    request = {
        "uid": "u",
        "kind": {"group": group, "version": "v1", "kind": obj.get("kind", "") if isinstance(obj, dict) else ""},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "subResource": sub,
        "namespace": namespace,
    }
    return json.dumps(admission_review(obj, operation=operation, oldObject=old, **request | more)).encode()


def answer(outcome):
    return json.loads(outcome.body)["response"]


def applied(obj, outcome):
    """Return the object with the answer's patch; jsonpatch applies it, so drawbridge's own code is not tested against itself."""
    response = answer(outcome)
    if "patch" not in response:
        return obj
    return jsonpatch.apply_patch(obj, json.loads(base64.b64decode(response["patch"])))


def mutated(obj, current_state=ENFORCE, **kwargs):
    outcome = admission.mutate(review(obj, **kwargs), current_state)
    return applied(obj, outcome), outcome


def translated(obj):
    """Return the translated pod; no devices are known, so that nothing is refused."""
    return mutated(obj, state(stock=None))[0]


def untouched(outcome):
    return answer(outcome) == {"uid": "u", "allowed": True}


# Mutation


def test_a_legacy_pod_becomes_a_pod_with_a_signed_claim():
    after, outcome = mutated(gpu_pod())
    (entry,) = after["spec"]["resourceClaims"]
    signed = after["metadata"]["annotations"]["drawbridge.dev/templates"]
    proven = template.verify(signed, template.identify_raw(after, "ns"), KEY)
    assert list(proven) == [entry["resourceClaimTemplateName"]] == list(outcome.record.templates)
    assert "nvidia.com/gpu" not in after["spec"]["containers"][0]["resources"].get("limits", {})
    assert outcome.record.outcome == "translated"


def test_unknown_fields_survive():
    after, _ = mutated(gpu_pod())
    assert after["spec"]["containers"][0]["fromTheFuture"] == {"kept": [1]}


def test_a_second_invocation_changes_nothing():
    after, _ = mutated(gpu_pod())
    again, outcome = mutated(after)
    assert again == after
    assert "patch" not in answer(outcome)


def test_a_dry_run_gets_the_same_answer():
    assert (
        admission.mutate(review(gpu_pod(), dryRun=True), ENFORCE).body
        == admission.mutate(review(gpu_pod()), ENFORCE).body
    )


@pytest.mark.parametrize(
    "changed",
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
def test_pods_without_keys_to_translate_are_untouched(changed):
    _, outcome = mutated(changed)
    assert untouched(outcome)
    assert not outcome.record.worth_telling


@pytest.mark.parametrize(
    "asked",
    [
        {"sub": "ephemeralcontainers", "operation": "UPDATE"},
        {"sub": "status", "operation": "UPDATE"},
        {"sub": "resize", "operation": "UPDATE"},
        {"resource": "deployments", "group": "apps"},
        {"operation": "DELETE"},
        {"operation": "CONNECT"},
    ],
)
def test_other_operations_and_kinds_are_untouched(asked):
    _, outcome = mutated(gpu_pod(), **asked)
    assert untouched(outcome)


def test_a_refusal_names_container_key_and_remedy():
    _, outcome = mutated(gpu_pod(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500m"}))
    response = answer(outcome)
    assert (response["allowed"], response["status"]["code"]) == (False, 422)
    for part in ("container main", "nvidia.com/gpumem", "1500m", "ask for whole ones", "[R001]", "skip=true"):
        assert part in response["status"]["message"]


def test_a_pod_with_a_taken_template_name_is_refused():
    """A template that somebody else created under this name must not choose the pod's devices."""
    (name,) = mutated(gpu_pod())[1].record.templates
    other = wire.convert(
        {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": GPU, "count": 7}}]}}, ResourceClaimSpec
    )
    taken_name = msgspec.structs.replace(
        ENFORCE, templates={("ns", name): other}, template_owners={("ns", name): "it belongs to Job x"}
    )
    response = answer(mutated(gpu_pod(), taken_name)[1])
    assert not response["allowed"]
    for part in (f"ns/{name}", "it belongs to Job x", "until it is deleted"):
        assert part in response["status"]["message"]
    observing = msgspec.structs.replace(taken_name, namespaces={"ns": {"drawbridge.dev/mode": "observe"}})
    assert answer(mutated(gpu_pod(), observing)[1])["allowed"]


@pytest.mark.parametrize("mode", ["off", "observe", "warn"])
def test_templates_are_signed_in_mode_enforce_only(mode):
    """Otherwise any client of the port could get a signature for a namespace of its choice."""
    current_state = msgspec.structs.replace(ENFORCE, namespaces={"ns": {"drawbridge.dev/mode": mode}})
    outcome = mutated(gpu_pod(), current_state)[1]
    assert "patch" not in answer(outcome)
    assert b"v2 " not in outcome.body


# Modes


def test_observe_only_records_decisions():
    for limits in ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500m"}):
        _, outcome = mutated(gpu_pod(limits=limits), state(mode="observe"))
        response = answer(outcome)
        assert response["allowed"]
        assert "patch" not in response
        assert "warnings" not in response
        assert outcome.record.outcome in ("would translate", "would refuse")
        assert outcome.record.decisions


def test_warn_warns_and_changes_nothing():
    for limits in ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500m"}):
        _, outcome = mutated(gpu_pod(limits=limits), state(mode="warn"))
        response = answer(outcome)
        assert response["allowed"]
        assert "patch" not in response
        assert "would" in response["warnings"][0]


def test_warn_also_warns_of_impossible_claims():
    _, outcome = mutated(gpu_pod(limits={"nvidia.com/gpu": "16"}), state(mode="warn"))
    assert any("even if idle" in text for text in answer(outcome)["warnings"])


def test_off_makes_no_decision():
    _, outcome = mutated(gpu_pod(), state(mode="off"))
    assert untouched(outcome)
    assert not outcome.record.decisions


def test_all_modes_make_the_same_decisions():
    decisions = [mutated(gpu_pod(), state(mode=mode))[1].record.decisions for mode in ("observe", "warn", "enforce")]
    assert decisions[0] == decisions[1] == decisions[2]


def test_a_namespace_label_sets_the_mode():
    current_state = state(mode="observe", namespaces={"ns": {"drawbridge.dev/mode": "enforce"}})
    assert mutated(gpu_pod(), current_state)[1].record.mode == "enforce"
    assert mutated(gpu_pod(), current_state, namespace="other")[1].record.mode == "observe"


def test_the_canary_covers_whole_workloads():
    current_state = state(canary=50)
    modes = set()
    for index in range(40):
        owner = {"kind": "ReplicaSet", "name": f"web-{index}-abc", "controller": True}
        several = [
            mutated(
                gpu_pod(
                    name="",
                    generateName=f"web-{index}-abc-",
                    ownerReferences=[owner],
                    labels={"pod-template-hash": "abc"},
                ),
                current_state,
            )[1].record.mode
            for _ in range(3)
        ]
        assert len(set(several)) == 1
        modes |= set(several)
    assert modes == {"warn", "enforce"}


# Replay


def test_a_second_apply_of_the_manifest_is_replayed():
    stored, _ = mutated(gpu_pod())
    again = copy.deepcopy(stored)
    again["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    after, outcome = mutated(again, operation="UPDATE", old=stored)
    assert after["spec"]["containers"][0]["resources"].get("limits") in (None, {})
    assert outcome.record.outcome == "replayed"


def test_an_update_is_replayed_in_mode_warn():
    stored, _ = mutated(gpu_pod())
    again = copy.deepcopy(stored)
    again["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    after, outcome = mutated(again, state(mode="warn"), operation="UPDATE", old=stored)
    assert outcome.record.outcome == "replayed"
    assert after["spec"]["containers"][0]["resources"].get("limits") in (None, {})


@pytest.mark.parametrize(("mode", "expected"), [("observe", "would replay"), ("off", "off")])
def test_observe_and_off_do_not_replay_an_update(mode, expected):
    stored, _ = mutated(gpu_pod())
    again = copy.deepcopy(stored)
    again["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    after, outcome = mutated(again, state(mode=mode), operation="UPDATE", old=stored)
    assert after == again
    assert outcome.record.outcome == expected


def test_an_update_translates_nothing():
    plain = gpu_pod(limits={})
    _, outcome = mutated(gpu_pod(), operation="UPDATE", old=plain)
    assert untouched(outcome)


def test_the_webhook_ignores_strategy_annotations():
    """The bridge reads the strategy from the pod. No claim depends on it, and it may change."""
    key = "drawbridge.dev/strategy"
    plain, _ = mutated(gpu_pod())
    stored, _ = mutated(gpu_pod(annotations={key: "best"}))
    templates = "drawbridge.dev/templates"
    assert stored["metadata"]["annotations"].pop(key) == "best"
    assert stored["spec"] == plain["spec"]
    assert stored["metadata"]["annotations"].keys() == plain["metadata"]["annotations"].keys() >= {templates}
    changed = copy.deepcopy(stored)
    changed["metadata"]["annotations"][key] = "topology"
    after, outcome = mutated(changed, operation="UPDATE", old=stored)
    assert after == changed
    assert not outcome.record.outcome.startswith("refused")


def test_an_update_to_another_amount_is_not_replayed():
    stored, _ = mutated(gpu_pod())
    again = copy.deepcopy(stored)
    again["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "2"}
    assert untouched(mutated(again, operation="UPDATE", old=stored)[1])


# Forged annotations

FORGED = {
    "drawbridge.dev/original": '{"containers":{"main":{"nvidia.com/gpu":"1"}}}',
    "drawbridge.dev/decision": '{"version":"9","decisions":[]}',
    "drawbridge.dev/devices": '{"main":[]}',
    "drawbridge.dev/templates": "v2 00 {}",
}


@pytest.mark.parametrize("names", [FORGED, ["drawbridge.dev/devices"], ["drawbridge.dev/original"]])
@pytest.mark.parametrize("limits", [{"nvidia.com/gpu": "1"}, {"cpu": "1"}, {"nvidia.com/gpumemory": "1"}])
def test_forged_drawbridge_annotations_are_replaced_or_removed(names, limits):
    forged = gpu_pod(limits=limits, annotations={"team": "a", **{name: FORGED[name] for name in names}})
    after, _ = mutated(forged)
    clean, _ = mutated(gpu_pod(limits=limits, annotations={"team": "a"}))
    assert after == clean


@pytest.mark.parametrize(("mode", "kept"), [("warn", False), ("observe", True), ("off", True)])
def test_observe_and_off_keep_forged_annotations(mode, kept):
    forged = gpu_pod(annotations={"team": "a", **FORGED})
    after, outcome = mutated(forged, state(mode=mode))
    assert after["spec"] == forged["spec"]
    assert (after == forged) is kept
    if not kept:
        assert after["metadata"]["annotations"] == {"team": "a"}
        assert any("not written by drawbridge" in text for text in answer(outcome)["warnings"])


def test_warn_removes_forged_annotations_of_a_refused_pod():
    forged = gpu_pod(limits={"nvidia.com/gpu": "one"}, annotations=FORGED)
    after, outcome = mutated(forged, state(mode="warn"))
    assert outcome.record.outcome == "would refuse"
    assert "annotations" not in after["metadata"]


def test_an_interrupted_decision_removes_forged_annotations():
    outcome = admission.mutate(review(gpu_pod(annotations=FORGED)), ENFORCE, impatient=lambda: True)
    assert outcome.record.outcome == "undecided"
    assert "annotations" not in applied(gpu_pod(annotations=FORGED), outcome)["metadata"]


@pytest.mark.parametrize(("mode", "kept"), [("enforce", False), ("warn", False), ("observe", True), ("off", True)])
def test_the_timeout_answer_removes_forged_annotations(mode, kept):
    forged = gpu_pod(annotations={"team": "a", **FORGED})
    outcome = answer_timeout("mutate", review(forged), state(mode=mode))
    assert (applied(forged, outcome) == forged) is kept
    assert ("warnings" not in answer(outcome)) is kept, "observe and off return no warnings"
    ours, _ = mutated(gpu_pod())
    assert applied(ours, answer_timeout("mutate", review(ours), state(mode=mode))) == ours


def test_the_timeout_answer_keeps_only_genuine_annotations():
    ours, _ = mutated({**gpu_pod(), "metadata": {"generateName": "p-", "labels": {"a": "b"}}})
    late = answer_timeout("mutate", review(ours), ENFORCE)
    assert applied(ours, late) == ours
    for name in (
        "drawbridge.dev/devices",
        "drawbridge.dev/decision",
        "drawbridge.dev/original",
        "drawbridge.dev/templates",
    ):
        changed = copy.deepcopy(ours)
        changed["metadata"]["annotations"][name] += " "
        after = applied(changed, answer_timeout("mutate", review(changed), ENFORCE))
        assert not [key for key in after["metadata"].get("annotations", {}) if key.startswith("drawbridge.dev/")], name
    skipped = gpu_pod(annotations=FORGED, labels={"drawbridge.dev/skip": "true"})
    assert applied(skipped, answer_timeout("mutate", review(skipped), ENFORCE)) == skipped


MARKED = '"annotations":{"drawbridge.dev/devices":"x","team":"a"}'
FULL = {
    "containers": f'{{"metadata":{{{MARKED}}},"spec":{{"containers":[MANY]}}}}',
    "labels": f'{{"metadata":{{{MARKED},"labels":{{"a":[MANY]}}}}}}',
    "annotations": f'{{"metadata":{{{MARKED[:-1]},"b":[MANY]}}}}}}',
    "an unknown field": f'{{"metadata":{{{MARKED}}},"unknown":[MANY]}}',
}


@pytest.mark.parametrize("small", ["{}", "[]", "0", '{"name":""}', '{"":{}}'])
@pytest.mark.parametrize("place", FULL)
def test_the_timeout_answer_skips_large_content(small, place):
    """Decoding 7 MiB of `{}` took 2.4 s in one uninterruptible call."""
    many = ",".join([small] * (1_000_000 // len(small)))
    body = review("OBJECT").replace(b'"OBJECT"', FULL[place].replace("MANY", many).encode())
    tracemalloc.start()
    try:
        outcome = answer_timeout("mutate", body, ENFORCE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000, "the content was decoded"
    patch = json.loads(base64.b64decode(answer(outcome)["patch"]))
    assert patch == [{"op": "remove", "path": "/metadata/annotations/drawbridge.dev~1devices"}]


@pytest.mark.parametrize("namespace", ["ns", "other"])
def test_a_forged_record_changes_no_update(namespace):
    stored = gpu_pod(annotations=FORGED)
    update = copy.deepcopy(stored)
    update["metadata"]["finalizers"] = []
    after, outcome = mutated(update, operation="UPDATE", old=stored, namespace=namespace)
    assert after == update
    assert untouched(outcome)


def test_a_copied_record_without_our_claim_changes_no_update():
    ours, _ = mutated(gpu_pod())
    stored = gpu_pod(annotations=ours["metadata"]["annotations"])
    assert untouched(mutated(copy.deepcopy(stored), operation="UPDATE", old=stored)[1])


@pytest.mark.parametrize("old", [None, -1, "x", [], [{}]])
def test_an_update_without_an_old_object_changes_nothing(old):
    assert untouched(mutated(gpu_pod(), operation="UPDATE", old=old)[1])


@pytest.mark.parametrize("part", ["ownerReferences", "labels", "annotations", "name", "generateName"])
@pytest.mark.parametrize("odd", [1, "x", [1], {"a": 1}])
def test_metadata_of_the_wrong_shape_is_answered(part, odd):
    obj = gpu_pod() | {"metadata": {"ownerReferences": [{"controller": True, "name": "r"}], part: odd}}
    for decide in (admission.mutate, admission.validate):
        assert answer(decide(review(obj), ENFORCE))["uid"] == "u"


def test_a_record_of_another_namespace_is_not_replayed():
    ours, _ = mutated(gpu_pod(), namespace="theirs")
    again = copy.deepcopy(ours)
    again["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    assert untouched(mutated(again, operation="UPDATE", old=ours, namespace="ns")[1])


@pytest.mark.parametrize("name", ["drawbridge.dev/devices", "drawbridge.dev/decision"])
def test_tampering_with_one_annotation_removes_all(name):
    ours, _ = mutated(gpu_pod())
    ours["metadata"]["annotations"][name] = FORGED[name]
    after, outcome = mutated(ours)
    assert not {key for key in after["metadata"].get("annotations", {}) if key.startswith("drawbridge.dev/")}
    assert outcome.record.outcome == "cleaned"


def test_a_pod_with_too_large_annotations_is_left():
    large = gpu_pod(annotations={"team": "x" * (256 * 1024 - 200)})
    after, outcome = mutated(large)
    assert after == large
    assert "256 KiB" in answer(outcome)["warnings"][0]
    assert {str(decision.outcome) for decision in outcome.record.decisions} == {"left"}


# Validation


def validated(obj, current_state=ENFORCE, **kwargs):
    return admission.validate(review(obj, **kwargs), current_state)


def gpu_claim(class_=GPU, count=1, **fields):
    return claim("c", exactly(class_, count=count), namespace="") | fields


def claim_request(**kwargs):
    return {"resource": "resourceclaims", "group": "resource.k8s.io"} | kwargs


def test_a_claim_that_fits_gets_no_warning():
    assert untouched(validated(gpu_claim(), **claim_request()))


def test_the_refusal_of_a_claim_mentions_no_pod():
    message = answer(validated(gpu_claim(count=9), **claim_request()))["status"]["message"]
    assert "could not serve this claim even if idle" in message


def test_a_missing_class_is_refused_with_the_existing_classes():
    response = answer(validated(gpu_claim("gpu.example.com"), **claim_request()))
    assert not response["allowed"]
    assert "no DeviceClass gpu.example.com" in response["status"]["message"]
    assert GPU in response["status"]["message"]


def test_nothing_is_refused_while_devices_are_unknown():
    assert untouched(validated(gpu_claim("gpu.example.com"), state(stock=None), **claim_request()))


def test_a_translated_pod_passes():
    after, _ = mutated(gpu_pod())
    assert untouched(validated(after))


def test_templates_with_an_invalid_signature_are_ignored():
    after, _ = mutated(gpu_pod())
    notes = after["metadata"]["annotations"]
    notes["drawbridge.dev/templates"] = notes["drawbridge.dev/templates"].replace('"count":1', '"count":4')
    response = answer(validated(after))
    assert response["allowed"]
    assert any("was not written by this installation" in warning for warning in response["warnings"])


def test_a_record_without_a_claim_is_ignored():
    forged = gpu_pod(annotations={"drawbridge.dev/original": '{"containers":{"main":{"nvidia.com/gpu":"1"}}}'})
    assert answer(validated(forged))["allowed"]


def test_a_pod_that_waits_for_a_missing_claim_is_warned():
    waiting = gpu_pod(limits={})
    waiting["spec"]["resourceClaims"] = [{"name": "a", "resourceClaimName": "later"}]
    response = answer(validated(waiting))
    assert response["allowed"]
    assert "ResourceClaim later does not exist yet" in response["warnings"][0]


def limited_workload(kind="Deployment", **limits):
    """Return a workload whose pods have these limits."""
    template_ = {"metadata": {}, "spec": gpu_pod(limits=limits)["spec"]}
    spec = {"template": template_} if kind != "CronJob" else {"jobTemplate": {"spec": {"template": template_}}}
    return obj(kind, "w", "batch/v1" if kind == "CronJob" else "apps/v1", **spec)


@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_a_workload_is_warned_and_never_refused(kind):
    group, plural = ("batch", "cronjobs") if kind == "CronJob" else ("apps", "deployments")
    bad = limited_workload(kind, **{"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500m"})
    response = answer(validated(bad, resource=plural, group=group))
    assert response["allowed"]
    assert "its pods will be refused" in response["warnings"][0]
    good = limited_workload(kind, **{"nvidia.com/gpu": "1"})
    assert untouched(validated(good, resource=plural, group=group))


# Refusals


def test_an_impossible_pod_is_warned_if_configured():
    after = translated(gpu_pod(limits={"nvidia.com/gpu": "16"}))
    file = msgspec.structs.replace(DEFAULT, mode="enforce", impossible="warn")
    lenient = msgspec.structs.replace(ENFORCE, configuration=Configuration(file))
    assert not answer(validated(after))["allowed"]
    response = answer(validated(after, lenient))
    assert response["allowed"]
    assert "never" in response["warnings"][0]


def test_a_pod_served_by_a_node_template_is_admitted():
    after = translated(gpu_pod(limits={"nvidia.com/gpu": "8"}))
    assert not answer(validated(after))["allowed"]
    (template,) = configured(nodeTemplates=[{"name": "big", "devices": [device_entry(8)]}]).file.node_templates
    response = answer(validated(after, state(prospects=prospects((template,), STOCK))))
    assert response["allowed"]
    assert "a node of template big could" in response["warnings"][0]
    after = translated(gpu_pod(limits={"nvidia.com/gpu": "9"}))
    assert not answer(validated(after, state(prospects=prospects((template,), STOCK))))["allowed"]


def device_entry(count):
    plain = device(0)
    return {"driver": GPU, "count": count, "attributes": plain["attributes"], "capacity": plain["capacity"]}


@pytest.mark.parametrize("kind", ["DeviceClass", "ResourceSlice", "Node"])
def test_unreadable_objects_turn_refusals_into_warnings(kind):
    asked = gpu_claim("gpu.elsewhere")
    kwargs = {"resource": "resourceclaims", "group": "resource.k8s.io"}
    assert "no DeviceClass gpu.elsewhere" in answer(validated(asked, **kwargs))["status"]["message"]
    response = answer(validated(asked, state(incomplete=frozenset({kind})), **kwargs))
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith(f"this may never work, but some {kind} objects could not be read: ")
    assert "no DeviceClass gpu.elsewhere" in warning


def test_unreadable_templates_do_not_affect_claims():
    lacking = state(incomplete=frozenset({"ResourceClaim", "ResourceClaimTemplate"}))
    kwargs = {"resource": "resourceclaims", "group": "resource.k8s.io"}
    assert not answer(validated(gpu_claim("gpu.elsewhere"), lacking, **kwargs))["allowed"]


def test_an_unreadable_template_is_not_called_missing():
    asked = gpu_pod()
    asked["spec"]["resourceClaims"] = [{"name": "a", "resourceClaimTemplateName": "t"}]
    (missing,) = answer(validated(asked))["warnings"]
    assert missing == "ResourceClaimTemplate t does not exist yet: the pod waits until it does"
    (unread,) = answer(validated(asked, state(incomplete=frozenset({"ResourceClaimTemplate"}))))["warnings"]
    assert unread == "ResourceClaimTemplate t could not be read, and was not checked"


def test_a_refusal_has_code_remedy_and_skip_label():
    after = translated(gpu_pod(limits={"nvidia.com/gpu": "16"}))
    message = answer(validated(after))["status"]["message"]
    for part in (
        "container main (nvidia.com/gpu: 16) asks for 16 devices",
        "largest node has 4",
        "it would fit if container main asked for no more than 4 devices",
        "[R023]",
        "skip=true",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("amount", "is_accepted"),
    [("9e19", True), ("9" * 64, True), ("9" * 310, True), ("10000000000000000000", False), ("1" * 64, False)],
)
def test_an_amount_beyond_64_bits_is_refused(amount, is_accepted):
    """The API server checks thousandths, which overflow for some larger amounts (`tests/dra/validation/test_pods.py`)."""
    _, outcome = mutated(gpu_pod(limits={"nvidia.com/gpu": amount}))
    assert answer(outcome)["allowed"] is is_accepted
    assert [decision.outcome for decision in outcome.record.decisions] == ["left" if is_accepted else "refused"]


def test_a_review_that_times_out_is_allowed_with_warning():
    after = translated(gpu_pod(limits={"nvidia.com/gpu": "16"}))
    outcome = admission.validate(review(after), ENFORCE, impatient=lambda: True)
    assert answer(outcome)["allowed"]
    assert "could not be decided in time" in answer(outcome)["warnings"][0]
    assert outcome.record.outcome == "undecided"


def test_nothing_is_refused_by_a_stale_cache():
    percent = gpu_pod(limits={"nvidia.com/gpumem-percentage": "50"})
    sizeless = msgspec.structs.replace(ENFORCE, fleet=Inventory(), configuration=configured(unresolved="refuse"))
    assert "[R006]" in answer(mutated(percent, sizeless)[1])["status"]["message"]
    old = msgspec.structs.replace(sizeless, stock=None, confirmed=False)
    after, outcome = mutated(percent, old)
    assert after == percent
    assert outcome.record.outcome == "left"
    lacking = msgspec.structs.replace(sizeless, incomplete=frozenset({"ResourceSlice"}))
    assert mutated(percent, lacking)[1].record.outcome == "left"
    taken, _ = mutated(gpu_pod())
    name = taken["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    taken_name = {("ns", name): wire.convert({"devices": {"requests": []}}, ResourceClaimSpec)}
    assert "[R011]" in answer(mutated(gpu_pod(), state(templates=taken_name))[1])["status"]["message"]
    assert answer(mutated(gpu_pod(), msgspec.structs.replace(old, templates=taken_name))[1])["allowed"]


# Hostile input


@pytest.mark.parametrize("obj", [None, [], "x", 7, True])
@pytest.mark.parametrize("decide", [admission.mutate, admission.validate])
def test_a_review_without_an_object_is_refused(decide, obj):
    response = answer(decide(review(obj), ENFORCE))
    assert response["allowed"] is False
    assert response["status"]["code"] == 400


def broken(value, rng):
    """Return a copy of a JSON value with one part replaced by a value of another type."""
    value = copy.deepcopy(value)
    junk = rng.choice([None, 0, -1, 1e300, True, "", "\u0000", "x" * 300, [], {}, [None], {"": None}, [[[]]]])
    where = value
    while isinstance(where, dict | list) and where:
        key = rng.choice(list(where)) if isinstance(where, dict) else rng.randrange(len(where))
        if rng.random() < 0.3 or not isinstance(where[key], dict | list):
            where[key] = junk
            return value
        where = where[key]
    return value


@pytest.mark.parametrize("seed", range(draws(400)))
def test_a_malformed_object_always_gets_an_answer(seed):
    rng = random.Random(seed)
    start = mutated(gpu_pod(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "koordinator.sh/gpu": "50"}))[0]
    obj = rng.choice([gpu_pod(), start, limited_workload(**{"nvidia.com/gpu": "1"}), gpu_claim()])
    for _ in range(rng.randint(1, 4)):
        obj = broken(obj, rng)
    for decide in (admission.mutate, admission.validate):
        for asked in (
            {},
            {"operation": "UPDATE", "old": start},
            claim_request(),
            {"resource": "deployments", "group": "apps"},
        ):
            try:
                response = answer(decide(review(obj, **asked), ENFORCE))
            except reviews.ReviewError as error:
                assert error.status == 400  # noqa: PT017  an error and a response are both answers
            else:
                assert response["uid"] == "u"


def test_an_object_that_cannot_be_decoded_is_allowed():
    strange = gpu_claim()
    strange["spec"]["devices"]["requests"][0]["exactly"]["count"] = "from the future"
    response = answer(validated(strange, **claim_request()))
    assert response["allowed"]
    assert "so it is not checked" in response["warnings"][0]


def test_deep_nesting_is_a_bad_request():
    deep = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":{"spec":' + b"[" * 500_000  # fmt: skip
    with pytest.raises(reviews.ReviewError):
        admission.mutate(deep + b"]" * 500_000 + b"}}}", ENFORCE)


# Slices, classes, and drawbridge's own kinds


def compatibility(**spec):
    return {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DeviceCompatibility",
        "metadata": {"name": "c"},
        "spec": spec,
    }


def test_a_valid_compatibility_rule_is_allowed():
    good = compatibility(driver=GPU, compatibleOnlyWith="device.driver == 'x'")
    assert untouched(validated(good, resource="devicecompatibilities", group="drawbridge.dev", namespace=""))


def test_a_compatibility_rule_that_does_not_compile_is_refused():
    bad = compatibility(driver=GPU, compatibleOnlyWith="device.driver = 'x'")
    response = answer(validated(bad, resource="devicecompatibilities", group="drawbridge.dev", namespace=""))
    assert not response["allowed"]
    assert "/spec/compatibleOnlyWith" in response["status"]["message"]


def test_an_invalid_slice_is_warned_and_never_refused():
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {"driver": "UPPER"},
    }
    response = answer(validated(slice_, resource="resourceslices", group="resource.k8s.io", namespace=""))
    assert response["allowed"]
    assert response["warnings"]


# Unreadable objects of a namespace


UNREADABLE = state(unsure={"ns": ("ResourceQuota",)})
UNREADABLE_WARNING = "drawbridge translates and refuses nothing in namespace ns: ResourceQuota could not be read, so its rules are unknown"


def test_a_pod_of_an_unreadable_namespace_is_left():
    after, outcome = mutated(gpu_pod(), UNREADABLE)
    assert after == gpu_pod()
    assert outcome.record.outcome == "would translate"
    assert answer(outcome)["warnings"][-1] == UNREADABLE_WARNING
    assert UNREADABLE_WARNING in outcome.record.problems


def test_an_invalid_mode_of_a_namespace_is_warned():
    misspelt = state(namespaces={"ns": {MODE_LABEL: "Off"}})
    after, outcome = mutated(gpu_pod(), misspelt)
    assert after == gpu_pod()
    expected = "its label drawbridge.dev/mode='Off' is not a valid mode (expected off, observe, warn, enforce)"
    assert expected in answer(outcome)["warnings"][-1]
    assert "warnings" not in answer(mutated(gpu_pod(limits={}), misspelt)[1])


def test_a_pod_is_not_refused_with_unreadable_limits():
    impossible = gpu_pod(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500m"})
    assert not answer(mutated(impossible)[1])["allowed"]
    after, outcome = mutated(impossible, UNREADABLE)
    assert after == impossible
    assert answer(outcome)["allowed"]
    assert answer(outcome)["warnings"][-1] == UNREADABLE_WARNING


def test_unreadable_limits_affect_only_device_pods_of_the_namespace():
    assert "warnings" not in answer(mutated(gpu_pod(limits={}), UNREADABLE)[1])
    after, _ = mutated(gpu_pod(), UNREADABLE, namespace="elsewhere")
    assert after != gpu_pod()


def test_off_and_observe_modes_hold_while_limit_ranges_are_unknown():
    for mode in ("off", "observe"):
        outcome = mutated(gpu_pod(), state(mode=mode, unsure={"ns": ("LimitRange",)}))[1]
        assert outcome.record.mode == mode
        assert "warnings" not in answer(outcome)


def test_a_translated_pod_survives_an_unreadable_namespace():
    """Its update is replayed all the same; otherwise the API server would refuse it."""
    before, _ = mutated(gpu_pod())
    kept, outcome = mutated(gpu_pod(), UNREADABLE, operation="UPDATE", old=before)
    known, _ = mutated(gpu_pod(), ENFORCE, operation="UPDATE", old=before)
    assert kept == known
    assert outcome.record.outcome == "replayed"
