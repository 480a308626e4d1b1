"""Reviews of `/quota`, answered by the one replica that leads; one that follows hands them on, as they are, and hands back the answer.

It forwards because an API server asks once: "ask another" would be a call that failed, and turn people back, or let them pass uncounted, as
often as a Service happens to pick who follows. Where the leader is asked stands on its lease. Who gets a review that was
handed on and does not lead any more says so, and hands on nothing: then the call has failed, and the failurePolicy says what that means.
"""

from __future__ import annotations

import ssl
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import aiohttp

from allocator.service.quota.intake import Unfinished
from allocator.service.replies import JSON, Refusal
from runtime.http import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from allocator.intake import Newcomer, Wanted
    from allocator.service.quota.intake import Intake
    from dra.objects import Pod
    from runtime.controllers import Election
    from runtime.http import Head

PLACE = "drawbridge.dev/quota"  # on the lease: where the leader is asked
FORWARDED = "X-Drawbridge-Forwarded"
SECONDS = 2.5  # for a review that is handed on; the API server waits for three
LARGEST = 1 << 20  # an answer


class Reviewing(NamedTuple):
    """How reviews are read and answered, and which claims will be made for a pod."""

    review: Callable[[bytes, Callable[[Newcomer], str]], bytes]
    wants_of_pod: Callable[[Pod], Mapping[str, Wanted]]


class Trust(NamedTuple):
    """How a leader is known that is asked by address: by a file of authorities and a name in its certificate. In the clear without.

    Its answer is waited for so many seconds.
    """

    authorities: str = ""
    name: str = ""
    seconds: float = SECONDS


class _Authorities:
    """Whose certificates a leader is known by: one context for as long as its file says the same, since a connection is kept with its context."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._bundle = b""
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | bool:
        """Trust who the file says now. Raise OSError where it says nobody."""
        if not self._file:
            return True
        bundle = Path(self._file).read_bytes()
        if self._context is None or bundle != self._bundle:
            self._context = ssl.create_default_context(cafile=self._file)
            self._bundle = bundle
        return self._context


class Reviews:
    """Answers reviews, or has them answered."""

    def __init__(self, intake: Intake, election: Election, reviewing: Reviewing, trust: Trust) -> None:
        self._intake = intake
        self._election = election
        self._review = reviewing.review
        self._trust = trust
        self._authorities = _Authorities(trust.authorities)
        self._session: aiohttp.ClientSession | None = None

    def answer(self, head: Head, body: bytes) -> Reply | Coroutine[None, None, Reply]:
        """Answer a review if we lead, and else hand it on."""
        election = self._election
        if election.is_sure():
            return self._count(body)
        place = election.holders_notes.get(PLACE)
        own = election.notes.get(PLACE)
        if place in (None, own) or FORWARDED in head.headers:
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, "no leader is known that could count this", "ask again in a moment"
            )
        return self._forward(place, body)

    def _count(self, body: bytes) -> Reply | Coroutine[None, None, Reply]:
        ask = partial(self._ask, body)
        try:
            return ask(self._intake.admit)
        except Unfinished as more:
            return self._intake.in_turns(more.namespace, ask)

    def _ask(self, body: bytes, admit: Callable[[Newcomer], str]) -> Reply:
        try:
            answer = self._review(body, admit)
        except ValueError as error:
            raise Refusal(
                HTTPStatus.BAD_REQUEST, str(error), "send an AdmissionReview of admission.k8s.io/v1"
            ) from None
        return Reply(200, answer, JSON)

    async def _forward(self, place: str, body: bytes) -> Reply:
        trust = self._trust
        scheme = "https" if trust.authorities else "http"
        headers = {"Content-Type": JSON, FORWARDED: self._election.identity}
        try:
            context = self._authorities.context()
            session = self._open()
            asking = session.post(
                f"{scheme}://{place}/quota",
                data=body,
                headers=headers,
                ssl=context,
                server_hostname=trust.name or None,
                allow_redirects=False,
            )
            async with asking as response:
                said = await _whole(response)
                return Reply(response.status, said, JSON)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            problem = f"the replica that leads, at {place}, could not be asked: {str(error) or type(error).__name__}"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, problem, "ask again in a moment") from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._trust.seconds)
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        return self._session

    async def close(self) -> None:
        """Let go of the leader."""
        if self._session is not None:
            await self._session.close()


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    """Read an answer to its end, which comes in as many pieces as it likes."""
    said = bytearray()
    async for piece in response.content.iter_any():
        said += piece
        if len(said) > LARGEST:
            raise ValueError(f"its answer has more than {LARGEST} bytes")
    return bytes(said)
