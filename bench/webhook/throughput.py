"""Compares the creation of pods on a real API server with and without drawbridge, in alternating rounds.

Five ways to create pods use one control plane:
- plain pods without a webhook, and with drawbridge;
- GPU pods without a webhook, whose claims kube-controller-manager creates from a template that was written by hand;
- the same GPU pods with legacy keys: with drawbridge and, if it is available, with HAMi-DRA.

A GPU pod counts as created when its claim exists. The template exists before the first pod, as in a steady state. No pod is scheduled,
because scheduling is the same in all ways.

A busy machine changes the rates most, the CPU time of a pod less, and the memory that the API server allocates for a pod least. So all three
are reported, with the CPU time of other programs. Rounds are short and many, and a ratio is the median of the ratios of all rounds. The CPU
time that the programs use while no client creates pods is subtracted; otherwise a slow way would be charged more of it.

    python -m bench.webhook.throughput [ROUNDS [WAY ...]]
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import secrets
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bench.meter import cpu_of
from bench.row import Row
from bench.webhook import hami
from certs import authority
from e2e.actors import fleet
from e2e.actors.webhook import MODE, Webhook
from e2e.actors.workloads import container, pod, request, template, using_template
from e2e.ground.controlplane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from certs.authority import Pair
    from e2e.actors.client import Object

ROUNDS = 6
CONNECTIONS = 8
PLAIN_PODS, GPU_PODS = 300, 200
WARM_UP_PODS = 16
REST_SECONDS = 1.0
NAMESPACE = "throughput"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
# Placeholder for a text that differs in each pod.
PLACEHOLDER = "@@@@@@@@"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
TICKS = os.sysconf("SC_CLK_TCK")
SERVER, CONTROLLERS, STORE = "kube-apiserver", "kube-controller-manager", "etcd"
OURS, THEIRS = "drawbridge", "HAMi-DRA"


class Way(NamedTuple):
    """A way to create pods: the pod, the installed webhook, and whether each pod gets a claim."""

    what: str
    item: Object
    webhook: str = ""
    claims: bool = False


class RunningProcess(Protocol):
    """A running process."""

    @property
    def pid(self) -> int:
        """Return its process ID."""


class Allocations(NamedTuple):
    """What a Go program has allocated. Unlike time, this does not depend on how busy the machine is."""

    objects: float
    kilobytes: float

    def since(self, earlier: Allocations) -> Allocations:
        """Return what was allocated since an earlier reading."""
        return Allocations(self.objects - earlier.objects, self.kilobytes - earlier.kilobytes)

    def each(self, number: int) -> Allocations:
        """Return the mean of `number` pods."""
        return Allocations(self.objects / number, self.kilobytes / number)


class Run(NamedTuple):
    """The result of one run."""

    rate: float  # pods a second, claims included
    millis: Mapping[str, float]  # CPU of each program for one pod
    allocated: Allocations  # by the API server for one pod
    other_cores: float  # cores that the rest of the machine used meanwhile

    @property
    def total_millis(self) -> float:
        """Return the CPU milliseconds of all programs for one pod."""
        return sum(self.millis.values())

    def __str__(self) -> str:
        """Return the result as one line."""
        cpu = f"{self.millis[SERVER]:.2f} ms of {self.total_millis:.2f} the API server's"
        return f"{self.rate:.0f}/s, {cpu}, {self.allocated.objects:,.0f} objects, {self.allocated.kilobytes:.0f} kB"


def plain_pod() -> Object:
    """Return a pod of two containers without devices."""
    amounts = {"cpu": "100m", "memory": "64Mi"}
    resources = {"limits": amounts, "requests": amounts}
    return pod_with_generated_name([container(name, resources=resources) for name in ("main", "proxy")])


def legacy_pod() -> Object:
    """Return a pod that requests a share of a GPU with HAMi's keys."""
    limits = {"cpu": "100m", "memory": "64Mi", "nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}  # fmt: skip
    return pod_with_generated_name([container(resources={"limits": limits})])


def claiming_pod() -> Object:
    """Return the same pod with a claim template that was written by hand."""
    resources = {"limits": {"cpu": "100m", "memory": "64Mi"}, "claims": [{"name": "by-hand"}]}
    return pod_with_generated_name([container(resources=resources)], resourceClaims=[using_template("by-hand")])


def hand_written_template() -> Object:
    """Return the claim template of `claiming_pod`."""
    capacity = {"requests": {"memory": "3000Mi", "cores": "30"}}
    return template("by-hand", NAMESPACE, request("gpu", fleet.HAMI, capacity=capacity))


def pod_with_generated_name(containers: Sequence[Object], **spec: Any) -> Object:
    """Return a pod whose name the API server generates."""
    pod_ = pod("", NAMESPACE, *containers, **spec)
    pod_["metadata"] = {"generateName": "train-", "namespace": NAMESPACE, "labels": {"app": "train"}}
    return pod_


def legacy_pod_with_name() -> Object:
    """Return the pod with legacy keys and a name, from which HAMi-DRA makes the name of the claim."""
    pod_ = legacy_pod()
    pod_["metadata"] = {"name": f"train-{PLACEHOLDER}", "namespace": NAMESPACE, "labels": {"app": "train"}}
    return pod_


WAYS = {
    "plain": Way("plain pods, no webhook", plain_pod()),
    "by-hand": Way("GPU pods, claims by hand, no webhook", claiming_pod(), claims=True),
    "plain-ours": Way("plain pods, drawbridge installed", plain_pod(), OURS),
    "legacy": Way("GPU pods with legacy keys, drawbridge", legacy_pod(), OURS, claims=True),
    "hami": Way("GPU pods with legacy keys, HAMi-DRA", legacy_pod_with_name(), THEIRS, claims=True),
}
# The ways that are compared, and the targets.
PAIRS = (
    ("plain-ours", "plain", "within 5 %"),
    ("legacy", "by-hand", "within 15 %"),
    ("legacy", "hami", ""),
)


FIGURES: dict[str, tuple[str, Callable[[Run], float]]] = {
    "CPU of the API server per pod": ("ms", lambda run: run.millis[SERVER]),
    "CPU of all programs per pod": ("ms", lambda run: run.total_millis),
    "pods a second": ("/s", lambda run: run.rate),
    "objects that the API server allocates per pod": ("", lambda run: run.allocated.objects),
    "memory that the API server allocates per pod": ("kB", lambda run: run.allocated.kilobytes),
}


# What `make bench` prints


def rows() -> Iterator[Row]:
    """Yield the figures of each way beside those of its peer."""
    runs_by_way = measure_alternately(ROUNDS, buildable_ways(WAYS))
    for name, peer, target in PAIRS:
        if peer in runs_by_way:
            yield from compare(name, runs_by_way[name], peer, runs_by_way[peer], target)


def buildable_ways(names: Iterable[str]) -> list[str]:
    """Leave out HAMi-DRA if it cannot be built, and print why."""
    ways = list(names)
    without_hami = [name for name in ways if WAYS[name].webhook != THEIRS]
    try:
        if without_hami != ways:
            hami.program()
    except hami.MissingError as error:
        print(f"   HAMi-DRA is left out: {error}")
        return without_hami
    return ways


def compare(name: str, ours: Sequence[Run], peer: str, theirs: Sequence[Run], target: str) -> Iterator[Row]:
    """Yield a row for each figure: the medians of both ways, and the median of the ratios in each round."""
    other_cores = statistics.median(run.other_cores for run in (*ours, *theirs))
    for what, (unit, figure) in FIGURES.items():
        ratio = ratio_of(figure, ours, theirs)
        yield Row(
            what=f"{WAYS[name].what}: {what}",
            unit=unit,
            ours=statistics.median(map(figure, ours)),
            peer=WAYS[peer].what,
            theirs=statistics.median(map(figure, theirs)),
            target=target,
            note=f"{ratio:.2f}x theirs, median of {len(ours)} rounds; other programs used {other_cores:.1f} cores",
        )


def ratio_of(figure: Callable[[Run], float], ours: Sequence[Run], theirs: Sequence[Run]) -> float:
    """Return the median of the ratios in each round."""
    return statistics.median(
        figure(our_run) / figure(their_run) for our_run, their_run in zip(ours, theirs, strict=True)
    )


def main(rounds: int, names: Sequence[str]) -> None:
    """Print each way with the CPU of every program, and how the ways compare."""
    runs_by_way = measure_alternately(rounds, names)
    for name, runs in runs_by_way.items():
        cpu_texts = "  ".join(f"{program} {median(runs, program):.2f}" for program in runs[0].millis)
        server_millis = " ".join(f"{run.millis[SERVER]:.2f}" for run in runs)
        rates = " ".join(f"{run.rate:.0f}" for run in runs)
        rate = statistics.median(run.rate for run in runs)
        total_millis = statistics.median(run.total_millis for run in runs)
        other_cores = statistics.median(run.other_cores for run in runs)
        objects = statistics.median(run.allocated.objects for run in runs)
        kilobytes = statistics.median(run.allocated.kilobytes for run in runs)
        print(f"{name:12} the API server allocates {objects:,.0f} objects and {kilobytes:.0f} kB a pod")
        print(f"{name:12} {rate:5.0f}/s  CPU ms a pod: {total_millis:.2f} = {cpu_texts}  (API server {server_millis}; rates {rates}; others {other_cores:.1f} cores)")  # fmt: skip
    for name, peer, _ in PAIRS:
        if name in runs_by_way and peer in runs_by_way:
            ratios = [f"{what} {ratio_of(figure, runs_by_way[name], runs_by_way[peer]):.2f}x" for what, (_, figure) in FIGURES.items()]  # fmt: skip
            print(f"{name} beside {peer}: {', '.join(ratios)}")


def median(runs: Sequence[Run], program: str) -> float:
    return statistics.median(run.millis[program] for run in runs)


# The rounds


def measure_alternately(rounds: int, names: Sequence[str]) -> dict[str, list[Run]]:
    """Measure each way in each round. The order alternates, so that a machine that slows down affects all ways."""
    runs_by_way: dict[str, list[Run]] = {name: [] for name in names}
    # Ways with the same webhook follow each other, because switching takes longer than a run.
    order = sorted(names, key=lambda name: WAYS[name].webhook)
    with ControlPlane(name="bench-throughput") as cluster:
        installation = Installation(cluster)
        for round_number in range(rounds):
            for name in order if round_number % 2 == 0 else reversed(order):
                installation.switch(WAYS[name].webhook)
                result = run(installation, WAYS[name])
                runs_by_way[name].append(result)
                # Printed after each run, because on a busy machine the benchmark may be stopped before its end.
                print(f"   {round_number + 1}. {name}: {result}", flush=True)
    return runs_by_way


class Installation:
    """A control plane on which at most one of the webhooks runs at a time."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self.webhook = Webhook(cluster, sweep_after=3600)  # as it is shipped
        self.active = ""
        self.cleanup = ExitStack()
        self.peer_processes: list[RunningProcess] = []
        cluster.scheduler.stop()
        devices = fleet.slices(fleet.HAMI, "node-0", fleet.hami_gpus(8), by_name=True)
        cluster.add_fake_nodes(1, prefix="node-")
        cluster.create(*devices, *fleet.classes(extended=False))
        cluster.namespace(NAMESPACE, {MODE: "enforce"})  # the registration is opt-in
        cluster.create(hand_written_template())
        self.webhook.install()
        self.webhook.stop()

    def switch(self, webhook: str) -> None:
        """Stop and unregister the current webhook, and start and register this one; "" for none."""
        if webhook == self.active:
            return
        if self.active == OURS:
            self.webhook.stop()
        self.cleanup.close()
        self.peer_processes = []
        self.active = webhook
        # The API server calls a removed webhook for some moments, so the previous webhook may still translate a pod.
        self.cluster.until("the API server calls no webhook", lambda: not self.translates())
        if webhook:
            {OURS: self.start_ours, THEIRS: self.start_hami}[webhook]()
            self.cluster.until("the API server calls the webhook", self.translates)

    def start_ours(self) -> None:
        """Start drawbridge as it is installed, and register it."""
        self.webhook.register()
        self.webhook.start_authority()
        self.webhook.start_controller()
        self.webhook.start_webhook()

    def start_hami(self) -> None:
        """Start HAMi-DRA's webhook and register it."""
        signer, serving = certificates()
        api = self.cluster.write_kubeconfig("hami-dra", self.cluster.token).read_bytes()
        hami_webhook = self.cleanup.enter_context(hami.running(hami.program(), serving, api))
        self.peer_processes = [hami_webhook]
        self.register(hami.registration(hami_webhook.url, signer.certificate))

    def register(self, registered: Object) -> None:
        """Register a webhook until the next switch."""
        self.cluster.create(registered)
        self.cleanup.callback(self.cluster.remove, registered)

    def translates(self) -> bool:
        # HAMi-DRA creates a claim for a dry run, too. If the claim stayed, the next claim of that name would be refused.
        item = json.loads(json.dumps(legacy_pod_with_name()).replace(PLACEHOLDER, secrets.token_hex(8)))
        try:
            [answer] = self.cluster.create(item, dryRun="All")
        finally:
            self.cluster.delete(CLAIMS)
        return "resourceClaims" in answer["spec"]

    def programs(self) -> dict[str, list[RunningProcess]]:
        """Return the programs whose CPU time is reported."""
        return {
            SERVER: [self.cluster.apiserver],
            CONTROLLERS: [self.cluster.controller_manager],
            STORE: [process for process in self.cluster.processes if process.name == "etcd"],
            "webhook": [*self.webhook.processes.values(), *self.peer_processes],
        }


def certificates() -> tuple[Pair, Pair]:
    """Make a certificate authority, and a serving certificate for 127.0.0.1."""
    now = dt.datetime.now(dt.UTC)
    life = dt.timedelta(hours=1)
    signer = authority.authority("bench", now=now, life=life)
    return signer, authority.leaf(signer, ["127.0.0.1"], now=now, life=life)


def run(installation: Installation, way: Way) -> Run:
    """Create pods on several connections, wait until all claims are created, and delete everything."""
    cluster = installation.cluster
    create(cluster, way.item, WARM_UP_PODS)
    if way.claims:
        cluster.until("the first claims are created", lambda: count(cluster, CLAIMS) == WARM_UP_PODS)
    settle(cluster)
    pods = GPU_PODS if way.claims else PLAIN_PODS
    programs = installation.programs()
    rest, allocated_at_rest = seconds_of(programs), allocated(cluster)
    time.sleep(REST_SECONDS)
    before, allocated_before = seconds_of(programs), allocated(cluster)
    other_seconds = cpu_of_other_programs(programs)
    started = time.monotonic()
    create(cluster, way.item, pods)
    if way.claims:
        cluster.until("all claims are created", lambda: count(cluster, CLAIMS) == pods + WARM_UP_PODS, 120)
    seconds = time.monotonic() - started
    after = seconds_of(programs)
    other_seconds = (cpu_of_other_programs(programs) - other_seconds) / seconds
    # Reading the metrics allocates memory, too: subtract what was allocated at rest.
    allocated_by_reading = allocated_before.since(allocated_at_rest)
    grown = allocated(cluster).since(allocated_before).since(allocated_by_reading)
    for path in (PODS, CLAIMS):
        cluster.delete(path, gracePeriodSeconds=0)
    cluster.until(
        "all pods and claims are deleted", lambda: not count(cluster, PODS) and not count(cluster, CLAIMS), 120
    )
    millis = {}
    for name in programs:
        resting = (before[name] - rest[name]) * seconds / REST_SECONDS
        millis[name] = (after[name] - before[name] - resting) / pods * 1000
    return Run(pods / seconds, millis, grown.each(pods), other_seconds)


def create(cluster: ControlPlane, item: Object, number: int) -> None:
    """Create a pod `number` times, as fast as possible."""
    text = json.dumps(item)
    headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json", "Accept": "application/json"}  # fmt: skip
    remaining = iter(range(number))
    lock = threading.Lock()
    failed: list[str] = []

    def create_until_done() -> None:
        while not failed:
            with lock:
                if next(remaining, None) is None:
                    break
            body = text.replace(PLACEHOLDER, secrets.token_hex(8)).encode()
            code, answer = cluster.send("POST", PODS, body, headers)
            if code != 201:
                failed.append(answer.decode(errors="replace"))
        cluster.close_connection()

    threads = [threading.Thread(target=create_until_done) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError(f"a pod was not created: {failed[0]}")


def count(cluster: ControlPlane, path: str) -> int:
    """Return the number of objects in a collection without reading all of them."""
    page = cluster.get(path, limit=1)
    remaining: int = page["metadata"].get("remainingItemCount", 0)
    return len(page["items"]) + remaining


def settle(cluster: ControlPlane) -> None:
    """Wait until the API server is nearly idle."""

    def quiet() -> bool:
        before = cpu_of(cluster.apiserver.pid)
        time.sleep(0.5)
        return cpu_of(cluster.apiserver.pid) - before < 0.05

    cluster.until("the API server is quiet", quiet, 30)


def seconds_of(programs: Mapping[str, Sequence[RunningProcess]]) -> dict[str, float]:
    """Return the CPU seconds of each program so far."""
    return {name: sum(cpu_of(process.pid) for process in processes) for name, processes in programs.items()}


def allocated(cluster: ControlPlane) -> Allocations:
    """Return what the API server has allocated so far."""
    code, answer = cluster.send("GET", "/metrics", None, {"Authorization": f"Bearer {cluster.token}"})
    if code != 200:
        raise RuntimeError(f"the API server does not return its metrics: {code}")
    objects, octets = (
        re.search(rf"(?m)^go_memstats_{name}_total (\S+)".encode(), answer) for name in ("mallocs", "alloc_bytes")
    )
    if objects is None or octets is None:
        raise RuntimeError("the API server's metrics do not have its allocations")
    return Allocations(float(objects[1]), float(octets[1]) / 1000)


def cpu_of_other_programs(programs: Mapping[str, Sequence[RunningProcess]]) -> float:
    """Return the CPU seconds so far of all other programs of the machine."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=9)[1:9]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    busy = (user + nice + system + irq + softirq + steal) / TICKS
    return busy - sum(seconds_of(programs).values()) - time.process_time()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS, buildable_ways(sys.argv[2:] or WAYS))
