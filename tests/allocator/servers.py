"""API servers of several Kubernetes minor versions, with feature gates on and off, and the cases for their allocators."""

import json
import random
from typing import Any

from dra import server as gates
from dra.server import CURRENT, EVERYTHING, Server, known_gates, server_of
from dra.stock.slice_reading import reading_of
from dra.validation.fields.gates import drop
from tests.allocator.case_parts import all_bodies, all_requests

Case = dict[str, Any]

# By feature of Kubernetes' own allocator: the gates that must all be on.
FEATURES = {
    "AdminAccess": (gates.ADMIN_ACCESS,),
    "CompatibilityGroups": (gates.GROUPS,),
    "ConsumableCapacity": (gates.CAPACITY,),
    "DerivedAttributes": (gates.DERIVED,),
    "DeviceBindingAndStatus": (gates.BINDING, gates.DEVICE_STATUS),
    "DeviceTaints": (gates.TAINTS,),
    "FractionalCapacityRange": (gates.FRACTIONAL,),
    "ListTypeAttributes": (gates.LISTS,),
    "OptionalNodeOperations": (gates.OPTIONAL_OPERATIONS,),
    "PartitionableDevices": (gates.COUNTERS,),
    "PrioritizedList": (gates.ALTERNATIVES,),
}
# By gate: another gate without which it has no effect.
_REQUIRED_GATE = {gates.GROUPS: gates.COUNTERS, gates.FRACTIONAL: gates.CAPACITY}


def features_of(minor: int) -> dict[str, tuple[str, ...]]:
    """Return the features that the allocator of a Kubernetes minor version has, with their gates."""
    gates_of_minor = known_gates(minor)
    features = {
        feature: required_gates for feature, required_gates in FEATURES.items() if required_gates[0] in gates_of_minor
    }
    if minor == gates.OLDEST:  # later minors merge two features
        del features["DeviceBindingAndStatus"]
        features |= {"DeviceBinding": (gates.BINDING,), "DeviceStatus": (gates.DEVICE_STATUS,)}
    return features


def server_of_case(case: Case) -> Server:
    """Return the server that a case describes, or a server with all features if the case describes none."""
    server_fields = case.get("server")
    return Server(server_fields["minor"], frozenset(server_fields["gates"])) if server_fields else EVERYTHING


def _is_copied(gate: str, minor: int) -> bool:
    """Return whether our allocator behaves like that of a minor if a gate is on. It does not for alpha gates of old minors, which changed later."""
    stage = known_gates(minor).get(gate)
    return stage is not None and (minor >= CURRENT or stage.maturity != "alpha")


def any_server(minor: int, rng: random.Random) -> Server:
    """Draw a server: with its default gates, with one or two gates changed, with most gates on, or with any gates."""
    default_server = server_of(minor)
    copied_gates = [gate for features in FEATURES.values() for gate in features if _is_copied(gate, minor)]
    kind = rng.randrange(4)
    if kind == 0:
        return default_server
    if kind == 1:
        enabled = default_server.gates ^ set(rng.sample(copied_gates, rng.choice((1, 1, 2))))
    elif kind == 2:
        enabled = default_server.gates | set(copied_gates)
        enabled -= set(rng.sample(copied_gates, rng.choice((1, 2, 3))))
    else:
        enabled = frozenset(gate for gate in copied_gates if rng.random() < 0.6)
    return Server(minor, frozenset(gate for gate in enabled if _REQUIRED_GATE.get(gate, gate) in enabled))


def asked_of(server: Server, case: Case, *, fitted: bool = False) -> Case:
    """Return a case for a server's allocator. `fitted` removes what the server's gates forbid from the case's claims and slices."""
    if fitted:
        claims = [drop("ResourceClaim", claim, server.gates)[0] for claim in case["claims"]]
        case = case | {"claims": [_without_gated_fields(claim, server) for claim in claims]}
        if not server.enabled(gates.LISTS):
            case = case | {"slices": [_without_lists(slice_) for slice_ in case["slices"]]}
    disabled_features = [
        name
        for name, required_gates in features_of(server.minor).items()
        if not all(map(server.enabled, required_gates))
    ]
    server_fields = {"minor": server.minor, "gates": sorted(server.gates)}
    question = case | {"server": server_fields, "without": disabled_features}
    if is_unordered(server):  # the server's cache lists slices by name, as our allocator does
        question["slices"] = sorted(question["slices"], key=lambda slice_: slice_["metadata"]["name"])
    # Minor 34 has no gate of its own for taint rules.
    reads_taint_rules = server.enabled(gates.TAINTS) and (server.enabled(gates.TAINT_RULES) or server.minor < 35)
    return (
        question
        if reads_taint_rules
        else {name: value for name, value in question.items() if name != "deviceTaintRules"}
    )


def _without_gated_fields(claim: Case, server: Server) -> Case:
    """Return the claim with only the first alternative of each request, and without adminAccess, if the gates of these are off."""
    claim = json.loads(json.dumps(claim))
    for request in claim["spec"].get("devices", {}).get("requests", ()):
        if request.get("firstAvailable") and not server.enabled(gates.ALTERNATIVES):
            request["exactly"] = {
                name: value for name, value in request.pop("firstAvailable")[0].items() if name != "name"
            }
        if not server.enabled(gates.ADMIN_ACCESS):
            request.get("exactly", {}).pop("adminAccess", None)
    return claim


def _without_lists(slice_: Case) -> Case:
    """Return the slice with the first value of each list instead of the list."""
    slice_ = json.loads(json.dumps(slice_))
    for device in slice_["spec"].get("devices", ()):
        for value in device.get("attributes", {}).values():
            for kind in [kind for kind in value if kind.endswith("s")]:
                if values := value.pop(kind):
                    value[kind.removesuffix("s")] = values[0]
    return slice_


# ---- known differences that our allocator does not copy


def is_unordered(server: Server) -> bool:
    """Return whether a server's allocator tries pools in random order."""
    return reading_of(server).stable or server.minor < 36


def named_difference(case: Case, our_verdict: str, their_verdict: str) -> str:
    """Return the known reason why a server's verdict and ours may differ on a case; "" if there is none."""
    server = server_of_case(case)
    json_of_case = json.dumps([case["slices"], case["claims"], case["allocatedClaims"]])
    pools = {(slice_["spec"]["driver"], slice_["spec"]["pool"]["name"]) for slice_ in case["slices"]}
    if (
        is_unordered(server)
        and len(pools) > 1
        and (our_verdict == their_verdict or "error" in (our_verdict, their_verdict))
    ):
        return "the server tries pools in random order, so which device or error comes first is chance"
    if server.minor >= 38:
        if our_verdict == their_verdict == "error" and '"All"' in json_of_case:
            return "1.38: if a pool is incomplete and a claim has a fault, ours reports the fault, the server what it reads first"
        return ""
    if not server.enabled(gates.LISTS) and _constrains_lists(case):
        return "a constraint reads a list although the gate of lists is off: only the first device passes in any order"
    if server.minor < 37:
        if "distinctAttribute" in json_of_case and any(body.get("count", 2) > 1 for body in all_bodies(case)):
            return "1.36 and older: distinctAttribute forgets all devices of a request but the last"
        if any(amount in json_of_case for amount in ('"-1"', '"1500001u"', '"10E"')):
            return "1.36 and older: an amount below zero, or one that cannot be counted, is not an error"
        if '"All"' in json_of_case and "shareID" in json_of_case:
            return "1.36 and older: a request for all devices leaves out devices with too little capacity left"
        if "shareID" in json_of_case and "consumesCounters" in json_of_case:
            return "1.36 and older: a share without amounts does not count as a share, so the next share charges counters again"
        if '"step"' in json_of_case and our_verdict == their_verdict:
            return "1.36 and older: an amount that was rounded to a step is written in binary units"
    if server.minor < 36 and any(map(_is_all_twice, all_requests(case))):
        return (
            "1.35 and older: a second alternative for all devices gets the devices that the first alternative selects"
        )
    if server.minor < 36 and "bindingConditions" in json_of_case:
        return "1.35 and older: slices with binding conditions come last in their pool"
    return ""


def _is_all_twice(request: Case) -> bool:
    """Return whether the first two alternatives of a request ask for all devices."""
    return [alternative.get("allocationMode") for alternative in request.get("firstAvailable", ())][:2] == [
        "All",
        "All",
    ]


def _constrains_lists(case: Case) -> bool:
    """Return whether a constraint reads an attribute that some device publishes as a list or without a value."""
    attributes_without_one_value = set()
    for slice_ in case["slices"]:
        for device in slice_["spec"].get("devices", ()):
            for name, value in device.get("attributes", {}).items():
                if not {"int", "bool", "string", "version"} & value.keys():
                    attributes_without_one_value |= {name, f"{slice_['spec']['driver']}/{name}"}
    constraints = [
        constraint for claim in case["claims"] for constraint in claim["spec"]["devices"].get("constraints", ())
    ]
    return any(
        attributes_without_one_value
        & set(map(str, (constraint.get("matchAttribute"), constraint.get("distinctAttribute"))))
        for constraint in constraints
    )
