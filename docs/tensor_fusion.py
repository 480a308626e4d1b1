"""Compares drawbridge with each behaviour of Tensor Fusion's allocator, in docs/comparison.md.

The behaviours are the functions and constants of `internal/gpuallocator` (NexusGPU/tensor-fusion, August 2026).
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple


class Behaviour(NamedTuple):
    name: str
    ours: str  # what does the same here; "" if nothing does
    test: str  # PATH::TEST, which shows it; "" if nothing does the same
    lacks: str = ""  # what is missing, and why

    @property
    def state(self) -> str:
        if not self.ours:
            return "no"
        return "in part" if self.lacks else "yes"


_SERVICE = "tests/allocator/service"
_LEDGER = "tests/allocator/reservations"
_STRATEGY = "tests/allocator/strategies/test_strategy.py"
_PACKS = f"{_STRATEGY}::test_a_strategy_packs_gpus_or_spreads_over_them"
_TAKES_OVER = f"{_SERVICE}/test_leadership.py::test_a_second_replica_takes_over_with_all_reservations"

BEHAVIOURS = (
    Behaviour("`CleanUpCheckInterval`: allocations whose pod is gone", "a check every three minutes", f"{_SERVICE}/test_other_writers.py::test_a_sweep_frees_the_allocation_of_a_deleted_pod"),
    Behaviour("`MaxGPUCounterPerAllocation`: 128", "the API server's limit: 32 devices for each claim", "tests/dra/validation/test_fleet.py::test_a_claim_gets_at_most_32_devices"),
    Behaviour("`DefaultGPUSelector`", "strategies choose node and devices", _PACKS),
    Behaviour("`GPUCapacityMap`: TFLOPS and memory by model", "the settings `models` and `tensorfusion.tflops`", "tests/webhook/dialects/test_tensorfusion.py::test_tflops_become_a_percentage_by_the_declared_model"),
    Behaviour("`ScalingQuotaExceededError`", "a refusal names limit, use and request", f"{_SERVICE}/test_quotas.py::test_a_pod_over_quota_is_refused_and_requeued_later"),
    Behaviour("`RefreshGPUNodeCapacity`: totals of a node", "`drawbridge free NODE`: devices and amounts", "tests/cli/commands/test_free.py::test_each_device_and_node_has_its_amounts_and_idle_nodes_are_listed"),
    Behaviour("`CompactFirst`", "the strategy of this name", _PACKS),
    Behaviour("`LowLoadFirst`", "the strategy of this name", f"{_STRATEGY}::test_low_load_first_spreads_claims_over_shared_gpus"),
    Behaviour("`NodeCompactGPULowLoad`", "the strategy of this name", f"{_STRATEGY}::test_packing_prefers_the_used_node_and_spreading_the_idle_node"),
    Behaviour("`NewGpuAllocator`", "`drawbridge allocator`", f"{_SERVICE}/test_plugin_calls.py::test_placing_a_pod_reserves_devices_and_writes_its_claim"),
    Behaviour("`AdjustAllocation`, with a dry run", "`drawbridge resize`", "tests/cli/commands/test_resize.py::test_resize_prints_the_fit_the_quota_and_the_new_manifest"),
    Behaviour("`Alloc`", "reserve and commit", f"{_SERVICE}/test_plugin_calls.py::test_reserved_devices_are_not_given_to_another_pod_until_released"),
    Behaviour("`Bind`", "two conditional writes of the claim", f"{_LEDGER}/test_ledger.py::test_a_pod_may_be_bound_after_two_writes"),
    Behaviour("`CheckQuotaAndFilter`", "one answer about all nodes, with reasons", f"{_SERVICE}/test_plugin_calls.py::test_prefilter_answers_with_a_verdict_and_names_missing_objects"),
    Behaviour("`CheckQuotaAndFilterSingleNodePreempt`", "preemption, quotas included", "tests/allocator/simulation/test_victims.py::test_victims_of_the_namespace_make_room_in_its_quota"),
    Behaviour("`ComposeAllocationRequest`: the annotations of a pod", "the webhook, with `tensorfusion.fractions`", "tests/webhook/dialects/test_tensorfusion.py::test_the_limit_of_an_amount_is_claimed_before_its_request", "no remote GPUs: a claim holds a device of the pod's node"),
    Behaviour("`Dealloc`", "a pod that has ended holds nothing", f"{_LEDGER}/test_ledger.py::test_a_finished_pod_loses_its_reservation"),
    Behaviour("`DeallocAsync`", "devices are held until no write is in progress", f"{_LEDGER}/test_lost_writes.py::test_a_lost_writes_devices_are_held_until_it_expires"),
    Behaviour("`DeallocByPodIdentifier`", "by the uid of the deleted pod", f"{_SERVICE}/test_plugin_calls.py::test_a_recreated_pod_inherits_no_reservation", "not while the pod runs: it would lose its devices"),
    Behaviour("`Filter`", "selectors, taints, capacities, counters and constraints, as in Kubernetes", "tests/allocator/search/test_differential.py::test_verdict_and_devices_equal_those_of_the_in_tree_allocator"),
    Behaviour("`FilterWithPreempt`", "pods that are added or removed for one question", f"{_SERVICE}/test_plugin_calls.py::test_filter_considers_the_removal_and_the_addition_of_pods"),
    Behaviour("`GetAllocationInfo`", "`GET /api/v1/claims`", f"{_SERVICE}/test_queries.py::test_the_api_lists_claims_with_their_pods"),
    Behaviour("`GetAllocationReqByNodeName`", "`drawbridge free NODE`", "tests/cli/commands/test_free.py::test_every_device_has_a_row_with_holder_and_time"),
    Behaviour("`GetNodeGpuStore`: capacity and what is available", "`drawbridge free -o json`", "tests/allocator/reports/test_nodes.py::test_devices_are_free_held_or_shared"),
    Behaviour("`GetQuotaStore`", "`GET /api/v1/quota`, and the status of a DeviceQuota", f"{_SERVICE}/test_quotas.py::test_quota_usage_is_reported_and_written_by_the_leader"),
    Behaviour("`GetScoringStrategy`", "by pod, Namespace or configuration", "tests/allocator/decisions/test_placement.py::test_the_strategy_of_a_pod_precedes_namespace_and_configuration"),
    Behaviour("`InitGPUAndQuotaStore`", "no answer before everything is read", f"{_SERVICE}/test_quotas.py::test_the_allocator_waits_until_quotas_are_read"),
    Behaviour("`ListNonUsingNodes`", "`drawbridge free` lists idle nodes", "tests/cli/commands/test_free.py::test_each_device_and_node_has_its_amounts_and_idle_nodes_are_listed"),
    Behaviour("`ReconcileAllocationState`", "a new leader reads all claims", f"{_LEDGER}/test_ledger_leadership.py::test_a_new_leader_recovers_reservations_from_claims_and_pods"),
    Behaviour("`ReconcileAllocationStateForTesting`", "", "", "not needed: the reservations are a value that a test can make"),
    Behaviour("`RegisterBindHandler`: a callback", "", "", "not needed: watch the claims"),
    Behaviour("`Score` of each device", "a score of each node", "tests/allocator/decisions/test_decider.py::test_the_decider_scores_each_node_as_the_strategy_alone_does", "no score of a device: the devices of a claim are chosen together"),
    Behaviour("`Select`", "the strategy, when devices are reserved", f"{_SERVICE}/test_placements.py::test_annotations_of_pods_and_namespaces_override_the_configured_strategy"),
    Behaviour("`SetAllocatorReady`", "only the leader reserves devices", f"{_LEDGER}/test_ledger_leadership.py::test_a_follower_writes_nothing_and_declines_reservations"),
    Behaviour("`SetMaxWorkerPerNode`", "the limit of pods with devices on a node", f"{_SERVICE}/test_placements.py::test_a_node_never_exceeds_its_limit_of_pods"),
    Behaviour("`SetupWithManager`", "read, lead, catch up, answer", _TAKES_OVER),
    Behaviour("`StartInformerForGPU`", "informers of slices, classes, claims, pods and nodes", f"{_SERVICE}/test_wake.py::test_new_devices_requeue_an_unservable_pod_but_heartbeats_do_not"),
    Behaviour("`Stop`", "the next leader finishes the writes", f"{_SERVICE}/test_leadership.py::test_a_new_service_finishes_the_writes_of_a_killed_one"),
    Behaviour("`SyncGPUsToK8s`: later writes", "", "", "not needed: a pod is bound after its allocation is written"),
    Behaviour("`SimulateSchedulingFilterDetail`", "`POST /api/v1/simulate`", f"{_SERVICE}/test_queries.py::test_a_posted_manifest_is_placed_beside_reservations_that_are_not_written"),
    Behaviour("`Strategy.Score`", "scores of nodes, 0 to 100", f"{_STRATEGY}::test_packing_prefers_the_used_node_and_spreading_the_idle_node"),
    Behaviour("`Strategy.SelectGPUs`", "the order in which devices are tried", f"{_STRATEGY}::test_every_strategy_legally_serves_what_first_fit_serves"),
    Behaviour("`NewStrategy`", "a strategy, or several with weights", "tests/allocator/decisions/test_placement.py::test_a_placement_is_one_strategy_or_several_with_weights"),
)  # fmt: skip


def comparison() -> str:
    """Write how many behaviours drawbridge has, and a table of those that it lacks or has only in part."""
    counts = Counter(behaviour.state for behaviour in BEHAVIOURS)
    whole, part, missing = (counts[state] for state in ("yes", "in part", "no"))
    allocator = f"Of the {len(BEHAVIOURS)} behaviours of Tensor Fusion's allocator"
    lines = [f"{allocator}, drawbridge has {whole}, {part} more in part, and {missing} not.", ""]
    lines += ["| Tensor Fusion | drawbridge | missing |", "|---|---|---|"]
    for name, ours, _, lacks in BEHAVIOURS:
        if lacks:
            lines.append(f"| {name} | {ours or 'no'} | {lacks} |")
    return "\n".join(lines)
