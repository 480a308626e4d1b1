"""Properties of every translation: the patch makes the intended changes only, and it can be reversed."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra import validation
from tests.draws import draws
from tests.webhook.pods import KEY, KOORD, SIZES, UNKNOWN, configured, container, example_fleet, patched, replayed
from webhook.claims import template
from webhook.names import DECISION, DEVICES, ORIGINAL, TEMPLATES, TRANSLATED_LABEL, WAITS_LABEL
from webhook.state import State
from webhook.translate.translate import translate

KNOWN = {
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
OTHERS = {
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
    keys = draw(st.lists(st.sampled_from([key for key in KNOWN if key.startswith(system)]), max_size=3, unique=True))
    more = draw(st.lists(st.sampled_from(sorted(OTHERS)), max_size=2, unique=True))
    return {key: draw({**KNOWN, **OTHERS}[key]) for key in (*keys, *more)}


@st.composite
def containers(draw, prefix: str, most: int) -> list[dict]:
    made = []
    for i in range(draw(st.integers(0 if prefix == "i" else 1, most))):
        drawn = container(f"{prefix}{i}", draw(st.none() | limits()))
        if drawn["resources"] and draw(st.booleans()):
            del drawn["resources"]["requests"]
        if draw(st.booleans()):
            drawn["resources"]["claims"] = [{"name": "mine"}]
        if prefix == "i" and draw(st.booleans()):
            drawn["restartPolicy"] = "Always"
        if draw(st.booleans()):
            drawn["fieldFromTheFuture"] = {"deep": [1, {"er": None}]}
        made.append(drawn)
    return made


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
    configured(**SIZES, meanings={"nvidia.com/gpu": "whole"}, unresolved="leave"),
    configured(**SIZES, meanings={"nvidia.com/gpu": "hami"}, approximations="allow", numaBind="drop"),
    configured(**SIZES, meanings={"nvidia.com/gpu": "koordinator"}, koordinator={"wholeNICForShare": True}),
]
worlds = st.tuples(st.sampled_from(CONFIGURATIONS), st.sampled_from([UNKNOWN, example_fleet()]))
every = settings(max_examples=draws(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def run(pod, world, key=KEY):
    configuration, fleet = world
    keys = () if key is None else (key,)
    state = State(configuration=configuration, fleet=fleet, keys=keys)
    return translate(pod, state, namespace="n", sign=True)


def undone(pod: dict) -> dict:
    """Reverse a translation, using only its record and the prefix of our names."""
    before = copy.deepcopy(pod)
    annotations = before["metadata"]["annotations"]
    record = json.loads(annotations[ORIGINAL])
    for name in (ORIGINAL, DECISION, DEVICES, TEMPLATES):
        del annotations[name]
    for label in (WAITS_LABEL, TRANSLATED_LABEL):
        del before["metadata"]["labels"][label]
    spec = before["spec"]
    ours = {
        entry["name"]
        for entry in spec["resourceClaims"]
        if entry.get("resourceClaimTemplateName", "").startswith("drawbridge-")
    }
    spec["resourceClaims"] = [entry for entry in spec["resourceClaims"] if entry["name"] not in ours]
    if "scheduledBy" in record:
        spec["schedulerName"] = record.get("schedulerName")
    for each_container in (*spec["containers"], *spec.get("initContainers", [])):
        resources = each_container.get("resources", {})
        resources["claims"] = [claim for claim in resources.get("claims", []) if claim["name"] not in ours]
        resources["limits"] = {**resources.get("limits", {}), **record["containers"].get(each_container["name"], {})}
    return before


def plain(pod: dict) -> dict:
    """Normalize a pod: drop empty maps and lists, and requests that equal the limits."""
    value = copy.deepcopy(pod)
    for each_container in (*value["spec"]["containers"], *value["spec"].get("initContainers", [])):
        each_container.get("resources", {}).pop("requests", None)
    return pruned(value)


def pruned(value):
    if isinstance(value, dict):
        return {key: inner for key, member in value.items() if (inner := pruned(member)) not in ({}, [], None)}
    return [pruned(item) for item in value] if isinstance(value, list) else value


@every
@given(pods(), worlds)
def test_a_patch_is_reversible_and_leaves_the_input_unmodified(pod, world):
    kept = copy.deepcopy(pod)
    verdict = run(pod, world)
    assert pod == kept
    if verdict.changed:
        assert plain(undone(patched(pod, verdict))) == plain(pod)


@every
@given(pods(), worlds)
def test_a_second_translation_changes_nothing(pod, world):
    verdict = run(pod, world)
    assert verdict == run(copy.deepcopy(pod), world)
    if verdict.changed:
        second_verdict = run(patched(pod, verdict), world)
        assert (second_verdict.operations, second_verdict.refusals, second_verdict.templates) == ((), (), {})


def _is_bound(known):
    """Return whether a key is translated only together with the other keys of its container. Keys of independent dialects are not."""
    return bool(known) and not known[0].dialect.independent


@every
@given(pods(), worlds)
def test_a_container_keeps_all_of_its_keys_or_none(pod, world):
    verdict = run(pod, world)
    if not verdict.changed:
        return
    patched_pod = patched(pod, verdict)
    configuration, _ = world
    for part in ("containers", "initContainers"):
        for old, new in zip(pod["spec"].get(part, []), patched_pod["spec"].get(part, []), strict=True):
            before = {key for key in old["resources"].get("limits", {}) if _is_bound(configuration.resource(key))}
            gone = before - set(new.get("resources", {}).get("limits", {}))
            assert not gone or all(old["resources"]["limits"][key] == 0 for key in before - gone)
            assert not gone & set(new.get("resources", {}).get("requests", {}))


@every
@given(pods(), worlds)
def test_applying_the_manifest_again_is_undone_by_the_replay(pod, world):
    verdict = run(pod, world)
    if not verdict.changed:
        return
    stored = patched(pod, verdict)
    applied = copy.deepcopy(
        stored
    )  # the result of kubectl's three-way merge: the manifest's fields over the stored object
    if "schedulerName" in pod["spec"]:
        applied["spec"]["schedulerName"] = pod["spec"]["schedulerName"]
    for part in ("containers", "initContainers"):
        for old, new in zip(pod["spec"].get(part, []), applied["spec"].get(part, []), strict=True):
            for amounts in ("limits", "requests"):
                if amounts in old["resources"]:
                    new["resources"][amounts] = copy.deepcopy(old["resources"][amounts])
    assert pruned(patched(applied, replayed(applied, stored))) == pruned(stored)
    assert replayed(stored, stored).operations == ()


@every
@given(pods(), worlds)
def test_every_template_is_valid_named_by_its_content_and_used(pod, world):
    verdict = run(pod, world)
    for name, spec in verdict.templates.items():
        made = template.object_of(name, spec, "n")
        assert validation.errors(made) == []
        assert template.name_of(spec) == name
    if verdict.changed:
        patched_pod = patched(pod, verdict)
        named = {entry.get("resourceClaimTemplateName") for entry in patched_pod["spec"]["resourceClaims"]} - {None}
        assert named == set(verdict.templates)
        assert template.verify(
            patched_pod["metadata"]["annotations"][TEMPLATES], template.identify_raw(patched_pod, "n"), KEY
        ) == dict(verdict.templates)
        entries = [entry["name"] for entry in patched_pod["spec"]["resourceClaims"]]
        assert len(entries) == len(set(entries))
        for container in (*patched_pod["spec"]["containers"], *patched_pod["spec"].get("initContainers", [])):
            assert {claim["name"] for claim in container.get("resources", {}).get("claims", [])} <= set(entries)


@every
@given(pods(), worlds)
def test_without_a_signing_key_only_signatures_are_missing(pod, world):
    signed, open_ = run(pod, world), run(pod, world, key=None)
    assert open_.decisions == signed.decisions
    if signed.changed:
        with_signature, without = patched(pod, signed), patched(pod, open_)
        notes = with_signature["metadata"]["annotations"]
        del notes[TEMPLATES]
        for label in (TRANSLATED_LABEL, WAITS_LABEL):
            del with_signature["metadata"]["labels"][label]
        assert with_signature["metadata"].pop("labels") == without["metadata"].pop("labels", {})
        record = json.loads(notes[ORIGINAL])
        del record["digest"]
        assert record == json.loads(without["metadata"]["annotations"].pop(ORIGINAL))
        del notes[ORIGINAL]
        assert with_signature == without


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(name for name in globals() if name.startswith("test_")))
def test_the_properties_hold_for_many_examples(name):
    inner = globals()[name].hypothesis.inner_test
    settings(every, max_examples=5000)(given(pods(), worlds)(inner))()
