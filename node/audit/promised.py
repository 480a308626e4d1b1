"""What an allocator answers about a node, and what of two answers stood all the while between them. Pure.

The answer comes over a network from a process that may be anybody's: what is not as it should be is refused as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from node.audit.sight import DeviceId, Promise, PromisedDevice

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 4096  # devices in one answer: a node has a few hundred
LONGEST = 253  # of a name


class Unlikely(Exception):  # noqa: N818  what the answer is
    """No answer that an allocator gives; the message says why."""


class _Device(msgspec.Struct, frozen=True, rename="camel"):
    driver: str
    pool: str
    device: str
    share_id: str = ""


class _Promise(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str
    claim: str
    uid: str
    in_doubt: bool
    devices: tuple[_Device, ...]


class _Answer(msgspec.Struct, frozen=True):
    node: str
    promises: tuple[_Promise, ...]


def read_promises(data: bytes, node: str) -> tuple[Promise, ...]:
    """Read what an allocator says is promised on a node."""
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Unlikely(f"the answer is not one about promises: {str(error)[:LONGEST]}") from None
    if answer.node != node:
        raise Unlikely(f"the answer is about {answer.node[:LONGEST]!r}, and not about this node")
    if sum(len(one.devices) for one in answer.promises) > MOST or len(answer.promises) > MOST:
        raise Unlikely(f"the answer is about more than {MOST} devices")
    return tuple(_read(one) for one in answer.promises)


def _read(one: _Promise) -> Promise:
    _demand_names(one.namespace, one.claim, one.uid)
    for device in one.devices:
        _demand_names(device.driver, device.pool, device.device, device.share_id or "-")
    devices = tuple(
        PromisedDevice(DeviceId(device.driver, device.pool, device.device), device.share_id) for device in one.devices
    )
    return Promise(one.namespace, one.claim, one.uid, one.in_doubt, devices)


def _demand_names(*names: str) -> None:
    for name in names:
        if not 0 < len(name) <= LONGEST or not name.isprintable():
            raise Unlikely(f"the answer has a name that is none: {name[:LONGEST]!r}")


def that_stood(before: Iterable[Promise], after: Iterable[Promise]) -> tuple[Promise, ...]:
    """Keep what was promised in both answers; in doubt is what was in doubt in both."""
    earlier = {(one.uid, one.devices): one for one in before}
    found: list[Promise] = []
    for one in after:
        known = earlier.get((one.uid, one.devices))
        if known is not None:
            found.append(one if known.in_doubt else known)
    return tuple(found)
