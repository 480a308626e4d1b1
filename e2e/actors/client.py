"""A small synchronous client of the API server for tests: JSON in, JSON out, one connection a thread.

It is not the product's client (cluster/): tests must not judge the product with its own code.
"""

import http.client
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
USER_AGENT = "drawbridge-e2e"  # how the audit log tells the tests' own requests from all others
BUSY = 3
# The API server closes what was idle for 90 seconds, and a write that meets the end must not be sent twice.
IDLE_SECONDS = 30.0
Object = dict[str, Any]


class ApiError(Exception):
    """An answer of 400 and above, with the Status object that came with it."""

    def __init__(self, method: str, path: str, code: int, status: Any) -> None:
        message = status.get("message", status) if isinstance(status, dict) else status
        super().__init__(f"{method} {path}: {code} {message}")
        self.code = code
        self.status = status
        self.message = str(message)


class Client:
    """Requests with a bearer token against one API server."""

    def __init__(self, url: str, token: str, ca: Path) -> None:
        self.url = url
        self.token = token
        self.ca = ca
        self.paths: dict[tuple[str, str], tuple[str, bool]] = {}
        self.connections = threading.local()
        self.opened: list[http.client.HTTPSConnection] = []

    def get(self, path: str, **query: Any) -> Any:
        return self.request("GET", path, None, query)

    def post(self, path: str, body: Object, **query: Any) -> Any:
        return self.request("POST", path, body, query)

    def put(self, path: str, body: Object, **query: Any) -> Any:
        return self.request("PUT", path, body, query)

    def patch(self, path: str, body: Any, kind: str = "merge", **query: Any) -> Any:
        return self.request("PATCH", path, body, query, PATCH_TYPES[kind])

    def delete(self, path: str, **query: Any) -> Any:
        return self.request("DELETE", path, None, query)

    def request(
        self, method: str, path: str, body: Any = None, query: Object | None = None, kind: str = "application/json"
    ) -> Any:
        """Send one request; the answer is decoded JSON, or text where the server sends text."""
        target = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        payload = None if body is None else json.dumps(body).encode()
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": kind,
            "Accept": "application/json",
            "User-Agent": USER_AGENT,
        }
        try:
            code, answer = self.send(method, target, payload, headers)
        except (http.client.HTTPException, OSError):
            # A connection that broke is of no use; a fresh one is made once, and reads may be repeated safely.
            self.close_connection()
            if method != "GET":
                raise
            code, answer = self.send(method, target, payload, headers)
        try:
            decoded = json.loads(answer)
        except ValueError:
            decoded = answer.decode(errors="replace")
        if code >= 400:
            raise ApiError(method, target, code, decoded)
        return decoded

    def send(self, method: str, target: str, payload: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        if time.monotonic() - getattr(self.connections, "used", 0.0) > IDLE_SECONDS:
            self.close_connection()
        connection = getattr(self.connections, "one", None)
        if connection is None:
            host = urllib.parse.urlsplit(self.url).netloc
            context = ssl.create_default_context(cafile=str(self.ca))
            connection = self.connections.one = http.client.HTTPSConnection(host, context=context, timeout=60)
            self.opened.append(connection)
        connection.request(method, target, payload, headers)
        response = connection.getresponse()
        answer = response.read()
        self.connections.used = time.monotonic()
        return response.status, answer

    def close_connection(self) -> None:
        if connection := getattr(self.connections, "one", None):
            connection.close()
            self.opened.remove(connection)
            del self.connections.one

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self.opened:
            connection.close()

    # Objects by their own apiVersion, kind and name.

    def path_of(self, item: Object, *, collection: bool = False) -> str:
        """Return the request path of an object, as the server's discovery has it."""
        version, kind = item["apiVersion"], item["kind"]
        if (version, kind) not in self.paths:
            base = f"/apis/{version}" if "/" in version else f"/api/{version}"
            for resource in self.get(base)["resources"]:
                if "/" not in resource["name"]:
                    self.paths[version, resource["kind"]] = (f"{base}|{resource['name']}", resource["namespaced"])
        where, namespaced = self.paths[version, kind]
        base, plural = where.split("|")
        space = f"/namespaces/{item['metadata'].get('namespace', 'default')}" if namespaced else ""
        return f"{base}{space}/{plural}" + ("" if collection else f"/{item['metadata']['name']}")

    def create(self, *items: Object, **query: Any) -> list[Object]:
        """Create objects in order and return them as the server has them."""
        return [self.post(self.path_of(item, collection=True), item, **query) for item in items]

    def create_many(self, items: Iterable[Object], threads: int = 8) -> None:
        """Create objects in no particular order, as fast as it goes."""
        with ThreadPoolExecutor(threads) as several:
            for _ in several.map(self.create, items):
                pass

    def remove(self, *items: Object) -> None:
        """Delete objects in order; what is gone already is fine."""
        for item in items:
            try:
                self.delete(self.path_of(item), gracePeriodSeconds=0)
            except ApiError as error:
                if error.code != 404:
                    raise

    def read(self, item: Object) -> Object | None:
        """Return the object as the server has it now, None if it has none."""
        try:
            found: Object = self.get(self.path_of(item))
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return found

    def until(
        self, what: str, check: Callable[[], Any], seconds: float = 30.0, told: Callable[[], object] | None = None
    ) -> Any:
        """Ask `check` until it answers something true, and return that; AssertionError, with what is `told` then, if it never does.

        `seconds` is what a quiet machine needs at most; one that is busy with other things gets more. An error of the API server is an answer like "not yet": what is awaited may well be what makes it go away.
        """
        deadline = time.monotonic() + seconds * BUSY
        while True:
            said: object = None
            try:
                if answer := check():
                    return answer
            except ApiError as error:
                said = error
            if time.monotonic() > deadline:
                last = f"; the last answer: {said}" if said else ""
                more = f": {told()}" if told else ""
                raise AssertionError(f"not within {seconds * BUSY:.0f} s: {what}{last}{more}")
            time.sleep(0.05)

    def pod_condition(
        self, namespace: str, name: str, check: Callable[[Object], Any], what: str, seconds: float
    ) -> Object:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        last: Object = {}

        def answer() -> bool:
            last.update(self.get(path))
            return bool(check(last))

        try:
            self.until(f"pod {namespace}/{name} {what}", answer, seconds)
        except AssertionError as error:
            events = "\n".join(self.events(namespace, name))
            raise AssertionError(
                f"{error}; its status: {json.dumps(last.get('status'))}\nits events:\n{events}"
            ) from None
        return last

    def wait_scheduled(self, namespace: str, name: str, seconds: float = 30.0) -> Object:
        """Wait until a pod has a node and return the pod."""
        return self.pod_condition(namespace, name, lambda pod: pod["spec"].get("nodeName"), "scheduled", seconds)

    def wait_phase(self, namespace: str, name: str, *phases: str, seconds: float = 60.0) -> Object:
        """Wait until a pod is in one of the phases and return the pod."""
        what = " or ".join(phases)
        return self.pod_condition(namespace, name, lambda pod: pod["status"].get("phase") in phases, what, seconds)

    def wait_unschedulable(self, namespace: str, name: str, seconds: float = 30.0) -> Object:
        """Wait until the scheduler has said that a pod fits nowhere, and return its PodScheduled condition."""

        def refused(pod: Object) -> list[Object]:
            return [c for c in conditions(pod) if c["type"] == "PodScheduled" and c["status"] == "False"]

        return refused(self.pod_condition(namespace, name, refused, "found unschedulable", seconds))[0]

    def refusal(self, item: Object) -> str:
        """Say why a dry run of an object is turned back; "" if it would be let in."""
        try:
            self.create(item, dryRun="All")
        except ApiError as error:
            return error.message
        return ""

    def events(self, namespace: str, name: str) -> list[str]:
        """Return the messages of the events about one object."""
        found = self.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=f"involvedObject.name={name}")
        return [f"{e['reason']}: {e['message']}" for e in found["items"]]

    def until_may(self, who: str, verb: str, resource: str, namespace: str = "", group: str = "") -> None:
        """Wait until an account may do something: a role counts some moments after it was given, and a refusal does not count before."""
        asked = {"verb": verb, "resource": resource, "namespace": namespace, "group": group}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": who, "resourceAttributes": asked},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        self.until(f"{who} may {verb} {resource}", lambda: self.post(path, review)["status"]["allowed"])

    def namespace(self, name: str, labels: dict[str, str] | None = None) -> str:
        """Make a namespace and wait for the service account without which no pod can be made in it."""
        meta = {"name": name, "labels": labels or {}}
        self.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        self.until(f"service account default in {name}", lambda: self.read(account))
        return name


def conditions(item: Object) -> Iterable[Object]:
    return item.get("status", {}).get("conditions") or ()
