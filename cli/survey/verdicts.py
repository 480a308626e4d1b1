"""What becomes of a workload, and why: the webhook's own verdict, asked twice. Pure.

Once on the cluster as it is, and where something stays, once more on the cluster as it would be when the drivers are installed, the
device plugins gone and the feature gates on. A workload that moves only then waits for the cluster; one that stays even then is for a
person to decide.
"""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from cli.check import why_stranded
from cli.loading import Object, inside, is_extended, text
from cli.survey.families import Family, is_pod
from cli.survey.obstacle import remedy_of
from dra import server
from dra.objects import IMPLICIT
from dra.raw import containers_of, mapping
from dra.validation import gates
from webhook import names
from webhook.admission import STRANDED, UNREQUESTED, decide_object, find_unrequested_access
from webhook.dialects import ALTERNATIVES, CLAIMS, SHARES, Action, Position, Role, Served, assumed
from webhook.state import Mode, State, with_mode
from webhook.translate import Verdict, pods_in, view_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.translate import Decision

_MOST_SHAPES = 32  # of one workload whose owner could not be read
_OF_CLAIMS = (CLAIMS.gate, ALTERNATIVES.gate, SHARES.gate, server.EXTENDED)
# The metadata that an object is judged by.
_TELLING = ("namespace", "labels", "annotations")
# Members of a spec that are written after a pod is made.
_WRITTEN_LATER = ("nodeName", "ephemeralContainers")


class MoveOutlook(StrEnum):
    """What becomes of a workload, the best first."""

    MOVED = "moved"  # it runs on claims already
    MOVES = "moves"
    DIFFERS = "differs"  # it moves, and something is approximated
    WEBHOOK = "webhook"  # the object stays, and its pods move when they are made
    SERVED = "served"  # it needs no change: a DeviceClass serves its key by itself
    WAITS = "waits"  # it moves when the cluster is ready
    STAYS = "stays"
    UNCLEAR = "unclear"  # something on it is not understood
    REFUSED = "refused"


# Fates that leave a workload with the device plugin for good.
STAYING = (MoveOutlook.STAYS, MoveOutlook.UNCLEAR, MoveOutlook.REFUSED)
_MOVING = (MoveOutlook.MOVES, MoveOutlook.DIFFERS, MoveOutlook.WEBHOOK)
_RANK = {fate: number for number, fate in enumerate(MoveOutlook)}


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One key of one container ("" for the whole pod), and what becomes of it."""

    container: str
    key: str
    dialect: str
    amount: str
    fate: MoveOutlook
    detail: str = ""
    code: str = ""
    remedy: str = ""
    assumed: bool = False  # only what the key most often means: nothing was there to look at
    pods: str = ""  # of a key that is left to the webhook: translated, approximated or ignored there


class JudgedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a workload; `classes` are the DeviceClasses that its claims would name."""

    fate: MoveOutlook
    keys: tuple[Key, ...]
    classes: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    # The feature gates that its claims would need where they cannot be made for one that is off.
    gates: frozenset[str] = frozenset()


_ON_CLAIMS = JudgedWorkload(fate=MoveOutlook.MOVED, keys=())
_Word = tuple[str, str]  # container, key
_OF_ACTION = {
    Action.TRANSLATED: MoveOutlook.MOVES,
    Action.APPROXIMATED: MoveOutlook.DIFFERS,
    Action.IGNORED: MoveOutlook.MOVES,
    Action.LEFT: MoveOutlook.STAYS,
    Action.UNKNOWN: MoveOutlook.UNCLEAR,
    Action.REFUSED: MoveOutlook.REFUSED,
    Action.SERVED: MoveOutlook.SERVED,
}


class _ShapeOutlook(NamedTuple):
    """What becomes of a shape of pods."""

    keys: tuple[Key, ...]
    classes: frozenset[str]
    warnings: tuple[str, ...]
    gates: frozenset[str]


class MoveJudge:
    """Judges workloads on one cluster, as it is and as it would be with all drivers installed."""

    def __init__(self, state: State) -> None:
        # `observe` and `warn` are steps on the way to `enforce`; a namespace with `off` wants to stay.
        self.now = with_mode(state, Mode.ENFORCE, but=frozenset((Mode.OFF,)))
        # Give the same cluster with all drivers installed, their classes there, and no device plugin any more.
        fleet = self.now.fleet
        classes: dict[str, Served] = dict(fleet.classes)
        for target in self.now.configuration.targets.values():
            declared = self.now.configuration.file.classes.get(target.name, "")
            served = fleet.find(target, declared)
            if served is None or not served.devices:
                added = assumed(target, Served(name=served.name if served else declared))
                classes[added.name] = added
        # A key that most of its nodes hand out as replicas does not mean whole devices when the plugin is gone either.
        most = {
            key: nodes for key, nodes in fleet.shared.items() if 2 * len(nodes) > len(fleet.handed_out.get(key, ()))
        }
        ready = replace(fleet, known=True, handed_out={}, handed_out_anywhere={}, shared=most, classes=classes)
        self.later = replace(self.now, fleet=ready, stock=None, prospects=None)
        # The same with the gates on that decide whether a claim can be made; None if they are.
        features = state.features
        off = {gate: True for gate in _OF_CLAIMS if not features.on(gate)}
        on = replace(features, gates={**features.gates, **off})
        self.switched_on = replace(self.later, features=on) if off else None
        rows = [row for dialect in state.configuration.dialects for row in dialect.keys]
        self._known = [row.name for row in rows if row.place is Position.RESOURCE]
        self._judged: dict[bytes, _ShapeOutlook] = {}

    def judge(self, family: Family) -> JudgedWorkload | None:
        """Say what becomes of a workload; None for one that never asked for a device."""
        # Every shape once. Two pods of one owner are equal if their resources and placement are.
        shapes: dict[bytes, Object] = {}
        for number, shape in enumerate(family.shapes):
            if is_pod(shape):
                # Take off what a scheduler wrote when it placed the pod, its node first of all.
                # Without a phase its author wrote the node, and none is chosen.
                placed = bool(inside(shape, "status").get("phase"))
                spec = {
                    name: value
                    for name, value in inside(shape, "spec").items()
                    if name not in _WRITTEN_LATER or (name == "nodeName" and not placed)
                }
                metadata = dict(inside(shape, "metadata"))
                rows = self.now.configuration.rows[Position.ANNOTATION]
                metadata["annotations"] = {
                    name: value
                    for name, value in inside(metadata, "annotations").items()
                    if all(known.row.role is not Role.PLACED for known in rows.get(name, ()))
                }
                pod = {**shape, "spec": spec, "metadata": metadata}
                spec = inside(pod, "spec")
                asks = [(one.get("name"), one.get("resources")) for _, one in _containers(pod)]
                where = spec.get("nodeSelector"), spec.get("affinity"), spec.get("schedulerName")
                shapes.setdefault(msgspec.json.encode((asks, where)), pod)
            else:
                shapes[b"%d" % number] = shape
            if len(shapes) == _MOST_SHAPES:
                break
        keys: list[Key] = []
        classes: set[str] = set()
        needed: set[str] = set()
        warnings: dict[str, None] = {}
        for shape in shapes.values():
            one = self._shape(shape)
            keys += one.keys
            classes |= one.classes
            needed |= one.gates
            if one.keys:
                warnings |= dict.fromkeys(one.warnings)
        if not keys:
            pods = [pod for shape in shapes.values() for pod in pods_in(shape)]
            on_claims = any(inside(pod, "spec").get("resourceClaims") for pod in pods)
            return _ON_CLAIMS if on_claims else None
        if family.pods and all(map(is_moved, family.pods)):
            keys = [replace(key, fate=MoveOutlook.MOVED, detail="", code="", remedy="") for key in keys]
        return JudgedWorkload(
            fate=max((key.fate for key in keys), key=_RANK.__getitem__),
            keys=tuple(dict.fromkeys(keys)),
            classes=frozenset(classes),
            warnings=tuple(warnings),
            gates=frozenset(needed),
        )

    def _shape(self, shape: Object) -> _ShapeOutlook:
        """Judge one shape; another of the same namespace that differs in its name alone is not judged again."""
        judged_by = dict(shape)
        judged_by.pop("status", None)
        metadata = mapping(shape.get("metadata"))
        if metadata.get("uid"):  # a server has checked its name
            judged_by["metadata"] = [metadata.get(name) for name in _TELLING]
        sign = blake2b(msgspec.json.encode(judged_by), digest_size=16).digest()
        found = self._judged.get(sign)
        if found is not None:
            return found
        done = later = decide_object(shape, self.now, about_devices=True)
        if done.refusals or any(_fate(one) is MoveOutlook.STAYS for one in done.decisions):
            later = decide_object(shape, self.later, about_devices=True)
        # What could be claimed with every gate on, where something cannot be now.
        claimed = later
        if self.switched_on is not None and any(_fate(one) in STAYING for one in later.decisions):
            claimed = decide_object(shape, self.switched_on, about_devices=True)
        needed = {
            server.EXTENDED for one in claimed.decisions if one.action is Action.SERVED and one.key.startswith(IMPLICIT)
        }
        classes: set[str] = set()
        for spec in claimed.templates.values():
            needed |= {CLAIMS.gate, *gates.required_by("ResourceClaimTemplate", {"spec": spec})}
            for request in inside(mapping(spec), "spec", "devices").get("requests") or ():
                alternatives = (request.get("exactly"), *(request.get("firstAvailable") or ()))
                classes.update(one["deviceClassName"] for one in alternatives if one)
        keys = self._keys(shape, done, later, claimed, needed)
        # Warnings that say what stands with a key already are left out.
        details = {key.detail for key in keys if key.detail} | {one.stays for one in done.decisions if one.stays}
        warnings = [text for text in map(str, done.warnings) if not any(detail in text for detail in details)]
        found = self._judged[sign] = _ShapeOutlook(tuple(keys), frozenset(classes), tuple(warnings), frozenset(needed))
        return found

    def _keys(self, shape: Object, done: Verdict, later: Verdict, claimed: Verdict, needed: set[str]) -> list[Key]:
        amounts: dict[_Word, str] = {}
        for _, container in _containers(shape):
            name = text(container.get("name"))
            for resource, amount in _requests(container).items():
                amounts[name, resource] = amount
                amounts.setdefault(("", resource), amount)
        # Decisions tell a fate, except those about a selector, a variable or an annotation that stays beside a request.
        telling: list[Decision] = []
        asides: list[Decision] = []
        for one in done.decisions:
            if one.dialect or one.action is not Action.LEFT or (one.container, one.key) in amounts:
                telling.append(one)
            elif one.code in ("", STRANDED):
                asides.append(one)
        if not telling:
            # Words outside of pod templates, and all of them where there is no template or one speaks.
            pods = pods_in(shape)
            containers = {"", *[text(container.get("name")) for _, container in _containers(shape)]}
            every = not pods or any(view_pod(pod, self.now.configuration).asks_for_devices for pod in pods)
            telling = [one for one in asides if every or one.container not in containers]
        refused = {(one.container, one.key) for one in telling if one.action is Action.REFUSED}
        afterwards = {(one.container, one.key): one for one in later.decisions}
        with_gates = {(one.container, one.key): one for one in claimed.decisions}
        features = self.now.features
        off = "; ".join([remedy_of(gate, features) for gate in _OF_CLAIMS if gate in needed and not features.on(gate)])
        undeclared = {(one.container, one.key): one for one in self._undeclared(shape)}
        keys: list[Key] = []
        for one in telling:
            container_key = one.container, one.key
            if container_key in refused and one.action is not Action.REFUSED:
                continue  # a refused pod is not translated
            if one.action is Action.UNKNOWN and container_key in undeclared:
                continue  # said below, with a remedy
            fate = _fate(one)
            later_decision = afterwards.get(container_key, one)
            if fate is MoveOutlook.STAYS and _fate(later_decision) in _MOVING:
                fate = MoveOutlook.WAITS
            shown = (
                later_decision
                if fate is MoveOutlook.STAYS and one.code != STRANDED and later_decision.detail != one.detail
                else one
            )
            switched = _fate(with_gates.get(container_key, later_decision))
            if fate is _fate(later_decision) is MoveOutlook.STAYS and switched in (*_MOVING, MoveOutlook.SERVED):
                fate, shown = MoveOutlook.WAITS, replace(shown, remedy=shown.remedy or off)
            if fate is MoveOutlook.SERVED and (stranding := why_stranded(one.key, self.now)):
                fate, detail = MoveOutlook.WAITS, f"{one.detail}, {stranding.reason}"
                shown = replace(one, detail=detail, remedy=stranding.remedy)
            key = Key(
                container=shown.container,
                key=shown.key,
                dialect=shown.dialect,
                amount=amounts.get(container_key, ""),
                fate=fate,
                detail="; ".join(filter(None, (shown.stays, shown.detail))),
                code=shown.code,
                remedy=shown.remedy,
                assumed=shown.assumed,
                pods=shown.action.value if shown.stays else "",
            )
            keys.append(key)
        for key in keys:
            undeclared.pop((key.container, key.key), None)
        return [*keys, *undeclared.values()]

    def _undeclared(self, shape: Object) -> Iterator[Key]:
        """Find requests for devices in words that no dialect has, and devices that a container takes without a request."""
        for spec, container in _containers(shape):
            name = text(container.get("name"))
            requests = _requests(container)
            for key, amount in requests.items():
                if is_extended(key) and not self.now.configuration.resource(key):
                    if where := self.now.fleet.installed.ignores(key):
                        remedy = f"{where} names it, which the plugin ignores: request what its nodes offer"
                    elif similar := get_close_matches(key, self._known, n=1, cutoff=0.85):
                        remedy = f"did you mean {similar[0]}?"
                    else:
                        remedy = "declare it under `dialects`, or leave it with its device plugin"
                    yield Key(
                        container=name,
                        key=key,
                        dialect="",
                        amount=amount,
                        fate=MoveOutlook.UNCLEAR,
                        detail="not understood: no dialect has this key",
                        remedy=remedy,
                    )
            key, value = find_unrequested_access(container, spec, self.now)
            if key:
                yield Key(
                    container=name,
                    key=key,
                    dialect="",
                    amount=value,
                    fate=MoveOutlook.STAYS,
                    detail=UNREQUESTED,
                    remedy="request devices instead, or disable the runtime's environment list on the nodes",
                )


def is_moved(pod: Object) -> bool:
    """Say whether a pod was translated when it was made."""
    return names.ORIGINAL in inside(pod, "metadata", "annotations")


def _fate(decision: Decision) -> MoveOutlook:
    return MoveOutlook.WEBHOOK if decision.stays else _OF_ACTION[decision.action]


def _containers(shape: Object) -> Iterator[tuple[Object, Object]]:
    for pod in pods_in(shape):
        spec = inside(pod, "spec")
        yield from ((spec, one) for one in containers_of(spec))


def _requests(container: Object) -> dict[str, str]:
    """Give what a container asks for, limits before requests, as it is written."""
    resources = inside(container, "resources")
    requested = {**inside(resources, "requests"), **inside(resources, "limits")}
    return {key: str(value) for key, value in requested.items() if value is not None}
