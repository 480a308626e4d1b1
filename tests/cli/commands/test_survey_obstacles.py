"""What `drawbridge survey` reports as an obstacle to a migration."""

import pytest

from analysis.loading import SURVEY, read_cluster
from analysis.survey import SurveyScope, overview
from analysis.survey.obstacles import RULES
from dra.codes import CODES
from tests.cli.commands.surveys import (
    HAMI_CONTAINER,
    lines_of,
    owned_by,
    running_deployment,
    survey_of,
    with_limits,
    workload_object,
)
from tests.cli.forbidden import forbidding
from tests.corpus.move.autoscaled import STATUS, scaler
from tests.corpus.move.plugins import config_map, device_config, gpu_cluster, policy
from tests.loops import every
from tests.objects import device_class, obj, resource_quota
from tests.webhook.pods import configured
from webhook.state import outline


def test_each_obstacle_is_named_with_its_object():
    quota = obj("ResourceQuota", "q", namespace="a", hard={"requests.nvidia.com/gpu": 4})
    limit_range = obj("LimitRange", "l", namespace="a", limits=[{"type": "Container", "max": {"nvidia.com/gpu": 1}}])
    rule = {"operations": ["CREATE"], "resources": ["pods"], "apiGroups": [""], "apiVersions": ["v1"]}
    webhook = obj("MutatingWebhookConfiguration", "hami", "admissionregistration.k8s.io/v1")
    webhook["webhooks"] = [{"name": "x", "rules": [rule]}]
    queued_job = workload_object(
        "Job", "j", HAMI_CONTAINER, version="batch/v1", labels={"kueue.x-k8s.io/queue-name": "fast"}
    )
    survey = survey_of(quota, limit_range, webhook, webhook, plugin_daemon_set(), queued_job)
    by_code = {obstacle.code: obstacle.object for obstacle in survey.obstacles}
    assert len(by_code) == len(survey.obstacles)
    assert by_code == {
        "S012": "ResourceQuota/a/q",
        "S013": "LimitRange/a/l",
        "S011": "MutatingWebhookConfiguration/hami",
        "S015": "DaemonSet/a/plugin",
        "S014": "LocalQueue/a/fast",
    }


BY_CLASS = "gpu.deviceclass.resource.k8s.io/devices"
GPU_QUOTA = "requests.nvidia.com/gpu"


@pytest.mark.parametrize(
    ("limits", "extended", "mapped", "is_obstacle"),
    [
        ([GPU_QUOTA], "", "", True),
        ([BY_CLASS], "", "", False),
        (["count/resourceclaims.resource.k8s.io"], "", "", False),
        (["requests.deviceclass.resource.kubernetes.io/gpu"], "", "", False),
        ([GPU_QUOTA], "nvidia.com/gpu", "", False),
        ([GPU_QUOTA, BY_CLASS], "", BY_CLASS, False),
        ([GPU_QUOTA], "", BY_CLASS, True),
    ],
)
def test_a_quota_that_counts_the_claims_is_no_obstacle(limits, extended, mapped, is_obstacle):
    quota = resource_quota("q", dict.fromkeys(limits, "4"), "a")
    gpu_class = device_class(**{"extendedResourceName": extended} if extended else {})
    configuration = configured(quotas={"nvidia.com/gpu": mapped} if mapped else {})
    survey = survey_of(*running_deployment(), quota, gpu_class, configuration=configuration)
    assert ("S012" in {obstacle.code for obstacle in survey.obstacles}) == is_obstacle


def test_every_code_of_a_survey_belongs_to_a_rule():
    shared_codes = {"D214", "O203"}  # `doctor` reports these, too
    own_codes = {code for code in CODES if code.startswith("S")}
    assert {code for rule in RULES for code in rule.codes.split()} == own_codes | shared_codes


async def test_obstacles_of_a_forbidden_kind_are_listed_as_not_looked_for():
    reading = await read_cluster(forbidding("ResourceQuota").holding(running_deployment()), SURVEY)
    survey = overview(reading, SurveyScope())
    [unchecked] = survey.not_checked
    assert (unchecked.inputs, unchecked.codes) == (("ResourceQuota",), ("S012", "S021"))
    assert "is forbidden" in unchecked.reason
    assert "Not checked" in lines_of(survey)


def test_the_queues_of_a_namespace_are_one_obstacle():
    labels = [{"kueue.x-k8s.io/queue-name": queue} for queue in ("fast", "slow", "slow")]
    jobs = [
        workload_object("Job", f"j{i}", HAMI_CONTAINER, version="batch/v1", labels=job_labels)
        for i, job_labels in enumerate(labels)
    ]
    [obstacle] = [obstacle for obstacle in survey_of(*jobs).obstacles if obstacle.code == "S014"]
    assert obstacle.object == "LocalQueue/a/fast, a/slow"
    assert "3 workloads in 2 Kueue queues" in obstacle.message


@pytest.mark.parametrize(
    ("objects", "obstacle_object", "message"),
    [
        ([policy()], "ClusterPolicy/cluster-policy", "never the DRA driver"),
        ([{**policy(), "spec": {"devicePlugin": {"enabled": False}}}], "", ""),
        ([policy(), gpu_cluster()], "GPUCluster/gpu-cluster", "reconciles neither it nor ClusterPolicy cluster-policy"),
        ([gpu_cluster("notReady")], "GPUCluster/gpu-cluster", "its state is notReady"),
        ([gpu_cluster()], "", ""),
    ],
)
def test_only_gpu_operators_that_prevent_claims_are_obstacles(objects, obstacle_object, message):
    obstacles = [
        obstacle
        for obstacle in survey_of(*running_deployment(), *objects).obstacles
        if obstacle.code in ("S016", "S017", "S018")
    ]
    assert [obstacle.object for obstacle in obstacles] == ([obstacle_object] if obstacle_object else [])
    assert all(message in finding.message and finding.remedy for finding in obstacles)


def test_an_old_autoscaler_and_empty_node_groups_are_obstacles():
    status = config_map("cluster-autoscaler-status", "kube-system", status=STATUS)

    def obstacles_of(version):
        return {
            obstacle.code: obstacle.message
            for obstacle in survey_of(*running_deployment(), scaler(version), status).obstacles
        }

    assert obstacles_of("1.34.0")["S008"].startswith("cluster-autoscaler 1.34 does not consider claims")
    assert "S008" not in obstacles_of("1.36.1")
    assert obstacles_of("1.36.1")["S009"].startswith(
        "no node of gpu-a exists: an autoscaler creates one for a claim only if"
    )


def operator_object(version, kind, namespace="", **spec):
    """An object that configures an operator."""
    metadata = {"name": "x"} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


SRIOV_API = "sriovnetwork.openshift.io/v1"
FEATURE_GATE_ON = {"dynamicResourceAllocation": True}


@every(
    ("operator", "finding_code", "obstacle_object", "message", "remedy"),
    [
        (device_config(), "S016", "DeviceConfig/kube-amd-gpu/default", "only instead of the plugin", "move nodes from the `selector`"),
        (device_config(driver=True), "S017", "DeviceConfig/kube-amd-gpu/default", "refuses it", "false"),
        (device_config(True, True), "S017", "DeviceConfig/kube-amd-gpu/default", "refuses it", "false"),
        (device_config(False, True), "", "", "", ""),
        (operator_object("deviceplugin.intel.com/v1", "GpuDevicePlugin"), "S016", "GpuDevicePlugin/x", "no DRA driver", "gpu.intel.com"),
        (operator_object("deviceplugin.intel.com/v1", "QatDevicePlugin"), "S016", "QatDevicePlugin/x", "no DRA driver", "qat.intel.com"),
        (operator_object("deviceplugin.intel.com/v1", "DsaDevicePlugin"), "", "", "", ""),
        (operator_object("mellanox.com/v1alpha1", "NicClusterPolicy", sriovDevicePlugin={"image": "i"}), "S016", "NicClusterPolicy/x", "nodeAffinity", "dranet"),
        (operator_object("mellanox.com/v1alpha1", "NicClusterPolicy", rdmaSharedDevicePlugin={"image": "i"}), "", "", "", ""),
        (operator_object(SRIOV_API, "SriovOperatorConfig", "s"), "S016", "SriovOperatorConfig/s/x", "only instead of the plugin", "featureGates"),
        (operator_object(SRIOV_API, "SriovOperatorConfig", "s", featureGates=FEATURE_GATE_ON), "", "", "", ""),
        # Kinds with the same names in other API groups.
        (operator_object("k8s.aws/v1alpha1", "DeviceConfig", "s"), "", "", "", ""),
        (operator_object("kyverno.io/v1", "ClusterPolicy"), "", "", "", ""),
        (operator_object("habanalabs.com/v1", "ClusterPolicy"), "", "", "", ""),
    ],
)  # fmt: skip
def test_only_operators_that_keep_devices_from_claims_are_obstacles(
    operator, finding_code, obstacle_object, message, remedy
):
    obstacles = survey_of(*running_deployment(), operator).obstacles
    assert [(finding.code, finding.object) for finding in obstacles] == (
        [(finding_code, obstacle_object)] if finding_code else []
    )
    assert all(message in finding.message and remedy in finding.remedy for finding in obstacles)
    assert (
        survey_of(*running_deployment(), outline(operator)).obstacles == obstacles
    )  # a snapshot contains only the outline of an operator's object


@pytest.mark.parametrize("image", ["quay.io/amalvank/instaslicev2-controller:latest", "nginx"])
def test_an_operator_that_renames_keys_is_an_obstacle(image):
    operator = workload_object("Deployment", "operator", with_limits() | {"image": image})
    codes = [finding.code for finding in survey_of(*running_deployment(), operator).obstacles]
    assert codes == (["S011"] if "instaslice" in image else [])


def plugin_daemon_set(name="plugin", namespace="a", owners=None):
    """A DaemonSet that mounts the folder of device plugins."""
    daemon_set = workload_object("DaemonSet", name, with_limits(), owners=owners)
    daemon_set["metadata"]["namespace"] = namespace
    volumes = [{"name": "d", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]
    daemon_set["spec"]["template"]["spec"]["volumes"] = volumes
    return daemon_set


@pytest.mark.parametrize(
    ("daemon_set", "remedy"),
    [
        (plugin_daemon_set(), "node selector"),
        (plugin_daemon_set(owners=owned_by("FpgaDevicePlugin", "f", "deviceplugin.intel.com/v1")), "by FpgaDevicePlugin f, which creates it"),
        (plugin_daemon_set("nvidia-gpu-device-plugin-small-cos", "kube-system"), "`gke-no-default-nvidia-gpu-device-plugin=true`"),
        (plugin_daemon_set("tpu-device-plugin", "kube-system"), "`gke-no-default-tpu-device-plugin=true`"),
        (plugin_daemon_set("tpu-device-plugin", "mine"), "node selector"),
    ],
)  # fmt: skip
def test_the_remedy_says_how_to_exclude_nodes_from_a_plugin(daemon_set, remedy):
    [finding] = survey_of(*running_deployment(), daemon_set).obstacles
    assert finding.code == "S015"
    assert remedy in finding.remedy


def test_only_imex_channel_0_of_the_plugin_is_an_obstacle():
    def obstacles_with(*channels):
        configuration = {"version": "v1", "imex": {"channelIDs": list(channels)}}
        return [
            obstacle.object for obstacle in survey_of(*running_deployment(), config_map(any=configuration)).obstacles
        ]

    assert obstacles_with(0) == ["ConfigMap/gpu-operator/plugin (any)"]
    assert obstacles_with() == obstacles_with(1) == []


def test_an_obstacle_is_printed_like_other_findings():
    survey = survey_of(*running_deployment(), plugin_daemon_set())
    lines = lines_of(survey)
    heading = lines.index("Obstacles")
    assert lines[heading + 1 : heading + 4] == [
        "DaemonSet/a/plugin",
        "  info S015: it registers with kubelet as a device plugin",
        "      keep the DaemonSet off a node (node selector, affinity) once the pods there have moved",
    ]
