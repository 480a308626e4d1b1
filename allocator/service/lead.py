"""The lead: one replica decides and writes, and every other one refuses to."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from allocator.service.replies import Refusal

if TYPE_CHECKING:
    from allocator.service.knowledge import Knowledge
    from runtime.controllers import Election


class Lead:
    """Says whether this replica decides, and whether it may write."""

    def __init__(self, knowledge: Knowledge, election: Election) -> None:
        self._knowledge = knowledge
        self._election = election
        self.leads = False  # set by `Bridge.leading`

    def unready(self) -> str:
        """Say why nothing can be decided now; "" if it can."""
        return self._knowledge.what_is_unread() or ("" if self.leads else "another replica leads")

    def may_write(self) -> bool:
        """Say whether this replica leads, and no other replica can hold the lease by now."""
        return self.leads and self._election.is_sure()

    def demand_ready(self) -> None:
        """Raise Refusal before the cluster was read, and while another replica leads."""
        if problem := self.unready():
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"devices cannot be decided on now: {problem}",
                "wait; nothing is lost meanwhile",
            )

    def demand_lead(self) -> None:
        """Raise Refusal while another replica may lead."""
        if not self.may_write():
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, "another replica may lead by now", "wait; nothing is lost meanwhile"
            )
