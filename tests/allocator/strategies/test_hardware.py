"""How much of the hardware is in use, and how much of the free hardware is fragmented."""

from allocator.strategies.hardware import Room, fragmentation, room, scale_of, units, utilisation
from dra.objects.device import (
    Counter,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceCounterConsumption,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra.objects.meta import ObjectMeta
from dra.objects.node import Node
from dra.quantity import parse
from dra.stock.stock import Stock
from dra.stock.usage import FREE, PoolUse


def partition(name, slots, set_name="gpu-0", **fields):
    counters = {f"slot-{slot}": Counter(value=parse("1")) for slot in slots}
    return Device(
        name=name, consumes_counters=(DeviceCounterConsumption(counter_set=set_name, counters=counters),), **fields
    )


def pool(*devices, sets=()):
    def slice_of(name, **spec):
        pool_ = ResourcePool(name="p", generation=1, resource_slice_count=2 if sets else 1)
        return ResourceSlice(
            metadata=ObjectMeta(name=name), spec=ResourceSliceSpec(driver="d", pool=pool_, node_name="n", **spec)
        )

    slices = [slice_of("devices", devices=devices)] + ([slice_of("sets", shared_counters=sets)] if sets else [])
    (only_pool,) = Stock.of(slices=slices, nodes=[Node(metadata=ObjectMeta(name="n"))]).pools("n")
    return only_pool


def counter_set(name, size=4):
    return CounterSet(name=name, counters={f"slot-{i}": Counter(value=parse("1")) for i in range(size)})


POOL_OF_QUARTERS = pool(
    partition("q0", [0]),
    partition("q1", [1]),
    partition("half", [2, 3]),
    partition("whole", [0, 1, 2, 3]),
    sets=(counter_set("gpu-0"),),
)


def test_devices_of_one_counter_set_are_one_unit():
    separated = units(
        pool(partition("a", [0]), partition("b", [1]), Device(name="alone"), sets=(counter_set("gpu-0"),))
    )
    assert [(unit.name, [unit_part.device.name for unit_part in unit.parts]) for unit in separated] == [
        ("gpu-0", ["a", "b"]),
        ("alone", ["alone"]),
    ]


def test_a_partitions_size_is_its_share_of_the_counters():
    (unit,) = units(POOL_OF_QUARTERS)
    assert [unit_part.size for unit_part in unit.parts] == [0.25, 0.25, 0.5, 1.0]


def test_a_partition_with_a_huge_counter_has_a_finite_size():
    """The API server stores a slice with such a counter. The slice must not make the strategies fail for all nodes."""
    huge_set = CounterSet(name="gpu-0", counters={"slot-0": Counter(value=parse("9" * 310))})
    consumption = DeviceCounterConsumption(counter_set="gpu-0", counters=huge_set.counters)
    (unit,) = units(
        pool(Device(name="a", consumes_counters=(consumption,)), partition("b", [1]), sets=(counter_set("gpu-0"),))
    )
    assert [unit_part.size for unit_part in unit.parts] == [0.25, 0.25]
    assert room(unit, PoolUse(frozenset({"b"}))).busy


def test_a_unit_without_allocations_is_entirely_free():
    (unit,) = units(POOL_OF_QUARTERS)
    assert room(unit, FREE) == Room(1.0, busy=False)


def test_a_held_partition_reduces_the_free_part_of_its_unit():
    (unit,) = units(POOL_OF_QUARTERS)
    assert room(unit, PoolUse(frozenset({"q0"}))) == Room(0.75, busy=True)


def test_shares_reduce_the_room_of_a_shared_device():
    gpu = Device(name="gpu", allow_multiple_allocations=True, capacity={"memory": DeviceCapacity(value=parse("80Gi"))})
    (unit,) = units(pool(gpu))
    use = PoolUse(frozenset(), frozenset({"gpu"}), {"gpu": {"memory": parse("60Gi").nano}})
    assert room(unit, use) == Room(0.25, busy=True)


def test_a_dedicated_device_in_use_leaves_no_room():
    (unit,) = units(pool(Device(name="gpu")))
    assert room(unit, PoolUse(frozenset({"gpu"}))) == Room(0.0, busy=True)


def test_the_weight_of_a_unit_is_relative_to_the_largest():
    def gpu(name, memory):
        return Device(name=name, capacity={"memory": DeviceCapacity(value=parse(memory))})

    mixed = pool(gpu("small", "40Gi"), gpu("large", "80Gi"))
    assert [unit.weight for unit in units(mixed, scale_of(mixed.pages()))] == [0.5, 1.0]


def test_free_capacity_on_hardware_in_use_counts_as_fragmented():
    first, other = units(pool(Device(name="a"), Device(name="b")))
    rooms = [(first, Room(0.5, busy=True)), (other, Room(1.0, busy=False))]
    assert fragmentation(rooms) == 0.5 / 1.5
    assert utilisation(rooms) == 0.25


def test_an_empty_fleet_has_no_utilisation_and_no_fragmentation():
    assert (utilisation([]), fragmentation([])) == (0.0, 0.0)
