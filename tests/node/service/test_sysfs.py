"""Hardware discovered from sysfs, on a constructed tree and on this machine."""

from node.inventory import machine_of, unpublishable
from node.service import discover_devices

DRIVER = "devices.example.com"


def create_sysfs(folder, files, links=(), unbound=()):
    """Create a sysfs tree with these files and links, and links from the PCI bus to the devices.

    All PCI devices but the `unbound` ones have a kernel driver.
    """
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    bus = folder / "bus/pci/devices"
    bus.mkdir(parents=True)
    for device in sorted(folder.glob("devices/pci*/**/class")):
        (bus / device.parent.name).symlink_to(device.parent)
        if device.parent.name not in unbound:
            (device.parent / "driver").mkdir()
    for link, target in links:
        (folder / link).symlink_to(folder / target)
    return str(folder)


GPU_FOLDER = "devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"
NIC_FOLDER = "devices/pci0000:3a/0000:3a:01.0/0000:3c:00.0"
VF_FOLDER = "devices/pci0000:3a/0000:3a:01.0/0000:3c:00.2"
NUMA_FOLDER = "devices/system/node"
SYSFS_FILES = {
    f"{GPU_FOLDER}/class": "0x030200", f"{GPU_FOLDER}/vendor": "0x10de", f"{GPU_FOLDER}/device": "0x20b0", f"{GPU_FOLDER}/numa_node": "1",
    f"{GPU_FOLDER}/drm/card0/dev": "226:0", f"{GPU_FOLDER}/drm/renderD128/dev": "226:128", f"{GPU_FOLDER}/mem_info_vram_total": str(40 << 30),
    f"{NIC_FOLDER}/class": "0x020000", f"{NIC_FOLDER}/numa_node": "-1", f"{NIC_FOLDER}/net/ens1f0/speed": "100000",
    f"{NIC_FOLDER}/infiniband/mlx5_0/x": "", f"{NIC_FOLDER}/infiniband_verbs/uverbs0/x": "",
    f"{VF_FOLDER}/class": "0x020000", f"{VF_FOLDER}/net/ens1f0v0/speed": "-1",
    "devices/pci0000:00/0000:00:1f.0/class": "0x060100",
    f"{NUMA_FOLDER}/node0/cpulist": "0-3", f"{NUMA_FOLDER}/node1/cpulist": "4-7",
    f"{NUMA_FOLDER}/node1/hugepages/hugepages-2048kB/nr_hugepages": "512",
    f"{NUMA_FOLDER}/node1/hugepages/hugepages-1048576kB/nr_hugepages": "0",
}  # fmt: skip


def discover(sysfs):
    return discover_devices(sysfs, DRIVER)


def test_cards_virtual_functions_and_numa_nodes_are_discovered(tmp_path):
    inventory = discover(create_sysfs(tmp_path, SYSFS_FILES, [(f"{VF_FOLDER}/physfn", NIC_FOLDER)]))
    [gpu], [nic] = inventory.gpus, inventory.nics
    assert (gpu.name, gpu.uuid, gpu.product, str(gpu.memory)) == (
        "gpu-0000-3b-00-0",
        "0000:3b:00.0",
        "0x10de:0x20b0",
        "40Gi",
    )
    assert (gpu.place.pcie_root, gpu.place.numa_node) == ("pci0000:3a", 1)
    assert gpu.place.device_nodes == ("/dev/dri/card0", "/dev/dri/renderD128")
    assert (nic.interface, nic.rdma_device, str(nic.bandwidth)) == ("ens1f0", "mlx5_0", "100G")
    assert (nic.place.numa_node, nic.place.device_nodes) == (None, ("/dev/infiniband/uverbs0",))
    assert [
        (virtual_function.name, virtual_function.interface, virtual_function.bandwidth)
        for virtual_function in nic.virtual_functions
    ] == [("vf-0000-3c-00-2", "ens1f0v0", None)]
    assert [(numa_node.number, numa_node.cpus, numa_node.hugepages) for numa_node in inventory.numa_nodes] == [
        (0, "0-3", {}),
        (1, "4-7", {"2Mi": 512}),
    ]
    machine = machine_of(inventory)
    assert list(unpublishable(machine)) == []
    assert {device.name for device in machine.devices} == {
        "gpu-0000-3b-00-0", "vf-0000-3c-00-2", "nic-0000-3c-00-0", "cpus-numa-0", "cpus-numa-1", "hugepages-2mi-numa-1",
    }  # fmt: skip


def test_a_virtual_machines_interface_is_found_below_its_virtio_device(tmp_path):
    card = "devices/pci0000:00/0000:00:03.0"
    inventory = discover(create_sysfs(tmp_path, {f"{card}/class": "0x020000", f"{card}/virtio2/net/eth0/speed": "-1"}))
    assert [(nic.interface, nic.bandwidth) for nic in inventory.nics] == [("eth0", None)]


def test_a_sysfs_value_that_cannot_be_read_is_unknown(tmp_path):
    card = "devices/pci0000:00/0000:00:03.0"
    inventory = discover(create_sysfs(tmp_path, {f"{card}/class": "0x038000", f"{card}/numa_node": "much"}))
    [gpu] = inventory.gpus
    assert (gpu.place.numa_node, gpu.memory.nano) == (None, 0)
    assert list(unpublishable(machine_of(inventory))) == []
    assert discover(str(tmp_path / "nothing")).gpus == ()


def test_a_card_without_a_kernel_driver_is_not_offered(tmp_path):
    """After a reboot the vendor's module may be loaded later. Until then the card has no files."""
    links = [(f"{VF_FOLDER}/physfn", NIC_FOLDER)]
    inventory = discover(create_sysfs(tmp_path, SYSFS_FILES, links, unbound=("0000:3b:00.0",)))
    assert (inventory.gpus, len(inventory.nics)) == ((), 1)
    (tmp_path / GPU_FOLDER / "driver").mkdir()
    assert [gpu.name for gpu in discover(str(tmp_path)).gpus] == ["gpu-0000-3b-00-0"]


def test_the_machine_of_the_tests_can_be_published():
    machine = machine_of(discover("/sys"))
    assert list(unpublishable(machine)) == []
