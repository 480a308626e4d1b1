"""Cases that an exhaustive search cannot answer in time: packings, pigeonholes, pairs.

A case is the JSON input of the oracle. The oracle is a program around Kubernetes' own allocator.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

Case = dict[str, Any]
ROOT = "resource.kubernetes.io/pcieRoot"
SLOTS = 8  # of a GPU
# By profile of a partition: how many slots of the GPU it takes, and at which slots it may start.
PROFILES = {"1g": (1, range(7)), "2g": (2, (0, 2, 4)), "3g": (4, (0, 4)), "7g": (8, (0,))}


def device(name: str, attributes: Case, **further_fields: Any) -> Case:
    return {"name": name, "attributes": attributes, **further_fields}


def slice_(
    driver: str,
    devices: list[Case],
    name: str,
    *,
    node: str = "n0",
    pool: str = "p",
    total: int = 1,
    **further_fields: Any,
) -> Case:
    spec = {"driver": driver, "nodeName": node, "pool": {"name": pool, "generation": 1, "resourceSliceCount": total}}
    return {"metadata": {"name": name}, "spec": {**spec, **({"devices": devices} if devices else {}), **further_fields}}


def class_(name: str, driver: str) -> Case:
    return {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
    }


def request(name: str, class_name: str, count: int = 1, selector: str = "", **further_fields: Any) -> Case:
    body = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count, **further_fields}
    if selector:
        body["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": body}


def claim(name: str, requests: Sequence[Case], constraints: Sequence[Case] = ()) -> Case:
    devices: Case = {"requests": list(requests)}
    if constraints:
        devices["constraints"] = list(constraints)
    return {"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": {"devices": devices}}


def case(slices: list[Case], claims: list[Case], *classes: Case) -> Case:
    return {
        "node": {"metadata": {"name": "n0"}},
        "slices": slices,
        "classes": list(classes) or [class_("gpu", "g")],
        "claims": claims,
        "allocatedClaims": [],
    }


def selects_profile(name: str) -> str:
    return f'device.attributes["g"].profile == "{name}"'


def identical(devices: int, counts: Sequence[int], *, single: bool = False) -> Case:
    """Return identical devices, and a claim for each count of devices: with one request, or if `single` with a request for each device."""
    gpus = [device(f"gpu-{i:02}", {ROOT: {"string": "r"}}) for i in range(devices)]
    claims = [
        claim(f"c{n}", [request(f"r{i}", "gpu") for i in range(count)] if single else [request("r", "gpu", count)])
        for n, count in enumerate(counts)
    ]
    return case([slice_("g", gpus, "a")], claims)


def possible_then_impossible(devices: int, count: int) -> Case:
    """Return a claim that can be served in very many ways, followed by a claim that cannot be served."""
    gpus = [device(f"gpu-{i:02}", {"idx": {"int": i}}) for i in range(devices)]
    second = claim("d", [request("b", "gpu", 1, 'device.attributes["g"].idx == 99')])
    return case([slice_("g", gpus, "a")], [claim("c", [request("a", "gpu", count)]), second])


def mig(gpus: int, profile_counts: Sequence[tuple[str, int]], *, groups: bool = False, with_4g: bool = False) -> Case:
    """Return GPUs with overlapping partitions, and a claim with a request for each pair of a profile and a count.

    `groups` adds compatibility groups to the partitions, and `with_4g` a partition of one more profile to each GPU.
    """
    counter_sets, devices = [], []
    for gpu in range(gpus):
        slots = {f"s{i}": {"value": "1"} for i in range(SLOTS)}
        counter_sets.append({"name": f"g{gpu}", "counters": slots})
        profiles = {**PROFILES, **({"4g": (4, (0,))} if with_4g else {})}
        for name, (size, starts) in profiles.items():
            for start in starts:
                consumption: Case = {
                    "counterSet": f"g{gpu}",
                    "counters": {f"s{i}": {"value": "1"} for i in range(start, start + size)},
                }
                if groups:
                    consumption["compatibilityGroups"] = (
                        ["mig"] if size < 4 else ["mig", "half"] if name == "3g" else ["half"]
                    )
                devices.append(
                    device(f"gpu{gpu}-{name}-{start}", {"profile": {"string": name}}, consumesCounters=[consumption])
                )
    total = (len(counter_sets) + 7) // 8 + (len(devices) + 63) // 64
    slices = [
        *(
            slice_("g", [], f"counters-{index:04}", total=total, sharedCounters=counter_sets[index : index + 8])
            for index in range(0, len(counter_sets), 8)
        ),
        *(
            slice_("g", devices[index : index + 64], f"devices-{index:04}", total=total)
            for index in range(0, len(devices), 64)
        ),
    ]
    requests = [request(f"q{name}", "gpu", count, selects_profile(name)) for name, count in profile_counts]
    return case(slices, [claim("c", requests)])


def pairs(
    roots: int, gpus: int, nics: int, pair_count: int, *, interleaved: bool = False, without_nic: int = 0
) -> Case:
    """Return PCIe roots with `gpus` GPUs and `nics` NICs each, and a claim for pairs of a GPU and a NIC, each pair under one root.

    The last `without_nic` roots have no NIC.
    """
    gpu_devices = [device(f"gpu-{i:03}", {ROOT: {"string": f"r{i // gpus:02}"}}) for i in range(roots * gpus)]
    nic_devices = [
        device(f"nic-{i:03}", {ROOT: {"string": f"r{i // nics:02}"}}) for i in range((roots - without_nic) * nics)
    ]
    gpu_requests = [request(f"g{i:02}", "gpu") for i in range(pair_count)]
    nic_requests = [request(f"n{i:02}", "nic") for i in range(pair_count)]
    requests = (
        [request_ for pair in zip(gpu_requests, nic_requests, strict=True) for request_ in pair]
        if interleaved
        else gpu_requests + nic_requests
    )
    constraints = [{"requests": [f"g{i:02}", f"n{i:02}"], "matchAttribute": ROOT} for i in range(pair_count)]
    slices = [slice_("g", gpu_devices, "a"), slice_("c", nic_devices, "b", pool="nics")]
    return case(slices, [claim("c", requests, constraints)], class_("gpu", "g"), class_("nic", "c"))


def pigeonholes(devices: int, values: int, count: int, *, single: bool = False) -> Case:
    """Return a claim for devices that must all have distinct values of an attribute that has only `values` different values."""
    gpus = [device(f"d{i:03}", {"slot": {"int": i % values}, "idx": {"int": i}}) for i in range(devices)]
    requests = [request(f"r{i:02}", "gpu") for i in range(count)] if single else [request("r", "gpu", count)]
    return case([slice_("g", gpus, "a")], [claim("c", requests, [{"distinctAttribute": "g/slot"}])])


def latin(devices: int, count: int, distinct_attributes: str, seed: int) -> Case:
    """Return a claim for devices that must all differ in each of several attributes."""
    rng = random.Random(seed)
    gpus = [device(f"d{i:03}", {name: {"int": rng.randrange(count)} for name in "xyz"}) for i in range(devices)]
    constraints = [{"distinctAttribute": f"g/{name}"} for name in distinct_attributes]
    return case([slice_("g", gpus, "a")], [claim("c", [request("r", "gpu", count)], constraints)])


def shares(device_count: int, size: int, amounts: Sequence[int]) -> Case:
    """Return a few large devices, and a claim with a request for each amount of their memory."""
    gpus = [
        device(
            f"d{i}", {"m": {"string": "a"}}, capacity={"memory": {"value": f"{size}Gi"}}, allowMultipleAllocations=True
        )
        for i in range(device_count)
    ]
    requests = [
        request(f"r{i:02}", "gpu", capacity={"requests": {"memory": f"{amount}Gi"}}) for i, amount in enumerate(amounts)
    ]
    return case([slice_("g", gpus, "a")], [claim("c", requests)])


def alternatives(gpus: int, request_count: int) -> Case:
    """Return GPUs with partitions, and requests that each accept a whole GPU or two half GPUs."""
    partitions = mig(gpus, [])
    profile_counts = [("7g", 1), ("3g", 2)]
    requests = [
        {
            "name": f"r{i}",
            "firstAvailable": [
                {"name": f"s{name}", **request("", "gpu", n, selects_profile(name))["exactly"]}
                for name, n in profile_counts
            ],
        }
        for i in range(request_count)
    ]
    return {**partitions, "claims": [claim("c", requests)]}


# Of each device of 30Gi: the first two of the three shares that fill the device.
_FIRST_TWO_SHARES = ((8, 9), (9, 11), (10, 10), (8, 11), (12, 9), (9, 10), (8, 8), (13, 8))

# By name: a function that returns the case, and whether all of its claims fit.
HARD: dict[str, tuple[Callable[[], Case], bool]] = {
    "32 of 31 identical devices": (lambda: identical(31, [32]), False),
    "32 + 32 + 1 of 64 identical devices for three claims": (lambda: identical(64, [32, 32, 1]), False),
    "32 requests for one of 31 devices each": (lambda: identical(31, [32], single=True), False),
    "8 of 16 devices, then an impossible claim": (lambda: possible_then_impossible(16, 8), False),
    "8 halves and 2 small partitions of 4 GPUs": (lambda: mig(4, [("1g", 2), ("3g", 8)]), False),
    "16 halves and 4 small partitions of 8 GPUs": (lambda: mig(8, [("1g", 4), ("3g", 16)]), False),
    "partitions of three sizes that fit on 8 GPUs": (
        lambda: mig(8, [("1g", 4), ("2g", 4), ("3g", 12)], with_4g=True),
        True,
    ),
    "partitions of five profiles that do not fit on 8 GPUs": (
        lambda: mig(8, [("1g", 8), ("2g", 7), ("3g", 4), ("4g", 4), ("7g", 3)], with_4g=True),
        False,
    ),
    "partitions with compatibility groups that fit on 8 GPUs": (
        lambda: mig(8, [("1g", 8), ("3g", 6), ("4g", 6)], groups=True, with_4g=True),
        True,
    ),
    "16 GPU+NIC pairs, enough NICs": (lambda: pairs(16, 2, 1, 16), True),
    "16 GPU+NIC pairs, one NIC too few": (lambda: pairs(16, 2, 1, 16, without_nic=1), False),
    "16 GPU+NIC pairs of alternating requests, one NIC too few": (
        lambda: pairs(16, 2, 1, 16, interleaved=True, without_nic=1),
        False,
    ),
    "one request for 9 devices with distinct values, only 8 values": (lambda: pigeonholes(32, 8, 9), False),
    "9 requests for devices with distinct values, only 8 values": (lambda: pigeonholes(32, 8, 9, single=True), False),
    "10 devices that differ in two attributes, impossible": (lambda: latin(40, 10, "xy", 0), False),
    "10 devices that differ in three attributes, possible": (lambda: latin(60, 10, "xyz", 1), True),
    "17 shares of 9Gi in 8 devices of 24Gi": (lambda: shares(8, 24, [9] * 17), False),
    "24 shares that fill 8 devices exactly": (
        lambda: shares(8, 30, sorted(n for a, b in _FIRST_TWO_SHARES for n in (a, b, 30 - a - b))),
        True,
    ),
    "21 shares that do not fit on 8 devices": (
        lambda: shares(8, 30, [8, 8, *[9] * 6, *[14] * 8, 8, 8, 13, 13, 13]),
        False,
    ),
    "9 times one GPU or two halves on 8 GPUs": (lambda: alternatives(8, 9), False),
    "8 times one GPU or two halves on 8 GPUs": (lambda: alternatives(8, 8), True),
}
