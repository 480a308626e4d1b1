"""The report of shares: a row for each device of a claim and each pod for which the claim is reserved."""

from allocator.reports import shares
from allocator.reports.shares import Share
from dra.quantity import Quantity
from dra.stock import Stock
from tests.dra.samples import DRIVER, node, slice_
from tests.objects import allocated, claim, pod, typed


def claim_holding(name, *results, pods=()):
    """Return a claim that has these allocation results in pool p and is reserved for pods."""
    status = allocated(*({"request": "r", "driver": DRIVER, "pool": "p"} | result for result in results), pods=pods)
    return typed(claim(name, namespace="team", uid=name, status=status))


def share_rows_of(*claims, pods=(), devices=("d0", "d1")):
    return list(shares(Stock.of(slices=[slice_("s", *devices)], nodes=[node()], claims=claims), pods))


def test_a_share_names_pod_node_uuid_and_consumption():
    device = {"name": "d0", "attributes": {"uuid": {"string": "GPU-7"}}, "allowMultipleAllocations": True}
    share = {"device": "d0", "shareID": "s-1", "consumedCapacity": {"memory": "16Gi"}}
    [row] = share_rows_of(
        claim_holding("c", share, pods=["p"]),
        pods=[typed(pod("p", namespace="team", uid="pod-p", nodeName="n1"))],
        devices=[device],
    )
    assert row == Share("team", "p", "c", DRIVER, "p", "d0", "n1", "GPU-7", "s-1", {"memory": Quantity.parse("16Gi")})  # fmt: skip


def test_a_uuid_attribute_may_be_qualified_by_the_driver():
    device = {"name": "d0", "attributes": {f"{DRIVER}/uuid": {"string": "GPU-8"}}}
    claim_of_three = claim_holding("c", {"device": "d0"}, {"device": "d1"}, {"device": "gone"}, pods=["p"])
    assert [row.uuid for row in share_rows_of(claim_of_three, devices=[device, "d1"])] == ["GPU-8", "", ""]


def test_a_claim_has_a_row_per_pod_that_reserves_it():
    share_rows = share_rows_of(
        claim_holding("both", {"device": "d0"}, pods=["a", "b"]), claim_holding("kept", {"device": "d1"})
    )
    assert [(row.claim, row.pod) for row in share_rows] == [("both", "a"), ("both", "b"), ("kept", "")]


def test_admin_access_holds_no_device():
    assert share_rows_of(claim_holding("c", {"device": "d0", "adminAccess": True}, pods=["p"])) == []
