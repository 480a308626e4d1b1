"""Volcano's vGPU: the differences from HAMi."""

import pytest

from tests.webhook.dialects.rows import Row, rows_left
from tests.webhook.pods import (  # fmt: skip
    HAMI,
    SIZES,
    alternatives,
    container,
    devices,
    exactly,
    outcomes,
    patched,
    pod,
    refused,
    share,
    untouched,
    verdict_of,
)
from webhook.dialects.systems.volcano import DIALECT

V = "volcano.sh/vgpu-"
ONE = {V + "number": 1}
MEMORY = {V + "number": 1, V + "memory": 3000}
UNDERSTOOD = {"schedulers": {"volcano": {"likeCluster": True}}}


def hinted(**annotations) -> dict:
    return pod(MEMORY, annotations={V + name.replace("_", "-"): text for name, text in annotations.items()})


ROWS = {
    V + "number": Row(pod(ONE), "approximated"),
    V + "memory": Row(pod(MEMORY), "translated"),
    V + "memory-percentage": Row(pod(ONE | {V + "memory-percentage": 50}), "translated", SIZES),
    V + "cores": Row(pod(MEMORY | {V + "cores": 30}), "translated"),
    V + "mode": Row(hinted(mode="mig"), "left"),
    V + "use-gpuuuid": Row(hinted(use_gpuuuid="a"), "translated"),
    V + "nouse-gpuuuid": Row(hinted(nouse_gpuuuid="a"), "translated"),
    V + "podgroup-policy": Row(hinted(podgroup_policy="spread"), "approximated"),
    "nvidia.com/use-gputype": Row(pod(MEMORY, annotations={"nvidia.com/use-gputype": "A100"}), "translated"),
    "nvidia.com/nouse-gputype": Row(pod(MEMORY, annotations={"nvidia.com/nouse-gputype": "A100"}), "translated"),
    **rows_left(DIALECT, MEMORY),
}


def translated(**limits):
    return verdict_of(pod({V + name.replace("_", "-"): value for name, value in limits.items()}), **SIZES)


def test_a_number_alone_is_the_whole_memory_and_no_compute():
    assert exactly(translated(number=1)) == [share(cores="0")]


def test_memory_alone_is_one_gpu():
    assert exactly(translated(memory=4000)) == [share(memory="4000Mi", cores="0")]


def test_numbers_are_for_each_of_several_gpus():
    done = translated(number=2, memory=3000, cores=30)
    assert exactly(done) == [share(memory="3000Mi", cores="30")] * 2
    assert devices(done)["constraints"][0]["distinctAttribute"] == f"{HAMI}/uuid"


def test_the_percentage_wins_over_the_amount():
    done = translated(number=1, memory=3000, memory_percentage=50)
    assert alternatives(done) == [[{"memory": "20Gi", "cores": "0"}, {"memory": "23034Mi", "cores": "0"}]]
    assert outcomes(done)[V + "memory"] == "translated"


def test_where_the_percentage_has_no_name_the_amount_counts():
    value = pod(MEMORY | {V + "memory-percentage": 50})
    assert exactly(verdict_of(value, volcano={"percentage": False})) == [share(memory="3000Mi", cores="0")]


def test_no_percent_of_the_memory_is_refused():
    assert refused(translated(number=1, memory_percentage=0))


@pytest.mark.parametrize("limits", [{"cores": 50}, {"memory_percentage": 50}, {"number": 0, "memory": 3000}])
def test_volcano_limits_without_a_positive_vgpu_number_are_left(limits):
    assert untouched(translated(**limits))


def test_memory_is_counted_in_factors():
    assert exactly(verdict_of(pod(MEMORY), volcano={"memoryFactor": 10})) == [share(memory="30000Mi", cores="0")]
    assert refused(verdict_of(pod(MEMORY), volcano={"memoryFactor": 2**30}))


def test_init_containers_do_not_count():
    assert untouched(verdict_of(pod({}, init=(container("i", MEMORY),))))


def typed(use: str | None = None, nouse: str | None = None):
    annotations = {"nvidia.com/use-gputype": use, "nvidia.com/nouse-gputype": nouse}
    return verdict_of(pod(MEMORY, annotations={key: text for key, text in annotations.items() if text is not None}))


def test_a_wanted_type_overrides_unwanted_types():
    (request,) = exactly(typed("A100", "A100"))
    assert len(request["cel"]) == 1


def test_an_empty_entry_matches_every_name():
    assert "cel" not in exactly(typed("A100,"))[0]
    assert refused(typed(None, "A100,"))


def test_entries_are_not_trimmed():
    (request,) = exactly(typed("A100, V100"))
    assert '" v100"' in request["cel"][0]


def test_a_pod_of_a_group_keeps_the_volcano_scheduler():
    grouped = pod(MEMORY, scheduler="volcano", annotations={"scheduling.k8s.io/group-name": "g"})
    assert untouched(verdict_of(grouped)), "this Volcano is not said to understand claims"
    done = verdict_of(grouped, **UNDERSTOOD)
    assert exactly(done) == [share(memory="3000Mi", cores="0")]
    assert patched(grouped, done)["spec"]["schedulerName"] == "volcano"


def test_a_pod_without_a_group_gets_the_default_scheduler():
    value = pod(MEMORY, scheduler="volcano")
    assert patched(value, verdict_of(value))["spec"]["schedulerName"] == "default-scheduler"


def test_types_alone_are_hamis_unless_volcano_is_named():
    annotations = {"nvidia.com/use-gputype": "A100"}
    assert outcomes(verdict_of(pod({"nvidia.com/gpu": 1}, annotations=annotations)))["nvidia.com/gpu"] == "translated"
    assert untouched(verdict_of(pod({"nvidia.com/gpu": 1}, annotations=annotations, scheduler="volcano")))


def test_the_bridge_spreads_a_pod_group_like_other_pods():
    value = hinted(podgroup_policy="spread")
    value["spec"]["schedulerName"] = "volcano"
    done = verdict_of(value, bridge={"schedulerName": "drawbridge", "drivers": [HAMI]})
    assert patched(value, done)["metadata"]["annotations"]["drawbridge.dev/strategy"] == "LowLoadFirst"
    assert outcomes(done)[V + "podgroup-policy"] == "approximated"
