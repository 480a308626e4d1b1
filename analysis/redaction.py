"""Reduces an object to the parts that a snapshot keeps: those that decide about devices.

This is an allow-list, because people put passwords everywhere: into variables, arguments, probes, options of volumes, annotations, and the
last message of a container. These parts are kept:

- of kinds with a type here, of pods and of pod templates: the fields that the type has
- of other kinds: their pod templates, amounts of devices, and numbers of pods
- of environment variables: the values that a dialect reads
- of opaque parameters: the members that a driver is known to read
- of labels and annotations: those of dialects and of Kubernetes, and those that a selector in the snapshot requires
- of nodes: all labels, because later pods may select nodes by them
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import inspect

from cluster.objects import AdmissionWebhook, ResourceQuotaSpec, WebhookClientConfig
from cluster.resources import BY_KIND
from dra.objects import (
    AllocatedDeviceStatus,
    Condition,
    Container,
    EnvVar,
    ObjectMeta,
    OpaqueDeviceConfiguration,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    channel_template,
    versions,
)
from dra.raw import Object, inside, items, text
from dra.validation import read_members
from webhook.dialects import Position, pattern_of_any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.state import Configuration


_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SECRET = re.compile(r"passw|token|secret|credential|private|api[-_]?key|access[-_]?key", re.IGNORECASE)
_NATIVE: Final = re.compile(r"(?:[a-z0-9-]+\.)*(?:kubernetes|k8s|drawbridge)\.(?:io|dev)")
# Values of Kubernetes' own annotations that are kept. Other values may be free text, such as a command, or a controller's JSON.
_WORD: Final = re.compile(r"[\w.:/,-]{0,63}", re.ASCII)
_FREE_TEXTS: Final = frozenset(["kubernetes.io/change-cause", "kubernetes.io/description"])
_OURS: Final = re.compile(r"(?:[a-z0-9-]+\.)*drawbridge\.dev/.*")
# Members of structures without a type here: selectors, affinities, gates, references of variables, rules of webhooks.
_SELECTING: Final = frozenset(
    [
        "nodeAffinity",
        "podAffinity",
        "podAntiAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
        "preference",
        "podAffinityTerm",
        "weight",
        "topologyKey",
        "namespaces",
        "namespaceSelector",
        "labelSelector",
        "matchFields",
        "matchExpressions",
        "matchLabels",
        "matchLabelKeys",
        "mismatchLabelKeys",
        "key",
        "operator",
        "values",
        "scopeName",
        "name",
        "apiGroups",
        "apiVersions",
        "resources",
        "operations",
        "scope",
        "secretKeyRef",
        "configMapKeyRef",
        "fieldRef",
        "fieldPath",
        "resourceFieldRef",
        "containerName",
        "resource",
        "divisor",
        "optional",
    ]
)
_SELECTED: Final = frozenset(
    [
        (PodSpec, "affinity"),
        (PodSpec, "scheduling_gates"),
        (ResourceQuotaSpec, "scope_selector"),
    ]
    + [(AdmissionWebhook, name) for name in ("rules", "namespace_selector", "object_selector")]
)
_DROPPED: Final = frozenset(
    [(AllocatedDeviceStatus, "data"), (AllocatedDeviceStatus, "network_data"), (WebhookClientConfig, "url")]
)
# Conditions whose message is kept: the scheduler's and ours.
_KEPT_MESSAGES: Final = re.compile(r"PodScheduled|DisruptionTarget|Drawbridge.*")
# Members of kinds without a type here: the number of pods, and their scheduler.
_SIZES: Final = frozenset(
    [
        "replicas",
        "parallelism",
        "completions",
        "suspend",
        "minReplicas",
        "maxReplicas",
        "minAvailable",
        "minMember",
        "size",
        "numNodes",
        "numberReady",
        "numHosts",
    ]
)
_PLACING: Final = frozenset(
    ["schedulerName", "priorityClassName", "apiVersion", "kind", "phase", "type", "status", "restartPolicy"]
)
_AMOUNT: Final = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?(?:m|[kKMGTPE]i?)?")
_DEVICES: Final = re.compile(r"(?:num|n|request|limit)?[-_]?(?:gpu|npu|tpu|accelerator)s?[-_]?(?:count|num|number|limit|request)?", re.IGNORECASE)  # fmt: skip
_SHORT: Final = 63
_FOLDERS: Final = ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet/")
_NOTHING: Final = object()


class _WholePodSpec(PodSpec, frozen=True, kw_only=True):
    host_network: bool = False
    ephemeral_containers: tuple[Container, ...] = ()
    volumes: tuple[Any, ...] = ()


class Redaction:
    """Redacts objects, and counts the values that it leaves out. It keeps the keys of a configuration's dialects."""

    def __init__(self, configuration: Configuration) -> None:
        rows = [row for dialect in configuration.dialects for row in dialect.keys]
        self.left_out = 0
        self._reads_variable = pattern_of_any(row.name for row in rows if row.place is Position.ENV)
        self._reads_key = pattern_of_any(row.name for row in rows)
        self._domains = {row.name.partition("/")[0] for row in rows if "/" in row.name}
        self._asked: set[str] = set()

    def _understands(self, key: str) -> bool:
        """Return whether a dialect reads a label or annotation, or another one of its domain, whose value may be anything."""
        return bool(self._reads_key(key)) or key.partition("/")[0] in self._domains

    def redact(self, original: Object) -> Object:
        """Return a new object with only the parts that decide about devices."""
        obj: Object = msgspec.json.decode(msgspec.json.encode(original))
        before = _count(obj)
        group = str(obj.get("apiVersion")).rpartition("/")[0]
        resource = BY_KIND.get((group, str(obj.get("kind"))))
        type_ = resource.type if resource is not None else None
        redacted: Object
        if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
            redacted = self._typed(versions.upgrade(obj).value if group == versions.GROUP else obj, type_)
            if obj.get("kind") == "Pod" and isinstance(obj.get("spec"), dict):
                redacted["spec"] = self._typed(obj["spec"], _WholePodSpec)
            if obj.get("kind") == "Node":
                conditions = self._typed({"conditions": inside(obj, "status").get("conditions")}, PodStatus)
                redacted.setdefault("status", {}).update(conditions)
        else:
            redacted = self._untyped(obj)
            if template := channel_template(obj):
                redacted.setdefault("spec", {})["channel"] = {"resourceClaimTemplate": {"name": template.metadata.name}}
        self.left_out += before - _count(redacted)
        return redacted

    def finish(self, lines: Iterable[bytes]) -> list[bytes]:
        """Return the lines without labels that no selector in the snapshot requires. Call it once, after `redact` for all objects."""
        return [msgspec.json.encode(self._without_unselected_labels(msgspec.json.decode(line))) for line in lines]

    def _without_unselected_labels(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._without_unselected_labels(member) for member in value]
        if not isinstance(value, dict):
            return value
        is_node = value.get("kind") == "Node"
        remaining: Object = {}
        for name, member in value.items():
            if name == "metadata" and isinstance(member, dict) and not is_node:
                labels = member.get("labels")
                if isinstance(labels, dict):
                    matched_labels = {
                        key: label for key, label in labels.items() if key in self._asked or self._is_known(key)
                    }
                    self.left_out += len(labels) - len(matched_labels)
                    member = {**member, "labels": matched_labels}  # noqa: PLW2901
            remaining[name] = self._without_unselected_labels(member)
        return remaining

    def _typed(self, value: Any, type_: type) -> Any:
        redacted = self._by_form(value, _form(type_))
        return {} if redacted is _NOTHING else redacted

    def _by_form(self, value: Any, form: inspect.Type) -> Any:
        match form:
            case inspect.UnionType(types=types):
                [type_, *more] = [type_ for type_ in types if not isinstance(type_, inspect.NoneType)]
                return self._by_form(value, type_) if not more else _scalar(value)
            case inspect.StructType():
                return self._struct(value, form) if isinstance(value, dict) else _NOTHING
            case inspect.DictType(value_type=inner):
                if not isinstance(value, dict):
                    return _NOTHING
                redacted = {name: self._by_form(member, inner) for name, member in value.items()}
                return {name: member for name, member in redacted.items() if member is not _NOTHING}
            case inspect.VarTupleType(item_type=inner) | inspect.ListType(item_type=inner):
                if not isinstance(value, list):
                    return _NOTHING
                return [
                    redacted
                    for redacted in (self._by_form(member, inner) for member in value)
                    if redacted is not _NOTHING
                ]
            case inspect.CustomType():  # a quantity
                return value if _AMOUNT.fullmatch(str(value)) else _NOTHING
            case inspect.AnyType():
                return _NOTHING
        return _scalar(value)

    def _struct(self, value: Object, form: inspect.StructType) -> Object:
        redacted: Object = {}
        for field in form.fields:
            if field.encode_name not in value or (form.cls, field.name) in _DROPPED:
                continue
            field_value = value[field.encode_name]
            member = self._special(form.cls, field.name, field_value)
            if member is None:
                member = self._by_form(field_value, field.type)
            if member is not _NOTHING:
                redacted[field.encode_name] = member
        if form.cls is Condition and not _KEPT_MESSAGES.fullmatch(str(redacted.get("type"))):
            redacted.pop("message", None)
        if form.cls is EnvVar:
            if not self._reads_variable(str(redacted.get("name"))):
                redacted.pop("value", None)
            if "valueFrom" in value:  # no type of ours has this field; its presence means that the value is not known
                redacted["valueFrom"] = self._selecting(value["valueFrom"])
        return redacted

    def _special(self, owner: type, name: str, original: Any) -> Any:
        """Return the redacted value of a member for which a rule of its own applies; None for members that are redacted by their type."""
        if any(field == name and issubclass(owner, known) for known, field in _SELECTED):
            return self._selecting(original)
        if owner is _WholePodSpec and name == "volumes":
            # Device plugins and drivers mount the kubelet's folders. Other volumes are left out.
            folders = []
            for item in items({"": original}, ""):
                path = text(inside(item, "hostPath").get("path"))
                if folder := next(filter(path.startswith, _FOLDERS), ""):
                    folders.append({"name": text(item.get("name"))[:_SHORT], "hostPath": {"path": folder}})
            return folders or _NOTHING
        if owner is ObjectMeta and name in ("labels", "annotations"):
            # All labels are kept for now, because a selector may require them (`finish`).
            if not isinstance(original, dict):
                return _NOTHING
            return {
                key: value
                for key, value in original.items()
                if isinstance(value, str)
                and (
                    name == "labels"
                    or self._reads_key(key)
                    or _OURS.fullmatch(key)
                    or (self._is_known(key) and key not in _FREE_TEXTS and _WORD.fullmatch(value))
                )
                and not (_SECRET.search(key) and not self._understands(key))
            }
        if owner is OpaqueDeviceConfiguration and name == "parameters":
            return _NOTHING if not isinstance(original, dict) else read_members(original)
        if name in ("match_labels", "key"):
            self._keep_labels(original)
        return None

    def _keep_labels(self, original: Any) -> None:
        self._asked.update([original] if isinstance(original, str) else original if isinstance(original, dict) else ())

    def _selecting(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._selecting(member) for member in value]
        if not isinstance(value, dict):
            return value
        redacted: Object = {}
        for name, member in value.items():
            if name == "matchLabels" and isinstance(member, dict):
                self._keep_labels(member)
                redacted[name] = {key: text_ for key, text_ in member.items() if isinstance(text_, str)}
            elif name in _SELECTING:
                if name in ("key", "topologyKey"):
                    self._keep_labels(member)
                redacted[name] = self._selecting(member)
        return redacted

    def _is_known(self, key: str) -> bool:
        domain, slash, _ = key.partition("/")
        return key != _APPLIED and (self._understands(key) or bool(slash and _NATIVE.fullmatch(domain)))

    def _untyped(self, value: Any, parent_name: str = "") -> Any:
        """Return the redacted part of an object whose kind has no type here."""
        if isinstance(value, list):
            return [
                redacted
                for redacted in (self._untyped(member, parent_name) for member in value)
                if redacted is not _NOTHING
            ]
        if not isinstance(value, dict):
            return _scalar(value) if parent_name in _SIZES and type(value) in (int, bool) else _NOTHING
        if any(isinstance(value.get(name), list) for name in ("containers", "initContainers")):
            return self._typed(value, _WholePodSpec)
        redacted: Object = {}
        for name, member in value.items():
            kept = self._member(name, member, parent_name)
            if kept is not _NOTHING:
                redacted[name] = kept
        return redacted

    def _member(self, name: str, member: Any, parent_name: str) -> Any:
        if name == "metadata":
            return self._typed(member, ObjectMeta)
        if name == "resources" and isinstance(member, dict):
            return self._typed(member, ResourceRequirements)
        if isinstance(member, dict | list):
            redacted = self._untyped(member, name)
            return redacted if redacted or not member else _NOTHING
        if name in _PLACING and isinstance(member, str) and len(member) <= _SHORT:
            return member
        counts = "/" in name or _DEVICES.fullmatch(name) or _DEVICES.fullmatch(parent_name)
        if counts and isinstance(member, str | int | float):
            return member if _AMOUNT.fullmatch(str(member)) or self._understands(str(member)) else _NOTHING
        return self._untyped(member, name)


_form = cache(inspect.type_info)


def _scalar(value: Any) -> Any:
    return _NOTHING if isinstance(value, dict | list) else value


def _count(value: Any) -> int:
    """Return the number of values that are neither a mapping nor a list."""
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    if isinstance(value, list):
        return sum(map(_count, value))
    return 1
