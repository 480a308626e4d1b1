"""Values of a chart that Argo CD gets as a text of YAML."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from analysis.gitops.sources import APPLICATION, APPLICATION_SET
from cluster.manifests import ManifestError, parse
from dra.raw import Object, inside, items, text
from webhook.translate import group_kind


def parsed(values: str) -> Object:
    """Return the values in a text; {} if it cannot be read."""
    with suppress(ManifestError):
        for document in parse(values):
            return document.object
    return {}


def with_values(obj: Object) -> Object | None:
    """Return an Application or ApplicationSet with the texts of its values parsed; None if it has no such text."""
    kind = group_kind(obj)
    if kind == APPLICATION:
        spec = _with_values(inside(obj, "spec"))
        return None if spec is None else {**obj, "spec": spec}
    if kind == APPLICATION_SET:
        template = inside(obj, "spec", "template")
        spec = _with_values(inside(template, "spec"))
        return None if spec is None else {**obj, "spec": {**obj["spec"], "template": {**template, "spec": spec}}}
    return None


def _with_values(spec: Object) -> Object | None:
    changed: dict[str, Any] = {}
    if source := _of_source(inside(spec, "source")):
        changed["source"] = source
    sources = items(spec, "sources")
    if any(map(_of_source, sources)):
        changed["sources"] = [_of_source(source) or source for source in sources]
    return {**spec, **changed} if changed else None


def _of_source(source: Object) -> Object | None:
    """Return a source with parsed values. Argo CD ignores the text if there is a valuesObject."""
    helm = inside(source, "helm")
    values = {} if helm.get("valuesObject") else parsed(text(helm.get("values")))
    return {**source, "helm": {**helm, "values": values}} if values else None


def merged(lower: Object, upper: Object) -> Object:
    """Return values as Helm merges them, and an object of Argo CD with a patch of kustomize: maps are merged, and else `upper` counts."""
    both = {
        name: merged(lower[name], upper[name])
        for name in lower.keys() & upper.keys()
        if isinstance(lower[name], dict) and isinstance(upper[name], dict)
    }
    return {**lower, **upper, **both}
