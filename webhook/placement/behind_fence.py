"""Finds pods with an extended resource whose devices a fence keeps from the pod's scheduler.

A fence is a DeviceTaintRule that reserves a driver's devices for the bridge, which is the scheduler with drawbridge's plugin. If a DeviceClass
serves the resource, the pod's scheduler creates a claim for it. Only the bridge lets this claim tolerate the fence's taint. A fence counts if
its DeviceTaintRule is in the cluster, and also if only the configuration requires it (`bridge.fence`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dra.finding import stated
from dra.policy import fences
from webhook.dialects import Outcome
from webhook.names import NAME
from webhook.translate import Decision

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.state import State
    from webhook.translate import PodClaim, PodVerdict

STRANDED = "D218"
_NO_BRIDGE = "set schedulerName to the scheduler that the fence allows, or delete the fence's DeviceTaintRule"


def add_stranded(verdict: PodVerdict, claims: Iterable[PodClaim], state: State, name: str) -> PodVerdict:
    """Add a decision and a warning for each resource that a fence keeps from the pod. The pod's scheduler creates the `claims`."""
    decisions = list(verdict.decisions)
    warnings: list[str] = []
    reported = {(decision.container, decision.key) for decision in decisions if decision.code == STRANDED}
    for container, key, scheduler, driver in _find_stranded(claims, state):
        if (container, key) in reported:
            continue
        who_can = "only device plugins" if key in state.fleet.handed_out_anywhere else "no node"
        reason = (
            f"a fence keeps the devices of {driver} from scheduler {scheduler}, so {who_can} can serve this request"
        )
        bridge = state.configuration.file.bridge
        remedy = f"set schedulerName: {bridge.scheduler_name} on the pod" if bridge else _NO_BRIDGE
        stranded = Decision(name, container, "", key, Outcome.LEFT, reason, code=STRANDED, remedy=remedy)
        warnings.append(str(stated(STRANDED, f"container {container}: {key}: {reason}", remedy)))
        index = next((index for index, decision in enumerate(decisions) if _keeps_key(decision, container, key)), None)
        if index is None:
            decisions.append(stranded)
            continue
        stranded = replace(stranded, object=decisions[index].object, dialect=decisions[index].dialect)
        # A decision that a DeviceClass serves the key is wrong, so replace it. A decision with the reason why the key is left stays, too.
        replaces_decision = decisions[index].outcome is Outcome.SERVED
        decisions[index if replaces_decision else index + 1 : index + 1] = [stranded]
    return replace(verdict, decisions=tuple(decisions), notes=(*verdict.notes, *warnings))


def _keeps_key(decision: Decision, container: str, key: str) -> bool:
    is_about_key = (decision.container, decision.key) == (container, key)
    return is_about_key and decision.outcome in (Outcome.LEFT, Outcome.SERVED) and not decision.code


def _find_stranded(claims: Iterable[PodClaim], state: State) -> Iterator[tuple[str, str, str, str]]:
    """Yield the container, the resource, the pod's scheduler and the driver of each request whose devices are behind a fence."""
    bridge = state.configuration.file.bridge
    fenced_drivers = bridge.drivers if bridge is not None and bridge.fence else ()
    rules = state.stock.rules.values() if state.stock is not None else ()
    for claim in claims:
        if claim.scheduler.startswith(NAME) if bridge is None else claim.scheduler == bridge.scheduler_name:
            continue
        for container, key in claim.requested_names:
            device_class = state.fleet.classes.get(state.fleet.extended.get(key, ""))
            driver = device_class.driver if device_class is not None else ""
            if driver and (driver in fenced_drivers or any(fences(rule, driver) for rule in rules)):
                yield container, key, claim.scheduler, driver
