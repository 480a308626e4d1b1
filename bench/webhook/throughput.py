"""Pods through a real API server with drawbridge installed, beside the same pods without it, in rounds that alternate.

Four ways on one control plane: plain pods without and with us, GPU pods with their claims written by hand and no webhook, and
the same GPU pods in legacy words with us. A GPU pod counts when its claim is there, and the template that it is made from
is there before the first one: a steady state. Nothing is scheduled, because no way has anything to do with that.

A busy machine bends the rates more than the CPU time that a pod costs, so both are told, and the ratios are the CPU's. What the
programs use while nobody creates anything is taken off, or whoever is slow would pay more of it.

    python -m bench.webhook.throughput [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.row import Row
from e2e import fleet
from e2e.controlplane import ControlPlane
from e2e.gate import Gate
from e2e.workloads import container, pod, request, template, using_template

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from e2e.client import Object
    from e2e.process import Process

ROUNDS = 3
CONNECTIONS = 8
PLAIN_PODS, GPU_PODS = 800, 300
WARMING = 16
REST_SECONDS = 2.0
NAMESPACE = "throughput"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
TICKS = os.sysconf("SC_CLK_TCK")
SERVER, CONTROLLERS, STORE, OURS = "kube-apiserver", "kube-controller-manager", "etcd", "drawbridge"


class Way(NamedTuple):
    """One way to have pods: what is written, whether we are there, and whether a claim is to come of each."""

    what: str
    pod: Object
    installed: bool
    claims: bool = False


class Run(NamedTuple):
    """What one run came to: pods a second, claims included, and the CPU milliseconds of each program for one pod."""

    rate: float
    millis: Mapping[str, float]


def plain_pod() -> Object:
    """A pod of two containers that wants no device."""
    amounts = {"cpu": "100m", "memory": "64Mi"}
    resources = {"limits": amounts, "requests": amounts}
    return unnamed([container(name, resources=resources) for name in ("main", "proxy")])


def legacy_pod() -> Object:
    """A pod that wants a share of a GPU as HAMi's users write it."""
    limits = {"cpu": "100m", "memory": "64Mi", "nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}  # fmt: skip
    return unnamed([container(resources={"limits": limits})])


def claiming_pod() -> Object:
    """What becomes of that pod, written by hand."""
    resources = {"limits": {"cpu": "100m", "memory": "64Mi"}, "claims": [{"name": "by-hand"}]}
    return unnamed([container(resources=resources)], resourceClaims=[using_template("by-hand")])


def by_hand() -> Object:
    """The template behind it."""
    wanted = request("gpu", fleet.HAMI, capacity={"requests": {"memory": "3000Mi", "cores": "30"}})
    return template("by-hand", NAMESPACE, wanted)


def unnamed(containers: Sequence[Object], **spec: Any) -> Object:
    """A pod whose name the API server makes."""
    made = pod("", NAMESPACE, *containers, **spec)
    made["metadata"] = {"generateName": "train-", "namespace": NAMESPACE, "labels": {"app": "train"}}
    return made


PLAIN_WITHOUT = "plain pods, no webhook"
PLAIN_WITH = "plain pods, drawbridge installed"
BY_HAND = "GPU pods, claims by hand, no webhook"
TRANSLATED = "GPU pods in legacy words, drawbridge"


def ways() -> list[Way]:
    """All of them, those without us first."""
    return [
        Way(PLAIN_WITHOUT, plain_pod(), installed=False),
        Way(BY_HAND, claiming_pod(), installed=False, claims=True),
        Way(PLAIN_WITH, plain_pod(), installed=True),
        Way(TRANSLATED, legacy_pod(), installed=True, claims=True),
    ]


# What `make bench` prints


def rows() -> Iterator[Row]:
    """Both kinds of pods, ours beside the same without us."""
    runs = {what: middle(some) for what, some in in_turn(ROUNDS).items()}
    yield row(PLAIN_WITH, runs[PLAIN_WITH], PLAIN_WITHOUT, runs[PLAIN_WITHOUT], "within 5 %")
    yield row(TRANSLATED, runs[TRANSLATED], BY_HAND, runs[BY_HAND], "within 15 %")


def row(what: str, ours: Run, peer: str, theirs: Run, target: str) -> Row:
    """One line: the API server's CPU for a pod, and the rates beside it."""
    return Row(
        what=f"through a real API server: {what}",
        unit="ms",
        ours=ours.millis[SERVER],
        peer=peer,
        theirs=theirs.millis[SERVER],
        target=target,
        note=f"the API server's CPU a pod; {ours.rate:,.0f}/s against {theirs.rate:,.0f}/s ({ours.rate / theirs.rate:.0%})",
    )


def main(rounds: int) -> None:
    """Print each way with the CPU of every program."""
    runs = in_turn(rounds)
    for what, some in runs.items():
        one = middle(some)
        spent = "  ".join(f"{name} {millis:.2f}" for name, millis in one.millis.items())
        single = " ".join(f"{run.millis[SERVER]:.2f}" for run in some)
        rates = " ".join(f"{run.rate:.0f}" for run in some)
        print(f"{what:40} {one.rate:5.0f}/s  CPU ms a pod: {spent}  (API server {single}; rates {rates})")


def middle(runs: Sequence[Run]) -> Run:
    """The median of each figure."""
    millis = {name: statistics.median(run.millis[name] for run in runs) for name in runs[0].millis}
    return Run(statistics.median(run.rate for run in runs), millis)


# The rounds


def in_turn(rounds: int) -> dict[str, list[Run]]:
    """Take every way in every round; who comes first alternates, so that a machine that slows down slows all."""
    taken: dict[str, list[Run]] = {way.what: [] for way in ways()}
    with ControlPlane(name="bench-throughput") as cluster:
        installation = Installation(cluster)
        for turn in range(rounds):
            for way in ways() if turn % 2 == 0 else reversed(ways()):
                installation.switch(on=way.installed)
                taken[way.what].append(run(installation, way))
    return taken


class Installation:
    """drawbridge on a control plane, to be switched on and off as a whole."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self.gate = Gate(cluster, sweep_after=3600)  # as it is shipped
        self.on = False
        cluster.scheduler.stop()
        devices = fleet.slices(fleet.HAMI, "node-0", fleet.hami_gpus(8), by_name=True)
        cluster.add_fake_nodes(1, prefix="node-")
        cluster.create(*devices, *fleet.classes(extended=False))
        cluster.namespace(NAMESPACE)
        cluster.create(by_hand())
        self.gate.install()
        self.gate.stop()

    def switch(self, *, on: bool) -> None:
        """Have the processes and the registration there, or neither."""
        if on == self.on:
            return
        self.on = on
        if on:
            self.gate.register()
            self.gate.start_authority()
            self.gate.start_controller()
            self.gate.start_gate()
        else:
            self.gate.stop()
        self.cluster.until("the registration is in force, or out of it", lambda: self.translates() == on)

    def translates(self) -> bool:
        """Whether a legacy pod is translated."""
        [answer] = self.cluster.create(legacy_pod(), dryRun="All")
        return "resourceClaims" in answer["spec"]

    def programs(self) -> dict[str, list[Process]]:
        """Whose CPU is told."""
        return {
            SERVER: [self.cluster.apiserver],
            CONTROLLERS: [self.cluster.controller_manager],
            STORE: [one for one in self.cluster.processes if one.name == "etcd"],
            OURS: list(self.gate.processes.values()),
        }


def run(installation: Installation, way: Way) -> Run:
    """Create pods on several connections, wait until all claims are made, and clear away."""
    cluster = installation.cluster
    create(cluster, way.pod, WARMING)
    if way.claims:
        cluster.until("the first claims are made", lambda: count(cluster, CLAIMS) == WARMING)
    settle(cluster)
    pods = GPU_PODS if way.claims else PLAIN_PODS
    programs = installation.programs()
    rest = spent(programs)
    time.sleep(REST_SECONDS)
    before = spent(programs)
    started = time.monotonic()
    create(cluster, way.pod, pods)
    if way.claims:
        cluster.until("all claims are made", lambda: count(cluster, CLAIMS) == pods + WARMING, 120)
    seconds = time.monotonic() - started
    after = spent(programs)
    for path in (PODS, CLAIMS):
        cluster.delete(path, gracePeriodSeconds=0)
    cluster.until("everything is gone", lambda: not count(cluster, PODS) and not count(cluster, CLAIMS), 120)
    millis = {}
    for name in programs:
        resting = (before[name] - rest[name]) * seconds / REST_SECONDS
        millis[name] = (after[name] - before[name] - resting) / pods * 1000
    return Run(pods / seconds, millis)


def create(cluster: ControlPlane, item: Object, number: int) -> None:
    """Create a pod again and again, as fast as it goes."""
    body = json.dumps(item).encode()
    headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json", "Accept": "application/json"}  # fmt: skip
    left = iter(range(number))
    turn = threading.Lock()
    failed: list[str] = []

    def work() -> None:
        while not failed:
            with turn:
                if next(left, None) is None:
                    break
            code, answer = cluster.send("POST", PODS, body, headers)
            if code != 201:
                failed.append(answer.decode(errors="replace"))
        cluster.close_connection()

    several = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    if failed:
        raise RuntimeError(f"a pod was not created: {failed[0]}")


def count(cluster: ControlPlane, path: str) -> int:
    """How many objects a collection has, without reading them."""
    page = cluster.get(path, limit=1)
    return len(page["items"]) + page["metadata"].get("remainingItemCount", 0)


def settle(cluster: ControlPlane) -> None:
    """Wait until the API server has little left to do from what was before."""

    def quiet() -> bool:
        before = cpu_seconds(cluster.apiserver)
        time.sleep(0.5)
        return cpu_seconds(cluster.apiserver) - before < 0.05

    cluster.until("the API server is quiet", quiet, 30)


def spent(programs: Mapping[str, Sequence[Process]]) -> dict[str, float]:
    """User and system seconds of each program so far."""
    return {name: sum(cpu_seconds(process) for process in some) for name, some in programs.items()}


def cpu_seconds(process: Process) -> float:
    """User and system seconds that a process has spent."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
