"""A scheduler that does not decide. It shows the highest rate and the lowest cost that any scheduler with the same writes can reach.

It allocates devices in the order of a list in its plan. It does only what every pod needs: one watch that shows pods and their claims, and
three writes per pod: the claim's finalizer, its allocation with the reservation, and the binding. Claims that have the finalizer from their
creation need two writes. The scheduler looks up, compares and checks nothing, and creates no events. It requests only the metadata of
objects. It cannot replace a scheduler: it sees neither the allocations of other schedulers, nor what happens to its pods later.

    python bench/allocator/floor.py PLAN    (a file that `bench.allocator.scheduling` writes)
"""

from __future__ import annotations

import http.client
import queue
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "floor"  # the `schedulerName` of its pods
FINALIZER = "resource.kubernetes.io/delete-protection"
WRITERS = 16
WATCH_SECONDS = 600
# Attempts, and the seconds between them: a server that is busy, or still loads a policy, refuses requests.
TRIES, PAUSE = 10, 0.2
PLAIN = "application/json"
ONLY_NAMES = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
TIMESTAMP = "2026-01-01T00:00:00Z"  # of every allocation: reading a clock would cost time


class Plan(msgspec.Struct, frozen=True):
    """The API server's address, and the devices to allocate in order."""

    url: str
    ca: str
    token: str
    claims: str  # the path of the claims
    pods: str  # the path of the pods
    protected: bool  # claims have their finalizer from their creation
    generated: bool  # claims come from a template and name their pod as owner; otherwise a claim has its pod's name
    driver: str
    devices: tuple[tuple[str, str, str], ...]  # node, pool and device


class Owner(msgspec.Struct, frozen=True):
    name: str
    uid: str


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str
    resource_version: str
    owner_references: tuple[Owner, ...] = ()


class NamedObject(msgspec.Struct, frozen=True):
    metadata: Metadata


class Page(msgspec.Struct, frozen=True):
    metadata: dict[str, str]
    items: tuple[NamedObject, ...]


class Event(msgspec.Struct, frozen=True):
    type: str
    object: NamedObject


class Placement(NamedTuple):
    """A pod, its claim, and its device."""

    pod: Owner
    claim: str
    device: tuple[str, str, str]


class Server:
    """A persistent connection."""

    def __init__(self, plan: Plan) -> None:
        self.headers = {"Authorization": f"Bearer {plan.token}", "Accept": ONLY_NAMES, "Content-Type": PLAIN}
        context = ssl.create_default_context(cafile=plan.ca)
        self.connection = http.client.HTTPSConnection(urlsplit(plan.url).netloc, context=context)

    def request(self, method: str, path: str, body: object = None, **headers: str) -> bytes:
        """Send a request and return the answer. After TRIES refusals raise RuntimeError; then a pod has no node, and the run fails."""
        content = msgspec.json.encode(body) if body is not None else None
        for _ in range(TRIES):
            self.connection.request(method, path, content, self.headers | headers)
            answer = self.connection.getresponse()
            answer_body = answer.read()
            if answer.status < http.client.BAD_REQUEST:
                return answer_body
            print(f"{method} {path}: {answer.status} {answer_body.decode()[:500]}", flush=True)
            time.sleep(PAUSE)
        raise RuntimeError(f"{method} {path} was refused {TRIES} times")

    def patch(self, path: str, body: object) -> None:
        self.request("PATCH", path, body, **{"Content-Type": "application/merge-patch+json"})

    def follow(self, path: str) -> Iterator[Metadata]:
        """Yield the metadata of existing objects, and of objects that are added later."""
        page = msgspec.json.decode(self.request("GET", path, Accept=PLAIN), type=Page)
        yield from (item.metadata for item in page.items)
        version = page.metadata["resourceVersion"]
        decoder = msgspec.json.Decoder(Event)
        while True:  # the API server ends a watch whose reader is slow; then the next watch starts
            query = urlencode({"watch": "true", "resourceVersion": version, "timeoutSeconds": WATCH_SECONDS})
            self.connection.request("GET", f"{path}?{query}", headers=self.headers)
            answer = self.connection.getresponse()
            while line := answer.readline():
                event = decoder.decode(line)
                version = event.object.metadata.resource_version
                if event.type == "ADDED":
                    yield event.object.metadata


def place_pod(server: Server, plan: Plan, work: Placement) -> None:
    """Make the three writes for a pod."""
    node, pool, device = work.device
    claim = f"{plan.claims}/{work.claim}"
    if not plan.protected:
        server.patch(claim, {"metadata": {"finalizers": [FINALIZER]}})
    result = {"request": "gpu", "driver": plan.driver, "pool": pool, "device": device}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": terms},
        "allocationTimestamp": TIMESTAMP,
    }
    pod = {"resource": "pods", "name": work.pod.name, "uid": work.pod.uid}
    server.patch(f"{claim}/status", {"status": {"allocation": allocation, "reservedFor": [pod]}})
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": work.pod.name}, "target": target}
    server.request("POST", f"{plan.pods}/{work.pod.name}/binding", binding)


def main() -> None:
    """Allocate a device of the plan to each pod until no device is left."""
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    waiting: queue.SimpleQueue[Placement] = queue.SimpleQueue()
    for _ in range(WRITERS):
        threading.Thread(target=place_pods, args=(plan, waiting), daemon=True).start()
    devices = iter(plan.devices)
    for metadata in Server(plan).follow(plan.claims if plan.generated else plan.pods):
        pod = metadata.owner_references[0] if plan.generated else Owner(metadata.name, metadata.uid)
        waiting.put(Placement(pod, metadata.name, next(devices)))


def place_pods(plan: Plan, waiting: queue.SimpleQueue[Placement]) -> None:
    """Place one pod after the other."""
    server = Server(plan)
    while True:
        place_pod(server, plan, waiting.get())


if __name__ == "__main__":
    main()
