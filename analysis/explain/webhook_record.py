"""The webhook's decisions about a pod, from the record on the pod; without a record, the decisions that the webhook would make now.

Every author of a pod may write annotations, so the story states whether the record's signature is valid. Without the signing keys the
record is unchecked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from analysis.explain.stories import Trust, WebhookStory
from analysis.loading import serves_node
from dra.raw import decoded, inside, mapping, members
from webhook import names
from webhook.admission import decide_object
from webhook.claims import template
from webhook.dialects import Outcome
from webhook.translate import Decision, verified_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analysis.loading import Object, Reading
    from dra.objects import Pod

_LONGEST = 4096  # maximum characters of a string in a record
_MAX = 256  # maximum strings of a record


def webhook_story(pod: Pod, reading: Reading) -> WebhookStory:
    """Return the decisions from the record on a pod, or those that the webhook would make now."""
    annotations = pod.metadata.annotations
    raw = reading.raw.get(pod.metadata.key)
    recorded = names.ORIGINAL in annotations
    if not recorded and raw is None:
        return WebhookStory()
    if not recorded:
        return decide_now(raw or {}, reading)

    removed, scheduler = _removed(annotations)
    trust = Trust.UNCHECKED
    if reading.signing_keys:
        bearer = template.identify(pod, pod.metadata.namespace or "default")
        trust = Trust.VERIFIED if verified_record(annotations, bearer, reading.signing_keys) else Trust.FORGED
    # Parts of a record that are not decisions are left out.
    entries = mapping(decoded(pod.metadata.annotations.get(names.DECISION))).get("decisions")
    decisions: list[Decision] = []
    for member in members(entries)[:_MAX]:
        words = mapping(member)
        try:
            outcome = Outcome(_text(words.get("outcome")))
        except ValueError:
            continue
        container, dialect, key, detail = (
            _text(words.get(name) or "") for name in ("container", "dialect", "key", "detail")
        )
        decisions.append(Decision(f"Pod/{pod.metadata.key}", container, dialect, key, outcome, detail))
    if raw is not None and trust is not Trust.FORGED:
        # The record does not contain the evidence. Decide the original pod again, to show the current evidence.
        bases: dict[tuple[str, str], str] = {}
        for decision in decide_now(_restored(raw, removed, scheduler), reading).decisions:
            again = (
                f"the webhook would not change such a pod: {decision.reason}"
                if decision.outcome is Outcome.LEFT
                else decision.basis
            )
            bases.setdefault((decision.container, decision.key), again)
        decisions = [
            replace(decision, basis=bases.get((decision.container, decision.key), "")) for decision in decisions
        ]
    return WebhookStory(
        trust=trust,
        removed_keys=removed,
        scheduler_name=_text(scheduler or ""),
        decisions=tuple(decisions),
    )


def decide_now(obj: Object, reading: Reading) -> WebhookStory:
    """Return the decisions that the webhook would make about an object now."""
    if serves_node(obj):  # a device plugin or driver: its node selectors and variables request no device
        return WebhookStory(predicted=True)
    verdict = decide_object(obj, reading.state)
    return WebhookStory(decisions=verdict.decisions, refusals=verdict.refusals, predicted=True)


def as_written(raw: dict[str, Any]) -> dict[str, Any]:
    """Restore a pod to what its author wrote, from the record on it; without a record, return the pod."""
    annotations = inside(raw, "metadata", "annotations")
    return _restored(raw, *_removed(annotations)) if names.ORIGINAL in annotations else raw


def _removed(annotations: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], Any]:
    """Return the keys that were removed from each container, and the scheduler that the author named."""
    original = mapping(decoded(annotations.get(names.ORIGINAL)))
    removed: dict[str, dict[str, Any]] = {}
    for container, words in list(mapping(original.get("containers")).items())[:_MAX]:
        removed[_text(container)] = {_text(key): _text(value) for key, value in mapping(words).items()}
    return removed, original.get("schedulerName")


def _restored(raw: dict[str, Any], removed: dict[str, dict[str, Any]], scheduler: Any) -> dict[str, Any]:
    """Add the keys that the webhook removed, and remove the fields that the webhook and the scheduler wrote."""
    metadata = {**mapping(raw.get("metadata"))}
    written = mapping(metadata.get("annotations"))
    remaining = {name: value for name, value in written.items() if name not in names.ANNOTATIONS}
    listed = mapping(decoded(written.get(names.ORIGINAL))).get("annotations")
    annotations = frozenset(map(_text, members(listed)))
    for words in removed.values():
        remaining |= {name: value for name, value in words.items() if name in annotations}
    metadata["annotations"] = remaining
    spec = {**mapping(raw.get("spec"))}
    for field in ("resourceClaims", "nodeName"):  # fields that the author did not write
        spec.pop(field, None)
    if scheduler:
        spec["schedulerName"] = scheduler
    for part in ("initContainers", "containers"):
        listed = spec.get(part)
        if not isinstance(listed, list):
            continue
        spec[part] = restored = [*listed]
        for index, item in enumerate(listed):
            container = mapping(item)
            words = removed.get(str(container.get("name")), {})
            if words := {name: value for name, value in words.items() if name not in annotations}:
                resources = mapping(container.get("resources"))
                remaining = {name: value for name, value in resources.items() if name != "claims"}
                remaining["limits"] = {**mapping(resources.get("limits")), **words}
                restored[index] = {**container, "resources": remaining}
    return {**raw, "metadata": metadata, "spec": spec}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value[:_LONGEST]
    return msgspec.json.encode(value).decode()[:_LONGEST]
