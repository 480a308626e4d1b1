"""The decision about a file equals the webhook's decision about the pod of the file, and the API server accepts the result."""

import json

from cluster import manifests
from dra import wire
from tests.loops import every
from tests.objects import claim_template, container, exactly, pod, template_entries
from tests.webhook.admission.reviews import KEY, answer, applied, review
from tests.webhook.pods import EXAMPLES, NVIDIA_BY_CLAIM, configured, refused_by_server, state_of_files
from webhook.admission import decide_object
from webhook.admission import review as reviewing
from webhook.names import BYPASS_HINT
from webhook.state.state import State

FLEET = manifests.read([EXAMPLES / "fleet"])


def state(*objects, **fields) -> State:
    documents = manifests.parse(manifests.dump(list(objects))) if objects else []
    file_state = state_of_files([*FLEET, *documents], configured(**(NVIDIA_BY_CLAIM | fields)))
    return State(**{name: getattr(file_state, name) for name in State.__struct_fields__} | {"keys": (KEY,)})


STATE = state()


def refusals_at_webhook(pod, world=STATE) -> tuple[str, ...]:
    """Review a pod twice, as an API server does. Return the reasons of a refusal."""
    namespace = pod["metadata"].get("namespace") or "default"
    mutating = reviewing.decide_review("mutate", review(pod, namespace=namespace), world)
    if not answer(mutating)["allowed"]:
        return _reasons(mutating)
    translated_pod = applied(pod, mutating)
    if translated_pod.get("spec", {}).get("resourceClaims"):
        validating = reviewing.decide_review("validate", review(translated_pod, namespace=namespace), world)
        if not answer(validating)["allowed"]:
            return _reasons(validating)
    return ()


def _reasons(outcome) -> tuple[str, ...]:
    message = answer(outcome)["status"]["message"]
    return tuple(message.removesuffix(f"; {BYPASS_HINT}").split("; ")) if message else ("",)


def refusals_of_file(pod, world=STATE) -> tuple[str, ...]:
    """Return the refusals of the decision about a file; none if the API server itself would refuse the pod."""
    verdict = decide_object(pod, world)
    if refused_by_server(verdict) or not verdict.refusals:
        return ()
    return tuple("; ".join(map(str, verdict.refusals)).split("; "))


def pod_in_n(limits=None, *, requests=None, claims=(), namespace="n", **metadata):
    """Return a pod of the namespace n. `claims` has the names of the templates of its claims."""
    containers = [container(limits=limits or {}, requests=requests or None, claims=claims)]
    entries = {"resourceClaims": template_entries(*claims)} if claims else {}
    return pod(namespace=namespace, containers=containers, **entries, **metadata)


GPU, MEM, CORES, PERCENT = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage"
PODS = {
    "one": pod_in_n({GPU: 1}),
    "nine": pod_in_n({GPU: 9}),
    "half a GPU": pod_in_n({GPU: "0.5"}),
    "unequal limits and requests": pod_in_n({GPU: 2}, requests={GPU: 1}),
    "requests only": pod_in_n(requests={GPU: 1}),
    "blanks": pod_in_n({GPU: " 1 "}),
    "memory in bytes": pod_in_n({GPU: 1, MEM: 8 << 30}),
    "wrong unit": pod_in_n({GPU: 1, MEM: "8Gi"}),
    "too large": pod_in_n({GPU: 1, MEM: 900000}),
    "missing MIG profile": pod_in_n({"nvidia.com/mig-1g.12gb": 1}),
    "missing product": pod_in_n({GPU: 1, MEM: 1000}, annotations={"nvidia.com/use-gputype": "A1000"}),
    "two systems": pod_in_n({GPU: 1, MEM: 1000, "koordinator.sh/gpu-core": 50}),
    "two hundred": pod_in_n({GPU: 200}),
    "own claim and key": pod_in_n({GPU: 3}, claims=["three"]),
    "only its own": pod_in_n(claims=["three"]),
    "skipped": pod_in_n({GPU: 9}, labels={"drawbridge.dev/skip": "true"}),
}
PODS["nine containers"] = pod_in_n({GPU: 1})
PODS["nine containers"]["spec"]["containers"] = [
    {**PODS["one"]["spec"]["containers"][0], "name": f"c{index}"} for index in range(9)
]
THREE_GPU_TEMPLATE = claim_template("three", exactly("gpu.nvidia.com", name="g", count=3), namespace="n")
STATE_WITH_TEMPLATE = state(THREE_GPU_TEMPLATE)
# The keys of two systems are not translated, because claims cannot express them together.
NOT_TRANSLATED = {"two systems"}
REFUSED = {name for name in PODS if name not in ("one", "blanks", "only its own", "skipped")} - NOT_TRANSLATED


@every("name", PODS)
def test_a_file_and_the_webhook_give_equal_messages(name):
    refusal = refusals_at_webhook(PODS[name], STATE_WITH_TEMPLATE)
    verdict = decide_object(PODS[name], STATE_WITH_TEMPLATE)
    assert bool(refusal) == bool(verdict.refusals) == (name in REFUSED), (refusal, verdict.refusals)
    assert name == "own claim and key" or refusals_of_file(PODS[name], STATE_WITH_TEMPLATE) == refusal
    if verdict.refusals:
        assert (verdict.operations, verdict.templates) == ((), {})


def test_a_pod_invalid_for_the_api_server_is_refused():
    invalid = pod_in_n({GPU: 1})
    invalid["spec"]["ephemeralContainers"] = [{"name": "d", "image": "i"}]
    (refusal,) = decide_object(invalid, STATE).refusals
    assert "[D210]" in str(refusal)
    assert "the API server refuses it" in str(refusal)
    assert str(decide_object(pod_in_n({"example.com/device": "0.5"}), State()).refusals[0]).endswith("[R001]"), (
        "a key that no dialect has is not judged"
    )


def test_a_refusal_names_the_requesting_container_and_key():
    (refusal,) = [decision for decision in decide_object(PODS["nine"], STATE).decisions if decision.code]
    assert (refusal.object, refusal.container, refusal.key, refusal.code) == ("Pod/n/p", "main", GPU, "R023")
    assert "container main (nvidia.com/gpu: 9) requests 9 devices" in refusal.detail
    assert refusal.remedy


def test_the_record_of_a_refusal_has_its_code():
    outcome = reviewing.decide_review("mutate", review(PODS["nine"]), STATE)
    assert [decision.code for decision in outcome.record.decisions if decision.code] == ["R023"]
    assert json.loads(wire.encode(outcome.record))["decisions"][-1]["container"] == "main"


def test_a_template_of_the_same_input_is_known():
    assert STATE_WITH_TEMPLATE.templates["n", "three"].devices.requests[0].name == "g"
    assert decide_object(PODS["only its own"], STATE_WITH_TEMPLATE).warnings == ()
    assert "does not exist yet" in decide_object(PODS["only its own"], STATE).warnings[0]
