"""What the gate made of a pod, by the record on it; or what it would make of it, where nothing is written. Pure.

Anybody may write annotations. A record is shown with what stands behind it: the seal, if its keys were given, and nothing otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from allocator.pods import total
from cli.explain.stories import GateWords, Trust
from cli.survey import state_of
from webhook import names
from webhook.admission import decide_object
from webhook.claims import template
from webhook.dialects import Action
from webhook.translate import Decision, is_genuine, mapping

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from cli.explain.scene import Scene
    from dra.objects import Pod
    from webhook.state import Configuration, State

_LONGEST = 4096  # characters of one word of a record
_MOST = 256  # words of a record


def words_on(pod: Pod, scene: Scene, configuration: Configuration) -> GateWords:
    """Read the record on a pod, or say what the gate would make of it now."""
    annotations = pod.metadata.annotations
    if names.ORIGINAL in annotations:
        return _recorded(pod, scene, configuration)
    raw = scene.raw.get(pod.metadata.key)
    if raw is None:
        return GateWords()
    done = decide_object(raw, _state_of(scene, configuration))
    return GateWords(
        decisions=done.decisions,
        refusals=done.refusals,
        foretold=True,
    )


def _state_of(scene: Scene, configuration: Configuration) -> State:
    """Make the state that the gate would decide on."""
    state, _ = state_of(scene.gathered, configuration, scene.features)
    uses = total(scene.pods.values()) if configuration.file.mixed and scene.knows_pods else None
    return msgspec.structs.replace(state, uses=uses)


def _recorded(pod: Pod, scene: Scene, configuration: Configuration) -> GateWords:
    annotations = pod.metadata.annotations
    original = _mapping(annotations.get(names.ORIGINAL))
    decision = _mapping(annotations.get(names.DECISION))
    scheduler = original.get("schedulerName")
    trust = _trust(pod, scene)
    removed = _removed(original)
    decisions = tuple(_decisions(decision, pod))
    raw = scene.raw.get(pod.metadata.key)
    if raw is not None and trust is not Trust.FORGED:
        decisions = _with_evidence(decisions, _restored(raw, removed, scheduler), scene, configuration)
    return GateWords(
        trust=trust,
        removed=removed,
        scheduler_name=_text(scheduler or ""),
        decisions=decisions,
    )


def _with_evidence(
    decisions: tuple[Decision, ...], before: dict[str, Any], scene: Scene, configuration: Configuration
) -> tuple[Decision, ...]:
    """Add to what was decided once on what the same would rest now: the record does not say it."""
    bases: dict[tuple[str, str], str] = {}
    now = decide_object(before, _state_of(scene, configuration))
    for one in now.decisions:
        place = one.container, one.key
        bases.setdefault(place, one.basis)
    told: list[Decision] = []
    for one in decisions:
        place = one.container, one.key
        basis = bases.get(place, "")
        told.append(msgspec.structs.replace(one, basis=basis))
    return tuple(told)


def _restored(raw: dict[str, Any], removed: dict[str, dict[str, Any]], scheduler: Any) -> dict[str, Any]:
    """The pod with the words back that the gate took, and without what it wrote."""
    metadata = {**mapping(raw.get("metadata"))}
    annotations = mapping(metadata.get("annotations"))
    metadata["annotations"] = _without(annotations, names.ANNOTATIONS)
    spec = {**mapping(raw.get("spec"))}
    spec.pop("resourceClaims", None)
    if scheduler:
        spec["schedulerName"] = scheduler
    for part in ("initContainers", "containers"):
        listed = spec.get(part)
        if isinstance(listed, list):
            restored = [_with_words(one, removed) for one in listed]
            spec[part] = restored
    pod = {**raw}
    pod["metadata"] = metadata
    pod["spec"] = spec
    return pod


def _with_words(raw: Any, removed: dict[str, dict[str, Any]]) -> Any:
    container = mapping(raw)
    words = removed.get(str(container.get("name")))
    if not words:
        return raw
    resources = mapping(container.get("resources"))
    limits = mapping(resources.get("limits"))
    restored = _without(resources, ("claims",))
    restored["limits"] = {**limits, **words}
    return {**container, "resources": restored}


def _without(words: dict[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in words.items() if name not in left_out}


def _removed(original: dict[str, Any]) -> dict[str, dict[str, Any]]:
    removed: dict[str, dict[str, Any]] = {}
    containers = mapping(original.get("containers"))
    for container, words in list(containers.items())[:_MOST]:
        said = mapping(words)
        removed[_text(container)] = {_text(key): _text(value) for key, value in said.items()}
    return removed


def _decisions(decision: dict[str, Any], pod: Pod) -> Iterator[Decision]:
    told = decision.get("decisions")
    if not isinstance(told, list):
        return
    for one in told[:_MOST]:
        read = _decision(one, pod)
        if read is not None:
            yield read


def _trust(pod: Pod, scene: Scene) -> Trust:
    if not scene.seals:
        return Trust.UNCHECKED
    whose = template.bearer(pod, pod.metadata.namespace or "default")
    genuine = is_genuine(pod.metadata.annotations, whose, scene.seals)
    return Trust.VERIFIED if genuine else Trust.FORGED


def _decision(one: Any, pod: Pod) -> Decision | None:
    words = mapping(one)
    try:
        action = Action(_text(words.get("action")))
    except ValueError:
        return None
    container, dialect, key, detail = (
        _text(words.get(name) or "") for name in ("container", "dialect", "key", "detail")
    )
    return Decision(f"Pod/{pod.metadata.key}", container, dialect, key, action, detail)


def _mapping(text: str | None) -> dict[str, Any]:
    try:
        return mapping(msgspec.json.decode(text or "{}"))
    except (msgspec.DecodeError, RecursionError):
        return {}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value[:_LONGEST]
    return msgspec.json.encode(value).decode()[:_LONGEST]
