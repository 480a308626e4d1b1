"""Answers that were given, for the next pod that is the same: a Deployment's hundred replicas are decided once.

"The same" is the bytes of the review, but for two things. Its uid, which the answer repeats. And the random end of the
name `kube-api-access-…`, which the service account plugin gives to a volume of nearly every pod before we see it: two
reviews that differ by that end alone are one review with a name changed throughout, so a decision in which the name does not
appear is the decision of both.

What a mutating decision reads of the state is all but the stock, in mode enforce; the memory holds for as long as those
parts are the very same objects. It is bounded by bytes. What it is not: a cache of verdicts. Those depend on who holds which
device, which changes with every pod.
"""

from __future__ import annotations

import re
from base64 import b64decode

import msgspec

from dra.cache import Cache
from webhook.admission import Outcome, Record
from webhook.state import State

LIMIT = 16 << 20
# What a remembered answer weighs besides its bytes: the record, with its decisions.
RECORD = 4096
KEPT = ("translated", "left", "untouched")
_UID = re.compile(rb'"uid": ?"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"')
_VOLUME = b"kube-api-access-"
_END = 5
# No JSON holds this byte, so no review holds the name that stands for all others.
_NAME = b'"name":"%b"'  # as an API server writes it
_ANY = _VOLUME + b"\0"
_PARTS = tuple(name for name in State.__struct_fields__ if name not in ("stock", "memo"))
_patch = msgspec.json.Decoder(dict[str, object])


class _Answer(msgspec.Struct, frozen=True):
    """An answer around the uid, and its record."""

    before: bytes
    after: bytes
    record: Record


class Alike:
    """What was answered to mutating reviews on the present state."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._answers: Cache[_Answer] = Cache(limit)
        self._state: State | None = None
        self._parts: tuple[object, ...] = ()

    def find(self, body: bytes, state: State) -> Outcome | None:
        """Find the answer to a review like one that was answered before."""
        self._follow(state)
        uid = _UID.search(body)
        if uid is None:
            return None
        known = self._answers.get(_key(body, uid))
        if known is None:
            return None
        own = uid[1]
        record = msgspec.structs.replace(known.record, uid=own.decode())
        return Outcome(body=known.before + own + known.after, record=record)

    def keep(self, body: bytes, outcome: Outcome) -> None:
        """Remember an answer, if it is one for every review like this one."""
        record, uid = outcome.record, _UID.search(body)
        if uid is None or record.outcome not in KEPT or record.mode != "enforce":
            return
        own = uid[1]
        if record.uid != own.decode() or body.count(own) != 1 or outcome.body.count(own) != 1:
            return
        told = outcome.body + _patched(outcome.body) + msgspec.json.encode(record)
        if _VOLUME in told.lower():
            return
        key = _key(body, uid)
        before, _, after = outcome.body.partition(own)
        weight = sum(map(len, key)) + len(outcome.body) + RECORD
        self._answers.put(key, _Answer(before, after, record), weight)

    def _follow(self, state: State) -> None:
        if state is self._state:
            return
        parts = tuple([getattr(state, name) for name in _PARTS])
        if len(parts) != len(self._parts) or any(new is not old for new, old in zip(parts, self._parts, strict=True)):
            self._answers.clear()
        self._state, self._parts = state, parts


def _key(body: bytes, uid: re.Match[bytes]) -> tuple[bytes, bytes]:
    """What is left of a review without its uid and without the random end of that volume's name."""
    rest = body[uid.end() :]
    at = rest.find(_VOLUME)
    if at >= 0:
        name = rest[at : at + len(_VOLUME) + _END]
        # It must be a name wherever it stands, and nothing else.
        if name[len(_VOLUME) :].isalnum() and rest.count(name) == rest.count(_NAME % name):
            rest = rest.replace(name, _ANY)
    return body[: uid.start()], rest


def _patched(answer: bytes) -> bytes:
    response = _patch.decode(answer)["response"]
    patch = response.get("patch") if isinstance(response, dict) else None
    return b64decode(patch) if isinstance(patch, str) else b""
