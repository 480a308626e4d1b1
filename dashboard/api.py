"""The content of the pages as JSON: one type for each answer. The OpenAPI document is made from these types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from analysis import explain
from analysis.capacity import NodeDevices, Total, totals
from analysis.errors import MissingObject
from analysis.explain import DeviceStory, LoneClaimStory, PodStory
from analysis.loading import Unread
from analysis.matrix import PoolMatrix, build_matrices, reachable
from analysis.naming import find_device
from analysis.object_events import Events
from analysis.quota_use import QuotaReport
from analysis.survey import DriverStock, MoveReason, PluginStock
from dashboard.hardware import HardwareUsage, hardware_of
from dashboard.history import Sample
from dashboard.lines import Line
from dashboard.move import NamespaceMoved
from dashboard.prometheus import SPANS
from dashboard.timeline import TimelineStep, steps_of, steps_of_claim
from dashboard.waiting import Waiting, pod_story
from dashboard.whatif import WhatIf
from dra.finding import Finding
from webhook.names import VERSION
from webhook.placement import NodesOfName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dashboard.picture import DashboardView


class Shown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The time of the reading, the kinds that could not be read, and in `problem` why the reading is old."""

    read_at: str
    unread: tuple[Unread, ...]
    problem: str = ""


class FleetShown(Shown, frozen=True, kw_only=True):
    """Nodes, their devices, and who holds each device, as in `drawbridge free -o json`."""

    nodes: tuple[NodeDevices, ...]
    totals: tuple[Total, ...]
    # Nodes with usable devices of which none is in use.
    idle_nodes: tuple[str, ...]


class WaitingShown(Shown, frozen=True, kw_only=True):
    """Pods that request devices and have no node, and why they wait."""

    waiting: tuple[Waiting, ...]


class QuotasShown(Shown, frozen=True, kw_only=True):
    """What is left of each line of each DeviceQuota."""

    quotas: tuple[QuotaReport, ...]


class PodShown(Shown, frozen=True, kw_only=True):
    """The story of a pod, as in `drawbridge explain pod -o json`, with the times of its events."""

    pod: PodStory
    steps: tuple[TimelineStep, ...]
    events: Events


class ClaimShown(Shown, frozen=True, kw_only=True):
    """The story of a claim."""

    claim: LoneClaimStory
    steps: tuple[TimelineStep, ...]
    events: Events


class DeviceShown(Shown, frozen=True, kw_only=True):
    """The story of a device."""

    device: DeviceStory


class TogetherShown(Shown, frozen=True, kw_only=True):
    """Which devices of the fleet, or of a node, can be in use at the same time."""

    pools: tuple[PoolMatrix, ...]


class HardwareShown(Shown, frozen=True, kw_only=True):
    """The hardware of a node: where each card is plugged in, which parts of it are held, and how much is free."""

    hardware: tuple[HardwareUsage, ...]


class WhatIfShown(Shown, frozen=True, kw_only=True):
    """Where pods would be placed. The parameters are those of a link on the page: `q` is a manifest, `remove` and `add` are nodes.

    The body of a POST is a manifest in YAML or JSON.
    """

    found: WhatIf


class MoveShown(Shown, frozen=True, kw_only=True):
    """How far the move from device plugins is, and what is in the way, as in `drawbridge survey -o json`."""

    namespaces: tuple[NamespaceMoved, ...]
    # The number of pods by the mechanism through which they have, or will get, their devices.
    mechanisms: dict[str, int]
    # Devices by plugin and by driver; for each resource name, the nodes by what serves the name (driver, plugin, both or neither).
    plugins: tuple[PluginStock, ...]
    drivers: tuple[DriverStock, ...]
    nodes_by_key: tuple[NodesOfName, ...]
    obstacles: tuple[Finding, ...]
    reasons: tuple[MoveReason, ...]


class HistoryShown(Shown, frozen=True, kw_only=True):
    """The use of the fleet since the dashboard started, for a day at most; with `days`, the use that Prometheus has stored."""

    samples: tuple[Sample, ...]
    lines: tuple[Line, ...] = ()


class DashboardEndpoint(NamedTuple):
    """An address, the type of its answer, and the function that finds the answer's fields, or None if the named object does not exist."""

    path: str
    type: type[Shown]
    find: Callable[[DashboardView, Mapping[str, str]], dict[str, Any] | None]
    # The kind of the object that the address names; "" if the answer has no events.
    about: str = ""


def key_of(parameters: Mapping[str, str]) -> str:
    return f"{parameters['namespace']}/{parameters['name']}"


def device_of(parameters: Mapping[str, str]) -> str:
    return f"{parameters['driver']}/{parameters['pool']}/{parameters['device']}"


def _fleet(view: DashboardView, parameters: Mapping[str, str]) -> dict[str, Any]:
    del parameters
    nodes = view.picture.nodes
    idle_nodes = tuple(node.node for node in nodes if node.is_idle)
    return {"nodes": nodes, "totals": tuple(totals(nodes)), "idle_nodes": idle_nodes}


def _pod(view: DashboardView, parameters: Mapping[str, str]) -> dict[str, Any] | None:
    key, reading = key_of(parameters), view.reading
    if key not in reading.pods:
        return None
    return {
        "pod": pod_story(key, reading),
        "steps": steps_of(reading.pods[key], reading),
        "events": view.events,
    }


def _claim(view: DashboardView, parameters: Mapping[str, str]) -> dict[str, Any] | None:
    key = key_of(parameters)
    claim = view.reading.stock.claims.get(key)
    if claim is None:
        return None
    story = explain.lone_claim_story(key, view.reading)
    return {"claim": story, "steps": steps_of_claim(claim), "events": view.events}


def _device(view: DashboardView, parameters: Mapping[str, str]) -> dict[str, Any] | None:
    try:
        return {"device": explain.device_story(find_device(device_of(parameters), view.reading.stock), view.reading)}
    except MissingObject:
        return None


def matrices(view: DashboardView, node: str = "") -> list[PoolMatrix] | None:
    """Return which devices of each pool can be used together, for the fleet or a node; None for a node without devices."""
    if node and all(shown.node != node for shown in view.picture.nodes):
        return None
    stock = view.reading.stock
    nodes = [node] if node else [node.node for node in view.picture.nodes]
    return build_matrices(reachable(stock, nodes).values(), stock)


def _hardware(view: DashboardView, parameters: Mapping[str, str]) -> dict[str, Any] | None:
    if all(node.node != parameters["name"] for node in view.picture.nodes):
        return None
    return {"hardware": hardware_of(view.reading.stock, parameters["name"])}


def _together(view: DashboardView, parameters: Mapping[str, str]) -> dict[str, Any] | None:
    judged = matrices(view, parameters.get("name", ""))
    return None if judged is None else {"pools": tuple(judged)}


ENDPOINTS = (
    DashboardEndpoint("/api/v1/fleet", FleetShown, _fleet),
    DashboardEndpoint("/api/v1/waiting", WaitingShown, lambda view, _: {"waiting": view.picture.waiting}),
    DashboardEndpoint("/api/v1/quotas", QuotasShown, lambda view, _: {"quotas": view.picture.quotas}),
    DashboardEndpoint("/api/v1/pods/{namespace}/{name}", PodShown, _pod, "Pod"),
    DashboardEndpoint("/api/v1/claims/{namespace}/{name}", ClaimShown, _claim, "ResourceClaim"),
    DashboardEndpoint("/api/v1/together", TogetherShown, _together),
    DashboardEndpoint("/api/v1/nodes/{name}/together", TogetherShown, _together),
    DashboardEndpoint("/api/v1/nodes/{name}/hardware", HardwareShown, _hardware),
    DashboardEndpoint("/api/v1/devices/{driver}/{pool}/{device}", DeviceShown, _device),
)


def answer(endpoint: DashboardEndpoint, view: DashboardView, parameters: Mapping[str, str]) -> Shown | None:
    """Return the answer to a request; None if the object that its address names does not exist."""
    fields = endpoint.find(view, parameters)
    return None if fields is None else shown(endpoint.type, view, **fields)


def shown(type_: type[Shown], view: DashboardView, **fields: Any) -> Shown:
    """Return an answer with these fields, and with what every answer says of its reading."""
    return type_(read_at=view.picture.read_at, unread=view.picture.unread, problem=view.problem, **fields)


def openapi() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the endpoints."""
    unread = {"503": "The cluster could not be read."}
    # For each address: the type of its answer, its parameters, and the meaning of each other status.
    described: list[tuple[str, type[Shown], list[dict[str, Any]], dict[str, str]]] = []
    for endpoint in ENDPOINTS:
        names = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
        parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
        answers = {"200": "The objects that were read.", **unread}
        if parameters:
            answers["404"] = "The object did not exist when the cluster was read."
        described.append((endpoint.path, endpoint.type, parameters, answers))
    question = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("q", "remove", "add")]
    answers = {"200": "The answer.", "400": "The question cannot be answered.", **unread}
    described.append(("/api/v1/what-if", WhatIfShown, question, answers))
    refused = "The account may not list all namespaces."
    answers = {"200": "The result of the survey.", "403": refused, "503": "There is no survey yet."}
    described.append(("/api/v1/move", MoveShown, [], answers))
    days = {"name": "days", "in": "query", "schema": {"type": "integer", "enum": [*SPANS]}}
    answers = {"200": "The use of the fleet.", "502": "Prometheus gave no usable answer.", **unread}
    described.append(("/api/v1/history", HistoryShown, [days], answers))

    types = [type_ for _, type_, _, _ in described]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    paths: dict[str, Any] = {}
    for (path, type_, parameters, answers), schema in zip(described, schemas, strict=True):
        responses: dict[str, Any] = {}
        for status, description in answers.items():
            content = {"application/json": {"schema": schema if status == "200" else error}}
            responses[status] = {"description": description, "content": content}
        summary = (type_.__doc__ or "").strip()
        paths[path] = {"get": {"summary": summary, "parameters": parameters, "responses": responses}}
    manifest = {"application/yaml": {"schema": {"type": "string"}}}
    posted = {"parameters": question[1:], "requestBody": {"required": True, "content": manifest}}
    paths["/api/v1/simulate"] = {"post": paths["/api/v1/what-if"]["get"] | posted}
    info = {"title": "drawbridge dashboard", "version": VERSION}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": components}}
