"""The amounts of a quota that claims hold, and the limits that they would exceed."""

from functools import partial

import pytest
from msgspec.structs import replace

from dra.objects import DeviceQuota, Pod, PodSpec, ResourceClaim, ResourceClaimConsumerReference, ResourceSlice
from dra.policy.device_quota import (
    QuotaLine,
    held_of_quota,
    in_scope,
    limits_of,
    misread,
    quota_lines,
    read_key,
)
from dra.stock import Stock, amounts_of, total
from dra.validation import problems
from dra.validation.fields import gates
from dra.wire import convert
from tests.dra.policy import quota_samples
from tests.loops import every
from tests.objects import allocated, claim, device_quota, exactly, result

GPU = {"name": "gpu-0", "capacity": {"memory": {"value": "80Gi"}}}
SPEC = {
    "driver": "d",
    "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
    "nodeName": "n",
    "devices": [GPU],
}
STOCK = Stock.of(slices=[convert({"metadata": {"name": "s"}, "spec": SPEC}, ResourceSlice)])


def quota_of(**hard):
    """Make a DeviceQuota. The argument `gpu__devices` stands for the key `gpu/devices`."""
    limits = {key.replace("__", "/"): amount for key, amount in hard.items()}
    return convert(device_quota("q", limits, namespace="team"), DeviceQuota)


def parse_quota(value):
    return convert(value, DeviceQuota)


def holding(name, *results, class_name="gpu", alternatives=()):
    """Make a claim that holds the device gpu-0 once for each element of `results`, which changes fields of the result."""
    request = exactly(class_name)
    if alternatives:
        request = {
            "name": "r",
            "firstAvailable": [{"name": class_, "deviceClassName": class_} for class_ in alternatives],
        }
    device_results = [result("gpu-0", driver="d") | change for change in results]
    status = allocated(*device_results) if device_results else None
    return convert(claim(name, request, namespace="team", status=status), ResourceClaim)


def amounts(claims):
    return total(amounts_of(claim, STOCK.pages_of) for claim in claims)


def lines_of(quota, claims_, holders):
    return quota_lines([quota], ("team", ""), amounts(claims_), lambda _: amounts(holders))


def line_of(key, hard, claims_, holders=()):
    [line] = lines_of(quota_of(**{key: hard}), claims_, holders)
    return [line.write(amount) for amount in (line.requested, line.used, line.remaining)]


@pytest.mark.parametrize(
    ("key", "claim_", "requested"),
    [
        ("gpu__devices", holding("c", {}, {}), "2"),
        ("gpu__memory", holding("c", {}), "80Gi"),
        ("gpu__memory", holding("c", {"consumedCapacity": {"memory": "10Gi"}}), "10Gi"),
        ("small__devices", holding("c", {"request": "r/small"}, alternatives=("big", "small")), "1"),
    ],
    ids=[
        "devices are counted",
        "a whole device counts whole",
        "a share counts its part",
        "the allocated alternative counts",
    ],
)
def test_an_allocation_counts_toward_the_quota_of_its_device_class(key, claim_, requested):
    assert line_of(key, "100Gi", [claim_])[0] == requested


@pytest.mark.parametrize(
    "claim_",
    [
        holding("c"),
        holding("c", {"adminAccess": True}),
        holding("c", {}, class_name="other"),
        holding("c", {"request": "r/big"}, alternatives=("big", "gpu")),
    ],
    ids=["nothing allocated", "access for admins", "another class", "another alternative"],
)
def test_a_claim_outside_the_quota_adds_no_line(claim_):
    assert lines_of(quota_of(gpu__devices=1), [claim_], []) == ()


def test_a_line_shows_the_used_and_the_admissible_amount():
    holders = [holding("a", {}, {}, {}), holding("b", {}, {}, {})]
    assert line_of("gpu__devices", 8, [holding("c", {}, {}, {})], holders) == ["3", "6", "2"]
    line = QuotaLine("team/q: gpu/devices", 3 * 10**9, 8 * 10**9, 6 * 10**9)
    assert line.exceeded
    assert str(line) == "quota team/q: gpu/devices: 3 requested, 6 of 8 used; at most 2 can be requested"


def test_a_quota_that_is_already_exceeded_leaves_nothing():
    assert line_of("gpu__devices", 1, [holding("c", {})], [holding("a", {}, {})])[2] == "0"


def test_unreadable_quota_lines_are_named_and_the_others_apply():
    damaged = quota_of(gpu__devices=1, gpu=1, __devices=2)
    assert [limit.key for limit in limits_of(damaged)] == ["gpu/devices"]
    assert "'gpu', '/devices'" in misread(damaged)
    assert misread(quota_of(gpu__devices=1)) == ""


def test_keys_amounts_and_scopes_are_judged_as_the_table_says():
    """e2e/kubernetes/test_kinds.py checks that an API server rejects the same quotas by the CustomResourceDefinition."""
    for value, is_valid in quota_samples.cases():
        errors = [problem for problem in problems(value, gates.DEFAULT) if problem.refuses]
        assert bool(errors) != is_valid, (value["spec"], errors)


@every("key", quota_samples.GOOD_KEYS)
def test_every_valid_key_limits_something(key):
    [limit] = limits_of(parse_quota(quota_samples.scoped_quota({key: 1})))
    assert limit.key == key


def test_a_quota_key_is_read_as_device_class_and_resource():
    read = {key: read_key(key) for key in quota_samples.GOOD_KEYS}
    assert read["*/memory"] == ("*", "memory")
    assert read["limits.gpu.nvidia.com/memory"] == (*read["gpu.nvidia.com/shares"][:1], "memory")
    assert read["requests.*/devices"] == ("*", "devices")
    assert read["requests/devices"] == ("requests", "devices")
    assert read["mig/profile.1g.10gb+me"] == ("mig", "profile.1g.10gb+me")
    assert read["gpu/gpu.example.com/cores"] == ("gpu", "gpu.example.com/cores")


def test_hostile_quotas_are_bounded():
    """Quotas have ten thousand keys, negative and huge amounts, or keys in any script."""
    hard = {f"c{index}/devices": 1 for index in range(10_000)}
    quota_of_many_keys = parse_quota(quota_samples.scoped_quota(hard))
    assert len(list(limits_of(quota_of_many_keys))) == 64
    mistakes = misread(quota_of_many_keys)
    assert "9931 more" in mistakes  # of 10,000 keys, 64 apply and 5 are named
    assert len(mistakes) < 600
    quota_of_huge_amounts = parse_quota(
        quota_samples.scoped_quota({"a/devices": "1e4000", "b/devices": "-5", "c/memory": "-1e4000"})
    )
    texts = [str(limit.hard) for limit in limits_of(quota_of_huge_amounts)]
    assert texts[1:] == ["0", "0"]
    assert max(map(len, texts)) < 20
    quota_of_odd_keys = parse_quota(quota_samples.scoped_quota({"g\u202epu/devices": 1, "ж" * 5_000: 1}))
    assert list(limits_of(quota_of_odd_keys)) == []
    assert misread(quota_of_odd_keys).isascii() is False
    assert len(misread(quota_of_odd_keys)) < 400
    assert "\u202e" not in misread(quota_of_odd_keys)


SCOPED = [
    (("In", "high"), {"high"}),
    (("NotIn", "high"), {"", "low"}),
    (("Exists",), {"high", "low"}),
    (("DoesNotExist",), {""}),
]


@pytest.mark.parametrize(("requirement", "classes"), SCOPED, ids=[requirement[0][0] for requirement in SCOPED])
def test_a_quota_applies_to_pods_of_its_priority_classes(requirement, classes):
    quota = parse_quota(quota_samples.scoped_quota({"gpu/devices": 1}, quota_samples.scope(*requirement)))
    assert {name for name in ("", "high", "low") if in_scope(quota, name)} == classes


def test_a_pod_must_meet_all_requirements_of_a_scope():
    requirements = quota_samples.scope("Exists"), quota_samples.scope("NotIn", "low")
    quota = parse_quota(quota_samples.scoped_quota({"gpu/devices": 1}, *requirements))
    assert [in_scope(quota, name) for name in ("", "high", "low")] == [False, True, False]


def test_a_scoped_quota_counts_claims_of_matching_pods_only():
    pods = {name: Pod(spec=PodSpec(priority_class_name=name)) for name in ("high", "low")}
    claims = [
        claim_of_pods("a", "high"),
        claim_of_pods("b", "low"),
        claim_of_pods("c", "low", "high"),
        claim_of_pods("d"),
    ]
    stock = STOCK.with_all(claims)

    def count_used(*requirement):
        quota = parse_quota(quota_samples.scoped_quota({"gpu/devices": 9}, quota_samples.scope(*requirement)))
        amounts_held = held_of_quota(
            quota, stock, lambda namespace, name: pods.get(name) if namespace == "team" else None
        )
        return amounts_held.get(("gpu", "devices"), 0) // 10**9

    assert count_used("In", "high") == 2
    assert count_used("In", "low") == 2
    assert count_used("Exists") == 3
    assert count_used("DoesNotExist") == 1, "a claim without pods does not count as a claim without priority class"


class NotIterable(dict):
    """Claims that can be looked up by key but not iterated."""

    def __iter__(self):
        raise AssertionError("the code walks through the claims of the whole cluster")

    items = keys = values = __iter__


def test_a_scoped_quota_is_counted_without_iterating_over_all_claims():
    stock = STOCK.with_all([claim_of_pods("a")])
    stock = replace(stock, claims=NotIterable(stock.claims))
    quota = parse_quota(quota_samples.scoped_quota({"gpu/devices": 9}, quota_samples.scope("DoesNotExist")))
    assert held_of_quota(quota, stock, lambda *_: None)["gpu", "devices"] == 10**9


def claim_of_pods(name, *pods):
    """Make a claim that holds a device and is reserved for these pods."""
    claim_ = holding(name, {})
    consumers = tuple(ResourceClaimConsumerReference(resource="pods", name=pod) for pod in pods)
    return replace(claim_, status=replace(claim_.status, reserved_for=consumers))


def test_the_wildcard_class_counts_every_device_in_scope():
    quotas = [parse_quota(quota_samples.scoped_quota({"*/devices": 2})), parse_quota(quota_samples.scoped_quota({"*/devices": 9}, quota_samples.scope("In", "high")))]  # fmt: skip
    stock = STOCK.with_object(holding("a", {}, class_name="other"))
    requested = amounts([holding("b", {}, {})])
    held_by_claims = partial(held_of_quota, stock=stock, find_pod=lambda *_: None)
    for priority_class, line_count in (("", 1), ("high", 2)):
        lines = quota_lines(quotas, ("team", priority_class), requested, held_by_claims)
        assert len(lines) == line_count
        assert (lines[0].key, lines[0].requested, lines[0].used) == ("team/q: */devices", 2 * 10**9, 10**9)
    assert quota_lines(quotas, ("other", ""), requested, held_by_claims) == ()
