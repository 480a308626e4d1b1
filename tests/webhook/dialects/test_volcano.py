"""Volcano's vGPU keys, where they differ from HAMi's."""

import pytest

from tests.webhook.dialects.rows import Row, rows_not_translated
from tests.webhook.pods import (  # fmt: skip
    GPU_MODELS,
    HAMI,
    alternatives,
    container,
    exactly,
    outcomes,
    patched,
    pod,
    refused,
    share,
    untouched,
    verdict_of,
)
from webhook.dialects.volcano import DIALECT

PREFIX = "volcano.sh/vgpu-"
ONE_VGPU = {PREFIX + "number": 1}
MEMORY = {PREFIX + "number": 1, PREFIX + "memory": 3000}
VOLCANO_UNDERSTANDS_CLAIMS = {"schedulers": {"volcano": {"likeCluster": True}}}


def pod_with_annotations(**annotations) -> dict:
    return pod(MEMORY, annotations={PREFIX + name.replace("_", "-"): text for name, text in annotations.items()})


ROWS = {
    PREFIX + "number": Row(pod(ONE_VGPU), "approximated"),
    PREFIX + "memory": Row(pod(MEMORY), "translated"),
    PREFIX + "memory-percentage": Row(pod(ONE_VGPU | {PREFIX + "memory-percentage": 50}), "translated", GPU_MODELS),
    PREFIX + "cores": Row(pod(MEMORY | {PREFIX + "cores": 30}), "translated"),
    PREFIX + "mode": Row(pod_with_annotations(mode="mig"), "left"),
    PREFIX + "use-gpuuuid": Row(pod_with_annotations(use_gpuuuid="a"), "translated"),
    PREFIX + "nouse-gpuuuid": Row(pod_with_annotations(nouse_gpuuuid="a"), "translated"),
    PREFIX + "podgroup-policy": Row(pod_with_annotations(podgroup_policy="spread"), "approximated"),
    "nvidia.com/use-gputype": Row(pod(MEMORY, annotations={"nvidia.com/use-gputype": "A100"}), "translated"),
    "nvidia.com/nouse-gputype": Row(pod(MEMORY, annotations={"nvidia.com/nouse-gputype": "A100"}), "translated"),
    **rows_not_translated(DIALECT, MEMORY),
}


def verdict_with_limits(config=None, **limits):
    manifest = pod({PREFIX + name.replace("_", "-"): value for name, value in limits.items()})
    return verdict_of(manifest, **GPU_MODELS, volcano=config or {})


@pytest.mark.parametrize(
    ("config", "limits", "requests"),
    [
        ({}, {"number": 1}, [share(cores="0")]),
        ({}, {"memory": 4000}, [share(memory="4000Mi", cores="0")]),
        ({}, {"number": 2, "memory": 3000, "cores": 30}, [share(memory="3000Mi", cores="30")] * 2),
        ({"percentage": False}, {"number": 1, "memory": 3000, "memory_percentage": 50}, [share(memory="3000Mi", cores="0")]),
        ({"memoryFactor": 10}, {"number": 1, "memory": 3000}, [share(memory="30000Mi", cores="0")]),
    ],
)  # fmt: skip
def test_amounts_are_requested_from_each_gpu(config, limits, requests):
    assert exactly(verdict_with_limits(config, **limits)) == requests


def test_memory_that_a_factor_raises_beyond_the_range_is_refused():
    assert refused(verdict_with_limits({"memoryFactor": 2**30}, number=1, memory=3000))


def test_the_percentage_wins_over_the_amount():
    verdict = verdict_with_limits(number=1, memory=3000, memory_percentage=50)
    assert alternatives(verdict) == [[{"memory": "20Gi", "cores": "0"}, {"memory": "23034Mi", "cores": "0"}]]
    assert outcomes(verdict)[PREFIX + "memory"] == "translated"


def test_a_memory_percentage_of_zero_is_refused():
    assert refused(verdict_with_limits(number=1, memory_percentage=0))


@pytest.mark.parametrize("limits", [{"cores": 50}, {"memory_percentage": 50}, {"number": 0, "memory": 3000}])
def test_cores_or_percentages_alone_or_number_0_request_no_gpu(limits):
    assert untouched(verdict_with_limits(**limits))


def test_requests_of_init_containers_are_ignored():
    assert untouched(verdict_of(pod({}, init=(container("i", MEMORY),))))


def verdict_with_gpu_types(use: str | None = None, nouse: str | None = None):
    annotations = {"nvidia.com/use-gputype": use, "nvidia.com/nouse-gputype": nouse}
    return verdict_of(pod(MEMORY, annotations={key: text for key, text in annotations.items() if text is not None}))


def test_use_gputype_overrides_nouse_gputype():
    (request,) = exactly(verdict_with_gpu_types("A100", "A100"))
    assert len(request["cel"]) == 1


def test_an_empty_entry_matches_every_name():
    assert "cel" not in exactly(verdict_with_gpu_types("A100,"))[0]
    assert refused(verdict_with_gpu_types(None, "A100,"))


def test_entries_of_a_type_list_are_not_trimmed():
    (request,) = exactly(verdict_with_gpu_types("A100, V100"))
    assert '" v100"' in request["cel"][0]


def test_a_pod_of_a_group_keeps_the_volcano_scheduler():
    grouped = pod(MEMORY, scheduler="volcano", annotations={"scheduling.k8s.io/group-name": "g"})
    assert untouched(verdict_of(grouped)), (
        "the pod was translated, but the configuration does not say that Volcano understands claims"
    )
    verdict = verdict_of(grouped, **VOLCANO_UNDERSTANDS_CLAIMS)
    assert exactly(verdict) == [share(memory="3000Mi", cores="0")]
    assert patched(grouped, verdict)["spec"]["schedulerName"] == "volcano"


def test_a_pod_without_a_group_gets_the_default_scheduler():
    manifest = pod(MEMORY, scheduler="volcano")
    assert patched(manifest, verdict_of(manifest))["spec"]["schedulerName"] == "default-scheduler"


def test_type_annotations_alone_are_hamis_unless_volcano_schedules_the_pod():
    annotations = {"nvidia.com/use-gputype": "A100"}
    assert outcomes(verdict_of(pod({"nvidia.com/gpu": 1}, annotations=annotations)))["nvidia.com/gpu"] == "translated"
    assert untouched(verdict_of(pod({"nvidia.com/gpu": 1}, annotations=annotations, scheduler="volcano")))


def test_the_policy_spread_becomes_the_allocators_low_load_strategy():
    manifest = pod_with_annotations(podgroup_policy="spread")
    manifest["spec"]["schedulerName"] = "volcano"
    verdict = verdict_of(manifest, bridge={"schedulerName": "drawbridge", "drivers": [HAMI]})
    assert patched(manifest, verdict)["metadata"]["annotations"]["drawbridge.dev/strategy"] == "LowLoadFirst"
    assert outcomes(verdict)[PREFIX + "podgroup-policy"] == "approximated"
