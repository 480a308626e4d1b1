"""Makes the objects that install a driver from the objects that install a device plugin, so that the tree keeps its conventions.

Follows Flux helm-controller 1.4 (`chartRef`), Argo CD 3 (Helm charts of OCI registries have a `repoURL` without a scheme) and kustomize's `helmCharts`.
"""

from __future__ import annotations

from posixpath import basename, dirname
from typing import TYPE_CHECKING, Any, Final

from analysis.gitops import dependencies, parsed
from cluster.manifests import dump, edit
from dra.raw import Object, inside, items, text
from webhook.reading import PLUGIN_KINDS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from analysis.migration.plan import Replacement

_OCI: Final = "oci://"
_GROUPS: Final = frozenset(group for group, _ in PLUGIN_KINDS)
# Fields of a HelmRelease that are specific to its chart.
_OF_CHART: Final = ("chart", "chartRef", "values", "valuesFrom", "postRenderers")
# Fields of a source that are specific to its address.
_OF_ADDRESS: Final = ("url", "ref", "verify", "secretRef", "ignore", "type", "provider")
_OF_VALUES: Final = ("values", "valuesObject", "valueFiles", "parameters", "fileParameters")
_OF_ENTRY: Final = ("name", "repo", "version", "releaseName", "valuesFile", "valuesInline", "additionalValuesFiles")
_NAMESPACES: Final = frozenset(("namespace", "targetNamespace"))
# Fields of a kustomization that do not name files of its own folder.
_OF_FOLDER: Final = (
    "apiVersion",
    "kind",
    "metadata",
    "namespace",
    "components",
    "labels",
    "commonAnnotations",
    "resources",
    "helmCharts",
)


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
    """Return the OCIRepository or HelmRepository for a driver's chart."""
    spec = {name: value for name, value in inside(model, "spec").items() if name not in _OF_ADDRESS}
    if model["kind"] == "OCIRepository":
        spec |= {"url": new.url, "ref": {"tag": new.version}}
    else:
        spec |= {"url": repository_of(new)} | ({"type": "oci"} if new.url.startswith(_OCI) else {})
    metadata = {name: value for name, value in inside(model, "metadata").items() if name in ("name", "namespace")}
    return _in_order(
        model, {**model, "metadata": metadata | {"name": new.chart}, "spec": _in_order(inside(model, "spec"), spec)}
    )


def plain_source(release: Object) -> Object:
    """Return a HelmRepository in the namespace of a HelmRelease, for a tree without one."""
    header = {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository"}
    return {**header, "metadata": inside(release, "metadata"), "spec": {"interval": "1h"}}


def helm_release(model: Object, new: Replacement, reference: Object, names: Mapping[str, str]) -> Object:
    """Return the HelmRelease of a driver; `reference` names its source."""
    old = inside(model, "spec")
    spec = renamed({name: value for name, value in old.items() if name not in _OF_CHART}, names)
    if reference["kind"] == "OCIRepository":
        spec["chartRef"] = reference
    else:
        of_chart = {
            **inside(old, "chart", "spec"),
            "chart": chart_name(new),
            "version": new.version,
            "sourceRef": reference,
        }
        spec["chart"] = {**inside(old, "chart"), "spec": of_chart}
    if new.values:
        spec["values"] = new.values
    return {**model, "metadata": _metadata(model, new, names), "spec": _in_order(old, spec)}


def application(model: Object, new: Replacement, chart: str, names: Mapping[str, str]) -> Object:
    """Return the Application of a driver. If it has several sources, only the source of the plugin's chart is kept."""
    spec = renamed(inside(model, "spec"), names)
    if sources := [part for part in items(spec, "sources") if part.get("chart") == chart]:
        spec["sources"] = [_application_source(part, new) for part in sources]
    if "source" in spec:
        spec["source"] = _application_source(inside(spec, "source"), new)
    return {**model, "metadata": _metadata(model, new, names), "spec": spec}


def _metadata(model: Object, new: Replacement, names: Mapping[str, str]) -> Object:
    """Return the metadata of a driver object. Its name is the chart's name."""
    return {**renamed(inside(model, "metadata"), names), "name": new.chart}


def _application_source(part: Object, new: Replacement) -> Object:
    repository = repository_of(new).removeprefix(_OCI)
    changed = {**part, "repoURL": repository, "chart": chart_name(new), "targetRevision": new.version}
    helm = {name: value for name, value in inside(part, "helm").items() if name not in _OF_VALUES}
    if new.values:
        is_text = "values" in inside(part, "helm")
        helm |= {"values": dump([new.values])} if is_text else {"valuesObject": new.values}
    changed.pop("helm", None)
    return _in_order(part, changed | ({"helm": helm} if helm else {}))


def helm_charts(model: Object, new: Replacement, charts: Collection[str], *, keeps: bool) -> Object:
    """Return a kustomization with the driver in its `helmCharts`: instead of these charts or, if they are kept, after them."""
    entries: list[Object] = []
    is_added = False
    for entry in items(model, "helmCharts"):
        is_plugin = entry.get("name") in charts
        if not is_plugin or keeps:
            entries.append(entry)
        if is_plugin and not is_added:
            is_added = True
            changed = {name: value for name, value in entry.items() if name not in _OF_ENTRY}
            changed |= {
                "name": chart_name(new),
                "repo": repository_of(new),
                "version": new.version,
                "releaseName": new.chart,
            }
            entries.append(_in_order(entry, changed | ({"valuesInline": new.values} if new.values else {})))
    return {**model, "helmCharts": entries}


def builder(model: Object, new: Replacement, names: Mapping[str, str], ends: tuple[str, str]) -> Object:
    """Return the Flux Kustomization or Application that builds a driver's folder. `ends` are the last parts of the old and the new path."""
    spec = renamed(inside(model, "spec"), names)
    for part in (spec, inside(spec, "source"), *items(spec, "sources")):
        path = text(part.get("path")).rstrip("/")
        if path.endswith(ends[0]):
            part["path"] = path.removesuffix(ends[0]) + ends[1]
    return {**model, "metadata": _metadata(model, new, names), "spec": spec}


def with_dependencies(obj: Object, gone: Collection[str], needs: Object | None) -> Object:
    """Return a Flux object without dependencies on removed objects, and with one more dependency."""
    entries: dict[str, list[Object]] = {}
    for field in ("dependsOn", "healthChecks", "healthCheckExprs"):
        entries[field] = [
            entry
            for entry in items(inside(obj, "spec"), field)
            if text(entry.get("name")) not in gone and text(entry.get("apiVersion")).partition("/")[0] not in _GROUPS
        ]
    entries["dependsOn"] += [needs] if needs is not None else []
    return with_lists(obj, entries)


def with_places(obj: Object, placed: Object, new: Mapping[str, tuple[str, str] | None]) -> Object:
    """Replace dependencies of a Flux object, by their pointers; None removes a dependency."""
    lists: dict[str, list[Object]] = {}
    needed = {need.pointer: need for need in dependencies(placed)}
    for field in ("dependsOn", "healthChecks"):
        kept = lists[field] = []
        for index, entry in enumerate(items(inside(obj, "spec"), field)):
            pointer = f"/spec/{field}/{index}"
            if pointer in new:
                if (place := new[pointer]) is None:
                    continue
                namespace = {"namespace": place[0]} if place[0] != needed[pointer].namespace else {}
                entry = {**entry, "name": place[1], **namespace}  # noqa: PLW2901
            if entry not in kept:
                kept.append(entry)
    return with_lists(obj, lists)


def with_lists(obj: Object, lists: Mapping[str, list[Object]]) -> Object:
    """Set lists in an object's spec; an empty list is removed."""
    spec = {name: value for name, value in {**inside(obj, "spec"), **lists}.items() if lists.get(name, True)}
    return {**obj, "spec": _in_order(inside(obj, "spec"), spec)}


def kustomization(model: Object, names: Mapping[str, str]) -> Object:
    """Return a kustomization without the fields that name files in its folder."""
    return {
        name: renamed(value, names) if name == "metadata" else value
        for name, value in model.items()
        if name in _OF_FOLDER
    }


def with_setting(obj: Object, chart: str, path: tuple[str, ...], *, value: bool) -> Object | None:
    """Set a field in an object's chart values or, without a chart, in its spec. Return None if the object does not contain these values."""
    spec = inside(obj, "spec")
    if not chart:
        return {**obj, "spec": _set(spec, path, value=value)}
    if "helmCharts" in obj:
        if any(entry.get("name") == chart and "valuesFile" in entry for entry in items(obj, "helmCharts")):
            return None
        entries = [
            {**entry, "valuesInline": _set(inside(entry, "valuesInline"), path, value=value)}
            if entry.get("name") == chart
            else entry
            for entry in items(obj, "helmCharts")
        ]
        return {**obj, "helmCharts": entries}
    if obj["kind"] != "Application":
        return {**obj, "spec": {**spec, "values": _set(inside(spec, "values"), path, value=value)}}
    if any(inside(part, "helm").get("valueFiles") for part in (inside(spec, "source"), *items(spec, "sources"))):
        return None
    changed = {**spec}
    if "source" in spec:
        changed["source"] = _with_setting(inside(spec, "source"), path, value=value)
    if "sources" in spec:
        changed["sources"] = [
            _with_setting(part, path, value=value) if part.get("chart") == chart else part
            for part in items(spec, "sources")
        ]
    return {**obj, "spec": changed}


def _with_setting(part: Object, path: tuple[str, ...], *, value: bool) -> Object:
    helm = inside(part, "helm")
    if written := text(helm.get("values")):
        return {**part, "helm": {**helm, "values": edit(written, _set(parsed(written), path, value=value))}}
    return {**part, "helm": {**helm, "valuesObject": _set(inside(helm, "valuesObject"), path, value=value)}}


def _set(values: Object, path: tuple[str, ...], *, value: bool) -> Object:
    first, *rest = path
    return {**values, first: _set(inside(values, first), tuple(rest), value=value) if rest else value}


def _in_order(model: Object, changed: Object) -> Object:
    """Order the members as in a model; new members come before `values`, which is usually the last one."""
    new = [name for name in changed if name not in model]
    names = [name for name in model if name in changed]
    last = next((index for index, name in enumerate(names) if name in ("values", "url")), len(names))
    return {name: changed[name] for name in (*names[:last], *new, *names[last:])}
