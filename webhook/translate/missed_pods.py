"""Pods that wait for what no node has: those that came in as they were written, while the webhook or what it looks at was away, and
those that ask by a name that nothing has. Pure.

No scheduler ever places such a pod, and the resources of a pod cannot change: another pod has to take its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.objects import OwnerReference, is_extended
from dra.wire import builtins
from webhook import names
from webhook.claims import known_at_admission
from webhook.dialects import Outcome
from webhook.state import Mode, mode_of, workload
from webhook.translate.translate import translate
from webhook.translate.unanswered_requests import MOST, suggest_resource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.budget import Budget
    from dra.objects import Pod
    from dra.quantity import Quantity
    from webhook.state import State
    from webhook.translate.verdict import Verdict

_TRANSLATED = (Outcome.TRANSLATED, Outcome.APPROXIMATED)
_SHOWN = 3
_COMPARED = 2_000  # steps for a name that is compared with all that there are


class MissedPod(msgspec.Struct, frozen=True):
    """The names that no node hands out and for which the pod has no claim, and the controller that would make another pod."""

    keys: tuple[str, ...]
    owner: OwnerReference | None

    @property
    def message(self) -> str:
        more = ", …" if len(self.keys) > _SHOWN else ""
        return f"no node has {', '.join(self.keys[:_SHOWN])}{more}, and the pod was created without a claim for it"

    @property
    def remedy(self) -> str:
        if self.owner is None:
            return "delete the pod and create it again"
        return f"delete the pod, and {self.owner.kind} {self.owner.name} creates another"


def find_missed(pod: Pod, state: State, budget: Budget | None = None) -> MissedPod | None:
    """Find what a pod that its scheduler refused waits for and no node has; None if it was not missed, or that is not known.

    A pod is missed if it would be translated as things are now, was not, and asks for what neither a node nor a class offers.
    """
    done = _translate_again(pod, state, budget)
    if done is None or not done.changed or done.refusals:
        return None
    lacking = _not_offered((decision.key for decision in done.decisions if decision.outcome in _TRANSLATED), state)
    owner = next(
        (owner_reference for owner_reference in pod.metadata.owner_references if owner_reference.controller), None
    )
    return MissedPod(lacking, owner) if lacking else None


def find_unserved(pod: Pod, state: State, budget: Budget | None = None) -> dict[str, str]:
    """Explain, by key, why no claim can be made for what an unschedulable pod requests and nothing offers."""
    done = _translate_again(pod, state, budget)
    reasons = (
        {decision.key: decision.detail for decision in done.decisions if decision.outcome is Outcome.LEFT}
        if done is not None
        else {}
    )
    return {key: reasons[key] for key in _not_offered(reasons, state)}


def find_unknown(pod: Pod, state: State, budget: Budget | None = None) -> dict[str, str]:
    """Find what a pod without a node asks for and no table, node or class has: by name, the one that is likely meant, or ""."""
    spec = pod.spec
    if spec.node_name or pod.is_done or pod.metadata.deletion_timestamp or spec.scheduling_gates:
        return {}
    if not state.confirmed or state.unseen or not state.fleet.nodes:
        return {}
    amounts: dict[str, Quantity] = {}
    for container in spec.all_containers:
        amounts |= container.resources.requests | container.resources.limits
    statuses = [node.status for node in state.fleet.nodes.values()]
    found: dict[str, str] = {}
    for key, amount in amounts.items():
        if not is_extended(key) or amount.nano <= 0 or state.configuration.resource(key) or state.offers(key):
            continue
        if any(key in status.allocatable or key in status.capacity for status in statuses):
            continue  # its plugin may be starting
        if len(found) == MOST:
            break
        if budget is not None:
            budget.charge(_COMPARED + len(statuses))
        found[key] = suggest_resource(key, state)
    return found


def why_unknown(meant: str) -> str:
    return f"did you mean {meant}?" if meant else "no DeviceClass serves it"


def _translate_again(pod: Pod, state: State, budget: Budget | None = None) -> Verdict | None:
    """Translate a pod that waits as it was written; None of another, and where the fleet is not known for certain."""
    metadata = pod.metadata
    refused = any(
        condition.type == "PodScheduled" and condition.reason == "Unschedulable" for condition in pod.status.conditions
    )
    if not refused or pod.spec.node_name or pod.is_done or metadata.deletion_timestamp or pod.spec.scheduling_gates:
        return None
    if names.ORIGINAL in metadata.annotations or not state.confirmed or state.unseen:
        return None
    namespace = metadata.namespace or "default"
    if mode_of(state, workload(namespace, known_at_admission(pod))) is not Mode.ENFORCE:
        return None
    return translate(builtins(pod), state, namespace=namespace, budget=budget)


def _not_offered(keys: Iterable[str], state: State) -> tuple[str, ...]:
    return tuple([key for key in dict.fromkeys(keys) if state.configuration.resource(key) and not state.offers(key)])
