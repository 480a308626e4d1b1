"""Pods that came in as they were written, while the webhook or what it looks at was away, and that no device plugin can serve. Pure.

No scheduler ever places such a pod, and the resources of a pod cannot change: another pod has to take its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.objects import OwnerReference
from dra.wire import builtins
from webhook import names
from webhook.admission.template_lifecycle import known_at_admission
from webhook.dialects import Action
from webhook.state import Mode, mode_of, workload
from webhook.translate import translate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.budget import Budget
    from dra.objects import Pod
    from webhook.state import State
    from webhook.translate import Verdict

_TRANSLATED = (Action.TRANSLATED, Action.APPROXIMATED)
_SHOWN = 3


class MissedPod(msgspec.Struct, frozen=True):
    """The names that no node hands out and for which the pod has no claim, and the controller that would make another pod."""

    keys: tuple[str, ...]
    owner: OwnerReference | None

    @property
    def message(self) -> str:
        """What is wrong."""
        more = ", …" if len(self.keys) > _SHOWN else ""
        return f"no node has {', '.join(self.keys[:_SHOWN])}{more}, and the pod was created without a claim for it"

    @property
    def remedy(self) -> str:
        """What its author can do."""
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
    lacking = _not_offered((one.key for one in done.decisions if one.action in _TRANSLATED), state)
    owner = next((one for one in pod.metadata.owner_references if one.controller), None)
    return MissedPod(lacking, owner) if lacking else None


def find_unserved(pod: Pod, state: State, budget: Budget | None = None) -> dict[str, str]:
    """Say, by key, why no claim can be made for what a refused pod waits for and nothing offers: an administrator's to fix."""
    done = _translate_again(pod, state, budget)
    reasons = {one.key: one.detail for one in done.decisions if one.action is Action.LEFT} if done is not None else {}
    return {key: reasons[key] for key in _not_offered(reasons, state)}


def _translate_again(pod: Pod, state: State, budget: Budget | None = None) -> Verdict | None:
    """Translate a pod that waits as it was written; None of another, and where the fleet is not known for certain."""
    metadata = pod.metadata
    refused = any(one.type == "PodScheduled" and one.reason == "Unschedulable" for one in pod.status.conditions)
    if not refused or pod.spec.node_name or pod.is_done or metadata.deletion_timestamp or pod.spec.scheduling_gates:
        return None
    if names.ORIGINAL in metadata.annotations or not state.confirmed or state.unseen:
        return None
    namespace = metadata.namespace or "default"
    if mode_of(state, workload(namespace, known_at_admission(pod))) is not Mode.ENFORCE:
        return None
    return translate(builtins(pod), state, namespace=namespace, budget=budget)


def _not_offered(keys: Iterable[str], state: State) -> tuple[str, ...]:
    """Choose the resources that nothing in the fleet offers."""
    return tuple([key for key in dict.fromkeys(keys) if state.configuration.resource(key) and not state.offers(key)])
