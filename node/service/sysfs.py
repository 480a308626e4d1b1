"""Reads a machine's devices from sysfs. Unreadable or invalid files are skipped."""

from __future__ import annotations

import re
from pathlib import Path

from node.inventory import DeviceInventory, PciDevice, SysfsNumaNode, discovered

_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}").fullmatch
_NODE = re.compile(r"node(\d+)").fullmatch
_PAGES = re.compile(r"hugepages-(\d+)kB").fullmatch


def discover_devices(sysfs: str, driver: str) -> DeviceInventory:
    return discovered(driver, pci_devices(sysfs), numa_nodes(sysfs))


def pci_devices(sysfs: str) -> list[PciDevice]:
    devices: list[PciDevice] = []
    for path in _folders(Path(sysfs, "bus/pci/devices")):
        numa_node = _number(path / "numa_node", -1)
        # In a virtual machine, interfaces are below the virtio device.
        interface_folder = next(iter(sorted(path.glob("virtio*/net"))), path / "net")
        physical_function = path / "physfn"
        interface = _first(interface_folder)
        files = [f"/dev/dri/{name}" for name in _names(path / "drm") if name.startswith(("card", "renderD"))]
        files += [f"/dev/infiniband/{name}" for name in _names(path / "infiniband_verbs")]
        roots = [part for part in path.resolve().parts if _ROOT(part)]
        device = PciDevice(
            address=path.name,
            kind=_number(path / "class") >> 16,
            is_bound=(path / "driver").exists(),
            name=f"{_text(path / 'vendor')}:{_text(path / 'device')}".strip(":"),
            root=roots[0] if roots else "",
            numa_node=numa_node if numa_node >= 0 else None,
            memory=_number(path / "mem_info_vram_total"),
            files=tuple(files),
            interface=interface,
            rdma_device=_first(path / "infiniband"),
            megabits=_number(interface_folder / interface / "speed") if interface else 0,
            parent=physical_function.resolve().name if physical_function.exists() else "",
        )
        devices.append(device)
    return devices


def numa_nodes(sysfs: str) -> list[SysfsNumaNode]:
    nodes: list[SysfsNumaNode] = []
    for path in _folders(Path(sysfs, "devices/system/node")):
        match = _NODE(path.name)
        if match is None:
            continue
        pages: dict[int, int] = {}
        for folder in _folders(path / "hugepages"):
            size = _PAGES(folder.name)
            if size is not None:
                pages[int(size[1])] = _number(folder / "nr_hugepages")
        node = SysfsNumaNode(number=int(match[1]), cpus=_text(path / "cpulist"), pages=pages)
        nodes.append(node)
    return sorted(nodes, key=lambda node: node.number)


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _names(path: Path) -> list[str]:
    return [folder.name for folder in _folders(path)]


def _first(path: Path) -> str:
    return next(iter(_names(path)), "")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path, otherwise: int = 0) -> int:
    try:
        return int(_text(path), 0)
    except ValueError:
        return otherwise
