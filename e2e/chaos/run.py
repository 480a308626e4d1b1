"""One run of chaos: its own control plane, two replicas, churn, one trouble after the other, a quiet end, and the judge."""

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER, Bridge
from e2e.actors.client import Object
from e2e.actors.proxy import Proxy
from e2e.bridge.gpu_nodes import quota
from e2e.chaos.churn import GPUS, WHOLE, Churn, crowd, devices
from e2e.chaos.judge import LEAK, Fault, Verdict, judge
from e2e.chaos.pairs import Pair, Pairs, until
from e2e.chaos.record import FULL_HISTORY, Change, history
from e2e.chaos.troubles import Scene, Trouble
from e2e.ground.controlplane import ControlPlane

PAUSE = (1.0, 4.0)  # seconds between two troubles
REBIND_SECONDS = 60.0  # until pods are bound again, on a quiet machine
DRAIN_SECONDS = 120.0
QUIET_SECONDS = 60.0  # a new leader waits a minute before it repairs


class Row(NamedTuple):
    """The result of one trouble."""

    trouble: str
    seconds: float  # from the beginning of the trouble to the next binding
    note: str


class Report(NamedTuple):
    """The parameters of a run, and its results."""

    seconds: float
    rows: tuple[Row, ...]
    verdict: Verdict
    faults: tuple[Fault, ...]  # faults of the judge, and leftovers that the service reports at the end


class Stage(NamedTuple):
    """The control plane of a run, with its pods."""

    cluster: ControlPlane
    controllers: Proxy
    pairs: Pairs
    nodes: int

    def record(self, *namespaces: str) -> Iterator[Change]:
        """Return the record of the devices, and of the claims and pods of some namespaces."""
        for change in history(self.cluster.etcd):
            if change.kind == "ResourceSlice" or change.key.partition("/")[0] in namespaces:
                yield change


@contextmanager
def stage(nodes: int) -> Iterator[Stage]:
    """A control plane with the bridge on it, and fake nodes with devices."""
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane(name="chaos", api_args=FULL_HISTORY))
        controllers = Proxy(cluster.url, cluster.ca, cluster.token)
        stack.callback(controllers.close)
        cluster.restart_controllers(f"http://127.0.0.1:{controllers.port}")
        bridge = Bridge(cluster)
        stack.callback(bridge.folder.cleanup)
        bridge.prepare()
        pairs = Pairs(bridge)
        stack.callback(pairs.close)
        cluster.create(*devices(cluster.add_fake_nodes(nodes)))
        pairs.start()
        cluster.until("claim writes are refused to pods that do not hold the lease", bridge.is_fenced)
        yield Stage(cluster, controllers, pairs, nodes)


def run(stage_: Stage, troubles: Iterable[Trouble], *, namespace: str, seed: int, seconds: float) -> Report:
    """Run churn and troubles for this long, or until no trouble is left. A quota allows nine of ten whole GPUs."""
    begun = time.monotonic()
    stage_.cluster.namespace(namespace)
    allowed = round(0.9 * GPUS * stage_.nodes)
    stage_.cluster.create(quota(namespace, allowed, WHOLE))
    churn = Churn(stage_.cluster, namespace, SCHEDULER, pods=crowd(stage_.nodes), seed=seed)
    with closing(churn):
        churn.start()
        scene = Scene(stage_.cluster, stage_.controllers, stage_.pairs, random.Random(seed))
        until("the first pods are bound", lambda: churn.bound_uids, REBIND_SECONDS)
        rows = tuple(run_troubles(scene, churn, troubles, time.monotonic() + seconds))
        churn.stop()
        churn.drain(DRAIN_SECONDS)
    leftover_faults = tuple(Fault(0, LEAK, words) for words in leftovers(stage_, namespace))
    verdict = judge(stage_.record(namespace), {fleet.NVIDIA: allowed})
    return Report(time.monotonic() - begun, rows, verdict, verdict.faults + leftover_faults)


def run_troubles(scene: Scene, churn: Churn, troubles: Iterable[Trouble], deadline: float) -> Iterator[Row]:
    for trouble in troubles:
        if time.monotonic() > deadline:
            return
        time.sleep(scene.seconds(*PAUSE))
        begun = time.monotonic()
        note = trouble.do(scene)
        ended = time.monotonic()
        until(
            f"pods are bound again after: {trouble.name}", lambda ended=ended: churn.last_bound > ended, REBIND_SECONDS
        )
        row = Row(trouble.name, time.monotonic() - begun, note)
        print(f"{trouble.name}: pods were bound again {row.seconds:.0f} s after it had begun. {note}", flush=True)
        yield row


def leftovers(stage_: Stage, *namespaces: str) -> Iterator[str]:
    """Wait until nothing is held. On timeout, yield the reason, and what the leader still knows or reports."""
    try:
        until(
            "no claim is left", lambda: not any(claims_of(stage_.cluster, name) for name in namespaces), QUIET_SECONDS
        )
        until("the ledger is empty", lambda: not stage_.pairs.leader().reservation_count(), QUIET_SECONDS)
        until(
            "the leader knows no claim, and reports none as overlapping or left behind",
            lambda: not [*remaining_in(stage_.pairs.leader(), *namespaces)],
            QUIET_SECONDS,
        )
    except AssertionError as error:
        yield str(error)
        yield from remaining_in(stage_.pairs.leader(), *namespaces)


def remaining_in(leader: Pair, *namespaces: str) -> Iterator[str]:
    """Yield the claims that the leader still knows, and those that overlap or are left behind. The leader sees deletions a moment late."""
    for row in leader.ask("/api/v1/claims")["claims"]:
        if row["claim"].partition("/")[0] in namespaces:
            yield f"the leader still knows claim {row['claim']} with {row['devices']}"
    drift = leader.ask("/api/v1/drift")
    yield from (f"drift: {entry}" for entry in (*drift["overlapping"], *drift["leftBehind"]))


def claims_of(cluster: ControlPlane, namespace: str) -> list[Object]:
    claims: list[Object] = cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
    return claims


def table(report: Report) -> list[str]:
    """Return the result of a run as lines of a Markdown table."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for row in report.rows:
        times[row.trouble].append(row.seconds)
    lines = ["| what went wrong | times | until pods were bound again: usually, at most |", "|---|--:|--:|"]
    for trouble, seconds in sorted(times.items()):
        middle = sorted(seconds)[len(seconds) // 2]
        lines.append(f"| {trouble} | {len(seconds)} | {middle:.0f} s, {max(seconds):.0f} s |")
    return lines
