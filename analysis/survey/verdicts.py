"""Evaluates workloads: the webhook's decisions, and the changes that a key needs before it can be translated.

The webhook first decides in the mode in force, on the cluster as it is. If a key stays or the object is refused, the webhook decides again in
mode `enforce`, on the cluster as it would be with all drivers and without device plugins. If a key still stays, it decides a third time with
the feature gates on. Only `until`, the remedy, the classes and the gates come from the second and third decision.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec
from msgspec.structs import asdict, replace

from analysis.check import why_stranded
from analysis.gitops import claims_in_values
from analysis.loading import Object, inside, is_pod
from analysis.requesting import classes_in, containers_in, has_claims, requests_devices
from analysis.survey.remedies import remedy_of
from dra import server
from dra.raw import mapping
from dra.texts import list_first
from dra.validation import gates
from webhook import names
from webhook.admission import decide_object
from webhook.dialects import ALTERNATIVES, CLAIMS, REPLACED, SHARES, Outcome, Position, Role, Served, assumed
from webhook.state import Mode, State, with_mode, workload
from webhook.translate import Decision, decides_outcome, outcome_of, pods_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from analysis.survey.families import Family
    from webhook.state import PodOwner
    from webhook.translate import PodVerdict

_MAX_SHAPES = 32  # pods of different shape in one workload whose owner could not be read
_OF_CLAIMS = (CLAIMS.gate, ALTERNATIVES.gate, SHARES.gate, server.EXTENDED)
# The metadata that decides about an object; with a canary, also the name of its controller.
_TELLING = ("namespace", "labels", "annotations")
# Members of a spec that are written after a pod is created.
_WRITTEN_LATER = ("nodeName", "ephemeralContainers")


class Key(Decision, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The decision about one key of one container ("" for the whole pod)."""

    object: str = ""  # not written: the key is listed with its workload
    line: int = 0  # in values of a chart


class MoveReason(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A reason why keys are not simply translated in mode `enforce`, and the number of its workloads. An administrator has to decide."""

    outcome: Outcome
    key: str
    detail: str
    remedy: str
    code: str
    keep_reason: str = ""
    until: str = ""
    workloads: int = 0
    pods: int = 0


_OF_REASON = ("outcome", "key", "detail", "remedy", "code", "keep_reason", "until")


class JudgedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluation of a workload. `classes` are the DeviceClasses that its claims would name."""

    keys: tuple[Key, ...]
    outcome: Outcome | None  # None for a workload with claims of its own and no keys
    potential_outcome: Outcome | None  # in mode `enforce`, if different
    reasons: frozenset[MoveReason]
    # The keys that stay with their device plugins.
    stays: frozenset[str]
    classes: frozenset[str]
    warnings: tuple[str, ...]
    # All feature gates that its claims would need, on or off.
    gates: frozenset[str]

    @classmethod
    def from_keys(
        cls, keys: tuple[Key, ...], *, classes: Iterable[str], warnings: Iterable[str], gates: Iterable[str]
    ) -> Self:
        """Evaluate a workload by its keys."""
        enforced = [key.enforced() for key in keys]
        outcome, potential = outcome_of(keys), outcome_of(enforced)
        deciding = filter(needs_decision, enforced)
        return cls(
            keys=keys,
            outcome=outcome,
            potential_outcome=potential if potential is not outcome else None,
            reasons=frozenset([MoveReason(**{name: getattr(key, name) for name in _OF_REASON}) for key in deciding]),
            stays=frozenset([key.key for key in enforced if decides_outcome(key) and stays_for_good(key)]),
            classes=frozenset(classes),
            warnings=tuple(dict.fromkeys(warnings)),
            gates=frozenset(gates),
        )


def with_all_drivers(state: State, *, shares: bool = True) -> State:
    """Return the same cluster in mode `enforce`, with all drivers and their classes, and without device plugins.

    With `shares`, a key that most nodes offer as replicas does not mean whole devices, even without the plugin.
    """
    fleet = state.fleet
    classes: dict[str, Served] = dict(fleet.classes)
    for target in state.configuration.targets.values():
        declared = state.configuration.file.classes.get(target.name, "")
        device_class = fleet.find_class(target, declared)
        if device_class is None or not device_class.devices:
            added = assumed(target, Served(name=device_class.name if device_class else declared))
            classes[added.name] = added
    shared_by_most = {
        key: nodes for key, nodes in fleet.shared.items() if 2 * len(nodes) > len(fleet.handed_out.get(key, ()))
    }
    ready = replace(
        fleet,
        known=True,
        handed_out={},
        handed_out_anywhere={},
        shared=shared_by_most if shares else {},
        installed=fleet.installed if shares else replace(fleet.installed, plugins=()),
        classes=classes,
    )
    return replace(with_mode(state, Mode.ENFORCE), fleet=ready, stock=None, prospects=None)


_Place = tuple[str, str, str]  # template, container, key


class MoveJudge:
    """Evaluates the workloads of a cluster, as it is now and as if all drivers were installed."""

    def __init__(self, state: State) -> None:
        self._now = state
        self._later = with_all_drivers(state)
        # The same with the gates on that claims need; None if they are on.
        features = state.features
        off = {gate: True for gate in _OF_CLAIMS if not features.enabled(gate)}
        on = replace(features, gates={**features.gates, **off})
        self._switched_on = replace(self._later, features=on) if off else None
        self._judged: dict[bytes, JudgedWorkload] = {}

    def judge_workload(self, family: Family) -> JudgedWorkload | None:
        """Evaluate a workload; return None if it never requested a device."""
        # Evaluate each shape once. Two pods of one owner have the same shape if their resources and placement are equal.
        shapes: dict[bytes, Object] = {}
        for number, shape in enumerate(family.shapes):
            if is_pod(shape):
                pod = self._as_created(shape)
                spec = inside(pod, "spec")
                asks = [(container.get("name"), container.get("resources")) for container in containers_in(pod)]
                where = spec.get("nodeSelector"), spec.get("affinity"), spec.get("schedulerName")
                owner = self._owner(inside(pod, "metadata"))
                shapes.setdefault(msgspec.json.encode((asks, where, owner)), pod)
            else:
                shapes[b"%d" % number] = shape
            if len(shapes) == _MAX_SHAPES:
                break
        judged = [self._shape(shape) for shape in shapes.values()]
        if not any(verdict.keys for verdict in judged):
            pods = [pod for shape in shapes.values() for pod in pods_in(shape)]
            names_claims = any(map(has_claims, pods)) or any(any(claims_in_values(shape)) for shape in shapes.values())
            return judged[0] if names_claims else None
        if len(judged) == 1:
            return judged[0]
        return JudgedWorkload.from_keys(
            tuple(dict.fromkeys(key for verdict in judged for key in verdict.keys)),
            classes=chain.from_iterable(verdict.classes for verdict in judged),
            warnings=chain.from_iterable(verdict.warnings for verdict in judged),
            gates=chain.from_iterable(verdict.gates for verdict in judged),
        )

    def _as_created(self, pod: Object) -> Object:
        """Remove what was written after the pod's creation: from a stored pod ephemeral containers, from a pod with a phase also its node."""
        metadata = inside(pod, "metadata")
        written: tuple[str, ...] = _WRITTEN_LATER[1:] if metadata.get("uid") else ()
        if inside(pod, "status").get("phase"):
            written = _WRITTEN_LATER
            rows = self._now.configuration.rows[Position.ANNOTATION]
            annotations = {
                name: value
                for name, value in inside(metadata, "annotations").items()
                if all(known.row.role is not Role.PLACED for known in rows.get(name, ()))
            }
            metadata = {**metadata, "annotations": annotations}
        spec = {name: value for name, value in inside(pod, "spec").items() if name not in written}
        return {**pod, "spec": spec, "metadata": metadata}

    def _shape(self, shape: Object) -> JudgedWorkload:
        """Evaluate one shape. Stored objects of a namespace that differ only in status and irrelevant metadata are evaluated once."""
        judged_by = dict(shape)
        judged_by.pop("status", None)
        metadata = mapping(shape.get("metadata"))
        if metadata.get("uid"):  # a server has checked its name
            judged_by["metadata"] = [*[metadata.get(name) for name in _TELLING], self._owner(metadata)]
        digest = blake2b(msgspec.json.encode(judged_by), digest_size=16).digest()
        verdict = self._judged.get(digest)
        if verdict is not None:
            return verdict
        now_decided = later = decide_object(shape, self._now)
        if now_decided.refusals or any(
            decision.outcome is Outcome.LEFT and decision.mode != Mode.OFF for decision in now_decided.decisions
        ):
            later = decide_object(shape, self._later)
        # The decision with every gate on, if a claim is not possible now.
        claimed = later
        if self._switched_on is not None and any(stays_for_good(decision) for decision in later.decisions):
            claimed = decide_object(shape, self._switched_on)
        needed = {server.EXTENDED for decision in claimed.decisions if decision.outcome is Outcome.SERVED}
        classes: set[str] = set()
        for spec in claimed.templates.values():
            needed |= {CLAIMS.gate, *gates.required_by("ResourceClaimTemplate", {"spec": spec})}
            classes |= classes_in(inside(mapping(spec), "spec"))
        prepared = _Prepared(_by_place(later), _by_place(claimed), classes, needed)
        keys = tuple(dict.fromkeys(self._keys(shape, now_decided, prepared)))
        # Warnings that repeat the reason of a key are left out.
        details = {key.detail for key in keys if key.detail} | {
            decision.keep_reason for decision in now_decided.decisions if decision.keep_reason
        }
        warnings = [text for text in map(str, now_decided.warnings) if not any(detail in text for detail in details)]
        verdict = self._judged[digest] = JudgedWorkload.from_keys(
            keys, classes=classes, warnings=warnings, gates=needed
        )
        return verdict

    def _owner(self, metadata: Object) -> PodOwner | None:
        """Return the owner by which a canary chooses a workload; None if all are chosen."""
        return workload("", metadata) if self._now.configuration.file.canary < 100 else None

    def _keys(self, shape: Object, done: PodVerdict, prepared: _Prepared) -> Iterator[Key]:
        """Yield the decisions about a shape, with `until`; none if it requests no device."""
        if not requests_devices(shape, done.decisions, self._now.configuration):
            return
        for decision in done.decisions:
            until, remedy = self._until(decision, prepared)
            yield Key(**asdict(decision) | {"object": "", "until": until, "remedy": remedy})

    def _until(self, decision: Decision, prepared: _Prepared) -> tuple[str, str]:
        """Return what has to change before a key that stays can be translated, or a key that a class serves gets devices, and the remedy."""
        remedy, fleet = decision.remedy, self._now.fleet
        if decision.outcome is Outcome.SERVED and (stranding := why_stranded(decision.key, self._now)):
            cause = stranding.causes[0].replace("/", " ")
            return f"{cause} has devices{' without such taints' if stranding.code else ''}", stranding.remedies[0]
        if decision.outcome is not Outcome.LEFT or decision.potential_outcome or decision.mode:
            return "", remedy
        later = prepared.later.get(decision.place, decision)
        with_gates = prepared.with_gates.get(decision.place, later)
        if later.outcome in REPLACED:
            absent = sorted(
                name for name in prepared.classes if name not in fleet.classes or not fleet.classes[name].devices
            )
            changes = [f"DeviceClass {list_first(absent, 3)} has devices"] if absent else []
            if decision.key in fleet.handed_out_anywhere:
                changes.append(f"no device plugin offers {decision.key}")
            return " and ".join(changes) or "its driver is installed", remedy
        if later.outcome is Outcome.LEFT and with_gates.outcome in (*REPLACED, Outcome.SERVED):
            features = self._now.features
            off = [gate for gate in _OF_CLAIMS if gate in prepared.needed and not features.enabled(gate)]
            return gates_on(off), remedy or "; ".join([remedy_of(gate, features) for gate in off])
        if later.outcome is Outcome.LEFT and not (decision.code or remedy or later.detail in decision.detail):
            remedy = f"even with its driver installed and without its device plugin, the key stays: {later.detail}"
        return "", remedy


class _Prepared(NamedTuple):
    """The decisions about a shape on the prepared cluster, and the classes and gates of its claims."""

    later: Mapping[_Place, Decision]
    with_gates: Mapping[_Place, Decision]
    classes: set[str]
    needed: set[str]


def _by_place(verdict: PodVerdict) -> dict[_Place, Decision]:
    return {decision.place: decision for decision in verdict.decisions}


def needs_decision(key: Key) -> bool:
    """Return whether an administrator must read why a key is not simply translated or served in mode `enforce`."""
    if key.potential_outcome:  # the key for which the object is refused has the reason
        return False
    if key.outcome in (Outcome.TRANSLATED, Outcome.SERVED):
        return bool(key.keep_reason or key.until or key.code)
    return bool(decides_outcome(key) or key.code)


def stays_for_good(decision: Decision) -> bool:
    """Return whether a key stays with its device plugin, whatever changes on the cluster."""
    if decision.outcome is Outcome.LEFT:
        return not decision.until
    return decision.outcome in (Outcome.UNKNOWN, Outcome.REFUSED)


def gates_on(gates_off: list[str]) -> str:
    """Return the condition that feature gates are on, for `Key.until`."""
    if len(gates_off) == 1:
        return f"feature gate {gates_off[0]} is on"
    return f"feature gates {', '.join(gates_off)} are on"


def is_on_claims(pod: Object) -> bool:
    """Return whether a pod was translated when it was created, or has claims of its own."""
    return names.ORIGINAL in inside(pod, "metadata", "annotations") or has_claims(pod)
