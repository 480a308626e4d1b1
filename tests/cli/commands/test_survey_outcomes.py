"""The outcome of each workload and each key in `drawbridge survey`, and the devices that become free."""

import pytest

from analysis.findings import WAITS
from analysis.survey.rows import findings
from tests.cli.commands.surveys import (
    HAMI_CONTAINER,
    SHARE_LIMITS,
    lines_of,
    owned_by,
    plugin_node,
    resource_object,
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
    pod_with_annotation = running_pod("p", with_limits(**{"koordinator.sh/gpu": 100}), annotations=gang)
    pod_with_selector = running_pod("q", HAMI_CONTAINER)
    pod_with_selector["spec"]["nodeSelector"] = {"nvidia.com/gpu.present": "true"}
    pod_with_variable = running_pod(
        "r", {**HAMI_CONTAINER, "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}]}
    )
    assert [
        workload.outcome for workload in survey_of(pod_with_annotation, pod_with_selector, pod_with_variable).workloads
    ] == [Outcome.TRANSLATED] * 3


def test_a_skipped_workload_is_listed_only_if_it_requests_devices():
    assert survey_of(running_pod("s", with_limits(), labels={"drawbridge.dev/skip": "true"})).workloads == ()
    [workload] = survey_of(running_pod("s", HAMI_CONTAINER, labels={"drawbridge.dev/skip": "true"})).workloads
    assert workload.outcome is Outcome.LEFT


def test_a_missing_device_class_is_an_obstacle():
    other_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "other"}, "spec": {}}
    survey = survey_of(*running_deployment(), plugin_node("n0"), other_class)
    [workload] = survey.workloads
    assert workload.outcome is Outcome.LEFT
    assert "S003" in {obstacle.code for obstacle in survey.obstacles}


def test_a_key_of_no_dialect_is_reported_as_unknown():
    container = with_limits(nvidia_gpumemory=3)
    [workload] = survey_of(running_pod("p", container, with_limits("other", **{"amd.com_weird": 1}))).workloads
    assert workload.outcome is Outcome.UNKNOWN
    by_key = {key.key: (key.code, key.detail, key.remedy) for key in workload.keys}
    assert by_key["nvidia.com/gpumemory"] == ("D211", "did you mean nvidia.com/gpumem?", "")
    assert by_key["amd.com/weird"][0] == "D211"
    assert "declare it under `dialects`" in by_key["amd.com/weird"][2]


def test_a_workload_with_differing_outcomes_is_partly_translated(tmp_path):
    """Each key keeps its own outcome; `--fail-on` uses the outcome of the workload."""
    pod = running_pod("p", HAMI_CONTAINER, with_limits("other", **{"nvidia_gpu.shared": 2}))
    [workload] = survey_of(pod).workloads
    assert workload.outcome is Outcome.PARTLY
    assert {key.key: str(key.outcome) for key in workload.keys if key.container == "other"} == {
        "nvidia.com/gpu.shared": "left"
    }
    assert {str(key.outcome) for key in workload.keys if key.container == "main"} == {"translated"}
    file = manifest(tmp_path / "p.yaml", pod)
    exit_codes = {level: run("survey", "-f", file, "--fail-on", level).exit_code for level in ("left", "partly")}
    assert exit_codes == {"left": 0, "partly": 1}


def test_a_workload_is_left_until_the_driver_is_installed():
    survey = survey_of(*running_deployment(), plugin_node("n0", nvidia_gpu=10))
    [workload] = survey.workloads
    assert workload.outcome is Outcome.LEFT
    class_condition = "DeviceClass hami-core-gpu.project-hami.io has devices"
    assert {key.key: key.until for key in workload.keys} == {
        "nvidia.com/gpu": f"{class_condition} and no device plugin offers nvidia.com/gpu",
        "nvidia.com/gpumem": class_condition,
        "nvidia.com/gpucores": class_condition,
    }
    [obstacle] = [obstacle for obstacle in survey.obstacles if obstacle.code == "S003"]
    assert obstacle.object == "DeviceClass/hami-core-gpu.project-hami.io"
    assert [finding.code for row in findings(survey) for finding in row.findings] == [WAITS] * 3


def test_a_whole_gpu_is_left_while_a_plugin_serves_it():
    pod = running_pod("p", with_limits(nvidia_gpu=1))
    [workload] = survey_of(pod, plugin_node("n0", nvidia_gpu=8)).workloads
    assert workload.outcome is Outcome.LEFT
    node_with_shared_gpus = plugin_node("n0", {"nvidia.com/gpu.sharing-strategy": "time-slicing"}, nvidia_gpu=8)
    [workload] = survey_of(pod, node_with_shared_gpus).workloads
    assert workload.outcome is Outcome.LEFT


CLASS_WITH_RESOURCE_NAME = resource_object("DeviceClass", "gpu.nvidia.com", extendedResourceName="nvidia.com/gpu")
SLICE = resource_object(
    "ResourceSlice",
    "n0",
    driver="gpu.nvidia.com",
    nodeName="n0",
    pool={"name": "n0", "generation": 1, "resourceSliceCount": 1},
    devices=[{"name": "gpu-0"}, {"name": "gpu-1"}],
)
# The resource name that each DeviceClass has without an extendedResourceName.
IMPLICIT_RESOURCE_NAME = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"


def taint_rule(key, **selector):
    taint = {"key": key, "effect": "NoSchedule"}
    return resource_object("DeviceTaintRule", "r", deviceSelector={"driver": "gpu.nvidia.com"} | selector, taint=taint)


@pytest.mark.parametrize("name", ["nvidia.com/gpu", IMPLICIT_RESOURCE_NAME])
def test_a_blocked_request_for_an_extended_resource_is_left(name):
    def verdict_of(*objects, **fields):
        container = with_limits()
        container["resources"]["limits"] = {name: 1}
        pod = running_pod("p", container, **fields)
        [workload] = survey_of(pod, plugin_node("n0"), CLASS_WITH_RESOURCE_NAME, SLICE, *objects).workloads
        [key] = workload.keys
        return workload.outcome, key.detail, key.until, key.remedy

    # [::2]: the outcome, and until when it lasts.
    assert verdict_of()[::2] == (Outcome.SERVED, "")
    assert verdict_of(taint_rule("a/repairs", device="gpu-0"))[::2] == (Outcome.SERVED, "")
    outcome, _, until, remedy = verdict_of(taint_rule("a/repairs"))
    assert (outcome, until) == (Outcome.SERVED, "Driver gpu.nvidia.com has devices without such taints")
    assert "tolerate them" in remedy
    outcome_with_fence, detail, until, remedy = verdict_of(taint_rule("drawbridge.dev/fence"))
    assert until == ""
    assert outcome_with_fence is Outcome.LEFT
    assert "fence" in detail
    assert "the scheduler that the fence allows" in remedy
    assert verdict_of(node="n0", phase="Running")[0] is Outcome.SERVED
    # A pod without a phase comes from a file, so its author set nodeName.
    outcome_with_node_name, detail, *_ = verdict_of(node="n0", phase="")
    assert (outcome_with_node_name, "nodeName is set" in detail) == (Outcome.LEFT, True)


@pytest.mark.parametrize(("nodes", "outcome"), [((), Outcome.SERVED), ((plugin_node("n0"),), Outcome.REFUSED)])
def test_requests_of_empty_classes_are_refused_if_nodes_are_known(nodes, outcome):
    container = with_limits()
    container["resources"]["limits"] = {"deviceclass.resource.kubernetes.io/none": 1}
    empty_class = resource_object("DeviceClass", "none", selectors=[{"cel": {"expression": "device.driver == 'x'"}}])
    [workload] = survey_of(running_pod("p", container), *nodes, empty_class, SLICE).workloads
    assert workload.outcome is outcome
    if not nodes:
        assert workload.keys[0].until == "DeviceClass none has devices"


def test_translated_pods_are_counted_as_pods_with_claims():
    translated_pod = running_pod(
        "p", HAMI_CONTAINER, annotations={"drawbridge.dev/original": "{}"}, owners=owned_by("Deployment", "train")
    )
    [workload] = survey_of(workload_object("Deployment", "train", HAMI_CONTAINER), translated_pod).workloads
    assert (workload.outcome, workload.pods_with_claims) == (Outcome.TRANSLATED, 1)


def test_devices_beside_a_pod_that_stays_are_stranded():
    """A device is stranded if it is unused, but its node must keep the device plugin for a pod that cannot migrate."""
    staying_container = with_limits(**{"nvidia_gpu.shared": 2})
    objects = [plugin_node(f"n{i}", **{"nvidia_gpu.shared": 8, "nvidia_gpu": 4}) for i in range(2)]
    objects += [
        running_pod("stays", staying_container, node="n0"),
        running_pod("moves", with_limits(**SHARE_LIMITS), node="n1"),
    ]
    plugins = {plugin.key: plugin for plugin in survey_of(*objects).plugins}
    shared_plugin, plugin = plugins["nvidia.com/gpu.shared"], plugins["nvidia.com/gpu"]
    assert (
        shared_plugin.devices,
        shared_plugin.staying_devices,
        shared_plugin.stranded_devices,
        shared_plugin.freed_devices,
    ) == (16, 2, 6, 8)
    assert (plugin.devices, plugin.migrating_devices, plugin.stranded_devices, plugin.freed_devices) == (8, 1, 0, 8)


WEBHOOK = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "drawbridge"}}  # fmt: skip
WHOLE = workload_object("Deployment", "train", with_limits(nvidia_gpu=1))
SERVED = (WHOLE, CLASS_WITH_RESOURCE_NAME, SLICE)
QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "default"}, "spec": {"hard": {"requests.nvidia.com/gpu": "4"}}}  # fmt: skip


@pytest.mark.parametrize(
    ("objects", "reasons"),
    [
        ((), []),
        ((*SERVED, WEBHOOK), []),
        (SERVED, ["new pods of 1 workload would request the key"]),
        ((WHOLE, WEBHOOK), ["new pods of 1 workload would request the key"]),
        (
            (running_pod("p", with_limits(nvidia_gpu=1), node="n0"), *SERVED[1:], WEBHOOK),
            ["pods use 1 device of it"],
        ),
        ((QUOTA, WEBHOOK), ["ResourceQuota/default/few [S012]"]),
    ],
    ids=("unused", "served", "without a webhook", "without a driver", "in use", "quota"),
)
def test_a_device_plugin_may_be_deleted_if_nothing_needs_it(objects, reasons):
    [plugin] = survey_of(plugin_node("n0", nvidia_gpu=8), *objects).plugins
    assert list(plugin.needed_by) == reasons


def test_devices_of_init_containers_and_sidecars_are_counted_like_kubelet():
    init_container = with_limits("init", nvidia_gpu=3)
    sidecar = {**with_limits("side", nvidia_gpu=1), "restartPolicy": "Always"}
    pod = running_pod("p", with_limits(nvidia_gpu=1), node="n0")
    pod["spec"]["initContainers"] = [init_container, sidecar]
    [plugin] = survey_of(pod, plugin_node("n0", nvidia_gpu=8)).plugins
    assert plugin.migrating_devices + plugin.staying_devices == 3


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
    survey = survey_of(
        {name: value for name, value in running_pod("p", HAMI_CONTAINER).items() if name != "apiVersion"}
    )
    lines = lines_of(survey, is_whole=True)
    assert not [line for line in lines if line.endswith(",") or ": :" in line or "pod: " in line]
    printed_lines = [line.split(maxsplit=3) for line in lines]
    assert ["refused", "1", "1", "the API server refuses it: the object has no apiVersion [D008]"] in printed_lines
    assert any(
        finding.message.startswith("the API server refuses it") for row in findings(survey) for finding in row.findings
    )


@pytest.mark.parametrize("placeholder", ["${NAME}", "$(date +%H-%M)", "app-$name"])
def test_placeholders_of_an_object_are_reported_as_a_single_reason(placeholder, tmp_path):
    """A manifest for envsubst or a shell has placeholders in many fields."""
    deployment = workload_object("Deployment", placeholder, with_limits(nvidia_gpu=1), labels={"app": placeholder})
    deployment["metadata"]["namespace"] = "${NAMESPACE}"
    _, answer = run_json("survey", "-f", manifest(tmp_path / "app.yaml", deployment), "--fail-on", "never")
    (workload,) = answer["workloads"]
    assert [(key["code"], key["detail"]) for key in workload["keys"] if key.get("code")] == [
        ("D011", f"{placeholder.removeprefix('app-')} is a placeholder that is not filled in")
    ]


@pytest.mark.parametrize(("stored", "outcome"), [(False, "refused"), (True, "translated")])
def test_ephemeral_containers_are_removed_only_from_a_pod_that_a_server_has_stored(stored, outcome):
    """The API server refuses them in a new pod (D210), as the other commands say."""
    debugged = running_pod("p", HAMI_CONTAINER, phase="Running" if stored else "")
    debugged["spec"]["ephemeralContainers"] = [{"name": "d", "image": "i"}]
    [workload] = survey_of(debugged).workloads
    assert workload.outcome == outcome
