"""Whole CPUs of Guaranteed pods become claims if the configuration enables it: Kubernetes' own QoS class decides, on a real API server."""

import json
import random
from collections import Counter

import pytest

from analysis.configuration import configuration_in_force
from cli.configuration import given_configuration
from cluster import manifests
from e2e.actors import fleet
from e2e.actors.client import ApiError
from e2e.actors.webhook import CONFIGURATION, claims_of, results_of
from e2e.actors.workloads import container, pod
from tests.webhook.pods import state_of_files
from webhook.admission import decide_object
from webhook.state import Features

pytestmark = pytest.mark.real
CPU = "dra.cpu"
NODE = "cpus-webhook-0"
WANTED = f"{CONFIGURATION}\ncpuClaims: {{default: translate}}\n"
DRAWN = 60
PATHS = ("/api/v1/nodes", "/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io/v1/deviceclasses")


def group(number):
    """A NUMA node as the driver's grouped mode publishes it."""
    made = fleet.device(f"cpudevnuma{number:03}", {f"{CPU}/socketID": number, f"{CPU}/numaNodeID": number})
    return made | {"capacity": {f"{CPU}/cpu": {"value": "16"}}, "allowMultipleAllocations": True}


@pytest.fixture(scope="module")
def wanted(control_plane, webhook, tmp_path_factory):
    """The file of a configuration that enables CPU claims, beside a node with 32 CPUs of the driver."""
    made = [
        fleet.device_class(CPU, f"device.driver == '{CPU}'"),
        *fleet.slices(CPU, NODE, [group(0), group(1)], by_name=True),
    ]
    file = tmp_path_factory.mktemp("cpus") / "drawbridge.yaml"
    file.write_text(WANTED)
    try:
        control_plane.add_fake_nodes(1, prefix="cpus-webhook-", allocatable={"cpu": "32"})
        control_plane.create(*made)
        webhook.reads_on(NODE)
        webhook.follow(WANTED)
        webhook.register(f"--config={file}")
        control_plane.until("every webhook is called", webhook.is_called, 30)
        yield file
    finally:
        webhook.follow(CONFIGURATION)
        webhook.register()
        control_plane.until("every webhook is called", webhook.is_called, 30)
        control_plane.remove(*made, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


def held(name="main", limits=None, requests=None, **fields):
    resources = {"limits": limits or {"cpu": "2", "memory": "64Mi"}} | ({"requests": requests} if requests else {})
    return container(name, resources=resources, **fields)


def test_a_guaranteed_pod_gets_a_cpu_claim_and_is_scheduled(control_plane, wanted, gated):
    short = held("short")
    beside = held("beside", {"cpu": "3", "memory": "64Mi"}, restartPolicy="Always")
    item = pod(
        "guaranteed",
        gated,
        held(),
        held("part", {"cpu": "500m", "memory": "64Mi"}),
        node=NODE,
        initContainers=[short, beside],
    )
    text = json.dumps(item)
    control_plane.kubectl("apply", "-f", "-", input=text)
    stored = control_plane.wait_scheduled(gated, "guaranteed")
    assert stored["status"]["qosClass"] == "Guaranteed"
    every = {
        container["name"]: container["resources"]
        for container in stored["spec"]["containers"] + stored["spec"]["initContainers"]
    }
    assert {name: resources["requests"]["cpu"] for name, resources in every.items()} == {
        "main": "2",
        "part": "500m",
        "short": "2",
        "beside": "3",
    }
    assert {name for name, resources in every.items() if resources.get("claims")} == {"main", "beside"}
    given = claims_of(control_plane, gated, "guaranteed")
    taken = {
        name: [(result["driver"], result["consumedCapacity"]) for result in results_of(claim)]
        for name, claim in given.items()
    }
    assert taken == {
        "drawbridge-main-cpus": [(CPU, {f"{CPU}/cpu": "2"})],
        "drawbridge-beside-cpus": [(CPU, {f"{CPU}/cpu": "3"})],
    }
    # The same manifest applied again, in both ways, changes nothing.
    again = control_plane.kubectl("apply", "-f", "-", input=text).stdout
    assert "unchanged" in again or "configured" in again
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)
    after = control_plane.get(f"/api/v1/namespaces/{gated}/pods/guaranteed")
    assert after["spec"] == stored["spec"]
    assert claims_of(control_plane, gated, "guaranteed").keys() == given.keys()


def test_burstable_pods_fractional_cpus_and_other_namespaces_are_unchanged(control_plane, wanted, gated, namespace):
    items = {
        "no memory": pod("p", gated, held(limits={"cpu": "2"}), node=NODE),
        "less requested": pod("p", gated, held(requests={"cpu": "1"}), node=NODE),
        "beside another": pod("p", gated, held(), container("other"), node=NODE),
        "a part": pod("p", gated, held(limits={"cpu": "1500m", "memory": "64Mi"}), node=NODE),
        "no node with the driver": pod("p", gated, held(), node="none-such"),
    }
    for name, item in items.items():
        [became] = control_plane.create(item, dryRun="All")
        assert "resourceClaims" not in became["spec"], name
        assert "annotations" not in became["metadata"], name
    [skipped] = control_plane.create(pod("p", gated, held(), node=NODE) | {"metadata": {"name": "p", "namespace": gated, "labels": {"drawbridge.dev/skip": "true"}}}, dryRun="All")  # fmt: skip
    assert "resourceClaims" not in skipped["spec"]


def test_the_servers_qos_class_decides_and_files_agree(control_plane, wanted, gated):
    objects = []
    for path in PATHS:
        listed = control_plane.get(path)
        kind = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        objects += [kind | item for item in listed["items"]]
    around = manifests.parse(manifests.dump(objects))
    configuration = configuration_in_force(given_configuration(str(wanted))).configuration
    state = state_of_files(around, configuration, Features(minor=37))
    met = Counter()
    rng = random.Random("classes of pods")
    for _ in range(DRAWN):
        item = drawn(rng, gated)
        try:
            [became] = control_plane.create(item, dryRun="All")
        except ApiError:
            met["invalid"] += 1  # the request exceeds the limit
            continue
        quality = became["status"]["qosClass"]
        every = [*became["spec"].get("initContainers", []), *became["spec"]["containers"]]
        given = {container["name"] for container in every if container["resources"].get("claims")}
        assert given == (expected(became) if quality == "Guaranteed" else set()), item
        done = decide_object(item, state)
        named = {entry["resourceClaimTemplateName"] for entry in became["spec"].get("resourceClaims", [])}
        assert set(done.templates) == named, item
        met[f"{quality}, {'claimed' if given else 'as it was'}"] += 1
    assert min(met[name] for name in ("Guaranteed, claimed", "Guaranteed, as it was", "Burstable, as it was")) >= 3, met


def drawn(rng, namespace):
    def made_up(name):
        cpu, memory = rng.choice(("1", "2", "2000m", "1500m")), rng.choice(("32Mi", "64Mi"))
        limits = {"cpu": cpu, "memory": memory}
        requests = rng.choice((None, None, None, dict(limits), {"cpu": "1"}, {"memory": "32Mi"}))
        sidecar = {"restartPolicy": "Always"} if name.startswith("i") and rng.random() < 0.5 else {}
        return held(name, limits, requests, **sidecar)

    spec = {"initContainers": [made_up("i0")]} if rng.random() < 0.3 else {}
    if rng.random() < 0.3:
        amounts = {"cpu": rng.choice(("8", "7500m")), "memory": "1Gi"}
        spec["resources"] = {"limits": amounts} | rng.choice(
            ({}, {"requests": dict(amounts)}, {"requests": {"cpu": "7"}})
        )
    return pod("drawn", namespace, *[made_up(f"c{i}") for i in range(rng.randint(1, 2))], node=NODE, **spec)


def expected(became):
    """The containers that keep running and have exactly whole CPUs as request and limit."""
    spec = became["spec"]
    names = set()
    for container_ in (
        *[sidecar for sidecar in spec.get("initContainers", []) if sidecar.get("restartPolicy") == "Always"],
        *spec["containers"],
    ):
        limits, requests = container_["resources"].get("limits", {}), container_["resources"].get("requests", {})
        whole = requests.get("cpu", "0m").isdecimal()
        if whole and all(limits.get(name) == requests.get(name) for name in ("cpu", "memory")):
            names.add(container_["name"])
    return names
