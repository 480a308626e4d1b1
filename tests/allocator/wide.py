"""The family `wide` of `tests.allocator.generate`: a case of another family, with changes that add fields and values.

The other families and these changes together draw every field of ResourceSlice, DeviceClass and ResourceClaim that Kubernetes' own
allocator reads.
Today's validation refuses many of the added values, but stored objects may have them.
"""

import random
from collections.abc import Callable

from tests.allocator.case_parts import Case, all_bodies
from tests.allocator.wide_claims import (
    add_alternatives,
    add_configuration,
    add_constraints,
    add_derived_attributes,
    add_selectors,
    add_tolerations,
    change_allocation_modes,
    change_classes,
    request_admin_access,
    use_one_claim_name,
)
from tests.allocator.wide_fleets import (
    add_allocations,
    add_binding_conditions,
    add_node_resources,
    add_taint_rules,
    add_taints,
    change_counters,
    change_request_policies,
    enlarge,
    qualify_names,
    select_nodes,
    skip_node_operations,
    spell_out_defaults,
    use_list_values,
    use_one_pool_name,
)


def widen(rng: random.Random, case: Case) -> Case:
    """Apply some changes to a case. Most cases are reduced to few requests first, so that the changes decide the answer."""
    if rng.random() < 0.7:
        _reduce_claims(case)
    drawn_changes = rng.sample(CHANGES, rng.choice((1, 1, 2, 2, 3, 5, 8)))
    for change in drawn_changes:
        change(rng, case)
    return case


def _reduce_claims(case: Case) -> None:
    """Reduce the claims to one claim with at most two requests of one device each."""
    case["claims"] = case["claims"][:1]
    devices = case["claims"][0]["spec"]["devices"]
    devices["requests"] = devices.get("requests", [])[:2]
    for name in ("constraints", "config"):
        devices.pop(name, None)
    for body in all_bodies(case):
        body |= {"allocationMode": "ExactCount", "count": 1}


CHANGES: list[Callable[[random.Random, Case], None]] = [
    use_list_values,
    qualify_names,
    add_taints,
    add_taint_rules,
    add_binding_conditions,
    add_node_resources,
    skip_node_operations,
    spell_out_defaults,
    select_nodes,
    change_request_policies,
    change_counters,
    use_one_pool_name,
    enlarge,
    change_classes,
    add_selectors,
    add_tolerations,
    add_alternatives,
    change_allocation_modes,
    add_derived_attributes,
    add_constraints,
    add_configuration,
    request_admin_access,
    use_one_claim_name,
    add_allocations,
]
