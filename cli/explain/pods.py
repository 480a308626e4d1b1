"""The story of a pod: what it asked for, what became of that, what it has, and who has to act next. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from allocator.decisions import Outlook, devices_ready
from cli.explain.claims import FALSE, condition_text, tell_claim
from cli.explain.gate import words_on
from cli.explain.prospects import prospect_of, quota_of
from cli.explain.stories import ClaimState, ClaimStory, GateWords, Keeper, PodStory, Prospect, Standing
from dra.objects import Pod, claim_name, claim_names
from webhook.dialects import Action
from webhook.names import NAME, PREFIX
from webhook.translate import mapping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.explain.scene import Scene
    from dra.objects import PodResourceClaim, ResourceClaim
    from webhook.state import Configuration

_CHANGING = frozenset((Action.TRANSLATED, Action.APPROXIMATED))
_ALLOCATED = frozenset((ClaimState.ALLOCATED, ClaimState.RESERVED, ClaimState.PREPARED))


class _Case(NamedTuple):
    """Everything that says where a pod stands."""

    pod: Pod
    gate: GateWords
    claims: tuple[ClaimStory, ...]
    prospect: Prospect | None
    scene: Scene
    keeper: Keeper

    @property
    def scheduler(self) -> str:
        return self.pod.spec.scheduler_name or "default-scheduler"


def tell_pod(key: str, scene: Scene, configuration: Configuration) -> PodStory:
    """Tell of one pod, by namespace/name."""
    pod = scene.pods[key]
    gate = words_on(pod, scene, configuration)
    claims = tuple(_claims(pod, scene))
    waits = not (pod.spec.node_name or pod.is_done)
    prospect = prospect_of(pod, scene) if waits else None
    scheduler = pod.spec.scheduler_name or "default-scheduler"
    keeper = scheduler_keeper(scheduler, configuration)
    standing = _standing(_Case(pod, gate, claims, prospect, scene, keeper))
    raw = scene.raw.get(key)
    return PodStory(
        name=key,
        standing=standing,
        phase=_phase(pod),
        node=pod.spec.node_name,
        scheduler=scheduler,
        owners=scene.owners(raw) if raw is not None else (),
        gate=gate,
        claims=claims,
        conditions=tuple(_conditions(pod)),
        prospect=prospect,
        quota=quota_of(pod, prospect, scene),
    )


def scheduler_keeper(name: str, configuration: Configuration) -> Keeper:
    """Say whether a scheduler asks our allocator: the one that the configuration names, or one of our name where it names none."""
    bridge = configuration.file.bridge
    ours = name == bridge.scheduler_name if bridge is not None else name.startswith(NAME)
    return Keeper.BRIDGE if ours else Keeper.SCHEDULER


def _phase(pod: Pod) -> str:
    """The phase; what an API server has seen is Pending at least."""
    return pod.status.phase or ("Pending" if pod.metadata.uid else "")


def _conditions(pod: Pod) -> Iterator[str]:
    """What is not as it should be, in the words of who says so."""
    for one in pod.status.conditions:
        if one.status == FALSE and (one.message or one.reason):
            since = f" since {one.last_transition_time}" if one.last_transition_time else ""
            yield f"{condition_text(one)}{since}"


# ---- its claims


def _claims(pod: Pod, scene: Scene) -> Iterator[ClaimStory]:
    namespace = pod.metadata.namespace or "default"
    told: set[str] = set()
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        if name is None:
            continue  # the controller says that none is needed
        told.add(name)
        template = entry.resource_claim_template_name or ""
        claim = scene.stock.claims.get(f"{namespace}/{name}")
        if claim is None:
            yield _missing(entry, name, namespace, scene)
        else:
            yield tell_claim(claim, scene, entry=entry.name, template=template)
    for name in claim_names(pod):
        claim = scene.stock.claims.get(f"{namespace}/{name}")
        if name not in told and claim is not None:
            yield tell_claim(claim, scene, entry="extended resources")


def _missing(entry: PodResourceClaim, name: str, namespace: str, scene: Scene) -> ClaimStory:
    template = entry.resource_claim_template_name or ""
    there = f"{namespace}/{template}" in scene.templates
    remark = f"ResourceClaim {name} does not exist"
    if template and not there:
        remark = f"ResourceClaimTemplate {template} does not exist"
    elif template:
        remark = f"it is not made yet, though ResourceClaimTemplate {template} exists"
    return ClaimStory(
        name=f"{namespace}/{name}" if name else "",
        state=ClaimState.MISSING,
        entry=entry.name,
        template=template,
        remarks=(remark,),
    )


# ---- where it stands


def _standing(case: _Case) -> Standing:
    """Find who has to act next: the first that applies, from the end of a pod's life to its beginning."""
    return _at_its_end(case.pod) or _on_a_node(case) or _before_claims(case) or _at_its_scheduler(case)


def _at_its_end(pod: Pod) -> Standing | None:
    deleted = pod.metadata.deletion_timestamp
    if pod.has_ended:
        return Standing(keeper=Keeper.NOBODY, message=f"it has ended ({pod.status.phase}), and uses nothing any more")
    if deleted and pod.spec.node_name:
        return Standing(
            keeper=Keeper.KUBELET,
            message=f"it is being deleted since {deleted}; the kubelet of {pod.spec.node_name} ends it first",
        )
    if deleted:
        held = ", ".join(pod.metadata.finalizers)
        waits = f", and waits for its finalizers: {held}" if held else ""
        return Standing(keeper=Keeper.NOBODY, message=f"it is being deleted since {deleted}{waits}")
    return None


def _on_a_node(case: _Case) -> Standing | None:
    pod = case.pod
    node = pod.spec.node_name
    if not node:
        return None
    if pod.status.phase == "Running":
        return Standing(keeper=Keeper.NOBODY, message=f"it runs on {node}")
    for claim in case.claims:
        for device in claim.devices:
            bad = [one for one in device.conditions if f"={FALSE}" in one]
            if bad:
                return Standing(keeper=Keeper.DRIVER, message=f"it is bound to {node}; {device.device} says {bad[0]}")
    unprepared = [one for one in case.claims if one.state is not ClaimState.PREPARED]
    if unprepared:
        drivers = {device.device.partition("/")[0] for claim in unprepared for device in claim.devices}
        listed = ", ".join(sorted(drivers)) or "its drivers"
        return Standing(
            keeper=Keeper.DRIVER,
            message=f"it is bound to {node}, whose kubelet has its devices prepared by {listed}",
        )
    return Standing(keeper=Keeper.KUBELET, message=f"it is bound to {node}, whose kubelet starts it")


def _before_claims(case: _Case) -> Standing | None:
    """Say what has to happen before anybody looks for devices."""
    pod = case.pod
    gate = case.gate
    if gate.refusals and not pod.metadata.uid:
        return Standing(keeper=Keeper.GATE, message=f"it would be refused: {gate.refusals[0]}")
    if pod.spec.scheduling_gates:
        gates = [str(mapping(one).get("name")) for one in pod.spec.scheduling_gates]
        return Standing(keeper=Keeper.USER, message=f"scheduling gates hold it: {', '.join(gates)}")
    namespace = pod.metadata.namespace or "default"
    for claim in case.claims:
        if claim.state is ClaimState.DELETING:
            return Standing(keeper=Keeper.CLAIMS, message=f"claim {claim.name} is being deleted, and nobody gets it")
        if claim.state is not ClaimState.MISSING:
            continue
        if not claim.template:
            return Standing(keeper=Keeper.USER, message=f"{claim.remarks[0]}; somebody has to make it")
        if f"{namespace}/{claim.template}" in case.scene.templates:
            return Standing(
                keeper=Keeper.CLAIMS, message=f"kube-controller-manager has not made claim {claim.entry} yet"
            )
        ours = claim.template.startswith(PREFIX)
        return Standing(keeper=Keeper.TEMPLATES if ours else Keeper.USER, message=claim.remarks[0])
    return None


def _at_its_scheduler(case: _Case) -> Standing:
    name = case.scheduler
    if case.prospect is not None:
        return Standing(keeper=case.keeper, message=_words_of(case.prospect, name))
    states = {one.state for one in case.claims}
    if states and states <= _ALLOCATED:
        return _once_allocated(case)
    if case.gate.foretold and case.gate.decisions:
        return _without_claims(case)
    message = f"it has no claims, so devices do not keep it; {name} places it"
    return Standing(keeper=case.keeper, message=message)


def _without_claims(case: _Case) -> Standing:
    """Say of a pod that asks in legacy words, and has no claims for them, who serves it."""
    changed = [one for one in case.gate.decisions if one.action in _CHANGING]
    if changed and not case.pod.metadata.uid:
        return Standing(keeper=Keeper.GATE, message="it has not passed the gate yet")
    keys = dict.fromkeys(one.key for one in case.gate.decisions if one.key)
    message = f"no claim stands for {', '.join(keys)}: {case.scheduler} places it where a device plugin has them"
    return Standing(keeper=case.keeper, message=message)


def _once_allocated(case: _Case) -> Standing:
    ready = devices_ready(_wanted(case.pod, case.scene))
    waits = ready.failed or ready.waits_for
    if waits:
        return Standing(keeper=Keeper.DRIVER, message=waits)
    message = f"its claims are allocated; {case.scheduler} has not bound it yet"
    return Standing(keeper=case.keeper, message=message)


def _words_of(prospect: Prospect, scheduler: str) -> str:
    """What the scheduler would say."""
    if prospect.outlook is Outlook.NEVER:
        return f"no node could serve it, whoever ends: {prospect.message}"
    if prospect.outlook is not Outlook.FITS:
        return prospect.message
    if not prospect.beside:
        return f"devices for it are free, and {scheduler} has not placed it yet"
    fitting = sum(one.count for one in prospect.groups if one.devices)
    kept = sum(one.count for one in prospect.beside)
    if kept < fitting:
        return f"devices for it are free on {fitting - kept} nodes that would do, and {scheduler} has not placed it yet"
    most = prospect.beside[0]
    return f"devices for it are free, but not where it may run: {most.message} ({most.count} of {fitting} nodes)"


def _wanted(pod: Pod, scene: Scene) -> Iterator[ResourceClaim]:
    namespace = pod.metadata.namespace or "default"
    for name in claim_names(pod):
        claim = scene.stock.claims.get(f"{namespace}/{name}")
        if claim is not None:
            yield claim
