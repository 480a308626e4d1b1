"""Makes the objects that install a driver from the objects that install a device plugin, so that the tree keeps its conventions.

Follows Flux helm-controller 1.4 (`chartRef`), Argo CD 3 (Helm charts of OCI registries have a `repoURL` without a scheme) and kustomize's `helmCharts`.
"""

from __future__ import annotations

from posixpath import basename, dirname
from typing import TYPE_CHECKING, Any, Final

from analysis.gitops import parsed
from cluster.manifests import dump, edit
from dra.pointer import split
from dra.raw import Object, inside, items, mapping, text
from webhook.reading import PLUGIN_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from analysis.migration.plan import Replacement

_OCI: Final = "oci://"
PLUGIN_GROUPS: Final = frozenset(group for group, _ in PLUGIN_KINDS)
# Fields of one chart, or of one address, by the kind of the object that has them.
_OF_CHART: Final = {
    "HelmRelease": ("chart", "chartRef", "values", "valuesFrom", "postRenderers"),
    "source": ("url", "ref", "verify", "secretRef", "ignore", "type", "provider"),
    "helm": ("values", "valuesObject", "valueFiles", "parameters", "fileParameters"),
    "helmCharts": ("name", "repo", "version", "releaseName", "valuesFile", "valuesInline", "additionalValuesFiles"),
}
_NAMESPACES: Final = frozenset(("namespace", "targetNamespace"))
# Fields of a kustomization that do not name files of its own folder.
_OF_FOLDER: Final = (
    *("apiVersion", "kind", "metadata", "namespace", "components", "labels", "commonAnnotations"),
    *("resources", "helmCharts"),
)
_WAITING: Final = ("dependsOn", "healthChecks", "healthCheckExprs")


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Rename everything in a value except namespaces."""
    if isinstance(value, dict):
        return {name: below if name in _NAMESPACES else renamed(below, names) for name, below in value.items()}
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def chart_name(new: Replacement) -> str:
    """Return the name by which the driver's chart is pulled."""
    return basename(new.url) if new.url.startswith(_OCI) else new.chart


def repository_of(new: Replacement) -> str:
    """Return the repository address of the driver's chart."""
    return dirname(new.url) if new.url.startswith(_OCI) else new.url


def source(model: Object, new: Replacement) -> Object:
    """Return the OCIRepository or HelmRepository of a driver."""
    if model["kind"] == "OCIRepository":
        address: Object = {"url": new.url, "ref": {"tag": new.version}}
    else:
        address = {"url": repository_of(new)} | ({"type": "oci"} if new.url.startswith(_OCI) else {})
    metadata = {name: value for name, value in inside(model, "metadata").items() if name in ("name", "namespace")}
    return {
        **model,
        "metadata": metadata | {"name": new.chart},
        "spec": _changed(inside(model, "spec"), "source", address),
    }


def plain_source(release: Object) -> Object:
    """Return a HelmRepository in the namespace of a HelmRelease, for a tree without one."""
    header = {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository"}
    return {**header, "metadata": inside(release, "metadata"), "spec": {"interval": "1h"}}


def helm_release(model: Object, new: Replacement, reference: Object, names: Mapping[str, str]) -> Object:
    """Return the HelmRelease of a driver; `reference` names its source."""
    old = inside(model, "spec", "chart")
    of_chart = {"chart": chart_name(new), "version": new.version, "sourceRef": reference}
    chart: Object = {"chart": {**old, "spec": {**inside(old, "spec"), **of_chart}}}
    if reference["kind"] == "OCIRepository":
        chart = {"chartRef": reference}
    values = {"values": new.values} if new.values else {}
    spec = _changed(inside(model, "spec"), "HelmRelease", chart | values, names)
    return {**model, "metadata": _metadata(model, new, names), "spec": spec}


def application(model: Object, new: Replacement, chart: str, names: Mapping[str, str]) -> Object:
    """Return the Application of a driver. If it has several sources, only the source of the plugin's chart is kept."""
    spec = renamed(inside(model, "spec"), names)
    if sources := [part for part in items(spec, "sources") if part.get("chart") == chart]:
        spec["sources"] = [_application_source(part, new) for part in sources]
    if "source" in spec:
        spec["source"] = _application_source(inside(spec, "source"), new)
    return {**model, "metadata": _metadata(model, new, names), "spec": spec}


def _application_source(part: Object, new: Replacement) -> Object:
    repository = repository_of(new).removeprefix(_OCI)
    changed = {**part, "repoURL": repository, "chart": chart_name(new), "targetRevision": new.version}
    helm = inside(part, "helm")
    values = {"values": dump([new.values])} if "values" in helm else {"valuesObject": new.values}
    changed["helm"] = _changed(helm, "helm", values if new.values else {})
    return _in_order(part, {name: value for name, value in changed.items() if name != "helm" or value})


def helm_charts(model: Object, new: Replacement, charts: Collection[str], *, keeps: bool) -> Object:
    """Return a kustomization with the driver in its `helmCharts`: instead of these charts or, if they are kept, after them."""
    entries: list[Object] = []
    address = {"name": chart_name(new), "repo": repository_of(new), "version": new.version, "releaseName": new.chart}
    values = {"valuesInline": new.values} if new.values else {}
    of_plugins = [entry for entry in items(model, "helmCharts") if entry.get("name") in charts]
    for entry in items(model, "helmCharts"):
        entries += [entry] if keeps or entry not in of_plugins else []
        entries += [_changed(entry, "helmCharts", address | values)] if entry in of_plugins[:1] else []
    return {**model, "helmCharts": entries}


def builder(model: Object, new: Replacement, names: Mapping[str, str], ends: tuple[str, str]) -> Object:
    """Return the Flux Kustomization or Application that builds a driver's folder. `ends` are the last parts of the old and the new path."""
    spec = renamed(inside(model, "spec"), names)
    for part in (spec, inside(spec, "source"), *items(spec, "sources")):
        path = text(part.get("path")).rstrip("/")
        if path.endswith(ends[0]):
            part["path"] = path.removesuffix(ends[0]) + ends[1]
    return {**model, "metadata": _metadata(model, new, names), "spec": spec}


def kustomization(model: Object, names: Mapping[str, str]) -> Object:
    """Return a kustomization without the fields that name files of its folder."""
    kept = {name: value for name, value in model.items() if name in _OF_FOLDER}
    return kept | ({"metadata": renamed(model["metadata"], names)} if "metadata" in model else {})


def waiting(obj: Object, wanted: Callable[[str, Object], Object | None], more: Sequence[Object] = ()) -> Object:
    """Return an object of Flux that waits for other objects: for what `wanted` returns for the pointer and entry of each, and for `more`."""
    lists: dict[str, list[Object]] = {}
    for field in _WAITING:
        entries = lists[field] = []
        for index, entry in enumerate(items(inside(obj, "spec"), field)):
            new = wanted(f"/spec/{field}/{index}", entry)
            entries += [new] if new is not None and new not in entries else []
    lists["dependsOn"] += more
    spec = {name: value for name, value in {**inside(obj, "spec"), **lists}.items() if lists.get(name, True)}
    return {**obj, "spec": _in_order(inside(obj, "spec"), spec)}


def with_setting(obj: Object, chart: str, path: Sequence[str], *, value: bool) -> Object | None:
    """Return the object with a setting in the values of a chart, or in its spec if there is no chart; None if it has not these values."""

    def switched(values: Any) -> Any:
        if isinstance(values, str):
            return edit(values, _with_at(parsed(values), path, lambda _: value))
        return _with_at(values, path, lambda _: value)

    places = _values_places(obj, chart)
    for place in places:
        obj = _with_at(obj, split(place), switched)
    return obj if places else None


def _values_places(obj: Object, chart: str) -> list[str]:
    """Return where an object has values of a chart, or its own settings; nothing if they are in other files."""
    spec = inside(obj, "spec")
    if "helmCharts" in obj:
        numbers = [number for number, entry in enumerate(items(obj, "helmCharts")) if entry.get("name") == chart]
        are_elsewhere = any("valuesFile" in items(obj, "helmCharts")[number] for number in numbers)
        return [] if are_elsewhere else [f"/helmCharts/{number}/valuesInline" for number in numbers]
    if not chart or obj["kind"] != "Application":
        return ["/spec/values" if chart else "/spec"]
    parts = {"/spec/source": spec["source"]} if "source" in spec else {}
    others = {f"/spec/sources/{number}": part for number, part in enumerate(items(spec, "sources"))}
    if any(inside(part, "helm").get("valueFiles") for part in (parts | others).values()):
        return []
    parts |= {place: part for place, part in others.items() if part.get("chart") == chart}
    return [
        f"{place}/helm/{'values' if text(inside(part, 'helm').get('values')) else 'valuesObject'}"
        for place, part in parts.items()
    ]


def _with_at(value: Any, path: Sequence[str], change: Callable[[Any], Any]) -> Any:
    """Return a value in which the value at a path is changed."""
    if not path:
        return change(value)
    first, *rest = path
    if isinstance(value, list):
        return [_with_at(item, rest, change) if str(index) == first else item for index, item in enumerate(value)]
    members = mapping(value)
    return {**members, first: _with_at(members.get(first, {}), rest, change)}


def _metadata(model: Object, new: Replacement, names: Mapping[str, str]) -> Object:
    """Return the metadata of an object of a driver, which has the name of the chart."""
    return {**renamed(inside(model, "metadata"), names), "name": new.chart}


def _changed(model: Object, kind: str, new: Object, names: Mapping[str, str] | None = None) -> Object:
    """Return a part of an object with fields of another chart, and with other names."""
    kept = {name: value for name, value in model.items() if name not in _OF_CHART[kind]}
    return _in_order(model, renamed(kept, names or {}) | new)


def _in_order(model: Object, changed: Object) -> Object:
    """Order the members as in a model; new members come before `values`, which is usually the last one."""
    new = [name for name in changed if name not in model]
    names = [name for name in model if name in changed]
    last = next((index for index, name in enumerate(names) if name in ("values", "url")), len(names))
    return {name: changed[name] for name in (*names[:last], *new, *names[last:])}
