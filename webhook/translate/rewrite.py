"""The patch for one pod: keys out, claims in, the record written. Also the replay of a record on an update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from dra.wire import Json
from webhook.claims import named, template
from webhook.translate import json_patch as patch
from webhook.translate import record as marker
from webhook.translate.pod_view import equal, mapping
from webhook.translate.record import Original

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.claims import Grant
    from webhook.translate.checks import Verdict
    from webhook.translate.pod_view import Slot
    from webhook.translate.report import Report

Operation = dict[str, "Json"]
_LABEL = 63


class Change(msgspec.Struct, frozen=True):
    """Operations, and the templates that the pod then names."""

    operations: tuple[Operation, ...] = ()
    templates: Mapping[str, Json] = {}


def rewrite(
    pod: dict[str, Json],
    verdict: Verdict,
    slots: list[Slot],
    report: Report,
    *,
    again: Mapping[str, tuple[str, ...]],
    record: Original,
    path: str = "",
    key: bytes | None = None,
    tolerate: bool = False,
) -> Change:
    """Write the operations. `again` are keys that came back after an earlier round, `record` what that round wrote."""
    spec = pod["spec"]
    gone = _gone(verdict)
    entries, references, templates = _entries(verdict.shared.grants, spec)
    operations: list[Operation] = []
    for slot in slots:
        keys = (*gone.get(slot.name, {}), *again.get(slot.name, ()))
        operations += _container(f"{path}/spec/{slot.list}/{slot.index}", slot, keys, references.get(slot.name, ()))
    operations += patch.append(f"{path}/spec/resourceClaims", spec.get("resourceClaims"), entries)
    if not gone:
        return Change(tuple(operations))
    later = Original(containers=gone)
    if verdict.scheduler:
        operations += patch.set_keys(f"{path}/spec", spec, {"schedulerName": verdict.scheduler})
        later = msgspec.structs.replace(later, scheduler_name=spec.get("schedulerName"), scheduled_by=verdict.scheduler)
    if tolerate:
        operations += _tolerations(f"{path}/spec/tolerations", spec.get("tolerations"), gone)
    annotations = _annotations(pod, record.joined(later), verdict, report, templates=templates, key=key)
    return Change((*operations, *_annotate(pod, annotations, path)), templates)


def stripped(pod: dict[str, Json], record: Original) -> list[Operation]:
    """Take away again what a record says was taken, where it stands there with the recorded number."""
    spec = mapping(pod.get("spec"))
    operations: list[Operation] = []
    for name in ("initContainers", "containers"):
        containers = spec.get(name)
        for i, container in enumerate(containers if isinstance(containers, list) else ()):
            operations += _strip(f"/spec/{name}/{i}", mapping(container), record)
    if record.scheduled_by is not None and spec.get("schedulerName") == record.scheduler_name:
        operations += patch.set_keys("/spec", spec, {"schedulerName": record.scheduled_by})
    return operations


def _strip(path: str, container: dict[str, Json], record: Original) -> list[Operation]:
    removed = record.containers.get(str(container.get("name")), {})
    resources = mapping(container.get("resources"))
    operations = []
    for part in ("limits", "requests"):
        values = mapping(resources.get(part))
        again = [key for key, amount in removed.items() if key in values and equal(values[key], amount)]
        operations += patch.remove_keys(f"{path}/resources/{part}", values, again)
    return operations


def _gone(verdict: Verdict) -> dict[str, dict[str, Json]]:
    gone: dict[str, dict[str, Json]] = {}
    for case in verdict.translated:
        for slot, words in case.words:
            gone.setdefault(slot.name, {}).update({word.key: word.raw for word in words})
    return gone


def _entries(
    grants: Sequence[Grant], spec: dict[str, Json]
) -> tuple[list[Json], dict[str, list[Json]], dict[str, Json]]:
    """Name the claims on the pod: its entries, each container's references, and the templates behind them."""
    present = spec.get("resourceClaims")
    taken = {str(mapping(entry).get("name")) for entry in (present if isinstance(present, list) else ())}
    entries: list[Json] = []
    references: dict[str, list[Json]] = {}
    templates: dict[str, Json] = {}
    for grant in grants:
        template_name, content = named(grant.spec)
        templates[template_name] = content
        name = _free(f"{marker.CLAIM_PREFIX}{grant.owner or 'pod'}-{grant.base}", taken)
        taken.add(name)
        entries.append({"name": name, "resourceClaimTemplateName": template_name})
        for container in grant.users:
            references.setdefault(container, []).append({"name": name})
    return entries, references, templates


def _free(wanted: str, taken: set[str]) -> str:
    """Find a name that is still free, and short enough for a label."""
    name = wanted if len(wanted) <= _LABEL else f"{wanted[: _LABEL - 4].rstrip('-')}"
    tries = (f"{name[: _LABEL - 4].rstrip('-')}-{i}" for i in range(2, 1000))
    return name if name not in taken else next(free for free in tries if free not in taken)


def _container(path: str, slot: Slot, keys: Sequence[str], references: Sequence[Json]) -> list[Operation]:
    if not keys and not references:
        return []
    operations = [patch.test(f"{path}/name", slot.raw["name"])] if "name" in slot.raw else []
    resources = slot.raw.get("resources")
    if not isinstance(resources, dict):
        return [*operations, {"op": "add", "path": f"{path}/resources", "value": {"claims": list(references)}}]
    for part in ("limits", "requests"):
        operations += patch.remove_keys(f"{path}/resources/{part}", mapping(resources.get(part)), keys)
    return operations + patch.append(f"{path}/resources/claims", resources.get("claims"), references)


def _tolerations(path: str, present: Json, gone: Mapping[str, Mapping[str, Json]]) -> list[Operation]:
    """Add what the ExtendedResourceToleration plugin adds for each name that was there (its admission.go)."""
    wanted = [
        {"key": key, "operator": "Exists", "effect": "NoSchedule"}
        for key in sorted({key for keys in gone.values() for key in keys})
    ]
    have = present if isinstance(present, list) else []
    return patch.append(path, present, [toleration for toleration in wanted if toleration not in have])


def _annotations(
    pod: dict[str, Json],
    record: Original,
    verdict: Verdict,
    report: Report,
    *,
    templates: dict[str, Json],
    key: bytes | None,
) -> dict[str, Json]:
    present = mapping(mapping(pod.get("metadata")).get("annotations"))
    decisions = [
        {name: getattr(decision, name) for name in ("container", "dialect", "key", "action", "detail")}
        for decision in report.decisions
    ]
    earlier = mapping(marker.value(present.get(marker.DECISION))).get("decisions")
    annotations: dict[str, Json] = {
        marker.ORIGINAL: marker.text(record),
        marker.DECISION: marker.text(
            {"version": marker.VERSION, "decisions": [*(earlier if isinstance(earlier, list) else ()), *decisions]}
        ),
        marker.DEVICES: marker.text({**mapping(marker.value(present.get(marker.DEVICES))), **_devices(verdict)}),
    }
    if key is not None:
        annotations[marker.TEMPLATES] = template.seal({**_sealed(present, key), **templates}, key)
    return annotations


def _sealed(present: Mapping[str, Json], key: bytes) -> dict[str, Json]:
    """What an earlier round sealed; anything else is replaced by what we know to be true."""
    value = present.get(marker.TEMPLATES)
    try:
        return template.unseal(value, key) if isinstance(value, str) else {}
    except template.TemplatesError:
        return {}


def _devices(verdict: Verdict) -> dict[str, Json]:
    """Say per container how many devices of which class it is given, for tools that counted the old keys."""
    devices: dict[str, list[Json]] = {}
    for served in verdict.made:
        claims = served.made.claims
        one: dict[str, Json] = {"key": served.key, "class": served.made.supply.served.name, "count": served.count}
        if claims.models:
            one["models"] = list(claims.models)
        for slot, _ in served.case.words:
            devices.setdefault(slot.name, []).append(one)
    return dict(devices)


def _annotate(pod: dict[str, Json], annotations: dict[str, Json], path: str) -> list[Operation]:
    metadata = pod.get("metadata")
    if not isinstance(metadata, dict):
        return [{"op": "add", "path": f"{path}/metadata", "value": {"annotations": annotations}}]
    return patch.set_keys(f"{path}/metadata/annotations", metadata.get("annotations"), annotations)
