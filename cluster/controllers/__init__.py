"""What controllers are made of, and the claim controller of a cluster that has none."""

from __future__ import annotations

from cluster.controllers.claim_controller import ClaimController
from cluster.controllers.election import Election, Terms
from cluster.controllers.events import Recorder, new_recorder, now_of_the_wall
from cluster.controllers.workqueue import WorkQueue

__all__ = ["ClaimController", "Election", "Recorder", "Terms", "WorkQueue", "new_recorder", "now_of_the_wall"]
