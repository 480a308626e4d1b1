"""What the credentials of one node can do to the others' pods: slices of that node that say what they like of any pool.

The webhook translates as before; kube-scheduler gives the devices of the other nodes as before; and the guard refuses such slices.
"""

import pytest

from cluster import manifests
from e2e.actors import fleet
from e2e.actors.webhook import ROOT
from e2e.actors.workloads import claim, container, limits, pod, request, using

pytestmark = pytest.mark.real
STOLEN, *OTHERS = NODES = [f"stolen-{number}" for number in range(4)]
KUBELET = ("--as", f"system:node:{STOLEN}", "--as-group", "system:nodes", "--as-group", "system:authenticated")
GENERATION = 2**62
DEVICES = {fleet.NVIDIA: fleet.whole_gpus(2), fleet.HAMI: fleet.hami_gpus(2)}
ASKED = {
    "whole": {"nvidia.com/gpu": 1},
    "half": {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50},
    "memory": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000},
}


def lies():
    """Slices of the stolen node in the pools of the others: no device, one, and two that are smaller."""
    small = fleet.hami_gpus(2, memory="1Gi")
    made = []
    for driver in DEVICES:
        for at, other in enumerate(OTHERS):
            [one] = fleet.slices(driver, STOLEN, small[:at] if driver == fleet.HAMI else [], pool=other, by_name=True)
            one["metadata"]["name"] = f"lie-{driver}-{other}"
            one["spec"]["pool"] |= {"generation": GENERATION, "resourceSliceCount": 1}
            made.append(one)
    return made


def as_the_node(cluster, *items, dry_run=False, who=KUBELET):
    """Create objects with the rights of the stolen node's kubelet, or of others on it; what is said if that is refused."""
    tried = ("--dry-run=server",) if dry_run else ()
    done = cluster.kubectl("create", *who, *tried, "-f", "-", input=manifests.dump(items), check=False)
    return done.stdout + done.stderr if done.returncode else ""


@pytest.fixture(scope="module")
def pools(control_plane, webhook):
    """Four nodes with two kinds of GPUs, each in the pool of its name."""
    made = [
        one
        for node in NODES
        for driver, devices in DEVICES.items()
        for one in fleet.slices(driver, node, devices, pool=node, by_name=True)
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
    """The templates of what pods become: their names are made of what is in them."""
    became = {}
    for name, amounts in ASKED.items():
        [stored] = cluster.create(pod(name, namespace, container(**limits(**amounts))), dryRun="All")
        became[name] = [one["resourceClaimTemplateName"] for one in stored["spec"].get("resourceClaims", [])]
    return became


def test_slices_of_one_node_in_the_pools_of_others_change_nothing_for_these(pools, webhook, gated):
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
        assert {(one["pool"], one["device"]) for one in given} == {(node, "gpu-0"), (node, "gpu-1")}


def test_the_guard_refuses_a_node_pools_of_other_names(pools):
    rules = [one.object for one in manifests.read([ROOT / "manifests/guards/policies.yaml"])]
    guard = [one for one in rules if one["metadata"]["name"] == "drawbridge-guard-pools"]
    [own] = fleet.slices("unlisted.example.com", STOLEN, [fleet.device("one", {})], pool=STOLEN, by_name=True)
    probes = lies()
    for one in probes:
        one["metadata"]["name"] += "-probe"
    try:
        pools.kubectl("apply", "--server-side", "-f", "-", input=manifests.dump(guard))
        words = f"may not publish devices of node {STOLEN} in the pool"
        pools.until("the guard is in force", lambda: words in as_the_node(pools, probes[0], dry_run=True), 60)
        for one in probes:
            assert words in as_the_node(pools, one, dry_run=True)
        assert not as_the_node(pools, own, dry_run=True)
    finally:
        pools.remove(*guard)


@pytest.mark.parametrize("what", ["driver", "adapter"])
def test_the_token_of_our_driver_publishes_the_pool_of_its_node_and_no_other(pools, what):
    files = [ROOT / f"manifests/{what}/{name}.yaml" for name in ("namespace", "rbac", "policy")]
    objects = [one.object for one in manifests.read(files)]
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
