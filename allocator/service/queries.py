"""The read-only HTTP API: which claim has which devices, quotas, the assumed server, and drift.

A call may take long, so it is answered in a thread, one call at a time. So schedulers do not wait for these calls.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from allocator.service.app import Endpoint, HttpError, json, routes
from dra.objects import results_of
from serving.http import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allocator.reports import Drift
    from allocator.service.app import Answering, Routes
    from allocator.service.knowledge import Knowledge
    from dra.objects import ResourceClaim
    from dra.raw import Object
    from dra.server import KnownServer
    from serving.http import Head

    # Places the pods of a manifest in a cluster of these objects, on a server; the function returns whether the time is over.
    # Returns the status of the reply and its content.
    Simulate = Callable[[Iterable[object], KnownServer, str, Callable[[], bool]], tuple[int, object]]


SIMULATION_SECONDS = 3.0


class Queries:
    """Answers the calls of the API."""

    # The decision about a pod is above this package, so the command sets this function.
    simulate_pods: Simulate | None = None

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        drift: Callable[[], Drift],
        quotas: Callable[[], list[Object]],
        is_written: Callable[[ResourceClaim], bool] = lambda _: True,
    ) -> None:
        """`drift` returns the inconsistencies that were found last, and `quotas` the rows of the quota report.

        `is_written` returns whether a claim's allocation is stored. A thread calls all three.
        """
        self._knowledge = knowledge
        self._drift = drift
        self._quotas = quotas
        self._is_written = is_written
        self._one_at_a_time = asyncio.Lock()

    def in_thread(self, answer: Answering) -> Answering:
        """Return a handler that runs `answer` in a thread."""

        def compute(head: Head, body: bytes) -> Reply:
            reply = answer(head, body)
            assert isinstance(reply, Reply)
            return reply

        async def handle(head: Head, body: bytes) -> Reply:
            if problem := self._knowledge.what_is_unread():
                raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, problem, "retry in a moment")
            async with self._one_at_a_time:
                return await asyncio.to_thread(compute, head, body)

        return handle

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

    def simulate(self, body: bytes) -> Reply:
        """Return where the pods of a manifest would be placed, beside the reservations that are not written yet. Nothing is created."""
        if self.simulate_pods is None:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "no configuration was read yet", "retry in a moment")
        end = time.monotonic() + SIMULATION_SECONDS
        objects, server = self._knowledge.objects(), self._knowledge.server
        text = body.decode(errors="replace")
        status, answer = self.simulate_pods(objects, server, text, lambda: time.monotonic() > end)
        return json(answer, status)

    def drift(self) -> Reply:
        """Return claims that hold a device together with another claim, what was left behind, and bound pods without devices.

        Followers search for nothing.
        """
        inconsistencies = self._drift()
        rows = {
            "overlapping": list(inconsistencies.overlapping),
            "leftBehind": list(inconsistencies.left_behind),
            "withoutDevices": list(inconsistencies.without_devices),
        }
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
        """Return the usage of each quota line: the usage that is written in claims, and the usage that is only reserved."""
        return json({"quotas": self._quotas()})


API_ENDPOINTS = (
    Endpoint(
        "GET", "/api/v1/claims", Queries.claims, "the devices of each claim, and whether its allocation is written yet"
    ),
    Endpoint(
        "POST",
        "/api/v1/simulate",
        Queries.simulate,
        "where the pods and workloads of a manifest (YAML or JSON, at most 32 KiB) would be placed, or why not; templates have to be in the manifest",
        lambda _, body: (body,),
    ),
    Endpoint("GET", "/api/v1/quota", Queries.quota, "each line of each quota: hard, used, and reserved"),
    Endpoint(
        "GET", "/api/v1/server", Queries.server, "the assumed Kubernetes version and gates ([versions.md](versions.md))"
    ),
    Endpoint(
        "GET",
        "/api/v1/drift",
        Queries.drift,
        "devices that two claims hold, reservations and allocations without a pod, pods on a node without their devices",
    ),
)


def api_routes(queries: Queries) -> Routes:
    """Return the routes of the API; each call runs in a thread."""
    return {route: queries.in_thread(answer) for route, answer in routes(API_ENDPOINTS, queries).items()}
