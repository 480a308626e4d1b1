"""Pending usage: the devices that admitted objects wait for.

In every order of events each object counts once, and deleted objects leave nothing behind.
"""

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator.quota import FutureClaim, NewObject, PendingUsage
from allocator.quota.pending_usage import SHARED_BYTES, UNSEEN_BYTES
from dra.objects import DeviceQuota, ResourceClaim, ResourceClaimSpec
from dra.policy import Demands
from dra.stock import Stock
from dra.wire import convert
from tests.dra.policy import quota_samples
from tests.objects import claim, exactly, owner, pod, typed

ENTRIES = ("gpu", "nic")  # names in the resourceClaims of a pod
POD_UIDS = ("p", "q")
CLAIM_UIDS = ("a", "b", "c")
PRIORITY_CLASSES = ("", "high")
QUOTA_OF_ALL_PRIORITIES = convert(quota_samples.scoped_quota({"gpu/devices": 99}), DeviceQuota)
HIGH_PRIORITY_QUOTA = convert(
    quota_samples.scoped_quota({"gpu/devices": 99}, quota_samples.scope("In", "high")), DeviceQuota
)


def spec_of_devices(device_count):
    return convert(claim("c", exactly(count=device_count))["spec"], ResourceClaimSpec)


CLAIM_BY_ENTRY = {"gpu": FutureClaim("one", spec_of_devices(1)), "nic": FutureClaim("three", spec_of_devices(3))}
DEVICES_BY_ENTRY = {"gpu": 1, "nic": 3}
DEVICES_PER_CLAIM = 5
SECONDS_REMEMBERED = 3  # for so many seconds an admitted object counts without an event


def waiting_pod(uid, *, phase="", priority_class="", without_claim_for=()):
    """Return a pod with all entries of CLAIM_BY_ENTRY. Its status says that the entries in `without_claim_for` need no claim."""
    entries = [{"name": entry, "resourceClaimTemplateName": CLAIM_BY_ENTRY[entry].template} for entry in ENTRIES]
    statuses = [{"name": entry} for entry in without_claim_for]
    status = {"phase": phase, "resourceClaimStatuses": statuses}
    fields = {"resourceClaims": entries, "priorityClassName": priority_class}
    return typed(pod(uid, namespace="team", uid=uid, status=status, **fields))


def claim_of(uid, pod_and_entry=None, *, is_allocated=False, count=DEVICES_PER_CLAIM, namespace="team"):
    """Return a claim, which was created for an entry of a pod if `pod_and_entry` is given."""
    fields = {}
    if pod_and_entry:
        fields["ownerReferences"] = [owner("Pod", pod_and_entry[0])]
        fields["annotations"] = {"resource.kubernetes.io/pod-claim-name": pod_and_entry[1]}
    status = {"allocation": {}} if is_allocated else {}
    return typed(claim(uid, exactly(count=count), namespace=namespace, uid=uid, status=status, **fields))


class World:
    """Stored and admitted objects, and a PendingUsage that gets an event for each of them."""

    def __init__(self):
        self.pending = PendingUsage(remembered=SECONDS_REMEMBERED)
        self.now = 0
        self.unseen = {}  # by UID of an admitted object without an event: until when the object counts, and its priority class
        self.pods = {}  # by UID: the priority class
        self.claims = {}
        self.entries = {}  # by UID of a claim: the pod and entry for which the claim was created, which never change

    def admit(self, uid, priority_class):
        is_claim = uid in CLAIM_UIDS
        future_claims = {"": FutureClaim(spec=spec_of_devices(DEVICES_PER_CLAIM))} if is_claim else CLAIM_BY_ENTRY
        self.pending.admit(NewObject(uid, "team", uid, "" if is_claim else priority_class, future_claims), self.now)
        if uid not in self.pods:
            self.unseen[uid] = self.now + SECONDS_REMEMBERED, "" if is_claim else priority_class

    def pass_time(self, seconds_passed):
        self.now += seconds_passed
        self.pending.expire(self.now)
        self.unseen = {uid: entry for uid, entry in self.unseen.items() if entry[0] > self.now}

    def see_pod(self, uid, phase, priority_class):
        pod_seen = waiting_pod(uid, phase=phase, priority_class=priority_class)
        self.pending.see_pod(pod_seen, CLAIM_BY_ENTRY)
        self.unseen.pop(uid, None)
        self.pods.pop(uid, None)
        if not phase:
            self.pods[uid] = priority_class

    def lose_pod(self, uid):
        self.pending.lose_pod(waiting_pod(uid))
        self.unseen.pop(uid, None)
        self.pods.pop(uid, None)

    def see_claim(self, uid, pod_and_entry, is_allocated):
        pod_and_entry = self.entries.setdefault(uid, pod_and_entry)
        claim_seen = self.claims[uid] = claim_of(uid, pod_and_entry, is_allocated=is_allocated)
        self.pending.see_claim(claim_seen)
        self.unseen.pop(uid, None)

    def lose_claim(self, uid):
        self.pending.lose_claim(claim_of(uid))
        self.claims.pop(uid, None)
        self.entries.pop(uid, None)
        self.unseen.pop(uid, None)

    def counted_devices(self, quota, excluded=""):
        stock = Stock.of(claims=self.claims.values())
        pods = {uid: waiting_pod(uid, priority_class=priority_class) for uid, priority_class in self.pods.items()}
        usage = self.pending.waiting(
            quota,
            stock,
            demand=lambda spec: Demands().upper_bound(spec, stock),
            find_pod=lambda namespace, name: pods.get(name) if namespace == "team" else None,
            find_spec=lambda *_: None,
            except_uid=excluded,
        )
        return usage.get(("gpu", "devices"), 0) // 10**9

    def expected_devices(self, quota, excluded=""):
        entries_with_claim = {self.entries[uid] for uid in self.claims if self.entries[uid]}
        priority_classes = {name for name in PRIORITY_CLASSES if quota is QUOTA_OF_ALL_PRIORITIES or name == "high"}
        count = 0
        admitted = {uid: priority_class for uid, (_, priority_class) in self.unseen.items()} | self.pods
        for uid, priority_class in admitted.items():
            if uid != excluded and priority_class in priority_classes:
                device_counts = {"": DEVICES_PER_CLAIM} if uid in CLAIM_UIDS else DEVICES_BY_ENTRY
                count += sum(
                    device_count
                    for entry, device_count in device_counts.items()
                    if (uid, entry) not in entries_with_claim
                )
        for uid, stored in self.claims.items():
            pod_and_entry = self.entries[uid]
            priority_class = self.pods.get(pod_and_entry[0], "") if pod_and_entry else ""
            if uid != excluded and stored.status.allocation is None and priority_class in priority_classes:
                count += DEVICES_PER_CLAIM
        return count


DRAWN_PODS_AND_ENTRIES = st.one_of(st.none(), st.tuples(st.sampled_from(POD_UIDS), st.sampled_from(ENTRIES)))
DRAWN_POD_UIDS = st.sampled_from(POD_UIDS)
DRAWN_CLAIM_UIDS = st.sampled_from(CLAIM_UIDS)
DRAWN_EVENTS = st.one_of(
    st.tuples(st.just("admit"), st.sampled_from(POD_UIDS + CLAIM_UIDS), st.sampled_from(PRIORITY_CLASSES)),
    st.tuples(st.just("pass_time"), st.integers(1, 3)),
    st.tuples(
        st.just("see_pod"), DRAWN_POD_UIDS, st.sampled_from(["", "", "Succeeded"]), st.sampled_from(PRIORITY_CLASSES)
    ),
    st.tuples(st.just("lose_pod"), DRAWN_POD_UIDS),
    st.tuples(st.just("see_claim"), DRAWN_CLAIM_UIDS, DRAWN_PODS_AND_ENTRIES, st.booleans()),
    st.tuples(st.just("lose_claim"), DRAWN_CLAIM_UIDS),
)


@given(st.lists(DRAWN_EVENTS, max_size=30))
def test_pending_usage_counts_each_object_once_and_leaves_nothing_behind(events):
    world = World()
    for event, *arguments in events:
        if event == "admit" and arguments[0] in world.claims:
            continue  # the API server admits no object that exists
        getattr(world, event)(*arguments)
        for quota in (QUOTA_OF_ALL_PRIORITIES, HIGH_PRIORITY_QUOTA):
            for excluded in ("", "p", "a"):
                assert world.counted_devices(quota, excluded) == world.expected_devices(quota, excluded), (
                    event,
                    arguments,
                )
    for uid in POD_UIDS:
        world.lose_pod(uid)
    for uid in CLAIM_UIDS:
        world.lose_claim(uid)
    world.pass_time(100)
    # The other attributes are two caches of bounded size, and an argument of the constructor.
    leftovers = {
        name: value
        for name, value in vars(world.pending).items()
        if value and name not in ("_specs", "_wanted_claims", "_remembered")
    }
    assert leftovers == {}


def test_a_pod_entry_that_needs_no_claim_counts_no_device():
    world = World()
    world.pending.see_pod(waiting_pod("p", without_claim_for=("nic",)), CLAIM_BY_ENTRY)
    assert world.counted_devices(QUOTA_OF_ALL_PRIORITIES) == 1


def test_a_stored_template_precedes_the_spec_that_admission_found():
    pending = PendingUsage()
    pending.admit(NewObject("p", "team", "p", "", {"gpu": FutureClaim("one", spec_of_devices(1))}), 0.0)
    stock = Stock.of()
    usage = pending.waiting(
        QUOTA_OF_ALL_PRIORITIES,
        stock,
        demand=lambda spec: Demands().upper_bound(spec, stock),
        find_pod=lambda *_: None,
        find_spec=lambda namespace, name: spec_of_devices(7) if (namespace, name) == ("team", "one") else None,
    )
    assert usage["gpu", "devices"] == 7 * 10**9


def test_the_number_of_admitted_pods_is_bounded():
    pending = PendingUsage()
    for i in range(20_000):
        pending.admit(NewObject(f"{i}", f"n{i % 3}", "p", "", CLAIM_BY_ENTRY), 0.0)
    assert sum(len(vars(usage)["admitted"]) for usage in vars(pending)["_namespaces"].values()) == 16384
    pending.expire(31.0)  # an admission counts for 30 seconds
    assert not vars(pending)["_namespaces"]


def test_equal_pending_requests_are_evaluated_once():
    pending = PendingUsage()
    evaluated_specs = []
    for i in range(50):
        pending.admit(NewObject(f"admitted-{i}", "team", "p", "", {"gpu": FutureClaim("one", spec_of_devices(1))}), 0.0)
        pending.see_pod(
            waiting_pod(f"pod-{i}", without_claim_for=("nic",)), {"gpu": FutureClaim("one", spec_of_devices(1))}
        )
        pending.see_claim(claim_of(f"claim-{i}", count=1))
    usage = pending.waiting(
        QUOTA_OF_ALL_PRIORITIES,
        Stock.of(claims=[claim_of(f"claim-{i}", count=1) for i in range(50)]),
        demand=lambda spec: evaluated_specs.append(spec) or {("gpu", "devices"): 10**9},
        find_pod=lambda *_: None,
        find_spec=lambda *_: None,
    )
    assert (usage["gpu", "devices"], len(evaluated_specs)) == (150 * 10**9, 1)


def devices_pending_in(pending, namespace, *claims):
    """Return how many devices the objects of a namespace wait for."""
    quota = convert(
        {"metadata": {"name": "q", "namespace": namespace}, "spec": {"hard": {"gpu/devices": 99}}}, DeviceQuota
    )
    stock = Stock.of(claims=claims)
    usage = pending.waiting(
        quota,
        stock,
        demand=lambda spec: Demands().upper_bound(spec, stock),
        find_pod=lambda *_: None,
        find_spec=lambda *_: None,
    )
    return usage.get(("gpu", "devices"), 0) // 10**9


def test_a_forged_claim_does_not_count_for_another_namespace():
    pending = PendingUsage()
    pending.see_pod(waiting_pod("p"), CLAIM_BY_ENTRY)
    forged_claim = claim_of("f", ("p", "nic"), namespace="thief")
    pending.see_claim(forged_claim)
    assert (devices_pending_in(pending, "team"), devices_pending_in(pending, "thief", forged_claim)) == (4, 5)


def test_a_uid_in_two_namespaces_is_removed_from_both():
    pending = PendingUsage()
    for namespace in ("team", "thief"):
        pending.admit(NewObject("p", namespace, "p", "", CLAIM_BY_ENTRY), 0.0)
    assert (devices_pending_in(pending, "team"), devices_pending_in(pending, "thief")) == (4, 4)
    pending.expire(31.0)
    assert (devices_pending_in(pending, "team"), devices_pending_in(pending, "thief")) == (0, 0)


def test_pending_usage_keeps_a_bounded_number_of_template_names():
    pending = PendingUsage()
    for i in range(10_000):
        pending.admit(NewObject("p", "team", "p", "", {"gpu": FutureClaim(f"t{i}")}), 0.0)
    assert len(vars(pending)["_wanted_claims"]) <= 4096


def claim_with_long_selector(index, selector_bytes):
    """Return a claim with a selector of a number of bytes."""
    selectors = [{"cel": {"expression": f"device.driver != '{index}{'x' * selector_bytes}'"}}]
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1, "selectors": selectors}}
    meta = {"name": f"heavy{index}", "namespace": "team", "uid": f"heavy{index}"}
    return convert({"metadata": meta, "spec": {"devices": {"requests": [request]}}}, ResourceClaim)


def memory_kept_by(function):
    """Call a function; return how many bytes of memory its result keeps allocated, and the result."""
    tracemalloc.start()
    try:
        result = function()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], result
    finally:
        tracemalloc.stop()


def test_the_memory_for_deleted_claims_is_bounded():
    def see_and_lose_many_claims():
        pending = PendingUsage()
        for index in range(600):
            claim = claim_with_long_selector(index, 50_000)
            pending.see_claim(claim)
            pending.lose_claim(claim)
        return pending

    assert memory_kept_by(see_and_lose_many_claims)[0] < 2 * SHARED_BYTES


def test_only_the_latest_admissions_count_within_a_memory_bound():
    def admit_many_claims():
        pending = PendingUsage()
        for index in range(1500):
            claim = claim_with_long_selector(index, 100_000)
            pending.admit(NewObject(claim.metadata.uid, "team", "", "", {"": FutureClaim("", claim.spec)}), 0.0)
        return pending

    size, pending = memory_kept_by(admit_many_claims)
    assert size < UNSEEN_BYTES + 2 * SHARED_BYTES
    assert 300 <= devices_pending_in(pending, "team") < 600
    pending.expire(31.0)
    assert devices_pending_in(pending, "team") == 0
    assert vars(pending)["_unseen_bytes"] == 0


@pytest.mark.parametrize(
    ("key", "evaluated_count"), [("gpu/devices", 2), ("*/devices", 4), ("nic/devices", 2), ("fpga/devices", 0)]
)
def test_only_pending_claims_of_limited_classes_are_evaluated(key, evaluated_count):
    """A tenant may store any number of claims of other classes. Their evaluation must not delay other reviews."""

    def spec_for(class_name):
        exactly = {"deviceClassName": class_name, "count": 1}
        alternatives = [{"name": "a", "deviceClassName": class_name, "count": 1}]
        requests = (
            [{"name": "r", "exactly": exactly}]
            if class_name == "gpu"
            else [{"name": "r", "firstAvailable": alternatives}]
        )
        return convert({"devices": {"requests": requests}}, ResourceClaimSpec)

    pending, claims, templates = PendingUsage(), [], {}
    for class_name in ("gpu", "nic"):
        claims.append(
            convert({"metadata": {"name": class_name, "namespace": "team", "uid": class_name}}, ResourceClaim)
        )
        claims[-1] = replace(claims[-1], spec=spec_for(class_name))
        pending.see_claim(claims[-1])
        pending.admit(NewObject(f"p{class_name}", "team", "", "", {"e": FutureClaim("", spec_for(class_name))}), 0.0)
        templates["team", class_name] = spec_for(class_name)
        pending.admit(NewObject(f"q{class_name}", "team", "", "", {"e": FutureClaim(class_name)}), 0.0)
    evaluated_specs = []
    pending.waiting(
        convert(quota_samples.scoped_quota({key: 99}), DeviceQuota),
        Stock.of(claims=claims),
        demand=lambda spec: evaluated_specs.append(spec) or {},
        find_pod=lambda *_: None,
        find_spec=lambda *key: templates.get(key),
    )
    # Of each class there are three pending objects, but the claim and the first pod share one interned spec.
    assert len(evaluated_specs) == evaluated_count
