"""Decides which templates are created, replaced, kept or deleted. `webhook.service.template_controller` writes them.

A pod names its templates, and its signed annotation `drawbridge.dev/templates` proves that the webhook chose them (`webhook.claims.template`).
The signature proves only that the webhook allowed this pod at admission. `objection` checks whether the webhook would allow the pod now,
because a pod's author must not get the permissions of the controller. The signature, this check and the stored template decide the action:

| signed and allowed now | stored template | action |
|---|---|---|
| yes | none | create it |
| yes | same content | none, whoever created it |
| yes | other content, our label | replace it, with a warning in the log: the name is the hash of the right content |
| yes | other content and no label of ours, or deleted and kept by a finalizer | only a warning; the webhook refuses pods that need this name |
| no | our label, content that does not match its name, used by no pod | delete it |
| no | our label, unused for longer than the grace period | delete it |
| no | any other | none |

A template with adminAccess is never created.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from dra import server, wire
from dra.cache import Cache
from dra.objects import ResourceClaimSpec, ResourceClaimTemplateSpec, claim_spec
from webhook import names
from webhook.claims import template
from webhook.state import Mode, mode_of, why_rules_unknown, workload

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from dra.objects import Pod, ResourceClaimTemplate
    from dra.wire import Json
    from webhook.state import State

TemplateKey = tuple[str, str]  # namespace and name

_NAME = re.compile(f"{re.escape(names.PREFIX)}[0-9a-f]{{{template.DIGITS}}}")

COPY = "is not created for a copy of a translated pod"


class Due(Enum):
    NOTHING = "nothing"
    CREATE = "create"
    REPLACE = "replace"
    # Another writer's template has the name, or a finalizer keeps a deleted template with other content.
    TAKEN = "taken"


def templates_of(pod: Pod) -> frozenset[TemplateKey]:
    """Return the names of our templates that a pod uses; none for a pod that has ended."""
    if pod.has_ended:
        return frozenset()
    names = (claim.resource_claim_template_name or "" for claim in pod.spec.resource_claims)
    return frozenset((pod.metadata.namespace, name) for name in names if is_our_name(name))


def is_copy(pod: Pod, name: str) -> bool:
    """Return whether a pod names a template of ours without the spec in its annotation, as a copy of a translated pod does."""
    return is_our_name(name) and name not in pod.metadata.annotations.get(names.TEMPLATES, "")


def read_proven(pod: Pod, keys: Sequence[bytes]) -> dict[TemplateKey, Json]:
    """Return the specs of the templates that a pod uses and that its signature covers. Raises TemplatesError if the signature is invalid."""
    text = pod.metadata.annotations.get(names.TEMPLATES)
    if not text:
        return {}
    referred = templates_of(pod)
    templates = template.verify(text, template.identify(pod), *keys) if referred else {}
    return {
        (pod.metadata.namespace, name): spec
        for name, spec in templates.items()
        if (pod.metadata.namespace, name) in referred and not wants_admin_access(spec)
    }


def objection(pod: Pod, specs: Iterable[Json], state: State) -> str:
    """Return why the webhook would not give a pod these templates now; "" if it would."""
    if pod.metadata.labels.get(names.SKIP_LABEL) == "true":
        return f"the pod is labelled {names.SKIP_LABEL}=true"
    namespace = pod.metadata.namespace
    mode = mode_of(state, workload(namespace, metadata_at_admission(pod)))
    if mode is not Mode.ENFORCE:
        if reasons := why_rules_unknown(state, namespace):
            return f"the rules of its namespace could not be read: {' and '.join(reasons)}"
        return f"the mode is {mode}"
    quota_resources = state.quotas.get(namespace, frozenset())
    limit_range_resources = state.limit_ranges.get(namespace, frozenset())
    legacy_keys = sorted(_legacy_keys(pod)) if quota_resources or limit_range_resources else []
    charged_keys = {*state.configuration.file.quotas, *_charged_keys(specs, state)} if quota_resources else set[str]()
    for key in legacy_keys:
        if f"requests.{key}" in quota_resources and key not in charged_keys:
            return f"a ResourceQuota limits requests.{key}, which claims would bypass"
    for key in legacy_keys:
        if key in limit_range_resources:
            return f"a LimitRange limits {key}, which claims would bypass"
    return ""


def metadata_at_admission(pod: Pod) -> dict[str, Json]:
    """Return a pod's metadata as admission saw it: without a name if the API server generated the name later."""
    metadata = pod.metadata
    generated = metadata.generate_name and metadata.name.startswith(metadata.generate_name)
    return {
        "name": "" if generated else metadata.name,
        "generateName": metadata.generate_name,
        "labels": metadata.labels,
        "ownerReferences": [
            {"controller": owner.controller, "kind": owner.kind, "name": owner.name}
            for owner in metadata.owner_references
        ],
    }


def _legacy_keys(pod: Pod) -> frozenset[str]:
    """Return the keys of the pod's original request, from its signed record."""
    try:
        record = msgspec.json.decode(template.identify(pod).original or "{}", type=_RecordedKeys)
    except (msgspec.DecodeError, RecursionError):
        return frozenset()
    return frozenset(key for keys in record.containers.values() for key in keys)


class _RecordedKeys(msgspec.Struct):
    containers: dict[str, dict[str, object]] = {}


def _charged_keys(specs: Iterable[Json], state: State) -> frozenset[str]:
    """Return the extended resources whose quota counts the claims of these templates."""
    keys: set[str] = set()
    if not state.features.enabled(server.EXTENDED):
        return frozenset()
    for spec in specs:
        for request in wire.convert(spec, ResourceClaimTemplateSpec).spec.devices.requests:
            for alternative in request.alternatives.values():
                served = state.fleet.classes.get(alternative.device_class_name)
                if served is not None:
                    keys.add(served.extended_resource)
    return frozenset(keys)


def wants_admin_access(spec: Json) -> bool:
    requests = wire.convert(spec, ResourceClaimTemplateSpec).spec.devices.requests
    return any(request.exactly is not None and request.exactly.admin_access for request in requests)


def due(wanted: Json, stored: ResourceClaimTemplate | None) -> Due:
    if stored is None:
        return Due.CREATE
    if has_same_request(wanted, stored.spec.spec):
        return Due.NOTHING
    return Due.REPLACE if is_ours(stored) and not stored.metadata.deletion_timestamp else Due.TAKEN


def has_same_request(wanted: Json, stored: ResourceClaimSpec) -> bool:
    wanted_spec = read_claim_spec(wanted)
    # A stored template has the API server's defaults, so both specs are compared with defaults. Usually the stored spec lacks none.
    return wanted_spec == stored or wanted_spec == claim_spec(stored)


def read_claim_spec(wanted: Json) -> ResourceClaimSpec:
    """Return the claim spec of a template spec of ours, with the API server's defaults."""
    cached = _CLAIMS.get(id(wanted))
    if cached is not None:
        return cached[1]
    text = template.canonical(wanted)
    claim = _read(text)
    _CLAIMS.put(id(wanted), (wanted, claim), 10 * len(text))
    return claim


# By the identity of the template spec, which the cache keeps alive.
_CLAIMS: Cache[tuple[Json, ResourceClaimSpec]] = Cache(4 << 20)


@lru_cache(maxsize=256)
def _read(wanted: bytes) -> ResourceClaimSpec:
    return claim_spec(wire.convert(msgspec.json.decode(wanted), ResourceClaimTemplateSpec).spec)


def name_conflicts(templates: Mapping[str, Json], namespace: str, state: State) -> tuple[str, ...]:
    """Return a message for each template that a pod needs and that exists with other content. The message names the template's likely owner."""
    problems = []
    for name, wanted in templates.items():
        stored = state.templates.get((namespace, name))
        if stored is None or has_same_request(wanted, stored):
            continue
        owner = state.template_owners.get((namespace, name), "its label says that drawbridge created it")
        problems.append(
            f"ResourceClaimTemplate {namespace}/{name} does not match its name ({owner}): "
            "pods that need it are refused until it is deleted"
        )
    return tuple(problems)


def is_ours(stored: ResourceClaimTemplate) -> bool:
    """Return whether a template has our label and a name of our form; only such templates are deleted."""
    labelled = names.LABELS.items() <= stored.metadata.labels.items()
    return labelled and is_our_name(stored.metadata.name)


def is_our_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def sweep(
    unused_since: Mapping[TemplateKey, float],
    stored: Iterable[ResourceClaimTemplate],
    in_use: frozenset[TemplateKey],
    *,
    now: float,
    grace: float,
) -> tuple[dict[TemplateKey, float], list[ResourceClaimTemplate]]:
    """Return since when each template of ours is unused, and the templates to delete, whose grace period is over.

    A template whose content does not match its name has no grace period, because the webhook would refuse the next pod that needs the name.
    """
    still_unused: dict[TemplateKey, float] = {}
    expired = []
    for stored_template in stored:
        key = stored_template.metadata.namespace, stored_template.metadata.name
        if key in in_use or not is_ours(stored_template) or stored_template.metadata.deletion_timestamp:
            continue
        still_unused[key] = unused_since.get(key, now)
        if now - still_unused[key] >= grace or not matches_name(stored_template):
            expired.append(stored_template)
    return still_unused, expired


def matches_name(stored: ResourceClaimTemplate) -> bool:
    return template.name_matches(stored.metadata.name, {"spec": msgspec.json.decode(wire.encode(stored.spec.spec))})


class TemplateUsers:
    """The templates that each source (a pod or a workload) needs or uses."""

    def __init__(self) -> None:
        self._sources: dict[Hashable, dict[TemplateKey, Json]] = {}
        self._holders: dict[TemplateKey, dict[Hashable, Json]] = {}

    def put(
        self, source: Hashable, templates: Mapping[TemplateKey, Json], uses: Iterable[TemplateKey] = ()
    ) -> set[TemplateKey]:
        """Set the templates that a source needs (with their specs) and those that it only uses. Return the templates whose entry changed."""
        current = {**dict.fromkeys(uses), **templates}
        previous = self._sources.pop(source, {})
        if current:
            self._sources[source] = current
        for key in previous.keys() - current.keys():
            holders = self._holders[key]
            del holders[source]
            if not holders:
                del self._holders[key]
        for key, spec in current.items():
            holders = self._holders.setdefault(key, {})
            holders[source] = spec
        return {key for key in previous.keys() | current.keys() if previous.get(key, ...) != current.get(key, ...)}

    def spec(self, key: TemplateKey) -> Json:
        """Return the spec of a template that a source needs; None if no source needs it."""
        return next((spec for spec in self._holders.get(key, {}).values() if spec is not None), None)

    def in_use(self) -> frozenset[TemplateKey]:
        return frozenset(self._holders)
