"""What drivers would refuse of the parameters that claims carry for them, said when the claim or its pod is asked for. Pure.

A warning, and never a refusal: a newer driver may take more than the sources that were read, and an administrator who runs one knows
that. The rules are those of `drawbridge check` (docs/parameters.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra import validation
from dra.errors import OutOfBudget
from dra.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.budget import Budget
    from dra.objects import DeviceClaim, ResourceClaim
    from webhook.state import State

# What all parameters of one object may cost, and what an entry costs at most beside its selectors: a dozen guesses at names.
_STEPS: Final = 100_000
_ENTRY: Final = 2_000


def parameter_warnings(devices: DeviceClaim, path: str, state: State, budget: Budget) -> tuple[str, ...]:
    """Say what drivers would refuse of a claim's parameters; nothing if there is no time to look."""
    if not devices.config and not validation.asks_for_channels(devices):
        return ()
    classes = state.stock.classes if state.stock is not None else {}
    slices = tuple(state.stock.slices.values()) if state.stock is not None else ()
    part = budget.part(_STEPS)
    try:
        part.charge(_ENTRY * (1 + len(devices.config)))
        problems = list(validation.claim_settings(devices, path, classes, part, slices))
    except OutOfBudget:
        return ()
    except Exception as failure:  # noqa: BLE001  what only warns never ends the review of a claim
        return (f"{path}: its parameters could not be checked, {type(failure).__name__}: this is a bug in drawbridge",)
    warnings: list[str] = []
    for finding in validation.findings(problems, ""):
        if finding.severity is Severity.WARNING:
            helps = f" ({finding.remedy})" if finding.remedy else ""
            warnings.append(f"{finding.code} {finding.path}: {finding.message}{helps}")
    return tuple(warnings)


def warnings_of_pod(claims: Iterable[ResourceClaim], state: State, budget: Budget) -> tuple[str, ...]:
    """Say it of all claims of a pod."""
    warnings: list[str] = []
    for claim in claims:
        found = parameter_warnings(claim.spec.devices, "/spec/devices", state, budget)
        warnings += [f"claim {claim.metadata.name}: {text}" for text in found]
    return tuple(warnings)
