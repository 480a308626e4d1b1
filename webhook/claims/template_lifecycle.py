"""What should become of templates: created, fixed, kept or swept. Pure; `webhook.service.template_controller` carries it out.

A pod names its templates and proves in `drawbridge.dev/templates` that they are ours (`webhook.claims.template`). The proof says
that the webhook allowed this pod once; whether it would allow it now is asked again (`objection`), because our rights must
not become a pod author's. Everything else follows from the proof and from what is stored:

| proven and allowed now | stored | what happens |
|---|---|---|
| yes | nothing | create it |
| yes | the same content | nothing, also if another writer made it |
| yes | other content, labelled as ours | replace it and say so: the name is the content's hash, so no other content can be meant |
| yes | other content of another writer, or deleted and kept by a finalizer | say so and leave it; the webhook turns back pods that need this name |
| no | labelled as ours, with other content than its name says, and used by no pod | take it away |
| no | labelled as ours, unused for longer than the grace period | sweep it |
| no | anything else | not ours to touch |

A template that asks for adminAccess is never made, proof or not.
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
from webhook.state import Mode, doubts, mode_of, workload

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
    TAKEN = "taken"  # by another writer, or until its finalizers are gone, with other content


def templates_of(pod: Pod) -> frozenset[TemplateKey]:
    """Name the templates of ours that a living pod refers to."""
    if pod.has_ended:
        return frozenset()
    names = (claim.resource_claim_template_name or "" for claim in pod.spec.resource_claims)
    return frozenset((pod.metadata.namespace, name) for name in names if is_our_name(name))


def is_copy(pod: Pod, name: str) -> bool:
    """Return whether a pod names a template of ours without its content, as a copy does: the webhook removes annotations of another pod."""
    return is_our_name(name) and name not in pod.metadata.annotations.get(names.TEMPLATES, "")


def read_proven(pod: Pod, keys: Sequence[bytes]) -> dict[TemplateKey, Json]:
    """Read the templates that a living pod refers to and proves; raise TemplatesError where the proof fails."""
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
    """Explain why the webhook would not make a pod ask for these templates now; "" if it would."""
    if pod.metadata.labels.get(names.SKIP_LABEL) == "true":
        return f"the pod is labelled {names.SKIP_LABEL}=true"
    namespace = pod.metadata.namespace
    mode = mode_of(state, workload(namespace, known_at_admission(pod)))
    if mode is not Mode.ENFORCE:
        if reasons := doubts(state, namespace):
            return f"the rules of its namespace could not be read: {' and '.join(reasons)}"
        return f"the mode is {mode}"
    limited = state.quotas.get(namespace, frozenset())
    ranged = state.limit_ranges.get(namespace, frozenset())
    old = sorted(_legacy_keys(pod)) if limited or ranged else []
    charged = {*state.configuration.file.quotas, *_charged_keys(specs, state)} if limited else set[str]()
    for key in old:
        if f"requests.{key}" in limited and key not in charged:
            return f"a ResourceQuota limits requests.{key}, which claims would bypass"
    for key in old:
        if key in ranged:
            return f"a LimitRange limits {key}, which claims would bypass"
    return ""


def known_at_admission(pod: Pod) -> dict[str, Json]:
    """Write a pod's metadata as admission saw it: before there was a name, where one had to be made."""
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
    """The keys that the pod was asking with; the signature covers the record of them."""
    try:
        record = msgspec.json.decode(template.identify(pod).original or "{}", type=_RecordedKeys)
    except (msgspec.DecodeError, RecursionError):
        return frozenset()
    return frozenset(key for keys in record.containers.values() for key in keys)


class _RecordedKeys(msgspec.Struct):
    containers: dict[str, dict[str, object]] = {}


def _charged_keys(specs: Iterable[Json], state: State) -> frozenset[str]:
    """The old keys whose quota the claims of these templates are charged to, as their classes say."""
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
    if asks_the_same(wanted, stored.spec.spec):
        return Due.NOTHING
    return Due.REPLACE if is_ours(stored) and not stored.metadata.deletion_timestamp else Due.TAKEN


def asks_the_same(wanted: Json, stored: ResourceClaimSpec) -> bool:
    wanted_spec = read_claim_spec(wanted)
    # A stored template has the API server's defaults filled in, so both are compared with them; as a rule nothing is missing.
    return wanted_spec == stored or wanted_spec == claim_spec(stored)


def read_claim_spec(wanted: Json) -> ResourceClaimSpec:
    """Read the claim that a template spec of ours makes, with the API server's defaults."""
    known = _CLAIMS.get(id(wanted))
    if known is not None:
        return known[1]
    text = template.canonical(wanted)
    claim = _read(text)
    _CLAIMS.put(id(wanted), (wanted, claim), 10 * len(text))
    return claim


# By the template spec itself, which is held here.
_CLAIMS: Cache[tuple[Json, ResourceClaimSpec]] = Cache(4 << 20)


@lru_cache(maxsize=256)
def _read(wanted: bytes) -> ResourceClaimSpec:
    return claim_spec(wire.convert(msgspec.json.decode(wanted), ResourceClaimTemplateSpec).spec)


def name_conflicts(templates: Mapping[str, Json], namespace: str, state: State) -> tuple[str, ...]:
    """List the templates that a pod needs and that exist with other content, with their likely owners."""
    problems = []
    for name, wanted in templates.items():
        stored = state.templates.get((namespace, name))
        if stored is None or asks_the_same(wanted, stored):
            continue
        owner = state.template_owners.get((namespace, name), "its label says that drawbridge created it")
        problems.append(
            f"ResourceClaimTemplate {namespace}/{name} does not match its name ({owner}): "
            "pods that need it are refused until it is deleted"
        )
    return tuple(problems)


def is_ours(stored: ResourceClaimTemplate) -> bool:
    """Return whether we made a template, by label and by form of name: only such are ever swept."""
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
    """Remember since when each template of ours is unused, and name those whose grace is over.

    One whose content is not what its name says has no grace: the next pod that needs the name would be turned back.
    """
    remembered: dict[TemplateKey, float] = {}
    over = []
    for stored_template in stored:
        key = stored_template.metadata.namespace, stored_template.metadata.name
        if key in in_use or not is_ours(stored_template) or stored_template.metadata.deletion_timestamp:
            continue
        remembered[key] = unused_since.get(key, now)
        if now - remembered[key] >= grace or not matches_name(stored_template):
            over.append(stored_template)
    return remembered, over


def matches_name(stored: ResourceClaimTemplate) -> bool:
    return template.name_matches(stored.metadata.name, {"spec": msgspec.json.decode(wire.encode(stored.spec.spec))})


class TemplateUsers:
    """Which pods want which template, and which merely use one: kept by source, so that a source can change or go."""

    def __init__(self) -> None:
        self._sources: dict[Hashable, dict[TemplateKey, Json]] = {}
        self._holders: dict[TemplateKey, dict[Hashable, Json]] = {}

    def put(
        self, source: Hashable, templates: Mapping[TemplateKey, Json], uses: Iterable[TemplateKey] = ()
    ) -> set[TemplateKey]:
        """Set what a source wants and uses; return the templates that are newly requested or newly free."""
        now = {**dict.fromkeys(uses), **templates}
        before = self._sources.pop(source, {})
        if now:
            self._sources[source] = now
        for key in before.keys() - now.keys():
            holders = self._holders[key]
            del holders[source]
            if not holders:
                del self._holders[key]
        for key, spec in now.items():
            holders = self._holders.setdefault(key, {})
            holders[source] = spec
        return {key for key in before.keys() | now.keys() if before.get(key, ...) != now.get(key, ...)}

    def spec(self, key: TemplateKey) -> Json:
        """The content of a template that a pod wants; None if no pod proves that it does."""
        return next((spec for spec in self._holders.get(key, {}).values() if spec is not None), None)

    def in_use(self) -> frozenset[TemplateKey]:
        return frozenset(self._holders)
