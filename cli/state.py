"""What the webhook would know of a cluster, read from files: the fleet, and whatever limits a namespace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace as replace_fields

from cli import contract as inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cluster.manifests import Document
    from webhook.state import Configuration, Features, State

# By these the webhook knows the devices.
_OF_DEVICES = frozenset(("DeviceClass", "DeviceCompatibility", "DeviceTaintRule", "Node", "ResourceSlice"))
_OF_FLEET = _OF_DEVICES | {"ResourceClaim", "ResourceClaimTemplate"}


def state_of(
    documents: Sequence[Document],
    around: Sequence[Document],
    configuration: Configuration,
    features: Features | None = None,
) -> State:
    """Make the state that the webhook would decide on, were all of these documents in its cluster.

    `around` is the inventory. Devices among the documents themselves count as well, as they would once they are applied.
    """
    from allocator.pods import total
    from cli.devices import read_kind, read_objects
    from cluster.manifests import ManifestError, unfold
    from cluster.objects import LimitRange
    from dra.objects import Pod
    from dra.wire import WireError, convert
    from webhook.state import IN_CONFIG_MAPS, Inventory, State, container_defaults, custom_kinds, installed
    from webhook.translate import group_kind, mapping, namespace_of

    namespaces: dict[str, dict[str, str]] = {}
    quotas: dict[str, frozenset[str]] = {}
    limit_ranges: dict[str, frozenset[str]] = {}
    ranges: dict[str, list[LimitRange]] = {}
    pods: list[Pod] = []
    of_fleet = [one for one in besides(around, documents) if str(one.object.get("kind")) in _OF_FLEET]
    for document in documents:
        # What is not what its kind says would not be in the cluster, and what it is about goes on without it.
        if str(document.object.get("kind")) in _OF_FLEET:
            try:
                read_objects([document])
            except ManifestError:
                continue
            of_fleet.append(document)
    for document in (*besides(around, documents), *documents):
        obj: dict[str, Any] = document.object
        namespace = namespace_of(obj)
        match obj.get("kind"):
            case "Namespace" if group_kind(obj) == ("", "Namespace"):
                metadata = mapping(obj.get("metadata"))
                labels = mapping(metadata.get("labels"))
                texts = {key: value for key, value in labels.items() if isinstance(value, str)}
                namespaces[str(metadata.get("name"))] = texts
            case "ResourceQuota":
                hard = mapping(mapping(obj.get("spec")).get("hard"))
                quotas[namespace] = quotas.get(namespace, frozenset()).union(hard)
            case "LimitRange":
                [limits] = read_kind([document], LimitRange)
                ranges.setdefault(namespace, []).append(limits)
                limit_ranges[namespace] = limit_ranges.get(namespace, frozenset()) | limits.keys
            case "Pod" if configuration.file.mixed:
                try:
                    pods.append(convert(obj, Pod))
                except WireError:
                    continue  # said where it is translated
    beside = installed(unfold(one.object, IN_CONFIG_MAPS) for one in (*besides(around, documents), *documents))
    state = State(
        configuration=configuration,
        fleet=Inventory(assumes=True, installed=beside),
        namespaces=namespaces,
        quotas=quotas,
        limit_ranges=limit_ranges,
        container_defaults={name: container_defaults(some) for name, some in ranges.items()},
        custom_kinds=custom_kinds(one.object for one in (*besides(around, documents), *documents)),
        # What pods ask for on their nodes; files that hold no such pod do not say that there is none.
        uses=total(pods) or None if configuration.file.mixed else None,
    )
    if features is not None:
        state = replace_fields(state, features=features)
    of_devices = around or any(str(document.object.get("kind")) in _OF_DEVICES for document in documents)
    return with_fleet(state, of_fleet) if of_devices else state


def say_assumed(assumed: Iterable[str]) -> None:
    """Say once which keys were taken for what they most often mean, for want of anything to look at."""
    keys = list(dict.fromkeys(assumed))
    if keys and not inputs.quiet():
        what = f"{keys[0]} is a whole device" if len(keys) == 1 else f"{' and '.join(keys)} are whole devices"
        inputs.complain(f"assumed: {what}; with --inventory or on your cluster it is looked up")


def in_namespace(documents: Sequence[Document], namespace: str) -> tuple[Sequence[Document], frozenset[int]]:
    """Put objects that name no namespace into one, as kubectl does; and say by their numbers which stand in others."""
    from cluster import resources
    from webhook.translate import mapping

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


def leave_made(documents: Sequence[Document]) -> frozenset[int]:
    """Find, by number, the objects that another of these made: their maker stands for them. Say how many there are.

    Both have passed a server, and the maker's uid is the one that is named: a reference alone proves nothing.
    """
    from cli.loading import inside, items

    metadata = [inside(document.object, "metadata") for document in documents]
    uids = {one["uid"] for one in metadata if isinstance(one.get("uid"), str) and one["uid"]}
    made = frozenset(
        number
        for number, one in enumerate(metadata)
        if one.get("uid")
        and any(owner.get("controller") is True and owner.get("uid") in uids for owner in items(one, "ownerReferences"))
    )
    if made and not inputs.quiet():
        inputs.complain(f"not looked at: {inputs.count_of(len(made), 'object')} that others of the input made")
    return made


def besides(known: Sequence[Document], documents: Sequence[Document]) -> list[Document]:
    """Leave out of the inventory what these documents would replace if they were applied."""
    from dra.validation import name

    replaced = {name(document.object) for document in documents}
    return [document for document in known if name(document.object) not in replaced]


def with_fleet(state: State, documents: Sequence[Document]) -> State:
    """Add the devices. Whether some node could serve a claim is asked only where the input describes a whole fleet."""
    from cli.devices import read_objects
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
    # Claims get the namespace in which pods look for them.
    waiting = [
        replace_fields(one, metadata=replace_fields(one.metadata, namespace=one.metadata.namespace or "default"))
        for one in given.open_claims()
    ]
    stock = given.stock(state.features.server).with_all(waiting)
    possible = prospects(file.node_templates, stock)
    return replace_fields(shown, stock=stock, prospects=possible)
