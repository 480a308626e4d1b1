"""Pods, fleets and templates of simulations, and a simulation of them."""

from allocator.decisions import Decider
from allocator.simulation.snapshot import Snapshot, simulate
from allocator.strategies import read_placement
from tests.allocator.fleets import fleet, gpu
from tests.objects import claim_entries, claim_template, exactly, pod, template_entries, typed


def pending_pod(name, *claims, templates=(), phase="Pending", **fields):
    """Return a pod with these claims, and with claims of these templates."""
    entries = claim_entries(*claims) + template_entries(*templates)
    return typed(pod(name, phase=phase, **{"resourceClaims": entries} | fields))


def pod_requesting(name, amounts, **fields):
    return pending_pod(name, requests=amounts, **fields)


def run(stock, *pods, claims=(), templates=(), strategy="first-fit"):
    snapshot = Snapshot(stock.with_all(claims), pods, tuple(templates))
    return simulate(snapshot, Decider(), read_placement(strategy))


def places(simulated):
    """Return by pod: the node and the device names that the simulation gave to the pod."""
    return {
        outcome.pod.removeprefix("default/"): (outcome.node, [d.split("/")[2] for d in outcome.devices])
        for outcome in simulated.pods
    }


ONE_GPU_FLEET = fleet({"n0": (gpu("gpu-0"),)})
TWO_NODE_FLEET = fleet({"n0": (gpu("gpu-0"),), "n1": (gpu("gpu-0"), gpu("gpu-1"))})
ONE_GPU_TEMPLATE, TWO_GPUS_TEMPLATE = (
    typed(claim_template("single", exactly("gpu"))),
    typed(claim_template("double", exactly("gpu", count=2))),
)
