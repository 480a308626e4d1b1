"""Commands on files decide like the webhook, for random fleets with extended resources, taints, quotas and claims."""

import random
from collections import Counter

import pytest

from cluster import manifests
from cluster.objects import LimitRange, Namespace, ResourceQuota
from cluster.patch import apply_json_patch
from dra import wire
from dra.objects import (
    DeviceClass,
    DeviceTaintRule,
    Node,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dra.objects.extended_resources import IMPLICIT
from tests.limit_ranger import admitted, with_requests
from tests.webhook.admission.test_decide import KEY, answer, applied, review
from tests.webhook.pods import configured, refused_by_server, state_of_files
from webhook.admission import decide_object
from webhook.admission import review as reviewing
from webhook.names import BYPASS_HINT, EXTENDED_RESOURCES, MODE_LABEL
from webhook.state import Features, StateBuilder

DRIVER, OTHER = "gpu.nvidia.com", "hami-core-gpu.project-hami.io"
GPU = "nvidia.com/gpu"
KEYS = (GPU, GPU, GPU, f"{IMPLICIT}{DRIVER}", f"{IMPLICIT}second", f"{IMPLICIT}nothing", "nvidia.com/mig-1g.5gb", "nvidia.com/gpumem", "example.com/gpu")  # fmt: skip
KINDS = {type_.__name__: type_ for type_ in (Node, ResourceSlice, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, Namespace, ResourceQuota, LimitRange)}  # fmt: skip
SELECTORS = ("productName == 'A100'", "productName == 'none'", "nothing == 'read'", "type == 'gpu'")
FEATURES = Features(minor=37)
QUICK, LONG = 120, 10_000
PLACED = (150, 160, 185, 198, 221, 303, 378, 541, 624)  # seeds with a pod that none of its reachable nodes could serve


def an(kind, name, spec, group="resource.k8s.io/v1", **metadata):
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def requests(rng):
    """One or two requests of a claim."""
    made = []
    for i in range(rng.choice([1, 1, 2])):
        exactly = {"deviceClassName": rng.choice([DRIVER, DRIVER, "second", OTHER, "nowhere"])}
        exactly["allocationMode"] = "ExactCount"  # as the API server stores it
        exactly["count"] = rng.choice([1, 1, 2, 3, 5])
        if rng.random() < 0.3:
            exactly["selectors"] = [{"cel": {"expression": f"device.attributes['{DRIVER}'].{rng.choice(SELECTORS)}"}}]
        if rng.random() < 0.2:
            exactly["tolerations"] = [{"operator": "Exists"}]
        made.append({"name": f"r{i}", "exactly": exactly})
    return {"devices": {"requests": made}}


def slice_of(rng, node, driver):
    devices = []
    for i in range(rng.choice([0, 1, 2, 2, 4])):
        kind = rng.choice(["gpu", "gpu", "mig"]) if driver == DRIVER else "hami-gpu"
        facts = {"type": {"string": kind}, "productName": {"string": rng.choice(["A100", "H100"])}}
        if kind == "mig":
            facts["profile"] = {"string": "1g.5gb"}
        device = {"name": f"d{i}", "attributes": facts, "capacity": {"memory": {"value": "40Gi"}}}
        if driver == OTHER:
            device["allowMultipleAllocations"] = True
        if rng.random() < 0.15:
            device["taints"] = [{"key": "a.b/c", "effect": rng.choice(["None", "NoSchedule", "NoExecute"])}]
        devices.append(device)
    pool = {"name": f"{node}-{driver}", "generation": 1, "resourceSliceCount": rng.choice([1] * 9 + [2])}
    return an("ResourceSlice", pool["name"], {"driver": driver, "nodeName": node, "pool": pool, "devices": devices})


def fleet_of(rng):
    """Nodes with devices or device plugins, classes as vendors and administrators write them, and taints."""
    made = []
    for i in range(rng.choice([1, 2, 3])):
        node = an("Node", f"n{i}", {}, "v1", labels={"pool": rng.choice("ab"), "kubernetes.io/hostname": f"n{i}"})
        if rng.random() < 0.3:
            node["status"] = {"allocatable": {rng.choice([GPU, "example.com/gpu"]): str(rng.choice([0, 1, 4]))}}
        made.append(node)
        made += [slice_of(rng, f"n{i}", driver) for driver in (DRIVER, OTHER) if i == 0 or rng.random() < 0.8]
    chosen = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == "
    written = {DRIVER: f"{chosen}'gpu'", "mig.nvidia.com": f"{chosen}'mig'", OTHER: f"device.driver == '{OTHER}'", "second": f"device.driver == '{rng.choice([DRIVER, OTHER])}'"}  # fmt: skip
    for name, expression in written.items():
        if rng.random() < 0.1:
            continue
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        if served := {DRIVER: rng.choice([GPU, GPU, ""]), "second": rng.choice([GPU, "example.com/gpu", ""])}.get(name):
            spec["extendedResourceName"] = served
        made.append(an("DeviceClass", name, spec, creationTimestamp=f"2026-01-01T00:00:0{rng.choice('12')}Z"))
    if rng.random() < 0.2:
        taint = {"key": rng.choice(["drawbridge.dev/fence", "a.b/c"]), "effect": "NoSchedule", "value": "v"}
        made.append(an("DeviceTaintRule", "r", {"deviceSelector": {"driver": DRIVER}, "taint": taint}))
    return made


def limits_of(rng):
    """The claims, templates, quotas and the mode of a namespace."""
    made = [an("ResourceClaim", name, requests(rng), namespace="n") for name in ("c0", "c1")]
    held = an("ResourceClaim", "held", requests(rng), namespace="n", uid="1")
    results = [{"request": "r0", "driver": DRIVER, "pool": f"n0-{DRIVER}", "device": f"d{i}"} for i in range(2)]
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]}
    held["status"] = {"allocation": {"devices": {"results": results}, "nodeSelector": selector}}
    made += [held] * (rng.random() < 0.4)
    made.append(an("ResourceClaimTemplate", "t0", {"spec": requests(rng)}, namespace="n"))
    if rng.random() < 0.15:
        made.append(an("ResourceQuota", "q", {"hard": {f"requests.{GPU}": "2"}}, "v1", namespace="n"))
    if rng.random() < 0.1:
        bounds = [{"type": "Container", "max": {GPU: "1"}}]
        made.append(an("LimitRange", "l", {"limits": bounds}, "v1", namespace="n"))
    labels = {MODE_LABEL: rng.choice(["off", "observe", "warn"])} if rng.random() < 0.1 else {}
    return [*made, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": labels}}]


def ranges_of(rng):
    """The defaults of a LimitRange for containers, sometimes for devices, and its limits for pods."""
    if rng.random() < 0.6:
        return []
    amounts = {"cpu": rng.choice(["1", "500m"]), "memory": "64Mi"} | (
        {rng.choice(KEYS): "1"} if rng.random() < 0.3 else {}
    )
    parts = rng.choice([("default",), ("defaultRequest",), ("max",), ("default", "defaultRequest")])
    limits = [{"type": "Container"} | dict.fromkeys(parts, amounts)]
    if rng.random() < 0.4:
        limits.append({"type": "Pod", rng.choice(["max", "min"]): {"cpu": rng.choice(["1", "1500m", "2"])}})
    return [an("LimitRange", "given", {"limits": limits}, "v1", namespace="n")]


def container_of(rng, name):
    limits = {rng.choice(KEYS): str(rng.choice([0, 1, 1, 2, 3, 6])) for _ in range(rng.choice([0, 1, 1, 1, 2]))}
    return {"name": name, "image": "i", "resources": {"limits": limits, "requests": dict(limits)}}


def pod_of(rng):
    spec = {"containers": [container_of(rng, f"m{i}") for i in range(rng.choice([1, 1, 2]))], "initContainers": []}
    for i in range(rng.choice([0, 0, 0, 1, 2])):
        again = {"restartPolicy": "Always"} if rng.random() < 0.5 else {}
        spec["initContainers"].append(container_of(rng, f"i{i}") | again)
    claims = [
        {"name": "c", "resourceClaimName": rng.choice(["c0", "c1", "held", "missing"])},
        {"name": "t", "resourceClaimTemplateName": rng.choice(["t0", "t0", "missing"])},
    ]
    if mine := [claim for claim in claims if rng.random() < 0.25]:
        spec["resourceClaims"] = mine
        spec["containers"][0]["resources"]["claims"] = [{"name": claim["name"]} for claim in mine]
    spec["schedulerName"] = rng.choice(["default-scheduler"] * 6 + ["drawbridge", "of-others"])
    if rng.random() < 0.2:
        spec["nodeSelector"] = {"pool": rng.choice("abc")}
    words = {EXTENDED_RESOURCES: rng.choice(["leave", "translate", "maybe"])} if rng.random() < 0.2 else {}
    return an("Pod", "p", spec, "v1", namespace="n", annotations=words)


def affinity_of(rng):
    """A required node affinity, sometimes as the DaemonSet controller writes it."""
    values = rng.sample(["n0", "n1", "n2", "n3"], rng.choice([1, 1, 2]))
    named = {"operator": rng.choice(["In", "In", "NotIn"]), "values": values}
    term = {"matchExpressions": [{**named, "key": "kubernetes.io/hostname"}]}
    if rng.random() < 0.4:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": values[:1]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def settings_of(rng):
    fields = {}
    if rng.random() < 0.3:
        fields["bridge"] = {"schedulerName": "drawbridge", "drivers": [DRIVER], "fence": rng.random() < 0.5}
    elif rng.random() < 0.4:
        fields["extendedResources"] = rng.choice([{"default": "translate"}, {"namespaces": {"n": "translate"}}])
    if rng.random() < 0.1:
        fields["impossible"] = "warn"
    return configured(mode="enforce", **fields)


def at_the_webhook(obj, state):
    """Review the creation of an object; return the webhook's response and the changed object."""
    if obj["kind"] != "Pod":
        resource = f"{obj['kind'].lower()}s"
        report = answer(
            reviewing.decide_review(
                "validate", review(obj, resource=resource, group="resource.k8s.io", namespace="n"), state
            )
        )
        return report, obj
    first = reviewing.decide_review("mutate", review(obj, namespace="n"), state)
    return answer(first), applied(obj, first)


def compare(seed):
    """Compare the decisions about a pod, two claims and a template in a random cluster; count the outcomes."""
    rng = random.Random(f"files and webhook {seed}")
    known, configuration = [*fleet_of(rng), *limits_of(rng)], settings_of(rng)
    known += ranges_of(random.Random(f"ranges {seed}"))
    grows = random.Random(f"pools {seed}").random() < 0.2
    for node in [obj for obj in known if obj["kind"] == "Node"] if grows else ():
        node["metadata"].setdefault("labels", {})["cloud.google.com/gke-nodepool"] = "a"
    ranges = [obj for obj in known if obj["kind"] == "LimitRange"]
    text = manifests.dump(known)
    files = state_of_files(manifests.parse(text), configuration, FEATURES)
    builder = StateBuilder(configuration, keys=(KEY,))
    builder.learn(features=FEATURES)
    builder.update_objects([wire.convert(obj, KINDS[obj["kind"]]) for obj in known])
    builder.settle()
    server = builder.state(fresh=True)
    came = Counter()
    enforced = not server.namespaces["n"]
    for given in (pod_of(rng), *[obj for obj in known if obj["kind"].startswith("ResourceClaim") and "status" not in obj]):  # fmt: skip
        places = random.Random(f"places {seed}")
        if given["kind"] == "Pod" and places.random() < 0.8:
            given["spec"]["affinity"] = affinity_of(places)
            if "matchFields" in str(given["spec"]["affinity"]):
                owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
                given["metadata"]["ownerReferences"] = [owner]
        response, became = at_the_webhook(admitted(given, ranges) if given["kind"] == "Pod" else given, server)
        done = decide_object(given, files)
        if refused_by_server(done):
            came["refused by the API server"] += 1
            continue
        message = "" if response["allowed"] else response["status"]["message"].removesuffix(f"; {BYPASS_HINT}")
        assert "; ".join(map(str, done.refusals)) == message, (seed, given)
        if response["allowed"] and given["kind"] == "Pod":
            # The file keeps only its own fields; the API server adds the defaults again.
            of_file = admitted(apply_json_patch(given, done.operations), ranges)
            assert of_file["spec"] == with_requests(became)["spec"], (seed, given)
        if response["allowed"]:
            # The API server limits the length and the number of warnings.
            whole = [
                warning
                for warning in response.get("warnings", ())
                if enforced and not warning.startswith("drawbridge: ")
            ]
            beginnings = [warning.partition("…")[0] for warning in whole]
            assert all(any(mine.startswith(warning) for mine in done.warnings) for warning in beginnings), (
                seed,
                beginnings,
                done.warnings,
            )
        came[f"{given['kind']} {'let in' if response['allowed'] else 'refused'}"] += 1
        came["filled in"] += given["kind"] == "Pod" and admitted(given, ranges) != with_requests(given)
        came["warned of a pool"] += any(
            "an autoscaler may create another node" in str(warning) for warning in done.warnings
        )
        came["refused for its place"] += "that this pod can run on" in message
        came["warned of its place"] += any("that this pod can run on" in str(warning) for warning in done.warnings)
        came["left to core"] += any("extendedResourceName" in decision.detail for decision in done.decisions)
        came["translated"] += bool(done.templates)
    return came


def test_files_and_the_webhook_have_the_same_decisions():
    met = Counter()
    for seed in (*range(QUICK), 3724, *PLACED):  # 3724 is a regression test
        met += compare(seed)
    expected = ("Pod let in", "Pod refused", "ResourceClaim let in", "ResourceClaim refused", "ResourceClaimTemplate refused", "left to core", "translated", "filled in", "warned of a pool", "refused for its place", "warned of its place")  # fmt: skip
    assert all(met[outcome] >= 3 for outcome in expected), met


@pytest.mark.long
@pytest.mark.time_limit(1800, "ten thousand fleets")
def test_many_random_files_and_the_webhook_have_the_same_decisions():
    met = Counter()
    for seed in range(QUICK, QUICK + LONG):
        met += compare(seed)
        if seed % 1000 == 0:
            print(f"after {seed}: {dict(met)}", flush=True)
    assert sum(met.values()) > LONG


# The GPUs per pod of a DaemonSet; the nodes with a warning that their pods wait; whether the pods are refused.
EACH = {
    "fits everywhere": (1, (), False),
    "more than the small device plugin has": (3, ("less",), False),
    "only nodes with a driver have so much": (5, ("less", "more"), False),
    "more than any node has": (7, ("less", "more"), True),
}


@pytest.mark.parametrize("prefer", ["plugin", "dra"])
@pytest.mark.parametrize(("count", "short", "refused"), EACH.values(), ids=EACH)
def test_a_daemon_set_is_refused_only_if_no_node_fits(count, short, refused, prefer):
    devices = [{"name": f"d{i}", "attributes": {"type": {"string": "gpu"}}} for i in range(6)]
    pool = {"name": "moved", "generation": 1, "resourceSliceCount": 1}
    published = {"driver": DRIVER, "nodeName": "moved", "pool": pool, "devices": devices}
    chosen = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    known = [an("ResourceSlice", "s", published), an("DeviceClass", DRIVER, {"selectors": [chosen]})]
    for name, amount in (("moved", 0), ("less", 2), ("more", 4)):
        known.append(an("Node", name, {}, "v1") | {"status": {"allocatable": {GPU: str(amount)} if amount else {}}})
    configuration = configured(mode="enforce", mixed={GPU: {"prefer": prefer}})
    files = state_of_files(manifests.parse(manifests.dump(known)), configuration, FEATURES)
    builder = StateBuilder(configuration, keys=(KEY,))
    builder.learn(features=FEATURES)
    builder.update_objects([wire.convert(obj, KINDS[obj["kind"]]) for obj in known])
    builder.settle()
    server = builder.state(fresh=True)
    limits = {"limits": {GPU: str(count)}, "requests": {GPU: str(count)}}
    template = {"metadata": {}, "spec": {"containers": [{"name": "m", "image": "i", "resources": limits}]}}
    daemon_set = an("DaemonSet", "d", {"selector": {}, "template": template}, "apps/v1", namespace="n")
    of_file = decide_object(daemon_set, files)
    assert bool(of_file.refusals) is refused
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    for name in ("moved", "less", "more"):
        pod = an("Pod", f"d-{name}", template["spec"], "v1", namespace="n", ownerReferences=[owner])
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        pod["spec"] = pod["spec"] | {"affinity": {"nodeAffinity": required}}
        response, _ = at_the_webhook(pod, server)
        if name in short and refused:
            assert response["status"]["message"].startswith(of_file.refusals[0].message)
            continue
        assert response["allowed"], name
        waits = [warning for warning in response.get("warnings", ()) if "for such nodes wait" in warning]
        assert bool(waits) is (name in short)
    report = answer(
        reviewing.decide_review(
            "validate", review(daemon_set, resource="daemonsets", group="apps", namespace="n"), server
        )
    )
    assert any("its pods will be refused" in warning for warning in report.get("warnings", ())) is refused
