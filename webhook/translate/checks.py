"""Which cases go through: joins what belongs together, finds the claims, and checks what would go wrong with them.

Every check can only leave or refuse a case. They are made in an order in which the plainest reason is said: what core
serves by itself, what the fleet can't serve, what the administrator does not want, what a quota or a scheduler would
make of it. At the end a container goes through with all its keys, or stays with all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from dra.wire import Json
from webhook.claims import POD_LIMIT, Grant, Impossible, Made, Shared, Wish, results, share, workshop
from webhook.dialects import NUMA_NODE, Action, Demand, Note, Pairs, Role, Scope
from webhook.state import CLAIMS, EXTENDED, Configuration, Features, Inventory, Need
from webhook.translate.case import Case
from webhook.translate.pod_view import PodView

if TYPE_CHECKING:
    from webhook.claims import Workshop
    from webhook.state import Joint
    from webhook.translate.pod_view import Slot


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod is judged by."""

    pod: PodView
    configuration: Configuration
    fleet: Inventory
    features: Features
    quota: frozenset[str] = frozenset()
    # What an earlier round took from each container.
    recorded: Mapping[str, Mapping[str, Json]] = {}

    @property
    def scheduler(self) -> str:
        return self.pod.scheduler or "default-scheduler"


class ServedDemand(msgspec.Struct, frozen=True):
    """One demand of a case that goes through, and its claims."""

    case: Case
    key: str
    demand: Demand | Pairs
    made: Made

    @property
    def count(self) -> int:
        """How many devices of the (primary) kind."""
        return self.demand.primary.count if isinstance(self.demand, Pairs) else self.demand.count


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The cases as they came out, the claims of those that went through, and the scheduler the pod shall have."""

    cases: tuple[Case, ...]
    shared: Shared
    made: tuple[ServedDemand, ...] = ()
    scheduler: str = ""  # "" keeps what the pod names

    @property
    def translated(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.open)


def judge(cases: list[Case], context: Context) -> Verdict:
    """Decide about all cases of a pod."""
    shop = workshop(context.configuration, context.fleet)
    if context.recorded:
        cases = [_late(case, context) for case in cases]
    cases = [_stepped_aside(case, context) for case in _joined(cases, context.configuration)]
    served = [_served(case, shop, context) for case in cases]
    served = [_allowed(case, context, shop) for case in served]
    served, scheduler = _scheduled(served, context, shop)
    served = _together(served)
    made = tuple(
        ServedDemand(case, key, demand, _made(shop, demand))
        for case in served
        if case.open
        for key, demand in case.demands
    )
    shared = _share(made, context.pod.slots, shop)
    if (devices := sum(results(grant.spec) for grant in shared.grants)) > POD_LIMIT:
        return Verdict(cases=tuple(_too_many(served, devices)), shared=Shared(()))
    return Verdict(cases=tuple(_remarked(served, shared)), shared=shared, made=made, scheduler=scheduler)


def _late(case: Case, context: Context) -> Case:
    """Leave keys that came after their dialect's others had been translated: alone they would mean something else."""
    names = {case.container} if case.container else set(context.recorded)
    before = {
        known.dialect.name
        for name in names
        for key in context.recorded.get(name, {})
        for known in context.configuration.resource(key)
    }
    if not case.open or case.dialect.name not in before:
        return case
    return case.leave(case.keys[0], "came after the other keys had been translated: another webhook adds it")


def _made(shop: Workshop, demand: Demand | Pairs) -> Made:
    made = shop.make(demand)
    assert isinstance(made, Made)
    return made


def _joined(cases: list[Case], configuration: Configuration) -> list[Case]:
    """Put together what the administrator wants under one switch (`joint`)."""
    for joint in configuration.file.joint:
        cases = _join(cases, joint)
    return cases


def _join(cases: list[Case], joint: Joint) -> list[Case]:
    """Pair the two keys in each container that has both: the primary's case asks, the secondary's goes with it."""
    places = {
        (case.container, key): (i, demand)
        for i, case in enumerate(cases)
        if case.open and case.dialect.scope is Scope.CONTAINER
        for key, demand in case.demands
        if isinstance(demand, Demand)
    }
    result = list(cases)
    for (container, key), (i, primary) in places.items():
        partner = places.get((container, joint.secondary))
        if key != joint.primary or partner is None:
            continue
        j, secondary = partner
        if primary.count > secondary.count or secondary.count % primary.count:
            reason = f"{primary.count} and {secondary.count} {joint.secondary} do not pair"
            changed = result[i].refuse(key, reason) if joint.otherwise == "refuse" else result[i].leave(key, reason)
            result[i] = changed
            continue
        each = secondary.count // primary.count
        pairs = Pairs(primary=primary, secondary=secondary.times(each), attribute=joint.attribute, each=each)
        rest = tuple(d for d in result[j].demands if d[0] != joint.secondary)
        result[j] = msgspec.structs.replace(result[j], demands=rest, joined=True)
        result[i] = result[i].asking(*((k, pairs if k == key else d) for k, d in result[i].demands))
        result[i] = result[i].note(Note(joint.secondary, Action.TRANSLATED, f"{each} beside each {joint.primary}"))
    return result


def _stepped_aside(case: Case, context: Context) -> Case:
    """Leave what core serves by itself: a bare count of a name that a DeviceClass carries, and nothing else asked."""
    if not case.open or len(case.keys) != 1 or len(case.demands) != 1:
        return case
    (key, demand), name = case.demands[0], context.fleet.extended.get(case.keys[0])
    if name is None or not isinstance(demand, Demand) or not context.features.on(EXTENDED):
        return case
    # The profile of a MIG device is in the name of its key; any other one was asked for beside it.
    profile = demand.profile if case.role(key) is Role.PROFILE else ""
    if demand != Demand(target=demand.target, count=demand.count, profile=profile):
        return case
    return case.leave(key, f"DeviceClass {name} serves it through extendedResourceName", quiet=True)


def _served(case: Case, shop: Workshop, context: Context) -> Case:
    """Find the claims of every demand."""
    for i, (key, asked) in enumerate(case.demands if case.open else ()):
        demand, made = asked, shop.make(asked)
        if isinstance(made, Impossible) and made.tie == NUMA_NODE and context.configuration.file.numa_bind == "drop":
            case = case.note(Note(key, Action.APPROXIMATED, f"{made.reason}: they may lie on different NUMA nodes"))
            demand, made = _untied(asked, shop)
            case = case.asking(*case.demands[:i], (key, demand), *case.demands[i + 1 :])
        if isinstance(made, Impossible):
            return case.refuse(key, made.reason) if _refused(made, context) else case.leave(key, made.reason)
        case = _placed(case, key, made).note(*(Note(key, Action.APPROXIMATED, text) for text in made.claims.remarks))
    return case


def _placed(case: Case, key: str, made: Made) -> Case:
    """Say with the key that asks where its devices come from."""
    told = next((i for i, note in enumerate(case.notes) if note.key == key), None)
    if told is None:
        return case
    note = case.notes[told]
    placed = Note(key, note.action, f"{note.detail} (class {' and '.join(made.classes)})")
    return msgspec.structs.replace(case, notes=(*case.notes[:told], placed, *case.notes[told + 1 :]))


def _untied(demand: Demand | Pairs, shop: Workshop) -> tuple[Demand | Pairs, Made | Impossible]:
    loose = demand if isinstance(demand, Pairs) else msgspec.structs.replace(demand, same="")
    return loose, shop.make(loose)


def _refused(made: Impossible, context: Context) -> bool:
    """Whether the pod is refused for it, or the container left; the administrator decides where the row leaves it open."""
    file = context.configuration.file
    if made.unresolved:
        return file.unresolved == "refuse"
    return made.refuse or (made.tie == NUMA_NODE and file.numa_bind == "refuse")


def _allowed(case: Case, context: Context, shop: Workshop) -> Case:
    """Leave what the administrator does not want approximated, and what a quota would lose its hold on."""
    if not case.open:
        return case
    file = context.configuration.file
    if file.approximations == "leave":
        for note in case.notes:
            if note.action is Action.APPROXIMATED:
                return case.leave(note.key, f"it could only be approximated: {note.detail}")
    for key in case.keys:
        if f"requests.{key}" not in context.quota or key in file.quotas:
            continue
        served = [made.supply.served for _, d in case.demands if isinstance(made := shop.make(d), Made)]
        if context.features.on(EXTENDED) and all(one.extended_resource == key for one in served):
            continue  # claims of such a class are charged to the old quota key too
        return case.leave(key, f"a ResourceQuota limits requests.{key}, which claims would escape (map it in `quotas`)")
    return case


def _needs(case: Case, shop: Workshop) -> tuple[Need, ...]:
    needs = {need: None for _, demand in case.demands for need in _made(shop, demand).claims.needs}
    return (CLAIMS, *(need for need in needs if need is not CLAIMS))


def _scheduled(cases: list[Case], context: Context, shop: Workshop) -> tuple[list[Case], str]:
    """Leave what the pod's scheduler would misread, judged by the scheduler that the pod is going to have."""
    changed = _target(cases, context, shop)
    judged = [_understood(case, changed or context.scheduler, context, shop) for case in cases]
    if changed and not all(case.open for case in _together(judged) if case.demands):
        # Part of the pod stays with its old scheduler, so all of it does.
        return [_understood(case, context.scheduler, context, shop) for case in cases], ""
    return judged, changed


def _target(cases: list[Case], context: Context, shop: Workshop) -> str:
    """The scheduler that a fully translated pod is handed to, "" if it keeps its own."""
    going = [case for case in cases if case.open]
    if not going or not all(case.open for case in _together(cases) if case.demands or case.left):
        return ""
    file, name = context.configuration.file, context.scheduler
    own = any(name in case.dialect.schedulers for case in going)
    drivers = {_made(shop, demand).supply.driver for case in going for _, demand in case.demands}
    if file.bridge and drivers & set(file.bridge.drivers) and (own or name == file.target_scheduler):
        return file.bridge.scheduler_name
    return file.target_scheduler if own and file.target_scheduler != name else ""


def _understood(case: Case, scheduler: str, context: Context, shop: Workshop) -> Case:
    if not case.open:
        return case
    file = context.configuration.file
    problem = context.features.missing(_needs(case, shop), scheduler, file.schedulers)
    if not problem:
        return case
    key = case.keys[0]
    return case.refuse(key, problem) if file.not_understood == "refuse" else case.leave(key, problem)


def _together(cases: Iterable[Case]) -> list[Case]:
    """All or nothing for each container: where one case stays, all of its containers' cases stay."""
    cases = list(cases)
    while True:
        stuck = {slot.order: case for case in cases if case.left for slot, _ in case.words}
        for i, case in enumerate(cases):
            cause = next((stuck[slot.order] for slot, _ in case.words if slot.order in stuck), None)
            if case.open and cause is not None and cause.left:
                cases[i] = case.leave(case.keys[0], f"{cause.left.key} of the same container stays", quiet=True)
                break
        else:
            return cases


def _too_many(cases: list[Case], devices: int) -> Iterable[Case]:
    """Refuse more devices than a pod may have; one case is told, for the pod."""
    first = next(case for case in cases if case.open)
    reason = f"{devices} devices for one pod, {POD_LIMIT} is the most"
    return (case.refuse(case.keys[0], reason, "split the pod") if case is first else case for case in cases)


def _share(made: tuple[ServedDemand, ...], slots: tuple[Slot, ...], shop: Workshop) -> Shared:
    """Give claims to containers: pod-wide ones to all, the others to who asked."""
    everyone = tuple(slot.name for slot in slots)
    common = tuple(
        Grant(
            spec=spec,
            owner="",
            base=one.made.claims.base,
            users=everyone if one.case.dialect.seen_by_all else one.case.containers,
        )
        for one in made
        if one.case.dialect.scope is Scope.POD
        for spec in one.made.claims.specs
    )
    wishes = tuple(_wish(one) for one in made if one.case.dialect.scope is Scope.CONTAINER)
    shared = share(wishes, lambda demand: _made(shop, demand).claims)
    return Shared((*common, *shared.grants), shared.remarks)


def _wish(one: ServedDemand) -> Wish:
    slot = one.case.words[0][0]
    return Wish(
        container=slot.name,
        demand=one.demand,
        claims=one.made.claims,
        separable=one.made.supply.target.separable,
        order=slot.order,
        init=slot.init,
        sidecar=slot.sidecar,
    )


def _remarked(cases: list[Case], shared: Shared) -> Iterable[Case]:
    for case in cases:
        remarks = [text for container, text in shared.remarks if container == case.container]
        yield case.note(*(Note(case.keys[0], Action.APPROXIMATED, text) for text in remarks)) if case.open else case
