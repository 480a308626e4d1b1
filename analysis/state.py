"""The state of a webhook in a cluster with the given manifests: the fleet, and the limits of namespaces."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace as replace_fields

from dra.raw import inside
from dra.texts import count_of
from rendering.output import complain, quiet, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cluster.manifests import Document
    from webhook.state import Configuration, Features, State
    from webhook.translate import Decision

# Kinds from which the webhook learns the devices.
_OF_DEVICES = frozenset(("DeviceClass", "DeviceCompatibility", "DeviceTaintRule", "Node", "ResourceSlice"))
_OF_FLEET = _OF_DEVICES | {"ComputeDomain", "ResourceClaim", "ResourceClaimTemplate"}


def state_of(
    documents: Sequence[Document],
    around: Sequence[Document],
    configuration: Configuration,
    features: Features | None = None,
) -> State:
    """Make the state that the webhook would have if these documents were applied; `around` is the inventory."""
    from allocator.pods import total
    from analysis.devices import read_kind, read_objects
    from cluster.manifests import ManifestError, unfold
    from cluster.objects import LimitRange
    from dra.objects import Pod
    from dra.wire import WireError, convert
    from webhook.state import IN_CONFIG_MAPS, Inventory, State, container_defaults, custom_kinds, installed
    from webhook.translate import group_kind, namespace_of

    namespaces: dict[str, dict[str, str]] = {}
    quotas: dict[str, frozenset[str]] = {}
    limit_ranges: dict[str, frozenset[str]] = {}
    ranges: dict[str, list[LimitRange]] = {}
    pods: list[Pod] = []
    context = not_replaced(around, documents)
    every = (*context, *documents)
    of_fleet = [one for one in context if str(one.object.get("kind")) in _OF_FLEET]
    for document in documents:
        # The API server would refuse an invalid object, so it does not count.
        if str(document.object.get("kind")) in _OF_FLEET:
            try:
                read_objects([document])
            except ManifestError:
                continue
            of_fleet.append(document)
    for document in every:
        obj: dict[str, Any] = document.object
        namespace = namespace_of(obj)
        match obj.get("kind"):
            case "Namespace" if group_kind(obj) == ("", "Namespace"):
                labels = inside(obj, "metadata", "labels")
                texts = {key: value for key, value in labels.items() if isinstance(value, str)}
                namespaces[str(inside(obj, "metadata").get("name"))] = texts
            case "ResourceQuota":
                hard = inside(obj, "spec", "hard")
                quotas[namespace] = quotas.get(namespace, frozenset()).union(hard)
            case "LimitRange":
                [limits] = read_kind([document], LimitRange)
                ranges.setdefault(namespace, []).append(limits)
                limit_ranges[namespace] = limit_ranges.get(namespace, frozenset()) | limits.keys
            case "Pod" if configuration.file.mixed:
                try:
                    pods.append(convert(obj, Pod))
                except WireError:
                    continue  # reported when it is translated
    state = State(
        configuration=configuration,
        fleet=Inventory(assumes=True, installed=installed(unfold(one.object, IN_CONFIG_MAPS) for one in every)),
        namespaces=namespaces,
        quotas=quotas,
        limit_ranges=limit_ranges,
        container_defaults={name: container_defaults(some) for name, some in ranges.items()},
        custom_kinds=custom_kinds(one.object for one in every),
        # The requests of pods on nodes; unknown (None) if no pod in the files has a node.
        uses=total(pods) or None if configuration.file.mixed else None,
    )
    if features is not None:
        state = replace_fields(state, features=features)
    of_devices = around or any(str(document.object.get("kind")) in _OF_DEVICES for document in documents)
    return with_fleet(state, of_fleet) if of_devices else state


def print_assumed(assumed: Iterable[str]) -> None:
    """Print the keys whose meaning was assumed, because no fleet is known."""
    keys = list(dict.fromkeys(assumed))
    if keys and not quiet():
        subject = f"{keys[0]} is a whole device" if len(keys) == 1 else f"{' and '.join(keys)} are whole devices"
        complain(f"assumed: {subject}; use --inventory for the devices of your cluster")


def print_inventory(documents: Iterable[Document], around: Sequence[Document], decided: Iterable[Decision]) -> None:
    """Print which object of the files makes them count as a cluster without DeviceClasses, where keys are left."""
    kinds = [(str(document.object.get("kind")), document) for document in documents]
    shown = [(kind, document) for kind, document in kinds if kind in ("Node", "ResourceSlice")]
    if around or not shown or any(kind == "DeviceClass" for kind, _ in kinds):
        return
    if all(one.outcome != "left" for one in decided):
        return
    kind, first = shown[0]
    where = f"{first.file}:{first.line}"
    warn(
        f"{where}: with this {kind} the files count as a cluster without DeviceClasses; --exclude it if it is not of yours"
    )


def in_namespace(documents: Sequence[Document], namespace: str) -> tuple[Sequence[Document], frozenset[int]]:
    """Set the namespace of objects that name none, as kubectl does; return the numbers of those in other namespaces, too."""
    from cluster import resources
    from dra.raw import mapping

    if not namespace:
        return documents, frozenset()
    placed: list[Document] = []
    elsewhere = set()
    for number, document in enumerate(documents):
        metadata = mapping(document.object.get("metadata"))
        kind = resources.of(document.object)
        if kind is not None and not kind.namespaced:
            placed.append(document)
        elif metadata.get("namespace"):
            placed.append(document)
            if metadata["namespace"] != namespace:
                elsewhere.add(number)
        else:
            obj = {**document.object, "metadata": {**metadata, "namespace": namespace}}
            placed.append(replace(document, object=obj))
    return placed, frozenset(elsewhere)


def find_controlled(documents: Sequence[Document]) -> frozenset[int]:
    """Find, by number, the objects whose controller is among these documents, and print how many are skipped for that.

    The controller must have the referenced uid, which only a server assigns: every author of a manifest can write a reference.
    """
    from analysis.loading import inside, items, text

    metadata = [inside(document.object, "metadata") for document in documents]
    uids = {one["uid"] for one in metadata if isinstance(one.get("uid"), str) and one["uid"]}
    made = frozenset(
        number
        for number, one in enumerate(metadata)
        if one.get("uid")
        and any(
            owner.get("controller") is True and text(owner.get("uid")) in uids
            for owner in items(one, "ownerReferences")
        )
    )
    if made and not quiet():
        complain(f"skipped: {count_of(len(made), 'object')} whose controller is in the input")
    return made


def not_replaced(known: Sequence[Document], documents: Sequence[Document]) -> list[Document]:
    """Return the inventory without the objects that these documents would replace."""
    from dra.validation import name

    replaced = {name(document.object) for document in documents}
    return [document for document in known if name(document.object) not in replaced]


def with_fleet(state: State, documents: Sequence[Document]) -> State:
    """Add the fleet. Claims are only checked against nodes if the input has classes, slices and nodes."""
    from analysis.devices import read_objects
    from dra.objects import DeviceClass, Node, ResourceClaimTemplate, ResourceSlice
    from webhook.state import Inventory, prospects

    given = read_objects(documents)
    classes = given.of(DeviceClass)
    slices = given.of(ResourceSlice)
    nodes = given.of(Node)
    file = state.configuration.file
    fleet = Inventory.of(classes, slices, nodes, evidence=file.evidence, installed=state.fleet.installed)
    if not (slices or nodes):
        fleet = fleet.of_classes_alone()
    templates = {}
    for template in given.of(ResourceClaimTemplate):
        place = template.metadata.namespace or "default", template.metadata.name
        templates[place] = template.spec.spec
    shown = replace_fields(state, fleet=fleet, templates=templates)
    if not (classes and slices and nodes):
        return shown
    waiting = [
        replace_fields(one, metadata=replace_fields(one.metadata, namespace=one.metadata.namespace or "default"))
        for one in given.open_claims()
    ]
    stock = given.stock(state.features.server).with_all(waiting)
    possible = prospects(file.node_templates, stock)
    return replace_fields(shown, stock=stock, prospects=possible)
