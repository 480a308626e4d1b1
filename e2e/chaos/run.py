"""One run of chaos: its own control plane, two replicas, churn, one trouble after the other, a quiet end, and the judge."""

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

from e2e.actors import fleet
from e2e.actors.bridge import Bridge
from e2e.actors.client import ApiError, Object
from e2e.actors.proxy import Proxy
from e2e.bridge.gpu_nodes import quota
from e2e.chaos.churn import GPUS, WHOLE, Churn, crowds, devices
from e2e.chaos.containers import judge_containers
from e2e.chaos.hardware import DRIVER, FILES, INSTALLED, MEMORY, Hardware
from e2e.chaos.judge import LEAK, STUCK, Fault, Verdict, judge
from e2e.chaos.pairs import Pair, Pairs, until
from e2e.chaos.record import FULL_HISTORY, Change, history
from e2e.chaos.troubles import Scene, Trouble
from e2e.ground.controlplane import GROUP_GATES, ControlPlane

PAUSE = (0.5, 2.0)  # seconds between two troubles
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
    hardware: Hardware | None

    def record(self, *namespaces: str) -> Iterator[Change]:
        """Return the record of the devices, and of the claims and pods of some namespaces."""
        for change in history(self.cluster.etcd):
            if change.kind == "ResourceSlice" or change.key.partition("/")[0] in namespaces:
                yield change


@contextmanager
def stage(nodes: int, *, node: bool = False) -> Iterator[Stage]:
    """A control plane with the bridge on it, and fake nodes with devices; with `node` also a real node."""
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane(name="chaos", api_args=FULL_HISTORY, feature_gates=GROUP_GATES))
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
        hardware = Hardware(cluster) if node else None
        if hardware is not None:
            stack.callback(hardware.close)
        yield Stage(cluster, controllers, pairs, nodes, hardware)


def run(stage_: Stage, troubles: Iterable[Trouble], *, namespace: str, seed: int, seconds: float) -> Report:
    """Run churn and troubles for this long, or until no trouble is left. A quota allows nine of ten whole GPUs."""
    begun = time.monotonic()
    churns = crowds(stage_.cluster, namespace, stage_.nodes, seed, real_node=stage_.hardware is not None)
    namespaces = [*(churn.namespace for churn in churns), f"{namespace}-troubles"]
    for name in namespaces:
        stage_.cluster.namespace(name)
    allowed = round(0.9 * GPUS * stage_.nodes)
    stage_.cluster.create(quota(namespace, allowed, WHOLE))
    faults: list[Fault] = []
    with ExitStack() as stack:
        for churn in churns:
            stack.enter_context(closing(churn))
            churn.start()
        hardware = stage_.hardware
        scene = Scene(stage_.cluster, stage_.controllers, stage_.pairs, random.Random(seed), hardware, namespaces[-1], faults)  # fmt: skip
        until("the first pods are bound", lambda: all(churn.bound_uids for churn in churns), REBIND_SECONDS)
        rows = tuple(run_troubles(scene, churns[0], troubles, time.monotonic() + seconds))
        if hardware is not None:
            hardware.offer(INSTALLED)
        for churn in churns:
            churn.stop()
        for churn in churns:
            churn.drain(DRAIN_SECONDS)
    faults += (Fault(0, LEAK, words) for words in leftovers(stage_, *namespaces))
    verdict = judge(stage_.record(*namespaces), {fleet.NVIDIA: allowed})
    faults += verdict.faults
    if hardware is not None:
        sights = judge_containers(stage_.record(*namespaces), hardware.seen, DRIVER, {uuid: number for uuid, (_, number) in FILES.items()}, MEMORY)  # fmt: skip
        faults += sights.faults
        verdict.counts.update(sights.counts)
    return Report(time.monotonic() - begun, rows, verdict, tuple(faults))


def run_troubles(scene: Scene, churn: Churn, troubles: Iterable[Trouble], deadline: float) -> Iterator[Row]:
    for trouble in troubles:
        if time.monotonic() > deadline:
            return
        time.sleep(scene.seconds(*PAUSE))
        begun = time.monotonic()
        try:
            note = trouble.do(scene)
        except (AssertionError, ApiError, OSError) as error:  # the other troubles still count
            note = str(error)
            scene.faults.append(Fault(0, STUCK, f"{trouble.name}: {note}"))
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
        if stage_.hardware is not None:
            until("the driver has released all claims", lambda: not stage_.hardware.driver.prepared(), QUIET_SECONDS)
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
    entries = (*drift["overlapping"], *drift["leftBehind"], *drift["withoutDevices"])
    yield from (f"drift: {entry}" for entry in entries)


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
