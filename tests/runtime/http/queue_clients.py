"""Clients of the fair queue. Their requests cost time of a simulated CPU clock."""

from runtime.http import fair_queue
from runtime.http.fair_queue import UNKNOWN_COST


class Clock:
    """A CPU clock that only tests advance."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Client:
    """A connection whose answers take `seconds` of CPU; each answer appends the name of the connection to the log."""

    def __init__(self, log, name, seconds=0.0, *, cost=UNKNOWN_COST):
        self.cost = cost
        self._log = log
        self.name = name
        self.seconds = seconds
        self.was_cut = False

    def answer(self, _head, body):
        fair_queue.thread_time.now += self.seconds
        self._log.append(self.name)
        if body == b"bug":
            raise RuntimeError("a bug")

    def cut(self):
        self.was_cut = True
