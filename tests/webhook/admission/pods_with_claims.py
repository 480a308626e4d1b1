"""Pods with claims of their own, and clusters in which some nodes have device plugins."""

import msgspec

from dra import wire
from dra.objects import ResourceClaimSpec, claim_spec
from dra.objects.node import Node
from tests.webhook.admission.reviews import CLASS, ENFORCE, GPU, NODE, SLICE, gpu_pod, review, state
from webhook.admission import review as admission
from webhook.state.inventory import Inventory

TOO_MANY = gpu_pod(limits={"nvidia.com/gpu": "16"})


def review_outcome(obj, world=ENFORCE, **kwargs):
    """Return the outcome of the mutating review of a pod."""
    return admission.decide_review("mutate", review(obj), world, **kwargs)


# Pods with claims of their own


def pod_with_claims(*entries, limits=None, **metadata):
    item = gpu_pod(limits=limits or {}, **metadata)
    item["spec"]["resourceClaims"] = [{"name": f"own-{number}"} | entry for number, entry in enumerate(entries)]
    return item


def claim_spec_for(count):
    request = {"name": "r", "exactly": {"deviceClassName": GPU, "allocationMode": "ExactCount", "count": count}}
    return {"devices": {"requests": [request]}}


def template_of(count):
    """Return the claim spec of a template for `count` devices, as the webhook's state has it."""
    return claim_spec(wire.convert(claim_spec_for(count), ResourceClaimSpec))


BY_TEMPLATE = {"resourceClaimTemplateName": "t"}


def state_with_template(count, mode="enforce"):
    return state(mode=mode, templates={("ns", "t"): template_of(count)})


def state_with_plugin_node():
    """Return a state with slices of the nodes n, m and o, and the node `old` with device plugins."""
    labelled_node = {"metadata": {"name": "old", "labels": {"of": "old"}}}
    amounts = {"nvidia.com/gpu": "16", "rdma/hca": "1"}
    old = wire.convert(labelled_node | {"status": {"allocatable": amounts}}, Node)
    mixed = msgspec.structs.replace(
        ENFORCE, fleet=Inventory.gather([CLASS], [SLICE, *map(slice_of, ("m", "o"))], [NODE, old])
    )
    return msgspec.structs.replace(mixed, stock=mixed.stock.with_all([old]))


def slice_of(node):
    """Return SLICE as a slice of another node."""
    spec = msgspec.structs.replace(SLICE.spec, node_name=node, pool=msgspec.structs.replace(SLICE.spec.pool, name=node))
    metadata = msgspec.structs.replace(SLICE.metadata, name=f"s-{node}")
    return msgspec.structs.replace(SLICE, metadata=metadata, spec=spec)


def workload_outcome(obj, world):
    """Return the outcome of the validating review of a Job whose pods have the spec of this pod."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"metadata": {}, "spec": obj["spec"]}},
    }
    return admission.decide_review("validate", review(job, resource="jobs", group="batch"), world)
