"""KAI and Run:ai: annotations that request GPUs on pods of KAI's scheduler."""

import copy
import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dra.quantity import parse
from tests.loops import every
from tests.objects import obj
from tests.webhook.dialects.rows import rows_not_translated
from tests.webhook.pods import (
    GPU_MODELS,
    WHOLE_GPUS,
    alternatives,
    configured,
    container,
    containers_with_claims,
    devices,
    exactly,
    outcomes,
    patched,
    pod,
    refused,
    replay_update,
    share,
    untouched,
    verdict_of,
)
from webhook import registration
from webhook.admission import decide_object
from webhook.dialects.kai import KAI
from webhook.state.state import State

KAI_SCHEDULER = {"scheduler": "kai-scheduler"}
ROWS = rows_not_translated(KAI, {}, **KAI_SCHEDULER)
TRANSLATE_FRACTIONS = {"kai": {"fractions": "translate"}}


def pod_with_annotation(key: str, value: str, *, queue: str = "", scheduler: str = "") -> dict:
    manifest = pod({}, annotations={key: value}, scheduler=scheduler)
    if queue:
        manifest["metadata"]["labels"] = {queue: "q"}
    return manifest


def kai_pod(*limits: dict, labels: dict | None = None, init: tuple = (), **annotations: str) -> dict:
    """Return a pod for KAI's scheduler with annotations, such as `gpu_memory="2000"`. An underscore becomes a hyphen."""
    renamed = {key.replace("_", "-"): value for key, value in annotations.items()}
    manifest = pod(*(limits or ({},)), annotations=renamed, init=init, **KAI_SCHEDULER)
    if labels:
        manifest["metadata"]["labels"] = labels
    return manifest


@pytest.mark.parametrize(("key", "value"), [("gpu-fraction", "0.5"), ("gpu-memory", "2000")])
@pytest.mark.parametrize(
    "scheduler_or_queue", [KAI_SCHEDULER, {"queue": "kai.scheduler/queue"}, {"queue": "runai/queue"}]
)
def test_a_share_is_left_unchanged_with_a_warning(key, value, scheduler_or_queue):
    verdict = verdict_of(pod_with_annotation(key, value, **scheduler_or_queue))
    assert untouched(verdict)
    assert outcomes(verdict) == {key: "left"}
    assert key in verdict.warnings[0]


@pytest.mark.parametrize("options", [{}, TRANSLATE_FRACTIONS])
@pytest.mark.parametrize("key", ["gpu-fraction", "gpu-memory", "nvidia.com/container.c0.gpu-memory.request"])
def test_kai_annotations_are_ignored_for_other_schedulers(key, options):
    verdict = verdict_of(pod_with_annotation(key, "1"), **options)
    assert not verdict.decisions
    assert not verdict.warnings


@pytest.mark.parametrize("options", [{}, TRANSLATE_FRACTIONS])
def test_a_pod_in_a_queue_keeps_its_scheduler(options):
    manifest = pod({"nvidia.com/gpu": 1}, **KAI_SCHEDULER)
    manifest["metadata"]["labels"] = {"kai.scheduler/queue": "q"}
    assert untouched(verdict_of(manifest, **WHOLE_GPUS, **options))


def test_memory_becomes_a_share_and_the_pod_leaves_kai():
    manifest = kai_pod(gpu_memory="2000", labels={"kai.scheduler/queue": "q"})
    verdict = verdict_of(manifest, **TRANSLATE_FRACTIONS)
    assert exactly(verdict) == [share(memory="2000Mi", cores="0")]
    patched_pod = patched(manifest, verdict)
    assert patched_pod["spec"]["schedulerName"] == "default-scheduler"
    assert "gpu-memory" not in patched_pod["metadata"]["annotations"]
    assert patched_pod["metadata"]["labels"]["kai.scheduler/queue"] == "q"
    assert outcomes(verdict) == {
        "gpu-memory": "approximated",
        "kai.scheduler/queue": "approximated",
        "schedulerName": "translated",
    }
    assert any("the queue no longer counts it" in warning for warning in verdict.warnings)


def test_a_fraction_is_resolved_as_hamis_percentage_is():
    hami_pod = pod({"nvidia.com/gpumem-percentage": 50, "nvidia.com/gpucores": 0}, scheduler="hami-scheduler")
    verdict = verdict_of(kai_pod(gpu_fraction="0.5"), **TRANSLATE_FRACTIONS, **GPU_MODELS)
    assert verdict.templates == verdict_of(hami_pod, **GPU_MODELS).templates
    assert untouched(verdict_of(kai_pod(gpu_fraction="0.5"), **TRANSLATE_FRACTIONS))
    assert refused(verdict_of(kai_pod(gpu_fraction="0.5"), unresolved="refuse", **TRANSLATE_FRACTIONS))


@pytest.mark.parametrize(
    ("text", "first_memory"),
    [("0.125", "5Gi"), (".25", "10Gi"), ("5e-1", "20Gi"), ("0.333", "13639Mi"), ("0.29", "11878Mi")],
)
def test_a_fraction_need_not_be_a_whole_percentage(text, first_memory):
    verdict = verdict_of(kai_pod(gpu_fraction=text), **TRANSLATE_FRACTIONS, **GPU_MODELS)
    assert alternatives(verdict)[0][0] == {"memory": first_memory, "cores": "0"}


@given(mib=some.integers(100, 2**20), text=some.decimals("0.01", "0.99", places=4).map(str))
def test_a_fraction_is_rounded_down_to_whole_mebibytes(mib, text):
    verdict = verdict_of(
        kai_pod(gpu_fraction=text), models=[{"product": "A", "memory": f"{mib}Mi"}], **TRANSLATE_FRACTIONS
    )
    ((amounts,),) = alternatives(verdict)
    assert parse(amounts["memory"]).as_int() == int(mib * Fraction(text)) << 20


def test_shares_of_several_gpus_are_on_distinct_gpus():
    verdict = verdict_of(kai_pod(gpu_memory="2000", gpu_fraction_num_devices="2"), **TRANSLATE_FRACTIONS)
    assert exactly(verdict) == [share(memory="2000Mi", cores="0")] * 2
    assert devices(verdict)["constraints"][0]["distinctAttribute"].endswith("/uuid")


@pytest.mark.parametrize(("annotations", "user_container"), [({}, "c0"), ({"gpu_fraction_container_name": "c1"}, "c1"), ({"gpu_fraction_container_name": "i0"}, "i0")])  # fmt: skip
def test_the_named_or_first_container_gets_the_claim(annotations, user_container):
    manifest = kai_pod({}, {}, init=(container("i0", {}),), gpu_memory="2000", **annotations)
    assert containers_with_claims(manifest, verdict_of(manifest, **TRANSLATE_FRACTIONS)) == [user_container]


@every(
    "annotations",
    [
        {"gpu_memory": "2000", "gpu_fraction": "0.5"},
        *({"gpu_memory": text} for text in ("0", "-1", "2Gi", "1.5", "+5", "", "1_000", "٣", "9" * 30)),
        *({"gpu_fraction": text} for text in ("0", "1", "1.0", "-0.5", "0x1p-1", "nan", "inf", "500m", "50%", "0_1.5", "", "0." + "3" * 90)),
        *({"gpu_memory": "2000", "gpu_fraction_num_devices": text} for text in ("0", "-2", "1.5", "two", "")),
        {"gpu_memory": "2000", "gpu_fraction_container_name": "other"},
    ],
)  # fmt: skip
def test_a_pod_that_kai_denies_is_refused_only_if_translated(annotations):
    assert refused(verdict_of(kai_pod(**annotations), **TRANSLATE_FRACTIONS))
    assert untouched(verdict_of(kai_pod(**annotations)))


def test_whole_gpus_beside_a_fraction_are_refused_as_by_kai():
    manifest = kai_pod({"nvidia.com/gpu": 1}, gpu_memory="2000")
    assert refused(verdict_of(manifest, **TRANSLATE_FRACTIONS))
    assert untouched(verdict_of(manifest))


@pytest.mark.parametrize("key", ["nvidia.com/gpumem", "nvidia.com/mig-1g.5gb"])
def test_a_fraction_beside_gpumem_or_mig_keys_is_left_unchanged(key):
    verdict = verdict_of(kai_pod({key: 1}, gpu_memory="2000"), **TRANSLATE_FRACTIONS)
    assert untouched(verdict)
    assert outcomes(verdict) == {"gpu-memory": "left", key: "left"}


def test_a_network_device_beside_a_fraction_is_translated_too():
    manifest = kai_pod({"vpc.amazonaws.com/efa": 1}, gpu_memory="2000")
    verdict = verdict_of(manifest, **TRANSLATE_FRACTIONS)
    assert len(verdict.templates) == 2
    assert patched(manifest, verdict)["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize("key", ["runai/shared-gpu-configmap", "received-resource-type", "gpu-fraction-limit"])
def test_pods_that_kai_prepared_or_that_burst_are_unchanged(key):
    manifest = kai_pod(gpu_memory="2000")
    manifest["metadata"]["annotations"][key] = "x"
    verdict = verdict_of(manifest, **TRANSLATE_FRACTIONS)
    assert untouched(verdict)
    assert outcomes(verdict)[key] == outcomes(verdict)["gpu-memory"] == "left"


def test_a_pod_with_a_runai_memory_limit_is_left_unchanged():
    manifest = kai_pod(gpu_memory="2000")
    manifest["spec"]["containers"][0]["env"] = [{"name": "RUNAI_GPU_MEMORY_LIMIT", "value": "4G"}]
    assert untouched(verdict_of(manifest, **TRANSLATE_FRACTIONS))
    assert configured(**TRANSLATE_FRACTIONS).reads_all, "the webhook does not read the environment variables of the pod"
    assert not configured().reads_all


@pytest.mark.parametrize(
    ("key", "value", "outcome"),
    [
        ("mps", "true", "approximated"),
        ("mps", "false", ""),
        ("kai.scheduler/gpu-compute-sharing-mode", "sm-sharing", "approximated"),
        ("kai.scheduler/gpu-compute-sharing-mode", "time-slicing", "translated"),
        ("kai.scheduler/gpu-compute-sharing-mode", "another", "translated"),
        ("kai.scheduler/preemption-delay", "5m", "approximated"),
        ("pod-group-name", "g", "approximated"),
    ],
)
def test_a_kai_annotation_is_approximated_if_its_effect_is_lost(key, value, outcome):
    manifest = kai_pod(gpu_memory="2000")
    manifest["metadata"]["annotations"][key] = value
    verdict = verdict_of(manifest, **TRANSLATE_FRACTIONS)
    assert exactly(verdict) == [share(memory="2000Mi", cores="0")]
    assert outcomes(verdict).get(key, "") == outcome


def test_a_pod_is_left_unchanged_if_approximations_are_disabled():
    assert untouched(verdict_of(kai_pod(gpu_memory="2000"), approximations="leave", **TRANSLATE_FRACTIONS))


def applied_again(patched_pod: dict, annotations: dict) -> dict:
    """Return a translated pod to which a manifest for KAI's scheduler with these annotations is applied again."""
    updated = copy.deepcopy(patched_pod)
    updated["metadata"]["annotations"] |= annotations
    updated["spec"]["schedulerName"] = "kai-scheduler"
    return updated


def test_a_second_review_changes_nothing_and_an_update_is_replayed():
    manifest = kai_pod(gpu_memory="2000", gpu_fraction_num_devices="2", labels={"kai.scheduler/queue": "q"})
    patched_pod = patched(manifest, verdict_of(manifest, **TRANSLATE_FRACTIONS))
    second_verdict = verdict_of(patched_pod, **TRANSLATE_FRACTIONS)
    assert not second_verdict.operations
    assert not second_verdict.warnings
    updated = applied_again(patched_pod, {"gpu-memory": "2000"})
    assert patched(updated, replay_update(updated, patched_pod)) == patched_pod
    updated = applied_again(patched_pod, {"gpu-memory": "3000"})
    assert patched(updated, replay_update(updated, patched_pod))["metadata"]["annotations"]["gpu-memory"] == "3000"


@pytest.mark.parametrize(("text", "is_refused"), [("2000", False), ("3000", True)])
def test_an_annotation_restored_by_another_webhook_is_removed_or_refused(text, is_refused):
    manifest = kai_pod(gpu_memory="2000")
    patched_pod = patched(manifest, verdict_of(manifest, **TRANSLATE_FRACTIONS))
    patched_pod["metadata"]["annotations"]["gpu-memory"] = text
    second_verdict = verdict_of(patched_pod, **TRANSLATE_FRACTIONS)
    assert bool(second_verdict.refusals) is is_refused
    if not is_refused:
        assert "gpu-memory" not in patched(patched_pod, second_verdict)["metadata"]["annotations"]
        assert not second_verdict.templates


def test_the_api_server_sends_fractions_only_where_they_are_translated():
    translating, default = configured(**TRANSLATE_FRACTIONS), configured()
    condition, default_condition = (registration.on_mutate(of.dialects) for of in (translating, default))
    for text in ("'gpu-memory'", "k.startsWith('nvidia.com/container.')"):
        assert text in condition
        assert text not in default_condition
    names = {"gpu-memory", "gpu-fraction", memory_annotation("<container>", "request")}
    assert names <= set(registration.names_not_sent(translating, default))
    assert names <= set(registration.names_not_sent_by(default_condition, translating))
    assert registration.names_not_sent(default, translating) == []
    assert registration.names_not_sent_by(condition, translating) == []


def test_renamed_annotations_are_read_and_removed_by_their_names():
    manifest = kai_pod(vram="2000", how_many="2")
    renamed = {"kai": {"gpu-memory": "vram", "gpu-fraction-num-devices": "how-many"}}
    verdict = verdict_of(manifest, keys=renamed, **TRANSLATE_FRACTIONS)
    assert len(exactly(verdict)) == 2
    assert {"vram", "how-many"}.isdisjoint(patched(manifest, verdict)["metadata"]["annotations"])


def test_the_record_lists_the_removed_annotations():
    manifest = kai_pod({"vpc.amazonaws.com/efa": 1}, gpu_memory="2000")
    annotations = patched(manifest, verdict_of(manifest, **TRANSLATE_FRACTIONS))["metadata"]["annotations"]
    record = json.loads(annotations["drawbridge.dev/original"])
    assert record["annotations"] == ["gpu-memory"]
    assert record["containers"]["c0"] == {"gpu-memory": "2000", "vpc.amazonaws.com/efa": 1}


def test_an_annotation_gives_a_workload_in_a_file_no_toleration():
    manifest = kai_pod({"vpc.amazonaws.com/efa": 1}, gpu_memory="2000")
    job = obj("Job", "j", "batch/v1", namespace="n", template=manifest)
    verdict = decide_object(job, State(configuration=configured(**TRANSLATE_FRACTIONS)))
    template = patched(job, verdict)["spec"]["template"]
    assert [toleration["key"] for toleration in template["spec"]["tolerations"]] == ["vpc.amazonaws.com/efa"]
    assert "gpu-memory" not in template["metadata"]["annotations"]


def pod_with_container_memory(scheduler: str = "kai-scheduler", **amounts: str) -> dict:
    """Return a pod of two containers; `c0_request="4Gi"` sets KAI's annotation for the memory request of container c0, other names set annotations with hyphens."""
    renamed = {}
    for name, text in amounts.items():
        container_name, _, bound = name.partition("_")
        renamed[
            memory_annotation(container_name, bound) if bound in ("request", "limit") else name.replace("_", "-")
        ] = text
    return pod({}, {}, annotations=renamed, scheduler=scheduler)


def memory_annotation(name: str, bound: str) -> str:
    return f"nvidia.com/container.{name}.gpu-memory.{bound}"


CONTAINER_MEMORY = {
    "a request": ({"c0_request": "4Gi"}, "c0", "4Gi"),
    "a limit alone is the request": ({"c1_limit": "1536Mi"}, "c1", "1536Mi"),
    "equal request and limit": ({"c1_request": "4Gi", "c1_limit": "4096Mi"}, "c1", "4Gi"),
    "two annotations name the container": ({"c1_request": "1G", "gpu_fraction_container_name": "c1"}, "c1", "1G"),
}


@pytest.mark.parametrize("name", CONTAINER_MEMORY)
def test_memory_of_a_container_becomes_its_share(name):
    amounts, user_container, memory = CONTAINER_MEMORY[name]
    manifest = pod_with_container_memory(**amounts)
    verdict = verdict_of(manifest, **TRANSLATE_FRACTIONS)
    assert exactly(verdict) == [share(memory=memory, cores="0")]
    assert containers_with_claims(manifest, verdict) == [user_container]
    patched_pod = patched(manifest, verdict)
    assert not [key for key in patched_pod["metadata"]["annotations"] if key.startswith("nvidia.com/container.")]
    assert patched_pod["spec"]["schedulerName"] == "default-scheduler"
    updated_pod = applied_again(patched_pod, manifest["metadata"]["annotations"])
    assert patched(updated_pod, replay_update(updated_pod, patched_pod)) == patched_pod
    assert untouched(verdict_of(pod_with_container_memory(**amounts)))


@pytest.mark.parametrize(
    ("amounts", "reason"),
    [
        ({"c0_request": "9Gi", "c0_limit": "8Gi"}, "is more than the limit, 8Gi"),
        ({"c9_request": "4Gi"}, "the pod has no container 'c9'"),
        ({"c0.c1_limit": "4Gi"}, "the pod has no container 'c0.c1'"),
        ({"c0_request": "4Gi", "c1_limit": "4Gi"}, "names container 'c1'"),
        ({"c0_request": "4Gi", "gpu_fraction_container_name": "c1"}, "names container 'c1'"),
        *(({"c0_request": text}, "is not an amount of memory") for text in ("", "x", "0", "-1Gi")),
    ],
)
def test_container_memory_that_kai_denies_is_refused_if_translated(amounts, reason):
    verdict = verdict_of(pod_with_container_memory(**amounts), **TRANSLATE_FRACTIONS)
    assert reason in str(verdict.refusals[0])
    assert untouched(verdict_of(pod_with_container_memory(**amounts)))


@pytest.mark.parametrize(
    "amounts",
    [
        {"c0_request": "4Gi", "c0_limit": "8Gi"},
        {"c0_request": "4Gi", "gpu_fraction": "0.5"},
        {"c0_limit": "4Gi", "gpu_memory": "2000"},
        {"c0_request": "9Ei"},
    ],
)
def test_container_memory_that_no_claim_expresses_is_left_unchanged(amounts):
    verdict = verdict_of(pod_with_container_memory(**amounts), **TRANSLATE_FRACTIONS)
    assert untouched(verdict)
    assert "left" in outcomes(verdict).values()


def test_a_container_that_kai_gave_gpus_is_left_unchanged():
    manifest = pod_with_container_memory(c0_request="4Gi")
    manifest["metadata"]["annotations"]["nvidia.com/container.c0.gpus.devices"] = "GPU-0"
    verdict = verdict_of(manifest, **TRANSLATE_FRACTIONS)
    assert untouched(verdict)
    assert "placed the pod already" in verdict.warnings[0]


def test_container_memory_is_an_amount_only_where_it_is_translated():
    assert configured(**TRANSLATE_FRACTIONS).is_amount(memory_annotation("main", "request"))
    assert not configured().is_amount(memory_annotation("main", "request"))
