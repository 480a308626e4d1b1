"""Small cases of clusters during a migration: the expected outcome for a pod or another object, and texts of the messages.

Each module of this folder is a kind of case, with a table `CASES`; new modules are found automatically. `tests/cli/test_moves.py` runs
all of them.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

import msgspec

from analysis.configuration import ConfigurationInForce
from analysis.loading import Reading, reading_of
from tests import objects
from tests.webhook.pods import configured, pod
from webhook.admission import decide_object
from webhook.state import Features, State
from webhook.translate import PodVerdict

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
DRIVER = "gpu.nvidia.com"


class Case(NamedTuple):
    """A case: the object `given` in a cluster that also has the `cluster_objects`. The messages contain the texts `says`, but not `never`."""

    name: str
    given: Object
    becomes: str  # translated, left (untranslated), unknown, refused, or silent (no decision and no warning)
    says: str | tuple[str, ...] = ()
    cluster_objects: Sequence[Object] = ()
    configuration: Mapping[str, Any] = {}
    never: str = ""
    minor: int = 37


def world(case: Case) -> Reading:
    """Return the reading of a case, as a command reads it from files."""
    in_force = ConfigurationInForce(configured(**case.configuration))
    return reading_of((*case.cluster_objects, case.given), Features(minor=case.minor), in_force=in_force, pods=False)


def state(case: Case) -> State:
    """Return the webhook's state for a case, as every command builds it from files."""
    webhook_state = world(case).state
    if webhook_state.fleet.known:
        return webhook_state
    return msgspec.structs.replace(webhook_state, fleet=msgspec.structs.replace(webhook_state.fleet, assumes=True))


def decide(case: Case) -> PodVerdict:
    """Decide about the object of a case."""
    return decide_object(case.given, state(case), rewrite_unknown=True)


def judge(case: Case) -> tuple[str, str]:
    """Return the outcome for the object of a case, and the messages about it."""
    decided = decide(case)
    outcomes = {decision.outcome.value for decision in decided.decisions}
    outcome = "silent"
    if decided.refusals:
        outcome = "refused"
    elif decided.operations:
        outcome = "translated"
    elif "unknown" in outcomes:
        outcome = "unknown"
    elif outcomes or decided.warnings:
        outcome = "left"
    texts = [f"{decision.key}: {decision.detail} {decision.basis} {decision.remedy}" for decision in decided.decisions]
    return outcome, "\n".join([*texts, *decided.warnings, *map(str, decided.refusals)])


def tables() -> dict[str, tuple[Case, ...]]:
    """Return all cases, by the name of their module."""
    return {module.name: tuple(import_module(f"{__name__}.{module.name}").CASES) for module in iter_modules(__path__)}


# Builders of objects


def requesting_pod(amount: int = 1, key: str = GPU, **spec: Any) -> Object:
    """Return a pod that requests devices under one key, or none if `amount` is 0."""
    return {"apiVersion": "v1", "kind": "Pod", **pod({key: amount} if amount else {}, **spec)}


def node(name: str, labels: Mapping[str, str] | None = None, **allocatable: int) -> Object:
    """Return a node; `gpu=8` is the number of GPUs that a device plugin offers."""
    quantities = {GPU if key == "gpu" else key: str(amount) for key, amount in allocatable.items()}
    return objects.node(name, allocatable=quantities, labels={"kubernetes.io/hostname": name, **(labels or {})})


def node_slice(name: str, count: int = 8, driver: str = DRIVER) -> Object:
    """Return the slice of a migrated node."""
    attributes = {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA A100-SXM4-40GB"}}
    devices = [
        {"name": f"gpu-{i}", "attributes": attributes, "capacity": {"memory": {"value": "40Gi"}}} for i in range(count)
    ]
    return objects.resource_slice(f"{name}-{driver}", *devices, driver=driver, pool=name, nodeName=name)


def device_class(name: str = DRIVER, extended: str = "") -> Object:
    """Return the class of whole GPUs."""
    text = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    return objects.device_class(name, text, **{"extendedResourceName": extended} if extended else {})


def migrated_fleet(*names: str, extended: str = "", labels: Mapping[str, str] | None = None) -> tuple[Object, ...]:
    """Return a class, and migrated nodes that publish devices of this class."""
    return (
        device_class(extended=extended),
        *(obj for name in names for obj in (node(name, labels), node_slice(name))),
    )
