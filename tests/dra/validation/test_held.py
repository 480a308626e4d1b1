"""Allocated devices: allocated twice, no longer published, or consumed beyond their capacity."""

from tests.dra.validation.manifests import claim, codes, codes_and_paths, join, request, slice_

UUID = "8f5a8a1e-6d4b-4d9c-9f57-0d1f7c1b2a3"  # `share` adds the last digit
RESULT_PATH = "/status/allocation/devices/results/0"


def holder(name, device="a", fields=""):
    result = f"{{request: r, driver: gpu.example.com, pool: p, device: {device}{fields}}}"
    return claim(request(), name=name) + f"status: {{allocation: {{devices: {{results: [{result}]}}}}}}\n"


def share(number, amount):
    return f", shareID: {UUID}{number}, consumedCapacity: {{memory: {amount}}}"


FLEET = slice_(
    devices="  - {name: a, allowMultipleAllocations: true, capacity: {memory: {value: 8Gi, requestPolicy: {default: 1Gi}}}}"
)


def test_one_holder_per_device_has_no_finding():
    assert not codes(join(holder("one"), holder("two", device="b")))


def test_a_device_held_by_two_claims_is_reported_on_both():
    assert codes_and_paths(join(holder("one"), holder("two"))) == {("D601", RESULT_PATH)}
    assert codes(join(holder("one"), holder("two", fields=share(1, "1Gi")))) == {"D601"}
    assert codes(holder("one"), holder("two")) == {"D601"}


def test_admin_access_and_shares_are_not_double_allocations():
    assert "D601" not in codes(join(holder("one"), holder("two", fields=", adminAccess: true")))
    assert not codes(join(holder("one", fields=share(1, "4Gi")), holder("two", fields=share(2, "4Gi"))), FLEET)


def test_an_exceeded_capacity_is_reported():
    text = join(holder("one", fields=share(1, "4Gi")), holder("two", fields=share(2, "5Gi")))
    assert codes_and_paths(text, FLEET) == {("D603", f"{RESULT_PATH}/consumedCapacity/memory")}


def test_a_vanished_device_is_reported_if_slices_are_known():
    assert not codes(holder("one", device="gone"))
    assert codes_and_paths(holder("one", device="gone"), FLEET) == {("D602", RESULT_PATH)}


def test_an_exceeded_counter_is_reported():
    consumer = "  - {{name: {}, consumesCounters: [{{counterSet: set, counters: {{m: {{value: 5}}}}}}]}}"
    devices = "\n".join(consumer.format(name) for name in ("a", "b"))
    fleet = join(
        slice_("d", devices, count=2), slice_("c", counters="  - {name: set, counters: {m: {value: 8}}}", count=2)
    )
    assert not codes(holder("one"), fleet)
    assert codes_and_paths(join(holder("one"), holder("two", device="b")), fleet) == {("D604", RESULT_PATH)}
