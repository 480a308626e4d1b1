"""Slices of a pool: sizes that the server accepts, few writes, and no mixture of generations."""

import pytest
from msgspec.structs import replace

from dra.objects import Device, DeviceTaint, ObjectMeta, ResourceSlice
from node.inventory import Machine, tainted
from node.slices import dropped, pages_of, plan
from tests.node.machines import DRIVER, LAYOUT, NODE, gpu, machine


def published(pages, generation=1):
    return [
        ResourceSlice(
            metadata=ObjectMeta(name=f"s{number}", resource_version="7"),
            spec=replace(page, pool=replace(page.pool, generation=generation)),
        )
        for number, page in enumerate(pages)
    ]


def stored(existing, decided):
    """Return the slices after a plan is carried out."""
    gone = {slice_.metadata.name for slice_ in decided.deleted}
    changed = {rewritten.slice.metadata.name: rewritten.spec for rewritten in decided.rewritten}
    kept = [slice_ for slice_ in existing if slice_.metadata.name not in gone]
    kept = [replace(slice_, spec=changed.get(slice_.metadata.name, slice_.spec)) for slice_ in kept]
    new = [ResourceSlice(metadata=ObjectMeta(name=f"new{n}"), spec=spec) for n, spec in enumerate(decided.new)]
    return kept + new


def many(count):
    return Machine(DRIVER, tuple(Device(name=f"d-{number}") for number in range(count)))


@pytest.mark.parametrize(("count", "slices"), [(0, 1), (1, 1), (64, 1), (65, 2), (130, 3)])
def test_a_slice_has_at_most_64_devices(count, slices):
    pages = pages_of(many(count), NODE)
    assert [len(page.devices) for page in pages][:-1] == [64] * (slices - 1)
    assert {page.pool.resource_slice_count for page in pages} == {len(pages)} == {slices}


def test_counter_sets_and_devices_are_in_separate_slices():
    """A slice has at most 8 counter sets or 64 devices."""
    made = machine(layouts=[LAYOUT], gpus=[gpu(number, layout="small") for number in range(20)])
    pages = pages_of(made, NODE)
    assert [(len(page.shared_counters), len(page.devices)) for page in pages] == [
        (8, 0),
        (8, 0),
        (4, 0),
        (0, 64),
        (0, 56),
    ]


def test_a_pool_that_is_already_published_is_not_written_again():
    pages = pages_of(many(150), NODE)
    assert not plan(published(pages, 5), pages)
    assert not plan(list(reversed(published(pages))), pages)


def test_a_first_publication_has_generation_1():
    decided = plan([], pages_of(many(100), NODE))
    assert (decided.deleted, decided.rewritten) == ((), ())
    assert [spec.pool.generation for spec in decided.new] == [1, 1]


def test_one_changed_slice_keeps_the_generation():
    before, after = many(100), many(100)
    after = replace(after, devices=(*after.devices[:-1], Device(name="other")))
    decided = plan(published(pages_of(before, NODE), 3), pages_of(after, NODE))
    assert (decided.deleted, decided.new) == ((), ())
    [rewritten] = decided.rewritten
    assert (rewritten.slice.metadata.name, rewritten.spec.pool.generation) == ("s1", 3)
    assert rewritten.body["metadata"] == {"resourceVersion": "7"}
    assert rewritten.body["spec"]["sharedCounters"] is None


def test_two_changed_slices_increment_the_generation_of_all():
    before, after = many(150), many(150)
    changed = [Device(name="other-0"), *after.devices[1:-1], Device(name="other-1")]
    decided = plan(published(pages_of(before, NODE), 3), pages_of(replace(after, devices=tuple(changed)), NODE))
    assert [rewritten.spec.pool.generation for rewritten in decided.rewritten] == [4, 4, 4]


def test_slices_with_a_wrong_slice_count_are_written_again():
    pages = pages_of(many(100), NODE)
    wrong = [replace(page, pool=replace(page.pool, resource_slice_count=3)) for page in pages]
    decided = plan(published(wrong, 3), pages)
    assert {
        (rewritten.spec.pool.generation, rewritten.spec.pool.resource_slice_count) for rewritten in decided.rewritten
    } == {(4, 2)}


@pytest.mark.parametrize(("before", "after"), [(300, 100), (100, 300), (300, 299), (65, 64), (1, 0), (0, 300)])
def test_after_any_change_the_pool_is_complete_in_one_generation(before, after):
    """A changed number of slices increments the generation."""
    existing = published(pages_of(many(before), NODE), 4)
    wanted = pages_of(many(after), NODE)
    decided = plan(existing, wanted)
    there = stored(existing, decided)
    generations = {slice_.spec.pool.generation for slice_ in there}
    assert len(generations) == 1
    assert len(there) == len(wanted) == there[0].spec.pool.resource_slice_count
    assert sorted(d.name for slice_ in there for d in slice_.spec.devices) == sorted(f"d-{n}" for n in range(after))
    if len(existing) != len(wanted):
        assert generations == {5}
    assert not plan(there, wanted)


def test_slices_of_older_generations_and_other_pools_are_deleted():
    pages = pages_of(many(3), NODE)
    old = replace(published(pages, 1)[0], metadata=ObjectMeta(name="old"))
    other = replace(
        old, metadata=ObjectMeta(name="other"), spec=replace(old.spec, pool=replace(old.spec.pool, name="x"))
    )
    decided = plan([old, other, *published(pages, 2)], pages)
    assert {slice_.metadata.name for slice_ in decided.deleted} == {"old", "other"}
    assert (decided.rewritten, decided.new) == ((), ())


def test_fields_that_the_server_drops_are_not_written_again():
    [wanted] = pages_of(machine(gpus=[gpu()]), NODE)
    less = replace(wanted, devices=(replace(wanted.devices[0], capacity={}),))
    echo = dropped(wanted, less)
    assert echo is not None
    assert dropped(wanted, wanted) is None
    assert plan(published([less]), [wanted])
    assert not plan(published([less]), [wanted], dict([echo]))


def test_an_unchanged_taint_keeps_its_time():
    taint = DeviceTaint(key="k", effect="NoSchedule")
    timed = replace(taint, time_added="2026-01-01T00:00:00Z")
    tainted = Machine(DRIVER, (Device(name="d", taints=(taint,)),))
    there = Machine(DRIVER, (Device(name="d", taints=(timed,)),))
    assert not plan(published(pages_of(there, NODE)), pages_of(tainted, NODE))
    second = Machine(DRIVER, (Device(name="d", taints=(taint, replace(taint, key="l"))),))
    [rewritten] = plan(published(pages_of(there, NODE)), pages_of(second, NODE)).rewritten
    assert rewritten.spec.devices[0].taints == (timed, replace(taint, key="l"))


def test_a_failed_device_causes_one_write_in_the_same_generation():
    made = many(150)
    decided = plan(published(pages_of(made, NODE), 3), pages_of(tainted(made, {"d-70"}), NODE))
    assert (decided.deleted, decided.new) == ((), ())
    [rewritten] = decided.rewritten
    assert (rewritten.slice.metadata.name, rewritten.spec.pool.generation) == ("s1", 3)
    assert [device.name for device in rewritten.spec.devices if device.taints] == ["d-70"]


def test_a_server_set_taint_time_is_not_a_dropped_field():
    taint = DeviceTaint(key="k", effect="NoSchedule")
    [wanted] = pages_of(Machine(DRIVER, (Device(name="d", taints=(taint,)),)), NODE)
    device = replace(wanted.devices[0], taints=(replace(taint, time_added="2026-01-01T00:00:00Z"),))
    kept = replace(wanted, devices=(device,))
    assert dropped(wanted, kept) is None
    less = replace(wanted, devices=(replace(device, taints=()),))
    assert dropped(wanted, less) is not None
