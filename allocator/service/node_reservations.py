"""Answers the audit agents of nodes: each agent gets only the reservations on its own node.

An agent sends a service account token for the audience `AUDIENCE`. A TokenReview returns the account and the node of the agent's pod.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from allocator.reports import reserved_on
from allocator.service.app import HttpError, json
from cluster.errors import ApiError
from serving.authentication import TooManyTokens
from serving.http import Limits

if TYPE_CHECKING:
    from allocator.reservations import Ledger
    from allocator.service.knowledge import Lead
    from allocator.service.prepared_claims import PreparedClaims
    from serving.authentication import TokenReviews
    from serving.http import Head, Reply

AUDIENCE = "drawbridge-allocator"
RETRY = "retry in a moment"
# The agent of each node calls twice a minute, over its own connection.
AGENT_LIMITS = Limits(body=0, connections=512, peer=512, deadline=5.0, idle=15.0)
_MOUNTED = f"send Authorization: Bearer and a token of the audience {AUDIENCE} (docs/node.md)"


class NodeReservations:
    def __init__(
        self, ledger: Ledger, prepared: PreparedClaims, lead: Lead, accounts: TokenReviews, agent: str
    ) -> None:
        """Only the account `agent` gets answers."""
        self._ledger = ledger
        self._prepared = prepared
        self._lead = lead
        self._accounts = accounts
        self._agent = agent

    async def answer(self, head: Head, body: bytes) -> Reply:
        """Return the reservations on the node of the calling agent; raise HttpError for other callers.

        The query parameter `prepared` has the uids of the unallocated claims that the node's kubelet has prepared.
        """
        del body
        if not head.bearer:
            raise HttpError(HTTPStatus.UNAUTHORIZED, "the request has no bearer token", _MOUNTED)
        try:
            account = await self._accounts.account_of(head.bearer, head.peer)
        except (ApiError, TooManyTokens) as error:
            why = str(error) or "too many requests at once"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, f"the token could not be reviewed: {why}", RETRY) from None
        if not account.name:
            raise HttpError(HTTPStatus.UNAUTHORIZED, f"the token is not valid, or is for another audience than {AUDIENCE}", _MOUNTED)  # fmt: skip
        if account.name != self._agent:
            raise HttpError(HTTPStatus.FORBIDDEN, f"{account.name} is not {self._agent}", "only audit agents may send this request")  # fmt: skip
        if not account.node:
            raise HttpError(
                HTTPStatus.FORBIDDEN, "the token belongs to no pod on a node", "let the kubelet mount the token"
            )
        problem = self._lead.unready() or ("" if self._lead.may_write() else "the lease was not renewed in time")
        if problem:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, problem, RETRY)
        for uids in parse_qs(head.query, keep_blank_values=True).get("prepared", ()):
            self._prepared.see_report(account.node, uids.split(","))
        return json({"node": account.node, "reservations": list(reserved_on(self._ledger, account.node))})
