"""Pods in files are judged with the defaults of LimitRanges. The patch does not write these defaults."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.objects import LimitRange
from cluster.patch import apply_json_patch
from dra import wire
from tests.limit_ranger import admitted, with_requests
from tests.loops import every
from tests.objects import obj, pod, workload
from tests.webhook.pods import NVIDIA_BY_CLAIM, WHOLE_GPUS, configured, container
from webhook.admission import decide_object
from webhook.admission.limit_ranges import fill_in, out_of_bounds
from webhook.state import State

GPU = "nvidia.com/gpu"
TWO_CPUS = {"cpu": "2", "memory": "1Gi"}


def limit_range(*items, name="l"):
    return obj("LimitRange", name, namespace="n", limits=[{"type": "Container"} | item for item in items])


def pod_of(*containers, init=(), namespace="n", **metadata):
    """Return a pod of the namespace n with these containers."""
    init_containers = {"initContainers": list(init)} if init else {}
    return pod(namespace=namespace, containers=list(containers), **init_containers, **metadata)


def state(*ranges, **fields):
    typed_ranges = [wire.convert(range_, LimitRange) for range_ in ranges]
    configuration = configured(**({"cpuClaims": {"default": "translate"}} | WHOLE_GPUS | NVIDIA_BY_CLAIM | fields))
    keys = frozenset().union(*(limit_range.keys for limit_range in typed_ranges))
    return State(
        configuration=configuration,
        limit_ranges={"n": keys},
        file_limit_ranges={"n": typed_ranges},
    )


AMOUNTS = st.fixed_dictionaries(
    {}, optional={"cpu": st.sampled_from("123"), "memory": st.sampled_from(("1Gi", "2Gi")), GPU: st.sampled_from("12")}
)
PARTS = ("default", "defaultRequest", "max", "min")
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(("Container", "Container", "Pod"))}, optional=dict.fromkeys(PARTS, AMOUNTS)
)
RANGES = st.lists(st.lists(ITEMS, max_size=2), min_size=1, max_size=2)
RESOURCES = st.one_of(st.none(), st.fixed_dictionaries({}, optional={"limits": AMOUNTS, "requests": AMOUNTS}))
CONTAINERS = RESOURCES.map(
    lambda resources: {"name": "c", "image": "i"} | ({} if resources is None else {"resources": resources})
)


def without_empty_resources(value):
    """Return a pod without empty parts of resources."""
    copy_ = copy.deepcopy(value)
    for each_container in [*copy_["spec"].get("initContainers", []), *copy_["spec"]["containers"]]:
        resources = {part: amounts for part, amounts in each_container.pop("resources", {}).items() if amounts}
        if resources:
            each_container["resources"] = resources
    return copy_


@given(RANGES, st.lists(CONTAINERS, min_size=1, max_size=2), st.lists(CONTAINERS, max_size=1))
def test_a_pod_is_judged_with_limit_rangers_defaults(ranges, containers, init):
    limit_ranges = [limit_range(*items, name=f"l{i}") for i, items in enumerate(ranges)]
    value = pod_of(*containers, init=init)
    original = copy.deepcopy(value)
    filled = fill_in(value, state(*limit_ranges))
    assert value == original
    assert without_empty_resources(with_requests(filled.object)) == without_empty_resources(
        admitted(value, limit_ranges)
    )
    # `undo` removes the defaults from a JSON Patch of the pod with defaults.
    patch = ({"op": "add", "path": "/spec/containers/0/resources", "value": {**filled.object["spec"]["containers"][0].get("resources", {}), "claims": [{"name": "x"}]}},)  # fmt: skip
    undone = apply_json_patch(value, filled.undo(patch))
    value["spec"]["containers"][0].setdefault("resources", {})["claims"] = [{"name": "x"}]
    assert without_empty_resources(undone) == without_empty_resources(value)
    assert filled.undo(()) == ()


def test_a_pod_guaranteed_by_limit_range_defaults_gets_cpu_claims():
    """The patch does not write the defaults of the LimitRange into the pod."""
    with_defaults = state(limit_range({"default": TWO_CPUS}))
    value = pod_of({"name": "c", "image": "i"}, {"name": "d", "image": "i", "resources": {"limits": {"cpu": "3"}}})
    verdict = decide_object(value, with_defaults)
    translated = apply_json_patch(value, verdict.operations)
    assert [container["resources"] for container in translated["spec"]["containers"]] == [
        {"claims": [{"name": "drawbridge-c-cpus"}]},
        {"limits": {"cpu": "3"}, "claims": [{"name": "drawbridge-d-cpus"}]},
    ]
    assert decide_object(translated, with_defaults).operations == ()
    assert decide_object(value, state()).operations == ()
    assert decide_object(value | {"metadata": {"name": "p", "namespace": "other"}}, with_defaults).operations == ()
    # A pod that was read from an API server has the defaults already.
    assert decide_object(pod_of({"name": "c", "image": "i"}, uid="1"), with_defaults).operations == ()


def test_a_translated_key_leaves_no_limit_range_default_behind():
    with_defaults = state(limit_range({"default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m", "memory": "1Gi"}}))
    value = pod_of(container("c", {GPU: "1", "nvidia.com/gpumem": "1000", "nvidia.com/gpucores": "10"}))
    translated = apply_json_patch(value, decide_object(value, with_defaults).operations)
    assert translated["spec"]["containers"][0]["resources"] == {"claims": [{"name": "drawbridge-c-gpu"}]}
    with_cpu = pod_of(container("c", {GPU: "1", "cpu": "1"}))
    translated = apply_json_patch(with_cpu, decide_object(with_cpu, with_defaults).operations)
    assert translated["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}, "claims": [{"name": "drawbridge-c-gpu"}]}  # fmt: skip


def test_a_device_request_that_a_limit_range_adds_is_reported():
    verdict = decide_object(pod_of({"name": "c", "image": "i"}), state(limit_range({"default": {GPU: "1"}})))
    assert [(decision.container, decision.key, str(decision.outcome)) for decision in verdict.decisions] == [
        ("c", GPU, "left")
    ]
    assert "a LimitRange bounds it or fills it in" in verdict.decisions[0].detail
    assert verdict.operations == ()


FOO = "example.com/foo"


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_limit_range_defaults_make_pods_valid_but_not_workloads(kind):
    with_defaults = state(limit_range({"default": {FOO: "2"}}))
    value = pod_of({"name": "c", "image": "i", "resources": {"requests": {FOO: "2"}}})
    if kind == "Deployment":
        value = workload("Deployment", "d", value["spec"], labels={"a": "b"}, namespace="n")
    assert [decision.key for decision in decide_object(value, state()).decisions if decision.code] == [FOO]
    refused = [decision.key for decision in decide_object(value, with_defaults).decisions if decision.code]
    assert refused == ([] if kind == "Pod" else [FOO])


def container_with_limits(name, is_sidecar=False, **limits):
    """Return a container or, with `is_sidecar`, a sidecar with these limits."""
    always = {"restartPolicy": "Always"} if is_sidecar else {}
    return {"name": name, "image": "i", "resources": {"limits": limits}} | always


@every(
    ("bounds", "init", "pod_resources", "messages"),
    [
        ({"max": {"cpu": "2"}}, (), {}, []),
        ({"max": {"cpu": "1"}}, (), {}, ["limit 2 is above 1", "request 2 is above 1"]),
        ({"max": {"cpu": "2"}}, (container_with_limits("i", cpu="2"),), {}, []),
        ({"max": {"cpu": "2"}}, (container_with_limits("i", cpu="3"),), {}, ["limit 3 is above 2", "request 3 is above 2"]),
        ({"max": {"cpu": "2"}}, (container_with_limits("s", is_sidecar=True, cpu="500m"),), {}, ["limit 2500m is above 2", "request 2500m is above 2"]),
        ({"max": {"cpu": "3"}}, (container_with_limits("s", is_sidecar=True, cpu="1"), container_with_limits("i", cpu="2")), {}, []),
        ({"max": {"cpu": "3"}}, (container_with_limits("s", is_sidecar=True, cpu="1"), container_with_limits("i", cpu="3")), {}, ["limit 4 is above 3", "request 4 is above 3"]),
        ({"min": {"cpu": "3"}}, (), {}, ["request 2 is below 3", "limit 2 is below 3"]),
        ({"min": {"memory": "1Gi"}}, (), {}, ["the request is missing; the minimum is 1Gi"]),
        ({"max": {"cpu": "3"}}, (), {"limits": {"cpu": "4"}}, ["limit 4 is above 3"]),
        ({"max": {"cpu": "3"}}, (), {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}, []),
        ({"max": {"memory": "1Gi"}}, (), {"limits": {"memory": "2Gi"}}, ["limit 2Gi is above 1Gi", "request 2Gi is above 1Gi"]),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, (), {"requests": {"cpu": "500m"}}, ["limit 2 is more than 2 times request 500m"]),
    ],
)  # fmt: skip
def test_each_limit_range_violation_of_a_whole_pod_is_named(bounds, init, pod_resources, messages):
    value = pod_of(container_with_limits("a", cpu="1"), container_with_limits("b", cpu="1"), init=init)
    value["spec"] |= {"resources": pod_resources} if pod_resources else {}
    decisions = out_of_bounds(value, state(limit_range({"type": "Pod"} | bounds)))
    opening = "the API server would refuse the pod because of LimitRange l: all containers together: "
    assert [(decision.container, decision.detail) for decision in decisions] == [
        ("", opening + text) for text in messages
    ]


@pytest.mark.parametrize(
    ("bounds", "resources", "messages"),
    [
        ({"max": {"cpu": "2"}}, {"limits": {"cpu": "3"}}, ["limit 3 is above 2", "request 3 is above 2"]),
        ({"max": {"cpu": "2"}}, {"requests": {"cpu": "3"}}, ["request 3 is above 2"]),
        ({"max": {"cpu": "2"}}, {"limits": {"cpu": "2000m"}}, []),
        ({"min": {"memory": "1Gi"}}, {"limits": {"memory": "512Mi"}}, ["request 512Mi is below 1Gi", "limit 512Mi is below 1Gi"]),
        ({"min": {"memory": "1Gi"}}, {}, []),
        ({"min": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}}, {}, ["request 500m is below 1"]),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}, ["limit 3 is more than 2 times request 1"]),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, []),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {}, ["the limit may be at most 2 times the request, so both are needed"]),
        ({"max": {GPU: "1"}}, {"limits": {GPU: "2"}}, ["limit 2 is above 1", "request 2 is above 1"]),
        ({"max": {"cpu": "2"}}, {"limits": {"cpu": "many"}}, ["the limit is missing; the maximum is 2"]),
    ],
)  # fmt: skip
def test_each_limit_range_violation_of_a_container_is_named(bounds, resources, messages):
    decisions = out_of_bounds(pod_of({"name": "c", "image": "i", "resources": resources}), state(limit_range(bounds)))
    assert all(decision.code == "D219" and decision.container == "c" for decision in decisions)
    expected = [f"the API server would refuse the pod because of LimitRange l: {message}" for message in messages]
    assert [decision.detail for decision in decisions] == expected
    assert (
        out_of_bounds(pod_of({"name": "c", "image": "i", "resources": resources}, uid="1"), state(limit_range(bounds)))
        == []
    )
