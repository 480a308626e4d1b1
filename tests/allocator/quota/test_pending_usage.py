"""Pending usage: the devices that admitted objects wait for.

In every order of events each object counts once, and deleted objects leave nothing behind.
"""

import gc
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator.quota import FutureClaim, NewObject, PendingUsage
from allocator.quota.pending_usage import SHARED_BYTES, UNSEEN_BYTES
from dra.objects import DeviceQuota, ResourceClaim, ResourceClaimSpec
from dra.policy import Demands
from dra.stock import Stock
from dra.wire import convert
from tests.dra.policy import quota_samples
from tests.draws import draws
from tests.objects import claim, exactly, owner, pod, typed

ENTRIES = ("gpu", "nic")
PODS = ("p", "q")
CLAIMS = ("a", "b", "c")
CLASSES = ("", "high")
QUOTA = convert(quota_samples.scoped_quota({"gpu/devices": 99}), DeviceQuota)
HIGH = convert(quota_samples.scoped_quota({"gpu/devices": 99}, quota_samples.scope("In", "high")), DeviceQuota)


def spec(count):
    return convert(claim("c", exactly(count=count))["spec"], ResourceClaimSpec)


WANTS = {"gpu": FutureClaim("one", spec(1)), "nic": FutureClaim("three", spec(3))}
COUNTS = {"gpu": 1, "nic": 3}
LASTS = 3  # for so many seconds an admitted object counts without an event


def waiting_pod(uid, *, phase="", priority_class="", without=()):
    """Return a pod with an entry for each claim template of WANTS. Its status says that the entries in `without` need no claim."""
    entries = [{"name": entry, "resourceClaimTemplateName": WANTS[entry].template} for entry in ENTRIES]
    statuses = [{"name": entry} for entry in without]
    status = {"phase": phase, "resourceClaimStatuses": statuses}
    fields = {"resourceClaims": entries, "priorityClassName": priority_class}
    return typed(pod(uid, namespace="team", uid=uid, status=status, **fields))


def claim_of(uid, owned_by=None, *, allocated=False, count=5, namespace="team"):
    """Return a claim. If `owned_by` names a pod and one of its entries, the claim was created for this entry."""
    fields = {}
    if owned_by:
        fields["ownerReferences"] = [owner("Pod", owned_by[0])]
        fields["annotations"] = {"resource.kubernetes.io/pod-claim-name": owned_by[1]}
    status = {"allocation": {}} if allocated else {}
    return typed(claim(uid, exactly(count=count), namespace=namespace, uid=uid, status=status, **fields))


class World:
    """Stored and admitted objects, and a PendingUsage that gets an event for each of them."""

    def __init__(self):
        self.pending = PendingUsage(remembered=LASTS)
        self.now = 0
        self.door = {}  # by UID of an admitted object without an event: until when the object counts, and its priority class
        self.pods = {}
        self.claims = {}
        self.owners = {}  # by UID of a claim: the pod and entry for which the claim was created, which never change

    def admit(self, uid, priority_class):
        is_claim = uid in CLAIMS
        wants = {"": FutureClaim(spec=spec(5))} if is_claim else WANTS
        self.pending.admit(NewObject(uid, "team", uid, "" if is_claim else priority_class, wants), self.now)
        if uid not in self.pods:
            self.door[uid] = self.now + LASTS, "" if is_claim else priority_class

    def pass_time(self, seconds):
        self.now += seconds
        self.pending.expire(self.now)
        self.door = {uid: entry for uid, entry in self.door.items() if entry[0] > self.now}

    def see_pod(self, uid, phase, priority_class):
        seen = waiting_pod(uid, phase=phase, priority_class=priority_class)
        self.pending.see_pod(seen, WANTS)
        self.door.pop(uid, None)
        self.pods.pop(uid, None)
        if not phase:
            self.pods[uid] = priority_class

    def lose_pod(self, uid):
        self.pending.lose_pod(waiting_pod(uid))
        self.door.pop(uid, None)
        self.pods.pop(uid, None)

    def see_claim(self, uid, owner, allocated):
        owner = self.owners.setdefault(uid, owner)
        seen = self.claims[uid] = claim_of(uid, owner, allocated=allocated)
        self.pending.see_claim(seen)
        self.door.pop(uid, None)

    def lose_claim(self, uid):
        self.pending.lose_claim(claim_of(uid))
        self.claims.pop(uid, None)
        self.owners.pop(uid, None)
        self.door.pop(uid, None)

    def counted(self, quota, but=""):
        stock = Stock.of(claims=self.claims.values())
        pods = {uid: waiting_pod(uid, priority_class=name) for uid, name in self.pods.items()}
        usage = self.pending.waiting(
            quota,
            stock,
            demand=lambda spec: Demands().upper_bound(spec, stock),
            find_pod=lambda namespace, name: pods.get(name) if namespace == "team" else None,
            find_spec=lambda *_: None,
            except_uid=but,
        )
        return usage.get(("gpu", "devices"), 0) // 10**9

    def by_hand(self, quota, but=""):
        with_claim = {self.owners[uid] for uid in self.claims if self.owners[uid]}
        about = {name for name in CLASSES if quota is QUOTA or name == "high"}
        count = 0
        admitted = {uid: name for uid, (_, name) in self.door.items()} | self.pods
        for uid, name in admitted.items():
            if uid != but and name in about:
                counts = {"": 5} if uid in CLAIMS else COUNTS
                count += sum(number for entry, number in counts.items() if (uid, entry) not in with_claim)
        for uid, stored in self.claims.items():
            owner = self.owners[uid]
            name = self.pods.get(owner[0], "") if owner else ""
            if uid != but and stored.status.allocation is None and name in about:
                count += 5
        return count


owners = st.one_of(st.none(), st.tuples(st.sampled_from(PODS), st.sampled_from(ENTRIES)))
uids = st.sampled_from(PODS)
claim_uids = st.sampled_from(CLAIMS)
steps = st.one_of(
    st.tuples(st.just("admit"), st.sampled_from(PODS + CLAIMS), st.sampled_from(CLASSES)),
    st.tuples(st.just("pass_time"), st.integers(1, 3)),
    st.tuples(st.just("see_pod"), uids, st.sampled_from(["", "", "Succeeded"]), st.sampled_from(CLASSES)),
    st.tuples(st.just("lose_pod"), uids),
    st.tuples(st.just("see_claim"), claim_uids, owners, st.booleans()),
    st.tuples(st.just("lose_claim"), claim_uids),
)


@settings(max_examples=draws(400), deadline=None)
@given(st.lists(steps, max_size=30))
def test_pending_usage_counts_each_object_once_and_leaves_nothing_behind(happened):
    world = World()
    for event, *arguments in happened:
        if event == "admit" and arguments[0] in world.claims:
            continue  # the API server admits no object that exists
        getattr(world, event)(*arguments)
        for quota in (QUOTA, HIGH):
            for excluded in ("", "p", "a"):
                assert world.counted(quota, excluded) == world.by_hand(quota, excluded), (event, arguments)
    for uid in PODS:
        world.lose_pod(uid)
    for uid in CLAIMS:
        world.lose_claim(uid)
    world.pass_time(100)
    kept = {
        name: value
        for name, value in vars(world.pending).items()
        if value and name not in ("_specs", "_wanted_claims", "_remembered")
    }
    assert kept == {}


def test_an_entry_that_needs_no_claim_counts_for_nothing():
    world = World()
    world.pending.see_pod(waiting_pod("p", without=("nic",)), WANTS)
    assert world.counted(QUOTA) == 1


def test_a_stored_template_precedes_the_pod_annotation():
    pending = PendingUsage()
    pending.admit(NewObject("p", "team", "p", "", {"gpu": FutureClaim("one", spec(1))}), 0.0)
    stock = Stock.of()
    usage = pending.waiting(
        QUOTA,
        stock,
        demand=lambda spec: Demands().upper_bound(spec, stock),
        find_pod=lambda *_: None,
        find_spec=lambda namespace, name: spec(7) if (namespace, name) == ("team", "one") else None,
    )
    assert usage["gpu", "devices"] == 7 * 10**9


def test_the_number_of_admitted_pods_is_bounded():
    pending = PendingUsage()
    for i in range(20_000):
        pending.admit(NewObject(f"{i}", f"n{i % 3}", "p", "", WANTS), 0.0)
    assert sum(len(vars(room)["admitted"]) for room in vars(pending)["_namespaces"].values()) == 16384
    pending.expire(31.0)
    assert not vars(pending)["_namespaces"]


def test_equal_pending_requests_are_evaluated_once():
    pending = PendingUsage()
    evaluated = []
    for i in range(50):
        pending.admit(NewObject(f"door-{i}", "team", "p", "", {"gpu": FutureClaim("one", spec(1))}), 0.0)
        pending.see_pod(waiting_pod(f"pod-{i}", without=("nic",)), {"gpu": FutureClaim("one", spec(1))})
        pending.see_claim(claim_of(f"claim-{i}", count=1))
    usage = pending.waiting(
        QUOTA,
        Stock.of(claims=[claim_of(f"claim-{i}", count=1) for i in range(50)]),
        demand=lambda spec: evaluated.append(spec) or {("gpu", "devices"): 10**9},
        find_pod=lambda *_: None,
        find_spec=lambda *_: None,
    )
    assert (usage["gpu", "devices"], len(evaluated)) == (150 * 10**9, 1)


def waits_in(pending, namespace, *claims):
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


def test_a_forged_claim_of_another_namespace_is_ignored():
    pending = PendingUsage()
    pending.see_pod(waiting_pod("p"), WANTS)
    forged = claim_of("f", ("p", "nic"), namespace="thief")
    pending.see_claim(forged)
    assert (waits_in(pending, "team"), waits_in(pending, "thief", forged)) == (4, 5)


def test_a_uid_in_two_namespaces_is_removed_from_both():
    pending = PendingUsage()
    for namespace in ("team", "thief"):
        pending.admit(NewObject("p", namespace, "p", "", WANTS), 0.0)
    assert (waits_in(pending, "team"), waits_in(pending, "thief")) == (4, 4)
    pending.expire(31.0)
    assert (waits_in(pending, "team"), waits_in(pending, "thief")) == (0, 0)


def test_pending_usage_keeps_a_bounded_number_of_template_names():
    pending = PendingUsage()
    for i in range(10_000):
        pending.admit(NewObject("p", "team", "p", "", {"gpu": FutureClaim(f"t{i}")}), 0.0)
    assert len(vars(pending)["_wanted_claims"]) <= 4096


def heavy(number, size):
    """Return a claim with a selector of a number of bytes."""
    selectors = [{"cel": {"expression": f"device.driver != '{number}{'x' * size}'"}}]
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1, "selectors": selectors}}
    meta = {"name": f"heavy{number}", "namespace": "team", "uid": f"heavy{number}"}
    return convert({"metadata": meta, "spec": {"devices": {"requests": [request]}}}, ResourceClaim)


def traced(work):
    """Call a function; return how many bytes of memory its result keeps allocated, and the result."""
    tracemalloc.start()
    try:
        kept = work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], kept
    finally:
        tracemalloc.stop()


def test_deleted_claims_take_no_memory():
    def come_and_go():
        pending = PendingUsage()
        for number in range(600):
            claim = heavy(number, 50_000)
            pending.see_claim(claim)
            pending.lose_claim(claim)
        return pending

    assert traced(come_and_go)[0] < 2 * SHARED_BYTES


def test_pending_admissions_are_bounded_in_memory_and_the_latest_count():
    def crowd():
        pending = PendingUsage()
        for number in range(1500):
            claim = heavy(number, 100_000)
            pending.admit(NewObject(claim.metadata.uid, "team", "", "", {"": FutureClaim("", claim.spec)}), 0.0)
        return pending

    size, pending = traced(crowd)
    assert size < UNSEEN_BYTES + 2 * SHARED_BYTES
    assert 300 <= waits_in(pending, "team") < 600
    pending.expire(31.0)
    assert waits_in(pending, "team") == 0
    assert vars(pending)["_unseen_bytes"] == 0


@pytest.mark.parametrize(
    ("key", "number"), [("gpu/devices", 3), ("*/devices", 6), ("nic/devices", 3), ("fpga/devices", 0)]
)
def test_pending_claims_of_unlimited_classes_are_not_evaluated(key, number):
    """A tenant may store any number of claims of other classes. Their evaluation must not delay other reviews."""

    def of(class_name):
        exactly = {"deviceClassName": class_name, "count": 1}
        either = [{"name": "a", "deviceClassName": class_name, "count": 1}]
        requests = (
            [{"name": "r", "exactly": exactly}] if class_name == "gpu" else [{"name": "r", "firstAvailable": either}]
        )
        return convert({"devices": {"requests": requests}}, ResourceClaimSpec)

    pending, claims, templates = PendingUsage(), [], {}
    for class_name in ("gpu", "nic"):
        claims.append(
            convert({"metadata": {"name": class_name, "namespace": "team", "uid": class_name}}, ResourceClaim)
        )
        claims[-1] = replace(claims[-1], spec=of(class_name))
        pending.see_claim(claims[-1])
        pending.admit(NewObject(f"p{class_name}", "team", "", "", {"e": FutureClaim("", of(class_name))}), 0.0)
        templates["team", class_name] = of(class_name)
        pending.admit(NewObject(f"q{class_name}", "team", "", "", {"e": FutureClaim(class_name)}), 0.0)
    looked = []
    pending.waiting(
        convert(quota_samples.scoped_quota({key: 99}), DeviceQuota),
        Stock.of(claims=claims),
        demand=lambda spec: looked.append(spec) or {},
        find_pod=lambda *_: None,
        find_spec=lambda *key: templates.get(key),
    )
    assert len(looked) == number - (number // 3)  # the claim and the admitted pod share one interned spec
