"""The API for people and other systems: how a pod would fare, which pod holds which device, what there is. It reads and changes nothing.

A question may take long, so a worker answers it: a copy of this process, which is ended when its time is over. No scheduler
waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from allocator import allocate
from allocator.answer import Verdict, as_granted
from allocator.decisions import Unreplaceable, plan_replacement, try_out
from allocator.pods import claim_obstacle, future_claims, reaches
from allocator.reports import DeviceState, node_report, shares
from allocator.service.app import Endpoint, HttpError, json, query, refuse, routes, whole
from allocator.service.settings import ANSWER_SECONDS
from cluster.manifests import ManifestError, parse
from dra.errors import QuantityError
from dra.objects import Pod, ResourceClaim, ResourceClaimTemplate, claim_names, results_of, template_site
from dra.pointer import split
from dra.quantity import Quantity
from dra.raw import Object
from dra.wire import WireError, convert
from runtime.http import Reply
from runtime.workers import Bug, Requester, Undecided, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from allocator.preemption import Victims
    from allocator.reports import Drift, NodeReport
    from allocator.service.app import Answering, Routes
    from allocator.service.knowledge import Knowledge
    from allocator.service.quota.quotas import QuotaLines
    from dra.stock import Stock
    from runtime.http import Head

logger = logging.getLogger("drawbridge.allocator")
# Legacy objects and the stock become translated objects, with their templates, and what was said about them.
Translate = Callable[[list[Object], "Stock"], tuple[list[Object], list[str]]]
PredictVictims = Callable[["Pod", "Sequence[ResourceClaim]", "Sequence[str]"], "Victims | None"]
WORKERS = 2
LARGEST = 1 << 20
MOST_OBJECTS = 64
MOST_AMOUNTS = 8
NODES_A_PAGE = 200


class Queries:
    """Answers the calls of the API."""

    def __init__(
        self,
        knowledge: Knowledge,
        translate: Translate | None,
        *,
        drift: Callable[[], Drift],
        quotas: Callable[[], list[Object]],
        is_written: Callable[[ResourceClaim], bool] = lambda _: True,
        predict_victims: PredictVictims | None = None,
        quota_lines: QuotaLines | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`drift` is what was found last, `quotas` what is used; `is_written` says whether the API server has a claim as it is shown.

        `predict_victims` names the pods that would have to be evicted for a pod. `quota_lines` says what claims would add to which lines.
        An answer takes `seconds` at most.
        """
        self._knowledge = knowledge
        self._drift = drift
        self._quotas = quotas
        self._is_written = is_written
        self._predict_victims = predict_victims
        self._quota_lines = quota_lines
        self._seconds = seconds
        self._translate = translate or (lambda objects, _: (objects, []))
        self._pool = WorkerPool(WORKERS, Reply)

    def aside(self, answer: Answering) -> Answering:
        """Have a worker answer a question."""

        async def ask(head: Head, body: bytes) -> Reply:
            if problem := self._knowledge.what_is_unread():
                raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, problem, "ask again in a moment")

            def decide(_: str, body: bytes) -> Reply:
                try:
                    reply = answer(head, body)
                    return reply if isinstance(reply, Reply) else asyncio.run(reply)
                except HttpError as refusal:
                    return refuse(refusal)

            try:
                return await self._pool.decide(
                    decide, None, head.path, body, self._seconds, requester=Requester(head.name, head.peer)
                )
            except Undecided as error:
                problem = f"the question was not answered: {error}"
                raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, problem, "ask for less, or again in a moment") from None
            except Bug as error:
                note = {"path": head.path, "exception": str(error)}
                logger.error("a bug while answering; please report it", extra=note)  # noqa: TRY400  the traceback is the worker's
                problem = "internal error, see the log of drawbridge"
                raise HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, problem, "try again") from None

        return ask

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def simulate(self, body: bytes) -> Reply:
        """Say how a pod would fare, with the claims and templates of the same documents, and which pods would have to be evicted for it."""
        stock = self._knowledge.stock
        objects, notes = self._translate(_sent(body), stock)
        templates = _by_key(objects, ResourceClaimTemplate)
        given = _by_key(objects, ResourceClaim)
        pod = _pod(objects)
        wanted = future_claims(pod, templates, stock.claims | given)
        unallocated = [claim for claim in wanted.claims if claim.status.allocation is None]
        may_go = reaches(pod)
        nodes = stock.nodes.items()
        reachable = [name for name, node in nodes if may_go(node) and not claim_obstacle(wanted.claims, node)]
        groups = () if wanted.missing else try_out(unallocated, stock, reachable)
        fits = [node for group in groups if group.verdict is Verdict.FEASIBLE for node in group.nodes]
        room: Victims | None = None
        if groups and not fits and self._predict_victims is not None:
            room = self._predict_victims(pod, unallocated, reachable)
        exceeded: Object | None = None
        if fits and self._quota_lines is not None:
            granted = as_granted(unallocated, allocate(stock, fits[0], unallocated))
            lines = self._quota_lines(pod, granted, stock)
            crossed = next((line for line in lines if line.exceeded), None)
            exceeded = {**crossed.facts(), "text": str(crossed)} if crossed else None
        if wanted.missing:
            verdict = "waiting"
        elif fits:
            verdict = "exceeded" if exceeded else "fits"
        else:
            undecided = any(group.verdict is Verdict.UNDECIDED for group in groups)
            verdict = "undecided" if undecided else "infeasible"
        answer = {
            "verdict": verdict,
            "nodes": fits,
            "exceeded": exceeded,
            "missing": list(wanted.missing),
            "notes": notes,
            "groups": [
                {
                    "verdict": str(group.verdict),
                    "count": len(group.nodes),
                    "nodes": group.nodes,
                    "devices": group.devices,
                    "stages": group.stages,
                    "error": group.error or None,
                }
                for group in groups
            ],
            "claims": [{"name": claim.metadata.key, "spec": claim.spec} for claim in wanted.claims],
            "room": None if room is None else {"node": room.node, "victims": [pod.metadata.key for pod in room.pods]},
        }
        return json(answer)

    def claims(self) -> Reply:
        """Say which claim holds which devices, and for which pods."""
        rows: list[Object] = []
        for key, claim in sorted(self._knowledge.stock.claims.items()):
            devices: list[Object] = []
            for result in results_of(claim):
                device: Object = {"driver": result.driver, "pool": result.pool, "device": result.device}
                if result.consumed_capacity:
                    device["share"] = result.consumed_capacity
                devices.append(device)
            row = {
                "claim": key,
                "devices": devices,
                "pods": [consumer.name for consumer in claim.status.reserved_for],
                "written": self._is_written(claim),
            }
            rows.append(row)
        return json({"claims": rows})

    def fleet(self) -> Reply:
        """Say what there is and how much of it is held, node by node and pool by pool."""
        stock = self._knowledge.stock
        rows: list[Object] = []
        with_devices: set[str] = set()
        with_holders: set[str] = set()
        for pool in sorted(stock.pages_of):
            pages, use = stock.newest_pages(pool), stock.use(pool)
            devices = [device.name for page in pages for device in page.devices]
            in_use = [device for device in devices if use.holds(device)]
            nodes = {page.node_name for page in pages if page.node_name}
            with_devices |= nodes
            if in_use:
                with_holders |= nodes
            driver, name = pool
            row = {
                "driver": driver,
                "pool": name,
                "nodes": sorted(nodes),
                "devices": len(devices),
                "held": len(in_use),
            }
            rows.append(row)
        idle = sorted(with_devices - with_holders)
        return json({"pools": rows, "nodesWithoutHolders": idle})

    def nodes(self, query: Mapping[str, str]) -> Reply:
        """Say what nodes have and what is left: in total, page by page, or device by device for `?node=NAME`."""
        stock = self._knowledge.stock
        # Pods that are bound and not finished, with claims of their own or such as stand for extended resources.
        pods_on: defaultdict[str, list[str]] = defaultdict(list)
        for pod in self._knowledge.pods.objects.values():
            if pod.spec.node_name and claim_names(pod) and not pod.has_ended:
                pods_on[pod.spec.node_name].append(pod.metadata.key)
        if "node" in query:
            name = query["node"]
            if name not in stock.nodes:
                raise HttpError(HTTPStatus.NOT_FOUND, f"node {name} does not exist", "GET /api/v1/nodes lists them")
            report = node_report(stock, name)
            return json(_node(report, sorted(pods_on[name])) | {"devices": report.devices})
        after = query.get("after", "")
        names = sorted(name for name in stock.nodes if name > after)
        rows: list[Object] = []
        for name in names[:NODES_A_PAGE]:
            report = node_report(stock, name)
            rows.append(_node(report, sorted(pods_on[name])))
        more = names[NODES_A_PAGE - 1] if len(names) > NODES_A_PAGE else None
        return json({"nodes": rows, "after": more})

    def allocations(self, query: Mapping[str, str]) -> Reply:
        """Say which pod has which share of which device: on `?node=NAME`, or of `?pod=NAMESPACE/NAME`."""
        if len(query.keys() & {"node", "pod"}) != 1:
            raise HttpError(
                HTTPStatus.BAD_REQUEST, "the query needs either node or pod", "say ?node=NAME or ?pod=NAMESPACE/NAME"
            )
        node, pod = query.get("node", ""), query.get("pod", "")
        pods = self._knowledge.pods.objects.values()
        rows = [
            share
            for share in shares(self._knowledge.stock, pods)
            if (share.node == node if node else f"{share.namespace}/{share.pod}" == pod)
        ]
        return json({"allocations": rows})

    def resize(self, body: bytes) -> Reply:
        """Say whether a claim could have other amounts, and how it would be replaced. Nothing is assumed."""
        try:
            resizing = msgspec.json.decode(body, type=_Resizing)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            remedy = 'send {"claim": "NAMESPACE/NAME", "request": "gpu", "capacity": {"memory": "30Gi"}}'
            raise HttpError(HTTPStatus.BAD_REQUEST, str(error), remedy) from None
        if not 0 < len(resizing.capacity) <= MOST_AMOUNTS:
            raise HttpError(
                HTTPStatus.BAD_REQUEST, f"1 to {MOST_AMOUNTS} amounts can be asked about at once", "name fewer"
            )
        try:
            amounts = {name: Quantity.parse(text) for name, text in resizing.capacity.items()}
            plan = plan_replacement(self._knowledge.stock, resizing.claim, resizing.request, amounts)
        except QuantityError as error:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(error), "an amount is a quantity, as 16Gi") from None
        except Unreplaceable as error:
            raise HttpError(HTTPStatus.CONFLICT, str(error), "GET /api/v1/claims lists what claims hold") from None
        steps: list[str] = []  # an allocation is written once, so a claim is replaced
        if plan.fits:
            steps.append("make a claim, or a template, with the spec that is in this answer")
            if plan.nodes_beside_old:
                steps.append("start a pod that uses it")
                steps.append("delete the old pod; its claim is deleted with it, or delete it then")
            else:
                steps.append("delete the old pod and its claim")
                steps.append(f"start a pod that uses the new one; it fits on {plan.node}")
        answer = {
            "fits": plan.fits,
            "node": plan.node,
            "beside": list(plan.nodes_beside_old),
            "largest": plan.largest,
            "claim": {"name": resizing.claim, "spec": plan.claim.spec},
            "steps": steps,
        }
        return json(answer)

    def drift(self) -> Reply:
        """Say what should not be: claims that hold the same, and what was left behind. Followers do not look."""
        found = self._drift()
        rows = {"overlapping": list(found.overlapping), "leftBehind": list(found.left_behind)}
        return json(rows | {"leading": found.leading})

    def server(self) -> Reply:
        """Say what the API server is taken to be: what it told, what was declared of it, and what is a guess."""
        known = self._knowledge.server
        read_as = self._knowledge.stock.reading.server
        rows = {
            "kubernetes": f"1.{known.minor}",
            "featureGates": sorted(read_as.gates),
            "told": dict(sorted(known.found.items())),
            "declared": known.assumed,
            "guessed": known.guessed,
            "doubts": known.doubts(),
        }
        return json(rows)

    def quota(self) -> Reply:
        """Say of each line of each quota how much is used, and how much is assumed beside it."""
        return json({"quotas": self._quotas()})


class _Resizing(msgspec.Struct, forbid_unknown_fields=True):
    """A claim, one of its requests, and the amounts that it would have."""

    claim: str
    request: str
    capacity: dict[str, str]


def _node(report: NodeReport, pods: list[str]) -> Object:
    return {
        "node": report.node,
        "free": report.count(DeviceState.FREE),
        "shared": report.count(DeviceState.SHARED),
        "held": report.count(DeviceState.HELD),
        "blocked": report.count(DeviceState.BLOCKED),
        "idle": report.is_idle,
        "models": list(report.models),
        "pods": pods,
        "capacity": report.capacity,
        "available": report.available,
    }


def _sent(body: bytes) -> list[Object]:
    """Read the objects of a question."""
    if len(body) > LARGEST:
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a pod has at most {LARGEST} bytes", "send less")
    try:
        sent = [document.object for document in parse(body, "the body")]
    except ManifestError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, str(error), "send a pod as YAML or JSON") from None
    if len(sent) > MOST_OBJECTS:
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MOST_OBJECTS} objects are read", "send fewer")
    for obj in sent:
        _metadata(obj)
    return sent


def _pod(objects: list[Object]) -> Pod:
    """Find the pod, or the template of one, in what was sent."""
    for obj in objects:
        site = template_site(obj)
        if site is None:
            continue
        template: Any = obj
        for step in split(site.path):
            template = template.get(step) if isinstance(template, dict) else None
        if not isinstance(template, dict):
            continue
        pod: Pod = _read({"metadata": _metadata(obj) | _metadata(template), "spec": template.get("spec") or {}}, Pod)
        return pod
    raise HttpError(HTTPStatus.BAD_REQUEST, "there is no pod in the body", "send a pod, or a workload with a template")


def _metadata(obj: Object) -> Object:
    metadata = obj.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise HttpError(
            HTTPStatus.BAD_REQUEST, f"{obj.get('kind') or 'Pod'}: metadata is not an object", "see kubectl explain"
        )
    return metadata


def _by_key(objects: list[Object], type_: type[Any]) -> dict[str, Any]:
    """Read the objects of one kind."""
    found: dict[str, Any] = {}
    for obj in objects:
        if obj.get("kind") == type_.__name__:
            one = _read(obj, type_)
            found[one.metadata.key] = one
    return found


def _read(obj: Object, type_: type[Any]) -> Any:
    try:
        return convert(obj, type_)
    except WireError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"{obj.get('kind') or 'Pod'}: {error}", "see kubectl explain") from None


API_ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/v1/simulate-schedule",
        Queries.simulate,
        "a pod or workload, legacy or with claims, YAML or JSON, with its templates and claims: what each kind of node answers, "
        "stage by stage; in `room` the pods that would have to go for its `spec.priority`; in `exceeded` the line of a quota. "
        "Nothing is reserved or evicted",
        whole,
    ),
    Endpoint("POST", "/api/simulate-schedule", Queries.simulate, "the same", whole),
    Endpoint("GET", "/api/v1/claims", Queries.claims, "which claim holds what, and whether it is written yet"),
    Endpoint(
        "GET",
        "/api/v1/allocations",
        Queries.allocations,
        "with `?pod=NAMESPACE/NAME` or `?node=NAME`: which share of which device a pod has, or the pods of a node",
        query,
    ),
    Endpoint(
        "GET",
        "/api/v1/nodes",
        Queries.nodes,
        "what nodes have and what is left: devices free, shared, held, blocked by counters; amounts, models, pods. "
        f"{NODES_A_PAGE} nodes an answer, the next ones with `?after=NAME`; device by device with `?node=NAME`",
        query,
    ),
    Endpoint(
        "POST",
        "/api/v1/resize",
        Queries.resize,
        '`{"claim": "NAMESPACE/NAME", "request": "gpu", "capacity": {"memory": "30Gi"}}`: whether the claim could have that, the '
        "most it could have, and how it would be replaced. Nothing is reserved",
        whole,
    ),
    Endpoint(
        "GET", "/api/v1/fleet", Queries.fleet, "what there is, how much of it is held, and which nodes hold nothing"
    ),
    Endpoint("GET", "/api/v1/quota", Queries.quota, "each line of each quota: hard, used, and reserved"),
    Endpoint(
        "GET", "/api/v1/server", Queries.server, "which Kubernetes the stock is read as ([versions.md](versions.md))"
    ),
    Endpoint(
        "GET",
        "/api/v1/drift",
        Queries.drift,
        "devices that claims hold twice, reservations and allocations without a pod",
    ),
)


def api_routes(queries: Queries) -> Routes:
    """Have workers answer the questions of people and other systems."""
    return {route: queries.aside(answer) for route, answer in routes(API_ENDPOINTS, queries).items()}
