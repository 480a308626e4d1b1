"""Feature gates in a survey: which are off on the server, how many workloads need each, and how it is switched on."""

import pytest

from cli.loading import Gathered
from cli.survey import SurveyScope, overview
from cli.survey.gates import remedy_of
from cluster.server import ServerInfo
from dra import server as gates
from dra.server import Declared, read_server
from tests.cli.commands.test_survey import HAMI, container, maker, pod
from webhook.state import Configuration, Features

SERVERS = {minor: Features.of(gates.server_of(minor)) for minor in range(34, 38)}
API = "resource.k8s.io/v1"
CLASS = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": 'device.driver == "d.io"'}}]}}  # fmt: skip


def named(kind, **spec):
    return {"apiVersion": API, "kind": kind, "metadata": {"name": "x", "namespace": "a"}, "spec": spec}


def exactly(**more):
    return {"name": "r", "exactly": {"deviceClassName": "c", **more}}


def template(request, **more):
    return named("ResourceClaimTemplate", spec={"devices": {"requests": [request], **more}})


def sliced(**device):
    spec = {"driver": "d.io", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}
    return named("ResourceSlice", **spec, devices=[{"name": "d", **device}])


def claiming():
    """A Deployment whose pods have a claim of their own."""
    made = maker("Deployment", "own", container())
    made["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "x"}]
    return made


def told(features, *objects):
    seen = overview(Gathered(objects=objects), Configuration(), features, SurveyScope())
    return {one.object: one for one in seen.obstacles if one.what == "feature gate"}


# What needs a gate, and the minors that have it off by default.
NEEDS = {
    "shares of a legacy key": (gates.CAPACITY, [34, 35], [maker("Deployment", "hami", HAMI)]),
    "shares of a claim": (gates.CAPACITY, [34, 35], [claiming(), template(exactly(capacity={"requests": {"memory": "1Gi"}})), CLASS]),
    "distinct devices": (gates.CAPACITY, [34, 35], [claiming(), template(exactly(), constraints=[{"distinctAttribute": "d.io/x"}]), CLASS]),
    "tolerations": (gates.TAINTS, [34, 35], [claiming(), template(exactly(tolerations=[{"operator": "Exists"}])), CLASS]),
    "taints": (gates.TAINTS, [34, 35], [claiming(), template(exactly()), CLASS, sliced(taints=[{"key": "k", "effect": "NoSchedule"}])]),
    "partitions": (gates.COUNTERS, [34, 35], [claiming(), template(exactly()), CLASS, sliced(consumesCounters=[{"counterSet": "s", "counters": {"m": {"value": "1"}}}])]),
    "binding conditions": (gates.BINDING, [34, 35], [claiming(), template(exactly()), CLASS, sliced(bindingConditions=["x"], bindingFailureConditions=["y"])]),
    "CPUs of the node": (gates.NODE_RESOURCES, [34, 35, 36, 37], [claiming(), template(exactly()), CLASS, sliced(nodeAllocatableResources={"cpu": {}})]),
    "derived attributes": (gates.DERIVED, [34, 35, 36, 37], [claiming(), template(exactly(derivedAttributes=[{"name": "d.io/y", "expression": "1"}])), CLASS]),
    "a name of a class": (gates.EXTENDED, [34, 35], [pod("p", container(**{"deviceclass.resource.kubernetes.io/c": 1})), CLASS]),
    "alternatives": (gates.ALTERNATIVES, [], [claiming(), template({"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "c"}]}), CLASS]),
    "admin access": (gates.ADMIN_ACCESS, [], [claiming(), template(exactly(adminAccess=True)), CLASS]),
    "a claim": (gates.CLAIMS, [], [claiming(), template(exactly()), CLASS]),
}  # fmt: skip


@pytest.mark.parametrize("minor", SERVERS)
@pytest.mark.parametrize("name", NEEDS)
def test_a_gate_is_in_the_way_on_the_minors_that_have_it_off(name, minor):
    gate, off, objects = NEEDS[name]
    found = told(SERVERS[minor], *objects)
    assert list(found) == ([gate] if minor in off else [])


@pytest.mark.parametrize("name", NEEDS)
def test_a_gate_that_is_on_is_not_in_the_way(name):
    assert told(Features.of(gates.EVERYTHING), *NEEDS[name][2]) == {}


@pytest.mark.parametrize(
    ("name", "off"), [("alternatives", gates.ALTERNATIVES), ("admin access", gates.ADMIN_ACCESS), ("a claim", gates.CLAIMS)]
)  # fmt: skip
def test_a_gate_that_was_switched_off_is_in_the_way(name, off):
    switched = Features.of(read_server("1.34", f"{off}=false"))
    found = told(switched, *NEEDS[name][2])
    assert list(found) == [off]
    assert found[off].remedy.startswith("start kube-apiserver")


def test_a_name_of_a_class_needs_the_gates_of_its_devices_too():
    _, _, asking = NEEDS["a name of a class"]
    tainted = sliced(taints=[{"key": "k", "effect": "NoSchedule"}])
    assert set(told(SERVERS[35], *asking, tainted)) == {gates.EXTENDED, gates.TAINTS}


def test_the_workloads_and_pods_that_need_a_gate_are_counted():
    owner = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "hami", "uid": "u", "controller": True}]}  # fmt: skip
    pods = [pod(f"p{number}", HAMI, owner=owner) for number in range(3)]
    objects = (*NEEDS["shares of a legacy key"][2], *pods, pod("other", HAMI), pod("plain", container(nvidia_gpu=1)))
    found = told(SERVERS[35], *objects)
    assert found[gates.CAPACITY].message == "Kubernetes 1.35 has it off: 2 workloads (4 pods) need shares of devices"


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (Features.seen(35, {}), "off by default"),
        (Features.seen(35, {gates.CAPACITY: False}), "off:"),
        (Features.seen(36, {gates.CAPACITY: False}), "off:"),
        (Features.seen(36, {}, Declared(36, {gates.CAPACITY: False})), "off:"),
        (Features.seen(35, {}, Declared(35, {gates.CAPACITY: True})), ""),
        (Features.seen(35, {gates.CAPACITY: True}), ""),
        (Features.seen(36, {}), ""),
    ],
)
def test_a_gate_counts_as_reported_then_as_declared_then_as_by_default(features, said):
    found = told(features, *NEEDS["shares of a legacy key"][2])
    assert bool(found) == bool(said)
    assert all(said in one.message for one in found.values())


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
    assert remedy_of(gate, Features.seen(minor, {})) == remedy


def test_a_gate_that_needs_another_one_is_switched_on_with_it():
    off = Features.seen(37, {gates.COUNTERS: False})
    assert "DRAPartitionableDevices=true,DRADeviceCompatibilityGroups=true" in remedy_of(gates.GROUPS, off)


def test_a_live_survey_goes_by_the_declared_gates(monkeypatch):
    from cli.survey import reading
    from webhook.state import read

    live = Gathered(objects=(), server=ServerInfo(minor=36, version="v1.36.3", served=frozenset(), gates={}))
    monkeypatch.setattr(reading.loop, "visit", lambda *_: live)
    document = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "metadata": {"name": "x"}, "kubernetes": {"featureGates": {gates.CAPACITY: False}}}  # fmt: skip
    configuration, findings = read(document)
    assert findings == []
    _, features = reading.read_cluster("", "", configuration)
    assert not features.on(gates.CAPACITY)
