"""Device requests in texts, in manifests inside other objects, in chart values, and in networks."""

import pytest

from tests.corpus.move import Case, decide, node
from tests.loops import every
from tests.objects import config_map, obj
from tests.webhook.admission.test_verdict import GPU, STATE, pod_in_n
from tests.webhook.translate.custom_resources import custom_resource, outcomes_of
from webhook.admission import decide_object
from webhook.unknown import requests_outside
from webhook.unknown.unanswered_requests import MAX_KEYS

TEXTS = {
    "podSpecPatch": '{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"4"}}}]}',
    "manifest": "kind: Job\nspec:\n  limits:\n    nvidia.com/gpu: 1\n",
    "values": "resources: {limits: {nvidia.com/gpu: {{ .gpus }}}}",
    "value": '{"accelerator":{"count":"1","resourceCount":"1","resourceType":"nvidia.com/gpu"}}',
    "template": "containers:\n- resources:\n    limits:\n      nvidia.com/gpu: '{{inputs.parameters.gpus}}'\n",
    "image": '{"containers":[{"image":"a#b","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}',
}


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("version_and_kind", [("argoproj.io/v1alpha1", "Workflow"), ("x.io/v1", "Odd")], ids="/".join)
def test_a_key_with_an_amount_in_text_is_reported(version_and_kind, field):
    for spec, container, text in (
        ({"a": [{field: TEXTS[field]}]}, "a/0", field),
        ({"args": ["x", TEXTS[field]]}, "args", "item 1"),
    ):
        item = custom_resource(*version_and_kind, spec)
        assert outcomes_of(item) == {(container, GPU): "unknown"}
        verdict = decide_object(item, STATE)
        assert f"not checked: it is part of the text in {text}" in verdict.warnings[0]
        assert "[D211]" in verdict.warnings[0]
        assert not verdict.operations
        assert requests_outside(item, STATE)


TEXTS_WITHOUT_REQUEST = (
    "asks for nvidia.com/gpu, as pods do",
    "key: nvidia.com/gpu",
    "nvidia.com/gpu: 0",
    "nvidia.com/gpu.product: A100",
    "docker.io/library/app: 1.2",
    "my-nvidia.com/gpu-1: 1",
    "containers: []  # nvidia.com/gpu: 1",
    "containers: [{name: main, image: nvcr.io/nvidia/cuda, env: [{name: A, value: /dev/nvidia0}]}]",
    "containers: [{name: main, image: nvidia/cuda, resources: {limits: {memory: 1Gi}}}]",
    "x" * 300_000,
    "/" * 300_000,
)
VARIABLE = "NVIDIA_VISIBLE_DEVICES"
NO_DEVICES = ("void", "none", "", None, 0)


@every(
    "spec",
    [
        *({"podSpecPatch": text} for text in (*TEXTS_WITHOUT_REQUEST, {"containers": []}, None)),
        {"annotations": {"a": TEXTS["manifest"]}},
        *({"values": {"env": {VARIABLE: value}}} for value in NO_DEVICES),
        *({"values": {"env": [{"name": VARIABLE, "value": value}]}} for value in NO_DEVICES),
        {"values": {"runtimeClassName": "gvisor"}},
        {"values": {"dri": {"hostPath": "/dev/shm"}}},
        {"gpu": {"enabled": False}},
        {"gpu": {"enabled": True}, "nodeSelector": {"gpu": "true"}},
        {"gpuMemoryUtilization": 0.9, "gpus": 0, "gpu": "none", "limits": {"cpu": 1}},
        {"nodeLabels": {"nvidia.com/gpu.product": "A100"}, "name": "gpu"},
        {"resources": {"limits": {GPU: {"min": 0}}}},
        {"parameters": [{"name": "num-gpus", "value": "0"}, {"name": "steps", "value": "2"}]},
        {"env": [{"name": "NUM_GPUS", "value": "2"}]},
        {"resources": {"gpu": {"quota": 0, "limit": -1}}},
        {"config": {"map": {"any": f"sharing:\n  timeSlicing:\n    resources:\n    - {{name: {GPU}, replicas: 2}}\n"}}},
    ],
)
def test_texts_and_fields_without_devices_are_not_reported(spec):
    for version, kind in (("x.io/v1", "Odd"), ("helm.toolkit.fluxcd.io/v2", "HelmRelease")):
        item = custom_resource(version, kind, spec)
        assert outcomes_of(item) == {}
        assert not requests_outside(item, STATE)


@pytest.mark.long
@pytest.mark.parametrize("piece", ["a", ".", "nvidia.com/", "/", "a/b ", "nvidia.com/gpu \t", '"a.b/c": 1,'])
def test_a_long_text_is_read_once(piece):
    """In quadratic time, the test would reach its time limit."""
    decide_object(custom_resource("x.io/v1", "Odd", {"text": "/" + piece * 500_000}), STATE)


@pytest.mark.parametrize("field", ["command", "args"])
@pytest.mark.parametrize("version", ["batch/v1", "x.io/v1"])
def test_a_manifest_in_container_arguments_is_reported(field, version):
    def job_with_text(text):
        container = {"name": "c", "image": "kubectl", field: ["sh", text]}
        return custom_resource(version, "Job", {"template": {"spec": {"containers": [container]}}})

    job = job_with_text(f"cat <<EOF | kubectl apply -f -\n{POD_TEXT}EOF\n")
    [decision] = decide_object(job, STATE, rewrite_unknown=True).decisions
    assert (decision.container, decision.key, decision.code) == ("template/spec/containers/0", GPU, "D211")
    assert f"it is part of the text in {field}" in decision.detail
    assert decision.remedy
    assert outcomes_of(job_with_text(f"echo {GPU}: 1"), rewrite_unknown=True) == {}


POD_TEXT = f"kind: Pod\nspec: {{containers: [{{resources: {{limits: {{{GPU}: 1}}}}}}]}}\n"


@every("kind", ["ConfigMap", "Secret"])
@every(
    ("text", "is_reported"),
    [
        (POD_TEXT, True),
        (f"[runners]\npatch = '''\nresources:\n  limits:\n    {GPU}: 1\n'''\n", True),
        (f'{{"resources": {{"requests": {{"{GPU}": "2"}}}}}}', True),
        (f"sharing: {{timeSlicing: {{resources: [{{name: {GPU}, replicas: 4}}]}}}}", False),
        (f"transformations: {{outputs: {{{GPU}: 1}}}}", False),
        (f"limits: {{{GPU}: 0}}", False),
        (f"# limits:\n# {GPU}: 1\n", False),
        ("limits: {example.com/dongle: 1}", False),
    ],
)
def test_only_requests_in_config_maps_and_secrets_are_reported(kind, text, is_reported):
    config = obj(kind, "o") | {"data": {"pod.yaml": text, "other": "limits"}}
    verdict = decide_object(config, STATE)
    assert outcomes_of(config) == ({("data", GPU): "unknown"} if is_reported else {})
    assert all(
        "the text in pod.yaml" in decision.detail and "saved as a file" in decision.remedy
        for decision in verdict.decisions
    )
    assert requests_outside(config, STATE) is is_reported


def test_only_the_first_of_many_texts_are_reported():
    texts = {f"{number}": POD_TEXT for number in range(MAX_KEYS + 9)}
    assert len(decide_object(config_map("o", **texts), STATE).warnings) == MAX_KEYS


def sriov_operator(prefix):
    variables = [{"name": "RESOURCE_PREFIX", "value": prefix}]
    container = {"name": "o", "image": "ghcr.io/k8snetworkplumbingwg/sriov-network-operator:v1", "env": variables}
    spec = {"selector": {}, "template": {"spec": {"containers": [container]}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "operator"}, "spec": spec}


PLUGIN = (
    '{"resourceList": [{"resourcePrefix": "nvidia.com", "resourceName": "mlx", "selectors": {"vendors": ["15b3"]}}]}'
)
SRIOV_POLICY = custom_resource("sriovnetwork.openshift.io/v1", "SriovNetworkNodePolicy", {"resourceName": "mlx"})


@pytest.mark.parametrize(
    ("cluster_objects", "key"),
    [
        ((), "mlx"),  # the operators of OpenShift, NVIDIA and Intel have different domains
        ((sriov_operator("intel.com"),), "intel.com/mlx"),
        ((sriov_operator("$(PREFIX)"),), "mlx"),
        ((SRIOV_POLICY, pod_in_n({"nvidia.com/mlx": 1})), "nvidia.com/mlx"),
        ((SRIOV_POLICY, pod_in_n({"nvidia.com/mlx": 1}), pod_in_n({"a.org/mlx": 1})), "mlx"),
        ((node("n", **{"nvidia.com/mlx": 4}),), "nvidia.com/mlx"),
        ((node("n", **{"nvidia.com/mlx": 4}), node("o", **{"intel.com/mlx": 4})), "mlx"),
    ],
)
def test_a_pool_of_the_sriov_operator_has_the_domain_that_the_operator_or_a_node_shows(cluster_objects, key):
    for kind in ("SriovNetwork", "SriovIBNetwork", "OVSNetwork", "SriovNetworkNodePolicy"):
        given = custom_resource("sriovnetwork.openshift.io/v1", kind, {"resourceName": "mlx"})
        [decision] = decide(Case("", given, "left", cluster_objects=cluster_objects)).decisions
        assert (decision.key, str(decision.outcome)) == (key, "left")


@pytest.mark.parametrize(
    ("maker", "is_known"),
    [
        (SRIOV_POLICY, True),
        (custom_resource("sriovnetwork.openshift.io/v1", "SriovNetworkNodePolicy", {"resourceName": "other"}), False),
        (custom_resource("mellanox.com/v1alpha1", "HostDeviceNetwork", {"resourceName": "mlx"}), True),
        (custom_resource("mellanox.com/v1alpha1", "NicClusterPolicy", {"sriovDevicePlugin": {"config": PLUGIN}}), True),
    ],
)
def test_a_pod_may_request_a_pool_that_an_operator_in_the_input_makes(maker, is_known):
    requesting = pod_in_n({"nvidia.com/mlx": 1})
    [decision] = decide(Case("", requesting, "left", cluster_objects=(maker, requesting))).decisions
    assert (str(decision.outcome), maker["kind"] in decision.detail) == ("left" if is_known else "unknown", is_known)


@pytest.mark.parametrize("env", [{VARIABLE: "all"}, [{"name": VARIABLE, "value": "all"}]], ids=["map", "list"])
def test_a_device_variable_in_chart_values_is_reported(env):
    values = {"values": {"containers": {"app": {"env": env}}}}
    [decision] = decide_object(custom_resource("helm.toolkit.fluxcd.io/v2", "HelmRelease", values), STATE).decisions
    assert (decision.key, str(decision.outcome), decision.code) == (VARIABLE, "unknown", "D211")


@pytest.mark.parametrize("runtime", [{"pod": {"runtimeClassName": "nvidia"}}, {"runtimeClassName": "nvidia"}])
def test_other_access_to_devices_beside_a_request_in_chart_values_is_not_reported(runtime):
    resources = {"resources": {"limits": {GPU: 1}}}
    app = {"env": {VARIABLE: "all"}, **resources}
    volume = {"dri": {"hostPath": "/dev/dri", "mounts": [{"path": "/dev/dri"}]}}
    values = {
        "main": {"containers": {"app": app}, "persistence": volume, **runtime},
        "other": {"env": {VARIABLE: "all"}},
    }
    item = custom_resource("helm.toolkit.fluxcd.io/v2", "HelmRelease", {"values": values})
    assert {place for place, key in outcomes_of(item) if key != GPU} == {"values/other/env"}


@pytest.mark.parametrize(
    ("version_and_kind", "spec", "key"),
    [
        (("helm.toolkit.fluxcd.io/v2", "HelmRelease"), {"values": {"runtimeClassName": "nvidia"}}, "runtimeClassName"),
        (("helm.toolkit.fluxcd.io/v2", "HelmRelease"), {"values": {"dri": {"hostPath": "/dev/dri"}}}, "/dev/dri"),
        (("inference.llmkube.dev/v1alpha1", "Model"), {"hardware": {"gpu": {"enabled": True, "vendor": "nvidia"}}}, "gpu"),
        (("x.io/v1", "Odd"), {"resources": {"limits": {GPU: {"min": 1}}}}, GPU),
        (("x.io/v1", "Odd"), {"resources": {"limits": {GPU: 1}, "requests": {GPU: 1}}}, GPU),
        (("argoproj.io/v1alpha1", "Workflow"), {"podSpecPatch": "{limits: {nvidia.com/mig-1g.5gb: 1}}"}, "nvidia.com/mig-1g.5gb"),
        (("kubevirt.io/v1", "VirtualMachine"), {"devices": {"gpus": [{"name": "g", "deviceName": GPU}]}}, GPU),
        (("mellanox.com/v1alpha1", "HostDeviceNetwork"), {"resourceName": "nvidia.com/hostdev"}, "nvidia.com/hostdev"),
        (("kubeai.org/v1", "Model"), {"url": "hf://m", "resourceProfile": "nvidia-gpu-l4:1"}, "resourceProfile"),
        (("kaito.sh/v1alpha1", "MultiRoleInference"), {"roles": [{"instanceType": "a"}]}, "instanceType"),
        (("argoproj.io/v1alpha1", "Workflow"), {"parameters": [{"name": "num-gpus", "value": "2"}]}, "num-gpus"),
        (("scheduling.run.ai/v2", "Queue"), {"resources": {"gpu": {"quota": 8, "limit": -1}}}, "gpu"),
    ],
)  # fmt: skip
def test_devices_in_fields_of_other_forms_are_reported(version_and_kind, spec, key):
    assert [key for _, key in outcomes_of(custom_resource(*version_and_kind, spec))] == [key]
