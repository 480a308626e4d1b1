"""Answers that were given, for the next pod of which the rules read the same: a hundred replicas are decided once, and so are pods that differ
in their names, their variables and others' labels.

"The same" is the gist of the review (`gist`). What an answer says beside the decision is put in anew: the review's uid, what the pod is called,
who asks, and the code by which the templates are sealed for this pod and no other.

What a mutating decision reads of the state is all but the stock and what pods use, in mode enforce; the memory holds for as long as those
parts are the very same objects. It is bounded by bytes. A verdict, whether the claims can be served, depends on who holds which
device: it is remembered for as long as nothing changes but claims without devices, one of which comes with every pod. Where a pod names a claim that is
there already, it is remembered until anything changes at all.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dra.cache import Cache
from webhook import names
from webhook.admission import Outcome
from webhook.claims import template
from webhook.service.deciding.gist import Gist, GistReader
from webhook.state import State
from webhook.translate import LARGEST, TOO_LARGE, Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.wire import Json

LIMIT = 16 << 20
# What a remembered answer weighs besides its bytes: the record, with its decisions.
RECORD = 4096
MARKS = 8192
# Larger reviews are decided where nothing is remembered.
BODY = 64 * 1024
KEPT = ("translated", "left", "untouched")
_PARTS = tuple(name for name in State.__struct_fields__ if name not in ("stock", "memo", "uses"))
_write = msgspec.json.Encoder().encode


class _Patch(msgspec.Struct, rename="camel"):
    patch: str = ""


class _Answered(msgspec.Struct):
    response: _Patch


class _Operation(msgspec.Struct):
    path: str
    value: msgspec.Raw = msgspec.Raw(b"null")


_read_answer = msgspec.json.Decoder(_Answered).decode
_read_patch = msgspec.json.Decoder(list[_Operation]).decode
_AT_ONCE = "/metadata/annotations"
_ONE_BY_ONE = {f"{_AT_ONCE}/{name.replace('/', '~1')}": name for name in (names.ORIGINAL, names.TEMPLATES)}


class _Ground(NamedTuple):
    """What a verdict rests on, by numbers: states are not to be kept for its sake."""

    fleet: int  # changes with everything but claims that have no devices
    state: int  # changes with those as well; 0 for who names none of them


class _Seal(NamedTuple):
    """The patch around the code of a seal, and what the code is made of besides the pod's names."""

    before: bytes
    after: bytes
    asked: str
    templates: bytes
    key: bytes


class _Remembered(msgspec.Struct):
    """An answer around the uid, and around its patch where that holds a seal; and what else it came with."""

    before: bytes
    after: bytes
    outcome: Outcome
    seal: _Seal | None = None
    end: bytes = b""
    # On what its claims were weighed last, and nothing was to be said.
    served_on: _Ground | None = None


class Alike:
    """What was answered to mutating reviews on the present state."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._answers: Cache[_Remembered] = Cache(limit)
        # Most pods come once: what came for the first time is only marked.
        self._seen: set[int] = set()
        self._state: State | None = None
        self._parts: tuple[object, ...] = ()
        self._reader: GistReader | None = None
        self._ground = _Ground(0, 0)

    def read_review(self, body: bytes, state: State) -> Gist | None:
        """Read what is asked on a state; None if it cannot be told from another review."""
        self._follow(state)
        if self._reader is None or len(body) > BODY:
            return None
        return self._reader.read(body)

    def find(self, asked: Gist) -> Outcome | None:
        """Find the answer to a review like one that was answered before."""
        known = self._answers.get(asked.key)
        if known is None:
            return None
        uid = _write(asked.uid)
        if known.seal is None:
            body = known.before + uid + known.after
        else:
            patch = _seal(known.seal, asked)
            if len(patch) + asked.size > LARGEST:
                return None  # its own annotations may be too large for ours
            body = b"%b%b%b%b%b" % (known.before, uid, known.after, b64encode(patch), known.end)
        return _call(known.outcome, asked, body)

    def keep(self, asked: Gist, outcome: Outcome) -> None:
        """Remember an answer from the second time on, if it is one for every review like this one."""
        mark = hash(asked.key)
        if mark not in self._seen:
            if len(self._seen) >= MARKS:
                self._seen.clear()
            self._seen.add(mark)
            return
        known = self._take_apart(asked, outcome)
        if known is not None:
            weight = len(asked.key[-1]) + 2 * len(outcome.body) + RECORD
            self._answers.put(asked.key, known, weight)

    def is_served(self, asked: Gist) -> bool:
        """Whether the claims of such a pod were weighed on what is there now, and can be served."""
        known = self._answers.get(asked.key)
        return known is not None and known.served_on == self._ground_of(known)

    def mark_served(self, asked: Gist) -> None:
        """Remember that such a pod's claims can be served, until something changes that they rest on."""
        known = self._answers.get(asked.key)
        if known is not None:
            known.served_on = self._ground_of(known)

    def _ground_of(self, known: _Remembered) -> _Ground:
        names_claims = any(one.claim for one in known.outcome.given)
        return self._ground if names_claims else self._ground._replace(state=0)

    def _take_apart(self, asked: Gist, outcome: Outcome) -> _Remembered | None:
        record = outcome.record
        if record.outcome not in KEPT or record.mode != "enforce" or not _is_of(asked, outcome):
            return None
        for decision in record.decisions:
            if decision.detail == TOO_LARGE:
                return None  # for this pod's own annotations
        uid = _write(asked.uid)
        if outcome.body.count(uid) != 1:
            return None
        before, _, after = outcome.body.partition(uid)
        written = _read_answer(outcome.body).response.patch
        patch = b64decode(written)
        annotations = _find_annotations(patch)
        if names.TEMPLATES not in annotations:
            return _Remembered(before, after, outcome)
        seal = self._find_seal(asked, patch, annotations)
        if seal is None or after.count(written.encode()) != 1:
            return None
        after, _, end = after.partition(written.encode())
        return _Remembered(before, after, outcome, seal, end)

    def _find_seal(self, asked: Gist, patch: bytes, annotations: dict[str, str]) -> _Seal | None:
        assert self._state is not None
        key = self._state.keys[0]
        original = annotations.get(names.ORIGINAL, "")
        sealed = annotations[names.TEMPLATES]
        code, templates = template.split(sealed)
        mark = code.encode()
        before, _, after = patch.partition(mark)
        if mark in after:
            return None
        seal = _Seal(before, after, original, templates, key)
        return seal if _seal(seal, asked) == patch else None

    def _follow(self, state: State) -> None:
        if state is self._state:
            return
        parts = tuple([getattr(state, name) for name in _PARTS])
        same = len(parts) == len(self._parts) and all(map(is_, parts, self._parts))
        if not same:
            self._answers.clear()
            self._reader = GistReader(state.configuration)
        moved = not same or not _serves_as(state, self._state)
        fleet, number = self._ground
        self._ground = _Ground(fleet + moved, number + 1)
        self._state = state
        self._parts = parts


def _serves_as(state: State, earlier: State | None) -> bool:
    if earlier is None or state.uses is not earlier.uses or state.stock is None or earlier.stock is None:
        return False
    return state.stock.serves_as(earlier.stock)


def _seal(seal: _Seal, asked: Gist) -> bytes:
    """Write a patch with the code that is this pod's."""
    whose = template.Bearer(asked.namespace, asked.bearer, asked.account, seal.asked)
    code = template.code_of(seal.templates, seal.key, whose)
    return b"%b%b%b" % (seal.before, code.encode(), seal.after)


def _is_of(asked: Gist, outcome: Outcome) -> bool:
    """Whether the record of an outcome says of its pod what another one's is going to say of itself."""
    record = outcome.record
    called = (record.uid, record.object, record.user, record.dry_run)
    return called == _titles(asked) and record.decisions == _call_decisions(record.decisions, asked)


def _titles(asked: Gist) -> tuple[str, str, str, bool]:
    where = f"{asked.namespace}/" if asked.namespace else ""
    return asked.uid, f"Pod/{where}{asked.asked_name}", asked.user, asked.dry_run


def _call(outcome: Outcome, asked: Gist, body: bytes) -> Outcome:
    """Give a pod an answer to another one as its own."""
    uid, called, user, dry_run = _titles(asked)
    record = outcome.record
    named = msgspec.structs.replace(
        record,
        uid=uid,
        object=called,
        user=user,
        dry_run=dry_run,
        decisions=_call_decisions(record.decisions, asked),
    )
    return msgspec.structs.replace(outcome, body=body, record=named)


def _call_decisions(decisions: Sequence[Decision], asked: Gist) -> tuple[Decision, ...]:
    called = f"Pod/{asked.namespace or 'default'}/{asked.name}"
    named: list[Decision] = []
    for one in decisions:
        own = one if one.object == called else msgspec.structs.replace(one, object=called)
        named.append(own)
    return tuple(named)


def _find_annotations(patch: bytes) -> dict[str, str]:
    """Find what a patch writes of the annotations that are made for one pod."""
    found: dict[str, str] = {}
    operations = _read_patch(patch) if patch else []
    for operation in operations:
        name = _ONE_BY_ONE.get(operation.path)
        if name:
            found[name] = msgspec.json.decode(operation.value)
        elif operation.path == _AT_ONCE:
            every: dict[str, Json] = msgspec.json.decode(operation.value)
            found |= every
    return found
