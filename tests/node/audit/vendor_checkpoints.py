"""Checkpoints as other vendors' drivers write them."""

import json

from node.audit.other_drivers import sum_of
from tests.node.machines import NODE


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


def device(name, **more):
    return {"Requests": ["r"], "PoolName": NODE, "DeviceName": name, "CDIDeviceIDs": None, **more}


def groups(*names, kind="gpu", **more):
    held = [{"info": {"uuid": "GPU-0"}, "device": device(name, **more)} for name in names]
    return [{"devices": [{"gpu": None, "mig": None} | {kind: fields} for fields in held], "configState": {}}]


def second(claims, **more):
    """Return a file of the second format: `v2` with its own checksum."""
    inner = compact({"checksum": 0, "preparedClaims": claims, **more})
    inner = inner.replace(b'"checksum":0', b'"checksum":%d' % sum_of(inner), 1)
    return b'{"checksum":1,"v1":{},"v2":%s}' % inner


def first(claims):
    inner = compact({"preparedClaims": claims})
    return b'{"checksum":%d,"v1":%s}' % (sum_of(b'{"checksum":0,"v1":%s}' % inner), inner)


def completed(*names, **more):
    return {"checkpointState": "PrepareCompleted", "status": {}, "preparedDevices": groups(*names), **more}
