"""The webhook configurations: which requests reach the webhook, and what happens to them while it does not answer.

`matchConditions` keep every pod that names no accelerator, no claim and no annotation of drawbridge inside the API server, so that
an outage of the webhook cannot touch it. Each is one *total* expression: an evaluation error would refuse the pod under
failurePolicy Fail, so every step is `.?` with `orValue`. It tests the domain of a resource name, which is cheap enough for
800 containers under the API server's cost limit, and lets through a few names more than the dialects know; those cost a
review and nothing else. The names come from the dialects' tables, the admin's own included. Every pod of a cluster pays for
the expression: `tests/webhook/test_conditions.py` holds its cost, and that it says what its plainest form says.

Mirrors k8s.io/api/admissionregistration/v1 and apiserver/pkg/admission/plugin/webhook/matchconditions.
"""

from __future__ import annotations

import json
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from certs.annotations import BUNDLE_KEEPER, CERT_MANAGER, RULES
from cluster.resources import WORKLOADS
from dra.objects import IMPLICIT, POD_CLAIM_NAME
from webhook import names
from webhook.dialects import Outcome, Position, Role
from webhook.state import CPUClaims

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.wire import Json
    from webhook.dialects import Dialect
    from webhook.state import Configuration

NAME = names.NAME
NO_CPUS = CPUClaims()
TIMEOUT_SECONDS = 3
# Where a container names resources. An API server gives a pod's container a request for each of its limits before it calls webhooks,
# and again after each change; in a workload's template it does not.
_OF_PODS = ("requests",)
_OF_TEMPLATES = ("limits", "requests")
# What containers ask for everywhere: most pods name nothing else, and a condition is done with them first.
_CPU = "cpu"
_EVERYWHERE = (_CPU, "memory", "ephemeral-storage")
# Roles that make a request by themselves; all others only shape one.
_AMOUNTS = frozenset(
    (
        *(Role.COUNT, Role.MEMORY, Role.MEMORY_PERCENT, Role.CORES, Role.SHARES, Role.PROFILE, Role.COMBINED),
        *(Role.NIC, Role.ASKS),
    )
)


class Registration(NamedTuple):
    """What an admin chooses."""

    namespace: str = names.NAMESPACE
    service: str = "drawbridge"
    # Where to call instead of the Service: a process outside the cluster, as in tests.
    url: str = ""
    # The CA bundle if the admin keeps it, or the Certificate from which cert-manager does; our controller keeps it otherwise.
    ca_bundle: str = ""
    inject_ca_from: str = ""
    # For pods that name an accelerator while the webhook is away. Ignore: they enter unchanged, and stay pending if no device plugin
    # serves them. Fail: they are refused, and their controllers try again.
    failure_policy: str = "Ignore"
    # Namespaces are out unless labelled with a mode.
    opt_in: bool = False
    exclude: tuple[str, ...] = ("kube-system", "kube-node-lease")
    workloads: bool = True
    claims: bool = True
    devices: bool = False  # slices, classes and our own kinds
    # Which pods' whole CPUs are asked for by claims as well.
    cpus: CPUClaims = NO_CPUS


def configurations(dialects: Sequence[Dialect], options: Registration) -> list[Json]:
    return [mutating(dialects, options), validating(dialects, options)]


def mutating(dialects: Sequence[Dialect], options: Registration) -> Json:
    webhook = _webhook(f"pods.mutate.{names.DOMAIN}", "/mutate", options) | {
        "failurePolicy": options.failure_policy,
        "reinvocationPolicy": "IfNeeded",
        "rules": [_rule("", "v1", ("pods",), "CREATE", "UPDATE")],
        "objectSelector": _not_skipped(),
        "matchConditions": [{"name": "names-an-accelerator", "expression": on_mutate(dialects, options.cpus)}],
    }
    return _configuration("MutatingWebhookConfiguration", [webhook], options)


def validating(dialects: Sequence[Dialect], options: Registration) -> Json:
    """Generate the ValidatingWebhookConfiguration. Only pods ever follow the admin's failurePolicy."""
    pods = _webhook(f"pods.validate.{names.DOMAIN}", "/validate", options) | {
        "failurePolicy": options.failure_policy,
        "rules": [_rule("", "v1", ("pods",), "CREATE")],
        # Tested before any condition, so other pods cost the API server nothing. The webhook labels each pod that it gives a claim.
        "objectSelector": {**_not_skipped(), "matchLabels": {names.TRANSLATED_LABEL: "true"}},
        "matchConditions": [{"name": "names-an-accelerator-again", "expression": on_validate(dialects)}],
    }
    webhooks = [pods]
    by_hand = "object.?metadata.?ownerReferences.orValue([]).size() == 0"
    if options.workloads:
        plain = _pod("object.?spec.?template.orValue({})", dialects, _OF_TEMPLATES)
        cron = _pod("object.?spec.?jobTemplate.?spec.?template.orValue({})", dialects, _OF_TEMPLATES)
        expression = f"request.resource.resource == 'cronjobs' ? ({cron}) : ({plain})"
        workloads = _webhook(f"workloads.validate.{names.DOMAIN}", "/validate", options) | {
            "failurePolicy": "Ignore",
            "rules": [
                _rule(group, version, [kind.plural for kind in kinds], "CREATE", "UPDATE")
                for (group, version), kinds in groupby(WORKLOADS, attrgetter("group", "version"))
            ],
            "matchConditions": [
                {"name": "made-by-a-person", "expression": by_hand},
                {"name": "names-an-accelerator", "expression": expression},
            ],
        }
        webhooks.append(workloads)
    if options.claims:
        # A claim made from a template was judged with its pod; to refuse it here would only leave that pod pending.
        generated = f"'{POD_CLAIM_NAME}' in object.?metadata.?annotations.orValue({{}})"
        claims = _webhook(f"claims.validate.{names.DOMAIN}", "/validate", options) | {
            "failurePolicy": "Ignore",
            "rules": [_rule("resource.k8s.io", "v1", ("resourceclaims", "resourceclaimtemplates"), "CREATE")],
            "matchConditions": [{"name": "made-by-a-person", "expression": f"!({generated})"}],
        }
        webhooks.append(claims)
    if options.devices:
        devices = _webhook(f"devices.validate.{names.DOMAIN}", "/validate", options) | {
            "failurePolicy": "Ignore",
            "rules": [
                _rule("resource.k8s.io", "v1", ("resourceslices", "deviceclasses"), "CREATE", "UPDATE"),
                _rule(names.DOMAIN, "v1alpha1", ("devicecompatibilities", "devicequotas"), "CREATE", "UPDATE"),
            ],
        }
        del devices["namespaceSelector"]  # most of these kinds have no namespace
        webhooks.append(devices)
    return _configuration("ValidatingWebhookConfiguration", webhooks, options)


def at_quotas(options: Registration) -> Json:
    """Generate the ValidatingWebhookConfiguration by which API servers ask about quotas; pods without claims, and without
    names that a DeviceClass could serve, never get there.

    Another process answers these, and remembers the objects that it allowed, so dry runs count as side effects. Labels of pods, modes of
    namespaces and opt-in do not matter to a quota. Claims that Kubernetes creates are reviewed too, because the template of a pod may be
    created or replaced after the pod was counted.
    """
    quota_options = options._replace(service=names.QUOTA)
    # Whether a pod has claims, or asks by a name that a DeviceClass could serve.
    no_name = "c.?resources.?requests.orValue({}).all(k, !k.contains('/'))"
    may_have_claims = f"{_has_claims('object')} || {_not_all_containers('object', no_name)}"
    pods = _webhook(f"pods.quota.{names.DOMAIN}", "/quota", quota_options) | {
        "rules": [_rule("", "v1", ("pods",), "CREATE")],
        "matchConditions": [{"name": "has-claims", "expression": may_have_claims}],
    }
    claims = _webhook(f"claims.quota.{names.DOMAIN}", "/quota", quota_options) | {
        "rules": [_rule("resource.k8s.io", "v1", ("resourceclaims",), "CREATE")],
    }
    for webhook in (pods, claims):
        webhook["failurePolicy"] = options.failure_policy
        webhook["sideEffects"] = "NoneOnDryRun"
        webhook["namespaceSelector"] = _namespaces(options, every_mode=True)
    return _configuration("ValidatingWebhookConfiguration", [pods, claims], quota_options, names.QUOTA)


def on_mutate(dialects: Sequence[Dialect], cpus: CPUClaims = NO_CPUS) -> str:
    """The condition for mutation: creations that name something of ours, updates of what we translated.

    A pod that brings its own claims is looked at as well: they are judged here, and an API server calls a webhook again, after a
    neighbour has injected a key of ours, only if it was called before.
    """
    asks = _pod("object", dialects, _OF_PODS)
    if cpus.anywhere:
        asks = f"{asks} || {_has_whole_cpus(cpus)}"
    replay = f"'{names.ORIGINAL}' in object.?metadata.?annotations.orValue({{}})"
    return f"oldObject == null ? ({asks}) : ({replay})"


def on_validate(dialects: Sequence[Dialect]) -> str:
    """The condition for validation: among the pods that we translated, those on which a key is back.

    Claims were judged in the review before. Only a webhook that came after us can have put a key there, and the pod would ask twice.
    """
    return _names_resources("object", dialects, _OF_PODS)


def _pod(root: str, dialects: Sequence[Dialect], maps: Sequence[str]) -> str:
    """Return the CEL test for claims, resource names of a dialect, and annotations of ours on a pod or pod template."""
    parts = [_has_claims(root), _names_resources(root, dialects, maps)]
    for place, field in ((Position.ANNOTATION, "annotations"), (Position.LABEL, "labels")):
        keys = _names(dialects, place)
        if place is Position.ANNOTATION:
            keys = {*keys, *names.ANNOTATIONS}
        exact = sorted({name for name in keys if "<" not in name})
        prefixes = sorted({name.partition("<")[0] for name in keys if "<" in name} - {""})
        tests = [f"k in {_list(exact)}"] if exact else []
        tests += [f"k.startsWith({_text(prefix)})" for prefix in prefixes]
        if tests:
            parts.append(f"{root}.?metadata.?{field}.orValue({{}}).exists(k, {' || '.join(tests)})")
    return " || ".join(parts)


def _has_claims(root: str) -> str:
    return f"{root}.?spec.?resourceClaims.hasValue()"  # an empty list is dropped: it is left out of what is stored


def _has_whole_cpus(cpus: CPUClaims) -> str:
    """Return the CEL test for a container whose limit and request are the same whole CPUs: its pod may be Guaranteed.

    An API server writes amounts in one way, and parts of a CPU as thousands.
    """
    chosen = [
        name
        for name, serving in sorted(cpus.namespaces.items())
        if (serving == "translate") != (cpus.default == "translate")
    ]
    where = f"request.namespace in {_list(chosen)}"
    where = f"!({where})" if cpus.default == "translate" else where
    cpu = "c.?resources.?{}.?cpu"
    none = f"{cpu.format('limits')}.orValue('0m').endsWith('m') || {cpu.format('limits')} != {cpu.format('requests')}"
    condition = f"({_not_all_containers('object', none)})"
    return f"{where} && {condition}" if chosen else condition


def _names_resources(root: str, dialects: Sequence[Dialect], maps: Sequence[str]) -> str:
    # `all` costs less than `exists`, and a name that every container has less than a look at its domain.
    # After orValue the value is not optional any more, so the next step is spelled anew.
    # A resource is not ours by its domain, or by its name if it has none.
    resource_names = _names(dialects, Position.RESOURCE)
    domains = _domains(resource_names) | {IMPLICIT.rstrip("/")}
    known = f"k.split('/')[0] in {_list(sorted(domains))}"
    if any("<" in domain for domain in domains):
        known = f"k.contains('/') || k in {_list(sorted(name for name in resource_names if '/' not in name))}"
    foreign = f"k in {_list(name for name in _EVERYWHERE if name not in resource_names)} || !({known})"
    none = " && ".join([f"c.?resources.?{part}.orValue({{}}).all(k, {foreign})" for part in maps])
    return _not_all_containers(root, none)


def _not_all_containers(root: str, test: str) -> str:
    """Return the CEL test for a container `c` that fails a test."""
    lists = ("containers", "initContainers")
    return " || ".join([f"!{root}.?spec.?{containers}.orValue([]).all(c, {test})" for containers in lists])


def names_not_sent(now: Configuration, generated_for: Configuration) -> list[str]:
    """List what configurations that were generated for another file keep inside the API server: domains of resource names, and words."""
    known, named = (_domains(_names(one.dialects, Position.RESOURCE)) for one in (generated_for, now))
    unsent = set() if any("<" in domain for domain in known) else named - known
    unsent |= _requesting_keys(now) - _requesting_keys(generated_for)
    cpus, before = now.file.cpu_claims, generated_for.file.cpu_claims
    if any(cpus.wanted(name) and not before.wanted(name) for name in ("", *cpus.namespaces, *before.namespaces)):
        unsent.add(_CPU)
    return sorted(unsent)


def names_not_sent_by(condition: str, configuration: Configuration) -> list[str]:
    """List what a condition, of whatever version of ours, keeps inside the API server: domains of resource names, and words."""
    cpus = configuration.file.cpu_claims
    unsent = {_CPU} if cpus.anywhere and f" || {_has_whole_cpus(cpus)}) : (" not in condition else set()
    if "k.split('/')" in condition:  # else it lets every domain through
        domains = _domains(_names(configuration.dialects, Position.RESOURCE))
        keys = (*domains, *_requesting_keys(configuration))
        unsent |= {name for name in keys if _text(name.partition("<")[0]) not in condition}
    return sorted(unsent)


def _requesting_keys(configuration: Configuration) -> set[str]:
    return _names(configuration.dialects, Position.ANNOTATION) | _names(configuration.dialects, Position.LABEL)


def _domains(names: Iterable[str]) -> set[str]:
    """Return the domain of each name; a name without a domain stays as it is."""
    return {name.partition("/")[0] for name in names}


def _names(dialects: Iterable[Dialect], place: Position) -> set[str]:
    """The keys of a place that can ask for devices: every resource name, and elsewhere those that carry an amount.

    An object that is left in any case asks nothing of us, and stays inside of the API server.
    """
    return {
        row.name
        for dialect in dialects
        for row in dialect.keys
        if row.place is place
        and row.outcome is not Outcome.LEFT
        and (place is Position.RESOURCE or row.role in _AMOUNTS)
    }


def _list(names: Iterable[str]) -> str:
    return "[" + ", ".join(map(_text, names)) + "]"


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _webhook(name: str, path: str, options: Registration) -> dict[str, Json]:
    client: dict[str, Json] = {}
    if options.url:
        client["url"] = options.url.rstrip("/") + path
    else:
        client["service"] = {"namespace": options.namespace, "name": options.service, "path": path, "port": 443}
    if options.ca_bundle:
        client["caBundle"] = options.ca_bundle
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "matchPolicy": "Equivalent",
        "namespaceSelector": _namespaces(options),
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
    }


def _namespaces(options: Registration, *, every_mode: bool = False) -> Json:
    # drawbridge's own namespace is always out: the webhook must be able to start while it does not answer.
    others = [name for name in options.exclude if name != options.namespace]
    out = [options.namespace, *others]
    operator = "NotIn"
    modes = ["off"]
    if options.opt_in:
        operator = "In"
        modes = ["observe", "warn", "enforce"]
    expressions: list[Json] = [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": out}]
    if not every_mode:
        expressions.append({"key": names.MODE_LABEL, "operator": operator, "values": modes})
    return {"matchExpressions": expressions}


def _not_skipped() -> Json:
    return {"matchExpressions": [{"key": names.SKIP_LABEL, "operator": "NotIn", "values": ["true"]}]}


def _rule(group: str, version: str, plurals: Sequence[str], *operations: str) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(plurals),
        "operations": list(operations),
        "scope": "*",
    }


def _configuration(kind: str, webhooks: Sequence[dict[str, Json]], options: Registration, name: str = NAME) -> Json:
    """A configuration that can be called at once if it has its bundle, and else as soon as the bundle is put in.

    Without rules a webhook is asked nothing. They wait in an annotation, from where the process that puts in the bundle (`certs.inject`)
    takes them; a manifest without rules, applied again, does not take them away.
    """
    metadata: dict[str, Json] = {"name": name, "labels": {"app.kubernetes.io/name": NAME}}
    if options.ca_bundle:
        metadata["annotations"] = {BUNDLE_KEEPER: "other"}
    else:
        waiting = {str(webhook["name"]): webhook["rules"] for webhook in webhooks}
        keeper = {CERT_MANAGER: options.inject_ca_from} if options.inject_ca_from else {}
        rules = json.dumps(waiting, separators=(",", ":"))
        metadata["annotations"] = keeper | {RULES: rules}
        webhooks = [{key: value for key, value in webhook.items() if key != "rules"} for webhook in webhooks]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": list(webhooks),
    }
