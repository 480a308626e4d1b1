"""Random questions for the allocator: small fleets with everything the API can say, in combination.

Each family leans to one side: `general` mixes all features thinly, `tight` makes devices just enough or just too few,
`chaos` has in-use states no history produces, contradicting slices and odd numbers, `admin` shares devices with admins,
`limits` plays with the 32 devices a claim may hold, `shares` with consumable capacity, `parts` with counters and groups,
`places` with node selection. Some are built to need search: `mig` partitions GPUs, `pairs` ties GPUs to NICs, `bins` packs shares, `over` asks for more
than a claim may hold. In `clash` another node publishes in the pools of this one, or this one in those of the other. `wide` is a case of another
family with fields and values that no family draws (`tests.allocator.wide`). A case is the JSON that the oracle program reads.
"""

import copy
import json
import random
from collections import Counter

from tests.allocator.wide import widen

ROOT = "resource.kubernetes.io/pcieRoot"
DRIVERS = ("g.example.com", "n.example.com", "a.example.com")
OPERATIONS = "DRAOptionalNodeOperations"
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
    """Make one case; the same family and seed make the same case."""
    rng = random.Random(f"{family}-{seed}")
    return STRUCTURED[family](rng) if family in STRUCTURED else _Maker(family, rng).case()


# Every one of these is in some case; quotes tell a key from a part of another one.
FEATURES = (
    "firstAvailable", "'All'", "adminAccess", "matchAttribute", "distinctAttribute", "'strings'", "'ints'",
    "tolerations", "taints", "sharedCounters", "compatibilityGroups", "allowMultipleAllocations", "validValues",
    "validRange", "'step'", "'default'", "shareID", "bindingConditions", "bindsToNode", "derivedAttributes",
    "perDeviceNodeSelection", "skipNodeOperations", "'allNodes'", "nodeSelector", "config", "deviceTaintRules",
    "consumedCapacity", "matchFields", "nodeAllocatableResources", "'version'", "'bool'",
)  # fmt: skip


def features(case: dict, answer: dict) -> Counter:
    """Count what a case has in it, for coverage."""
    text = repr(case)
    found = Counter({word.strip("'"): 1 for word in FEATURES if word in text})
    found[f"verdict {answer['verdict']}"] += 1
    return found


class _Maker:
    def __init__(self, family: str, rng: random.Random) -> None:
        self.family = family
        self.rng = rng
        self.devices: list[tuple[str, str, dict]] = []
        self.slices: list[dict] = []

    def chance(self, probability: float, *families: str) -> bool:
        """Say yes that often; in other families than those named, rarely."""
        if families and self.family not in families:
            probability /= 5
        return self.rng.random() < probability

    def case(self) -> dict:
        rng = self.rng
        node = {"metadata": {"name": "n0", "labels": {"zone": "a", "rank": "5"}}}
        if rng.random() < 0.6:
            node["status"] = {"declaredFeatures": [OPERATIONS]}
        for number in range(rng.choice((1, 1, 2, 2, 3) if self.family != "limits" else (1, 2))):
            self.pool(number)
        if self.chance(0.5, "chaos"):
            rng.shuffle(self.slices)
        case = {
            "node": node,
            "slices": self.slices,
            "classes": self.classes(),
            "claims": [],
            "allocatedClaims": [],
        }
        if self.chance(0.15):
            case["deviceTaintRules"] = [self.taint_rule()]
        case["allocatedClaims"] = self.allocated()
        claims = rng.choice((1, 1, 1, 2, 2, 3))
        if self.family == "tight":
            claims = rng.choice((1, 2, 2, 3, 4))
        case["claims"] = [self.claim(number) for number in range(claims)]
        if rng.random() < 0.02:
            case["claims"] = case["claims"] * 1 if not case["claims"] else [*case["claims"], self.empty_claim()]
        return case

    # ---- what there is

    def pool(self, number: int) -> None:
        rng = self.rng
        driver = rng.choice(DRIVERS)
        name = rng.choice(("p", "q", "p-10", "p-2")) + (str(number) if rng.random() < 0.9 else "")
        generation = rng.choice((1, 1, 1, 2, 7))
        pages = rng.choice((1, 1, 1, 2, 3))
        counters = self.counter_sets() if self.chance(0.6, "parts", "tight", "admin", "chaos") else []
        total = pages + bool(counters)
        if self.chance(0.15, "chaos", "places"):
            total += rng.choice((-1, 1))
        selection = self.selection()
        for page in range(pages):
            own = selection if rng.random() < 0.85 else self.selection()
            spec = {
                "driver": driver,
                "pool": {"name": name, "generation": generation, "resourceSliceCount": max(1, total)},
                **own,
            }
            if self.chance(0.12, "chaos", "places"):
                spec["pool"]["generation"] = generation + rng.choice((-1, 1))
            if self.chance(0.1):
                spec["skipNodeOperations"] = ["*"]
            spec["devices"] = self.page_devices(driver, number, page, counters, bool(own.get("perDeviceNodeSelection")))
            for device in spec["devices"]:
                self.devices.append((driver, name, device))
            self.slices.append({"metadata": {"name": f"s{number}-{page}-{rng.randrange(100):02}"}, "spec": spec})
        if counters:
            spec = {
                "driver": driver,
                "pool": {"name": name, "generation": generation, "resourceSliceCount": max(1, total)},
                **(selection if rng.random() < 0.8 else self.selection()),
            }
            spec["sharedCounters"] = counters
            self.slices.append({"metadata": {"name": f"c{number}"}, "spec": spec})

    def selection(self) -> dict:
        rng = self.rng
        if not self.chance(0.8, "places", "chaos") and rng.random() < 0.85:
            return {"nodeName": "n0"}
        kind = rng.randrange(10)
        if kind < 2:
            return {"nodeName": rng.choice(("n0", "n0", "n1"))}
        if kind < 4:
            return {"allNodes": True}
        if kind < 7:
            return {"nodeSelector": self.node_selector()}
        if kind < 9:
            return {"perDeviceNodeSelection": True}
        return {} if rng.random() < 0.3 else {"nodeName": "n0"}

    def node_selector(self) -> dict:
        rng = self.rng
        expressions = [
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "zone", "operator": "In", "values": ["b", "a"]},
            {"key": "zone", "operator": "NotIn", "values": ["b"]},
            {"key": "none", "operator": "NotIn", "values": ["b"]},
            {"key": "zone", "operator": "Exists"},
            {"key": "none", "operator": "DoesNotExist"},
            {"key": "rank", "operator": "Gt", "values": ["4"]},
            {"key": "rank", "operator": "Lt", "values": ["4"]},
            {"key": "zone", "operator": "In", "values": ["c"]},
        ]
        term = {}
        picked = [rng.choice(expressions[:7] if rng.random() < 0.8 else expressions) for _ in range(rng.randrange(3))]
        if picked:
            term["matchExpressions"] = picked
        if rng.random() < 0.2:
            term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]
        terms = [term]
        if rng.random() < 0.05:
            terms.append({"matchExpressions": [rng.choice(expressions)]})
        if rng.random() < 0.03:
            terms = [{"matchExpressions": [{"key": "zone", "operator": "Maybe", "values": ["a"]}]}]
        return {"nodeSelectorTerms": terms}

    def counter_sets(self) -> list[dict]:
        rng = self.rng
        sets = []
        for number in range(rng.choice((1, 1, 2, 3))):
            counters = {f"s{i}": {"value": "1"} for i in range(rng.choice((0, 2, 4)))}
            counters["mem"] = {"value": rng.choice(("4", "8", "40Gi", "100m"))}
            if rng.random() < 0.3:
                counters["mp"] = {"value": "152"}
            if self.chance(0.1, "chaos"):
                counters["mem"] = {"value": rng.choice(("0", "-1", "1500m", "3"))}
            sets.append({"name": f"set{number}", "counters": counters})
        return sets

    def page_devices(self, driver: str, pool: int, page: int, counters: list, placed: bool) -> list[dict]:
        rng = self.rng
        count = rng.choice((2, 3, 4, 4, 6, 8))
        if self.family == "limits":
            count = rng.choice((8, 16, 20, 33))
        devices = [self.device(driver, counters, placed, i) for i in range(count)]
        for i, device in enumerate(devices):
            device["name"] = f"d{pool}-{page}-{i}"
            if self.chance(0.02, "chaos"):
                device["name"] = f"d{pool}-0-{i}"
        if self.chance(0.02, "chaos"):
            devices.append({"name": devices[0]["name"]})
        return devices

    def device(self, driver: str, counters: list, placed: bool, at: int) -> dict:
        rng = self.rng
        attributes = self.attributes(driver, at)
        device: dict = {"attributes": attributes}
        multi = self.chance(0.7, "shares") or (self.family in ("tight", "parts", "admin") and rng.random() < 0.2)
        if multi:
            device["allowMultipleAllocations"] = True
        if self.chance(0.9, "shares") or rng.random() < 0.3:
            device["capacity"] = self.capacity(multi)
        if counters and rng.random() < 0.85:
            device["consumesCounters"] = self.consumption(counters)
        if placed and rng.random() < 0.9:
            kind = rng.randrange(6)
            device |= (
                {"nodeName": "n0"}
                if kind < 3
                else {"nodeName": "n1"}
                if kind == 3
                else {"allNodes": True}
                if kind == 4
                else {"nodeSelector": self.node_selector()}
            )
        if self.chance(0.08):
            device["taints"] = [self.taint()]
        if self.chance(0.15):
            device["bindsToNode"] = True
        if self.chance(0.1):
            device["bindingConditions"] = ["ready"] if rng.random() < 0.8 else []
            device["bindingFailureConditions"] = ["broken"]
        if self.chance(0.1) and device.get("capacity"):
            device["nodeAllocatableResources"] = {"cpu": {"mapping": {"capacityKey": "mem", "capacityMultiplier": "1"}}}
        return device

    def attributes(self, driver: str, at: int) -> dict:
        rng = self.rng
        values = {
            "model": {"string": rng.choice(("a", "a", "b"))},
            "idx": {"int": at},
            "numa": {"int": rng.randrange(2)},
            ROOT: {"string": f"r{at // 2}" if rng.random() < 0.8 else f"r{rng.randrange(3)}"},
            "ver": {"version": rng.choice(("1.0.0", "1.0.0+x", "2.1.0"))},
            "ok": {"bool": rng.random() < 0.8},
        }
        if rng.random() < 0.3:
            values["numa"] = {"ints": rng.choice(([0], [1], [0, 1], [1, 2], [0, 0]))}
        if rng.random() < 0.2:
            values[ROOT] = {"strings": rng.sample(("r0", "r1", "r2"), rng.randrange(1, 3))}
        if rng.random() < 0.1:
            values["numa"] = {"string": "0"}
        if rng.random() < 0.3:
            values["slot"] = {"int": rng.randrange(3)}
        if rng.random() < 0.1:  # never read by an expression: CEL then sees either of the two
            values[f"{driver}/slot"] = {"int": rng.randrange(2)}
        for name in list(values):
            if rng.random() < (0.12 if name not in ("model", "idx") else 0.03):
                del values[name]
        return values

    def capacity(self, multi: bool) -> dict:
        rng = self.rng
        out = {}
        names = ["mem"] if rng.random() < 0.7 else ["mem", "bw"]
        for name in names:
            value = rng.choice(("8", "12", "10Gi", "100m", "1500m", "8Gi"))
            entry: dict = {"value": value}
            if multi and rng.random() < 0.5:
                entry["requestPolicy"] = self.policy()
            if self.chance(0.03, "chaos"):
                entry["value"] = rng.choice(("-1", "0"))
            out[name] = entry
        return out

    def policy(self) -> dict:
        rng = self.rng
        kind = rng.randrange(5)
        if kind == 0:
            return {"default": rng.choice(("1", "2", "0", "20"))}
        if kind == 1:
            return {"default": "2", "validValues": rng.choice((["1", "2", "4"], ["2", "8"], ["1Gi", "2Gi", "8Gi"]))}
        low, step, high = rng.choice(
            (
                ("4", "3", "12"),
                ("1", "1", "8"),
                ("100m", "100m", "2"),
                ("1", None, "6"),
                ("1Gi", "1Gi", "8Gi"),
                ("0", "2", None),
            )
        )
        out: dict = {"min": low}
        if step:
            out["step"] = step
        if high and rng.random() < 0.8:
            out["max"] = high
        return {"default": rng.choice((low, low, "1")), "validRange": out}

    def consumption(self, counters: list) -> list[dict]:
        rng = self.rng
        out = []
        for counter_set in rng.sample(counters, 1 if len(counters) == 1 or rng.random() < 0.8 else 2):
            names = list(counter_set["counters"])
            picked = rng.sample(names, rng.randrange(1, min(3, len(names)) + 1))
            consumed = {}
            for name in picked:
                amounts = ("0", "1", "1") if name.startswith("s") else ("1", "2", "4", "10Gi", "50m", "76", "38")
                consumed[name] = {"value": rng.choice(amounts)}
                if self.chance(0.02, "chaos"):
                    consumed[name] = {"value": "-1"}
            entry: dict = {"counterSet": counter_set["name"], "counters": consumed}
            if self.chance(0.5, "parts", "chaos"):
                entry["compatibilityGroups"] = rng.sample(("x", "y", "z"), rng.randrange(1, 3))
            if self.chance(0.02, "chaos"):
                entry["counterSet"] = "nowhere"
            out.append(entry)
        return out

    def taint(self) -> dict:
        rng = self.rng
        taint = {"key": rng.choice(("k", "l")), "effect": rng.choice(("NoSchedule", "NoExecute", "None"))}
        if rng.random() < 0.5:
            taint["value"] = "v"
        return taint

    def taint_rule(self) -> dict:
        rng = self.rng
        selector: dict | None = {}
        if rng.random() < 0.5:
            selector["driver"] = rng.choice(DRIVERS)
        if self.devices and rng.random() < 0.7:
            driver, pool, device = rng.choice(self.devices)
            selector = rng.choice(
                (
                    {"device": device["name"]},
                    {"driver": driver, "pool": pool},
                    {"driver": driver, "device": device["name"]},
                )
            )
        if rng.random() < 0.1:
            selector = None
        spec: dict = {"taint": self.taint()}
        if selector is not None:
            spec["deviceSelector"] = selector
        return {"metadata": {"name": "rule"}, "spec": spec}

    # ---- who has it

    def allocated(self) -> list[dict]:
        rng = self.rng
        claims = []
        heavy = self.family in ("chaos", "admin", "parts", "shares", "tight")
        for number in range(rng.choice((0, 1, 2, 3) if heavy else (0, 0, 0, 1, 2))):
            results = [self.result() for _ in range(rng.choice((1, 1, 2, 3)))] if self.devices else []
            claim = {
                "metadata": {"name": f"held{number}", "namespace": "d", "uid": f"h{number}"},
                "spec": {},
                "status": {"allocation": {"devices": {"results": results}}},
            }
            claims.append(claim)
        return claims

    def result(self) -> dict:
        rng = self.rng
        driver, pool, device = rng.choice(self.devices)
        result = {"request": "r", "driver": driver, "pool": pool, "device": device["name"]}
        odd = self.chance(0.1, "chaos")
        if bool(device.get("allowMultipleAllocations")) != odd:
            result["shareID"] = f"00000000-0000-4000-8000-{rng.randrange(10**12):012}"
            capacity = device.get("capacity") or {}
            consumed = {name: rng.choice(("1", "2", "4", "1Gi", "100m", "0", "8")) for name in capacity}
            if consumed:
                result["consumedCapacity"] = consumed
        if rng.random() < 0.1:
            result["adminAccess"] = True
        if odd and rng.random() < 0.3:
            result["device"] = "gone"
        return result

    # ---- what is asked for

    def classes(self) -> list[dict]:
        rng = self.rng
        classes: list[dict] = [{"metadata": {"name": "any"}, "spec": {}}]
        for number, driver in enumerate(DRIVERS):
            selectors = [f'device.driver == "{driver}"']
            if rng.random() < 0.2:
                selectors.append(self.expression(driver))
            spec: dict = {"selectors": [{"cel": {"expression": text}} for text in selectors]}
            if rng.random() < 0.3:
                spec["config"] = [
                    {"opaque": {"driver": driver, "parameters": {"n": n}}} for n in range(rng.randrange(1, 3))
                ]
            classes.append({"metadata": {"name": f"c{number}"}, "spec": spec})
        return classes

    def expression(self, driver: str) -> str:
        rng = self.rng
        attributes = f'device.attributes["{driver}"]'
        safe = [
            f'{attributes}.model == "a"',
            f'{attributes}.model == "b"',
            f"{attributes}.idx < 2",
            f"{attributes}.idx >= 1",
            "true",
            "!device.allowMultipleAllocations" if rng.random() < 0.2 else "true",
            f"has({attributes}.ok) && {attributes}.ok",
            f'has({attributes}.ver) && {attributes}.ver.isLessThan(semver("2.0.0"))',
            f'device.driver == "{driver}" && has(device.capacity["{driver}"].mem)',
        ]
        unsafe = [
            f"{attributes}.ok",
            f'{attributes}.ver == semver("1.0.0")',
            f'device.capacity["{driver}"].mem.compareTo(quantity("8")) >= 0',
            f"{attributes}.numa == 0",
            "device.nothing",
            "1",
        ]
        if rng.random() < 0.01:
            return rng.choice(unsafe[-2:])
        return rng.choice(unsafe[:-2]) if rng.random() < 0.05 else rng.choice(safe)

    def empty_claim(self) -> dict:
        return {"metadata": {"name": "empty", "namespace": "d", "uid": "e"}, "spec": {"devices": {}}}

    def claim(self, number: int) -> dict:
        rng = self.rng
        requests = rng.choice((1, 1, 2, 2, 3))
        if self.family == "tight":
            requests = rng.choice((1, 2, 3, 4))
        devices: dict = {"requests": [self.request(n) for n in range(requests)]}
        names = []
        for request in devices["requests"]:
            names.append(request["name"])
            names += [f"{request['name']}/{sub['name']}" for sub in request.get("firstAvailable", ())]
        constraints = [self.constraint(names) for _ in range(rng.choice((0, 0, 0, 1, 1, 2)))]
        if constraints:
            devices["constraints"] = constraints
        if rng.random() < 0.25:
            devices["config"] = [
                {
                    "requests": rng.sample(names, min(len(names), rng.randrange(3))),
                    "opaque": {"driver": rng.choice(DRIVERS), "parameters": {"x": n}},
                }
                for n in range(rng.randrange(1, 3))
            ]
        self.derive(devices)
        return {
            "metadata": {"name": f"claim{number}", "namespace": "d", "uid": f"u{number}"},
            "spec": {"devices": devices},
        }

    def derive(self, devices: dict) -> None:
        """Give some request a derived attribute that a constraint uses."""
        rng = self.rng
        if not devices.get("constraints") or not self.chance(0.6, "general", "admin"):
            return
        constraint = rng.choice(devices["constraints"])
        name = constraint.get("matchAttribute") or constraint.get("distinctAttribute")
        body = rng.choice(devices["requests"])
        inner = body.get("exactly") or rng.choice(body["firstAvailable"])
        driver = rng.choice(DRIVERS[:2])
        attributes = f'device.attributes["{driver}"]'
        inner["derivedAttributes"] = [
            {
                "name": name,
                "expression": rng.choice(
                    (
                        f"{attributes}.idx",
                        f"{attributes}.idx / 2",
                        f"[{attributes}.idx, 7]",
                        f"{attributes}.model",
                        '"same"',
                        "true",
                        "device.driver",
                    )
                ),
            }
        ]

    def constraint(self, names: list[str]) -> dict:
        rng = self.rng
        attribute = rng.choice(
            (
                ROOT,
                f"{DRIVERS[0]}/numa",
                f"{DRIVERS[0]}/model",
                f"{DRIVERS[1]}/idx",
                f"{DRIVERS[0]}/ver",
                f"{DRIVERS[0]}/slot",
                ROOT,
            )
        )
        out: dict = {rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): attribute}
        if rng.random() < 0.5:
            out["requests"] = rng.sample(names, rng.randrange(1, len(names) + 1))
        if rng.random() < 0.01:
            return {}
        return out

    def request(self, number: int) -> dict:
        rng = self.rng
        name = f"r{number}"
        if self.chance(0.4, "limits", "tight", "general"):
            subs = [{"name": f"s{i}", **self.body(sub=True)} for i in range(rng.choice((1, 2, 2, 3)))]
            return {"name": name, "firstAvailable": subs}
        return {"name": name, "exactly": self.body(sub=False)}

    def body(self, *, sub: bool) -> dict:
        rng = self.rng
        present = [driver for driver, _, _ in self.devices] or list(DRIVERS)
        driver = rng.choice(present)
        body: dict = {"deviceClassName": rng.choice(("any", f"c{DRIVERS.index(driver)}", f"c{DRIVERS.index(driver)}"))}
        if rng.random() < 0.01:
            body["deviceClassName"] = rng.choice(("missing", ""))
        if rng.random() < 0.3:
            guard = f'device.driver == "{driver}" && ' if rng.random() < 0.85 else ""
            body["selectors"] = [{"cel": {"expression": guard + self.expression(driver)}}]
        if self.chance(0.15) or (self.family == "admin" and rng.random() < 0.2):
            body["allocationMode"] = "All"
        else:
            body["allocationMode"] = "ExactCount"
            body["count"] = rng.choice((1, 1, 1, 1, 2, 3))
            if self.family == "tight":
                body["count"] = rng.choice((1, 2, 3, 4))
            if self.family == "limits":
                body["count"] = rng.choice((1, 1, 2, 5, 8, 10, 16, 20) if rng.random() < 0.9 else (31, 32, 33, 40))
            if rng.random() < 0.01:
                body["count"] = 0
        if not sub and self.chance(0.5, "admin"):
            body["adminAccess"] = rng.random() < 0.9
        if rng.random() < 0.3:
            body["tolerations"] = [self.toleration() for _ in range(rng.choice((1, 1, 2)))]
        if self.chance(0.7, "shares") or rng.random() < 0.1:
            wanted = {}
            for capacity in ("mem",) if rng.random() < 0.8 else ("mem", "bw"):
                wanted[capacity] = rng.choice(("1", "2", "3", "5", "0", "2Gi", "1Gi", "250m", "1500m", "13", "100m"))
            if self.chance(0.03, "chaos", "shares"):
                wanted["mem"] = rng.choice(("1500001u", "10E", "-1"))
            body["capacity"] = {"requests": wanted}
        return body

    def toleration(self) -> dict:
        rng = self.rng
        out = {"key": rng.choice(("k", "l", "")), "operator": rng.choice(("Equal", "Exists"))}
        if out["operator"] == "Equal" and rng.random() < 0.6:
            out["value"] = "v"
        if rng.random() < 0.4:
            out["effect"] = rng.choice(("NoSchedule", "NoExecute"))
        return out


# ---- families that need search


def _node() -> dict:
    return {"metadata": {"name": "n0", "labels": {}}}


def _slice(driver: str, pool: str, name: str, total: int = 1, **spec) -> dict:
    pool_ = {"name": pool, "generation": 1, "resourceSliceCount": total}
    return {"metadata": {"name": name}, "spec": {"driver": driver, "pool": pool_, "nodeName": "n0", **spec}}


def _class(name: str, driver: str) -> dict:
    return {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
    }


def _exactly(class_: str, count: int = 1, select: str = "", **more) -> dict:
    body = {"deviceClassName": class_, "allocationMode": "ExactCount", "count": count, **more}
    if select:
        body["selectors"] = [{"cel": {"expression": select}}]
    return body


def _claim(name: str, requests: list, constraints: list = ()) -> dict:
    devices = {"requests": requests, **({"constraints": constraints} if constraints else {})}
    return {"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": {"devices": devices}}


def _holding(name: str, results: list) -> dict:
    return {
        "metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def _mig(rng: random.Random) -> dict:
    """GPUs cut into overlapping partitions, partly in use, and claims for a mix of profiles."""
    gpus = rng.choice((1, 2, 2, 3))
    profiles = {"1g": (1, range(4)), "2g": (2, (0, 2)), "4g": (4, (0,)), "3g": (3, (0, 1))}
    shown = rng.sample(sorted(profiles), rng.choice((2, 3, 4)))
    grouped = rng.random() < 0.3
    sets, devices = [], []
    for gpu in range(gpus):
        sets.append(
            {"name": f"g{gpu}", "counters": {**{f"s{i}": {"value": "1"} for i in range(4)}, "m": {"value": "4"}}}
        )
        for profile in shown:
            size, starts = profiles[profile]
            for start in starts:
                counters = {f"s{i}": {"value": "1"} for i in range(start, start + size)}
                if rng.random() < 0.9:
                    counters["m"] = {"value": str(size)}
                consumption = {"counterSet": f"g{gpu}", "counters": counters}
                if grouped:
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
    held = []
    for number in range(rng.choice((0, 0, 1, 2))):
        device = rng.choice(devices)
        if not device.get("allowMultipleAllocations"):
            held.append(
                _holding(f"h{number}", [{"request": "r", "driver": "g", "pool": "p", "device": device["name"]}])
            )
    claims = []
    for number in range(rng.choice((1, 1, 2, 3))):
        requests = []
        for n in range(rng.choice((1, 2, 3))):
            picked = rng.sample(shown, rng.choice((1, 1, 2)))
            bodies = [
                _exactly("gpu", rng.choice((1, 1, 2, 3, 4)), f'device.attributes["g"].profile == "{profile}"')
                for profile in picked
            ]
            if len(bodies) > 1:
                subs = [{"name": f"s{i}", **body} for i, body in enumerate(bodies)]
                requests.append({"name": f"r{n}", "firstAvailable": subs})
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
        "slices": [_slice("g", "p", "a", 2, sharedCounters=sets), _slice("g", "p", "b", 2, devices=devices)],
        "classes": [_class("gpu", "g")],
        "claims": claims,
        "allocatedClaims": held,
    }


def _pairs(rng: random.Random) -> dict:
    """GPUs and NICs under PCIe roots, asked for together."""
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
    apart = rng.random() < 0.4
    pairs = rng.randrange(1, roots + 2)
    requests, constraints = [], []
    for n in range(pairs):
        two = [{"name": f"g{n}", "exactly": _exactly("gpu")}, {"name": f"n{n}", "exactly": _exactly("nic")}]
        if rng.random() < 0.2:
            select = f'device.attributes["g"].i >= {rng.randrange(3)}'
            two[0]["exactly"] = _exactly("gpu", rng.choice((1, 2)), select)
        tie = {"requests": [f"g{n}", f"n{n}"], "matchAttribute": rng.choice((ROOT, ROOT, "g/numa"))}
        if apart:
            claims.append(_claim(f"c{n}", two, [tie]))
        else:
            requests += two
            constraints.append(tie)
    if not apart:
        if rng.random() < 0.3:
            rng.shuffle(requests)
        if rng.random() < 0.3:
            constraints.append({"requests": [f"g{n}" for n in range(pairs)], "distinctAttribute": ROOT})
        claims = [_claim("c", requests, constraints)]
    held = [
        _holding(f"h{n}", [{"request": "r", "driver": "g", "pool": "p", "device": rng.choice(gpus)["name"]}])
        for n in range(rng.choice((0, 0, 0, 1, 2)))
    ]
    return {
        "node": _node(),
        "slices": [_slice("g", "p", "a", devices=gpus), _slice("n", "p", "b", devices=nics)],
        "classes": [_class("gpu", "g"), _class("nic", "n")],
        "claims": claims,
        "allocatedClaims": held,
    }


def _bins(rng: random.Random) -> dict:
    """Shares of a few devices that are just large enough, or just too small."""
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
            select = 'device.attributes["g"].m == "a"' if rng.random() < 0.2 else ""
            body = _exactly(
                "gpu", rng.choice((1, 1, 1, 2)), select, **({"capacity": capacity} if rng.random() < 0.9 else {})
            )
            if rng.random() < 0.08:
                body["adminAccess"] = True
            requests.append({"name": f"r{n}", "exactly": body})
        tie = [{rng.choice(("matchAttribute", "distinctAttribute")): "g/numa"}] if rng.random() < 0.15 else []
        claims.append(_claim(f"c{number}", requests, tie))
    held = []
    for number in range(rng.choice((0, 0, 1, 2))):
        device = rng.choice(devices)
        result = {"request": "r", "driver": "g", "pool": "p", "device": device["name"]}
        if device["allowMultipleAllocations"]:
            result["shareID"] = f"00000000-0000-4000-8000-00000000000{number}"
            result["consumedCapacity"] = {"mem": str(rng.choice((1, 3, 5)))}
        held.append(_holding(f"h{number}", [result]))
    return {
        "node": _node(),
        "slices": [_slice("g", "p", "a", devices=devices)],
        "classes": [_class("gpu", "g")],
        "claims": claims,
        "allocatedClaims": held,
    }


def _over(rng: random.Random) -> dict:
    """Alternatives that together ask for more than a claim may hold, and devices that selectors trip over."""
    devices = [
        {"name": f"d{i:02}", "attributes": {"m": {"string": "ab"[i % 2]}, "i": {"int": i}, "n": {"int": i % 3}}}
        for i in range(rng.choice((33, 36, 40, 48)))
    ]
    for device in rng.sample(devices, rng.choice((0, 0, 1, 2))):
        del device["attributes"]["m"]
    for device in rng.sample(devices, rng.choice((0, 0, 1))):
        device["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    selects = (
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
            many = rng.choice((2, 2, 3)) if rng.random() < 0.8 else 1
            bodies = [
                _exactly(
                    rng.choice(("gpu",) * 7 + ("nobody",)), rng.choice((1, 2, 8, 16, 20, 24, 30)), rng.choice(selects)
                )
                for _ in range(many)
            ]
            if rng.random() < 0.1:
                bodies[0] = {
                    "deviceClassName": "gpu",
                    "allocationMode": "All",
                    "selectors": [{"cel": {"expression": selects[3]}}],
                }
            if rng.random() < 0.5:
                bodies[-1]["count"] = 1
                bodies[-1]["allocationMode"] = "ExactCount"
            if many > 1:
                requests.append(
                    {"name": f"r{n}", "firstAvailable": [{"name": f"s{i}", **one} for i, one in enumerate(bodies)]}
                )
            else:
                requests.append({"name": f"r{n}", "exactly": bodies[0]})
        constraints = [{"matchAttribute": "g/n"}] if rng.random() < 0.1 else []
        claims.append(_claim(f"c{number}", requests, constraints))
    return {
        "node": _node(),
        "slices": [_slice("g", "p", "a", devices=devices)],
        "classes": [_class("gpu", "g"), _class("nobody", "nobody")],
        "claims": claims,
        "allocatedClaims": [],
        "deadlineMs": 150,  # what the in-tree search has not found by then, it will not find in time
    }


def _clash(rng: random.Random) -> dict:
    """Slices of one node in pools of the names of another's, and with its device names: a stolen node writes what it likes."""
    case = _Maker(rng.choice(("general", "parts", "places", "tight", "chaos")), rng).case()
    lies = []
    for number, one in enumerate(case["slices"]):
        if rng.random() < 0.7:
            lie = copy.deepcopy(one)
            lie["metadata"]["name"] = f"{rng.choice('az')}-lie-{number}"
            spec = lie["spec"]
            for where in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"):
                spec.pop(where, None)
            spec["nodeName"] = rng.choice(("n1", "n1", "n1", "n0"))
            pool = spec["pool"]
            pool["generation"] = rng.choice(
                (pool["generation"], 2**62, pool["generation"] + 1, max(0, pool["generation"] - 1))
            )
            pool["resourceSliceCount"] = rng.choice((pool["resourceSliceCount"], 1, 2, 2**40))
            devices = spec.get("devices", [])
            for device in devices:
                for what in ("nodeName", "nodeSelector", "allNodes"):
                    device.pop(what, None)
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
            lies.append(lie)
    if rng.random() < 0.5:
        case["slices"] = [*lies, *case["slices"]]
    else:
        case["slices"] = [*case["slices"], *lies]
    return case


def _wide(rng: random.Random) -> dict:
    """A case of another family, with fields and values that no family draws."""
    case = case_of(rng.choice(FAMILIES[: FAMILIES.index("wide")]), rng.randrange(10**9))
    case["deadlineMs"] = 300
    return widen(rng, json.loads(json.dumps(case)))  # what a family put in two places becomes two things


STRUCTURED = {"mig": _mig, "pairs": _pairs, "bins": _bins, "over": _over, "clash": _clash, "wide": _wide}
