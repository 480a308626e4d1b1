"""Finds mistakes between the files of a Git tree: claims in values, files of kustomizations, and dependencies of Flux.

The values are those of any chart that takes `resourceClaims` as a pod does, and of bjw-s' app-template 4.3 and newer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.gitops.sources import APPLICATION, APPLICATION_SET, FLUX, RELEASE, dependencies, place_of
from dra.finding import Finding, finding_at
from dra.pointer import mappings_in, member
from dra.raw import Object, inside, items, mapping, text
from dra.texts import list_first
from webhook.translate import find_placeholder, group_kind, namespace_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from analysis.gitops.tree import Tree
    from cluster.manifests import Document

_GROUP: Final = "resource.k8s.io"
# By field of an entry of resourceClaims: the kind that the field names.
_KINDS: Final = {"resourceClaimName": "ResourceClaim", "resourceClaimTemplateName": "ResourceClaimTemplate"}
_WITH_VALUES: Final = (RELEASE, APPLICATION, APPLICATION_SET)
_WITH_DEPENDENCIES: Final = (RELEASE, FLUX)
_NAMED: Final = 5
_VARIABLE: Final = re.compile(r"(?:\$\{[^}]*\})+")  # of Flux's postBuild
_MAX_PARTS: Final = 3  # of a name with variables; matching takes more than linear time


class ClaimInValues(NamedTuple):
    """An entry of a list `resourceClaims` in values."""

    pointer: str
    entry: Object


def mistakes(documents: Sequence[Document], tree: Tree, places: Sequence[int]) -> Iterator[tuple[int, Finding]]:
    """Yield the mistakes in objects of a whole tree that its builds include, with the number of the object.

    `places` are the positions of the documents in the tree.
    """
    known: dict[str, dict[str, set[str]]] = {kind: {} for kind in _KINDS.values()}  # namespaces by name
    present: dict[tuple[str, str], set[tuple[str, str]]] = {kind: set() for kind in _WITH_DEPENDENCIES}
    for number, document in enumerate(documents):
        obj = document.object
        kind, (namespace, name) = group_kind(obj), place_of(obj)
        if kind[0] == _GROUP and kind[1] in known:
            known[kind[1]].setdefault(name, set()).add(namespace)
            if beside := tree.kustomization_beside(places[number]):
                yield number, finding_at("D226", "", f"{beside} does not list {document.file}")
        elif kind in present:
            present[kind].add((namespace, name))
    for number, document in enumerate(documents):
        if not tree.includes(places[number]):
            continue
        obj = document.object
        kind = group_kind(obj)
        if kind in _WITH_VALUES:
            namespace = namespace_of(obj)
            for entry in claims_in_values(obj):
                yield from ((number, finding) for finding in _unknown_names(entry, namespace, known))
            yield from ((number, finding) for finding in _unused(obj))
        if kind in present:
            for needed in dependencies(obj):
                place = needed.namespace, needed.name
                # Flux's own installation makes a Kustomization flux-system.
                is_present = place in present[kind] or place[0] == place[1]
                if needed.field == "dependsOn" and not is_present and not any(map(find_placeholder, place)):
                    message = f"the tree has no {kind[1]} {'/'.join(place)}"
                    yield number, finding_at("D227", needed.pointer, message)


def claims_in_values(obj: Object) -> Iterator[ClaimInValues]:
    """Yield the entries of `resourceClaims` in the values of a release of Flux or Argo CD."""
    if group_kind(obj) in _WITH_VALUES:
        for path, part in mappings_in(obj.get("spec"), "/spec"):
            for index, entry in enumerate(items(part, "resourceClaims")):
                yield ClaimInValues(f"{path}/resourceClaims/{index}", entry)


def _unknown_names(entry: ClaimInValues, namespace: str, known: dict[str, dict[str, set[str]]]) -> Iterator[Finding]:
    """Yield a finding if an entry names a claim or template that the tree does not have in the namespace of the pods."""
    for field, kind in _KINDS.items():
        name = text(entry.entry.get(field))
        homes = known[kind].get(name, set())
        if not name or namespace in homes or (not homes and find_placeholder(name)) or _is_filled(name, known[kind]):
            continue
        hint = ""
        if homes:
            hint = f"it exists in namespace {list_first(sorted(homes), _NAMED)}: a pod can use only claims and templates of its own namespace"
        other_field, other_kind = next((other, of) for other, of in _KINDS.items() if of != kind)
        if namespace in known[other_kind].get(name, ()):
            hint = f"{name!r} is a {other_kind}: name it in {other_field}"
        message = f"{name!r} is not a {kind} among the manifests in namespace {namespace}"
        yield finding_at("D206", f"{entry.pointer}/{field}", message, hint)


def _is_filled(name: str, known: Iterable[str]) -> bool:
    """Return whether Flux may make a name of one with a variable, such as ${APP}-gpu in a component."""
    patterns = (_VARIABLE.split(other) for other in known if _VARIABLE.search(other))
    return any(len(parts) <= _MAX_PARTS and re.fullmatch(".+".join(map(re.escape, parts)), name) for parts in patterns)


def _unused(obj: Object) -> Iterator[Finding]:
    """Yield a finding for each claim that app-template gives to a controller whose containers do not name the claim."""
    for values_path in (("spec", "values"), ("spec", "source", "helm", "valuesObject")):
        values = inside(obj, *values_path)
        path = "/" + "/".join(values_path)
        users: dict[str, set[str]] = {}
        for name, controller in inside(values, "controllers").items():
            containers = [*inside(controller, "containers").values(), *inside(controller, "initContainers").values()]
            if containers and mapping(controller).get("enabled") is not False:
                uses = [use for container in containers for use in items(inside(container, "resources"), "claims")]
                users[name] = {text(use.get("name")) for use in uses}
                pod = inside(controller, "pod")
                pointer = f"{member(f'{path}/controllers', name)}/pod/resourceClaims"
                yield from _without_users(pod, pointer, {name: users[name]})
        # A controller with a list of its own does not get the default list.
        default = {
            name: used
            for name, used in users.items()
            if "resourceClaims" not in inside(values, "controllers", name, "pod")
        }
        yield from _without_users(
            inside(values, "defaultPodOptions"), f"{path}/defaultPodOptions/resourceClaims", default
        )


def _without_users(pod: Object, pointer: str, users: dict[str, set[str]]) -> Iterator[Finding]:
    for index, entry in enumerate(items(pod, "resourceClaims")):
        name = text(entry.get("name"))
        unused = [controller for controller, used in users.items() if name not in used]
        if unused:
            message = f"no container of controller {list_first(unused, _NAMED)} names the claim {name!r} under resources.claims"
            # Network drivers serve whole pods, so a claim that no controller names may be meant.
            yield finding_at("D225" if len(unused) < len(users) else "D204", f"{pointer}/{index}", message)
