"""The folders that Flux and Argo CD build, and the namespaces that they set.

Follows Flux kustomize-controller 1.9 and Argo CD main of 2026-08: docs/operator-manual/applicationset. Of the generators of an
ApplicationSet, the list and the folders of the repository are read.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dra.raw import Object, inside, items, text
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

FLUX: Final = ("kustomize.toolkit.fluxcd.io", "Kustomization")
RELEASE: Final = ("helm.toolkit.fluxcd.io", "HelmRelease")
APPLICATION: Final = ("argoproj.io", "Application")
APPLICATION_SET: Final = ("argoproj.io", "ApplicationSet")
# In a chart's template, a parameter is written as a text: {{`{{ path }}`}}.
_PARAMETER: Final = re.compile(r"(?:\{\{`)?\{\{-?\s*\.?([A-Za-z_][\w.\[\]-]*)\s*-?\}\}(?:`\}\})?")
_MAX: Final = 1_000  # the most applications of an ApplicationSet that are read


class Source(NamedTuple):
    """A folder of the repository that Flux or Argo CD builds."""

    builder: str  # Flux or Argo CD, by the API group of its objects
    repository: str  # its name, or its address
    path: str  # from the root of the repository
    options: (
        Object  # fields of a kustomization that the builder adds; `namespace` replaces the namespace of all objects
    )
    namespace: str = ""  # of objects that have no namespace
    recurses: bool = False  # whether a folder without a kustomization includes its subfolders


class Dependency(NamedTuple):
    """An entry by which an object of Flux waits for another object."""

    field: str  # dependsOn or healthChecks
    pointer: str
    kind: str
    namespace: str
    name: str


def dependencies(obj: Object) -> Iterator[Dependency]:
    """Yield what a HelmRelease or Kustomization of Flux waits for."""
    if group_kind(obj) not in (RELEASE, FLUX):
        return
    own_namespace, _ = place_of(obj)
    for field in ("dependsOn", "healthChecks"):
        for index, needed in enumerate(items(inside(obj, "spec"), field)):
            kind = text(needed.get("kind")) or text(obj.get("kind"))
            namespace = text(needed.get("namespace")) or own_namespace
            yield Dependency(field, f"/spec/{field}/{index}", kind, namespace, text(needed.get("name")))


def place_of(obj: Object) -> tuple[str, str]:
    """Return the namespace and name of an object."""
    metadata = inside(obj, "metadata")
    return text(metadata.get("namespace")) or "default", text(metadata.get("name"))


def sources_of(obj: Object, folders: Iterable[Collection[str]] = ()) -> Iterator[Source]:
    """Yield the folders that an object of Flux or Argo CD builds; `folders` are those of the repository, from each root that it may have."""
    spec = inside(obj, "spec")
    match group_kind(obj):
        case kind if kind == FLUX:
            path = text(spec.get("path")) or "."
            repository = text(inside(spec, "sourceRef").get("name"))
            options = {**spec, "namespace": spec.get("targetNamespace")}
            yield Source(FLUX[0], repository, path, options, recurses=True)
        case kind if kind == APPLICATION:
            yield from _of_application(spec)
        case kind if kind == APPLICATION_SET:
            template = inside(spec, "template", "spec")
            for parameters in _parameters(spec, folders):
                yield from _of_application(_filled(template, parameters))


def _of_application(spec: Object) -> Iterator[Source]:
    namespace = text(inside(spec, "destination").get("namespace"))
    for source in (inside(spec, "source"), *items(spec, "sources")):
        if path := text(source.get("path")):
            recurses = inside(source, "directory").get("recurse") is True
            repository = _repository(text(source.get("repoURL")))
            yield Source(APPLICATION[0], repository, path, inside(source, "kustomize"), namespace, recurses)


def _repository(url: str) -> str:
    """Return what the addresses of one repository have in common, of HTTPS and of SSH."""
    host_and_path = url.lower().rpartition("://")[2].rpartition("@")[2]
    return host_and_path.removesuffix("/").removesuffix(".git").replace(":", "/", 1)


def _parameters(spec: Object, folders: Iterable[Collection[str]]) -> Iterator[dict[str, str]]:
    """Yield the parameters of each application that an ApplicationSet generates."""
    for generator in items(spec, "generators"):
        for element in items(inside(generator, "list"), "elements")[:_MAX]:
            yield {name: str(value) for name, value in _flat(element, "")}
        entries = items(inside(generator, "git"), "directories")
        patterns = [text(entry.get("path")) for entry in entries if entry.get("exclude") is not True]
        excluded = [text(entry.get("path")) for entry in entries if entry.get("exclude") is True]
        matching = (
            [folder for folder in of_root if _matches(folder, patterns) and not _matches(folder, excluded)]
            for of_root in (folders if patterns else ())
        )
        for folder in sorted(next(filter(None, matching), []))[:_MAX]:
            name = folder.rpartition("/")[2]
            segments = {f"path[{number}]": segment for number, segment in enumerate(folder.split("/"))}
            yield {"path": folder, "path.path": folder, "path.basename": name, **segments}


def _flat(element: Object, start: str) -> Iterator[tuple[str, Any]]:
    """Yield the names of the parameters of an element with their values, such as `values.path`."""
    for name, value in element.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{start}{name}.")
        elif not isinstance(value, list):
            yield f"{start}{name}", value


def _matches(folder: str, patterns: Iterable[str]) -> bool:
    parts = folder.split("/")
    return any(
        len(parts) == len(names) and all(map(fnmatchcase, parts, names))
        for names in (pattern.strip("/").split("/") for pattern in patterns)
    )


def _filled(value: Any, parameters: dict[str, str]) -> Any:
    """Return a template with the parameters in place of their names; unknown names stay."""
    if isinstance(value, dict):
        return {name: _filled(member, parameters) for name, member in value.items()}
    if isinstance(value, list):
        return [_filled(item, parameters) for item in value]
    if not isinstance(value, str):
        return value
    return _PARAMETER.sub(lambda match: parameters.get(match[1], match[0]), value)
