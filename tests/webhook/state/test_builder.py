"""The state builder follows a cluster's objects. The stock of a state is the devices, nodes and claims that the allocator knows."""

import msgspec
import pytest

from cluster.objects import LimitRange
from dra import wire
from dra.objects.claim import ResourceClaimTemplate
from dra.objects.node import Node
from dra.objects.pod import Pod
from dra.quantity import NANO
from dra.server import CURRENT, EVERYTHING
from dra.stock.stock import Stock
from tests.objects import allocated, claim, namespace, resource_quota, result, typed
from tests.webhook.admission.reviews import CLASS, NODE, SLICE, gpu_pod
from tests.webhook.pods import configured
from webhook.state.builder import StateBuilder
from webhook.state.configuration import DEFAULT, Configuration
from webhook.state.features import Features


def builder_of(*objects):
    builder = StateBuilder(Configuration())
    for obj in objects:
        builder.update_objects([obj])
    return builder


def settled_builder(*objects):
    builder = builder_of(*objects)
    builder.settle()
    return builder


def claim_holding(name="c", device="gpu-0", namespace="ns"):
    """Return a claim to which a device is allocated."""
    status = allocated(result(device, driver="gpu.nvidia.com", pool="n"))
    return typed(claim(name, namespace=namespace, status=status))


def quota_of(name, *keys, namespace="ns"):
    return typed(resource_quota(name, dict.fromkeys(keys, "1"), namespace))


def labelled_namespace(name, **labels):
    return typed(namespace(name, labels=labels))


def test_a_state_has_no_stock_until_all_kinds_are_read():
    state = builder_of(CLASS, SLICE, NODE).state(fresh=True)
    assert state.stock is None
    assert not state.fleet.known


def test_the_first_stock_contains_objects_that_were_read_earlier():
    state = settled_builder(CLASS, SLICE, NODE, claim_holding()).state(fresh=True)
    assert list(state.stock.claims) == ["ns/c"]
    assert state.fleet.classes["gpu.nvidia.com"].devices == 4


def test_an_object_deleted_before_the_first_stock_is_absent():
    builder = builder_of(CLASS, SLICE, NODE, claim_holding())
    builder.update_objects([], [claim_holding()])
    builder.settle()
    assert not builder.state(fresh=True).stock.claims


def test_incremental_changes_equal_a_full_reading():
    builder = settled_builder(CLASS, NODE)
    builder.update_objects([SLICE])
    builder.update_objects([claim_holding("a")])
    builder.update_objects([claim_holding("b", "gpu-1")])
    builder.update_objects([], [claim_holding("a")])
    updated = builder.state(fresh=True).stock
    reread = Stock.of(classes=[CLASS], slices=[SLICE], nodes=[NODE], claims=[claim_holding("b", "gpu-1")])
    for field in ("classes", "slices", "nodes", "claims", "results", "uses"):
        assert getattr(updated, field) == getattr(reread, field), field


def test_a_refresh_rescans_the_fleet():
    builder = settled_builder(CLASS, NODE)
    builder.update_objects([SLICE])
    assert builder.state(fresh=True).fleet.classes["gpu.nvidia.com"].devices == 0
    builder.refresh()
    assert builder.state(fresh=True).fleet.classes["gpu.nvidia.com"].devices == 4


def test_a_heartbeat_of_a_node_changes_nothing():
    builder = settled_builder(CLASS, SLICE, NODE)
    earlier = builder.state(fresh=True)
    builder.update_objects(
        [msgspec.structs.replace(NODE, metadata=msgspec.structs.replace(NODE.metadata, resource_version="2"))]
    )
    builder.refresh()
    assert builder.state(fresh=True) is earlier


def test_a_node_that_starts_to_advertise_a_key_is_noticed():
    builder = settled_builder(CLASS, SLICE, NODE)
    builder.update_objects(
        [wire.convert({"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}, Node)]
    )
    builder.refresh()
    assert builder.state(fresh=True).fleet.handed_out == {"nvidia.com/gpu": {"n"}}


def test_device_uses_of_a_node_end_with_its_pods():
    builder = settled_builder(NODE)
    builder.follow_pods(followed=True)
    running = gpu_pod(limits={"nvidia.com/gpu": "2"})
    running["spec"]["nodeName"] = "n"
    pod = wire.convert(running, Pod)
    builder.update_objects([pod])
    assert builder.state(fresh=True).uses == {"n": {"nvidia.com/gpu": 2 * NANO}}
    builder.update_objects([], [pod])
    assert builder.state(fresh=True).uses == {}


def test_a_stale_state_lacks_only_the_stock():
    state = settled_builder(CLASS, SLICE, NODE, labelled_namespace("ns", a="b")).state(fresh=False)
    assert state.stock is None
    assert state.fleet.known
    assert state.namespaces["ns"] == {"a": "b"}


def test_namespaces_are_added_changed_and_removed():
    builder = settled_builder(labelled_namespace("a", x="1"))
    builder.update_objects([labelled_namespace("a", x="2")])
    assert builder.state(fresh=True).namespaces == {"a": {"x": "2"}}
    builder.update_objects([], [labelled_namespace("a")])
    assert builder.state(fresh=True).namespaces == {}


def test_a_state_that_was_handed_out_never_changes():
    value = {"metadata": {"name": "t", "namespace": "ns"}, "spec": {"spec": {"devices": {"requests": [{"name": "r"}]}}}}
    template = wire.convert(value, ResourceClaimTemplate)
    builder = settled_builder(labelled_namespace("a", x="1"), template, quota_of("a", "cpu"))
    earlier = builder.state(fresh=True)
    builder.update_objects([labelled_namespace("a", x="2")])
    builder.update_objects([labelled_namespace("b")])
    builder.update_objects([], [template])
    builder.update_objects([], [quota_of("a", "cpu")])
    later = builder.state(fresh=True)
    assert (earlier.namespaces, list(earlier.templates)) == ({"a": {"x": "1"}}, [("ns", "t")])
    assert earlier.quotas == {"ns": {"cpu"}}
    assert (later.namespaces, later.templates, later.quotas) == ({"a": {"x": "2"}, "b": {}}, {}, {})


def test_an_object_without_a_namespace_is_in_default():
    template = wire.convert({"metadata": {"name": "t"}, "spec": {"spec": {}}}, ResourceClaimTemplate)
    ranges = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}
    state = settled_builder(quota_of("q", "cpu", namespace=""), template, wire.convert(ranges, LimitRange)).state(
        fresh=True
    )
    assert (set(state.quotas), set(state.limit_ranges), set(state.templates)) == (
        {"default"},
        {"default"},
        {("default", "t")},
    )


def test_quotas_of_a_namespace_add_up():
    builder = settled_builder(
        quota_of("a", "requests.nvidia.com/gpu"), quota_of("b", "cpu"), quota_of("c", "pods", namespace="other")
    )
    assert builder.state(fresh=True).quotas["ns"] == {"requests.nvidia.com/gpu", "cpu"}
    builder.update_objects([], [quota_of("a")])
    assert builder.state(fresh=True).quotas["ns"] == {"cpu"}
    builder.update_objects([], [quota_of("b")])
    assert "ns" not in builder.state(fresh=True).quotas


def limit_range(name, *keys, kind="Container", field="max", namespace="ns"):
    item = {"type": kind, field: dict.fromkeys(keys, "1")}
    value = {"metadata": {"name": name, "namespace": namespace}, "spec": {"limits": [item]}}
    return wire.convert(value, LimitRange)


@pytest.mark.parametrize("field", ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"])
@pytest.mark.parametrize("kind", ["Container", "Pod"])
def test_limit_ranges_of_a_namespace_add_up(kind, field):
    builder = settled_builder(limit_range("a", "nvidia.com/gpu", kind=kind, field=field), limit_range("b", "cpu"))
    assert builder.state(fresh=True).limit_ranges == {"ns": {"nvidia.com/gpu", "cpu"}}
    builder.update_objects([], [limit_range("a")])
    assert builder.state(fresh=True).limit_ranges == {"ns": {"cpu"}}
    builder.update_objects([], [limit_range("b")])
    assert builder.state(fresh=True).limit_ranges == {}


def test_a_limit_range_of_volume_claims_does_not_affect_pods():
    assert (
        settled_builder(limit_range("a", "storage", kind="PersistentVolumeClaim")).state(fresh=True).limit_ranges == {}
    )


@pytest.mark.parametrize("fresh", [True, False])
def test_a_state_has_the_latest_configuration_features_and_keys(fresh):
    builder = settled_builder()
    builder.configure(Configuration(msgspec.structs.replace(DEFAULT, mode="warn")))
    builder.learn(features=Features(minor=34), keys=(b"k",))
    state = builder.state(fresh=fresh)
    assert (state.configuration.file.mode, state.features.minor, state.keys) == ("warn", 34, (b"k",))


def test_devices_are_counted_according_to_the_servers_feature_gates():
    builder = settled_builder(CLASS, SLICE, NODE)
    earlier_stock = builder.state(fresh=True).stock
    builder.learn(features=Features(minor=37))
    assert builder.state(fresh=True).stock is earlier_stock  # unreported gates count as on
    builder.learn(features=Features.combine(36, {"DRAConsumableCapacity": False}))
    assert (
        builder.state(fresh=True).stock is earlier_stock
    )  # only a survey makes a new stock, because this takes long on a large fleet
    survey = builder.survey()
    builder.update_objects([], [NODE])
    survey.count_devices()
    builder.apply_survey(survey)
    assert NODE.metadata.name in earlier_stock.nodes
    assert NODE.metadata.name not in builder.state(fresh=True).stock.nodes  # deleted during the survey
    stock = builder.state(fresh=True).stock
    assert (stock.reading.server.minor, stock.reading.enabled("DRAConsumableCapacity")) == (36, False)
    assert stock.slices == earlier_stock.slices
    builder.refresh()
    builder.learn(features=Features.combine(36, {"DRAConsumableCapacity": False}))
    assert builder.state(fresh=True).stock is stock
    assert settled_builder_with_features(Features(minor=35)).state(fresh=True).stock.reading.server.minor == 35


def test_unreported_feature_gates_come_from_the_configuration():
    shares_gate, counters_gate = "DRAConsumableCapacity", "DRAPartitionableDevices"
    builder = settled_builder(CLASS, SLICE, NODE)
    builder.learn(features=Features.combine(37, {counters_gate: True}))
    builder.configure(configured(kubernetes={"featureGates": {shares_gate: False, counters_gate: False}}))
    builder.refresh()
    state = builder.state(fresh=True)
    assert (state.features.enabled(shares_gate), state.features.enabled(counters_gate)) == (False, True)
    assert (state.stock.reading.enabled(shares_gate), state.stock.reading.enabled(counters_gate)) == (False, True)
    assert f"{counters_gate}=false: it is true" in state.features.doubts()
    builder.learn(features=Features.combine(37, {shares_gate: True, counters_gate: True}))
    builder.refresh()
    assert builder.state(fresh=True).stock.reading.enabled(shares_gate)
    builder.configure(configured(kubernetes={}))
    assert f"{counters_gate}=false" not in builder.state(fresh=True).features.doubts()
    features = builder.state(fresh=True).features
    builder.learn(features=Features.combine(37, {shares_gate: True, counters_gate: True}))
    assert builder.state(fresh=True).features is features  # the same object, so that equal pods are decided once


def test_an_unknown_feature_gate_disables_nothing_and_is_reported():
    builder = StateBuilder(configured(kubernetes={"version": "1.63", "featureGates": {"DRADeviceTaint": True}}))
    builder.learn(features=Features.combine(CURRENT, {}))
    builder.update_objects([CLASS])
    builder.settle()
    state = builder.state(fresh=True)
    assert state.features.server == EVERYTHING
    assert "did you mean DRADeviceTaints?" in state.features.doubts()
    assert "Kubernetes 1.63 is not supported" in state.features.doubts()


def settled_builder_with_features(features):
    builder = StateBuilder(Configuration())
    builder.learn(features=features)
    builder.update_objects([CLASS])
    builder.settle()
    return builder


NODE_TEMPLATE = {"name": "big", "devices": [{"driver": "gpu.nvidia.com", "count": 8}]}


def test_changed_evidence_or_node_templates_rescan_the_fleet():
    builder = settled_builder(CLASS, SLICE, NODE)
    assert builder.survey() is None
    earlier = builder.state(fresh=True)
    assert earlier.prospects is None
    builder.configure(configured(evidence={"drivers": ["other.example.com"]}, nodeTemplates=[NODE_TEMPLATE]))
    builder.refresh()
    later = builder.state(fresh=True)
    assert later.fleet.classes["gpu.nvidia.com"].devices == 0
    assert list(later.prospects.nodes) == ["big"]
    assert later.stock is earlier.stock, "node templates or evidence changed the existing devices"
    builder.configure(
        configured(mode="warn", evidence={"drivers": ["other.example.com"]}, nodeTemplates=[NODE_TEMPLATE])
    )
    assert builder.survey() is None, "the fleet is scanned again without a change"


def test_new_nodes_count_against_the_limit_of_a_template():
    builder = StateBuilder(configured(nodeTemplates=[NODE_TEMPLATE | {"labels": {"pool": "big"}, "maxNodes": 1}]))
    for obj in (CLASS, SLICE, NODE):
        builder.update_objects([obj])
    builder.settle()
    assert builder.state(fresh=True).prospects is not None
    builder.update_objects([wire.convert({"metadata": {"name": "new", "labels": {"pool": "big"}}}, Node)])
    builder.refresh()
    assert builder.state(fresh=True).prospects is None
