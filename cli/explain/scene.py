"""Everything that was read, as one value: a stock with all claims, the pods, and what cannot be read, by name. Pure.

Objects come from a cluster or from files, in any order, and are not trusted: one that is not what its kind says is named and left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cli.configuration import features_of, server_named
from cli.devices import read_object
from cli.explain.stories import MeantBy, ServerMeant
from cli.survey import Gathered, Unread, owner_of, who
from dra.objects import DeviceQuota, Pod, ResourceClaim, ResourceClaimTemplate
from dra.server import known_gates
from dra.stock import Stock
from dra.wire import WireError
from webhook.state import Features, Kubernetes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cluster.server import Server
    from webhook.state import Configuration

    _Object = dict[str, Any]

_MOST_OWNERS = 8
# What says nothing here, and is most of a dump.
_BOOKKEEPING = "managedFields"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What there is. Pods, claims and templates are keyed by namespace/name."""

    stock: Stock
    pods: dict[str, Pod]
    templates: dict[str, ResourceClaimTemplate]
    quotas: tuple[DeviceQuota, ...]
    gathered: Gathered
    features: Features
    # The raw objects of pods that stand in files; of a cluster's only the one that is asked about.
    raw: dict[str, _Object]
    unread: tuple[Unread, ...] = ()
    seals: tuple[bytes, ...] = ()
    # Who says which server all this is read for.
    said_by: MeantBy = MeantBy.NOBODY

    @property
    def is_live(self) -> bool:
        """Whether it was read from a server."""
        return self.gathered.server is not None

    @property
    def knows_pods(self) -> bool:
        """Whether it can say which pods there are: a dump without any cannot, nor who may read those of one namespace only."""
        whole = all(one.kind != "pods" for one in self.unread)
        return whole and (bool(self.pods) or self.is_live)

    def find_pod(self, namespace: str, name: str) -> Pod | None:
        """Look up a pod."""
        return self.pods.get(f"{namespace}/{name}")

    def living(self) -> set[str]:
        """The uids of the pods that are not finished."""
        return {pod.metadata.uid for pod in self.pods.values() if not pod.has_ended}

    def owners(self, obj: _Object) -> tuple[str, ...]:
        """Follow who made an object, as far as that was read; owners that own each other are named once."""
        by_name = {who(one): one for one in self.gathered.objects}
        chain: list[str] = []
        seen = {who(obj)}
        owner = owner_of(obj)
        while owner is not None and owner not in seen and len(chain) < _MOST_OWNERS:
            seen.add(owner)
            chain.append(f"{owner.kind} {owner.name}")
            above = by_name.get(owner)
            owner = owner_of(above) if above is not None else None
        return tuple(chain)


def trim(obj: _Object) -> _Object:
    """Leave out of an object what nobody asks for here, before it is kept."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return obj
    kept = {**metadata}
    kept.pop(_BOOKKEEPING, None)
    annotations = kept.get("annotations")
    if isinstance(annotations, dict):
        kept["annotations"] = {name: value for name, value in annotations.items() if name != _APPLIED}
    return {**obj, "metadata": kept}


def scene_of(
    objects: Iterable[_Object],
    features: Features,
    *,
    unread: Iterable[Unread] = (),
    server: Server | None = None,
    raw: Collection[str] | None = None,
    seals: tuple[bytes, ...] = (),
) -> Scene:
    """Read objects; of two that share kind and name the later one counts. `raw` names the pods whose raw objects are kept, None all."""
    objects_of: dict[str, dict[str, Any]] = {}
    kept: list[_Object] = []
    raw_pods: dict[str, _Object] = {}
    missed = list(unread)
    for obj in objects:
        try:
            read = read_object(obj)
        except WireError as error:
            missed.append(Unread(_name(obj), str(error)))
            continue
        if read is None:
            kept.append(obj)
            continue
        key = _key(read)
        of_kind = objects_of.setdefault(read.kind, {})
        of_kind[key] = read
        if not isinstance(read, Pod):
            kept.append(obj)
        elif raw is None or read.metadata.name in raw:
            raw_pods[key] = obj
    return Scene(
        stock=_stock(objects_of, features),
        pods=objects_of.get("Pod", {}),
        templates=objects_of.get("ResourceClaimTemplate", {}),
        quotas=tuple(objects_of.get("DeviceQuota", {}).values()),
        gathered=Gathered(objects=tuple(kept), server=server),
        features=features,
        said_by=MeantBy.NOBODY if server is None else MeantBy.CLUSTER,
        raw=raw_pods,
        unread=tuple(missed),
        seals=seals,
    )


def for_server(scene: Scene, kubernetes: str, feature_gates: str, configuration: Configuration | None = None) -> Scene:
    """Read what there is as the server does that was named, or declared; gates alone change a cluster that is read, not the newest version.

    Which gates a live cluster has is not asked: that takes rights that an explanation does not need.
    """
    version = kubernetes
    if scene.is_live and not kubernetes:
        version = f"1.{scene.features.minor}"
    if kubernetes or feature_gates:
        server = server_named(version, feature_gates)
        named = features_of(server)
        return _read_as(scene, named, MeantBy.OPTIONS)
    if configuration is None or configuration.file.kubernetes == Kubernetes():
        return scene
    declared = configuration.file.kubernetes.said()
    features = scene.features.as_declared(declared) if scene.is_live else features_of(None, configuration)
    return _read_as(scene, features, MeantBy.CONFIGURATION)


def _read_as(scene: Scene, features: Features, said_by: MeantBy) -> Scene:
    stock = scene.stock.as_read_by(features.server)
    return msgspec.structs.replace(scene, stock=stock, features=features, said_by=said_by)


def meant(scene: Scene) -> ServerMeant:
    """Say which server the stock was read as."""
    server = scene.stock.reading.server
    gates = {gate: server.on(gate) for gate in sorted(known_gates(server.minor))}
    # Of a cluster that is newer than what is known here its own version is told.
    minor = scene.features.minor
    return ServerMeant(kubernetes=f"1.{minor}", features=gates, said_by=scene.said_by)


def _stock(objects_of: dict[str, dict[str, Any]], features: Features) -> Stock:
    def all_of(kind: str) -> Iterable[Any]:
        return objects_of.get(kind, {}).values()

    return Stock.of(
        slices=all_of("ResourceSlice"),
        classes=all_of("DeviceClass"),
        nodes=all_of("Node"),
        rules=all_of("DeviceTaintRule"),
        compatibilities=all_of("DeviceCompatibility"),
        claims=map(_identified, all_of("ResourceClaim")),
        server=features.server,
    )


def _identified(claim: ResourceClaim) -> ResourceClaim:
    """Give a claim that no API server has seen an identity: its name."""
    if claim.metadata.uid:
        return claim
    metadata = msgspec.structs.replace(claim.metadata, uid=claim.metadata.key)
    return msgspec.structs.replace(claim, metadata=metadata)


def _key(read: Any) -> str:
    named: str = read.metadata.key
    return named


def _name(obj: _Object) -> str:
    name = who(obj)
    return f"{name.kind} {name.namespace}/{name.name}"
