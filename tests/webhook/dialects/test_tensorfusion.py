"""Tensor Fusion: pods with its label request shares by annotations."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.loops import every
from tests.webhook.dialects.rows import rows_not_translated
from tests.webhook.pods import (
    HAMI,
    WHOLE_GPUS,
    configured,
    container,
    containers_with_claims,
    devices,
    exactly,
    outcomes,
    patched,
    pod,
    refused,
    selected,
    share,
    untouched,
    verdict_of,
)
from webhook import registration
from webhook.dialects.tensorfusion import TENSOR_FUSION

ROWS = rows_not_translated(TENSOR_FUSION, {}, scheduler="tensor-fusion-scheduler")
DOMAIN = "tensor-fusion.ai"
ENABLED = f"{DOMAIN}/enabled"
TRANSLATE_FRACTIONS = {"tensorfusion": {"fractions": "translate"}}
DECLARED_TFLOPS = {
    "tensorfusion": {"fractions": "translate", "tflops": {"H100": 1000, "T4": 65.5, "NVIDIA A100-SXM4-40GB": 312}}
}
ONE_DECLARED_MODEL = {"tensorfusion": {"fractions": "translate", "tflops": {"H100": 1000}}}


def pod_with_label(value: str, *limits: dict) -> dict:
    manifest = pod(*limits, annotations={"tensor-fusion.ai/vram-limit": "8Gi"})
    manifest["metadata"]["labels"] = {ENABLED: value}
    return manifest


def tensorfusion_pod(*limits: dict, scheduler: str = "", **annotations: str) -> dict:
    """Return a pod of Tensor Fusion with annotations, such as `vram_limit="8Gi"`. An underscore becomes a hyphen."""
    renamed = {f"{DOMAIN}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    manifest = pod(*(limits or ({},)), annotations=renamed, scheduler=scheduler)
    manifest["metadata"]["labels"] = {ENABLED: "true"}
    return manifest


def test_a_tensor_fusion_pod_with_gpu_limits_is_left_unchanged():
    verdict = verdict_of(pod_with_label("true", {"nvidia.com/gpu": 1}), **WHOLE_GPUS)
    assert untouched(verdict)
    assert outcomes(verdict)[ENABLED] == outcomes(verdict)["nvidia.com/gpu"] == "left"


@pytest.mark.parametrize("options", [{}, TRANSLATE_FRACTIONS])
def test_a_pod_without_the_label_is_ignored(options):
    verdict = verdict_of(pod_with_label("false", {"nvidia.com/gpu": 1}), **WHOLE_GPUS, **options)
    assert outcomes(verdict) == {"nvidia.com/gpu": "translated"}


@pytest.mark.parametrize(
    ("annotations", "memory", "cores"),
    [
        ({"vram_limit": "8Gi"}, "8Gi", "0"),
        ({"vram_request": "4Gi", "vram_limit": "8Gi", "compute_percent_limit": "50"}, "8Gi", "50"),
        ({"vram_request": "4Gi"}, "4Gi", "0"),
        ({"vram_limit": "1500M", "compute_percent_request": "33.3"}, "1500M", "34"),
        ({"vram_limit": "8Gi", "compute_percent_limit": "40", "compute_percent_request": "20"}, "8Gi", "40"),
        ({"vram_limit": "8Gi", "compute_percent_limit": "100"}, "8Gi", "100"),
        ({"vram_limit": "8Gi", "compute_percent_limit": "0"}, "8Gi", "0"),
        ({"vram_limit": "0", "vram_request": "2Gi"}, "2Gi", "0"),
    ],
)
def test_the_limit_of_an_amount_is_claimed_before_its_request(annotations, memory, cores):
    manifest = tensorfusion_pod(**annotations)
    verdict = verdict_of(manifest, **TRANSLATE_FRACTIONS)
    assert exactly(verdict) == [share(memory=memory, cores=cores)]
    patched_pod = patched(manifest, verdict)
    assert not [key for key in patched_pod["metadata"]["annotations"] if key.startswith(DOMAIN)]
    assert patched_pod["metadata"]["labels"][ENABLED] == "true", "a label that selectors may use was removed"
    assert untouched(verdict_of(manifest))


@pytest.mark.parametrize(
    ("annotations", "cores", "model"),
    [
        ({"tflops_limit": "100", "gpu_model": "H100"}, "10", "NVIDIA H100 80GB HBM3"),
        ({"tflops_limit": "101", "gpu_model": "H100"}, "11", "NVIDIA H100 80GB HBM3"),
        ({"tflops_limit": "32.75", "gpu_model": "T4"}, "50", "Tesla T4"),
        ({"tflops_request": "78", "gpu_model": "NVIDIA A100-SXM4-40GB"}, "25", "NVIDIA A100-SXM4-40GB"),
        ({"tflops_limit": "500m", "tflops_request": "100m", "gpu_model": "H100"}, "1", "NVIDIA H100 PCIe"),
        ({"tflops_limit": "100", "compute_percent_limit": "70", "gpu_model": "H100"}, "10", "NVIDIA H100 PCIe"),
    ],
)
def test_tflops_become_a_percentage_by_the_declared_model(annotations, cores, model):
    verdict = verdict_of(tensorfusion_pod(vram_limit="8Gi", **annotations), **DECLARED_TFLOPS)
    (request,) = exactly(verdict)
    assert request["capacity"] == {"memory": "8Gi", "cores": cores}
    assert selected(verdict, productName=model)
    assert not selected(verdict, productName="NVIDIA L40S")


def test_tflops_without_a_model_use_the_only_declared_model():
    manifest = tensorfusion_pod(vram_limit="8Gi", tflops_limit="500")
    verdict = verdict_of(manifest, **ONE_DECLARED_MODEL)
    assert exactly(verdict)[0]["capacity"] == {"memory": "8Gi", "cores": "50"}
    assert not selected(verdict, productName="NVIDIA L40S"), (
        "the claim matches a model for which the percentage is wrong"
    )
    for options in (TRANSLATE_FRACTIONS, DECLARED_TFLOPS):
        verdict = verdict_of(manifest, **options)
        assert untouched(verdict)
        assert "the model" in verdict.warnings[0]


def test_tflops_of_an_undeclared_model_have_a_remedy():
    verdict = verdict_of(tensorfusion_pod(vram_limit="8Gi", tflops_limit="5", gpu_model="L40S"), **DECLARED_TFLOPS)
    assert untouched(verdict)
    assert "`tensorfusion: {tflops: {L40S: TFLOPS}}`" in verdict.warnings[0]


@given(tflops=some.integers(1, 5000), gpu_tflops=some.integers(1, 5000))
def test_tflops_are_rounded_up_to_percent_within_one_gpu(tflops, gpu_tflops):
    options = {"tensorfusion": {"fractions": "translate", "tflops": {"H100": gpu_tflops}}}
    verdict = verdict_of(tensorfusion_pod(vram_limit="8Gi", tflops_limit=str(tflops)), **options)
    if tflops > gpu_tflops:
        assert untouched(verdict)
        return
    cores = int(exactly(verdict)[0]["capacity"]["cores"])
    assert (cores - 1) * gpu_tflops < 100 * tflops <= cores * gpu_tflops


def test_shares_of_several_gpus_are_on_distinct_gpus():
    verdict = verdict_of(tensorfusion_pod(vram_limit="8Gi", gpu_count="2"), **TRANSLATE_FRACTIONS)
    assert exactly(verdict) == [share(memory="8Gi", cores="0")] * 2
    assert devices(verdict)["constraints"][0]["distinctAttribute"] == f"{HAMI}/uuid"


@pytest.mark.parametrize(
    "annotations",
    [{"dedicated_gpu": "true", "gpu_model": "H100", "vram_limit": "1Gi"}, {"isolation": "shared", "gpu_model": "H100"}],
)
def test_dedicated_and_shared_gpus_become_whole_gpus_of_their_model(annotations):
    verdict = verdict_of(tensorfusion_pod(gpu_count="3", **annotations), **TRANSLATE_FRACTIONS)
    (request,) = exactly(verdict)
    assert (request["count"], "capacity" in request) == (3, False)
    assert selected(verdict, productName="NVIDIA H100 PCIe")
    assert not selected(verdict, productName="NVIDIA L40S")


def test_the_named_containers_see_the_same_gpus():
    manifest = tensorfusion_pod({}, {}, {}, vram_limit="8Gi", inject_container="c2, c0")
    verdict = verdict_of(manifest, **TRANSLATE_FRACTIONS)
    assert containers_with_claims(manifest, verdict) == ["c0", "c2"]
    assert len(verdict.templates) == 1
    assert len(patched(manifest, verdict)["spec"]["resourceClaims"]) == 1


@pytest.mark.parametrize(
    "manifest",
    [
        tensorfusion_pod({}, {}, vram_limit="8Gi"),
        tensorfusion_pod(dedicated_gpu="true"),
        *(tensorfusion_pod(vram_limit="8Gi", gpu_count=text) for text in ("0", "129", "-1", "two", "")),
    ],
)
def test_a_pod_denied_by_tensor_fusion_is_refused_if_translated(manifest):
    assert refused(verdict_of(manifest, **TRANSLATE_FRACTIONS))
    assert untouched(verdict_of(manifest))


@every(
    ("key", "value"),
    [
        ("is-local-gpu", "false"),
        ("workload-profile", "p"),
        ("container-gpu-count", '{"c0": 1}'),
        ("gpu-indices", "0,1"),
        ("isolation", "partitioned"),
        ("isolation", "new"),
        ("partition-id", "1g.10gb"),
        ("embedded-worker", "true"),
        ("dedicated-worker", "true"),
        ("worker-pod-template", "{}"),
        ("workload", "w"),
        ("selected-workload", "w"),
        ("enabled-replicas", "1"),
        ("gang-enabled", "true"),
        ("vendor", "AMD"),
        ("gpu-ids", "a"),
        ("index", "3"),
        ("vram-request", "much"),
        ("compute-percent-limit", "101"),
        ("compute-percent-limit", "-1"),
        ("inject-container", "other"),
    ],
)
def test_a_pod_with_an_inexpressible_annotation_is_left_unchanged(key, value):
    manifest = tensorfusion_pod(vram_limit="8Gi")
    manifest["metadata"]["annotations"][f"{DOMAIN}/{key}"] = value
    verdict = verdict_of(manifest, **TRANSLATE_FRACTIONS)
    assert untouched(verdict)
    assert outcomes(verdict)[f"{DOMAIN}/{key}"] == outcomes(verdict)[ENABLED] == "left"


@pytest.mark.parametrize("annotations", [{}, {"compute_percent_limit": "50"}, {"gpu_count": "2"}])
def test_a_pod_without_a_memory_request_is_left_unchanged(annotations):
    assert untouched(verdict_of(tensorfusion_pod(**annotations), **TRANSLATE_FRACTIONS))


@pytest.mark.parametrize("key", ["qos", "gpupool", "autoscale"])
def test_an_annotation_no_claim_expresses_is_reported_and_kept(key):
    manifest = tensorfusion_pod(vram_limit="8Gi", **{key: "true"})
    verdict = verdict_of(manifest, **TRANSLATE_FRACTIONS)
    assert outcomes(verdict)[f"{DOMAIN}/{key}"] == "approximated"
    assert f"{DOMAIN}/{key}" in patched(manifest, verdict)["metadata"]["annotations"]


def test_a_labelled_pod_with_container_keys_is_left_unchanged():
    verdict = verdict_of(tensorfusion_pod({"nvidia.com/gpu": 1}, vram_limit="8Gi"), **WHOLE_GPUS, **TRANSLATE_FRACTIONS)
    assert untouched(verdict)


def test_a_worker_pod_of_tensor_fusion_is_left_unchanged():
    worker = tensorfusion_pod(vram_limit="8Gi", scheduler="tensor-fusion-scheduler")
    del worker["metadata"]["labels"]
    assert untouched(verdict_of(worker, **TRANSLATE_FRACTIONS))


def test_a_second_review_changes_nothing_in_a_translated_pod():
    manifest = tensorfusion_pod(vram_limit="8Gi", gpu_count="2", scheduler="tensor-fusion-scheduler")
    patched_pod = patched(manifest, verdict_of(manifest, **TRANSLATE_FRACTIONS))
    assert patched_pod["spec"]["schedulerName"] == "default-scheduler"
    second_verdict = verdict_of(patched_pod, **TRANSLATE_FRACTIONS)
    assert not second_verdict.operations
    assert not second_verdict.decisions
    assert not second_verdict.warnings


def test_an_init_container_gets_no_gpu():
    manifest = tensorfusion_pod(vram_limit="8Gi")
    manifest["spec"]["initContainers"] = [container("i0", {})]
    assert containers_with_claims(manifest, verdict_of(manifest, **TRANSLATE_FRACTIONS)) == ["c0"]


def test_labelled_pods_reach_the_webhook_only_if_translated():
    assert f"'{ENABLED}'" in registration.on_mutate(configured(**TRANSLATE_FRACTIONS).dialects)
    assert f"'{ENABLED}'" not in registration.on_mutate(configured().dialects)
    assert ENABLED in registration.names_not_sent(configured(**TRANSLATE_FRACTIONS), configured())
