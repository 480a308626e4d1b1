"""What a claim was given on this node. Fields that a later version adds have defaults, so this version's records stay readable."""

from __future__ import annotations

from dra.quantity import Quantity
from dra.wire import Wire


class HeldDevice(Wire, frozen=True, kw_only=True):
    """A device, or the share of one, that a request of a claim was given; `cpus` are those that were chosen for it."""

    request: str
    device: str
    share_id: str | None = None
    admin: bool = False
    consumed: dict[str, Quantity] = {}
    cpus: str = ""

    @property
    def asked(self) -> str:
        """The request, without the alternative that was chosen."""
        return self.request.partition("/")[0]


class Prepared(Wire, frozen=True, kw_only=True):
    """A claim that is prepared. `pool` is the one pool of this node."""

    uid: str
    namespace: str
    name: str
    # What the pod calls a claim that was made from a template.
    entry: str = ""
    pool: str
    devices: tuple[HeldDevice, ...] = ()
