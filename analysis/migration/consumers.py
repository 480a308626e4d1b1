"""Edits consumers of devices: replaces legacy keys by claims, in pod templates and in chart values.

The claims equal those of the webhook's translation, with short names. The decision about sharing selects the kind of object:

    exclusive, shares  a ResourceClaimTemplate for each workload
    named claim        one ResourceClaim in a namespace, which all of its workloads name
    admin access       a template whose claims have all devices of the node, and count nowhere
"""

from __future__ import annotations

from dataclasses import replace
from posixpath import commonpath, dirname
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from analysis.claim_names import TemplateNames, with_plain_names
from analysis.gitops import is_kustomization, parsed, releases
from analysis.migration.layout import Changes, TreeLayout
from analysis.migration.lenses import CHARTS, pod_at, put
from analysis.migration.requests import with_drivers
from analysis.migration.shared_claims import (
    CLAIM,
    NamedClaims,
    as_admin,
    claim_object,
    with_one_claim,
    without_shares,
)
from analysis.migration.values_files import ReleasesOfFiles, name_of_release
from analysis.requesting import classes_in
from cluster.manifests import CannotEdit, edit
from cluster.patch import apply_json_patch
from dra.pointer import split
from dra.raw import Object, inside, mapping, text
from webhook.admission import decide_object
from webhook.translate import name_of, namespace_of, paths, resolve_pointer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from analysis.gitops import Release, Tree
    from analysis.migration.plan import Consumer, MigrationPlan, SharingDecision
    from analysis.migration.pull_request import Step
    from cluster.manifests import Document
    from webhook.state import State
    from webhook.translate import PodVerdict

_TEMPLATE: Final = "ResourceClaimTemplate"


def consumer_edits(documents: Sequence[Document], tree: Tree, plan: MigrationPlan, state: State) -> Step:
    """Return the consumer edits of the commit `switch`. `documents` are the tree's documents, without the plugins."""
    switch = _Switch(documents, tree, plan, state)
    numbers = {(document.file, name_of(document.placed)): number for number, document in enumerate(documents)}
    for release in releases(documents, tree):
        name = name_of_release(release)
        numbers |= {(documents[file.number].file, name): file.number for file in release.files}
    by_release: dict[tuple[int, str], list[Consumer]] = {}
    for consumer in plan.consumers:
        number = numbers.get((consumer.file, consumer.object))  # None if the document is removed with a plugin
        if number is not None:
            by_release.setdefault((number, consumer.object), []).append(consumer)
    for (number, _), consumers in by_release.items():
        switch.move(number, consumers)
    return switch.step()


class _Moved(NamedTuple):
    """An object whose keys are replaced by claims, and the claims and templates that it names."""

    object: Object
    named: tuple[Object, ...]


class _Switch:
    """Collects the edits of consumers."""

    def __init__(self, documents: Sequence[Document], tree: Tree, plan: MigrationPlan, state: State) -> None:
        self._documents = documents
        self._tree = tree
        self._state = with_drivers(state)
        self._decisions: dict[str, SharingDecision] = {
            device_class: family.sharing.decision
            for family in plan.families
            if family.sharing is not None
            # A driver's own DeviceClass has its name.
            for device_class in (family.driver, *family.device_classes)
        }
        all_releases = list(releases(documents, tree))
        self._releases = {release.number: release for release in all_releases}
        self._in_files = ReleasesOfFiles(documents, all_releases)
        self._templates: list[tuple[int, Object]] = []  # with the numbers of the documents that need them
        self._names = TemplateNames(map(_as_placed, documents), is_one_build=True)
        self._claims = NamedClaims(documents)
        self._changes = Changes(TreeLayout(documents, tree))
        self._unmoved: dict[Consumer, str] = {}
        self._moved: list[Consumer] = []

    def step(self) -> Step:
        """Return the edits so far."""
        for namespace, numbers, claim in self._claims.used():
            place = self._common_place(numbers, namespace)
            self._changes.add_beside(place, _in_file(claim, self._written_namespace(place, namespace)))
        for number, template in self._templates:
            self._changes.add_beside(number, template)
        self._changes.notes += self._unmoved.values()
        moved, unmoved = tuple(self._moved), tuple(self._unmoved.items())
        return self._changes.step("switch", self._documents)._replace(moved=moved, unmoved=unmoved)

    def _common_place(self, numbers: Collection[int], namespace: str) -> int:
        """Return the document beside which a claim of several documents is written."""
        folders = {dirname(self._documents[number].file) for number in numbers}
        above = commonpath(folders) if all(folders) else ""
        for number, document in enumerate(self._documents):
            is_above = len(folders) > 1 and is_kustomization(document) and dirname(document.file) == above
            set_by_tree = self._tree.namespace_of(number)
            if is_above and (set_by_tree == namespace or not self._tree.replaces_namespace(number)):
                return number
        return min(numbers)

    def move(self, number: int, consumers: Sequence[Consumer]) -> None:
        """Edit the consumers of one document that the plan selects for an edit."""
        edited = [consumer for consumer in consumers if consumer.verdict == "edit"]
        if not edited:
            return
        document, release = self._documents[number], self._in_files.release_at(number, edited[0].place)
        now, place = self._changes.now(number), self._place_of_claims(number, release)
        try:
            self._confirm_unpatched(number, release, edited)
            if paths(document.placed):
                moved = self._pod_templates(number, edited, consumers)
            else:
                moved = self._values(number, release or self._releases.get(number), edited)
            _confirm(document, moved.object)
            named = [(obj, self._written_namespace(place, namespace_of(obj))) for obj in moved.named]
        except CannotEdit as error:
            for consumer in edited:
                self._note(consumer, str(error))
            return
        if moved.object == now:
            return
        self._changes.edits[number] = moved.object
        self._moved += [consumer for consumer in edited if consumer not in self._unmoved]
        for obj, written_namespace in named:
            if obj["kind"] == CLAIM:
                self._claims.use(obj, place)
            else:
                self._templates.append((place, _in_file(obj, written_namespace)))

    def _note(self, consumer: Consumer, why: str) -> None:
        place = f"{consumer.file}:{consumer.line}: {consumer.object}"
        self._unmoved[consumer] = f"{place} still requests {consumer.key}, change it by hand: {why}"

    def _place_of_claims(self, number: int, release: Release | None) -> int:
        """Return the document whose folder gets the claims of an edited document. If the edited document is a values file, `release` is its release."""
        if release is None or release.number == number:
            return number
        # A source of an Application may build the folder of the file.
        folder = dirname(self._documents[number].file)
        built = sorted(self._tree.built_by(release.number))
        return next((other for other in built if dirname(self._documents[other].file) == folder), release.number)

    def _confirm_unpatched(self, number: int, release: Release | None, edited: Sequence[Consumer]) -> None:
        """Raise an error if a kustomization patch would restore a removed key."""
        numbers = {number, release.number if release else number}
        for part in [part for part in self._tree.patched if part.number in numbers]:
            for overlay in [overlay for overlay in part.document.patches if overlay.is_patch]:
                if any(split(pointer)[-1:] == [consumer.key] for consumer in edited for pointer in overlay.pointers):
                    raise CannotEdit(f"the patch in {overlay.document.file} has the key, too")

    def _pod_templates(self, number: int, edited: Sequence[Consumer], consumers: Sequence[Consumer]) -> _Moved:
        """Return a workload with claims."""
        if len(edited) < len(consumers):
            raise CannotEdit("the plan moves only some of its requests")
        document = self._documents[number]
        verdict = decide_object(document.placed, self._state)
        # The tolerations of a workload are a decision of its owner.
        operations = tuple(operation for operation in verdict.operations if "/tolerations" not in operation["path"])
        verdict = msgspec.structs.replace(verdict, operations=operations)
        return self._with_claims(document.object, verdict, number, namespace_of(document.placed))

    def _values(self, number: int, release: Release | None, edited: Sequence[Consumer]) -> _Moved:
        """Return a document in which the values of a release request claims."""
        chart = CHARTS.get(release.chart) if release else None
        if release is None or chart is None:
            raise CannotEdit("drawbridge does not know its chart")
        pods: dict[tuple[str, str], dict[str, list[Consumer]]] = {}
        for consumer in edited:
            if place := chart.place_of(consumer.place):
                pointer, pod, container = place
                pods.setdefault((pointer, pod), {}).setdefault(container, []).append(consumer)
            else:
                self._note(consumer, f"it is no place of a container in the values of {release.chart}")
        wanted, named = self._changes.now(number), dict[str, Object]()
        beside = self._place_of_claims(number, release)
        for (pointer, pod), requests in pods.items():
            values = _values_at(wanted, pointer)
            before = pod_at(chart, values, pod, requests, release)
            moved = self._with_claims(before, decide_object(before, self._state), beside, release.namespace)
            named |= {name_of(obj): obj for obj in moved.named}
            wanted = _with_values(wanted, pointer, put(chart, values, pod, requests, moved.object))
        return _Moved(wanted, tuple(named.values()))

    def _with_claims(self, obj: Object, verdict: PodVerdict, number: int, namespace: str) -> _Moved:
        """Apply the decisions about sharing to the claims of a translated object."""
        translated = apply_json_patch(obj, verdict.operations)
        if not verdict.templates:
            raise CannotEdit("no claim replaces its requests")
        templates, claims = [], []
        for reserved, translated_spec in verdict.templates.items():
            spec = without_shares(mapping(translated_spec))
            decision = next(filter(None, map(self._decisions.get, classes_in(spec["spec"]))), "exclusive")
            if decision == "named claim":
                claim = self._claims.claim(spec["spec"], namespace)
                translated = with_one_claim(translated, reserved, claim["metadata"]["name"])
                claims.append(claim)
            else:
                translated = with_one_claim(translated, reserved) if decision == "admin access" else translated
                wanted = as_admin(spec) if decision == "admin access" else spec
                templates.append(claim_object(_TEMPLATE, reserved, namespace, wanted))
        document = _as_placed(self._documents[number])
        named, new = with_plain_names(obj, translated, templates, self._names, document)
        return _Moved(named, (*claims, *new))

    def _written_namespace(self, number: int, namespace: str) -> str:
        """Return the namespace to write into a new object beside a document, so that the build puts the object into `namespace`."""
        written = text(inside(self._documents[number].object, "metadata").get("namespace"))
        if namespace == (self._tree.namespace_of(number) or written or "default"):
            return written
        if self._tree.replaces_namespace(number):
            raise CannotEdit(f"its claims belong into namespace {namespace}, and its build sets another one")
        return namespace


def _values_at(obj: Object, pointer: str) -> Object:
    """Return values as an object; they may be a YAML string."""
    written = resolve_pointer(obj, pointer)
    return parsed(written) if isinstance(written, str) else mapping(written)


def _with_values(obj: Object, pointer: str, patch: Iterable[Object]) -> Object:
    """Return an object with patched values. Raises CannotEdit if the values are a string that cannot be edited."""
    written = resolve_pointer(obj, pointer)
    after = apply_json_patch(_values_at(obj, pointer), patch)
    value = edit(written, after) if isinstance(written, str) else after
    return mapping(apply_json_patch(obj, [{"op": "replace", "path": pointer, "value": value}]))


def _confirm(document: Document, wanted: Object) -> None:
    """Raise CannotEdit if the document's text cannot be edited to the wanted value."""
    if document.is_item or document.is_json:
        raise CannotEdit("the object is an item of a List, or JSON")
    edit(document.text, wanted)


def _as_placed(document: Document) -> Document:
    return replace(document, object=document.placed)


def _in_file(obj: Object, namespace: str) -> Object:
    """Return an object with another namespace; without any if the namespace is ""."""
    metadata = {"name": obj["metadata"]["name"]} | ({"namespace": namespace} if namespace else {})
    return {**obj, "metadata": metadata}
