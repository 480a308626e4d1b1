"""Limits of decisions: how many at a time, and how long each, on the loop, in a worker and while waiting."""

from __future__ import annotations

from typing import NamedTuple


class DecisionLimits(NamedTuple):
    """Limits of decisions in one process; the listener's limits are `runtime.http.Limits`."""

    # Reviews that wait for a worker, a second decision or a template; the others are answered at once.
    reviews: int = 128
    # Seconds after which a refused object is decided again: the informers are a moment late, and a DeviceClass may have been created just
    # before the first pod that names it. An answer waits at most as long for the template of a workload's pod.
    second_look: float = 0.25
    # Bytes; larger reviews are decided in a worker.
    inline: int = 64 * 1024
    # JSON members, each of which takes some microseconds; reviews with more are decided in a worker. A pod with 64 KiB of variables has 4,000.
    members: int = 8_000
    # CPU seconds of a decision on the loop; uncharged work adds up to 20 ms. The first evaluation of 5,000 nodes takes 40 ms, and several
    # reviews share it.
    hold: float = 0.022
    # Seconds for a worker, including the wait for one.
    patience: float = 1.5
    workers: int = 2
    # A review that has waited for `queue_wait` seconds is rejected if at least `crowd` others wait.
    queue_wait: float = 0.25
    crowd: int = 64
