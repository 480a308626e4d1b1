"""Tensor Fusion: pods with its label request shares by annotations."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.webhook.dialects.rows import rows_left
from tests.webhook.pods import (
    HAMI,
    WHOLE,
    configured,
    container,
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
from webhook.admission import decide_object
from webhook.dialects.systems.tensor_fusion import TENSOR_FUSION
from webhook.state.configuration import read_configuration
from webhook.state.state import State

ROWS = rows_left(TENSOR_FUSION, {}, scheduler="tensor-fusion-scheduler")
DOMAIN = "tensor-fusion.ai"
ENABLED = f"{DOMAIN}/enabled"
MOVED = {"tensorfusion": {"fractions": "translate"}}
COUNTED = {
    "tensorfusion": {"fractions": "translate", "tflops": {"H100": 1000, "T4": 65.5, "NVIDIA A100-SXM4-40GB": 312}}
}
ONE = {"tensorfusion": {"fractions": "translate", "tflops": {"H100": 1000}}}


def labelled(value: str, *limits: dict) -> dict:
    made = pod(*limits, annotations={"tensor-fusion.ai/vram-limit": "8Gi"})
    made["metadata"]["labels"] = {ENABLED: value}
    return made


def tensorfusion_pod(*limits: dict, scheduler: str = "", **annotations: str) -> dict:
    """Return a pod of Tensor Fusion with annotations, such as `vram_limit="8Gi"`; an underscore is written as a hyphen."""
    renamed = {f"{DOMAIN}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    made = pod(*(limits or ({},)), annotations=renamed, scheduler=scheduler)
    made["metadata"]["labels"] = {ENABLED: "true"}
    return made


def test_a_tensor_fusion_pod_with_gpu_limits_is_left():
    done = verdict_of(labelled("true", {"nvidia.com/gpu": 1}), **WHOLE)
    assert untouched(done)
    assert outcomes(done)[ENABLED] == outcomes(done)["nvidia.com/gpu"] == "left"


@pytest.mark.parametrize("options", [{}, MOVED])
def test_a_pod_without_the_label_is_ignored(options):
    done = verdict_of(labelled("false", {"nvidia.com/gpu": 1}), **WHOLE, **options)
    assert outcomes(done) == {"nvidia.com/gpu": "translated"}


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
    value = tensorfusion_pod(**annotations)
    done = verdict_of(value, **MOVED)
    assert exactly(done) == [share(memory=memory, cores=cores)]
    after = patched(value, done)
    assert not [key for key in after["metadata"]["annotations"] if key.startswith(DOMAIN)]
    assert after["metadata"]["labels"][ENABLED] == "true", "a selector may name it"
    assert untouched(verdict_of(value))


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
    done = verdict_of(tensorfusion_pod(vram_limit="8Gi", **annotations), **COUNTED)
    (request,) = exactly(done)
    assert request["capacity"] == {"memory": "8Gi", "cores": cores}
    assert selected(done, productName=model)
    assert not selected(done, productName="NVIDIA L40S")


def test_tflops_without_a_model_use_the_only_declared_model():
    value = tensorfusion_pod(vram_limit="8Gi", tflops_limit="500")
    done = verdict_of(value, **ONE)
    assert exactly(done)[0]["capacity"] == {"memory": "8Gi", "cores": "50"}
    assert not selected(done, productName="NVIDIA L40S"), "of another model it would be another percentage"
    for options in (MOVED, COUNTED):
        done = verdict_of(value, **options)
        assert untouched(done)
        assert "the model" in done.warnings[0]


def test_tflops_of_an_undeclared_model_are_left_with_a_remedy():
    done = verdict_of(tensorfusion_pod(vram_limit="8Gi", tflops_limit="5", gpu_model="L40S"), **COUNTED)
    assert untouched(done)
    assert "`tensorfusion: {tflops: {L40S: TFLOPS}}`" in done.warnings[0]


@given(tflops=some.integers(1, 5000), whole=some.integers(1, 5000))
def test_tflops_are_rounded_up_to_percent_within_one_gpu(tflops, whole):
    options = {"tensorfusion": {"fractions": "translate", "tflops": {"H100": whole}}}
    done = verdict_of(tensorfusion_pod(vram_limit="8Gi", tflops_limit=str(tflops)), **options)
    if tflops > whole:
        assert untouched(done)
        return
    cores = int(exactly(done)[0]["capacity"]["cores"])
    assert (cores - 1) * whole < 100 * tflops <= cores * whole


def test_several_gpus_are_distinct():
    done = verdict_of(tensorfusion_pod(vram_limit="8Gi", gpu_count="2"), **MOVED)
    assert exactly(done) == [share(memory="8Gi", cores="0")] * 2
    assert devices(done)["constraints"][0]["distinctAttribute"] == f"{HAMI}/uuid"


@pytest.mark.parametrize(
    "annotations",
    [{"dedicated_gpu": "true", "gpu_model": "H100", "vram_limit": "1Gi"}, {"isolation": "shared", "gpu_model": "H100"}],
)
def test_dedicated_and_shared_gpus_become_whole_gpus_of_their_model(annotations):
    done = verdict_of(tensorfusion_pod(gpu_count="3", **annotations), **MOVED)
    (request,) = exactly(done)
    assert (request["count"], "capacity" in request) == (3, False)
    assert selected(done, productName="NVIDIA H100 PCIe")
    assert not selected(done, productName="NVIDIA L40S")


def users(value: dict, done) -> list[str]:
    return [
        container["name"]
        for container in patched(value, done)["spec"]["containers"]
        if container["resources"].get("claims")
    ]


def test_the_named_containers_see_the_same_gpus():
    value = tensorfusion_pod({}, {}, {}, vram_limit="8Gi", inject_container="c2, c0")
    done = verdict_of(value, **MOVED)
    assert users(value, done) == ["c0", "c2"]
    assert len(done.templates) == 1
    assert len(patched(value, done)["spec"]["resourceClaims"]) == 1


@pytest.mark.parametrize(
    "value",
    [
        tensorfusion_pod({}, {}, vram_limit="8Gi"),
        tensorfusion_pod(dedicated_gpu="true"),
        *(tensorfusion_pod(vram_limit="8Gi", gpu_count=text) for text in ("0", "129", "-1", "two", "")),
    ],
)
def test_a_pod_denied_by_tensor_fusion_is_refused_if_translated(value):
    assert refused(verdict_of(value, **MOVED))
    assert untouched(verdict_of(value))


@pytest.mark.parametrize(
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
def test_a_pod_with_an_inexpressible_annotation_is_left(key, value):
    made = tensorfusion_pod(vram_limit="8Gi")
    made["metadata"]["annotations"][f"{DOMAIN}/{key}"] = value
    done = verdict_of(made, **MOVED)
    assert untouched(done)
    assert outcomes(done)[f"{DOMAIN}/{key}"] == outcomes(done)[ENABLED] == "left"


@pytest.mark.parametrize("annotations", [{}, {"compute_percent_limit": "50"}, {"gpu_count": "2"}])
def test_a_pod_without_a_memory_request_is_left(annotations):
    assert untouched(verdict_of(tensorfusion_pod(**annotations), **MOVED))


@pytest.mark.parametrize("key", ["qos", "gpupool", "autoscale"])
def test_an_annotation_no_claim_expresses_is_reported_and_kept(key):
    value = tensorfusion_pod(vram_limit="8Gi", **{key: "true"})
    done = verdict_of(value, **MOVED)
    assert outcomes(done)[f"{DOMAIN}/{key}"] == "approximated"
    assert f"{DOMAIN}/{key}" in patched(value, done)["metadata"]["annotations"]


def test_a_labelled_pod_with_container_keys_is_left():
    done = verdict_of(tensorfusion_pod({"nvidia.com/gpu": 1}, vram_limit="8Gi"), **WHOLE, **MOVED)
    assert untouched(done)


def test_a_worker_pod_of_tensor_fusion_is_left():
    worker = tensorfusion_pod(vram_limit="8Gi", scheduler="tensor-fusion-scheduler")
    del worker["metadata"]["labels"]
    assert untouched(verdict_of(worker, **MOVED))


def test_a_translated_pod_leaves_the_scheduler_of_tensor_fusion():
    """A second review changes nothing."""
    value = tensorfusion_pod(vram_limit="8Gi", gpu_count="2", scheduler="tensor-fusion-scheduler")
    after = patched(value, verdict_of(value, **MOVED))
    assert after["spec"]["schedulerName"] == "default-scheduler"
    again = verdict_of(after, **MOVED)
    assert not again.operations
    assert not again.decisions
    assert not again.warnings


def test_an_init_container_gets_no_gpu():
    value = tensorfusion_pod(vram_limit="8Gi")
    value["spec"]["initContainers"] = [container("i0", {})]
    assert users(value, verdict_of(value, **MOVED)) == ["c0"]


def test_pods_with_the_label_are_sent_only_if_translated():
    assert f"'{ENABLED}'" in registration.on_mutate(configured(**MOVED).dialects)
    assert f"'{ENABLED}'" not in registration.on_mutate(configured().dialects)
    assert ENABLED in registration.names_not_sent(configured(**MOVED), configured())


@pytest.mark.parametrize("tflops", [{"H100": 0}, {"": 100}])
def test_a_model_without_a_name_or_tflops_is_a_mistake(tflops):
    value = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "tensorfusion": {"tflops": tflops}}  # fmt: skip
    configuration, findings = read_configuration(value)
    assert configuration is None
    assert findings[0].path.startswith("/tensorfusion/tflops")


def test_a_pod_translated_in_a_file_is_not_translated_again():
    value = tensorfusion_pod(vram_limit="8Gi")
    made = {"apiVersion": "v1", "kind": "Pod", **value}
    written = patched(made, decide_object(made, State(configuration=configured(**MOVED))))
    done = verdict_of(written, **MOVED)
    assert not done.decisions
    assert not done.templates
