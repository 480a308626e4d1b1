"""The hardware of a node to scale: held and free parts add up to the device, and a NIC is in the row of the GPU with the same PCIe root."""

import json
from pathlib import Path

import pytest
import yaml

from dashboard.hardware import hardware_of
from tests.cli.explain.scenes import fleet, held_claim
from tests.dashboard.elements import Elements
from tests.dashboard.test_dashboard import dashboard_session, reading_with, source_of, text_of

EXAMPLE_FOLDER = Path("manifests/examples/fleet")


def example_objects():
    return [
        obj for file in sorted(EXAMPLE_FOLDER.glob("*.yaml")) for obj in yaml.safe_load_all(file.read_text()) if obj
    ]


def claim_on_device(name, driver, pool, device):
    """Return a claim that has this device of this driver."""
    obj = held_claim(name, on=f"{pool}/{device}")
    [result] = obj["status"]["allocation"]["devices"]["results"]
    result["driver"] = driver
    return obj


def gpus_with_shares(shares):
    """Return two GPUs that claims can share, and a claim on the first GPU for each share."""
    objects = fleet(1, 2)
    for obj in objects:
        for device in obj["spec"]["devices"] if obj["kind"] == "ResourceSlice" else ():
            device |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}, "cores": {"value": "100"}}}  # fmt: skip
    return [*objects, *(held_claim(f"c{i}", on="n0/gpu-0", share=share) for i, share in enumerate(shares))]


def test_partitions_use_their_counters_and_the_rest_is_free():
    claims = [claim_on_device(f"c{i}", "gpu.nvidia.com", "slice-1", f"gpu-0-mig-1g-5gb-{i}") for i in range(2)]
    stock = reading_with(*example_objects(), *claims).stock
    used, idle = hardware_of(stock, "slice-1")
    assert (used.name, idle.name) == tuple(f"gpu.nvidia.com/slice-1/gpu-{i}-counter-set" for i in range(2))
    assert [part.claim for part in used.parts] == ["default/c0", "default/c1"]
    assert len({part.part for part in used.parts}) == 1
    assert sum(part.part for part in used.parts) + used.free == pytest.approx(1, abs=0.001)
    assert (idle.parts, idle.free) == ((), 1.0)


@pytest.mark.parametrize(
    ("shares", "parts", "free"),
    [
        ([{"memory": "10Gi", "cores": "25"}], [0.25], 0.75),
        ([{"memory": "10Gi", "cores": "25"}, {"memory": "20Gi", "cores": "0"}], [0.25, 0.25], 0.5),
        ([], [], 1.0),
    ],
)
def test_shares_use_their_part_of_the_capacities(shares, parts, free):
    first, second = hardware_of(reading_with(*gpus_with_shares(shares)).stock, "n0")
    assert ([part.part for part in first.parts], first.free) == (parts, free)
    assert all(part.shared for part in first.parts)
    assert (second.parts, second.free) == ((), 1.0)


def test_a_whole_allocation_uses_everything_and_admin_access_uses_nothing():
    admin_claim = held_claim("look", on="n0/gpu-1")
    admin_claim["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    first, second = hardware_of(reading_with(*fleet(1, 2), held_claim("c"), admin_claim).stock, "n0")
    assert ([part.part for part in first.parts], first.free) == ([1.0], 0.0)
    assert (second.parts, second.free) == ((), 1.0)


async def test_devices_of_one_pcie_root_share_a_row():
    claim = claim_on_device("c", "gpu.nvidia.com", "train-1", "gpu-0")
    async with dashboard_session(source_of(*example_objects(), claim)) as session:
        text = await text_of(session, "/nodes/train-1")
        cards = json.loads(await text_of(session, "/api/v1/nodes/train-1/hardware"))["hardware"]
        assert (await session.get("/api/v1/nodes/none/hardware")).status == 404
    [row] = [row for row in text.split("<tr>") if "PCIe root pci0000:15<" in row]
    assert "dra.net/train-1/eth0: 0% held, 100% free" in row
    assert "gpu.nvidia.com/train-1/gpu-0: 100% held, 0% free" in row
    assert "/claims/default/c" in Elements(text).targets()
    assert {card["place"] for card in cards if card["name"].endswith("-0")} == {"PCIe root pci0000:15"}
