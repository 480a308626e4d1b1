"""Measures how pods with claims are scheduled, from creation to binding, in two ways: by kube-scheduler alone, and by our scheduler.

Both ways use one real control plane, in alternating rounds. Nodes and devices exist only as objects of the API. Only the programs of the
measured way run, because an idle scheduler also reads every event. Schedulers have the configuration of manifests/bridge, and the
client of kube-scheduler has the same rate limits. Feature gates have Kubernetes' defaults. Claims are created from a template.

A busy machine changes the rates more than the CPU time of a pod, so both are reported. The CPU time that programs use at rest is subtracted.

    python -m bench.allocator.scheduling [--nodes 500] [--pods 400] [--taken 0] [--rounds 2] [WAY ...]

`--taken` is how many of each node's eight devices are held from the beginning: 0 for an empty fleet, 7 for one that is nearly full.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import ssl
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from bench.row import Row
from bench.webhook.throughput import CONTROLLERS, REST_SECONDS, SERVER, STORE, seconds_of, settle
from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER, Bridge, scheduler_configuration
from e2e.actors.client import ApiError
from e2e.actors.workloads import claim, pod, request, template, using_template
from e2e.ground.controlplane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from e2e.actors.client import Object
    from e2e.ground.process import Process

NAMESPACE = "scheduling"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
DRIVER = "scheduling.example.com"
CLASS = "scheduling-gpu"
HELD = "held"  # the namespace of the claims that hold devices from the beginning
TEMPLATE = "one"
DEVICES = 8
CREATORS = 8
WARM_UP_PODS = 8
PATIENCE = 180.0
IN_TREE, OURS = "in-tree", "ours"
SCHEDULER_NAMES = {IN_TREE: "default-scheduler", OURS: SCHEDULER}
WRITES = re.compile(
    r"""(?mx)^apiserver_request_total\{ (?= [^}]* code="2) (?:
        (?= [^}]* resource="resourceclaims") (?= [^}]* verb="(?:PUT|PATCH)")
      | (?= [^}]* resource="pods") (?= [^}]* subresource="binding") (?= [^}]* verb="POST")
    ) [^}]* \} \s (\S+)$"""
)
# Writes to pods: the node that a scheduler nominates before it binds, and conditions of waiting pods.
POD_WRITES = re.compile(
    r"""(?mx)^apiserver_request_total\{ (?= [^}]* code="2)
        (?= [^}]* resource="pods") (?= [^}]* verb="(?:PUT|PATCH)") [^}]* \} \s (\S+)$"""
)
SCHEDULER_PROGRAM, ALLOCATOR_PROGRAM = "scheduler", "allocator"


class Scale(NamedTuple):
    """The size of a run."""

    nodes: int = 500
    pods: int = 400
    taken: int = 0  # devices of each node that are held from the beginning
    rounds: int = 2


class Run(NamedTuple):
    """The figures of one run."""

    rate: float  # pods a second, from the first creation to the last binding
    median_wait: float  # the median of the seconds from creation to binding
    p99_wait: float  # the 99th percentile of these seconds
    millis: Mapping[str, float]  # CPU milliseconds of each program for one pod
    writes: float  # writes to existing claims, and bindings, for one pod
    pod_writes: float  # writes to a pod, without bindings


class Metadata(msgspec.Struct):
    name: str
    version: str = msgspec.field(name="resourceVersion")


class Spec(msgspec.Struct):
    node: str = msgspec.field(default="", name="nodeName")


class Pod(msgspec.Struct):
    metadata: Metadata
    spec: Spec


class Event(msgspec.Struct):
    """The parts of a watch event that show the node of a pod."""

    object: Pod


# What `make bench` prints


def rows() -> Iterator[Row]:
    """Yield the figures of our scheduler beside the in-tree scheduler."""
    runs = {way: median_run(way_runs) for way, way_runs in measure_alternately(Scale()).items()}
    theirs, ours = runs[IN_TREE], runs[OURS]
    yield Row(
        what="pods with claims scheduled",
        unit="ms",
        ours=1000 / ours.rate,
        peer="kube-scheduler",
        theirs=1000 / theirs.rate,
        target="2x",
        note=f"a pod; {line_of(ours)}; kube-scheduler {line_of(theirs)}",
    )


def main() -> None:
    """Print the median figures of each way, and the rate of each round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=Scale().nodes)
    parser.add_argument("--pods", type=int, default=Scale().pods)
    parser.add_argument("--taken", type=int, default=Scale().taken, choices=range(DEVICES))
    parser.add_argument("--rounds", type=int, default=Scale().rounds)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"some of {', '.join(SCHEDULER_NAMES)}; default: all")
    arguments = parser.parse_args()
    ways = arguments.ways or list(SCHEDULER_NAMES)
    if unknown := set(ways) - SCHEDULER_NAMES.keys():
        parser.error(f"unknown way {', '.join(sorted(unknown))}; ways: {', '.join(SCHEDULER_NAMES)}")
    scale = Scale(arguments.nodes, arguments.pods, arguments.taken, arguments.rounds)
    free_devices = scale.nodes * (DEVICES - scale.taken)
    if scale.pods + WARM_UP_PODS > free_devices:
        parser.error(
            f"{scale.pods} pods, and {WARM_UP_PODS} pods to warm up, need more than the {free_devices} free devices"
        )
    print(f"{scale}, load {machine_load()}")
    runs = measure_alternately(scale, ways)
    for way, way_runs in runs.items():
        print(f"{way:20} {line_of(median_run(way_runs))}; rates {' '.join(f'{run.rate:.0f}' for run in way_runs)}")
    print(f"load {machine_load()}")


def line_of(run: Run) -> str:
    spent_on = ", ".join(f"{name} {millis:.1f}" for name, millis in run.millis.items())
    times = f"{run.rate:.0f}/s, bound after {run.median_wait:.1f} s (p99 {run.p99_wait:.1f} s)"
    return f"{times}, per pod {run.writes:.2f} writes to claims and bindings, {run.pod_writes:.2f} writes to the pod; CPU ms per pod: {spent_on}"


def machine_load() -> str:
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def median_run(runs: Sequence[Run]) -> Run:
    """Return the median of each figure."""
    millis = {name: statistics.median(run.millis[name] for run in runs) for name in runs[0].millis}
    rate, median_wait, p99_wait = (
        statistics.median(figures) for figures in zip(*(run[:3] for run in runs), strict=True)
    )
    writes = statistics.median(run.writes for run in runs)
    pod_writes = statistics.median(run.pod_writes for run in runs)
    return Run(rate, median_wait, p99_wait, millis, writes, pod_writes)


# The rounds


def measure_alternately(scale: Scale, ways: Iterable[str] = SCHEDULER_NAMES) -> dict[str, list[Run]]:
    """Measure both ways in each round. Every second round has the reverse order, so that a change of the machine's speed affects both."""
    runs_by_way: dict[str, list[Run]] = {way: [] for way in ways}
    with ControlPlane(name="bench-scheduling", feature_gates={}) as cluster:
        scheduling_cluster = SchedulingCluster(cluster, scale)
        try:
            for round_number in range(scale.rounds):
                for way in runs_by_way if round_number % 2 == 0 else reversed(runs_by_way):
                    runs_by_way[way].append(scheduling_cluster.run(way))
        finally:
            scheduling_cluster.bridge.remove()
    return runs_by_way


class SchedulingCluster:
    """A control plane with a fleet, on which one way at a time schedules."""

    def __init__(self, cluster: ControlPlane, scale: Scale) -> None:
        self.cluster = cluster
        self.scale = scale
        self.pods = 0  # created so far, so that each name is new
        self.bridge = Bridge(cluster)
        cluster.scheduler.stop()
        self.bridge.prepare()
        cluster.namespace(NAMESPACE)
        cluster.create(fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"))
        cluster.create(template(TEMPLATE, NAMESPACE, request("gpu", CLASS)))
        self.nodes = nodes = cluster.add_fake_nodes(scale.nodes, prefix="node-")
        cluster.create_many(slice_ for node in nodes for slice_ in devices_of(node))
        if scale.taken:
            cluster.namespace(HELD)
            with ThreadPoolExecutor(CREATORS) as threads:
                list(threads.map(self.allocate_held_claim, nodes))

    def allocate_held_claim(self, node: str) -> None:
        """Allocate devices of a node to a claim that stays until the end."""
        device_request = request("gpu", CLASS, self.scale.taken)
        [created] = self.cluster.create(claim(f"on-{node}", HELD, device_request))
        names = [f"gpu-{at}" for at in range(self.scale.taken)]
        results = [{"request": "gpu", "driver": DRIVER, "pool": f"{node}-fleet", "device": name} for name in names]
        path = f"{self.cluster.path_of(created)}/status"
        self.cluster.patch(path, {"status": {"allocation": {"devices": {"results": results}}}})

    def run(self, way: str) -> Run:
        """Create a burst of pods for one way, measure it, and clean up."""
        programs = self.start_programs(way)
        processes = [*programs[SCHEDULER_PROGRAM], *programs[ALLOCATOR_PROGRAM]]
        try:
            self.schedule(self.make_pods(way, WARM_UP_PODS), processes)
            pods = self.make_pods(way, self.scale.pods)
            settle(self.cluster)
            rest = seconds_of(programs)
            time.sleep(REST_SECONDS)
            before = seconds_of(programs)
            writes_before = self.count_writes()
            at_rest = {name: (before[name] - rest[name]) / REST_SECONDS for name in programs}
            measured_burst = self.schedule(pods, processes)
            after = seconds_of(programs)
            writes, pod_writes = (
                now - earlier for now, earlier in zip(self.count_writes(), writes_before, strict=True)
            )
        finally:
            for process in processes:
                process.stop()
        self.delete_all()
        used = {name: after[name] - before[name] - at_rest[name] * measured_burst.seconds for name in programs}
        return measured_burst.run(used, writes, pod_writes)

    def count_writes(self) -> tuple[float, float]:
        """Return the number of successful writes so far: those to claims and bindings, and those to pods."""
        metrics = self.cluster.get("/metrics")
        into_claims, into_pods = (sum(map(float, pattern.findall(metrics))) for pattern in (WRITES, POD_WRITES))
        return into_claims, into_pods

    def start_programs(self, way: str) -> dict[str, list[Process]]:
        """Start the programs of a way; return all whose CPU is reported."""
        if way == IN_TREE:
            shipped_fields = scheduler_configuration(self.bridge.socket)
            in_tree_fields = {name: value for name, value in shipped_fields.items() if name != "profiles"}
            scheduler = self.cluster.start_scheduler(in_tree_fields, name="in-tree")
        else:
            self.bridge.start()
            scheduler = self.bridge.start_scheduler()
        return {
            SCHEDULER_PROGRAM: [scheduler],
            ALLOCATOR_PROGRAM: [process for process in self.bridge.processes.values() if process.alive],
            SERVER: [self.cluster.apiserver],
            CONTROLLERS: [self.cluster.controller_manager],
            STORE: [process for process in self.cluster.processes if process.name == "etcd"],
        }

    def make_pods(self, way: str, number: int) -> list[Object]:
        """Return pods for a way."""
        names = [f"pod-{self.pods + at}" for at in range(number)]
        self.pods += number
        claims, scheduler = [using_template(TEMPLATE)], SCHEDULER_NAMES[way]
        return [pod(name, NAMESPACE, resourceClaims=claims, schedulerName=scheduler) for name in names]

    def schedule(self, pods: Sequence[Object], programs: Sequence[Process]) -> Burst:
        """Create pods as fast as possible, and wait until each has a node. Fail if a program of the way ends."""
        burst = Burst(self.cluster, {pod_["metadata"]["name"] for pod_ in pods})
        with burst.watching(), ThreadPoolExecutor(CREATORS) as threads:
            list(threads.map(burst.create, pods))
            burst.wait(programs)
        return burst

    def delete_all(self) -> None:
        """Delete pods and claims one by one, so that no request takes long, and wait until they are gone."""
        for path in (PODS, CLAIMS):
            names = [item["metadata"]["name"] for item in self.cluster.get(path)["items"]]
            with ThreadPoolExecutor(CREATORS) as threads:
                list(threads.map(self.delete, (f"{path}/{name}" for name in names)))
        emptiness_checks = [lambda path=path: not self.cluster.get(path, limit=1)["items"] for path in (PODS, CLAIMS)]
        for is_empty in emptiness_checks:
            self.cluster.until("all pods and claims are deleted", is_empty, PATIENCE)

    def delete(self, path: str) -> None:
        with suppress(ApiError):  # it is already gone
            self.cluster.delete(path, gracePeriodSeconds=0)


class Burst:
    """A burst of pods: when each was created, and when it was seen on a node."""

    def __init__(self, cluster: ControlPlane, names: set[str]) -> None:
        self.cluster = cluster
        self.waiting = set(names)
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.done = threading.Event()

    def create(self, item: Object) -> None:
        self.created[item["metadata"]["name"]] = time.monotonic()
        self.cluster.post(PODS, item)

    def wait(self, programs: Sequence[Process]) -> None:
        until = time.monotonic() + PATIENCE
        while not self.done.wait(1.0) and time.monotonic() < until:
            for process in programs:
                process.check()
        if self.waiting:
            raise RuntimeError(f"{len(self.waiting)} pods have no node after {PATIENCE:.0f} s")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the pods while the context is active."""
        version = self.cluster.get(PODS, limit=1)["metadata"]["resourceVersion"]
        reader = threading.Thread(target=self.follow, args=(version,), daemon=True)
        reader.start()
        try:
            yield
        finally:
            self.done.set()

    def follow(self, version: str) -> None:
        """Watch pods. The API server ends a watch whose reader is slow; then the next watch starts."""
        decoder = msgspec.json.Decoder(Event)
        host = urlsplit(self.cluster.url).netloc
        context = ssl.create_default_context(cafile=str(self.cluster.ca))
        while not self.done.is_set():
            query = urlencode({"watch": "true", "resourceVersion": version, "timeoutSeconds": 60})
            connection = http.client.HTTPSConnection(host, context=context, timeout=PATIENCE)
            connection.request("GET", f"{PODS}?{query}", headers={"Authorization": f"Bearer {self.cluster.token}"})
            with closing(connection), suppress(http.client.IncompleteRead):
                for line in split_lines(connection.getresponse()):
                    pod_ = decoder.decode(line).object
                    version = pod_.metadata.version
                    self.note_binding(pod_)

    def note_binding(self, pod_: Pod) -> None:
        name = pod_.metadata.name
        if pod_.spec.node and name in self.waiting:
            self.bound[name] = time.monotonic()
            self.waiting.remove(name)
            if not self.waiting:
                self.done.set()

    @property
    def seconds(self) -> float:
        return max(self.bound.values()) - min(self.created.values())

    def run(self, used: Mapping[str, float], writes: float, pod_writes: float) -> Run:
        """Return the figures of the burst; `used` are CPU seconds."""
        pods = len(self.bound)
        waits = [self.bound[name] - self.created[name] for name in self.bound]
        p99_wait = statistics.quantiles(waits, n=100)[-1]
        millis = {name: seconds / pods * 1000 for name, seconds in used.items()}
        median_wait = statistics.median(waits)
        return Run(pods / self.seconds, median_wait, p99_wait, millis, writes / pods, pod_writes / pods)


def split_lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Split a streamed answer into lines."""
    rest = b""
    while chunk := response.read1(1 << 16):
        *complete_lines, rest = (rest + chunk).split(b"\n")
        yield from complete_lines


def devices_of(node: str) -> list[Object]:
    """Return the slices of one node."""
    devices = [fleet.device(f"gpu-{at}", {"type": "gpu", "index": at}) for at in range(DEVICES)]
    return fleet.slices(DRIVER, node, devices, by_name=True)


if __name__ == "__main__":
    main()
