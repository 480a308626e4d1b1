"""CPUs of Guaranteed pods by claim: which pods have them, by Kubernetes' own rule, and what keeps the others from them."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster import manifests
from dra import wire
from dra.objects.claim import DeviceClass, ResourceClaimSpec
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from dra.quantity import parse
from tests.draws import draws
from tests.objects import node
from tests.webhook.pods import (
    EXAMPLES,
    KEY,
    WHOLE,
    configured,
    container,
    devices,
    exactly,
    patched,
    pod,
    read_objects,
    replayed,
    untouched,
)
from webhook.dialects.table import Outcome
from webhook.names import DEVICES, ORIGINAL
from webhook.state import State
from webhook.state.features import Features
from webhook.state.inventory import Inventory
from webhook.translate.cpus import whole_cpus
from webhook.translate.pod_view import view_pod
from webhook.translate.translate import translate

EVERYWHERE = {"cpuClaims": {"default": "translate"}}
TWO = {"cpu": "2", "memory": "1Gi"}
GPU = {"nvidia.com/gpu": 1}
SIDECAR = {"restartPolicy": "Always"}
CONFIGURATION = configured()


def labelled_node(name, **labels):
    return node(name, labels=labels)


def group(name, numa, cpus, **more):
    attributes = {"dra.cpu/numaNodeID": {"int": numa}, "dra.cpu/socketID": {"int": numa}, **more.pop("attributes", {})}
    capacity = {"dra.cpu/cpu": {"value": str(cpus)}}
    return {"name": name, "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": True, **more}


def single(number):
    return {
        "name": f"cpudev{number:03}",
        "attributes": {"dra.cpu/cpuID": {"int": number}, "dra.cpu/socketID": {"int": 0}},
    }


GROUPS = [group("cpudevnuma000", 0, 24), group("cpudevnuma001", 1, 24)]
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "dra.cpu"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'dra.cpu'"}}]},
}


def published(name, made, driver="dra.cpu"):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": made,
        },
    }


KINDS = {"DeviceClass": DeviceClass, "ResourceSlice": ResourceSlice, "Node": Node}


def held(*objects):
    """Classes, slices and nodes, as the types that fleets are made of."""
    return [[wire.convert(obj, cls) for obj in objects if obj["kind"] == kind] for kind, cls in KINDS.items()]


def fleet(*objects):
    return Inventory.gather(*held(*objects))


def cpus_on(*names, made=GROUPS, others=()):
    """A fleet whose nodes of these names give out CPUs, and others that do not."""
    nodes = [labelled_node(name, kind="cpu") for name in names] + [labelled_node(name, kind="other") for name in others]
    return fleet(CLASS, *nodes, *(published(name, made) for name in names))


def became(value, *, given=None, namespace="n", **fields):
    more = {key: fields.pop(key) for key in ("templates", "quotas", "limit_ranges", "features") if key in fields}
    state = State(configuration=configured(**(EVERYWHERE | fields)), fleet=given or Inventory(), keys=(KEY,), **more)
    return translate(value, state, namespace=namespace, sign=True)


def users(value, done):
    """The containers that were given a claim."""
    after = patched(value, done)["spec"]
    return [one["name"] for some in ("initContainers", "containers") for one in after.get(some, []) if one["resources"].get("claims")]  # fmt: skip


def outcomes_of(done):
    return [(decision.container, decision.outcome, decision.detail) for decision in done.decisions]


# Which pods are Guaranteed: Kubernetes' rule, written out on pods with all defaults


def by_kubernetes(value):
    """Say for which containers the kubelet's static CPU manager would keep CPUs, and how many (qos.ComputePodQOS, guaranteedCPUs)."""
    spec = copy.deepcopy(value["spec"])
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    for one in containers:
        one.setdefault("resources", {}).setdefault("requests", {})
        for name, amount in one["resources"].get("limits", {}).items():
            one["resources"]["requests"].setdefault(name, amount)
    whole = spec.get("resources", {})
    pod_level = any(name in ("cpu", "memory") for part in ("requests", "limits") for name in whole.get(part, {}))
    if pod_level:
        whole.setdefault("requests", {})
        for name in ("cpu", "memory"):
            said = [one["resources"]["requests"] for one in containers if name in one["resources"]["requests"]]
            if name not in whole["requests"] and said and whole.get("limits"):
                lasting = most = 0
                for one in containers:
                    amount = parse(one["resources"]["requests"].get(name, "0")).nano
                    if one in spec.get("initContainers", []) and one.get("restartPolicy") != "Always":
                        most = max(most, lasting + amount)
                    else:
                        lasting += amount
                whole["requests"][name] = f"{max(most, lasting)}n"
            elif name not in whole["requests"] and name in whole.get("limits", {}):
                whole["requests"][name] = whole["limits"][name]

    def quality(resources):
        requested, limits = resources.get("requests", {}), resources.get("limits", {})
        kinds = set()
        for name in ("cpu", "memory"):
            asked, limit = (parse(some.get(name, "0")).nano for some in (requested, limits))
            kinds.add("Burstable" if asked != limit else "Guaranteed" if asked else "BestEffort")
        return kinds.pop() if len(kinds) == 1 else "Burstable"

    of_pod = {quality(whole)} if pod_level else {quality(one["resources"]) for one in containers}
    if of_pod != {"Guaranteed"}:
        return {}
    found = {}
    for one in containers:
        amount = parse(one["resources"]["requests"].get("cpu", "0")).nano
        if amount and amount % 10**9 == 0 and (not pod_level or quality(one["resources"]) == "Guaranteed"):
            found[one["name"]] = amount // 10**9
    return found


AMOUNTS = {"cpu": ("1", "2", "2000m", "1500m", "0", "0.5", "2e0"), "memory": ("1Gi", "1024Mi", "2Gi", "0")}
LIST = st.fixed_dictionaries({}, optional={name: st.sampled_from(some) for name, some in AMOUNTS.items()})
# Most containers are drawn so that they may be Guaranteed, or hardly a pod would be.
EQUAL = st.fixed_dictionaries(
    {"cpu": st.sampled_from(("1", "2", "1500m")), "memory": st.sampled_from(("1Gi", "2Gi"))}
).map(lambda some: {"limits": some, "requests": dict(some)})
LIMITED = EQUAL.map(lambda one: {"limits": one["limits"]})
ANY = st.fixed_dictionaries({}, optional={"limits": LIST, "requests": LIST})
RESOURCES = st.one_of(EQUAL, EQUAL, EQUAL, LIMITED, LIMITED, ANY)


@st.composite
def pods(draw):
    spec = {"containers": [], "initContainers": []}
    for some, most in (("containers", 3), ("initContainers", 2)):
        for i in range(draw(st.integers(1 if some == "containers" else 0, most))):
            one = {"name": f"{some}-{i}", "resources": draw(RESOURCES)}
            if some == "initContainers" and draw(st.booleans()):
                one |= SIDECAR
            spec[some].append(one)
    if draw(st.integers(0, 2)) == 0:
        spec["resources"] = draw(st.one_of(EQUAL, LIMITED, ANY))
    return {"metadata": {"name": "p"}, "spec": spec}


@settings(max_examples=draws(2_000), deadline=None)
@given(pods())
def test_exclusive_cpus_match_those_of_the_static_cpu_manager(value):
    view = view_pod(value, CONFIGURATION)
    found = whole_cpus(view)
    assert {slot.name: found[slot.order] for slot in view.slots if slot.order in found} == by_kubernetes(value)


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {"cpu": None, "memory": "1Gi"}},
        {"limits": {"cpu": "two", "memory": "1Gi"}},
        {"limits": {"cpu": "٢", "memory": "1Gi"}},
        {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": None}},
        {"limits": {"cpu": "-2", "memory": "1Gi"}, "requests": {"cpu": "-2"}},
        {"limits": ["cpu"]},
    ],
)
def test_invalid_amounts_are_no_cpus(resources):
    value = pod(TWO)
    value["spec"]["containers"][0]["resources"] = resources
    assert untouched(became(value))


# What becomes of them


def test_a_guaranteed_container_has_a_claim_beside_its_request():
    value = pod(TWO, {"cpu": 3, "memory": "1Gi"})
    done = became(value, given=cpus_on("a", "b"))
    after = patched(value, done)
    assert [one["resources"]["limits"] for one in after["spec"]["containers"]] == [TWO, {"cpu": 3, "memory": "1Gi"}]
    assert users(value, done) == ["c0", "c1"]
    assert len(after["spec"]["resourceClaims"]) == 2  # one claim serves one container
    asked = [one.spec["spec"]["devices"]["requests"][0]["exactly"] for one in done.given]
    assert [one["deviceClassName"] for one in asked] == ["dra.cpu", "dra.cpu"]
    assert [one["capacity"]["requests"] for one in asked] == [{"dra.cpu/cpu": "2"}, {"dra.cpu/cpu": "3"}]
    assert [outcome for _, outcome, _ in outcomes_of(done)] == [Outcome.TRANSLATED] * 2
    assert done.warnings == ()


@pytest.mark.parametrize(
    "value",
    [
        pod({"cpu": "1500m", "memory": "1Gi"}),
        pod({"cpu": "2"}),
        pod(TWO, {"cpu": "1"}),
        pod(TWO, init=(container("i", {"cpu": "1"}),)),
        pod({"memory": "1Gi"}),
    ],
    ids=["a part", "no memory", "another container", "an init container", "no CPU"],
)
def test_a_pod_that_has_no_cpus_alone_is_as_it_was(value):
    assert untouched(became(value))
    assert became(value).decisions == ()


def test_cpu_requests_become_claims_only_in_configured_namespaces():
    value = pod(TWO)
    assert untouched(became(value, cpuClaims={}))
    only = {"cpuClaims": {"namespaces": {"batch": "translate"}}}
    assert untouched(became(value, **only))
    assert users(value, became(value, namespace="batch", **only)) == ["c0"]
    but = {"cpuClaims": {"default": "translate", "namespaces": {"n": "leave"}}}
    assert untouched(became(value, **but))
    assert users(value, became(value, namespace="", **but)) == ["c0"]


def test_only_lasting_containers_have_a_claim_and_a_warning_names_the_others():
    value = pod(TWO, init=(container("first", TWO), container("beside", TWO, **SIDECAR)))
    done = became(value)
    assert users(value, done) == ["beside", "c0"]
    assert "init container first has no CPUs alone" in done.warnings[0]
    assert untouched(became(value, approximations="leave"))
    assert untouched(became(pod({"cpu": "500m", "memory": "1Gi"}, init=(container("first", TWO),))))


def test_with_resources_of_the_pod_only_containers_that_are_held_to_theirs_have_cpus_alone():
    value = pod(
        TWO,
        {"cpu": "1"},
        resources={"limits": {"cpu": "4", "memory": "4Gi"}, "requests": {"cpu": "4", "memory": "4Gi"}},
    )
    assert users(value, became(value)) == ["c0"]
    value["spec"]["resources"]["requests"]["cpu"] = "3"
    assert untouched(became(value))


def test_a_second_look_and_a_second_application_change_nothing():
    value = pod(TWO, init=(container("first", TWO),))
    stored = patched(value, became(value))
    assert untouched(became(stored))
    assert became(stored).decisions == ()
    assert not replayed(stored, stored).operations
    assert not replayed(
        {**value, "metadata": {**value["metadata"], "annotations": stored["metadata"]["annotations"]}}, stored
    ).operations
    # A container that a neighbour adds later gets its own, beside those that are there.
    stored["spec"]["containers"].append(container("c1", TWO | GPU))
    after = patched(stored, became(stored, **WHOLE))
    assert [[claim["name"] for claim in one["resources"]["claims"]] for one in after["spec"]["containers"]] == [
        ["drawbridge-c0-cpus"],
        ["drawbridge-c1-gpu", "drawbridge-c1-cpus"],
    ]


def test_translating_a_translated_file_changes_nothing():
    state = State(configuration=configured(**EVERYWHERE))
    value = pod(TWO)
    stored = patched(value, translate(value, state, namespace="n"))
    assert ORIGINAL in stored["metadata"]["annotations"]
    assert DEVICES in stored["metadata"]["annotations"]
    assert untouched(translate(stored, state, namespace="n"))


# Beside devices


def test_a_gpu_and_cpus_are_claimed_each_for_itself():
    value = pod(TWO | GPU)
    done = became(value, **WHOLE)
    assert sorted(one["class"] for one in exactly_of(done)) == ["dra.cpu", "gpu.nvidia.com"]
    assert patched(value, done)["spec"]["containers"][0]["resources"]["limits"] == TWO
    left = became(value, meanings={"nvidia.com/gpu": "leave"})
    assert [one["class"] for one in exactly_of(left)] == ["dra.cpu"]
    nodes = [labelled_node("a"), labelled_node("b"), published("a", GROUPS)]
    without = became(value, given=fleet(*nodes, *gpus("b")), meanings={"nvidia.com/gpu": "whole"})
    assert [one["class"] for one in exactly_of(without)] == ["gpu.nvidia.com"]
    assert (
        "c0",
        Outcome.LEFT,
        "the cluster has no DeviceClass dra.cpu; if it has another name, an administrator can set `classes: {cpu: NAME}` (docs/configuration.md)",
    ) in outcomes_of(without)
    without = became(value, given=fleet(CLASS, *nodes, *gpus("b")), meanings={"nvidia.com/gpu": "whole"})
    assert [one["class"] for one in exactly_of(without)] == ["gpu.nvidia.com"]
    assert (
        "c0",
        Outcome.LEFT,
        "0 of 1 nodes that the pod can run on give CPUs by claims of class dra.cpu",
    ) in outcomes_of(without)


def exactly_of(done):
    return [
        {"class": one["exactly"]["deviceClassName"]}
        for given_ in done.given
        for one in given_.spec["spec"]["devices"]["requests"]
    ]


def gpus(*names):
    name = "gpu.nvidia.com"
    of_gpus = {
        **CLASS,
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{name}'"}}]},
    }
    made = [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "productName": {"string": "A"}}}]
    return [of_gpus, *(published(one, made, name) for one in names)]


# Claims as the driver publishes


def test_cpus_that_are_devices_are_counted_and_more_than_a_claim_holds_are_several_claims():
    single_cpus = [single(i) for i in range(64)]
    done = became(pod({"cpu": 40, "memory": "1Gi"}), given=cpus_on("a", "b", made=single_cpus))
    counts = [one.spec["spec"]["devices"]["requests"][0]["exactly"]["count"] for one in done.given]
    assert counts == [20, 20]
    assert "capacity" not in str(done.given)
    assert untouched(became(pod({"cpu": 200, "memory": "1Gi"}), given=cpus_on("a", made=single_cpus)))


def test_more_cpus_than_a_group_holds_are_of_several():
    done = became(pod({"cpu": 50, "memory": "1Gi"}), given=cpus_on("a", "b"))
    assert [one["capacity"] for one in exactly(done)] == [
        {"dra.cpu/cpu": "17"},
        {"dra.cpu/cpu": "17"},
        {"dra.cpu/cpu": "16"},
    ]
    assert "of 3 devices, as most hold 24 CPUs" in done.warnings[0]
    assert untouched(became(pod({"cpu": 10**15, "memory": "1Gi"}), given=cpus_on("a")))


def test_the_driver_groups_by_machine_only_for_pods_with_cpus():
    whole = [group("cpudevmachine", 0, 48)]
    del whole[0]["attributes"]["dra.cpu/socketID"]
    done = became(pod(TWO), given=cpus_on("a", made=whole))
    assert untouched(done)
    assert "as one device of class dra.cpu" in outcomes_of(done)[0][2]


def test_cpus_that_the_node_counts_by_the_claim_are_not_claimed_beside_a_request():
    mapping = {"cpu": {"mapping": {"capacityKey": "dra.cpu/cpu", "capacityMultiplier": "1"}}}
    counted = [group("cpudevnuma000", 0, 24, nodeAllocatableResources=mapping)]
    done = became(pod(TWO), given=cpus_on("a", "b", made=counted))
    assert untouched(done)
    assert "would count twice" in outcomes_of(done)[0][2]


def test_the_example_of_the_driver_serves_both_ways():
    given_ = read_objects(manifests.read([EXAMPLES / "drivers" / "dra.cpu.yaml"]))
    done = became(pod(TWO), given=Inventory.gather(given_.of_type(DeviceClass), given_.of_type(ResourceSlice), []))
    assert devices(done)["requests"][0]["exactly"]["capacity"] == {"requests": {"dra.cpu/cpu": "2"}}


# What keeps them with the kubelet


def test_nodes_without_the_driver_decide_by_their_number_among_those_that_the_pod_can_reach():
    half = cpus_on("a", "b", others=["c", "d"])
    done = became(pod(TWO), given=half)
    assert untouched(done)
    assert outcomes_of(done) == [
        ("c0", Outcome.LEFT, "2 of 4 nodes that the pod can run on give CPUs by claims of class dra.cpu")
    ]
    assert done.warnings == ()  # the kubelet serves it as before
    assert users(pod(TWO), became(pod(TWO), given=cpus_on("a", "b", others=["c"]))) == ["c0"]
    here = pod(TWO, nodeSelector={"kind": "cpu"})
    assert users(here, became(here, given=half)) == ["c0"]
    there = pod(TWO, nodeSelector={"kind": "other"})
    assert untouched(became(there, given=half))


def test_a_pod_with_its_own_cpu_claim_keeps_it():
    spec = {"devices": {"requests": [{"name": "c", "exactly": {"deviceClassName": "dra.cpu"}}]}}
    other = {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    templates = {("n", name): wire.convert(one, ResourceClaimSpec) for name, one in (("cpus", spec), ("gpu", other))}

    def of(name):
        return pod(TWO, resourceClaims=[{"name": "mine", "resourceClaimTemplateName": name}])

    done = became(of("cpus"), templates=templates)
    assert untouched(done)
    assert outcomes_of(done) == [("c0", Outcome.LEFT, "the pod requests CPUs through its own claim, mine")]
    assert users(of("gpu"), became(of("gpu"), templates=templates)) == ["c0"]
    unknown = became(of("not known"), templates=templates)
    assert untouched(unknown)
    assert "may or may not be for CPUs" in outcomes_of(unknown)[0][2]


def test_koordinators_own_claim_for_cpus_is_the_only_one():
    value = pod(
        TWO | {"koordinator.sh/gpu": 100},
        annotations={"scheduling.koordinator.sh/resource-spec": '{"requiredCPUBindPolicy": "FullPCPUs"}'},
    )
    done = became(value, koordinator={"hostResources": {"cpu": "cpu"}})
    assert sorted(one["class"] for one in exactly_of(done)) == ["dra.cpu", "gpu.nvidia.com"]
    assert "Koordinator requests the pod's CPUs through a claim" in {detail for _, _, detail in outcomes_of(done)}


def test_quotas_and_ranges_keep_counting_the_request():
    done = became(pod(TWO), quotas={"n": frozenset({"requests.cpu"})}, limit_ranges={"n": frozenset({"cpu"})})
    assert users(pod(TWO), done) == ["c0"]


def test_no_pod_is_refused_for_cpus():
    strict = {"notUnderstood": "refuse", "approximations": "leave"}
    foreign = became(pod(TWO, scheduler="volcano"), **strict)
    assert untouched(foreign)
    assert not foreign.refusals
    old = became(pod(TWO), features=Features(minor=34, gates={"DRAConsumableCapacity": False}), **strict)
    assert untouched(old)
    assert not old.refusals
    queued = pod(TWO)
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    assert untouched(became(queued))
    assert users(queued, became(queued, kueue={"deviceClasses": ["dra.cpu"]})) == ["c0"]
    windows = pod(TWO, os={"name": "windows"})
    assert untouched(became(windows))


def test_cpus_give_way_where_a_pod_would_have_more_devices_than_claims_give():
    single_cpus = [single(i) for i in range(128)]
    nodes = [labelled_node("a"), labelled_node("b"), published("a", single_cpus), published("b", single_cpus)]
    value = pod({"cpu": 128, "memory": "1Gi"} | GPU)
    done = became(value, given=fleet(CLASS, *nodes, *gpus("a", "b")))
    assert [one["class"] for one in exactly_of(done)] == ["gpu.nvidia.com"]
    assert ("c0", Outcome.LEFT, "129 devices for one pod, 128 is the most") in outcomes_of(done)
