"""Writes the JSON Patch for one pod: it removes keys, adds claims and writes the record. On an update of the pod, it removes recorded keys again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from dra.objects import Pod
from dra.pointer import escape
from dra.raw import items, members
from dra.wire import Json
from webhook import names
from webhook.claims import make_template
from webhook.dialects import Position, kinds
from webhook.translate import json_patch
from webhook.translate.pod_view import equal
from webhook.translate.record import Original, WrittenRecord, annotate, foreign_annotations

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from dra.budget import Budget
    from webhook.claims import Grant
    from webhook.translate.case import Case
    from webhook.translate.checks import CheckedPod
    from webhook.translate.pod_report import Decision
    from webhook.translate.pod_view import PodView, Slot

Operation = dict[str, "Json"]
_Entry = dict[str, str]  # an entry of the pod's resourceClaims
_References = dict[str, list["Json"]]  # references to claims, by container
_Labels = dict[str, "Json"]
_LABEL = 63  # the longest name of a claim: a DNS label
_SHOWN = 3  # keys and containers that a message names
# With the first label, the API server sends the pod to the validating webhook. With both, the template controller watches the pod.
_TRANSLATED: _Labels = {names.TRANSLATED_LABEL: "true"}
_AWAITING: _Labels = {**_TRANSLATED, names.WAITS_LABEL: "true"}
_MARKS: dict[str, Operation] = {
    name: {"op": "add", "path": f"/metadata/labels/{escape(name)}", "value": value} for name, value in _AWAITING.items()
}


class PodClaim(msgspec.Struct, frozen=True):
    """One claim of a pod: the name of its entry in `resourceClaims`, the containers that use it, and the spec if the claim is ours.

    For a claim that the author wrote, `template` or `claim` name the object of its entry.
    """

    name: str
    spec: Json = None
    users: tuple[str, ...] = ()
    # Keys and amounts that the first of these containers requested.
    amounts: Mapping[str, Json] = {}
    template: str = ""
    claim: str = ""
    # For a claim that the scheduler creates for extended resources: their names and amounts, in billionths. A device plugin may serve them.
    extended_resources: Mapping[str, int] = {}
    # The following fields are for such a claim only.
    requesters: Mapping[str, str] = {}  # by request of the claim, the container that needs it
    requested_names: tuple[tuple[str, str], ...] = ()  # containers, each with a name that it requests
    scheduler: str = ""
    pod: Pod | None = None  # the pod that requests the resources

    @property
    def requester(self) -> str:
        """Name the containers that use the claim, and the keys of the first one, because the pod's author does not know the claim."""
        if not self.users:
            return "the pod"
        # Sorted, as the API server stores them; files have any order.
        listed_amounts = [f"{key}: {self.amounts[key]}" for key in sorted(self.amounts)]
        listed = f" ({', '.join(listed_amounts[:_SHOWN])})" if listed_amounts else ""
        noun = "container" if len(self.users) == 1 else "containers"
        return f"{noun} {' and '.join(self.users[:_SHOWN])}{listed}"


class Rewrite(msgspec.Struct, frozen=True):
    """The operations on a pod, and the templates and claims that it then names."""

    operations: tuple[Operation, ...] = ()
    templates: Mapping[str, Json] = {}
    added_claims: tuple[PodClaim, ...] = ()
    cpus: bool = False  # whether containers get claims for CPUs
    # Whether the record would make the pod's annotations larger than the API server accepts.
    too_large: bool = False


UNCHANGED = Rewrite()


class Round(NamedTuple):
    """A pod, or the template at `path` of an object, and what an earlier round of its translation wrote on it."""

    pod: PodView
    written: WrittenRecord
    namespace: str
    path: str
    key: bytes | None  # the key of the signature; None in a file
    # Keys that the earlier round removed and another webhook put back, by container.
    returned_keys: Mapping[str, tuple[str, ...]] = {}
    returned_annotations: Sequence[str] = ()


def rewrite(
    current: Round,
    verdict: CheckedPod,
    decisions: Sequence[Decision],
    existing_templates: Container[tuple[str, str]],
    budget: Budget,
) -> Rewrite:
    """Return the operations that replace the keys of the checked cases by claims and write the record.

    `existing_templates` are the templates that certainly exist, by namespace and name.
    """
    pod, written, namespace, path, key, returned_keys, returned_annotations = current
    removed, replaced_annotations, devices = _replaced_keys(verdict.cases)
    entries, references, added_claims = _entries(verdict.shared.grants, pod, removed, budget)
    patch = _Patch(pod, path)
    for slot in pod.slots:
        keys = (*removed.get(slot.name, ()), *returned_keys.get(slot.name, ()))
        patch.change_container(slot, keys, references.get(slot.name, ()))
    patch.append("resourceClaims", entries)
    patch.remove_annotations(dict.fromkeys((*returned_annotations, *replaced_annotations)))
    if not removed:
        if patch.operations and key is not None:
            patch.label(_TRANSLATED)
        return Rewrite(tuple(patch.operations))
    record = Original(removed, replaced_annotations)
    if verdict.scheduler:
        patch.operations += json_patch.set_keys(f"{path}/spec", pod.spec, {"schedulerName": verdict.scheduler})
        record = replace(record, scheduler_name=pod.spec.get("schedulerName"), scheduled_by=verdict.scheduler)
    if path:
        patch.tolerate(sorted(set().union(*removed.values()).difference(replaced_annotations)))
    templates = {
        entry["resourceClaimTemplateName"]: claim.spec for entry, claim in zip(entries, added_claims, strict=True)
    }
    new_record = WrittenRecord(
        record=record,
        decisions=tuple([_recorded(decision) for decision in decisions]),
        devices=devices,
        templates=templates,
        strategy=verdict.strategy,
    )
    annotations = annotate(pod, written, new_record, namespace=namespace, key=key)
    if annotations is None:
        return Rewrite(too_large=True)
    if pod.marked:
        patch.remove_annotations([name for name in foreign_annotations(pod, written) if name not in annotations])
    patch.annotate(annotations)
    if key is not None:  # after the annotations, which create missing metadata
        missing_templates = [name for name in templates if (namespace, name) not in existing_templates]
        patch.label(_AWAITING if missing_templates else _TRANSLATED)
    cpus = bool(pod.cpus) and any(case.keeps and case.open for case in verdict.cases)
    return Rewrite(tuple(patch.operations), templates, tuple(added_claims), cpus=cpus)


def _recorded(decision: Decision) -> dict[str, Json]:
    """Return a decision for the record, without the pod's name: the annotation is on the pod itself."""
    return {
        "container": decision.container,
        "dialect": decision.dialect,
        "key": decision.key,
        "outcome": decision.outcome,
        "detail": decision.detail,
    }


class _Patch:
    """Collects the operations on a pod, or on the template at `path` of an object."""

    def __init__(self, pod: PodView, path: str) -> None:
        self._pod = pod
        self._path = path
        self.operations: list[Operation] = []

    def change_container(self, slot: Slot, keys: Sequence[str], references: Sequence[Json]) -> None:
        """Remove keys of a container, and add references to claims."""
        if not keys and not references:
            return
        container_path = f"{self._path}/spec/{slot.list}/{slot.index}"
        if "name" in slot.raw:
            self.operations.append({"op": "test", "path": f"{container_path}/name", "value": slot.raw["name"]})
        resources = slot.raw.get("resources")
        if not isinstance(resources, dict):
            claims = {"claims": list(references)}
            self.operations.append({"op": "add", "path": f"{container_path}/resources", "value": claims})
            return
        self.operations += json_patch.remove_keys(f"{container_path}/resources/limits", slot.limits, keys)
        self.operations += json_patch.remove_keys(f"{container_path}/resources/requests", slot.requests, keys)
        self.operations += json_patch.append(f"{container_path}/resources/claims", resources.get("claims"), references)

    def append(self, field: str, values: Sequence[Json]) -> None:
        self.operations += json_patch.append(f"{self._path}/spec/{field}", self._pod.spec.get(field), values)

    def remove_annotations(self, names_: Iterable[str]) -> None:
        for name in names_:
            self.operations.append({"op": "remove", "path": f"{self._path}/metadata/annotations/{escape(name)}"})

    def tolerate(self, keys: Iterable[str]) -> None:
        """Add the tolerations that the ExtendedResourceToleration plugin would have added to pods of a template for their removed keys."""
        existing = members(self._pod.spec.get("tolerations"))
        tolerations: list[Json] = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
        self.append("tolerations", [toleration for toleration in tolerations if toleration not in existing])

    def annotate(self, annotations: dict[str, Json]) -> None:
        metadata = self._pod.raw.get("metadata")
        path = f"{self._path}/metadata"
        if isinstance(metadata, dict):
            self.operations += json_patch.set_keys(f"{path}/annotations", metadata.get("annotations"), annotations)
        else:
            self.operations.append({"op": "add", "path": path, "value": {"annotations": annotations}})

    def label(self, labels: _Labels) -> None:
        existing = self._pod.labels
        if not existing:
            self.operations.append({"op": "add", "path": "/metadata/labels", "value": dict(labels)})
            return
        self.operations += [_MARKS[name] for name, value in labels.items() if existing.get(name) != value]


def clean_annotations(pod: PodView, written: WrittenRecord, path: str = "") -> tuple[Operation, ...]:
    """Return the operations that remove annotations with our names if another writer wrote them."""
    foreign = foreign_annotations(pod, written)
    return tuple(json_patch.remove_keys(f"{path}/metadata/annotations", pod.annotations, foreign))


def remove_recorded(pod: PodView, record: Original) -> tuple[Operation, ...]:
    """Return the operations that remove recorded keys again if they are back with the recorded amounts.

    If the old scheduler is back, they also set the recorded new scheduler.
    """
    operations: list[Operation] = []
    for slot in pod.slots:
        removed = record.containers.get(slot.name, {})
        resources = f"/spec/{slot.list}/{slot.index}/resources"
        for part, values in (("limits", slot.limits), ("requests", slot.requests)):
            returned_keys = [key for key, amount in removed.items() if key in values and equal(values[key], amount)]
            operations += json_patch.remove_keys(f"{resources}/{part}", values, returned_keys)
    scheduler = pod.spec.get("schedulerName")
    if record.scheduled_by is not None and scheduler == record.scheduler_name:
        operations += json_patch.set_keys("/spec", pod.spec, {"schedulerName": record.scheduled_by})
    returned_annotations = [key for key, text in record.removed_annotations.items() if pod.annotations.get(key) == text]
    operations += json_patch.remove_keys("/metadata/annotations", pod.annotations, returned_annotations)
    return tuple(operations)


def _entries(
    grants: Sequence[Grant], pod: PodView, removed: Mapping[str, Mapping[str, Json]], budget: Budget
) -> tuple[list[_Entry], _References, list[PodClaim]]:
    """Return the entries for the pod's `resourceClaims`, each container's references, and the claim of each entry."""
    taken = dict.fromkeys(pod.claims, 1)
    entries: list[_Entry] = []
    references: _References = {}
    added_claims: list[PodClaim] = []
    for grant in grants:
        budget.charge(len(grant.users))
        template_name, content = make_template(grant.spec)
        owner = grant.owner or "pod"
        name = _free_name(f"{names.PREFIX}{owner}-{grant.base}", taken)
        entries.append({"name": name, "resourceClaimTemplateName": template_name})
        added_claims.append(PodClaim(name, content, grant.users, _first_amounts(grant.users, removed)))
        reference = {"name": name}
        for container in grant.users:
            references.setdefault(container, []).append(reference)
    return entries, references, added_claims


def _first_amounts(users: Sequence[str], amounts: Mapping[str, Mapping[str, Json]]) -> Mapping[str, Json]:
    for user in users:
        if user in amounts:
            return amounts[user]
    return {}


def claims_on_pod(pod: PodView, written: WrittenRecord) -> tuple[PodClaim, ...]:
    claims: list[PodClaim] = []
    for entry in items(pod.spec, "resourceClaims"):
        name = str(entry.get("name"))
        template = str(entry.get("resourceClaimTemplateName"))
        spec = written.templates.get(template)
        if spec is None:
            continue
        users = tuple([slot.name for slot in pod.slots if name in slot.claims])
        claims.append(PodClaim(name, spec, users, _first_amounts(users, written.record.containers)))
    return tuple(claims)


def _free_name(wanted: str, taken: dict[str, int]) -> str:
    """Return a name that fits a label and is not taken, and add it to `taken`, which maps each name to the last number that was tried as its suffix."""
    name = wanted if len(wanted) <= _LABEL else wanted[: _LABEL - 4].rstrip("-")
    free = name
    while free in taken:
        taken[name] += 1
        end = f"-{taken[name]}"
        free = name[: _LABEL - len(end)].rstrip("-") + end
    taken[free] = 1
    return free


def _replaced_keys(
    cases: Sequence[Case],
) -> tuple[dict[str, dict[str, Json]], tuple[str, ...], dict[str, Json]]:
    """Return the keys that claims replace, by container, the annotations among them, and the devices of each container.

    Product names (`models`) are written only for the first kind of device of each demand.
    """
    removed: dict[str, dict[str, Json]] = {}
    annotations: dict[str, None] = {}
    devices: dict[str, Json] = {}
    for case in cases:
        if not case.open:
            continue
        for slot, legacy_keys in case.slot_keys:
            of_container = removed.setdefault(slot.name, {})
            for legacy_key in legacy_keys:
                of_container[legacy_key.key] = legacy_key.raw
                if legacy_key.known[0].row.place is Position.ANNOTATION:
                    annotations[legacy_key.key] = None
        for keyed_demand, made in zip(case.demands, case.made, strict=True):
            keys = (keyed_demand.key, *keyed_demand.other_keys)
            entries: list[Json] = []
            for key, kind, name in zip(keys, kinds(keyed_demand.demand), made.classes, strict=True):
                entries.append({"key": key, "class": name, "count": kind.count})
            if made.claims.models:
                entries[0]["models"] = list(made.claims.models)
            for slot, _ in case.slot_keys:
                devices[slot.name] = [*devices.get(slot.name, ()), *entries]
    return removed, tuple(annotations), devices
