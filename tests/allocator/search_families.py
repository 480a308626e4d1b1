"""Families of cases that need search: partitions, pairs of devices, shares, and claims that request too much."""

import random

from tests.allocator.fleet_maker import ROOT
from tests.allocator.hard import class_


def _node() -> dict:
    return {"metadata": {"name": "n0", "labels": {}}}


def _slice(driver: str, pool: str, name: str, slice_count: int = 1, **spec) -> dict:
    pool_ = {"name": pool, "generation": 1, "resourceSliceCount": slice_count}
    return {"metadata": {"name": name}, "spec": {"driver": driver, "pool": pool_, "nodeName": "n0", **spec}}


def _exactly(class_: str, count: int = 1, selector: str = "", **further_fields) -> dict:
    body = {"deviceClassName": class_, "allocationMode": "ExactCount", "count": count, **further_fields}
    if selector:
        body["selectors"] = [{"cel": {"expression": selector}}]
    return body


def _claim(name: str, requests: list, constraints: list = ()) -> dict:
    devices = {"requests": requests, **({"constraints": constraints} if constraints else {})}
    return {"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": {"devices": devices}}


def _allocated_claim(name: str, results: list) -> dict:
    return {
        "metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def mig(rng: random.Random) -> dict:
    """Draw GPUs with overlapping partitions, some of them in use, and claims for partitions of several profiles."""
    gpus = rng.choice((1, 2, 2, 3))
    profiles = {"1g": (1, range(4)), "2g": (2, (0, 2)), "4g": (4, (0,)), "3g": (3, (0, 1))}
    published_profiles = rng.sample(sorted(profiles), rng.choice((2, 3, 4)))
    has_groups = rng.random() < 0.3
    counter_sets, devices = [], []
    for gpu in range(gpus):
        counter_sets.append(
            {"name": f"g{gpu}", "counters": {**{f"s{i}": {"value": "1"} for i in range(4)}, "m": {"value": "4"}}}
        )
        for profile in published_profiles:
            size, starts = profiles[profile]
            for start in starts:
                counters = {f"s{i}": {"value": "1"} for i in range(start, start + size)}
                if rng.random() < 0.9:
                    counters["m"] = {"value": str(size)}
                consumption = {"counterSet": f"g{gpu}", "counters": counters}
                if has_groups:
                    consumption["compatibilityGroups"] = (
                        ["mig"] if size < 3 else ["mig", "big"] if size == 3 else ["big"]
                    )
                device = {
                    "name": f"gpu{gpu}-{profile}-{start}",
                    "attributes": {
                        "profile": {"string": profile},
                        ROOT: {"string": f"r{gpu // 2}"},
                        "gpu": {"int": gpu},
                    },
                    "consumesCounters": [consumption],
                }
                if size < 3 and rng.random() < 0.1:
                    device["allowMultipleAllocations"] = True
                    device["capacity"] = {"mem": {"value": "4"}}
                devices.append(device)
    if rng.random() < 0.5:
        rng.shuffle(devices)
    allocated_claims = []
    for number in range(rng.choice((0, 0, 1, 2))):
        device = rng.choice(devices)
        if not device.get("allowMultipleAllocations"):
            allocated_claims.append(
                _allocated_claim(f"h{number}", [{"request": "r", "driver": "g", "pool": "p", "device": device["name"]}])
            )
    claims = []
    for number in range(rng.choice((1, 1, 2, 3))):
        requests = []
        for n in range(rng.choice((1, 2, 3))):
            requested_profiles = rng.sample(published_profiles, rng.choice((1, 1, 2)))
            bodies = [
                _exactly("gpu", rng.choice((1, 1, 2, 3, 4)), f'device.attributes["g"].profile == "{profile}"')
                for profile in requested_profiles
            ]
            if len(bodies) > 1:
                alternatives = [{"name": f"s{i}", **body} for i, body in enumerate(bodies)]
                requests.append({"name": f"r{n}", "firstAvailable": alternatives})
            else:
                if rng.random() < 0.1:
                    bodies[0]["adminAccess"] = True
                requests.append({"name": f"r{n}", "exactly": bodies[0]})
        constraints = []
        if rng.random() < 0.25:
            kind = rng.choice(("matchAttribute", "distinctAttribute"))
            constraints.append({kind: rng.choice((ROOT, "g/gpu"))})
        claims.append(_claim(f"c{number}", requests, constraints))
    return {
        "node": _node(),
        "slices": [_slice("g", "p", "a", 2, sharedCounters=counter_sets), _slice("g", "p", "b", 2, devices=devices)],
        "classes": [class_("gpu", "g")],
        "claims": claims,
        "allocatedClaims": allocated_claims,
    }


def pairs(rng: random.Random) -> dict:
    """Draw GPUs and NICs under PCIe roots, and claims for pairs of a GPU and a NIC."""
    roots = rng.choice((2, 3, 4))
    gpus = [
        {"name": f"gpu{i}", "attributes": {ROOT: {"string": f"r{i % roots}"}, "numa": {"int": i % 2}, "i": {"int": i}}}
        for i in range(roots * rng.choice((1, 2)))
    ]
    nics = [
        {"name": f"nic{i}", "attributes": {ROOT: {"string": f"r{i}"}, "numa": {"int": i % 2}}}
        for i in range(roots - rng.choice((0, 0, 1)))
    ]
    for device in gpus + nics:
        if rng.random() < 0.1:
            device["attributes"][ROOT] = {"strings": rng.sample([f"r{i}" for i in range(roots)], 2)}
        if rng.random() < 0.1:
            device["allowMultipleAllocations"] = True
            device["capacity"] = {"bw": {"value": "10", "requestPolicy": {"default": "5"}}}
    rng.shuffle(gpus)
    claims = []
    has_claim_per_pair = rng.random() < 0.4
    pair_count = rng.randrange(1, roots + 2)
    requests, constraints = [], []
    for n in range(pair_count):
        pair = [{"name": f"g{n}", "exactly": _exactly("gpu")}, {"name": f"n{n}", "exactly": _exactly("nic")}]
        if rng.random() < 0.2:
            selector = f'device.attributes["g"].i >= {rng.randrange(3)}'
            pair[0]["exactly"] = _exactly("gpu", rng.choice((1, 2)), selector)
        constraint = {"requests": [f"g{n}", f"n{n}"], "matchAttribute": rng.choice((ROOT, ROOT, "g/numa"))}
        if has_claim_per_pair:
            claims.append(_claim(f"c{n}", pair, [constraint]))
        else:
            requests += pair
            constraints.append(constraint)
    if not has_claim_per_pair:
        if rng.random() < 0.3:
            rng.shuffle(requests)
        if rng.random() < 0.3:
            constraints.append({"requests": [f"g{n}" for n in range(pair_count)], "distinctAttribute": ROOT})
        claims = [_claim("c", requests, constraints)]
    allocated_claims = [
        _allocated_claim(f"h{n}", [{"request": "r", "driver": "g", "pool": "p", "device": rng.choice(gpus)["name"]}])
        for n in range(rng.choice((0, 0, 0, 1, 2)))
    ]
    return {
        "node": _node(),
        "slices": [_slice("g", "p", "a", devices=gpus), _slice("n", "p", "b", devices=nics)],
        "classes": [class_("gpu", "g"), class_("nic", "n")],
        "claims": claims,
        "allocatedClaims": allocated_claims,
    }


def bins(rng: random.Random) -> dict:
    """Draw a few devices and claims for shares of their memory. The devices are just large enough, or just too small."""
    size = rng.choice((10, 12, 15))
    policy = rng.choice((None, None, {"default": "3", "validRange": {"min": "3", "step": "2"}}))
    devices = [
        {
            "name": f"d{i}",
            "attributes": {"m": {"string": rng.choice("aab")}, "numa": {"int": i % 2}},
            "allowMultipleAllocations": rng.random() < 0.9,
            "capacity": {"mem": {"value": str(size), **({"requestPolicy": policy} if policy else {})}},
        }
        for i in range(rng.choice((2, 3, 3, 4)))
    ]
    for device in devices:
        if not device["allowMultipleAllocations"]:
            device["capacity"]["mem"].pop("requestPolicy", None)
    claims = []
    for number in range(rng.choice((1, 1, 2, 3))):
        requests = []
        for n in range(rng.choice((2, 3, 4, 5))):
            capacity = {"requests": {"mem": str(rng.choice((2, 3, 4, 5, 6, 7)))}}
            selector = 'device.attributes["g"].m == "a"' if rng.random() < 0.2 else ""
            body = _exactly(
                "gpu", rng.choice((1, 1, 1, 2)), selector, **({"capacity": capacity} if rng.random() < 0.9 else {})
            )
            if rng.random() < 0.08:
                body["adminAccess"] = True
            requests.append({"name": f"r{n}", "exactly": body})
        constraints = [{rng.choice(("matchAttribute", "distinctAttribute")): "g/numa"}] if rng.random() < 0.15 else []
        claims.append(_claim(f"c{number}", requests, constraints))
    allocated_claims = []
    for number in range(rng.choice((0, 0, 1, 2))):
        device = rng.choice(devices)
        result = {"request": "r", "driver": "g", "pool": "p", "device": device["name"]}
        if device["allowMultipleAllocations"]:
            result["shareID"] = f"00000000-0000-4000-8000-00000000000{number}"
            result["consumedCapacity"] = {"mem": str(rng.choice((1, 3, 5)))}
        allocated_claims.append(_allocated_claim(f"h{number}", [result]))
    return {
        "node": _node(),
        "slices": [_slice("g", "p", "a", devices=devices)],
        "classes": [class_("gpu", "g")],
        "claims": claims,
        "allocatedClaims": allocated_claims,
    }


def over(rng: random.Random) -> dict:
    """Draw requests whose alternatives together request more devices than a claim may hold, and devices on which selectors fail."""
    devices = [
        {"name": f"d{i:02}", "attributes": {"m": {"string": "ab"[i % 2]}, "i": {"int": i}, "n": {"int": i % 3}}}
        for i in range(rng.choice((33, 36, 40, 48)))
    ]
    for device in rng.sample(devices, rng.choice((0, 0, 1, 2))):
        del device["attributes"]["m"]
    for device in rng.sample(devices, rng.choice((0, 0, 1))):
        device["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    selectors = (
        "",
        "",
        'device.attributes["g"].m != "c"',
        'device.attributes["g"].i >= 30',
        'device.attributes["g"].i < 30',
    )
    claims = []
    for number in range(rng.choice((1, 1, 2))):
        requests = []
        for n in range(rng.choice((2, 2, 3))):
            alternative_count = rng.choice((2, 2, 3)) if rng.random() < 0.8 else 1
            bodies = [
                _exactly(
                    rng.choice(("gpu",) * 7 + ("nobody",)), rng.choice((1, 2, 8, 16, 20, 24, 30)), rng.choice(selectors)
                )
                for _ in range(alternative_count)
            ]
            if rng.random() < 0.1:
                bodies[0] = {
                    "deviceClassName": "gpu",
                    "allocationMode": "All",
                    "selectors": [{"cel": {"expression": selectors[3]}}],
                }
            if rng.random() < 0.5:
                bodies[-1]["count"] = 1
                bodies[-1]["allocationMode"] = "ExactCount"
            if alternative_count > 1:
                requests.append(
                    {"name": f"r{n}", "firstAvailable": [{"name": f"s{i}", **body} for i, body in enumerate(bodies)]}
                )
            else:
                requests.append({"name": f"r{n}", "exactly": bodies[0]})
        constraints = [{"matchAttribute": "g/n"}] if rng.random() < 0.1 else []
        claims.append(_claim(f"c{number}", requests, constraints))
    return {
        "node": _node(),
        "slices": [_slice("g", "p", "a", devices=devices)],
        "classes": [class_("gpu", "g"), class_("nobody", "nobody")],
        "claims": claims,
        "allocatedClaims": [],
        "deadlineMs": 150,  # with more time, Kubernetes' own allocator would not end either
    }
