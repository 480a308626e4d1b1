"""Checkpoints as other vendors' drivers write them."""

import json

from node.audit.other_drivers import sum_of
from tests.node.machines import NODE


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


def device(name, **fields):
    return {"Requests": ["r"], "PoolName": NODE, "DeviceName": name, "CDIDeviceIDs": None, **fields}


def device_groups(*names, kind="gpu", **fields):
    entries = [{"info": {"uuid": "GPU-0"}, "device": device(name, **fields)} for name in names]
    return [{"devices": [{"gpu": None, "mig": None} | {kind: entry} for entry in entries], "configState": {}}]


def second_format(claims, **fields):
    """Return a file of the second format: `v2` with its own checksum."""
    inner = compact({"checksum": 0, "preparedClaims": claims, **fields})
    inner = inner.replace(b'"checksum":0', b'"checksum":%d' % sum_of(inner), 1)
    return b'{"checksum":1,"v1":{},"v2":%s}' % inner


def first_format(claims):
    """Return a file of the first format: `v1` and a checksum of the file."""
    inner = compact({"preparedClaims": claims})
    return b'{"checksum":%d,"v1":%s}' % (sum_of(b'{"checksum":0,"v1":%s}' % inner), inner)


def completed_claim(*device_names, **fields):
    """Return the record of a prepared claim with these devices."""
    return {
        "checkpointState": "PrepareCompleted",
        "status": {},
        "preparedDevices": device_groups(*device_names),
        **fields,
    }
