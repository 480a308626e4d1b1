"""Answers the audit agents of nodes: what is promised on the node that the asking pod runs on, and on no other.

An agent is known by a token of its account that was made for this door: the API server says whose it is, and of which node.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from allocator.reports import promises
from allocator.service.replies import Refusal, json
from cluster.errors import ApiError
from cluster.serving import Crowded

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.service.bridge import Bridge
    from cluster.serving import Accounts, Head, Reply

AUDIENCE = "drawbridge-allocator"
AGAIN = "ask again in a moment"
_MOUNTED = f"send Authorization: Bearer and a token of the audience {AUDIENCE} (docs/node-agent.md)"


class Promised:
    """One door's."""

    def __init__(self, bridge: Bridge, accounts: Accounts, agent: str, sure: Callable[[], bool]) -> None:
        """`agent` is the account that is answered; `sure` is whether we lead, and nobody else can."""
        self._bridge = bridge
        self._accounts = accounts
        self._agent = agent
        self._sure = sure

    async def answer(self, head: Head, body: bytes) -> Reply:
        """Answer an agent."""
        del body
        node = await self._node_of(head)
        problem = self._bridge.unready() or ("" if self._sure() else "the lease was not renewed in time")
        if problem:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, problem, AGAIN)
        return json({"node": node, "promises": list(promises(self._bridge.ledger, node))})

    async def _node_of(self, head: Head) -> str:
        """Say for which node somebody may ask."""
        if not head.bearer:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "no token is shown", _MOUNTED)
        try:
            account = await self._accounts.of(head.bearer)
        except (ApiError, Crowded) as error:
            why = str(error) or "too many ask at once"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"nobody says whose the token is: {why}", AGAIN) from None
        if not account.name:
            raise Refusal(HTTPStatus.UNAUTHORIZED, f"the token is nobody's, or for another audience than {AUDIENCE}", _MOUNTED)  # fmt: skip
        if account.name != self._agent:
            raise Refusal(HTTPStatus.FORBIDDEN, f"{account.name} is not {self._agent}", "only audit agents are answered here")  # fmt: skip
        if not account.node:
            raise Refusal(HTTPStatus.FORBIDDEN, "the token belongs to no pod on a node", "have the kubelet mount it")
        return account.node
