"""Network devices that the stock scheduler allocates: pools by the ConfigMap of their device plugin, and rails by subnet."""

import json

import pytest
import yaml

from e2e.actors.webhook import CONFIGURATION, ROOT, claims_of, known, results_of, untouched
from e2e.actors.workloads import container, limits, pod
from tests.cli.test_network_pools import DRIVER, PLUGIN_CONFIG_MAPS, RDMA_KEY, VF_KEY

pytestmark = pytest.mark.real

EXAMPLES = ROOT / "manifests/examples"
SUBNETS = EXAMPLES / "rules/subnets"
PREFIX = "networks-"
# Nodes of the example fleets, by the names that they have here.
NODES = {"edge-1": f"{PREFIX}0", "h100-1": f"{PREFIX}1", "vm-1": f"{PREFIX}2"}
FLEETS = (EXAMPLES / f"drivers/{DRIVER}.yaml", EXAMPLES / "drivers/dra.net.yaml", SUBNETS / "fleet.yaml")
# The resource of a pool, its amount, the devices that its plugin would choose from, and their number.
POOLS = {
    VF_KEY: (2, 2, {"0000-08-00-4", "0000-08-00-5"}),
    RDMA_KEY: (1, 1, {"pci-0000-3a-00-0", "pci-0000-4a-00-0"}),
}


@pytest.fixture(scope="module")
def networks(control_plane, webhook):
    """Nodes with virtual functions, RDMA devices and rails, as their drivers publish them."""
    made = {}
    for path in FLEETS:
        for obj in yaml.safe_load_all(path.read_text()):
            spec = obj.get("spec", {})
            if obj["kind"] == "ResourceSlice" and spec["nodeName"] in NODES:
                node = NODES[spec["nodeName"]]
                obj["spec"] = {**spec, "nodeName": node, "pool": {**spec["pool"], "name": node}}
            elif obj["kind"] != "DeviceClass":
                continue
            made.setdefault((obj["kind"], obj["metadata"]["name"]), obj)
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in NODES.values()]
    try:
        control_plane.add_fake_nodes(len(NODES), prefix=PREFIX)
        control_plane.create(*made.values())
        webhook.reads_on(NODES["vm-1"])
        yield
    finally:
        control_plane.remove(*made.values(), *nodes)


@pytest.fixture
def configured(webhook, networks):
    """A function that puts a configuration in force; the previous one is restored."""

    def configure(text):
        webhook.follow(text)
        webhook.register(f"--config={webhook.config}")

    try:
        yield configure
    finally:
        webhook.follow(CONFIGURATION)
        webhook.register()


def asking(name, namespace, **amounts):
    return pod(name, namespace, container(**limits(**amounts)))


def devices_of(cluster, namespace, name):
    cluster.wait_scheduled(namespace, name)
    claims = claims_of(cluster, namespace, name).values()
    return [(result["pool"], result["device"]) for claim in claims for result in results_of(claim)]


def declared(webhook, folder, *pods):
    """The configuration that `survey` prints for the pools of these pods, from a dump with the ConfigMaps of their plugins."""
    dump = folder / "dump.yaml"
    dump.write_text(yaml.safe_dump_all([*PLUGIN_CONFIG_MAPS, *pods]))
    output = webhook.drawbridge("survey", "-f", str(dump), "-o", "json", "--fail-on=never")
    return json.loads(output)["network"]["configuration"] + "mode: enforce\n"


@pytest.mark.parametrize("key", POOLS)
def test_pods_of_a_pool_get_devices_selected_by_its_configmap(control_plane, webhook, gated, configured, key):
    count, most, devices = POOLS[key]
    asks = untouched(control_plane, asking("pool", gated, **{key: count}))
    configured(declared(webhook, control_plane.run.data, asks))
    control_plane.create(known(control_plane, asks))
    given = devices_of(control_plane, gated, "pool")
    assert len(given) == most
    assert set(given) <= {(NODES["edge-1" if key == VF_KEY else "h100-1"], device) for device in devices}


def test_a_pool_is_exhausted_when_its_selected_devices_are_allocated(control_plane, webhook, gated, configured):
    configured(declared(webhook, control_plane.run.data, asking("pool", gated, **{RDMA_KEY: 1})))
    names = ["one", "two"]
    for name in names:
        control_plane.create(known(control_plane, asking(name, gated, **{RDMA_KEY: 1})))
    given = [device for name in names for device in devices_of(control_plane, gated, name)]
    assert sorted(given) == [(NODES["h100-1"], device) for device in sorted(POOLS[RDMA_KEY][2])]
    control_plane.create(known(control_plane, asking("three", gated, **{RDMA_KEY: 1})))
    control_plane.wait_unschedulable(gated, "three")


@pytest.mark.parametrize("rail", [0, 1])
def test_a_rail_is_its_subnets_device_near_the_gpu(control_plane, gated, configured, rail):
    configured((SUBNETS / "rules.yaml").read_text() + "mode: enforce\n")
    item = yaml.safe_load((SUBNETS / "pod.yaml").read_text())
    item["metadata"]["namespace"] = gated
    amounts = item["spec"]["containers"][0]["resources"]["limits"]
    amounts[f"example.com/rail{rail}"] = amounts.pop("example.com/rail1")
    control_plane.create(known(control_plane, item))
    given = devices_of(control_plane, gated, item["metadata"]["name"])
    assert sorted(given) == [(NODES["vm-1"], f"eth{rail + 1}"), (NODES["vm-1"], f"gpu-{rail}")]
