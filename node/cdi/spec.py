"""A prepared claim as a CDI file (cncf.io/cdi, version 0.5.0), and as the answer that names what stands in it.

A file a claim, a CDI device for each device and request, because the kubelet gives a container those of the requests that it names and no
others. The variables carry the device's name, which no two devices of a node share, so they add up where a container has several claims:

    DRAWBRIDGE_DEVICE_GPU_0=GPU-8d1c...         what programs call it: the uuid, the network interface, the list of CPUs
    DRAWBRIDGE_DEVICE_GPU_0_MEMORY=10737418240  how much of it this request may use, in bytes or pieces; for shares only

The driver's `visibleDevices` variable gets the uuids of one request, and only one request of a container can have it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dra.wire import encode
from node.cdi.metadata import mounts_of
from node.inventory import Offer
from node.messages import PreparedClaim, PreparedDevice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from node.checkpoint import HeldDevice, Prepared
    from node.inventory import Machine

NOTHING = Offer("")  # of a device that the machine has no more
VERSION = "0.5.0"
PREFIX = "DRAWBRIDGE_DEVICE_"
_NOT_OF_VARIABLES = re.compile(r"[^A-Z0-9]+")
Given = dict[tuple[str, str], list["HeldDevice"]]


def file_name(driver: str, uid: str) -> str:
    """Name the file of a claim."""
    return f"{_prefix(driver)}{uid}.json"


def is_ours(driver: str, name: str) -> bool:
    """Say whether a file is one of this driver's, finished or not."""
    return name.startswith(_prefix(driver)) and name.endswith((".json", ".json.new"))


def uid_of(driver: str, name: str) -> str:
    """Say whose claim's a file is; "" if it was never finished."""
    return name.removeprefix(_prefix(driver)).removesuffix(".json") if name.endswith(".json") else ""


def spec_of(record: Prepared, machine: Machine, folder: str) -> bytes:
    """Write the file of a claim. In `folder` stands what its containers can read about their devices."""
    given = _given(record)
    mounts = mounts_of(record, machine.driver, folder)
    devices: list[dict[str, Any]] = []
    for number, ((request, _), held) in enumerate(given.items()):
        visible = _listed(request, given, machine)
        edits = _edits(held, visible, machine)
        # A request's first device brings the file: a container is given all of them.
        mount = mounts.pop(request, None)
        if mount is not None:
            edits["mounts"] = [mount]
        name = f"{record.uid}-{number}"
        device = {"name": name, "containerEdits": edits}
        devices.append(device)
    kind = kind_of(machine.driver)
    return encode({"cdiVersion": VERSION, "kind": kind, "devices": devices})


def answer_of(record: Prepared, driver: str) -> PreparedClaim:
    """Tell the kubelet what is in the file."""
    numbers = {key: number for number, key in enumerate(_given(record))}
    devices = [
        PreparedDevice(
            requests=(held.asked,),
            pool=record.pool,
            device=held.device,
            cdi=(f"{kind_of(driver)}={record.uid}-{numbers[held.asked, held.device]}",),
            share=held.share_id,
        )
        for held in record.devices
    ]
    return PreparedClaim(devices=tuple(devices))


def _prefix(driver: str) -> str:
    # No driver's name has an underscore, so no name of a driver begins another's files.
    return f"drawbridge_{driver}_"


def kind_of(driver: str) -> str:
    """Name the kind of all CDI devices of a driver."""
    return f"{driver}/claim"


def _given(record: Prepared) -> Given:
    """Sort what a claim has by request and device: two shares of one device are more of it."""
    given: Given = {}
    for held in record.devices:
        shares = given.setdefault((held.asked, held.device), [])
        shares.append(held)
    return given


def _edits(shares: list[HeldDevice], visible: str, machine: Machine) -> dict[str, Any]:
    device = shares[0].device
    offer = machine.offers.get(device, NOTHING)
    variables = list(_variables(shares, offer.value))
    if visible and machine.visible_devices:
        variables.append(f"{machine.visible_devices}={visible}")
    edits: dict[str, Any] = {"env": variables}
    if offer.files:
        edits["deviceNodes"] = [_node(path) for path in offer.files]
    return edits


def _variables(shares: list[HeldDevice], value: str) -> Iterable[str]:
    name = PREFIX + variable(shares[0].device)
    yield f"{name}={shares[0].cpus or value}"
    if shares[0].share_id is None:
        return
    for capacity in sorted(shares[0].consumed):
        nano = sum(one.consumed[capacity].nano for one in shares)
        yield f"{name}_{variable(capacity)}={nano // 10**9}"


def _listed(request: str, given: Given, machine: Machine) -> str:
    """List the uuids of what a request was given."""
    offers = [machine.offers.get(device, NOTHING) for of, device in given if of == request]
    return ",".join(offer.value for offer in offers if offer.listed)


def _node(path: str) -> dict[str, str]:
    """`/dev/a:/dev/b` shows the host's a as b."""
    host, _, inside = path.partition(":")
    return {"path": inside or host, "hostPath": host, "permissions": "rw"}


def variable(text: str) -> str:
    """Make a part of a variable's name of a name."""
    return _NOT_OF_VARIABLES.sub("_", text.upper())
