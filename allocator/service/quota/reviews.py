"""Reviews of `/quota`: the leading replica answers them; a follower forwards them to the leader and returns the leader's answer.

An API server calls once and does not retry. If followers answered with an error, objects would be refused, or admitted without being
counted, whenever the Service picks a follower. An annotation of the Lease holds the address of the leader. A replica that receives a
forwarded review, but no longer leads, does not forward the review again. It answers with an error, and the failurePolicy decides.
"""

from __future__ import annotations

import ssl
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import aiohttp

from allocator.service.app import JSON, HttpError
from allocator.service.quota.admission import Unfinished
from runtime.http import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from allocator.quota import FutureClaim, NewObject
    from allocator.service.quota.admission import QuotaAdmission
    from allocator.service.settings import LeaderIdentity
    from dra.objects import Pod
    from runtime.controllers import Election
    from runtime.http import Head

PLACE = "drawbridge.dev/quota"  # the annotation of the Lease with the leader's address
FORWARDED = "X-Drawbridge-Forwarded"
LARGEST = 1 << 20  # bytes of a forwarded answer


class Reviewing(NamedTuple):
    """A function that answers reviews, and a function that returns the claims that will be created for a pod."""

    review: Callable[[bytes, Callable[[NewObject], str]], bytes]
    future_claims_of_pod: Callable[[Pod], Mapping[str, FutureClaim]]


class QuotaReviews:
    """Answers reviews on the leader, and forwards them on a follower."""

    def __init__(
        self, admission: QuotaAdmission, election: Election, reviewing: Reviewing, trust: LeaderIdentity
    ) -> None:
        self._admission = admission
        self._election = election
        self._review = reviewing.review
        self._trust = trust
        self._bundle = b""
        self._context: ssl.SSLContext | None = None
        self._session: aiohttp.ClientSession | None = None

    def answer(self, head: Head, body: bytes) -> Reply | Coroutine[None, None, Reply]:
        """Answer a review if this replica leads; otherwise forward it to the leader."""
        election = self._election
        if not election.is_sure():
            address = election.holders_notes.get(PLACE)
            if address in (None, election.notes.get(PLACE)) or FORWARDED in head.headers:
                raise HttpError(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "no leader is known that could count the object",
                    "retry in a moment",
                )
            return self._forward(address, body)

        def ask(admit: Callable[[NewObject], str]) -> Reply:
            try:
                return Reply(200, self._review(body, admit), JSON)
            except ValueError as error:
                remedy = "send an AdmissionReview of admission.k8s.io/v1"
                raise HttpError(HTTPStatus.BAD_REQUEST, str(error), remedy) from None

        try:
            return ask(self._admission.admit)
        except Unfinished as unfinished:
            return self._admission.in_turns(unfinished.namespace, ask)

    async def _forward(self, address: str, body: bytes) -> Reply:
        trust = self._trust
        scheme = "https" if trust.authorities else "http"
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=trust.seconds)
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        try:
            if trust.authorities:
                # The context is reused while the file is unchanged, because aiohttp reuses a connection only for the same context.
                bundle = Path(trust.authorities).read_bytes()  # noqa: ASYNC240  a small file
                if self._context is None or bundle != self._bundle:
                    self._context = ssl.create_default_context(cafile=trust.authorities)
                    self._bundle = bundle
            request = self._session.post(
                f"{scheme}://{address}/quota",
                data=body,
                headers={"Content-Type": JSON, FORWARDED: self._election.identity},
                ssl=self._context or True,
                server_hostname=trust.name or None,
                allow_redirects=False,
            )
            async with request as response:
                answer = bytearray()
                async for chunk in response.content.iter_any():
                    answer += chunk
                    if len(answer) > LARGEST:
                        raise ValueError(f"its answer has more than {LARGEST} bytes")  # noqa: TRY301  reported below
                return Reply(response.status, bytes(answer), JSON)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            problem = f"the call of the leader at {address} failed: {str(error) or type(error).__name__}"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, problem, "retry in a moment") from None

    async def close(self) -> None:
        """Close the connections to the leader."""
        if self._session is not None:
            await self._session.close()
