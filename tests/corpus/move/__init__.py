"""Small cases of clusters during a migration: the outcome for a pod or an object, and required words of the messages.

Each module of this folder is a kind of case, with a table `CASES`; new modules are found automatically. `tests/cli/test_moves.py` runs
all of them, and `python -m tests.corpus.move` counts the verdicts: right, wrong, or silent where a message is missing.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

import msgspec

from analysis.configuration import ConfigurationInForce
from analysis.loading import Reading, reading_of, state_of
from tests.webhook.pods import configured, pod
from webhook.admission import decide_object
from webhook.state import Features, State
from webhook.translate import Verdict

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
DRIVER = "gpu.nvidia.com"


class Case(NamedTuple):
    """One case: the object `given` in a cluster with the objects `around`. The messages contain `says`, and do not contain `never`."""

    name: str
    given: Object
    becomes: str  # translated, left, unknown, refused or silent
    says: str | tuple[str, ...] = ()
    around: Sequence[Object] = ()
    configuration: Mapping[str, Any] = {}
    never: str = ""
    minor: int = 37


def world(case: Case) -> Reading:
    """Return the reading of a case, as a command reads it from files."""
    in_force = ConfigurationInForce(configured(**case.configuration))
    return reading_of((*case.around, case.given), Features(minor=case.minor), in_force=in_force, pods=False)


def state(case: Case) -> State:
    """Return the webhook's state for a case, as every command builds it from files."""
    reading = world(case)
    known = state_of(reading, reading.configuration)
    if known.fleet.known:
        return known
    return msgspec.structs.replace(known, fleet=msgspec.structs.replace(known.fleet, assumes=True))


def decide(case: Case) -> Verdict:
    """Decide about the object of a case."""
    return decide_object(case.given, state(case), rewrite_unknown=True)


def judge(case: Case) -> tuple[str, str]:
    """Return the outcome for the object of a case, and the messages about it."""
    done = decide(case)
    outcomes = {decision.outcome.value for decision in done.decisions}
    outcome = "silent"
    if done.refusals:
        outcome = "refused"
    elif done.operations:
        outcome = "translated"
    elif "unknown" in outcomes:
        outcome = "unknown"
    elif outcomes or done.warnings:
        outcome = "left"
    words = [f"{decision.key}: {decision.detail} {decision.basis} {decision.remedy}" for decision in done.decisions]
    return outcome, "\n".join([*words, *done.warnings, *map(str, done.refusals)])


def verdict(case: Case) -> str:
    """Return right, wrong or silent. Silent: there is no outcome, or the outcome is right and the messages are not."""
    outcome, said = judge(case)
    wanted = (case.says,) if isinstance(case.says, str) else case.says
    if outcome == case.becomes and all(text in said for text in wanted) and not (case.never and case.never in said):
        return "right"
    return "silent" if outcome == "silent" or (outcome == case.becomes and wanted) else "wrong"


def tables() -> dict[str, tuple[Case, ...]]:
    """Return all cases, by the name of their module."""
    return {
        iter_module.name: tuple(import_module(f"{__name__}.{iter_module.name}").CASES)
        for iter_module in iter_modules(__path__)
        if iter_module.name != "__main__"
    }


# Builders of objects


def asking(amount: int = 1, key: str = GPU, **spec: Any) -> Object:
    """Return a pod that requests devices under one key, or none if `amount` is 0."""
    return {"apiVersion": "v1", "kind": "Pod", **pod({key: amount} if amount else {}, **spec)}


def node(name: str, labels: Mapping[str, str] | None = None, **allocatable: int) -> Object:
    """Return a node; `gpu=8` is the number of GPUs that a device plugin offers."""
    handed = {GPU if key == "gpu" else key: str(amount) for key, amount in allocatable.items()}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": handed}}


def publishing(name: str, count: int = 8, driver: str = DRIVER) -> Object:
    """Return the slice of a migrated node."""
    attributes = {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA A100-SXM4-40GB"}}
    devices = [
        {"name": f"gpu-{i}", "attributes": attributes, "capacity": {"memory": {"value": "40Gi"}}} for i in range(count)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-{driver}"},
        "spec": {"driver": driver, "nodeName": name, "pool": pool, "devices": devices},
    }


def device_class(name: str = DRIVER, extended: str = "") -> Object:
    """Return the class of whole GPUs."""
    text = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    spec: Object = {"selectors": [{"cel": {"expression": text}}]}
    if extended:
        spec["extendedResourceName"] = extended
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def moved(*names: str, extended: str = "", labels: Mapping[str, str] | None = None) -> tuple[Object, ...]:
    """Return a class, and migrated nodes that publish devices of this class."""
    return (
        device_class(extended=extended),
        *(one for name in names for one in (node(name, labels), publishing(name))),
    )
