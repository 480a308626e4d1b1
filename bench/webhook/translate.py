"""Measures the translation of one pod at a time, in process, and the gathering of facts about a large fleet."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLEET = Path(__file__).parents[2] / "manifests" / "examples" / "fleet"
NODES = 5_000
SHARE = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
PERCENT = {"nvidia.com/gpumem-percentage": 50}
JOINT = {"scheduling.koordinator.sh/device-joint-allocate": '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'}


def rows() -> Iterator[Row]:
    """Time the translation of pods of about 5 kB, then the gathering of facts about the fleet."""
    from webhook.state import State
    from webhook.translate import translate

    state = State(fleet=large_fleet(20)(), keys=(b"k" * 32,))
    pods = {
        "shares of two GPUs": pod(SHARE),
        "a percentage over the fleet's sizes": pod(PERCENT),
        "GPU and RDMA under one switch": pod({"koordinator.sh/gpu": 200, "koordinator.sh/rdma": 200}, JOINT),
        "no devices": pod({"cpu": "2"}),
    }
    for what, value in pods.items():
        micros = cpu_micros(lambda: translate(value, state, namespace="n", sign=True))  # noqa: B023  called at once
        size = len(json.dumps(value)) / 1e3
        yield Row(what=f"translate, {what} ({size:.1f} kB)", unit="us", ours=micros, target="< 300 us", note="CPU time")
    yield new_requests()
    facts = large_fleet(NODES)
    yield facts_after_change()
    yield Row(
        what=f"facts about {NODES:,} nodes x 8 devices",
        unit="ms",
        ours=cpu_micros(facts, runs=5) / 1e3,
        note="CPU time, the first time",
    )


def new_requests() -> Row:
    """Translate pods with requests that are all different, so that no claim, template or selector comes from a cache."""
    from webhook.state import State
    from webhook.translate import translate

    state = State(fleet=large_fleet(20)(), keys=(b"k" * 32,))
    seconds = []
    for number in range(300):
        value = pod({**SHARE, "nvidia.com/gpumem": 1000 + number}, {"nvidia.com/use-gputype": f"A{number}"})
        started = time.process_time()
        translate(value, state, namespace="n", sign=True)
        seconds.append(time.process_time() - started)
    return Row(
        what="translate, a new request with a selector",
        unit="us",
        ours=statistics.median(seconds) * 1e6,
        note="CPU time; the selector is compiled to judge its cost",
    )


def facts_after_change() -> Row:
    """Time the gathering of facts about a fleet after one of its slices has changed."""
    from webhook.state.inventory import Inventory

    classes, slices, nodes = large_inventory(NODES)
    earlier = Inventory.gather(classes, slices, nodes)
    changed = [numbered_copy(slices[0], 0), *slices[1:]]
    micros = cpu_micros(lambda: Inventory.gather(classes, changed, nodes, earlier), runs=20)
    return Row(
        what=f"facts about {NODES:,} nodes after one slice changed", unit="ms", ours=micros / 1e3, note="CPU time"
    )


def pod(limits: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a typical pod of three containers; the translator ignores most of its fields."""
    env = [{"name": f"SETTING_{number}", "value": "of no importance here"} for number in range(22)]
    parts: list[dict[str, Any]] = [{"name": f"c{i}", "image": "registry.example/app:1", "env": env} for i in range(3)]
    parts[0]["resources"] = {"limits": dict(limits), "requests": dict(limits)}
    metadata = {"name": "p", "namespace": "n", "labels": {"app": "x"}, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": parts}}


def large_fleet(nodes: int) -> Callable[[], Any]:
    """Return a function that gathers the facts about a fleet of this size."""
    from webhook.state.inventory import Inventory

    inventory = large_inventory(nodes)
    return lambda: Inventory.gather(*inventory)


def large_inventory(nodes: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Return classes, slices and nodes of the example fleet, with its slices repeated for this many pools."""
    from analysis.loading import TypedObjects
    from cluster import manifests
    from dra.objects.claim import DeviceClass
    from dra.objects.device import ResourceSlice
    from dra.objects.node import Node

    objects = TypedObjects.read(document.object for document in manifests.read([FLEET]))
    single = [slice_ for slice_ in objects.of_type(ResourceSlice) if slice_.spec.pool.resource_slice_count == 1]
    slices = [numbered_copy(single[number % len(single)], number) for number in range(nodes)]
    return objects.of_type(DeviceClass), slices, objects.of_type(Node)


def numbered_copy(slice_: Any, number: int) -> Any:
    """Return a slice with eight uniquely named devices in a pool of its own: a pool with a duplicate name would be ignored."""
    spec = slice_.spec
    devices = [msgspec.structs.replace(device, name=f"gpu-{at}") for at, device in enumerate((spec.devices * 4)[:8])]
    pool = msgspec.structs.replace(spec.pool, name=f"pool-{number}")
    spec = msgspec.structs.replace(spec, pool=pool, devices=tuple(devices))
    metadata = msgspec.structs.replace(slice_.metadata, name=f"slice-{number}")
    return msgspec.structs.replace(slice_, metadata=metadata, spec=spec)


def cpu_micros(work: Callable[[], object], *, runs: int = 2_000) -> float:
    """Return the median CPU microseconds of a call. Unlike elapsed time, CPU time does not include the time of other processes."""
    work()
    seconds = []
    for _ in range(runs):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return statistics.median(seconds) * 1e6
