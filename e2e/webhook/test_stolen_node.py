"""The credentials of one node against other nodes' pods: a test for each row of the table in docs/security.md.

Writes that Kubernetes permits to such a node change nothing for pods of other nodes: the webhook translates as before, `check`
gives the same findings, kube-scheduler and the bridge allocate devices of other nodes; and the guard refuses foreign pools.
"""

import json
from contextlib import closing

import pytest

from cluster import manifests
from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.client import ApiError, Client
from e2e.actors.webhook import ROOT, SYSTEM
from e2e.actors.workloads import claim, container, limits, pod, request, using
from e2e.ground.controlplane import STOLEN
from tests.cli.running import run

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
OTHERS = [f"stolen-{number}" for number in range(1, 4)]
NODES = [STOLEN, *OTHERS]
KUBELET = ("--as", f"system:node:{STOLEN}", "--as-group", "system:nodes", "--as-group", "system:authenticated")
GENERATION = 2**62
DEVICES = {fleet.NVIDIA: fleet.whole_gpus(2), fleet.HAMI: fleet.hami_gpus(2)}
ASKED = {
    "whole": {"nvidia.com/gpu": 1},
    "half": {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50},
    "memory": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000},
}


def lies():
    """Slices of the stolen node in the pools of other nodes: no device, one, and two smaller ones."""
    small = fleet.hami_gpus(2, memory="1Gi")
    made = []
    for driver in DEVICES:
        for at, other in enumerate(OTHERS):
            [slice_] = fleet.slices(
                driver, STOLEN, small[:at] if driver == fleet.HAMI else [], pool=other, by_name=True
            )
            slice_["metadata"]["name"] = f"lie-{driver}-{other}"
            slice_["spec"]["pool"] |= {"generation": GENERATION, "resourceSliceCount": 1}
            made.append(slice_)
    return made


def as_the_node(cluster, *items, dry_run=False, who=KUBELET):
    """Create objects as the stolen node's kubelet, or as another account on it; return the refusals."""
    tried = ("--dry-run=server",) if dry_run else ()
    done = cluster.kubectl("create", *who, *tried, "-f", "-", input=manifests.dump(items), check=False)
    return done.stdout + done.stderr if done.returncode else ""


@pytest.fixture(scope="module")
def pools(control_plane, webhook):
    """Four nodes with two kinds of GPUs, each in the pool of its name."""
    made = [
        slice_
        for node in NODES
        for driver, devices in DEVICES.items()
        for slice_ in fleet.slices(driver, node, devices, pool=node, by_name=True)
    ]
    made += fleet.classes(extended=False)
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in NODES]
    try:
        control_plane.add_fake_nodes(len(NODES), prefix="stolen-")
        control_plane.create(*made)
        webhook.reads_on(STOLEN)
        yield control_plane
    finally:
        control_plane.remove(*made, *lies(), *nodes)


def translated(cluster, namespace):
    """Return the templates of translated pods: their names are digests of their content."""
    became = {}
    for name, amounts in ASKED.items():
        [stored] = cluster.create(pod(name, namespace, container(**limits(**amounts))), dryRun="All")
        became[name] = [entry["resourceClaimTemplateName"] for entry in stored["spec"].get("resourceClaims", [])]
    return became


# The table: writes with the node's own token. "" means that Kubernetes permits the write.
ME = f"/api/v1/nodes/{STOLEN}"
SECRETS = f"/api/v1/namespaces/{SYSTEM}/secrets"
HUGE = str(2**63 - 1)


def lie(name, devices=(), *, driver=fleet.NVIDIA, pool=STOLEN, generation=1, count=1, **spec):
    """A slice of the stolen node, with other fields."""
    [slice_] = fleet.slices(driver, STOLEN, [], pool=pool, by_name=True)
    slice_["spec"]["devices"] = None if devices is None else list(devices)
    slice_["metadata"]["name"] = f"lie-{name}"
    slice_["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": count}
    slice_["spec"] |= spec
    return ("create", {**slice_, "spec": {key: value for key, value in slice_["spec"].items() if value is not None}})


def gpus(count, memory="40Gi", **fields):
    return [gpu | fields for gpu in fleet.whole_gpus(count, memory=memory)]


def status(**amounts):
    return ("patch", f"{ME}/status", {"status": dict.fromkeys(("capacity", "allocatable"), amounts)}, "merge")


def mirror(name, *containers, **spec):
    pod_ = pod(name, "default", *containers, nodeName=STOLEN, **spec)
    pod_["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x", "drawbridge.dev/templates": '[{"name":"x"}]'}
    owner = {"apiVersion": "v1", "kind": "Node", "name": STOLEN, "uid": "UID", "controller": True}
    return ("create", pod_ | {"metadata": pod_["metadata"] | {"ownerReferences": [owner]}})


def event(component):
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "any"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"lie-{component}", "namespace": "default"}, "involvedObject": about, "reason": "NotTranslated", "message": "so it is", "type": "Warning", "source": {"component": component}, "reportingComponent": component}  # fmt: skip


def lease(name, namespace):
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": namespace}, "spec": {"holderIdentity": "thief"}}  # fmt: skip


TAINT = {"key": "example.com/t", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
TERMS = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": OTHERS[:1]}]}]}
WRITES = {
    "labels": ("", [("patch", ME, {"metadata": {"labels": {"nvidia.com/gpu.product": "H100", "nvidia.com/gpu.count": "999", "nvidia.com/mig.strategy": "single", "gpu": "on", "drawbridge.dev/mode": "off"}}}, "merge")]),
    "annotations": ("", [("patch", ME, {"metadata": {"annotations": {"hami.io/node-nvidia-register": '[{"count":9}]', "drawbridge.dev/templates": "[]"}}}, "merge")]),
    "huge amounts": ("", [status(**{"nvidia.com/gpu": HUGE, "nvidia.com/gpumem": HUGE, "koordinator.sh/gpu": HUGE, "huawei.com/Ascend910": "8"})]),
    "negative amounts": ("must be greater than or equal to 0", [status(**{"nvidia.com/gpu": "-1"})]),
    "taints": ("is not allowed to modify taints", [("patch", ME, {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, "merge")]),
    "protected labels": ("is not allowed to modify labels", [("patch", ME, {"metadata": {"labels": {"node-restriction.kubernetes.io/team": "a"}}}, "merge")]),
    "another node": ("is not allowed to modify node", [("patch", f"/api/v1/nodes/{OTHERS[0]}", {"metadata": {"labels": {"a": "b"}}}, "merge")]),
    "own pools of any driver": ("", [lie(f"own-{at}", fleet.hami_gpus(1, memory=memory), driver=driver, pool=f"{STOLEN}-more") for at, (driver, memory) in enumerate([(fleet.HAMI, "1Gi"), (fleet.NVIDIA, "1Ei"), (fleet.DRANET, "16Mi")])]),
    "names twice": ("", [lie(f"twice-{at}", gpus(2), pool=f"{STOLEN}-twice", count=2) for at in range(2)]),
    "names twice in a slice": ("Duplicate value", [lie("double", gpus(1) * 2)]),
    "128 devices": ("", [lie("many", gpus(128), pool=f"{STOLEN}-many")]),
    "129 devices": ("Too many", [lie("more", gpus(129), pool=f"{STOLEN}-more")]),
    "foreign attributes": ("", [lie("foreign", [fleet.device("odd", {f"{fleet.HAMI}/type": "hami-gpu", f"{fleet.NVIDIA}/type": "gpu", f"{fleet.NVIDIA}/productName": "T4", "resource.kubernetes.io/pcieRoot": "pci0000:00"}, {f"{fleet.NVIDIA}/memory": "1"})], driver=fleet.HAMI, pool=f"{STOLEN}-foreign")]),
    "counters": ("", [lie("counters", pool=f"{STOLEN}-c", count=2, devices=None, sharedCounters=[{"name": "c", "counters": fleet.amounts({"memory": "-1", "slots": HUGE})}]), lie("consumers", gpus(2, memory="-40Gi", consumesCounters=[fleet.consumes("c", memory="-9", slots=HUGE)]), pool=f"{STOLEN}-c", count=2)]),
    "device taints": ("", [lie("tainted", gpus(2, taints=[TAINT]), pool=OTHERS[0], generation=GENERATION)]),
    "all nodes": ("NodeName", [lie("all", gpus(2), nodeName=None, allNodes=True)]),
    "a node selector": ("NodeName", [lie("selector", gpus(2), nodeName=None, nodeSelector=TERMS)]),
    "a node by device": ("NodeName", [lie("device", gpus(2, nodeName=OTHERS[0]), nodeName=None, perDeviceNodeSelection=True)]),
    "generation": ("", [lie(f"generation-{at}", gpus(1), pool=pool, generation=2**63 - 1) for at, pool in enumerate(OTHERS)]),
    "slice counts": ("", [lie(f"count-{at}", gpus(1), pool=pool, count=4096) for at, pool in enumerate(OTHERS)]),
    "others' slices": ("no relationship found", [("delete", f"/apis/resource.k8s.io/v1/resourceslices/{OTHERS[0]}-{fleet.NVIDIA}-0")]),
    "claims' status": ("cannot patch resource", [("patch", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/any/status", {"status": {"reservedFor": None, "devices": None}}, "merge")]),
    "pods' status": ("can only update pod status for pods with spec.nodeName set to itself", [("patch", "/api/v1/namespaces/default/pods/honest/status", {"status": {"phase": "Failed"}}, "merge")]),
    "events": ("", [("create", event("drawbridge-controller")), ("create", event("default-scheduler"))]),
    "our leases": ("can only access leases in the", [("patch", f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/drawbridge", {"spec": {"holderIdentity": "thief"}}, "merge")]),
    "others' leases": ("can only access node lease with the same name", [("create", lease(OTHERS[0], "kube-node-lease"))]),
    "CSINodes": ("can only access CSINode with the same name", [("create", {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": OTHERS[0]}, "spec": {"drivers": []}})]),
    "our keys": ("no relationship found", [("get", f"{SECRETS}/drawbridge-signature"), ("get", f"{SECRETS}/drawbridge-authority")]),
    "mirror pods": ("", [mirror("mirror", container(**limits(**{"nvidia.com/gpu": 99})))]),
    "mirror pods with claims": ("resourceclaims", [mirror("claimed", resourceClaims=[using("any")])]),
    "pods": ("can only create mirror pods", [("create", pod("made", "default", nodeName=STOLEN))]),
    "classes": ("cannot create resource", [("create", fleet.device_class("lie", "true"))]),
}  # fmt: skip


def attempt(client, verb, *what):
    """Return the API server's refusal; "" if it accepts."""
    try:
        getattr(client, verb)(*what)
    except ApiError as error:
        return error.message
    return ""


def known(control_plane, what):
    """A write with the uid of the node, where one is needed."""
    return json.loads(json.dumps(what).replace('"UID"', json.dumps(control_plane.get(ME)["metadata"]["uid"])))


def checked(cluster, folder):
    """Return `check`'s findings about honest pods beside all objects of the cluster."""
    places = ("apis/resource.k8s.io/v1/resourceslices", "apis/resource.k8s.io/v1/deviceclasses", "api/v1/nodes")
    lists = [cluster.get(f"/{place}") for place in places]
    items = [
        {"apiVersion": list_["apiVersion"], "kind": list_["kind"].removesuffix("List")} | item
        for list_ in lists
        for item in list_["items"]
    ]
    (folder / "inventory.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    pods = [
        pod(f"{name}-{other}", "default", container(**limits(**amounts)), node=other)
        for name, amounts in ASKED.items()
        for other in OTHERS
    ]
    (folder / "pods.yaml").write_text(manifests.dump(pods))
    done = run("check", "--inventory", folder / "inventory.json", folder / "pods.yaml")
    return done.exit_code, done.stdout.replace(str(folder), "")


# With an incomplete or invalid pool the webhook never says that a pod can never fit: there might be more devices.
UNFINISHED = {"names twice", "slice counts"}


@pytest.fixture
def node(pools):
    """A client with the node's own token. Everything that it wrote is deleted afterwards."""
    with closing(Client(pools.url, pools.stolen_token, pools.ca)) as client:
        yield client
    made = [what[1] for _, writes in WRITES.values() for what in writes if what[0] == "create"]
    pools.remove(*made)
    before = pools.get(ME)
    labels = {key: None for key in before["metadata"]["labels"] if not key.startswith("kubernetes.io")}
    notes = {"hami.io/node-nvidia-register": None, "drawbridge.dev/templates": None}
    pools.patch(ME, {"metadata": {"labels": labels, "annotations": notes}})
    amounts = dict.fromkeys(("nvidia.com/gpu", "nvidia.com/gpumem", "koordinator.sh/gpu", "huawei.com/Ascend910"))
    pools.patch(f"{ME}/status", {"status": {"capacity": amounts, "allocatable": amounts}})


@pytest.mark.parametrize("what", [what for what, (words, _) in WRITES.items() if words])
def test_kubernetes_refuses_requests_beyond_the_rights_of_a_node(pools, node, what):
    honest = pod("honest", "default", nodeName=OTHERS[0])
    pools.remove(honest)
    pools.create(honest)
    words, writes = WRITES[what]
    for write in writes:
        assert words in attempt(node, *known(pools, write))
    pools.remove(honest)


@pytest.mark.parametrize("what", [what for what, (words, _) in WRITES.items() if not words])
def test_permitted_writes_of_a_node_affect_no_other_node(pools, webhook, gated, *, node, tmp_path, what):
    before = translated(pools, gated), checked(pools, tmp_path)
    for write in WRITES[what][1]:
        assert attempt(node, *known(pools, write)) == ""
    if what in UNFINISHED:
        never = claim("never", gated, request("gpus", fleet.NVIDIA, 30))
        pools.until("the webhook has read on", lambda: not pools.refusal(never), 20)
    else:
        webhook.reads_on(OTHERS[0])
    assert (translated(pools, gated), checked(pools, tmp_path)) == before


def test_despite_forged_objects_both_schedulers_allocate_devices_of_other_nodes(pools, bridge, gated, node):
    for words, writes in WRITES.values():
        for write in writes if not words else ():
            assert attempt(node, *known(pools, write)) == ""
    never = claim("never", gated, request("gpus", fleet.NVIDIA, 30))
    pools.until("the webhook has read on", lambda: not pools.refusal(never), 20)
    for scheduler, other in (("default-scheduler", OTHERS[1]), (SCHEDULER, OTHERS[2])):
        name = f"beside-{scheduler}"
        wanted = claim(name, gated, request("gpu", fleet.NVIDIA, 2))
        pools.create(wanted, pod(name, gated, node=other, schedulerName=scheduler, resourceClaims=[using(name)]))
        pools.wait_scheduled(gated, name, 60)
        given = pools.read(wanted)["status"]["allocation"]["devices"]["results"]
        assert {(result["pool"], result["device"]) for result in given} == {(other, "gpu-0"), (other, "gpu-1")}


def test_foreign_slices_in_a_nodes_pool_change_nothing(pools, webhook, gated):
    before = translated(pools, gated)
    assert all(before.values())
    assert not as_the_node(pools, *lies()), "Kubernetes itself refuses them: this test shows nothing"
    webhook.reads_on(STOLEN)
    assert translated(pools, gated) == before
    for number, node in enumerate(OTHERS):
        name = f"on-{number}"
        pools.create(
            claim(name, gated, request("gpu", fleet.NVIDIA, 2)),
            pod(name, gated, node=node, resourceClaims=[using(name)]),
        )
        pools.wait_scheduled(gated, name)
        path = f"/apis/resource.k8s.io/v1/namespaces/{gated}/resourceclaims/{name}"
        given = pools.get(path)["status"]["allocation"]["devices"]["results"]
        assert {(result["pool"], result["device"]) for result in given} == {(node, "gpu-0"), (node, "gpu-1")}


def test_the_guard_refuses_a_node_pools_of_other_names(pools):
    rules = [document.object for document in manifests.read([ROOT / "manifests/guards/policies.yaml"])]
    guard = [rule for rule in rules if rule["metadata"]["name"] == "drawbridge-guard-pools"]
    [own] = fleet.slices("unlisted.example.com", STOLEN, [fleet.device("one", {})], pool=STOLEN, by_name=True)
    probes = lies()
    for probe in probes:
        probe["metadata"]["name"] += "-probe"
    try:
        pools.kubectl("apply", "--server-side", "-f", "-", input=manifests.dump(guard))
        words = f"may not publish devices of node {STOLEN} in the pool"
        pools.until("the guard is in force", lambda: words in as_the_node(pools, probes[0], dry_run=True), 60)
        for probe in probes:
            assert words in as_the_node(pools, probe, dry_run=True)
        assert not as_the_node(pools, own, dry_run=True)
    finally:
        pools.remove(*guard)


@pytest.mark.parametrize("what", ["driver", "adapter"])
def test_our_drivers_token_publishes_only_the_pool_of_its_node(pools, what):
    files = [ROOT / f"manifests/{what}/{name}.yaml" for name in ("namespace", "rbac", "policy")]
    objects = [document.object for document in manifests.read(files)]
    account = f"--as=system:serviceaccount:drawbridge-{what}:drawbridge-{what}"
    who = (account, f"--as-user-extra=authentication.kubernetes.io/node-name={STOLEN}")
    [own] = fleet.slices("unlisted.example.com", STOLEN, [fleet.device("one", {})], pool=STOLEN, by_name=True)
    [lie] = fleet.slices("unlisted.example.com", STOLEN, [fleet.device("one", {})], pool=OTHERS[0], by_name=True)
    [theirs] = fleet.slices("unlisted.example.com", OTHERS[0], [fleet.device("one", {})], pool=STOLEN, by_name=True)
    words = f"the {what} may publish the pool of the node that it runs on"
    try:
        pools.kubectl("apply", "--server-side", "-f", "-", input=manifests.dump(objects))
        pools.until("its policy is in force", lambda: words in as_the_node(pools, lie, dry_run=True, who=who), 60)
        assert not as_the_node(pools, own, dry_run=True, who=who)
        assert f"the {what} may publish slices of the node" in as_the_node(pools, theirs, dry_run=True, who=who)
    finally:
        pools.remove(*reversed(objects))
