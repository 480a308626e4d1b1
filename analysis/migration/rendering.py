"""Finds the charts whose values a move changes, and checks that their objects change as planned.

Planned changes are: a container loses keys and names a claim of its pod instead. A chart may also create the claim's template, and
KubeRay's chart gets the number of GPUs in `rayStartParams`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from analysis.gitops import filled, releases, variables_of
from analysis.migration.platform import lowest_version, platform_of
from analysis.migration.values_files import name_of_release
from dra.pointer import mappings_in, member, values_in
from dra.raw import Object, containers_of, inside, items, mapping, members, text
from webhook.translate import name_of, resolve_pointer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from analysis.gitops import Release, Tree
    from analysis.migration.plan import Consumer, MigrationPlan
    from analysis.migration.pull_request import Step
    from cluster.manifests import Document

_CLAIMS: Final = ("ResourceClaim", "ResourceClaimTemplate")
_AMOUNTS: Final = ("limits", "requests")
# Charts leave them out if they are empty.
_MAPS: Final = (*_AMOUNTS, "resources", "rayStartParams")


class ChangedRelease(NamedTuple):
    """A release whose values the steps change."""

    release: Release  # as it is before
    file: str
    name: str  # with its kind and namespace
    values: Object  # before
    new_values: Object
    keys: frozenset[str]  # what the moved consumers request: keys, or a field of the chart that requests devices
    kept: frozenset[str]  # keys that other consumers of the release still request
    kubernetes: str  # the cluster's version; "" if neither a snapshot nor a file states it

    def moves(self, key: str) -> bool:
        """Return whether the plan removes a key from a container. A chart's switch implies a key that is not in the values."""
        has_switch = not all("/" in moved for moved in self.keys)
        return key in self.keys or (has_switch and "/" in key)

    @property
    def chart(self) -> str:
        """The name and version of the chart."""
        return f"{self.release.chart} {self.release.version}".rstrip()


def changed_releases(
    steps: Sequence[Step], documents: Sequence[Document], tree: Tree, plan: MigrationPlan, nodes: Sequence[Object]
) -> Iterator[ChangedRelease]:
    """Yield the releases whose values the steps change. `nodes` are the nodes of a snapshot."""
    after = list(documents)
    for step in steps:
        after = step.applied(after)
    moved = [consumer for step in steps for consumer in step.moved]
    variables = variables_of(documents, tree)
    version = (
        lowest_version(nodes) or platform_of(documents, tree.reached, {consumer.file for consumer in moved}).version
    )
    new_values = {_identity(release): release.values for release in releases(after, tree)}
    for release in releases(documents, tree):
        new = new_values.get(_identity(release))
        if new is None or new == release.values:
            continue
        document = documents[release.number]
        files = {document.file, *[documents[file.number].file for file in release.files]}
        names = (name_of(document.placed), name_of_release(release))
        consumers = [consumer for consumer in plan.consumers if consumer.file in files and consumer.object in names]
        of_build = variables.get(release.number, {})
        yield ChangedRelease(
            release,
            document.file,
            names[1],
            filled(release.values, of_build),
            filled(new, of_build),
            _keys(consumer for consumer in consumers if consumer in moved),
            _keys(consumer for consumer in consumers if consumer not in moved),
            version,
        )


def _identity(release: Release) -> tuple[object, ...]:
    return release.number, release.kind, release.namespace, release.name, release.chart


def _keys(consumers: Iterable[Consumer]) -> frozenset[str]:
    return frozenset(consumer.key for consumer in consumers)


def unplanned_changes(
    changed: ChangedRelease,
    before: Mapping[str, Object],
    after: Mapping[str, Object],
    again: Mapping[str, Object] | None = None,
) -> list[str]:
    """Return the differences that are not planned.

    Objects are keyed by name. Fields that also differ between `before` and `again`, a second rendering of the same values, are ignored.
    """
    random = {} if again is None else dict.fromkeys(_other_changes(changed, before, again))
    made = [text(inside(obj, "metadata").get("name")) for obj in after.values() if obj.get("kind") in _CLAIMS]
    known = {*made, *[value for _, value in values_in(changed.new_values) if isinstance(value, str)]}
    return [
        *[change for change in _other_changes(changed, before, after) if change not in random],
        *[
            f"{name}: {mistake}"
            for name, old_pod, pod in _pods(before, after)
            for mistake in _mistakes(changed, old_pod, pod, known)
        ],
    ]


def loses_a_key(changed: ChangedRelease, before: Mapping[str, Object], after: Mapping[str, Object]) -> bool:
    """Return whether any container requests fewer keys after the move."""
    return any(
        _lost(changed, old, new) for _, old_pod, pod in _pods(before, after) for old, new in _containers(old_pod, pod)
    )


def _other_changes(changed: ChangedRelease, before: Mapping[str, Object], after: Mapping[str, Object]) -> Iterator[str]:
    """Yield the differences other than removed keys and new claims."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None:
            yield from (f"{name}: {field} changes" for field in _other_fields(changed, old, new))
        elif old is not None:
            yield f"{name} is removed"
        elif new is not None and new.get("kind") not in _CLAIMS:
            yield f"{name} is added"


def _other_fields(changed: ChangedRelease, old: Any, new: Any, pointer: str = "") -> Iterator[str]:
    """Yield the pointers of differing fields, except removed keys and new claims."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            below, value, new_value = member(pointer, name), old.get(name), new.get(name)
            if name in _MAPS:
                yield from _other_fields(changed, value or {}, new_value or {}, below)
            elif (name == "claims" and pointer.endswith("/resources")) or (name == "resourceClaims" and _is_pod(new)):
                if any(entry not in members(new_value) for entry in members(value)):
                    yield below
            elif not _is_planned(changed, pointer, name, value, new_value):
                yield from _other_fields(changed, value, new_value, below)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (value, new_value) in enumerate(zip(old, new, strict=True)):
            yield from _other_fields(changed, value, new_value, f"{pointer}/{number}")
    elif old != new:
        yield pointer


def _is_planned(changed: ChangedRelease, pointer: str, name: str, old: Any, new: Any) -> bool:
    """Return whether a field is a removed key, or the number of GPUs that KubeRay would derive from the key."""
    parent = pointer.rpartition("/")[2]
    if parent in _AMOUNTS:
        return new is None and changed.moves(name)
    return parent == "rayStartParams" and name == "num-gpus" and old is None


def _mistakes(changed: ChangedRelease, old_pod: Object, pod: Object, known: Collection[str]) -> Iterator[str]:
    """Yield where a pod's keys and claims differ from the plan. `known` has the valid names of claims and templates."""
    new_claims = [entry for entry in items(pod, "resourceClaims") if entry not in items(old_pod, "resourceClaims")]
    of_pod = _names(items(pod, "resourceClaims"))
    used = set[str]()
    for old, new in _containers(old_pod, pod):
        container = f"container {text(new.get('name'))}"
        lost, claims = _lost(changed, old, new), _names(items(inside(new, "resources"), "claims"))
        gained = claims - _names(items(inside(old, "resources"), "claims"))
        used |= claims
        yield from (
            f"{container} still requests {key}" for key in sorted(_requested(new) & (changed.keys - changed.kept))
        )
        if lost and not gained:
            yield f"{container} requests no {', '.join(sorted(lost))} any more, and names no new claim"
        if gained and not lost:
            yield f"{container} names claim {', '.join(sorted(gained))}, and requests what it did before"
        yield from (f"{container} names claim {name}, which its pod does not have" for name in sorted(claims - of_pod))
    for entry in new_claims:
        name = text(entry.get("name"))
        source = text(entry.get("resourceClaimTemplateName")) or text(entry.get("resourceClaimName"))
        if name not in used:
            yield f"the pod gets claim {name}, which no container names"
        if source not in known:
            yield f"claim {name} of the pod is from {source or 'nothing'}, which the values do not name"


def _lost(changed: ChangedRelease, old: Object, new: Object) -> set[str]:
    return {key for key in _requested(old) - _requested(new) if changed.moves(key)}


def _requested(container: Object) -> set[str]:
    return {key for part in _AMOUNTS for key in inside(container, "resources", part)}


def _names(entries: Iterable[Object]) -> set[str]:
    return {text(entry.get("name")) for entry in entries}


def _containers(old_pod: Object, pod: Object) -> Iterator[tuple[Object, Object]]:
    """Yield pairs of containers of the same name, from the old and the new pod."""
    old = {container.get("name"): container for container in containers_of(old_pod)}
    for container in containers_of(pod):
        yield old.get(container.get("name"), {}), container


def _pods(before: Mapping[str, Object], after: Mapping[str, Object]) -> Iterator[tuple[str, Object, Object]]:
    """Yield, for each pod or pod template, its object's name, the pod before the move, and the pod after it."""
    for name, obj in after.items():
        for place, pod in mappings_in(obj, ""):
            if _is_pod(pod):
                yield name, mapping(resolve_pointer(before.get(name, {}), place)), pod


def _is_pod(value: Object) -> bool:
    return isinstance(value.get("containers"), list)
