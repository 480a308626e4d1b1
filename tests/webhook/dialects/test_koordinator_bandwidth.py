"""Shares of network devices: Koordinator's percentages become shares of bandwidth."""

import pytest

from dra import cel, wire
from dra.objects import Device
from tests.webhook.dialects.koordinator_pods import (
    HINT,
    JOINT,
    SAME_PCIE,
    classes_of,
    details_about,
    fleet_of,
    koordinator_verdict,
    slices_of,
)
from tests.webhook.pods import KOORD, devices, exactly, outcomes, untouched
from webhook.state import Inventory


def test_an_undeclared_share_of_a_network_device_is_unchanged():
    assert untouched(koordinator_verdict({"rdma": 30}))
    verdict = koordinator_verdict({"rdma": 30}, config={"koordinator": {"wholeNICForShare": True}})
    assert exactly(verdict) == [{"class": "dranet", "count": 1}]
    assert outcomes(verdict)[KOORD + "rdma"] == "approximated"


def fleet_with_nics(*bandwidths: str, shared: bool = True, without_bandwidth: int = 0) -> Inventory:
    """Return a fleet of one node with a GPU, a card for each bandwidth, and `without_bandwidth` more cards. `shared` cards allow several allocations."""
    policy = {"requestPolicy": {"default": "1G", "validRange": {"min": "1G", "step": "1G"}}}
    root = {"resource.kubernetes.io/pcieRoot": {"string": "pci0000:10"}}
    cards = [{"capacity": {"bandwidth": {"value": bandwidth, **policy}}} for bandwidth in bandwidths] + [
        {} for _ in range(without_bandwidth)
    ]
    devices = [
        {"name": f"card-{i}", "attributes": root, "allowMultipleAllocations": shared, **card}
        for i, card in enumerate(cards)
    ]
    gpu = {"name": "gpu", "attributes": {**root, "type": {"string": "gpu"}}}
    return fleet_of(("dra.net", "dranet", devices), ("gpu.nvidia.com", "gpu.nvidia.com", [gpu]))


@pytest.mark.parametrize(("sharing_nodes", "translated"), [(1, False), (2, True)])
def test_a_share_is_translated_if_most_nodes_share_their_cards(sharing_nodes, translated):
    """A compromised node can publish any device. Pods that could run on other nodes would wait for its cards."""
    shared = {"allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "100G"}}}
    fleet = {f"n{i}": ("dra.net", "dranet", [{"name": "c", **(shared if i < sharing_nodes else {})}]) for i in range(3)}
    slices = [slice_ for node, published in fleet.items() for slice_ in slices_of(node, (published,))]
    verdict = koordinator_verdict({"rdma": 30}, fleet=Inventory.gather(classes_of(tuple(fleet.values())), slices, ()))
    assert verdict.changed == translated
    assert untouched(verdict) != translated


def test_a_network_share_becomes_a_share_of_published_bandwidth():
    verdict = koordinator_verdict({"rdma": 30}, fleet=fleet_with_nics("100G", "25G", "25G"))
    [request] = devices(verdict)["requests"]
    alternatives = [
        (alternative["capacity"]["requests"]["bandwidth"], alternative["selectors"][0]["cel"]["expression"])
        for alternative in request["firstAvailable"]
    ]
    assert [amount for amount, _ in alternatives] == ["7500M", "30G"]
    assert ["25000000000" in text for _, text in alternatives] == [True, False]
    assert outcomes(verdict)[KOORD + "rdma"] == "approximated"


def test_bandwidth_selectors_match_only_shared_cards_of_that_bandwidth():
    verdict = koordinator_verdict({"rdma": 30}, fleet=fleet_with_nics("100G", "25G"))
    [request] = devices(verdict)["requests"]
    texts = [alternative["selectors"][-1]["cel"]["expression"] for alternative in request["firstAvailable"]]
    matches = []
    for shared in (True, False):
        for card in ({"bandwidth": {"value": "25G"}}, {"bandwidth": {"value": "100G"}}, {}):
            device = wire.convert({"name": "d", "capacity": card, "allowMultipleAllocations": shared}, Device)
            view = cel.view_of("dra.net", device)
            matches.append([cel.compile(text).matches(view) for text in texts])
    assert matches == [[True, False], [False, True], [False, False]] + [[False, False]] * 3


def test_bandwidths_beyond_the_limit_of_alternatives_are_reported():
    """The fleet has ten bandwidths; a request has at most eight alternatives."""
    verdict = koordinator_verdict({"rdma": 30}, fleet=fleet_with_nics(*(f"{number}G" for number in range(10, 110, 10))))
    [request] = devices(verdict)["requests"]
    assert len(request["firstAvailable"]) == 8
    assert any("2 bandwidths are left out" in warning for warning in verdict.warnings)


@pytest.mark.parametrize("fleet", [fleet_with_nics("100G", shared=False), fleet_with_nics(without_bandwidth=1)])
def test_a_share_needs_shared_cards_of_known_bandwidth(fleet):
    assert untouched(koordinator_verdict({"rdma": 30}, fleet=fleet))


def test_a_share_with_a_vf_selector_becomes_one_virtual_function():
    verdict = koordinator_verdict({"rdma": 30}, hints={HINT: {"rdma": {"vfSelector": {}}}})
    assert [request["count"] for request in exactly(verdict)] == [1]
    assert outcomes(verdict)[KOORD + "rdma"] == "approximated"
    assert "one virtual function" in details_about(verdict, KOORD + "rdma")


def test_a_network_share_has_its_gpus_pcie_root():
    verdict = koordinator_verdict({"gpu": 100, "rdma": 50}, hints={JOINT: SAME_PCIE}, fleet=fleet_with_nics("100G"))
    spec = devices(verdict)
    assert [request["name"] for request in spec["requests"]] == ["gpu-0", "nic-0"]
    assert spec["constraints"] == [
        {"requests": ["gpu-0", "nic-0"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    ]
    [share] = spec["requests"][1]["firstAvailable"]
    assert share["capacity"]["requests"] == {"bandwidth": "50G"}
