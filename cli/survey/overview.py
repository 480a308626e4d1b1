"""A survey: of everything that was read, what asks for devices, what becomes of it, and what is in the way. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from cli.survey.families import Family, families, has_ended
from cli.survey.fleet import DriverStock, PluginStock, Use, held, published, publishing, uses
from cli.survey.gathered import CLUSTER, Gathered, Object, Unread, inside, text, who
from cli.survey.obstacles import Obstacle, obstacles
from cli.survey.verdicts import STAYING, Foreteller, Judged, Key, Outlook, is_moved
from cli.survey.world import state_of
from webhook import names
from webhook.admission import asks_elsewhere
from webhook.sides import Standing, standings
from webhook.translate import at, mapping, paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from webhook.state import Configuration, Features, State

    Test = Callable[[Mapping[str, str]], bool]


_TELLING = (Outlook.DIFFERS, Outlook.WAITS, *STAYING)


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why workloads do not simply move, and how many it concerns: what a person has to decide."""

    fate: Outlook
    key: str
    detail: str
    remedy: str
    code: str
    workloads: int = 0
    pods: int = 0


class Asking(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A workload that asks for devices, once, whatever it made."""

    namespace: str
    kind: str
    name: str
    fate: Outlook
    dialects: tuple[str, ...]
    keys: tuple[Key, ...]
    # The pods that live, those of them that have a node, and those that were translated already.
    pods: int
    running: int
    moved: int
    warnings: tuple[str, ...] = ()
    file: str = ""
    line: int = 0

    @property
    def reasons(self) -> frozenset[Reason]:
        """Why it does not simply move."""
        telling = [key for key in self.keys if key.fate in _TELLING]
        return frozenset([_reason(key) for key in telling])


class Overview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that a survey says."""

    server: str
    features: dict[str, bool]
    objects: int
    pods: int
    workloads: tuple[Asking, ...]
    reasons: tuple[Reason, ...]
    obstacles: tuple[Obstacle, ...]
    plugins: tuple[PluginStock, ...]
    drivers: tuple[DriverStock, ...]
    sides: tuple[Standing, ...]
    classes: dict[str, int]
    modes: dict[str, str]
    unread: tuple[Unread, ...]

    @property
    def fates(self) -> Counter[Outlook]:
        """How many workloads have which fate."""
        return Counter(one.fate for one in self.workloads)


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about: a namespace, and labels of a workload or its pods. Empty is everything."""

    namespaces: frozenset[str] = frozenset()
    labels: Test | None = None

    def holds(self, family: Family) -> bool:
        """Say whether a workload is asked about."""
        if self.namespaces and family.top.namespace not in self.namespaces:
            return False
        if self.labels is None:
            return True
        every = (*family.shapes, *family.pods[:1])
        return any(self.labels(one) for shape in every for one in _labels(shape))


def _labels(shape: Object) -> list[dict[str, str]]:
    """The labels of an object, and of every pod template in it."""
    places = [mapping(shape), *[mapping(at(shape, path)) for path in paths(shape, unknown=True)]]
    return [mapping(mapping(place.get("metadata")).get("labels")) for place in places]


def overview(gathered: Gathered, configuration: Configuration, features: Features, scope: Scope) -> Overview:
    """Look at everything that was read."""
    state, odd = state_of(gathered, configuration, features)
    # Who uses what of a node is a question about everybody, whoever is asked about.
    everybody = _judged(gathered, state)
    asked = [one for one in everybody if scope.holds(one.family)]
    workloads = [_workload(one, gathered) for one in asked]
    workloads.sort(key=_order)
    plugins = _held(everybody, state)
    wanted: set[str] = set()
    for one in asked:
        wanted |= one.judged.classes
    concerned = [one.family for one in asked]
    alive = [one for one in gathered.of("Pod") if not has_ended(one)]
    return Overview(
        server=gathered.server.version if gathered.server else "",
        features=_features(features),
        objects=len(gathered.objects),
        pods=len(alive),
        workloads=tuple(workloads),
        reasons=_reasons(workloads),
        obstacles=tuple(obstacles(gathered, state, concerned, plugins, wanted)),
        plugins=tuple(plugins),
        drivers=tuple(published(state.stock) if state.stock else ()),
        sides=_sides(state),
        classes=_devices_of(state),
        modes=_modes(gathered, workloads, configuration),
        unread=(*gathered.unread, *odd),
    )


class _Pronounced(NamedTuple):
    family: Family
    judged: Judged


def _judged(gathered: Gathered, state: State) -> list[_Pronounced]:
    """Everybody who asks for devices, and what becomes of them."""
    foreteller = Foreteller(state)
    found: list[_Pronounced] = []
    for family in families(gathered.objects, lambda obj: asks_elsewhere(obj, state)):
        judged = foreteller.judge(family)
        if judged is not None:
            found.append(_Pronounced(family, judged))
    return found


def _order(one: Asking) -> tuple[str, str, str]:
    return one.namespace, one.kind, one.name


def _devices_of(state: State) -> dict[str, int]:
    """How many devices stand behind each class."""
    return {name: served.devices for name, served in sorted(state.fleet.classes.items())}


def _workload(one: _Pronounced, gathered: Gathered) -> Asking:
    family, judged = one
    top = family.top
    dialects = [key.dialect for key in judged.keys if key.dialect]
    file, line = gathered.places[family.number] if gathered.places else ("", 0)
    running = [pod for pod in family.pods if inside(pod, "spec").get("nodeName")]
    return Asking(
        namespace=top.namespace,
        kind=top.kind,
        name=top.name,
        fate=judged.fate,
        dialects=tuple(dict.fromkeys(dialects)),
        keys=judged.keys,
        pods=len(family.pods),
        running=len(running),
        moved=sum(map(is_moved, family.pods)),
        warnings=judged.warnings,
        file=file,
        line=line,
    )


def _held(everybody: Iterable[_Pronounced], state: State) -> list[PluginStock]:
    moving: Counter[Use] = Counter()
    staying: Counter[Use] = Counter()
    for one in everybody:
        counted = staying if one.judged.fate in STAYING else moving
        used = uses(one.family.pods)
        counted.update(used)
    if state.stock is None:
        return []
    nodes = list(state.stock.nodes.values())
    drivers = publishing(state.stock)
    return held(nodes, moving, staying, drivers, state.configuration)


def _sides(state: State) -> tuple[Standing, ...]:
    """Which nodes hand a name out, and which publish what it stands for."""
    if state.stock is None:
        return ()
    return standings(state.stock.nodes.values(), state.fleet, state.configuration)


def _reasons(workloads: Iterable[Asking]) -> tuple[Reason, ...]:
    """Put equal reasons together; what concerns most pods comes first."""
    counts: Counter[Reason] = Counter()
    pods: Counter[Reason] = Counter()
    for one in workloads:
        for reason in one.reasons:
            counts[reason] += 1
            pods[reason] += one.pods
    found: list[Reason] = []
    for reason, number in counts.items():
        counted = msgspec.structs.replace(reason, workloads=number, pods=pods[reason])
        found.append(counted)
    found.sort(key=_weight)
    return tuple(found)


def _reason(key: Key) -> Reason:
    return Reason(fate=key.fate, key=key.key, detail=key.detail, remedy=key.remedy, code=key.code)


def _weight(one: Reason) -> tuple[object, ...]:
    return -_TELLING.index(one.fate), -one.pods, -one.workloads, one.key, one.detail


def _features(features: Features) -> dict[str, bool]:
    return {gate: features.on(gate) for gate in features.known()}


def _modes(gathered: Gathered, workloads: Iterable[Asking], configuration: Configuration) -> dict[str, str]:
    """How far the gate goes in every namespace that a workload lives in."""
    labelled = {who(one).name: _mode(one) for one in gathered.of("Namespace")}
    asked = sorted({one.namespace for one in workloads})
    return {name: labelled.get(name) or configuration.file.mode for name in asked if name != CLUSTER}


def _mode(namespace: Object) -> str:
    labels = mapping(mapping(namespace.get("metadata")).get("labels"))
    return text(labels.get(names.MODE_LABEL))
