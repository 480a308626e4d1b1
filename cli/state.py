"""What the webhook would know of a cluster, read from files: the fleet, and whatever limits a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cli import contract as inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cluster.manifests import Document
    from webhook.state import Configuration, Features, State

    _Object = dict[str, Any]

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
    from webhook.state import State

    both = [*besides(around, documents), *_readable(documents)]
    state = State(
        configuration=configuration,
        namespaces=_namespaces(both),
        quotas=_quotas(both),
        limit_ranges=_limit_ranges(both),
    )
    if features is not None:
        state = msgspec.structs.replace(state, features=features)
    if configuration.file.mixed:
        state = msgspec.structs.replace(state, uses=_uses(both))
    of_devices = around or any(str(document.object.get("kind")) in _OF_DEVICES for document in documents)
    return _with_fleet(state, both) if of_devices else state


def besides(known: Sequence[Document], documents: Sequence[Document]) -> list[Document]:
    """Leave out of the inventory what these documents would replace if they were applied."""
    from dra.validation import name

    replaced = {name(document.object) for document in documents}
    return [document for document in known if name(document.object) not in replaced]


def _readable(documents: Sequence[Document]) -> Iterator[Document]:
    """Leave out what is not what its kind says: it would not be in the cluster, and what it is about goes on without it."""
    from cli.devices import read_objects
    from cluster.manifests import ManifestError

    for document in documents:
        if str(document.object.get("kind")) in _OF_FLEET:
            try:
                read_objects([document])
            except ManifestError:
                continue
        yield document


def _with_fleet(state: State, documents: Iterable[Document]) -> State:
    """Add the devices. Whether some node could serve a claim is asked only where the input describes a whole fleet."""
    from cli.devices import read_objects
    from dra.objects import DeviceClass, Node, ResourceClaimTemplate, ResourceSlice
    from webhook.state import Inventory, prospects

    described = [document for document in documents if str(document.object.get("kind")) in _OF_FLEET]
    given = read_objects(described)
    classes = given.of(DeviceClass)
    slices = given.of(ResourceSlice)
    nodes = given.of(Node)
    file = state.configuration.file
    fleet = Inventory.of(classes, slices, nodes, evidence=file.evidence)
    if not (slices or nodes):  # classes alone say what serves a name, and nothing about devices
        fleet = msgspec.structs.replace(fleet, known=False)
    templates = {}
    for template in given.of(ResourceClaimTemplate):
        place = template.metadata.namespace or "default", template.metadata.name
        templates[place] = template.spec.spec
    shown = msgspec.structs.replace(state, fleet=fleet, templates=templates)
    if not (classes and slices and nodes):
        return shown
    stock = given.stock(state.features.server)
    possible = prospects(file.node_templates, stock)
    return msgspec.structs.replace(shown, stock=stock, prospects=possible)


def _uses(documents: Iterable[Document]) -> dict[str, dict[str, int]] | None:
    """What pods ask for on their nodes; files that hold no such pod do not say that there is none."""
    from allocator.pods import total
    from dra.objects import Pod
    from dra.wire import WireError, convert

    pods: list[Pod] = []
    for document in documents:
        if document.object.get("kind") == "Pod":
            try:
                pods.append(convert(document.object, Pod))
            except WireError:
                continue  # said where it is translated
    used = total(pods)
    return used or None


def _namespaces(documents: Iterable[Document]) -> dict[str, dict[str, str]]:
    """The labels of the namespaces, by which the webhook may be told to keep out of one."""
    from webhook.translate import group_kind, mapping

    found: dict[str, dict[str, str]] = {}
    for document in documents:
        obj = document.object
        if group_kind(obj) != ("", "Namespace"):
            continue
        metadata = mapping(obj.get("metadata"))
        labels = mapping(metadata.get("labels"))
        name = str(metadata.get("name"))
        found[name] = {}
        for key, value in labels.items():
            if isinstance(value, str):
                found[name][key] = value
    return found


def _quotas(documents: Iterable[Document]) -> dict[str, frozenset[str]]:
    """Which keys the ResourceQuotas limit, by namespace."""
    from webhook.translate import mapping, namespace_of

    quotas: dict[str, frozenset[str]] = {}
    for document in documents:
        quota = document.object
        if quota.get("kind") != "ResourceQuota":
            continue
        spec = mapping(quota.get("spec"))
        hard = mapping(spec.get("hard"))
        name = namespace_of(quota)
        before = quotas.get(name, frozenset())
        quotas[name] = before.union(hard)
    return quotas


def _limit_ranges(documents: Iterable[Document]) -> dict[str, frozenset[str]]:
    """Which keys the LimitRanges bound or fill in, by namespace."""
    from cluster.manifests import ManifestError
    from cluster.objects import LimitRange
    from dra.wire import WireError, convert
    from webhook.translate import namespace_of

    ranges: dict[str, frozenset[str]] = {}
    for document in documents:
        if document.object.get("kind") == "LimitRange":
            try:
                keys = convert(document.object, LimitRange).keys
            except WireError as error:
                raise ManifestError(inputs.problems([(document, error.pointer, error.message)])) from error
            name = namespace_of(document.object)
            ranges[name] = ranges.get(name, frozenset()) | keys
    return ranges
