"""Finds the reason why a pending pod can never be scheduled.

Either the pod was created without claims, because the webhook was down or had no inventory; or it requests a resource that no table, node or
class has. The resources of a pod cannot change, so another pod must replace it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.budget import Budget
from dra.objects import is_extended
from dra.reason import Actor, Reason
from dra.wire import builtins
from webhook import names
from webhook.claims import metadata_at_admission
from webhook.dialects import Outcome
from webhook.state import Mode, mode_of, node_constraints, reach_ignoring_taints, reach_templates, workload
from webhook.translate import translate
from webhook.unknown.unanswered_requests import MAX_KEYS, suggest_resource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.objects import Pod
    from dra.quantity import Quantity
    from webhook.state import State
    from webhook.translate import PodVerdict

_TRANSLATED = (Outcome.TRANSLATED, Outcome.APPROXIMATED)
_SHOWN = 3
_COMPARED = 2_000  # steps of the budget to compare one name with all known names


def find_missed(pod: Pod, state: State, budget: Budget | None = None) -> Reason | None:
    """Return why a missed pod waits; None if the pod was not missed, or if that is unknown.

    An unschedulable pod was missed if it is not translated, would be translated now, and requests a resource that no class and no node where the
    pod can run offers.
    """
    verdict = _translate_again(pod, state, budget)
    if verdict is None or not verdict.changed or verdict.refusals:
        return None
    translated = [decision.key for decision in verdict.decisions if decision.outcome in _TRANSLATED]
    keys = _not_offered(translated, pod, state, budget)
    if not keys:
        return None
    more = ", …" if len(keys) > _SHOWN else ""
    where = "where the pod can run " if any(map(state.offers, keys)) else ""
    text = f"no node {where}has {', '.join(keys[:_SHOWN])}{more}, and the pod was created without a claim for it"
    owner = pod.metadata.controller
    remedy = "delete the pod and create it again"
    if owner is not None:
        remedy = f"delete the pod, and {owner.kind} {owner.name} creates another"
    return Reason(code="O103", actor=Actor.USER, text=text, never=True, remedies=(remedy,))


def find_unserved(pod: Pod, state: State, budget: Budget | None = None) -> dict[str, str]:
    """Return the keys of an unschedulable pod that nothing offers, each with the reason why no claim can serve it."""
    verdict = _translate_again(pod, state, budget)
    reasons = (
        {decision.key: decision.detail for decision in verdict.decisions if decision.outcome is Outcome.LEFT}
        if verdict is not None
        else {}
    )
    return {key: reasons[key] for key in reasons if state.configuration.resource(key) and not state.offers(key)}


def find_unknown(pod: Pod, state: State, budget: Budget | None = None) -> dict[str, str]:
    """Return the resources of a pending pod that no table, node or class has, each with the resource that it likely means, or ""."""
    spec = pod.spec
    if spec.node_name or pod.is_done or pod.metadata.deletion_timestamp or spec.scheduling_gates:
        return {}
    if not state.confirmed or state.unseen or not state.fleet.nodes:
        return {}
    amounts: dict[str, Quantity] = {}
    for container in spec.all_containers:
        amounts |= container.resources.requests | container.resources.limits
    statuses = [node.status for node in state.fleet.nodes.values()]
    unknown: dict[str, str] = {}
    for key, amount in amounts.items():
        if not is_extended(key) or amount.nano <= 0 or state.configuration.resource(key) or state.offers(key):
            continue
        if any(key in status.allocatable or key in status.capacity for status in statuses):
            continue  # the device plugin may be starting
        if len(unknown) == MAX_KEYS:
            break
        if budget is not None:
            budget.charge(_COMPARED + len(statuses))
        unknown[key] = suggest_resource(key, state)
    return unknown


def why_unknown(meant: str) -> str:
    return f"did you mean {meant}?" if meant else "no DeviceClass serves it"


def _translate_again(pod: Pod, state: State, budget: Budget | None = None) -> PodVerdict | None:
    """Translate an unschedulable pod that is not translated yet; None for other pods, or if the inventory is incomplete."""
    metadata = pod.metadata
    refused = any(
        condition.type == "PodScheduled" and condition.reason == "Unschedulable" for condition in pod.status.conditions
    )
    if not refused or pod.spec.node_name or pod.is_done or metadata.deletion_timestamp or pod.spec.scheduling_gates:
        return None
    if names.ORIGINAL in metadata.annotations or not state.confirmed or state.unseen:
        return None
    namespace = metadata.namespace or "default"
    if mode_of(state, workload(namespace, metadata_at_admission(pod))) is not Mode.ENFORCE:
        return None
    return translate(builtins(pod), state, namespace=namespace, budget=budget)


def _not_offered(keys: Iterable[str], pod: Pod, state: State, budget: Budget | None) -> tuple[str, ...]:
    """Return the keys that no class serves, and that no device plugin hands out where the pod can run, now or on a node that is declared."""
    constraints = node_constraints(builtins(pod.spec))
    reached = reach_ignoring_taints(constraints, state, budget or Budget())
    coming = {key for template in reach_templates(constraints, state.configuration) for key in template.allocatable}
    fleet = state.fleet
    return tuple(
        [
            key
            for key in dict.fromkeys(keys)
            if state.configuration.resource(key)
            and not (key in fleet.extended or key in coming)
            and reached.isdisjoint(fleet.handed_out_anywhere.get(key, ()))
        ]
    )
