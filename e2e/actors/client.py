"""A small synchronous client of the API server for tests: JSON in, JSON out, one connection a thread.

It is not the product's client (cluster/): tests must not judge the product with its own code.
"""

import http.client
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
USER_AGENT = "drawbridge-e2e"  # the user agent of the tests' own requests in the audit log
BUSY_FACTOR = 3
# The API server closes connections that are idle for 90 seconds. A write that fails on a closed connection must not be sent again.
IDLE_SECONDS = 30.0
Object = dict[str, Any]


class ApiError(Exception):
    """A response of 400 or above, with its Status object."""

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
            # Only reads may be sent again, once, on a new connection.
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
        connection = getattr(self.connections, "current", None)
        if connection is None:
            host = urllib.parse.urlsplit(self.url).netloc
            context = ssl.create_default_context(cafile=str(self.ca))
            connection = self.connections.current = http.client.HTTPSConnection(host, context=context, timeout=60)
            self.opened.append(connection)
        connection.request(method, target, payload, headers)
        response = connection.getresponse()
        answer = response.read()
        self.connections.used = time.monotonic()
        return response.status, answer

    def close_connection(self) -> None:
        if connection := getattr(self.connections, "current", None):
            connection.close()
            self.opened.remove(connection)
            del self.connections.current

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self.opened:
            connection.close()

    # Objects by their own apiVersion, kind and name.

    def path_of(self, item: Object, *, collection: bool = False) -> str:
        """Return the request path of an object, according to the server's discovery."""
        version, kind = item["apiVersion"], item["kind"]
        if (version, kind) not in self.paths:
            base = f"/apis/{version}" if "/" in version else f"/api/{version}"
            for resource in self.get(base)["resources"]:
                if "/" not in resource["name"]:
                    self.paths[version, resource["kind"]] = (f"{base}|{resource['name']}", resource["namespaced"])
        base_and_plural, namespaced = self.paths[version, kind]
        base, plural = base_and_plural.split("|")
        space = f"/namespaces/{item['metadata'].get('namespace', 'default')}" if namespaced else ""
        return f"{base}{space}/{plural}" + ("" if collection else f"/{item['metadata']['name']}")

    def create(self, *items: Object, **query: Any) -> list[Object]:
        """Create objects in order and return them as the server has them."""
        return [self.post(self.path_of(item, collection=True), item, **query) for item in items]

    def create_many(self, items: Iterable[Object], threads: int = 8) -> None:
        """Create objects in no particular order, as fast as possible."""
        with ThreadPoolExecutor(threads) as executor:
            for _ in executor.map(self.create, items):
                pass

    def remove(self, *items: Object) -> None:
        """Delete objects in order; objects that are already deleted are skipped."""
        for item in items:
            try:
                self.delete(self.path_of(item), gracePeriodSeconds=0)
            except ApiError as error:
                if error.code != 404:
                    raise

    def read(self, item: Object) -> Object | None:
        """Return the object as the server has it now, or None."""
        try:
            stored: Object = self.get(self.path_of(item))
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return stored

    def until(
        self, awaited: str, check: Callable[[], Any], seconds: float = 30.0, detail: Callable[[], object] | None = None
    ) -> Any:
        """Call `check` until it returns a true value, and return that value; on timeout raise AssertionError with the text of `detail`.

        `seconds` are enough on a quiet machine; the timeout is longer, for busy ones. After an error of the API server the check is
        repeated, because the caller may wait for the end of that error.
        """
        deadline = time.monotonic() + seconds * BUSY_FACTOR
        while True:
            last_answer: object = None
            try:
                if answer := check():
                    return answer
            except ApiError as error:
                last_answer = error
            if time.monotonic() > deadline:
                last = f"; the last answer: {last_answer}" if last_answer else ""
                details = f": {detail()}" if detail else ""
                raise AssertionError(f"not within {seconds * BUSY_FACTOR:.0f} s: {awaited}{last}{details}")
            time.sleep(0.05)

    def pod_condition(
        self, namespace: str, name: str, check: Callable[[Object], Any], state: str, seconds: float
    ) -> Object:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        last: Object = {}

        def holds() -> bool:
            last.update(self.get(path))
            return bool(check(last))

        try:
            self.until(f"pod {namespace}/{name} {state}", holds, seconds)
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
        wanted = " or ".join(phases)
        return self.pod_condition(namespace, name, lambda pod: pod["status"].get("phase") in phases, wanted, seconds)

    def wait_unschedulable(self, namespace: str, name: str, seconds: float = 30.0) -> Object:
        """Wait until the scheduler reports that a pod fits nowhere, and return its PodScheduled condition."""

        def unschedulable(pod: Object) -> list[Object]:
            return [c for c in conditions(pod) if c["type"] == "PodScheduled" and c["status"] == "False"]

        return unschedulable(self.pod_condition(namespace, name, unschedulable, "found unschedulable", seconds))[0]

    def refusal(self, item: Object) -> str:
        """Return why the API server refuses a dry run of an object; "" if it accepts it."""
        try:
            self.create(item, dryRun="All")
        except ApiError as error:
            return error.message
        return ""

    def events(self, namespace: str, name: str) -> list[str]:
        """Return the messages of the events about one object."""
        events = self.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=f"involvedObject.name={name}")
        return [f"{e['reason']}: {e['message']}" for e in events["items"]]

    def until_may(self, user: str, verb: str, resource: str, namespace: str = "", group: str = "") -> None:
        """Wait until an account has a right: a role takes effect some moments after its creation."""
        attributes = {"verb": verb, "resource": resource, "namespace": namespace, "group": group}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        self.until(f"{user} may {verb} {resource}", lambda: self.post(path, review)["status"]["allowed"])

    def namespace(self, name: str, labels: dict[str, str] | None = None) -> str:
        """Create a namespace and wait for its service account, without which no pod can be created in it."""
        meta = {"name": name, "labels": labels or {}}
        self.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        self.until(f"service account default in {name}", lambda: self.read(account))
        return name

    def add_fake_nodes(
        self,
        count: int,
        *,
        prefix: str = "fake-",
        labels: Mapping[str, str] | None = None,
        allocatable: Object | None = None,
    ) -> list[str]:
        """Create nodes that are API objects only: ready, schedulable, and without a kubelet."""
        names = [f"{prefix}{index}" for index in range(count)]
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"} | (allocatable or {})

        def make(name: str) -> None:
            meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
            self.create(node)
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            ready = {"type": "Ready", "status": "True", "reason": "Fake", "lastHeartbeatTime": now}
            path = self.path_of(node)
            status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
            self.patch(f"{path}/status", {"status": status}, "strategic")
            # Admission taints every new node as not ready; the controller would remove the taint later.
            self.patch(path, {"spec": {"taints": None}})

        with ThreadPoolExecutor(8) as executor:
            list(executor.map(make, names))
        return names


def conditions(item: Object) -> Iterable[Object]:
    return item.get("status", {}).get("conditions") or ()
