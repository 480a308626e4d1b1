"""Changes to a case's slices and allocated claims: each adds fields and values that cases of other families lack (see `tests.allocator.wide`)."""

import json
import random

from tests.allocator.case_parts import ROOT, Case, all_bodies, all_devices, all_requests, draw_some


def use_list_values(rng: random.Random, case: Case) -> None:
    """Give an attribute a list of any type, an empty list, or no value."""
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
    for _, device in draw_some(rng, all_devices(case)):
        device.setdefault("attributes", {})[name] = dict(rng.choice(values[: rng.choice((7, 7, 7, 7, 9))]))


def qualify_names(rng: random.Random, case: Case) -> None:
    """Put attributes and capacities under a domain, the driver's own or another, and do the same in requests for capacity."""
    for spec, device in draw_some(rng, all_devices(case)):
        for kind in ("attributes", "capacity"):
            values = device.get(kind) or {}
            for name in list(values):
                if "/" not in name and rng.random() < 0.4:
                    domain = rng.choice((spec["driver"], spec["driver"], "other.example.com"))
                    value = values[name] if rng.random() < 0.3 else values.pop(name)
                    values[f"{domain}/{name}"] = value
    for body in draw_some(rng, all_bodies(case)):
        requested_amounts = body.get("capacity", {}).get("requests", {})
        if requested_amounts and case["slices"]:
            name = rng.choice(list(requested_amounts))
            requested_amounts[f"{rng.choice(case['slices'])['spec']['driver']}/{name}"] = requested_amounts.pop(name)


def add_taints(rng: random.Random, case: Case) -> None:
    """Give a device several taints, some of them old, some with an unknown effect."""
    for _, device in draw_some(rng, all_devices(case)):
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


def add_taint_rules(rng: random.Random, case: Case) -> None:
    """Add several taint rules, which select devices by any combination of driver, pool and device name."""
    devices = all_devices(case)
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


def add_binding_conditions(rng: random.Random, case: Case) -> None:
    """Give a device up to four binding failure conditions, and mostly binding conditions as well."""
    for _, device in draw_some(rng, all_devices(case)):
        device["bindingFailureConditions"] = ["broken", "worse", "lost", "gone"][: rng.choice((1, 2, 4))]
        device.pop("bindingConditions", None)
        if rng.random() < 0.7:
            device["bindingConditions"] = ["ready", "warm", "clean", "example.com/set"][: rng.choice((1, 2, 4))]
        device["bindsToNode"] = rng.random() < 0.5


def add_node_resources(rng: random.Random, case: Case) -> None:
    """Let a device consume resources of its node: per device, per unit of its capacity, or as overhead."""
    for _, device in draw_some(rng, all_devices(case)):
        device["nodeAllocatableResources"] = rng.choice(
            (
                {"cpu": {"mapping": {"deviceMultiplier": "2"}}},
                {"memory": {"mapping": {"deviceMultiplier": "1Gi"}, "overhead": {"perPod": "64Mi"}}},
                {"memory": {"mapping": {"capacityKey": "mem", "capacityMultiplier": "500m"}}},
                {"cpu": {"overhead": {"perPod": "100m", "perContainer": "10m"}}},
            )
        )


def skip_node_operations(rng: random.Random, case: Case) -> None:
    """Let slices skip one or both node operations, on a node with or without the feature that this needs."""
    for slice_ in draw_some(rng, case["slices"]):
        steps = ["NodePrepareResources", "NodeUnprepareResources"]
        slice_["spec"]["skipNodeOperations"] = rng.choice((["*"], steps, steps[:1], steps[1:], []))
    if rng.random() < 0.5:
        declared = rng.choice(([], ["Other"], ["DRAOptionalNodeOperations", "Other"]))
        case["node"]["status"] = {"declaredFeatures": declared}


def spell_out_defaults(rng: random.Random, case: Case) -> None:
    """Write values that are false or empty, instead of omitting the fields; sometimes name a partitionTypeAttribute."""
    for slice_ in draw_some(rng, case["slices"]):
        spec = slice_["spec"]
        for name, value in (("perDeviceNodeSelection", False), ("allNodes", False), ("nodeName", "")):
            if rng.random() < 0.4:
                spec.setdefault(name, value)
        if rng.random() < 0.2:
            spec["partitionTypeAttribute"] = f"{spec['driver']}/profile"
    for _, device in draw_some(rng, all_devices(case)):
        for name in ("bindsToNode", "allowMultipleAllocations", "allNodes"):
            if rng.random() < 0.4:
                device.setdefault(name, False)
        for name in ("consumesCounters", "taints", "bindingConditions"):
            if rng.random() < 0.1:
                device.setdefault(name, [])
    for body in draw_some(rng, [request["exactly"] for request in all_requests(case) if request.get("exactly")]):
        body.setdefault("adminAccess", False)


def select_nodes(rng: random.Random, case: Case) -> None:
    """Give slices and devices node selectors of several requirements, with every operator, on labels and fields; some are invalid."""
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
    invalid_requirements = (
        {"key": "rank", "operator": "Gt", "values": ["four"]},
        {"key": "rank", "operator": "Gt", "values": ["4", "5"]},
        {"key": "zone", "operator": "In", "values": []},
        {"key": "zone", "operator": "Exists", "values": ["a"]},
        {"key": "", "operator": "Exists"},
    )

    def draw_selector() -> Case:
        term: Case = {"matchExpressions": rng.sample(requirements, rng.choice((0, 1, 2, 3, 5)))}
        if rng.random() < 0.3:
            term["matchFields"] = rng.sample(fields, rng.choice((1, 1, 2)))
        if rng.random() < 0.06:
            term["matchExpressions"].append(rng.choice(invalid_requirements))
        if rng.random() < 0.04:
            term["matchFields"] = [{"key": "metadata.uid", "operator": "In", "values": ["n0"]}]
        return {"nodeSelectorTerms": [term] if rng.random() < 0.95 else []}

    for slice_ in draw_some(rng, case["slices"]):
        spec = slice_["spec"]
        if spec.get("perDeviceNodeSelection"):
            for device in draw_some(rng, spec.get("devices", [])):
                for name in ("nodeName", "allNodes"):
                    device.pop(name, None)
                device["nodeSelector"] = draw_selector()
        else:
            for name in ("nodeName", "allNodes"):
                spec.pop(name, None)
            spec["nodeSelector"] = draw_selector()


def change_request_policies(rng: random.Random, case: Case) -> None:
    """Give capacities request policies with unusual steps, and with defaults in another notation, out of range or too large to count.

    Let requests ask for such amounts.
    """
    pairs = [(device, name) for _, device in all_devices(case) for name in device.get("capacity") or {}]
    for device, name in draw_some(rng, pairs):
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
    for body in draw_some(rng, all_bodies(case)):
        amounts = ("1", "1000m", "1024Mi", "1Gi", "0.75", "750m", "1n", "3", "3.0", "10E", "9223372036854775807")
        names = [name for _, name in pairs] or ["mem"]
        body["capacity"] = {
            "requests": {rng.choice(names): rng.choice(amounts) for _ in range(rng.choice((0, 1, 1, 2)))}
        }


def change_counters(rng: random.Random, case: Case) -> None:
    """Let a device name a counter set twice, consume none of its counters, or name other groups.

    Distribute the counter sets of a pool over two slices.
    """
    for _, device in draw_some(rng, all_devices(case)):
        consumptions = device.get("consumesCounters") or []
        if consumptions:
            first = consumptions[0]
            kind = rng.randrange(4)
            if kind == 0:
                consumptions.append({**first, "compatibilityGroups": rng.sample("xyz", rng.randrange(3))})
            elif kind == 1:
                first["counters"] = {}
            elif kind == 2:
                first["compatibilityGroups"] = rng.choice(([], ["x"], ["x", "x"], ["y", "z"]))
    counter_slices = [slice_ for slice_ in case["slices"] if slice_["spec"].get("sharedCounters")]
    if counter_slices and rng.random() < 0.3:
        halved_slice = rng.choice(counter_slices)
        counter_sets = halved_slice["spec"]["sharedCounters"]
        spec = {**halved_slice["spec"], "sharedCounters": counter_sets[1:] or counter_sets}
        halved_slice["spec"]["sharedCounters"] = counter_sets[:1]
        case["slices"].append({"metadata": {"name": halved_slice["metadata"]["name"] + "-b"}, "spec": spec})
        pool = halved_slice["spec"]["pool"]["name"]
        for slice_ in case["slices"]:
            if slice_["spec"]["pool"]["name"] == pool and rng.random() < 0.95:
                slice_["spec"]["pool"] = slice_["spec"]["pool"] | {
                    "resourceSliceCount": slice_["spec"]["pool"]["resourceSliceCount"] + 1
                }


def use_one_pool_name(rng: random.Random, case: Case) -> None:
    """Give the pools of all drivers one name, and change slice names, so that the slices are not sorted by name."""
    for slice_ in case["slices"]:
        slice_["spec"]["pool"] = slice_["spec"]["pool"] | {"name": "p"}
        if rng.random() < 0.5:
            slice_["metadata"]["name"] = f"{rng.choice(('S', 's', 's-1', 's-10', 's-2'))}{slice_['metadata']['name']}"
    for claim in case["allocatedClaims"]:
        for result in claim["status"]["allocation"]["devices"]["results"]:
            result["pool"] = "p"


def enlarge(rng: random.Random, case: Case) -> None:
    """Add devices, counter sets, requests and claims, up to the limits of the API."""
    for slice_ in draw_some(rng, case["slices"]):
        devices = slice_["spec"].get("devices", [])
        original_devices = list(devices)
        for number in range(rng.choice((16, 64, 128)) - len(devices) if original_devices else 0):
            devices.append(
                json.loads(json.dumps(rng.choice(original_devices)))
                | {"name": f"more-{slice_['metadata']['name']}-{number}"}
            )
        counter_sets = slice_["spec"].get("sharedCounters", [])
        for number in range(8 - len(counter_sets) if counter_sets else 0):
            counter_sets.append({"name": f"more{number}", "counters": {f"c{i}": {"value": "1"} for i in range(32)}})
    claim = rng.choice(case["claims"])
    requests = claim["spec"]["devices"].get("requests", [])
    original_requests = list(requests)
    for number in range(rng.choice((0, 4, 16)) if original_requests else 0):
        requests.append(json.loads(json.dumps(rng.choice(original_requests))) | {"name": f"more{number}"})
    for number in range(rng.choice((0, 4, 16))):
        copied = json.loads(json.dumps(claim))
        case["claims"].append(copied | {"metadata": {"name": f"more{number}", "namespace": "d", "uid": f"m{number}"}})


def add_allocations(rng: random.Random, case: Case) -> None:
    """Add allocated claims with every field of a status, with shares and whole devices, and with amounts of unknown capacities."""
    devices = all_devices(case)
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
        consumers = [{"resource": "pods", "name": "p", "uid": "p"}] if rng.random() < 0.7 else []
        status = {"allocation": allocation, "reservedFor": consumers}
        if rng.random() < 0.3:
            status["devices"] = [{key: results[0][key] for key in ("driver", "pool", "device")}]
        metadata = {"name": f"full{number}", "namespace": "e", "uid": f"f{number}"}
        if rng.random() < 0.2:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        case["allocatedClaims"].append({"metadata": metadata, "spec": {}, "status": status})
    if rng.random() < 0.2:
        empty_status = {"allocation": {"devices": {"results": []}}}
        case["allocatedClaims"].append(
            {"metadata": {"name": "none", "namespace": "e", "uid": "n"}, "spec": {}, "status": empty_status}
        )
