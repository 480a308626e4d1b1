"""Child processes for work that may take long, so that it can be killed."""

from runtime.workers.fair_semaphore import Requester
from runtime.workers.pool import Bug, Undecided, WorkerPool

__all__ = ["Bug", "Requester", "Undecided", "WorkerPool"]
