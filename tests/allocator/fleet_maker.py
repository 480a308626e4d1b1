"""Random ResourceSlices, whose devices one node or several nodes can use, and random claims that hold some of these devices."""

import random

ROOT = "resource.kubernetes.io/pcieRoot"
DRIVERS = ("g.example.com", "n.example.com", "a.example.com")


class FleetMaker:
    """Draws slices, taint rules and allocated claims of a family, which is a kind of case (`tests.allocator.generate` lists the families)."""

    def __init__(self, family: str, rng: random.Random) -> None:
        self.family = family
        self.rng = rng
        self.devices: list[tuple[str, str, dict]] = []  # (driver, pool, device)
        self.slices: list[dict] = []

    def chance(self, probability: float, *families: str) -> bool:
        """Return True with a probability. If families are given and this family is not one of them, divide the probability by five."""
        if families and self.family not in families:
            probability /= 5
        return self.rng.random() < probability

    def pool(self, number: int) -> None:
        rng = self.rng
        driver = rng.choice(DRIVERS)
        name = rng.choice(("p", "q", "p-10", "p-2")) + (str(number) if rng.random() < 0.9 else "")
        generation = rng.choice((1, 1, 1, 2, 7))
        device_slices = rng.choice((1, 1, 1, 2, 3))
        counter_sets = self.counter_sets() if self.chance(0.6, "parts", "tight", "admin", "chaos") else []
        slice_count = device_slices + bool(counter_sets)
        if self.chance(0.15, "chaos", "places"):
            slice_count += rng.choice((-1, 1))
        usual_selection = self.node_selection()
        for index in range(device_slices):
            own_selection = usual_selection if rng.random() < 0.85 else self.node_selection()
            spec = {
                "driver": driver,
                "pool": {"name": name, "generation": generation, "resourceSliceCount": max(1, slice_count)},
                **own_selection,
            }
            if self.chance(0.12, "chaos", "places"):
                spec["pool"]["generation"] = generation + rng.choice((-1, 1))
            if self.chance(0.1):
                spec["skipNodeOperations"] = ["*"]
            spec["devices"] = self.slice_devices(
                driver, number, index, counter_sets, bool(own_selection.get("perDeviceNodeSelection"))
            )
            for device in spec["devices"]:
                self.devices.append((driver, name, device))
            self.slices.append({"metadata": {"name": f"s{number}-{index}-{rng.randrange(100):02}"}, "spec": spec})
        if counter_sets:
            spec = {
                "driver": driver,
                "pool": {"name": name, "generation": generation, "resourceSliceCount": max(1, slice_count)},
                **(usual_selection if rng.random() < 0.8 else self.node_selection()),
            }
            spec["sharedCounters"] = counter_sets
            self.slices.append({"metadata": {"name": f"c{number}"}, "spec": spec})

    def node_selection(self) -> dict:
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
        candidates = [
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
        requirements = [
            rng.choice(candidates[:7] if rng.random() < 0.8 else candidates) for _ in range(rng.randrange(3))
        ]
        if requirements:
            term["matchExpressions"] = requirements
        if rng.random() < 0.2:
            term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]
        terms = [term]
        if rng.random() < 0.05:
            terms.append({"matchExpressions": [rng.choice(candidates)]})
        if rng.random() < 0.03:
            terms = [{"matchExpressions": [{"key": "zone", "operator": "Maybe", "values": ["a"]}]}]
        return {"nodeSelectorTerms": terms}

    def counter_sets(self) -> list[dict]:
        rng = self.rng
        counter_sets = []
        for number in range(rng.choice((1, 1, 2, 3))):
            counters = {f"s{i}": {"value": "1"} for i in range(rng.choice((0, 2, 4)))}
            counters["mem"] = {"value": rng.choice(("4", "8", "40Gi", "100m"))}
            if rng.random() < 0.3:
                counters["mp"] = {"value": "152"}
            if self.chance(0.1, "chaos"):
                counters["mem"] = {"value": rng.choice(("0", "-1", "1500m", "3"))}
            counter_sets.append({"name": f"set{number}", "counters": counters})
        return counter_sets

    def slice_devices(
        self, driver: str, pool: int, slice_index: int, counter_sets: list, selects_nodes: bool
    ) -> list[dict]:
        rng = self.rng
        count = rng.choice((2, 3, 4, 4, 6, 8))
        if self.family == "limits":
            count = rng.choice((8, 16, 20, 33))
        devices = [self.device(driver, counter_sets, selects_nodes, i) for i in range(count)]
        for i, device in enumerate(devices):
            device["name"] = f"d{pool}-{slice_index}-{i}"
            if self.chance(0.02, "chaos"):
                device["name"] = f"d{pool}-0-{i}"
        if self.chance(0.02, "chaos"):
            devices.append({"name": devices[0]["name"]})
        return devices

    def device(self, driver: str, counter_sets: list, selects_nodes: bool, index: int) -> dict:
        rng = self.rng
        attributes = self.attributes(driver, index)
        device: dict = {"attributes": attributes}
        is_shared = self.chance(0.7, "shares") or (self.family in ("tight", "parts", "admin") and rng.random() < 0.2)
        if is_shared:
            device["allowMultipleAllocations"] = True
        if self.chance(0.9, "shares") or rng.random() < 0.3:
            device["capacity"] = self.capacity(is_shared)
        if counter_sets and rng.random() < 0.85:
            device["consumesCounters"] = self.consumption(counter_sets)
        if selects_nodes and rng.random() < 0.9:
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

    def attributes(self, driver: str, index: int) -> dict:
        rng = self.rng
        values = {
            "model": {"string": rng.choice(("a", "a", "b"))},
            "idx": {"int": index},
            "numa": {"int": rng.randrange(2)},
            ROOT: {"string": f"r{index // 2}" if rng.random() < 0.8 else f"r{rng.randrange(3)}"},
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
        # A second name of `slot`. No expression reads `slot`, because CEL may return either value.
        if rng.random() < 0.1:
            values[f"{driver}/slot"] = {"int": rng.randrange(2)}
        for name in list(values):
            if rng.random() < (0.12 if name not in ("model", "idx") else 0.03):
                del values[name]
        return values

    def capacity(self, is_shared: bool) -> dict:
        rng = self.rng
        capacities = {}
        names = ["mem"] if rng.random() < 0.7 else ["mem", "bw"]
        for name in names:
            value = rng.choice(("8", "12", "10Gi", "100m", "1500m", "8Gi"))
            entry: dict = {"value": value}
            if is_shared and rng.random() < 0.5:
                entry["requestPolicy"] = self.policy()
            if self.chance(0.03, "chaos"):
                entry["value"] = rng.choice(("-1", "0"))
            capacities[name] = entry
        return capacities

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
        valid_range: dict = {"min": low}
        if step:
            valid_range["step"] = step
        if high and rng.random() < 0.8:
            valid_range["max"] = high
        return {"default": rng.choice((low, low, "1")), "validRange": valid_range}

    def consumption(self, counter_sets: list) -> list[dict]:
        rng = self.rng
        consumptions = []
        for counter_set in rng.sample(counter_sets, 1 if len(counter_sets) == 1 or rng.random() < 0.8 else 2):
            names = list(counter_set["counters"])
            consumed_names = rng.sample(names, rng.randrange(1, min(3, len(names)) + 1))
            consumed = {}
            for name in consumed_names:
                amounts = ("0", "1", "1") if name.startswith("s") else ("1", "2", "4", "10Gi", "50m", "76", "38")
                consumed[name] = {"value": rng.choice(amounts)}
                if self.chance(0.02, "chaos"):
                    consumed[name] = {"value": "-1"}
            consumption: dict = {"counterSet": counter_set["name"], "counters": consumed}
            if self.chance(0.5, "parts", "chaos"):
                consumption["compatibilityGroups"] = rng.sample(("x", "y", "z"), rng.randrange(1, 3))
            if self.chance(0.02, "chaos"):
                consumption["counterSet"] = "nowhere"
            consumptions.append(consumption)
        return consumptions

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

    def allocated_claims(self) -> list[dict]:
        rng = self.rng
        claims = []
        has_many_holders = self.family in ("chaos", "admin", "parts", "shares", "tight")
        for number in range(rng.choice((0, 1, 2, 3) if has_many_holders else (0, 0, 0, 1, 2))):
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
        is_contradictory = self.chance(0.1, "chaos")
        if bool(device.get("allowMultipleAllocations")) != is_contradictory:
            result["shareID"] = f"00000000-0000-4000-8000-{rng.randrange(10**12):012}"
            capacity = device.get("capacity") or {}
            consumed = {name: rng.choice(("1", "2", "4", "1Gi", "100m", "0", "8")) for name in capacity}
            if consumed:
                result["consumedCapacity"] = consumed
        if rng.random() < 0.1:
            result["adminAccess"] = True
        if is_contradictory and rng.random() < 0.3:
            result["device"] = "gone"
        return result
