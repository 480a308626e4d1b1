"""Random cases. A case has a node, slices with devices, classes, allocated claims, and claims that need an allocation."""

from tests.allocator.fleet_maker import DRIVERS, ROOT, FleetMaker

FEATURE_TO_SKIP_NODE_OPERATIONS = "DRAOptionalNodeOperations"


class CaseMaker(FleetMaker):
    """Draws whole cases of a family (`tests.allocator.generate` lists the families)."""

    def case(self) -> dict:
        rng = self.rng
        node = {"metadata": {"name": "n0", "labels": {"zone": "a", "rank": "5"}}}
        if rng.random() < 0.6:
            node["status"] = {"declaredFeatures": [FEATURE_TO_SKIP_NODE_OPERATIONS]}
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
        case["allocatedClaims"] = self.allocated_claims()
        claim_count = rng.choice((1, 1, 1, 2, 2, 3))
        if self.family == "tight":
            claim_count = rng.choice((1, 2, 2, 3, 4))
        case["claims"] = [self.claim(number) for number in range(claim_count)]
        if rng.random() < 0.02:
            case["claims"].append(self.empty_claim())
        return case

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
        valid_expressions = [
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
        failing_expressions = [  # the last two fail on every device
            f"{attributes}.ok",
            f'{attributes}.ver == semver("1.0.0")',
            f'device.capacity["{driver}"].mem.compareTo(quantity("8")) >= 0',
            f"{attributes}.numa == 0",
            "device.nothing",
            "1",
        ]
        if rng.random() < 0.01:
            return rng.choice(failing_expressions[-2:])
        return rng.choice(failing_expressions[:-2]) if rng.random() < 0.05 else rng.choice(valid_expressions)

    def empty_claim(self) -> dict:
        return {"metadata": {"name": "empty", "namespace": "d", "uid": "e"}, "spec": {"devices": {}}}

    def claim(self, number: int) -> dict:
        rng = self.rng
        request_count = rng.choice((1, 1, 2, 2, 3))
        if self.family == "tight":
            request_count = rng.choice((1, 2, 3, 4))
        devices: dict = {"requests": [self.request(n) for n in range(request_count)]}
        names = []
        for request in devices["requests"]:
            names.append(request["name"])
            names += [f"{request['name']}/{alternative['name']}" for alternative in request.get("firstAvailable", ())]
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
        self.add_derived_attribute(devices)
        return {
            "metadata": {"name": f"claim{number}", "namespace": "d", "uid": f"u{number}"},
            "spec": {"devices": devices},
        }

    def add_derived_attribute(self, devices: dict) -> None:
        """Add a derived attribute that a constraint reads to one of the requests."""
        rng = self.rng
        if not devices.get("constraints") or not self.chance(0.6, "general", "admin"):
            return
        constraint = rng.choice(devices["constraints"])
        name = constraint.get("matchAttribute") or constraint.get("distinctAttribute")
        request = rng.choice(devices["requests"])
        body = request.get("exactly") or rng.choice(request["firstAvailable"])
        driver = rng.choice(DRIVERS[:2])
        attributes = f'device.attributes["{driver}"]'
        body["derivedAttributes"] = [
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
        constraint: dict = {rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): attribute}
        if rng.random() < 0.5:
            constraint["requests"] = rng.sample(names, rng.randrange(1, len(names) + 1))
        if rng.random() < 0.01:
            return {}
        return constraint

    def request(self, number: int) -> dict:
        rng = self.rng
        name = f"r{number}"
        if self.chance(0.4, "limits", "tight", "general"):
            alternatives = [
                {"name": f"s{i}", **self.body(is_alternative=True)} for i in range(rng.choice((1, 2, 2, 3)))
            ]
            return {"name": name, "firstAvailable": alternatives}
        return {"name": name, "exactly": self.body(is_alternative=False)}

    def body(self, *, is_alternative: bool) -> dict:
        rng = self.rng
        published_drivers = [driver for driver, _, _ in self.devices] or list(DRIVERS)
        driver = rng.choice(published_drivers)
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
        if not is_alternative and self.chance(0.5, "admin"):
            body["adminAccess"] = rng.random() < 0.9
        if rng.random() < 0.3:
            body["tolerations"] = [self.toleration() for _ in range(rng.choice((1, 1, 2)))]
        if self.chance(0.7, "shares") or rng.random() < 0.1:
            amounts = {}
            for capacity in ("mem",) if rng.random() < 0.8 else ("mem", "bw"):
                amounts[capacity] = rng.choice(("1", "2", "3", "5", "0", "2Gi", "1Gi", "250m", "1500m", "13", "100m"))
            if self.chance(0.03, "chaos", "shares"):
                amounts["mem"] = rng.choice(("1500001u", "10E", "-1"))
            body["capacity"] = {"requests": amounts}
        return body

    def toleration(self) -> dict:
        rng = self.rng
        toleration = {"key": rng.choice(("k", "l", "")), "operator": rng.choice(("Equal", "Exists"))}
        if toleration["operator"] == "Equal" and rng.random() < 0.6:
            toleration["value"] = "v"
        if rng.random() < 0.4:
            toleration["effect"] = rng.choice(("NoSchedule", "NoExecute"))
        return toleration
