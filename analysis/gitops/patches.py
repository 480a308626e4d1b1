"""What patches of kustomize, Flux and Argo CD make of the objects of a Git tree; each part of the result stands in a file, or in a patch.

Follows kustomize 5.7: strategic merge patches, JSON patches and their targets. Kinds that Kubernetes does not have are merged without the
names of items. Without the object (a chart makes it, or it is in another repository), the patch alone is the object.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from analysis.gitops.argo_values import with_values
from analysis.gitops.kustomizations import PATCHES, is_kustomization
from analysis.gitops.sources import APPLICATION, APPLICATION_SET, FLUX, RELEASE
from cluster.errors import ApiError
from cluster.manifests import Document, Overlay, value_of
from cluster.patch import apply_json_patch, apply_merge_patch
from dra.pointer import mappings_in, member, split
from dra.raw import Object, inside, mapping, members, text
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.gitops.tree import Tree
    from dra.budget import Budget

_WITH_PATCHES: Final = (FLUX, RELEASE, APPLICATION, APPLICATION_SET)
# Lists whose items kustomize merges by name.
_BY_NAME: Final = ("containers", "initContainers", "env", "volumes", "resourceClaims")
_MAX_VALUES: Final = 100_000  # of an object or a patch; aliases of YAML can repeat a value without limit
_MAX_DEPTH: Final = 100  # of the path of an operation


class Patch(NamedTuple):
    """A patch: an object to merge, or a list of operations, with the text that it stands in."""

    document: Document  # whose text has the patch
    pointer: str  # of the patch in this text
    content: Any
    target: Object  # the selector, or the type and name of the patch itself

    def selects(self, obj: Object) -> bool:
        """Return whether the target selects an object. Selectors of labels select every object."""
        (group, kind), metadata = group_kind(obj), inside(obj, "metadata")
        facts = {"group": group, "kind": kind, "name": metadata.get("name"), "namespace": metadata.get("namespace")}
        return all(_matches(text(value), text(self.target.get(name))) for name, value in facts.items())


class Patched(NamedTuple):
    """An object as one build makes it; `number` is that of its document, and `by` are those of the kustomizations with the patches."""

    number: int
    by: tuple[int, ...]
    document: Document
    is_also_bare: bool = False  # whether another build makes the object without patches
    is_new: bool = False  # whether no file has the object
    # The first key that a patch adds, if that is known.
    key: str = ""
    pointer: str = ""


def patches_of(document: Document, tree: Tree) -> Iterator[Patch]:
    """Yield the patches of a kustomization, or of an object of Flux or Argo CD."""
    wholes = [("", document.object)] if is_kustomization(document) else []
    if group_kind(document.object) in _WITH_PATCHES:
        parts = mappings_in(document.object.get("spec"), "/spec")
        wholes = [found for found in parts if found[0].endswith(("/spec", "/kustomize"))]
    entries = (
        (f"{where}/{field}/{number}", entry)
        for where, part in wholes
        for field in PATCHES
        for number, entry in enumerate(members(part.get(field)))
    )
    for pointer, entry in entries:
        name = next((name for name in ("patch", "path") if name in mapping(entry)), "")
        written = mapping(entry)[name] if name else entry
        is_text = isinstance(written, str)
        is_file = is_text and name != "patch" and "\n" not in written
        inline = (document, f"{pointer}/{name}" if name else pointer, value_of(written) if is_text else written)
        for text_, at, content in tree.patch_files(document, written) if is_file else [inline]:
            yield Patch(text_, at, content, inside(entry, "target") or _own_target(content))


def _own_target(patch: Any) -> Object:
    group, kind = group_kind(mapping(patch))
    return {"group": group, "kind": kind, **inside(patch, "metadata")}


def _matches(value: str, pattern: str) -> bool:
    """Return whether a pattern of a target matches: names, `.*`, and alternatives of them."""
    alternatives = pattern.strip("^$()").split("|")
    return not pattern or any(fnmatchcase(value, alternative.replace(".*", "*")) for alternative in alternatives)


def patched(documents: Sequence[Document], tree: Tree, budget: Budget) -> Iterator[Patched]:
    """Yield each object that patches change, once for each sequence of patches that a build applies to it."""
    scopes = {number: tree.scope_of(number) for number in tree.patches}

    def level(number: int) -> tuple[int, bool, bool]:
        document = documents[number]
        return len(scopes[number]), document.object.get("kind") != "Component", not is_kustomization(document)

    order = sorted(tree.patches, key=level)
    targets = {
        number: [other for other in scope if not is_kustomization(documents[other])] for number, scope in scopes.items()
    }
    selected: defaultdict[int, list[tuple[int, Patch]]] = defaultdict(list)  # with the numbers of their kustomizations
    alone: list[tuple[int, Patch]] = []
    for number in order:
        for patch in tree.patches[number]:
            budget.charge(5 * len(targets[number]))
            of_patch = [other for other in targets[number] if patch.selects(documents[other].object)]
            for other in of_patch:
                selected[other].append((number, patch))
            if not of_patch:
                alone.append((number, patch))
    builds = [*tree.builds]
    for number, chosen in selected.items():
        makers = dict.fromkeys(maker for maker, _ in chosen)
        sequences = dict.fromkeys(tuple(filter(build.__contains__, makers)) for build in builds if number in build)
        for by in filter(None, sequences):
            budget.charge(len(chosen))
            of_object = [patch for maker, patch in chosen if maker in by]
            document = replace(
                _applied(documents[number], of_object, budget),
                namespace=tree.namespace_of(by[-1]) or tree.namespace_of(number),
            )
            yield Patched(number, by, document, () in sequences)
    for number, patch in alone:
        yield Patched(number, (number,), _applied(None, [patch], budget), is_new=True)


def _applied(base: Document | None, patches: Sequence[Patch], budget: Budget) -> Document:
    """Return an object with patches; its places are in the patches and in the file of the object."""
    obj: Any = base.object if base else _with_target({}, patches[0].target)
    places = [(base, [*islice(_named(base.object, (), ""), _MAX_VALUES)])] if base else []
    size = sum(len(values) for _, values in places)
    for patch in patches:
        written = [*islice(_named(patch.content, (), patch.pointer), _MAX_VALUES)]
        budget.charge(size + len(written))
        if len(written) == _MAX_VALUES:
            continue
        if isinstance(patch.content, dict):
            identity = {name: obj[name] for name in ("apiVersion", "kind") if name in obj}
            names = {name: value for name, value in inside(obj, "metadata").items() if name in ("name", "namespace")}
            obj = (_merged if "." not in group_kind(obj)[0] else apply_merge_patch)(obj, patch.content)
            obj = {**obj, **identity, "metadata": {**inside(obj, "metadata"), **names}}
        else:
            written = []
            for number, operation in enumerate(map(mapping, members(patch.content))):
                budget.charge(size)
                path, value = split(text(operation.get("path"))), operation.get("value")
                try:
                    obj = apply_json_patch(obj, [operation]) if base else _put(obj, path[:_MAX_DEPTH], value)
                except ApiError:
                    continue  # kustomize refuses to build this
                if "value" in operation:
                    written += _named(value, _steps(obj, path), f"{patch.pointer}/{number}/value")
        obj = mapping(obj)
        places.append((patch.document, written))
    obj = obj if base else _with_target(obj, patches[0].target)
    overlays = [
        Overlay(document, {_pointer(obj, steps): pointer for pointer, steps in written}, document is not base)
        for document, written in places
    ]
    return replace(base or patches[0].document, object=obj, with_values=with_values(obj), patches=tuple(overlays))


def _with_target(obj: Object, target: Object) -> Object:
    """Return what a patch makes of an object that no file has: with the type and name of the target."""
    group, version = text(target.get("group")), text(target.get("version")) or "v1"
    metadata = {"name": text(target.get("name")) or "unknown", **inside(obj, "metadata")}
    api_version = f"{group}/{version}" if group else version
    return {"apiVersion": api_version, "kind": text(target.get("kind")), **obj, "metadata": metadata}


def _merged(value: Any, patch: Any, field: str = "") -> Any:
    """Merge as kustomize does: null removes a member, items of some lists have names, and those of the patch come first."""
    if isinstance(value, dict) and isinstance(patch, dict) and patch.get("$patch") != "replace":
        both = value | {name: _merged(value.get(name), below, name) for name, below in patch.items()}
        return {name: below for name, below in both.items() if patch.get(name, below) is not None and name != "$patch"}
    if field in _BY_NAME and all(text(mapping(item).get("name")) for item in (*members(value), *members(patch))):
        old = {item["name"]: item for item in members(value)}
        new = {item["name"]: item for item in members(patch)}
        items_ = {name: _merged(old.get(name), item) for name, item in new.items()} | {
            name: item for name, item in old.items() if name not in new
        }
        return [item for name, item in items_.items() if new.get(name, {}).get("$patch") != "delete"]
    return _merged({}, patch) if isinstance(patch, dict) and not isinstance(value, dict) else patch


def _put(value: Any, path: Sequence[str], new: Any) -> Any:
    """Return a value with another value at a path, of which only a part needs to exist."""
    if not path:
        return new
    name, rest = path[0], path[1:]
    if not (name.isdecimal() or name == "-"):
        return {**mapping(value), name: _put(mapping(value).get(name), rest, new)}
    items_ = members(value)
    number = min(int(name), len(items_)) if name != "-" else len(items_)
    return [*items_[:number], _put(next(iter(items_[number:]), None), rest, new), *items_[number + 1 :]]


def _named(value: Any, steps: tuple[str, ...], pointer: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the pointers of all values in a value, each with its path, which has names in place of numbers of items."""
    yield pointer, steps
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _named(below, (*steps, name), member(pointer, name))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from _named(below, (*steps, _step(steps, below, number)), f"{pointer}/{number}")


def _step(steps: Sequence[str], item: Any, number: int) -> str:
    name = mapping(item).get("name") if steps and steps[-1] in _BY_NAME else None
    return f"={name}" if name else str(number)


def _steps(obj: Any, path: Sequence[str]) -> tuple[str, ...]:
    """Return a path in an object with names in place of the numbers of items."""
    steps: tuple[str, ...] = ()
    for part in path:
        name = part
        if isinstance(obj, list):
            number = int(part) if part.isdecimal() else len(obj) - 1
            obj = obj[number] if number < len(obj) else None
            name = _step(steps, obj, number)
        else:
            obj = mapping(obj).get(part)
        steps = (*steps, name)
    return steps


def _pointer(obj: Any, steps: Sequence[str]) -> str:
    """Return the pointer of a path with names of items; it leads nowhere if the object has no such item."""
    pointer = ""
    for step in steps:
        name = step
        if isinstance(obj, list):
            names = [f"={mapping(item).get('name')}" for item in obj]
            name = str(names.index(step)) if step in names else step
            obj = obj[int(name)] if name.isdecimal() and int(name) < len(obj) else None
        else:
            obj = mapping(obj).get(step)
        pointer = member(pointer, name)
    return pointer
