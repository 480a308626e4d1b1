"""A small fleet with claims and pods, and functions that run `drawbridge explain` on them."""

import json

from tests.allocator.service.sidecar import DRIVER, claim, device_class, fleet, gpus, node, pod
from tests.cli.running import run

SINCE = "2026-11-20T08:00:00Z"


def held_claim(name, *pods, on="n0/gpu-0", since=SINCE, share=None, **status_fields):
    """Return a claim that has this device since this time and is reserved for these pods."""
    pool, device = on.split("/")
    device_result = {"request": "r", "driver": DRIVER, "pool": pool, "device": device}
    if share:
        device_result |= {"shareID": f"share-{name}", "consumedCapacity": share}
    consumers = [{"resource": "pods", "name": consumer, "uid": f"pod-{consumer}"} for consumer in pods]
    allocation = {"devices": {"results": [device_result]}, "allocationTimestamp": since}
    return claim(name) | {"status": {"allocation": allocation, "reservedFor": consumers, **status_fields}}


def with_device_status(obj, **condition):
    """Return the claim with a status of its device: ready, or with this condition."""
    [result] = obj["status"]["allocation"]["devices"]["results"]
    device_condition = {"type": "Ready", "status": "True", **condition}
    entry = {name: result[name] for name in ("driver", "pool", "device")} | {"conditions": [device_condition]}
    return obj | {"status": obj["status"] | {"devices": [entry]}}


def in_phase(obj, phase, **status):
    return obj | {"status": {"phase": phase, **status}}


def full_fleet(*but):
    """Return two nodes with two devices each, and the claims c0 to c3 that hold the devices for the running pods p0 to p3.

    The claims that `but` names, and their pods, are left out.
    """
    objects = [*fleet(2, 2)]
    for number, on in enumerate(("n0/gpu-0", "n0/gpu-1", "n1/gpu-0", "n1/gpu-1")):
        if f"c{number}" in but:
            continue
        objects.append(held_claim(f"c{number}", f"p{number}", on=on, since=f"2026-11-20T0{number}:00:00Z"))
        objects.append(in_phase(pod(f"p{number}", f"c{number}", nodeName=on[:2]), "Running"))
    return objects


def dump(tmp_path, *objects):
    """Write the objects to a file as a List, as kubectl does; return the path."""
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return path


def explain(tmp_path, arguments, *objects, options=()):
    """Run `drawbridge explain` on these objects; return its result, with the answer as text."""
    return run("explain", *arguments.split(), "-f", dump(tmp_path, *objects), *options)


def explain_json(tmp_path, arguments, *objects):
    """Return the exit code and the JSON document of `drawbridge explain`."""
    result = explain(tmp_path, arguments, *objects, options=("-o", "json"))
    return result.exit_code, json.loads(result.stdout)


__all__ = ["DRIVER", "claim", "device_class", "fleet", "gpus", "node", "pod"]
