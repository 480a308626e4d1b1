"""The translator: a raw pod and what is declared and known, to what shall be changed on it. No clock, no client.

    words on containers ─▶ whose they are ─▶ the dialect's rule ─▶ demands ─▶ claims ─▶ who sees them ─▶ JSON Patch
      (reading)             (ownership)       (cases, dialects)     (demand)    (claims)   (sharing)        (rewrite)

A container is translated with all its keys or not at all. What stands in the way of one (no class, a scheduler that
would misread the claim, a quota that would lose its hold, an approximation the administrator does not want) leaves it as
it was, with the reason; what the legacy system or the API server would have refused is refused here, and then nothing on
the pod is changed. What was removed is recorded on the pod, so that doing it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from dra.wire import Json
from webhook.state import Features
from webhook.translate import record as marker
from webhook.translate.case import cases
from webhook.translate.checks import Context, judge
from webhook.translate.owner import owners
from webhook.translate.pod_view import mapping, slots
from webhook.translate.report import Decision, Report
from webhook.translate.rewrite import rewrite, stripped

if TYPE_CHECKING:
    from webhook.state import Configuration, Inventory, State
    from webhook.translate.pod_view import Slot, Word
    from webhook.translate.record import Original


class Translation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that translating one pod comes to."""

    decisions: tuple[Decision, ...] = ()
    operations: tuple[dict[str, Json], ...] = ()
    # Name of a ResourceClaimTemplate: its spec.
    templates: Mapping[str, Json] = {}
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.operations)


NOTHING = Translation()


def translate(
    pod: dict[str, Json],
    *,
    namespace: str,
    config: Configuration,
    fleet: Inventory,
    features: Features = Features(),  # noqa: B008 - a frozen value
    quota: frozenset[str] = frozenset(),
    key: bytes | None = None,
    object_name: str = "",
    path: str = "",
    tolerate: bool = False,
) -> Translation:
    """Translate a pod, or the pod template that stands at `path` of a workload.

    `quota` holds the keys that ResourceQuotas of the namespace limit (as in `spec.hard`). `key` seals the templates
    annotation; without one, offline, it is not written. `tolerate` adds the tolerations that ExtendedResourceToleration
    adds to pods before a webhook sees them, which it can't once the keys are gone from a template.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return NOTHING
    found = slots(spec, config)
    if not any(slot.words for slot in found) or _out_of_scope(pod):
        return NOTHING
    report = Report(object_name or _name(pod, namespace), config.file.approximations)
    record = _believed(pod, found)
    fresh, again = _fresh(found, record, report)
    whose = owners(pod, found, config)
    if whose.refusal and any(fresh.values()):
        report.refused("", "", whose.refusal)
    context = Context(
        pod=pod, configuration=config, fleet=fleet, features=features, quota=quota, recorded=record.containers
    )
    spoken = {slot.order: (slot, fresh[slot.order]) for slot in found if fresh[slot.order]}
    verdict = judge(cases(spoken, whose, config, fleet), found, context)
    report.add(verdict, whose)
    if report.refusals:
        return Translation(decisions=report.decisions, refusals=report.refusals, warnings=report.warnings)
    change = rewrite(pod, verdict, found, report, again=again, record=record, path=path, key=key, tolerate=tolerate)
    return Translation(
        decisions=report.decisions,
        operations=tuple(change.operations),
        templates=change.templates,
        warnings=report.warnings,
    )


def translate_in(
    state: State, pod: dict[str, Json], namespace: str, *, path: str = "", key: bytes | None = None
) -> Translation:
    """Translate a pod, or the pod template at `path`, as the world is: the same words for whoever asks."""
    return translate(
        pod,
        namespace=namespace,
        config=state.configuration,
        fleet=state.fleet,
        features=state.features,
        quota=state.quotas.get(namespace, frozenset()),
        key=key,
        path=path,
    )


def replay(pod: dict[str, Json], old: dict[str, Json]) -> Translation:
    """On an update of a pod that was translated, take away again what the record says was taken, and nothing else.

    Who applies the same manifest twice asks for the old keys and the old scheduler again; the API server would refuse
    that as a change of what can't be changed. A number that differs from the record is not touched: that is a change.
    """
    record = marker.original(mapping(mapping(old.get("metadata")).get("annotations")))
    return Translation(operations=tuple(stripped(pod, record)))


def _believed(pod: dict[str, Json], found: list[Slot]) -> Original:
    """Read the record of an earlier round, as far as its containers have a claim of ours to show for it."""
    record = marker.original(mapping(mapping(pod.get("metadata")).get("annotations")))
    if record.empty:
        return record
    claimed = {slot.name for slot in found if _has_our_claim(slot)}
    kept = {name: keys for name, keys in record.containers.items() if name in claimed}
    if not kept:
        return marker.Original()
    return msgspec.structs.replace(record, containers=kept)


def _has_our_claim(slot: Slot) -> bool:
    claims = mapping(slot.raw.get("resources")).get("claims")
    return isinstance(claims, list) and any(
        str(mapping(claim).get("name", "")).startswith(marker.CLAIM_PREFIX) for claim in claims
    )


def _fresh(
    found: list[Slot], record: Original, report: Report
) -> tuple[dict[int, tuple[Word, ...]], dict[str, tuple[str, ...]]]:
    """Tell words not seen before from those that another webhook put back: by container order, and by name."""
    fresh: dict[int, tuple[Word, ...]] = {}
    again: dict[str, tuple[str, ...]] = {}
    for slot in found:
        removed = record.containers.get(slot.name)
        if not removed:
            fresh[slot.order] = slot.words
            continue
        back = tuple(word for word in slot.words if word.key in removed)
        fresh[slot.order] = tuple(word for word in slot.words if word.key not in removed)
        for word in back:
            report.back(slot.name, word.key, word.raw, removed[word.key])
        if back:
            again[slot.name] = tuple(word.key for word in back)
    return fresh, again


def _name(pod: dict[str, Json], namespace: str) -> str:
    metadata = mapping(pod.get("metadata"))
    name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
    return f"Pod/{namespace or 'default'}/{name}"


def _out_of_scope(pod: dict[str, Json]) -> bool:
    """Mirror pods, pods that are bound already, and pods that ask to be skipped."""
    metadata = mapping(pod.get("metadata"))
    return bool(
        mapping(pod.get("spec")).get("nodeName")
        or "kubernetes.io/config.mirror" in mapping(metadata.get("annotations"))
        or mapping(metadata.get("labels")).get(marker.SKIP) == "true"
    )


__all__ = ["NOTHING", "Decision", "Translation", "replay", "translate", "translate_in"]
