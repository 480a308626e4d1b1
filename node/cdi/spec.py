"""A prepared claim as a CDI file (cncf.io/cdi, version 0.5.0), and as the answer that names what stands in it.

A file a claim, a CDI device for each device and request, because the kubelet gives a container those of the requests that it names and no
others. The variables carry the device's name, which no two devices of a node share, so they add up where a container has several claims:

    DRAWBRIDGE_DEVICE_GPU_0=GPU-8d1c...         the name that programs use: the uuid, the network interface, the list of CPUs
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
    for number, ((request, device), shares) in enumerate(given.items()):
        first = shares[0]
        offer = machine.offers.get(device, NOTHING)
        # What the device is called, and how much of each capacity the request may use.
        name = PREFIX + variable(device)
        variables = [f"{name}={first.cpus or offer.value}"]
        if first.share_id is not None:
            for capacity in sorted(first.consumed):
                nano = sum(one.consumed[capacity].nano for one in shares)
                variables.append(f"{name}_{variable(capacity)}={nano // 10**9}")
        if machine.visible_devices:
            offers = [machine.offers.get(other, NOTHING) for of, other in given if of == request]
            visible = ",".join(one.value for one in offers if one.listed)
            if visible:
                variables.append(f"{machine.visible_devices}={visible}")
        edits: dict[str, Any] = {"env": variables}
        if offer.files:
            paths = [path.partition(":") for path in offer.files]  # `/dev/a:/dev/b` shows the host's a as b
            edits["deviceNodes"] = [
                {"path": inside or host, "hostPath": host, "permissions": "rw"} for host, _, inside in paths
            ]
        # A request's first device brings the file: a container is given all of them.
        mount = mounts.pop(request, None)
        if mount is not None:
            edits["mounts"] = [mount]
        devices.append({"name": f"{record.uid}-{number}", "containerEdits": edits})
    return encode({"cdiVersion": VERSION, "kind": kind_of(machine.driver), "devices": devices})


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


def variable(text: str) -> str:
    """Make a part of a variable's name of a name."""
    return _NOT_OF_VARIABLES.sub("_", text.upper())
