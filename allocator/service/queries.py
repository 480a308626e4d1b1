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
    from dra.stock import Stock

Object = dict[str, Any]
# Legacy objects and the stock become translated objects, with their templates, and what was said about them.
Translate = Callable[[list[Object], "Stock"], tuple[list[Object], list[str]]]
LARGEST = 1 << 20
MOST_OBJECTS = 64


class Queries:
    """Answers people."""

    def __init__(self, bridge: Bridge, translate: Translate | None, rounds: Rounds) -> None:
        self._bridge = bridge
        self._rounds = rounds
        self._translate = translate or (lambda objects, _: (objects, []))

    def simulate(self, head: Head, body: bytes) -> Reply:
        """Say what would become of a pod, with the claims and templates that come in the same documents."""
        del head
        self._demand_knowledge()
        objects, notes = self._translate(_documents(body), self._bridge.knowledge.stock)
        pod = _pod(objects)
        stock = self._bridge.knowledge.stock
        templates = {_key(one.metadata): one for one in _of(objects, "ResourceClaimTemplate", ResourceClaimTemplate)}
        given = {_key(one.metadata): one for one in _of(objects, "ResourceClaim", ResourceClaim)}
        wanted = claims_for(pod, templates, stock.claims | given)
        reachable = [name for name, node in stock.nodes.items() if not elsewhere(wanted.claims, node)]
        open_ = [claim for claim in wanted.claims if claim.status.allocation is None]
        groups = try_out(open_, stock, reachable) if not wanted.missing else ()
        fits = [name for group in groups if group.verdict is Verdict.FEASIBLE for name in group.nodes]
        verdict = "waiting" if wanted.missing else "fits" if fits else _worst(groups)
        said = {
            "verdict": verdict,
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
            devices: list[Object] = []
            for result in results:
                share = {name: str(amount) for name, amount in result.consumed_capacity.items()}
                device = {"driver": result.driver, "pool": result.pool, "device": result.device}
                devices.append(device | ({"share": share} if share else {}))
            pods = [consumer.name for consumer in claim.status.reserved_for]
            rows.append({"claim": key, "devices": devices, "pods": pods, "written": self._bridge.is_written(claim)})
        return json({"claims": rows})

    def fleet(self, head: Head, body: bytes) -> Reply:
        """Say what there is and how much of it is held, node by node and pool by pool."""
        del head, body
        self._demand_knowledge()
        stock = self._bridge.knowledge.stock
        rows: list[Object] = []
        with_devices: set[str] = set()
        with_holders: set[str] = set()
        for (driver, name), pages in sorted(stock.pages_of.items()):
            use = stock.use((driver, name))
            devices = [device.name for page in pages for device in page.devices]
            held = sum(1 for device in devices if use.holds(device))
            nodes = {page.node_name for page in pages if page.node_name}
            with_devices |= nodes
            if held:
                with_holders |= nodes
            row = {"driver": driver, "pool": name, "nodes": sorted(nodes)}
            rows.append(row | {"devices": len(devices), "held": held})
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


def _of(objects: list[Object], kind: str, type_: type[Any]) -> list[Any]:
    return [_read(obj, type_) for obj in objects if obj.get("kind") == kind]


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


def _worst(groups: tuple[NodeGroup, ...]) -> str:
    undecided = any(group.verdict is Verdict.UNDECIDED for group in groups)
    return "undecided" if undecided else "infeasible"
