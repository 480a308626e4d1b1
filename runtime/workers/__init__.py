"""Child processes for work that may take long, so that it can be killed."""

from runtime.workers.pool import Bug, Undecided, WorkerPool
from runtime.workers.slots import Requester

__all__ = ["Bug", "Requester", "Undecided", "WorkerPool"]
