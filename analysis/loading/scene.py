"""A cluster or files as typed values: a stock with all claims, the pods, quotas and templates.

Objects are not trusted: those that cannot be read as their kind, and kinds that may not be read, are listed in `unread` and
left out. Nothing is written to the cluster.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from allocator.decisions import Decider
from allocator.pods import total
from allocator.reservations import events, overlaps
from analysis.configuration import ConfigurationInForce, features_of, server_named
from analysis.loading.files import read_files, warn_of_skipped
from analysis.loading.live import Visit, configuration_of_cluster, look_around
from analysis.loading.objects import KINDS, Gathered, Unread, identity_of, owner_of, unread_of, without_bookkeeping
from analysis.loading.typed import GeneratedNames, TypedObjects, is_pod
from cluster import resources
from dra.objects import DeviceQuota, Pod, ResourceClaimTemplate
from dra.raw import Object, inside
from dra.server import known_gates
from dra.stock import Stock
from rendering.output import progress
from webhook import names
from webhook.state import Configuration, Features, KubernetesSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from allocator.pods import Amounts
    from analysis.loading.live import ReportProgress
    from analysis.loading.objects import ObjectIdentity
    from analysis.outlook import Queue
    from cluster.protocol import Cluster
    from cluster.resources import Resource
    from cluster.server import ServerInfo
    from dra.stock import PoolId
    from webhook.state import State

_MOST_OWNERS = 8
trim = without_bookkeeping
# For commands that decide nothing by the configuration: it is not looked for.
NO_CONFIGURATION: Final = ConfigurationInForce(Configuration())


class MeantBy(StrEnum):
    """Where the server's version and feature gates come from."""

    OPTIONS = "options"
    CONFIGURATION = "configuration"
    CLUSTER = "cluster"
    UNDECLARED = "nobody"  # a stable name of the JSON output


class ServerMeant(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The server that the answer is for. Feature gates that are not declared count as on."""

    kubernetes: str
    features: dict[str, bool]
    said_by: MeantBy


class Scene(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The typed input of a report. Pods and templates are keyed by namespace/name. Derived values are computed once."""

    stock: Stock
    pods: dict[str, Pod]
    templates: dict[str, ResourceClaimTemplate]
    quotas: tuple[DeviceQuota, ...]
    others: TypedObjects
    gathered: Gathered
    features: Features
    # Raw pods: of files all, also those that cannot be decoded; of a cluster those that the command asks about.
    raw: dict[str, Object]
    unread: tuple[Unread, ...] = ()
    seals: tuple[bytes, ...] = ()
    said_by: MeantBy = MeantBy.UNDECLARED  # the source of `features`
    in_force: ConfigurationInForce = NO_CONFIGURATION

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self.in_force.configuration

    @property
    def is_live(self) -> bool:
        """Whether the objects come from a live cluster."""
        return self.gathered.server is not None

    @property
    def knows_pods(self) -> bool:
        """Whether all pods were read: false for a dump without pods, and for rights in one namespace only."""
        whole = all(one.kind != "pods" for one in self.unread)
        return whole and (bool(self.pods) or self.is_live)

    @property
    def knows_claims(self) -> bool:
        """Whether the claims of all namespaces were read, so that free devices are known."""
        return all(one.kind != resources.RESOURCE_CLAIMS.id for one in self.unread)

    def find_pod(self, namespace: str, name: str) -> Pod | None:
        """Return a pod, if it was read."""
        return self.pods.get(f"{namespace}/{name}")

    @property
    def every(self) -> TypedObjects:
        """All objects that were read."""
        return self.others.with_types({Pod: self.pods, ResourceClaimTemplate: self.templates})

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
    def idle(self) -> Stock:
        """The stock with all devices free."""
        return self.stock.idle()

    @cached_property
    def decider(self) -> Decider:
        """A decider, which caches facts about the stock between answers."""
        return Decider()

    @cached_property
    def _overlaps(self) -> dict[tuple[PoolId, ...], tuple[events.Overlapped, ...]]:
        return {}

    def overlaps(self, pools: tuple[PoolId, ...]) -> tuple[events.Overlapped, ...]:
        """Return claims that hold the same devices of these pools, although only one may."""
        known = self._overlaps.get(pools)
        if known is None:
            known = self._overlaps[pools] = overlaps(self.stock, pools)
        return known

    @cached_property
    def _by_name(self) -> dict[ObjectIdentity, Object]:
        return {identity_of(one): one for one in self.gathered.objects}

    @cached_property
    def _states(self) -> list[tuple[Configuration, State]]:
        return []

    @cached_property
    def queues(self) -> list[tuple[Configuration, Queue]]:
        """Where `analysis.outlook` has placed the waiting pods, by configuration."""
        return []

    def state(self, configuration: Configuration) -> State:
        """Return the state of a webhook with this configuration."""
        from analysis.loading.webhook_state import state_of

        for known, state in self._states:
            if known is configuration:
                return state
        state, _ = state_of(self.gathered, configuration, self.features, self.every)
        self._states.append((configuration, state))
        return state

    def owners(self, obj: Object) -> tuple[str, ...]:
        """List the owners of an object, nearest first, as far as they were read; cycles end."""
        chain: list[str] = []
        identities = {identity_of(obj)}
        owner = owner_of(obj)
        while owner is not None and owner not in identities and len(chain) < _MOST_OWNERS:
            identities.add(owner)
            chain.append(f"{owner.kind} {owner.name}")
            above = self._by_name.get(owner)
            owner = owner_of(above) if above is not None else None
        return tuple(chain)


def read_dump(files: Sequence[str], given: ConfigurationInForce | None = NO_CONFIGURATION) -> Scene:
    """Read files; manifests that cannot be read are reported, and the rest is used. `given` is the configuration of `--config`."""
    read = read_files(files, keep=trim, given=given)
    warn_of_skipped(read.skipped)
    objects = [document.object for document in read.documents]
    return scene_of(objects, features_of(None), seals=seals_among(objects), in_force=read.in_force)


def visit(
    kubeconfig: str,
    context: str,
    *,
    namespace: str = "",
    keep: Callable[[Pod], bool] = lambda _: False,
    kinds: Sequence[Resource[Any]] = KINDS,
    page: str = "docs/explain.md",
    given: ConfigurationInForce | None = NO_CONFIGURATION,
) -> Scene:
    """Read the cluster that kubectl talks to.

    `keep` selects the pods whose raw object is kept; `page` is the docs page with the necessary rights; `given` is the configuration of
    `--config`.
    """
    from analysis import loop

    async def look(cluster: Cluster) -> Scene:
        with progress() as report_progress:
            return await look_at(cluster, report_progress, namespace=namespace, keep=keep, kinds=kinds, given=given)

    return loop.visit(kubeconfig, context, look, page)


async def look_at(
    cluster: Cluster,
    report_progress: ReportProgress = lambda _: None,
    *,
    namespace: str = "",
    keep: Callable[[Pod], bool] = lambda _: False,
    kinds: Sequence[Resource[Any]] = KINDS,
    given: ConfigurationInForce | None = NO_CONFIGURATION,
) -> Scene:
    """Read a cluster. Kinds that may only be read in `namespace` are read there, and stay in `unread`."""
    server = await cluster.server(probe=False)
    in_force = await configuration_of_cluster(cluster, given)
    everywhere = await _read(cluster, None, report_progress, kinds)
    objects, unread = everywhere.objects, everywhere.unread
    if namespace:
        missed = {one.kind for one in unread}
        inside_one = [kind for kind in kinds if kind.namespaced and kind.id in missed]
        in_namespace = await _read(cluster, namespace, report_progress, inside_one)
        objects += in_namespace.objects
        unread += [Unread(f"{one.kind} in {namespace}", one.reason) for one in in_namespace.unread]
    features = Features.combine(server.minor, server.gates)
    around, forbidden = await look_around(cluster, in_force.configuration.file.evidence.namespaces)
    scene = scene_of(objects, features, unread=[*unread, *forbidden], server=server, raw=keep, in_force=in_force)
    return replace(scene, gathered=replace(scene.gathered, evidence=around))


async def _read(
    cluster: Cluster, where: str | None, report_progress: ReportProgress, wanted: Iterable[Resource[Any]]
) -> Visit[Object]:
    """Read kinds in sequence: their order matters (`KINDS`)."""
    looking = Visit(cluster, where, report_progress, trim)
    for kind in wanted:
        await looking.read((kind,))
    return looking


def seals_among(objects: Iterable[Object]) -> tuple[bytes, ...]:
    """Return the keys of the seal if their Secret is among the objects; with them records on pods can be verified."""
    from certs import material

    for obj in objects:
        if obj.get("kind") != "Secret" or inside(obj, "metadata").get("name") != f"{names.NAME}-seal":
            continue
        sealing: dict[str, bytes] = {}
        for name, value in inside(obj, "data").items():
            try:
                sealing[str(name)] = b64decode(str(value), validate=True)
            except (NotBase64, ValueError):
                continue
        return material.decode(material.Data(sealing=sealing)).seals.keys
    return ()


def scene_of(
    objects: Iterable[Object],
    features: Features,
    *,
    unread: Iterable[Unread] = (),
    server: ServerInfo | None = None,
    raw: Callable[[Pod], bool] | None = None,
    seals: tuple[bytes, ...] = (),
    in_force: ConfigurationInForce = NO_CONFIGURATION,
) -> Scene:
    """Make a scene of objects; of two with the same kind and name the later one counts. `raw` selects the raw pods to keep (None: all)."""
    named = list(map(GeneratedNames().name, objects))
    typed = TypedObjects.read(named)
    missed = list(unread)
    bad: set[int] = set()
    raw_pods: dict[str, Object] = {}
    for number, error in typed.unreadable:
        missed.append(unread_of(named[number], error))
        bad.add(number)
        if is_pod(named[number]):
            raw_pods["/".join(identity_of(named[number])[2:])] = named[number]
    pods = typed.by_key(Pod)
    readable = [obj for number, obj in enumerate(named) if number not in bad]
    for obj in filter(is_pod, readable):
        key = "/".join(identity_of(obj)[2:])
        if raw is None or (key in pods and raw(pods[key])):
            raw_pods[key] = obj
    return Scene(
        stock=typed.stock(features.server),
        pods=pods,
        templates=typed.by_key(ResourceClaimTemplate),
        quotas=tuple(typed.of(DeviceQuota)),
        others=typed,
        gathered=Gathered(objects=tuple(obj for obj in readable if not is_pod(obj)), server=server),
        features=features,
        said_by=MeantBy.UNDECLARED if server is None else MeantBy.CLUSTER,
        raw=raw_pods,
        unread=tuple(missed),
        seals=seals,
        in_force=in_force,
    )


def for_server(scene: Scene, kubernetes: str, feature_gates: str, configuration: Configuration | None = None) -> Scene:
    """Return the scene as read by the server of the options, else of the configuration, else unchanged.

    Feature gates without a version apply to the version of the live cluster. A live cluster is not asked for its gates:
    that would need more rights.
    """
    if kubernetes or feature_gates:
        version = kubernetes
        if scene.is_live and not kubernetes:
            version = f"1.{scene.features.minor}"
        features = features_of(server_named(version, feature_gates))
        said_by = MeantBy.OPTIONS
    elif configuration is None or configuration.file.kubernetes == KubernetesSettings():
        return scene
    else:
        declared = configuration.file.kubernetes.declared()
        features = scene.features.as_declared(declared) if scene.is_live else features_of(None, configuration)
        said_by = MeantBy.CONFIGURATION
    stock = scene.stock.as_read_by(features.server)
    return replace(scene, stock=stock, features=features, said_by=said_by)


def server_meant(scene: Scene) -> ServerMeant:
    """Return the server that the stock was read for; for a cluster newer than the known versions, its own version."""
    server = scene.stock.reading.server
    gates = {gate: server.on(gate) for gate in sorted(known_gates(server.minor))}
    return ServerMeant(kubernetes=f"1.{scene.features.minor}", features=gates, said_by=scene.said_by)
