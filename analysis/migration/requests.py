"""Finds the places in a tree that request devices by a legacy key, or use devices without a request."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from analysis.gitops import filled
from analysis.migration.charts import CONSUMER_KINDS, DRIVERS
from analysis.migration.indirect import indirect_uses
from analysis.migration.lenses import CHARTS, OTHER_WAYS, why_by_hand
from analysis.migration.plan import Consumer
from analysis.survey import with_all_drivers
from cluster.patch import apply_json_patch
from dra.pointer import mappings_in, member, split
from dra.raw import Object, inside, items, mapping, strings, text
from webhook.admission import decide_object
from webhook.dialects import Outcome
from webhook.names import DEVICES
from webhook.state import Configuration
from webhook.translate import (
    decides_outcome,
    find_placeholder,
    group_kind,
    name_of,
    namespace_of,
    paths,
    pods_by_template,
    resolve_pointer,
)
from webhook.unknown import counts_keys, is_accelerator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from analysis.gitops import Release
    from analysis.migration.plan import Verdict
    from cluster.manifests import Document
    from webhook.state import State
    from webhook.translate import PodVerdict

_WITHOUT_REQUEST: Final = (
    "no request: its pods can use every GPU of their node, also one that a claim gives to another pod; add a claim"
)
_PATCH: Final = "a patch adds it: write the claims into the patch"
_CONTAINER: Final = "app"  # of a pod that is made from the limits of a container
_TEMPLATE: Final = ("template.openshift.io", "Template")
_NVIDIA: Final = "nvidia"  # the dialect
_SCHEDULING: Final = "DuringSchedulingIgnoredDuringExecution"
_RAY: Final = "ray.io"  # the group of KubeRay's objects
_RAY_CHART: Final = "ray-cluster"
_USUAL: Final = "default-scheduler"
_MOVES: Final = (Outcome.TRANSLATED, Outcome.APPROXIMATED)


class Request(NamedTuple):
    """A consumer, with the facts that the families need."""

    consumer: Consumer
    classes: frozenset[str]  # of the claims that replace the request; none of a use without a request
    namespace: str  # of the pods
    is_free: bool = False  # its pods use devices without a request, so they lose none with the plugin
    is_of_ray: bool = False  # KubeRay counts the devices of each pod
    is_parked: bool = False  # the object creates no pod now
    has_other_scheduler: bool = False  # than kube-scheduler
    apart_from: frozenset[str] = frozenset()  # labels of pods with which its pods share no node, or rather none


def with_drivers(state: State) -> State:
    """Return a state with all drivers installed, in which claims replace replicas with a key of their own.

    Quotas and LimitRanges change in the same commit as the consumers, so they do not prevent a translation here.
    """
    file = state.configuration.file
    file = replace(file, **{_NVIDIA: replace(file.options(_NVIDIA), consumable_shares=True)})
    with_shares = replace(state, configuration=Configuration(file))
    moved = with_all_drivers(with_shares, shares=False)
    # Ignore `extendedResourceName`, because it would keep the key.
    return replace(moved, fleet=replace(moved.fleet, extended={}), quotas={}, limit_ranges={})


class RequestReader:
    """Reads the requests of objects, as decided now and as if all drivers were installed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._moved = with_drivers(state)
        targets = state.configuration.targets.values()
        self._drivers = {name: target.driver for target in targets for name in target.classes}
        self._classes: dict[str, frozenset[str]] = {}

    def classes_of(self, key: str) -> frozenset[str]:
        """Return the DeviceClasses of the claims that replace a key."""
        if key not in self._classes:
            self._classes[key] = self._classes_beside(key, {key: "1"})
        return self._classes[key]

    def _classes_beside(self, key: str, limits: Object) -> frozenset[str]:
        """Return the DeviceClasses of the claims that replace a key in a container's limits."""
        pod = _pod_with(limits, "default")
        return _classes_at(pod, decide_object(pod, self._moved), ("", _CONTAINER, key))

    def drivers_of(self, classes: Iterable[str]) -> frozenset[str]:
        """Return the drivers of these DeviceClasses."""
        return frozenset(self._drivers.get(name, name) for name in classes)

    def requests_in(
        self, document: Document, release: Release | None, values: Mapping[str, str] | None = None
    ) -> Iterator[Request]:
        """Yield the places in one object that request devices by a legacy key. `values` has the values of its variables."""
        written = document.placed
        obj = filled(written, values or {}) if "${" in document.text else written
        if counts_keys(obj, self._state):
            return
        of_templates = decide_object(obj, self._moved) if paths(obj) else None
        for decision in decide_object(obj, self._state).decisions:
            if not decision.dialect or not decides_outcome(decision) or not is_accelerator(decision.key):
                continue
            if document.patches and not document.is_patched(decision.pointer):
                continue  # the object of the file has this request
            pointer, amount = decision.pointer, decision.amount
            limits = mapping(resolve_pointer(obj, pointer.rpartition("/")[0]))
            made, later, at = obj, of_templates, decision.place
            if later is None:
                made, at = _pod_with(limits, namespace_of(obj)), ("", _CONTAINER, decision.key)
                later = decide_object(made, self._moved)
            verdict, why = _why_not_moved(later, at)
            # A template that keeps its keys has no claims.
            classes = _classes_at(made, later, at) or self._classes_beside(decision.key, limits)
            classes = classes or self.classes_of(decision.key)
            place = _place_in(written, pointer, values or {})
            if find_placeholder(amount):
                verdict, why = "by hand", f"no file of the tree has the value of {amount}"
            elif verdict == "edit" and document.patches:
                verdict, why = "by hand", _PATCH
            elif verdict == "edit" and (by_hand := _why_by_hand(obj, release, place, decision.key)):
                verdict, why = "by hand", by_hand
            elif verdict == "edit" and (variable := _variable_at(written, place)):
                verdict, why = (
                    "by hand",
                    f"it is written as {variable}, which postBuild replaces: edit the variable, too",
                )
            drivers = self.drivers_of(classes) or _drivers_by_domain(decision.key)
            if verdict == "cannot":
                classes = frozenset()
            consumer = Consumer(
                object=name_of(obj),
                file=document.place_of(place)[0],
                line=document.line_of(place),
                place=place,
                key=decision.key,
                amount=amount,
                device_class=" or ".join(sorted(classes)),
                drivers=tuple(sorted(drivers)),
                verdict=verdict,
                why=why,
            )
            is_of_ray = group_kind(obj)[0] == _RAY or (release is not None and release.chart == _RAY_CHART)
            apart_from = _apart_from(obj) if "podAntiAffinity" in document.text else frozenset()
            yield Request(
                consumer,
                classes,
                namespace_of(obj),
                is_of_ray=is_of_ray,
                is_parked=_is_parked(obj, pointer),
                has_other_scheduler=any(
                    part.get("schedulerName", _USUAL) != _USUAL for _, part in mappings_in(obj, "")
                ),
                apart_from=apart_from,
            )

    def indirect_uses(self, document: Document, release: Release | None) -> Iterator[Request]:
        """Yield the places by which one object gets devices without a key."""
        obj = document.placed
        switch = release and release.chart in CHARTS and CHARTS[release.chart].switch
        for use in (*indirect_uses(document, self._state), *(switch.uses_in(obj) if switch else ())):
            if not is_accelerator(use.key) or (document.patches and not document.is_patched(use.pointer)):
                continue
            why = _why_by_hand(obj, release, use.pointer, use.key) if use.is_requested else _WITHOUT_REQUEST
            why = why or (_PATCH if document.patches else "")
            verdict: Verdict = "by hand" if why else "edit"
            if use.is_requested and "/" in use.key:
                later = decide_object(_pod_with({use.key: "1"}, namespace_of(obj)), self._moved)
                keeps = _why_not_moved(later, ("", _CONTAINER, use.key))
                verdict, why = keeps if keeps[0] == "cannot" else (verdict, why)
            consumer = Consumer(
                object=name_of(obj),
                file=document.place_of(use.pointer)[0],
                line=document.line_of(use.pointer),
                place=use.pointer,
                key=use.key,
                amount="" if use.value == use.key else use.value,
                drivers=use.drivers,
                verdict=verdict,
                why=why,
            )
            parked = _is_parked(obj, use.pointer)
            yield Request(consumer, frozenset(), namespace_of(obj), is_free=not use.is_requested, is_parked=parked)


def _drivers_by_domain(key: str) -> frozenset[str]:
    """Return the drivers of the devices behind a key that no claim can replace."""
    domain, slash, _ = key.partition("/")
    return frozenset(driver for driver in DRIVERS if slash and f".{driver}".endswith(f".{domain}"))


def _is_parked(obj: Object, pointer: str) -> bool:
    """Return whether an object creates no pods for a place in it: it is suspended, or has 0 replicas."""
    above = accumulate(split(pointer), member, initial="")
    return inside(obj, "spec").get("suspend") is True or any(
        mapping(resolve_pointer(obj, part)).get("replicas") == 0 for part in above
    )


def _apart_from(obj: Object) -> frozenset[str]:
    """Return the label values of pods that anti-affinity keeps off the node of an object's pods, required or preferred."""
    affinities = [inside(part, "podAntiAffinity") for _, part in mappings_in(obj, "")]
    terms = [term for of_part in affinities for term in items(of_part, f"required{_SCHEDULING}")]
    terms += [
        inside(entry, "podAffinityTerm")
        for of_part in affinities
        for entry in items(of_part, f"preferred{_SCHEDULING}")
    ]
    selectors = [inside(term, "labelSelector") for term in terms if term.get("topologyKey") == "kubernetes.io/hostname"]
    values = [value for selector in selectors for value in inside(selector, "matchLabels").values()]
    expressions = [entry for selector in selectors for entry in items(selector, "matchExpressions")]
    values += [value for entry in expressions if entry.get("operator") == "In" for value in strings(entry, "values")]
    return frozenset(map(str, values))


def _place_in(written: Object, pointer: str, values: Mapping[str, str]) -> str:
    """Convert a pointer into the object with filled variables to a pointer into the original object, whose keys may have variables."""
    place = ""
    for name in split(pointer):
        below = resolve_pointer(written, place)
        names = below if isinstance(below, dict) else ()
        place = member(place, next((other for other in names if filled(other, values) == name), name))
    return place


def _variable_at(written: Object, place: str) -> str:
    """Return the name or the value at a place if it contains a variable, else ""."""
    name, value = split(place)[-1], resolve_pointer(written, place)
    return next((part for part in (name, str(value)) if "${" in part), "")


def _classes_at(obj: Object, verdict: PodVerdict, place: tuple[str, str, str]) -> frozenset[str]:
    """Return the DeviceClasses of the claims with which a verdict on an object replaces a key, by the annotation that records them."""
    template, container, key = place
    pod = pods_by_template(mapping(apply_json_patch(obj, verdict.operations))).get(template)
    devices = msgspec.json.decode(text(inside(pod, "metadata", "annotations").get(DEVICES)) or "{}")
    entries = [entry for name in ([container] if container else devices) for entry in items(devices, name)]
    # The annotation names one of several keys that describe the same devices.
    dialects = {decision.key: decision.dialect for decision in verdict.decisions if decision.place[:2] == place[:2]}
    own = [entry for entry in entries if entry["key"] == key]
    of_dialect = [entry for entry in entries if dialects.get(entry["key"]) == dialects.get(key)]
    return frozenset(text(entry["class"]) for entry in own or of_dialect)


def _pod_with(limits: Object, namespace: str) -> Object:
    """Return a pod with one container with the limits from a chart's values."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "app", "namespace": namespace},
        "spec": {"containers": [{"name": _CONTAINER, "image": "app", "resources": {"limits": limits}}]},
    }


def _why_not_moved(later: PodVerdict, place: tuple[str, str, str]) -> tuple[Verdict, str]:
    """Return whether claims can replace a key, and why not; `later` is decided as if all drivers were installed."""
    of_key = [decision for decision in later.decisions if decision.key == place[2]]
    # If one key keeps the whole pod as it is, the decision about that key is without a container.
    decided = next((decision for decision in of_key if decision.place == place), next(iter(of_key), None))
    if decided is None:
        return "cannot", "drawbridge does not know what its chart makes of it"
    if decided.outcome not in _MOVES:
        return "cannot", decided.detail
    if decided.keep_reason:
        return "by hand", f"its template keeps the key: {decided.keep_reason}; the webhook translates its pods"
    return "edit", ""


def _why_by_hand(obj: Object, release: Release | None, pointer: str, key: str) -> str:
    """Return why a use must be moved by hand, and where to write the claims; "" if a lens finds the pod."""
    kind = group_kind(obj)
    if kind == _TEMPLATE:
        return "the namespace of what it makes is not known: add the ResourceClaimTemplate to its objects"
    if paths(obj):
        return ""
    if kind in CONSUMER_KINDS:
        return CONSUMER_KINDS[kind]
    if release is None:
        return f"drawbridge knows no place for claims in kind {kind[1]}: {OTHER_WAYS}"
    return why_by_hand(release, obj, pointer, key)
