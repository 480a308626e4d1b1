"""Remembers verdicts on pods, so that the review of another pod of the same workload costs little.

`admission_review.decode_pod` decodes all that a decision can read of a pod, so two pods with equal decoded parts get equal verdicts on one state.
The key of a verdict is the encoded parts. Values that no decision reads are masked in the key: names of pods, amounts such as `memory`, and
labels, annotations and variables that no dialect knows. `_verdict_on` writes such values of the new pod into the verdict, and signs it again.

On a later state, a verdict counts only if that state differs in nothing that translations read, and if `judge_pod` returns the same verdict on
the remembered pod. Refusals and verdicts without enough time are not remembered. A pod is remembered when its key comes the second time: most
keys come once, and an entry takes memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from dra import step_limits
from dra.cache import Cache
from dra.pointer import escape
from webhook import names
from webhook.admission import admission_review as reviews
from webhook.admission.admission_review import ResourceParts
from webhook.admission.decide import ReviewedPod, judge_pod, translate_and_judge
from webhook.claims import template
from webhook.dialects import Position
from webhook.state import State
from webhook.translate import HABANA, QUEUE, Operation, PodVerdict

if TYPE_CHECKING:
    from dra.budget import Budget
    from dra.wire import Json
    from webhook.admission.admission_review import PodParts

_Amounts = Mapping[str, msgspec.Raw]  # by resource

MAX_BYTES: Final = 32 << 20
# What an entry weighs: bytes for each byte of its key, and a fixed part. So there are at most 2,048 entries.
_PER_KEY_BYTE, _PER_ENTRY = 12, 16 << 10
# Hashes of keys that came once, and what one weighs.
_SEEN_BYTES, _PER_HASH = 2 << 20, 128
# Amounts of these resources are masked, unless a dialect, a DeviceClass or the choice of a node reads them.
_PLAIN_RESOURCES: Final = frozenset(("cpu", "memory", "ephemeral-storage"))
_IS_AMOUNT = re.compile(rb'"\d{1,15}(?:\.\d{1,9})?(?:[numkMGTPE]|[KMGTPE]i)?"|[1-9]\d{0,14}').fullmatch
_MAX_NAMES = 4_096  # names of labels, annotations and variables that are cached
_LONGEST_NAME = 253 + 1 + 63  # the API server refuses longer ones
_ZERO = msgspec.Raw(b"0")
# A label and a variable that decisions read, although no dialect knows them.
_READ: Final = frozenset((QUEUE, HABANA))
_OURS: Final = frozenset(names.ANNOTATIONS)
_ANNOTATIONS = "/metadata/annotations"
_ORIGINAL, _TEMPLATES = (f"{_ANNOTATIONS}/{escape(name)}" for name in (names.ORIGINAL, names.TEMPLATES))
# The fields of a state that translations do not read. `judge_pod` reads them, and `existing` covers the templates.
JUDGED: Final = frozenset(("stock", "templates", "template_owners", "memo", "namespaces"))
_TRANSLATED: Final = tuple([field for field in State.__struct_fields__ if field not in JUDGED])
_encode = msgspec.json.Encoder().encode


class _Entry(msgspec.Struct):
    """The verdict on a pod."""

    candidate: ReviewedPod
    translated: PodVerdict  # before `judge_pod`
    verdict: PodVerdict
    existing: frozenset[str]  # the templates of the verdict that exist
    number: int  # of the latest state with this verdict


class _Reading(NamedTuple):
    """The key of a pod, and its amounts by the path of a container's limits or requests."""

    key: tuple[str, bytes]
    amounts: dict[str, _Amounts]


class Replicas:
    """The verdicts of one process on earlier pods."""

    def __init__(self) -> None:
        self._entries: Cache[_Entry] = Cache(MAX_BYTES)
        self._seen: Cache[bool] = Cache(_SEEN_BYTES)
        self._state: State | None = None
        self._number = 0  # of this state
        # What is masked on this state. `_is_known` caches by position which names decisions read.
        self._masked_resources: frozenset[str] = frozenset()
        self._offered: frozenset[str] = frozenset()  # resources that device plugins or DeviceClasses offer
        self._masks_texts = False
        self._is_known: dict[Position, dict[str, bool]] = {}

    def clear(self) -> None:
        """Forget all verdicts."""
        self._state = None

    def decide(self, parts: PodParts, candidate: ReviewedPod, state: State, budget: Budget) -> PodVerdict:
        """Return a remembered verdict on a pod, or else that of `decide_pod`. The pod of `candidate` may have its metadata only."""
        if state is not self._state:
            self._follow(state)
        text = _encode(parts)
        # Claims for CPUs depend on the stock, which may change while everything else that translations read stays the same.
        reading = None if state.configuration.claims_cpus else self._read(parts, candidate, state)
        entry = self._entries.get(reading.key) if reading else None
        if reading and entry and (entry.number == self._number or self._holds(entry, state, budget)):
            return _verdict_on(candidate, reading, entry, state)
        candidate = candidate._replace(pod=reviews.read(text))
        translated, verdict = translate_and_judge(candidate, state, budget)
        if reading and not (verdict.refusals or verdict.is_undecided or verdict.is_late):
            key = reading.key
            if self._seen.get(hash(key)):
                existing = _existing_templates(translated, candidate.namespace, state)
                entry = _Entry(candidate, translated, verdict, existing, self._number)
                self._entries.put(key, entry, _PER_ENTRY + _PER_KEY_BYTE * len(key[1]))
            else:
                self._seen.put(hash(key), True, _PER_HASH)
        return verdict

    def _follow(self, state: State) -> None:
        """Continue with a new state. Forget all verdicts if the state differs in what translations read."""
        before, self._state = self._state, state
        self._number += 1
        if before is not None and all(getattr(before, field) is getattr(state, field) for field in _TRANSLATED):
            return
        self._entries.clear()
        self._seen.clear()
        configuration, fleet = state.configuration, state.fleet
        self._is_known = {position: {} for position in (Position.LABEL, Position.ANNOTATION, Position.ENV)}
        # A partial roll-out chooses pods without a controller by their names.
        self._masks_texts = configuration.file.canary >= 100
        targets = [options.host_targets() for options in configuration.options.values()]
        unread = _PLAIN_RESOURCES.difference(fleet.extended, *targets)
        self._masked_resources = frozenset([name for name in unread if not configuration.resource(name)])
        offered = set().union(fleet.handed_out_anywhere, fleet.extended)
        if state.prospects is not None:
            offered.update(*[node.status.allocatable for node in state.prospects.nodes.values()])
        self._offered = frozenset(offered - _PLAIN_RESOURCES)

    def _holds(self, entry: _Entry, state: State, budget: Budget) -> bool:
        """Judge a remembered pod on a new state: whether its verdict is the same."""
        candidate, translated = entry.candidate, entry.translated
        if _existing_templates(translated, candidate.namespace, state) != entry.existing:
            return False
        judge_budget = budget.separate(step_limits.REVIEW)
        verdict = judge_pod(candidate, translated, state, judge_budget)
        if verdict != entry.verdict or judge_budget.is_late:
            return False
        entry.number = self._number
        return True

    def _read(self, parts: PodParts, candidate: ReviewedPod, state: State) -> _Reading | None:
        """Return the key of a pod and its amounts, and mask the parts; None if the pod cannot be remembered."""
        metadata, spec = parts.metadata, parts.spec
        if not metadata or not spec:
            return None
        annotations, name, prefix = (
            metadata.get("annotations", {}),
            metadata.get("name"),
            metadata.get("generateName", ""),
        )
        full_name = f"Pod/{candidate.namespace}/{name or f'{prefix}*'}"
        # The record of an earlier round belongs to one pod.
        if not candidate.namespace or candidate.name != full_name or not _OURS.isdisjoint(annotations):
            return None
        amounts: dict[str, _Amounts] = {}
        maskable: list[tuple[ResourceParts, str, _Amounts]] = []
        for list_, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
            for index, container in enumerate(containers or ()):
                resources = container.resources or ResourceParts()
                for part in ("limits", "requests"):
                    if of_part := getattr(resources, part):
                        amounts[f"/spec/{list_}/{index}/resources/{part}"] = of_part
                        maskable.append((resources, part, of_part))
                for variable in container.env or () if self._masks_texts else ():
                    if variable.value and not self._knows(Position.ENV, variable.name or "", state):
                        variable.value = ""
        if self._masks_texts:
            labels = metadata.get("labels", {})
            masked: dict[str, Json] = {"name": bool(name), "generateName": bool(prefix)}
            masked["labels"] = {
                label: value if self._knows(Position.LABEL, label, state) else "" for label, value in labels.items()
            }
            if annotations:  # the size of all annotations is limited
                masked["annotations"] = {
                    key: value
                    if self._knows(Position.ANNOTATION, key, state)
                    else len(value.encode("utf-8", "replace"))
                    for key, value in annotations.items()
                }
            parts.metadata = {**metadata, **masked}  # type: ignore[assignment]  # it is only encoded
        # A node that offers a resource of the pod, or serves it by a class, may have to have enough of the others.
        if all(map(self._offered.isdisjoint, amounts.values())):
            for resources, part, of_part in maskable:
                setattr(resources, part, {name: self._masked_amount(name, value) for name, value in of_part.items()})
        return _Reading((candidate.namespace, _encode(parts)), amounts)

    def _masked_amount(self, name: str, amount: msgspec.Raw) -> msgspec.Raw:
        return _ZERO if name in self._masked_resources and _IS_AMOUNT(amount) else amount

    def _knows(self, position: Position, name: str, state: State) -> bool:
        """Return whether decisions read a label, annotation or variable."""
        known = self._is_known[position].get(name)
        if known is None:
            is_special = name in _READ or name.startswith(names.DOMAIN) or len(name) > _LONGEST_NAME
            known = is_special or bool(state.configuration.word(position, name))
            if len(self._is_known[position]) < _MAX_NAMES:
                self._is_known[position][name] = known
        return known


def _existing_templates(verdict: PodVerdict, namespace: str, state: State) -> frozenset[str]:
    return frozenset([name for name in verdict.templates if (namespace, name) in state.templates])


def _verdict_on(candidate: ReviewedPod, reading: _Reading, entry: _Entry, state: State) -> PodVerdict:
    """Return the verdict on a pod with the key of a remembered pod: with its amounts, its name, and a signature for it."""
    verdict, before, namespace = entry.verdict, entry.candidate, candidate.namespace

    def sign(original: Json) -> str:
        name = template.identify_raw(candidate.pod, namespace).name
        bearer = template.identify_raw(before.pod, namespace, str(original))._replace(name=name)
        return template.sign(verdict.templates, state.keys[0], bearer)

    operations: list[Operation] = []
    original: Json = ""
    for operation in verdict.operations:
        path, written = str(operation["path"]), operation.get("value")
        value = written
        if path in reading.amounts and isinstance(written, dict):
            value = {name: msgspec.json.decode(reading.amounts[path][name]) for name in written}
        elif path == _ANNOTATIONS and isinstance(written, dict) and names.TEMPLATES in written:
            value = {**written, names.TEMPLATES: sign(written[names.ORIGINAL])}
        elif path == _ORIGINAL:
            original = written
        elif path == _TEMPLATES:
            value = sign(original)
        operations.append(operation if value is written else {**operation, "value": value})
    decisions = verdict.decisions
    if candidate.name != before.name:
        decisions = tuple([replace(decision, object=candidate.name) for decision in decisions])
    return replace(verdict, operations=tuple(operations), decisions=decisions)
