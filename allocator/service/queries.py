"""The read-only HTTP API: where a pod would be placed, which pod holds which device, and what the nodes have.

A call may take long, so it is answered in a worker: a forked process, which is killed when its time is over. Schedulers do not wait
behind these calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from allocator.service.app import BUG, Endpoint, HttpError, json, refuse, routes, whole
from allocator.service.settings import ANSWER_SECONDS
from allocator.simulation import Simulation, Snapshot
from cluster.manifests import ManifestError, parse
from dra.objects import ResourceClaim, results_of
from dra.raw import Object
from dra.wire import WireError
from runtime.http import Reply
from runtime.workers import Bug, Requester, Undecided, WorkerPool

if TYPE_CHECKING:
    from allocator.reports import Drift
    from allocator.service.app import Answering, Routes
    from allocator.service.knowledge import Knowledge
    from runtime.http import Head

logger = logging.getLogger("drawbridge.allocator")
# Schedules the pods among the objects, as the webhook would admit them, in addition to a snapshot's bound pods. Raises WireError.
Simulate = Callable[[list[Object], Snapshot], Simulation]
WORKERS = 2
LARGEST = 1 << 20
MOST_OBJECTS = 64


class Queries:
    """Answers the calls of the API."""

    def __init__(
        self,
        knowledge: Knowledge,
        simulate: Simulate,
        *,
        drift: Callable[[], Drift],
        quotas: Callable[[], list[Object]],
        is_written: Callable[[ResourceClaim], bool] = lambda _: True,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`drift` returns the last drift found; `quotas` the rows of the quota report; `is_written` whether a claim's allocation is stored.

        A worker that needs more than `seconds` for an answer is killed.
        """
        self._knowledge = knowledge
        self._drift = drift
        self._quotas = quotas
        self._is_written = is_written
        self._seconds = seconds
        self._simulate = simulate
        self._pool = WorkerPool(WORKERS, Reply)

    def in_worker(self, answer: Answering) -> Answering:
        """Return a handler that runs `answer` in a worker."""

        async def ask(head: Head, body: bytes) -> Reply:
            if problem := self._knowledge.what_is_unread():
                raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, problem, "retry in a moment")

            def decide(_: str, body: bytes) -> Reply:
                try:
                    reply = answer(head, body)
                except HttpError as refusal:
                    return refuse(refusal)
                assert isinstance(reply, Reply)
                return reply

            try:
                return await self._pool.decide(
                    decide, None, head.path, body, self._seconds, requester=Requester(head.name, head.peer)
                )
            except Undecided as error:
                problem = f"the question was not answered: {error}"
                raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, problem, "request less, or retry in a moment") from None
            except Bug as error:
                note = {"path": head.path, "exception": str(error)}
                logger.error("a bug while answering; please report it", extra=note)  # noqa: TRY400  the traceback is the worker's
                raise HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, BUG, "try again") from None

        return ask

    def close(self) -> None:
        """Stop the workers."""
        self._pool.close()

    def simulate(self, body: bytes) -> Reply:
        """Return where the pods of the body would be placed, in the form of `drawbridge simulate`."""
        knowledge = self._knowledge
        stock = knowledge.stock
        there = Snapshot(
            stock,
            tuple(knowledge.pods.objects.values()),
            tuple(stock.claims.values()),
            budgets=tuple(knowledge.budgets.objects.values()),
            quotas=tuple(knowledge.quotas.objects.values()),
        )
        try:
            simulation = self._simulate(_sent(body), there)
        except WireError as error:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(error), "see kubectl explain") from None
        if not simulation.pods:
            problem = "the body has no pod that waits for a node"
            raise HttpError(HTTPStatus.BAD_REQUEST, problem, "send a pod, or a workload with a template")
        return json(simulation)

    def claims(self) -> Reply:
        """Return the devices and pods of each claim."""
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
        """Return the number of devices and of held devices of each pool, and the nodes without held devices."""
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

    def drift(self) -> Reply:
        """Return devices that several claims hold, and reservations left behind. Followers do not search for these."""
        inconsistencies = self._drift()
        rows = {"overlapping": list(inconsistencies.overlapping), "leftBehind": list(inconsistencies.left_behind)}
        return json(rows | {"leading": inconsistencies.leading})

    def server(self) -> Reply:
        """Return the version and features of the API server that the allocator assumes: reported, declared or guessed."""
        known = self._knowledge.server
        read_as = self._knowledge.stock.reading.server
        rows = {
            "kubernetes": f"1.{known.minor}",
            "featureGates": sorted(read_as.gates),
            "reported": dict(sorted(known.reported.items())),
            "declared": known.assumed,
            "guessed": known.guessed,
            "doubts": known.doubts(),
        }
        return json(rows)

    def quota(self) -> Reply:
        """Return the usage of each quota line, written and assumed."""
        return json({"quotas": self._quotas()})


def _sent(body: bytes) -> list[Object]:
    """Parse the body of a call."""
    if len(body) > LARGEST:
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a pod has at most {LARGEST} bytes", "send less")
    try:
        sent = [document.object for document in parse(body, "the body")]
    except ManifestError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, str(error), "send a pod as YAML or JSON") from None
    if len(sent) > MOST_OBJECTS:
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MOST_OBJECTS} objects are read", "send fewer")
    for obj in sent:
        if not isinstance(obj.get("metadata") or {}, dict):
            problem = f"{obj.get('kind') or 'Pod'}: metadata is not an object"
            raise HttpError(HTTPStatus.BAD_REQUEST, problem, "see kubectl explain")
    return sent


API_ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/v1/simulate-schedule",
        Queries.simulate,
        "takes pods or workloads, legacy or with claims, as YAML or JSON, with their templates and claims. Returns what "
        "`drawbridge simulate -o json` prints about them, and also preemption victims and exceeded quota lines. "
        "Nothing is reserved or evicted",
        whole,
    ),
    Endpoint(
        "GET", "/api/v1/claims", Queries.claims, "the devices of each claim, and whether its allocation is written yet"
    ),
    Endpoint(
        "GET", "/api/v1/fleet", Queries.fleet, "devices and held devices of each pool, and nodes without held devices"
    ),
    Endpoint("GET", "/api/v1/quota", Queries.quota, "each line of each quota: hard, used, and reserved"),
    Endpoint(
        "GET", "/api/v1/server", Queries.server, "the assumed Kubernetes version and gates ([versions.md](versions.md))"
    ),
    Endpoint(
        "GET",
        "/api/v1/drift",
        Queries.drift,
        "devices that two claims hold, reservations and allocations without a pod",
    ),
)


def api_routes(queries: Queries) -> Routes:
    """Return the routes of the API; each call runs in a worker."""
    return {route: queries.in_worker(answer) for route, answer in routes(API_ENDPOINTS, queries).items()}
