"""What the families of `tests.allocator.generate` leave out: the other fields and values of a case, written over it here and there.

Between this and the families every field of ResourceSlice, DeviceClass and ResourceClaim that the in-tree allocator reads is drawn, many
with values that today's validation refuses and a stored object may have.
"""

import json
import random
from collections.abc import Callable
from typing import Any

Case = dict[str, Any]
ROOT = "resource.kubernetes.io/pcieRoot"


def widen(rng: random.Random, case: Case) -> Case:
    """Write some of them over a case, which most often asks for little, so that much of what it reads decides its answer."""
    if rng.random() < 0.7:
        _ease(case)
    changes = rng.sample(CHANGES, rng.choice((1, 1, 2, 2, 3, 5, 8)))
    for change in changes:
        change(rng, case)
    return case


def _ease(case: Case) -> None:
    """Ask for one device of each of two requests, and nothing else."""
    case["claims"] = case["claims"][:1]
    devices = case["claims"][0]["spec"]["devices"]
    devices["requests"] = devices.get("requests", [])[:2]
    for name in ("constraints", "config"):
        devices.pop(name, None)
    for body in _bodies(case):
        body |= {"allocationMode": "ExactCount", "count": 1}


def _devices(case: Case) -> list[tuple[Case, Case]]:
    """List the devices, each with the spec of its slice."""
    specs = [one["spec"] for one in case["slices"]]
    return [(spec, device) for spec in specs for device in spec.get("devices", ())]


def _some(rng: random.Random, things: list[Any]) -> list[Any]:
    """Draw a few, or most of them."""
    often = rng.choice((0.15, 0.4, 0.9))
    return [thing for thing in things if rng.random() < often]


def _requests(case: Case) -> list[Case]:
    return [one for claim in case["claims"] for one in claim["spec"]["devices"].get("requests", ())]


def _bodies(case: Case) -> list[Case]:
    """List what is asked for: requests, and the alternatives of requests."""
    return [body for request in _requests(case) for body in (request.get("firstAvailable") or [request["exactly"]])]


# ---- slices


def _lists(rng: random.Random, case: Case) -> None:
    """Attributes with a list of each type, one without a value, and one with an empty list."""
    values = (
        {"bools": [True]},
        {"bools": [True, False]},
        {"versions": ["1.0.0", "2.1.0"]},
        {"versions": ["1.0.0+x"]},
        {"ints": [0, 1, 2]},
        {"strings": ["a", "b"]},
        {"strings": ["r0"]},
        {"ints": []},
        {},
    )
    name = rng.choice((ROOT, "numa", "model", "ver", "slot", "gpu", "n"))
    for _, device in _some(rng, _devices(case)):
        device.setdefault("attributes", {})[name] = dict(rng.choice(values[: rng.choice((7, 7, 7, 7, 9))]))


def _qualified(rng: random.Random, case: Case) -> None:
    """Attributes and capacities under a domain: the driver's own, or another."""
    for spec, device in _some(rng, _devices(case)):
        for kind in ("attributes", "capacity"):
            named = device.get(kind) or {}
            for name in list(named):
                if "/" not in name and rng.random() < 0.4:
                    domain = rng.choice((spec["driver"], spec["driver"], "other.example.com"))
                    kept = named[name] if rng.random() < 0.3 else named.pop(name)
                    named[f"{domain}/{name}"] = kept
    for body in _some(rng, _bodies(case)):
        wanted = body.get("capacity", {}).get("requests", {})
        if wanted and case["slices"]:
            name = rng.choice(list(wanted))
            wanted[f"{rng.choice(case['slices'])['spec']['driver']}/{name}"] = wanted.pop(name)


def _taints(rng: random.Random, case: Case) -> None:
    """Several taints of one device, old ones, and effects that are not known."""
    for _, device in _some(rng, _devices(case)):
        effects = ("NoSchedule", "NoExecute", "None", "NoSchedule", "Later")
        taints = []
        for _ in range(rng.choice((1, 2, 3, 5))):
            taint = {"key": rng.choice(("k", "l", "example.com/m")), "effect": rng.choice(effects)}
            if rng.random() < 0.5:
                taint["value"] = rng.choice(("v", "w", ""))
            if rng.random() < 0.5:
                taint["timeAdded"] = rng.choice(("2020-01-01T00:00:00Z", "2199-01-01T00:00:00Z"))
            taints.append(taint)
        device["taints"] = taints


def _taint_rules(rng: random.Random, case: Case) -> None:
    """Several rules, which choose devices by each combination of their names."""
    devices = _devices(case)
    rules = []
    for number in range(rng.choice((2, 3, 4))):
        selector: Case = {}
        if devices:
            spec, device = rng.choice(devices)
            names = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
            selector = {key: names[key] for key in rng.sample(list(names), rng.choice((0, 1, 1, 2, 3)))}
        taint = {"key": rng.choice("kl"), "effect": rng.choice(("NoSchedule", "NoExecute", "None"))}
        if rng.random() < 0.3:
            taint["timeAdded"] = "2020-01-01T00:00:00Z"
        rules.append({"metadata": {"name": f"r{number}"}, "spec": {"deviceSelector": selector, "taint": taint}})
    case["deviceTaintRules"] = rules


def _conditions(rng: random.Random, case: Case) -> None:
    """Up to four binding conditions, or conditions of a failure alone."""
    for _, device in _some(rng, _devices(case)):
        device["bindingFailureConditions"] = ["broken", "worse", "lost", "gone"][: rng.choice((1, 2, 4))]
        device.pop("bindingConditions", None)
        if rng.random() < 0.7:
            device["bindingConditions"] = ["ready", "warm", "clean", "example.com/set"][: rng.choice((1, 2, 4))]
        device["bindsToNode"] = rng.random() < 0.5


def _node_resources(rng: random.Random, case: Case) -> None:
    """What a device takes of its node, by device, by capacity and in overhead."""
    for _, device in _some(rng, _devices(case)):
        device["nodeAllocatableResources"] = rng.choice(
            (
                {"cpu": {"mapping": {"deviceMultiplier": "2"}}},
                {"memory": {"mapping": {"deviceMultiplier": "1Gi"}, "overhead": {"perPod": "64Mi"}}},
                {"memory": {"mapping": {"capacityKey": "mem", "capacityMultiplier": "500m"}}},
                {"cpu": {"overhead": {"perPod": "100m", "perContainer": "10m"}}},
            )
        )


def _operations(rng: random.Random, case: Case) -> None:
    """Node operations that are left out one by one, and nodes that can do without or not."""
    for one in _some(rng, case["slices"]):
        steps = ["NodePrepareResources", "NodeUnprepareResources"]
        one["spec"]["skipNodeOperations"] = rng.choice((["*"], steps, steps[:1], steps[1:], []))
    if rng.random() < 0.5:
        declared = rng.choice(([], ["Other"], ["DRAOptionalNodeOperations", "Other"]))
        case["node"]["status"] = {"declaredFeatures": declared}


def _spelled_out(rng: random.Random, case: Case) -> None:
    """What is false, zero or empty is written down instead of left out."""
    for one in _some(rng, case["slices"]):
        spec = one["spec"]
        for name, value in (("perDeviceNodeSelection", False), ("allNodes", False), ("nodeName", "")):
            if rng.random() < 0.4:
                spec.setdefault(name, value)
        if rng.random() < 0.2:
            spec["partitionTypeAttribute"] = f"{spec['driver']}/profile"
    for _, device in _some(rng, _devices(case)):
        for name in ("bindsToNode", "allowMultipleAllocations", "allNodes"):
            if rng.random() < 0.4:
                device.setdefault(name, False)
        for name in ("consumesCounters", "taints", "bindingConditions"):
            if rng.random() < 0.1:
                device.setdefault(name, [])
    for body in _some(rng, [request["exactly"] for request in _requests(case) if request.get("exactly")]):
        body.setdefault("adminAccess", False)


def _selected(rng: random.Random, case: Case) -> None:
    """Node selectors with every operator, on labels and on fields, of several requirements, and broken ones."""
    labels = case["node"]["metadata"].setdefault("labels", {})
    if rng.random() < 0.5:
        labels |= {"zone": "a", "rank": "5", "empty": ""}
    requirements = (
        {"key": "zone", "operator": "In", "values": ["a"]},
        {"key": "zone", "operator": "In", "values": ["a", "a", "b"]},
        {"key": "zone", "operator": "NotIn", "values": ["c", "d"]},
        {"key": "zone", "operator": "NotIn", "values": ["d", "c"]},
        {"key": "empty", "operator": "Exists"},
        {"key": "empty", "operator": "In", "values": [""]},
        {"key": "none", "operator": "DoesNotExist"},
        {"key": "rank", "operator": "Gt", "values": ["4"]},
        {"key": "rank", "operator": "Lt", "values": ["6"]},
        {"key": "rank", "operator": "Gt", "values": ["05"]},
    )
    fields = (
        {"key": "metadata.name", "operator": "In", "values": ["n0"]},
        {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]},
        {"key": "metadata.name", "operator": "NotIn", "values": ["n0"]},
    )
    broken = (
        {"key": "rank", "operator": "Gt", "values": ["four"]},
        {"key": "rank", "operator": "Gt", "values": ["4", "5"]},
        {"key": "zone", "operator": "In", "values": []},
        {"key": "zone", "operator": "Exists", "values": ["a"]},
        {"key": "", "operator": "Exists"},
    )

    def selector() -> Case:
        term: Case = {"matchExpressions": rng.sample(requirements, rng.choice((0, 1, 2, 3, 5)))}
        if rng.random() < 0.3:
            term["matchFields"] = rng.sample(fields, rng.choice((1, 1, 2)))
        if rng.random() < 0.06:
            term["matchExpressions"].append(rng.choice(broken))
        if rng.random() < 0.04:
            term["matchFields"] = [{"key": "metadata.uid", "operator": "In", "values": ["n0"]}]
        return {"nodeSelectorTerms": [term] if rng.random() < 0.95 else []}

    for one in _some(rng, case["slices"]):
        spec = one["spec"]
        if spec.get("perDeviceNodeSelection"):
            for device in _some(rng, spec.get("devices", [])):
                for name in ("nodeName", "allNodes"):
                    device.pop(name, None)
                device["nodeSelector"] = selector()
        else:
            for name in ("nodeName", "allNodes"):
                spec.pop(name, None)
            spec["nodeSelector"] = selector()


def _policies(rng: random.Random, case: Case) -> None:
    """Defaults in another notation, outside of what is valid, and larger than what can be counted; steps of every size."""
    pairs = [(device, name) for _, device in _devices(case) for name in device.get("capacity") or {}]
    for device, name in _some(rng, pairs):
        device["allowMultipleAllocations"] = rng.random() < 0.9
        default = rng.choice(("1", "1000m", "1024Mi", "1Gi", "1e0", "3", "0.5", "500m", "10E", "0"))
        policy: Case = {"default": default} if rng.random() < 0.85 else {}
        kind = rng.randrange(5)
        if kind == 0:
            policy["validValues"] = rng.choice((["1", "3", "1Gi"], ["500m", "1", "1.5"], ["1024Mi", "8Gi"], []))
        elif kind < 4:
            low, step, high = rng.choice(
                (
                    ("1", "1000m", "8"),
                    ("0.5", "0.25", "8"),
                    ("500m", "1", None),
                    ("1Mi", "3Mi", "8Gi"),
                    ("1", "1n", "8"),
                    ("0", "500u", "8"),
                    ("2", "5E", "10E"),
                    ("0", "1", None),
                    (None, None, "4"),
                )
            )
            bounds = {"min": low, "step": step, "max": high}
            policy["validRange"] = {key: value for key, value in bounds.items() if value is not None}
        device["capacity"][name] = {
            "value": rng.choice(("8", "8Gi", "8192Mi", "8000m", "10E", "7.5")),
            "requestPolicy": policy,
        }
    for body in _some(rng, _bodies(case)):
        amounts = ("1", "1000m", "1024Mi", "1Gi", "0.75", "750m", "1n", "3", "3.0", "10E", "9223372036854775807")
        names = [name for _, name in pairs] or ["mem"]
        body["capacity"] = {
            "requests": {rng.choice(names): rng.choice(amounts) for _ in range(rng.choice((0, 1, 1, 2)))}
        }


def _counters(rng: random.Random, case: Case) -> None:
    """Devices that name a counter set twice, that take nothing of it, and sets in two slices."""
    for _, device in _some(rng, _devices(case)):
        consumed = device.get("consumesCounters") or []
        if consumed:
            first = consumed[0]
            kind = rng.randrange(4)
            if kind == 0:
                consumed.append({**first, "compatibilityGroups": rng.sample("xyz", rng.randrange(3))})
            elif kind == 1:
                first["counters"] = {}
            elif kind == 2:
                first["compatibilityGroups"] = rng.choice(([], ["x"], ["x", "x"], ["y", "z"]))
    sets = [one for one in case["slices"] if one["spec"].get("sharedCounters")]
    if sets and rng.random() < 0.3:
        half = rng.choice(sets)
        shared = half["spec"]["sharedCounters"]
        spec = {**half["spec"], "sharedCounters": shared[1:] or shared}
        half["spec"]["sharedCounters"] = shared[:1]
        case["slices"].append({"metadata": {"name": half["metadata"]["name"] + "-b"}, "spec": spec})
        pool = half["spec"]["pool"]["name"]
        for one in case["slices"]:
            if one["spec"]["pool"]["name"] == pool and rng.random() < 0.95:
                one["spec"]["pool"] = one["spec"]["pool"] | {
                    "resourceSliceCount": one["spec"]["pool"]["resourceSliceCount"] + 1
                }


def _one_pool_name(rng: random.Random, case: Case) -> None:
    """Pools of one name that several drivers have, and whose slices have names that sort otherwise than they came."""
    for one in case["slices"]:
        one["spec"]["pool"] = one["spec"]["pool"] | {"name": "p"}
        if rng.random() < 0.5:
            one["metadata"]["name"] = f"{rng.choice(('S', 's', 's-1', 's-10', 's-2'))}{one['metadata']['name']}"
    for claim in case["allocatedClaims"]:
        for result in claim["status"]["allocation"]["devices"]["results"]:
            result["pool"] = "p"


def _large(rng: random.Random, case: Case) -> None:
    """As much as the API allows: devices of a slice, counter sets and counters, requests and claims."""
    for one in _some(rng, case["slices"]):
        devices = one["spec"].get("devices", [])
        kinds = list(devices)
        for number in range(rng.choice((16, 64, 128)) - len(devices) if kinds else 0):
            devices.append(
                json.loads(json.dumps(rng.choice(kinds))) | {"name": f"more-{one['metadata']['name']}-{number}"}
            )
        sets = one["spec"].get("sharedCounters", [])
        for number in range(8 - len(sets) if sets else 0):
            sets.append({"name": f"more{number}", "counters": {f"c{at}": {"value": "1"} for at in range(32)}})
    claim = rng.choice(case["claims"])
    requests = claim["spec"]["devices"].get("requests", [])
    known = list(requests)
    for number in range(rng.choice((0, 4, 16)) if known else 0):
        requests.append(json.loads(json.dumps(rng.choice(known))) | {"name": f"more{number}"})
    for number in range(rng.choice((0, 4, 16))):
        copied = json.loads(json.dumps(claim))
        case["claims"].append(copied | {"metadata": {"name": f"more{number}", "namespace": "d", "uid": f"m{number}"}})


# ---- classes


def _classes(rng: random.Random, case: Case) -> None:
    """Classes with an extended resource's name, with many selectors or none, and with parameters of several drivers."""
    for one in _some(rng, case["classes"]):
        spec = one["spec"]
        if rng.random() < 0.4:
            spec["extendedResourceName"] = "example.com/gpu"
        if rng.random() < 0.5:
            drivers = ["g.example.com", "n.example.com", "g", "none.example.com"]
            spec["config"] = [
                {"opaque": {"driver": driver, "parameters": {"kind": "K", "n": [1, None, {}]}}}
                for driver in rng.sample(drivers, rng.randrange(4))
            ]
        if rng.random() < 0.3:
            spec.setdefault("selectors", []).extend(
                {"cel": {"expression": expression(rng, case)}} for _ in range(rng.randrange(3))
            )
        elif rng.random() < 0.1:
            spec["selectors"] = []


# ---- claims


def expression(rng: random.Random, case: Case) -> str:
    """Draw a selector that reads what the families' selectors do not."""
    drivers = sorted({one["spec"]["driver"] for one in case["slices"]}) or ["g.example.com"]
    driver = rng.choice(drivers)
    attributes, capacity = f'device.attributes["{driver}"]', f'device.capacity["{driver}"]'
    kubernetes = 'device.attributes["resource.kubernetes.io"]'
    return rng.choice(
        (
            f"has({attributes}.numa)",
            f"has({attributes}.numa) && {attributes}.numa.includes(1)",
            f'has({kubernetes}.pcieRoot) && {kubernetes}.pcieRoot.includes("r0")',
            f'has({attributes}.model) && {attributes}.model.includes("a")',
            f'{attributes}[?"model"].orValue("b") == "b"',
            f'{attributes}[?"slot"].orValue(7) > 1',
            f"cel.bind(a, {attributes}, has(a.idx) && a.idx % 2 == 0)",
            f'"{driver}" in device.attributes',
            f'"mem" in {capacity} && {capacity}.mem.isGreaterThan(quantity("4"))',
            f'{capacity}[?"bw"].orValue(quantity("0")).compareTo(quantity("1")) < 0',
            f'has({attributes}.ver) && {attributes}.ver.isGreaterThan(semver("1.0.0"))',
            f"has({attributes}.ver) && {attributes}.ver.major() == 1",
            'device.attributes["other.example.com"].size() == 0',
            'has(device.attributes["other.example.com"].model)',
            "device.allowMultipleAllocations == true || device.allowMultipleAllocations == false",
            f'device.driver.matches("^{driver[0]}") && device.driver.endsWith("{driver[-3:]}")',
            f"!has({attributes}.ok) || {attributes}.ok || {attributes}.idx == 0",
            f"{attributes}.exists(name, name == 'model')",
            f"{attributes}.all(name, name.size() < 6)",
            f"{attributes}.idx in [0, 2, 4]",
            f"{attributes}.idx / 0 == 1 || {attributes}.idx < 3",
            f"dyn({attributes}.numa) == dyn(1)",
        )
    )


def _selectors(rng: random.Random, case: Case) -> None:
    """Several selectors of one request."""
    for body in _some(rng, _bodies(case)):
        many = rng.choice((1, 1, 2, 3, 32) if rng.random() < 0.1 else (1, 1, 2))
        body["selectors"] = body.get("selectors", [])[:1] + [
            {"cel": {"expression": expression(rng, case)}} for _ in range(many)
        ]
        if rng.random() < 0.02:
            body["selectors"].append(rng.choice(({"cel": {"expression": ""}}, {"cel": {"expression": "device."}}, {})))


def _tolerations(rng: random.Random, case: Case) -> None:
    """Many tolerations, without an operator, for a time, and of everything."""
    for body in _some(rng, _bodies(case)):
        tolerations = []
        for _ in range(rng.choice((1, 2, 3, 16))):
            one: Case = {"operator": rng.choice(("Exists", "Equal", "", "Near"))}
            if rng.random() < 0.8:
                one["key"] = rng.choice(("k", "l", "example.com/m"))
            if one["operator"] != "Exists" and rng.random() < 0.7:
                one["value"] = rng.choice(("v", "w", ""))
            if rng.random() < 0.5:
                one["effect"] = rng.choice(("NoSchedule", "NoExecute", "None"))
            if one.get("effect") == "NoExecute":
                one["tolerationSeconds"] = rng.choice((-5, 0, 60, 2**40))
            tolerations.append(one)
        body["tolerations"] = tolerations


def _alternatives(rng: random.Random, case: Case) -> None:
    """Up to eight alternatives, in any order, some of them for all devices."""
    for request in _some(rng, _requests(case)):
        known = request.get("firstAvailable") or [request["exactly"]]
        bodies = [{key: value for key, value in one.items() if key not in ("adminAccess", "name")} for one in known]
        drawn = [dict(rng.choice(bodies)) for _ in range(rng.choice((2, 4, 8)))]
        for body in drawn:
            if rng.random() < 0.3:
                body.pop("count", None)
                body["allocationMode"] = "All"
            elif body.get("allocationMode") == "ExactCount":
                body["count"] = rng.choice((1, 2, 3, 8, 33))
        request.pop("exactly", None)
        request["firstAvailable"] = [{"name": f"s{number}", **body} for number, body in enumerate(drawn)]


def _modes(rng: random.Random, case: Case) -> None:
    """A mode that is not known or left out, counts that no claim can hold, and classes that are missing."""
    bodies = _bodies(case)
    if not bodies:
        return
    body = rng.choice(bodies)
    kind = rng.randrange(6) if rng.random() < 0.3 else 6
    if kind == 6:
        body["count"] = rng.choice((1, 31, 32)) if len(bodies) == 1 else 1
    elif kind == 0:
        body["allocationMode"] = rng.choice(("Most", ""))
    elif kind == 1:
        body["allocationMode"] = "ExactCount"
        body["count"] = rng.choice((32, 33, 2**31, 2**63 - 1))
    elif kind == 2:
        del body["allocationMode"]
    elif kind == 3:
        body.pop("count", None)
    elif kind == 4:
        body["deviceClassName"] = "missing"
    else:
        body["count"] = 0


def _derived(rng: random.Random, case: Case) -> None:
    """Derived attributes of every type, several at once, that fail, that hide a published one, or that no constraint reads."""
    drivers = sorted({one["spec"]["driver"] for one in case["slices"]}) or ["g.example.com"]
    for claim in case["claims"]:
        devices = claim["spec"]["devices"]
        names = [one.get("matchAttribute") or one.get("distinctAttribute") for one in devices.get("constraints", ())]
        names = [name for name in names if name] or [f"{drivers[0]}/made"]
        bodies = [
            body for one in devices.get("requests", ()) for body in (one.get("firstAvailable") or [one["exactly"]])
        ]
        for body in _some(rng, bodies):
            driver = rng.choice(drivers)
            attributes = f'device.attributes["{driver}"]'
            expressions = (
                f"{attributes}.idx % 2",
                f'{attributes}[?"numa"].orValue(0)',
                f'has({attributes}.ver) ? {attributes}.ver : semver("1.0.0")',
                f"[{attributes}.ok]",
                f"{attributes}.ok",
                '[device.driver, "x"]',
                "[]",
                "1.5",
                "null",
                "device.attributes",
                f"{attributes}.idx > 1",
                f'"{"x" * 70}"',
                '[semver("1.0.0"), semver("2.0.0")]',
                '[1, "a"]',
                f"{attributes}.nothing",
                "device.",
            )
            usual = rng.random() < 0.85
            body["derivedAttributes"] = [
                {"name": name, "expression": rng.choice(expressions[:6] if usual else expressions)}
                for name in {rng.choice(names) for _ in range(rng.choice((1, 2, 3)))}
            ]


def _constraints(rng: random.Random, case: Case) -> None:
    """Many constraints at once, on attributes of any name, of all requests or of alternatives alone."""
    drivers = sorted({one["spec"]["driver"] for one in case["slices"]}) or ["g.example.com"]
    for claim in case["claims"]:
        devices = claim["spec"]["devices"]
        names = [one["name"] for one in devices.get("requests", ())]
        names += [
            f"{one['name']}/{sub['name']}"
            for one in devices.get("requests", ())
            for sub in one.get("firstAvailable", ())
        ]
        drawn = []
        for _ in range(rng.choice((1, 1, 2, 6))):
            own = (f"{driver}/{name}" for driver in drivers for name in ("numa", "model", "ok", "ver", "slot", "gpu"))
            attribute = rng.choice([*own, ROOT, ROOT, "other.example.com/model", "numa"])
            one = {rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): attribute}
            if names and rng.random() < 0.7:
                one["requests"] = rng.sample(names, min(len(names), rng.choice((1, 1, 2, 3))))
            drawn.append(one)
        devices["constraints"] = drawn


def _configured(rng: random.Random, case: Case) -> None:
    """Parameters for all requests, for some, for alternatives that are chosen or not, and for requests that are missing."""
    for claim in case["claims"]:
        devices = claim["spec"]["devices"]
        names = ["missing", *(one["name"] for one in devices.get("requests", ()))]
        names += [
            f"{one['name']}/{sub['name']}"
            for one in devices.get("requests", ())
            for sub in one.get("firstAvailable", ())
        ]
        devices["config"] = [
            {
                **({"requests": rng.sample(names, rng.randrange(len(names) + 1))} if rng.random() < 0.8 else {}),
                "opaque": {
                    "driver": rng.choice(("g.example.com", "g")),
                    "parameters": rng.choice(({}, {"a": {"b": 1}})),
                },
            }
            for _ in range(rng.choice((1, 2, 4)))
        ]


def _admins(rng: random.Random, case: Case) -> None:
    """Requests with admin access beside those without, in one claim."""
    for request in _some(rng, _requests(case)):
        if "exactly" in request:
            request["exactly"]["adminAccess"] = True


def _same_names(rng: random.Random, case: Case) -> None:
    """Claims of one name in several namespaces."""
    for number, claim in enumerate(case["claims"]):
        claim["metadata"] = claim["metadata"] | {"name": "claim", "namespace": f"d{number}"}


# ---- who has it


def _held(rng: random.Random, case: Case) -> None:
    """Allocations with all that a status has, of shares beside whole devices, with amounts of capacities that are gone."""
    devices = _devices(case)
    for number in range(rng.choice((1, 2, 3)) if devices else 0):
        results = []
        for spec, device in rng.sample(devices, min(len(devices), rng.choice((1, 2, 4)))):
            result: Case = {
                "request": "r/s",
                "driver": spec["driver"],
                "pool": spec["pool"]["name"],
                "device": device["name"],
            }
            if device.get("allowMultipleAllocations") or rng.random() < 0.1:
                result["shareID"] = f"00000000-0000-4000-8000-{rng.randrange(10**12):012}"
                capacities = [*(device.get("capacity") or {}), "gone"]
                consumed = {name: rng.choice(("1", "0", "500m", "1Gi")) for name in capacities if rng.random() < 0.6}
                if consumed:
                    result["consumedCapacity"] = consumed
            if device.get("bindingConditions"):
                result["bindingConditions"] = device["bindingConditions"]
                result["bindingFailureConditions"] = device.get("bindingFailureConditions", [])
            if rng.random() < 0.15:
                result["adminAccess"] = rng.random() < 0.7
            if rng.random() < 0.2:
                effect = {"effect": "NoExecute", "tolerationSeconds": 60}
                result["tolerations"] = [{"key": "k", "operator": "Equal", "value": "v", **effect}]
            if rng.random() < 0.2:
                result["skipNodeOperations"] = ["*"]
            results.append(result)
            if rng.random() < 0.1:
                results.append(dict(result))
        allocation = {
            "devices": {
                "results": results,
                "config": [{"source": "FromClass", "requests": ["r/s"], "opaque": {"driver": "g", "parameters": {}}}],
            },
            "allocationTimestamp": "2026-01-01T00:00:00Z",
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
            },
        }
        reserved = [{"resource": "pods", "name": "p", "uid": "p"}] if rng.random() < 0.7 else []
        status = {"allocation": allocation, "reservedFor": reserved}
        if rng.random() < 0.3:
            status["devices"] = [{key: results[0][key] for key in ("driver", "pool", "device")}]
        metadata = {"name": f"full{number}", "namespace": "e", "uid": f"f{number}"}
        if rng.random() < 0.2:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        case["allocatedClaims"].append({"metadata": metadata, "spec": {}, "status": status})
    if rng.random() < 0.2:
        nothing = {"allocation": {"devices": {"results": []}}}
        case["allocatedClaims"].append(
            {"metadata": {"name": "none", "namespace": "e", "uid": "n"}, "spec": {}, "status": nothing}
        )


CHANGES: list[Callable[[random.Random, Case], None]] = [
    _lists,
    _qualified,
    _taints,
    _taint_rules,
    _conditions,
    _node_resources,
    _operations,
    _spelled_out,
    _selected,
    _policies,
    _counters,
    _one_pool_name,
    _large,
    _classes,
    _selectors,
    _tolerations,
    _alternatives,
    _modes,
    _derived,
    _constraints,
    _configured,
    _admins,
    _same_names,
    _held,
]
