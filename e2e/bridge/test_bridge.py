"""Pods with claims, placed by us through a stock kube-scheduler on a real control plane."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from dra.policy import FENCE_TOLERATION
from dra.wire import builtins
from e2e.actors import fleet
from e2e.actors.bridge import LEASE, POLICY, SCHEDULER
from e2e.actors.client import ApiError, Client
from e2e.actors.proxy import Proxy
from e2e.actors.taints import until_rules_are_heard_of
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import claim, compatibility, container, limits, pod, request, template, using, using_template
from e2e.ground.node import TEST_DRIVER
from e2e.webhook.test_hostile import rights
from tests.limits import PATIENCE
from webhook.claims import taint_rule

pytestmark = pytest.mark.real
REPLICA = "allocator-0"
CLASS = "bridge-gpu"
SHARED = "bridge-share"
NODES = ("bridge-0", "bridge-1")
STRATEGY = "drawbridge.dev/strategy"


@pytest.fixture(scope="module")
def gpus(control_plane, bridge):
    """Two fake nodes with two whole GPUs each, and a GPU that is shared by memory on the first."""
    control_plane.add_fake_nodes(2, prefix="bridge-")
    made = [
        fleet.device_class(CLASS, f"device.driver == '{fleet.NVIDIA}'"),
        fleet.device_class(SHARED, f"device.driver == '{fleet.HAMI}'"),
        *(slice_ for name in NODES for slice_ in fleet.slices(fleet.NVIDIA, name, fleet.whole_gpus(2), by_name=True)),
        *fleet.slices(fleet.HAMI, NODES[0], fleet.hami_gpus(1), by_name=True),
    ]
    control_plane.create(*made)
    control_plane.until("the service knows the devices", lambda: len(bridge.ask("/api/v1/fleet")[1].get("pools", ())) >= 3, 20)  # fmt: skip
    try:
        yield
    finally:
        nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in NODES]
        control_plane.remove(*made, *nodes)


@pytest.fixture
def ours(control_plane, bridge, namespace):
    """A namespace whose pods are gone when the test is over: no kubelet runs them, so none would end them. The next test finds all devices free."""
    yield namespace
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    control_plane.until("the service knows that all is free", lambda: held(bridge) == 0, 60)


def held(bridge):
    """How many devices of our nodes are held, as far as the service knows; None while it does not."""
    pools = bridge.ask("/api/v1/fleet")[1].get("pools")
    return None if pools is None else sum(pool["held"] for pool in pools if {*pool["nodes"]} & {*NODES})


def until_told(control_plane, namespace, name, words):
    """Wait until the scheduler has said so of a pod, whatever it said before: copies of what has just been made differ by moments."""
    control_plane.until(words, lambda: words in control_plane.wait_unschedulable(namespace, name)["message"])


def wanting(name, namespace, *claims, node="", **spec):
    """A pod of our scheduler's, with claims; fake nodes are found by the label they have."""
    return pod(name, namespace, node=node, schedulerName=SCHEDULER, resourceClaims=list(claims), **spec)


def claims_of(control_plane, namespace):
    return control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]


def devices(found):
    """What a claim holds, as pool/device."""
    allocation = found.get("status", {}).get("allocation")
    return [f"{one['pool']}/{one['device']}" for one in allocation["devices"]["results"]] if allocation else []


def read_claim(control_plane, namespace, name):
    return control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")


def delete(control_plane, namespace, *pods):
    for name in pods:
        control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)


def give_and_take_back(control_plane, ours):
    """One claim of its own and one from a template, both on one node; deleted, both are free again. Gives the claims as they were."""
    control_plane.create(
        claim("kept", ours, request("gpu", CLASS)),
        template("made", ours, request("gpu", CLASS)),
        wanting("p", ours, using("kept"), using_template("made")),
    )
    placed = control_plane.wait_scheduled(ours, "p")
    found = claims_of(control_plane, ours)
    given = {device for one in found for device in devices(one)}
    assert len(given) == 2
    assert {device.partition("-fleet/")[0] for device in given} == {placed["spec"]["nodeName"]}
    for one in found:
        assert one["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert [consumer["name"] for consumer in one["status"]["reservedFor"]] == ["p"]
    delete(control_plane, ours, "p")
    control_plane.until("the claims are free", lambda: not any(map(devices, claims_of(control_plane, ours))), 30)
    return found


def test_a_pod_gets_the_devices_of_its_claims_and_gives_them_back(control_plane, gpus, ours):
    found = give_and_take_back(control_plane, ours)
    assert all(one["status"]["allocation"]["allocationTimestamp"] for one in found)


def test_a_claim_is_shared_by_pods_and_a_device_by_claims(control_plane, gpus, ours):
    """Two pods on one claim; two claims with 16Gi each on one GPU of 40Gi, and no room for a third until one goes."""
    wants = {"requests": {"memory": "16Gi", "cores": "30"}}
    control_plane.create(
        claim("together", ours, request("gpu", CLASS)),
        wanting("a", ours, using("together")),
        wanting("b", ours, using("together")),
    )
    assert control_plane.wait_scheduled(ours, "a")["spec"]["nodeName"] == control_plane.wait_scheduled(ours, "b")["spec"]["nodeName"]  # fmt: skip
    found = read_claim(control_plane, ours, "together")
    assert sorted(consumer["name"] for consumer in found["status"]["reservedFor"]) == ["a", "b"]
    for at in range(3):
        control_plane.create(
            claim(f"share-{at}", ours, request("gpu", SHARED, capacity=wants)),
            wanting(f"s{at}", ours, using(f"share-{at}")),
        )
        if at < 2:
            control_plane.wait_scheduled(ours, f"s{at}")
    until_told(control_plane, ours, "s2", "capacity")
    delete(control_plane, ours, "s0")
    control_plane.wait_scheduled(ours, "s2", 60)


def test_partitions_of_one_gpu_are_given_while_its_counters_last(control_plane, gpus, ours, created):
    parts = [
        fleet.device(f"part-{at}", {"kind": "part"}, consumesCounters=[fleet.consumes("gpu", slices=amount)])
        for at, amount in enumerate((4, 4, 2))
    ]
    created(
        *fleet.counted_slices("parts.example.com", NODES[1], {"gpu": {"slices": 8}}, parts, by_name=True),
        fleet.device_class("bridge-part", "device.driver == 'parts.example.com'"),
    )
    for at in range(3):
        control_plane.create(claim(f"part-{at}", ours, request("part", "bridge-part")), wanting(f"p{at}", ours, using(f"part-{at}")))  # fmt: skip
        if at < 2:
            control_plane.wait_scheduled(ours, f"p{at}")
    control_plane.wait_unschedulable(ours, "p2")
    given = [device for one in claims_of(control_plane, ours) for device in devices(one)]
    assert len(given) == len(set(given)) == 2


def test_a_pod_waits_for_its_claim_and_for_its_class(control_plane, gpus, ours, created):
    control_plane.create(wanting("early", ours, using("later")))
    until_told(control_plane, ours, "early", "waiting for claim later to be created")
    control_plane.create(claim("later", ours, request("gpu", "bridge-late")))
    created(fleet.device_class("bridge-late", f"device.driver == '{fleet.NVIDIA}'"))
    control_plane.wait_scheduled(ours, "early", 60)


def test_a_pod_without_claims_is_bound_and_one_that_asks_by_the_name_of_a_class_gets_a_claim(control_plane, gpus, ours, created):  # fmt: skip
    """With DynamicResources off no other component would make it."""
    created(fleet.device_class("bridge-extended", f"device.driver == '{fleet.NVIDIA}'", "bridge.example.com/gpu"))
    control_plane.create(
        wanting("plain", ours),
        wanting("named", ours, containers=[container(**limits(**{"bridge.example.com/gpu": 1}))]),
    )
    control_plane.wait_scheduled(ours, "plain")
    status = control_plane.wait_scheduled(ours, "named", 60)["status"]
    assert (
        len(devices(read_claim(control_plane, ours, status["extendedResourceClaimStatus"]["resourceClaimName"]))) == 1
    )


def test_fenced_devices_are_given_to_claims_that_may_have_them_and_by_no_other_scheduler(
    control_plane, gpus, ours, created
):
    created(
        *fleet.slices("fenced.example.com", NODES[0], [fleet.device("only", {"kind": "x"})], by_name=True),
        fleet.device_class("bridge-fenced", "device.driver == 'fenced.example.com'"),
        taint_rule("fenced.example.com"),
    )
    until_rules_are_heard_of(control_plane)
    control_plane.create(claim("theirs", ours, request("x", "bridge-fenced")), pod("theirs", ours, resourceClaims=[using("theirs")]))  # fmt: skip
    control_plane.wait_unschedulable(ours, "theirs")
    passing = {"tolerations": [builtins(FENCE_TOLERATION)]}
    control_plane.create(claim("mine", ours, request("x", "bridge-fenced", **passing)), wanting("mine", ours, using("mine")))  # fmt: skip
    control_plane.wait_scheduled(ours, "mine")
    assert devices(read_claim(control_plane, ours, "theirs")) == []


def quota(namespace, devices):
    return {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DeviceQuota",
        "metadata": {"name": "team", "namespace": namespace},
        "spec": {"hard": {f"{CLASS}/devices": devices}},
    }


def status_of(control_plane, namespace):
    path = f"/apis/drawbridge.dev/v1alpha1/namespaces/{namespace}/devicequotas/team"
    return control_plane.get(path).get("status", {})


def test_a_quota_holds_a_pod_back_with_an_event_and_lets_it_go_on_when_there_is_room(control_plane, bridge, gpus, ours):
    control_plane.create(quota(ours, 1))
    control_plane.until("the service knows the quota", lambda: "used" in status_of(control_plane, ours), 30)
    control_plane.create(claim("a", ours, request("gpu", CLASS)), wanting("p", ours, using("a")))
    control_plane.wait_scheduled(ours, "p")
    control_plane.until("one is used", lambda: status_of(control_plane, ours)["used"] == {f"{CLASS}/devices": "1"}, 30)
    control_plane.create(claim("b", ours, request("gpu", CLASS)), wanting("q", ours, using("b")))
    words = f"quota {ours}/team: {CLASS}/devices: 1 asked for, 1 of 1 used; the most that would pass is 0"
    control_plane.until(words, lambda: any(words in said for said in control_plane.events(ours, "q")), 60)
    assert devices(read_claim(control_plane, ours, "b")) == []
    delete(control_plane, ours, "p")
    control_plane.wait_scheduled(ours, "q", 60)


def test_writers_in_a_race_never_hold_more_than_the_quota_while_the_allocator_is_killed(
    control_plane, bridge, gpus, ours
):
    """12 writers make pods and take some away again, on devices of which there are more than the quota has; no review asks first."""
    most, writers, node = 9, 12, "bridge-race"
    device_class = "bridge-race"
    hard = {f"{device_class}/devices": most}
    limit = quota(ours, most)
    limit["spec"]["hard"] = hard
    control_plane.add_fake_nodes(1, prefix=node)
    made = [
        fleet.device_class(device_class, "device.driver == 'race.example.com'"),
        *fleet.slices("race.example.com", f"{node}0", [fleet.device(f"gpu-{at}", {}) for at in range(2 * most)], by_name=True),
    ]  # fmt: skip
    control_plane.create(*made, limit, template("one", ours, request("gpu", device_class)))
    control_plane.until("the service knows the quota", lambda: "used" in status_of(control_plane, ours), 30)
    path = f"/api/v1/namespaces/{ours}/pods"
    stop = threading.Event()

    def write(writer):
        draw = random.Random(writer)
        left = []
        number = 0
        while not stop.is_set():
            number += 1
            name = f"w{writer}-{number}"
            control_plane.create(wanting(name, ours, using_template("one"), terminationGracePeriodSeconds=0))
            left.append(name)
            if len(left) > 3 or draw.random() < 0.3:
                control_plane.delete(f"{path}/{left.pop(draw.randrange(len(left)))}", gracePeriodSeconds=0)
            time.sleep(draw.uniform(0.1, 0.5))
        return left

    def used():
        return sum(len(devices(one)) for one in claims_of(control_plane, ours))

    try:
        with ThreadPoolExecutor(writers) as several:
            wrote = [several.submit(write, writer) for writer in range(writers)]
            try:
                for _ in range(2):
                    control_plane.until("the quota is used", lambda: at_most(most, used()) == most, PATIENCE)
                    bridge.processes[REPLICA].stop(hard=True)
                    bridge.start(REPLICA)
            finally:
                stop.set()
        left = sum(len(one.result()) for one in wrote)
        assert left > most
        control_plane.until("what is left fills the quota", lambda: at_most(most, used()) == most, PATIENCE)
        exactly = {f"{device_class}/devices": str(most)}
        control_plane.until("the status says so", lambda: status_of(control_plane, ours)["used"] == exactly, PATIENCE)
    finally:
        control_plane.delete(path, gracePeriodSeconds=0)
        control_plane.until("the claims are gone", lambda: not claims_of(control_plane, ours), PATIENCE)
        control_plane.remove(*made, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{node}0"}})


def dear(name, namespace, number):
    """A claim whose selectors take long on any machine, and find nothing: 32, of 3,600 sums each."""
    numbers = list(range(60))
    sums = [f"{numbers}.all(x, {numbers}.all(y, x + y + {at} != -{number}))" for at in range(32)]
    last = [*sums[1:], f"{sums[0]} && device.driver == 'none.example.com'"]
    return claim(name, namespace, request("gpu", CLASS, selectors=[{"cel": {"expression": one}} for one in last]))


def test_dear_selectors_of_one_namespace_hold_up_no_pod_of_another(control_plane, bridge, gpus, ours):
    """40 pods come first, with questions that take a minute; the one behind them is placed while most of them wait for their turn."""
    hog, hogs = control_plane.namespace("hog"), [f"hog-{at}" for at in range(1, 41)]
    control_plane.create(*(dear(name, hog, at) for at, name in enumerate(hogs, 1)))
    control_plane.create(*(wanting(name, hog, using(name)) for name in hogs))
    try:
        control_plane.until("the first was asked", lambda: told(control_plane, hog, ""), PATIENCE)
        control_plane.create(claim("honest", ours, request("gpu", CLASS)), wanting("p", ours, using("honest")))
        control_plane.wait_scheduled(ours, "p", PATIENCE)
        asked = told(control_plane, hog, "") - told(control_plane, hog, "take long")
        assert asked < len(hogs) / 2
    finally:
        control_plane.delete(f"/api/v1/namespaces/{hog}/pods", gracePeriodSeconds=0)
        control_plane.remove({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": hog}})


def told(control_plane, namespace, words):
    """How many pods of a namespace were last told so by the scheduler."""
    pods = control_plane.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    conditions = [one for pod in pods for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
    return sum(words in condition.get("message", "") for condition in conditions)


def at_most(most, number):
    assert number <= most, f"{number} of {most}"
    return number


def test_a_namespace_says_how_its_pods_are_placed_and_a_pod_that_names_no_strategy_waits(control_plane, bridge, gpus, ours):  # fmt: skip
    """Left alone, the scheduler would take the emptier node; CompactFirst takes the one in use."""
    unknown, strategy = ({STRATEGY: name} for name in ("best", "CompactFirst"))
    [asked] = control_plane.create(
        pod("asked", ours, schedulerName="no-such-scheduler", resourceClaims=[using("nothing")])
    )
    for annotations, known in (
        (unknown, False),
        (strategy, True),
    ):  # a watch that has heard of the second has heard of the first
        control_plane.patch(f"/api/v1/namespaces/{ours}", {"metadata": {"annotations": annotations}})
        is_so = partial(strategy_is_known, bridge, asked, known)
        control_plane.until("the service has heard of it", is_so, 60)
    for name, node in (("first", NODES[1]), ("second", "")):
        control_plane.create(claim(name, ours, request("gpu", CLASS)), wanting(name, ours, using(name), node=node))
        assert control_plane.wait_scheduled(ours, name)["spec"]["nodeName"] == NODES[1]
    odd = wanting("odd", ours, using("odd"))
    odd["metadata"]["annotations"] = unknown
    control_plane.create(claim("odd", ours, request("gpu", CLASS)), odd)
    until_told(control_plane, ours, "odd", "there is no strategy 'best'; there are CompactFirst")
    control_plane.patch(f"/api/v1/namespaces/{ours}/pods/odd", {"metadata": {"annotations": strategy}})
    control_plane.wait_scheduled(ours, "odd")


def strategy_is_known(bridge, item, known):
    """Whether the service has an answer for a pod whose claim is not there, and which: that it waits for it, or that its strategy is unknown."""
    said = repr(bridge.ask("/extender/filter", bridge.port, {"Pod": item, "NodeNames": [*NODES]}))
    return ("waiting for claim nothing" if known else "there is no strategy") in said


# What holds when something dies

# Which write the line breaks at, and whether the server still gets it.
BETWEEN = {"after the finalizer": (1, True), "after the allocation": (2, True)}
BEFORE = {"before the finalizer": (1, False), "before the allocation": (2, False)}


def holding_all(control_plane, namespace):
    """Four pods without priority have all whole GPUs of both nodes."""
    at_once = {"terminationGracePeriodSeconds": 0}
    names = [f"low{at}" for at in range(4)]
    low = (wanting(name, namespace, using_template("one"), **at_once) for name in names)
    control_plane.create(template("one", namespace, request("gpu", CLASS)), *low)
    for name in names:
        control_plane.wait_scheduled(namespace, name)
    return names


@pytest.fixture
def urgency(control_plane, created):
    name = "bridge-urgent"
    created({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000})
    return name


def test_an_important_pod_is_told_who_would_have_to_go_and_by_option_that_pod_goes(control_plane, bridge, gpus, ours, urgency):  # fmt: skip
    """The scheduler is a stock one, and knows nothing of it."""
    names = holding_all(control_plane, ours)
    control_plane.create(wanting("urgent", ours, using_template("one"), priorityClassName=urgency))
    control_plane.until("advice", lambda: any("no pod is evicted" in said for said in control_plane.events(ours, "urgent")), 60)  # fmt: skip
    pods = control_plane.get(f"/api/v1/namespaces/{ours}/pods")["items"]
    assert len(pods) == len(names) + 1
    delete(control_plane, ours, "urgent")
    bridge.processes[REPLICA].stop()
    bridge.start(extender_preemption="evict")
    try:
        control_plane.create(wanting("now", ours, using_template("one"), priorityClassName=urgency))
        control_plane.wait_scheduled(ours, "now", 60)
        left = {one["metadata"]["name"] for one in control_plane.get(f"/api/v1/namespaces/{ours}/pods")["items"]}
        assert len(left) == len(names)
        [gone] = {*names} - left
        words = f"preempted by pod {ours}/now, which has a higher priority"
        control_plane.until(words, lambda: any(words in said for said in control_plane.events(ours, gone)), 60)
    finally:
        bridge.processes[REPLICA].stop()
        bridge.start()


def test_a_pod_gets_a_device_that_is_published_while_it_waits_though_its_scheduler_hears_nothing_of_slices(
    control_plane, gpus, ours
):
    late = fleet.slices("late.example.com", NODES[0], [fleet.device("gpu-0", {})], by_name=True)
    kind = fleet.device_class("bridge-late", "device.driver == 'late.example.com'")
    try:
        control_plane.create(kind, claim("c", ours, request("gpu", "bridge-late")), wanting("p", ours, using("c")))
        control_plane.until("it is set aside", lambda: any("FailedScheduling" in said for said in control_plane.events(ours, "p")), 60)  # fmt: skip
        control_plane.create(*late)
        control_plane.wait_scheduled(ours, "p", 60)
    finally:
        control_plane.delete(f"/api/v1/namespaces/{ours}/pods/p", gracePeriodSeconds=0)
        control_plane.remove(*late, kind)


def test_events_of_a_pod_do_not_name_objects_of_another_namespace(control_plane, gpus, ours):
    """Two tenants share a GPU by memory. The rest does not do for the second, whose events name its own claim only."""
    theirs = control_plane.namespace("bridge-theirs")
    half = {"memory": "30Gi", "cores": "10"}
    try:
        for namespace in (theirs, ours):
            control_plane.create(claim("much", namespace, request("gpu", SHARED, capacity={"requests": half})))
        control_plane.create(wanting("secret", theirs, using("much")))
        control_plane.wait_scheduled(theirs, "secret")
        control_plane.create(wanting("late", ours, using("much")))
        control_plane.wait_unschedulable(ours, "late")
        control_plane.until("the reason", lambda: any("another namespace" in event for event in control_plane.events(ours, "late")), 60)  # fmt: skip
        assert "bridge-theirs" not in repr(control_plane.events(ours, "late"))
    finally:
        control_plane.delete(f"/api/v1/namespaces/{theirs}/pods", gracePeriodSeconds=0)


@pytest.mark.parametrize("moments", [BETWEEN, pytest.param(BEFORE, marks=pytest.mark.long)], ids=["after", "before"])
def test_a_service_that_is_killed_at_a_write_is_repaired_by_the_next_start(control_plane, bridge, gpus, ours, moments):
    """The line breaks at the write, and the process is killed. Every pod is placed, and no device is held twice or without a pod."""
    proxy = Proxy(control_plane.url, control_plane.ca)
    way = f"http://127.0.0.1:{proxy.port}"
    try:
        bridge.processes[REPLICA].stop()
        for at, (write, answered) in enumerate(moments.values()):
            bridge.start(REPLICA, via=way)
            proxy.break_at(write, answered=answered)
            control_plane.create(claim(f"a{at}", ours, request("gpu", CLASS)), wanting(f"p{at}", ours, using(f"a{at}")))
            assert proxy.broken.wait(PATIENCE), "nothing was written"
            bridge.processes[REPLICA].stop(hard=True)
            proxy.break_at(0, answered=True)
        bridge.start(REPLICA)
    finally:
        proxy.close()
    control_plane.create(*(claim(f"a{at}", ours, request("gpu", CLASS)) for at in (2, 3)))
    control_plane.create(*(wanting(f"p{at}", ours, using(f"a{at}")) for at in (2, 3)))
    for at in range(4):
        control_plane.wait_scheduled(ours, f"p{at}", 60)
    given = [device for one in claims_of(control_plane, ours) for device in devices(one)]
    assert len(given) == len(set(given)) == 4
    delete(control_plane, ours, *(f"p{at}" for at in range(4)))
    control_plane.until("all is free", lambda: not any(map(devices, claims_of(control_plane, ours))), 30)


def test_a_pod_waits_while_the_service_is_away_and_goes_on_when_it_is_back(control_plane, bridge, gpus, ours):
    bridge.processes[REPLICA].stop(hard=True)
    control_plane.create(claim("a", ours, request("gpu", CLASS)), wanting("p", ours, using("a")))
    control_plane.until("the scheduler has said so", lambda: any("extender" in said for said in control_plane.events(ours, "p")), 30)  # fmt: skip
    bridge.start(REPLICA)
    control_plane.wait_scheduled(ours, "p", 60)


def test_the_api_server_lets_only_the_holder_of_the_lease_write(control_plane, bridge, gpus, ours):
    control_plane.create(claim("a", ours, request("gpu", CLASS)))
    path = f"/apis/resource.k8s.io/v1/namespaces/{ours}/resourceclaims/a"
    tokens = {name: bridge.token(name) for name in (REPLICA, "allocator-1")}
    tokens["bound to no pod"] = control_plane.token_of(SYSTEM, "drawbridge-allocator")
    for name, token in tokens.items():
        client = Client(control_plane.url, token, control_plane.ca)
        try:
            for way, body in (("", {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}), ("/status", {"status": {"reservedFor": None}})):  # fmt: skip
                if name == REPLICA:  # the API server may not have heard yet that it leads
                    control_plane.until("the holder may write", partial(client.patch, path + way, body, dryRun="All"))
                    continue
                with pytest.raises(ApiError, match=POLICY) as refused:
                    client.patch(path + way, body, dryRun="All")
                assert refused.value.code == 403
                assert "does not hold the lease" in refused.value.message
        finally:
            client.close()


# Kept although no test of this file needs it: a reason each.
SPARE = {
    ("*", "*", "list"): "servers that do not stream lists are asked for pages",
    ("resource.k8s.io", "resourceclaims/binding", "patch"): "asked for by the API server, when a status is written",
    ("", "events", "create"): "said of pods whose reservation is taken back",
    ("", "events", "patch"): "the same, said again",
    ("", "pods", "delete"): "of pods that make room for others (e2e/bridge/test_plugin.py)",
    ("", "pods/status", "patch"): "the same, with the reason",
    (
        "resource.k8s.io",
        "resourceclaims",
        "update",
    ): "of claims that a patch would spell anew (e2e/bridge/test_spellings.py)",
    ("resource.k8s.io", "resourceclaims/status", "update"): "the same",
    ("resource.k8s.io", "resourceclaims/binding", "update"): "the same",
    ("resource.k8s.io", "resourceclaims", "get"): "read again after a conflict, or an answer that was lost",
}


def test_without_a_lease_other_writers_may_change_claims(control_plane, bridge, ours):
    """A policy that lacks its parameter is asked before its conditions are: to deny would stop all of the cluster's claims."""
    bridge.processes["allocator-0"].stop()
    try:
        control_plane.delete(LEASE)
        control_plane.until("the fence has no lease", lambda: not bridge.is_fenced())
        [made] = control_plane.create(claim("c", ours, request("gpu", CLASS)))
        finalizers = {"metadata": {"finalizers": ["drawbridge.dev/test"]}}
        control_plane.patch(control_plane.path_of(made), finalizers, dryRun="All")
    finally:
        bridge.start()
    control_plane.until("the fence is up", bridge.is_fenced)


def test_the_service_uses_every_right_it_has_and_asks_for_no_other(control_plane, bridge, gpus, ours, created):
    """From the API server's audit log; without the right to bind claims it could allocate nothing."""
    control_plane.create(quota(ours, 1))
    control_plane.until("what is used is told", lambda: "used" in status_of(control_plane, ours), 30)
    [rule] = created(compatibility("bridge-rights", driver=fleet.NVIDIA, compatibleOnlyWith="true"))
    where = control_plane.path_of(rule)
    told = {"observedGeneration": 1, "devices": 4, "findings": []}
    control_plane.until("what a rule comes to is told", lambda: control_plane.get(where).get("status") == told, 30)
    control_plane.create(claim("a", ours, request("gpu", CLASS)), wanting("p", ours, using("a")), wanting("q", ours))
    control_plane.wait_scheduled(ours, "p")
    control_plane.wait_scheduled(ours, "q")
    account = f"system:serviceaccount:{SYSTEM}:drawbridge-allocator"
    used, refused = set(), set()
    for event in control_plane.audit_events():
        reference = event.get("objectRef")
        ours_alone = event["user"].get("username") == account and "drawbridge-e2e" not in event.get("userAgent", "")
        if not ours_alone or "dryRun=All" in event["requestURI"]:
            continue
        if reference is None:  # of an address, such as /metrics
            used.add(("", event["requestURI"].partition("?")[0], event["verb"]))
            continue
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
        forbidden = event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
        (refused if forbidden else used).add((reference.get("apiGroup", ""), resource, event["verb"]))
    assert refused == set()
    granted = rights(control_plane, "drawbridge-allocator")
    spare = {right for right in granted - used if right not in SPARE and ("*", "*", right[2]) not in SPARE}
    assert spare == set()


# On a real node


@pytest.mark.node
def test_a_container_sees_the_device_that_we_gave_it(control_plane, bridge, node_cluster, namespace, created):
    """Placed through the extender, prepared by Kubernetes' own test driver, in the container's environment by CDI."""
    created(
        fleet.device_class("bridge-node", f"device.driver == '{TEST_DRIVER}'"),
        template("one", namespace, request("device", "bridge-node")),
        pod(
            "p",
            namespace,
            container(command="env; echo spoken=yes; sleep 600", resources={"claims": [{"name": "one"}]}),
            node=node_cluster.name,
            schedulerName=SCHEDULER,
            resourceClaims=[using_template("one")],
        ),
    )
    ran = control_plane.wait_phase(namespace, "p", "Running")
    [status] = ran["status"]["resourceClaimStatuses"]
    prepared = f"claim_{status['resourceClaimName']}_device".replace("-", "_")
    assert prepared in node_cluster.environment(namespace, "p")
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/p")
    control_plane.until("the claim is gone", lambda: not claims_of(control_plane, namespace), 60)
