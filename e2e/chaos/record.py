"""The stored objects, change by change, from etcd's own history: a crash of an API server leaves no gap in it.

It needs an API server that stores JSON and compacts nothing (`KEPT`).
"""

import base64
import json
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

Object = dict[str, Any]
# Arguments of an API server that keeps its whole history.
FULL_HISTORY = ("--storage-media-type=application/json", "--etcd-compaction-interval=0")
ROOT = "/registry/"
END = "/registry/~"  # a key after those of all resources. The record is read until this key is written
KINDS = {"resourceslices": "ResourceSlice", "resourceclaims": "ResourceClaim", "pods": "Pod"}
TIMEOUT = 60.0


class Change(NamedTuple):
    """An object from a revision on; None from the revision of its deletion on."""

    revision: int
    kind: str
    key: str  # namespace/name, or a name
    object: Object | None


def history(etcd: str) -> Iterator[Change]:
    """Read all changes of slices, claims and pods until now, in the order in which they happened."""
    end = int(ask(etcd, "/v3/kv/put", {"key": encoded(END), "value": ""})["header"]["revision"])
    body = {"key": encoded(ROOT), "range_end": encoded(END + "\0"), "start_revision": 1}
    with send(etcd, "/v3/watch", {"create_request": body}) as stream:
        for line in stream:
            for event in json.loads(line)["result"].get("events", ()):
                if int(event["kv"]["mod_revision"]) >= end:
                    return
                change = change_of(event)
                if change is not None:
                    yield change


def change_of(event: Object) -> Change | None:
    """Read one event; return None if it is about another kind."""
    stored = event["kv"]
    # /registry/pods/NAMESPACE/NAME; only kinds that are not built in have a group before the plural.
    plural, _, key = decoded(stored["key"]).removeprefix(ROOT).partition("/")
    if plural not in KINDS:
        return None
    deleted = event.get("type") == "DELETE"
    value = None if deleted else json.loads(base64.b64decode(stored["value"]))
    return Change(int(stored["mod_revision"]), KINDS[plural], key, value)


def ask(etcd: str, path: str, body: Object) -> Any:
    with send(etcd, path, body) as answer:
        return json.load(answer)


def send(etcd: str, path: str, body: Object) -> Any:
    request = urllib.request.Request(f"{etcd}{path}", json.dumps(body).encode())
    return urllib.request.urlopen(request, timeout=TIMEOUT)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()
