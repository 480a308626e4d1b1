"""The translator: a raw pod and what is declared and known, to what shall be changed on it. No clock, no client.

    words on containers ─▶ whose they are ─▶ the dialect's rule ─▶ demands ─▶ claims ─▶ who sees them ─▶ JSON Patch
      (pod_view)            (owner)           (case, dialects)      (demand)    (maker)   (sharing)        (rewrite)

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
from webhook import names
from webhook.claims import workshop
from webhook.translate.case import cases
from webhook.translate.checks import Context, judge
from webhook.translate.owner import owners
from webhook.translate.pod_view import look, mapping
from webhook.translate.record import Original, original
from webhook.translate.report import Decision, Report
from webhook.translate.rewrite import rewrite, stripped

if TYPE_CHECKING:
    from webhook.state import State
    from webhook.translate.pod_view import PodView, Word


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


def translate(pod: Json, state: State, *, namespace: str, path: str = "", seal: bool = False) -> Translation:
    """Translate a pod, or the pod template that stands at `path` of a workload: the same words for whoever asks.

    `seal` writes the templates annotation, with the state's first key; offline nobody could verify it. A template is also given
    the tolerations that ExtendedResourceToleration adds to pods before a webhook sees them, which it can't once the keys are gone.
    """
    configuration = state.configuration
    view = look(pod, configuration)
    if not view.speaks or view.bound or view.passed_by:
        return NOTHING
    report = Report(f"Pod/{namespace or 'default'}/{view.name}", configuration.file.approximations)
    record = _believed(view)
    fresh, again = _fresh(view, record, report)
    whose = owners(view, configuration)
    if whose.refusal and any(fresh.values()):
        report.refused("", "", whose.refusal)
    context = Context(
        pod=view,
        configuration=configuration,
        fleet=state.fleet,
        features=state.features,
        workshop=workshop(configuration, state.fleet),
        scheduler=view.scheduler or "default-scheduler",
        quota=state.quotas.get(namespace, frozenset()),
        recorded=record.containers,
    )
    spoken = {slot.order: (slot, fresh[slot.order]) for slot in view.slots if fresh[slot.order]}
    verdict = judge(cases(spoken, whose, configuration, state.fleet), context)
    report.add(verdict, whose)
    if report.refusals:
        return Translation(
            decisions=tuple(report.decisions), refusals=tuple(report.refusals), warnings=tuple(report.warnings)
        )
    key = state.keys[0] if seal and state.keys else None
    change = rewrite(view, verdict, report, again=again, record=record, path=path, namespace=namespace, key=key)
    return Translation(
        decisions=tuple(report.decisions),
        operations=tuple(change.operations),
        templates=change.templates,
        warnings=tuple(report.warnings),
    )


def replay(pod: dict[str, Json], old: dict[str, Json]) -> Translation:
    """On an update of a pod that was translated, take away again what the record says was taken, and nothing else.

    Who applies the same manifest twice asks for the old keys and the old scheduler again; the API server would refuse
    that as a change of what can't be changed. A number that differs from the record is not touched: that is a change.
    """
    record = original(mapping(mapping(old.get("metadata")).get("annotations")))
    return Translation(operations=tuple(stripped(pod, record)))


def _believed(pod: PodView) -> Original:
    """Read the record of an earlier round, as far as its containers have a claim of ours to show for it."""
    record = original(pod.annotations)
    if record.empty:
        return record
    claimed = {slot.name for slot in pod.slots if any(name.startswith(names.PREFIX) for name in slot.claims)}
    kept = {name: keys for name, keys in record.containers.items() if name in claimed}
    if not kept:
        return Original()
    return msgspec.structs.replace(record, containers=kept)


def _fresh(
    pod: PodView, record: Original, report: Report
) -> tuple[dict[int, tuple[Word, ...]], dict[str, tuple[str, ...]]]:
    """Tell words not seen before from those that another webhook put back: by container order, and by name."""
    fresh: dict[int, tuple[Word, ...]] = {}
    again: dict[str, tuple[str, ...]] = {}
    for slot in pod.slots:
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


__all__ = ["NOTHING", "Decision", "Translation", "replay", "translate"]
