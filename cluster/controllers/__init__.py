"""Parts of controllers, and the resource claim controller of the embedded cluster."""

from cluster.controllers.claim_controller import ClaimController
from cluster.controllers.election import Election, Term
from cluster.controllers.event_recorder import Recorder, api_timestamp
from cluster.controllers.workqueue import WorkQueue

__all__ = [
    "ClaimController",
    "Election",
    "Recorder",
    "Term",
    "WorkQueue",
    "api_timestamp",
]
