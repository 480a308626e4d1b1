"""Questions of people and of other systems: what would become of a pod, who holds what, what there is. Nothing is assumed by asking."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from allocator.answer import Verdict
from allocator.decisions import NodeGroup, claims_for, try_out
from allocator.pods import elsewhere
from allocator.service.bridge import Refusal
from allocator.service.plugin import json
from cluster.manifests import ManifestError, parse
from dra.objects import Pod, ResourceClaim, ResourceClaimTemplate, template_site
from dra.pointer import split
from dra.wire import WireError, convert

if TYPE_CHECKING:
    from allocator.service.bridge import Bridge
    from allocator.service.rounds import Rounds
    from cluster.serving import Head, Reply
    from dra.objects import DeviceRequestAllocationResult
    from dra.stock import Stock

Object = dict[str, Any]
# Legacy objects and the stock become translated objects, with their templates, and what was said about them.
Translate = Callable[[list[Object], "Stock"], tuple[list[Object], list[str]]]
LARGEST = 1 << 20
MOST_OBJECTS = 64


class Queries:
    """Answers the questions of people and of other systems; changes nothing."""

    def __init__(self, bridge: Bridge, translate: Translate | None, rounds: Rounds) -> None:
        self._bridge = bridge
        self._rounds = rounds
        self._translate = translate or (lambda objects, _: (objects, []))

    def simulate(self, head: Head, body: bytes) -> Reply:
        """Say what would become of a pod, with the claims and templates that come in the same documents."""
        del head
        self._demand_knowledge()
        stock = self._bridge.knowledge.stock
        objects, notes = self._translate(_documents(body), stock)
        templates = _by_key(objects, ResourceClaimTemplate)
        given = _by_key(objects, ResourceClaim)
        wanted = claims_for(_pod(objects), templates, stock.claims | given)
        groups: tuple[NodeGroup, ...] = ()
        if not wanted.missing:
            unallocated = [claim for claim in wanted.claims if claim.status.allocation is None]
            reachable = [name for name, node in stock.nodes.items() if not elsewhere(wanted.claims, node)]
            groups = try_out(unallocated, stock, reachable)
        fits: list[str] = []
        for group in groups:
            if group.verdict is Verdict.FEASIBLE:
                fits += group.nodes
        said = {
            "verdict": "waiting" if wanted.missing else _verdict(groups),
            "nodes": fits,
            "missing": list(wanted.missing),
            "notes": notes,
            "groups": [_group(group) for group in groups],
            "claims": [{"name": _key(claim.metadata), "spec": claim.spec} for claim in wanted.claims],
        }
        return json(said)

    def claims(self, head: Head, body: bytes) -> Reply:
        """Say who holds what."""
        del head, body
        self._demand_knowledge()
        rows: list[Object] = []
        for key, claim in sorted(self._bridge.knowledge.stock.claims.items()):
            allocation = claim.status.allocation
            results = allocation.devices.results if allocation is not None else ()
            row = {
                "claim": key,
                "devices": [_device(result) for result in results],
                "pods": [consumer.name for consumer in claim.status.reserved_for],
                "written": self._bridge.is_written(claim),
            }
            rows.append(row)
        return json({"claims": rows})

    def fleet(self, head: Head, body: bytes) -> Reply:
        """Say what there is and how much of it is held, node by node and pool by pool."""
        del head, body
        self._demand_knowledge()
        stock = self._bridge.knowledge.stock
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

    def drift(self, head: Head, body: bytes) -> Reply:
        """Say what should not be: claims that hold the same, and what was left behind. Only a leader looks."""
        del head, body
        self._demand_knowledge()
        rounds = self._rounds
        found = {"overlapping": list(rounds.overlapping), "leftBehind": list(rounds.left_behind)}
        return json(found | {"leading": self._bridge.leads})

    def quota(self, head: Head, body: bytes) -> Reply:
        """Say of each line of each quota how much is used, and how much is assumed beside it."""
        del head, body
        self._demand_knowledge()
        bridge = self._bridge
        return json({"quotas": bridge.quotas.report(bridge.knowledge.stock)})

    def _demand_knowledge(self) -> None:
        if problem := self._bridge.knowledge.unsettled():
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, problem, "ask again in a moment")


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
            found[_key(one.metadata)] = one
    return found


def _read(obj: Object, type_: type[Any]) -> Any:
    try:
        return convert(obj, type_)
    except WireError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"{obj.get('kind') or 'Pod'}: {error}", "see kubectl explain") from None


def _key(meta: Any) -> str:
    return f"{meta.namespace or 'default'}/{meta.name}"


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
