"""Questions of people and of other systems: what would become of a pod, who holds what, what there is. Nothing is assumed by asking."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec

from allocator import allocate
from allocator.answer import Verdict, as_granted
from allocator.decisions import NodeGroup, Unreplaceable, claims_for, plan_replacement, try_out
from allocator.pods import elsewhere
from allocator.reports import DeviceState, node_report, shares
from allocator.service.replies import Refusal, json
from cluster.manifests import ManifestError, parse
from dra.errors import QuantityError
from dra.objects import Pod, ResourceClaim, ResourceClaimTemplate, results_of, template_site
from dra.pointer import split
from dra.quantity import Quantity
from dra.wire import WireError, convert

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from allocator.decisions import Replacement
    from allocator.preemption import Victims
    from allocator.reports import DeviceReport, Drift, NodeReport, Share
    from allocator.service.app import Routes
    from allocator.service.knowledge import Knowledge
    from cluster.serving import Head, Reply
    from dra.objects import DeviceRequestAllocationResult
    from dra.policy import QuotaLine
    from dra.stock import Stock

Object = dict[str, Any]
# Legacy objects and the stock become translated objects, with their templates, and what was said about them.
Translate = Callable[[list[Object], "Stock"], tuple[list[Object], list[str]]]
Foresee = Callable[["Pod", "Sequence[ResourceClaim]", "Sequence[str]"], Awaitable["Victims | None"]]
QuotaLines = Callable[["Pod", "Sequence[ResourceClaim]", "Stock"], "tuple[QuotaLine, ...]"]
LARGEST = 1 << 20
MOST_OBJECTS = 64
MOST_AMOUNTS = 8
NODES_A_PAGE = 200


def _unlimited(pod: Pod, given: Sequence[ResourceClaim], stock: Stock) -> tuple[QuotaLine, ...]:
    """Stand for a cluster without quotas."""
    del pod, given, stock
    return ()


class Queries:
    """Answers the questions of people and of other systems; changes nothing."""

    def __init__(
        self,
        knowledge: Knowledge,
        translate: Translate | None,
        *,
        drift: Callable[[], Drift],
        quotas: Callable[[], list[Object]],
        is_written: Callable[[ResourceClaim], bool] = lambda _: True,
        foresee: Foresee | None = None,
        quota_lines: QuotaLines = _unlimited,
    ) -> None:
        """`drift` is what was found last, `quotas` what is used; `is_written` says of a claim that it is not only meant so.

        `foresee` says who would have to go for a pod; without it nobody goes. `quota_lines` says what claims would add to which lines.
        """
        self._knowledge = knowledge
        self._drift = drift
        self._quotas = quotas
        self._is_written = is_written
        self._foresee = foresee
        self._quota_lines = quota_lines
        self._translate = translate or (lambda objects, _: (objects, []))

    async def simulate(self, head: Head, body: bytes) -> Reply:
        """Say what would become of a pod, with the claims and templates that come in the same documents, and who would have to go."""
        del head
        self._demand_knowledge()
        stock = self._knowledge.stock
        objects, notes = self._translate(_documents(body), stock)
        templates = _by_key(objects, ResourceClaimTemplate)
        given = _by_key(objects, ResourceClaim)
        pod = _pod(objects)
        wanted = claims_for(pod, templates, stock.claims | given)
        groups: tuple[NodeGroup, ...] = ()
        room: Victims | None = None
        unallocated = [claim for claim in wanted.claims if claim.status.allocation is None]
        reachable = [name for name, node in stock.nodes.items() if not elsewhere(wanted.claims, node)]
        if not wanted.missing:
            groups = try_out(unallocated, stock, reachable)
        fits: list[str] = []
        for group in groups:
            if group.verdict is Verdict.FEASIBLE:
                fits += group.nodes
        if groups and not fits and self._foresee is not None:
            room = await self._foresee(pod, unallocated, reachable)
        exceeded = self._exceeded(pod, fits[0], unallocated, stock) if fits else None
        verdict = "waiting" if wanted.missing else _verdict(groups)
        said = {
            "verdict": "exceeded" if exceeded else verdict,
            "nodes": fits,
            "exceeded": exceeded,
            "missing": list(wanted.missing),
            "notes": notes,
            "groups": [_group(group) for group in groups],
            "claims": [{"name": claim.metadata.key, "spec": claim.spec} for claim in wanted.claims],
            "room": _room(room) if room is not None else None,
        }
        return json(said)

    def _exceeded(self, pod: Pod, node: str, claims: Sequence[ResourceClaim], stock: Stock) -> Object | None:
        """Say which line of a quota a pod would cross on a node that could serve it."""
        answer = allocate(stock, node, claims)
        given = as_granted(claims, answer)
        lines = self._quota_lines(pod, given, stock)
        crossed = next((line for line in lines if line.exceeded), None)
        return {**crossed.facts(), "text": str(crossed)} if crossed else None

    def claims(self, head: Head, body: bytes) -> Reply:
        """Say who holds what."""
        del head, body
        self._demand_knowledge()
        rows: list[Object] = []
        for key, claim in sorted(self._knowledge.stock.claims.items()):
            row = {
                "claim": key,
                "devices": [_device(result) for result in results_of(claim)],
                "pods": [consumer.name for consumer in claim.status.reserved_for],
                "written": self._is_written(claim),
            }
            rows.append(row)
        return json({"claims": rows})

    def fleet(self, head: Head, body: bytes) -> Reply:
        """Say what there is and how much of it is held, node by node and pool by pool."""
        del head, body
        self._demand_knowledge()
        stock = self._knowledge.stock
        rows: list[Object] = []
        with_devices: set[str] = set()
        with_holders: set[str] = set()
        for pool, pages in sorted(stock.pages_of.items()):
            use = stock.use(pool)
            devices = [device.name for page in pages for device in page.devices]
            held = [device for device in devices if use.holds(device)]
            nodes = {page.node_name for page in pages if page.node_name}
            with_devices |= nodes
            if held:
                with_holders |= nodes
            driver, name = pool
            row = {
                "driver": driver,
                "pool": name,
                "nodes": sorted(nodes),
                "devices": len(devices),
                "held": len(held),
            }
            rows.append(row)
        idle = sorted(with_devices - with_holders)
        return json({"pools": rows, "nodesWithoutHolders": idle})

    def nodes(self, head: Head, body: bytes) -> Reply:
        """Say what nodes have and what is left: in total, page by page, or device by device for `?node=NAME`."""
        del body
        self._demand_knowledge()
        stock = self._knowledge.stock
        pods_on = self._pods_by_node()
        asked = parse_qs(head.query)
        if "node" in asked:
            name = asked["node"][-1]
            if name not in stock.nodes:
                raise Refusal(HTTPStatus.NOT_FOUND, f"node {name} does not exist", "GET /api/v1/nodes lists them")
            report = node_report(stock, name)
            row = _node(report, pods_on.get(name, []))
            devices = [_device_row(one) for one in report.devices]
            return json(row | {"devices": devices})
        after = asked.get("after", [""])[-1]
        names = sorted(name for name in stock.nodes if name > after)
        rows: list[Object] = []
        for name in names[:NODES_A_PAGE]:
            report = node_report(stock, name)
            rows.append(_node(report, pods_on.get(name, [])))
        more = names[NODES_A_PAGE - 1] if len(names) > NODES_A_PAGE else None
        return json({"nodes": rows, "after": more})

    def allocations(self, head: Head, body: bytes) -> Reply:
        """Say which pod has which share of which device: on `?node=NAME`, or of `?pod=NAMESPACE/NAME`."""
        del body
        self._demand_knowledge()
        asked = parse_qs(head.query)
        if len(asked.keys() & {"node", "pod"}) != 1:
            raise Refusal(HTTPStatus.BAD_REQUEST, "it is not said of whom", "say ?node=NAME or ?pod=NAMESPACE/NAME")
        node = asked.get("node", [""])[-1]
        pod = asked.get("pod", [""])[-1]
        pods = self._knowledge.pods.objects.values()
        rows: list[Object] = []
        for one in shares(self._knowledge.stock, pods):
            its_pod = f"{one.namespace}/{one.pod}"
            wanted = one.node == node if node else its_pod == pod
            if wanted:
                rows.append(_share(one))
        return json({"allocations": rows})

    def resize(self, head: Head, body: bytes) -> Reply:
        """Say whether a claim could have other amounts, and how it would be replaced. Nothing is assumed."""
        del head
        self._demand_knowledge()
        asked = _resizing(body)
        try:
            amounts = {name: Quantity.parse(text) for name, text in asked.capacity.items()}
            plan = plan_replacement(self._knowledge.stock, asked.claim, asked.request, amounts)
        except QuantityError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, str(error), "an amount is a quantity, as 16Gi") from None
        except Unreplaceable as error:
            raise Refusal(HTTPStatus.CONFLICT, str(error), "GET /api/v1/claims says who holds what") from None
        said = {
            "fits": plan.fits,
            "node": plan.node,
            "beside": list(plan.beside),
            "largest": {name: str(amount) for name, amount in plan.largest.items()},
            "claim": {"name": asked.claim, "spec": plan.claim.spec},
        }
        return json(said | {"steps": _steps(plan)})

    def _pods_by_node(self) -> dict[str, list[str]]:
        """Name the pods with claims that are bound and not finished, node by node."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for pod in self._knowledge.pods.objects.values():
            if pod.spec.node_name and pod.spec.resource_claims and not pod.has_ended:
                found[pod.spec.node_name].append(pod.metadata.key)
        return {node: sorted(keys) for node, keys in found.items()}

    def drift(self, head: Head, body: bytes) -> Reply:
        """Say what should not be: claims that hold the same, and what was left behind. Followers do not look."""
        del head, body
        self._demand_knowledge()
        found = self._drift()
        rows = {"overlapping": list(found.overlapping), "leftBehind": list(found.left_behind)}
        return json(rows | {"leading": found.leading})

    def server(self, head: Head, body: bytes) -> Reply:
        """Say what the API server is taken to be: what it told, what was declared of it, and what is a guess."""
        del head, body
        self._demand_knowledge()
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

    def quota(self, head: Head, body: bytes) -> Reply:
        """Say of each line of each quota how much is used, and how much is assumed beside it."""
        del head, body
        self._demand_knowledge()
        return json({"quotas": self._quotas()})

    def _demand_knowledge(self) -> None:
        if problem := self._knowledge.what_is_unread():
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, problem, "ask again in a moment")


class _Resizing(msgspec.Struct, forbid_unknown_fields=True):
    """A claim, one of its requests, and the amounts that it would have."""

    claim: str
    request: str
    capacity: dict[str, str]


def _resizing(body: bytes) -> _Resizing:
    try:
        asked = msgspec.json.decode(body, type=_Resizing)
    except msgspec.MsgspecError as error:
        remedy = 'send {"claim": "NAMESPACE/NAME", "request": "gpu", "capacity": {"memory": "30Gi"}}'
        raise Refusal(HTTPStatus.BAD_REQUEST, str(error), remedy) from None
    if not 0 < len(asked.capacity) <= MOST_AMOUNTS:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"1 to {MOST_AMOUNTS} amounts are asked about at once", "name fewer")
    return asked


def _steps(plan: Replacement) -> list[str]:
    """Say in order what somebody would do; what an allocation says is written once, so a claim is replaced."""
    if not plan.fits:
        return []
    make = "make a claim, or a template, with the spec that is in this answer"
    if plan.beside:
        return [make, "start a pod that uses it", "delete the old pod; its claim goes with it, or is deleted then"]
    return [make, "delete the old pod and its claim", f"start a pod that uses the new one; it fits on {plan.node}"]


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
        "capacity": _texts(report.capacity),
        "available": _texts(report.available),
    }


def _device_row(one: DeviceReport) -> Object:
    what = {"driver": one.driver, "pool": one.pool, "device": one.device, "model": one.model, "state": str(one.state)}
    amounts = {"capacity": _texts(one.capacity), "available": _texts(one.available)}
    return what | amounts | {"taints": list(one.taints)}


def _share(one: Share) -> Object:
    whose = {"namespace": one.namespace, "pod": one.pod, "claim": one.claim, "node": one.node}
    device = {"driver": one.driver, "pool": one.pool, "device": one.device, "uuid": one.uuid}
    return whose | device | {"shareID": one.share_id, "share": _texts(one.amounts)}


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _room(found: Victims) -> Object:
    return {"node": found.node, "victims": [pod.metadata.key for pod in found.pods]}


def _documents(body: bytes) -> list[Object]:
    if len(body) > LARGEST:
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a pod has at most {LARGEST} bytes", "send less")
    try:
        objects = [document.object for document in parse(body, "the body")]
    except ManifestError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, str(error), "send a pod as YAML or JSON") from None
    if len(objects) > MOST_OBJECTS:
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MOST_OBJECTS} objects are read", "send fewer")
    return objects


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
        meta = (obj.get("metadata") or {}) | (template.get("metadata") or {})
        pod: Pod = _read({"metadata": meta, "spec": template.get("spec") or {}}, Pod)
        return pod
    raise Refusal(HTTPStatus.BAD_REQUEST, "there is no pod in the body", "send a pod, or a workload with a template")


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
        raise Refusal(HTTPStatus.BAD_REQUEST, f"{obj.get('kind') or 'Pod'}: {error}", "see kubectl explain") from None


def _group(group: NodeGroup) -> Object:
    stages: list[Object] = []
    for reason in group.stages:
        stage = {"stage": str(reason.stage), "claim": reason.claim, "request": reason.request}
        lost = {"lost": reason.lost, "of": reason.of, "examples": list(reason.examples), "text": reason.text}
        stages.append(stage | lost)
    return {
        "verdict": str(group.verdict),
        "count": len(group.nodes),
        "nodes": list(group.nodes),
        "devices": list(group.devices),
        "stages": stages,
        "error": group.error or None,
    }


def _device(result: DeviceRequestAllocationResult) -> Object:
    device: Object = {"driver": result.driver, "pool": result.pool, "device": result.device}
    if result.consumed_capacity:
        device["share"] = {name: str(amount) for name, amount in result.consumed_capacity.items()}
    return device


def _verdict(groups: tuple[NodeGroup, ...]) -> str:
    verdicts = {group.verdict for group in groups}
    if Verdict.FEASIBLE in verdicts:
        return "fits"
    return "undecided" if Verdict.UNDECIDED in verdicts else "infeasible"


def api_routes(queries: Queries) -> Routes:
    """Which question of people and other systems is answered by what."""
    return {
        ("POST", "/api/v1/simulate-schedule"): queries.simulate,
        ("POST", "/api/simulate-schedule"): queries.simulate,
        ("GET", "/api/v1/claims"): queries.claims,
        ("GET", "/api/v1/fleet"): queries.fleet,
        ("GET", "/api/v1/quota"): queries.quota,
        ("GET", "/api/v1/nodes"): queries.nodes,
        ("GET", "/api/v1/allocations"): queries.allocations,
        ("POST", "/api/v1/resize"): queries.resize,
        ("GET", "/api/v1/drift"): queries.drift,
        ("GET", "/api/v1/server"): queries.server,
    }
