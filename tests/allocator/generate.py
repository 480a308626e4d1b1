"""Random cases for the allocator: small fleets with combinations of all features of the API.

Each family has a focus: `general` mixes all features, `tight` has just enough devices or too few, `chaos` has devices in
states that no sequence of allocations produces, contradicting slices and unusual numbers, `admin` has claims with admin access,
`limits` has counts around the 32 devices that a claim may hold, `shares` consumable capacity, `parts` counters and
compatibility groups, `places` node selection.
Some families need search: `mig` partitions GPUs, `pairs` ties GPUs to NICs, `bins` packs shares, `over` requests more devices
than a claim may hold. In `clash` one node publishes slices in the pools of another node. `wide` is a case of another family
with fields and values that no other family draws (`tests.allocator.wide`). A case is the JSON input of the
oracle. The oracle is a program around Kubernetes' own allocator.
"""

import copy
import json
import random
from collections import Counter

from tests.allocator.case_maker import CaseMaker
from tests.allocator.search_families import bins, mig, over, pairs
from tests.allocator.wide import widen

FAMILIES = (
    "general",
    "tight",
    "chaos",
    "admin",
    "limits",
    "shares",
    "parts",
    "places",
    "mig",
    "pairs",
    "bins",
    "over",
    "clash",
    "wide",
)


def case_of(family: str, seed: int) -> dict:
    """Return a case; the same family and seed give the same case."""
    rng = random.Random(f"{family}-{seed}")
    return DRAW_BY_FAMILY[family](rng) if family in DRAW_BY_FAMILY else CaseMaker(family, rng).case()


# Each of these texts occurs in several drawn cases, as a test checks. The quotes prevent a match within a longer key.
FEATURES = (
    "firstAvailable", "'All'", "adminAccess", "matchAttribute", "distinctAttribute", "'strings'", "'ints'",
    "tolerations", "taints", "sharedCounters", "compatibilityGroups", "allowMultipleAllocations", "validValues",
    "validRange", "'step'", "'default'", "shareID", "bindingConditions", "bindsToNode", "derivedAttributes",
    "perDeviceNodeSelection", "skipNodeOperations", "'allNodes'", "nodeSelector", "config", "deviceTaintRules",
    "consumedCapacity", "matchFields", "nodeAllocatableResources", "'version'", "'bool'",
)  # fmt: skip


def features(case: dict, answer: dict) -> Counter:
    """Return a Counter with the features that a case contains, and with its verdict."""
    text = repr(case)
    counts = Counter({word.strip("'"): 1 for word in FEATURES if word in text})
    counts[f"verdict {answer['verdict']}"] += 1
    return counts


def _clash(rng: random.Random) -> dict:
    """Draw a case in which a compromised node publishes slices in the pools of another node, with the other node's device names."""
    case = CaseMaker(rng.choice(("general", "parts", "places", "tight", "chaos")), rng).case()
    foreign_slices = []
    for number, slice_ in enumerate(case["slices"]):
        if rng.random() < 0.7:
            foreign_slice = copy.deepcopy(slice_)
            foreign_slice["metadata"]["name"] = f"{rng.choice('az')}-lie-{number}"
            spec = foreign_slice["spec"]
            for selection in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"):
                spec.pop(selection, None)
            spec["nodeName"] = rng.choice(("n1", "n1", "n1", "n0"))
            pool = spec["pool"]
            pool["generation"] = rng.choice(
                (pool["generation"], 2**62, pool["generation"] + 1, max(0, pool["generation"] - 1))
            )
            pool["resourceSliceCount"] = rng.choice((pool["resourceSliceCount"], 1, 2, 2**40))
            devices = spec.get("devices", [])
            for device in devices:
                for field in ("nodeName", "nodeSelector", "allNodes"):
                    device.pop(field, None)
            rng.shuffle(devices)
            spec["devices"] = devices[: rng.randrange(len(devices) + 1)]
            if rng.random() < 0.3:
                spec["devices"] = [
                    device | {"taints": [{"key": "k", "effect": "NoExecute"}]} for device in spec["devices"]
                ]
            if not spec["devices"]:
                del spec["devices"]
            elif spec.get("sharedCounters"):
                del spec["sharedCounters"]
            for counter_set in spec.get("sharedCounters", []):
                if rng.random() < 0.5:
                    counter_set["counters"] = {key: {"value": "0"} for key in counter_set["counters"]}
            foreign_slices.append(foreign_slice)
    if rng.random() < 0.5:
        case["slices"] = [*foreign_slices, *case["slices"]]
    else:
        case["slices"] = [*case["slices"], *foreign_slices]
    return case


def _wide(rng: random.Random) -> dict:
    """Draw a case of another family, and add fields and values that no other family draws."""
    case = case_of(rng.choice(FAMILIES[: FAMILIES.index("wide")]), rng.randrange(10**9))
    case["deadlineMs"] = 300
    return widen(rng, json.loads(json.dumps(case)))  # an object that a family uses twice becomes two objects


DRAW_BY_FAMILY = {"mig": mig, "pairs": pairs, "bins": bins, "over": over, "clash": _clash, "wide": _wide}
