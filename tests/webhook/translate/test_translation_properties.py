"""Properties of every translation: the patch makes only the intended changes, and it can be reversed."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra import validation
from tests.webhook.pods import (
    GPU_MODELS,
    KOORD,
    SIGNING_KEY,
    UNKNOWN,
    configured,
    container,
    example_fleet,
    patched,
    replay_update,
)
from webhook.claims import template
from webhook.names import DECISION, DEVICES, ORIGINAL, TEMPLATES, TRANSLATED_LABEL, WAITS_LABEL
from webhook.state import State
from webhook.translate.translate import translate

DIALECT_RESOURCES = {
    "nvidia.com/gpu": st.sampled_from([0, 1, 2, 3, 33]),
    "nvidia.com/gpu.shared": st.just(1),
    "nvidia.com/mig-1g.5gb": st.sampled_from([1, 2]),
    "nvidia.com/mig-3g.20gb": st.sampled_from([1, 2]),
    "nvidia.com/gpumem": st.sampled_from([0, 1000, 3000, "4k"]),
    "nvidia.com/gpumem-percentage": st.sampled_from([0, 50, 100]),
    "nvidia.com/gpucores": st.sampled_from([0, 30, 100, 150]),
    "nvidia.com/priority": st.sampled_from([0, 1]),
    KOORD + "gpu": st.sampled_from([30, 50, 100, 200]),
    KOORD + "gpu-core": st.sampled_from([50, 100]),
    KOORD + "gpu-memory": st.sampled_from(["4Gi", "8Gi"]),
    KOORD + "gpu-memory-ratio": st.sampled_from([50, 100]),
    KOORD + "gpu.shared": st.sampled_from([1, 2]),
    KOORD + "rdma": st.sampled_from([1, 100, 200]),
}
OTHER_RESOURCES = {
    "cpu": st.just("2"),
    "rdma/hca": st.just(1),
    "nvidia.com/hostdev": st.just(2),
    "example.com/we~ird": st.just(1),
}
ANNOTATIONS = {
    "nvidia.com/use-gputype": st.sampled_from(["A100", "h100, L40S", '"]) || true // "', ""]),
    "nvidia.com/nouse-gpuuuid": st.sampled_from(["GPU-1", "GPU-\\ü\n"]),
    "nvidia.com/numa-bind": st.sampled_from(["true", "maybe"]),
    "scheduling.koordinator.sh/device-joint-allocate": st.sampled_from(
        ['{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}', '{"deviceTypes":["gpu","rdma"]}']
    ),
    "team": st.just("a"),
}


@st.composite
def limits(draw) -> dict:
    system = draw(st.sampled_from(["nvidia.com/", KOORD]))
    keys = draw(
        st.lists(st.sampled_from([key for key in DIALECT_RESOURCES if key.startswith(system)]), max_size=3, unique=True)
    )
    other_keys = draw(st.lists(st.sampled_from(sorted(OTHER_RESOURCES)), max_size=2, unique=True))
    return {key: draw({**DIALECT_RESOURCES, **OTHER_RESOURCES}[key]) for key in (*keys, *other_keys)}


@st.composite
def containers(draw, prefix: str, max_count: int) -> list[dict]:
    drawn_containers = []
    for i in range(draw(st.integers(0 if prefix == "i" else 1, max_count))):
        drawn_container = container(f"{prefix}{i}", draw(st.none() | limits()))
        if drawn_container["resources"] and draw(st.booleans()):
            del drawn_container["resources"]["requests"]
        if draw(st.booleans()):
            drawn_container["resources"]["claims"] = [{"name": "mine"}]
        if prefix == "i" and draw(st.booleans()):
            drawn_container["restartPolicy"] = "Always"
        if draw(st.booleans()):
            drawn_container["fieldFromTheFuture"] = {"deep": [1, {"er": None}]}
        drawn_containers.append(drawn_container)
    return drawn_containers


@st.composite
def pods(draw) -> dict:
    spec: dict = {"containers": draw(containers("c", 3)), "alsoNew": [{"x": 1.5}]}
    if inits := draw(containers("i", 2)):
        spec["initContainers"] = inits
    if scheduler := draw(st.sampled_from(["", "default-scheduler", "hami-scheduler", "koord-scheduler", "elsewhere"])):
        spec["schedulerName"] = scheduler
    if any("claims" in container["resources"] for container in (*spec["containers"], *spec.get("initContainers", []))):
        spec["resourceClaims"] = [
            {"name": "mine", "resourceClaimName": "x"},
            {"name": "drawbridge-c0-gpu", "resourceClaimName": "y"},
        ]
    pod: dict = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    names = draw(st.lists(st.sampled_from(sorted(ANNOTATIONS)), max_size=3, unique=True))
    metadata = draw(st.sampled_from([None, {"name": "p"}, {"generateName": "p-"}]))
    if metadata is not None:
        pod["metadata"] = dict(metadata)
        if names:
            pod["metadata"]["annotations"] = {name: draw(ANNOTATIONS[name]) for name in names}
    return pod


CONFIGURATIONS = [
    configured(),
    configured(**GPU_MODELS, meanings={"nvidia.com/gpu": "whole"}, unresolved="leave"),
    configured(**GPU_MODELS, meanings={"nvidia.com/gpu": "hami"}, approximations="allow", numaBind="drop"),
    configured(**GPU_MODELS, meanings={"nvidia.com/gpu": "koordinator"}, koordinator={"wholeNICForShare": True}),
]
configurations_and_fleets = st.tuples(st.sampled_from(CONFIGURATIONS), st.sampled_from([UNKNOWN, example_fleet()]))


def verdict_with(pod, configuration_and_fleet, key=SIGNING_KEY):
    configuration, fleet = configuration_and_fleet
    keys = () if key is None else (key,)
    state = State(configuration=configuration, fleet=fleet, keys=keys)
    return translate(pod, state, namespace="n", sign=True)


def reversed_translation(pod: dict) -> dict:
    """Return the pod before its translation, as known from its record and the prefix of our names."""
    original = copy.deepcopy(pod)
    annotations = original["metadata"]["annotations"]
    record = json.loads(annotations[ORIGINAL])
    for name in (ORIGINAL, DECISION, DEVICES, TEMPLATES):
        del annotations[name]
    for label in (WAITS_LABEL, TRANSLATED_LABEL):
        del original["metadata"]["labels"][label]
    spec = original["spec"]
    own_names = {
        entry["name"]
        for entry in spec["resourceClaims"]
        if entry.get("resourceClaimTemplateName", "").startswith("drawbridge-")
    }
    spec["resourceClaims"] = [entry for entry in spec["resourceClaims"] if entry["name"] not in own_names]
    if "scheduledBy" in record:
        spec["schedulerName"] = record.get("schedulerName")
    for each_container in (*spec["containers"], *spec.get("initContainers", [])):
        resources = each_container.get("resources", {})
        resources["claims"] = [claim for claim in resources.get("claims", []) if claim["name"] not in own_names]
        resources["limits"] = {**resources.get("limits", {}), **record["containers"].get(each_container["name"], {})}
    return original


def normalized(pod: dict) -> dict:
    """Return a pod without requests and without empty maps and lists."""
    copied = copy.deepcopy(pod)
    for each_container in (*copied["spec"]["containers"], *copied["spec"].get("initContainers", [])):
        each_container.get("resources", {}).pop("requests", None)
    return pruned(copied)


def pruned(value):
    if isinstance(value, dict):
        return {key: inner for key, member in value.items() if (inner := pruned(member)) not in ({}, [], None)}
    return [pruned(item) for item in value] if isinstance(value, list) else value


@given(pods(), configurations_and_fleets)
def test_a_patch_is_reversible_and_leaves_the_input_unmodified(pod, configuration_and_fleet):
    copied = copy.deepcopy(pod)
    verdict = verdict_with(pod, configuration_and_fleet)
    assert pod == copied
    if verdict.changed:
        assert normalized(reversed_translation(patched(pod, verdict))) == normalized(pod)


@given(pods(), configurations_and_fleets)
def test_a_second_translation_changes_nothing(pod, configuration_and_fleet):
    verdict = verdict_with(pod, configuration_and_fleet)
    assert verdict == verdict_with(copy.deepcopy(pod), configuration_and_fleet)
    if verdict.changed:
        second_verdict = verdict_with(patched(pod, verdict), configuration_and_fleet)
        assert (second_verdict.operations, second_verdict.refusals, second_verdict.templates) == ((), (), {})


@given(pods(), configurations_and_fleets)
def test_applying_the_manifest_again_is_undone_by_the_replay(pod, configuration_and_fleet):
    verdict = verdict_with(pod, configuration_and_fleet)
    if not verdict.changed:
        return
    stored = patched(pod, verdict)
    applied = copy.deepcopy(
        stored
    )  # the result of kubectl's three-way merge: the manifest's fields over the stored object
    if "schedulerName" in pod["spec"]:
        applied["spec"]["schedulerName"] = pod["spec"]["schedulerName"]
    for field in ("containers", "initContainers"):
        for original, applied_container in zip(pod["spec"].get(field, []), applied["spec"].get(field, []), strict=True):
            for amounts in ("limits", "requests"):
                if amounts in original["resources"]:
                    applied_container["resources"][amounts] = copy.deepcopy(original["resources"][amounts])
    assert pruned(patched(applied, replay_update(applied, stored))) == pruned(stored)
    assert replay_update(stored, stored).operations == ()


@given(pods(), configurations_and_fleets)
def test_every_template_is_valid_named_by_its_content_and_used(pod, configuration_and_fleet):
    verdict = verdict_with(pod, configuration_and_fleet)
    for name, spec in verdict.templates.items():
        template_object = template.object_of(name, spec, "n")
        assert validation.errors(template_object) == []
        assert template.name_of(spec) == name
    if verdict.changed:
        patched_pod = patched(pod, verdict)
        referenced_names = {
            entry.get("resourceClaimTemplateName") for entry in patched_pod["spec"]["resourceClaims"]
        } - {None}
        assert referenced_names == set(verdict.templates)
        assert template.verify(
            patched_pod["metadata"]["annotations"][TEMPLATES], template.identify_raw(patched_pod, "n"), SIGNING_KEY
        ) == dict(verdict.templates)
        entries = [entry["name"] for entry in patched_pod["spec"]["resourceClaims"]]
        assert len(entries) == len(set(entries))
        for container in (*patched_pod["spec"]["containers"], *patched_pod["spec"].get("initContainers", [])):
            assert {claim["name"] for claim in container.get("resources", {}).get("claims", [])} <= set(entries)


@given(pods(), configurations_and_fleets)
def test_without_a_signing_key_only_signatures_are_missing(pod, configuration_and_fleet):
    signed, unsigned = (
        verdict_with(pod, configuration_and_fleet),
        verdict_with(pod, configuration_and_fleet, key=None),
    )
    assert unsigned.decisions == signed.decisions
    if signed.changed:
        with_signature, without_signature = patched(pod, signed), patched(pod, unsigned)
        annotations = with_signature["metadata"]["annotations"]
        del annotations[TEMPLATES]
        for label in (TRANSLATED_LABEL, WAITS_LABEL):
            del with_signature["metadata"]["labels"][label]
        assert with_signature["metadata"].pop("labels") == without_signature["metadata"].pop("labels", {})
        record = json.loads(annotations[ORIGINAL])
        del record["digest"]
        assert record == json.loads(without_signature["metadata"]["annotations"].pop(ORIGINAL))
        del annotations[ORIGINAL]
        assert with_signature == without_signature


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(name for name in globals() if name.startswith("test_")))
def test_the_properties_hold_for_many_examples(name):
    inner = globals()[name].hypothesis.inner_test
    settings(max_examples=5000)(given(pods(), configurations_and_fleets)(inner))()
