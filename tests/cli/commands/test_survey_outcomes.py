"""The outcome of each workload and each key in `drawbridge survey`, and the devices that become free."""

import json

import pytest

from analysis.survey.rows import findings
from tests.cli.commands.surveys import (
    SHARE_LIMITS,
    HAMI_CONTAINER,
    lines_of,
    resource_object,
    owned_by,
    plugin_node,
    running_deployment,
    running_pod,
    survey_of,
    with_limits,
    workload_object,
)
from tests.cli.running import manifest, run, run_json
from webhook.dialects import Outcome


def test_annotations_selectors_and_variables_do_not_prevent_a_translation():
    gang = {"gang.scheduling.koordinator.sh/name": "g"}
    asks = running_pod("p", with_limits(**{"koordinator.sh_gpu".replace("_", "/"): 100}), annotations=gang)
    selects = running_pod("q", HAMI_CONTAINER)
    selects["spec"]["nodeSelector"] = {"nvidia.com/gpu.present": "true"}
    taken = running_pod("r", {**HAMI_CONTAINER, "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}]})
    assert [workload.outcome for workload in survey_of(asks, selects, taken).workloads] == [Outcome.TRANSLATED] * 3


def test_only_a_skipped_workload_with_a_request_is_listed_as_left():
    assert survey_of(running_pod("s", with_limits(), labels={"drawbridge.dev/skip": "true"})).workloads == ()
    [skipped] = survey_of(running_pod("s", HAMI_CONTAINER, labels={"drawbridge.dev/skip": "true"})).workloads
    assert skipped.outcome is Outcome.LEFT


def test_a_missing_device_class_is_an_obstacle():
    none = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "other"}, "spec": {}}
    survey = survey_of(*running_deployment(), plugin_node("n0"), none)
    [workload] = survey.workloads
    assert workload.outcome is Outcome.LEFT
    assert "S003" in {obstacle.code for obstacle in survey.obstacles}


def test_a_key_of_no_dialect_is_reported_as_unknown():
    typo = with_limits(nvidia_gpumemory=3)
    [workload] = survey_of(running_pod("p", typo, with_limits("other", **{"amd.com_weird": 1}))).workloads
    assert workload.outcome is Outcome.UNKNOWN
    by_key = {key.key: (key.code, key.detail, key.remedy) for key in workload.keys}
    assert by_key["nvidia.com/gpumemory"] == ("D211", "did you mean nvidia.com/gpumem?", "")
    assert by_key["amd.com/weird"][0] == "D211"
    assert "declare it under `dialects`" in by_key["amd.com/weird"][2]


def test_a_workload_whose_keys_differ_is_partly_translated(tmp_path):
    """Each key keeps its own outcome; `--fail-on` uses the outcome of the workload."""
    both = running_pod("p", HAMI_CONTAINER, with_limits("other", **{"nvidia_gpu.shared": 2}))
    [workload] = survey_of(both).workloads
    assert workload.outcome is Outcome.PARTLY
    assert {key.key: str(key.outcome) for key in workload.keys if key.container == "other"} == {
        "nvidia.com/gpu.shared": "left"
    }
    assert {str(key.outcome) for key in workload.keys if key.container == "main"} == {"translated"}
    file = manifest(tmp_path / "p.yaml", both)
    exits = {level: run("survey", "-f", file, "--fail-on", level).exit_code for level in ("left", "partly")}
    assert exits == {"left": 0, "partly": 1}


def pod_with_code(code):
    """A pod for which `translate` reports this code, and the fleet that it needs."""
    coded_pod = running_pod("p", with_limits(nvidia_gpu=1), phase="")
    fleet = [plugin_node("n0", {"pool": "a"}, nvidia_gpu=8), plugin_node("n1", {"pool": "b"})]
    match code:
        case "D211":
            coded_pod["metadata"]["labels"] = {"hami.io/webhok": "ignore"}
        case "D212":
            coded_pod["spec"]["nodeSelector"] = {"pool": "c"}
            fleet = [plugin_node("n0", {"pool": "a"}), BY_NAME, SLICE]
        case "D221":
            coded_pod["spec"]["nodeSelector"] = {"pool": "b"}
        case "D222":
            coded_pod = running_pod("p", with_limits(**{"nvidia_gpu.shared": 1}), phase="")
    return coded_pod, fleet


@pytest.mark.parametrize("code", ["D211", "D212", "D221", "D222"])
@pytest.mark.parametrize("form", ["json", "csv", "text", "sarif"])
def test_survey_and_translate_give_the_same_codes(code, form, tmp_path):
    coded_pod, fleet = pod_with_code(code)
    given, fleet_file = manifest(tmp_path / "p.yaml", coded_pod), manifest(tmp_path / "fleet.yaml", *fleet)
    _, translated = run_json("translate", "-f", given, "--inventory", fleet_file)
    decided = {(decision["key"], decision.get("code", ""), decision["detail"]) for decision in translated["decisions"]}
    assert code in {decision[1] for decision in decided}
    output = run("survey", "-f", given, "-f", fleet_file, "-o", form).stdout
    assert code in output
    if form == "json":
        [workload] = json.loads(output)["workloads"]
        assert {(key["key"], key.get("code", ""), key["detail"]) for key in workload["keys"]} == decided


def test_a_workload_is_left_until_the_driver_is_installed():
    survey = survey_of(*running_deployment(), plugin_node("n0", nvidia_gpu=10))
    [workload] = survey.workloads
    assert workload.outcome is Outcome.LEFT
    class_ = "DeviceClass hami-core-gpu.project-hami.io has devices"
    assert {key.key: key.until for key in workload.keys} == {
        "nvidia.com/gpu": f"{class_} and no device plugin offers nvidia.com/gpu",
        "nvidia.com/gpumem": class_,
        "nvidia.com/gpucores": class_,
    }
    [missing] = [obstacle for obstacle in survey.obstacles if obstacle.code == "S003"]
    assert missing.object == "DeviceClass/hami-core-gpu.project-hami.io"


def test_a_whole_gpu_is_left_while_a_plugin_serves_it():
    plain = running_pod("p", with_limits(nvidia_gpu=1))
    [workload] = survey_of(plain, plugin_node("n0", nvidia_gpu=8)).workloads
    assert workload.outcome is Outcome.LEFT
    shared = plugin_node("n0", {"nvidia.com/gpu.sharing-strategy": "time-slicing"}, nvidia_gpu=8)
    [workload] = survey_of(plain, shared).workloads
    assert workload.outcome is Outcome.LEFT


BY_NAME = resource_object("DeviceClass", "gpu.nvidia.com", extendedResourceName="nvidia.com/gpu")
SLICE = resource_object(
    "ResourceSlice",
    "n0",
    driver="gpu.nvidia.com",
    nodeName="n0",
    pool={"name": "n0", "generation": 1, "resourceSliceCount": 1},
    devices=[{"name": "gpu-0"}, {"name": "gpu-1"}],
)
# The resource name that each DeviceClass has without an extendedResourceName.
IMPLICIT = "deviceclass.resource.kubernetes.io_gpu.nvidia.com"


def taint_rule(key, **selector):
    taint = {"key": key, "effect": "NoSchedule"}
    return resource_object("DeviceTaintRule", "r", deviceSelector={"driver": "gpu.nvidia.com"} | selector, taint=taint)


@pytest.mark.parametrize("name", ["nvidia.com_gpu", IMPLICIT])
def test_a_request_served_by_core_is_left_if_blocked(name):
    def verdict_of(*objects, **more):
        asking = with_limits()
        asking["resources"]["limits"] = {name.replace("_", "/"): 1}
        asking_pod = running_pod("p", asking, **more)
        [survey] = survey_of(asking_pod, plugin_node("n0"), BY_NAME, SLICE, *objects).workloads
        [key] = survey.keys
        return survey.outcome, key.detail, key.until, key.remedy

    assert verdict_of()[::2] == (Outcome.SERVED, "")
    assert verdict_of(taint_rule("a/repairs", device="gpu-0"))[::2] == (Outcome.SERVED, "")
    outcome, _, until, remedy = verdict_of(taint_rule("a/repairs"))
    assert (outcome, until) == (Outcome.SERVED, "a device of gpu.nvidia.com has no taint that blocks claims")
    assert "tolerate them" in remedy
    left, why, until, remedy = verdict_of(taint_rule("drawbridge.dev/fence"))
    assert until == ""
    assert (
        left,
        "a fence keeps the devices of gpu.nvidia.com" in why,
        "the scheduler that the fence allows" in remedy,
    ) == (
        Outcome.LEFT,
        True,
        True,
    )
    assert verdict_of(node="n0", phase="Running")[0] is Outcome.SERVED
    # A pod without a phase comes from a file, so its author set nodeName.
    bound, why, *_ = verdict_of(node="n0", phase="")
    assert (bound, "nodeName is set" in why) == (Outcome.LEFT, True)


@pytest.mark.parametrize(("nodes", "outcome"), [((), Outcome.SERVED), ((plugin_node("n0"),), Outcome.REFUSED)])
def test_a_class_without_devices_serves_no_extended_resource(nodes, outcome):
    asking = with_limits()
    asking["resources"]["limits"] = {"deviceclass.resource.kubernetes.io/none": 1}
    none = resource_object("DeviceClass", "none", selectors=[{"cel": {"expression": "device.driver == 'x'"}}])
    [workload] = survey_of(running_pod("p", asking), *nodes, none, SLICE).workloads
    assert workload.outcome is outcome
    if not nodes:
        assert workload.keys[0].until == "DeviceClass none has devices"


def test_translated_pods_count_as_moved():
    moved = running_pod("p", HAMI_CONTAINER, annotations={"drawbridge.dev/original": "{}"}, owners=owned_by("Deployment", "train"))
    [workload] = survey_of(workload_object("Deployment", "train", HAMI_CONTAINER), moved).workloads
    assert (workload.outcome, workload.pods_with_claims) == (Outcome.TRANSLATED, 1)


def test_devices_beside_a_pod_that_stays_are_stranded():
    staying = with_limits(**{"nvidia_gpu.shared": 2})
    objects = [plugin_node(f"n{i}", **{"nvidia_gpu.shared": 8, "nvidia_gpu": 4}) for i in range(2)]
    objects += [running_pod("stays", staying, node="n0"), running_pod("moves", with_limits(**SHARE_LIMITS), node="n1")]
    held = {plugin.key: plugin for plugin in survey_of(*objects).plugins}
    shared, whole = held["nvidia.com/gpu.shared"], held["nvidia.com/gpu"]
    assert (shared.devices, shared.staying_devices, shared.stranded_devices, shared.freed_devices) == (16, 2, 6, 8)
    assert (whole.devices, whole.migrating_devices, whole.stranded_devices, whole.freed_devices) == (8, 1, 0, 8)


def test_devices_of_init_containers_and_sidecars_are_counted_like_kubelet():
    before = with_limits("init", nvidia_gpu=3)
    beside = {**with_limits("side", nvidia_gpu=1), "restartPolicy": "Always"}
    pod = running_pod("p", with_limits(nvidia_gpu=1), node="n0")
    pod["spec"]["initContainers"] = [before, beside]
    [held] = survey_of(pod, plugin_node("n0", nvidia_gpu=8)).plugins
    assert held.migrating_devices + held.staying_devices == 3


def test_a_key_that_the_api_server_refuses_is_reported_once():
    [workload] = survey_of(running_pod("p", with_limits(nvidia_gpu="0.5"))).workloads
    [key] = workload.keys
    assert (key.container, key.key, key.amount, key.outcome, key.code) == (
        "main",
        "nvidia.com/gpu",
        "0.5",
        Outcome.REFUSED,
        "R001",
    )


def test_a_refusal_without_a_key_is_printed_without_a_key():
    survey = survey_of({name: value for name, value in running_pod("p", HAMI_CONTAINER).items() if name != "apiVersion"})
    lines = lines_of(survey, is_whole=True)
    assert not [line for line in lines if line.endswith(",") or ": :" in line or "pod: " in line]
    printed_lines = [line.split(maxsplit=3) for line in lines]
    assert ["refused", "1", "1", "the API server refuses it: the object has no apiVersion [D008]"] in printed_lines
    assert any(
        finding.message.startswith("the API server refuses it") for row in findings(survey) for finding in row.findings
    )


def test_placeholders_of_an_object_are_reported_as_a_single_reason(tmp_path):
    """A manifest for envsubst has placeholders in many fields."""
    web = workload_object("Deployment", "${NAME}", with_limits(nvidia_gpu=1), labels={"app": "${NAME}"})
    web["metadata"]["namespace"] = "${NAMESPACE}"
    _, answer = run_json("survey", "-f", manifest(tmp_path / "app.yaml", web), "--fail-on", "never")
    (workload,) = answer["workloads"]
    assert [(key["code"], key["detail"]) for key in workload["keys"] if key.get("code")] == [
        ("D011", "${NAME} is a placeholder that is not filled in")
    ]
