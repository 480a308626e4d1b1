"""An object against the one it replaces: what may not change (the ValidateUpdate half of the registry's strategies).

Values that did not change are judged again here, where the API server lets old ones pass; this is stricter only for
objects that were stored under older rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dra.objects import ResourceClaim, ResourceClaimTemplate, ResourceSlice, defaults
from dra.validation.fields import gates as feature_gates
from dra.validation.fields import names
from dra.validation.fields.limits import formatted
from dra.validation.objects.judge import judge, read
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from dra.validation.fields.gates import Gates

# The spec of these never changes, and so it is not judged again.
_FROZEN = {"ResourceClaim": "/spec", "ResourceClaimTemplate": "/spec"}
# What generateName says is judged in full only when these are created.
_GENERATED_ONCE = frozenset({"DeviceTaintRule", "ResourceSlice"})


def update_problems(
    new: dict[str, Any], old: dict[str, Any], gates: Gates = feature_gates.DEFAULT, *, status: bool = False
) -> list[Problem]:
    """Judge an update of an object, or of its status."""
    judged = judge(new, gates)
    if judged.typed is None:
        return judged.problems
    frozen = _FROZEN.get(str(new.get("kind")))
    if status:
        found = [problem for problem in judged.problems if problem.path.startswith("/status")]
    else:
        found = [
            p
            for p in judged.problems
            if not p.path.startswith("/status") and not (frozen and p.path.startswith(frozen))
        ]
    if new.get("kind") in _GENERATED_ONCE:
        found = [problem for problem in found if problem.path != "/metadata/generateName"]
        base = judged.typed.metadata.generate_name
        found += formatted(base, names.path_segment(base), "/metadata/generateName")
    was = read(old)
    return found + list(_status(judged.typed, was) if status else _spec(judged.typed, was))


def _spec(new: Any, old: Any) -> Problems:
    match new, old:
        case ResourceClaim(), ResourceClaim():
            if defaults.claim(new).spec != defaults.claim(old).spec:
                yield Problem("D115", "/spec", "the spec of a claim cannot be changed")
        case ResourceClaimTemplate(), ResourceClaimTemplate():
            if defaults.template(new).spec != defaults.template(old).spec:
                yield Problem("D115", "/spec", "the spec of a template cannot be changed")
        case ResourceSlice(), ResourceSlice():
            for path, mine, theirs in (
                ("/spec/driver", new.spec.driver, old.spec.driver),
                ("/spec/pool/name", new.spec.pool.name, old.spec.pool.name),
                ("/spec/nodeName", new.spec.node_name, old.spec.node_name),
            ):
                if mine != theirs:
                    yield Problem("D115", path, f"{theirs!r} cannot be changed to {mine!r}")


def _status(new: Any, old: Any) -> Problems:
    if not isinstance(new, ResourceClaim) or not isinstance(old, ResourceClaim):
        return
    mine, theirs = new.status.allocation, old.status.allocation
    if mine is not None and theirs is not None and mine != theirs:
        yield Problem("D115", "/status/allocation", "an allocation can be taken away, but not changed")
    if (
        new.metadata.deletion_timestamp
        and mine is not None
        and set(new.status.reserved_for) - set(old.status.reserved_for)
    ):
        yield Problem(
            "D115", "/status/reservedFor", "a claim that is being deleted cannot be reserved for more consumers"
        )
