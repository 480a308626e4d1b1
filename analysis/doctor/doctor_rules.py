"""The rules of doctor, in one table. The list of repairs in docs/commands.md is generated from the table."""

from __future__ import annotations

from functools import wraps
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from analysis.configuration import KIND as CONFIGURATION
from analysis.doctor import claims, classes, components, control_plane, fences, nodes, waiting_pods
from analysis.doctor.misspelt_settings import misspelt_settings
from analysis.doctor.observed import DoctorInput
from analysis.explain import RULES as POD_RULES
from analysis.installation import KINDS
from analysis.loading import Needs
from analysis.rules import Rule, missing_inputs, run
from analysis.unserved_nodes import LACKING_PODS, UNSERVED
from dra.codes import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analysis.doctor.components import Parts
    from analysis.doctor.repair import Repair
    from analysis.loading import Reading
    from dra.finding import Finding

# Inputs that are not kinds of objects.
REPLICAS: Final = "pods/proxy"
DRY_RUN: Final = "dry run of a pod"
SERVER_TIME: Final = "the API server's time"
STATUS: Final = "status of Deployments"
IMAGES: Final = "images of Deployments"
AUTOSCALERS: Final = "device plugins and autoscalers"
_INSTALLED = tuple(kind.kind for kind in KINDS)


def _of_parts(rule: Rule) -> Rule:
    """Return a rule about an installation, whose function gets its objects and the current time."""

    @wraps(rule.find)
    def find(observed: DoctorInput) -> Iterable[Any]:
        return rule.find(observed.parts, observed.now) if observed.parts is not None else ()

    return rule._replace(find=find)


# Causes come before their effects.
_FIRST = (
    Rule(control_plane.nothing_stored, "O020", ("Lease", SERVER_TIME)),
    Rule(control_plane.idle_controllers, "O017", ("Lease",)),
)
_INSTALLATION = tuple(
    _of_parts(rule)
    for rule in (
        Rule(components.two_installations, "O001", ("Deployment",)),
        Rule(components.about_configuration, "O002", ("ConfigMap",)),
        Rule(components.missing_objects, "O003", _INSTALLED, each=True),
        Rule(components.changed_objects, "O004", _INSTALLED, each=True),
        Rule(components.replaced_accounts, "O005", ("ServiceAccount", "Pod")),
        Rule(components.without_authority, "O009", ("Deployment", STATUS), each=True),
        Rule(components.about_bundles, "O007", ("MutatingWebhookConfiguration",)),
        Rule(components.about_certificates, "O006 O007 O003", ("Secret", "MutatingWebhookConfiguration")),
        Rule(components.served_certificates, "O006", (REPLICAS,)),
        Rule(components.about_webhooks, "O008 O004", ("MutatingWebhookConfiguration",)),
        Rule(components.not_running, "O009 O010", ("Deployment", STATUS), each=True),
        Rule(components.several_versions, "O011", ("Deployment", IMAGES)),
        Rule(components.without_leader, "O012 O013", ("Deployment", "Lease", STATUS)),
        Rule(components.about_modes, "D214", ("Namespace",)),
    )
)
_CAUSES = (
    Rule(control_plane.not_reached, "O015", ("MutatingWebhookConfiguration", DRY_RUN)),
    Rule(nodes.nodes_away, "O201", ("Node", "Pod")),
    Rule(waiting_pods.not_created, "O101", ("Event", "ReplicaSet"), each=True),
    Rule(misspelt_settings, "O019", (CONFIGURATION,), ("ResourceSlice", "Namespace")),
    Rule(classes.without_class, "O107", (), ("DeviceClass",)),
    Rule(classes.without_devices, "O108", ("ResourceSlice",), ("DeviceClass",)),
    Rule(waiting_pods.refused_by_webhook, "O102", ("Event",)),
    Rule(waiting_pods.not_scaled_for, "S008 S009", ("Pod", "Deployment", AUTOSCALERS), each=True),
)
# Why pods wait.
_OF_PODS = tuple(Rule(rule.find, rule.codes, rule.needs, rule.may_be_none) for rule in POD_RULES if rule.codes)
_REST = (
    Rule(claims.overlapping, "O209", (), ("ResourceClaim",), "frees the device from claims whose pods have no node"),
    Rule(waiting_pods.without_devices, "O230", ("Pod", "Node"), ("DeviceClass",)),
    Rule(nodes.on_both, "O202", ("Node",), ("ResourceSlice",)),
    Rule(claims.restarting, "O117", ("Pod",)),
    UNSERVED,
    LACKING_PODS,
    Rule(nodes.without_node, "O204", ("Node",), ("ResourceSlice",)),
    Rule(nodes.reported_by_agents, "O221 O222 O223 O224 O225 O226 O227 O228 O229", ("Event",)),
    Rule(
        claims.left_behind, "O210", ("Pod",), ("ResourceClaim",), "releases a claim that is left reserved or allocated"
    ),
    Rule(claims.without_pod, "O211", ("Pod",), ("ResourceClaim",), "deletes a claim whose pod is gone"),
    Rule(claims.idle_finalizers, "O212", ("Pod",), ("ResourceClaim",), "removes the finalizer of an allocation"),
    Rule(claims.with_negative_amounts, "O219", (), ("ResourceClaim",)),
    Rule(classes.on_devices_that_are_gone, "O218", ("ResourceSlice",), ("ResourceClaim",)),
    Rule(classes.incomplete_pools, "D401 D403 O208", (), ("ResourceSlice",)),
    Rule(classes.tainted, "O111", ("ResourceSlice",), ("DeviceClass", "DeviceTaintRule")),
    Rule(claims.in_deletion, "O215", (), ("ResourceClaim",)),
    Rule(
        fences.without_fence,
        "O206",
        (CONFIGURATION,),
        ("DeviceTaintRule",),
        "creates the missing fence (DeviceTaintRule)",
    ),
    Rule(fences.two_schedulers, "O205", (), ("DeviceTaintRule",)),
    Rule(control_plane.names_not_sent, "O016", (CONFIGURATION, "MutatingWebhookConfiguration")),
    Rule(control_plane.idle_leases, "O017", ("Lease",)),
    Rule(nodes.stale_marks, "O213", (), ("DeviceTaintRule",), "deletes the stale DeviceTaintRule of an audit agent"),
    Rule(nodes.stale_conditions, "O214", ("Node",), (), "removes the stale condition of an audit agent"),
    Rule(claims.unused_templates, "O216", ("Pod",), ("ResourceClaimTemplate",), "deletes the unused template"),
    Rule(claims.unused_claims, "O217", ("Pod",), ("ResourceClaim",)),
)
_LAST = _of_parts(Rule(components.replica_warnings, "O018", (REPLICAS,)))
RULES: Final = (*_FIRST, *_INSTALLATION, *_CAUSES, *_OF_PODS, *_REST, _LAST)
# If a dump has no object of one of these kinds, the kind counts as not read.
DUMPED: Final = frozenset(chain.from_iterable(rule.needs for rule in RULES if rule.needs != _INSTALLED)) - {
    REPLICAS,
    DRY_RUN,
    SERVER_TIME,
    CONFIGURATION,
    STATUS,
    IMAGES,
    AUTOSCALERS,
}


def diagnose(observed: DoctorInput) -> dict[Finding, Repair | None]:
    """Return the findings in the order of the rules, causes first, each with its repair."""
    repairs = _run((*_FIRST, *_INSTALLATION, *_CAUSES), observed)
    checked = [rule for rule in POD_RULES if not missing_inputs(rule, observed.reading, observed.missing)]
    waiting = tuple(waiting_pods.waiting(observed, checked, tuple(repairs)))
    repairs |= {finding: None for finding in waiting if finding.severity is not Severity.INFO}
    return repairs | _run((*_REST, _LAST), observed) | dict.fromkeys(waiting)  # last, those that only wait


def faults(reading: Reading) -> tuple[Finding, ...]:
    """Return the findings of the rules that need only this reading, and no search for nodes."""
    unread = {missed.kind for missed in reading.unread}
    kinds = {kind.kind for kind in Needs().kinds if kind.id not in unread}
    if not reading.is_live:
        kinds &= {str(obj.get("kind")) for obj in reading.objects}
    if not reading.in_force.is_default:
        kinds.add(CONFIGURATION)
    missing = {kind: "not read" for rule in RULES for kind in (*rule.needs, *rule.may_be_none) if kind not in kinds}
    findings = _run((*_CAUSES, *_REST), DoctorInput(reading=reading, missing=missing))
    return tuple(finding for finding in findings if finding.severity is not Severity.INFO)


def examine(parts: Parts | None, reading: Reading) -> tuple[Finding, ...]:
    """Return the findings about an installation, if there is one."""
    missing = dict.fromkeys(parts.unread, "not read") if parts is not None else {}
    return tuple(_run(_INSTALLATION, DoctorInput(reading=reading, parts=parts, missing=missing)))


def _run(rules: Iterable[Rule], observed: DoctorInput) -> dict[Finding, Repair | None]:
    results = run(rules, observed, observed.missing)
    return dict(result if isinstance(result, tuple) else (result, None) for result in results)
