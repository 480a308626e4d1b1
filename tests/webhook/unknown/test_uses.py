"""What an object asks for, and where: keys, roles, owners and pointers do not depend on what is around the object, or on the order of keys."""

import json
import re
from pathlib import Path

import pytest

from cluster.manifests import parse, read
from tests.loops import every
from tests.webhook.admission.test_verdict import GPU, STATE
from tests.webhook.pods import EXAMPLES
from tests.webhook.translate.custom_resources import ONE_GPU, custom_resource
from webhook.admission import decide_object
from webhook.translate import resolve_pointer
from webhook.unknown.uses import How, counts_keys, uses_outside

ROOT = Path(__file__).parents[3]
APP = {"image": "app", "resources": ONE_GPU, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
# Specs of known kinds, with the roles of their keys.
SPECS = {
    "serving.kserve.io/v1beta1 InferenceService": ({"predictor": {"model": APP}}, {"consumes"}),
    "sparkoperator.k8s.io/v1beta2 SparkApplication": ({"executor": {"gpu": {"name": GPU, "quantity": 1}}}, {"consumes"}),
    "argoproj.io/v1alpha1 Workflow": ({"templates": [{"container": APP}]}, {"consumes"}),
    "kubeai.org/v1 Model": ({"resourceProfile": "nvidia-gpu-l4:1"}, {"consumes"}),
    "scheduling.volcano.sh/v1beta1 Queue": ({"capability": {GPU: 4}, "deserved": {GPU: 2}}, {"limits"}),
    "kueue.x-k8s.io/v1beta1 ClusterQueue": ({"resourceGroups": [{"flavors": [{"resources": [{"name": GPU, "nominalQuota": 8}]}]}]}, {"limits"}),
    "autoscaling.openshift.io/v1 ClusterAutoscaler": ({"resourceLimits": {"gpus": [{"type": GPU, "min": 0, "max": 4}]}}, {"limits"}),
    "karpenter.sh/v1 NodePool": ({"limits": {GPU: 4}}, {"limits"}),
    "sriovnetwork.openshift.io/v1 SriovNetwork": ({"resourceName": "nvidia.com/vf"}, {"attaches"}),
    "mellanox.com/v1alpha1 HostDeviceNetwork": ({"resourceName": "vf"}, {"attaches"}),
    "dashboard.opendatahub.io/v1 AcceleratorProfile": ({"identifier": GPU}, {"offers"}),
}  # fmt: skip
# Where a whole object stands in another object, as the object around it and the pointer to it.
AROUND = {
    "a Template": lambda obj: (
        {"apiVersion": "template.openshift.io/v1", "kind": "Template", "objects": [obj]},
        "/objects/0",
    ),
    "another kind": lambda obj: (custom_resource("x.io/v1", "Odd", {"rawTemplate": obj}), "/spec/rawTemplate"),
    "values": lambda obj: (
        custom_resource("helm.toolkit.fluxcd.io/v2", "HelmRelease", {"values": {"extraObjects": [obj]}}),
        "/spec/values/extraObjects/0",
    ),
}


def uses_of(obj):
    return {use.pointer: (use.key, use.how, use.place.role, use.owner, use.amount) for use in uses_outside(obj, STATE)}


def object_of(name):
    return custom_resource(*name.split(), SPECS[name][0])


def reordered(value):
    if isinstance(value, dict):
        return {name: reordered(value[name]) for name in reversed(value)}
    return [reordered(part) for part in value] if isinstance(value, list) else value


@every("name", SPECS)
def test_a_known_spec_has_its_role(name):
    assert {str(role) for _, _, role, _, _ in uses_of(object_of(name)).values()} == SPECS[name][1]


@pytest.mark.parametrize("around", AROUND)
@every("name", SPECS)
def test_a_use_is_the_same_in_another_object(around, name):
    obj = object_of(name)
    outer, pointer = AROUND[around](obj)
    moved = {
        place.removeprefix(pointer): (key, how, role, owner.removeprefix(pointer), amount)
        for place, (key, how, role, owner, amount) in uses_of(outer).items()
    }
    assert moved == uses_of(obj)


@every("name", SPECS)
def test_a_use_is_the_same_in_a_list(name):
    [document] = parse(json.dumps({"apiVersion": "v1", "kind": "List", "items": [object_of(name)]}))
    assert document.is_item
    assert uses_of(document.object) == uses_of(object_of(name))


@every("name", SPECS)
def test_the_order_of_keys_changes_no_use(name):
    assert uses_of(reordered(object_of(name))) == uses_of(object_of(name))


@every(
    ("spec", "owners"),
    [
        ({"app": APP}, {"/spec/values/app/"}),
        ({"app": {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}, "resources": ONE_GPU}}, {"/spec/values/app/"}),
        (
            {"pod": {"runtimeClassName": "nvidia"}, "main": {"resources": ONE_GPU}},
            {"/spec/values/", "/spec/values/main/"},
        ),
    ],
)
def test_a_variable_has_the_owner_of_its_request(spec, owners):
    release = custom_resource("helm.toolkit.fluxcd.io/v2", "HelmRelease", {"values": spec})
    uses = list(uses_outside(release, STATE))
    assert {use.owner for use in uses} == owners
    assert {use.key for use in uses if use.is_beside_request(uses)} == {
        use.key for use in uses if use.how is How.ACCESS
    }
    assert len({use.how for use in uses}) == 2, "a request, and an access beside it"


def test_two_controllers_are_two_owners():
    release = custom_resource(
        "helm.toolkit.fluxcd.io/v2",
        "HelmRelease",
        {"values": {"a": {"resources": ONE_GPU}, "b": {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}}},
    )
    uses = list(uses_outside(release, STATE))
    assert [use.key for use in uses if use.how is How.ACCESS and not use.is_beside_request(uses)] == [
        "NVIDIA_VISIBLE_DEVICES"
    ]


def test_a_decision_points_to_its_key():
    examined = 0
    for document in read([EXAMPLES]):
        for decision in decide_object(document.object, STATE).decisions:
            value = resolve_pointer(document.object, decision.pointer)
            assert value is not None, (document.file, decision)
            if decision.amount and not isinstance(value, dict):
                assert str(value) == decision.amount, (document.file, decision)
                examined += 1
    assert examined > 50


# What supplies devices or describes machines; no pod gets a device from it.
NO_REQUESTS = {
    "machines": custom_resource(
        "machine.openshift.io/v1beta1", "MachineSet", {"template": {"spec": {"gpus": [{"type": "t4", "count": 1}]}}}
    ),
    "a provider of Tensor Fusion": custom_resource(
        "tensor-fusion.ai/v1", "ProviderConfig", {"hypervisor": {"deviceMount": {"sharedDevices": ["/dev/dri"]}}}
    ),
    "an exporter": custom_resource(
        "helm.toolkit.fluxcd.io/v2",
        "HelmRelease",
        {"chart": {"spec": {"chart": "nvidia-gpu-exporter"}}, "values": {"runtimeClassName": "nvidia"}},
    ),
}


@every("name", NO_REQUESTS)
def test_what_supplies_or_describes_devices_requests_none(name):
    decisions = decide_object(NO_REQUESTS[name], STATE).decisions
    assert not [decision for decision in decisions if decision.code]
    assert counts_keys(NO_REQUESTS[name], STATE)


@every("path", ["/dev/infiniband/", "/dev/dri/", "/dev/kfd", "/dev/dri/renderD128"])
def test_a_device_file_may_be_a_folder(path):
    spec = {"containers": [{"name": "c"}], "volumes": [{"name": "v", "hostPath": {"path": path}}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    [decision] = decide_object(pod, STATE).decisions
    assert (decision.key, decision.pointer) == (path, "/spec/volumes/0/hostPath")


@every("annotation", ["tensor-fusion.ai/tflops-request", "gpu-fraction", "nvidia.com/use-gpuuuid"])
def test_an_annotation_beside_the_pod_template_has_no_effect(annotation):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    [decision] = decide_object(
        custom_resource("apps/v1", "Deployment", spec, annotations={annotation: "1"}), STATE
    ).decisions
    assert decision.detail == "it is read on pods: write it into the pod template"


# Files with a pattern about keys beside `webhook.unknown.words`: the words of one dialect, values of a chart, edits of texts, and texts that
# are hidden.
WITH_PATTERNS = {
    "analysis/migration/lenses.py",
    "analysis/migration/requests.py",
    "analysis/redaction.py",
    "cli/in_place.py",
    "webhook/dialects/kai/__init__.py",
    "webhook/unknown/words.py",
}
PATTERN = re.compile(r"""re\.compile\(\s*[rbf]{0,2}(\"{3}|"|')(.*?)\1""", re.DOTALL)
ABOUT_KEYS = re.compile(r"[gn]pu|nvidia|/dev/|limits|\brequests", re.IGNORECASE)


def test_patterns_about_keys_are_in_one_module():
    files = [file for folder in ("analysis", "cli", "dashboard", "webhook") for file in (ROOT / folder).rglob("*.py")]
    found = {
        str(file.relative_to(ROOT))
        for file in files
        if any(ABOUT_KEYS.search(match[2]) for match in PATTERN.finditer(file.read_text()))
    }
    assert "webhook/unknown/words.py" in found
    assert found <= WITH_PATTERNS
