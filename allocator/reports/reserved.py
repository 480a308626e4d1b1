"""Devices that the ledger holds for pods on a node and that no ResourceClaim shows yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.reservations import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allocator.reservations import Ledger


class ReservedDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A device, or a share of one."""

    driver: str
    pool: str
    device: str
    share_id: str = ""  # "" if all of it is reserved


class UnwrittenClaim(msgspec.Struct, frozen=True, rename="camel"):
    """What one claim will have. It is in doubt while its write has no answer: that may have landed, or land yet."""

    namespace: str
    claim: str
    uid: str
    in_doubt: bool
    devices: tuple[ReservedDevice, ...]


def reserved_on(ledger: Ledger, node: str) -> Iterator[UnwrittenClaim]:
    """Yield what is reserved for pods on a node, without what claims themselves show."""
    for uid in ledger.ahead:
        hold = ledger.holds.get(uid)
        if hold is None or hold.intent is None or hold.claim.status.allocation is not None:
            continue
        users = (ledger.reservations.get(pod) for pod in hold.users)
        states = {user.state for user in users if user is not None and user.node == node}
        if not states:
            continue
        devices = tuple(
            ReservedDevice(one.driver, one.pool, one.device, one.share_id or "")
            for one in hold.intent.devices.results
            if not one.admin_access
        )
        meta = hold.claim.metadata
        yield UnwrittenClaim(meta.namespace, meta.name, uid, hold.lost or State.DOUBT in states, devices)
