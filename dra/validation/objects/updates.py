"""Rules about updates: the fields that must not change (ValidateUpdate of the registry's strategies).

As in the API server (ratcheting), a problem that the old object already has does not prevent a change of another field. Rules that depend
on further objects, such as the rule for admin access, are not judged here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dra import names
from dra.finding import Finding, Findings, finding_at
from dra.objects import ResourceClaim, ResourceClaimTemplate, ResourceSlice, defaults
from dra.validation.fields import gates as feature_gates
from dra.validation.fields.limits import wrong_format
from dra.validation.objects.judge import read_object, validate_object

if TYPE_CHECKING:
    from dra.validation.fields.gates import Gates

# Kinds whose spec is immutable. It is not judged again.
_FROZEN = {"ResourceClaim": "/spec", "ResourceClaimTemplate": "/spec"}
# Kinds whose generateName the API server judges by all rules only on creation.
_GENERATED_ONCE = frozenset({"DeviceTaintRule", "ResourceSlice"})


def update_errors(
    new: dict[str, Any],
    old: dict[str, Any],
    gates: Gates = feature_gates.DEFAULT,
    *,
    status: bool = False,
) -> list[Finding]:
    """Return the findings because of which the API server would refuse an update of an object or its status; [] if it would accept it."""
    judged, kind = validate_object(new, gates), str(new.get("kind"))
    typed = judged.typed
    problems = [problem for problem in judged.problems if _is_judged(problem, kind, status=status)]
    if typed is not None and not status and kind in _GENERATED_ONCE:
        problems += wrong_format(typed.metadata.generate_name, names.path_segment, "/metadata/generateName")
    if problems:
        old_problems = {(problem.path, problem.message) for problem in validate_object(old, gates).problems}
        problems = [problem for problem in problems if (problem.path, problem.message) not in old_problems]
    if typed is not None:
        problems = [*_changes(typed, read_object(old), status=status), *problems]
    return problems


def _is_judged(problem: Finding, kind: str, *, status: bool) -> bool:
    """Return whether a problem of the new object is a reason to refuse the update."""
    if not problem.refuses:
        return False
    # The API server refuses a value that it cannot decode, whatever the field.
    if problem.code == "D001":
        return True
    in_status = problem.path.startswith("/status")
    if status or in_status:
        return status and in_status
    if problem.path == "/metadata/generateName" and kind in _GENERATED_ONCE:
        return False
    frozen = _FROZEN.get(kind)
    return frozen is None or not problem.path.startswith(frozen)


def _changes(new: Any, old: Any, *, status: bool) -> Findings:
    """Judge the changes of a spec or a status. An allocation cannot be changed, only removed."""
    if status:
        if not isinstance(new, ResourceClaim) or not isinstance(old, ResourceClaim):
            return
        new_allocation, old_allocation = new.status.allocation, old.status.allocation
        if new_allocation is not None and old_allocation is not None and new_allocation != old_allocation:
            yield finding_at("D115", "/status/allocation", "field cannot be modified once set")
        # A claim that is being deleted cannot be reserved for more pods.
        added = set(new.status.reserved_for) - set(old.status.reserved_for)
        if new.metadata.deletion_timestamp and new_allocation is not None and added:
            message = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            yield finding_at("D116", "/status/reservedFor", message)
        return
    frozen: tuple[tuple[str, object, object], ...] = ()
    match new, old:
        case ResourceClaim(), ResourceClaim():
            frozen = (("/spec", defaults.claim(new).spec, defaults.claim(old).spec),)
        case ResourceClaimTemplate(), ResourceClaimTemplate():
            frozen = (("/spec", defaults.template(new).spec, defaults.template(old).spec),)
        case ResourceSlice(), ResourceSlice():
            frozen = (
                ("/spec/driver", new.spec.driver, old.spec.driver),
                ("/spec/pool/name", new.spec.pool.name, old.spec.pool.name),
                ("/spec/nodeName", new.spec.node_name, old.spec.node_name),
            )
    for path, new_value, old_value in frozen:
        if new_value != old_value:
            yield finding_at("D115", path, "field is immutable")
