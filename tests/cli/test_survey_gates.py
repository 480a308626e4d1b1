"""A survey names the feature gates that are off on the server, the number of workloads that need them, and how to enable them."""

from unittest.mock import AsyncMock

import pytest

from analysis.configuration import ConfigurationInForce
from analysis.loading import SURVEY, read_cluster, reading_of
from analysis.survey import SurveyScope, overview
from analysis.survey.gates import _TITLES
from analysis.survey.remedies import remedy_of
from cluster.embedded import Embedded
from cluster.server import ServerInfo
from dra import server as gates
from dra.server import DeclaredServer, read_server
from dra.validation.fields.gates import required_by
from tests.cli.commands.surveys import HAMI_CONTAINER, running_pod, with_limits, workload_object
from tests.dra.validation import corpus
from tests.loops import every
from tests.objects import obj
from webhook.state import Features

FEATURES_BY_MINOR = {minor: Features.from_server(gates.server_of(minor)) for minor in range(34, 39)}
API_VERSION = "resource.k8s.io/v1"
CLASS = {"apiVersion": API_VERSION, "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": 'device.driver == "d.io"'}}]}}  # fmt: skip


def resource_object(kind, **spec):
    return obj(kind, "x", API_VERSION, namespace="a", **spec)


def request_with(**fields):
    return {"name": "r", "exactly": {"deviceClassName": "c", **fields}}


def template_of(request, **fields):
    return resource_object("ResourceClaimTemplate", spec={"devices": {"requests": [request], **fields}})


def device_slice(**device):
    return pool_slice("x", 1, devices=[{"name": "d", **device}])


def pool_slice(name, slice_count, **fields):
    spec = {
        "driver": "d.io",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": slice_count},
    }
    slice_ = resource_object("ResourceSlice", **spec, **fields)
    slice_["metadata"]["name"] = name
    return slice_


COUNTER_DEVICE = {"consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "1"}}}]}
COUNTER_SLICES = [
    pool_slice("counters", 2, sharedCounters=[{"name": "s", "counters": {"m": {"value": "1"}}}]),
    pool_slice("devices", 2, devices=[{"name": "d", **COUNTER_DEVICE}]),
]


def claiming_deployment():
    """Return a Deployment whose pods have their own claim."""
    deployment = workload_object("Deployment", "own", with_limits())
    deployment["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "x"}]
    return deployment


def obstacles_by_gate(features, *objects):
    survey = overview(reading_of(objects, features, pods=False), SurveyScope())
    return {obstacle.object: obstacle for obstacle in survey.obstacles if obstacle.code == "S019"}


# The gate, the minor versions of Kubernetes in which it is off by default, and objects that need it.
OBJECTS_THAT_NEED_GATES = {
    "shares of a legacy key": (gates.CAPACITY, [34, 35], [workload_object("Deployment", "hami", HAMI_CONTAINER)]),
    "shares of a claim": (gates.CAPACITY, [34, 35], [claiming_deployment(), template_of(request_with(capacity={"requests": {"memory": "1Gi"}})), CLASS]),
    "distinct devices": (gates.CAPACITY, [34, 35], [claiming_deployment(), template_of(request_with(), constraints=[{"distinctAttribute": "d.io/x"}]), CLASS]),
    "tolerations": (gates.TAINTS, [34, 35], [claiming_deployment(), template_of(request_with(tolerations=[{"operator": "Exists"}])), CLASS]),
    "taints": (gates.TAINTS, [34, 35], [claiming_deployment(), template_of(request_with()), CLASS, device_slice(taints=[{"key": "k", "effect": "NoSchedule"}])]),
    "partitions": (gates.COUNTERS, [34, 35], [claiming_deployment(), template_of(request_with()), CLASS, *COUNTER_SLICES]),
    "binding conditions": (gates.BINDING, [34, 35], [claiming_deployment(), template_of(request_with()), CLASS, device_slice(bindingConditions=["x"], bindingFailureConditions=["y"])]),
    "CPUs of the node": (gates.NODE_RESOURCES, [34, 35, 36, 37, 38], [claiming_deployment(), template_of(request_with()), CLASS, device_slice(nodeAllocatableResources={"cpu": {}})]),
    "derived attributes": (gates.DERIVED, [34, 35, 36, 37, 38], [claiming_deployment(), template_of(request_with(derivedAttributes=[{"name": "d.io/y", "expression": "1"}])), CLASS]),
    "an extended resource of a class": (gates.EXTENDED, [34, 35], [running_pod("p", with_limits(**{"deviceclass.resource.kubernetes.io/c": 1})), CLASS]),
    "alternatives": (gates.ALTERNATIVES, [], [claiming_deployment(), template_of({"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "c"}]}), CLASS]),
    "admin access": (gates.ADMIN_ACCESS, [], [claiming_deployment(), template_of(request_with(adminAccess=True)), CLASS]),
    "a claim": (gates.CLAIMS, [], [claiming_deployment(), template_of(request_with()), CLASS]),
}  # fmt: skip


@every("minor", FEATURES_BY_MINOR)
@every("name", OBJECTS_THAT_NEED_GATES)
def test_only_gates_that_are_off_by_default_are_obstacles(name, minor):
    gate, minors_with_gate_off, objects = OBJECTS_THAT_NEED_GATES[name]
    by_gate = obstacles_by_gate(FEATURES_BY_MINOR[minor], *objects)
    assert list(by_gate) == ([gate] if minor in minors_with_gate_off else [])


@every("name", OBJECTS_THAT_NEED_GATES)
def test_a_gate_that_is_on_is_no_obstacle(name):
    assert obstacles_by_gate(Features.from_server(gates.EVERYTHING), *OBJECTS_THAT_NEED_GATES[name][2]) == {}


@pytest.mark.parametrize(
    ("name", "gate"), [("alternatives", gates.ALTERNATIVES), ("admin access", gates.ADMIN_ACCESS), ("a claim", gates.CLAIMS)]
)  # fmt: skip
def test_a_gate_that_was_disabled_is_an_obstacle(name, gate):
    features = Features.from_server(read_server("1.34", f"{gate}=false"))
    by_gate = obstacles_by_gate(features, *OBJECTS_THAT_NEED_GATES[name][2])
    assert list(by_gate) == [gate]
    assert by_gate[gate].remedy.startswith("start kube-apiserver")


def test_an_extended_resource_needs_the_gates_of_its_devices():
    _, _, objects = OBJECTS_THAT_NEED_GATES["an extended resource of a class"]
    tainted = device_slice(taints=[{"key": "k", "effect": "NoSchedule"}])
    assert set(obstacles_by_gate(FEATURES_BY_MINOR[35], *objects, tainted)) == {gates.EXTENDED, gates.TAINTS}


def test_the_workloads_and_pods_that_need_a_gate_are_counted():
    owner_fields = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "hami", "uid": "u", "controller": True}]}  # fmt: skip
    pods = [running_pod(f"p{number}", HAMI_CONTAINER, owners=owner_fields) for number in range(3)]
    objects = (
        *OBJECTS_THAT_NEED_GATES["shares of a legacy key"][2],
        *pods,
        running_pod("other", HAMI_CONTAINER),
        running_pod("plain", with_limits(nvidia_gpu=1)),
    )
    by_gate = obstacles_by_gate(FEATURES_BY_MINOR[35], *objects)
    assert by_gate[gates.CAPACITY].message == "Kubernetes 1.35 has it off: 2 workloads (4 pods) need shares of devices"


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (Features.combine(35, {}), "off by default"),
        (Features.combine(35, {gates.CAPACITY: False}), "off:"),
        (Features.combine(36, {gates.CAPACITY: False}), "off:"),
        (Features.combine(36, {}, DeclaredServer(36, {gates.CAPACITY: False})), "off:"),
        (Features.combine(35, {}, DeclaredServer(35, {gates.CAPACITY: True})), ""),
        (Features.combine(35, {gates.CAPACITY: True}), ""),
        (Features.combine(36, {}), ""),
    ],
)
def test_a_reported_gate_overrides_a_declared_one_and_the_default(features, message):
    by_gate = obstacles_by_gate(features, *OBJECTS_THAT_NEED_GATES["shares of a legacy key"][2])
    assert bool(by_gate) == bool(message)
    assert all(message in finding.message for finding in by_gate.values())


@pytest.mark.parametrize(
    ("gate", "minor", "remedy"),
    [
        (gates.CLAIMS, 33, "upgrade to 1.34"),
        (gates.CAPACITY, 35, "upgrade to 1.36, or start kube-apiserver, kube-scheduler with `--feature-gates=DRAConsumableCapacity=true`"),
        (gates.CAPACITY, 36, "start kube-apiserver, kube-scheduler with `--feature-gates=DRAConsumableCapacity=true`"),
        (gates.EXTENDED, 34, "upgrade to 1.36, or start kube-apiserver, kube-scheduler, kubelet with `--feature-gates=DRAExtendedResource=true`"),
        (gates.TAINTS, 35, "upgrade to 1.36, or start kube-apiserver, kube-scheduler, kube-controller-manager with `--feature-gates=DRADeviceTaints=true`"),
        (gates.NODE_RESOURCES, 35, "upgrade to 1.36, and start kube-apiserver, kube-scheduler, kubelet with `--feature-gates=DRANodeAllocatableResources=true`"),
        (gates.NODE_RESOURCES, 37, "start kube-apiserver, kube-scheduler, kubelet with `--feature-gates=DRANodeAllocatableResources=true`"),
    ],
)  # fmt: skip
def test_the_remedy_names_the_version_and_the_components(gate, minor, remedy):
    assert remedy_of(gate, Features.combine(minor, {})) == remedy


def test_the_remedy_enables_the_gates_that_a_gate_needs():
    features = Features.combine(37, {gates.COUNTERS: False})
    assert "DRAPartitionableDevices=true,DRADeviceCompatibilityGroups=true" in remedy_of(gates.GROUPS, features)


async def test_a_live_survey_uses_the_declared_gates(monkeypatch):
    from webhook.state import read_configuration

    document = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "metadata": {"name": "x"}, "kubernetes": {"featureGates": {gates.CAPACITY: False}}}  # fmt: skip
    configuration, findings = read_configuration(document)
    assert findings == []
    in_force = ConfigurationInForce(configuration, "a file")
    cluster, server = Embedded.holding([]), ServerInfo(minor=36, version="v1.36.3", served=frozenset(), gates={})
    monkeypatch.setattr(cluster, "server", AsyncMock(return_value=server))
    reading = await read_cluster(cluster, SURVEY, given=in_force)
    assert not reading.features.enabled(gates.CAPACITY)


@pytest.mark.parametrize(
    ("expression", "is_needed"),
    [
        ('device.driver == "d.io"', True),
        ('device.attributes["d.io"].kind == "part"', True),
        ('device.driver.endsWith(".io")', True),
        ('device.driver != "d.io"', False),
        ('device.driver == "d.io" && device.attributes["d.io"].kind == "whole"', False),
        ('device.driver == "other.io" || "d.io" == ""', False),
    ],
)
def test_a_class_needs_the_gates_of_its_selected_devices(expression, is_needed):
    class_with_selector = {**CLASS, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    tainted_slice = device_slice(taints=[{"key": "k", "effect": "NoSchedule"}], attributes={"kind": {"string": "part"}})
    by_gate = obstacles_by_gate(
        FEATURES_BY_MINOR[35], claiming_deployment(), template_of(request_with()), class_with_selector, tainted_slice
    )
    assert bool(by_gate) is is_needed


def outcomes_of_workloads(features, *objects):
    survey = overview(reading_of(objects, features, pods=False), SurveyScope())
    return {
        (workload.name, workload.outcome): [(key.key, key.outcome, key.until, key.remedy) for key in workload.keys]
        for workload in survey.workloads
    }


REMEDY_FOR_SHARES = "start kube-apiserver, kube-scheduler with `--feature-gates=DRAConsumableCapacity=true`"


def test_a_workload_waits_for_the_gate_of_its_key():
    features = Features.combine(36, {gates.CAPACITY: False})
    ((name_and_outcome, keys),) = outcomes_of_workloads(
        features, workload_object("Deployment", "hami", HAMI_CONTAINER)
    ).items()
    assert name_and_outcome == ("hami", "left")
    assert keys == [
        (key, "left", f"feature gate {gates.CAPACITY} is on", REMEDY_FOR_SHARES)
        for key in ("nvidia.com/gpu", "nvidia.com/gpucores", "nvidia.com/gpumem")
    ]
    invalid_deployment = workload_object("Deployment", "hami", with_limits(nvidia_gpu=1, nvidia_gpumem="x"))
    assert list(outcomes_of_workloads(features, invalid_deployment)) == list(
        outcomes_of_workloads(FEATURES_BY_MINOR[37], invalid_deployment)
    ), "a key with an invalid amount does not wait for the gate"


@pytest.mark.parametrize("name", ["shares of a claim", "tolerations", "derived attributes", "distinct devices"])
def test_a_workload_waits_for_the_gates_of_its_claims(name):
    gate, minors_with_gate_off, objects = OBJECTS_THAT_NEED_GATES[name]
    ((name_and_outcome, keys),) = outcomes_of_workloads(FEATURES_BY_MINOR[minors_with_gate_off[0]], *objects).items()
    assert name_and_outcome == ("own", "left")
    assert keys == [
        (
            "resourceClaims",
            "left",
            f"feature gate {gate} is on",
            remedy_of(gate, FEATURES_BY_MINOR[minors_with_gate_off[0]]),
        )
    ]
    assert outcomes_of_workloads(Features.from_server(gates.EVERYTHING), *objects) == {("own", None): []}


@pytest.mark.parametrize("name", ["taints", "partitions", "binding conditions", "CPUs of the node"])
def test_a_gate_that_only_slices_need_blocks_no_claim(name):
    _, minors_with_gate_off, objects = OBJECTS_THAT_NEED_GATES[name]
    assert outcomes_of_workloads(FEATURES_BY_MINOR[minors_with_gate_off[0]], *objects) == {("own", None): []}


def test_an_extended_resource_waits_for_its_gate():
    _, minors_with_gate_off, objects = OBJECTS_THAT_NEED_GATES["an extended resource of a class"]
    assert list(outcomes_of_workloads(FEATURES_BY_MINOR[minors_with_gate_off[0]], *objects)) == [("p", "left")]


def test_every_gate_that_claims_may_need_is_checked():
    """The valid objects of the corpus have every field of a claim."""
    claims = [
        valid_object for valid_object in corpus.VALID.values() if valid_object["kind"].startswith("ResourceClaim")
    ]
    assert frozenset().union(*[required_by(claim["kind"], claim) for claim in claims]) <= _TITLES.keys()
