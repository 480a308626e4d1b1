"""What was read from a cluster or from files, as one value for all commands.

Objects are not trusted: `unread` lists those that cannot be decoded as their kind, and kinds that the user may not read.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from collections import defaultdict
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, cached_property, partial
from operator import is_
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from allocator import FleetMemo
from allocator.decisions import Decider
from allocator.pods import total
from allocator.reservations import overlaps
from analysis.configuration import ConfigurationInForce, features_of, server_named
from analysis.loading.objects import Unread, identity_of, owner_of, unread_of
from analysis.loading.typed import IN_STOCK, TypedObjects, is_pod
from analysis.object_events import time_of_dump
from analysis.skipped import SkippedFile
from cluster import resources
from cluster.manifests import Document
from cluster.objects import Event, Lease
from cluster.server import ServerInfo
from dra.budget import Budget
from dra.objects import DeviceQuota, Pod, PodGroup, ResourceClaimTemplate
from dra.raw import Object, inside
from dra.server import known_gates
from webhook import names
from webhook.state import Configuration, Features, KubernetesSettings, Mode, with_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from allocator.pods import Amounts
    from allocator.reservations import events
    from analysis.loading.objects import ObjectIdentity
    from dra.stock import PoolId, Stock
    from webhook.state import State

_MAX_OWNERS = 8
# For commands that do not need the configuration and so do not read it.
NO_CONFIGURATION: Final = ConfigurationInForce(Configuration())


class ServerSource(StrEnum):
    """Where the server's version and feature gates come from."""

    OPTIONS = "options"
    CONFIGURATION = "configuration"
    CLUSTER = "cluster"
    UNDECLARED = "undeclared"


class AssumedServer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The server that the answer is for. Feature gates that are not declared are assumed on."""

    kubernetes: str
    features: dict[str, bool]
    source: ServerSource


class Reading(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What was read from a cluster or from files, and what was not. Derived values are computed once."""

    # The stored JSON: all objects of files; those of a cluster without the pods that the command does not ask about.
    objects: tuple[Object, ...]
    typed: TypedObjects  # includes the pods that `objects` lacks
    features: Features
    server_source: ServerSource = ServerSource.UNDECLARED  # where `features` is from
    server: ServerInfo | None = None  # None for files
    in_force: ConfigurationInForce = NO_CONFIGURATION
    unread: tuple[Unread, ...] = ()
    absent: frozenset[str] = frozenset()  # kinds that the server does not have
    skipped: tuple[SkippedFile, ...] = ()  # documents that are not manifests
    places: tuple[tuple[str, int], ...] = ()  # file and line of each object from a file
    documents: tuple[Document, ...] = ()  # of each object, for commands that judge or edit files
    # The server's objects that have settings of device plugins and autoscalers. For files, see `installed`.
    evidence: tuple[Object, ...] = ()
    made: tuple[Object, ...] = ()  # what generators and charts of the files make (`analysis.gitops.made`)
    narrow: bool = False  # namespaced kinds were read in one namespace only
    read_at: datetime = msgspec.field(default_factory=partial(datetime.now, UTC))

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self.in_force.configuration

    @property
    def is_live(self) -> bool:
        """Whether the objects come from a live cluster."""
        return self.server is not None

    @property
    def is_dump(self) -> bool:
        """Whether some of the objects come from a server, so that others may exist there: a missing kind may have been left out."""
        return any(inside(obj, "metadata").get("uid") for obj in self.objects)

    @cached_property
    def time(self) -> datetime:
        """When the objects were as they are here: now, or when the dump was made."""
        if self.is_live:
            return self.read_at
        return time_of_dump(self.typed.of_type(Lease), self.typed.of_type(Event), self.read_at)

    @property
    def installed(self) -> tuple[Object, ...]:
        """The objects that may show how device plugins and autoscalers are set up."""
        return self.evidence if self.is_live else (*self.objects, *self.made)

    def of_kinds(self, *kinds: str) -> list[Object]:
        """Return the objects of these kinds."""
        return [obj for obj in self.objects if obj.get("kind") in kinds]

    @property
    def pods(self) -> dict[str, Pod]:
        """The pods by namespace/name."""
        return self.typed.by_key(Pod)

    @property
    def templates(self) -> dict[str, ResourceClaimTemplate]:
        """The templates by namespace/name."""
        return self.typed.by_key(ResourceClaimTemplate)

    @property
    def quotas(self) -> list[DeviceQuota]:
        """The quotas of drawbridge."""
        return self.typed.of_type(DeviceQuota)

    @cached_property
    def raw(self) -> dict[str, Object]:
        """The JSON of pods, including pods that cannot be decoded; from a live cluster, only the pods that the command asks about."""
        return {"/".join(identity_of(obj)[2:]): obj for obj in self.objects if is_pod(obj)}

    @property
    def non_pods(self) -> list[Object]:
        """The JSON of all objects except pods."""
        return [obj for obj in self.objects if not is_pod(obj)]

    @cached_property
    def stock(self) -> Stock:
        """The stock with all claims."""
        return self.typed.stock(self.features.server)

    def of_documents(self, documents: Sequence[Document], inventory: Sequence[Document]) -> Reading:
        """Return a reading of these documents, and of the `inventory` without the objects that the documents replace."""
        all_documents = (*not_replaced(inventory, documents), *documents)
        if len(all_documents) == len(self.documents) and all(map(is_, all_documents, self.documents)):
            return self
        reading = reading_of_documents(documents, inventory, self.features, self.in_force)
        return replace(reading, skipped=self.skipped, made=self.made)

    def with_types(self, objects: dict[type[Any], dict[str, Any]]) -> Reading:
        """Return this reading with the objects of some types replaced. `objects` has them by type and namespace/name.

        The computed stock is kept if it does not depend on these types.
        """
        changed = replace(self, typed=self.typed.with_types(objects))
        if objects.keys().isdisjoint(IN_STOCK):
            changed.__dict__["stock"] = self.stock
        return changed

    @cached_property
    def signing_keys(self) -> tuple[bytes, ...]:
        """The signing keys, if their Secret was read. They verify the records on pods."""
        return signing_keys_among(self.objects)

    @property
    def knows_pods(self) -> bool:
        """Whether all pods were read: false for a dump without pods, and if only one namespace was read."""
        is_complete = not self.narrow and all(missed.kind != "pods" for missed in self.unread)
        return is_complete and (bool(self.pods) or self.is_live)

    @property
    def knows_claims(self) -> bool:
        """Whether the claims of all namespaces were read, so that free devices are known."""
        return all(missed.kind != resources.RESOURCE_CLAIMS.id for missed in self.unread)

    def find_pod(self, namespace: str, name: str) -> Pod | None:
        """Return a pod; None if it was not read."""
        return self.pods.get(f"{namespace}/{name}")

    @property
    def groups(self) -> dict[str, PodGroup]:
        """The PodGroups, by namespace/name."""
        return self.typed.by_key(PodGroup)

    @cached_property
    def living(self) -> set[str]:
        """The uids of pods that have not ended."""
        return {pod.metadata.uid for pod in self.pods.values() if not pod.has_ended}

    @cached_property
    def used(self) -> dict[str, Amounts]:
        """The total requests of the pods on each node."""
        return total(self.pods.values())

    @cached_property
    def running(self) -> tuple[Pod, ...]:
        """The pods that have a node and have not ended."""
        return tuple([pod for pod in self.pods.values() if pod.spec.node_name and not pod.has_ended])

    @cached_property
    def decider(self) -> Decider:
        """A decider, which caches facts about the stock between answers."""
        return Decider()

    @cached_property
    def memo(self) -> FleetMemo:
        """Cached results of judgements about the idle fleet."""
        return FleetMemo()

    @cached_property
    def derived(self) -> dict[object, Any]:
        """What other modules have derived from the reading, each by a key of its own."""
        return {}

    @cached_property
    def youngest_tried(self) -> dict[str, str]:
        """The newest creation time of the pods that each scheduler has tried to place."""
        youngest: dict[str, str] = {}
        for pod in self.pods.values():
            if pod.spec.node_name or any(condition.type == "PodScheduled" for condition in pod.status.conditions):
                name, born = pod.spec.scheduler_name or "default-scheduler", pod.metadata.creation_timestamp
                youngest[name] = max(youngest.get(name, ""), born)
        return youngest

    @cached_property
    def events_of(self) -> dict[tuple[str, str, str], list[Event]]:
        """The events by the kind, namespace and name of their object."""
        by_object: defaultdict[tuple[str, str, str], list[Event]] = defaultdict(list)
        for event in self.typed.of_type(Event):
            about = event.involved_object
            by_object[about.kind, about.namespace or "default", about.name].append(event)
        return by_object

    @cached_property
    def overlaps(self) -> Callable[[tuple[PoolId, ...]], tuple[events.Overlapped, ...]]:
        """A function to the sets of claims whose allocations in some pools conflict."""
        return cache(partial(overlaps, self.stock))

    @cached_property
    def _by_name(self) -> dict[ObjectIdentity, Object]:
        return {identity_of(obj): obj for obj in self.objects}

    @cached_property
    def work(self) -> Budget:
        """Counts the steps for finding the claims that block pods, without a limit."""
        return Budget()

    @cached_property
    def state(self) -> State:
        """The state of a webhook with the configuration in force."""
        from analysis.loading.webhook_state import state_of

        return state_of(self)

    @cached_property
    def enforcing(self) -> State:
        """The state of such a webhook in mode `enforce` everywhere."""
        return with_mode(self.state, Mode.ENFORCE)

    def owners(self, obj: Object) -> tuple[str, ...]:
        """List the owners of an object, nearest first, as far as they were read."""
        itself = identity_of(obj)
        chain = self.owner_chain(owner_of(obj))
        return tuple([f"{owner.kind} {owner.name}" for owner in chain if owner != itself])

    def owner_chain(self, owner: ObjectIdentity | None) -> list[ObjectIdentity]:
        """Return an owner and its owners, nearest first, as far as they were read; a cycle ends the list."""
        chain: list[ObjectIdentity] = []
        while owner is not None and owner not in chain and len(chain) < _MAX_OWNERS:
            chain.append(owner)
            above = self._by_name.get(owner)
            owner = owner_of(above) if above is not None else None
        return chain


def reading_of_documents(
    documents: Sequence[Document], inventory: Sequence[Document], features: Features, in_force: ConfigurationInForce
) -> Reading:
    """Make a reading of documents, and of the `inventory` without the objects that the documents replace."""
    all_documents = (*not_replaced(inventory, documents), *documents)
    reading = reading_of(
        (document.object for document in all_documents),
        features,
        in_force=in_force,
        places=tuple(document.origin for document in all_documents),
        pods=False,
    )
    return replace(reading, documents=all_documents)


def not_replaced(existing: Sequence[Document], documents: Sequence[Document]) -> list[Document]:
    """Return the inventory without the objects that these documents would replace."""
    from dra.validation import name

    replaced = {name(document.object) for document in documents} if existing else ()
    return [document for document in existing if name(document.object) not in replaced]


def signing_keys_among(objects: Iterable[Object]) -> tuple[bytes, ...]:
    """Return the signing keys, if their Secret is among the objects. They verify the records on pods."""
    from certs import material

    for obj in objects:
        if obj.get("kind") != "Secret" or inside(obj, "metadata").get("name") != f"{names.NAME}-signature":
            continue
        signing: dict[str, bytes] = {}
        for name, value in inside(obj, "data").items():
            try:
                signing[str(name)] = b64decode(str(value), validate=True)
            except (NotBase64, ValueError):
                continue
        return material.decode(material.Data(signing=signing)).signing_keys.keys
    return ()


def reading_of(
    objects: Iterable[Object | Any],
    features: Features,
    *,
    unread: Iterable[Unread] = (),
    server: ServerInfo | None = None,
    in_force: ConfigurationInForce = NO_CONFIGURATION,
    places: tuple[tuple[str, int], ...] = (),
    pods: bool = True,
) -> Reading:
    """Make a reading of JSON objects and decoded ones. If two have the same kind and name, the later one counts.

    Without `pods`, which saves memory, pods are decoded only if the configuration has `mixed`, which counts what they use.
    """
    all_objects = list(objects)
    typed = TypedObjects.read(all_objects, pods=pods or bool(in_force.configuration.file.mixed))
    return Reading(
        objects=tuple(obj for obj in all_objects if isinstance(obj, dict)),
        typed=typed,
        features=features,
        server_source=ServerSource.UNDECLARED if server is None else ServerSource.CLUSTER,
        server=server,
        in_force=in_force,
        unread=(
            *unread,
            *(
                unread_of(all_objects[number], error, places[number] if places else None)
                for number, error in typed.unreadable
            ),
        ),
        places=places,
    )


def for_server(
    reading: Reading, kubernetes: str, feature_gates: str, configuration: Configuration | None = None
) -> Reading:
    """Return the reading as for the server of the options, else as for the server of the configuration, else unchanged.

    Feature gates without a version apply to the version of the live cluster. The gates of a live cluster are not read,
    because that would require more rights.
    """
    if kubernetes or feature_gates:
        version = kubernetes
        if reading.is_live and not kubernetes:
            version = f"1.{reading.features.minor}"
        features = features_of(server_named(version, feature_gates))
        server_source = ServerSource.OPTIONS
    elif configuration is None or configuration.file.kubernetes == KubernetesSettings():
        return reading
    else:
        declared = configuration.file.kubernetes.declared()
        features = reading.features.as_declared(declared) if reading.is_live else features_of(None, configuration)
        server_source = ServerSource.CONFIGURATION
    return replace(reading, features=features, server_source=server_source)


def assumed_server(reading: Reading) -> AssumedServer:
    """Return the server for which the stock was read. A cluster newer than the known versions keeps its version number."""
    server = reading.stock.reading.server
    gates = {gate: server.enabled(gate) for gate in sorted(known_gates(server.minor))}
    return AssumedServer(kubernetes=f"1.{reading.features.minor}", features=gates, source=reading.server_source)
