"""The judge of `make chaos` finds each fault in a record that contains it, and none in a valid record."""

import pytest

from e2e.actors import fleet
from e2e.actors.workloads import claim, container, limits, pod, request, using, using_template
from e2e.chaos.containers import BLIND, OTHER_HARDWARE, TWO_CONTAINERS, judge_containers, read_sight
from e2e.chaos.judge import (
    BROKEN,
    COUNTERS_EXCEEDED,
    DISMEMBERED,
    EXCEEDED,
    FICKLE,
    INCOMPATIBLE,
    LEAK,
    ON_ANOTHER_NODE,
    STARTED_TWICE,
    STUCK,
    TAKEN,
    TWICE,
    WITHOUT_DEVICES,
    judge,
)
from e2e.chaos.record import Change

GPU, SHARED, PARTS = "gpu.example.com", "shared.example.com", "parts.example.com"
CARDS = "cards.example.com"


class Tale:
    """A record, built step by step."""

    def __init__(self):
        self.record = []
        for node in ("n0", "n1"):
            for driver, devices in ((GPU, [fleet.device("gpu", {})]), (SHARED, [fleet.device("gpu", {}, {"memory": "40Gi"})])):  # fmt: skip
                [slice_] = fleet.slices(driver, node, devices, by_name=True)
                self.add("ResourceSlice", slice_["metadata"]["name"], slice_)

    def add(self, kind, key, item):
        self.record.append(Change(len(self.record) + 1, kind, key, item))

    def pod(self, name, *, uses="", node="", phase="Pending", labels=None, uid=""):
        item = pod(name, "ns", resourceClaims=[using(uses or name)])
        item["metadata"] |= {"uid": uid or f"uid-{name}", "labels": labels or {}}
        item["spec"]["nodeName"] = node
        item["status"] = {"phase": phase}
        self.add("Pod", f"ns/{name}", item)

    def claim(self, name, *pods, device="", memory="", driver=GPU):
        item = claim(name, "ns", request("gpu", "gpu"))
        if device:
            node, _, device_name = device.partition("/")
            result = {"request": "gpu", "driver": driver, "pool": f"{node}-fleet", "device": device_name}
            if memory:
                result |= {"shareID": f"share-{name}", "consumedCapacity": {"memory": memory}}
            consumers = [{"resource": "pods", "name": name, "uid": f"uid-{name}"} for name in pods]
            item["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers}
        self.add("ResourceClaim", f"ns/{name}", item)

    def start(self, name, device="n0/gpu"):
        self.pod(name)
        self.claim(name)
        self.claim(name, name, device=device)
        self.pod(name, node=device.partition("/")[0])

    def finish(self, name):
        self.delete("Pod", name)
        self.claim(name)
        self.delete("ResourceClaim", name)

    def delete(self, kind, name):
        self.add(kind, f"ns/{name}", None)

    def faults(self):
        return [fault.kind for fault in judge(self.record).faults]


@pytest.fixture
def tale():
    return Tale()


def test_pods_in_sequence_on_one_device_are_valid(tale):
    for name in ("a", "b"):
        tale.start(name)
        tale.finish(name)
    verdict = judge(tale.record)
    assert verdict.faults == ()
    assert verdict.counts == {"pods": 2, "bound": 2, "claims": 2, "allocations": 2, "allocations taken back": 0}


def test_a_device_held_twice_is_reported_with_its_bound_pods(tale):
    tale.start("a")
    tale.pod("b")
    tale.claim("b", "b", device="n0/gpu")
    assert tale.faults()[:1] == [TWICE]
    assert STARTED_TWICE not in tale.faults()
    tale.pod("b", node="n0")
    assert STARTED_TWICE in tale.faults()


def test_shares_of_one_device_are_valid_up_to_its_capacity(tale):
    for name, memory in (("a", "16Gi"), ("b", "24Gi")):
        tale.pod(name)
        tale.claim(name, name, device="n0/gpu", memory=memory, driver=SHARED)
    assert EXCEEDED not in tale.faults()
    tale.claim("c", "c", device="n0/gpu", memory="1", driver=SHARED)
    assert EXCEEDED in tale.faults()


def test_a_share_of_a_device_held_whole_is_reported(tale):
    tale.claim("a", "a", device="n0/gpu", memory="1Gi", driver=SHARED)
    tale.claim("b", "b", device="n0/gpu", driver=SHARED)
    assert TWICE in tale.faults()


def publish_parts(tale, groups):
    """Publish partitions of a GPU that has room for two of them: their compatibility groups, by number."""
    devices = [
        fleet.device(f"part-{index}", {}, consumesCounters=[fleet.consumes("gpu", group, memory="20Gi")])
        for index, group in groups.items()
    ]
    for slice_ in fleet.counted_slices(PARTS, "n0", {"gpu": {"memory": "40Gi"}}, devices, by_name=True):
        tale.add("ResourceSlice", slice_["metadata"]["name"], slice_)


def allocate_parts(tale, *numbers):
    for index in numbers:
        tale.claim(f"c{index}", f"c{index}", device=f"n0/part-{index}", driver=PARTS)
    return tale.faults()


def faults_of_parts(tale, *groups):
    """Allocate partitions with these groups; return the faults."""
    publish_parts(tale, dict(enumerate(groups)))
    return allocate_parts(tale, *range(len(groups)))


def test_partitions_of_a_device_are_valid_up_to_its_counters(tale):
    assert COUNTERS_EXCEEDED not in faults_of_parts(tale, (), ())
    assert faults_of_parts(Tale(), (), (), ()).count(COUNTERS_EXCEEDED) == 1


def test_a_partition_that_is_no_longer_published_consumes_nothing(tale):
    """As in Kubernetes. Its claim keeps it, and the containers show whether two pods have its hardware."""
    publish_parts(tale, dict.fromkeys(range(3), ()))
    allocate_parts(tale, 0)
    publish_parts(tale, {1: (), 2: ()})
    assert COUNTERS_EXCEEDED not in allocate_parts(tale, 1, 2)
    publish_parts(tale, dict.fromkeys(range(4), ()))
    assert COUNTERS_EXCEEDED in allocate_parts(tale, 3)


def test_partitions_without_a_common_group_are_reported(tale):
    assert INCOMPATIBLE not in faults_of_parts(tale, ("h",), ("h", "q"))
    assert INCOMPATIBLE in faults_of_parts(Tale(), ("h",), ("q",))
    assert INCOMPATIBLE in faults_of_parts(Tale(), ("h",), ())


def test_a_pod_bound_without_its_devices_or_elsewhere_is_reported(tale):
    tale.pod("a", node="n0")
    assert WITHOUT_DEVICES in tale.faults()
    tale.claim("b", "x", device="n0/gpu")
    tale.pod("b", node="n0")
    assert tale.faults().count(WITHOUT_DEVICES) == 2
    tale.claim("c", "c", device="n1/gpu")
    tale.pod("c", node="n0")
    assert ON_ANOTHER_NODE in tale.faults()


def test_a_pod_bound_before_its_template_claim_exists_is_reported(tale):
    item = pod("a", "ns", resourceClaims=[using_template("t")])
    item["metadata"]["uid"] = "uid-a"
    item["spec"]["nodeName"] = "n0"
    tale.add("Pod", "ns/a", item)
    assert WITHOUT_DEVICES in tale.faults()


@pytest.mark.parametrize("change", [{}, {"device": "n1/gpu"}, {"device": "n0/gpu", "pods": ["other"]}])
def test_a_claim_taken_from_a_bound_pod_is_reported(tale, change):
    tale.start("a")
    tale.claim("a", *change.get("pods", ["a"]), device=change.get("device", ""))
    assert TAKEN in tale.faults()


def test_a_finished_pod_may_lose_its_devices(tale):
    tale.start("a")
    tale.pod("a", node="n0", phase="Succeeded")
    tale.claim("a")
    tale.delete("Pod", "a")
    assert tale.faults() == []


def test_a_claim_left_at_the_end_is_reported(tale):
    tale.start("a")
    tale.delete("Pod", "a")
    assert tale.faults() == [LEAK]


def test_a_pod_without_a_node_is_reported_unless_deleted_early(tale):
    tale.pod("a")
    assert tale.faults() == [STUCK, LEAK]
    tale.delete("Pod", "a")
    assert tale.faults() == [STUCK]
    fickle = Tale()
    fickle.pod("a", labels={FICKLE: ""})
    fickle.delete("Pod", "a")
    assert fickle.faults() == []


def test_a_pod_recreated_with_its_name_is_another_pod(tale):
    tale.start("a")
    tale.delete("Pod", "a")
    tale.pod("a", uid="another")
    tale.claim("a")
    tale.delete("Pod", "a")
    assert tale.faults() == [STUCK]


def test_an_allocation_taken_from_a_waiting_pod_is_counted_only(tale):
    tale.pod("a", labels={FICKLE: ""})
    tale.claim("a", "a", device="n0/gpu")
    tale.claim("a")
    tale.delete("Pod", "a")
    verdict = judge(tale.record)
    assert verdict.faults == ()
    assert verdict.counts["allocations taken back"] == 1


def test_second_claims_of_an_entry_and_later_changes_of_the_status_are_counted():
    tale = Tale()
    for name in ("first", "second"):
        item = claim(name, "ns", request("gpu", "gpu"))
        item["metadata"] |= {
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
            "ownerReferences": [{"uid": "uid-p"}],
        }
        tale.add("ResourceClaim", f"ns/{name}", item)
    for node, name in (("", "first"), ("n0", "first"), ("n0", "second")):
        tale.pod("p", uses=name, node=node)
    counts = judge(tale.record).counts
    assert (counts["second claims of an entry"], counts["claims changed after the binding"]) == (1, 1)


def test_a_pod_by_name_is_bound_with_a_claim(tale):
    def by_name(name, status):
        item = pod(name, "ns", container(**limits(**{"example.com/gpu": 1})))
        item["metadata"]["uid"] = f"uid-{name}"
        item["spec"]["nodeName"] = "n0"
        tale.add("Pod", f"ns/{name}", item | {"status": status})

    tale.claim("a", "a", device="n0/gpu")
    by_name("a", {"extendedResourceClaimStatus": {"resourceClaimName": "a"}})
    assert WITHOUT_DEVICES not in tale.faults()
    by_name("b", {})
    assert WITHOUT_DEVICES in tale.faults()


@pytest.mark.parametrize(("evicted", "faults"), [(1, [DISMEMBERED]), (0, []), (2, [])])
def test_members_of_a_gang_that_outlive_an_evicted_one_are_reported(tale, evicted, faults):
    for name in ("a", "b"):
        tale.start(name)
    for number, name in enumerate(("a", "b")):
        item = pod(name, "ns", resourceClaims=[using(name)], schedulingGroup={"podGroupName": "gang"})
        item["metadata"] |= {"uid": f"uid-{name}", "labels": {} if number < evicted else {BROKEN: ""}}
        item["spec"]["nodeName"] = "n0"
        item["status"] = {"conditions": [{"type": "DisruptionTarget", "status": "True"}] if number < evicted else []}
        tale.add("Pod", f"ns/{name}", item)
    assert [fault for fault in tale.faults() if fault == DISMEMBERED] == faults


class Containers(Tale):
    """A record with containers, and what they have printed."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def publish(self, **uuids):
        devices = [fleet.device(name.replace("_", "-"), {"uuid": uuid}) for name, uuid in uuids.items()]
        for slice_ in fleet.slices(CARDS, "n0", devices, by_name=True):
            self.add("ResourceSlice", slice_["metadata"]["name"], slice_)

    def run(self, name, printed, *, file="1:5", restarts=0, visible=None):
        values = [line.partition("=")[2] for line in printed.split() if "MEMORY" not in line]
        text = "\n".join([*printed.split(), f"CHAOS_VISIBLE={','.join(values) if visible is None else visible}"])
        self.seen[f"uid-{name}", restarts] = read_sight(f"{text}\nfile={file}" if file else text)
        item = pod(name, "ns", resourceClaims=[using(name)])
        item["metadata"]["uid"] = f"uid-{name}"
        item["spec"]["nodeName"] = "n0"
        item["status"] = {"containerStatuses": [{"restartCount": restarts, "state": {"running": {}}}]}
        self.add("Pod", f"ns/{name}", item)

    def kinds(self):
        verdict = judge_containers(self.record, self.seen, CARDS, {"GPU-a": "1:5", "GPU-b": "1:7"}, 40 << 30)
        assert verdict.counts["containers"] == len(self.seen)
        return [fault.kind for fault in verdict.faults]


@pytest.fixture
def containers():
    tale = Containers()
    tale.publish(gpu_0="GPU-a", gpu_1="GPU-b")
    tale.claim("a", "a", device="n0/gpu-0", driver=CARDS)
    return tale


A = "DRAWBRIDGE_DEVICE_GPU_0=GPU-a"


def test_a_container_that_sees_the_hardware_of_its_claim_is_valid(containers):
    containers.run("a", A)
    containers.run("a", A, restarts=1)
    assert containers.kinds() == []


@pytest.mark.parametrize(
    "sight", [{"printed": "A=b"}, {"printed": "DRAWBRIDGE_DEVICE_GPU_0="}, {"printed": A, "file": ""}, {"printed": A, "visible": "all"}]
)  # fmt: skip
def test_a_container_without_hardware_is_reported(containers, sight):
    containers.run("a", **sight)
    assert containers.kinds() == [BLIND]


@pytest.mark.parametrize(
    "sight",
    [
        {"printed": "DRAWBRIDGE_DEVICE_GPU_1=GPU-b", "file": "1:7"},
        {"printed": "DRAWBRIDGE_DEVICE_GPU_0=GPU-b", "file": "1:7"},
        {"printed": A, "file": "1:7"},
        {"printed": A, "visible": "GPU-b"},
    ],
)
def test_a_container_with_other_hardware_than_its_claim_is_reported(containers, sight):
    containers.run("a", **sight)
    assert containers.kinds() == [OTHER_HARDWARE]


def test_a_name_may_mean_other_hardware_later_but_not_for_a_running_pod(containers):
    containers.run("a", A)
    containers.publish(gpu_0="GPU-b")
    containers.run("a", "DRAWBRIDGE_DEVICE_GPU_0=GPU-b", file="1:7", restarts=1)
    assert containers.kinds() == [OTHER_HARDWARE]


@pytest.mark.parametrize(
    ("first", "second", "faults"),
    [
        (A, "DRAWBRIDGE_DEVICE_CARD_0=GPU-a", [TWO_CONTAINERS]),
        (A, "DRAWBRIDGE_DEVICE_CARD_0=GPU-a/half/0", [TWO_CONTAINERS]),
        ("DRAWBRIDGE_DEVICE_GPU_0=GPU-a/half/0", "DRAWBRIDGE_DEVICE_CARD_0=GPU-a/half/0", [TWO_CONTAINERS]),
        ("DRAWBRIDGE_DEVICE_GPU_0=GPU-a/half/0", "DRAWBRIDGE_DEVICE_CARD_0=GPU-a/half/1", []),
        (f"{A} {A.replace('=GPU-a', '_MEMORY=1')}", "DRAWBRIDGE_DEVICE_CARD_0=GPU-a", [TWO_CONTAINERS]),
        *(
            (f"{A} {A.replace('=GPU-a', f'_MEMORY={20 << 30}')}", f"DRAWBRIDGE_DEVICE_CARD_0=GPU-a DRAWBRIDGE_DEVICE_CARD_0_MEMORY={memory}", faults)
            for memory, faults in ((20 << 30, []), ((20 << 30) + 1, [TWO_CONTAINERS]))
        ),
    ],
)  # fmt: skip
def test_two_containers_never_have_the_same_hardware(first, second, faults):
    containers = Containers()
    value_of = {name: line.split()[0].partition("=")[2] for name, line in (("gpu_0", first), ("card_0", second))}
    containers.publish(**value_of)
    for name, device, printed in (("a", "gpu-0", first), ("b", "card-0", second)):
        containers.claim(name, name, device=f"n0/{device}", driver=CARDS)
        containers.run(name, printed)
    assert containers.kinds() == faults


def test_a_pod_that_is_deleted_gives_its_hardware_to_the_next(containers):
    containers.publish(card_0="GPU-a")
    containers.run("a", A)
    containers.delete("Pod", "a")
    containers.claim("b", "b", device="n0/card-0", driver=CARDS)
    containers.run("b", "DRAWBRIDGE_DEVICE_CARD_0=GPU-a")
    assert containers.kinds() == []
