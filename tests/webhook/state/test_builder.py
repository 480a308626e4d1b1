import msgspec
import pytest

from cluster.objects import LimitRange
from dra import wire
from dra.objects.claim import ResourceClaimTemplate
from dra.objects.node import Node
from dra.objects.pod import Pod
from dra.quantity import NANO
from dra.server import EVERYTHING, NEWEST
from dra.stock.stock import Stock
from tests.objects import allocated, claim, namespace, resource_quota, result, typed
from tests.webhook.admission.reviews import CLASS, NODE, SLICE, gpu_pod
from tests.webhook.pods import configured
from webhook.state.builder import StateBuilder
from webhook.state.configuration import DEFAULT, Configuration, read_configuration
from webhook.state.features import Features


def world(*objects):
    made = StateBuilder(Configuration())
    for obj in objects:
        made.update_objects([obj])
    return made


def settled(*objects):
    made = world(*objects)
    made.settle()
    return made


def holding(name="c", device="gpu-0", namespace="ns"):
    """A claim that holds a device."""
    status = allocated(result(device, driver="gpu.nvidia.com", pool="n"))
    return typed(claim(name, namespace=namespace, status=status))


def quota_of(name, *keys, namespace="ns"):
    return typed(resource_quota(name, dict.fromkeys(keys, "1"), namespace))


def labelled_namespace(name, **labels):
    return typed(namespace(name, labels=labels))


def test_the_stock_is_absent_until_everything_is_read():
    state = world(CLASS, SLICE, NODE).state(fresh=True)
    assert state.stock is None
    assert not state.fleet.known


def test_the_first_stock_contains_objects_that_were_read_earlier():
    state = settled(CLASS, SLICE, NODE, holding()).state(fresh=True)
    assert list(state.stock.claims) == ["ns/c"]
    assert state.fleet.classes["gpu.nvidia.com"].devices == 4


def test_an_object_deleted_before_the_first_stock_is_absent():
    made = world(CLASS, SLICE, NODE, holding())
    made.update_objects([], [holding()])
    made.settle()
    assert not made.state(fresh=True).stock.claims


def test_incremental_changes_equal_a_full_reading():
    made = settled(CLASS, NODE)
    made.update_objects([SLICE])
    made.update_objects([holding("a")])
    made.update_objects([holding("b", "gpu-1")])
    made.update_objects([], [holding("a")])
    moved = made.state(fresh=True).stock
    whole = Stock.of(classes=[CLASS], slices=[SLICE], nodes=[NODE], claims=[holding("b", "gpu-1")])
    for field in ("classes", "slices", "nodes", "claims", "results", "uses"):
        assert getattr(moved, field) == getattr(whole, field), field


def test_the_fleet_is_rescanned_when_idle():
    made = settled(CLASS, NODE)
    made.update_objects([SLICE])
    assert made.state(fresh=True).fleet.classes["gpu.nvidia.com"].devices == 0
    made.refresh()
    assert made.state(fresh=True).fleet.classes["gpu.nvidia.com"].devices == 4


def test_a_heartbeat_of_a_node_changes_nothing():
    made = settled(CLASS, SLICE, NODE)
    before = made.state(fresh=True)
    made.update_objects(
        [msgspec.structs.replace(NODE, metadata=msgspec.structs.replace(NODE.metadata, resource_version="2"))]
    )
    made.refresh()
    assert made.state(fresh=True) is before


def test_a_node_that_starts_to_advertise_a_key_is_noticed():
    made = settled(CLASS, SLICE, NODE)
    made.update_objects(
        [wire.convert({"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}, Node)]
    )
    made.refresh()
    assert made.state(fresh=True).fleet.handed_out == {"nvidia.com/gpu": {"n"}}


def test_a_node_without_pods_that_request_devices_has_no_uses():
    made = settled(NODE)
    made.follow_pods(followed=True)
    running = gpu_pod(limits={"nvidia.com/gpu": "2"})
    running["spec"]["nodeName"] = "n"
    pod = wire.convert(running, Pod)
    made.update_objects([pod])
    assert made.state(fresh=True).uses == {"n": {"nvidia.com/gpu": 2 * NANO}}
    made.update_objects([], [pod])
    assert made.state(fresh=True).uses == {}


def test_a_stale_state_lacks_only_the_stock():
    state = settled(CLASS, SLICE, NODE, labelled_namespace("ns", a="b")).state(fresh=False)
    assert state.stock is None
    assert state.fleet.known
    assert state.namespaces["ns"] == {"a": "b"}


def test_namespaces_are_added_changed_and_removed():
    made = settled(labelled_namespace("a", x="1"))
    made.update_objects([labelled_namespace("a", x="2")])
    assert made.state(fresh=True).namespaces == {"a": {"x": "2"}}
    made.update_objects([], [labelled_namespace("a")])
    assert made.state(fresh=True).namespaces == {}


def test_a_state_that_was_handed_out_never_changes():
    value = {"metadata": {"name": "t", "namespace": "ns"}, "spec": {"spec": {"devices": {"requests": [{"name": "r"}]}}}}
    template = wire.convert(value, ResourceClaimTemplate)
    made = settled(labelled_namespace("a", x="1"), template, quota_of("a", "cpu"))
    earlier = made.state(fresh=True)
    made.update_objects([labelled_namespace("a", x="2")])
    made.update_objects([labelled_namespace("b")])
    made.update_objects([], [template])
    made.update_objects([], [quota_of("a", "cpu")])
    later = made.state(fresh=True)
    assert (earlier.namespaces, list(earlier.templates)) == ({"a": {"x": "1"}}, [("ns", "t")])
    assert earlier.quotas == {"ns": {"cpu"}}
    assert (later.namespaces, later.templates, later.quotas) == ({"a": {"x": "2"}, "b": {}}, {}, {})


def test_an_object_without_a_namespace_is_in_default():
    template = wire.convert({"metadata": {"name": "t"}, "spec": {"spec": {}}}, ResourceClaimTemplate)
    ranges = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}
    state = settled(quota_of("q", "cpu", namespace=""), template, wire.convert(ranges, LimitRange)).state(fresh=True)
    assert (set(state.quotas), set(state.limit_ranges), set(state.templates)) == (
        {"default"},
        {"default"},
        {("default", "t")},
    )


def test_quotas_of_a_namespace_add_up():
    made = settled(
        quota_of("a", "requests.nvidia.com/gpu"), quota_of("b", "cpu"), quota_of("c", "pods", namespace="other")
    )
    assert made.state(fresh=True).quotas["ns"] == {"requests.nvidia.com/gpu", "cpu"}
    made.update_objects([], [quota_of("a")])
    assert made.state(fresh=True).quotas["ns"] == {"cpu"}
    made.update_objects([], [quota_of("b")])
    assert "ns" not in made.state(fresh=True).quotas


def limit_range(name, *keys, kind="Container", part="max", namespace="ns"):
    item = {"type": kind, part: dict.fromkeys(keys, "1")}
    value = {"metadata": {"name": name, "namespace": namespace}, "spec": {"limits": [item]}}
    return wire.convert(value, LimitRange)


@pytest.mark.parametrize("part", ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"])
@pytest.mark.parametrize("kind", ["Container", "Pod"])
def test_limit_ranges_of_a_namespace_add_up(kind, part):
    made = settled(limit_range("a", "nvidia.com/gpu", kind=kind, part=part), limit_range("b", "cpu"))
    assert made.state(fresh=True).limit_ranges == {"ns": {"nvidia.com/gpu", "cpu"}}
    made.update_objects([], [limit_range("a")])
    assert made.state(fresh=True).limit_ranges == {"ns": {"cpu"}}
    made.update_objects([], [limit_range("b")])
    assert made.state(fresh=True).limit_ranges == {}


def test_a_limit_range_of_volume_claims_does_not_affect_pods():
    assert settled(limit_range("a", "storage", kind="PersistentVolumeClaim")).state(fresh=True).limit_ranges == {}


def test_templates_are_known_by_name():
    value = {"metadata": {"name": "t", "namespace": "ns"}, "spec": {"spec": {"devices": {"requests": [{"name": "r"}]}}}}
    made = settled(template := wire.convert(value, ResourceClaimTemplate))
    assert made.state(fresh=True).templates["ns", "t"].devices.requests[0].name == "r"
    made.update_objects([], [template])
    assert made.state(fresh=True).templates == {}


@pytest.mark.parametrize("fresh", [True, False])
def test_configuration_features_and_keys_are_taken_over(fresh):
    made = settled()
    made.configure(Configuration(msgspec.structs.replace(DEFAULT, mode="warn")))
    made.learn(features=Features(minor=34), keys=(b"k",))
    state = made.state(fresh=fresh)
    assert (state.configuration.file.mode, state.features.minor, state.keys) == ("warn", 34, (b"k",))


def test_devices_are_judged_by_the_allocator_of_the_server():
    made = settled(CLASS, SLICE, NODE)
    whole = made.state(fresh=True).stock
    made.learn(features=Features(minor=37))
    assert made.state(fresh=True).stock is whole  # unreported gates count as on
    made.learn(features=Features.combine(36, {"DRAConsumableCapacity": False}))
    assert (
        made.state(fresh=True).stock is whole
    )  # a survey makes the new stock, because this takes long on a large fleet
    survey = made.survey()
    made.update_objects([], [NODE])
    survey.count_devices()
    made.apply_survey(survey)
    assert NODE.metadata.name in whole.nodes
    assert NODE.metadata.name not in made.state(fresh=True).stock.nodes  # deleted during the survey
    stock = made.state(fresh=True).stock
    assert (stock.reading.server.minor, stock.reading.enabled("DRAConsumableCapacity")) == (36, False)
    assert stock.slices == whole.slices
    made.refresh()
    made.learn(features=Features.combine(36, {"DRAConsumableCapacity": False}))
    assert made.state(fresh=True).stock is stock
    assert settled_as(Features(minor=35)).state(fresh=True).stock.reading.server.minor == 35


def declaring(**kubernetes):
    configuration, _ = read_configuration(
        {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "kubernetes": kubernetes}
    )
    return configuration


def test_unreported_feature_gates_come_from_the_configuration():
    shares, counters = "DRAConsumableCapacity", "DRAPartitionableDevices"
    made = settled(CLASS, SLICE, NODE)
    made.learn(features=Features.combine(37, {counters: True}))
    made.configure(declaring(featureGates={shares: False, counters: False}))
    made.refresh()
    state = made.state(fresh=True)
    assert (state.features.enabled(shares), state.features.enabled(counters)) == (False, True)
    assert (state.stock.reading.enabled(shares), state.stock.reading.enabled(counters)) == (False, True)
    assert f"{counters}=false: it is true" in state.features.doubts()
    made.learn(features=Features.combine(37, {shares: True, counters: True}))
    made.refresh()
    assert made.state(fresh=True).stock.reading.enabled(shares)
    made.configure(declaring())
    assert f"{counters}=false" not in made.state(fresh=True).features.doubts()
    features = made.state(fresh=True).features
    made.learn(features=Features.combine(37, {shares: True, counters: True}))
    assert made.state(fresh=True).features is features  # the same object, so replicas are decided once


def test_an_unknown_feature_gate_disables_nothing_and_is_reported():
    made = StateBuilder(declaring(version="1.63", featureGates={"DRADeviceTaint": True}))
    made.learn(features=Features.combine(NEWEST, {}))
    made.update_objects([CLASS])
    made.settle()
    state = made.state(fresh=True)
    assert state.features.server == EVERYTHING
    assert "did you mean DRADeviceTaints?" in state.features.doubts()
    assert "Kubernetes 1.63 is not supported" in state.features.doubts()


def settled_as(features):
    made = StateBuilder(Configuration())
    made.learn(features=features)
    made.update_objects([CLASS])
    made.settle()
    return made


EIGHT = [{"name": "big", "devices": [{"driver": "gpu.nvidia.com", "count": 8}]}]


def test_changed_evidence_or_node_templates_rescan_the_fleet():
    made = settled(CLASS, SLICE, NODE)
    assert made.survey() is None
    before = made.state(fresh=True)
    assert before.prospects is None
    made.configure(configured(evidence={"drivers": ["other.example.com"]}, nodeTemplates=EIGHT))
    made.refresh()
    after = made.state(fresh=True)
    assert after.fleet.classes["gpu.nvidia.com"].devices == 0
    assert list(after.prospects.nodes) == ["big"]
    assert after.stock is before.stock, "what there is stays what there is"
    made.configure(configured(mode="warn", evidence={"drivers": ["other.example.com"]}, nodeTemplates=EIGHT))
    assert made.survey() is None, "nothing of it has changed"


def test_new_nodes_count_against_the_limit_of_a_template():
    made = StateBuilder(configured(nodeTemplates=[EIGHT[0] | {"labels": {"pool": "big"}, "maxNodes": 1}]))
    for obj in (CLASS, SLICE, NODE):
        made.update_objects([obj])
    made.settle()
    assert made.state(fresh=True).prospects is not None
    made.update_objects([wire.convert({"metadata": {"name": "new", "labels": {"pool": "big"}}}, Node)])
    made.refresh()
    assert made.state(fresh=True).prospects is None
