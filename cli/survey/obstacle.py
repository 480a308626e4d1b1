"""What stands in the way of a move, and what to do about it."""

from __future__ import annotations

import msgspec

from cli.loading import CLUSTER


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the way, and what to do about it. `namespace` is "" for an obstacle of the whole cluster."""

    what: str
    namespace: str = CLUSTER
    object: str
    message: str
    remedy: str
