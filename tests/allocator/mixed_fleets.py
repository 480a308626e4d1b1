"""Fleets of several nodes, assembled from generated cases."""

import copy

from dra.objects.claim import DeviceClass, ResourceClaim
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from dra.server import EVERYTHING
from dra.stock.stock import Stock
from dra.wire import convert
from tests.allocator.generate import case_of


def move_to_node(case, node):
    """Return a case with the devices of node n0 moved to another node: slices, their pools and allocated claims get names of that node."""
    case = copy.deepcopy(case)
    pool_names_of_node = {slice_["spec"]["pool"]["name"] for slice_ in case["slices"] if slice_["spec"].get("nodeName")}
    for slice_ in case["slices"]:
        spec = slice_["spec"]
        slice_["metadata"]["name"] += f"-{node}"
        if spec.get("nodeName") == "n0":
            spec["nodeName"] = node
        if spec["pool"]["name"] in pool_names_of_node:
            spec["pool"]["name"] += f"-{node}"
    for claim in case["allocatedClaims"]:
        claim["metadata"]["name"] += f"-{node}"
        for result in claim["status"]["allocation"]["devices"]["results"]:
            if result["pool"] in pool_names_of_node:
                result["pool"] += f"-{node}"
    return case


def assemble_fleet(family, seed, rng, server=EVERYTHING):
    """Return the stock (all objects that the allocator reads) of a fleet, and claims.

    The fleet has six nodes from one to three different cases, so some nodes are equal. The claims are those of the first case.
    """
    cases = [case_of(family, seed + n) for n in range(rng.choice((1, 2, 3)))]
    parts = [move_to_node(rng.choice(cases), f"n{n}") for n in range(6)]
    nodes = [
        {**part["node"], "metadata": {**part["node"]["metadata"], "name": f"n{n}"}} for n, part in enumerate(parts)
    ]
    stock = Stock.of(
        nodes=[convert(node, Node) for node in nodes],
        slices=[convert(slice_, ResourceSlice) for part in parts for slice_ in part["slices"]],
        classes=[convert(class_, DeviceClass) for class_ in cases[0]["classes"]],
        claims=[convert(claim, ResourceClaim) for part in parts for claim in part["allocatedClaims"]],
        server=server,
    )
    return stock, [convert(claim, ResourceClaim) for claim in cases[0]["claims"]]
