"""What Tensor Fusion's allocator does (`internal/gpuallocator`): each of its 43 behaviours has a test here, or a reason why it is not offered."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
REASON = "not offered: "
# By behaviour, in the order of its sources: the tests of the same behaviour here, or the reason.
BEHAVIOURS = {
    "CleanUpCheckInterval": "test_a_sweep_frees_the_allocation_of_a_deleted_pod",
    "MaxGPUCounterPerAllocation": "test_a_claim_gets_at_most_32_devices",
    "DefaultGPUSelector": "test_a_strategy_packs_gpus_or_spreads_over_them",
    "GPUCapacityMap": "not offered: slices publish the memory of a device, and `tensorfusion.tflops` declares the TFLOPS of a model",
    "ScalingQuotaExceededError": "test_a_pod_over_quota_is_refused_and_requeued_later",
    "RefreshGPUNodeCapacity": "test_devices_are_free_held_or_shared",
    "CompactFirst": "test_a_strategy_packs_gpus_or_spreads_over_them",
    "LowLoadFirst": "test_a_strategy_packs_gpus_or_spreads_over_them",
    "NodeCompactGPULowLoad": "test_a_strategy_packs_gpus_or_spreads_over_them",
    "NewGpuAllocator": "test_placing_a_pod_reserves_devices_and_writes_its_claim",
    "AdjustAllocation": "test_resize_prints_the_fit_the_quota_and_the_new_manifest",
    "Alloc": "test_reserved_devices_are_not_given_to_another_pod_until_released",
    "Bind": "test_a_pod_may_be_bound_after_two_writes",
    "CheckQuotaAndFilter": "test_prefilter_answers_with_a_verdict_and_names_missing_objects",
    "CheckQuotaAndFilterSingleNodePreempt": "test_no_pod_is_evicted_if_preemption_is_forbidden_or_useless",
    "ComposeAllocationRequest": "test_the_limit_of_an_amount_is_claimed_before_its_request",
    "Dealloc": "test_unreserving_twice_after_a_failed_binding_leaks_no_device",
    "DeallocAsync": "test_a_lost_writes_devices_are_held_until_it_expires",
    "DeallocByPodIdentifier": "test_a_recreated_pod_inherits_no_reservation",
    "Filter": "test_verdict_and_devices_equal_those_of_the_in_tree_allocator",
    "FilterWithPreempt": "test_filter_considers_the_removal_and_the_addition_of_pods",
    "GetAllocationInfo": "test_the_api_lists_claims_with_their_pods",
    "GetAllocationReqByNodeName": "test_a_share_names_pod_node_uuid_and_consumption",
    "GetNodeGpuStore": "test_devices_are_free_held_or_shared",
    "GetQuotaStore": "test_quota_usage_is_reported_and_written_by_the_leader",
    "GetScoringStrategy": "test_the_strategy_of_a_pod_precedes_namespace_and_configuration",
    "InitGPUAndQuotaStore": "test_the_allocator_waits_until_quotas_are_read",
    "ListNonUsingNodes": "test_a_sample_counts_devices_idle_nodes_and_waiting_pods",
    "ReconcileAllocationState": "test_a_new_leader_recovers_reservations_from_claims_and_pods",
    "ReconcileAllocationStateForTesting": "not offered: the ledger is a value, which a test makes itself",
    "RegisterBindHandler": "not offered: an allocation is in the claim, which any program can watch",
    "Score": "test_strategies_score_used_nodes_differently_and_equal_nodes_equally",
    "Select": "test_annotations_of_pods_and_namespaces_override_the_configured_strategy",
    "SetAllocatorReady": "test_a_second_replica_takes_over_with_all_reservations",
    "SetMaxWorkerPerNode": "test_a_node_never_exceeds_its_limit_of_pods",
    "SetupWithManager": "test_a_second_replica_takes_over_with_all_reservations",
    "StartInformerForGPU": "test_new_devices_requeue_an_unservable_pod_but_heartbeats_do_not",
    "Stop": "test_a_new_service_finishes_the_writes_of_a_killed_one",
    "SyncGPUsToK8s": "not offered: an allocation is in the API before its pod is bound, so nothing is written later",
    "SimulateSchedulingFilterDetail": "test_placed_and_unplaced_pods_match_the_schema_of_simulate",
    "Strategy.Score": "test_packing_prefers_the_used_node_and_spreading_the_idle_node",
    "Strategy.SelectGPUs": "test_every_strategy_legally_serves_what_first_fit_serves",
    "NewStrategy": "test_a_placement_is_one_strategy_or_several_with_weights",
}


@pytest.fixture(scope="module")
def names():
    return {name for file in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)\(", file.read_text())}


def test_every_behaviour_has_a_test_or_a_reason(names):
    assert len(BEHAVIOURS) == 43
    assert [key for key, text in BEHAVIOURS.items() if not text.startswith(REASON) and text not in names] == []


def test_the_comparison_names_every_behaviour_that_is_not_offered():
    page = (TESTS.parent / "docs/comparison.md").read_text()
    assert [key for key, text in BEHAVIOURS.items() if text.startswith(REASON) and f"`{key}`" not in page] == []
