"""The gate: what `webhook.service.app` asks, `webhook.admission.decide` decides, on the world as it is followed now."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from webhook.admission import decide as admission

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.admission import Outcome
    from webhook.service.follower import Follower
    from webhook.state import StateBuilder


# Seconds of search that one review may keep all others waiting for.
PATIENCE = 0.1


class Gate:
    """Decides reviews."""

    def __init__(self, world: StateBuilder, follower: Follower, certificate: Callable[[], str]) -> None:
        """`certificate` says what is wrong with the one we serve, "" if nothing is."""
        self._world = world
        self._follower = follower
        self._certificate = certificate

    def mutate(self, body: bytes) -> Outcome:
        """Answer a mutating review."""
        return admission.mutate(body, self._world.state(fresh=self._follower.fresh()))

    def validate(self, body: bytes) -> Outcome:
        """Answer a validating review."""
        until = monotonic() + PATIENCE
        state = self._world.state(fresh=self._follower.fresh())
        return admission.validate(body, state, impatient=lambda: monotonic() > until)

    def unready(self) -> Mapping[str, str]:
        """Say what keeps us from deciding well."""
        # An old view is said in the metrics and takes no pod off the Service: every replica would have the same one.
        return {"cluster": self._follower.unsettled(), "certificate": self._certificate()}
