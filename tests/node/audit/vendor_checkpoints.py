"""Checkpoints as other vendors' drivers write them."""

import json

from tests.node.machines import NODE


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


def device(name, **fields):
    return {"Requests": ["r"], "PoolName": NODE, "DeviceName": name, "CDIDeviceIDs": None, **fields}


def device_groups(*names, kind="gpu", **fields):
    entries = [{"info": {"uuid": "GPU-0"}, "device": device(name, **fields)} for name in names]
    return [{"devices": [{"gpu": None, "mig": None} | {kind: entry} for entry in entries], "configState": {}}]


def second_format(claims, **fields):
    """Return a file of the second format, which also has an empty `v1`."""
    return compact({"checksum": 1, "v1": {}, "v2": {"checksum": 1, "preparedClaims": claims, **fields}})


def first_format(claims):
    return compact({"checksum": 1, "v1": {"preparedClaims": claims}})


def completed_claim(*device_names, **fields):
    """Return the record of a prepared claim with these devices."""
    return {
        "checkpointState": "PrepareCompleted",
        "status": {},
        "preparedDevices": device_groups(*device_names),
        **fields,
    }
