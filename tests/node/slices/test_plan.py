"""Publishing: in pieces that the server takes, in as few writes as may be, and never a mixture of two pools."""

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
    """What is there after a plan was carried out."""
    gone = {slice_.metadata.name for slice_ in decided.deleted}
    changed = {rewritten.slice.metadata.name: rewritten.spec for rewritten in decided.rewritten}
    kept = [slice_ for slice_ in existing if slice_.metadata.name not in gone]
    kept = [replace(slice_, spec=changed.get(slice_.metadata.name, slice_.spec)) for slice_ in kept]
    new = [ResourceSlice(metadata=ObjectMeta(name=f"new{n}"), spec=spec) for n, spec in enumerate(decided.new)]
    return kept + new


def many(count):
    return Machine(DRIVER, tuple(Device(name=f"d-{number}") for number in range(count)))


@pytest.mark.parametrize(("count", "slices"), [(0, 1), (1, 1), (64, 1), (65, 2), (130, 3)])
def test_a_machine_is_cut_into_slices_of_64_devices(count, slices):
    pages = pages_of(many(count), NODE)
    assert [len(page.devices) for page in pages][:-1] == [64] * (slices - 1)
    assert {page.pool.resource_slice_count for page in pages} == {len(pages)} == {slices}


def test_counters_stand_in_slices_of_their_own_and_devices_with_them_64_a_slice():
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


def test_a_first_publication_is_of_the_first_generation():
    decided = plan([], pages_of(many(100), NODE))
    assert (decided.deleted, decided.rewritten) == ((), ())
    assert [spec.pool.generation for spec in decided.new] == [1, 1]


def test_one_slice_changes_within_the_generation():
    before, after = many(100), many(100)
    after = replace(after, devices=(*after.devices[:-1], Device(name="other")))
    decided = plan(published(pages_of(before, NODE), 3), pages_of(after, NODE))
    assert (decided.deleted, decided.new) == ((), ())
    [rewritten] = decided.rewritten
    assert (rewritten.slice.metadata.name, rewritten.spec.pool.generation) == ("s1", 3)
    assert rewritten.body["metadata"] == {"resourceVersion": "7"}
    assert rewritten.body["spec"]["sharedCounters"] is None


def test_two_slices_that_change_are_a_new_generation_of_all():
    before, after = many(150), many(150)
    changed = [Device(name="other-0"), *after.devices[1:-1], Device(name="other-1")]
    decided = plan(published(pages_of(before, NODE), 3), pages_of(replace(after, devices=tuple(changed)), NODE))
    assert [rewritten.spec.pool.generation for rewritten in decided.rewritten] == [4, 4, 4]


def test_slices_that_count_themselves_wrongly_are_written_again():
    pages = pages_of(many(100), NODE)
    wrong = [replace(page, pool=replace(page.pool, resource_slice_count=3)) for page in pages]
    decided = plan(published(wrong, 3), pages)
    assert {
        (rewritten.spec.pool.generation, rewritten.spec.pool.resource_slice_count) for rewritten in decided.rewritten
    } == {(4, 2)}


@pytest.mark.parametrize(("before", "after"), [(300, 100), (100, 300), (300, 299), (65, 64), (1, 0), (0, 300)])
def test_otherwise_all_slices_get_the_next_generation_and_the_pool_is_whole(before, after):
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


def test_slices_of_an_older_generation_and_of_another_pool_go():
    pages = pages_of(many(3), NODE)
    old = replace(published(pages, 1)[0], metadata=ObjectMeta(name="old"))
    other = replace(
        old, metadata=ObjectMeta(name="other"), spec=replace(old.spec, pool=replace(old.spec.pool, name="x"))
    )
    decided = plan([old, other, *published(pages, 2)], pages)
    assert {slice_.metadata.name for slice_ in decided.deleted} == {"old", "other"}
    assert (decided.rewritten, decided.new) == ((), ())


def test_fields_that_the_server_drops_are_detected_and_not_written_again():
    [wanted] = pages_of(machine(gpus=[gpu()]), NODE)
    less = replace(wanted, devices=(replace(wanted.devices[0], capacity={}),))
    echo = dropped(wanted, less)
    assert echo is not None
    assert dropped(wanted, wanted) is None
    assert plan(published([less]), [wanted])
    assert not plan(published([less]), [wanted], dict([echo]))


def test_a_taint_that_stays_keeps_its_time():
    taint = DeviceTaint(key="k", effect="NoSchedule")
    timed = replace(taint, time_added="2026-01-01T00:00:00Z")
    tainted = Machine(DRIVER, (Device(name="d", taints=(taint,)),))
    there = Machine(DRIVER, (Device(name="d", taints=(timed,)),))
    assert not plan(published(pages_of(there, NODE)), pages_of(tainted, NODE))
    second = Machine(DRIVER, (Device(name="d", taints=(taint, replace(taint, key="l"))),))
    [rewritten] = plan(published(pages_of(there, NODE)), pages_of(second, NODE)).rewritten
    assert rewritten.spec.devices[0].taints == (timed, replace(taint, key="l"))


def test_a_device_that_fails_is_one_write_within_the_generation():
    made = many(150)
    decided = plan(published(pages_of(made, NODE), 3), pages_of(tainted(made, {"d-70"}), NODE))
    assert (decided.deleted, decided.new) == ((), ())
    [rewritten] = decided.rewritten
    assert (rewritten.slice.metadata.name, rewritten.spec.pool.generation) == ("s1", 3)
    assert [device.name for device in rewritten.spec.devices if device.taints] == ["d-70"]


def test_the_time_that_a_server_gives_a_taint_is_nothing_that_it_dropped():
    taint = DeviceTaint(key="k", effect="NoSchedule")
    [said] = pages_of(Machine(DRIVER, (Device(name="d", taints=(taint,)),)), NODE)
    device = replace(said.devices[0], taints=(replace(taint, time_added="2026-01-01T00:00:00Z"),))
    kept = replace(said, devices=(device,))
    assert dropped(said, kept) is None
    less = replace(said, devices=(replace(device, taints=()),))
    assert dropped(said, less) is not None
