"""What should become of templates: created, mended, kept or swept. Pure; `webhook.service.template_controller` carries it out.

A pod names its templates and proves in `drawbridge.dev/templates` that they are ours (`webhook.claims.template`). Everything here
follows from that proof and from what is stored:

| wanted by a proof | stored | what happens |
|---|---|---|
| yes | nothing | create it |
| yes | the same content | nothing, whoever made it |
| yes | other content under our name | replace it and say so: the name is the content's hash, so nobody can mean anything else |
| no | labelled as ours, unused for longer than the grace period | sweep it |
| no | anything else | not ours to touch |

A template that asks for adminAccess is never made, proof or not: our rights must not become a pod author's.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

from dra import wire
from dra.objects import ResourceClaimTemplateSpec, claim_spec
from webhook import names
from webhook.claims import template

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from dra.objects import Pod, ResourceClaimTemplate
    from dra.wire import Json

Key = tuple[str, str]  # namespace and name

_NAME = re.compile(re.escape(names.PREFIX) + "[0-9a-f]{16}")
_OVER = frozenset(("Succeeded", "Failed"))


class Due(Enum):
    """What to do about one template."""

    NOTHING = "nothing"
    CREATE = "create"
    REPLACE = "replace"


def used(pod: Pod) -> frozenset[Key]:
    """Name the templates of ours that a living pod refers to."""
    if pod.status.phase in _OVER:
        return frozenset()
    names = (claim.resource_claim_template_name or "" for claim in pod.spec.resource_claims)
    return frozenset((pod.metadata.namespace, name) for name in names if _NAME.fullmatch(name))


def proven(pod: Pod, keys: Sequence[bytes]) -> dict[Key, Json]:
    """Read the templates that a living pod refers to and proves; raise TemplatesError where the proof is none."""
    text = pod.metadata.annotations.get(names.TEMPLATES)
    if not text:
        return {}
    referred = used(pod)
    templates = template.unseal(text, *keys) if referred else {}
    return {
        (pod.metadata.namespace, name): spec
        for name, spec in templates.items()
        if (pod.metadata.namespace, name) in referred and not privileged(spec)
    }


def privileged(spec: Json) -> bool:
    """Say whether a template asks for adminAccess anywhere."""
    read = wire.convert(spec, ResourceClaimTemplateSpec)
    return any(request.exactly is not None and request.exactly.admin_access for request in read.spec.devices.requests)


def due(wanted: Json, stored: ResourceClaimTemplate | None) -> Due:
    """Say what a wanted template needs."""
    if stored is None:
        return Due.CREATE
    read = wire.convert(wanted, ResourceClaimTemplateSpec)
    # What is stored has the API server's defaults filled in, so both are compared with them.
    same = claim_spec(read.spec) == claim_spec(stored.spec.spec)
    return Due.NOTHING if same else Due.REPLACE


def ours(stored: ResourceClaimTemplate) -> bool:
    """Say whether we made a template, by label and by form of name: only such are ever swept."""
    labelled = names.LABELS.items() <= stored.metadata.labels.items()
    return labelled and _NAME.fullmatch(stored.metadata.name) is not None


def swept(
    unused_since: Mapping[Key, float],
    stored: Iterable[ResourceClaimTemplate],
    in_use: frozenset[Key],
    *,
    now: float,
    grace: float,
) -> tuple[dict[Key, float], list[ResourceClaimTemplate]]:
    """Remember since when each template of ours is unused, and name those whose grace is over."""
    remembered: dict[Key, float] = {}
    over = []
    for one in stored:
        key = one.metadata.namespace, one.metadata.name
        if key in in_use or not ours(one) or one.metadata.deletion_timestamp:
            continue
        remembered[key] = unused_since.get(key, now)
        if now - remembered[key] >= grace:
            over.append(one)
    return remembered, over


class Demand:
    """Who wants which template, and who merely uses one: kept by source, so that a source can change or go."""

    def __init__(self) -> None:
        self._sources: dict[Hashable, dict[Key, Json]] = {}
        self._holders: dict[Key, dict[Hashable, Json]] = {}

    def put(self, source: Hashable, templates: Mapping[Key, Json], uses: Iterable[Key] = ()) -> set[Key]:
        """Say what a source wants and uses now; return the templates that are newly asked for or newly free."""
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
            self._holders.setdefault(key, {})[source] = spec
        return {key for key in before.keys() | now.keys() if before.get(key, ...) != now.get(key, ...)}

    def spec(self, key: Key) -> Json:
        """The content of a template that somebody wants; None if nobody proves a want."""
        return next((spec for spec in self._holders.get(key, {}).values() if spec is not None), None)

    def in_use(self) -> frozenset[Key]:
        """Every template that somebody wants or uses."""
        return frozenset(self._holders)
