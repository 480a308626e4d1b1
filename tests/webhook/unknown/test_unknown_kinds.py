"""Requests in custom resources outside a pod template get the same decisions as requests of pods."""

import copy

import pytest

from tests.loops import every
from tests.objects import namespace
from tests.webhook.admission.test_verdict import GPU, STATE, pod_in_n, state
from tests.webhook.translate.custom_resources import ONE_GPU, custom_resource, outcomes_of
from webhook.admission import decide_object
from webhook.state.state import State
from webhook.translate.workload_kind import KINDS
from webhook.unknown import requests_outside
from webhook.unknown.unanswered_requests import MAX_KEYS
from webhook.unknown.uses import VALUES

APP = {"resources": ONE_GPU}
KSERVE = custom_resource("serving.kserve.io/v1beta1", "InferenceService", {"predictor": {"model": APP}})
TRAIN = custom_resource(
    "trainer.kubeflow.org/v1alpha1", "TrainJob", {"trainer": {"numNodes": 2, "resourcesPerNode": ONE_GPU}}
)
CONTAINERS = {"containers": [{"name": "c", "resources": ONE_GPU}]}
CUSTOM_AMOUNT = {"resources": {"limits": {"custom": {GPU: "1"}}}}
RESOURCES_BY_PATH = {
    "predictor/model": KSERVE,
    "trainer/resourcesPerNode": TRAIN,
    "containers/0": custom_resource("serving.kserve.io/v1alpha1", "ServingRuntime", CONTAINERS),
    "templates/0/container": custom_resource("argoproj.io/v1alpha1", "Workflow", {"templates": [{"container": APP}]}),
    "executor/gpu": custom_resource("sparkoperator.k8s.io/v1beta2", "SparkApplication", {"executor": {"gpu": {"name": GPU, "quantity": 1}}}),
    "podSpec/containers/0": custom_resource("mlops.seldon.io/v1alpha1", "Server", {"podSpec": CONTAINERS}),
    "runners/0": custom_resource("serving.yatai.ai/v2alpha1", "BentoDeployment", {"runners": [CUSTOM_AMOUNT]}),
    "values/app": custom_resource("helm.toolkit.fluxcd.io/v2", "HelmRelease", {"values": {"app": APP}}),
    "source/helm/valuesObject/app": custom_resource("argoproj.io/v1alpha1", "Application", {"source": {"helm": {"valuesObject": {"app": APP}}}}),
}  # fmt: skip


@pytest.mark.parametrize("path", RESOURCES_BY_PATH)
def test_a_custom_resource_is_decided_like_a_pod(path):
    item = RESOURCES_BY_PATH[path]
    verdict = decide_object(item, STATE)
    assert outcomes_of(item) == {(path, GPU): "translated"}
    assert {(decision.outcome, "it is read by" in decision.keep_reason) for decision in verdict.decisions} == {
        ("translated", True)
    }
    assert (verdict.operations, verdict.templates, verdict.refusals) == ((), {}, ())
    assert f"{path} stays: it is read by" in verdict.warnings[0]
    assert {decision.object.partition("/")[0] for decision in verdict.decisions} == {item["kind"]}


def test_requests_of_custom_resources_are_refused_like_those_of_pods():
    nine_gpus = copy.deepcopy(KSERVE)
    nine_gpus["spec"]["predictor"]["model"]["resources"] = {"limits": {GPU: 9}}
    assert "[R023]" in str(decide_object(nine_gpus, STATE).refusals[0])
    half_gpu = copy.deepcopy(TRAIN)
    half_gpu["spec"]["trainer"]["resourcesPerNode"] = {"limits": {GPU: 0.5}}
    assert ("trainer/resourcesPerNode", GPU) in outcomes_of(half_gpu, State())
    assert "[R001]" in str(decide_object(half_gpu, State()).refusals[0])


def test_a_misspelt_key_in_a_custom_resource_is_reported():
    typo = copy.deepcopy(KSERVE)
    typo["spec"]["predictor"]["model"]["resources"] = {"limits": {GPU: 1, "nvidia.com/gpumemory": 1000}}
    assert set(outcomes_of(typo).values()) == {"left", "unknown"}
    details = {decision.key: decision.detail for decision in decide_object(typo, STATE).decisions}
    assert "did you mean nvidia.com/gpumem?" in details["nvidia.com/gpumemory"]


@every("group_kind", KINDS)
def test_every_kind_of_the_table_reports_its_requests(group_kind):
    group, kind = group_kind
    version = f"{group}/v1"
    template = {"spec": pod_in_n({GPU: 1})["spec"]}
    for spec in ({"deep": [{"template": template}]}, {"deep": [{"own": {"resources": ONE_GPU}}]}):
        outcomes = outcomes_of(custom_resource(version, kind, spec))
        assert outcomes, spec
        assert {key for _, key in outcomes} == {GPU}
    field = outcomes_of(custom_resource(version, kind, {"deep": {"numGpus": 2, "replicas": 3}}))
    assert field == {("deep", "numGpus"): "left"}


TRANSLATE_RENDERED = "run `drawbridge translate` on what it renders"


@pytest.mark.parametrize(
    ("version_and_kind", "spec", "words", "remedy"),
    [
        (("helm.toolkit.fluxcd.io/v2", "HelmRelease"), {"values": {"gpuCount": 1}}, "Flux, which renders a chart with it", TRANSLATE_RENDERED),
        (("argoproj.io/v1alpha1", "Application"), {"source": {"helm": {"values": "limits: {nvidia.com/gpu: 1}"}}}, "part of the text in values", TRANSLATE_RENDERED),
        (("policy.karmada.io/v1alpha1", "OverridePolicy"), {"overrideRules": [{"overriders": {"plaintext": [{"value": ONE_GPU}]}}]}, "Karmada", ""),
    ],
    ids=["flux", "argo", "karmada"],
)  # fmt: skip
def test_values_rendered_elsewhere_are_reported_and_left(version_and_kind, spec, words, remedy):
    verdict = decide_object(custom_resource(*version_and_kind, spec), STATE)
    assert {str(decision.outcome) for decision in verdict.decisions} == {"unknown"}
    assert words in verdict.decisions[0].detail
    assert verdict.decisions[0].remedy.startswith(remedy)
    assert not verdict.operations


def test_a_misspelt_known_kind_is_reported():
    for rewrite_unknown in (False, True):
        template = {"resources": ONE_GPU, "worker": {"template": {"spec": pod_in_n({GPU: 1})["spec"]}}}
        verdict = decide_object(
            custom_resource("kubeflow.org/v1", "PytorchJob", template), STATE, rewrite_unknown=rewrite_unknown
        )
        assert "kubeflow.org has no kind PytorchJob, it is called PyTorchJob" in verdict.decisions[0].detail
        assert {(str(decision.outcome), decision.remedy) for decision in verdict.decisions} == {
            ("unknown", "write `kind: PyTorchJob`")
        }
    verdict = decide_object(custom_resource("kubeflow.example.org/v1", "PytorchJob", {"resources": ONE_GPU}), STATE)
    assert "it is called" not in verdict.decisions[0].detail


def test_ray_start_params_alone_are_not_a_request():
    group = {"rayStartParams": {"num-gpus": "1"}, "template": {"spec": pod_in_n({GPU: 1})["spec"]}}
    ray = custom_resource("ray.io/v1", "RayCluster", {"workerGroupSpecs": [group]})
    assert outcomes_of(ray) == {("main", GPU): "translated", ("workerGroupSpecs/0/rayStartParams", "num-gpus"): "left"}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"gpu": "1", "cpu": "4"}, {GPU: "translated"}),
        ({"gpu": "1", "custom": {GPU: "1"}}, {GPU: "translated"}),
        ({"gpu": "1", "gpuType": "gpu.intel.com/xe"}, {"gpu": "left", "gpuType": "left"}),
        ({"gpus": "1"}, {"gpus": "left"}),
    ],
)
@pytest.mark.parametrize(
    ("version", "kind"),
    [("nvidia.com/v1alpha1", "DynamoGraphDeployment"), ("serving.yatai.ai/v2alpha1", "BentoDeployment")],
)
def test_a_controllers_short_name_is_decided_as_the_resulting_key(version, kind, limits, expected):
    item = custom_resource(version, kind, {"runners": [{"resources": {"limits": limits}}]})
    assert outcomes_of(item) == {("runners/0", key): outcome for key, outcome in expected.items()}
    verdict = decide_object(item, STATE)
    assert verdict.refusals == ()
    assert all("it is read by" in decision.keep_reason + decision.detail for decision in verdict.decisions)
    nine_gpus = custom_resource(version, kind, {"runners": [{"resources": {"limits": {"gpu": 9}}}]})
    assert "[R023]" in str(decide_object(nine_gpus, STATE).refusals[0])


UNKNOWN_KIND = custom_resource(
    "example.com/v1", "Weird", {"workers": {"gpuCount": "2", "template": {"spec": pod_in_n({GPU: 1})["spec"]}}}
)


def test_an_unknown_kind_is_reported_with_every_key_in_it():
    verdict = decide_object(UNKNOWN_KIND, STATE)
    assert outcomes_of(UNKNOWN_KIND) == {("workers", "gpuCount"): "unknown", ("main", GPU): "translated"}
    [count, request] = sorted(verdict.decisions, key=lambda decision: decision.outcome, reverse=True)
    assert "not checked: drawbridge does not know how Weird uses it" in count.detail
    assert request.keep_reason == "drawbridge does not know how Weird uses it"
    assert not verdict.operations
    assert decide_object(UNKNOWN_KIND, STATE, rewrite_unknown=True).operations


@pytest.mark.parametrize(
    ("version", "kind", "spec", "reason_part"),
    [
        ("v1", "ResourceQuota", {"hard": {f"requests.{GPU}": 4}}, ""),
        ("v1", "LimitRange", {"limits": [{"type": "Container", "max": {GPU: 4}}]}, ""),
        ("kueue.x-k8s.io/v1beta1", "ClusterQueue", {"flavors": [{"resources": [{"name": GPU, "nominalQuota": 9}]}]}, ""),
        ("karpenter.sh/v1", "NodePool", {"limits": {GPU: 9, "cpu": 100}}, ""),
        ("kueue.x-k8s.io/v1beta2", "ProvisioningRequestConfig", {"managedResources": [GPU]}, ""),
        ("karpenter.sh/v1alpha1", "NodeOverlay", {"capacity": {GPU: "4"}}, ""),
        ("infrastructure.opendatahub.io/v1", "HardwareProfile", {"identifiers": [{"identifier": GPU, "minCount": 1}]}, ""),
        ("dashboard.opendatahub.io/v1", "AcceleratorProfile", {"identifier": GPU, "enabled": True}, ""),
        ("kueue.x-k8s.io/v1beta2", "ClusterQueue", {"resources": [{"name": "example.com/gpu", "nominalQuota": 9}]}, ""),
        ("nos.nebuly.com/v1alpha1", "ElasticQuota", {"min": {"nos.nebuly.com/gpu-memory": 9}}, ""),
        ("kind.x-k8s.io/v1alpha4", "Cluster", {"nodes": [{"extraMounts": [{"hostPath": "/dev/dri"}]}]}, ""),
        ("scheduling.x-k8s.io/v1alpha1", "ElasticQuota", {"max": {GPU: 9}}, ""),
        ("quota.codeflare.dev/v1", "QuotaSubtree", {"children": [{"quotas": {"requests": {GPU: 16}}}]}, ""),
        ("kubeflow.org/v1", "Profile", {"resourceQuotaSpec": {"hard": {f"requests.{GPU}": "2"}}}, ""),
        ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration", {"extenders": [{"managedResources": [{"name": "gpu.intel.com/i915"}]}]}, "an extender"),
        ("kubevirt.io/v1", "KubeVirt", {"permittedHostDevices": {"pciHostDevices": [{"resourceName": "nvidia.com/TU104GL_Tesla_T4"}]}}, "requests nothing"),
        ("cloud.google.com/v1", "ComputeClass", {"priorities": [{"gpu": {"count": 1}}]}, "requests nothing"),
        ("config.kueue.x-k8s.io/v1beta1", "Configuration", {"resources": {GPU: 1}}, "Kueue's configuration"),
        ("mellanox.com/v1alpha1", "HostDeviceNetwork", {"resourceName": "hostdev"}, "pods on this network"),
        ("sriovnetwork.openshift.io/v1", "SriovNetwork", {"resourceName": "mlx"}, "pods on this network"),
        ("kueue.x-k8s.io/v1beta2", "ResourceFlavor", {"nodeLabels": {}, "gpus": 1}, "describes nodes"),
        ("kueue.x-k8s.io/v1beta2", "Topology", {"levels": [{"gpu": 8}]}, "describes nodes"),
        ("scheduling.run.ai/v2", "Queue", {"resources": {"gpu": {"limit": 8}}}, "queue"),
    ],
)  # fmt: skip
def test_a_quota_or_a_list_of_devices_is_not_a_request(version, kind, spec, reason_part):
    item = custom_resource(version, kind, spec)
    verdict = decide_object(item, STATE)
    [decision] = verdict.decisions
    assert (str(decision.outcome), decision.code, verdict.warnings) == ("left", "", ())
    assert reason_part in decision.detail
    assert not requests_outside(item, STATE)


@pytest.mark.parametrize(
    "resource",
    [
        custom_resource("v1", "Node", {"taints": [{"key": GPU}], "resources": ONE_GPU}),
        custom_resource("v1", "ConfigMap", {"gpus": 3}),
        custom_resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", {"names": {"name": GPU}, "gpus": 3}),
        custom_resource("chainsaw.kyverno.io/v1alpha1", "Test", {"script": {"check": {f"(contains($out, '{GPU}'))": True}}}),
        custom_resource("workload.codeflare.dev/v1beta1", "AppWrapper", {"GenericItems": [{"custompodresources": [ONE_GPU]}]}),
        custom_resource("sriovnetwork.openshift.io/v1", "SriovNetwork", {"networkNamespace": "default"}),
        custom_resource("image.openshift.io/v1", "ImageStream", {"tags": [{"from": {"kind": "DockerImage", "name": "nvcr.io/nvidia/cuda:$(version)-devel"}}]}),
    ],
)  # fmt: skip
def test_an_object_that_requests_no_devices_is_not_reported(resource):
    assert outcomes_of(resource) == {}
    assert not requests_outside(resource, STATE)


def unexamined_places(item, **options):
    """Return the places where reading ended (D215). Each must have a warning."""
    verdict = decide_object(item, STATE, **options)
    unexamined = [(decision.container, decision.key) for decision in verdict.decisions if decision.code == "D215"]
    assert len([warning for warning in verdict.warnings if "[D215]" in warning]) == len(unexamined)
    return unexamined


def test_a_warning_names_where_reading_ended():
    rows = [{"gpus": 1}] * (MAX_KEYS + 1)
    for kind, version in (("Odd", "x.io/v1"), ("InferenceService", "serving.kserve.io/v1beta1")):
        assert unexamined_places(custom_resource(version, kind, {"rows": rows})) == [(f"rows/{MAX_KEYS}", "gpus")]
        assert unexamined_places(custom_resource(version, kind, {"rows": rows[:-1]})) == []
    quota = custom_resource(
        "v1", "ResourceQuota", {"hard": {f"requests.nvidia.com/mig-{i}g.5gb": 1 for i in range(MAX_KEYS + 1)}}
    )
    assert unexamined_places(quota) == [("hard", f"nvidia.com/mig-{MAX_KEYS}g.5gb")]
    key_after_list = {"rows": [0] * VALUES, "gpus": 1}
    assert list(outcomes_of(custom_resource("x.io/v1", "Odd", key_after_list)).values()) == ["unknown"], (
        "a map's own fields are not read first"
    )
    key_in_later_field = custom_resource("x.io/v1", "Odd", {"a": [0] * VALUES, "b": {"gpus": 1}})
    assert unexamined_places(key_in_later_field) == [("b", "")]
    assert requests_outside(key_in_later_field, STATE), (
        "an object that was not read to its end counts as one without requests"
    )
    assert unexamined_places(custom_resource("x.io/v1", "Odd", {"a": [0] * VALUES, "b": 1})) == [], (
        "a plain value is reported as unread"
    )
    nested = {"gpus": 1}
    for _ in range(3000):
        nested = {"a": nested}
    assert requests_outside(custom_resource("x.io/v1", "Odd", nested), STATE)
    assert outcomes_of(custom_resource("x.io/v1", "Odd", nested))


WORKSPACE = {
    "apiVersion": "kaito.sh/v1beta1",
    "kind": "Workspace",
    "metadata": {"name": "w"},
    "resource": {"instanceType": "large"},
    "inference": {"template": {"spec": pod_in_n({GPU: 1})["spec"]}},
    "status": {"resources": ONE_GPU},
}


def test_fields_beside_a_spec_and_objects_without_one_are_examined():
    preset = {name: WORKSPACE[name] for name in ("apiVersion", "kind", "metadata", "resource")}
    assert outcomes_of(preset) == {("resource", "instanceType"): "left"}
    verdict = decide_object(WORKSPACE, STATE)
    assert outcomes_of(WORKSPACE) == {("main", GPU): "translated"}
    assert (verdict.operations, "it is read by KAITO" in verdict.warnings[0]) == ((), False)
    assert "the keys in it are read by KAITO" in verdict.warnings[0]
    strange = {**WORKSPACE, "kind": "Strange", "inference": {"own": {"resources": ONE_GPU}}, "gpus": 2}
    assert outcomes_of(strange) == {("", "gpus"): "unknown", ("inference/own", GPU): "unknown"}
    for type_ in (
        {"kind": "ConfigMap", "apiVersion": "v1"},
        {"kind": "Kustomization", "apiVersion": "kustomize.config.k8s.io/v1"},
    ):
        assert outcomes_of({**WORKSPACE, **type_}) == {}


def test_objects_of_a_namespace_with_mode_off_are_skipped():
    namespace_off_state = state(namespace("n", labels={"drawbridge.dev/mode": "off"}))
    for item in (pod_in_n({GPU: 1}), pod_in_n({GPU: 9}), pod_in_n({GPU: 1, "nvidia.com/gpumemory": 1})):
        verdict = decide_object(item, namespace_off_state)
        assert (verdict.operations, verdict.refusals) == ((), ())
        assert {str(decision.outcome) for decision in verdict.decisions} == {"left"}
        assert "its namespace n has the label drawbridge.dev/mode=off" in verdict.warnings[0]
    assert "[R001]" in str(decide_object(pod_in_n({GPU: "0.5"}), namespace_off_state).refusals[0]), (
        "mode off hides a refusal of the API server"
    )
    resource_in_n = copy.deepcopy(KSERVE)
    resource_in_n["metadata"]["namespace"] = "n"
    assert outcomes_of(resource_in_n, namespace_off_state) == {("predictor/model", GPU): "left"}
    pod_in_m = pod_in_n({GPU: 1})
    pod_in_m["metadata"]["namespace"] = "m"
    assert decide_object(pod_in_m, namespace_off_state).operations


def test_only_the_skip_label_of_a_skipped_pod_is_reported():
    item = pod_in_n({GPU: 9}, labels={"drawbridge.dev/skip": "true"})
    assert outcomes_of(item) == {("", "drawbridge.dev/skip"): "left"}
    assert outcomes_of(pod_in_n({"cpu": 1}, labels={"drawbridge.dev/skip": "true"})) == {}


MALFORMED = {
    "a/b~c": {"limits": {GPU: {"x": 1}}, "m": {"limits": [1], "requests": "x", "name": GPU, "quantity": [1]}},
    "none": {"limits": {GPU: None}},
    "list": [[{"requests": {GPU: 9}}], "text", None, {"resources": {"limits": {GPU: "9" * 500}}}],
    "resources": {"limits": "all", "requests": {GPU: ""}},
}


@pytest.mark.parametrize("version", ["serving.kserve.io/v1beta1", "example.com/v1"])
def test_a_malformed_custom_resource_still_gets_an_answer(version):
    outcomes = outcomes_of(custom_resource(version, "InferenceService", MALFORMED))
    paths = {path for path, _ in outcomes}
    assert paths >= {"a~1b~0c/m", "list/0/0", "list/3"}
    assert "none" not in paths, "a null amount is reported as a request"
    for spec in (None, [], "text", 3, {"limits": None}, {"": {"": {"limits": {"": 1}}}}):
        assert outcomes_of(custom_resource(version, "InferenceService", spec)) == {}
