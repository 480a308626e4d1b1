"""Generates the webhook configurations: which requests the API server sends to the webhook, and what it does while the webhook is down.

With `matchConditions` the API server sends only pods with an accelerator key, a claim, an annotation of drawbridge, or CPUs that claims
could serve (`cpuClaims`). An outage of the webhook does not affect other pods. A condition must not fail, because with failurePolicy Fail
the API server would refuse the pod. So every access to a field of the object is optional (`.?`). A condition tests only the domains of
resource names, to stay within the API server's cost limit with 800 containers. So it also matches pods with some names that no dialect (a
table of one system's keys) has; each of these pods costs one review. The domains are those of all dialects, including the administrator's own.
`tests/webhook/test_conditions.py` limits the cost of the expressions, and compares them with a simple form.

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
# The fields with resource names that a condition reads. In pods, `requests` is enough, because the API server adds a request for each limit
# before it calls webhooks. It does not do so in the pod templates of workloads.
_OF_PODS = ("requests",)
_OF_TEMPLATES = ("limits", "requests")
# Resources of almost all containers. A condition tests them first, because most pods request nothing else.
_CPU = "cpu"
_COMMON_RESOURCES = (_CPU, "memory", "ephemeral-storage")
# Roles of keys that request devices by themselves. Keys with other roles refine a request.
_AMOUNTS = frozenset(
    (
        *(Role.COUNT, Role.MEMORY, Role.MEMORY_PERCENT, Role.CORES, Role.SHARES, Role.PROFILE, Role.COMBINED),
        *(Role.NIC, Role.REQUESTS_DEVICES),
    )
)


class Registration(NamedTuple):
    """The administrator's choices for the webhook configurations."""

    namespace: str = names.NAMESPACE
    # The URL of a webhook outside of the cluster, as in tests. It replaces the Service.
    url: str = ""
    # The CA bundle, if the administrator maintains it, or the Certificate from which cert-manager injects the bundle. If both are empty,
    # drawbridge's own certificate authority maintains the bundle.
    ca_bundle: str = ""
    inject_ca_from: str = ""
    # What the API server does with pods with accelerator keys while the webhook is down. Ignore: it creates them unchanged, and a pod stays
    # pending if no device plugin serves it. Fail: it refuses them, and their controllers retry.
    failure_policy: str = "Ignore"
    # Whether only namespaces with a mode label are included.
    opt_in: bool = False
    devices: bool = False  # review slices, classes and drawbridge's own kinds
    # The namespaces whose Guaranteed pods get claims for their CPUs.
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
    """Generate the ValidatingWebhookConfiguration. The administrator's failurePolicy applies to pods only; all other kinds have Ignore."""
    pods = _webhook(f"pods.validate.{names.DOMAIN}", "/validate", options) | {
        "failurePolicy": options.failure_policy,
        "rules": [_rule("", "v1", ("pods",), "CREATE")],
        # The mutating webhook labels each translated pod. The API server tests this selector before the conditions, so pods without the label
        # cost nothing.
        "objectSelector": {**_not_skipped(), "matchLabels": {names.TRANSLATED_LABEL: "true"}},
        "matchConditions": [{"name": "names-an-accelerator-again", "expression": on_validate(dialects)}],
    }
    without_owner = "object.?metadata.?ownerReferences.orValue([]).size() == 0"
    template_test = _pod("object.?spec.?template.orValue({})", dialects, _OF_TEMPLATES)
    cron_template_test = _pod("object.?spec.?jobTemplate.?spec.?template.orValue({})", dialects, _OF_TEMPLATES)
    expression = f"request.resource.resource == 'cronjobs' ? ({cron_template_test}) : ({template_test})"
    workloads = _webhook(f"workloads.validate.{names.DOMAIN}", "/validate", options) | {
        "failurePolicy": "Ignore",
        "rules": [
            _rule(group, version, [kind.plural for kind in kinds], "CREATE", "UPDATE")
            for (group, version), kinds in groupby(WORKLOADS, attrgetter("group", "version"))
        ],
        "matchConditions": [
            {"name": "made-by-a-person", "expression": without_owner},
            {"name": "names-an-accelerator", "expression": expression},
        ],
    }
    # Claims that Kubernetes generates from a template are excluded. The webhook has judged them with their pod, and the refusal of such a
    # claim would only keep the pod pending.
    generated = f"'{POD_CLAIM_NAME}' in object.?metadata.?annotations.orValue({{}})"
    claims = _webhook(f"claims.validate.{names.DOMAIN}", "/validate", options) | {
        "failurePolicy": "Ignore",
        "rules": [_rule("resource.k8s.io", "v1", ("resourceclaims", "resourceclaimtemplates"), "CREATE")],
        "matchConditions": [{"name": "made-by-a-person", "expression": f"!({generated})"}],
    }
    webhooks = [pods, workloads, claims]
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


def on_mutate(dialects: Sequence[Dialect], cpus: CPUClaims = NO_CPUS) -> str:
    """Return the condition of the mutating webhook: new pods with a key of a dialect, a claim or an annotation of drawbridge, and updates of
    translated pods.

    Pods with claims of their own are included for two reasons. The webhook judges these claims. And if another webhook adds a key later, the API
    server calls this webhook again only if it has called it before.
    """
    requests_devices = _pod("object", dialects, _OF_PODS)
    if cpus.anywhere:
        requests_devices = f"{requests_devices} || {_has_whole_cpus(cpus)}"
    is_translated = f"'{names.ORIGINAL}' in object.?metadata.?annotations.orValue({{}})"
    return f"oldObject == null ? ({requests_devices}) : ({is_translated})"


def on_validate(dialects: Sequence[Dialect]) -> str:
    """Return the condition of the validating webhook: translated pods that have a resource key again.

    Only a later webhook can have added the key, and the pod would request its devices twice. The condition does not test for claims, because the
    mutating review has judged them.
    """
    return _names_resources("object", dialects, _OF_PODS)


def _pod(root: str, dialects: Sequence[Dialect], maps: Sequence[str]) -> str:
    """Return the CEL test for claims, keys of dialects, and annotations of drawbridge on a pod or pod template."""
    parts = [_has_claims(root), _names_resources(root, dialects, maps)]
    for position, field in ((Position.ANNOTATION, "annotations"), (Position.LABEL, "labels")):
        keys = _names(dialects, position)
        if position is Position.ANNOTATION:
            keys = {*keys, *names.ANNOTATIONS}
        exact = sorted({name for name in keys if "<" not in name})
        prefixes = sorted({name.partition("<")[0] for name in keys if "<" in name} - {""})
        tests = [f"k in {_list(exact)}"] if exact else []
        tests += [f"k.startsWith({_text(prefix)})" for prefix in prefixes]
        if tests:
            parts.append(f"{root}.?metadata.?{field}.orValue({{}}).exists(k, {' || '.join(tests)})")
    return " || ".join(parts)


def _has_claims(root: str) -> str:
    return f"{root}.?spec.?resourceClaims.hasValue()"  # the API server removes an empty list


def _has_whole_cpus(cpus: CPUClaims) -> str:
    """Return the CEL test for a container whose limit and request are the same whole number of CPUs: its pod may be Guaranteed.

    The API server normalizes amounts, and writes fractions of a CPU with the suffix m.
    """
    listed_namespaces = [
        name
        for name, serving in sorted(cpus.namespaces.items())
        if (serving == "translate") != (cpus.default == "translate")
    ]
    namespace_test = f"request.namespace in {_list(listed_namespaces)}"
    namespace_test = f"!({namespace_test})" if cpus.default == "translate" else namespace_test
    cpu = "c.?resources.?{}.?cpu"
    no_whole_cpus = (
        f"{cpu.format('limits')}.orValue('0m').endsWith('m') || {cpu.format('limits')} != {cpu.format('requests')}"
    )
    container_test = f"({_not_all_containers('object', no_whole_cpus)})"
    return f"{namespace_test} && {container_test}" if listed_namespaces else container_test


def _names_resources(root: str, dialects: Sequence[Dialect], maps: Sequence[str]) -> str:
    # `all` costs less than `exists`. The common names are tested first, because a test of the domain costs more.
    # A name is foreign if no dialect has its domain. A name without a domain is foreign if no dialect has the name.
    resource_names = _names(dialects, Position.RESOURCE)
    domains = _domains(resource_names) | {IMPLICIT.rstrip("/")}
    known_domain = f"k.split('/')[0] in {_list(sorted(domains))}"
    if any("<" in domain for domain in domains):
        known_domain = f"k.contains('/') || k in {_list(sorted(name for name in resource_names if '/' not in name))}"
    foreign = f"k in {_list(name for name in _COMMON_RESOURCES if name not in resource_names)} || !({known_domain})"
    all_foreign = " && ".join([f"c.?resources.?{part}.orValue({{}}).all(k, {foreign})" for part in maps])
    return _not_all_containers(root, all_foreign)


def _not_all_containers(root: str, test: str) -> str:
    """Return the CEL test for a container `c` that fails a test."""
    lists = ("containers", "initContainers")
    return " || ".join([f"!{root}.?spec.?{containers}.orValue([]).all(c, {test})" for containers in lists])


def names_not_sent(current: Configuration, generated_for: Configuration) -> list[str]:
    """Return the resource domains and other keys of `current` that webhook configurations do not match if they were generated for `generated_for`."""
    cpus, before = current.file.cpu_claims, generated_for.file.cpu_claims
    unsent = names_not_sent_by(on_mutate(generated_for.dialects, cpus), current)
    is_new = any(cpus.wanted(name) and not before.wanted(name) for name in ("", *cpus.namespaces, *before.namespaces))
    return sorted([_CPU, *unsent]) if is_new else unsent


def names_not_sent_by(condition: str, configuration: Configuration) -> list[str]:
    """Return the resource domains and other keys of a configuration that an installed condition does not match.

    The condition may come from any version of drawbridge.
    """
    cpus = configuration.file.cpu_claims
    unsent = {_CPU} if cpus.anywhere and f" || {_has_whole_cpus(cpus)}) : (" not in condition else set()
    if "k.split('/')" in condition:  # without this test, the condition matches all domains
        domains = _domains(_names(configuration.dialects, Position.RESOURCE))
        keys = domains.union(
            *[_names(configuration.dialects, place) for place in (Position.ANNOTATION, Position.LABEL)]
        )
        unsent |= {name for name in keys if _text(name.partition("<")[0]) not in condition}
    return sorted(unsent)


def _domains(names: Iterable[str]) -> set[str]:
    """Return the domain of each name; a name without a domain stays as it is."""
    return {name.partition("/")[0] for name in names}


def _names(dialects: Iterable[Dialect], position: Position) -> set[str]:
    """Return the keys of one position on pods that can request devices: all resource names, and other keys with a role that requests devices.

    Keys with the outcome `left` always stay on the pod. They are excluded, because the webhook has nothing to do for them.
    """
    return {
        row.name
        for dialect in dialects
        for row in dialect.keys
        if row.place is position
        and row.outcome is not Outcome.LEFT
        and (position is Position.RESOURCE or row.role in _AMOUNTS)
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
        client["service"] = {"namespace": options.namespace, "name": NAME, "path": path, "port": 443}
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


def _namespaces(options: Registration) -> Json:
    # drawbridge's own namespace is always excluded: its pods must be able to start while no webhook answers.
    excluded = list(dict.fromkeys((options.namespace, "kube-system", "kube-node-lease")))
    operator = "NotIn"
    modes = ["off"]
    if options.opt_in:
        operator = "In"
        modes = ["observe", "warn", "enforce"]
    return {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded},
            {"key": names.MODE_LABEL, "operator": operator, "values": modes},
        ]
    }


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


def _configuration(kind: str, webhooks: Sequence[dict[str, Json]], options: Registration) -> Json:
    """Return a webhook configuration. Without a CA bundle, its rules are only in an annotation, so the API server does not call the webhooks yet.

    `certs.inject` writes the rules into the webhooks together with the bundle. Applying the manifest again does not remove them.
    """
    metadata: dict[str, Json] = {"name": NAME, "labels": {"app.kubernetes.io/name": NAME}}
    if options.ca_bundle:
        metadata["annotations"] = {BUNDLE_KEEPER: "other"}
    else:
        rules_by_webhook = {str(webhook["name"]): webhook["rules"] for webhook in webhooks}
        keeper = {CERT_MANAGER: options.inject_ca_from} if options.inject_ca_from else {}
        rules = json.dumps(rules_by_webhook, separators=(",", ":"))
        metadata["annotations"] = keeper | {RULES: rules}
        webhooks = [{key: value for key, value in webhook.items() if key != "rules"} for webhook in webhooks]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": list(webhooks),
    }
