"""Functions that make pods, configurations and fleets, and functions that return what the webhook decides about pods."""

from functools import cache
from pathlib import Path

import jsonpatch

from analysis.configuration import ConfigurationInForce
from analysis.loading import TypedObjects, reading_of
from cluster import manifests
from dra import cel, wire
from dra.objects.claim import DeviceClass
from dra.objects.device import Device, ResourceSlice
from dra.objects.node import Node
from webhook.state.configuration import Configuration, read_configuration
from webhook.state.features import Features
from webhook.state.inventory import Inventory
from webhook.state.state import State
from webhook.translate.translate import replay, translate
from webhook.translate.verdict import PodVerdict

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "manifests" / "examples"
SIGNING_KEY = b"a key of this test"
# The fleet of a webhook that has read no objects.
UNKNOWN = Inventory()
FEATURES = Features(minor=37)

HAMI = "hami-core-gpu.project-hami.io"
KOORD = "koordinator.sh/"
GPU_MODELS = {
    "models": [{"product": "NVIDIA A100-SXM4-40GB", "memory": "40Gi"}, {"product": "NVIDIA L40S", "memory": "46068Mi"}]
}
WHOLE_GPUS = {"meanings": {"nvidia.com/gpu": "whole"}}
# NVIDIA's DeviceClass serves nvidia.com/gpu as an extended resource. With this setting the webhook makes claims for such pods.
NVIDIA_BY_CLAIM = {"extendedResources": {"drivers": {"gpu.nvidia.com": "translate"}}}


def configured(**fields) -> Configuration:
    """Return a configuration with these fields, which must be valid."""
    value = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", **fields}
    configuration, findings = read_configuration(value)
    assert configuration is not None, findings
    return configuration


def container(name: str, limits: dict | None = None, **fields) -> dict:
    resources = {} if limits is None else {"limits": dict(limits), "requests": dict(limits)}
    return {"name": name, "image": "example", "resources": resources, **fields}


def pod(*limits: dict, init: tuple = (), annotations: dict | None = None, scheduler: str = "", **spec) -> dict:
    """Return a pod whose containers c0, c1, … have these limits; `init` are complete init containers."""
    manifest: dict = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": []}}
    if annotations:
        manifest["metadata"]["annotations"] = dict(annotations)
    if scheduler:
        manifest["spec"]["schedulerName"] = scheduler
    if init:
        manifest["spec"]["initContainers"] = list(init)
    manifest["spec"]["containers"] = [container(f"c{i}", container_limits) for i, container_limits in enumerate(limits)]
    manifest["spec"].update(spec)
    return manifest


def required_affinity(*terms: dict) -> dict:
    """Return the affinity of a pod that requires a node that matches one of these terms."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expression(key: str, operator: str, *values: str) -> dict:
    """Return a term of a node affinity with one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def refused_by_server(verdict: PodVerdict) -> bool:
    """Return whether a verdict reports that the API server itself refuses the object."""
    return any(
        decision.outcome == "refused"
        and (decision.code.startswith("D") or decision.detail.startswith("the API server refuses it"))
        for decision in verdict.decisions
    )


def verdict_of(
    manifest: dict, *, fleet: Inventory = UNKNOWN, features=None, quota=frozenset(), limit_range=frozenset(), **fields
) -> PodVerdict:
    """Translate a pod with a configuration of these fields. Unless a field says otherwise, pods that request nvidia.com/gpu get claims."""
    optional = {} if features is None else {"features": features}
    state = State(
        configuration=configured(**(NVIDIA_BY_CLAIM | fields)),
        fleet=fleet,
        quotas={"n": quota},
        limit_ranges={"n": limit_range},
        keys=(SIGNING_KEY,),
        **optional,
    )
    return translate(manifest, state, namespace="n", sign=True)


def replay_update(applied: dict, stored: dict) -> PodVerdict:
    """Replay an update of a pod of namespace n."""
    return replay(applied, stored, State(configuration=configured(), keys=(SIGNING_KEY,)), namespace="n")


def patched(manifest: dict, verdict: PodVerdict) -> dict:
    """Return the pod after the verdict's patch. The library jsonpatch applies it, independently of drawbridge's code."""
    return jsonpatch.apply_patch(manifest, [dict(operation) for operation in verdict.operations])


def containers_with_claims(manifest: dict, verdict: PodVerdict) -> list[str]:
    """Return the names of the containers that use a claim after the verdict's patch."""
    spec = patched(manifest, verdict)["spec"]
    containers = (*spec.get("initContainers", ()), *spec["containers"])
    return [container["name"] for container in containers if container["resources"].get("claims")]


def devices(verdict: PodVerdict) -> dict:
    """Return the field `devices` of the only template's claim spec."""
    assert not verdict.refusals, verdict.refusals
    (spec,) = verdict.templates.values()
    return spec["spec"]["devices"]


def exactly(verdict: PodVerdict) -> list[dict]:
    """Return the exact requests of the only template, without their names and constant parts."""
    return [strip(request["exactly"]) for request in devices(verdict)["requests"]]


def strip(request: dict) -> dict:
    """Return the class and count of a request's field `exactly`, and, if it has them, its selectors as texts and its capacity."""
    assert request["allocationMode"] == "ExactCount"
    fields = {"class": request["deviceClassName"], "count": request["count"]}
    if "selectors" in request:
        fields["cel"] = [selector["cel"]["expression"] for selector in request["selectors"]]
    if "capacity" in request:
        fields["capacity"] = request["capacity"]["requests"]
    return fields


def outcomes(verdict: PodVerdict) -> dict[str, str]:
    """The outcome of the last decision on each key."""
    return {decision.key: str(decision.outcome) for decision in verdict.decisions}


def refused(verdict: PodVerdict) -> bool:
    return bool(verdict.refusals) and not verdict.operations and not verdict.templates


def untouched(verdict: PodVerdict) -> bool:
    return not verdict.refusals and not verdict.operations and not verdict.templates


def state_of_files(documents, configuration: Configuration, features: Features = FEATURES) -> State:
    """Return the state of a webhook in a cluster with these documents; all must be readable."""
    in_force = ConfigurationInForce(configuration)
    reading = reading_of((document.object for document in documents), features, in_force=in_force, pods=False)
    assert not reading.unread
    return reading.state


def read_objects(documents) -> TypedObjects:
    """Return documents as typed objects; all must be readable."""
    objects = TypedObjects.read(document.object for document in documents)
    assert not objects.unreadable
    return objects


@cache
def example_fleet() -> Inventory:
    objects = read_objects(manifests.read([EXAMPLES / "fleet"]))
    return Inventory.gather(objects.of_type(DeviceClass), objects.of_type(ResourceSlice), objects.of_type(Node))


def alternatives(verdict: PodVerdict) -> list[list[dict]]:
    """The capacities of each request's alternatives."""
    return [
        [alternative["capacity"]["requests"] for alternative in request["firstAvailable"]]
        for request in devices(verdict)["requests"]
    ]


def share(**capacity) -> dict:
    """Return the entry in the result of `exactly` for a share of one GPU with this capacity."""
    return {"class": HAMI, "count": 1, "capacity": capacity}


def selected(verdict: PodVerdict, **attributes: str) -> bool:
    """Return whether a device with these attributes of its driver matches the selectors of the only request."""
    (request,) = exactly(verdict)
    device = wire.convert(
        {"name": "d", "attributes": {name: {"string": text} for name, text in attributes.items()}}, Device
    )
    driver = request["class"].replace("mig.", "gpu.")
    return all(cel.compile(expression).matches(cel.view_of(driver, device)) for expression in request.get("cel", []))
