"""The amounts of a quota that claims hold, and the limits that they would exceed."""

from functools import partial

import pytest
from msgspec.structs import replace

from dra.objects import DeviceQuota, Pod, PodSpec, ResourceClaim, ResourceClaimConsumerReference, ResourceSlice
from dra.policy.quota import (
    QuotaLine,
    held_of_quota,
    in_scope,
    limits_of,
    misread,
    quota_lines,
    read_key,
)
from dra.stock import Stock, amounts_of, total
from dra.validation import CODES, problems
from dra.validation.fields import gates
from dra.wire import convert
from tests.dra.policy import quota_samples
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
    """A DeviceQuota; `gpu__devices` stands for `gpu/devices`."""
    named = {key.replace("__", "/"): amount for key, amount in hard.items()}
    return convert(device_quota("q", named, namespace="team"), DeviceQuota)


def of(value):
    return convert(value, DeviceQuota)


def holding(name, *results, class_name="gpu", first=()):
    """A claim that holds the device gpu-0 once for each of these changes to a result."""
    request = exactly(class_name)
    if first:
        request = {"name": "r", "firstAvailable": [{"name": class_, "deviceClassName": class_} for class_ in first]}
    given = [result("gpu-0", driver="d") | change for change in results]
    status = allocated(*given) if given else None
    return convert(claim(name, request, namespace="team", status=status), ResourceClaim)


def amounts(claims):
    return total(amounts_of(claim, STOCK.pages_of) for claim in claims)


def lines_of(of_team, given, holders):
    return quota_lines([of_team], ("team", ""), amounts(given), lambda _: amounts(holders))


def line_of(key, hard, given, holders=()):
    [line] = lines_of(quota_of(**{key: hard}), given, holders)
    return [line.write(amount) for amount in (line.requested, line.used, line.remaining)]


@pytest.mark.parametrize(
    ("key", "given", "requested"),
    [
        ("gpu__devices", holding("c", {}, {}), "2"),
        ("gpu__memory", holding("c", {}), "80Gi"),
        ("gpu__memory", holding("c", {"consumedCapacity": {"memory": "10Gi"}}), "10Gi"),
        ("small__devices", holding("c", {"request": "r/small"}, first=("big", "small")), "1"),
    ],
    ids=[
        "devices are counted",
        "a whole device counts whole",
        "a share counts as such",
        "the alternative that was taken",
    ],
)
def test_an_allocation_counts_toward_the_quota_of_its_device_class(key, given, requested):
    assert line_of(key, "100Gi", [given])[0] == requested


@pytest.mark.parametrize(
    "given",
    [
        holding("c"),
        holding("c", {"adminAccess": True}),
        holding("c", {}, class_name="other"),
        holding("c", {"request": "r/big"}, first=("big", "gpu")),
    ],
    ids=["nothing allocated", "access for admins", "another class", "another alternative"],
)
def test_a_claim_outside_the_quota_adds_no_line(given):
    assert lines_of(quota_of(gpu__devices=1), [given], []) == ()


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
    """e2e/kubernetes/test_kinds.py checks that an API server rejects the same quotas by the definition of the kind."""
    for value, good in quota_samples.cases():
        errors = [problem for problem in problems(value, gates.DEFAULT) if CODES[problem.code].severity == "error"]
        assert bool(errors) != good, (value["spec"], errors)


@pytest.mark.parametrize("key", quota_samples.GOOD_KEYS)
def test_every_key_that_is_taken_limits_something(key):
    [limit] = limits_of(of(quota_samples.scoped_quota({key: 1})))
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
    """A quota has ten thousand keys, negative and huge amounts, and keys in any script."""
    hard = {f"c{at}/devices": 1 for at in range(10_000)}
    many = of(quota_samples.scoped_quota(hard))
    assert len(list(limits_of(many))) == 64
    mistakes = misread(many)
    assert "9931 more" in mistakes
    assert len(mistakes) < 600
    huge = of(quota_samples.scoped_quota({"a/devices": "1e4000", "b/devices": "-5", "c/memory": "-1e4000"}))
    texts = [str(limit.hard) for limit in limits_of(huge)]
    assert texts[1:] == ["0", "0"]
    assert max(map(len, texts)) < 20
    odd = of(quota_samples.scoped_quota({"g\u202epu/devices": 1, "ж" * 5_000: 1}))
    assert list(limits_of(odd)) == []
    assert misread(odd).isascii() is False
    assert len(misread(odd)) < 400
    assert "\u202e" not in misread(odd)


SCOPED = [
    (("In", "high"), {"high"}),
    (("NotIn", "high"), {"", "low"}),
    (("Exists",), {"high", "low"}),
    (("DoesNotExist",), {""}),
]


@pytest.mark.parametrize(("requirement", "about"), SCOPED, ids=[requirement[0][0] for requirement in SCOPED])
def test_a_quota_is_about_pods_of_its_priority_classes(requirement, about):
    quota = of(quota_samples.scoped_quota({"gpu/devices": 1}, quota_samples.scope(*requirement)))
    assert {name for name in ("", "high", "low") if in_scope(quota, name)} == about


def test_requirements_of_a_scope_are_met_together():
    both = quota_samples.scope("Exists"), quota_samples.scope("NotIn", "low")
    quota = of(quota_samples.scoped_quota({"gpu/devices": 1}, *both))
    assert [in_scope(quota, name) for name in ("", "high", "low")] == [False, True, False]


def test_a_scoped_quota_counts_claims_of_matching_pods_only():
    pods = {name: Pod(spec=PodSpec(priority_class_name=name)) for name in ("high", "low")}
    claims = [held_by("a", "high"), held_by("b", "low"), held_by("c", "low", "high"), held_by("d")]
    stock = STOCK.with_all(claims)

    def used(*requirement):
        quota = of(quota_samples.scoped_quota({"gpu/devices": 9}, quota_samples.scope(*requirement)))
        held = held_of_quota(quota, stock, lambda namespace, name: pods.get(name) if namespace == "team" else None)
        return held.get(("gpu", "devices"), 0) // 10**9

    assert used("In", "high") == 2
    assert used("In", "low") == 2
    assert used("Exists") == 3
    assert used("DoesNotExist") == 1, "no pod uses it, so it is of no class"


class Unwalked(dict):
    """Claims that can be looked up by key but not iterated."""

    def __iter__(self):
        raise AssertionError("the code walks through the claims of the whole cluster")

    items = keys = values = __iter__


def test_a_scoped_quota_is_counted_without_iterating_over_all_claims():
    stock = STOCK.with_all([held_by("a")])
    stock = replace(stock, claims=Unwalked(stock.claims))
    quota = of(quota_samples.scoped_quota({"gpu/devices": 9}, quota_samples.scope("DoesNotExist")))
    assert held_of_quota(quota, stock, lambda *_: None)["gpu", "devices"] == 10**9


def held_by(name, *pods):
    given = holding(name, {})
    consumers = tuple(ResourceClaimConsumerReference(resource="pods", name=pod) for pod in pods)
    return replace(given, status=replace(given.status, reserved_for=consumers))


def test_the_wildcard_class_counts_every_device_in_scope():
    quotas = [of(quota_samples.scoped_quota({"*/devices": 2})), of(quota_samples.scoped_quota({"*/devices": 9}, quota_samples.scope("In", "high")))]  # fmt: skip
    stock = STOCK.with_object(holding("a", {}, class_name="other"))
    requested = amounts([holding("b", {}, {})])
    held = partial(held_of_quota, stock=stock, find_pod=lambda *_: None)
    for priority_class, lines_ in (("", 1), ("high", 2)):
        lines = quota_lines(quotas, ("team", priority_class), requested, held)
        assert len(lines) == lines_
        assert str(lines[0]) == "quota team/q: */devices: 2 requested, 1 of 2 used; at most 1 can be requested"
    assert quota_lines(quotas, ("other", ""), requested, held) == ()
