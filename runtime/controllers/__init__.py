"""Parts of controllers, and the resource claim controller of the embedded cluster."""

from runtime.controllers.claim_controller import ClaimController
from runtime.controllers.election import Election, Term
from runtime.controllers.events import Recorder, api_timestamp
from runtime.controllers.workqueue import WorkQueue

__all__ = ["ClaimController", "Election", "Recorder", "Term", "WorkQueue", "api_timestamp"]
