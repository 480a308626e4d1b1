"""What claims hold of what a quota limits, and which line they would cross."""

import pytest

from allocator.quota import QuotaLine, limits_of, lines, misread
from dra.objects import DeviceQuota, ResourceClaim, ResourceSlice
from dra.stock import Stock, amounts_of, total
from dra.wire import convert

GPU = {"name": "gpu-0", "capacity": {"memory": {"value": "80Gi"}}}
SPEC = {
    "driver": "d",
    "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
    "nodeName": "n",
    "devices": [GPU],
}
STOCK = Stock.of(slices=[convert({"metadata": {"name": "s"}, "spec": SPEC}, ResourceSlice)])


def quota(**hard):
    named = {key.replace("__", "/"): amount for key, amount in hard.items()}
    return convert({"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": named}}, DeviceQuota)


def claim(name, *results, class_name="gpu", first=()):
    request = {"name": "r", "exactly": {"deviceClassName": class_name}}
    if first:
        request = {"name": "r", "firstAvailable": [{"name": one, "deviceClassName": one} for one in first]}
    given = [{"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"} | result for result in results]
    status = {"allocation": {"devices": {"results": given}}} if results else {}
    meta = {"name": name, "namespace": "team"}
    return convert({"metadata": meta, "spec": {"devices": {"requests": [request]}}, "status": status}, ResourceClaim)


def amounts(claims):
    return total(amounts_of(one, STOCK.pages_of) for one in claims)


def line_of(key, hard, given, holders=()):
    [line] = lines(limits_of(quota(**{key: hard})), amounts(given), amounts(holders))
    return [line.write(amount) for amount in (line.asked, line.used, line.left)]


@pytest.mark.parametrize(
    ("key", "given", "asked"),
    [
        ("gpu__devices", claim("c", {}, {}), "2"),
        ("gpu__memory", claim("c", {}), "80Gi"),
        ("gpu__memory", claim("c", {"consumedCapacity": {"memory": "10Gi"}}), "10Gi"),
        ("small__devices", claim("c", {"request": "r/small"}, first=("big", "small")), "1"),
    ],
    ids=[
        "devices are counted",
        "a whole device counts whole",
        "a share counts as such",
        "the alternative that was taken",
    ],
)
def test_what_was_allocated_counts_by_class(key, given, asked):
    assert line_of(key, "100Gi", [given])[0] == asked


@pytest.mark.parametrize(
    "given",
    [
        claim("c"),
        claim("c", {"adminAccess": True}),
        claim("c", {}, class_name="other"),
        claim("c", {"request": "r/big"}, first=("big", "gpu")),
    ],
    ids=["nothing allocated", "access for admins", "another class", "another alternative"],
)
def test_what_is_not_limited_adds_to_no_line(given):
    assert lines(limits_of(quota(gpu__devices=1)), amounts([given]), {}) == ()


def test_a_line_says_what_is_used_and_how_much_would_pass():
    holders = [claim("a", {}, {}, {}), claim("b", {}, {}, {})]
    assert line_of("gpu__devices", 8, [claim("c", {}, {}, {})], holders) == ["3", "6", "2"]
    line = QuotaLine("team/q: gpu/devices", 3 * 10**9, 8 * 10**9, 6 * 10**9)
    assert line.exceeded
    assert str(line) == "quota team/q: gpu/devices: 3 asked for, 6 of 8 used; the most that would pass is 2"


def test_what_is_over_its_line_already_leaves_nothing():
    assert line_of("gpu__devices", 1, [claim("c", {})], [claim("a", {}, {})])[2] == "0"


def test_lines_that_cannot_be_read_are_named_and_the_others_hold():
    damaged = quota(gpu__devices=1, gpu=1, __devices=2)
    assert [limit.key for limit in limits_of(damaged)] == ["gpu/devices"]
    assert "'gpu', '/devices'" in misread(damaged)
    assert misread(quota(gpu__devices=1)) == ""
