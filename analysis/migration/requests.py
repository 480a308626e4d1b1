"""Finds the places of a tree that request devices by a legacy key, or use devices without a request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from analysis.check import finding_of
from analysis.gitops import filled
from analysis.migration.charts import CONSUMER_KINDS, CONSUMERS, DRIVERS
from analysis.migration.indirect import indirect_uses
from analysis.migration.ollama import CHART as OLLAMA
from analysis.migration.ollama import uses_of_ollama
from analysis.migration.plan import Consumer
from analysis.migration.ray_cluster import CHART as RAY_CHART
from analysis.requesting import amounts_in, classes_in, requests_devices
from analysis.survey import with_all_drivers
from dra.pointer import mappings_in, member, split
from dra.raw import Object, inside, items, mapping
from webhook.admission import decide_object
from webhook.dialects import Outcome
from webhook.state import Configuration
from webhook.translate import (
    decides_outcome,
    find_placeholder,
    group_kind,
    name_of,
    namespace_of,
    paths,
    resolve_pointer,
)
from webhook.unknown import counts_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from analysis.gitops import Release
    from analysis.migration.plan import Verdict
    from cluster.manifests import Document
    from webhook.state import State
    from webhook.translate import PodVerdict

_OTHER_WAYS: Final = "use `extendedResourceName` (Kubernetes 1.36), a patch of its output, or ask its authors"
_WITHOUT_REQUEST: Final = (
    "no request: its pods can use every GPU of their node, also one that a claim gives to another pod; add a claim"
)
_TEMPLATE: Final = ("template.openshift.io", "Template")
_NVIDIA: Final = "nvidia"  # the dialect
_RAY: Final = "ray.io"  # the group of KubeRay's objects
_MOVES: Final = (Outcome.TRANSLATED, Outcome.APPROXIMATED)


# Domains of a generic device plugin, and names of its groups of device files that are accelerators: not /dev/net/tun, a tuner or a serial port.
_GENERIC: Final = ("squat.ai", "devic.es", "devices.kubevirt.io")
_ACCELERATOR: Final = re.compile(r"dri\b|drm|render|video|[gntv]pu|kfd|nvidia|coral|apex|hailo", re.IGNORECASE)


class Request(NamedTuple):
    """A consumer, with what the families need to know about it."""

    consumer: Consumer
    classes: frozenset[str]  # of the claims that replace the request; none of a use without a request
    namespace: str  # of the pods
    is_free: bool = False  # its pods use devices without a request, so they lose none with the plugin
    is_of_ray: bool = False  # KubeRay counts the devices of each pod
    apart_from: frozenset[str] = frozenset()  # labels of pods with which its pods share no node


def with_drivers(state: State) -> State:
    """Return the state in which all drivers are installed, and claims replace replicas that have a key of their own.

    Limits of the keys change together with the consumers, so they keep no key.
    """
    file = state.configuration.file
    file = replace(file, **{_NVIDIA: replace(file.options(_NVIDIA), consumable_shares=True)})
    with_shares = replace(state, configuration=Configuration(file))
    return replace(with_all_drivers(with_shares, shares=False), quotas={}, limit_ranges={})


class Reader:
    """Reads the requests of objects: now, and as if all drivers were installed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._moved = with_drivers(state)
        targets = state.configuration.targets.values()
        self._drivers = {name: target.driver for target in targets for name in target.classes}
        self._classes: dict[str, frozenset[str]] = {}

    def classes_of(self, key: str) -> frozenset[str]:
        """Return the DeviceClasses of the claims that replace a key."""
        if key not in self._classes:
            self._classes[key] = _classes_in(decide_object(_pod_with({key: "1"}, "default"), self._moved))
        return self._classes[key]

    def drivers_of(self, classes: Iterable[str]) -> frozenset[str]:
        """Return the drivers of these DeviceClasses."""
        return frozenset(self._drivers.get(name, name) for name in classes)

    def requests_in(
        self, document: Document, release: Release | None, values: Mapping[str, str] | None = None
    ) -> Iterator[Request]:
        """Yield the places of one object that request devices by a legacy key; `values` are those of its variables."""
        written = document.placed
        obj = filled(written, values or {}) if "${" in document.text else written
        if counts_keys(obj, self._state):
            return
        decisions = decide_object(obj, self._state).decisions
        amounts = amounts_in(obj, self._state)
        if not decisions or not requests_devices(obj, decisions, amounts, self._state.configuration):
            return
        has_templates = bool(paths(obj))
        of_templates = decide_object(obj, self._moved) if has_templates else None
        for decision in decisions:
            if not decision.dialect or not decides_outcome(decision) or not _is_accelerator(decision.key):
                continue
            pointer = finding_of(obj, decision, "D211").path
            limits = mapping(resolve_pointer(obj, pointer.rpartition("/")[0]))
            later = of_templates or decide_object(_pod_with(limits, namespace_of(obj)), self._moved)
            verdict, why = _why_not_moved(later, decision.key)
            if verdict == "edit" and not has_templates:
                verdict, why = _in_values(obj, release)
            place = _place_in(written, pointer, values or {})
            amount = amounts.get(decision.place) or str(limits.get(decision.key, ""))
            if verdict == "edit" and group_kind(obj) == _TEMPLATE:
                verdict, why = (
                    "by hand",
                    "the namespace of what it makes is not known: add the ResourceClaimTemplate to its objects",
                )
            if find_placeholder(amount):
                verdict, why = "by hand", f"no file of the tree has the value of {amount}"
            elif verdict == "edit" and (variable := _variable_at(written, place)):
                verdict, why = (
                    "by hand",
                    f"it is written as {variable}, which postBuild replaces: edit the variable, too",
                )
            # A key that means something only beside other keys has the classes of all.
            classes = self.classes_of(decision.key) or _classes_in(later)
            drivers = self.drivers_of(classes) or _drivers_by_domain(decision.key)
            if verdict == "cannot":
                classes = frozenset()
            consumer = Consumer(
                object=name_of(obj),
                file=document.file,
                line=document.line_of(place),
                place=place,
                key=decision.key,
                amount=amount,
                device_class=" or ".join(sorted(classes)),
                drivers=tuple(sorted(drivers)),
                verdict=verdict,
                why=why,
            )
            is_of_ray = group_kind(obj)[0] == _RAY or (release is not None and release.chart == RAY_CHART)
            apart_from = _apart_from(obj) if "podAntiAffinity" in document.text else frozenset()
            yield Request(consumer, classes, namespace_of(obj), is_of_ray=is_of_ray, apart_from=apart_from)

    def indirect_uses(self, document: Document, release: Release | None) -> Iterator[Request]:
        """Yield the places by which one object gets devices without naming a key."""
        obj = document.placed
        of_chart = uses_of_ollama(obj) if release is not None and release.chart == OLLAMA else ()
        for use in (*indirect_uses(document, self._state), *of_chart):
            if not _is_accelerator(use.key):
                continue
            verdict, why = _in_values(obj, release) if use.is_requested else ("by hand", _WITHOUT_REQUEST)
            if use.is_requested and "/" in use.key:
                later = decide_object(_pod_with({use.key: "1"}, namespace_of(obj)), self._moved)
                keeps, detail = _why_not_moved(later, use.key)
                if keeps == "cannot":
                    verdict, why = keeps, detail
            consumer = Consumer(
                object=name_of(obj),
                file=document.file,
                line=document.line_of(use.pointer),
                place=use.pointer,
                key=use.key,
                amount="" if use.value == use.key else use.value,
                drivers=use.drivers,
                verdict=verdict,
                why=why,
            )
            yield Request(consumer, frozenset(), namespace_of(obj), is_free=not use.is_requested)


def _drivers_by_domain(key: str) -> frozenset[str]:
    """Return the drivers of the devices of a key that no claim replaces."""
    domain, slash, _ = key.partition("/")
    return frozenset(driver for driver in DRIVERS if slash and f".{driver}".endswith(f".{domain}"))


def _apart_from(obj: Object) -> frozenset[str]:
    """Return the values of labels of the pods that must not be on the node of an object's pods."""
    terms = [
        term
        for _, part in mappings_in(obj, "")
        for term in items(inside(part, "podAntiAffinity"), "requiredDuringSchedulingIgnoredDuringExecution")
        if term.get("topologyKey") == "kubernetes.io/hostname"
    ]
    return frozenset(str(value) for term in terms for value in inside(term, "labelSelector", "matchLabels").values())


def _place_in(written: Object, pointer: str, values: Mapping[str, str]) -> str:
    """Return the pointer to a key in an object whose keys may have variables, from the pointer in the filled object."""
    place = ""
    for name in split(pointer):
        below = resolve_pointer(written, place)
        names = below if isinstance(below, dict) else ()
        place = member(place, next((other for other in names if filled(other, values) == name), name))
    return place


def _variable_at(written: Object, place: str) -> str:
    """Return the name or the value of a place if it has a variable, else ""."""
    name, value = split(place)[-1], resolve_pointer(written, place)
    return next((part for part in (name, str(value)) if "${" in part), "")


def _classes_in(verdict: PodVerdict) -> frozenset[str]:
    specs = [inside(mapping(template), "spec") for template in verdict.templates.values()]
    return frozenset[str]().union(*map(classes_in, specs))


def _is_accelerator(key: str) -> bool:
    domain, _, name = key.partition("/")
    return domain not in _GENERIC or bool(_ACCELERATOR.search(name))


def _pod_with(limits: Object, namespace: str) -> Object:
    """Return a pod with one container that has the limits of a chart's values."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "app", "namespace": namespace},
        "spec": {"containers": [{"name": "app", "image": "app", "resources": {"limits": limits}}]},
    }


def _why_not_moved(later: PodVerdict, key: str) -> tuple[Verdict, str]:
    """Return whether claims can replace a key, and why not; `later` is decided as if all drivers were installed."""
    decided = next((decision for decision in later.decisions if decision.key == key), None)
    if decided is None:
        return "cannot", "drawbridge does not know what its chart makes of it"
    return ("edit", "") if decided.outcome in _MOVES else ("cannot", decided.detail)


def _in_values(obj: Object, release: Release | None) -> tuple[Verdict, str]:
    """Return whether the values of a chart have a known place for claims, and what a person does otherwise."""
    if group_kind(obj) in CONSUMER_KINDS:
        return "by hand", CONSUMER_KINDS[group_kind(obj)]
    if release is None or (places := CONSUMERS.get(release.chart)) is None:
        chart = f"chart {release.chart}" if release is not None else f"kind {obj.get('kind')}"
        return "by hand", f"drawbridge knows no place for claims in {chart}: {_OTHER_WAYS}"
    if release.version and _version(release.version) < places.since:
        since = ".".join(map(str, places.since))
        return "by hand", f"update chart {release.chart} {release.version} to {since} or newer: {places.place}"
    return "edit", ""


def _version(version: str) -> tuple[int, int]:
    parts = [part for part in version.lstrip("v").split(".")[:2] if part.isdecimal()]
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 else (1 << 30, 0)
