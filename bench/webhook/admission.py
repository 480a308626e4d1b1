"""Measures reviews per second over TLS of our webhook, of HAMi-DRA's webhook, and of a floor: aiohttp's server, which allows everything.

The servers are measured in alternating rounds. If the program of HAMi-DRA is not available (`bench.webhook.hami`), recorded figures take its
place. wrk sends the reviews if it is installed (Debian: `apt-get install wrk`). Otherwise a client of our own sends them. That client uses so
much CPU that only the ratio to the floor is meaningful. Client, floor and webhook share the machine.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis import loop
from bench.meter import cpu_of
from bench.row import Row
from bench.stub import kubeconfig
from bench.webhook import hami
from cluster.resources import resource_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from certs.authority import Pair

ROOT = Path(__file__).parents[2]
CONNECTIONS = 8
WHERE = {CONNECTIONS: f"{CONNECTIONS} connections", 1: "one connection"}
SECONDS = 2
ROUNDS = 5
# Recorded figures of HAMi-DRA: its rates, and its CPU microseconds per GPU review, without the CPU time of its API server. They were measured
# with wrk, 8 TLS connections and a review of 5 kB, on the same kind of machine, in rounds that alternated with ours.
HAMI_GPU, HAMI_PLAIN = 520.0, 5850.0
HAMI_CPU = 1070.0

FLOOR = "floor: aiohttp over TLS, answers yes to everything"
SAME = "GPU pod translated, the same each time (/mutate)"
ANEW = "GPU pod translated, each with another request (/mutate)"
CHECKED = "GPU pod checked (/validate)"
PLAIN = "pod without accelerators (/mutate)"
THEIR_GPU, THEIR_PLAIN = "HAMi-DRA: GPU pod", "HAMi-DRA: pod without accelerators"
# By kind of review: the peer, and how many times faster than the peer our webhook should be.
PEERS = {
    SAME: (THEIR_GPU, "2.5x"),
    ANEW: (THEIR_GPU, "2.5x"),
    PLAIN: (THEIR_PLAIN, "1.3x"),
}
# Placeholder in an amount; each request has another number in its place.
MARK = "@@@@@@@@"
LIMITS = {"cpu": "1", "nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}


class Load(NamedTuple):
    """The figures of one run: answers per second, milliseconds, and the server's CPU microseconds per answer."""

    rate: float
    p50: float
    p99: float
    cpu: float = 0.0


def rows() -> Iterator[Row]:
    """Measure each kind of review on eight connections and on one connection, then decisions without a server."""
    with ExitStack() as stack:
        work = reviews_of(stack)
        note = with_hami(work, stack)
        for connections, where in WHERE.items():
            loads = in_turn(work, connections)
            for what, load in loads.items():
                yield row(what, load, loads, where, note)
            if connections == CONNECTIONS:
                yield from costs(loads, note)
    yield in_process()


class Work(NamedTuple):
    """The requests of one run, and their server."""

    server: Server
    path: str
    body: bytes


def reviews_of(stack: ExitStack) -> dict[str, Work]:
    """Start floor and webhook; return the reviews to send, by kind of review."""
    floor, webhook = (stack.enter_context(server(name)) for name in ("floor", "webhook"))
    gpu = review(pod(LIMITS))
    return {
        FLOOR: Work(floor, "/mutate", gpu),
        SAME: Work(webhook, "/mutate", gpu),
        ANEW: Work(webhook, "/mutate", review(pod(LIMITS | {"memory": MARK}))),
        CHECKED: Work(webhook, "/validate", review(apply_answer(webhook.url, gpu))),
        PLAIN: Work(webhook, "/mutate", review(pod({"cpu": "1"}))),
    }


def with_hami(work: dict[str, Work], stack: ExitStack) -> str:
    """Add HAMi-DRA to the work if it is available; return a note about the source of its figures."""
    try:
        path = hami.program()
        api = stack.enter_context(server("yes"))
        theirs = Server(*stack.enter_context(hami.running(path, _pair(), json.dumps(kubeconfig(api.url)).encode())))
        patch_object(work[SAME].body, ask(theirs.url, work[SAME].body))  # raises if it does not translate the pod
    except (hami.MissingError, OSError, KeyError) as error:
        return f"recorded, because {error or type(error).__name__}"
    work[THEIR_GPU] = Work(theirs, "/mutate", work[SAME].body)
    work[THEIR_PLAIN] = Work(theirs, "/mutate", work[PLAIN].body)
    return "beside ours"


def costs(loads: dict[str, Load], note: str) -> Iterator[Row]:
    """Yield rows with the CPU time of the servers. Milliseconds for a thousand reviews are microseconds for one review."""
    recorded = {THEIR_GPU: HAMI_CPU}
    for what, (peer, _) in PEERS.items():
        theirs = loads[peer].cpu if peer in loads else recorded.get(peer)
        yield Row(
            what=f"CPU of a thousand reviews: {what}",
            unit="ms",
            ours=loads[what].cpu,
            peer=f"HAMi-DRA, {note}",
            theirs=theirs,
            note=f"{loads[what].cpu / loads[FLOOR].cpu:.1f} times the floor's",
        )


def in_process() -> Row:
    """Translate and check one pod on a large fleet whose claims change all the time, without a server and a network."""
    from webhook.admission import review as admission

    world, template = large_world(5_000)
    body = review(pod(LIMITS))
    checked = review(patch_object(body, admission.decide_review("mutate", body, world.state(fresh=True)).body))
    admission.decide_review(
        "validate", checked, world.state(fresh=True)
    )  # the first check of a fleet takes longer, and is measured elsewhere
    took = []
    for number in range(2_000):
        if number % 10 == 0:
            world.update_objects([template(number)])
        state = world.state(fresh=True)
        started = time.process_time()
        admission.decide_review("mutate", body, state)
        admission.decide_review("validate", checked, state)
        took.append((time.process_time() - started) * 1e3)
    took.sort()
    return Row(
        what="translate + check in process, 5 kB pod, 5,000 nodes, p99",
        unit="ms",
        ours=took[len(took) * 99 // 100],
        target="p99 < 1 ms",
        note=f"p50 {took[len(took) // 2]:.2f} ms; CPU time; a claim changes before every tenth pod",
    )


def large_world(nodes: int) -> tuple[Any, Callable[[int], Any]]:
    """Return the example fleet with many more nodes with shared GPUs, and a function that makes a claim for a share of a GPU."""
    import copy

    from cli.commands.demo import EXAMPLES
    from cluster import manifests
    from dra import wire
    from dra.objects.claim import ResourceClaim
    from dra.objects.device import ResourceSlice
    from dra.objects.node import Node
    from webhook.state.builder import StateBuilder
    from webhook.state.configuration import Configuration

    world = StateBuilder(Configuration(), keys=(b"k" * 32,))
    objects = [d.object for d in manifests.read([EXAMPLES / "fleet"])]
    for obj in objects:
        if resource := resource_of(obj):
            world.update_objects([wire.convert(obj, resource.type)])
    shared = next(o for o in objects if o["kind"] == "ResourceSlice" and o["spec"]["driver"].startswith("hami"))
    for number in range(nodes):
        one, name = copy.deepcopy(shared), f"node-{number}"
        one["metadata"]["name"] = one["spec"]["nodeName"] = one["spec"]["pool"]["name"] = name
        world.update_objects([wire.convert(one, ResourceSlice)])
        world.update_objects([wire.convert({"metadata": {"name": name}}, Node)])
    world.settle()

    def claim(number: int) -> ResourceClaim:
        result = {
            "request": "gpu",
            "driver": shared["spec"]["driver"],
            "pool": f"node-{number}",
            "device": shared["spec"]["devices"][0]["name"],
            "shareID": "00000000-0000-0000-0000-000000000000",
            "consumedCapacity": {"memory": "1Gi", "cores": "10"},
        }
        status = {"allocation": {"devices": {"results": [result]}}}
        return wire.convert({"metadata": {"name": f"c-{number}", "namespace": "x"}, "status": status}, ResourceClaim)

    return world, claim


def row(what: str, load: Load, loads: dict[str, Load], where: str, note: str) -> Row:
    """Return a row with the time per review instead of the rate, so that a higher ratio is better, as in other rows."""
    recorded = {THEIR_GPU: HAMI_GPU, THEIR_PLAIN: HAMI_PLAIN} if where == WHERE[CONNECTIONS] else {}
    peer, target = PEERS.get(what, ("", ""))
    rate = loads[peer].rate if peer in loads else recorded.get(peer)
    client = "wrk" if shutil.which("wrk") else "our own client"
    figures = f"{load.rate:,.0f}/s, p50 {load.p50:.2f} ms, p99 {load.p99:.2f} ms, {load.cpu:.0f} us of the server's CPU"
    return Row(
        what=f"{what}, {where}",
        unit="us",
        ours=1e6 / load.rate,
        peer=f"HAMi-DRA, {note}" if rate else "",
        theirs=1e6 / rate if rate else None,
        target=target if rate and where == WHERE[CONNECTIONS] else "",
        note=f"{figures}, {load.rate / loads[FLOOR].rate:.0%} of the floor; load by {client}",
    )


# Reviews


def pod(limits: dict[str, str], mark: str = "") -> dict[str, Any]:
    """Return a pod of about 5 kB, as a user writes it, with the defaults of the API server."""
    env = [{"name": f"SETTING_{i}", "value": "x" * 40} for i in range(40)]
    mounts = [{"name": f"volume-{i}", "mountPath": f"/data/{i}"} for i in range(8)]
    container = {
        "name": "main",
        "image": "registry.example.com/team/train:v1.2.3",
        "command": ["python", "-m", "train"],
        "env": env,
        "volumeMounts": mounts,
        "resources": {"limits": limits, "requests": limits},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train-0",
            "namespace": "default",
            "labels": {"app": "train", "mark": mark},
            "annotations": {"note": "x" * 200},
        },
        "spec": {
            "containers": [container],
            "volumes": [{"name": f"volume-{i}", "emptyDir": {}} for i in range(8)],
            "schedulerName": "default-scheduler",
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        },
    }


def review(obj: dict[str, Any]) -> bytes:
    """Return the AdmissionReview of a pod's creation."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "operation": "CREATE",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "train-0",
        "namespace": "default",
        "userInfo": {"username": "a-user", "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": None,
        "dryRun": False,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def apply_answer(url: str, body: bytes) -> dict[str, Any]:
    """Send a review; return its pod after the webhook's patch."""
    return patch_object(body, ask(url, body))


def ask(url: str, body: bytes) -> bytes:
    """Send one review for a pod's creation."""
    import urllib.request

    request = urllib.request.Request(f"{url}/mutate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, context=trusting(), timeout=60) as response:
        answer: bytes = response.read()
    return answer


def patch_object(body: bytes, answer: bytes) -> dict[str, Any]:
    """Return the object of a review after the patch of its answer."""
    import base64

    import jsonpatch

    obj, patch = json.loads(body)["request"]["object"], json.loads(answer)["response"]["patch"]
    changed: dict[str, Any] = jsonpatch.apply_patch(obj, json.loads(base64.b64decode(patch)))
    return changed


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(
        ssl.PROTOCOL_TLS_CLIENT
    )  # a default context reads the machine's CAs, which takes a third of a second
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate does not matter here
    return context


# Servers


class Server(NamedTuple):
    """The server's address and process."""

    url: str
    pid: int


@contextmanager
def server(name: str, *, descriptors: int = 0, pieces: Path | None = None) -> Iterator[Server]:
    """Run a server in its own process; its log is read and discarded.

    `descriptors` limits its file descriptors. With `pieces` it is a webhook that records in this file what its event loop does
    (`bench.webhook.pieces`).
    """
    command = [
        sys.executable,
        "-m",
        *(("bench.webhook.pieces", str(pieces)) if pieces else ("bench.webhook.admission", name)),
    ]
    if descriptors:
        command = ["prlimit", f"--nofile={descriptors}", *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        yield Server(process.stdout.readline().strip(), process.pid)
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def serve_floor() -> None:
    """Serve the floor: aiohttp's server reads the body, finds the uid, and allows the object."""
    from aiohttp import web

    from webhook.admission import admission_review as reviews

    async def yes(request: web.BaseRequest) -> web.Response:
        body = await request.read()
        answer = reviews.encode(reviews.allow(reviews.decode(body).uid))
        return web.Response(body=answer, content_type="application/json")

    async def serve() -> None:
        server = web.Server(yes, access_log=None, auto_decompress=False)
        listening = await asyncio.get_running_loop().create_server(
            server, "127.0.0.1", 0, ssl=_certificate(), backlog=1024
        )
        print(f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
        await asyncio.Event().wait()

    loop.run(serve())


def serve_yes() -> None:
    """Serve an API for HAMi-DRA, which answers discovery requests, and answers every creation with the same claim."""
    from aiohttp import web

    async def yes(request: web.BaseRequest) -> web.Response:
        if request.method == "POST":
            await request.read()
            return web.json_response(hami.CREATED, status=201)
        found = hami.DISCOVERY.get(request.path)
        return web.json_response(found or {"kind": "Status", "code": 404}, status=200 if found else 404)

    async def serve() -> None:
        listening = await asyncio.get_running_loop().create_server(web.Server(yes, access_log=None), "127.0.0.1", 0)
        print(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
        await asyncio.Event().wait()

    loop.run(serve())


def _pair() -> Pair:
    import datetime as dt

    from certs import authority

    now = dt.datetime.now(dt.UTC)
    signer = authority.authority("bench", now=now, life=dt.timedelta(hours=1))
    return authority.leaf(signer, ["127.0.0.1"], now=now, life=dt.timedelta(hours=1))


def _certificate() -> ssl.SSLContext:
    from certs import reload

    context = reload.context()
    reload.load(context, _pair())
    return context


def serve_webhook() -> None:
    """Serve the example fleet as `drawbridge standalone` does."""
    from cli.commands.demo import EXAMPLES
    from cli.playground.playground import playground
    from cluster import manifests
    from webhook.service import log
    from webhook.service.configuration_file import Source

    decisions = log.configure("info")

    source = Source(str(EXAMPLES / "configuration.yaml"))
    fleet = [d.object for d in manifests.read([EXAMPLES / "fleet"])]

    async def serve() -> None:
        async with playground(fleet, source, decisions=decisions) as here:
            loop.exempt_from_collection()
            print(here.url, flush=True)
            await asyncio.Event().wait()

    loop.run(serve())


# Load


def in_turn(work: dict[str, Work], connections: int) -> dict[str, Load]:
    """Measure all servers alternately in several rounds, so that changes of the machine's speed affect all; return the medians."""
    run = _wrk if shutil.which("wrk") else _own
    rounds: dict[str, list[Load]] = {what: [] for what in work}
    for number in range(-1, ROUNDS):
        for what, (server_, path, body) in work.items():
            before = cpu_of(server_.pid)
            load = run(server_.url + path, body, connections)
            load = load._replace(cpu=(cpu_of(server_.pid) - before) / (load.rate * SECONDS) * 1e6)
            if number >= 0:  # the first round warms up
                rounds[what].append(load)
    return {what: sorted(loads)[len(loads) // 2] for what, loads in rounds.items()}


_EACH_DIFFERENT = f"""
local before, after = wrk.body:match("^(.*){MARK}(.*)$")
local number = os.time() % 1000 * 100000
request = function()
  number = number + 1
  return wrk.format(nil, nil, nil, before .. string.format("%08d", number) .. after)
end
"""


def _wrk(url: str, body: bytes, connections: int) -> Load:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(
            f'wrk.method="POST"\nwrk.headers["Content-Type"]="application/json"\nwrk.body=[==[{body.decode()}]==]\n'
            f"{_EACH_DIFFERENT if MARK.encode() in body else ''}"
        )
        script.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", "--latency", "-s", script.name, url]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(f"not every review was answered:\n{text}")
    return Load(
        float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]),  # type: ignore[index]  # wrk always prints it
        _milliseconds(re.search(r"(?m)^\s+50%\s+(\S+)", text)[1]),  # type: ignore[index]
        _milliseconds(re.search(r"(?m)^\s+99%\s+(\S+)", text)[1]),  # type: ignore[index]
    )


def _milliseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}[unit]


def _own(url: str, body: bytes, connections: int) -> Load:
    took: list[float] = []

    async def connection(host: str, port: int, request: bytes, until: float) -> None:
        reader, writer = await asyncio.open_connection(host, port, ssl=trusting())
        while (started := time.perf_counter()) < until:
            writer.write(request.replace(MARK.encode(), b"%08d" % len(took)))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
            await reader.readexactly(length)
            took.append(time.perf_counter() - started)
        writer.close()

    async def load() -> None:
        address, _, path = url.removeprefix("https://").partition("/")
        host, _, port = address.partition(":")
        head = (
            f"POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        until = time.perf_counter() + SECONDS
        await asyncio.gather(*(connection(host, int(port), head.encode() + body, until) for _ in range(connections)))

    asyncio.run(load())
    took.sort()
    return Load(len(took) / SECONDS, took[len(took) // 2] * 1e3, took[len(took) * 99 // 100] * 1e3)


# Where the time goes


def profile() -> None:
    """Print in which functions the decisions about 3,000 different GPU pods spend their time, as in docs/profiles/admission.txt."""
    import cProfile
    import pstats

    from webhook.admission import review as admission

    world, _ = large_world(3)
    state = world.state(fresh=True)
    bodies = [review(pod(LIMITS, mark=f"{number:08}")) for number in range(3_000)]
    for body in bodies[:300]:
        admission.decide_review("mutate", body, state)
    started = time.process_time()
    for body in bodies:
        admission.decide_review("mutate", body, state)
    print(f"{(time.process_time() - started) / len(bodies) * 1e6:.0f} us a pod, without the profiler")
    with cProfile.Profile() as seen:
        for body in bodies:
            admission.decide_review("mutate", body, state)
    pstats.Stats(seen).strip_dirs().sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    {"floor": serve_floor, "yes": serve_yes, "webhook": serve_webhook, "profile": profile}[sys.argv[1]]()
