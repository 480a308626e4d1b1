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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.meter import cpu_of
from bench.row import Row
from bench.stub import kubeconfig
from bench.webhook import hami
from cli import loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from certs.authority import Pair

ROOT = Path(__file__).parents[2]
CONNECTIONS = 8
CONNECTIONS_TEXT = {CONNECTIONS: f"{CONNECTIONS} connections", 1: "one connection"}
SECONDS = 2
ROUNDS = 5
# Recorded figures of HAMi-DRA: its rates, and its CPU microseconds per GPU review, without the CPU time of its API server. They were measured
# with wrk, 8 TLS connections and a review of 5 kB, on the same kind of machine, in rounds that alternated with ours.
HAMI_GPU, HAMI_PLAIN = 520.0, 5850.0
HAMI_CPU = 1070.0

FLOOR = "floor: aiohttp over TLS, answers yes to everything"
SAME_REQUEST = "GPU pod translated, the same each time (/mutate)"
NEW_REQUEST = "GPU pod translated, each with another request (/mutate)"
PLAIN = "pod without accelerators (/mutate)"
NODES, DEVICES = 5_000, 8
LARGE = f"GPU pod translated, each with another request, {NODES:,} nodes x {DEVICES} (/mutate)"
THEIR_GPU, THEIR_PLAIN = "HAMi-DRA: GPU pod", "HAMi-DRA: pod without accelerators"
# By kind of review: the peer, and how many times faster than the peer our webhook should be.
PEERS = {
    SAME_REQUEST: (THEIR_GPU, "2.5x"),
    NEW_REQUEST: (THEIR_GPU, "2.5x"),
    PLAIN: (THEIR_PLAIN, "1.3x"),
}
# Placeholder in an amount; each request has another number in its place.
PLACEHOLDER = "@@@@@@@@"
LIMITS = {"cpu": "1", "nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}


class Load(NamedTuple):
    """The figures of one run: answers per second, milliseconds, and the server's CPU microseconds per answer."""

    rate: float
    p50: float
    p99: float
    cpu: float = 0.0


def rows() -> Iterator[Row]:
    """Measure each kind of review on eight connections and on one connection."""
    with ExitStack() as stack:
        loads_to_measure = start_servers(stack)
        hami_note = with_hami(loads_to_measure, stack)
        for connections, connections_text in CONNECTIONS_TEXT.items():
            loads = measure_alternately(loads_to_measure, connections)
            for what, load in loads.items():
                yield row(what, load, loads, connections_text, hami_note)
            if connections == CONNECTIONS:
                yield from costs(loads, hami_note)


class ReviewLoad(NamedTuple):
    """The requests of one run, and their server."""

    server: Server
    path: str
    body: bytes


def start_servers(stack: ExitStack) -> dict[str, ReviewLoad]:
    """Start floor and webhook; return the reviews to send, by kind of review."""
    floor, webhook, large = (stack.enter_context(server(name)) for name in ("floor", "webhook", "large"))
    gpu = review(pod(LIMITS))
    return {
        FLOOR: ReviewLoad(floor, "/mutate", gpu),
        SAME_REQUEST: ReviewLoad(webhook, "/mutate", gpu),
        NEW_REQUEST: ReviewLoad(webhook, "/mutate", review(pod(LIMITS | {"memory": PLACEHOLDER}))),
        PLAIN: ReviewLoad(webhook, "/mutate", review(pod({"cpu": "1"}))),
        LARGE: ReviewLoad(large, "/mutate", review(pod(LIMITS | {"memory": PLACEHOLDER}))),
    }


def with_hami(loads_to_measure: dict[str, ReviewLoad], stack: ExitStack) -> str:
    """Add HAMi-DRA to the work if it is available; return a note about the source of its figures."""
    try:
        path = hami.program()
        api = stack.enter_context(server("yes"))
        hami_server = Server(
            *stack.enter_context(hami.running(path, _pair(), json.dumps(kubeconfig(api.url)).encode()))
        )
        patched_object(
            loads_to_measure[SAME_REQUEST].body, send_review(hami_server.url, loads_to_measure[SAME_REQUEST].body)
        )  # raises if it does not translate the pod
    except (hami.MissingError, OSError, KeyError) as error:
        return f"recorded, because {error or type(error).__name__}"
    loads_to_measure[THEIR_GPU] = ReviewLoad(hami_server, "/mutate", loads_to_measure[SAME_REQUEST].body)
    loads_to_measure[THEIR_PLAIN] = ReviewLoad(hami_server, "/mutate", loads_to_measure[PLAIN].body)
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
    yield Row(
        what=f"CPU of a thousand reviews: {LARGE}",
        unit="ms",
        ours=loads[LARGE].cpu,
        peer="the example fleet",
        theirs=loads[NEW_REQUEST].cpu,
        target="0.7x",
        note="a review reads no result of every node",
    )


def row(what: str, load: Load, loads: dict[str, Load], connections_text: str, note: str) -> Row:
    """Return a row with the time per review instead of the rate, so that a higher ratio is better, as in other rows."""
    recorded = (
        {THEIR_GPU: HAMI_GPU, THEIR_PLAIN: HAMI_PLAIN} if connections_text == CONNECTIONS_TEXT[CONNECTIONS] else {}
    )
    peer, target = PEERS.get(what, ("", ""))
    rate = loads[peer].rate if peer in loads else recorded.get(peer)
    client = "wrk" if shutil.which("wrk") else "our own client"
    figures = f"{load.rate:,.0f}/s, p50 {load.p50:.2f} ms, p99 {load.p99:.2f} ms, {load.cpu:.0f} us of the server's CPU"
    return Row(
        what=f"{what}, {connections_text}",
        unit="us",
        ours=1e6 / load.rate,
        peer=f"HAMi-DRA, {note}" if rate else "",
        theirs=1e6 / rate if rate else None,
        target=target if rate and connections_text == CONNECTIONS_TEXT[CONNECTIONS] else "",
        note=f"{figures}, {load.rate / loads[FLOOR].rate:.0%} of the floor; load by {client}",
    )


# Reviews


def pod(limits: dict[str, str]) -> dict[str, Any]:
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
            "labels": {"app": "train"},
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


def send_review(url: str, body: bytes) -> bytes:
    """Send one review for a pod's creation."""
    import urllib.request

    request = urllib.request.Request(f"{url}/mutate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, context=insecure_tls_context(), timeout=60) as response:
        answer: bytes = response.read()
    return answer


def patched_object(body: bytes, answer: bytes) -> dict[str, Any]:
    """Return the object of a review after the patch of its answer."""
    import base64

    import jsonpatch

    obj, patch = json.loads(body)["request"]["object"], json.loads(answer)["response"]["patch"]
    patched: dict[str, Any] = jsonpatch.apply_patch(obj, json.loads(base64.b64decode(patch)))
    return patched


def insecure_tls_context() -> ssl.SSLContext:
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
def server(name: str, *, descriptors: int = 0) -> Iterator[Server]:
    """Run a server in its own process; its log is discarded. `descriptors` limits its file descriptors."""
    command = [sys.executable, "-m", "bench.webhook.admission", name]
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
        document = hami.DISCOVERY.get(request.path)
        return web.json_response(document or {"kind": "Status", "code": 404}, status=200 if document else 404)

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


_MODEL, _HAMI = "share-1", "hami"  # the node of the examples that is copied, and a part of its driver


def serve_webhook(nodes: int = 0) -> None:
    """Serve the example fleet as `drawbridge standalone` does, with this many nodes more."""
    from cli.commands.demo import EXAMPLES
    from cli.playground.playground import playground
    from cluster import manifests
    from webhook.service import log
    from webhook.service.configuration_file import Source

    decisions = log.configure("info")

    source = Source(str(EXAMPLES / "configuration.yaml"))
    fleet = [d.object for d in manifests.read([EXAMPLES / "fleet"])]
    copied = [json.dumps(obj) for obj in fleet if _MODEL in obj["metadata"]["name"]] if nodes else []
    fleet += [json.loads(text.replace(_MODEL, f"node-{number:04}")) for number in range(nodes) for text in copied]
    for spec in [obj["spec"] for obj in fleet if nodes and obj["kind"] == "ResourceSlice"]:
        devices = spec.get("devices", [])[:1] if _HAMI in spec["driver"] else []
        spec["devices"] = [{**one, "name": f"gpu-{n}"} for one in devices for n in range(DEVICES)] or spec.get(
            "devices", []
        )

    async def serve() -> None:
        async with playground(fleet, source, decisions=decisions) as running_playground:
            loop.exempt_from_collection()
            print(running_playground.url, flush=True)
            await asyncio.Event().wait()

    loop.run(serve())


# Load


def measure_alternately(loads_to_measure: dict[str, ReviewLoad], connections: int) -> dict[str, Load]:
    """Measure all servers alternately in several rounds, so that changes of the machine's speed affect all; return the medians."""
    run = _measure_with_wrk if shutil.which("wrk") else _measure_with_own_client
    rounds: dict[str, list[Load]] = {what: [] for what in loads_to_measure}
    for number in range(-1, ROUNDS):
        for what, (server_, path, body) in loads_to_measure.items():
            cpu_before = cpu_of(server_.pid)
            load = run(server_.url + path, body, connections)
            load = load._replace(cpu=(cpu_of(server_.pid) - cpu_before) / (load.rate * SECONDS) * 1e6)
            if number >= 0:  # the first round warms up
                rounds[what].append(load)
    return {what: sorted(loads)[len(loads) // 2] for what, loads in rounds.items()}


_EACH_DIFFERENT = f"""
local before, after = wrk.body:match("^(.*){PLACEHOLDER}(.*)$")
local number = os.time() % 1000 * 100000
request = function()
  number = number + 1
  return wrk.format(nil, nil, nil, before .. string.format("%08d", number) .. after)
end
"""


def _measure_with_wrk(url: str, body: bytes, connections: int) -> Load:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(
            f'wrk.method="POST"\nwrk.headers["Content-Type"]="application/json"\nwrk.body=[==[{body.decode()}]==]\n'
            f"{_EACH_DIFFERENT if PLACEHOLDER.encode() in body else ''}"
        )
        script.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", "--latency", "-s", script.name, url]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(f"not every review was answered:\n{text}")
    return Load(
        float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]),  # type: ignore[index]  # wrk always prints it
        _in_milliseconds(re.search(r"(?m)^\s+50%\s+(\S+)", text)[1]),  # type: ignore[index]
        _in_milliseconds(re.search(r"(?m)^\s+99%\s+(\S+)", text)[1]),  # type: ignore[index]
    )


def _in_milliseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}[unit]


def _measure_with_own_client(url: str, body: bytes, connections: int) -> Load:
    seconds: list[float] = []

    async def connection(host: str, port: int, request: bytes, until: float) -> None:
        reader, writer = await asyncio.open_connection(host, port, ssl=insecure_tls_context())
        while (started := time.perf_counter()) < until:
            writer.write(request.replace(PLACEHOLDER.encode(), b"%08d" % len(seconds)))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
            await reader.readexactly(length)
            seconds.append(time.perf_counter() - started)
        writer.close()

    async def send_all() -> None:
        address, _, path = url.removeprefix("https://").partition("/")
        host, _, port = address.partition(":")
        head = (
            f"POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        until = time.perf_counter() + SECONDS
        await asyncio.gather(*(connection(host, int(port), head.encode() + body, until) for _ in range(connections)))

    asyncio.run(send_all())
    seconds.sort()
    return Load(len(seconds) / SECONDS, seconds[len(seconds) // 2] * 1e3, seconds[len(seconds) * 99 // 100] * 1e3)


if __name__ == "__main__":
    servers: dict[str, Callable[[], None]] = {
        "floor": serve_floor,
        "yes": serve_yes,
        "webhook": serve_webhook,
        "large": partial(serve_webhook, NODES),
    }
    servers[sys.argv[1]]()
