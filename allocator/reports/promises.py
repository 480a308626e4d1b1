"""What is promised to claims for pods on a node, and not written into them yet: nothing outside of the ledger tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.reservations import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allocator.reservations import Hold, Ledger
    from dra.objects import AllocationResult


class PromisedDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A device, or a share of one."""

    driver: str
    pool: str
    device: str
    share_id: str = ""  # "" if it is promised whole


class Promise(msgspec.Struct, frozen=True, rename="camel"):
    """What one claim is meant to have. In doubt is one whose write has no answer: it may have landed, or land yet."""

    namespace: str
    claim: str
    uid: str
    in_doubt: bool
    devices: tuple[PromisedDevice, ...]


def promises(ledger: Ledger, node: str) -> Iterator[Promise]:
    """Yield what pods on a node are promised. What a claim says itself is not among it."""
    for uid in ledger.ahead:
        hold = ledger.holds.get(uid)
        if hold is None or hold.intent is None or hold.claim.status.allocation is not None:
            continue
        states = _states(ledger, hold, node)
        if states:
            meta = hold.claim.metadata
            in_doubt = hold.lost or State.DOUBT in states
            yield Promise(meta.namespace, meta.name, uid, in_doubt, _devices(hold.intent))


def _states(ledger: Ledger, hold: Hold, node: str) -> set[State]:
    """Say what becomes of those on the node who need a claim, or needed it when it was last written."""
    users = (ledger.reservations.get(pod) for pod in hold.users)
    return {user.state for user in users if user is not None and user.node == node}


def _devices(intent: AllocationResult) -> tuple[PromisedDevice, ...]:
    """Name the devices; an admin who looks at one has none."""
    return tuple(
        PromisedDevice(one.driver, one.pool, one.device, one.share_id or "")
        for one in intent.devices.results
        if not one.admin_access
    )
