"""Measures the cost of our webhook configurations for a plain pod (a pod without devices): the CPU time of a real API server with and without
the configurations, in alternating rounds.

The configurations name no running webhook, and a plain pod matches no condition. So only the evaluation of the conditions is measured. Pods
are created as dry runs, so that neither storage nor controllers add noise. The command line may name further configurations to compare.
First the benchmark prints the time that Kubernetes' evaluator spends on each condition; these figures vary little on a busy machine.

    python -m bench.webhook.registration [FORMER.yaml …]
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.meter import cpu_of
from cluster import manifests
from e2e.actors.workloads import container, pod
from e2e.ground.controlplane import ControlPlane
from tests.oracles import Oracle
from webhook.registration import Registration, configurations
from webhook.state import Configuration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PODS = 300
ROUNDS = 6
REPEATS = 5_000


def main(former: Sequence[str]) -> None:
    """Print for each registration the API server's CPU milliseconds per pod, as the median of alternating rounds."""
    bundle = Registration(ca_bundle="Ym9v", url="https://127.0.0.1:9/")
    cases: dict[str, list[Any]] = {"no webhook": [], "ours": configurations(Configuration().dialects, bundle)}
    for path in former:
        cases[Path(path).name] = [without_running_webhook(document.object) for document in manifests.read([Path(path)])]
    print_evaluations(cases)
    millis_by_case: dict[str, list[float]] = {name: [] for name in cases}
    with ControlPlane(name="bench-registration") as cluster:
        namespace = cluster.namespace("plain")
        for round_number in range(ROUNDS + 1):
            for name, configurations_ in cases.items():
                cluster.create(*configurations_)
                millis = cpu_per_pod(cluster, namespace)
                cluster.remove(*configurations_)
                if round_number:  # the first round warms up
                    millis_by_case[name].append(millis)
    base = statistics.median(millis_by_case["no webhook"])
    for name, all_of_them in millis_by_case.items():
        median = statistics.median(all_of_them)
        rounds = " ".join(f"{value:.2f}" for value in sorted(all_of_them))
        print(f"{name:30} {median:6.2f} ms CPU a plain pod {median / base:6.2f}x  ({rounds})")


def print_evaluations(cases: Mapping[str, Sequence[Any]]) -> None:
    """Print the time, the allocations and the cost of each condition for a plain pod, and of the condition `false` as a baseline."""
    conditions = {"false": "false"}
    for name, configurations_ in cases.items():
        for webhook in (
            webhook
            for configuration in configurations_
            for webhook in configuration["webhooks"]
            if webhook["name"].startswith("pods.mutate.")
        ):
            conditions[name] = webhook["matchConditions"][0]["expression"]
    oracle = Oracle("condition")
    answers_by_case: dict[str, list[dict[str, Any]]] = {name: [] for name in conditions}
    try:
        for _ in range(ROUNDS):
            for name, expression in conditions.items():
                question = {"resource": "pods", "operation": "CREATE", "objects": [plain_pod("ns")], "repeat": REPEATS}
                answers_by_case[name].append(oracle.ask(expression=expression, **question))
    finally:
        oracle.close()
    for name, answers in answers_by_case.items():
        best = min(answers, key=lambda answer: float(answer["evalNs"]))
        micros, cost = best["evalNs"] / 1000, best["outcomes"][0]["cost"]
        print(f"{name:30} {micros:6.2f} µs, {best['allocations']:.0f} allocations, cost {cost}")


def without_running_webhook(configuration: dict[str, Any]) -> dict[str, Any]:
    """Change a configuration so that the API server accepts it although no webhook runs; return it."""
    for webhook in configuration["webhooks"]:
        webhook["clientConfig"] = {"url": "https://127.0.0.1:9/", "caBundle": ""}
        webhook["failurePolicy"] = "Ignore"
    return configuration


def cpu_per_pod(cluster: ControlPlane, namespace: str) -> float:
    """Create plain pods; return the API server's CPU milliseconds per pod."""
    item = plain_pod(namespace)
    for _ in range(20):  # until the configuration is in force
        cluster.create(item, dryRun="All")
    server = cluster.apiserver.child.pid
    before = cpu_of(server)
    for _ in range(PODS):
        cluster.create(item, dryRun="All")
    return (cpu_of(server) - before) / PODS * 1000


def plain_pod(namespace: str) -> dict[str, Any]:
    """Return a pod of two containers without devices."""
    return pod("web", namespace, *(container(name, **resources()) for name in ("main", "proxy")))


def resources() -> dict[str, Any]:
    """Return the requests and limits of an ordinary container."""
    amounts = {"cpu": "100m", "memory": "64Mi"}
    return {"resources": {"limits": amounts, "requests": amounts}}


if __name__ == "__main__":
    main(sys.argv[1:])
