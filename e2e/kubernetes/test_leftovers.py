"""The next run cleans up after a run that was killed at any point, and keeps only its logs."""

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.ground import leftovers, run
from e2e.ground.cache import locked
from tests.limits import PATIENCE

READY = "print('ready', flush=True); import time; time.sleep(600)"
CONTROL_PLANE = f"from e2e.ground.controlplane import ControlPlane\ncp = ControlPlane(name='killed').start()\n{READY}"
NODE = f"""
from e2e.ground.controlplane import ControlPlane
from e2e.ground.node import Node
from e2e.actors.workloads import container, pod
cp = ControlPlane(name='killed').start()
Node(cp).start()
cp.namespace('ns')
cp.create(pod('p', 'ns', container(command='sleep 600')))
cp.wait_phase('ns', 'p', 'Running')
{READY}
"""


@contextlib.contextmanager
def killed(script, after=None):
    """Run a script in its own process, kill it when it is ready or after some seconds; return its run.

    A starting run cleans up after others under the lock that is taken here: before the end of a run that is ready, after the end
    of one that may still hold the lock.
    """
    before = set(run.folder().iterdir())
    with contextlib.ExitStack() as alone:
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as owner:
            if after is None:
                assert owner.stdout.readline() == b"ready\n"
                alone.enter_context(locked("runs"))
            else:
                until = time.monotonic() + PATIENCE
                while not begun(before) and time.monotonic() < until:
                    time.sleep(0.01)
                time.sleep(after)
            owner.send_signal(signal.SIGKILL)
        if after is not None:
            alone.enter_context(locked("runs"))
        [root] = begun(before)
        yield root


def begun(before):
    """The runs that started since, once they have a folder of logs."""
    return [
        root for root in set(run.folder().iterdir()) - before if "-killed-" in root.name and (root / "logs").exists()
    ]


def assert_clean(root):
    assert not leftovers.processes(root)
    assert {entry.name for entry in root.iterdir()} == {"logs", "lock"}
    assert str(root) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.real
@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.5, 2.5])
def test_a_control_plane_killed_while_it_starts_is_cleaned_up(seconds):
    with killed(CONTROL_PLANE, after=seconds) as root:
        leftovers.sweep(run.folder())
        assert_clean(root)


@pytest.mark.real
@pytest.mark.node
@pytest.mark.parametrize("seconds", [2.8, 3.2, 4.0])
def test_a_node_killed_while_it_starts_is_cleaned_up(seconds):
    with killed(NODE, after=seconds) as root:
        leftovers.sweep(run.folder())
        assert_clean(root)


# The child is in the state between fork and exec: it has the parent's files and environment.
HALF_STARTED = f"""
import os, time
from e2e.ground.run import Run
run = Run('killed')
if os.fork() == 0:
    time.sleep({{seconds}})
    os.environ['DRAWBRIDGE_RUN'] = str(run.root)
    os.execv('/bin/sleep', ['sleep', '600'])
{READY}
"""


@pytest.mark.real
def test_a_run_killed_during_a_start_is_cleaned_up():
    with killed(HALF_STARTED.format(seconds=0.5)) as root:
        leftovers.sweep(run.folder())
        assert_clean(root)


# Owners that start programs in turn and are killed at any moment; prints what is left after each sweep.
STARTING = """
import os, random, signal, sys, time
from e2e.ground import leftovers, run
from e2e.ground.process import Process
moments = random.Random(1)
for number in range(40):
    done, begun = os.pipe()
    owner = os.fork()
    if owner == 0:
        one = run.Run('killed')
        os.write(begun, str(one.root).encode())
        for at in range(100):
            Process(f'p{at}', ['sleep', '600'], root=one.root)
        os._exit(0)
    root = leftovers.Path(os.read(done, 4096).decode())
    time.sleep(moments.random() * 0.05)
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    leftovers.sweep(run.folder())
    time.sleep(0.02)
    left = leftovers.processes(root)
    print(sorted(left), flush=True)
    leftovers.end(root)
"""


@pytest.mark.real
def test_a_program_started_by_a_killed_run_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAWBRIDGE_CACHE", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", STARTING], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert set(done.stdout.splitlines()) == {"[]"}


@pytest.mark.real
def test_concurrent_lookups_do_not_mistake_each_other_for_the_owner(tmp_path):
    with leftovers.own(tmp_path):
        assert leftovers.is_owned(tmp_path)
    with leftovers.lock_file(tmp_path).open("a+") as other:
        assert leftovers.is_unlocked(other)
        assert not leftovers.is_owned(tmp_path)


@pytest.mark.real
def test_a_running_control_plane_is_not_a_leftover(control_plane):
    with locked("runs"):
        leftovers.sweep(run.folder())
    assert control_plane.get("/readyz") == "ok"


@pytest.mark.real
@pytest.mark.node
def test_a_killed_node_leaves_no_containers_mounts_or_control_groups():
    with killed(NODE) as root:
        tasks = root / "data/node/containerd-state/io.containerd.runtime.v2.task/k8s.io"
        containers = [entry.name for entry in tasks.iterdir()]
        assert len(containers) == 2, "the pod's sandbox and its container"
        assert leftovers.processes(root), "the node outlives its owner until the next run"
        leftovers.sweep(run.folder())
        assert_clean(root)
    assert not [group for name in containers for group in leftovers.CGROUPS.glob(f"*/k8s.io/{name}")]
    assert not [file for file in Path("/proc").glob("[0-9]*/cmdline") if names_any(file, containers)]


def names_any(file, containers):
    try:
        return any(name in file.read_text() for name in containers)
    except OSError:  # it ended meanwhile
        return False
