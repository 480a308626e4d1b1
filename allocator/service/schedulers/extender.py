"""The HTTP extender of a stock kube-scheduler (k8s.io/kube-scheduler/extender/v1), nodeCacheCapable, with DynamicResources off.

One decision answers a filter call for all nodes. A bind call reserves the devices, writes the claims and binds the pod. Filter reports
refused nodes as "unresolvable", because the scheduler's own preemption does not see devices. The field names are those of the Go structs,
which have no JSON tags. If the allocator cannot decide (another replica leads, or the cluster is not read yet), the answer is an `Error`,
and the scheduler retries the pod by itself.
"""

from __future__ import annotations

from collections import OrderedDict
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from allocator.decisions import Outlook
from allocator.service.app import Endpoint, HttpError, json, read_as
from cluster.errors import ApiError
from cluster.resources import PODS
from dra.objects import ObjectMeta, Pod
from dra.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from allocator.service.allocator import Allocator
    from allocator.service.metrics import Metrics
    from allocator.service.pending_pods import PendingPods
    from allocator.service.preemption.extender_preemption import ExtenderPreemption
    from cluster.protocol import Cluster
    from runtime.http import Reply

# Filter answers whose scores are kept for prioritize. A scheduler handles one pod at a time and calls prioritize right after filter.
MAX_REMEMBERED = 64
MAX_SCORE = 10  # the highest score of an extender
# Nothing is reserved between filter and bind. So members of a PodGroup that fit one by one may not fit together, and only some would be
# bound.
GROUPED = "node(s) excluded: the pod belongs to PodGroup {}, which an extender could place only in part: use the plugin's scheduler or the default one"
# Outcomes of bind. After a conflict (another pod got the devices or the quota since filter) the scheduler schedules the pod again.
BOUND, CONFLICT, FAILED = "bound", "conflict", "failed"
WRITING_SECONDS = 60.0  # for writing the claims, in addition to the wait for devices


class ExtenderArgs(Wire, frozen=True, kw_only=True):
    pod: Pod = msgspec.field(name="Pod")
    node_names: tuple[str, ...] | None = msgspec.field(name="NodeNames", default=None)


class NamedPod(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


class ScoreArgs(Wire, frozen=True, kw_only=True):
    """The fields of a prioritize call that the answer needs. The whole pod was in the filter call."""

    pod: NamedPod = msgspec.field(name="Pod")
    node_names: tuple[str, ...] = msgspec.field(name="NodeNames", default=())


class BindingArgs(Wire, frozen=True, kw_only=True):
    pod_name: str = msgspec.field(name="PodName")
    pod_namespace: str = msgspec.field(name="PodNamespace")
    pod_uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class Extender:
    """Answers the calls of a stock scheduler."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        allocator: Allocator,
        pods: PendingPods,
        preemption: ExtenderPreemption,
        metrics: Metrics,
    ) -> None:
        self._cluster = cluster
        self._allocator = allocator
        self._pods = pods
        self._metrics = metrics
        self._preemption = preemption
        self._scores: OrderedDict[str, Mapping[str, int]] = OrderedDict()  # by uid of the pod

    async def filter(self, args: ExtenderArgs) -> Reply:
        names, pod = args.node_names, args.pod
        if names is None:
            return _filter_reply(error="configure the extender with nodeCacheCapable: true")
        uid = pod.metadata.uid
        try:
            _, fleet_outlook = await self._allocator.outlook(pod, token=_token(uid))
        except HttpError as refusal:
            return _filter_reply(error=refusal.message)
        if fleet_outlook.outlook is Outlook.SKIP:
            return _filter_reply(names)
        group = pod.spec.scheduling_group
        if group is not None:
            group_reason = GROUPED.format(group.pod_group_name)
            return _filter_reply((), dict.fromkeys(names, group_reason))
        if fleet_outlook.outlook is Outlook.UNDECIDED and not fleet_outlook.nodes:
            return _filter_reply(error=fleet_outlook.message)
        self._scores.pop(uid, None)
        if len(set(fleet_outlook.nodes.values())) > 1:  # equal scores need not be kept
            self._scores[uid] = fleet_outlook.nodes
            while len(self._scores) > MAX_REMEMBERED:
                self._scores.popitem(last=False)
        fitting = [name for name in names if name in fleet_outlook.nodes]
        if fitting:
            return _filter_reply(fitting)  # if a node fits, the scheduler does not read the reasons of other nodes
        if deallocation_reason := self._allocator.take_back_elsewhere(pod, names):
            return _filter_reply((), dict.fromkeys(names, f"node(s) excluded: {deallocation_reason}"))
        self._preemption.note(pod, names, fleet_outlook)
        by_node = {name: hindrance.message for hindrance in fleet_outlook.hindrances for name in hindrance.nodes}
        default_reason = f"node(s) excluded: {fleet_outlook.message or 'no devices for the claims'}"
        return _filter_reply((), {name: by_node.get(name, default_reason) for name in names})

    def prioritize(self, args: ScoreArgs) -> Reply:
        uid = args.pod.metadata.uid
        percents = self._scores.get(uid, {})
        scores: list[dict[str, object]] = []
        for name in args.node_names:
            # Equal nodes get a score, too: the scheduler breaks ties randomly only among nodes that an extender has scored. Without a
            # score, pods that arrive together would all go to the first node.
            score = round(percents.get(name, 0) * MAX_SCORE / 100)
            scores.append({"Host": name, "Score": score})
        return json(scores)

    def preempt(self) -> Reply:
        """Offer no node, because the scheduler does not know that an eviction frees devices. `ExtenderPreemption` chooses victims."""
        return json({"NodeNameToMetaVictims": {}})

    async def bind(self, args: BindingArgs) -> Reply:
        outcome = FAILED
        problem = ""
        try:
            await self._bind(args)
            outcome = BOUND
        except HttpError as refusal:
            problem = refusal.message
            if refusal.status == HTTPStatus.CONFLICT:
                outcome = CONFLICT
        except ApiError as error:
            problem = f"the pod could not be bound: {error}"
        finally:
            self._metrics.binds.labels(outcome).inc()
        return json({"Error": problem})

    async def _bind(self, args: BindingArgs) -> None:
        """Reserve devices, write the claims, wait for the devices, and bind the pod. Release the reservation if a step fails."""
        token = _token(args.pod_uid)
        self._scores.pop(args.pod_uid, None)
        pod = self._pods.find(args.pod_uid)
        if pod is None:  # the informer may not have shown the pod yet
            pod = await self._cluster.get(PODS, args.pod_name, args.pod_namespace)
            if pod.metadata.uid != args.pod_uid:
                raise HttpError(HTTPStatus.CONFLICT, "another pod of the same name has replaced the pod")
        if self._allocator.adopt(token, pod):
            await self._allocator.reserve(token, args.node)
            try:
                progress = await self._allocator.commit(token, WRITING_SECONDS + self._allocator.binding_seconds)
            except BaseException:
                self._allocator.release(token)
                raise
            if not progress.committed:
                self._allocator.release(token)
                raise HttpError(HTTPStatus.CONFLICT, progress.message)
        try:
            await self._cluster.bind(args.pod_name, args.pod_namespace, args.node, uid=args.pod_uid)
        except ApiError:
            self._allocator.release(token)
            raise


def _token(uid: str) -> str:
    """Return the token of a pod. It is derived from the uid, because filter cannot pass a token to bind."""
    return f"extender-{uid}"


def _filter_reply(fitting: Sequence[str] = (), failed: Mapping[str, str] | None = None, error: str = "") -> Reply:
    answer = {"NodeNames": fitting, "FailedAndUnresolvableNodes": failed or {}, "Error": error}
    return json(answer)


EXTENDER_ENDPOINTS = (
    Endpoint(
        "POST",
        "/extender/filter",
        Extender.filter,
        "returns the nodes that fit; if none fits, the reason for each node",
        read_as(ExtenderArgs),
    ),
    Endpoint("POST", "/extender/prioritize", Extender.prioritize, "returns the scores of nodes", read_as(ScoreArgs)),
    Endpoint("POST", "/extender/bind", Extender.bind, "reserves, commits and binds in one call", read_as(BindingArgs)),
    Endpoint("POST", "/extender/preempt", Extender.preempt, "returns no node; see [Preemption](#preemption)"),
)
