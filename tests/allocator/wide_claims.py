"""Changes to a case's classes and claims: each adds fields and values that cases of other families lack (see `tests.allocator.wide`)."""

import random

from tests.allocator.case_parts import ROOT, Case, all_bodies, all_requests, draw_some


def change_classes(rng: random.Random, case: Case) -> None:
    """Add an extended resource name, further selectors, and parameters of several drivers to classes, or remove all selectors."""
    for class_ in draw_some(rng, case["classes"]):
        spec = class_["spec"]
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


def expression(rng: random.Random, case: Case) -> str:
    """Draw the CEL expression of a selector, which reads fields that selectors of other families do not read."""
    drivers = sorted({slice_["spec"]["driver"] for slice_ in case["slices"]}) or ["g.example.com"]
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


def add_selectors(rng: random.Random, case: Case) -> None:
    """Add several selectors to a request, some of them invalid."""
    for body in draw_some(rng, all_bodies(case)):
        selector_count = rng.choice((1, 1, 2, 3, 32) if rng.random() < 0.1 else (1, 1, 2))
        body["selectors"] = body.get("selectors", [])[:1] + [
            {"cel": {"expression": expression(rng, case)}} for _ in range(selector_count)
        ]
        if rng.random() < 0.02:
            body["selectors"].append(rng.choice(({"cel": {"expression": ""}}, {"cel": {"expression": "device."}}, {})))


def add_tolerations(rng: random.Random, case: Case) -> None:
    """Add up to sixteen tolerations to a request; some lack an operator or a key, some hold for a limited time."""
    for body in draw_some(rng, all_bodies(case)):
        tolerations = []
        for _ in range(rng.choice((1, 2, 3, 16))):
            toleration: Case = {"operator": rng.choice(("Exists", "Equal", "", "Near"))}
            if rng.random() < 0.8:
                toleration["key"] = rng.choice(("k", "l", "example.com/m"))
            if toleration["operator"] != "Exists" and rng.random() < 0.7:
                toleration["value"] = rng.choice(("v", "w", ""))
            if rng.random() < 0.5:
                toleration["effect"] = rng.choice(("NoSchedule", "NoExecute", "None"))
            if toleration.get("effect") == "NoExecute":
                toleration["tolerationSeconds"] = rng.choice((-5, 0, 60, 2**40))
            tolerations.append(toleration)
        body["tolerations"] = tolerations


def add_alternatives(rng: random.Random, case: Case) -> None:
    """Replace a request by up to eight alternatives in any order, some of them for all devices."""
    for request in draw_some(rng, all_requests(case)):
        original_bodies = request.get("firstAvailable") or [request["exactly"]]
        bodies = [
            {key: value for key, value in body.items() if key not in ("adminAccess", "name")}
            for body in original_bodies
        ]
        alternatives = [dict(rng.choice(bodies)) for _ in range(rng.choice((2, 4, 8)))]
        for body in alternatives:
            if rng.random() < 0.3:
                body.pop("count", None)
                body["allocationMode"] = "All"
            elif body.get("allocationMode") == "ExactCount":
                body["count"] = rng.choice((1, 2, 3, 8, 33))
        request.pop("exactly", None)
        request["firstAvailable"] = [{"name": f"s{number}", **body} for number, body in enumerate(alternatives)]


def change_allocation_modes(rng: random.Random, case: Case) -> None:
    """Give a request an unknown mode or no mode, a missing class, no count, or a count of zero, one, or at least 31.

    A claim may hold 32 devices.
    """
    bodies = all_bodies(case)
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


def add_derived_attributes(rng: random.Random, case: Case) -> None:
    """Add derived attributes of every type. Some fail, some hide a published attribute, and some are read by no constraint."""
    drivers = sorted({slice_["spec"]["driver"] for slice_ in case["slices"]}) or ["g.example.com"]
    for claim in case["claims"]:
        devices = claim["spec"]["devices"]
        names = [
            constraint.get("matchAttribute") or constraint.get("distinctAttribute")
            for constraint in devices.get("constraints", ())
        ]
        names = [name for name in names if name] or [f"{drivers[0]}/made"]
        bodies = [
            body
            for request in devices.get("requests", ())
            for body in (request.get("firstAvailable") or [request["exactly"]])
        ]
        for body in draw_some(rng, bodies):
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
            is_usual = rng.random() < 0.85
            body["derivedAttributes"] = [
                {"name": name, "expression": rng.choice(expressions[:6] if is_usual else expressions)}
                for name in {rng.choice(names) for _ in range(rng.choice((1, 2, 3)))}
            ]


def add_constraints(rng: random.Random, case: Case) -> None:
    """Give a claim up to six constraints on any attributes, for all requests, for some, or for single alternatives."""
    drivers = sorted({slice_["spec"]["driver"] for slice_ in case["slices"]}) or ["g.example.com"]
    for claim in case["claims"]:
        devices = claim["spec"]["devices"]
        request_names = [request["name"] for request in devices.get("requests", ())]
        request_names += [
            f"{request['name']}/{alternative['name']}"
            for request in devices.get("requests", ())
            for alternative in request.get("firstAvailable", ())
        ]
        constraints = []
        for _ in range(rng.choice((1, 1, 2, 6))):
            published_names = (
                f"{driver}/{name}" for driver in drivers for name in ("numa", "model", "ok", "ver", "slot", "gpu")
            )
            attribute = rng.choice([*published_names, ROOT, ROOT, "other.example.com/model", "numa"])
            constraint = {rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): attribute}
            if request_names and rng.random() < 0.7:
                constraint["requests"] = rng.sample(request_names, min(len(request_names), rng.choice((1, 1, 2, 3))))
            constraints.append(constraint)
        devices["constraints"] = constraints


def add_configuration(rng: random.Random, case: Case) -> None:
    """Add driver parameters to a claim, for all requests, for some, for alternatives, or for requests that the claim does not have."""
    for claim in case["claims"]:
        devices = claim["spec"]["devices"]
        request_names = ["missing", *(request["name"] for request in devices.get("requests", ()))]
        request_names += [
            f"{request['name']}/{alternative['name']}"
            for request in devices.get("requests", ())
            for alternative in request.get("firstAvailable", ())
        ]
        devices["config"] = [
            {
                **(
                    {"requests": rng.sample(request_names, rng.randrange(len(request_names) + 1))}
                    if rng.random() < 0.8
                    else {}
                ),
                "opaque": {
                    "driver": rng.choice(("g.example.com", "g")),
                    "parameters": rng.choice(({}, {"a": {"b": 1}})),
                },
            }
            for _ in range(rng.choice((1, 2, 4)))
        ]


def request_admin_access(rng: random.Random, case: Case) -> None:
    """Let some requests ask for admin access."""
    for request in draw_some(rng, all_requests(case)):
        if "exactly" in request:
            request["exactly"]["adminAccess"] = True


def use_one_claim_name(rng: random.Random, case: Case) -> None:
    """Give all claims one name, each in a namespace of its own."""
    for number, claim in enumerate(case["claims"]):
        claim["metadata"] = claim["metadata"] | {"name": "claim", "namespace": f"d{number}"}
