"""Answers that were given, for the next pod that is the same: a Deployment's hundred replicas are decided once.

"The same" is the bytes of the review, but for two things. Its uid, which the answer repeats. And the random end of the
name `kube-api-access-…`, which the service account plugin gives to a volume of nearly every pod before we see it: two
reviews that differ by that end alone are one review with a name changed throughout, so a decision in which the name does not
appear is the decision of both.

What a mutating decision reads of the state is all but the stock and what pods use, in mode enforce; the memory holds for as long as those
parts are the very same objects. It is bounded by bytes. What it is not: a cache of verdicts. Those depend on who holds which
device, which changes with every pod.
"""

from __future__ import annotations

import re
from base64 import b64decode
from operator import is_
from typing import NamedTuple

import msgspec

from dra.cache import Cache
from webhook.admission import Outcome
from webhook.state import State

LIMIT = 16 << 20
# What a remembered answer weighs besides its bytes: the record, with its decisions.
RECORD = 4096
MARKS = 8192
KEPT = ("translated", "left", "untouched")
_UID = re.compile(rb'"uid": ?"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"')
_VOLUME = b"kube-api-access-"
_END = 5
# No JSON holds this byte, so no review holds the name that stands for all others.
_NAME = b'"name":"%b"'  # as an API server writes it
_ANY = _VOLUME + b"\0"
_PARTS = tuple(name for name in State.__struct_fields__ if name not in ("stock", "memo", "uses"))
_patch = msgspec.json.Decoder(dict[str, object])


class _Remembered(msgspec.Struct, frozen=True):
    """An answer around the uid, and what else it came with."""

    before: bytes
    after: bytes
    outcome: Outcome


class Asked(NamedTuple):
    """A review, as it is remembered."""

    key: tuple[bytes, bytes]
    uid: bytes


class Alike:
    """What was answered to mutating reviews on the present state."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._answers: Cache[_Remembered] = Cache(limit)
        # Most pods come once: what came for the first time is only marked.
        self._seen: set[int] = set()
        self._state: State | None = None
        self._parts: tuple[object, ...] = ()

    def read_review(self, body: bytes, state: State) -> Asked | None:
        """Read what is asked on a state; None if it cannot be told from another review."""
        self._follow(state)
        uid = _UID.search(body)
        if uid is None or body.count(uid[1]) != 1:
            return None
        return Asked(_key(body, uid), uid[1])

    def find(self, asked: Asked) -> Outcome | None:
        """Find the answer to a review like one that was answered before."""
        known = self._answers.get(asked.key)
        if known is None:
            return None
        outcome = known.outcome
        body = known.before + asked.uid + known.after
        uid = asked.uid.decode()
        record = msgspec.structs.replace(outcome.record, uid=uid)
        return msgspec.structs.replace(outcome, body=body, record=record)

    def keep(self, asked: Asked, outcome: Outcome) -> None:
        """Remember an answer from the second time on, if it is one for every review like this one."""
        record, own = outcome.record, asked.uid
        mark = hash(asked.key)
        if mark not in self._seen:
            if len(self._seen) >= MARKS:
                self._seen.clear()
            self._seen.add(mark)
            return
        if record.outcome not in KEPT or record.mode != "enforce":
            return
        if record.uid != own.decode() or outcome.body.count(own) != 1:
            return
        told = outcome.body + _patch_of(outcome.body) + msgspec.json.encode(record)
        if _VOLUME in told.lower():
            return
        before, _, after = outcome.body.partition(own)
        weight = sum(map(len, asked.key)) + len(outcome.body) + RECORD
        self._answers.put(asked.key, _Remembered(before, after, outcome), weight)

    def _follow(self, state: State) -> None:
        if state is self._state:
            return
        parts = tuple([getattr(state, name) for name in _PARTS])
        same = len(parts) == len(self._parts) and all(map(is_, parts, self._parts))
        if not same:
            self._answers.clear()
        self._state = state
        self._parts = parts


def _key(body: bytes, uid: re.Match[bytes]) -> tuple[bytes, bytes]:
    """What is left of a review without its uid and without the random end of that volume's name."""
    start, end = uid.span()
    before, rest = body[:start], body[end:]
    at = rest.find(_VOLUME)
    if at < 0:
        return before, rest
    random = at + len(_VOLUME)
    name = rest[at : random + _END]
    is_name = name[len(_VOLUME) :].isalnum()
    # It must be a name wherever it stands, and nothing else.
    if is_name and rest.count(name) == rest.count(_NAME % name):
        rest = rest.replace(name, _ANY)
    return before, rest


def _patch_of(answer: bytes) -> bytes:
    response = _patch.decode(answer)["response"]
    patch = response.get("patch") if isinstance(response, dict) else None
    return b64decode(patch) if isinstance(patch, str) else b""
