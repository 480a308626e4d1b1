"""Shares of network devices: Koordinator's percentages become shares of bandwidth."""

import pytest

from dra import cel, wire
from dra.objects import Device
from tests.webhook.dialects.koordinator_pods import HINT, JOINT, SAME, classes_of, detail, koordinator, seen, slices_of
from tests.webhook.pods import KOORD, devices, exactly, outcomes, untouched
from webhook.state import Inventory


def test_a_share_of_a_network_device_is_left_unless_declared():
    assert untouched(koordinator({"rdma": 30}))
    done = koordinator({"rdma": 30}, config={"koordinator": {"wholeNICForShare": True}})
    assert exactly(done) == [{"class": "dranet", "count": 1}]
    assert outcomes(done)[KOORD + "rdma"] == "approximated"


def nics(*bandwidths: str, shared: bool = True, missing: int = 0) -> Inventory:
    """Return a fleet: one node with a card for each bandwidth, and `missing` cards without a bandwidth."""
    policy = {"requestPolicy": {"default": "1G", "validRange": {"min": "1G", "step": "1G"}}}
    root = {"resource.kubernetes.io/pcieRoot": {"string": "pci0000:10"}}
    cards = [{"capacity": {"bandwidth": {"value": bandwidth, **policy}}} for bandwidth in bandwidths] + [
        {} for _ in range(missing)
    ]
    devices = [
        {"name": f"card-{i}", "attributes": root, "allowMultipleAllocations": shared, **card}
        for i, card in enumerate(cards)
    ]
    gpu = {"name": "gpu", "attributes": {**root, "type": {"string": "gpu"}}}
    return seen(("dra.net", "dranet", devices), ("gpu.nvidia.com", "gpu.nvidia.com", [gpu]))


@pytest.mark.parametrize(("sharing", "translated"), [(1, False), (2, True)])
def test_a_single_node_that_shares_cards_does_not_enable_translation(sharing, translated):
    """A compromised node can publish any device. Pods that other nodes can serve would wait for its cards."""
    shared = {"allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "100G"}}}
    fleet = {f"n{i}": ("dra.net", "dranet", [{"name": "c", **(shared if i < sharing else {})}]) for i in range(3)}
    slices = [slice_ for node, published in fleet.items() for slice_ in slices_of(node, (published,))]
    done = koordinator({"rdma": 30}, fleet=Inventory.gather(classes_of(tuple(fleet.values())), slices, ()))
    assert done.changed == translated
    assert untouched(done) != translated


def test_a_network_share_becomes_a_share_of_published_bandwidth():
    done = koordinator({"rdma": 30}, fleet=nics("100G", "25G", "25G"))
    [request] = devices(done)["requests"]
    alternatives = [
        (alternative["capacity"]["requests"]["bandwidth"], alternative["selectors"][0]["cel"]["expression"])
        for alternative in request["firstAvailable"]
    ]
    assert [amount for amount, _ in alternatives] == ["7500M", "30G"]
    assert ["25000000000" in text for _, text in alternatives] == [True, False]
    assert outcomes(done)[KOORD + "rdma"] == "approximated"


def test_bandwidth_selectors_match_only_shared_cards_of_that_bandwidth():
    done = koordinator({"rdma": 30}, fleet=nics("100G", "25G"))
    [request] = devices(done)["requests"]
    texts = [alternative["selectors"][-1]["cel"]["expression"] for alternative in request["firstAvailable"]]
    picked = []
    for shared in (True, False):
        for card in ({"bandwidth": {"value": "25G"}}, {"bandwidth": {"value": "100G"}}, {}):
            device = wire.convert({"name": "d", "capacity": card, "allowMultipleAllocations": shared}, Device)
            view = cel.view_of("dra.net", device)
            picked.append([cel.compile(text).matches(view) for text in texts])
    assert picked == [[True, False], [False, True], [False, False]] + [[False, False]] * 3


def test_bandwidths_beyond_the_limit_of_alternatives_are_reported():
    """The fleet has ten bandwidths; a request has at most eight alternatives."""
    done = koordinator({"rdma": 30}, fleet=nics(*(f"{number}G" for number in range(10, 110, 10))))
    [request] = devices(done)["requests"]
    assert len(request["firstAvailable"]) == 8
    assert any("2 bandwidths are left out" in warning for warning in done.warnings)


@pytest.mark.parametrize("fleet", [nics("100G", shared=False), nics(missing=1)])
def test_a_share_without_shared_cards_of_known_bandwidth_is_left(fleet):
    assert untouched(koordinator({"rdma": 30}, fleet=fleet))


def test_a_share_with_a_vf_selector_becomes_one_virtual_function():
    done = koordinator({"rdma": 30}, hints={HINT: {"rdma": {"vfSelector": {}}}})
    assert [request["count"] for request in exactly(done)] == [1]
    assert outcomes(done)[KOORD + "rdma"] == "approximated"
    assert "one virtual function" in detail(done, KOORD + "rdma")


def test_a_share_beside_a_gpu_is_under_the_same_root():
    done = koordinator({"gpu": 100, "rdma": 50}, hints={JOINT: SAME}, fleet=nics("100G"))
    spec = devices(done)
    assert [request["name"] for request in spec["requests"]] == ["gpu-0", "nic-0"]
    assert spec["constraints"] == [
        {"requests": ["gpu-0", "nic-0"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    ]
    [share] = spec["requests"][1]["firstAvailable"]
    assert share["capacity"]["requests"] == {"bandwidth": "50G"}
