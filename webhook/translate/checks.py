"""Checks the cases of a pod (each has the keys of one dialect): pairs keys, finds the claims, and closes cases that claims would not serve.

A check is a step, `(Case, Context) -> Case`, that leaves or refuses an open case, or returns it with claims or notes added. The order of the
steps gives the plainest reason first: Kubernetes serves the key itself, the fleet cannot serve it, the administrator excludes it, or a quota or the
scheduler prevents it. Either all cases of a container stay open, or none (`_keep_containers_whole`). An open case has the claims that serve it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator.decisions import STRATEGY
from dra import server
from dra.policy import BY_CLASS, quota_keys
from dra.raw import inside, items
from dra.reason import Reason
from dra.texts import count_of, list_first
from webhook.claims import (
    ClaimMaker,
    ContainerDemand,
    Grant,
    ServedDemand,
    SharedClaims,
    claim_maker,
    count_devices,
    pass_fence,
    share,
)
from webhook.dialects import (
    ALTERNATIVES,
    CLAIMS,
    NUMA_NODE,
    POD_LIMIT,
    Demand,
    KeyedDemand,
    Note,
    Outcome,
    Pairs,
    Role,
    Scope,
)
from webhook.names import CONFIGURATION_PAGE, EXTENDED_RESOURCES, PLUGIN_FOLDER
from webhook.refusals import Code
from webhook.state import node_constraints, node_index
from webhook.translate.cpus import CPU
from webhook.translate.owner import find_misspelt
from webhook.translate.packing import packing_of
from webhook.translate.workload_kind import ANY_KEY, QUEUE, READ_BY_OTHERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dra.budget import Budget
    from dra.wire import Json
    from webhook.dialects import Need, Served
    from webhook.state import Configuration, Features, Inventory, Joint, State
    from webhook.translate.case import Case
    from webhook.translate.owner import Owners
    from webhook.translate.pod_view import PodView
    from webhook.translate.record import WrittenRecord
    from webhook.translate.workload_kind import Provenance

    Step = Callable[[Case, "Context"], Case]


_CHECK = 50  # steps of the budget for one check of one case


class Context(NamedTuple):
    pod: PodView
    configuration: Configuration
    fleet: Inventory
    features: Features
    claim_maker: ClaimMaker
    confirmed: bool  # whether the inventory is complete enough to refuse a pod for it
    scheduler: str  # the pod's scheduler, or the scheduler that a translated pod gets
    namespace: str
    quota: frozenset[str]  # keys that a ResourceQuota of the namespace limits
    limit_range: frozenset[str]  # keys that a LimitRange of the namespace has
    queue: str  # the Kueue queue of the pod or of its workload
    # Whether the pod, or its workload, needs the scheduler that it names.
    scheduled: bool
    # Why an autoscaler ignores the pod's claims; "" if it considers them, or if there is no autoscaler.
    neglected: str
    # Misspelt keys, by the order of their containers.
    misspelt: Mapping[int, Reason]
    # Prefixes of the keys that another program reads, each with the reason.
    read_by_others: Mapping[str, str]
    # Keys that an earlier round (an earlier call of the webhook for this pod) removed, by container.
    recorded: Mapping[str, Mapping[str, Json]]
    budget: Budget


def make_context(
    pod: PodView,
    state: State,
    owners: Owners,
    written: WrittenRecord,
    budget: Budget,
    *,
    origin: Provenance,
    namespace: str,
) -> Context:
    configuration, installed = state.configuration, state.fleet.installed
    misspelt: Mapping[int, Reason] = {}
    for slot in pod.slots:
        if len(slot.limits) > len(slot.legacy_keys):
            misspelt = find_misspelt(pod, configuration, state.fleet)
            break
    return Context(
        pod=pod,
        configuration=configuration,
        fleet=state.fleet,
        features=state.features,
        claim_maker=claim_maker(configuration, state.fleet),
        confirmed=state.confirmed and not (state.incomplete and state.unseen),
        scheduler=pod.scheduler or "default-scheduler",
        namespace=namespace,
        quota=state.quotas.get(namespace, frozenset()),
        limit_range=state.limit_ranges.get(namespace, frozenset()),
        queue=origin.queue or str(pod.labels.get(QUEUE) or ""),
        scheduled=bool(owners.scheduled or origin.scheduler),
        neglected=installed.neglects(pod.selected, pod.spec) if installed.autoscalers else "",
        misspelt=misspelt,
        read_by_others=_read_by_others(pod, origin, budget),
        recorded=written.record.containers,
        budget=budget,
    )


def _read_by_others(pod: PodView, origin: Provenance, budget: Budget) -> dict[str, str]:
    """Return the prefixes of the keys that a program other than the device plugin reads, each with the reason."""
    readers: dict[str, str] = {}
    marks = pod.labels.keys() | pod.annotations.keys() | origin.labels
    if not marks.isdisjoint(READ_BY_OTHERS):
        readers |= dict([reader for name, reader in READ_BY_OTHERS.items() if name in marks])
    volumes = items(pod.spec, "volumes")
    budget.charge(len(volumes))
    for volume in volumes:
        if "hostPath" in volume and str(inside(volume, "hostPath").get("path")).startswith(PLUGIN_FOLDER):
            readers[ANY_KEY] = (
                f"the pod is a device plugin itself ({PLUGIN_FOLDER}), and hands its devices out to others"
            )
    for slot in pod.slots:
        variables = items(slot.raw, "env")
        budget.charge(len(variables))
        for variable in variables:
            if "valueFrom" in variable:
                path = str(inside(variable, "valueFrom", "fieldRef").get("fieldPath"))
                if path.startswith(_ANNOTATION) and "/" in path:
                    key = path.removeprefix(_ANNOTATION).rstrip("']")
                    name = variable.get("name")
                    readers[key] = f"variable {name} is the annotation {key}, which the scheduler of the key writes"
            elif variable.get("name") == HABANA and variable.get("value") not in (None, "", "none", "void"):
                readers["habana.ai/"] = f"by variable {HABANA}, Habana's runtime chooses the cards itself"
    return readers


class CheckedPod(NamedTuple):
    """The checked cases, the claims of the cases that stayed open, and how the pod is placed."""

    cases: tuple[Case, ...]
    shared: SharedClaims = SharedClaims(())
    scheduler: str = ""  # the pod's new scheduler, "" if the pod keeps its own
    strategy: str = ""  # the bridge's strategy for the pod, "" if other settings decide
    # Annotations that the strategy replaces, each with its dialect and the detail for the report.
    packed: Mapping[str, tuple[str, str]] = {}

    @property
    def translated(self) -> tuple[Case, ...]:
        return tuple([case for case in self.cases if case.open])


HABANA = "HABANA_VISIBLE_DEVICES"
_ANNOTATION = "metadata.annotations['"  # how a variable names an annotation of its pod
_NEAREST = "topology"  # a strategy of the bridge


def check_cases(cases: Sequence[Case], context: Context) -> CheckedPod:
    """Check all cases of a pod, and find the claims of those that pass."""
    if context.recorded:
        cases = _run_steps(cases, (leave_latecomers,), context)
    if context.misspelt:
        cases = _run_steps(cases, (leave_misspelt,), context)
    if context.read_by_others:
        cases = _run_steps(cases, (leave_read_by_others,), context)
    for joint in context.configuration.file.joint:
        cases = _pair_keys(cases, joint)
    if context.fleet.extended:
        cases = [leave_unclear_to_core(case, context) if case.left is not None else case for case in cases]
    without_claims = cases
    steps: list[Step] = [leave_served_by_core, make_claims, leave_approximations]
    if context.quota:
        steps.append(respect_quotas)
    if context.limit_range:
        steps.append(respect_limit_ranges)
    if context.queue:
        steps.append(respect_queue)
    cases = _run_steps(cases, steps, context)
    if context.pod.cpus:
        cases = tuple(check_cpu_nodes(cases, context))
    cases, scheduler = _choose_scheduler(cases, context)
    shared = _share_claims(cases, context)
    devices = sum([count_devices(grant.spec) for grant in shared.grants])
    if devices > POD_LIMIT:  # a limit of the API server for claims; a device plugin has none
        if any(case.keeps and case.open for case in cases):
            return check_cases(
                leave_cpus(without_claims, f"{devices} devices for one pod, {POD_LIMIT} is the maximum"), context
            )
        reason = f"{devices} devices for one pod, {POD_LIMIT} is the maximum with claims"
        return CheckedPod(tuple([case.leave(case.keys[0], reason) if case.open else case for case in cases]))
    strategy = ""
    packed: dict[str, tuple[str, str]] = {}
    bridge = context.configuration.file.bridge
    if bridge is not None and bridge.scheduler_name == (scheduler or context.scheduler):
        shared = pass_fence(shared)  # even without a fence: a fence that is created later must not block pending pods
        own_strategy = context.pod.annotations.get(STRATEGY)
        cases, strategy = _place_close(cases, own_strategy)
        if not strategy:
            cases, strategy, packed = _pack_nodes(cases, context.pod.annotations, own_strategy)
    for container, text in shared.remarks:
        noted: list[Case] = []
        for case in cases:
            is_approximated = case.open and case.container == container
            noted.append(case.note(Note(case.keys[0], Outcome.APPROXIMATED, text)) if is_approximated else case)
        cases = tuple(noted)
    return CheckedPod(cases=cases, shared=shared, scheduler=scheduler, strategy=strategy, packed=packed)


def _run_steps(cases: Sequence[Case], steps: Sequence[Step], context: Context) -> tuple[Case, ...]:
    """Run the steps on each case until one closes it, then close the other cases of that case's container."""
    stepped = []
    is_open = True
    for case in cases:
        for step in steps:
            if not case.open:
                break
            context.budget.charge(_CHECK)
            case = step(case, context)  # noqa: PLW2901  the case goes on as the step returns it
        stepped.append(case)
        is_open = is_open and case.open
    return tuple(stepped) if is_open else _keep_containers_whole(stepped)


def _keep_containers_whole(cases: list[Case]) -> tuple[Case, ...]:
    """Close the other cases of a container that has a closed one."""
    closed_containers: dict[int, Reason] = {}
    for case in cases:
        if case.left and not case.independent:
            for slot, _ in case.slot_keys:
                closed_containers[slot.order] = case.left
    spreading = bool(closed_containers)
    while spreading:
        spreading = False
        for i, case in enumerate(cases):
            if not case.open or case.independent:
                continue
            reasons = [closed_containers[slot.order] for slot, _ in case.slot_keys if slot.order in closed_containers]
            if not reasons:
                continue
            staying = case.leave(case.keys[0], f"{reasons[0].causes[0]} of the same container stays", quiet=True)
            cases[i] = staying
            assert staying.left
            for slot, _ in case.slot_keys:
                closed_containers[slot.order] = staying.left
            spreading = True
    return tuple(cases)


# Pairs


def _pair_keys(cases: Sequence[Case], joint: Joint) -> list[Case]:
    """Pair two keys in each container that has both: the pair becomes a demand of the primary's case. Without pairs, both keys stay."""
    if len(cases) == 1 and len(cases[0].demands) < 2:
        return list(cases)
    by_key: dict[tuple[str, str], tuple[int, Demand]] = {}
    for i, case in enumerate(cases):
        if not case.open or case.dialect.scope is not Scope.CONTAINER:
            continue
        for keyed_demand in case.demands:
            if isinstance(keyed_demand.demand, Demand):
                by_key[case.container, keyed_demand.key] = i, keyed_demand.demand
    other = joint.secondary
    having = {key: {case.container for case in cases if key in case.keys} for key in (joint.primary, other)}
    both = having[joint.primary] & having[other]
    is_joined = [case.container in both and not having.keys().isdisjoint(case.keys) for case in cases]
    paired = [replace(case, joined=case.joined or joined) for case, joined in zip(cases, is_joined, strict=True)]
    for (container, key), (i, primary) in by_key.items():
        partner = by_key.get((container, other))
        if key != joint.primary or partner is None:
            continue
        j, secondary = partner
        each, rest = divmod(secondary.count, primary.count)
        if rest or not each:
            becomes = f"{other} becomes {count_of(secondary.count, 'device')}"
            reason = f"{becomes}, which cannot be divided evenly among {primary.count} {key}"
            if joint.otherwise == "refuse":
                remedy = f"ask for {primary.count} {other}, or for a multiple of it"
                paired[i] = paired[i].refuse(key, reason, remedy, Code.JOINT)
            else:
                paired[i] = paired[i].leave(key, reason)
            continue
        pairs = Pairs(primary=primary, secondary=secondary.times(each), attribute=joint.attribute, each=each)
        remaining = tuple([keyed_demand for keyed_demand in paired[j].demands if keyed_demand.key != other])
        paired[j] = replace(paired[j], demands=remaining)
        pair = KeyedDemand(key, pairs, (other,))
        demands = tuple([pair if keyed_demand.key == key else keyed_demand for keyed_demand in paired[i].demands])
        paired[i] = replace(paired[i], demands=demands).note(Note(other, Outcome.TRANSLATED, f"{each} with each {key}"))
    return paired


# The steps


def leave_latecomers(case: Case, context: Context) -> Case:
    """Leave keys that were added after other keys of their dialect were translated: without those, they mean something else."""
    containers = (case.container,) if case.container else tuple(context.recorded)
    for name in containers:
        for key in context.recorded.get(name, ()):
            if any(known.dialect.name == case.dialect.name for known in context.configuration.resource(key)):
                reason = "came after the other keys had been translated: another webhook adds it"
                return case.leave(case.keys[0], reason)
    return case


def leave_read_by_others(case: Case, context: Context) -> Case:
    """Leave keys that another program reads on the pod after our webhook."""
    for key in case.keys:
        context.budget.charge(len(context.read_by_others))
        for prefix, reason in context.read_by_others.items():
            if key.startswith(prefix):
                return case.leave(key, reason)
    return case


def leave_misspelt(case: Case, context: Context) -> Case:
    for slot, _ in case.slot_keys:
        left = context.misspelt.get(slot.order)
        if left:
            return replace(case.leave(left.causes[0], left.text), left=left)
    return case


def leave_served_by_core(case: Case, context: Context) -> Case:
    """Leave a case that Kubernetes serves itself: only plain counts of the extended resources of DeviceClasses."""
    fenced = ""
    for key, demand, _ in case.demands:
        name = context.fleet.extended.get(key)
        if name is None or not isinstance(demand, Demand) or not context.features.enabled(server.EXTENDED):
            return case
        # The name of a MIG key contains the profile. A profile from another key is part of a request that Kubernetes does not serve.
        profile = demand.profile
        if profile and case.role(key) is not Role.PROFILE:
            profile = ""
        if demand != Demand(target=demand.target, count=demand.count, profile=profile):
            return case
        target = context.configuration.targets.get(demand.target)
        driver, choice = _core_choice(name, target.driver if target is not None else "", context)
        if choice == "translate":
            return case
        bridge = context.configuration.file.bridge
        managed = bridge is not None and driver in bridge.drivers
        if bridge is not None and managed and bridge.fence and context.pod.spec.get("schedulerName") != bridge.scheduler_name:  # fmt: skip
            fenced = fenced or driver
    keys = [keyed_demand.key for keyed_demand in case.demands]
    if not keys or (len(case.keys) > len(keys) and set(case.asking_keys()) != set(keys)):
        return case
    reason = served_by(context.fleet.extended[keys[0]])
    if fenced:
        reason = f"{reason}, but `bridge.fence` reserves the devices of {fenced} for another scheduler: let the webhook translate the pod"
        return case.leave(keys[0], reason, code="D218")
    return case.leave(keys[0], reason, quiet=True, served=True)


def leave_unclear_to_core(case: Case, context: Context) -> Case:
    """Leave to Kubernetes a key whose unit is unclear, if a DeviceClass serves the key."""
    if case.left is None or case.left is not case.unit.left or case.quiet:
        return case
    name = context.fleet.extended.get(case.bare, "") if context.features.enabled(server.EXTENDED) else ""
    served = context.fleet.classes.get(name)
    if served is None or not served.devices:  # or no device of a driver that counts (`evidence`)
        return case
    # If a device plugin makes replicas of a device, the meaning of a unit is known.
    if case.bare in context.fleet.shared or set(case.asking_keys()) != {case.bare}:
        return case
    _, choice = _core_choice(name, "", context)
    if choice == "translate":
        return case
    return case.leave(case.bare, served_by(name), quiet=True, served=True)


def _core_choice(name: str, otherwise: str, context: Context) -> tuple[str, str]:
    """Return the driver of an extended resource, and the choice of the configuration: Kubernetes or a claim serves the resource."""
    served = context.fleet.classes.get(name)
    driver = (served.driver if served is not None else "") or otherwise
    bridge = context.configuration.file.bridge
    choice = context.configuration.file.extended_resources.choose(
        driver,
        context.namespace,
        str(context.pod.annotations.get(EXTENDED_RESOURCES, "")),
        managed=bridge is not None and driver in bridge.drivers,
        autoscaled=bool(context.neglected),
    )
    return driver, choice


def make_claims(case: Case, context: Context) -> Case:
    demands: list[KeyedDemand] = []
    served: list[ServedDemand] = []
    notes = list(case.notes)
    numa_may_be_dropped = context.configuration.file.numa_bind == "drop"
    for keyed_demand in case.demands:
        key, demand, _ = keyed_demand
        made = context.claim_maker.make(demand, context.budget)
        droppable = numa_may_be_dropped and isinstance(demand, Demand)
        if isinstance(made, Reason) and NUMA_NODE in made.causes and droppable:
            text = f"{made.text}: the devices may be on different NUMA nodes"
            notes.append(Note(key, Outcome.APPROXIMATED, text))
            assert isinstance(demand, Demand)
            demand = replace(demand, same_attribute="")
            made = context.claim_maker.make(demand, context.budget)
        if isinstance(made, Reason):
            # Refuse a demand that no claim can express only if the configuration requires it and the inventory is complete.
            file = context.configuration.file
            if context.confirmed and made.code == Code.SIZES and file.unresolved == "refuse":
                remedy = "an administrator can declare the sizes under `models`"
                return case.refuse(key, made.text, remedy, Code.SIZES)
            if context.confirmed and NUMA_NODE in made.causes and file.numa_bind == "refuse":
                return case.refuse(key, made.text, "remove the annotation", Code.INEXPRESSIBLE)
            return case.leave(key, made.text)
        if made.moved and context.pod.spec.get("hostNetwork") is True:
            return case.leave(
                key,
                "the driver moves the device into the pod's network, and a pod with hostNetwork has none of its own",
            )
        demands.append(keyed_demand if demand is keyed_demand.demand else keyed_demand._replace(demand=demand))
        served.append(made)
        for i, note in enumerate(notes):
            if note.key == key:  # add the DeviceClass to the key's note
                noun = "class" if len(made.classes) == 1 else "classes"
                detail = f"{note.detail} ({noun} {' and '.join(made.classes)})"
                notes[i] = replace(note, detail=detail.lstrip())
                break
        for remark in made.claims.remarks:
            note = Note(key, Outcome.APPROXIMATED, remark)
            notes.append(note)
    return replace(case, demands=tuple(demands), made=tuple(served), notes=tuple(notes))


def leave_approximations(case: Case, context: Context) -> Case:
    """Leave keys that claims could only approximate, if the administrator excludes that. A key that no claim expresses does not count."""
    if context.configuration.file.approximations == "leave":
        for note in case.notes:
            if note.outcome is Outcome.APPROXIMATED and not note.is_dropped:
                return case.leave(note.key, f"it could only be approximated: {note.detail}")
    return case


def respect_quotas(case: Case, context: Context) -> Case:
    """Leave keys that a ResourceQuota limits if neither it nor the key that `quotas` maps them to would count their claims."""
    by_name = context.features.enabled(server.EXTENDED)
    for key, serving in () if case.keeps else _serving(case).items():
        if f"requests.{key}" not in context.quota:
            continue
        counted = frozenset.intersection(
            *[quota_keys(served.name, served.extended_resource, by_name=by_name) for served in serving]
        )
        if f"requests.{key}" in counted:
            continue  # claims of such a class are charged to the old quota key too
        mapped = context.configuration.file.quotas.get(key, "")
        if not mapped:
            remedy = f"an administrator can declare `quotas: {{{key}: CLASS{BY_CLASS}}}` ({CONFIGURATION_PAGE})"
            return case.leave(key, f"a ResourceQuota limits requests.{key}, which claims would bypass; {remedy}")
        if mapped not in counted:
            classes = list_first(list(dict.fromkeys(served.name for served in serving)), 2)
            problem = f"which counts no claims of class {classes}"
        elif mapped not in context.quota:
            problem = "which no ResourceQuota of the namespace limits"
        else:
            continue
        reason = f"a ResourceQuota limits requests.{key}, and the setting `quotas` maps this key to {mapped}, {problem}, so claims would bypass the quota"
        return case.leave(key, reason, code="D223")
    return case


def _serving(case: Case) -> dict[str, list[Served]]:
    """Return the classes whose claims replace each key. For a key that only modifies requests, these are all primary classes of the case."""
    serving: dict[str, list[Served]] = {}
    for demand, made in zip(case.demands, case.made, strict=True):
        for key, supply in zip((demand.key, *demand.other_keys), made.supplies, strict=False):
            serving.setdefault(key, []).append(supply.served)
    primary = [made.supply.served for made in case.made]
    for key in case.keys if primary else ():
        serving.setdefault(key, primary)
    return serving


def respect_limit_ranges(case: Case, context: Context) -> Case:
    """Leave keys of a LimitRange, because the LimitRange would refuse a pod without the key, or add the key again."""
    for key in () if case.keeps else case.keys:
        if key in context.limit_range:
            return case.leave(key, "a LimitRange bounds it or fills it in, and would refuse a pod without it")
    return case


def respect_queue(case: Case, context: Context) -> Case:
    """Leave a case whose claims Kueue cannot count, because Kueue would not admit the workload."""
    key = case.keys[0]
    mapped = context.configuration.file.kueue.device_classes
    classes = [name for made in case.made for name in made.classes]
    unmapped = sorted(set(classes) - set(mapped))
    if unmapped and case.keeps:
        return case.leave(key, f"Kueue in queue {context.queue} does not account for claims of {', '.join(unmapped)}")
    if unmapped:
        names = ", ".join(unmapped)
        mapping_of = f"deviceClassMappings: [{{name: {key}, deviceClassNames: [{names}]}}]"
        reason = f"Kueue counts it in queue {context.queue}; it is translated if an administrator sets `resources: {{{mapping_of}}}`"
        return case.leave(
            key, f"{reason} and the feature gate for DRA in Kueue, and `kueue.deviceClasses` in drawbridge"
        )
    if any(ALTERNATIVES in made.claims.needs for made in case.made):
        return case.leave(key, f"queue {context.queue}: Kueue does not count claims with alternatives (firstAvailable)")
    return case


def check_scheduler(case: Case, context: Context) -> Case:
    """Leave or refuse a case whose claims the pod's scheduler or the API server does not support."""
    needs: tuple[Need, ...] = (CLAIMS,)
    for made in case.made:
        needs = (*needs, *[need for need in made.claims.needs if need not in needs])
    file = context.configuration.file
    problem = context.features.missing(needs, context.scheduler, context.configuration.schedulers)
    if not problem:
        return case
    key = case.keys[0]
    if file.not_understood == "leave" or case.keeps:
        return case.leave(key, problem)
    return case.refuse(key, problem, "name a scheduler that serves claims", Code.SCHEDULER)


def _choose_scheduler(cases: tuple[Case, ...], context: Context) -> tuple[tuple[Case, ...], str]:
    """Check the cases against the scheduler that the pod gets; also return its name if it replaces the pod's own, else ""."""
    target = _target_scheduler(cases, context)
    if target:
        judged = _run_steps(cases, (check_scheduler,), context._replace(scheduler=target))
        if all(case.open for case in judged if case.demands):
            return judged, target
    # If a key needs the old scheduler, the pod keeps it.
    checked = _run_steps(cases, (check_scheduler,), context)
    name = context.scheduler
    cases_of_scheduler = [
        case for case in cases if (case.demands or case.left) and not case.open and _needs_scheduler(case, name)
    ]
    if not cases_of_scheduler:
        return checked, ""
    key = cases_of_scheduler[0].keys[0]
    reason = f"{key} keeps the pod with scheduler {name!r}, which is not known to serve such claims"
    final = [
        case.leave(case.keys[0], reason) if case.open and not after.open and name in case.dialect.schedulers else after
        for case, after in zip(cases, checked, strict=True)
    ]
    return tuple(final), ""


def _target_scheduler(cases: tuple[Case, ...], context: Context) -> str:
    """Return the new scheduler for a pod whose keys are translated; "" if the pod keeps its own."""
    name = context.scheduler
    file = context.configuration.file
    own = any_open = False
    for case in cases:
        if case.open:
            any_open = True
            own = own or name in case.dialect.schedulers
        elif (case.demands or case.left) and _needs_scheduler(case, name):
            return ""
    if not any_open or context.scheduled:
        return ""
    if file.bridge and (own or name == file.target_scheduler):
        open_claims = [made for case in cases if case.open for made in case.made]
        drivers = {supply.driver for made in open_claims for supply in made.supplies}
        if not drivers.isdisjoint(file.bridge.drivers):
            return file.bridge.scheduler_name
    if own and file.target_scheduler != name:
        return file.target_scheduler
    return ""


def _place_close(cases: tuple[Case, ...], own_strategy: Json) -> tuple[tuple[Case, ...], str]:
    """Choose the bridge's strategy for near devices if the pod prefers them: a claim cannot express the preference, a strategy can.

    A strategy that the pod names itself (`own_strategy`) stays.
    """
    placed: list[Case] = []
    strategy = ""
    for case in cases:
        notes = list(case.notes)
        for i, note in enumerate(notes):
            if case.open and note.about is Role.JOINT:
                text = f"no scope is required: the pod's own {STRATEGY} says where its devices are"
                if own_strategy is None:
                    strategy = _NEAREST
                    text = f"no scope is required: the bridge prefers devices that are near ({STRATEGY}: {strategy})"
                notes[i] = replace(note, detail=text)
        placed.append(replace(case, notes=tuple(notes)))
    return tuple(placed), strategy


def _pack_nodes(
    cases: tuple[Case, ...], annotations: Mapping[str, Json], own_strategy: Json
) -> tuple[tuple[Case, ...], str, dict[str, tuple[str, str]]]:
    """Return the bridge's strategy nearest to the pod's annotations for another scheduler; "" if the pod has `own_strategy`."""
    packing = packing_of(annotations)
    if packing is None or not any(case.open and case.dialect.name == packing.dialect for case in cases):
        return cases, "", {}
    strategy = packing.strategy if own_strategy is None else ""
    text = f"the bridge's nearest strategy is {strategy} ({STRATEGY})"
    if own_strategy is not None:
        text = f"the pod's own {STRATEGY} says how it is placed"
    placed: list[Case] = []
    for case in cases:
        # Remove the notes about dropping these annotations.
        notes = [note for note in case.notes if note.key not in packing.keys or not note.is_dropped]
        placed.append(replace(case, notes=tuple(notes)))
    return tuple(placed), strategy, dict.fromkeys(packing.keys, (packing.dialect, text))


def _needs_scheduler(case: Case, scheduler: str) -> bool:
    """Return whether keys that stay need the pod's scheduler. Keys that any scheduler counts do not need it."""
    return not case.independent or scheduler in case.dialect.schedulers


# Claims of containers


def _share_claims(cases: tuple[Case, ...], context: Context) -> SharedClaims:
    """Assign claims to containers: those for the whole pod, and those for a container's own keys."""
    common: list[Grant] = []
    requests: list[ContainerDemand] = []
    for case in cases:
        for keyed_demand, made in zip(case.demands, case.made, strict=True) if case.open else ():
            if case.dialect.scope is Scope.POD:
                slots = context.pod.slots if case.dialect.seen_by_all else [slot for slot, _ in case.slot_keys]
                users = tuple([slot.name for slot in slots])
                base = made.claims.base
                common += [Grant(spec=spec, owner="", base=base, users=users) for spec in made.claims.specs]
                continue
            slot = case.slot_keys[0][0]
            requested = ContainerDemand(
                container=slot.name,
                demand=keyed_demand.demand,
                claims=made.claims,
                separable=made.supply.target.separable,
                order=slot.order,
                init=slot.init,
                sidecar=slot.sidecar,
            )
            requests.append(requested)
    shared = share(tuple(requests), partial(context.claim_maker.claims, budget=context.budget), context.budget)
    return SharedClaims((*common, *shared.grants), shared.remarks) if common else shared


def served_by(class_name: str) -> str:
    return f"DeviceClass {class_name} serves it through extendedResourceName"


def leave_cpus(cases: Sequence[Case], reason: str) -> list[Case]:
    """Leave CPUs to the kubelet; other cases are not changed."""
    return [case.leave(CPU, reason) if case.keeps and case.open else case for case in cases]


def check_cpu_nodes(cases: Sequence[Case], context: Context) -> Sequence[Case]:
    """Leave CPUs to the kubelet if claims would count them twice, or if at most half of the nodes for the pod publish CPUs."""
    cpu_cases = [case for case in cases if case.keeps and case.open]
    if not cpu_cases or not context.fleet.nodes:
        return cases
    served = cpu_cases[0].made[0].supply.served
    if served.counts_cpus:  # always False for a server without DRANodeAllocatableResources
        reason = f"class {served.name} counts its CPUs as CPUs of the node, so claim and request would count them twice"
        return leave_cpus(cases, reason)
    reach = node_index(context.fleet).reach(node_constraints(context.pod.spec))
    nodes = reach.nodes or reach.closed
    for case in cases:
        for made in case.made if case.open and not case.keeps else ():
            with_devices = made.supply.served.nodes & context.fleet.nodes.keys()
            nodes = nodes & with_devices if with_devices else nodes
    publishing = nodes & served.nodes
    of_no_node = any(" " in name for name in served.nodes)  # slices without a nodeName count under `driver NAME`
    if of_no_node or len(publishing) * 2 > len(nodes):
        return cases
    reason = f"{len(publishing)} of {len(nodes)} nodes that the pod can run on publish CPUs of class {served.name}: more than half have to"
    return leave_cpus(cases, reason)
