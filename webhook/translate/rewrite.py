"""The patch for one pod: keys out, claims in, the record written. Also the replay of a record on an update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from dra.pointer import escape
from dra.wire import Json
from webhook import names
from webhook.claims import make_template
from webhook.dialects import Pairs
from webhook.translate import json_patch as patch
from webhook.translate.pod_view import equal, mapping
from webhook.translate.record import Original, WrittenRecord, annotate

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from webhook.claims import Grant
    from webhook.translate.case import Case
    from webhook.translate.checks import Verdict
    from webhook.translate.pod_view import PodView, Slot
    from webhook.translate.report import Report

Operation = dict[str, "Json"]
_Entry = dict[str, str]  # of the pod's resourceClaims
_References = dict[str, list["Json"]]  # by container
_LABEL = 63
# Has the pod noticed by who makes templates.
_WAIT: Operation = {"op": "add", "path": f"/metadata/labels/{escape(names.WAITS_LABEL)}", "value": "true"}
_WAIT_ALONE: Operation = {"op": "add", "path": "/metadata/labels", "value": {names.WAITS_LABEL: "true"}}


class Given(msgspec.Struct, frozen=True):
    """One claim of ours that a pod asks for: the name of its entry, the spec of its template, and who uses it."""

    name: str
    spec: Json
    users: tuple[str, ...]


class Rewrite(msgspec.Struct, frozen=True):
    """Operations, and the templates that the pod then names."""

    operations: tuple[Operation, ...] = ()
    templates: Mapping[str, Json] = {}
    given: tuple[Given, ...] = ()
    # Whether the record would make the pod's annotations larger than the API server takes them.
    too_large: bool = False


def rewrite(
    pod: PodView,
    verdict: Verdict,
    report: Report,
    *,
    again: Mapping[str, tuple[str, ...]],
    written: WrittenRecord,
    foreign: Sequence[str],
    namespace: str,
    path: str = "",
    key: bytes | None = None,
    there: Container[tuple[str, str]] = (),
) -> Rewrite:
    """Write the operations.

    `again` are keys that came back after an earlier round, `written` what that round wrote, `foreign` what somebody else wrote
    in our name, `there` the templates that certainly exist, by namespace and name.
    """
    spec = pod.spec
    going = verdict.translated
    gone = _words_by_container(going)
    entries, references, given = _entries(verdict.shared.grants, pod)
    operations: list[Operation] = []
    for slot in pod.slots:
        keys = (*gone.get(slot.name, ()), *again.get(slot.name, ()))
        operations += _container(f"{path}/spec/{slot.list}/{slot.index}", slot, keys, references.get(slot.name, ()))
    operations += patch.append(f"{path}/spec/resourceClaims", spec.get("resourceClaims"), entries)
    if not gone:
        return Rewrite(tuple(operations))
    later = Original(containers=gone)
    if verdict.scheduler:
        operations += patch.set_keys(f"{path}/spec", spec, {"schedulerName": verdict.scheduler})
        later = msgspec.structs.replace(later, scheduler_name=spec.get("schedulerName"), scheduled_by=verdict.scheduler)
    if path:
        operations += _tolerations(f"{path}/spec/tolerations", spec.get("tolerations"), gone)
    templates: dict[str, Json] = {}
    for entry, one in zip(entries, given, strict=True):
        templates[entry["resourceClaimTemplateName"]] = one.spec
    now = WrittenRecord(record=later, decisions=_write_decisions(report), devices=_devices(going), templates=templates)
    annotations = annotate(pod, written, now, namespace=namespace, key=key)
    if annotations is None:
        return Rewrite(too_large=True)
    for name in foreign:
        if name not in annotations:
            operations.append({"op": "remove", "path": f"{path}/metadata/annotations/{escape(name)}"})
    operations += _annotate(pod, annotations, path)
    for name in templates if key is not None else ():
        if (namespace, name) not in there:
            operations.append(_WAIT if pod.labels else _WAIT_ALONE)
            break
    return Rewrite(tuple(operations), templates, tuple(given))


def clean_annotations(pod: PodView, foreign: Sequence[str], path: str = "") -> tuple[Operation, ...]:
    """Take off annotations that look like ours and are not."""
    return tuple(patch.remove_keys(f"{path}/metadata/annotations", pod.annotations, foreign))


def strip(pod: PodView, record: Original) -> tuple[Operation, ...]:
    """Take away again what a record says was taken, where it stands there with the recorded number."""
    operations: list[Operation] = []
    for slot in pod.slots:
        removed = record.containers.get(slot.name, {})
        resources = f"/spec/{slot.list}/{slot.index}/resources"
        for part, values in (("limits", slot.limits), ("requests", slot.requests)):
            again: list[str] = []
            for key, amount in removed.items():
                if key in values and equal(values[key], amount):
                    again.append(key)
            path = f"{resources}/{part}"
            operations += patch.remove_keys(path, values, again)
    scheduler = pod.spec.get("schedulerName")
    if record.scheduled_by is not None and scheduler == record.scheduler_name:
        back = {"schedulerName": record.scheduled_by}
        operations += patch.set_keys("/spec", pod.spec, back)
    return tuple(operations)


def _words_by_container(going: Sequence[Case]) -> dict[str, dict[str, Json]]:
    gone: dict[str, dict[str, Json]] = {}
    for case in going:
        for slot, words in case.words:
            of_container = gone.setdefault(slot.name, {})
            for word in words:
                of_container[word.key] = word.raw
    return gone


def _entries(grants: Sequence[Grant], pod: PodView) -> tuple[list[_Entry], _References, list[Given]]:
    """Name the claims on the pod: its entries, each container's references, and what is asked for by each entry."""
    taken = set(pod.claims)
    entries: list[_Entry] = []
    references: _References = {}
    given: list[Given] = []
    for grant in grants:
        template_name, content = make_template(grant.spec)
        owner = grant.owner or "pod"
        name = _free(f"{names.PREFIX}{owner}-{grant.base}", taken)
        taken.add(name)
        entries.append({"name": name, "resourceClaimTemplateName": template_name})
        given.append(Given(name, content, grant.users))
        for container in grant.users:
            of_container = references.setdefault(container, [])
            of_container.append({"name": name})
    return entries, references, given


def standing(pod: PodView, written: WrittenRecord) -> tuple[Given, ...]:
    """Find the claims that an earlier round of ours has put on a pod."""
    entries = pod.spec.get("resourceClaims")
    given: list[Given] = []
    for raw in entries if isinstance(entries, list) else ():
        entry = mapping(raw)
        name = str(entry.get("name"))
        template = str(entry.get("resourceClaimTemplateName"))
        spec = written.templates.get(template)
        if spec is None:
            continue
        users = tuple([slot.name for slot in pod.slots if name in slot.claims])
        given.append(Given(name, spec, users))
    return tuple(given)


def _free(wanted: str, taken: set[str]) -> str:
    """Find a name that is still free, and short enough for a label. One try more than names are taken is enough."""
    name = wanted if len(wanted) <= _LABEL else wanted[: _LABEL - 4].rstrip("-")
    if name not in taken:
        return name
    for i in range(2, len(taken) + 3):
        end = f"-{i}"
        free = name[: _LABEL - len(end)].rstrip("-") + end
        if free not in taken:
            return free
    raise AssertionError("more names are taken than there are")


def _container(path: str, slot: Slot, keys: Sequence[str], references: Sequence[Json]) -> list[Operation]:
    if not keys and not references:
        return []
    operations: list[Operation] = []
    if "name" in slot.raw:
        operations.append(patch.test(f"{path}/name", slot.raw["name"]))
    at = f"{path}/resources"
    resources = slot.raw.get("resources")
    if not isinstance(resources, dict):
        whole: Json = {"claims": list(references)}
        operations.append({"op": "add", "path": at, "value": whole})
        return operations
    amounts = {"limits": slot.limits, "requests": slot.requests}
    for part, values in amounts.items():
        removals = patch.remove_keys(f"{at}/{part}", values, keys, coarse=True)
        operations += removals
    operations += patch.append(f"{at}/claims", resources.get("claims"), references)
    return operations


def _tolerations(path: str, present: Json, gone: Mapping[str, Mapping[str, Json]]) -> list[Operation]:
    """Add what the ExtendedResourceToleration plugin adds for each name that was there (its admission.go)."""
    have: list[Json] = []
    if isinstance(present, list):
        have = present
    keys: set[str] = set()
    for of_container in gone.values():
        keys.update(of_container)
    lacking: list[Json] = []
    for key in sorted(keys):
        toleration = {"key": key, "operator": "Exists", "effect": "NoSchedule"}
        if toleration not in have:
            lacking.append(toleration)
    return patch.append(path, present, lacking)


def _write_decisions(report: Report) -> tuple[Json, ...]:
    """Write what became of each key; it stands on the pod that it is about."""
    told: list[Json] = []
    for decision in report.decisions:
        one = msgspec.structs.asdict(decision)
        told.append({name: one[name] for name in ("container", "dialect", "key", "action", "detail")})
    return tuple(told)


def _devices(going: Sequence[Case]) -> dict[str, Json]:
    """Say per container how many devices of which class it is given, for tools that counted the old keys."""
    devices: dict[str, list[Json]] = {}
    for case in going:
        for (key, demand), made in zip(case.demands, case.made, strict=True):
            counted = demand.primary if isinstance(demand, Pairs) else demand
            one: dict[str, Json] = {
                "key": key,
                "class": made.supply.served.name,
                "count": counted.count,
            }
            models = made.claims.models
            if models:
                one["models"] = list(models)
            for slot, _ in case.words:
                given = devices.setdefault(slot.name, [])
                given.append(one)
    return dict(devices)


def _annotate(pod: PodView, annotations: dict[str, Json], path: str) -> list[Operation]:
    at = f"{path}/metadata"
    metadata = pod.raw.get("metadata")
    if not isinstance(metadata, dict):
        whole: Json = {"annotations": annotations}
        addition: Operation = {"op": "add", "path": at, "value": whole}
        return [addition]
    present = metadata.get("annotations")
    return patch.set_keys(f"{at}/annotations", present, annotations)
