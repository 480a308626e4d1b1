"""What becomes of a workload, and why: the gate's own verdict, asked twice. Pure.

Once on the cluster as it is, and where something stays, once more on the cluster as it would be when the drivers are installed and
the device plugins gone. What moves only then waits for the cluster; what stays even then is for a person.
"""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from cli.survey.families import Family, is_pod
from cli.survey.gathered import Object, inside, is_extended, text
from webhook import names
from webhook.admission import decide_object
from webhook.dialects import Action, Position, Role
from webhook.state import Mode, Served, State, everywhere, unknown
from webhook.translate import Translation, at, look, mapping, paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from webhook.state import Configuration, Inventory
    from webhook.translate import Decision

_MOST_SHAPES = 32  # of one workload whose owner nobody could read
# The metadata that an object is judged by.
_TELLING = ("namespace", "labels", "annotations")
# What a pod that is made has none of.
_WRITTEN_LATER = ("nodeName", "ephemeralContainers")
_SEES_ALL = "NVIDIA_VISIBLE_DEVICES"
_SEES_NONE = ("", "none", "void")


class Outlook(StrEnum):
    """What becomes of a workload, the best first."""

    MOVED = "moved"  # it runs on claims already
    MOVES = "moves"
    DIFFERS = "differs"  # it moves, and something is approximated
    SERVED = "served"  # it needs no change: a DeviceClass serves its key by itself
    WAITS = "waits"  # it moves when the cluster is ready
    STAYS = "stays"
    UNCLEAR = "unclear"  # something on it is not understood
    REFUSED = "refused"


# Fates that leave a workload with the device plugin for good.
STAYING = (Outlook.STAYS, Outlook.UNCLEAR, Outlook.REFUSED)
_RANK = {fate: number for number, fate in enumerate(Outlook)}
_SERVED_BY_CLASS = "through extendedResourceName"


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One key of one container ("" for the whole pod), and what becomes of it."""

    container: str
    key: str
    dialect: str
    amount: str
    fate: Outlook
    detail: str = ""
    code: str = ""
    remedy: str = ""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a workload; `classes` are the DeviceClasses that its claims would name."""

    fate: Outlook
    keys: tuple[Key, ...]
    classes: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()


_ON_CLAIMS = Judged(fate=Outlook.MOVED, keys=())
_Word = tuple[str, str]  # container, key


class _Foretold(NamedTuple):
    """What becomes of a shape of pods."""

    keys: tuple[Key, ...]
    classes: frozenset[str]
    warnings: tuple[str, ...]


class Foreteller:
    """Judges workloads on one cluster, and remembers the cluster as it would be."""

    def __init__(self, state: State) -> None:
        # `observe` and `warn` are steps on the way that a survey is about; who says `off` wants to stay.
        self.now = everywhere(state, Mode.ENFORCE, but=frozenset((Mode.OFF,)))
        self.later = _when_ready(self.now)
        self._known = _known_keys(state.configuration)
        self._judged: dict[bytes, _Foretold] = {}

    def judge(self, family: Family) -> Judged | None:
        """Say what becomes of a workload; None for one that never asked for a device."""
        shapes = _distinct(family.shapes, self.now.configuration)
        keys: list[Key] = []
        classes: set[str] = set()
        warnings: dict[str, None] = {}
        for shape in shapes:
            one = self._shape(shape)
            keys += one.keys
            classes |= one.classes
            if one.keys:
                warnings |= dict.fromkeys(one.warnings)
        if not keys:
            return _ON_CLAIMS if any(map(_claims, shapes)) else None
        if family.pods and all(map(is_moved, family.pods)):
            keys = [_moved(key) for key in keys]
        fates = [key.fate for key in keys]
        return Judged(
            fate=max(fates, key=_RANK.__getitem__),
            keys=tuple(dict.fromkeys(keys)),
            classes=frozenset(classes),
            warnings=tuple(warnings),
        )

    def _shape(self, shape: Object) -> _Foretold:
        """Judge one shape; another that says the same in the same namespace, and bears another name, is not judged again."""
        sign = _words(shape)
        found = self._judged.get(sign)
        if found is not None:
            return found
        done = decide_object(shape, self.now, unknown=True)
        later = self._later(shape, done)
        keys = self._keys(shape, done, later)
        found = _Foretold(
            tuple(keys),
            frozenset(_classes(later)),
            tuple(_not_in_keys(done.warnings, keys)),
        )
        self._judged[sign] = found
        return found

    def _later(self, shape: Object, done: Translation) -> Translation:
        """Decide once more, if something stays or is refused, as if the cluster were ready."""
        if done.refusals or any(_stays(one) for one in done.decisions):
            return decide_object(shape, self.later, unknown=True)
        return done

    def _keys(self, shape: Object, done: Translation, later: Translation) -> list[Key]:
        amounts = _amounts(shape)
        afterwards: dict[_Word, Decision] = {}
        for one in later.decisions:
            afterwards[one.container, one.key] = one
        strange: dict[_Word, Key] = {}
        for odd in self._strange(shape):
            strange[odd.container, odd.key] = odd
        keys: list[Key] = []
        telling = self._telling(shape, done, amounts)
        refused = {(one.container, one.key) for one in telling if one.action is Action.REFUSED}
        for one in telling:
            word = one.container, one.key
            if word in refused and one.action is not Action.REFUSED:
                continue  # what else would become of it does not come to pass
            if one.action is Action.NOT_UNDERSTOOD and word in strange:
                continue  # said below, with what may be done about it
            then = afterwards.get(word, one)
            amount = amounts.get(word, "")
            key = _key(one, then, amount)
            keys.append(key)
        for key in keys:
            strange.pop((key.container, key.key), None)
        return [*keys, *strange.values()]

    def _telling(self, shape: Object, done: Translation, amounts: Mapping[_Word, str]) -> list[Decision]:
        """Choose the decisions that tell a fate: not those about what only stands beside a request and stays there."""
        said = [one for one in done.decisions if not one.code or one.action is not Action.LEFT]
        asides = [one for one in said if _is_aside(one, amounts)]
        telling = [one for one in said if one not in asides]
        if telling or not self._speaks(shape):
            return telling
        return asides

    def _speaks(self, shape: Object) -> bool:
        """Say whether a pod of it asks for something in a dialect's words."""
        places = paths(shape, unknown=True)
        return any(look(at(shape, path), self.now.configuration).speaks for path in places)

    def _strange(self, shape: Object) -> Iterator[Key]:
        """Find what asks for devices in words that no dialect has."""
        for container in _containers(shape):
            name = text(container.get("name"))
            for key, amount in _requests(container).items():
                if is_extended(key) and not self.now.configuration.resource(key):
                    yield _strange_key(name, key, amount, self._known)
            yield from _unaccounted(container, name)


def _is_aside(one: Decision, amounts: Mapping[_Word, str]) -> bool:
    """Whether a decision is about a selector, a variable or an annotation that stays whatever becomes of the pod."""
    return one.action is Action.LEFT and not one.dialect and (one.container, one.key) not in amounts


def _not_in_keys(warnings: Iterable[str], keys: Sequence[Key]) -> list[str]:
    """Leave out the warnings that say what stands with a key already."""
    details = {key.detail for key in keys if key.detail}
    return [text for text in warnings if not any(detail in text for detail in details)]


def _moved(key: Key) -> Key:
    return msgspec.structs.replace(key, fate=Outlook.MOVED, detail="", code="", remedy="")


def is_moved(pod: Object) -> bool:
    """Say whether a pod was translated when it was made."""
    annotations = mapping(mapping(pod.get("metadata")).get("annotations"))
    return names.ORIGINAL in annotations


def _claims(shape: Object) -> bool:
    """Say whether an object asks for claims."""
    return any(
        mapping(mapping(at(shape, path)).get("spec")).get("resourceClaims") for path in paths(shape, unknown=True)
    )


def _strange_key(container: str, key: str, amount: str, known: list[str]) -> Key:
    near = get_close_matches(key, known, n=1, cutoff=0.85)
    remedy = f"did you mean {near[0]}?" if near else "declare it under `dialects`, or leave it with its device plugin"
    return Key(
        container=container,
        key=key,
        dialect="",
        amount=amount,
        fate=Outlook.UNCLEAR,
        detail="not understood: no dialect has this key",
        remedy=remedy,
    )


def _unaccounted(container: Object, name: str) -> Iterator[Key]:
    """Devices that a container takes for itself, without asking anybody."""
    if any("gpu" in key for key in _requests(container)):
        return
    variables = container.get("env")
    for one in map(mapping, variables if isinstance(variables, list) else ()):
        value = text(one.get("value"))
        if one.get("name") != _SEES_ALL or value in _SEES_NONE:
            continue
        yield Key(
            container=name,
            key=_SEES_ALL,
            dialect="nvidia",
            amount=value,
            fate=Outlook.UNCLEAR,
            detail="it takes devices without a request, past everybody's accounting",
            remedy="ask for devices instead, or switch the runtime's environment list off on the nodes",
        )


def _key(now: Decision, later: Decision, amount: str) -> Key:
    fate = _fate(now)
    if fate is Outlook.STAYS and _fate(later) in (Outlook.MOVES, Outlook.DIFFERS):
        fate = Outlook.WAITS
    elif fate is Outlook.STAYS and later.detail != now.detail:
        now = later
    return Key(
        container=now.container,
        key=now.key,
        dialect=now.dialect,
        amount=amount,
        fate=fate,
        detail=now.detail,
        code=now.code,
        remedy=now.remedy,
    )


_OF_ACTION = {
    Action.TRANSLATED: Outlook.MOVES,
    Action.APPROXIMATED: Outlook.DIFFERS,
    Action.IGNORED: Outlook.MOVES,
    Action.LEFT: Outlook.STAYS,
    Action.NOT_UNDERSTOOD: Outlook.UNCLEAR,
    Action.REFUSED: Outlook.REFUSED,
}


def _fate(decision: Decision) -> Outlook:
    if decision.action is Action.LEFT and _SERVED_BY_CLASS in decision.detail:
        return Outlook.SERVED
    return _OF_ACTION[decision.action]


def _stays(decision: Decision) -> bool:
    return _fate(decision) is Outlook.STAYS


def _classes(done: Translation) -> Iterator[str]:
    """Name the DeviceClasses of everything that the templates ask for."""
    for spec in done.templates.values():
        devices = mapping(mapping(mapping(spec).get("spec")).get("devices"))
        for request in devices.get("requests") or ():
            alternatives = (request.get("exactly"), *(request.get("firstAvailable") or ()))
            yield from [one["deviceClassName"] for one in alternatives if one]


# The cluster as it would be


def _when_ready(state: State) -> State:
    """The same cluster with the drivers installed, their classes there, and no device plugin any more."""
    fleet = state.fleet
    ready = msgspec.structs.replace(
        fleet,
        known=True,
        handed_out={},
        classes=_served(fleet, state.configuration),
    )
    return msgspec.structs.replace(state, fleet=ready, stock=None, prospects=None)


def _served(fleet: Inventory, configuration: Configuration) -> dict[str, Served]:
    classes = dict(fleet.classes)
    for target in configuration.targets.values():
        declared = configuration.file.classes.get(target.name, "")
        served = fleet.find(target, declared)
        if served is not None and served.devices:
            continue
        name = served.name if served else declared
        added = unknown(target, Served(name=name))
        classes[added.name] = added
    return classes


# What stands on a pod


def _distinct(shapes: Iterable[Object], configuration: Configuration) -> list[Object]:
    """Take every shape once. Pods are seen as they were before they were placed."""
    found: dict[bytes, Object] = {}
    for shape in shapes:
        one = _before_placing(shape, configuration) if is_pod(shape) else shape
        sign = _sign(one) if is_pod(one) else b"%d" % len(found)
        found.setdefault(sign, one)
        if len(found) == _MOST_SHAPES:
            break
    return list(found.values())


def _sign(pod: Object) -> bytes:
    """What tells two pods of one maker apart, as far as devices are concerned."""
    asks = [(one.get("name"), one.get("resources")) for one in _containers(pod)]
    spec = mapping(pod.get("spec"))
    where = spec.get("nodeSelector"), spec.get("affinity"), spec.get("schedulerName")
    return msgspec.json.encode((asks, where))


def _words(shape: Object) -> bytes:
    """Everything of an object that it is judged by, as a sign of bounded length."""
    said = dict(shape)
    said.pop("status", None)
    metadata = mapping(shape.get("metadata"))
    if metadata.get("uid"):  # who was let in by a server has a good name
        telling = [metadata.get(name) for name in _TELLING]
        said["metadata"] = telling
    encoded = msgspec.json.encode(said)
    return blake2b(encoded, digest_size=16).digest()


def _before_placing(pod: Object, configuration: Configuration) -> Object:
    """Take off what a scheduler wrote when it placed the pod, its node first of all."""
    spec = dict(inside(pod, "spec"))
    for written in _WRITTEN_LATER:
        spec.pop(written, None)
    metadata = dict(inside(pod, "metadata"))
    annotations = dict(inside(metadata, "annotations"))
    metadata["annotations"] = annotations
    rows = configuration.rows[Position.ANNOTATION]
    for name in list(annotations):
        roles = [known.row.role for known in rows.get(name, ())]
        if Role.PLACED in roles:
            del annotations[name]
    return {**pod, "spec": spec, "metadata": metadata}


def _containers(shape: Object) -> Iterator[Object]:
    for path in paths(shape, unknown=True):
        spec = mapping(mapping(at(shape, path)).get("spec"))
        for name in ("initContainers", "containers"):
            listed = spec.get(name)
            yield from map(mapping, listed if isinstance(listed, list) else ())


def _requests(container: Mapping[str, Any]) -> dict[str, str]:
    """What a container asks for, limits before requests, as it is written."""
    resources = mapping(container.get("resources"))
    asked = {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
    return {key: str(value) for key, value in asked.items() if value is not None}


def _amounts(shape: Object) -> dict[_Word, str]:
    found: dict[_Word, str] = {}
    for container in _containers(shape):
        name = text(container.get("name"))
        requests = _requests(container)
        for key, amount in requests.items():
            found[name, key] = amount
            found.setdefault(("", key), amount)
    return found


def _known_keys(configuration: Configuration) -> list[str]:
    rows = [row for dialect in configuration.dialects for row in dialect.keys]
    return [row.name for row in rows if row.place is Position.RESOURCE]
