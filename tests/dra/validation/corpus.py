"""Objects that the API server accepts, with as many fields as possible, and changes that make them invalid."""

import copy
import json
import random

from dra.server import server_of
from dra.validation.fields.gates import required_by

API = "resource.k8s.io/v1"
UUID = "8f5a8a1e-6d4b-4d9c-9f57-0d1f7c1b2a3c"
NODES = {
    "nodeSelectorTerms": [
        {
            "matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["a", "b"]},
                {"key": "gpu", "operator": "Exists"},
                {"key": "cores", "operator": "Gt", "values": ["8"]},
            ],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}],
        }
    ]
}
METADATA = {
    "name": "object",
    "generateName": "object-",
    "labels": {"app": "x", "example.com/tier": "gold"},
    "annotations": {"example.com/Note": "anything at all"},
    "finalizers": ["example.com/protect"],
    "ownerReferences": [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "r",
            "uid": UUID,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ],
}
TOLERATIONS = [
    {"key": "example.com/sick", "operator": "Equal", "value": "yes", "effect": "NoSchedule", "tolerationSeconds": 5},
    {"operator": "Exists", "effect": "NoExecute"},
]
DEMAND = {
    "deviceClassName": "gpu.example.com",
    "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}],
    "allocationMode": "ExactCount",
    "count": 2,
    "tolerations": TOLERATIONS,
    "capacity": {"requests": {"memory": "10Gi", "gpu.example.com/cores": 5}},
}
CONFIG = {
    "opaque": {
        "driver": "gpu.example.com",
        "parameters": {"apiVersion": "example.com/v1", "kind": "Config", "n": [1, None]},
    }
}
CLAIM_SPEC = {
    "devices": {
        "requests": [
            {"name": "one", "exactly": {**DEMAND, "adminAccess": False}},
            {
                "name": "some",
                "firstAvailable": [
                    {"name": "big", **DEMAND},
                    {"name": "all", "deviceClassName": "gpu", "allocationMode": "All"},
                ],
            },
        ],
        "constraints": [
            {"requests": ["one", "some/big"], "matchAttribute": "gpu.example.com/numa"},
            {"distinctAttribute": "gpu.example.com/index"},
        ],
        "config": [{"requests": ["one"], **CONFIG}, CONFIG],
    }
}
RESULT = {
    "request": "one",
    "driver": "gpu.example.com",
    "pool": "rack/node-1",
    "device": "gpu-0",
    "adminAccess": False,
    "tolerations": TOLERATIONS,
    "bindingConditions": ["example.com/Attached"],
    "bindingFailureConditions": ["example.com/Failed"],
    "shareID": UUID,
    "consumedCapacity": {"memory": "10Gi"},
}
STATUS = {
    "allocation": {
        "devices": {
            "results": [RESULT, {"request": "some/big", "driver": "d", "pool": "p", "device": "x"}],
            "config": [{"source": "FromClass", "requests": ["some"], **CONFIG}, {"source": "FromClaim", **CONFIG}],
        },
        "nodeSelector": NODES,
        "allocationTimestamp": "2026-05-06T07:08:09Z",
    },
    "reservedFor": [{"apiGroup": "batch", "resource": "pods", "name": "p", "uid": UUID}],
    "devices": [
        {
            "driver": "gpu.example.com",
            "pool": "rack/node-1",
            "device": "gpu-0",
            "shareID": UUID,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Up",
                    "message": "",
                    "lastTransitionTime": "2026-05-06T07:08:09Z",
                }
            ],
            "data": {"a": 1},
            "networkData": {
                "interfaceName": "eth0",
                "ips": ["10.1.2.3/24", "2001:db8::1/64"],
                "hardwareAddress": "aa:bb",
            },
        }
    ],
}
DEVICES = [
    {
        "name": "gpu-0",
        "attributes": {
            "model": {"string": "A100"},
            "gpu.example.com/index": {"int": 0},
            "driver": {"version": "1.2.3-rc.1+build"},
            "healthy": {"bool": False},
        },
        "capacity": {
            "memory": {
                "value": "80Gi",
                "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "79Gi", "step": "2Gi"}},
            },
            "cores": {"value": "100", "requestPolicy": {"default": "50", "validValues": ["25", "50", "100"]}},
            "share": {
                "value": "1",
                "requestPolicy": {"default": "0.5", "validRange": {"min": "0.1", "max": "1", "step": "100m"}},
            },
            "plain": {"value": 7},
        },
        "allowMultipleAllocations": True,
        "taints": [
            {"key": "example.com/sick", "value": "yes", "effect": "NoSchedule", "timeAdded": "2026-05-06T07:08:09Z"}
        ],
        "bindsToNode": True,
        "bindingConditions": ["example.com/Attached"],
        "bindingFailureConditions": ["example.com/Failed", "example.com/Lost"],
        "consumesCounters": [{"counterSet": "gpu-0-counters", "counters": {"memory": {"value": "10Gi"}}}],
    },
    {"name": "gpu-1"},
]


def _object(kind, **parts):
    return {"apiVersion": API, "kind": kind, "metadata": METADATA, **parts}


def _slice(**spec):
    return _object(
        "ResourceSlice",
        spec={
            "driver": "gpu.example.com",
            "pool": {"name": "rack/node-1", "generation": 3, "resourceSliceCount": 2},
            **spec,
        },
    )


ALPHA_DEVICE = {
    "name": "gpu-0",
    "attributes": {
        "numbers": {"ints": [1, 2]},
        "flags": {"bools": [True]},
        "names": {"strings": ["a", "b"]},
        "releases": {"versions": ["1.0.0"]},
        "gpu.example.com/profile": {"string": "half"},
    },
    "capacity": {"cpu": {"value": "4"}},
    "consumesCounters": [
        {"counterSet": "set", "counters": {"slices": {"value": "1"}}, "compatibilityGroups": ["mig", "mps"]}
    ],
    "nodeAllocatableResources": {
        "cpu": {"mapping": {"capacityKey": "cpu", "capacityMultiplier": "1"}, "overhead": {"perPod": "10m"}},
        "memory": {"mapping": {"deviceMultiplier": "1Gi"}, "overhead": {"perPod": "1Mi", "perContainer": "0"}},
        "hugepages-2Mi": {"overhead": {"perContainer": "2Mi"}},
    },
}

VALID = {
    "slice on a node": _slice(nodeName="node-1", devices=DEVICES),
    "slice on selected nodes": _slice(nodeSelector=NODES, devices=[]),
    "slice with per-device nodes": _slice(
        perDeviceNodeSelection=True,
        devices=[
            {"name": "a", "nodeName": "node-1"},
            {"name": "b", "allNodes": True},
            {"name": "c", "nodeSelector": NODES},
        ],
    ),
    "slice with counters": _slice(
        allNodes=True,
        sharedCounters=[
            {"name": "gpu-0-counters", "counters": {"memory": {"value": "80Gi"}, "slices": {"value": "-7"}}},
            {"name": "gpu-1-counters", "counters": {"memory": {"value": "80Gi"}}},
        ],
    ),
    "slice with alpha fields": _slice(
        nodeName="node-1",
        devices=[ALPHA_DEVICE],
        partitionTypeAttribute="gpu.example.com/profile",
        skipNodeOperations=["NodePrepareResources", "NodeUnprepareResources"],
    ),
    "class": _object(
        "DeviceClass",
        spec={
            "selectors": [{"cel": {"expression": 'device.attributes["gpu.example.com"].model == "A100"'}}],
            "config": [CONFIG],
            "extendedResourceName": "example.com/gpu",
        },
    ),
    "claim": _object("ResourceClaim", spec=CLAIM_SPEC),
    "claim with a status": _object("ResourceClaim", spec=CLAIM_SPEC, status=STATUS),
    "claim with derived attributes": _object(
        "ResourceClaim",
        spec={
            "devices": {
                "requests": [
                    {
                        "name": "one",
                        "exactly": {
                            **DEMAND,
                            "derivedAttributes": [{"name": "example.com/pair", "expression": "1 + 1"}],
                        },
                    },
                    {
                        "name": "two",
                        "firstAvailable": [
                            {
                                "name": "sub",
                                **DEMAND,
                                "derivedAttributes": [{"name": "example.com/pair", "expression": '"x"'}],
                            }
                        ],
                    },
                ],
                "constraints": [{"matchAttribute": "example.com/pair"}],
            }
        },
    ),
    "claim that generates its name": {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"generateName": "claim-", "namespace": "team-a"},
        "spec": {"devices": {}},
    },
    "template": _object(
        "ResourceClaimTemplate",
        spec={"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": CLAIM_SPEC},
    ),
    "taint rule": _object(
        "DeviceTaintRule",
        spec={
            "deviceSelector": {"driver": "gpu.example.com", "pool": "rack/node-1", "device": "gpu-0"},
            "taint": {"key": "example.com/sick", "value": "yes", "effect": "NoExecute"},
        },
        status={
            "conditions": [
                {
                    "type": "EvictionInProgress",
                    "status": "Unknown",
                    "reason": "Why,not:so",
                    "message": "m",
                    "observedGeneration": 1,
                    "lastTransitionTime": "2026-05-06T07:08:09.5+01:00",
                }
            ]
        },
    ),
    "class that generates its name": {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"generateName": "class.x-"},
        "spec": {},
    },
}
# Objects with a field that an API server with default gates would drop.
ALPHA = frozenset(name for name, value in VALID.items() if required_by(value["kind"], value) - server_of().gates)

# Values that replace a value of an object, whatever its type.
_STRANGE = (
    None, True, False, 0, 1, -1, 2, 33, 2**63 - 1, 2**63, -(2**63), 1.5, 1.0, 1e3, "", "x", "X", "a-b", "a.b", "-a", "a-", "a_b",
    "a/b", "a/b/c", "/b", "a/", "A.b/c", "example.com/x", "kubernetes.io/x", "requests.x/y", "All", "Exists", "None", "*",
    "1", "10Gi", "-5", "0", "1.0005", "0.1n", "1e30", "9223372036854775808", "true", "v1.2.3", "1.2.3", "1.2.3\n", " 1", "é", "a b",
    "a" * 32, "a" * 33, "a" * 63, "a" * 64, "a" * 254, "é" * 40, "x" * 10241, "2026-05-06T07:08:09Z", "2026-02-30T07:08:09Z", "10.0.0.1/8", "010.0.0.1/8", "fe80::1/64", "FE80::1/64",
    "8F5A8A1E-6d4b-4d9c-9f57-0d1f7c1b2a3c", "metadata.name", "one", "one/x", "some/big", "some", [], {}, [None], [""], ["a"], ["a", "a"], {"": None}, {"x": None}, {"x": "y"}, {"X y": "1"},
)  # fmt: skip


def paths(value, prefix=()):
    """Yield the path of every value in an object except the root."""
    if prefix:
        yield prefix
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in items:
        yield from paths(member, (*prefix, name))


def _at(value, path):
    for step in path:
        value = value[step]
    return value


def plans(original):
    """Yield every change of one value, as (path, change)."""
    for path in paths(original):
        if path[0] not in ("apiVersion", "kind"):
            for change in _changes(_at(original, path)):
                yield path, change


def changed(original, path, change):
    """Return the object with one change."""
    mutant = copy.deepcopy(original)
    parent = _at(mutant, path[:-1])
    if change is _REMOVE:
        del parent[path[-1]]
    elif callable(change):
        parent[path[-1]] = change(parent[path[-1]])
    else:
        parent[path[-1]] = copy.deepcopy(change)
    return mutant


def mutations(original):
    """Yield the object with each change of one value, as (path, object)."""
    for path, change in plans(original):
        yield path, changed(original, path, change)


_REMOVE = object()


def _changes(value):
    yield _REMOVE
    yield from _STRANGE
    if isinstance(value, list):
        yield lambda items: items + items[:1]
        yield lambda items: items[::-1]
        for size in (3, 5, 9, 11, 17, 33, 65, 129, 257):
            yield lambda items, size=size: [_numbered(items[0] if items else "x", n) for n in range(size)]
    if isinstance(value, dict):
        yield lambda members: {**members, "unknown": 1}
        for size in (17, 33, 49):
            yield lambda members, size=size: {
                **members,
                **{f"k{n}": copy.deepcopy(next(iter(members.values()), "x")) for n in range(size - len(members))},
            }
    if isinstance(value, str):
        yield lambda text: text.upper()
        yield lambda text: text + "-"
        yield lambda text: text + "\n"
        yield lambda text: text + "/x"
    if isinstance(value, int):
        yield str


def _numbered(item, number):
    """Return a copy of a list item with another name or key."""
    if isinstance(item, str):
        return f"{item}{number}"
    item = copy.deepcopy(item)
    for key in ("name", "counterSet", "type", "uid", "key", "device"):
        if isinstance(item, dict) and key in item:
            item[key] = f"{item[key]}{number}"
            break
    return item


def sample(original, count, seed):
    """Return up to `count` random mutations, and a quarter as many objects with a second change."""
    rng = random.Random(seed)
    changes = list(plans(original))
    once = [changed(original, *plan) for plan in rng.sample(changes, min(count, len(changes)))]
    twice = [(mutant, list(plans(mutant))) for mutant in once[: count // 4]]
    return once + [changed(mutant, *rng.choice(further)) for mutant, further in twice if further]


def as_json(value):
    return json.dumps(value)[:3000]
