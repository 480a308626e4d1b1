"""Drift: claims that hold one device together, reservations for deleted pods, and devices that are no longer published."""

import pytest

from allocator.reports import Drift, drift, unserved_resources
from dra.stock import Stock
from tests import objects
from tests.allocator.reports.test_shares import claim_holding
from tests.dra.samples import DRIVER, node, slice_


def stock_of_two_devices(*claims):
    return Stock.of(slices=[slice_("s", "d0", "d1")], nodes=[node()], claims=claims)


def test_claims_that_hold_the_same_device_are_named():
    reported = drift(
        stock_of_two_devices(
            claim_holding("a", {"device": "d0"}),
            claim_holding("b", {"device": "d0"}),
            claim_holding("c", {"device": "d1"}),
        ),
        (),
    )
    assert reported == Drift(("team/a", "team/b"))


def test_only_reservations_of_vanished_pods_are_reported():
    claim_of_two_pods = claim_holding("a", {"device": "d0"}, pods=["p", "q"])
    reported = drift(stock_of_two_devices(claim_of_two_pods), {"pod-p"})
    assert reported.left_behind == ("claim team/a is reserved for pod q, which has ended or no longer exists",)


def test_a_device_that_is_not_published_any_more_is_named():
    reported = drift(stock_of_two_devices(claim_holding("a", {"device": "old"})), ())
    assert reported.left_behind == (f"claim team/a holds device {DRIVER}/p/old, which its driver no longer publishes",)  # fmt: skip


def test_only_leftovers_that_two_checks_found_are_confirmed():
    first_check, second_check = Drift((), ("x", "y"), ("p", "q")), Drift(("a",), ("y", "z"), ("q", "r"))
    assert first_check.confirmed_by(second_check) == Drift(("a",), ("y",), ("q",))


GPU, NIC = "example.com/gpu", "example.com/nic"
CLAIMED = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [{"containerName": "main", "resourceName": GPU, "requestName": "r"}]}}  # fmt: skip


@pytest.mark.parametrize(
    ("pod_fields", "node_fields", "lacking"),
    [
        ({}, {}, [GPU, NIC]),
        ({"status": CLAIMED}, {}, [NIC]),
        ({"status": CLAIMED}, {"allocatable": {NIC: "1"}}, []),
        ({}, {"allocatable": {GPU: "0", NIC: "0"}, "capacity": {GPU: "0", NIC: "1"}}, [GPU]),
        ({"nodeName": ""}, {}, []),
        ({"nodeName": "elsewhere"}, {}, []),
        ({"phase": "Succeeded"}, {}, []),
        ({"limits": {"cpu": "1", "example.com/unserved": "1", GPU: "0"}}, {}, []),
    ],
)
def test_a_bound_pod_lacks_what_neither_its_claim_nor_its_node_offers(pod_fields, node_fields, lacking):
    classes = [objects.typed(objects.device_class(key[-3:], extendedResourceName=key)) for key in (GPU, NIC)]
    stock = Stock.of(classes=classes, nodes=[objects.typed(objects.node("n0", **node_fields))])
    pod = objects.typed(objects.pod("p", **{"nodeName": "n0", "limits": {GPU: "1", NIC: "1"}} | pod_fields))
    assert unserved_resources(pod, stock) == lacking
    assert drift(stock, (), [pod]).without_devices == (("default/p",) if lacking else ())
