"""Slices of a pool: sizes that the server accepts, few writes, and no mixture of generations."""

import pytest
from msgspec.structs import replace

from dra.objects import Device, DeviceTaint, ObjectMeta, ResourceSlice
from node.inventory import Machine, tainted
from node.slices import dropped, pages_of, plan
from tests.node.machines import DRIVER, LAYOUT, NODE, gpu, machine


def published_slices(pages, generation=1):
    return [
        ResourceSlice(
            metadata=ObjectMeta(name=f"s{number}", resource_version="7"),
            spec=replace(page, pool=replace(page.pool, generation=generation)),
        )
        for number, page in enumerate(pages)
    ]


def slices_after(existing, slice_plan):
    """Return the slices that exist after the plan is carried out."""
    deleted_names = {slice_.metadata.name for slice_ in slice_plan.deleted}
    new_specs = {rewritten.slice.metadata.name: rewritten.spec for rewritten in slice_plan.rewritten}
    kept_slices = [slice_ for slice_ in existing if slice_.metadata.name not in deleted_names]
    kept_slices = [replace(slice_, spec=new_specs.get(slice_.metadata.name, slice_.spec)) for slice_ in kept_slices]
    new = [ResourceSlice(metadata=ObjectMeta(name=f"new{n}"), spec=spec) for n, spec in enumerate(slice_plan.new)]
    return kept_slices + new


def machine_with_devices(count):
    return Machine(DRIVER, tuple(Device(name=f"d-{number}") for number in range(count)))


@pytest.mark.parametrize(("count", "slices"), [(0, 1), (1, 1), (64, 1), (65, 2), (130, 3)])
def test_a_slice_has_at_most_64_devices(count, slices):
    pages = pages_of(machine_with_devices(count), NODE)
    assert [len(page.devices) for page in pages][:-1] == [64] * (slices - 1)
    assert {page.pool.resource_slice_count for page in pages} == {len(pages)} == {slices}


def test_counter_sets_and_devices_are_in_separate_slices():
    """A slice has at most 8 counter sets or 64 devices."""
    node_machine = machine(layouts=[LAYOUT], gpus=[gpu(number, layout="small") for number in range(20)])
    pages = pages_of(node_machine, NODE)
    assert [(len(page.shared_counters), len(page.devices)) for page in pages] == [
        (8, 0),
        (8, 0),
        (4, 0),
        (0, 64),
        (0, 56),
    ]


def test_a_pool_that_is_already_published_is_not_written_again():
    pages = pages_of(machine_with_devices(150), NODE)
    assert not plan(published_slices(pages, 5), pages)
    assert not plan(list(reversed(published_slices(pages))), pages)


def test_a_first_publication_has_generation_1():
    slice_plan = plan([], pages_of(machine_with_devices(100), NODE))
    assert (slice_plan.deleted, slice_plan.rewritten) == ((), ())
    assert [spec.pool.generation for spec in slice_plan.new] == [1, 1]


def test_a_change_in_one_slice_keeps_the_generation():
    node_machine = machine_with_devices(150)
    slice_plan = plan(
        published_slices(pages_of(node_machine, NODE), 3), pages_of(tainted(node_machine, {"d-70"}), NODE)
    )
    assert (slice_plan.deleted, slice_plan.new) == ((), ())
    [rewritten] = slice_plan.rewritten
    assert (rewritten.slice.metadata.name, rewritten.spec.pool.generation) == ("s1", 3)
    assert [device.name for device in rewritten.spec.devices if device.taints] == ["d-70"]
    assert rewritten.body["metadata"] == {"resourceVersion": "7"}
    assert rewritten.body["spec"]["sharedCounters"] is None


def test_two_changed_slices_increment_the_generation_of_all():
    before, after = machine_with_devices(150), machine_with_devices(150)
    changed = [Device(name="other-0"), *after.devices[1:-1], Device(name="other-1")]
    slice_plan = plan(
        published_slices(pages_of(before, NODE), 3), pages_of(replace(after, devices=tuple(changed)), NODE)
    )
    assert [rewritten.spec.pool.generation for rewritten in slice_plan.rewritten] == [4, 4, 4]


def test_slices_with_a_wrong_slice_count_are_written_again():
    pages = pages_of(machine_with_devices(100), NODE)
    wrong_pages = [replace(page, pool=replace(page.pool, resource_slice_count=3)) for page in pages]
    slice_plan = plan(published_slices(wrong_pages, 3), pages)
    assert {
        (rewritten.spec.pool.generation, rewritten.spec.pool.resource_slice_count) for rewritten in slice_plan.rewritten
    } == {(4, 2)}


@pytest.mark.parametrize(("before", "after"), [(300, 100), (100, 300), (300, 299), (65, 64), (1, 0), (0, 300)])
def test_after_any_change_the_pool_is_complete_in_one_generation(before, after):
    """A changed number of slices increments the generation."""
    existing = published_slices(pages_of(machine_with_devices(before), NODE), 4)
    new_pages = pages_of(machine_with_devices(after), NODE)
    slice_plan = plan(existing, new_pages)
    slices = slices_after(existing, slice_plan)
    generations = {slice_.spec.pool.generation for slice_ in slices}
    assert len(generations) == 1
    assert len(slices) == len(new_pages) == slices[0].spec.pool.resource_slice_count
    assert sorted(device.name for slice_ in slices for device in slice_.spec.devices) == sorted(
        f"d-{n}" for n in range(after)
    )
    if len(existing) != len(new_pages):
        assert generations == {5}
    assert not plan(slices, new_pages)


def test_slices_of_older_generations_and_other_pools_are_deleted():
    pages = pages_of(machine_with_devices(3), NODE)
    old_slice = replace(published_slices(pages, 1)[0], metadata=ObjectMeta(name="old"))
    slice_of_other_pool = replace(
        old_slice,
        metadata=ObjectMeta(name="other"),
        spec=replace(old_slice.spec, pool=replace(old_slice.spec.pool, name="x")),
    )
    slice_plan = plan([old_slice, slice_of_other_pool, *published_slices(pages, 2)], pages)
    assert {slice_.metadata.name for slice_ in slice_plan.deleted} == {"old", "other"}
    assert (slice_plan.rewritten, slice_plan.new) == ((), ())


def test_fields_that_the_server_drops_are_not_written_again():
    [page] = pages_of(machine(gpus=[gpu()]), NODE)
    stored_page = replace(page, devices=(replace(page.devices[0], capacity={}),))
    dropped_field = dropped(page, stored_page)
    assert dropped_field is not None
    assert dropped(page, page) is None
    assert plan(published_slices([stored_page]), [page])
    assert not plan(published_slices([stored_page]), [page], dict([dropped_field]))


def test_an_unchanged_taint_keeps_its_time():
    taint = DeviceTaint(key="k", effect="NoSchedule")
    timed_taint = replace(taint, time_added="2026-01-01T00:00:00Z")
    machine_with_taint = Machine(DRIVER, (Device(name="d", taints=(taint,)),))
    stored_machine = Machine(DRIVER, (Device(name="d", taints=(timed_taint,)),))
    assert not plan(published_slices(pages_of(stored_machine, NODE)), pages_of(machine_with_taint, NODE))
    machine_with_two_taints = Machine(DRIVER, (Device(name="d", taints=(taint, replace(taint, key="l"))),))
    [rewritten] = plan(
        published_slices(pages_of(stored_machine, NODE)), pages_of(machine_with_two_taints, NODE)
    ).rewritten
    assert rewritten.spec.devices[0].taints == (timed_taint, replace(taint, key="l"))


def test_a_taint_time_from_the_server_is_no_dropped_field():
    taint = DeviceTaint(key="k", effect="NoSchedule")
    [page] = pages_of(Machine(DRIVER, (Device(name="d", taints=(taint,)),)), NODE)
    device = replace(page.devices[0], taints=(replace(taint, time_added="2026-01-01T00:00:00Z"),))
    page_with_time = replace(page, devices=(device,))
    assert dropped(page, page_with_time) is None
    page_without_taint = replace(page, devices=(replace(device, taints=()),))
    assert dropped(page, page_without_taint) is not None
