"""What was stored, change by change: etcd's own history, which no crash of an API server can leave a gap in.

It needs an API server that stores JSON and compacts nothing (`KEPT`).
"""

import base64
import json
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

Object = dict[str, Any]
# Arguments of an API server whose whole history can be read afterwards.
KEPT = ("--storage-media-type=application/json", "--etcd-compaction-interval=0")
ROOT = "/registry/"
END = "/registry/~"  # after every resource: no watch follows it. Written when the record is read, which ends there
KINDS = {"resourceslices": "ResourceSlice", "resourceclaims": "ResourceClaim", "pods": "Pod"}
TIMEOUT = 60.0


class Change(NamedTuple):
    """One object as it was from a revision on; None from the revision on at which it was deleted."""

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
    """Read one event; None if it is about something else."""
    stored = event["kv"]
    # /registry/pods/NAMESPACE/NAME; a group stands before the plural only for kinds that are not built in.
    plural, _, key = decoded(stored["key"]).removeprefix(ROOT).partition("/")
    if plural not in KINDS:
        return None
    gone = event.get("type") == "DELETE"
    found = None if gone else json.loads(base64.b64decode(stored["value"]))
    return Change(int(stored["mod_revision"]), KINDS[plural], key, found)


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
