"""The rules of doctor, in one table: their findings, their inputs, and their repairs by `--repair`.

`diagnose` runs the rules whose input was read; `not_checked` names the others. The list in docs/commands.md is generated from the table.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from analysis.configuration import KIND as CONFIGURATION
from analysis.doctor import claims, classes, components, control_plane, fences, nodes, pods
from analysis.doctor.misspelt_settings import misspelt_settings
from analysis.doctor.observed import DoctorInput
from analysis.explain import RULES as POD_RULES
from analysis.installation import KINDS
from analysis.loading import Needs
from dra.codes import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from analysis.doctor.components import Parts
    from analysis.doctor.repair import Repair
    from analysis.explain import PodRule
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


class NotChecked(msgspec.Struct, frozen=True):
    """Missing inputs, the codes that were therefore not checked, and why the inputs are missing, or how to provide them."""

    inputs: tuple[str, ...]
    codes: tuple[str, ...]
    reason: str


class DoctorRule(NamedTuple):
    """One rule: a function that returns findings, their codes, and the inputs that it needs.

    `may_be_none` has kinds of which a cluster need not have any object. The rule runs on a dump without objects of these kinds, but not on
    a live cluster that forbids listing them.
    """

    find: Callable[..., Iterable[Any]]  # of findings, or findings with repairs; of a rule about pods, reasons
    codes: str
    needs: tuple[str, ...] = ()
    may_be_none: tuple[str, ...] = ()
    repair: str = ""  # what `--repair` does
    each: bool = False  # the rule judges each input by itself, so it runs on those that were read


# Causes come before their effects.
_FIRST = (
    DoctorRule(control_plane.nothing_stored, "O020", ("Lease", SERVER_TIME)),
    DoctorRule(control_plane.idle_controllers, "O017", ("Lease",)),
)
# Rules about an installation: their functions get its objects and the current time.
_INSTALLATION = (
    DoctorRule(components.two_installations, "O001", ("Deployment",)),
    DoctorRule(components.about_configuration, "O002", ("ConfigMap",)),
    DoctorRule(components.missing_objects, "O003", _INSTALLED, each=True),
    DoctorRule(components.changed_objects, "O004", _INSTALLED, each=True),
    DoctorRule(components.replaced_accounts, "O005", ("ServiceAccount", "Pod")),
    DoctorRule(components.without_authority, "O009", ("Deployment", STATUS), each=True),
    DoctorRule(components.about_certificates, "O006 O007 O003", ("Secret", "MutatingWebhookConfiguration")),
    DoctorRule(components.served_certificates, "O006", (REPLICAS,)),
    DoctorRule(components.about_webhooks, "O008 O004", ("MutatingWebhookConfiguration",)),
    DoctorRule(components.not_running, "O009 O010", ("Deployment", STATUS), each=True),
    DoctorRule(components.several_versions, "O011", ("Deployment", IMAGES)),
    DoctorRule(components.without_leader, "O012 O013", ("Deployment", "Lease", STATUS)),
    DoctorRule(components.about_modes, "D214", ("Namespace",)),
)
_CAUSES = (
    DoctorRule(control_plane.not_reached, "O015", ("MutatingWebhookConfiguration", DRY_RUN)),
    DoctorRule(nodes.nodes_away, "O201", ("Node", "Pod")),
    DoctorRule(pods.not_created, "O101", ("Event",)),
    DoctorRule(misspelt_settings, "O019", (CONFIGURATION,), ("ResourceSlice", "Namespace")),
    DoctorRule(classes.without_class, "O107", (), ("DeviceClass",)),
    DoctorRule(classes.without_devices, "O108", ("ResourceSlice",), ("DeviceClass",)),
    DoctorRule(pods.refused_by_webhook, "O102", ("Event",)),
    DoctorRule(pods.not_scaled_for, "S008 S009", ("Pod", "Deployment", AUTOSCALERS), each=True),
)
# Why pods wait.
_OF_PODS = tuple(DoctorRule(rule.find, rule.codes, rule.needs, rule.may_be_none) for rule in POD_RULES if rule.codes)
_REST = (
    DoctorRule(
        claims.overlapping, "O209", (), ("ResourceClaim",), "frees the device from claims whose pods have no node"
    ),
    DoctorRule(nodes.on_both_or_neither, "O202 O203", ("Node",), ("ResourceSlice",)),
    DoctorRule(nodes.without_driver_pod, "O203", (), ("DaemonSet",)),
    DoctorRule(nodes.without_node, "O204", ("Node",), ("ResourceSlice",)),
    DoctorRule(nodes.reported_by_agents, "O221 O222 O223 O224 O225 O226 O227 O228", ("Event",)),
    DoctorRule(
        claims.left_behind, "O210", ("Pod",), ("ResourceClaim",), "releases a claim that is left reserved or allocated"
    ),
    DoctorRule(claims.without_pod, "O211", ("Pod",), ("ResourceClaim",), "deletes a claim whose pod is gone"),
    DoctorRule(claims.idle_finalizers, "O212", ("Pod",), ("ResourceClaim",), "removes the finalizer of an allocation"),
    DoctorRule(classes.on_devices_that_are_gone, "O218", ("ResourceSlice",), ("ResourceClaim",)),
    DoctorRule(classes.incomplete_pools, "D401 D403 O208", (), ("ResourceSlice",)),
    DoctorRule(classes.tainted, "O111", ("ResourceSlice",), ("DeviceClass", "DeviceTaintRule")),
    DoctorRule(claims.in_deletion, "O215", (), ("ResourceClaim",)),
    DoctorRule(
        fences.without_fence,
        "O206",
        (CONFIGURATION,),
        ("DeviceTaintRule",),
        "creates the missing fence (DeviceTaintRule)",
    ),
    DoctorRule(fences.two_schedulers, "O205", (), ("DeviceTaintRule",)),
    DoctorRule(control_plane.names_not_sent, "O016", (CONFIGURATION, "MutatingWebhookConfiguration")),
    DoctorRule(control_plane.idle_leases, "O017", ("Lease",)),
    DoctorRule(
        nodes.stale_marks, "O213", (), ("DeviceTaintRule",), "deletes the stale DeviceTaintRule of an audit agent"
    ),
    DoctorRule(nodes.stale_conditions, "O214", ("Node",), (), "removes the stale condition of an audit agent"),
    DoctorRule(claims.unused_templates, "O216", ("Pod",), ("ResourceClaimTemplate",), "deletes the unused template"),
    DoctorRule(claims.unused_claims, "O217", ("Pod",), ("ResourceClaim",)),
)
_LAST = (DoctorRule(components.replica_warnings, "O018", (REPLICAS,)),)
_OF_PARTS = (*_INSTALLATION, *_LAST)
RULES: Final = (*_FIRST, *_INSTALLATION, *_CAUSES, *_OF_PODS, *_REST, *_LAST)
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
    checked = [rule for rule in POD_RULES if not _missing(rule, observed)]
    waiting = tuple(pods.waiting(observed, checked, tuple(repairs)))
    repairs |= {finding: None for finding in waiting if finding.severity is not Severity.INFO}
    return repairs | _run((*_REST, *_LAST), observed) | dict.fromkeys(waiting)  # last, those that only wait


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


def _missing(rule: DoctorRule | PodRule, observed: DoctorInput) -> set[str]:
    """Return the inputs of a rule that were not read."""
    return observed.missing.keys() & (rule.needs if not observed.reading.is_live else (*rule.needs, *rule.may_be_none))


def examine(parts: Parts | None, reading: Reading) -> tuple[Finding, ...]:
    """Return the findings about an installation, if there is one."""
    missing = dict.fromkeys(parts.unread, "not read") if parts is not None else {}
    return tuple(_run(_INSTALLATION, DoctorInput(reading=reading, parts=parts, missing=missing)))


def _run(rules: Iterable[DoctorRule], observed: DoctorInput) -> dict[Finding, Repair | None]:
    repairs: dict[Finding, Repair | None] = {}
    for rule in rules:
        is_of_parts = rule in _OF_PARTS
        if (_missing(rule, observed) and not rule.each) or (is_of_parts and observed.parts is None):
            continue
        for result in rule.find(observed.parts, observed.now) if is_of_parts else rule.find(observed):
            finding, repair = result if isinstance(result, tuple) else (result, None)
            repairs[finding] = repair
    return repairs


def not_checked(observed: DoctorInput) -> tuple[NotChecked, ...]:
    """Return which findings were not checked, by the missing inputs."""
    codes_of: defaultdict[str, set[str]] = defaultdict(set)
    for rule in RULES:
        for kind in _missing(rule, observed):
            codes_of[kind].update(rule.codes.split())
    inputs_of: defaultdict[tuple[tuple[str, ...], str], list[str]] = defaultdict(list)
    for kind, codes in sorted(codes_of.items()):
        inputs_of[tuple(sorted(codes)), observed.missing[kind]].append(kind)
    return tuple(NotChecked(tuple(kinds), codes, why) for (codes, why), kinds in inputs_of.items())
