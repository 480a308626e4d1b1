"""KAI and Run:ai: annotations that request GPUs on pods of KAI's scheduler."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dra.quantity import parse
from tests.webhook.dialects.rows import rows_left
from tests.webhook.pods import (
    SIZES,
    WHOLE,
    alternatives,
    configured,
    container,
    devices,
    exactly,
    outcomes,
    patched,
    pod,
    refused,
    replayed,
    share,
    untouched,
    verdict_of,
)
from webhook import registration
from webhook.admission import decide_object
from webhook.dialects.systems.kai import KAI
from webhook.state.state import State

KAIS = {"scheduler": "kai-scheduler"}
ROWS = rows_left(KAI, {}, **KAIS)
MOVED = {"kai": {"fractions": "translate"}}


def queued_pod(key: str, value: str, *, queue: str = "", scheduler: str = "") -> dict:
    made = pod({}, annotations={key: value}, scheduler=scheduler)
    if queue:
        made["metadata"]["labels"] = {queue: "q"}
    return made


def fractional(*limits: dict, labels: dict | None = None, init: tuple = (), **annotations: str) -> dict:
    """Return a pod for KAI's scheduler with annotations, such as `gpu_memory="2000"`; an underscore is written as a hyphen."""
    renamed = {key.replace("_", "-"): value for key, value in annotations.items()}
    made = pod(*(limits or ({},)), annotations=renamed, init=init, **KAIS)
    if labels:
        made["metadata"]["labels"] = labels
    return made


@pytest.mark.parametrize(("key", "value"), [("gpu-fraction", "0.5"), ("gpu-memory", "2000")])
@pytest.mark.parametrize("whose", [KAIS, {"queue": "kai.scheduler/queue"}, {"queue": "runai/queue"}])
def test_a_share_is_left_with_a_warning(key, value, whose):
    done = verdict_of(queued_pod(key, value, **whose))
    assert untouched(done)
    assert outcomes(done) == {key: "left"}
    assert key in done.warnings[0]


@pytest.mark.parametrize("options", [{}, MOVED])
@pytest.mark.parametrize("key", ["gpu-fraction", "gpu-memory"])
def test_kai_annotations_are_ignored_for_other_schedulers(key, options):
    done = verdict_of(queued_pod(key, "1"), **options)
    assert not done.decisions
    assert not done.warnings


@pytest.mark.parametrize("options", [{}, MOVED])
def test_a_pod_in_a_queue_keeps_its_scheduler(options):
    value = pod({"nvidia.com/gpu": 1}, **KAIS)
    value["metadata"]["labels"] = {"kai.scheduler/queue": "q"}
    assert untouched(verdict_of(value, **WHOLE, **options))


def test_memory_becomes_a_share_and_the_pod_leaves_kai():
    value = fractional(gpu_memory="2000", labels={"kai.scheduler/queue": "q"})
    done = verdict_of(value, **MOVED)
    assert exactly(done) == [share(memory="2000Mi", cores="0")]
    after = patched(value, done)
    assert after["spec"]["schedulerName"] == "default-scheduler"
    assert "gpu-memory" not in after["metadata"]["annotations"]
    assert after["metadata"]["labels"]["kai.scheduler/queue"] == "q"
    assert outcomes(done) == {
        "gpu-memory": "approximated",
        "kai.scheduler/queue": "approximated",
        "schedulerName": "translated",
    }
    assert any("the queue no longer counts it" in warning for warning in done.warnings)


def test_a_fraction_is_resolved_as_hamis_percentage_is():
    by_kai, by_hami = (
        verdict_of(value, **MOVED, **SIZES)
        for value in (
            fractional(gpu_fraction="0.5"),
            pod({"nvidia.com/gpumem-percentage": 50, "nvidia.com/gpucores": 0}, scheduler="hami-scheduler"),
        )
    )
    assert by_kai.templates == by_hami.templates
    assert untouched(verdict_of(fractional(gpu_fraction="0.5"), **MOVED))
    assert refused(verdict_of(fractional(gpu_fraction="0.5"), unresolved="refuse", **MOVED))


@pytest.mark.parametrize(
    ("text", "first"), [("0.125", "5Gi"), (".25", "10Gi"), ("5e-1", "20Gi"), ("0.333", "13639Mi"), ("0.29", "11878Mi")]
)
def test_a_fraction_need_not_be_a_whole_percentage(text, first):
    done = verdict_of(fractional(gpu_fraction=text), **MOVED, **SIZES)
    assert alternatives(done)[0][0] == {"memory": first, "cores": "0"}


@given(mib=some.integers(100, 2**20), text=some.decimals("0.01", "0.99", places=4).map(str))
def test_a_fraction_is_rounded_down_to_whole_mebibytes(mib, text):
    done = verdict_of(fractional(gpu_fraction=text), models=[{"product": "A", "memory": f"{mib}Mi"}], **MOVED)
    ((amounts,),) = alternatives(done)
    assert parse(amounts["memory"]).as_int() == int(mib * Fraction(text)) << 20


def test_several_devices_are_distinct():
    done = verdict_of(fractional(gpu_memory="2000", gpu_fraction_num_devices="2"), **MOVED)
    assert exactly(done) == [share(memory="2000Mi", cores="0")] * 2
    assert devices(done)["constraints"][0]["distinctAttribute"].endswith("/uuid")


def users(value: dict, done) -> list[str]:
    after = patched(value, done)["spec"]
    every = (*after.get("initContainers", ()), *after["containers"])
    return [container["name"] for container in every if container["resources"].get("claims")]


@pytest.mark.parametrize(("named", "user"), [({}, "c0"), ({"gpu_fraction_container_name": "c1"}, "c1"), ({"gpu_fraction_container_name": "i0"}, "i0")])  # fmt: skip
def test_the_named_or_first_container_gets_the_claim(named, user):
    value = fractional({}, {}, init=(container("i0", {}),), gpu_memory="2000", **named)
    assert users(value, verdict_of(value, **MOVED)) == [user]


@pytest.mark.parametrize(
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
    assert refused(verdict_of(fractional(**annotations), **MOVED))
    assert untouched(verdict_of(fractional(**annotations)))


def test_whole_gpus_beside_a_fraction_are_refused_as_kai_does():
    value = fractional({"nvidia.com/gpu": 1}, gpu_memory="2000")
    assert refused(verdict_of(value, **MOVED))
    assert untouched(verdict_of(value))


@pytest.mark.parametrize("key", ["nvidia.com/gpumem", "nvidia.com/mig-1g.5gb"])
def test_other_keys_beside_a_left_fraction_are_left(key):
    done = verdict_of(fractional({key: 1}, gpu_memory="2000"), **MOVED)
    assert untouched(done)
    assert outcomes(done) == {"gpu-memory": "left", key: "left"}


def test_a_network_device_beside_a_fraction_is_translated_too():
    value = fractional({"vpc.amazonaws.com/efa": 1}, gpu_memory="2000")
    done = verdict_of(value, **MOVED)
    assert len(done.templates) == 2
    assert patched(value, done)["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize("key", ["runai/shared-gpu-configmap", "received-resource-type", "gpu-fraction-limit"])
def test_pods_prepared_by_kai_or_allowed_to_burst_are_left(key):
    value = fractional(gpu_memory="2000")
    value["metadata"]["annotations"][key] = "x"
    done = verdict_of(value, **MOVED)
    assert untouched(done)
    assert outcomes(done)[key] == outcomes(done)["gpu-memory"] == "left"


def test_a_pod_with_a_runai_memory_limit_is_left():
    value = fractional(gpu_memory="2000")
    value["spec"]["containers"][0]["env"] = [{"name": "RUNAI_GPU_MEMORY_LIMIT", "value": "4G"}]
    assert untouched(verdict_of(value, **MOVED))
    assert configured(**MOVED).reads_all, "the webhook reads variables only where that is so"
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
def test_an_annotation_that_only_kai_honours_is_reported_as_lost(key, value, outcome):
    made = fractional(gpu_memory="2000")
    made["metadata"]["annotations"][key] = value
    done = verdict_of(made, **MOVED)
    assert exactly(done) == [share(memory="2000Mi", cores="0")]
    assert outcomes(done).get(key, "") == outcome


def test_a_pod_is_left_if_approximations_are_disabled():
    assert untouched(verdict_of(fractional(gpu_memory="2000"), approximations="leave", **MOVED))


def test_a_second_review_changes_nothing_and_an_update_is_replayed():
    value = fractional(gpu_memory="2000", gpu_fraction_num_devices="2", labels={"kai.scheduler/queue": "q"})
    after = patched(value, verdict_of(value, **MOVED))
    again = verdict_of(after, **MOVED)
    assert not again.operations
    assert not again.warnings
    updated = {**after, "metadata": {**after["metadata"], "annotations": {**after["metadata"]["annotations"], "gpu-memory": "2000"}}}  # fmt: skip
    updated["spec"] = {**after["spec"], "schedulerName": "kai-scheduler"}
    assert patched(updated, replayed(updated, after)) == after
    updated["metadata"]["annotations"]["gpu-memory"] = "3000"
    assert patched(updated, replayed(updated, after))["metadata"]["annotations"]["gpu-memory"] == "3000"


@pytest.mark.parametrize(("text", "is_refused"), [("2000", False), ("3000", True)])
def test_an_annotation_restored_by_another_webhook_is_removed_or_refused(text, is_refused):
    value = fractional(gpu_memory="2000")
    after = patched(value, verdict_of(value, **MOVED))
    after["metadata"]["annotations"]["gpu-memory"] = text
    again = verdict_of(after, **MOVED)
    assert bool(again.refusals) is is_refused
    if not is_refused:
        assert "gpu-memory" not in patched(after, again)["metadata"]["annotations"]
        assert not again.templates


def test_the_api_server_sends_fractions_only_where_they_are_translated():
    condition = registration.on_mutate(configured(**MOVED).dialects)
    assert "'gpu-memory'" in condition
    assert "'gpu-memory'" not in registration.on_mutate(configured().dialects)
    assert {"gpu-memory", "gpu-fraction"} <= set(registration.names_not_sent(configured(**MOVED), configured()))
    assert registration.names_not_sent(configured(), configured(**MOVED)) == []
    assert "gpu-memory" in registration.names_not_sent_by(
        registration.on_mutate(configured().dialects), configured(**MOVED)
    )


def test_renamed_annotations_are_read_and_removed_by_their_names():
    value = fractional(vram="2000", how_many="2")
    renamed = {"kai": {"gpu-memory": "vram", "gpu-fraction-num-devices": "how-many"}}
    done = verdict_of(value, keys=renamed, **MOVED)
    assert len(exactly(done)) == 2
    assert {"vram", "how-many"}.isdisjoint(patched(value, done)["metadata"]["annotations"])


def test_the_record_lists_the_removed_annotations():
    value = fractional({"vpc.amazonaws.com/efa": 1}, gpu_memory="2000")
    annotations = patched(value, verdict_of(value, **MOVED))["metadata"]["annotations"]
    record = json.loads(annotations["drawbridge.dev/original"])
    assert record["annotations"] == ["gpu-memory"]
    assert record["containers"]["c0"] == {"gpu-memory": "2000", "vpc.amazonaws.com/efa": 1}


def test_an_annotation_gives_a_workload_in_a_file_no_toleration():
    value = fractional({"vpc.amazonaws.com/efa": 1}, gpu_memory="2000")
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "n"}, "spec": {"template": value}}  # fmt: skip
    done = decide_object(job, State(configuration=configured(**MOVED)))
    template = patched(job, done)["spec"]["template"]
    assert [toleration["key"] for toleration in template["spec"]["tolerations"]] == ["vpc.amazonaws.com/efa"]
    assert "gpu-memory" not in template["metadata"]["annotations"]


def nvfractions(scheduler: str = "kai-scheduler", **amounts: str) -> dict:
    """Return a pod of two containers; `c0_request="4Gi"` sets KAI's annotation for the request of container c0."""
    renamed = {}
    for name, text in amounts.items():
        of, _, what = name.partition("_")
        renamed[of_container(of, what) if what in ("request", "limit") else name.replace("_", "-")] = text
    return pod({}, {}, annotations=renamed, scheduler=scheduler)


def of_container(name: str, what: str) -> str:
    return f"nvidia.com/container.{name}.gpu-memory.{what}"


BY_CONTAINER = {
    "a request": ({"c0_request": "4Gi"}, "c0", "4Gi"),
    "a limit alone is the request": ({"c1_limit": "1536Mi"}, "c1", "1536Mi"),
    "equal request and limit": ({"c1_request": "4Gi", "c1_limit": "4096Mi"}, "c1", "4Gi"),
    "the container is named twice": ({"c1_request": "1G", "gpu_fraction_container_name": "c1"}, "c1", "1G"),
}


@pytest.mark.parametrize("name", BY_CONTAINER)
def test_memory_of_a_container_becomes_its_share(name):
    amounts, user, memory = BY_CONTAINER[name]
    value = nvfractions(**amounts)
    done = verdict_of(value, **MOVED)
    assert exactly(done) == [share(memory=memory, cores="0")]
    assert users(value, done) == [user]
    after = patched(value, done)
    assert not [key for key in after["metadata"]["annotations"] if key.startswith("nvidia.com/container.")]
    assert after["spec"]["schedulerName"] == "default-scheduler"
    again = {**after, "metadata": {**after["metadata"], "annotations": after["metadata"]["annotations"] | value["metadata"]["annotations"]}}  # fmt: skip
    again["spec"] = {**after["spec"], "schedulerName": "kai-scheduler"}
    assert patched(again, replayed(again, after)) == after
    assert untouched(verdict_of(nvfractions(**amounts)))


def test_container_memory_is_requested_from_each_of_several_gpus():
    done = verdict_of(nvfractions(c0_request="4Gi", gpu_fraction_num_devices="2"), **MOVED)
    assert exactly(done) == [share(memory="4Gi", cores="0")] * 2


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
def test_a_container_that_kai_denies_is_refused_if_translated(amounts, reason):
    done = verdict_of(nvfractions(**amounts), **MOVED)
    assert reason in str(done.refusals[0])
    assert untouched(verdict_of(nvfractions(**amounts)))


@pytest.mark.parametrize(
    "amounts",
    [
        {"c0_request": "4Gi", "c0_limit": "8Gi"},
        {"c0_request": "4Gi", "gpu_fraction": "0.5"},
        {"c0_limit": "4Gi", "gpu_memory": "2000"},
        {"c0_request": "9Ei"},
    ],
)
def test_a_container_that_may_burst_or_requests_twice_is_left(amounts):
    done = verdict_of(nvfractions(**amounts), **MOVED)
    assert untouched(done)
    assert "left" in outcomes(done).values()


def test_a_container_that_kai_gave_gpus_is_left():
    value = nvfractions(c0_request="4Gi")
    value["metadata"]["annotations"]["nvidia.com/container.c0.gpus.devices"] = "GPU-0"
    done = verdict_of(value, **MOVED)
    assert untouched(done)
    assert "placed the pod already" in done.warnings[0]


@pytest.mark.parametrize("options", [{}, MOVED])
def test_container_memory_is_ignored_on_pods_of_other_schedulers(options):
    done = verdict_of(nvfractions(scheduler="other", c0_request="4Gi"), **options)
    assert not done.decisions
    assert not done.warnings


def test_match_conditions_select_annotations_by_prefix():
    condition = registration.on_mutate(configured(**MOVED).dialects)
    assert "k.startsWith('nvidia.com/container.')" in condition
    assert "nvidia.com/container." not in registration.on_mutate(configured().dialects)
    assert registration.names_not_sent_by(condition, configured(**MOVED)) == []
    assert of_container("<container>", "request") in registration.names_not_sent_by(
        registration.on_mutate(configured().dialects), configured(**MOVED)
    )


def test_an_amount_of_a_container_can_be_resized():
    assert configured(**MOVED).is_amount(of_container("main", "request"))
    assert not configured().is_amount(of_container("main", "request"))
