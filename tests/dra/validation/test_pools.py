"""Mistakes in published slices that the API server accepts."""

from tests.dra.validation.manifests import codes, codes_and_paths, join, messages, slice_

GPU = "  - {name: gpu-0}"
COUNTERS = "  - {name: set, counters: {memory: {value: 80Gi}, slices: {value: '7'}}}"


def consumer(name, counters="memory: {value: 10Gi}", counter_set="set", groups=""):
    groups_field = f", compatibilityGroups: [{groups}]" if groups else ""
    return f"  - {{name: {name}, consumesCounters: [{{counterSet: {counter_set}, counters: {{{counters}}}{groups_field}}}]}}"


def pool(*devices, counters=COUNTERS):
    return join(slice_("a", "\n".join(devices), count=2), slice_("b", counters=counters, count=2))


def test_a_sound_pool_has_no_findings():
    assert not codes(pool(consumer("small"), consumer("large", "memory: {value: 80Gi}")))


def test_missing_and_surplus_slices_make_a_pool_incomplete():
    assert codes_and_paths(slice_(devices=GPU, count=2)) == {("D401", "/spec/pool/resourceSliceCount")}
    assert codes(join(slice_("a", GPU), slice_("b", "  - {name: gpu-1}"))) == {"D401"}


def test_slices_of_the_inventory_complete_a_pool():
    assert not codes(slice_("a", GPU, count=2), slice_("b", "  - {name: gpu-1}", count=2))


def test_slices_with_different_slice_counts_are_reported():
    assert codes(join(slice_("a", GPU, count=2), slice_("b", "  - {name: gpu-1}", count=3))) == {"D403"}


def test_slices_of_an_older_generation_are_reported():
    assert codes(join(slice_("a", GPU, generation=1), slice_("b", GPU, generation=2))) == {"D402"}


def test_equal_pool_names_on_two_nodes_are_valid():
    pool_of_a_node = pool(consumer("small"), consumer("large", "memory: {value: 80Gi}"))
    for generation in (1, 2**62):
        slice_of_another_node = slice_("c", GPU, counters="", generation=generation, count=7, nodes="nodeName: m")
        assert not codes(pool_of_a_node, slice_of_another_node)


def test_device_names_are_unique_per_pool_and_node():
    assert codes_and_paths(join(slice_("a", GPU, count=2), slice_("b", GPU, count=2))) == {
        ("D404", "/spec/devices/0/name")
    }
    assert not codes(join(slice_("a", GPU, count=2), slice_("b", GPU, count=2, nodes="nodeName: m")))


def test_counter_sets_and_counters_must_exist_in_a_complete_pool():
    assert codes_and_paths(pool(consumer("a", counter_set="other"))) == {
        ("D405", "/spec/devices/0/consumesCounters/0/counterSet")
    }
    assert codes_and_paths(pool(consumer("a", "cores: {value: 1}"))) == {
        ("D405", "/spec/devices/0/consumesCounters/0/counters/cores")
    }
    assert codes(slice_(devices=consumer("a"), count=2)) == {"D401"}


def test_a_counter_set_is_defined_once():
    assert codes(join(slice_("a", counters=COUNTERS, count=2), slice_("b", counters=COUNTERS, count=2))) == {"D414"}


def test_negative_amounts_are_pointed_out():
    assert codes(slice_(counters="  - {name: set, counters: {a: {value: '-1'}}}")) == {"D406"}
    assert codes(slice_(devices="  - {name: a, capacity: {memory: {value: '-1'}}}")) == {"D406"}
    assert codes(pool(consumer("a", "memory: {value: '-1'}"))) == {"D406"}


def test_a_device_beyond_its_counters_is_reported():
    assert codes_and_paths(pool(consumer("a", "memory: {value: 81Gi}"))) == {
        ("D407", "/spec/devices/0/consumesCounters/0/counters/memory")
    }


def test_large_partitions_before_small_ones_are_advised_against_once():
    large = consumer("large", "memory: {value: 40Gi}")
    assert codes_and_paths(pool(large, consumer("b"), consumer("c"))) == {("D410", "/spec/devices/1")}


def test_a_device_without_groups_among_grouped_ones_is_pointed_out():
    assert codes(pool(consumer("a", groups="one"), consumer("b", groups="one"), consumer("c"))) == {"D408"}
    assert any("'c' has no groups" in message for message in messages(pool(consumer("a", groups="one"), consumer("c"))))


def test_a_device_that_takes_a_whole_counter_needs_no_group():
    whole_device = consumer("whole", "memory: {value: 80Gi}")
    assert not codes(
        pool(consumer("a", groups="one, two"), consumer("b", groups="one"), consumer("c", groups="two"), whole_device)
    )


def test_groups_of_all_devices_or_one_are_reported_as_ineffective():
    assert codes(pool(consumer("a", groups="one"), consumer("b", groups="one, two"))) == {"D415"}
    assert codes(pool(consumer("a", groups="one"), consumer("b", groups="two"), consumer("c", groups="two"))) == {
        "D415"
    }
    assert not codes(pool(consumer("a", groups="one, two"), consumer("b", groups="one"), consumer("c", groups="two")))


def test_a_name_both_bare_and_qualified_is_ambiguous():
    assert codes(slice_(devices="  - {name: a, attributes: {m: {int: 1}, gpu.example.com/m: {int: 2}}}")) == {"D409"}
    assert not codes(slice_(devices="  - {name: a, attributes: {m: {int: 1}, other.example.com/m: {int: 2}}}"))


def test_a_shared_capacity_without_a_default_is_taken_whole():
    device = "  - {{name: a, allowMultipleAllocations: true, capacity: {{memory: {{value: 8Gi{}}}}}}}"
    assert codes(slice_(devices=device.format(""))) == {"D416"}
    assert not codes(slice_(devices=device.format(", requestPolicy: {default: 1Gi}")))


def test_node_selectors_with_empty_or_several_terms_are_pointed_out():
    assert codes(slice_(devices=GPU, nodes="nodeSelector: {nodeSelectorTerms: [{}]}")) == {"D418"}
    terms = "[{matchFields: [{key: metadata.name, operator: In, values: [a]}]}, {matchFields: [{key: metadata.name, operator: In, values: [b]}]}]"
    device = f"  - {{name: a, nodeSelector: {{nodeSelectorTerms: {terms}}}}}"
    assert codes(slice_(devices=device, nodes="perDeviceNodeSelection: true")) == {"D418"}


def test_upper_case_in_a_driver_name_is_a_warning():
    assert codes(slice_(devices=GPU, driver="GPU.example.com")) == {"D411"}


def test_counters_and_devices_in_one_slice_are_an_error():
    text = slice_(devices=GPU) + "  sharedCounters: [{name: set, counters: {a: {value: 1}}}]"
    assert codes(text) == {"D107"}
    assert any("slice of their own" in message for message in messages(text))
