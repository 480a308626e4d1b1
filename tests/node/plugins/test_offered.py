"""Devices of plugins are published as devices of a driver.

Facts are properties of devices from the facts file or from sysfs.
"""

import re

from hypothesis import given
from hypothesis import strategies as st

from dra.objects import DeviceTaint
from node.inventory import PciDevice
from node.messages import NumaId, NumaNodes, PluginDevice
from node.plugins import Facts, FactSources, PluginState, facts_of, identify, machine_of_plugins

DRIVER = "plugins.drawbridge.dev"
UUID = "GPU-fef8089b-4820-abfc-e83e-94318197576e"


def device(id_="dev-1", health="Healthy", numa=()):
    nodes = tuple(NumaId(number=number) for number in numa)
    return PluginDevice(id=id_, health=health, topology=NumaNodes(nodes=nodes))


def machine(*devices, resource="example.com/thing", connected=True, facts=None, sysfs=None):
    plugin = PluginState(resource=resource, devices=devices, connected=connected)
    return machine_of_plugins(DRIVER, [plugin], FactSources(facts or {}, sysfs or {}))


def published_device(*args, **kwargs):
    [offered] = machine(*args, **kwargs).devices
    return offered


def string_attributes(offered):
    return {name: value.string for name, value in offered.attributes.items() if value.string is not None}


def test_a_device_has_its_resource_and_id_as_attributes():
    offered = published_device(device())
    assert offered.name == "example-com-thing-dev-1"
    assert string_attributes(offered) == {"resource": "example.com/thing", "id": "dev-1"}
    assert offered.taints == ()


def test_an_id_and_a_single_numa_node_become_attributes():
    assert string_attributes(published_device(device(UUID)))["uuid"] == UUID
    pci_device = published_device(device("0000:3b:00.0"))
    assert string_attributes(pci_device)["resource.kubernetes.io/pciBusID"] == "0000:3b:00.0"
    device_of_one_node = published_device(device(numa=[1]))
    assert device_of_one_node.attributes["resource.kubernetes.io/numaNode"].int_ == 1
    device_of_two_nodes = published_device(device(numa=[0, 1]))
    assert "resource.kubernetes.io/numaNode" not in device_of_two_nodes.attributes


def test_the_facts_file_overrides_what_the_plugin_reports():
    facts = {"dev-1": Facts(numa_node=0, pcie_root="pci0000:17", product="A100")}
    offered = published_device(device(numa=[1]), facts=facts)
    assert offered.attributes["resource.kubernetes.io/numaNode"].int_ == 0
    assert string_attributes(offered)["resource.kubernetes.io/pcieRoot"] == "pci0000:17"
    assert string_attributes(offered)["product"] == "A100"


def test_sysfs_fills_in_attributes_that_the_plugin_omits():
    sysfs_facts = facts_of([PciDevice(address="0000:3b:00.0", kind=2, root="pci0000:3a", numa_node=1)])
    offered = published_device(device("0000:3b:00.0"), sysfs=sysfs_facts)
    assert string_attributes(offered)["resource.kubernetes.io/pcieRoot"] == "pci0000:3a"
    assert offered.attributes["resource.kubernetes.io/numaNode"].int_ == 1
    device_with_address_in_file = published_device(
        device(UUID), facts={UUID: Facts(pci_bus_id="0000:3b:00.0")}, sysfs=sysfs_facts
    )
    assert string_attributes(device_with_address_in_file)["resource.kubernetes.io/pcieRoot"] == "pci0000:3a"
    device_with_numa_node = published_device(device("0000:3b:00.0", numa=[0]), sysfs=sysfs_facts)
    assert device_with_numa_node.attributes["resource.kubernetes.io/numaNode"].int_ == 0, (
        "sysfs overrides the NUMA node that the plugin reports"
    )


def test_replicas_are_devices_with_their_card_as_attribute():
    first, second = machine(device(f"{UUID}::0"), device(f"{UUID}::1")).devices
    assert {string_attributes(replica)["card"] for replica in (first, second)} == {UUID}
    assert {string_attributes(replica)["uuid"] for replica in (first, second)} == {UUID}
    assert first.name != second.name


def test_an_unhealthy_or_disconnected_plugin_device_is_tainted():
    assert published_device(device(health="Unhealthy")).taints == (
        DeviceTaint(key=f"{DRIVER}/unhealthy", effect="NoSchedule"),
    )
    assert published_device(device(health="")).taints[0].key == f"{DRIVER}/unhealthy"
    assert published_device(device(), connected=False).taints[0].key == f"{DRIVER}/disconnected"


def test_a_device_id_that_appears_twice_is_not_published():
    assert [offered.name for offered in machine(device("a"), device("a"), device("b")).devices] == [
        "example-com-thing-b"
    ]


def test_equal_ids_of_two_plugins_are_two_devices():
    plugins = [PluginState(resource=resource, devices=(device("0"),)) for resource in ("nvidia.com/gpu", "amd.com/gpu")]
    assert len(machine_of_plugins(DRIVER, plugins, FactSources()).devices) == 2


def test_devices_with_invalid_ids_are_skipped():
    assert machine(device(""), device("a" * 65), device("a\n"), device("\0")).devices == ()


LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?").fullmatch
IDS = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=64)


@given(ids=st.sets(IDS | st.from_regex(r"[A-Za-z0-9:._-]{1,64}", fullmatch=True), max_size=8))
def test_every_id_has_a_unique_name_that_identifies_it(ids):
    devices = tuple(device(id_) for id_ in sorted(ids))
    plugin = PluginState(resource="example.com/thing", devices=devices)
    node_machine = machine_of_plugins(DRIVER, [plugin], FactSources())
    identified = identify([plugin])
    assert sorted(identified[published.name][1] for published in node_machine.devices) == sorted(ids)
    assert all(LABEL(published.name) and len(published.name) <= 63 for published in node_machine.devices)
