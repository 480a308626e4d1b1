"""Rules about metadata, conditions and node selectors of every kind (apimachinery validation/objectmeta.go, core validation.go)."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, Final

from dra import names
from dra.finding import Findings, finding_at
from dra.pointer import member
from dra.validation.fields.limits import duplicates, required, wrong_format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dra.objects import Condition, NodeSelector, ObjectMeta

MAX_ANNOTATIONS: Final = 256 * 1024
_GENERATED: Final = 5  # random characters after generateName
_MAX_GENERATED_BASE: Final = 58
_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")


def metadata(
    meta: ObjectMeta,
    path: str,
    *,
    namespaced: bool,
    generate_name_judged: bool = True,
) -> Findings:
    """Judge the metadata of an object that is created. Its name must be a DNS subdomain."""
    if meta.name:
        yield from wrong_format(meta.name, names.dns_subdomain, f"{path}/name", names.suggestion)
    elif not meta.generate_name:
        yield finding_at("D101", f"{path}/name", "name or generateName is required")

    def prefix(base: str) -> str:
        problem = names.path_segment(base)
        if base and generate_name_judged:
            # If the base ends with a dash, the API server does not judge the dash and the character before it.
            problem = names.dns_subdomain(base[:-2] + "a" if len(base) > 1 and base.endswith("-") else base)
        if base and not meta.name and not problem:
            problem = names.dns_subdomain(base[:_MAX_GENERATED_BASE] + "x" * _GENERATED)
        return problem

    def finalizer_name(text: str) -> str:
        if "/" not in text and text not in _STANDARD_FINALIZERS:
            return names.label_key(text) or "must have a domain: example.com/name"
        return names.label_key(text)

    yield from wrong_format(meta.generate_name, prefix, f"{path}/generateName", names.suggestion)
    if namespaced and meta.namespace:
        yield from wrong_format(meta.namespace, names.dns_label, f"{path}/namespace")
    yield from label_map(meta.labels, f"{path}/labels")
    yield from annotation_map(meta.annotations, f"{path}/annotations")
    owners = f"{path}/ownerReferences"
    for index, owner in enumerate(meta.owner_references):
        pointer = f"{owners}/{index}"
        yield from required(owner.api_version, f"{pointer}/apiVersion")
        yield from required(owner.kind, f"{pointer}/kind")
        yield from required(owner.name, f"{pointer}/name")
        yield from required(owner.uid, f"{pointer}/uid")
        if owner.api_version and (owner.api_version.count("/") > 1 or owner.api_version.endswith("/")):
            yield finding_at(
                "D114", f"{pointer}/apiVersion", f"{owner.api_version!r} must be <group>/<version> or <version>"
            )
        if (owner.api_version, owner.kind) == ("v1", "Event"):
            yield finding_at("D114", pointer, "an Event cannot own objects")
    if sum(owner.controller is True for owner in meta.owner_references) > 1:
        yield finding_at("D114", owners, "only one owner may be the controller")
    for index, finalizer in enumerate(meta.finalizers):
        yield from wrong_format(finalizer, finalizer_name, f"{path}/finalizers/{index}")
    if {"orphan", "foregroundDeletion"} <= set(meta.finalizers):
        message = "the finalizers orphan and foregroundDeletion exclude each other"
        yield finding_at("D114", f"{path}/finalizers", message)


def label_map(values: Mapping[str, str], path: str) -> Findings:
    for key, value in values.items():
        yield from wrong_format(key, names.label_key, member(path, key))
        yield from wrong_format(value, names.label_value, member(path, key))


def annotation_map(values: Mapping[str, str], path: str) -> Findings:
    for key in values:
        yield from wrong_format(key, lambda text: names.label_key(text.lower()), member(path, key))
    total = sum(names.size(key) + names.size(value) for key, value in values.items())
    if total > MAX_ANNOTATIONS:
        yield finding_at("D103", path, f"the annotations have {total} bytes, at most {MAX_ANNOTATIONS} are allowed")


def managed_fields(entries: Any) -> Findings:
    """Judge metadata.managedFields in untyped JSON, because no wire type has this field."""
    if not isinstance(entries, list):
        return
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            continue
        pointer = f"/metadata/managedFields/{index}"
        operation = entry.get("operation")
        if operation not in ("Apply", "Update"):
            yield finding_at("D106", f"{pointer}/operation", f"{operation!r} must be Apply or Update")
        kind = entry.get("fieldsType")
        if kind not in (None, "", "FieldsV1"):
            yield finding_at("D106", f"{pointer}/fieldsType", f"{kind!r} must be FieldsV1")
        manager = entry.get("manager") or ""
        if not isinstance(manager, str):
            continue
        printable = all(sign == " " or unicodedata.category(sign)[0] in "LMNPS" for sign in manager)
        if names.size(manager) > 128 or not printable:
            yield finding_at("D114", f"{pointer}/manager", "a manager has at most 128 printable characters")


def conditions(values: Sequence[Condition], limit: int, path: str) -> Findings:
    if len(values) > limit:
        yield finding_at("D104", path, f"{len(values)} conditions, at most {limit} are allowed")
    yield from duplicates([condition.type for condition in values], path, "condition type", field="/type")
    for index, condition in enumerate(values):
        pointer = f"{path}/{index}"
        yield from required(condition.type, f"{pointer}/type", names.label_key)
        if condition.status not in ("True", "False", "Unknown"):
            yield finding_at("D106", f"{pointer}/status", f"{condition.status!r} must be True, False or Unknown")
        if condition.observed_generation < 0:
            yield finding_at("D108", f"{pointer}/observedGeneration", "must be zero or more")
        yield from required(condition.last_transition_time, f"{pointer}/lastTransitionTime")
        yield from required(condition.reason, f"{pointer}/reason", names.condition_reason)
        if names.size(condition.message) > 32 * 1024:
            yield finding_at("D103", f"{pointer}/message", "at most 32768 bytes are allowed")


def node_selector(selector: NodeSelector, path: str) -> Findings:
    """Judge a node selector (ValidateNodeSelector)."""
    if not selector.node_selector_terms:
        yield finding_at("D101", f"{path}/nodeSelectorTerms", "at least one node selector term is required")
    for index, term in enumerate(selector.node_selector_terms):
        for number, requirement in enumerate(term.match_expressions):
            pointer = f"{path}/nodeSelectorTerms/{index}/matchExpressions/{number}"
            count, operator = len(requirement.values), requirement.operator
            if operator in ("In", "NotIn"):
                if not count:
                    yield finding_at("D101", f"{pointer}/values", f"operator {operator} needs at least one value")
            elif operator in ("Exists", "DoesNotExist"):
                if count:
                    yield finding_at("D107", f"{pointer}/values", f"operator {operator} takes no values")
            elif operator not in ("Gt", "Lt"):
                message = f"{operator!r} must be In, NotIn, Exists, DoesNotExist, Gt or Lt"
                yield finding_at("D106", f"{pointer}/operator", message)
            elif count != 1:
                yield finding_at("D101", f"{pointer}/values", f"operator {operator} needs exactly one value")
            yield from required(requirement.key, f"{pointer}/key", names.label_key)
            for value_index, value in enumerate(requirement.values):
                yield from wrong_format(value, names.label_value, f"{pointer}/values/{value_index}")
        for number, requirement in enumerate(term.match_fields):
            pointer = f"{path}/nodeSelectorTerms/{index}/matchFields/{number}"
            if requirement.operator not in ("In", "NotIn"):
                yield finding_at(
                    "D106", f"{pointer}/operator", f"{requirement.operator!r} must be In or NotIn for a field"
                )
            elif len(requirement.values) != 1:
                yield finding_at("D101", f"{pointer}/values", "a field takes exactly one value")
            if requirement.key != "metadata.name":
                yield finding_at("D106", f"{pointer}/key", f"{requirement.key!r} must be metadata.name")
                continue
            for value_index, value in enumerate(requirement.values):
                yield from wrong_format(value, names.dns_subdomain, f"{pointer}/values/{value_index}")
