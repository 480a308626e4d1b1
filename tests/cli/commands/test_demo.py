import asyncio
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import aiohttp
import pytest

from cli.commands.demo import EXAMPLES
from cli.playground.playground import playground
from cli.playground.pod_progress import end_of, pods_of
from cli.playground.pods_port import PodsListener
from cluster import manifests, resources
from rendering import story as stories
from rendering.story import End, PodProgress
from tests.cli.running import manifest, run
from tests.limits import PATIENCE
from webhook.names import MODE_LABEL
from webhook.service.configuration_file import Source

DRAWBRIDGE = str(Path(sys.executable).with_name("drawbridge"))
FLEET = [d.object for d in manifests.read([EXAMPLES / "fleet"])]
CONFIGURATION = str(EXAMPLES / "configuration.yaml")


def test_without_a_terminal_the_demo_ends_by_itself_and_tells_every_pod():
    done = subprocess.run([DRAWBRIDGE, "demo"], capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line for line in done.stdout.splitlines() if line[:1] in "✓·…✗" and line]
    assert len(lines) >= 12
    assert {line[0] for line in lines} == set("✓·…✗")
    assert "\x1b" not in done.stdout
    assert "next:" in done.stdout
    # What it says is tried: the fleet of the examples, as pages.
    [line] = [line for line in done.stdout.splitlines() if " dashboard " in line]
    words = line.split()[2:-1]
    with subprocess.Popen(
        [DRAWBRIDGE, "dashboard", *words, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as serving:
        url = serving.stdout.readline().split()[-1]
        with urllib.request.urlopen(f"{url}/nodes/train-1", timeout=60) as page:
            assert "gpu.nvidia.com/train-1/gpu-0" in page.read().decode()
        serving.terminate()
        assert serving.wait(60) == 0
    assert (
        " ".join(done.stdout.split()).count("this pod waits until devices are free") == 1
    )  # as an API server passes it on


def test_on_a_terminal_the_demo_stays_and_shows_what_became_of_the_pods_as_pages(tmp_path):
    ours, theirs = pty.openpty()
    with subprocess.Popen([DRAWBRIDGE, "demo"], stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path) as demo:
        os.close(theirs)
        try:
            printed = b""
            while b"until Ctrl-C" not in printed:
                printed += os.read(ours, 1 << 16)
            [url] = re.findall(r"^  (http://[^ /]*)\r$", printed.decode(), re.MULTILINE)
            with urllib.request.urlopen(f"{url}/waiting", timeout=60) as page:
                assert "/pods/team-a/whole-node" in page.read().decode()
            demo.send_signal(signal.SIGINT)
            assert demo.wait(PATIENCE) == 0
        finally:
            demo.kill()
            os.close(ours)


def test_pods_of_ones_own_can_be_pushed(tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text("# mine\nkind: Pod\napiVersion: v1\nmetadata: {name: mine}\nspec: {containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}\n")  # fmt: skip
    done = run("demo", "-f", str(file), "--config", CONFIGURATION)
    assert done.exit_code == 0
    assert "✓ mine  mine" in done.stdout
    assert "asked    c: nvidia.com/gpu 1" in done.stdout


TWO = """\
kind: Pod
apiVersion: v1
metadata: {generateName: train-, namespace: team-g}
spec: {containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


def test_ones_own_pods_are_decided_by_the_configuration_in_force(tmp_path):
    own = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "metadata": {"name": "c"}}
    own |= {"extendedResources": {"drivers": {"gpu.nvidia.com": "translate"}}}
    asking = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}
    asking["spec"] = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    file, alone = manifest(tmp_path / "both.yaml", own, asking), manifest(tmp_path / "alone.yaml", asking)
    served, moved = (run("demo", "-f", path, "--once").stdout for path in (alone, file))
    assert "configuration: defaults; mode enforce" in served
    assert "became   served" in served
    assert f"configuration: {file}:1; mode enforce" in moved
    assert "became   claim" in moved
    assert "ignored" not in moved
    assert f"configuration: {CONFIGURATION}; mode enforce" in run("demo", "--once").stdout


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (f"demo --config {CONFIGURATION} --fleet {{fleet}} -f {{file}}", r"2 pods: 2 placed"),
        ("simulate -f {file} -f {fleet}", r"team-g/train-00002 .*\n\n2 of 2 pods placed"),
        ("explain pod train-00002 -n team-g -f {file} -f {fleet}", r"pod team-g/train-00002: in no cluster yet"),
    ],
    ids=["demo", "simulate", "explain"],
)
def test_of_two_pods_with_one_generate_name_none_is_lost(tmp_path, command, says):
    file = tmp_path / "two.yaml"
    file.write_text(f"{TWO}---\n{TWO}")
    done = run(*command.format(file=file, fleet=EXAMPLES / "fleet").split())
    assert re.search(says, done.stdout), done.output


JOB = """\
kind: Job
apiVersion: batch/v1
metadata: {generateName: train-, namespace: team-g}
spec: {template: {spec: {containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
"""


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (f"demo --config {CONFIGURATION} --fleet {{fleet}} -f {{file}}", r"2 pods: 2 placed"),
        ("simulate -f {file} -f {fleet}", r"team-g/train-00002-0 .*\n\n2 of 2 pods placed"),
    ],
    ids=["demo", "simulate"],
)
def test_pods_of_two_jobs_with_one_generate_name_are_placed(tmp_path, command, says):
    file = tmp_path / "two.yaml"
    file.write_text(f"{JOB}---\n{JOB}")
    done = run(*command.format(file=file, fleet=EXAMPLES / "fleet").split())
    assert re.search(says, done.stdout), done.output


@pytest.mark.parametrize(
    ("content", "says"), [("kind: [", "yaml"), (None, "No such file")], ids=["broken", "missing"]
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_exit_2_before_anything_starts(tmp_path, content, says):
    file = tmp_path / "pods.yaml"
    if content is not None:
        file.write_text(content)
    done = run("demo", "-f", str(file))
    assert done.exit_code == 2
    assert says.lower() in done.stderr.lower()
    assert not done.stdout


@pytest.mark.parametrize(
    "command",
    ["demo", "standalone", "webhook", "manifests --image example.com/drawbridge"],
    ids=lambda case: case.split()[0],
)
def test_a_bad_configuration_is_exit_2_with_every_mistake(tmp_path, command):
    file = tmp_path / "c.yaml"
    file.write_text("apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: loud\ncanary: many\n")
    done = run(*command.split(), "--config", str(file))
    assert done.exit_code == 2
    assert "/mode" in done.stderr
    assert "/canary" in done.stderr


def test_standalone_serves_until_it_is_told_to_stop():
    process = subprocess.Popen([DRAWBRIDGE, "standalone"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = [process.stdout.readline() for _ in range(4)]
        assert [line.split()[0] for line in lines] == ["reviews", "pods", "metrics", "dashboard"]
        pods, pages = (lines[at].split()[1] for at in (1, 3))
        with urllib.request.urlopen(pods, data=(EXAMPLES / "pods/nvidia-training.yaml").read_bytes()):
            pass
        with urllib.request.urlopen(f"{pages}/pods/team-a/training-0", timeout=60) as page:
            body = page.read().decode()
        assert "gpu.nvidia.com/train-1/gpu-" in body, "it shows the store that the pod went into"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.wait()


def standing(*args):
    """Start the command; answer with the process and where it takes pods."""
    process = subprocess.Popen([DRAWBRIDGE, "standalone", *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    lines = [process.stdout.readline() for _ in range(3)]
    return process, lines[1].split()[1]


def test_a_store_in_a_file_is_as_it_was_after_a_kill(tmp_path):
    data, pod = tmp_path / "store", (EXAMPLES / "pods/nvidia-training.yaml").read_bytes()
    process, pods = standing("--data", str(data))
    try:
        with urllib.request.urlopen(pods, data=pod) as answer:
            body = answer.read().decode()
    finally:
        process.kill()
        process.communicate()
    assert "✓ training-0" in body
    process, pods = standing("--data", str(data))
    try:
        with urllib.request.urlopen(pods) as answer:
            again = answer.read().decode()
    finally:
        process.kill()
        process.communicate()
    devices = [line for line in body.splitlines() if "runs on" in line]
    assert devices
    assert [line for line in again.splitlines() if "runs on" in line] == devices


MAKERS = {
    "folder": Path.mkdir,
    "foreign": lambda path: path.write_bytes(b"not ours"),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "pipe": os.mkfifo,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_file_that_is_not_a_store_is_exit_3_and_stays_as_it_is(tmp_path, make):
    data = tmp_path / "store"
    make(data)
    before = data.stat().st_mode
    done = run("standalone", "--data", str(data))
    assert data.stat().st_mode == before
    assert done.exit_code == 3
    assert str(data) in done.stderr
    assert "--data" in done.stderr
    assert "Traceback" not in done.stderr
    assert not data.is_file() or data.read_bytes() == b"not ours"


def test_a_kubeconfig_that_leads_nowhere_is_exit_3_or_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    done = run("webhook", "--kubeconfig", tmp_path / "none")
    assert done.exit_code == 3
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr


async def push(here, name, **limits):
    container = {"name": "c", "image": "x", "resources": {"limits": limits}}
    return await end_of(here, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": {"containers": [container]}}, PATIENCE)  # fmt: skip


async def test_a_device_is_never_given_twice_and_comes_back_with_its_pod():
    async with playground(FLEET, Source(CONFIGURATION)) as here:
        several = await asyncio.gather(*(push(here, f"p{i}", **{"nvidia.com/gpu": "1"}) for i in range(12)))
        placed = [line for progress in several for line in progress.runs]
        assert len(set(placed)) == len(placed) == 10
        waiting = [progress for progress in several if progress.end is End.WAITS]
        assert len(waiting) == 2
        ended = next(progress.name for progress in several if progress.end is End.PLACED)
        await here.cluster.delete(resources.PODS, ended, "default", grace=0)
        async with asyncio.timeout(PATIENCE):
            while not any([(await here.pod("default", progress.name)).spec.node_name for progress in waiting]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


SERVICE = "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}]}}\n---\n"
WORKERS = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray}
spec:
  headGroupSpec: {template: {spec: {containers: [{name: head, image: i}]}}}
  workerGroupSpecs:
  - replicas: 2
    template: {spec: {containers: [{name: worker, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}
"""


async def test_a_workload_is_shown_by_all_its_pods_and_each_says_which_it_is():
    (document,) = manifests.parse(WORKERS.encode(), "workers")
    replicas = pods_of(document.object)
    parts = ["headGroupSpec", "workerGroupSpecs/0, 1 of 2", "workerGroupSpecs/0, 2 of 2"]
    assert [replica.part for replica in replicas] == parts
    async with playground(FLEET, Source(CONFIGURATION)) as here:
        head, *workers = [await end_of(here, replica.pod, PATIENCE) for replica in replicas]
    assert (head.name, head.requested) == ("ray-0-0", ())
    assert [(worker.name, worker.end) for worker in workers] == [("ray-1-0", End.PLACED), ("ray-1-1", End.PLACED)]


async def test_deciding_about_a_pod_reads_no_fleet_again(monkeypatch):
    """The webhook of the demo keeps a state, so a demo of hundreds of pods that stay does not read the fleet for each."""
    quiet = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quiet", "labels": {MODE_LABEL: "off"}}}
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    left = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "quiet"}, "spec": {"containers": [container]}}  # fmt: skip
    async with playground([*FLEET, quiet], Source(CONFIGURATION)) as here:
        await here.push(left)
        pod = await here.pod("quiet", "p")
        deciding, real, listed = asyncio.current_task(), here.cluster.list, []

        async def list_(resource, *args, **options):
            if asyncio.current_task() is deciding:
                listed.append(resource.id)
            return await real(resource, *args, **options)

        monkeypatch.setattr(here.cluster, "list", list_)
        decisions = await here.decisions(pod)
    assert [(decision.key, decision.outcome) for decision in decisions] == [("nvidia.com/gpu", "left")]
    assert listed == []


@pytest.mark.parametrize(("replicas", "names"), [(0, []), (1, ["d-0"]), (64, [f"d-{i}" for i in range(8)])])
def test_a_demo_makes_as_many_pods_as_replicas_and_no_more_than_a_screen_holds(replicas, names):
    spec = {"replicas": replicas, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    made = pods_of({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
    assert [created.pod["metadata"]["name"] for created in made] == names
    assert [created.part for created in made][-1:] == ([f"8 of {replicas}"] if replicas > 8 else [""] * bool(replicas))


async def test_a_person_can_push_pods_with_curl():
    async with playground(FLEET, Source(CONFIGURATION)) as here, PodsListener(here, patience=PATIENCE).open() as url, aiohttp.ClientSession() as session:  # fmt: skip
        for body, status, says in (
            ((EXAMPLES / "pods/nvidia-training.yaml").read_bytes(), 200, "✓ training-0"),
            (
                b"{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c}]}}",
                200,
                "·",
            ),
            (b"kind: Pod", 400, "needs apiVersion and kind"),
            (
                b"{apiVersion: v1, kind: ConfigMap}",
                400,
                "the manifest holds no pod",
            ),
            (b"{apiVersion: v1, kind: Pod}", 400, "a Pod without the spec of a pod"),
            (b"{apiVersion: resource.k8s.io/v1, kind: ResourceClaim}", 400, "a ResourceClaim needs a name"),
            (b"kind: Pod\nmetadata: [1]", 400, "metadata is not an object"),
            ((SERVICE + WORKERS).encode(), 200, "ignored Service/default/s\n"),
            (b"", 400, "no pod"),
            (b"{", 400, "your manifest"),
        ):
            async with session.post(f"{url}/pods", data=body) as response:
                assert (response.status, says in (text := await response.text())) == (status, True), text
        async with session.get(f"{url}/pods") as response:
            assert "training-0" in await response.text()


OWN_TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: mine}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: own}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: mine}]
  containers: [{name: c, image: x, resources: {claims: [{name: gpu}]}}]
"""


async def test_a_pod_that_brings_its_own_template_gets_its_devices_and_can_be_taken_away():
    async with playground(FLEET, Source(CONFIGURATION)) as here, PodsListener(here, patience=PATIENCE).open() as url, aiohttp.ClientSession() as session:  # fmt: skip
        async with session.post(f"{url}/pods", data=OWN_TEMPLATE) as response:
            text = await response.text()
            assert response.status == 200, text
            assert "applied ResourceClaimTemplate mine" in text
            assert "✓ own" in text
        for status in (200, 404):
            async with session.delete(f"{url}/pods/own") as response:
                assert response.status == status, await response.text()
        async with session.get(f"{url}/pods") as response:
            assert "own" not in await response.text()


async def test_a_pod_is_taken_away_by_its_name_where_that_says_which():
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: {}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
    async with playground(FLEET, Source(CONFIGURATION)) as here, PodsListener(here, patience=PATIENCE).open() as url, aiohttp.ClientSession() as session:  # fmt: skip
        for home in ("one", "two"):
            async with session.post(f"{url}/pods", data=pod.format(home)) as response:
                assert response.status == 200
        for path, status, says in (
            ("p", 409, "one, two"),
            ("one/p", 200, "one/p"),
            ("p", 200, "two/p"),
            ("p", 404, "p"),
        ):
            async with session.delete(f"{url}/pods/{path}") as response:
                assert (response.status, says in await response.text()) == (status, True)


async def test_a_pod_whose_template_never_comes_is_answered_and_said_to_wait():
    pod = OWN_TEMPLATE.partition("---\n")[2]
    async with playground(FLEET, Source(CONFIGURATION)) as here, PodsListener(here, patience=0.5).open() as url, aiohttp.ClientSession() as session:  # fmt: skip
        async with session.post(f"{url}/pods", data=pod) as response:
            text = await response.text()
            assert response.status == 200, text
        assert "… own" in text
        assert "nothing more was decided within 0.5 s" in text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "rebound.example.com"}, 403),
        ({"Host": "localhost.example.com:80"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "https://evil.example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:1", "Origin": "http://[::1]:1"}, 200),
        ({}, 200),
    ],
)
async def test_a_page_of_another_origin_cannot_use_the_port(headers, status):
    async with (
        playground(FLEET, Source(CONFIGURATION)) as here,
        PodsListener(here).open() as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/pods", headers=headers) as response,
    ):
        assert response.status == status, await response.text()


def test_a_demo_counts_and_ignores_kinds_it_does_not_know(tmp_path):
    others = (
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i}\n"
        "---\napiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: r}\nspec: {}\n"
        "---\napiVersion: v1\nkind: Secret\nmetadata: {name: odd, labels: [x]}\n"
        "---\n"
    )
    file = tmp_path / "all.yaml"
    file.write_text(others + OWN_TEMPLATE)
    done = run("demo", "-f", str(file), "--once")
    assert done.exit_code == 0, done.stderr
    assert "✓ own" in done.stdout
    assert "1 pod: 1 placed" in done.stdout
    assert "4 objects ignored" in done.stdout
    assert "1 Service, 1 Ingress, 1 RayCluster, 1 Secret" in done.stdout
    assert "1 object added to the store: 1 ResourceClaimTemplate" in done.stdout


THING = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t}\n"


def test_a_demo_ignores_an_object_of_the_fleet_that_its_store_does_not_know(tmp_path):
    file = tmp_path / "thing.yaml"
    file.write_text(THING)
    done = run("demo", "-f", str(EXAMPLES / "pods/nvidia-training.yaml"), "--fleet", str(EXAMPLES / "fleet"), "--fleet", str(file), "--once")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "1 object ignored" in done.stdout
    assert "1 Thing" in done.stdout


def test_standalone_ignores_an_object_that_its_store_does_not_know(tmp_path):
    file = tmp_path / "thing.yaml"
    file.write_text(THING)
    process = subprocess.Popen([DRAWBRIDGE, "standalone", "-f", file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        lines = [process.stdout.readline() for _ in range(6)]
        assert lines[5].startswith("1 object ignored"), lines
        assert lines[5].endswith(": 1 Thing\n"), lines
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def test_workloads_become_the_pods_that_their_controllers_would_make():
    for path in sorted((EXAMPLES / "pods").glob("*.yaml")):
        pod = pods_of(manifests.read([path])[-1].object)[0].pod
        assert pod["kind"] == "Pod"
        assert pod["metadata"].get("name") or pod["metadata"]["generateName"]
        assert pod["spec"]["containers"]
    assert pods_of({"kind": "ConfigMap", "apiVersion": "v1"}) == []


def test_a_story_is_told_in_columns_that_fit():
    progress = PodProgress(
        name="p",
        shows="why " * 40 + "so",
        end=End.PLACED,
        requested=("c: x 1",),
        became=("word " * 60,),
        runs=("n: d",),
    )
    lines = list(
        stories.lines([progress, PodProgress(name="longer", end=End.REFUSED, because=("no",))], width=80, colour=False)
    )
    assert lines[0].startswith("✓ p       why why")
    assert lines[1].startswith(" " * 10 + "  why"), "it goes on below itself"
    assert all(len(line) <= 80 for line in lines)
    assert "    runs on  n: d" in lines
    assert "✗ longer" in lines


def test_colours_are_only_used_when_enabled():
    progress = PodProgress(name="p", end=End.WAITS)
    assert "\x1b[33m" in next(iter(stories.lines([progress], width=80, colour=True)))
    assert "\x1b" not in next(iter(stories.lines([progress], width=80, colour=False)))


def test_a_closed_output_of_demo_is_not_reported_as_a_bug():
    with subprocess.Popen([DRAWBRIDGE, "demo", "--once"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        demo.stdout.readline()
        demo.stdout.close()
        assert b"bug" not in demo.stderr.read()


def test_the_sum_counts_every_end():
    total = stories.total([PodProgress(name="a", end=End.PLACED), PodProgress(name="b", end=End.REFUSED)], 1.25)
    assert total == "2 pods: 1 placed, 1 refused; 1.2 s"
    alone = stories.total([PodProgress(name="a", end=End.LEFT)], 1)
    assert alone == "1 pod: 1 left; 1.0 s"
